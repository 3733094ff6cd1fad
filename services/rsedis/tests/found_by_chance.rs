//! Differences from Redis 7.0.15 that random commands have met (`tests/differential.rs`), or might: each as a conversation of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use support::lines::compare;

/// A sum with a fraction is text, also where it is whole; its copy was an integer.
#[test]
fn a_copy_of_a_sum_is_text_as_the_sum_is() {
    compare(&[
        "SET sum 10",
        "OBJECT ENCODING sum",
        "INCRBYFLOAT sum 7",
        "OBJECT ENCODING sum",
        "COPY sum other",
        "OBJECT ENCODING other",
        "COPY sum other DB 1 REPLACE",
        "SELECT 1",
        "OBJECT ENCODING other",
        "RENAME other third",
        "PEXPIREAT third 33000000000000",
        "OBJECT ENCODING third",
        "COPY third fourth",
        "OBJECT ENCODING fourth",
        "INCR fourth",
        "OBJECT ENCODING fourth",
        "SET text short",
        "APPEND text er",
        "OBJECT ENCODING text",
        "COPY text more",
        "OBJECT ENCODING more",
    ]);
}

#[test]
fn the_last_of_two_times_counts_and_nobody_is_number_0() {
    compare(&[
        "SET key value EXAT 33000000000 EXAT 34000000000",
        "PEXPIRETIME key",
        "GETEX key PXAT 33000000000000 PXAT 34000000000000",
        "PEXPIRETIME key",
        "SET key value EXAT 33000000000 PXAT 34000000000000",
        "GETEX key PERSIST PXAT 34000000000000",
        "CLIENT LIST ID 0",
        "CLIENT LIST ID -1",
        "CLIENT LIST ID 0 x",
    ]);
}

/// Redis makes its errors as C makes text, which ends at a zero.
#[test]
fn an_error_repeats_a_word_up_to_a_zero() {
    compare(&[
        "FOO␀BAR baz",
        "FOO b␀ar b¿z",
        "OBJECT F␀OO key",
        "CONFIG SET f␀oo bar",
        "ACL SETUSER someone f␀oo",
        "ACL SETUSER someone ~f␀oo",
        "ACL SETUSER someone (+get ~f␀oo )",
        "ACL SETUSER someone +get␀x",
        "ACL SETUSER someone +@read␀x",
        "ACL SETUSER someone off␀x ␀",
        "ACL SETUSER someone off␀x",
        "ACL SETUSER someone (+get␀ ~x )",
        "ACL GETUSER someone",
        "ACL SETUSER some␀one on",
        "ACL DRYRUN some␀one GET key",
        "ACL SETUSER someone +set",
        "ACL DRYRUN someone F␀OO key",
        "ACL DRYRUN someone SET k␀ey value",
        "ACL CAT f␀oo",
        "ACL LOG f␀oo 1",
        "ACL GENPASS 1 2",
        "XGROUP CREATE key gr␀oup $ MKSTREAM",
        "XGROUP SETID key no␀ne $",
        "XREADGROUP GROUP no␀ne me STREAMS key >",
        "XACK key no␀ne 1-1",
        "XPENDING key no␀ne",
        "XCLAIM key no␀ne me 0 1-1",
        "XINFO CONSUMERS key no␀ne",
        "CLIENT KILL f␀oo",
        "CLIENT TRACKING f␀oo",
        "FUNCTION LIST f␀oo",
        "REPLCONF f␀oo bar",
        "LATENCY GRAPH f␀oo",
        "HELLO 3 f␀oo",
        "SET key value f␀oo",
        "DEBUG f␀oo",
        "COMMAND LIST f␀oo",
    ]);
}

/// Two zeros are equal, and then it is their text that counts; what is too small for a double is no number; text ends at a zero, unless it is
/// stored.
#[test]
fn what_is_sorted_is_compared_as_c_compares_it() {
    compare(&[
        "RPUSH zeros 0 +0 -0 _0 0.0",
        "SORT zeros",
        "SORT zeros DESC",
        "RPUSH small 1 2.2250738585072014e-308",
        "SORT small",
        "RPUSH exact 0x1p-1074",
        "SORT exact",
        "RPUSH cut b a␀b a a␀ ␀ '' a␀a",
        "SORT cut ALPHA",
        "SORT cut ALPHA DESC",
        "SORT cut ALPHA STORE stored",
        "LRANGE stored 0 -1",
        "SORT cut ALPHA LIMIT 1 9223372036854775807",
        "SORT cut ALPHA LIMIT -9223372036854775808 2",
        "SORT cut ALPHA LIMIT 9223372036854775807 9223372036854775807",
        // From then on Redis takes any number for one out of range, until a call of the system fails.
        "RPUSH tiny 1 4.9e-324",
        "SORT tiny",
    ]);
}

