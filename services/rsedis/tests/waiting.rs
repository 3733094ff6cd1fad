//! Clients that wait for keys: what they are served, and what they cost others. Beside Redis 7.0.15.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::time::{Duration, Instant};

use harness::until;
use support::Client;
use support::node::Node;

/// What somebody hears who waits, once all lines were done in one transaction, and what is left then.
fn served(node: &Node, prepared: &[&str], wait: &str, lines: &[&str], left: &str) -> [String; 2] {
    let (mut waiter, mut writer) = (node.client(), node.client());
    assert_eq!(writer.call("FLUSHALL"), "+OK\r\n");
    prepared.iter().for_each(|line| drop(writer.call(line)));
    waiter.send(format!("{wait}\r\n").as_bytes()).unwrap();
    until("somebody waits", || node.info("blocked_clients") == "1");
    writer.call("MULTI");
    lines.iter().for_each(|line| drop(writer.call(line)));
    writer.call("EXEC");
    [String::from_utf8(waiter.receive().unwrap()).unwrap(), writer.call(left)]
}

#[test]
fn the_key_that_became_ready_first_is_served() {
    let nodes = [Node::ours(&[]), Node::theirs(&[])];
    let group = ["XGROUP CREATE a g $ MKSTREAM", "XGROUP CREATE b g $ MKSTREAM"];
    let cases: [(&[&str], &str, &[&str], &str); 7] = [
        (&[], "BLPOP a b 0", &["RPUSH b 1", "RPUSH a 9"], "EXISTS a b"),
        (&[], "BLMPOP 0 2 a b LEFT COUNT 2", &["RPUSH b 1 2 3", "RPUSH a 9"], "LRANGE b 0 -1"),
        (&[], "BZPOPMIN a b 0", &["ZADD b 1 x", "ZADD a 9 y"], "EXISTS a b"),
        (&[], "BZMPOP 0 2 a b MAX COUNT 2", &["ZADD b 1 x 2 y 3 z", "ZADD a 9 y"], "ZRANGE b 0 -1"),
        (&[], "XREAD BLOCK 0 STREAMS a b $ $", &["XADD b 1-1 f v", "XADD a 1-1 f v"], "XLEN a"),
        (&group, "XREADGROUP GROUP g c BLOCK 0 STREAMS a b > >", &["XADD b 1-1 f v", "XADD a 1-1 f v"], "XPENDING a g"),
        // What was ready, and is of another type or empty again, is nobody's turn.
        (&[], "BLPOP a b 0", &["ZADD b 1 x", "RPUSH a 1", "LPOP a", "RPUSH a 2"], "EXISTS a b"),
    ];
    for (prepared, wait, lines, left) in cases {
        let [ours, theirs] = nodes.each_ref().map(|node| served(node, prepared, wait, lines, left));
        assert_eq!(ours, theirs, "{wait}: {lines:?}");
    }
}

/// Redis looks for the key once more before it serves, and what has expired goes then: its replicas hear of that at once.
#[test]
fn a_key_that_has_expired_before_anybody_was_served_goes() {
    let node = Node::ours(&[]);
    let (mut waiter, mut writer) = (node.client(), node.client());
    assert_eq!(writer.call("DEBUG SET-ACTIVE-EXPIRE 0"), "+OK\r\n");
    waiter.send(b"BLPOP k 0\r\n").unwrap();
    until("it waits", || node.info("blocked_clients") == "1");
    for line in ["MULTI", "RPUSH k x", "PEXPIRE k 1", "DEBUG SLEEP 0.05", "EXEC"] {
        writer.call(line);
    }
    assert_eq!((writer.call("DBSIZE"), node.info("blocked_clients")), (":0\r\n".to_owned(), "1".to_owned()));
}

/// How long some pushes take.
fn push(client: &mut Client, key: &str) -> Duration {
    const COUNT: usize = 50;
    let lines = format!("RPUSH {key} x\r\n").repeat(COUNT);
    let began = Instant::now();
    client.send(lines.as_bytes()).unwrap();
    (0..COUNT).for_each(|_| drop(client.receive().unwrap()));
    began.elapsed()
}

/// One is served with each, the others are not even looked at.
#[test]
fn a_push_does_not_run_the_commands_of_all_who_wait() {
    let node = Node::ours(&[]);
    let mut waiters: Vec<Client> = (0..1_000).map(|_| node.client()).collect();
    waiters.iter_mut().for_each(|waiter| waiter.send(b"BLPOP q 0\r\n").unwrap());
    until("all wait", || node.info("blocked_clients") == "1000");
    let mut writer = node.client();
    // The quickest of several: others have the processor, too.
    let rounds: Vec<[Duration; 2]> = (0..4).map(|_| ["q", "other"].map(|key| push(&mut writer, key))).collect();
    let least = |place: usize| rounds.iter().map(|round| round[place]).min().unwrap();
    let (served, alone) = (least(0), least(1));
    assert!(served < alone * 10, "{served:?} with those who wait, {alone:?} without");
    assert_eq!(node.info("blocked_clients"), "800");
}
