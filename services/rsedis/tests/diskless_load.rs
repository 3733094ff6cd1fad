//! Replicas that read their master's keys as they come (`repl-diskless-load`): what is served meanwhile, and what is left where the
//! transfer breaks.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::until;
use support::node::{Node, wait_until_same};

/// Keys of the master. Their transfer takes as many hundredths of a second, while it is slow.
const KEYS: usize = 400;
const DISKLESS: [&str; 4] = ["--repl-diskless-sync", "yes", "--rdbcompression", "no"];

fn load_library(node: &Node, said: &str) {
    let code = format!(
        "#!lua name=mine\nredis.register_function{{function_name='say', callback=function() return '{said}' end, flags={{'no-writes'}}}}"
    );
    let reply = node.client().try_call(&[b"FUNCTION", b"LOAD", b"REPLACE", code.as_bytes()]).unwrap();
    assert!(reply.starts_with(b"$4"), "{}", reply.escape_ascii());
}

fn fill(master: &Node) {
    assert_eq!(master.call(&format!("DEBUG POPULATE {KEYS} key 20000")), "+OK\r\n");
}

/// How long the master takes for a key that it sends, and how long it waits before it sends any.
fn set_pace(master: &Node, key_micros: u32, delay_seconds: u32) {
    let line = format!("CONFIG SET rdb-key-save-delay {key_micros} repl-diskless-sync-delay {delay_seconds}");
    assert_eq!(master.call(&line), "+OK\r\n");
}

/// The replica loses its master, and more than the backlog keeps before it can come again: it needs all keys of the same history.
fn force_full_sync(master: &Node) {
    let mut client = master.client();
    let value = "v".repeat(16384);
    client.call("MULTI");
    client.call("CLIENT KILL TYPE replica");
    client.call("CONFIG SET repl-backlog-size 16384");
    (0..10).for_each(|key| drop(client.call(&format!("SET long:{key} {value}"))));
    assert!(client.call("EXEC").starts_with("*12"));
}

fn number(node: &Node, field: &str) -> u64 {
    node.info(field).parse().unwrap_or(0)
}

/// Keys come, and the transfer has not ended.
fn wait_for_some(replica: &Node) {
    until("some of the keys", || number(replica, "rdb_last_load_keys_loaded") > 5);
    assert_eq!(replica.info("master_sync_in_progress"), "1");
    assert!(number(replica, "rdb_last_load_keys_loaded") < KEYS as u64 / 2, "they come one after the other");
}

/// A master with keys and a library sends them, slowly, to who has others or none.
fn begin_transfer(master: &Node, replica: &Node) {
    fill(master);
    load_library(master, "new");
    set_pace(master, 10_000, 0);
    replica.follow(master.server.port);
    until("the transfer", || replica.info("loading") == "1");
    wait_for_some(replica);
}

fn break_transfer(master: &Node, replica: &Node) {
    // It is a while until the next one begins.
    set_pace(master, 10_000, 5);
    master.call("CLIENT KILL TYPE replica");
    until("the end of the transfer", || replica.info("loading") == "0" && replica.info("async_loading") == "0");
}

fn masters() -> [Node; 2] {
    [Node::ours(&DISKLESS), Node::theirs(&DISKLESS)]
}