/// An identifier is read before it is looked at what goes together; a limit of nothing needs no strategy.
#[test]
fn a_wrong_identifier_is_told_before_a_wrong_limit() {
    compare(&[
        "XADD key LIMIT 3 x f v",
        "XADD key MAXLEN 5 LIMIT 3 x f v",
        "XADD key MAXLEN 5 LIMIT 3 1-1 f v",
        "XADD key LIMIT 3 1-1 f v",
        "XADD key LIMIT 0 1-1 f v",
        "XADD key LIMIT 3 *",
        "XTRIM key LIMIT 0",
        "XTRIM key LIMIT 3",
        "XADD key +5 f v",
        "XADD key 007 f v",
        "XADD key 8-+1 f v",
        "XADD key 9␀ f v",
        "XADD key 10--1 f v",
        "XADD key 10--01 f v",
        "XADD key _11 f v",
        "XADD key 11_ f v",
        "XRANGE key ( +",
        "SCAN ␀ COUNT 1000",
        "SCAN 0␀x COUNT 1000",
    ]);
}

/// Redis adds the time to what is said, and comes to one that has passed.
#[test]
fn what_is_restored_for_longer_than_time_lasts_is_gone() {
    compare(&["SET key 1", "RESTORE key 9223372036854775807 ¿ REPLACE", "EXISTS key"]);
    let payload =
        [b"\0\xC0\x05\x0A\0".as_slice(), &support::words::checksum(b"\0\xC0\x05\x0A\0").to_le_bytes()].concat();
    let said = [support::node::Node::ours(&[]), support::node::Node::theirs(&[])].map(|node| {
        let mut client = node.client();
        let words: [&[u8]; 5] = [b"RESTORE", b"key", b"9223372036854775807", &payload, b"REPLACE"];
        (client.try_call(&words).unwrap(), client.call("EXISTS key"))
    });
    assert_eq!(said[0], said[1]);
}

#[test]
fn bounds_of_scores_may_be_out_of_range() {
    compare(&[
        "ZADD key 0 a 1 b 2 c inf d -inf e",
        "ZCOUNT key -1e400 1e400",
        "ZCOUNT key (-1e400 (1e400",
        "ZCOUNT key 1e-400 1",
        "ZCOUNT key (1␀x 2",
        "ZCOUNT key ␀ 2",
        "ZCOUNT key __1 2",
        "ZCOUNT key 0x1 0x2",
        "ZCOUNT key nan 2",
        "ZREMRANGEBYSCORE key 1e400 +inf",
    ]);
}

#[test]
fn names_of_parameters_are_looked_at_before_their_values() {
    compare(&[
        "CONFIG SET hash-max-listpack-entries x foo bar",
        "CONFIG SET hash-max-listpack-entries x databases 3",
        "CONFIG SET hash-max-listpack-entries x hash-max-listpack-entries 5",
        "CONFIG SET hash-max-listpack-entries x set-max-intset-entries y",
        "CONFIG SET dir /nowhere foo bar",
        "CONFIG SET foo",
    ]);
}

#[test]
fn of_several_reasons_not_to_track_the_first_is_told() {
    compare(&[
        "CLIENT TRACKING ON BCAST OPTIN",
        "CLIENT TRACKING ON OPTIN",
        "CLIENT TRACKING ON OPTIN OPTOUT",
        "CLIENT TRACKING ON BCAST OPTOUT",
        "CLIENT TRACKING ON OPTOUT",
        "CLIENT TRACKING ON PREFIX x",
    ]);
}

/// Also where there is no transaction.
#[test]
fn an_exec_that_is_refused_discards() {
    compare(&["EXEC x", "MULTI", "EXEC x", "EXEC", "WATCH key", "SET key value", "EXEC x", "MULTI", "PING", "EXEC"]);
}

#[test]
fn a_list_of_commands_is_no_set() {
    compare(&[
        "HELLO 3",
        "COMMAND LIST FILTERBY ACLCAT foo",
        "COMMAND LIST FILTERBY MODULE foo",
        "COMMAND LIST FILTERBY PATTERN foo",
    ]);
}

