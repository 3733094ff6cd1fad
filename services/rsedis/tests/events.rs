//! Keyspace events: which, and in which order. Beside Redis 7.0.15.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::until;
use support::node::Node;
use support::{elements, encode};

/// What a listener hears of each line.
fn heard(node: &Node, classes: &str, lines: &[&str]) -> Vec<String> {
    let (mut listener, mut client) = (node.client(), node.client());
    assert_eq!(client.call(&format!("CONFIG SET notify-keyspace-events {classes}")), "+OK\r\n");
    listener.call("PSUBSCRIBE *");
    let mut all = vec![client.call("CONFIG GET notify-keyspace-events")];
    for line in lines {
        client.call(line);
        client.call("PUBLISH end x");
        let mut events = Vec::new();
        loop {
            let message = listener.receive().unwrap();
            let parts = elements(&message);
            if parts[2] == b"$3\r\nend\r\n" {
                break;
            }
            let shown = [parts[2], parts[3]].map(|part| part.escape_ascii().to_string().replace("\\r\\n", " "));
            events.push(shown.concat());
        }
        all.push(format!("{line}: {events:?}"));
    }
    all
}

#[track_caller]
fn compare(classes: &str, lines: &[&str]) {
    let [ours, theirs] = [Node::ours(&[]), Node::theirs(&[])].map(|node| heard(&node, classes, lines));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs, "{classes}");
    }
}

#[test]
fn what_gives_a_key_a_time_tells_of_it_and_of_its_end() {
    compare(
        "KEA",
        &[
            "SET k v EX 100",
            "SET k v PX 100000",
            "SET k v GET EXAT 99999999999",
            "SET k v KEEPTTL",
            "SETEX k 100 v",
            "PSETEX k 100000 v",
            "GETEX k",
            "GETEX k EX 100",
            "GETEX k PERSIST",
            "GETEX k PERSIST",
            "GETEX k PXAT 99999999999999",
            "GETEX k PXAT 5",
            "SET k v",
            "EXPIRE k -1",
            "SET k v",
            "EXPIRE k 100",
            "GETDEL k",
            "DEL k",
        ],
    );
}

#[test]
fn what_is_moved_is_pushed_and_then_popped() {
    compare(
        "EA",
        &[
            "RPUSH q 1",
            "LMOVE q w LEFT LEFT",
            "RPOPLPUSH w q",
            "BLMOVE q w RIGHT LEFT 0",
            "BRPOPLPUSH w q 0",
            "LMOVE q q LEFT RIGHT",
        ],
    );
}

#[test]
fn keys_that_are_new_and_keys_that_are_missed_are_told_of_beside_all_others() {
    let lines = [
        "SET k v EX 100",
        "SET k w",
        "RPUSH q 1",
        "LMOVE q w LEFT LEFT",
        "MSET a 1 b 2",
        "GET nokey",
        "MGET nokey k nokey2",
        "EXISTS nokey",
        "TTL nokey",
        "TYPE nokey",
        "HGET nokey f",
        "LLEN nokey",
        "GETEX nokey EX 10",
        "GETDEL nokey",
        "SINTER nokey nokey2",
        "SUNIONSTORE d nokey",
        "SORT nokey",
        "XLEN nokey",
        "DUMP nokey",
        "TOUCH nokey",
        "PFCOUNT nokey",
        "ZUNION 1 nokey",
        "ZRANGE nokey 0 -1",
        "BITOP AND d nokey",
        "OBJECT ENCODING nokey",
        "DEL nokey",
        "EXPIRE nokey 10",
        "LPOP nokey",
        "COPY nokey x",
        "PFADD p x",
        "PFMERGE q p nokey",
        "MEMORY USAGE nokey",
        "XACK nokey g 1-1",
        "XREAD STREAMS nokey 0",
        "XREADGROUP GROUP g c STREAMS nokey >",
        "XCLAIM nokey g c 0 1-1",
        "XAUTOCLAIM nokey g c 0 0",
        "SPOP nokey",
        "SPOP nokey 3",
        "MOVE k 1",
        "COPY b k DB 2",
    ];
    compare("EAnm", &lines);
    compare("Enm", &lines);
}