#[test]
fn old_keys_are_gone_while_those_of_the_same_history_come() {
    for master in masters() {
        let replica = Node::ours(&["--repl-diskless-load", "swapdb", "--replica-read-only", "no"]);
        replica.follow(master.server.port);
        replica.wait_for_link();
        replica.call("SET mine old");
        load_library(&master, "new");
        until("the library", || replica.call("FCALL say 0") == "$3\r\nnew\r\n");
        load_library(&replica, "old");
        fill(&master);
        set_pace(&master, 10_000, 0);
        let mut watcher = replica.client();
        watcher.call("WATCH mine");
        let mut waiter = replica.client();
        waiter.send(b"XREAD BLOCK 0 STREAMS stream 0\r\n").unwrap();
        master.call("XADD stream 1-1 f v");
        assert!(waiter.receive().unwrap().starts_with(b"*1"), "it comes with the stream");
        waiter.send(b"XREAD BLOCK 0 STREAMS stream 1-1\r\n").unwrap();
        force_full_sync(&master);
        master.call("XADD stream 2-1 f v");

        until("the transfer", || replica.info("async_loading") == "1");
        wait_for_some(&replica);
        let count = replica.call("DBSIZE");
        assert_eq!(replica.info("loading"), "0");
        assert!(number(&replica, "loading_loaded_bytes") > 0);
        assert_eq!(replica.call("GET mine"), "$3\r\nold\r\n");
        assert_eq!(replica.call("FCALL say 0"), "$3\r\nold\r\n");
        assert_eq!(replica.call("SET another value"), "+OK\r\n");
        for line in ["REPLICAOF NO ONE", "CONFIG SET appendonly yes", "BGSAVE"] {
            assert!(replica.call(line).starts_with("-LOADING"), "{line}: {}", replica.call(line));
        }
        let mut client = replica.client();
        client.call("MULTI");
        assert!(client.call("REPLICAOF NO ONE").starts_with("-LOADING"));
        assert!(client.call("EXEC").starts_with("-EXECABORT"));
        assert_eq!(
            (replica.info("async_loading").as_str(), replica.info("master_link_status").as_str()),
            ("1", "down")
        );

        break_transfer(&master, &replica);
        assert_eq!(
            (replica.call("GET mine"), replica.call("GET another")),
            ("$3\r\nold\r\n".into(), "$5\r\nvalue\r\n".into())
        );
        assert_eq!(replica.call("FCALL say 0"), "$3\r\nold\r\n");
        let more = |count: &str| format!(":{}\r\n", count[1..].trim().parse::<usize>().unwrap() + 1);
        assert_eq!(replica.call("DBSIZE"), more(&count));
        watcher.call("PING");

        set_pace(&master, 0, 0);
        replica.wait_for_link();
        wait_until_same(&master, &replica);
        assert_eq!(replica.call("EXISTS mine another"), ":0\r\n");
        assert_eq!(replica.call("FCALL say 0"), "$3\r\nnew\r\n");
        assert!(waiter.receive().unwrap().starts_with(b"*1"), "what somebody waits for came with the keys");
        watcher.call("MULTI");
        watcher.call("PING");
        assert_eq!(watcher.call("EXEC"), "*-1\r\n", "a watched key has gone");
        master.call("SET after transfer");
        wait_until_same(&master, &replica);
        assert_eq!(replica.info("async_loading"), "0");
    }
}

#[test]
fn old_keys_are_gone_where_a_transfer_of_another_history_breaks() {
    for master in masters() {
        let replica = Node::ours(&["--repl-diskless-load", "swapdb"]);
        replica.call("SET mine old");
        load_library(&replica, "old");
        begin_transfer(&master, &replica);
        assert_eq!(replica.info("async_loading"), "0");
        assert!(replica.call("GET mine").starts_with("-LOADING"));

        break_transfer(&master, &replica);
        assert_eq!((replica.call("GET mine"), replica.call("DBSIZE")), ("$3\r\nold\r\n".into(), ":1\r\n".into()));
        assert_eq!(replica.call("FCALL say 0"), "$3\r\nold\r\n");

        set_pace(&master, 0, 0);
        replica.wait_for_link();
        wait_until_same(&master, &replica);
        assert_eq!(
            (replica.call("EXISTS mine"), replica.call("FCALL say 0")),
            (":0\r\n".into(), "$3\r\nnew\r\n".into())
        );
    }
}

