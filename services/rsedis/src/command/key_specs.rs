//! Where the keys of each command stand among its arguments, and what it does with them: Redis's key specifications. COMMAND INFO,
//! COMMAND GETKEYS, tracking and ACL all read this one table; a test compares it with Redis 7.0.15.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::options::is;
use super::{Command, NO_MANDATORY_KEYS};
use crate::number::parse_integer;
use crate::protocol::Args;

/// What a command does with a key.
pub type Access = u16;

macro_rules! access {
    ($($constant:ident $name:literal $bit:literal;)*) => {
        $(
            #[doc = concat!("`", $name, "`.")]
            pub const $constant: Access = 1 << $bit;
        )*
        /// All of them and their names, in the order in which COMMAND INFO gives them.
        pub const ACCESS_NAMES: &[(Access, &str)] = &[$(($constant, $name)),*];
    };
}
access! {
    RO "RO" 0;
    RW "RW" 1;
    OW "OW" 2;
    RM "RM" 3;
    ACCESS "access" 4;
    UPDATE "update" 5;
    INSERT "insert" 6;
    DELETE "delete" 7;
    NOT_KEY "not_key" 8;
    INCOMPLETE "incomplete" 9;
    VARIABLE_FLAGS "variable_flags" 10;
}

/// Where keys, or the number of keys, begin.
#[derive(Clone, Copy, Debug)]
pub enum Begin {
    /// At an argument.
    Index(usize),
    /// Behind a word, looked for from an argument on; negative: from the end, backwards.
    Keyword(&'static str, i32),
    /// Where only the command itself knows.
    Unknown,
}

/// Which arguments from there on are keys.
#[derive(Clone, Copy, Debug)]
pub enum Find {
    /// Last (negative: from the end), step, and the part of the rest that is keys (2: one half).
    Range(i32, usize, usize),
    /// Where the number of keys stands, where the first stands, step.
    Count(usize, usize, usize),
    /// Only the command itself knows.
    Unknown,
}

/// Some of a command's keys.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// What is done with them.
    pub access: Access,
    /// Where they begin.
    pub begin: Begin,
    /// Which they are.
    pub find: Find,
}

/// A key among the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPlace {
    /// Which argument it is.
    pub place: usize,
    /// What is done with it.
    pub access: Access,
}

use Begin::{Index, Keyword};
use Find::{Count, Range};

const fn spec(access: Access, begin: Begin, find: Find) -> KeySpec {
    KeySpec { access, begin, find }
}

