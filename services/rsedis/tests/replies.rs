//! Replies of Redis 7.0.15 that no random command meets, beside those of this server: each list of lines is one conversation.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use support::lines::{compare, compare_with, without_text};
use support::node::Node;

/// What both answer to scripts without keys.
#[track_caller]
fn compare_scripts(scripts: &[&str]) {
    let mut clients = [Node::ours(&[]), Node::theirs(&[])].map(|node| (node.client(), node));
    for script in scripts {
        let [ours, theirs] = clients.each_mut().map(|(client, _)| {
            client.try_call(&[b"EVAL", &without_text(script), b"0"]).unwrap().escape_ascii().to_string()
        });
        assert_eq!(ours, theirs, "{script}");
    }
}

#[test]
fn numbers_and_options_at_their_ends() {
    compare(&[
        "RPUSH l a b c d e f g",
        "BLPOP l 9223372036854775",
        "BLPOP l 9223372036854774",
        "BLPOP l 9223372036854776",
        "BLPOP l 9e15",
        "BLPOP l 1e18",
        "BLPOP l -1e18",
        "BLMPOP 9223372036854775 1 l LEFT",
        "SADD s 1 2 3",
        "SINTERCARD 1 s LIMIT 1 LIMIT 2",
        "SINTERCARD 1 s LIMIT 1 LIMIT",
        "SINTERCARD 1 s LIMIT 1 LIMIT -1",
        "SINTERCARD 1 s FOO 1",
        "HSET h f v",
        "HSCAN h -1",
        "HSCAN h -18446744073709551615",
        "HSCAN h 18446744073709551616",
        "HSCAN h ''",
        "HSCAN h -",
        "HSCAN h 1x",
        "HSCAN h _0",
        "ZADD z 1 a 2 b 3 c",
        "ZRANGE z 0 -1 REV REV",
        "ZRANGE z 0 3 BYSCORE BYSCORE",
        "ZRANGE z 0 3 BYSCORE BYLEX",
        "ZRANGE z - + BYLEX BYLEX",
        "ZRANGE z 0 -1 WITHSCORES WITHSCORES",
        "ZINCRBY z XX a",
        "ZINCRBY z incr 1",
        "ZINCRBY z ch nx",
        "ZINCRBY z 2 xx",
        "ZCOUNT z ( 1",
        "ZCOUNT z '' 1",
        "ZCOUNT z _1 1",
        "ZCOUNT z 1_ 1",
        "ZCOUNT z _ 1",
        "ZRANGEBYSCORE z ( (3",
        "XADD x 5-18446744073709551615 a b",
        "XADD x 5-* a b",
        "XADD x 5-5 a b",
        "XADD x 4-* a b",
        "SLOWLOG GET abc",
        "SLOWLOG GET -2",
        "SLOWLOG GET 1 2",
        "PUBSUB CHANNELS a b",
        "PUBSUB SHARDCHANNELS a b",
    ]);
}

#[test]
fn fractions_in_the_last_second_and_the_least_rank() {
    compare(&[
        "RPUSH l a b c a b c a b c a b c",
        "BLPOP l 9223372036854775.0",
        "BLPOP l 9223372036854775.1",
        "BRPOP l 9223372036854775.807",
        "BRPOP l 9223372036854775.8071",
        "BLPOP l 9223372036854775.808",
        "BLPOP l 1e-4000",
        "BLPOP l 1e4931",
        "BLPOP l -1e4000",
        "BLPOP l inf",
        "BLPOP l -inf",
        "BLPOP l nan",
        "BLPOP l -1e-9",
        "BLPOP l x",
        "LPOS l a RANK -9223372036854775808",
        "LPOS l a RANK -9223372036854775808 COUNT 0",
        "LPOS l a RANK -9223372036854775808 MAXLEN 1",
        "LPOS l a RANK -9223372036854775807",
        "LPOS l a RANK -9223372036854775809",
    ]);
}

