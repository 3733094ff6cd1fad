//! Keys whose time has come, and are there still: in what is read back later than it was written, in a pause, on a replica. The clock is
//! the test's own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use rsedis::command;
use rsedis::protocol::OwnedArgs;
use rsedis::protocol::{Limits, Parser};
use rsedis::replication::Master;
use rsedis::server::Server;
use rsedis::session::Session;
use rsedis::settings::Settings;

const NOW: i64 = 1_700_000_000_000;

fn session() -> Session {
    Session { is_authenticated: true, may_all: true, ..Session::default() }
}

fn server() -> (Server, Session) {
    (Server::new(Settings::default(), NOW, 1), session())
}

/// One that follows somebody, with a client of its own.
fn replica() -> (Server, Session) {
    let (mut server, client) = server();
    server.replication.master = Some(Master::new("127.0.0.1".to_owned(), 1, NOW));
    (server, client)
}

fn call_with(server: &mut Server, client: &mut Session, words: &[&[u8]]) -> Vec<u8> {
    let args = OwnedArgs::new(words.iter().copied());
    command::execute(server, client, args.as_args());
    std::mem::take(&mut client.reply.bytes)
}

fn call(server: &mut Server, client: &mut Session, line: &str) -> String {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    String::from_utf8(call_with(server, client, &words)).unwrap()
}

/// Runs what another server said it changed, and nothing of that may be refused.
fn replay(server: &mut Server, effects: &[u8]) {
    let mut master = Session { is_master: true, ..session() };
    let (mut parser, mut at) = (Parser::default(), 0);
    while let Some(length) = parser.next(&effects[at..], Limits::TAKEN).unwrap() {
        command::execute(server, &mut master, parser.args(&effects[at..]));
        at += length;
        let reply = std::mem::take(&mut master.reply.bytes);
        assert!(!reply.starts_with(b"-"), "{}", reply.escape_ascii());
    }
    assert_eq!(at, effects.len());
}

/// What RESTORE says it changed, and what was done with the keys before their time came.
fn effects_of_restored_keys() -> Vec<u8> {
    let (mut original, mut client) = server();
    call(&mut original, &mut client, "SET from value");
    let dump = call_with(&mut original, &mut client, &[b"DUMP", b"from"]);
    let from = dump.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let payload = &dump[from..dump.len() - 2];
    original.effects.is_enabled = true;
    for key in [b"kept".as_slice(), b"moved", b"replaced"] {
        assert_eq!(call_with(&mut original, &mut client, &[b"RESTORE", key, b"1000", payload]), b"+OK\r\n");
    }
    let again: [&[u8]; 5] = [b"RESTORE", b"replaced", b"1000", payload, b"REPLACE"];
    assert_eq!(call_with(&mut original, &mut client, &again), b"+OK\r\n");
    assert_eq!(call(&mut original, &mut client, "RENAME moved renamed"), "+OK\r\n");
    for key in ["kept", "renamed", "replaced"] {
        assert_eq!(call(&mut original, &mut client, &format!("PERSIST {key}")), ":1\r\n");
    }
    std::mem::take(&mut original.effects.bytes)
}

fn assert_all_kept(server: &mut Server) {
    for key in ["kept", "renamed", "replaced"] {
        assert_eq!(call(server, &mut session(), &format!("GET {key}")), "$5\r\nvalue\r\n", "{key}");
    }
}

#[test]
fn a_restored_key_whose_time_has_come_is_lost_when_the_file_is_read() {
    let (mut replayed, _) = server();
    (replayed.is_loading, replayed.now) = (true, NOW + 60_000);
    replay(&mut replayed, &effects_of_restored_keys());
    replayed.is_loading = false;
    assert_all_kept(&mut replayed);
}

#[test]
fn a_restored_key_whose_time_has_come_is_lost_on_a_replica_that_gets_it_late() {
    let (mut replica, _) = replica();
    (replica.applies_stream, replica.now) = (true, NOW + 60_000);
    replay(&mut replica, &effects_of_restored_keys());
    replica.applies_stream = false;
    assert_all_kept(&mut replica);
}

/// A master of another make may send it as it is.
#[test]
fn getex_in_the_past_removes_a_key_that_its_master_has() {
    let (mut replica, _) = replica();
    (replica.applies_stream, replica.now) = (true, NOW + 60_000);
    let mut master = Session { is_master: true, ..session() };
    for line in ["SET key value", "GETEX key PXAT 1700000001000", "PERSIST key"] {
        call(&mut replica, &mut master, line);
    }
    replica.applies_stream = false;
    assert_eq!(call(&mut replica, &mut session(), "GET key"), "$5\r\nvalue\r\n");
}

/// What is answered, which must come, or the test fails: it may never end.
fn with_patience(ask: impl FnOnce() -> String + Send + 'static) -> String {
    let (say, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || say.send(ask()));
    heard.recv_timeout(harness::LONG / 4).unwrap()
}

