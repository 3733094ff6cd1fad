//! Every command: its name, function, arity, flags, categories and keys. Dispatch, COMMAND and key extraction come from here.
//!
//! Arity counts the name; negative: at least so many. Keys: first and last argument (negative: from the end) and step. The facts are
//! those that Redis 7.0.15 tells in COMMAND INFO; a test compares them.

use super::*;

static OBJECT_COMMANDS: &[Command] = &[
    c("object|encoding", keys::encoding, 3, READONLY, CATEGORY_KEYSPACE, (2, 2, 1)),
    c("object|freq", keys::freq, 3, READONLY, CATEGORY_KEYSPACE, (2, 2, 1)),
    c("object|idletime", keys::idletime, 3, READONLY, CATEGORY_KEYSPACE, (2, 2, 1)),
    c("object|refcount", keys::refcount, 3, READONLY, CATEGORY_KEYSPACE, (2, 2, 1)),
];

static CLIENT_COMMANDS: &[Command] = &[
    c("client|getname", client::getname, 2, NOSCRIPT | LOADING | STALE, CATEGORY_CONNECTION, (0, 0, 0)),
    c("client|id", client::id, 2, NOSCRIPT | LOADING | STALE, CATEGORY_CONNECTION, (0, 0, 0)),
    c("client|info", client::info, 2, NOSCRIPT | LOADING | STALE, CATEGORY_CONNECTION, (0, 0, 0)),
    c("client|kill", client::kill, -3, ADMIN | NOSCRIPT | LOADING | STALE, CATEGORY_CONNECTION, (0, 0, 0)),
    c("client|list", client::list, -2, ADMIN | NOSCRIPT | LOADING | STALE, CATEGORY_CONNECTION, (0, 0, 0)),
    c("client|no-evict", client::no_evict, 3, ADMIN | NOSCRIPT | LOADING | STALE, CATEGORY_CONNECTION, (0, 0, 0)),
    c("client|reply", client::reply_mode, 3, NOSCRIPT | LOADING | STALE, CATEGORY_CONNECTION, (0, 0, 0)),
    c("client|unblock", client::unblock, -3, ADMIN | NOSCRIPT | LOADING | STALE, CATEGORY_CONNECTION, (0, 0, 0)),
    c("client|setname", client::setname, 3, NOSCRIPT | LOADING | STALE, CATEGORY_CONNECTION, (0, 0, 0)),
];

static PUBSUB_COMMANDS: &[Command] = &[
    c("pubsub|channels", pubsub::channels, -2, PUBSUB | LOADING | STALE, 0, (0, 0, 0)),
    c("pubsub|numpat", pubsub::numpat, 2, PUBSUB | LOADING | STALE, 0, (0, 0, 0)),
    c("pubsub|numsub", pubsub::numsub, -2, PUBSUB | LOADING | STALE, 0, (0, 0, 0)),
];

static CONFIG_COMMANDS: &[Command] = &[
    c("config|get", config::get, -3, ADMIN | NOSCRIPT | LOADING | STALE, 0, (0, 0, 0)),
    c("config|resetstat", config::resetstat, 2, ADMIN | NOSCRIPT | LOADING | STALE, 0, (0, 0, 0)),
    c("config|set", config::set, -4, ADMIN | NOSCRIPT | LOADING | STALE, 0, (0, 0, 0)),
];

static COMMAND_COMMANDS: &[Command] = &[
    c("command|count", introspection::count, 2, LOADING | STALE, CATEGORY_CONNECTION, (0, 0, 0)),
    c("command|docs", introspection::docs, -2, LOADING | STALE, CATEGORY_CONNECTION, (0, 0, 0)),
    c("command|getkeys", introspection::getkeys, -4, LOADING | STALE, CATEGORY_CONNECTION, (0, 0, 0)),
    c("command|info", introspection::command_info, -2, LOADING | STALE, CATEGORY_CONNECTION, (0, 0, 0)),
    c("command|list", introspection::list, -2, LOADING | STALE, CATEGORY_CONNECTION, (0, 0, 0)),
];

