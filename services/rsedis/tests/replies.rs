//! Replies of Redis 7.0.15 that no random command meets, beside those of this server: each list of lines is one conversation.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use support::node::Node;

/// A line's words; `''` is an empty one, and `_` stands for a space.
fn words(line: &str) -> Vec<Vec<u8>> {
    let word = |word: &str| if word == "''" { String::new() } else { word.replace('_', " ") };
    line.split(' ').map(|text| word(text).into_bytes()).collect()
}

#[track_caller]
fn compare(lines: &[&str]) {
    let replies = [Node::ours(&[]), Node::theirs(&[])].map(|node| {
        let mut client = node.client();
        let call = |line: &&str| {
            let words = words(line);
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            client.try_call(&words).unwrap().escape_ascii().to_string()
        };
        lines.iter().map(call).collect::<Vec<String>>()
    });
    // The client's number is told with it.
    let told = lines.iter().zip(&replies[0]).zip(&replies[1]).filter(|((line, _), _)| !line.starts_with("HELLO"));
    for ((line, ours), theirs) in told {
        // Subcommands have no order in Redis.
        let parts = |reply: &str| {
            let mut parts: Vec<String> = reply.split("\\r\\n").map(str::to_owned).collect();
            if line.starts_with("COMMAND INFO") {
                parts.sort();
            }
            parts
        };
        assert_eq!(parts(ours), parts(theirs), "{line}");
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