#[test]
fn an_empty_replica_keeps_half_of_its_masters_keys() {
    for master in masters() {
        let replica = Node::ours(&["--repl-diskless-load", "on-empty-db"]);
        begin_transfer(&master, &replica);
        assert!(replica.call("GET key:1").starts_with("-LOADING"));
        break_transfer(&master, &replica);
        assert_eq!(replica.call("DBSIZE"), ":0\r\n");
        assert!(replica.call("FCALL say 0").starts_with("-ERR Function not found"));
        set_pace(&master, 0, 0);
        replica.wait_for_link();
        wait_until_same(&master, &replica);

        // One with keys serves them until all have come.
        let other = Node::ours(&["--repl-diskless-load", "on-empty-db"]);
        other.call("SET mine old");
        set_pace(&master, 10_000, 0);
        other.follow(master.server.port);
        until("the transfer", || number(&other, "master_sync_read_bytes") > 100_000);
        assert_eq!((other.call("GET mine"), other.info("loading")), ("$3\r\nold\r\n".into(), "0".into()));
        set_pace(&master, 0, 0);
        other.wait_for_link();
        wait_until_same(&master, &other);
    }
}

#[test]
fn a_transfer_that_breaks_takes_the_append_only_file_with_it() {
    let options = [
        "--repl-diskless-load",
        "swapdb",
        "--replica-read-only",
        "no",
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
    ];
    let master = Node::ours(&DISKLESS);
    let replica = Node::ours(&options);
    fill(&master);
    replica.follow(master.server.port);
    replica.wait_for_link();
    wait_until_same(&master, &replica);
    set_pace(&master, 10_000, 0);
    force_full_sync(&master);
    until("the transfer", || replica.info("async_loading") == "1");
    wait_for_some(&replica);
    assert_eq!(replica.call("SET mine old"), "+OK\r\n");
    break_transfer(&master, &replica);
    assert_eq!(replica.call("SET another value"), "+OK\r\n");
    // Alone: what it has is what its file has.
    let replica = replica.restart(&options);
    assert_eq!(replica.call("EXISTS mine another key:1"), ":3\r\n");
    replica.follow(master.server.port);
    set_pace(&master, 0, 0);
    replica.wait_for_link();
    wait_until_same(&master, &replica);
    // It acknowledges what its own file has.
    let mut writer = master.client();
    writer.call("SET after transfer");
    assert_eq!(writer.call("WAIT 1 60000"), ":1\r\n");
    let replica = replica.restart(&options);
    assert_eq!(replica.call("EXISTS mine another key:1 after"), ":2\r\n");
}

/// The master waits for who does not read on, and keeps what follows for it.
#[test]
fn a_slow_replica_takes_all_into_its_memory() {
    let master = Node::ours(&DISKLESS);
    // 80 MB, more than sockets hold.
    master.call("DEBUG POPULATE 4000 key 20000");
    let replica = Node::ours(&["--repl-diskless-load", "swapdb", "--key-load-delay", "1000"]);
    replica.follow(master.server.port);
    until("some of the keys", || number(&replica, "rdb_last_load_keys_loaded") > 50);
    assert!(number(&replica, "master_sync_read_bytes") < 40 << 20, "{}", replica.info("master_sync_read_bytes"));
    assert_eq!(replica.call("CONFIG SET key-load-delay 0"), "+OK\r\n");
    replica.wait_for_link();
    wait_until_same(&master, &replica);
}

/// One that is silent in the middle of its keys is left for another attempt.
#[test]
fn a_master_that_says_nothing_more_is_waited_for_forever() {
    let master = Node::ours(&DISKLESS);
    fill(&master);
    set_pace(&master, 10_000, 0);
    let replica = Node::ours(&["--repl-diskless-load", "swapdb", "--repl-timeout", "2"]);
    replica.call("SET mine old");
    replica.follow(master.server.port);
    wait_for_some(&replica);
    master.server.process.signal(rustix::process::Signal::STOP);
    until("its patience", || replica.info("loading") == "0");
    assert_eq!(replica.call("GET mine"), "$3\r\nold\r\n");
    master.server.process.signal(rustix::process::Signal::CONT);
    set_pace(&master, 0, 0);
    replica.wait_for_link();
    wait_until_same(&master, &replica);
}
