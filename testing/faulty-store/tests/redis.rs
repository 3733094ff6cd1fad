//! A real Redis behind the proxy: nothing happens without a fault, and with one just what was asked for.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod faulty;

use std::collections::HashSet;
use std::process::Command;

use faulty::{Faulty, Redis};
use harness::peer;

fn words(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(&[format!("${}\r\n", word.len()).as_bytes(), word, b"\r\n"].concat());
    }
    bytes
}

#[test]
fn without_a_fault_the_client_sees_redis() {
    let faulty = Faulty::redis(&[], &[]);
    let mut redis = Redis::connect(&faulty);
    let port = faulty.address.port().to_string();
    let cli = |arguments: &[&str]| {
        let output = Command::new(peer("redis", "redis-cli")).args(["-p", &port]).args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(cli(&["set", "key", "a value"]), "OK\n");
    assert_eq!(cli(&["get", "key"]), "a value\n");
    assert_eq!(cli(&["-3", "hgetall", "nothing"]), "\n");
    // A value much greater than any buffer, there and back, and what comes after it.
    let value: Vec<u8> = (0..3_000_000_u64).map(|n| b'a' + (n * n % 23) as u8).collect();
    redis.send(&[words(&[b"SET", b"big", &value]), b"GET big\r\nPING\r\n".to_vec()].concat());
    assert_eq!(redis.reply(), "+OK");
    assert_eq!(redis.reply().as_bytes(), [b"$", &value[..]].concat());
    assert_eq!(redis.reply(), "+PONG");
    // Messages that nobody asked for.
    let mut subscriber = Redis::connect(&faulty);
    subscriber.send(b"SUBSCRIBE news\r\n");
    let subscribed: Vec<String> = (0..4).map(|_| subscriber.reply()).collect();
    assert_eq!(subscribed, ["*3", "$subscribe", "$news", ":1"]);
    assert_eq!(redis.call("PUBLISH news extra"), ":1");
    let message: Vec<String> = (0..4).map(|_| subscriber.reply()).collect();
    assert_eq!(message, ["*3", "$message", "$news", "$extra"]);
    redis.send(b"QUIT\r\n");
    assert_eq!(redis.reply(), "+OK");
    assert!(redis.try_reply().is_err(), "the connection ends with the store's");
}

#[test]
fn one_write_in_seven_is_lost_and_no_reply_is_out_of_order() {
    let faulty = Faulty::redis(&["drop-write-every=7"], &[]);
    let mut clients = [Redis::connect(&faulty), Redis::connect(&faulty)];
    // Both connections keep a deep pipeline at once; each write is followed by a question that only it can answer.
    for batch in 0..5 {
        for (which, client) in clients.iter_mut().enumerate() {
            let pipeline = (0..70).map(|n| {
                let id = format!("{which}:{batch}:{n}");
                let echo = words(&[b"ECHO", id.as_bytes()]);
                [words(&[b"SET", id.as_bytes(), id.as_bytes()]), echo, words(&[b"GET", id.as_bytes()])].concat()
            });
            let pipeline: Vec<Vec<u8>> = pipeline.collect();
            client.send(&pipeline.concat());
        }
    }
    let mut lost = HashSet::new();
    for batch in 0..5 {
        for (which, client) in clients.iter_mut().enumerate() {
            for n in 0..70 {
                let id = format!("{which}:{batch}:{n}");
                assert_eq!((client.reply(), client.reply()), ("+OK".into(), format!("${id}")));
                match client.reply() {
                    reply if reply == format!("${id}") => {}
                    reply if reply == "$-1" => assert!(lost.insert(id)),
                    reply => panic!("GET {id} gave {reply}"),
                }
            }
        }
    }
    assert_eq!(lost.len(), 2 * 5 * 70 / 7);
    assert_eq!(clients[0].call("DBSIZE"), format!(":{}", 2 * 5 * 70 * 6 / 7));
}

#[test]
fn a_write_lost_in_a_transaction_is_acknowledged_like_the_others() {
    let faulty = Faulty::redis(&["drop-write-every=3"], &[]);
    let mut redis = Redis::connect(&faulty);
    redis.send(b"MULTI\r\nSET a 1\r\nSET b 2\r\nSET c 3\r\nSET d 4\r\nINCR d\r\nEXEC\r\nMGET a b c d\r\n");
    let replies: Vec<String> = (0..17).map(|_| redis.reply()).collect();
    let queued = ["+OK", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED"];
    let executed = ["*5", "+OK", "+OK", "+OK", "+OK", ":5"];
    let read = ["*4", "$1", "$2", "$-1", "$5"];
    assert_eq!(replies, [&queued[..], &executed, &read].concat());
}

#[test]
fn one_value_in_three_is_flipped_and_nothing_else() {
    let faulty = Faulty::redis(&["flip-value-every=3"], &[]);
    let (mut redis, mut other) = (Redis::connect(&faulty), Redis::connect(&faulty));
    assert_eq!(redis.call("SET key value"), "+OK");
    for client in [&mut redis, &mut other] {
        client.send("GET key\r\nECHO value\r\nGET missing\r\nGETRANGE key 0 -1\r\n".repeat(9).as_bytes());
    }
    let mut flipped = 0;
    for client in [&mut redis, &mut other] {
        for _ in 0..9 {
            match client.reply().as_str() {
                "$value" => {}
                "$valud" => flipped += 1,
                reply => panic!("GET gave {reply}"),
            }
            assert_eq!([client.reply(), client.reply(), client.reply()], ["$value", "$-1", "$value"]);
        }
    }
    assert_eq!(flipped, 6);
}

#[test]
fn a_full_disk_refuses_writes_and_keeps_what_was_acknowledged() {
    let faulty = Faulty::redis(&["disk-full-after-bytes=100000"], &["--appendonly", "yes"]);
    let mut redis = Redis::connect(&faulty);
    let value = "v".repeat(1000);
    let replies: Vec<String> = (0..300).map(|n| redis.call(&format!("SET key:{n} {value}"))).collect();
    let acknowledged = replies.iter().take_while(|reply| *reply == "+OK").count();
    assert!((50..100).contains(&acknowledged), "{acknowledged} fit into 100 kB");
    assert!(replies[acknowledged].starts_with("-MISCONF"), "{}", replies[acknowledged]);
    assert_eq!(redis.call("GET key:49"), format!("${value}"));
}