#[test]
fn settings_that_are_clamped_or_refused() {
    compare(&[
        "CONFIG SET hz 1000",
        "CONFIG GET hz",
        "CONFIG SET hz 0",
        "CONFIG GET hz",
        "CONFIG SET hz -5",
        "CONFIG SET hz 2147483648",
        "CONFIG SET oom-score-adj-values 1_2",
        "CONFIG SET oom-score-adj-values 1_2_a",
        "CONFIG SET oom-score-adj-values 1_2_3000",
        "CONFIG SET oom-score-adj-values -2001_2_300",
        "CONFIG SET oom-score-adj-values 1_2_3_4",
        "CONFIG GET oom-score-adj-values",
        "CONFIG SET oom-score-adj-values 1_2_3",
        "CONFIG GET oom-score-adj-values",
        "CONFIG SET appendfsync foo",
    ]);
}

#[test]
fn what_is_told_of_commands_and_values() {
    compare(&[
        "SET k abc",
        "BITOP AND d k k",
        "OBJECT ENCODING d",
        "BITOP NOT d k",
        "OBJECT ENCODING d",
        "GET d",
        "HSET h f v",
        "DEBUG LISTPACK h",
        "DEBUG LISTPACK k",
        "DEBUG LISTPACK nokey",
        "ZADD z 1 a",
        "DEBUG LISTPACK z",
        "RPUSH l a",
        "DEBUG LISTPACK l",
        "SADD s 1",
        "DEBUG LISTPACK s",
        "XADD x 1-1 a b",
        "WATCH x",
        "XSETID x 5-5",
        "MULTI",
        "PING",
        "EXEC",
        "HELLO 3",
        "COMMAND INFO config get",
    ]);
}

#[test]
fn an_error_repeats_what_is_no_text() {
    compare(&[
        "¿",
        "¿abc x y¿z",
        "OBJECT ¿ a",
        "CONFIG SET ¿ x",
        "ACL SETUSER x ¿",
        "ACL DRYRUN ¿ GET a",
        "ACL DRYRUN default ¿ a",
        "ACL CAT ¿",
        "CLIENT KILL USER ¿",
        "CLIENT LIST TYPE ¿",
        "CLIENT TRACKING on BCAST PREFIX ¿a PREFIX ¿",
        "XGROUP ¿ a b",
        "XREADGROUP GROUP g¿ c STREAMS ¿ >",
        "XGROUP SETID k¿ g¿ 0",
        "XPENDING k¿ g¿",
        "EXPIRE k 1 ¿",
        "HELLO 3 ¿",
        "LATENCY GRAPH ¿",
        "PFDEBUG ¿ k",
        "REPLCONF ¿ 1",
        "FUNCTION LIST ¿",
        "MULTI",
        "¿",
        "EXEC",
    ]);
    compare_scripts(&[
        "error('¿')",
        "return redis.error_reply('¿')",
        "return redis.status_reply('¿')",
        "return {err = 'A ¿'}",
        "return ¿",
        "return [[¿\n]] ¿",
        "return redis.pcall('¿')",
        "return redis.call('¿')",
        "return {pcall(redis.call, '¿')}",
    ]);
}