#[test]
fn randomkey_never_ends_in_a_pause_where_all_keys_have_expired() {
    let reply = with_patience(|| {
        let (mut server, mut client) = server();
        call(&mut server, &mut client, "SET key value PX 100");
        server.now += 1_000;
        assert_eq!(call(&mut server, &mut client, "CLIENT PAUSE 100000 WRITE"), "+OK\r\n");
        call(&mut server, &mut client, "RANDOMKEY")
    });
    assert_eq!(reply, "$3\r\nkey\r\n");
}

/// Only a transaction that begins a pause itself writes in one.
#[test]
fn a_write_in_a_pause_adds_a_key_that_is_there_already() {
    for (line, expected) in
        [("SET key new", "+OK\r\n"), ("RPUSH key new", ":1\r\n"), ("COPY other key", ":1\r\n"), ("INCR key", ":1\r\n")]
    {
        for has_own_expiries in [false, true] {
            let (mut server, mut client) = if has_own_expiries { replica() } else { server() };
            server.settings.is_read_only = false;
            call(&mut server, &mut client, "SET other value");
            call(&mut server, &mut client, "SET key old PX 100");
            server.now += 1_000;
            for line in ["MULTI", "CLIENT PAUSE 100000 WRITE", line] {
                call(&mut server, &mut client, line);
            }
            assert_eq!(call(&mut server, &mut client, "EXEC"), format!("*2\r\n+OK\r\n{expected}"), "{line}");
            assert_eq!(server.databases[0].len(), 2, "{line}");
        }
    }
}

/// A replica that takes writes from clients.
fn writable_replica() -> (Server, Session) {
    let (mut server, client) = replica();
    server.settings.is_read_only = false;
    (server, client)
}

#[test]
fn what_a_writable_replica_knows_of_its_own_keys_grows_without_end() {
    let (mut replica, mut client) = writable_replica();
    for seconds in 1..100 {
        call(&mut replica, &mut client, &format!("SET key value EX {seconds}"));
    }
    assert_eq!(replica.own_expiries.len(), 1, "a key has one time");
    call(&mut replica, &mut client, "PERSIST key");
    assert_eq!(replica.own_expiries.len(), 0, "it has none any more");
    for number in 0..10 {
        call(&mut replica, &mut client, &format!("SET {number} value EX 100"));
        call(&mut replica, &mut client, &format!("DEL {number}"));
    }
    assert_eq!(replica.own_expiries.len(), 0, "they have gone");
    for line in ["SET a 1 EX 100", "SET b 1 EX 100", "RENAME a b"] {
        call(&mut replica, &mut client, line);
    }
    assert_eq!(replica.own_expiries.len(), 1, "one of them is left");
    call(&mut replica, &mut client, "FLUSHDB");
    assert_eq!(replica.own_expiries.len(), 0, "all have gone");
}

#[test]
fn a_key_of_a_writable_replica_stays_for_ever_behind_another_name() {
    for lines in [
        ["SET key value EX 5", "RENAME key other"],
        ["SET key value EX 5", "RENAMENX key other"],
        ["SET key value EX 5", "MOVE key 1"],
        ["SET key value EX 5", "COPY key other"],
        ["SET key value EX 5", "COPY key key DB 3"],
        ["SET key value EX 5", "SWAPDB 0 2"],
    ] {
        let (mut replica, mut client) = writable_replica();
        for line in lines {
            assert!(
                !call(&mut replica, &mut client, line).starts_with(['-', ':']) || !line.starts_with("SET"),
                "{line}"
            );
        }
        replica.now += 6_000;
        replica.expire_some(100);
        let left: usize = replica.databases.iter().map(rsedis::keyspace::Database::len).sum();
        assert_eq!(left, 0, "{lines:?}");
    }
}

#[test]
fn a_key_of_a_writable_replica_stays_for_ever_once_restored() {
    let (mut original, mut other) = server();
    call(&mut original, &mut other, "SET from value");
    let dump = call_with(&mut original, &mut other, &[b"DUMP", b"from"]);
    let from = dump.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for name in [b"RESTORE".as_slice(), b"RESTORE-ASKING"] {
        let (mut replica, mut client) = writable_replica();
        let words = [name, b"key", b"5000", &dump[from..dump.len() - 2]];
        assert_eq!(call_with(&mut replica, &mut client, &words), b"+OK\r\n");
        replica.now += 6_000;
        replica.expire_some(100);
        assert_eq!(replica.databases[0].len(), 0, "{}", name.escape_ascii());
    }
}

/// A copy of what the master has let expire is the client's, and what it was copied from the master's.
#[test]
fn a_masters_key_goes_where_a_client_has_copied_it() {
    let (mut replica, mut client) = writable_replica();
    replica.applies_stream = true;
    call(&mut replica, &mut Session { is_master: true, ..session() }, "SET key value PX 5000");
    replica.applies_stream = false;
    assert_eq!(call(&mut replica, &mut client, "COPY key other"), ":1\r\n");
    replica.now += 6_000;
    replica.expire_some(100);
    assert_eq!(replica.databases[0].len(), 1, "the master has not said that its key has gone");
}