static XGROUP_COMMANDS: &[Command] = &[
    c("xgroup|create", stream_groups::create, -5, WRITE | DENYOOM, CATEGORY_STREAM, (2, 2, 1)),
    c("xgroup|createconsumer", stream_groups::createconsumer, 5, WRITE | DENYOOM, CATEGORY_STREAM, (2, 2, 1)),
    c("xgroup|delconsumer", stream_groups::delconsumer, 5, WRITE, CATEGORY_STREAM, (2, 2, 1)),
    c("xgroup|destroy", stream_groups::destroy, 4, WRITE, CATEGORY_STREAM, (2, 2, 1)),
    c("xgroup|setid", stream_groups::setid, -5, WRITE, CATEGORY_STREAM, (2, 2, 1)),
];

static XINFO_COMMANDS: &[Command] = &[
    c("xinfo|consumers", stream_groups::info_consumers, 4, READONLY, CATEGORY_STREAM, (2, 2, 1)),
    c("xinfo|groups", stream_groups::info_groups, 3, READONLY, CATEGORY_STREAM, (2, 2, 1)),
    c("xinfo|stream", stream_groups::info_stream, -3, READONLY, CATEGORY_STREAM, (2, 2, 1)),
];

static FUNCTION_COMMANDS: &[Command] =
    &[c("function|flush", functions::flush, -2, WRITE | NOSCRIPT, CATEGORY_SCRIPTING, (0, 0, 0))];

static SLOWLOG_COMMANDS: &[Command] = &[
    c("slowlog|get", slowlog::get, -2, ADMIN | LOADING | STALE, 0, (0, 0, 0)),
    c("slowlog|len", slowlog::len, 2, ADMIN | LOADING | STALE, 0, (0, 0, 0)),
    c("slowlog|reset", slowlog::reset, 2, ADMIN | LOADING | STALE, 0, (0, 0, 0)),
];

static MEMORY_COMMANDS: &[Command] = &[c("memory|usage", admin::memory_usage, -3, READONLY, 0, (2, 2, 1))];