#[test]
fn what_is_looked_at_first_is_refused_first() {
    compare(&[
        "LMPOP 2 l m LEFT COUNT x 1",
        "LMPOP 2 l m LEFT COUNT 1 x",
        "LMPOP 2 l m LEFT COUNT 1 COUNT 0",
        "LMPOP 2 l m LEFT COUNT",
        "BLMPOP 0.01 2 l m LEFT COUNT 0 x",
        "BLMPOP x 2 l m LEFT COUNT 0",
        "BLMPOP x 2 l m LEFT COUNT 1",
        "BZMPOP x 2 l m MIN COUNT x 0",
        "BZMPOP x 2 l m MIN x",
        "ZMPOP 2 l m MAX COUNT 0 x",
        "LOLWUT VERSION x",
        "LOLWUT VERSION 5 1 2 x",
        "LOLWUT VERSION 6 1 x",
        "XINFO STREAM nokey x",
        "XINFO STREAM nokey FULL COUNT x",
        "SET k v",
        "XINFO STREAM k x",
        "XINFO STREAM k FULL x 1",
        "DEBUG POPULATE x",
        "DEBUG POPULATE -1",
        "DEBUG POPULATE 1 a -1",
        "DEBUG STRINGMATCH-LEN 10 a*",
        "DEBUG HTSTATS x",
        "DEBUG HTSTATS 99",
        "DEBUG HTSTATS-KEY k",
        "HSET h f v",
        "DEBUG HTSTATS-KEY h",
        "CONFIG SET hash-max-ziplist-entries 100 hash-max-listpack-entries 200",
        "CONFIG GET hash-max-listpack-entries",
        "CONFIG SET hash-max-ziplist-entries 100 HASH-max-ziplist-entries 200",
        "CONFIG SET bind a_b",
        "CONFIG GET bind",
        "PEXPIREAT k 9223372036854775807",
        "EXPIRETIME k",
        "PEXPIREAT k 9223372036854775500",
        "EXPIRETIME k",
        "PEXPIREAT k 1999999999499",
        "EXPIRETIME k",
        "WAIT 1 10",
        "DEBUG REPLICATE all FLUSHALL",
        "ROLE",
    ]);
}

#[test]
fn a_command_that_was_taken_away_is_not_listed() {
    compare_with(
        &["--rename-command", "GETSET", "", "--rename-command", "CONFIG", "conf"],
        &[
            "COMMAND COUNT",
            "COMMAND INFO getset",
            "COMMAND LIST FILTERBY PATTERN gets*",
            "COMMAND LIST FILTERBY PATTERN confi*",
            "COMMAND INFO config",
            "COMMAND INFO config|get",
            "COMMAND INFO conf|get",
            "COMMAND GETKEYS getset a b",
        ],
    );
}

#[test]
fn a_copy_is_packed_as_what_it_is_of() {
    compare(&[
        "CONFIG SET hash-max-listpack-entries 4 zset-max-listpack-entries 4 list-max-listpack-size 2",
        "HSET h a 1 b 2 c 3 d 4 e 5",
        "HDEL h a b c",
        "ZADD z 1 a 2 b 3 c 4 d 5 e",
        "ZREM z a b c",
        "SADD s 1 2 a",
        "SREM s a",
        "RPUSH l 1 2 3 4 5",
        "CONFIG SET hash-max-listpack-entries 512 zset-max-listpack-entries 128 list-max-listpack-size -2",
        "HSET small a 1 b 2 c 3 d 4 e 5",
        "SADD numbers 1 2 3",
        "CONFIG SET hash-max-listpack-entries 1 set-max-intset-entries 1",
        "COPY h h2",
        "OBJECT ENCODING h2",
        "COPY z z2",
        "OBJECT ENCODING z2",
        "ZRANGE z2 0 -1 WITHSCORES",
        "ZADD z2 4.5 f 1 e",
        "ZRANGE z2 0 -1 WITHSCORES",
        "ZRANK z2 e",
        "COPY s s2",
        "OBJECT ENCODING s2",
        "SISMEMBER s2 2",
        "COPY small small2",
        "OBJECT ENCODING small2",
        "COPY numbers numbers2",
        "OBJECT ENCODING numbers2",
        "COPY l l2",
        "DUMP l2",
        "LRANGE l2 0 -1",
        "HGET h2 e",
        "HDEL h2 e",
        "HGETALL h2",
        "HGET h e",
    ]);
}