#[rustfmt::skip]
static SPECS: &[(&str, &[KeySpec])] = &[
    ("append", &[spec(RW | INSERT, Index(1), Range(0, 1, 0))]),
    ("bitcount", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("bitfield", &[spec(RW | ACCESS | UPDATE | VARIABLE_FLAGS, Index(1), Range(0, 1, 0))]),
    ("bitfield_ro", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("bitop", &[spec(OW | UPDATE, Index(2), Range(0, 1, 0)), spec(RO | ACCESS, Index(3), Range(-1, 1, 0))]),
    ("bitpos", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("blmove", &[spec(RW | ACCESS | DELETE, Index(1), Range(0, 1, 0)), spec(RW | INSERT, Index(2), Range(0, 1, 0))]),
    ("blmpop", &[spec(RW | ACCESS | DELETE, Index(2), Count(0, 1, 1))]),
    ("blpop", &[spec(RW | ACCESS | DELETE, Index(1), Range(-2, 1, 0))]),
    ("brpop", &[spec(RW | ACCESS | DELETE, Index(1), Range(-2, 1, 0))]),
    ("brpoplpush", &[spec(RW | ACCESS | DELETE, Index(1), Range(0, 1, 0)), spec(RW | INSERT, Index(2), Range(0, 1, 0))]),
    ("bzmpop", &[spec(RW | ACCESS | DELETE, Index(2), Count(0, 1, 1))]),
    ("bzpopmax", &[spec(RW | ACCESS | DELETE, Index(1), Range(-2, 1, 0))]),
    ("bzpopmin", &[spec(RW | ACCESS | DELETE, Index(1), Range(-2, 1, 0))]),
    ("copy", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0)), spec(OW | UPDATE, Index(2), Range(0, 1, 0))]),
    ("decr", &[spec(RW | ACCESS | UPDATE, Index(1), Range(0, 1, 0))]),
    ("decrby", &[spec(RW | ACCESS | UPDATE, Index(1), Range(0, 1, 0))]),
    ("del", &[spec(RM | DELETE, Index(1), Range(-1, 1, 0))]),
    ("dump", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("eval", &[spec(RW | ACCESS | UPDATE, Index(2), Count(0, 1, 1))]),
    ("eval_ro", &[spec(RO | ACCESS, Index(2), Count(0, 1, 1))]),
    ("evalsha", &[spec(RW | ACCESS | UPDATE, Index(2), Count(0, 1, 1))]),
    ("evalsha_ro", &[spec(RO | ACCESS, Index(2), Count(0, 1, 1))]),
    ("exists", &[spec(RO, Index(1), Range(-1, 1, 0))]),
    ("expire", &[spec(RW | UPDATE, Index(1), Range(0, 1, 0))]),
    ("expireat", &[spec(RW | UPDATE, Index(1), Range(0, 1, 0))]),
    ("expiretime", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("fcall", &[spec(RW | ACCESS | UPDATE, Index(2), Count(0, 1, 1))]),
    ("fcall_ro", &[spec(RO | ACCESS, Index(2), Count(0, 1, 1))]),
    ("geoadd", &[spec(RW | UPDATE, Index(1), Range(0, 1, 0))]),
    ("geodist", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("geohash", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("geopos", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("georadius", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0)), spec(OW | UPDATE, Keyword("STORE", 6), Range(0, 1, 0)), spec(OW | UPDATE, Keyword("STOREDIST", 6), Range(0, 1, 0))]),
    ("georadius_ro", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("georadiusbymember", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0)), spec(OW | UPDATE, Keyword("STORE", 5), Range(0, 1, 0)), spec(OW | UPDATE, Keyword("STOREDIST", 5), Range(0, 1, 0))]),
    ("georadiusbymember_ro", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("geosearch", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("geosearchstore", &[spec(OW | UPDATE, Index(1), Range(0, 1, 0)), spec(RO | ACCESS, Index(2), Range(0, 1, 0))]),
    ("get", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("getbit", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("getdel", &[spec(RW | ACCESS | DELETE, Index(1), Range(0, 1, 0))]),
    ("getex", &[spec(RW | ACCESS | UPDATE, Index(1), Range(0, 1, 0))]),
    ("getrange", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("getset", &[spec(RW | ACCESS | UPDATE, Index(1), Range(0, 1, 0))]),
    ("hdel", &[spec(RW | DELETE, Index(1), Range(0, 1, 0))]),
    ("hexists", &[spec(RO, Index(1), Range(0, 1, 0))]),
    ("hget", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("hgetall", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("hincrby", &[spec(RW | ACCESS | UPDATE, Index(1), Range(0, 1, 0))]),
    ("hincrbyfloat", &[spec(RW | ACCESS | UPDATE, Index(1), Range(0, 1, 0))]),
    ("hkeys", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("hlen", &[spec(RO, Index(1), Range(0, 1, 0))]),
    ("hmget", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("hmset", &[spec(RW | UPDATE, Index(1), Range(0, 1, 0))]),
    ("hrandfield", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("hscan", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("hset", &[spec(RW | UPDATE, Index(1), Range(0, 1, 0))]),
    ("hsetnx", &[spec(RW | INSERT, Index(1), Range(0, 1, 0))]),
    ("hstrlen", &[spec(RO, Index(1), Range(0, 1, 0))]),
    ("hvals", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("incr", &[spec(RW | ACCESS | UPDATE, Index(1), Range(0, 1, 0))]),
    ("incrby", &[spec(RW | ACCESS | UPDATE, Index(1), Range(0, 1, 0))]),
    ("incrbyfloat", &[spec(RW | ACCESS | UPDATE, Index(1), Range(0, 1, 0))]),
    ("lcs", &[spec(RO | ACCESS, Index(1), Range(1, 1, 0))]),
    ("lindex", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("linsert", &[spec(RW | INSERT, Index(1), Range(0, 1, 0))]),
    ("llen", &[spec(RO, Index(1), Range(0, 1, 0))]),
    ("lmove", &[spec(RW | ACCESS | DELETE, Index(1), Range(0, 1, 0)), spec(RW | INSERT, Index(2), Range(0, 1, 0))]),
    ("lmpop", &[spec(RW | ACCESS | DELETE, Index(1), Count(0, 1, 1))]),
    ("lpop", &[spec(RW | ACCESS | DELETE, Index(1), Range(0, 1, 0))]),
    ("lpos", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("lpush", &[spec(RW | INSERT, Index(1), Range(0, 1, 0))]),
    ("lpushx", &[spec(RW | INSERT, Index(1), Range(0, 1, 0))]),
    ("lrange", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("lrem", &[spec(RW | DELETE, Index(1), Range(0, 1, 0))]),
    ("lset", &[spec(RW | UPDATE, Index(1), Range(0, 1, 0))]),
    ("ltrim", &[spec(RW | DELETE, Index(1), Range(0, 1, 0))]),
    ("memory|usage", &[spec(RO, Index(2), Range(0, 1, 0))]),
    ("migrate", &[spec(RW | ACCESS | DELETE, Index(3), Range(0, 1, 0)), spec(RW | ACCESS | DELETE | INCOMPLETE, Keyword("KEYS", -2), Range(-1, 1, 0))]),
    ("mget", &[spec(RO | ACCESS, Index(1), Range(-1, 1, 0))]),
    ("move", &[spec(RW | ACCESS | UPDATE, Index(1), Range(0, 1, 0))]),
    ("mset", &[spec(OW | UPDATE, Index(1), Range(-1, 2, 0))]),
    ("msetnx", &[spec(OW | INSERT, Index(1), Range(-1, 2, 0))]),
    ("object|encoding", &[spec(RO, Index(2), Range(0, 1, 0))]),
    ("object|freq", &[spec(RO, Index(2), Range(0, 1, 0))]),
    ("object|idletime", &[spec(RO, Index(2), Range(0, 1, 0))]),
    ("object|refcount", &[spec(RO, Index(2), Range(0, 1, 0))]),
    ("persist", &[spec(RW | UPDATE, Index(1), Range(0, 1, 0))]),
    ("pexpire", &[spec(RW | UPDATE, Index(1), Range(0, 1, 0))]),
    ("pexpireat", &[spec(RW | UPDATE, Index(1), Range(0, 1, 0))]),
    ("pexpiretime", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("pfadd", &[spec(RW | INSERT, Index(1), Range(0, 1, 0))]),
    ("pfcount", &[spec(RW | ACCESS, Index(1), Range(-1, 1, 0))]),
    ("pfdebug", &[spec(RW | ACCESS, Index(2), Range(0, 1, 0))]),
    ("pfmerge", &[spec(RW | ACCESS | INSERT, Index(1), Range(0, 1, 0)), spec(RO | ACCESS, Index(2), Range(-1, 1, 0))]),
    ("psetex", &[spec(OW | UPDATE, Index(1), Range(0, 1, 0))]),
    ("pttl", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("rename", &[spec(RW | ACCESS | DELETE, Index(1), Range(0, 1, 0)), spec(OW | UPDATE, Index(2), Range(0, 1, 0))]),
    ("renamenx", &[spec(RW | ACCESS | DELETE, Index(1), Range(0, 1, 0)), spec(OW | INSERT, Index(2), Range(0, 1, 0))]),
    ("restore", &[spec(OW | UPDATE, Index(1), Range(0, 1, 0))]),
    ("restore-asking", &[spec(OW | UPDATE, Index(1), Range(0, 1, 0))]),
    ("rpop", &[spec(RW | ACCESS | DELETE, Index(1), Range(0, 1, 0))]),
    ("rpoplpush", &[spec(RW | ACCESS | DELETE, Index(1), Range(0, 1, 0)), spec(RW | INSERT, Index(2), Range(0, 1, 0))]),
    ("rpush", &[spec(RW | INSERT, Index(1), Range(0, 1, 0))]),
    ("rpushx", &[spec(RW | INSERT, Index(1), Range(0, 1, 0))]),
    ("sadd", &[spec(RW | INSERT, Index(1), Range(0, 1, 0))]),
    ("scard", &[spec(RO, Index(1), Range(0, 1, 0))]),
    ("sdiff", &[spec(RO | ACCESS, Index(1), Range(-1, 1, 0))]),
    ("sdiffstore", &[spec(OW | UPDATE, Index(1), Range(0, 1, 0)), spec(RO | ACCESS, Index(2), Range(-1, 1, 0))]),
    ("set", &[spec(RW | ACCESS | UPDATE | VARIABLE_FLAGS, Index(1), Range(0, 1, 0))]),
    ("setbit", &[spec(RW | ACCESS | UPDATE, Index(1), Range(0, 1, 0))]),
    ("setex", &[spec(OW | UPDATE, Index(1), Range(0, 1, 0))]),
    ("setnx", &[spec(OW | INSERT, Index(1), Range(0, 1, 0))]),
    ("setrange", &[spec(RW | UPDATE, Index(1), Range(0, 1, 0))]),
    ("sinter", &[spec(RO | ACCESS, Index(1), Range(-1, 1, 0))]),
    ("sintercard", &[spec(RO | ACCESS, Index(1), Count(0, 1, 1))]),
    ("sinterstore", &[spec(RW | UPDATE, Index(1), Range(0, 1, 0)), spec(RO | ACCESS, Index(2), Range(-1, 1, 0))]),
    ("sismember", &[spec(RO, Index(1), Range(0, 1, 0))]),
    ("smembers", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("smismember", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("smove", &[spec(RW | ACCESS | DELETE, Index(1), Range(0, 1, 0)), spec(RW | INSERT, Index(2), Range(0, 1, 0))]),
    ("sort", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0)), spec(RO | ACCESS, Begin::Unknown, Find::Unknown), spec(OW | UPDATE, Begin::Unknown, Find::Unknown)]),
    ("sort_ro", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0)), spec(RO | ACCESS, Begin::Unknown, Find::Unknown)]),
    ("spop", &[spec(RW | ACCESS | DELETE, Index(1), Range(0, 1, 0))]),
    ("spublish", &[spec(NOT_KEY, Index(1), Range(0, 1, 0))]),
    ("srandmember", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("srem", &[spec(RW | DELETE, Index(1), Range(0, 1, 0))]),
    ("sscan", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("ssubscribe", &[spec(NOT_KEY, Index(1), Range(-1, 1, 0))]),
    ("strlen", &[spec(RO, Index(1), Range(0, 1, 0))]),
    ("substr", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("sunion", &[spec(RO | ACCESS, Index(1), Range(-1, 1, 0))]),
    ("sunionstore", &[spec(OW | UPDATE, Index(1), Range(0, 1, 0)), spec(RO | ACCESS, Index(2), Range(-1, 1, 0))]),
    ("sunsubscribe", &[spec(NOT_KEY, Index(1), Range(-1, 1, 0))]),
    ("touch", &[spec(RO, Index(1), Range(-1, 1, 0))]),
    ("ttl", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("type", &[spec(RO, Index(1), Range(0, 1, 0))]),
    ("unlink", &[spec(RM | DELETE, Index(1), Range(-1, 1, 0))]),
    ("watch", &[spec(RO, Index(1), Range(-1, 1, 0))]),
    ("xack", &[spec(RW | UPDATE, Index(1), Range(0, 1, 0))]),
    ("xadd", &[spec(RW | UPDATE, Index(1), Range(0, 1, 0))]),
    ("xautoclaim", &[spec(RW | DELETE, Index(1), Range(0, 1, 0))]),
    ("xclaim", &[spec(RW | UPDATE, Index(1), Range(0, 1, 0))]),
    ("xdel", &[spec(RW | DELETE, Index(1), Range(0, 1, 0))]),
    ("xgroup|create", &[spec(RW | INSERT, Index(2), Range(0, 1, 0))]),
    ("xgroup|createconsumer", &[spec(RW | INSERT, Index(2), Range(0, 1, 0))]),
    ("xgroup|delconsumer", &[spec(RW | DELETE, Index(2), Range(0, 1, 0))]),
    ("xgroup|destroy", &[spec(RW | DELETE, Index(2), Range(0, 1, 0))]),
    ("xgroup|setid", &[spec(RW | UPDATE, Index(2), Range(0, 1, 0))]),
    ("xinfo|consumers", &[spec(RO | ACCESS, Index(2), Range(0, 1, 0))]),
    ("xinfo|groups", &[spec(RO | ACCESS, Index(2), Range(0, 1, 0))]),
    ("xinfo|stream", &[spec(RO | ACCESS, Index(2), Range(0, 1, 0))]),
    ("xlen", &[spec(RO, Index(1), Range(0, 1, 0))]),
    ("xpending", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("xrange", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("xread", &[spec(RO | ACCESS, Keyword("STREAMS", 1), Range(-1, 1, 2))]),
    ("xreadgroup", &[spec(RO | ACCESS, Keyword("STREAMS", 4), Range(-1, 1, 2))]),
    ("xrevrange", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("xsetid", &[spec(RW | UPDATE, Index(1), Range(0, 1, 0))]),
    ("xtrim", &[spec(RW | DELETE, Index(1), Range(0, 1, 0))]),
    ("zadd", &[spec(RW | UPDATE, Index(1), Range(0, 1, 0))]),
    ("zcard", &[spec(RO, Index(1), Range(0, 1, 0))]),
    ("zcount", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("zdiff", &[spec(RO | ACCESS, Index(1), Count(0, 1, 1))]),
    ("zdiffstore", &[spec(OW | UPDATE, Index(1), Range(0, 1, 0)), spec(RO | ACCESS, Index(2), Count(0, 1, 1))]),
    ("zincrby", &[spec(RW | ACCESS | UPDATE, Index(1), Range(0, 1, 0))]),
    ("zinter", &[spec(RO | ACCESS, Index(1), Count(0, 1, 1))]),
    ("zintercard", &[spec(RO | ACCESS, Index(1), Count(0, 1, 1))]),
    ("zinterstore", &[spec(OW | UPDATE, Index(1), Range(0, 1, 0)), spec(RO | ACCESS, Index(2), Count(0, 1, 1))]),
    ("zlexcount", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("zmpop", &[spec(RW | ACCESS | DELETE, Index(1), Count(0, 1, 1))]),
    ("zmscore", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("zpopmax", &[spec(RW | ACCESS | DELETE, Index(1), Range(0, 1, 0))]),
    ("zpopmin", &[spec(RW | ACCESS | DELETE, Index(1), Range(0, 1, 0))]),
    ("zrandmember", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("zrange", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("zrangebylex", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("zrangebyscore", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("zrangestore", &[spec(OW | UPDATE, Index(1), Range(0, 1, 0)), spec(RO | ACCESS, Index(2), Range(0, 1, 0))]),
    ("zrank", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("zrem", &[spec(RW | DELETE, Index(1), Range(0, 1, 0))]),
    ("zremrangebylex", &[spec(RW | DELETE, Index(1), Range(0, 1, 0))]),
    ("zremrangebyrank", &[spec(RW | DELETE, Index(1), Range(0, 1, 0))]),
    ("zremrangebyscore", &[spec(RW | DELETE, Index(1), Range(0, 1, 0))]),
    ("zrevrange", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("zrevrangebylex", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("zrevrangebyscore", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("zrevrank", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("zscan", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("zscore", &[spec(RO | ACCESS, Index(1), Range(0, 1, 0))]),
    ("zunion", &[spec(RO | ACCESS, Index(1), Count(0, 1, 1))]),
    ("zunionstore", &[spec(OW | UPDATE, Index(1), Range(0, 1, 0)), spec(RO | ACCESS, Index(2), Count(0, 1, 1))]),
];

static BY_NAME: LazyLock<HashMap<&'static str, &'static [KeySpec]>> = LazyLock::new(|| SPECS.iter().copied().collect());

/// The specifications of a command's keys.
pub fn specs_of(command: &Command) -> &'static [KeySpec] {
    BY_NAME.get(command.name).copied().unwrap_or_default()
}

/// What Redis remarks on a specification.
pub fn note(command: &str, number: usize) -> Option<&'static str> {
    Some(match (command, number) {
        ("bitfield", 0) => "This command allows both access and modification of the key",
        ("eval", 0) => "We cannot tell how the keys will be used so we assume the worst, RW and UPDATE",
        ("eval_ro", 0) => "We cannot tell how the keys will be used so we assume the worst, RO and ACCESS",
        ("fcall", 0) => "We cannot tell how the keys will be used so we assume the worst, RW and UPDATE",
        ("fcall_ro", 0) => "We cannot tell how the keys will be used so we assume the worst, RO and ACCESS",
        ("getex", 0) => "RW and UPDATE because it changes the TTL",
        ("pfcount", 0) => "RW because it may change the internal representation of the key, and propagate to replicas",
        ("set", 0) => "RW and ACCESS due to the optional `GET` argument",
        ("sort", 1) => {
            "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the content of the key we sort"
        }
        ("sort", 2) => {
            "For the optional STORE keyword. It is marked 'unknown' because the keyword can appear anywhere in the argument array"
        }
        ("sort_ro", 1) => {
            "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the content of the key we sort"
        }
        ("xadd", 0) => "UPDATE instead of INSERT because of the optional trimming feature",
        _ => return None,
    })
}

/// The keys of one specification; nothing: the arguments are not what the command takes.
fn find_keys(spec: &KeySpec, args: Args<'_>, found: &mut Vec<KeyPlace>) -> Option<()> {
    let first = match spec.begin {
        Begin::Index(place) => place,
        Begin::Keyword(word, from) => {
            let from = usize::try_from(from).ok()?;
            // A word that is not there has no keys.
            let Some(place) = (from..args.len()).find(|place| is(args.at(*place), word)) else { return Some(()) };
            place + 1
        }
        Begin::Unknown => return None,
    };
    let (first, last, step) = match spec.find {
        Find::Range(last, step, _) if last >= 0 => (first, first as i64 + i64::from(last), step),
        // What its arity lets a command do without (`PFMERGE key`).
        Find::Range(_, _, 0) if first == args.len() => return Some(()),
        Find::Range(last, step, 0) => (first, args.len() as i64 + i64::from(last), step),
        Find::Range(last, step, part) => {
            (first, first as i64 + (args.len().checked_sub(first)? / part) as i64 + i64::from(last), step)
        }
        Find::Count(number_at, first_at, step) => {
            let count = args.get(first + number_at).and_then(parse_integer)?;
            let first = first + first_at;
            (first, count.checked_sub(1)?.checked_mul(step as i64)?.checked_add(first as i64)?, step)
        }
        Find::Unknown => return None,
    };
    if last >= args.len() as i64 || last < first as i64 {
        return None;
    }
    found.extend((first..=last as usize).step_by(step.max(1)).map(|place| KeyPlace { place, access: spec.access }));
    Some(())
}

/// What the options of SORT take, as SORT itself reads them; the last STORE counts.
fn sort_target(args: Args<'_>) -> Option<usize> {
    let (mut target, mut at) = (None, 2);
    while let Some(word) = args.get(at) {
        if is(word, "STORE") && at + 1 < args.len() {
            target = Some(at + 1);
        }
        at += match word {
            _ if is(word, "LIMIT") => 3,
            _ if is(word, "STORE") || is(word, "BY") || is(word, "GET") => 2,
            _ => 1,
        };
    }
    target
}

/// Where GEORADIUS and its like store what they find.
fn geo_targets(args: Args<'_>, options_at: usize) -> Vec<usize> {
    let (mut targets, mut at) = (Vec::new(), options_at);
    while at + 1 < args.len() {
        if is(args.at(at), "STORE") || is(args.at(at), "STOREDIST") {
            targets.push(at + 1);
            at += 1;
        }
        at += 1;
    }
    targets
}

/// The keys of MIGRATE: its third argument, or all behind KEYS.
pub(super) fn migrated_places(args: Args<'_>) -> std::ops::Range<usize> {
    let mut at = 6;
    while let Some(word) = args.get(at) {
        at += match word {
            word if is(word, "KEYS") => {
                return if args.at(3).is_empty() { at + 1..args.len() } else { 0..0 };
            }
            word if is(word, "AUTH") => 2,
            word if is(word, "AUTH2") => 3,
            _ => 1,
        };
    }
    3..4
}

/// The streams of XREAD and XREADGROUP: groups and consumers may be called STREAMS.
fn stream_places(args: Args<'_>) -> Option<std::ops::Range<usize>> {
    let mut at = 1;
    loop {
        at += match args.get(at)? {
            word if is(word, "STREAMS") => break,
            word if is(word, "BLOCK") || is(word, "COUNT") => 2,
            word if is(word, "GROUP") => 3,
            word if is(word, "NOACK") => 1,
            _ => return None,
        };
    }
    let first = at + 1;
    let count = (args.len() - first) / 2;
    (count > 0).then_some(first..first + count)
}

/// The keys among a command's arguments; nothing where they cannot be told, since the arguments are not what the command takes.
pub fn keys_of(command: &Command, args: Args<'_>) -> Option<Vec<KeyPlace>> {
    let key = |place: usize, access: Access| KeyPlace { place, access };
    let with_targets = |targets: &mut dyn Iterator<Item = usize>| {
        [key(1, RO | ACCESS)].into_iter().chain(targets.map(|place| key(place, OW | UPDATE))).collect()
    };
    let has_word = |from: usize, word: &str| (from..args.len()).any(|place| is(args.at(place), word));
    Some(match command.name {
        // What a specification cannot say.
        "sort" => with_targets(&mut sort_target(args).into_iter()),
        "sort_ro" => vec![key(1, RO | ACCESS)],
        "georadius" => with_targets(&mut geo_targets(args, 6).into_iter()),
        "georadiusbymember" => with_targets(&mut geo_targets(args, 5).into_iter()),
        "migrate" => migrated_places(args).map(|place| key(place, RW | ACCESS | DELETE)).collect(),
        "xread" | "xreadgroup" => stream_places(args)?.map(|place| key(place, RO | ACCESS)).collect(),
        "set" if has_word(3, "GET") => vec![key(1, RW | ACCESS | UPDATE)],
        "set" => vec![key(1, OW | UPDATE)],
        "bitfield" if only_reads_bits(args) => vec![key(1, RO | ACCESS)],
        "bitfield" => vec![key(1, RW | ACCESS | UPDATE)],
        // Scripts may do without keys, all others that count theirs may not.
        _ if command.is(NO_MANDATORY_KEYS) && args.get(2).and_then(parse_integer) == Some(0) => Vec::new(),
        _ => {
            let mut found = Vec::new();
            for spec in specs_of(command).iter().filter(|spec| spec.access & NOT_KEY == 0) {
                find_keys(spec, args, &mut found)?;
            }
            found
        }
    })
}

/// Whether BITFIELD changes nothing. What it cannot make sense of may change something.
fn only_reads_bits(args: Args<'_>) -> bool {
    let mut at = 2;
    while let Some(word) = args.get(at) {
        at += match word {
            word if is(word, "GET") && at + 2 < args.len() => 3,
            word if is(word, "OVERFLOW") && at + 1 < args.len() => 2,
            _ => return false,
        };
    }
    true
}