/// All commands that are not subcommands.
pub static COMMANDS: &[Command] = &[
    // strings
    c("append", strings::append, 3, WRITE | DENYOOM | FAST, CATEGORY_STRING, (1, 1, 1)),
    c("decr", strings::decr, 2, WRITE | DENYOOM | FAST, CATEGORY_STRING, (1, 1, 1)),
    c("decrby", strings::decrby, 3, WRITE | DENYOOM | FAST, CATEGORY_STRING, (1, 1, 1)),
    c("get", strings::get, 2, READONLY | FAST, CATEGORY_STRING, (1, 1, 1)),
    c("getdel", strings::getdel, 2, WRITE | FAST, CATEGORY_STRING, (1, 1, 1)),
    c("getex", strings::getex, -2, WRITE | FAST, CATEGORY_STRING, (1, 1, 1)),
    c("getrange", strings::getrange, 4, READONLY, CATEGORY_STRING, (1, 1, 1)),
    c("getset", strings::getset, 3, WRITE | DENYOOM | FAST, CATEGORY_STRING, (1, 1, 1)),
    c("incr", strings::incr, 2, WRITE | DENYOOM | FAST, CATEGORY_STRING, (1, 1, 1)),
    c("incrby", strings::incrby, 3, WRITE | DENYOOM | FAST, CATEGORY_STRING, (1, 1, 1)),
    c("incrbyfloat", strings::incrbyfloat, 3, WRITE | DENYOOM | FAST, CATEGORY_STRING, (1, 1, 1)),
    c("mget", strings::mget, -2, READONLY | FAST, CATEGORY_STRING, (1, -1, 1)),
    c("mset", strings::mset, -3, WRITE | DENYOOM, CATEGORY_STRING, (1, -1, 2)),
    c("msetnx", strings::msetnx, -3, WRITE | DENYOOM, CATEGORY_STRING, (1, -1, 2)),
    c("psetex", strings::psetex, 4, WRITE | DENYOOM, CATEGORY_STRING, (1, 1, 1)),
    c("set", strings::set, -3, WRITE | DENYOOM, CATEGORY_STRING, (1, 1, 1)),
    c("setex", strings::setex, 4, WRITE | DENYOOM, CATEGORY_STRING, (1, 1, 1)),
    c("setnx", strings::setnx, 3, WRITE | DENYOOM | FAST, CATEGORY_STRING, (1, 1, 1)),
    c("setrange", strings::setrange, 4, WRITE | DENYOOM, CATEGORY_STRING, (1, 1, 1)),
    c("strlen", strings::strlen, 2, READONLY | FAST, CATEGORY_STRING, (1, 1, 1)),
    c("substr", strings::substr, 4, READONLY, CATEGORY_STRING, (1, 1, 1)),
    // keys
    c("copy", keys::copy, -3, WRITE | DENYOOM, CATEGORY_KEYSPACE, (1, 2, 1)),
    c("del", keys::del, -2, WRITE, CATEGORY_KEYSPACE, (1, -1, 1)),
    c("exists", keys::exists, -2, READONLY | FAST, CATEGORY_KEYSPACE, (1, -1, 1)),
    c("keys", keys::keys, 2, READONLY, CATEGORY_KEYSPACE | CATEGORY_DANGEROUS, (0, 0, 0)),
    c("move", keys::move_key, 3, WRITE | FAST, CATEGORY_KEYSPACE, (1, 1, 1)),
    c("object", container, -2, 0, 0, (0, 0, 0)).with(OBJECT_COMMANDS),
    c("randomkey", keys::randomkey, 1, READONLY, CATEGORY_KEYSPACE, (0, 0, 0)),
    c("rename", keys::rename, 3, WRITE, CATEGORY_KEYSPACE, (1, 2, 1)),
    c("renamenx", keys::renamenx, 3, WRITE | FAST, CATEGORY_KEYSPACE, (1, 2, 1)),
    c("touch", keys::touch, -2, READONLY | FAST, CATEGORY_KEYSPACE, (1, -1, 1)),
    c("type", keys::type_of, 2, READONLY | FAST, CATEGORY_KEYSPACE, (1, 1, 1)),
    c("unlink", keys::unlink, -2, WRITE | FAST, CATEGORY_KEYSPACE, (1, -1, 1)),
    c("dump", restore::dump, 2, READONLY, CATEGORY_KEYSPACE, (1, 1, 1)),
    c("restore", restore::restore, -4, WRITE | DENYOOM, CATEGORY_KEYSPACE | CATEGORY_DANGEROUS, (1, 1, 1)),
    c("restore-asking", restore::restore, -4, WRITE | DENYOOM, CATEGORY_KEYSPACE | CATEGORY_DANGEROUS, (1, 1, 1)),
    c("swapdb", keys::swapdb, 3, WRITE | FAST, CATEGORY_KEYSPACE | CATEGORY_DANGEROUS, (0, 0, 0)),
    // expiry
    c("expire", expiry::expire, -3, WRITE | FAST, CATEGORY_KEYSPACE, (1, 1, 1)),
    c("expireat", expiry::expireat, -3, WRITE | FAST, CATEGORY_KEYSPACE, (1, 1, 1)),
    c("expiretime", expiry::expiretime, 2, READONLY | FAST, CATEGORY_KEYSPACE, (1, 1, 1)),
    c("persist", expiry::persist, 2, WRITE | FAST, CATEGORY_KEYSPACE, (1, 1, 1)),
    c("pexpire", expiry::pexpire, -3, WRITE | FAST, CATEGORY_KEYSPACE, (1, 1, 1)),
    c("pexpireat", expiry::pexpireat, -3, WRITE | FAST, CATEGORY_KEYSPACE, (1, 1, 1)),
    c("pexpiretime", expiry::pexpiretime, 2, READONLY | FAST, CATEGORY_KEYSPACE, (1, 1, 1)),
    c("pttl", expiry::pttl, 2, READONLY | FAST, CATEGORY_KEYSPACE, (1, 1, 1)),
    c("ttl", expiry::ttl, 2, READONLY | FAST, CATEGORY_KEYSPACE, (1, 1, 1)),
    // scan
    c("scan", scan::scan, -2, READONLY, CATEGORY_KEYSPACE, (0, 0, 0)),
    c("sscan", scan::sscan, -3, READONLY, CATEGORY_SET, (1, 1, 1)),
    c("hscan", scan::hscan, -3, READONLY, CATEGORY_HASH, (1, 1, 1)),
    c("zscan", scan::zscan, -3, READONLY, CATEGORY_SORTEDSET, (1, 1, 1)),
    // lists
    c("lindex", lists::lindex, 3, READONLY, CATEGORY_LIST, (1, 1, 1)),
    c("linsert", lists::linsert, 5, WRITE | DENYOOM, CATEGORY_LIST, (1, 1, 1)),
    c("llen", lists::llen, 2, READONLY | FAST, CATEGORY_LIST, (1, 1, 1)),
    c("lmove", lists::lmove, 5, WRITE | DENYOOM, CATEGORY_LIST, (1, 2, 1)),
    c("lmpop", lists::lmpop, -4, WRITE | MOVABLEKEYS, CATEGORY_LIST, (0, 0, 0)),
    c("lpop", lists::lpop, -2, WRITE | FAST, CATEGORY_LIST, (1, 1, 1)),
    c("lpos", lists::lpos, -3, READONLY, CATEGORY_LIST, (1, 1, 1)),
    c("lpush", lists::lpush, -3, WRITE | DENYOOM | FAST, CATEGORY_LIST, (1, 1, 1)),
    c("lpushx", lists::lpushx, -3, WRITE | DENYOOM | FAST, CATEGORY_LIST, (1, 1, 1)),
    c("lrange", lists::lrange, 4, READONLY, CATEGORY_LIST, (1, 1, 1)),
    c("lrem", lists::lrem, 4, WRITE, CATEGORY_LIST, (1, 1, 1)),
    c("lset", lists::lset, 4, WRITE | DENYOOM, CATEGORY_LIST, (1, 1, 1)),
    c("ltrim", lists::ltrim, 4, WRITE, CATEGORY_LIST, (1, 1, 1)),
    c("rpop", lists::rpop, -2, WRITE | FAST, CATEGORY_LIST, (1, 1, 1)),
    c("rpoplpush", lists::rpoplpush, 3, WRITE | DENYOOM, CATEGORY_LIST, (1, 2, 1)),
    c("rpush", lists::rpush, -3, WRITE | DENYOOM | FAST, CATEGORY_LIST, (1, 1, 1)),
    c("rpushx", lists::rpushx, -3, WRITE | DENYOOM | FAST, CATEGORY_LIST, (1, 1, 1)),
    c("blmove", lists::blmove, 6, WRITE | DENYOOM | NOSCRIPT | BLOCKING, CATEGORY_LIST, (1, 2, 1)),
    c("blmpop", lists::blmpop, -5, WRITE | BLOCKING | MOVABLEKEYS, CATEGORY_LIST, (0, 0, 0)),
    c("blpop", lists::blpop, -3, WRITE | NOSCRIPT | BLOCKING, CATEGORY_LIST, (1, -2, 1)),
    c("brpop", lists::brpop, -3, WRITE | NOSCRIPT | BLOCKING, CATEGORY_LIST, (1, -2, 1)),
    c("brpoplpush", lists::brpoplpush, 4, WRITE | DENYOOM | NOSCRIPT | BLOCKING, CATEGORY_LIST, (1, 2, 1)),
    // sets
    c("sadd", sets::sadd, -3, WRITE | DENYOOM | FAST, CATEGORY_SET, (1, 1, 1)),
    c("scard", sets::scard, 2, READONLY | FAST, CATEGORY_SET, (1, 1, 1)),
    c("sdiff", sets::sdiff, -2, READONLY, CATEGORY_SET, (1, -1, 1)),
    c("sdiffstore", sets::sdiffstore, -3, WRITE | DENYOOM, CATEGORY_SET, (1, -1, 1)),
    c("sinter", sets::sinter, -2, READONLY, CATEGORY_SET, (1, -1, 1)),
    c("sintercard", sets::sintercard, -3, READONLY | MOVABLEKEYS, CATEGORY_SET, (0, 0, 0)),
    c("sinterstore", sets::sinterstore, -3, WRITE | DENYOOM, CATEGORY_SET, (1, -1, 1)),
    c("sismember", sets::sismember, 3, READONLY | FAST, CATEGORY_SET, (1, 1, 1)),
    c("smembers", sets::smembers, 2, READONLY, CATEGORY_SET, (1, 1, 1)),
    c("smismember", sets::smismember, -3, READONLY | FAST, CATEGORY_SET, (1, 1, 1)),
    c("smove", sets::smove, 4, WRITE | FAST, CATEGORY_SET, (1, 2, 1)),
    c("spop", sets::spop, -2, WRITE | FAST, CATEGORY_SET, (1, 1, 1)),
    c("srandmember", sets::srandmember, -2, READONLY, CATEGORY_SET, (1, 1, 1)),
    c("srem", sets::srem, -3, WRITE | FAST, CATEGORY_SET, (1, 1, 1)),
    c("sunion", sets::sunion, -2, READONLY, CATEGORY_SET, (1, -1, 1)),
    c("sunionstore", sets::sunionstore, -3, WRITE | DENYOOM, CATEGORY_SET, (1, -1, 1)),
    // hashes
    c("hdel", hashes::hdel, -3, WRITE | FAST, CATEGORY_HASH, (1, 1, 1)),
    c("hexists", hashes::hexists, 3, READONLY | FAST, CATEGORY_HASH, (1, 1, 1)),
    c("hget", hashes::hget, 3, READONLY | FAST, CATEGORY_HASH, (1, 1, 1)),
    c("hgetall", hashes::hgetall, 2, READONLY, CATEGORY_HASH, (1, 1, 1)),
    c("hincrby", hashes::hincrby, 4, WRITE | DENYOOM | FAST, CATEGORY_HASH, (1, 1, 1)),
    c("hincrbyfloat", hashes::hincrbyfloat, 4, WRITE | DENYOOM | FAST, CATEGORY_HASH, (1, 1, 1)),
    c("hkeys", hashes::hkeys, 2, READONLY, CATEGORY_HASH, (1, 1, 1)),
    c("hlen", hashes::hlen, 2, READONLY | FAST, CATEGORY_HASH, (1, 1, 1)),
    c("hmget", hashes::hmget, -3, READONLY | FAST, CATEGORY_HASH, (1, 1, 1)),
    c("hmset", hashes::hmset, -4, WRITE | DENYOOM | FAST, CATEGORY_HASH, (1, 1, 1)),
    c("hrandfield", hashes::hrandfield, -2, READONLY, CATEGORY_HASH, (1, 1, 1)),
    c("hset", hashes::hset, -4, WRITE | DENYOOM | FAST, CATEGORY_HASH, (1, 1, 1)),
    c("hsetnx", hashes::hsetnx, 4, WRITE | DENYOOM | FAST, CATEGORY_HASH, (1, 1, 1)),
    c("hstrlen", hashes::hstrlen, 3, READONLY | FAST, CATEGORY_HASH, (1, 1, 1)),
    c("hvals", hashes::hvals, 2, READONLY, CATEGORY_HASH, (1, 1, 1)),
    // zsets
    c("zadd", zsets::zadd, -4, WRITE | DENYOOM | FAST, CATEGORY_SORTEDSET, (1, 1, 1)),
    c("zcard", zsets::zcard, 2, READONLY | FAST, CATEGORY_SORTEDSET, (1, 1, 1)),
    c("zincrby", zsets::zincrby, 4, WRITE | DENYOOM | FAST, CATEGORY_SORTEDSET, (1, 1, 1)),
    c("zmpop", zsets::zmpop, -4, WRITE | MOVABLEKEYS, CATEGORY_SORTEDSET, (0, 0, 0)),
    c("zmscore", zsets::zmscore, -3, READONLY | FAST, CATEGORY_SORTEDSET, (1, 1, 1)),
    c("zpopmax", zsets::zpopmax, -2, WRITE | FAST, CATEGORY_SORTEDSET, (1, 1, 1)),
    c("zpopmin", zsets::zpopmin, -2, WRITE | FAST, CATEGORY_SORTEDSET, (1, 1, 1)),
    c("zrandmember", zsets::zrandmember, -2, READONLY, CATEGORY_SORTEDSET, (1, 1, 1)),
    c("zrank", zsets::zrank, 3, READONLY | FAST, CATEGORY_SORTEDSET, (1, 1, 1)),
    c("zrem", zsets::zrem, -3, WRITE | FAST, CATEGORY_SORTEDSET, (1, 1, 1)),
    c("zrevrank", zsets::zrevrank, 3, READONLY | FAST, CATEGORY_SORTEDSET, (1, 1, 1)),
    c("zscore", zsets::zscore, 3, READONLY | FAST, CATEGORY_SORTEDSET, (1, 1, 1)),
    c("bzmpop", zsets::bzmpop, -5, WRITE | BLOCKING | MOVABLEKEYS, CATEGORY_SORTEDSET, (0, 0, 0)),
    c("bzpopmax", zsets::bzpopmax, -3, WRITE | NOSCRIPT | BLOCKING | FAST, CATEGORY_SORTEDSET, (1, -2, 1)),
    c("bzpopmin", zsets::bzpopmin, -3, WRITE | NOSCRIPT | BLOCKING | FAST, CATEGORY_SORTEDSET, (1, -2, 1)),
    // zranges
    c("zcount", zranges::zcount, 4, READONLY | FAST, CATEGORY_SORTEDSET, (1, 1, 1)),
    c("zlexcount", zranges::zlexcount, 4, READONLY | FAST, CATEGORY_SORTEDSET, (1, 1, 1)),
    c("zrange", zranges::zrange, -4, READONLY, CATEGORY_SORTEDSET, (1, 1, 1)),
    c("zrangebylex", zranges::zrangebylex, -4, READONLY, CATEGORY_SORTEDSET, (1, 1, 1)),
    c("zrangebyscore", zranges::zrangebyscore, -4, READONLY, CATEGORY_SORTEDSET, (1, 1, 1)),
    c("zrangestore", zranges::zrangestore, -5, WRITE | DENYOOM, CATEGORY_SORTEDSET, (1, 2, 1)),
    c("zremrangebylex", zranges::zremrangebylex, 4, WRITE, CATEGORY_SORTEDSET, (1, 1, 1)),
    c("zremrangebyrank", zranges::zremrangebyrank, 4, WRITE, CATEGORY_SORTEDSET, (1, 1, 1)),
    c("zremrangebyscore", zranges::zremrangebyscore, 4, WRITE, CATEGORY_SORTEDSET, (1, 1, 1)),
    c("zrevrange", zranges::zrevrange, -4, READONLY, CATEGORY_SORTEDSET, (1, 1, 1)),
    c("zrevrangebylex", zranges::zrevrangebylex, -4, READONLY, CATEGORY_SORTEDSET, (1, 1, 1)),
    c("zrevrangebyscore", zranges::zrevrangebyscore, -4, READONLY, CATEGORY_SORTEDSET, (1, 1, 1)),
    // streams
    c("xadd", streams::xadd, -5, WRITE | DENYOOM | FAST, CATEGORY_STREAM, (1, 1, 1)),
    c("xdel", streams::xdel, -3, WRITE | FAST, CATEGORY_STREAM, (1, 1, 1)),
    c("xlen", streams::xlen, 2, READONLY | FAST, CATEGORY_STREAM, (1, 1, 1)),
    c("xrange", streams::xrange, -4, READONLY, CATEGORY_STREAM, (1, 1, 1)),
    c("xrevrange", streams::xrevrange, -4, READONLY, CATEGORY_STREAM, (1, 1, 1)),
    c("xtrim", streams::xtrim, -4, WRITE, CATEGORY_STREAM, (1, 1, 1)),
    c("xsetid", streams::xsetid, -3, WRITE | DENYOOM | FAST, CATEGORY_STREAM, (1, 1, 1)),
    // stream groups
    c("xack", stream_groups::xack, -4, WRITE | FAST, CATEGORY_STREAM, (1, 1, 1)),
    c("xautoclaim", stream_groups::xautoclaim, -6, WRITE | FAST, CATEGORY_STREAM, (1, 1, 1)),
    c("xclaim", stream_groups::xclaim, -6, WRITE | FAST, CATEGORY_STREAM, (1, 1, 1)),
    c("xpending", stream_groups::xpending, -3, READONLY, CATEGORY_STREAM, (1, 1, 1)),
    c("xread", stream_groups::xread, -4, READONLY | BLOCKING | MOVABLEKEYS, CATEGORY_STREAM, (0, 0, 0)),
    c("xreadgroup", stream_groups::xreadgroup, -7, WRITE | BLOCKING | MOVABLEKEYS, CATEGORY_STREAM, (0, 0, 0)),
    c("xgroup", container, -2, 0, 0, (0, 0, 0)).with(XGROUP_COMMANDS),
    c("xinfo", container, -2, 0, 0, (0, 0, 0)).with(XINFO_COMMANDS),
    // zalgebra
    c("zdiff", zalgebra::zdiff, -3, READONLY | MOVABLEKEYS, CATEGORY_SORTEDSET, (0, 0, 0)),
    c("zdiffstore", zalgebra::zdiffstore, -4, WRITE | DENYOOM | MOVABLEKEYS, CATEGORY_SORTEDSET, (1, 1, 1)),
    c("zinter", zalgebra::zinter, -3, READONLY | MOVABLEKEYS, CATEGORY_SORTEDSET, (0, 0, 0)),
    c("zintercard", zalgebra::zintercard, -3, READONLY | MOVABLEKEYS, CATEGORY_SORTEDSET, (0, 0, 0)),
    c("zinterstore", zalgebra::zinterstore, -4, WRITE | DENYOOM | MOVABLEKEYS, CATEGORY_SORTEDSET, (1, 1, 1)),
    c("zunion", zalgebra::zunion, -3, READONLY | MOVABLEKEYS, CATEGORY_SORTEDSET, (0, 0, 0)),
    c("zunionstore", zalgebra::zunionstore, -4, WRITE | DENYOOM | MOVABLEKEYS, CATEGORY_SORTEDSET, (1, 1, 1)),
    // transactions
    c(
        "discard",
        transactions::discard,
        1,
        NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY,
        CATEGORY_TRANSACTION,
        (0, 0, 0),
    ),
    c("exec", transactions::exec, 1, NOSCRIPT | LOADING | STALE | SKIP_SLOWLOG, CATEGORY_TRANSACTION, (0, 0, 0)),
    c("multi", transactions::multi, 1, NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY, CATEGORY_TRANSACTION, (0, 0, 0)),
    c(
        "unwatch",
        transactions::unwatch,
        1,
        NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY,
        CATEGORY_TRANSACTION,
        (0, 0, 0),
    ),
    c(
        "watch",
        transactions::watch,
        -2,
        NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY,
        CATEGORY_TRANSACTION,
        (1, -1, 1),
    ),
    // connection
    c(
        "auth",
        connection::auth,
        -2,
        NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY,
        CATEGORY_CONNECTION,
        (0, 0, 0),
    ),
    c("echo", connection::echo, 2, LOADING | STALE | FAST, CATEGORY_CONNECTION, (0, 0, 0)),
    c(
        "hello",
        connection::hello,
        -1,
        NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY,
        CATEGORY_CONNECTION,
        (0, 0, 0),
    ),
    c("ping", connection::ping, -1, FAST, CATEGORY_CONNECTION, (0, 0, 0)),
    c(
        "quit",
        connection::quit,
        -1,
        NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY,
        CATEGORY_CONNECTION,
        (0, 0, 0),
    ),
    c(
        "reset",
        connection::reset,
        1,
        NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY,
        CATEGORY_CONNECTION,
        (0, 0, 0),
    ),
    c("select", connection::select, 2, LOADING | STALE | FAST, CATEGORY_CONNECTION, (0, 0, 0)),
    // client
    c("client", container, -2, 0, 0, (0, 0, 0)).with(CLIENT_COMMANDS),
    // pubsub
    c("psubscribe", pubsub::psubscribe, -2, PUBSUB | NOSCRIPT | LOADING | STALE, 0, (0, 0, 0)),
    c("publish", pubsub::publish, 3, PUBSUB | LOADING | STALE | FAST, 0, (0, 0, 0)),
    c("pubsub", container, -2, 0, 0, (0, 0, 0)).with(PUBSUB_COMMANDS),
    c("punsubscribe", pubsub::punsubscribe, -1, PUBSUB | NOSCRIPT | LOADING | STALE, 0, (0, 0, 0)),
    c("subscribe", pubsub::subscribe, -2, PUBSUB | NOSCRIPT | LOADING | STALE, 0, (0, 0, 0)),
    c("unsubscribe", pubsub::unsubscribe, -1, PUBSUB | NOSCRIPT | LOADING | STALE, 0, (0, 0, 0)),
    // config
    c("config", container, -2, 0, 0, (0, 0, 0)).with(CONFIG_COMMANDS),
    // info
    c("info", info::info, -1, LOADING | STALE, CATEGORY_DANGEROUS, (0, 0, 0)),
    // introspection
    c("command", introspection::all, -1, LOADING | STALE, CATEGORY_CONNECTION, (0, 0, 0)).with(COMMAND_COMMANDS),
    // functions
    c("function", container, -2, 0, 0, (0, 0, 0)).with(FUNCTION_COMMANDS),
    // slowlog
    c("slowlog", container, -2, 0, 0, (0, 0, 0)).with(SLOWLOG_COMMANDS),
    // admin
    c("bgrewriteaof", admin::bgrewriteaof, 1, ADMIN | NOSCRIPT | NO_ASYNC_LOADING, 0, (0, 0, 0)),
    c("bgsave", admin::bgsave, -1, ADMIN | NOSCRIPT | NO_ASYNC_LOADING, 0, (0, 0, 0)),
    c("lastsave", admin::lastsave, 1, LOADING | STALE | FAST, CATEGORY_ADMIN | CATEGORY_DANGEROUS, (0, 0, 0)),
    c("save", admin::save, 1, ADMIN | NOSCRIPT | NO_ASYNC_LOADING | NO_MULTI, 0, (0, 0, 0)),
    c("dbsize", admin::dbsize, 1, READONLY | FAST, CATEGORY_KEYSPACE, (0, 0, 0)),
    c("debug", debug::debug, -2, ADMIN | NOSCRIPT | LOADING | STALE, 0, (0, 0, 0)),
    c("flushall", admin::flushall, -1, WRITE, CATEGORY_KEYSPACE | CATEGORY_DANGEROUS, (0, 0, 0)),
    c("flushdb", admin::flushdb, -1, WRITE, CATEGORY_KEYSPACE | CATEGORY_DANGEROUS, (0, 0, 0)),
    c("memory", container, -2, 0, 0, (0, 0, 0)).with(MEMORY_COMMANDS),
    c("role", admin::role, 1, NOSCRIPT | LOADING | STALE | FAST, CATEGORY_ADMIN | CATEGORY_DANGEROUS, (0, 0, 0)),
    c("shutdown", admin::shutdown, -1, ADMIN | NOSCRIPT | LOADING | STALE | NO_MULTI | ALLOW_BUSY, 0, (0, 0, 0)),
    c("time", admin::time, 1, LOADING | STALE | FAST, 0, (0, 0, 0)),
    c("wait", admin::wait, 3, NOSCRIPT, CATEGORY_CONNECTION, (0, 0, 0)),
];