#[test]
fn scores_that_are_no_places_are_where_redis_has_them() {
    compare(&[
        "ZADD z -1.4 a 0.6 b 1e300 c -1e300 d inf e -inf f 9223372036854775808 g 13835058055282163712 h",
        "GEOPOS z a b c d e f g h",
        "GEODIST z a b",
        "GEODIST z c h",
        "GEOHASH z a b c d e f g h",
        "GEOSEARCH z FROMMEMBER a BYBOX 2000 0.001 km ASC",
        "GEOSEARCH z FROMMEMBER b BYRADIUS 20 km ASC WITHDIST WITHHASH",
    ]);
}

#[test]
fn scripts_that_fail_tell_where() {
    compare_scripts(&[
        "return error()",
        "error('x', 0)",
        "error(nil)",
        "error(true)",
        "error(5, 0)",
        "error('', 0)",
        "error('user_script:7: x', 0)",
        "\n\n\nerror('x', 0)",
        "\nlocal function f() error('x', 0) end\n\nf()",
        "\nlocal function f() error('x', 2) end\n\nf()",
        "\nlocal function f() error('x', 2) end\n\nreturn f()",
        "local f = loadstring('error()') f()",
        "local f = loadstring('error(1, 0)', '@myname') f()",
        "local f = loadstring('return redis.call(1)') f()",
        "\nerror({err = 'My x', source = 'a', line = 5})",
        "\n\nlocal t = setmetatable({}, {__index = function() error('q', 0) end}) return t.x",
        "\nlocal a = redis.pcall('incr')\n error(a.err, 0)",
        "table.sort({3, 2, 1}, function(a, b) error('x', 0) end)",
        "local a, b = pcall(function() return cjson.decode('[') end) return b",
        "local a, b = pcall(cjson.decode, '[') return b",
        "local a, b = pcall(function() local x = struct.pack('q') end) return b",
        "local a, b = pcall(function() return bit.band('x') end) return b",
        "local x = unpack()",
        "local x = unpack(nil)",
        "local x = unpack({}, 1, 1e7)",
        "local x = unpack({}, 'x')",
        "local x = unpack({}, 1, {})",
        "local t = {} for i = 1, 8000 do t[i] = i end local x = unpack(t)",
        "local t = {} for i = 1, 7900 do t[i] = i end return {unpack(t, '7899', 7900)}",
        "return bit.band()",
        "return bit.lshift(1)",
        "return bit.tohex(1, 'x')",
        "return {bit.tohex(255, -4), bit.bnot(1), bit.bxor(1, 2, 4)}",
        "return cmsgpack.unpack({})",
        "return cmsgpack.unpack_limit('x', 'y')",
        "return {cmsgpack._VERSION, cmsgpack._NAME, cmsgpack._COPYRIGHT, cmsgpack._DESCRIPTION}",
        "return setmetatable(1, 2)",
        "return rawset()",
        "return rawset({}, nil, 1)",
        "return collectgarbage('x')",
        "return loadstring()",
        "local x = load(1)",
        "local f, e = load(function() error('x') end) return e",
        "local x = coroutine.resume(1)",
        "error({err = 1})",
        "return math.random(0)",
        "return cjson.encode_max_depth(0)",
        "return error('x')",
    ]);
}

#[test]
fn a_reply_may_be_deep() {
    compare_scripts(&[
        "local t = 'x' for i = 1, 120 do t = {t} end return t",
        "local t = 'x' for i = 1, 3000 do t = {t, i, 'y'} end return t",
        "local t = 'x' for i = 1, 2000 do t = {map = {a = t}} end return t",
        "local t = 'x' for i = 1, 2000 do t = {set = {[t] = 1}} end return t",
        "return {{}, {{}, {1, {err = 'E x'}, {ok = 'fine'}}, {double = 1.5}}, false, {map = {}}}",
    ]);
}