#[test]
fn who_is_not_there_cannot_be_written_to() {
    compare(&["SET key value", "MIGRATE 127.0.0.1 1 key 0 1000"]);
}

#[test]
fn numbers_of_json_may_be_out_of_range() {
    compare(&[
        "EVAL return_tostring(cjson.decode('0x1p2000')) 0",
        "EVAL return_tostring(cjson.decode('-0x1p2000')) 0",
        "EVAL return_tostring(cjson.decode('0x1p-2000')) 0",
        "EVAL return_tostring(cjson.decode('1e400')) 0",
    ]);
}

/// A listpack keeps a whole score as an integer, and ZSCAN tells what it keeps.
#[test]
fn zscan_tells_a_score_as_its_encoding_keeps_it() {
    compare(&[
        "ZADD zset 1e17 a -1e17 b 4611686018427387904 c 4611686018427388928 d 9007199254740993 e -0 f 0.1 g inf h",
        "ZSCAN zset 0",
        "ZRANGE zset 0 -1 WITHSCORES",
        "EVAL return_redis.call('ZSCAN','zset','0') 0",
        "CONFIG SET zset-max-listpack-entries 0",
        "ZADD other 1e17 a",
        "ZSCAN other 0",
        "ZADD third -0 a",
        "ZSCAN third 0",
        "OBJECT ENCODING third",
    ]);
}

/// It is for the command behind it, which need not run: one that is refused is one, too.
#[test]
fn client_caching_is_for_the_next_command_also_where_that_is_refused() {
    let mut lines = vec!["CLIENT TRACKING ON OPTIN"];
    for next in [
        "PING",
        "FOO",
        "GET",
        "CLIENT",
        "CLIENT FOO",
        "CLIENT CACHING",
        "CLIENT CACHING NO",
        "CLIENT SETNAME a_b",
        "HELLO 9",
        "EXEC",
        "DISCARD",
        "CLIENT TRACKING ON OPTIN",
        "CLIENT TRACKING ON OPTIN OPTOUT",
        "CLIENT TRACKING ON NOLOOP",
        "CLIENT TRACKING ON OPTOUT",
        "CLIENT TRACKINGINFO",
        "CLIENT TRACKING OFF",
        "CLIENT TRACKING ON OPTIN",
        "MULTI",
        "FOO",
        "CLIENT TRACKINGINFO",
        "EXEC",
        "CLIENT CACHING YES",
        "MULTI",
        "CLIENT TRACKINGINFO",
        "GET key",
        "EXEC",
        "CLIENT TRACKINGINFO",
        "CLIENT CACHING YES",
        "AUTH nobody nothing",
    ] {
        lines.extend(["CLIENT CACHING YES", next, "CLIENT TRACKINGINFO"]);
    }
    compare(&lines);
}

#[test]
fn the_digests_of_no_keys_are_none() {
    compare(&["DEBUG DIGEST-VALUE", "DEBUG DIGEST", "DEBUG DIGEST x"]);
}

/// Whatever BITOP or SETRANGE have made of it.
#[test]
fn a_damaged_hyperloglog_is_decoded_as_far_as_it_goes() {
    compare(&[
        "EVAL return_redis.call('SET','short','HYLL\\1'..string.rep('\\0',11)..'\\68\\154\\0\\132') 0",
        "PFDEBUG DECODE short",
        "PFDEBUG GETREG short",
        "PFDEBUG TODENSE short",
        "PFCOUNT short",
        "PFMERGE other short",
        "APPEND short @",
        "PFDEBUG DECODE short",
        "PFCOUNT short",
        "EVAL return_redis.call('SET','none','HYLL\\1'..string.rep('\\0',11)) 0",
        "PFDEBUG DECODE none",
        "PFCOUNT none",
    ]);
}

#[test]
fn a_sorted_set_that_was_sorted_is_unpacked() {
    compare(&[
        "ZADD z 1 a -0 b",
        "ZRANGE z 0 -1 WITHSCORES",
        "OBJECT ENCODING z",
        "SORT z BY nosort LIMIT x y",
        "OBJECT ENCODING z",
        "SORT_RO z ALPHA",
        "OBJECT ENCODING z",
        "ZADD z -0 c",
        "ZRANGE z 0 -1 WITHSCORES",
        "DUMP z",
        "ZADD other 1 a",
        "SORT other BY nosort LIMIT 0 0 STORE list",
        "OBJECT ENCODING other",
        "ZADD third 1 a",
        "SORT third",
        "OBJECT ENCODING third",
    ]);
}
