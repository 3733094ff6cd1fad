//! Why a command has done nothing, at every member alike, and whether the same may be done later.

use super::leases::{KEYS_MAX, REVOKED_MAX};
use super::owners::{LEASES_MAX, LEASES_OF_ONE_MAX, SESSIONS_OF_ONE_MAX};
use super::users::{GRANTS_MAX, USERS_MAX};

/// Why a command has done nothing. Each has a number in the table of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Refusal {
    /// The session has ended, or never was.
    #[error("the session has ended, or never was")]
    NoSession = 1,
    /// The client has said that it has the answer to this write.
    #[error("the answer to this write is not kept any more: its client said that it has it")]
    Forgotten = 2,
    /// The client does not say what it has.
    #[error("the session keeps too many answers: say with awaited_from which have arrived")]
    TooManyAnswers = 3,
    /// There are too many sessions.
    #[error("there are too many sessions: close some, or wait until they end")]
    TooManySessions = 4,
    /// One user has too many sessions.
    #[error("the user has {SESSIONS_OF_ONE_MAX} sessions: close some, or wait until they end")]
    TooManyOwnSessions = 20,
    /// One user has too many leases.
    #[error("the user has {LEASES_OF_ONE_MAX} leases: revoke some, or wait until they end")]
    TooManyOwnLeases = 21,
    /// There are too many leases.
    #[error("there are {LEASES_MAX} leases: revoke some, or wait until they end")]
    TooManyLeases = 22,
    /// A value is not a number.
    #[error("the value is no counter: decimal digits are, with a sign or without")]
    NotACounter = 5,
    /// A sum is too large.
    #[error("the sum has more than 64 bits")]
    CounterOverflow = 6,
    /// A transaction reads too much.
    #[error("the transaction reads more than 4 MiB, or compares or attaches values of more than 64 MiB: send several")]
    AnswerTooLarge = 7,
    /// It is no command.
    #[error("the entry is no command")]
    Malformed = 8,
    /// A lease has ended.
    #[error("there is no such lease: it has ended, or never was; grant another one")]
    NoLease = 10,
    /// A lease ends with too much.
    #[error("the lease has {KEYS_MAX} keys: attach more to another one")]
    TooManyLeaseKeys = 11,
    /// Answers of sessions take too much memory.
    #[error("answers that sessions keep take too much memory: say with awaited_from which have arrived, and try again")]
    NoRoomForAnswers = 18,
    /// A transaction ends too much.
    #[error(
        "the transaction revokes leases with more than {REVOKED_MAX} keys together, or keeps them alive: do it in several"
    )]
    TooManyRevokedKeys = 19,
    /// Nobody has said that it may.
    #[error("permission denied: ask an administrator for a grant of the prefix (ctl user grant)")]
    Denied = 12,
    /// There is no such user.
    #[error("there is no user of this name")]
    NoUser = 13,
    /// There is one already.
    #[error("there is a user of this name already")]
    UserExists = 14,
    /// Nobody could change users any more.
    #[error("users are asked for, and nobody would administer them: add an administrator first (ctl user add --admin)")]
    NoAdmin = 15,
    /// Too much is known of users.
    #[error("there are too many users, or prefixes of one: {USERS_MAX} and {GRANTS_MAX} at most")]
    TooManyUsers = 16,
    /// It was not granted.
    #[error("the user has no grant of exactly this prefix")]
    NoGrant = 17,
    /// A member has left for good.
    #[error("a member with this number was removed: give the new one a number that was never used")]
    MemberRemoved = 9,
}

impl Refusal {
    /// All.
    pub const ALL: [Self; 22] = [
        Self::NoSession,
        Self::Forgotten,
        Self::TooManyAnswers,
        Self::TooManySessions,
        Self::TooManyOwnSessions,
        Self::TooManyOwnLeases,
        Self::TooManyLeases,
        Self::NotACounter,
        Self::CounterOverflow,
        Self::AnswerTooLarge,
        Self::Malformed,
        Self::MemberRemoved,
        Self::NoLease,
        Self::TooManyLeaseKeys,
        Self::NoRoomForAnswers,
        Self::TooManyRevokedKeys,
        Self::Denied,
        Self::NoUser,
        Self::UserExists,
        Self::NoAdmin,
        Self::TooManyUsers,
        Self::NoGrant,
    ];

    /// Whether the same may be done later, when others, or the client itself, have given room back. Nothing has happened.
    pub const fn passes(self) -> bool {
        match self {
            Self::TooManyAnswers
            | Self::NoRoomForAnswers
            | Self::TooManySessions
            | Self::TooManyOwnSessions
            | Self::TooManyLeases
            | Self::TooManyOwnLeases => true,
            Self::NoSession
            | Self::Forgotten
            | Self::NotACounter
            | Self::CounterOverflow
            | Self::AnswerTooLarge
            | Self::Malformed
            | Self::MemberRemoved
            | Self::NoLease
            | Self::TooManyLeaseKeys
            | Self::TooManyRevokedKeys
            | Self::Denied
            | Self::NoUser
            | Self::UserExists
            | Self::NoAdmin
            | Self::TooManyUsers
            | Self::NoGrant => false,
        }
    }

    /// Its number; never 0.
    pub(super) fn number(self) -> u8 {
        self as u8
    }

    pub(super) fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| refusal.number() == number)
    }
}