/// As C reads numbers.
#[test]
fn what_is_sorted_by_numbers_may_begin_with_spaces_and_end_with_a_zero() {
    let replies = [Node::ours(&[]), Node::theirs(&[])].map(|node| {
        let mut client = node.client();
        let weights: [&[u8]; 9] = [b" 3", b"2\0x", b"\t\n1", b"", b"\0x", b" ", b"4 ", b"x\0", b"-1e2\0\0"];
        let one_by_one = weights.map(|weight| {
            client.try_call(&[b"SET", b"w1", weight]).unwrap();
            client.call("DEL l");
            client.call("RPUSH l 1 2");
            client.call("SORT l BY w*")
        });
        let together =
            [(b"w1".as_slice(), b" 3".as_slice()), (b"w2", b"2\0x"), (b"w3", b"\t1")].map(|(name, weight)| {
                client.try_call(&[b"SET", name, weight]).unwrap();
                client.call("RPUSH all 1 2 3");
                client.call("SORT all BY w*")
            });
        (one_by_one, together)
    });
    assert_eq!(replies[0], replies[1]);
}

#[test]
fn streams_whose_last_entry_was_deleted_are_trimmed_and_told_of_as_by_redis() {
    compare(&[
        "XADD s 1-1 a b",
        "XADD s 2-1 a b",
        "XADD s 3-1 a b",
        "XDEL s 3-1",
        "XSETID s 2-1",
        "XGROUP CREATE s g 0",
        "XREADGROUP GROUP g c STREAMS s >",
        "XGROUP CREATE s i 2-1",
        "XGROUP CREATE s j 0-5",
        "XINFO STREAM s",
        "XADD t 1-1 a b",
        "XADD t 2-1 a b",
        "XADD t 3-1 a b",
        "XDEL t 1-1",
        "XGROUP CREATE t g 0-5",
        "XGROUP CREATE t h 1-0",
        "XINFO GROUPS t",
        "XADD q 1-1 a b",
        "XADD q 2-1 a b",
        "XADD q 3-1 a b",
        "XDEL q 3-1",
        "COPY q r",
        "XTRIM q MINID ~ 3-0",
        "XTRIM q MINID ~ 3-1",
        "XTRIM q MINID ~ 3-2",
        "XINFO STREAM q",
        "XTRIM r MINID = 3-1",
        "DUMP r",
        "XRANGE r - +",
        "XADD r 4-1 a b",
        "XRANGE r - +",
        "DUMP r",
    ]);
}

/// A file has it so.
#[test]
fn whole_scores_are_packed_as_integers() {
    compare(&[
        "ZADD z -2.4211351596743788e+18 b 4.6e18 c 4.7e18 d 1e15 e 1e16 f 4503599627370497 g -0.0 h 9007199254740993 i 1.5 j",
        "ZADD z 4611686018427387904 k -4611686018427387904 l 4611686018427387392 m -5e18 n",
        "ZRANGE z 0 -1 WITHSCORES",
        "DUMP z",
        "ZINCRBY z 1 e",
        "ZSCORE z k",
    ]);
}

/// Redis leaves such a node when it trims exactly.
#[test]
fn a_file_of_redis_with_a_node_of_deleted_entries_is_read() {
    let theirs = Node::theirs(&[]);
    for line in ["XADD r 1-1 a b", "XADD r 2-1 a b", "XDEL r 2-1", "XTRIM r MINID = 2-1", "SAVE"] {
        assert!(!theirs.call(line).starts_with('-'), "{line}");
    }
    let dump = theirs.call("DUMP r");
    let ours = theirs.restart_as_ours(&[]);
    assert_eq!(ours.call("DUMP r"), dump);
    assert_eq!(ours.call("XADD r 3-1 a b"), "$3\r\n3-1\r\n");
    assert_eq!(ours.call("XLEN r"), ":1\r\n");
    assert_eq!(ours.call("SAVE"), "+OK\r\n");
    assert_eq!(ours.restart(&[]).call("XLEN r"), ":1\r\n");
}
