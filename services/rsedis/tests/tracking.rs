//! Who is told of changed keys: clients that cache, clients that watch, and clients that listen to keyspace events.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use support::{Client, Server, rsedis_program, start};

/// A server, a client that caches what it reads (RESP3), and another one.
fn caching(options: &[&str]) -> (harness::TempDir, Server, Client, Client) {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), options);
    let (mut reader, writer) = (server.client(), server.client());
    assert!(reader.call("HELLO 3").starts_with('%'));
    assert_eq!(reader.call("CLIENT TRACKING ON"), "+OK\r\n");
    (directory, server, reader, writer)
}

fn invalidated(name: &str) -> String {
    format!(">2\r\n$10\r\ninvalidate\r\n*1\r\n${}\r\n{name}\r\n", name.len())
}

fn receive(client: &mut Client) -> String {
    String::from_utf8(client.receive().unwrap()).unwrap()
}

#[test]
fn who_reads_behind_a_change_is_not_told_of_that_change() {
    let (_directory, _server, mut reader, mut writer) = caching(&[]);
    for line in ["MULTI", "SET key 1", "GET key"] {
        reader.call(line);
    }
    assert_eq!(reader.call("EXEC"), "*2\r\n+OK\r\n$1\r\n1\r\n");
    assert_eq!(reader.call("PING"), "+PONG\r\n", "told of a change before it read");
    // It is told of the next one: it has read it since.
    writer.call("SET key 2");
    assert_eq!(receive(&mut reader), invalidated("key"));
}

#[test]
fn a_key_that_a_read_finds_expired_is_told_of_and_remembered() {
    let (_directory, _server, mut reader, mut writer) = caching(&["--enable-debug-command", "yes"]);
    writer.call("DEBUG SET-ACTIVE-EXPIRE 0");
    writer.call("SET short value PX 1000");
    assert_eq!(reader.call("GET short"), "$5\r\nvalue\r\n");
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    assert_eq!(reader.call("MGET other short"), "*2\r\n_\r\n_\r\n", "the message stands in the reply");
    assert_eq!(receive(&mut reader), invalidated("short"));
    writer.call("SET short again");
    assert_eq!(receive(&mut reader), invalidated("short"));
}

#[test]
fn who_wants_broadcasts_by_now_is_told_once() {
    let (_directory, server, mut reader, mut writer) = caching(&[]);
    // Somebody else tracks: what was read is not forgotten.
    let mut other = server.client();
    assert_eq!(other.call("CLIENT TRACKING ON"), "+OK\r\n");
    reader.call("GET key");
    assert_eq!(reader.call("CLIENT TRACKING OFF"), "+OK\r\n");
    assert_eq!(reader.call("CLIENT TRACKING ON BCAST PREFIX k"), "+OK\r\n");
    writer.call("SET key value");
    assert_eq!(receive(&mut reader), invalidated("key"));
    assert_eq!(reader.call("PING"), "+PONG\r\n", "told twice");
    assert!(writer.call("INFO stats").contains("tracking_total_prefixes:1\r\n"));
}

#[test]
fn what_expires_or_is_evicted_is_told_of_also_to_who_skips_its_own_changes() {
    let (_directory, _server, mut reader, mut writer) = caching(&["--enable-debug-command", "yes"]);
    writer.call("DEBUG SET-ACTIVE-EXPIRE 0");
    assert_eq!(reader.call("CLIENT TRACKING OFF"), "+OK\r\n");
    assert_eq!(reader.call("CLIENT TRACKING ON NOLOOP"), "+OK\r\n");
    reader.call("SET short value PX 1000");
    reader.call("GET short");
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    assert_eq!(reader.call("EXISTS short"), ":0\r\n");
    assert_eq!(receive(&mut reader), invalidated("short"));
    // Before the reply: the command reads what is there afterwards.
    reader.call("SET evicted value EX 1000");
    reader.call("GET evicted");
    assert_eq!(reader.call("SETBIT large 16000000 0"), ":0\r\n");
    assert_eq!(writer.call("CONFIG SET maxmemory-policy volatile-random maxmemory 1mb"), "+OK\r\n");
    assert_eq!(receive(&mut reader), invalidated("evicted"));
}

#[test]
fn new_keys_are_told_of_before_what_else_happens_to_them() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), &["--notify-keyspace-events", "EAn"]);
    let (mut client, mut listener) = (server.client(), server.client());
    assert_eq!(client.call("CONFIG SET notify-keyspace-events En$gls"), "+OK\r\n");
    listener.call("PSUBSCRIBE *");
    for line in
        ["SET one 1", "SET one 2", "RPUSH list a", "RENAME one two", "EVAL return(redis.call('incr','three')) 0"]
    {
        assert!(!client.call(line).starts_with('-'), "{line}");
    }
    for expected in [
        "new one",
        "set one",
        "set one",
        "new list",
        "rpush list",
        "new two",
        "rename_from one",
        "rename_to two",
        "new three",
        "incrby three",
    ] {
        let (event, key) = expected.split_once(' ').unwrap();
        let told = receive(&mut listener);
        let (channel, key) = (format!("__keyevent@0__:{event}\r\n"), format!("\r\n{key}\r\n"));
        assert!(told.contains(&channel) && told.ends_with(&key), "{expected}: {told}");
    }
}

#[test]
fn a_set_that_has_the_member_is_not_changed_by_smove() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), &["--notify-keyspace-events", "Es"]);
    let (mut client, mut listener) = (server.client(), server.client());
    for line in ["SADD from a b", "SADD to a", "WATCH to"] {
        client.call(line);
    }
    listener.call("PSUBSCRIBE *");
    let mut other = server.client();
    assert_eq!(other.call("SMOVE from to a"), ":1\r\n");
    for line in ["MULTI", "PING"] {
        client.call(line);
    }
    assert_eq!(client.call("EXEC"), "*1\r\n+PONG\r\n", "the watch is broken");
    assert_eq!(other.call("SMOVE from to b"), ":1\r\n");
    for expected in ["srem\r\n$4\r\nfrom", "srem\r\n$4\r\nfrom", "sadd\r\n$2\r\nto"] {
        let told = receive(&mut listener);
        assert!(told.contains(expected), "{expected}: {told}");
    }
}

/// The keys of a file take the place of those that were there: what was read of them, or watched, is not so any more.
#[test]
fn who_has_read_or_watched_is_told_when_all_keys_are_read_anew() {
    for command in ["DEBUG RELOAD", "DEBUG LOADAOF"] {
        let options = ["--enable-debug-command", "yes", "--appendonly", "yes"];
        let (_directory, server, mut reader, mut writer) = caching(&options);
        let mut watcher = server.client();
        writer.call("SET key value");
        assert_eq!(reader.call("GET key"), "$5\r\nvalue\r\n");
        for line in ["WATCH key", "MULTI", "PING"] {
            watcher.call(line);
        }
        assert_eq!(writer.call(command), "+OK\r\n");
        assert_eq!(receive(&mut reader), ">2\r\n$10\r\ninvalidate\r\n_\r\n", "{command}");
        assert_eq!(watcher.call("EXEC"), "*-1\r\n", "{command}");
        assert_eq!(writer.call("GET key"), "$5\r\nvalue\r\n");
    }
}
