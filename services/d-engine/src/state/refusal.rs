//! Why a command has done nothing, at every member alike, and whether the same may be done later.

use super::bounds::{
    GRANTS_MAX, LEASE_KEYS_MAX, LEASES_MAX, LEASES_OF_ONE_MAX, REVOKED_MAX, SESSIONS_OF_ONE_MAX, USERS_MAX,
};

/// The enum, all of it, and which of it passes, from one table: what is forgotten in one of them would not be read again from the log.
macro_rules! refusals {
    ($($(#[doc = $doc:literal])* $number:literal $name:ident $passes:literal $text:literal,)*) => {
        /// Why a command has done nothing. Each has a number in the table of answers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
        #[repr(u8)]
        pub enum Refusal {
            $($(#[doc = $doc])* #[error($text)] $name = $number,)*
        }

        impl Refusal {
            /// All.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Whether the same may be done later, when others, or the client itself, have given room back. Nothing has happened.
            pub const fn passes(self) -> bool {
                match self {
                    $(Self::$name => $passes,)*
                }
            }
        }
    };
}

// Number, name, whether it passes, what is said.
refusals! {
    /// The session has ended, or never was.
    1 NoSession false
    "the session has ended, or never was",
    /// The client has said that it has the answer to this write.
    2 Forgotten false
    "the answer to this write is not kept any more: its client said that it has it",
    /// The client does not say what it has.
    3 TooManyAnswers true
    "the session keeps too many answers: say with awaited_from which have arrived",
    /// There are too many sessions.
    4 TooManySessions true
    "there are too many sessions: close some, or wait until they end",
    /// A value is not a number.
    5 NotACounter false
    "the value is no counter: decimal digits are, with a sign or without",
    /// A sum is too large.
    6 CounterOverflow false
    "the sum has more than 64 bits",
    /// A transaction reads too much.
    7 AnswerTooLarge false
    "the transaction reads more than 4 MiB, or compares or attaches values of more than 64 MiB: send several",
    /// It is no command.
    8 Malformed false
    "the entry is no command",
    /// A member has left for good.
    9 MemberRemoved false
    "a member with this number was removed: give the new one a number that was never used",
    /// A lease has ended.
    10 NoLease false
    "there is no such lease: it has ended, or never was; grant another one",
    /// A lease ends with too much.
    11 TooManyLeaseKeys false
    "the lease has {LEASE_KEYS_MAX} keys: attach more to another one",
    /// Nobody has said that it may.
    12 Denied false
    "permission denied: ask an administrator for a grant of the prefix (ctl user grant)",
    /// There is no such user.
    13 NoUser false
    "there is no user of this name",
    /// There is one already.
    14 UserExists false
    "there is a user of this name already",
    /// Nobody could change users any more.
    15 NoAdmin false
    "users are asked for, and nobody would administer them: add an administrator first (ctl user add --admin)",
    /// Too much is known of users.
    16 TooManyUsers false
    "there are too many users, or prefixes of one: {USERS_MAX} and {GRANTS_MAX} at most",
    /// It was not granted.
    17 NoGrant false
    "the user has no grant of exactly this prefix",
    /// Answers of sessions take too much memory.
    18 NoRoomForAnswers true
    "answers that sessions keep take too much memory: say with awaited_from which have arrived, and try again",
    /// A transaction ends too much.
    19 TooManyRevokedKeys false
    "the transaction revokes leases with more than {REVOKED_MAX} keys together, or keeps them alive: do it in several",
    /// One user has too many sessions.
    20 TooManyOwnSessions true
    "the user has {SESSIONS_OF_ONE_MAX} sessions: close some, or wait until they end",
    /// One user has too many leases.
    21 TooManyOwnLeases true
    "the user has {LEASES_OF_ONE_MAX} leases: revoke some, or wait until they end",
    /// There are too many leases.
    22 TooManyLeases true
    "there are {LEASES_MAX} leases: revoke some, or wait until they end",
}

impl Refusal {
    /// Its number; never 0.
    pub(super) fn number(self) -> u8 {
        self as u8
    }

    pub(super) fn of(number: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|refusal| refusal.number() == number)
    }
}
