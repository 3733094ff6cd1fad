//! What is known of a command before it runs: its flags, categories, arity and keys.

use super::Handler;

/// A set of flags or categories.
pub type Flags = u32;

/// May change keys.
pub const WRITE: Flags = 1;
/// Changes nothing.
pub const READONLY: Flags = 1 << 1;
/// May need memory: refused where there is none.
pub const DENYOOM: Flags = 1 << 2;
/// For administrators.
pub const ADMIN: Flags = 1 << 3;
/// About channels.
pub const PUBSUB: Flags = 1 << 4;
/// Not in scripts.
pub const NOSCRIPT: Flags = 1 << 5;
/// May wait.
pub const BLOCKING: Flags = 1 << 6;
/// Also while data are loaded.
pub const LOADING: Flags = 1 << 7;
/// Also on a replica that lost its master.
pub const STALE: Flags = 1 << 8;
/// Not shown by MONITOR.
pub const SKIP_MONITOR: Flags = 1 << 9;
/// Never slow.
pub const SKIP_SLOWLOG: Flags = 1 << 10;
/// Takes constant or logarithmic time.
pub const FAST: Flags = 1 << 11;
/// Also before login.
pub const NO_AUTH: Flags = 1 << 12;
/// May be replicated though it writes no keys.
pub const MAY_REPLICATE: Flags = 1 << 13;
/// Its keys may be missing.
pub const NO_MANDATORY_KEYS: Flags = 1 << 14;
/// Not while data are loaded beside old ones.
pub const NO_ASYNC_LOADING: Flags = 1 << 15;
/// Not in transactions.
pub const NO_MULTI: Flags = 1 << 16;
/// Its keys stand where its arguments say.
pub const MOVABLEKEYS: Flags = 1 << 17;
/// Also while a script runs for too long.
pub const ALLOW_BUSY: Flags = 1 << 18;
/// Also for keys of a slot that is coming here.
pub const ASKING: Flags = 1 << 19;
/// Looking at a key by it is no use of the key. Not shown by COMMAND.
pub const NO_TOUCH: Flags = 1 << 31;

/// Flags and their names, in the order in which COMMAND gives them.
pub const FLAG_NAMES: &[(Flags, &str)] = &[
    (WRITE, "write"),
    (READONLY, "readonly"),
    (DENYOOM, "denyoom"),
    (ADMIN, "admin"),
    (PUBSUB, "pubsub"),
    (NOSCRIPT, "noscript"),
    (BLOCKING, "blocking"),
    (LOADING, "loading"),
    (STALE, "stale"),
    (SKIP_MONITOR, "skip_monitor"),
    (SKIP_SLOWLOG, "skip_slowlog"),
    (ASKING, "asking"),
    (FAST, "fast"),
    (NO_AUTH, "no_auth"),
    (MAY_REPLICATE, "may_replicate"),
    (NO_MANDATORY_KEYS, "no_mandatory_keys"),
    (NO_ASYNC_LOADING, "no_async_loading"),
    (NO_MULTI, "no_multi"),
    (MOVABLEKEYS, "movablekeys"),
    (ALLOW_BUSY, "allow_busy"),
];

macro_rules! categories {
    ($($constant:ident $name:literal $bit:literal;)*) => {
        $(pub(super) const $constant: Flags = 1 << $bit;)*
        /// Categories and their names, in the order in which COMMAND gives them.
        pub const CATEGORY_NAMES: &[(Flags, &str)] = &[$(($constant, $name)),*];
    };
}
categories! {
    CATEGORY_KEYSPACE "@keyspace" 0;
    CATEGORY_READ "@read" 1;
    CATEGORY_WRITE "@write" 2;
    CATEGORY_SET "@set" 3;
    CATEGORY_SORTEDSET "@sortedset" 4;
    CATEGORY_LIST "@list" 5;
    CATEGORY_HASH "@hash" 6;
    CATEGORY_STRING "@string" 7;
    CATEGORY_BITMAP "@bitmap" 8;
    CATEGORY_HYPERLOGLOG "@hyperloglog" 9;
    CATEGORY_GEO "@geo" 10;
    CATEGORY_STREAM "@stream" 11;
    CATEGORY_PUBSUB "@pubsub" 12;
    CATEGORY_ADMIN "@admin" 13;
    CATEGORY_FAST "@fast" 14;
    CATEGORY_SLOW "@slow" 15;
    CATEGORY_BLOCKING "@blocking" 16;
    CATEGORY_DANGEROUS "@dangerous" 17;
    CATEGORY_CONNECTION "@connection" 18;
    CATEGORY_TRANSACTION "@transaction" 19;
    CATEGORY_SCRIPTING "@scripting" 20;
}

/// A command.
#[derive(Debug)]
pub struct Command {
    /// In small letters; a subcommand's with its command's, `config|get`.
    pub name: &'static str,
    pub(super) handler: Handler,
    /// Arguments with the name; negative: at least so many.
    pub arity: i32,
    /// See the constants.
    pub flags: Flags,
    /// Categories that do not follow from the flags.
    categories: Flags,
    /// First key, last key (negative: from the end), step.
    pub keys: (usize, i32, usize),
    /// Its subcommands.
    pub subcommands: &'static [Command],
}

pub(super) const fn c(
    name: &'static str,
    handler: Handler,
    arity: i32,
    flags: Flags,
    categories: Flags,
    keys: (usize, i32, usize),
) -> Command {
    Command { name, handler, arity, flags, categories, keys, subcommands: &[] }
}

impl Command {
    pub(super) const fn with(self, subcommands: &'static [Self]) -> Self {
        Self { subcommands, ..self }
    }

    /// Whether it has this flag.
    #[inline]
    pub fn is(&self, flag: Flags) -> bool {
        self.flags & flag != 0
    }

    /// ACL categories.
    pub fn categories(&self) -> Flags {
        let follows = [
            (WRITE, CATEGORY_WRITE),
            (READONLY, CATEGORY_READ),
            (ADMIN, CATEGORY_ADMIN | CATEGORY_DANGEROUS),
            (PUBSUB, CATEGORY_PUBSUB),
            (BLOCKING, CATEGORY_BLOCKING),
        ];
        // Scripts are not for those who may only read.
        let is_script = self.categories & CATEGORY_SCRIPTING != 0;
        let follows = follows.map(|(flag, category)| (flag, if is_script && flag == READONLY { 0 } else { category }));
        let derived = follows.iter().filter(|(flag, _)| self.is(*flag)).fold(0, |all, (_, category)| all | category);
        self.categories | derived | if self.is(FAST) { CATEGORY_FAST } else { CATEGORY_SLOW }
    }

    pub(super) fn takes(&self, arguments: usize) -> bool {
        match self.arity {
            arity @ 0.. => arguments == arity as usize,
            arity => arguments >= arity.unsigned_abs() as usize,
        }
    }
}