#[test]
fn what_is_stored_empty_tells_of_the_end_of_what_was_there() {
    compare(
        "KEA",
        &[
            "SADD d 1",
            "SDIFFSTORE d nokey",
            "SADD d 1",
            "SINTERSTORE d nokey",
            "SET d text",
            "SUNIONSTORE d nokey",
            "SUNIONSTORE d nokey",
            "ZADD d 1 a",
            "ZUNIONSTORE d 1 nokey",
            "ZADD d 1 a",
            "ZINTERSTORE d 1 nokey",
            "ZADD d 1 a",
            "ZDIFFSTORE d 1 nokey",
            "ZADD d 1 a",
            "ZRANGESTORE d nokey 0 -1",
            "ZADD z 1 a",
            "ZUNIONSTORE d 1 z",
            "ZADD d INCR 1 a",
            "ZADD d INCR 0 a",
            "ZINCRBY d 2 a",
        ],
    );
}

/// Keys that were found, and keys that were not, behind each line.
fn counted(node: &Node, lines: &[&str]) -> Vec<String> {
    let count = |field| node.info(field).parse::<u64>().unwrap();
    let mut client = node.client();
    let count_line = |line: &&str| {
        let before = [count("keyspace_hits"), count("keyspace_misses")];
        match line.split_once(" | ") {
            None => drop(client.call(line)),
            // It waits until the other one is there.
            Some((waiting, other)) => {
                let mut waiter = node.client();
                let words: Vec<&[u8]> = waiting.split(' ').map(str::as_bytes).collect();
                waiter.send(&encode(&words)).unwrap();
                until("a client that waits", || node.info("blocked_clients") == "1");
                client.call(other);
                waiter.receive().unwrap();
            }
        }
        format!("{line}: {} {}", count("keyspace_hits") - before[0], count("keyspace_misses") - before[1])
    };
    lines.iter().map(count_line).collect()
}

#[test]
fn what_is_read_is_counted_and_counted_once() {
    let lines = [
        "OBJECT ENCODING nokey",
        "OBJECT REFCOUNT nokey",
        "SET k v",
        "OBJECT ENCODING k",
        "SPOP nokey",
        "SPOP nokey 3",
        "SADD s a b c",
        "SPOP s",
        "SPOP s 0",
        "SPOP s 1",
        "SPOP s 5",
        "XADD x 1-1 a b",
        "XADD x 2-1 a b",
        "XGROUP CREATE x g 0",
        "XREAD STREAMS x 0",
        "XREAD STREAMS x nokey 0 0",
        "XREADGROUP GROUP g c COUNT 1 STREAMS x >",
        "XREADGROUP GROUP g c STREAMS x >",
        "XREADGROUP GROUP g c STREAMS x 0",
        "XREADGROUP GROUP g c STREAMS nokey >",
        "XREADGROUP GROUP nogroup c STREAMS x >",
        "XCLAIM x g d 0 1-1 2-1",
        "XCLAIM nokey g d 0 1-1",
        "XAUTOCLAIM x g e 0 0",
        "XAUTOCLAIM nokey g e 0 0",
        "XREAD BLOCK 0 STREAMS x $ | XADD x 3-1 a b",
        "XREADGROUP GROUP g c STREAMS x >",
        "XREADGROUP GROUP g c BLOCK 0 STREAMS x > | XADD x 4-1 a b",
        "XREAD BLOCK 0 STREAMS nokey 0 | XADD nokey 1-1 a b",
    ];
    let [ours, theirs] = [Node::ours(&[]), Node::theirs(&[])].map(|node| counted(&node, &lines));
    assert_eq!(ours, theirs);
}
