//! Scripts that run for too long: others hear BUSY, and may end them, as with Redis 7.0.15.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use harness::{LONG, until};
use rustix::process::Signal;
use support::{Client, Server, encode, redis_program, rsedis_program, start};

const FOR_EVER: &[u8] = b"while true do end";
const FOR_EVER_IN_PCALL: &[u8] = b"while true do pcall(function() while true do end end) end";
const LIBRARY: &[u8] = b"#!lua name=mine\nredis.register_function('spin', function() while true do end end)";

/// Waits until others hear that a script runs.
fn wait_until_busy(other: &mut Client) -> String {
    let mut heard = String::new();
    until("others hear BUSY", || {
        heard = other.call("PING");
        heard.starts_with("-BUSY")
    });
    heard
}

/// What everybody hears while scripts run, and when they end.
fn transcript(program: &std::path::Path) -> Vec<String> {
    let folder = harness::folder();
    let options = ["--appendonly", "yes", "--appendfsync", "always", "--busy-reply-threshold", "20"];
    let server = start(program, folder.path(), &options);
    let (mut spinner, mut other, mut third) = (server.client(), server.client(), server.client());
    let mut said = vec![other.call("SCRIPT KILL"), other.call("FUNCTION KILL")];
    for script in [FOR_EVER, FOR_EVER_IN_PCALL] {
        spinner.send(&encode(&[b"EVAL", script, b"0"])).unwrap();
        said.push(wait_until_busy(&mut other));
        for line in ["SET a b", "FUNCTION KILL", "SHUTDOWN", "MULTI", "SET a b", "DISCARD", "CLIENT LIST", "AUTH wrong"]
        {
            said.push(other.call(line));
        }
        // Somebody who comes now is served as well, and who goes does no harm.
        let mut late = server.client();
        said.push(late.call("GET a"));
        drop(std::mem::replace(&mut third, server.client()));
        said.push(late.call("SCRIPT KILL"));
        let ended = String::from_utf8(spinner.receive().unwrap()).unwrap();
        assert!(ended.contains("Script killed by user with SCRIPT KILL"), "{ended}");
        said.push(other.call("SET a b"));
    }
    other.try_call(&[b"FUNCTION", b"LOAD", LIBRARY]).unwrap();
    spinner.send(b"FCALL spin 0\r\n").unwrap();
    said.push(wait_until_busy(&mut other));
    let stats = other.call("FUNCTION STATS");
    let (before, rest) = stats.split_once("duration_ms\r\n:").unwrap();
    said.push(before.to_owned());
    said.push(rest.split_once("\r\n").unwrap().1.to_owned());
    said.push(other.call("SCRIPT KILL"));
    said.push(other.call("FUNCTION KILL"));
    assert!(spinner.receive().unwrap().starts_with(b"-ERR "));
    // One that has written is not ended, but with the server.
    spinner.send(&encode(&[b"EVAL", b"redis.call('set', 'half', 1) while true do end", b"0"])).unwrap();
    said.push(wait_until_busy(&mut other));
    said.push(other.call("SCRIPT KILL"));
    other.send(b"SHUTDOWN NOSAVE\r\n").unwrap();
    assert!(other.is_closed());
    assert_eq!(server.wait(), Some(0));
    // What it had done by then is not there, and what was acknowledged before is.
    let server = start(program, folder.path(), &options);
    said.push(server.client().call("GET half"));
    said.push(server.client().call("GET a"));
    said
}

#[test]
fn others_hear_busy_and_may_end_a_script() {
    let (ours, theirs) = (transcript(rsedis_program()), transcript(&redis_program("redis-server")));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours.len(), theirs.len());
}

/// A write that is not in the file yet, and a script of the same turn of the loop: nobody hears of the write before it is safe.
#[test]
fn a_write_before_a_busy_script_is_acknowledged_once_it_is_safe() {
    let folder = harness::folder();
    let options = ["--appendonly", "yes", "--appendfsync", "always", "--busy-reply-threshold", "20"];
    let server = start(rsedis_program(), folder.path(), &options);
    let (mut client, mut other) = (server.client(), server.client());
    let both = [encode(&[b"SET", b"key", b"value"]), encode(&[b"EVAL", FOR_EVER, b"0"])].concat();
    client.send(&both).unwrap();
    wait_until_busy(&mut other);
    let mut late = server.client();
    assert!(late.call("GET key").starts_with("-BUSY"));
    assert_eq!(other.call("SCRIPT KILL"), "+OK\r\n");
    assert_eq!(client.receive().unwrap(), b"+OK\r\n");
    assert!(client.receive().unwrap().starts_with(b"-ERR"));
    drop((client, other, late));
    server.kill();
    let server = start(rsedis_program(), folder.path(), &options);
    assert_eq!(server.client().call("GET key"), "$5\r\nvalue\r\n");
}

/// Where there is no file nothing is waited for.
#[test]
fn who_has_written_hears_busy_also_without_an_append_only_file() {
    let folder = harness::folder();
    let server = start(rsedis_program(), folder.path(), &["--busy-reply-threshold", "20"]);
    let (mut spinner, mut other) = (server.client(), server.client());
    assert_eq!(other.call("SET a b"), "+OK\r\n");
    spinner.send(&encode(&[b"EVAL", FOR_EVER, b"0"])).unwrap();
    wait_until_busy(&mut other);
    assert_eq!(other.call("SCRIPT KILL"), "+OK\r\n");
    assert!(spinner.receive().unwrap().starts_with(b"-ERR"));
}

/// A reader of the same turn of the loop, and a subscriber whom the script itself has told of a write, hear nothing that a crash or
/// SHUTDOWN NOSAVE makes untrue.
#[test]
fn what_was_read_before_a_busy_script_is_told_once_it_is_safe() {
    let folder = harness::folder();
    let options = ["--appendonly", "yes", "--appendfsync", "always", "--busy-reply-threshold", "20"];
    let server = start(rsedis_program(), folder.path(), &options);
    let (mut writer, mut reader, mut spinner) = (server.client(), server.client(), server.client());
    let (mut listener, mut other) = (server.client(), server.client());
    listener.call("SUBSCRIBE news");
    // While it is stopped commands pile up, and are those of one turn.
    let pile_up = |writer: &mut Client, reader: &mut Client, spinner: &mut Client, value: &[u8], script: &[u8]| {
        let settle = || std::thread::sleep(Duration::from_millis(100));
        settle();
        server.process.signal(Signal::STOP);
        // A process on another core goes on for a moment, and would take these one by one.
        while harness::process::state(server.process.id()) != Some('T') {
            std::thread::sleep(Duration::from_millis(1));
        }
        writer.send(&encode(&[b"SET", b"key", value])).unwrap();
        reader.send(&encode(&[b"GET", b"key"])).unwrap();
        spinner.send(&encode(&[b"EVAL", script, b"0"])).unwrap();
        server.process.signal(Signal::CONT);
        // Who asks in the same turn waits as well.
        settle();
    };
    pile_up(&mut writer, &mut reader, &mut spinner, b"first", FOR_EVER);
    wait_until_busy(&mut other);
    assert_eq!(other.call("SCRIPT KILL"), "+OK\r\n");
    assert_eq!(reader.receive().unwrap(), b"$5\r\nfirst\r\n");
    assert_eq!(writer.receive().unwrap(), b"+OK\r\n");
    assert!(spinner.receive().unwrap().starts_with(b"-ERR"));
    let telling = b"redis.call('set', 'half', 1) redis.call('publish', 'news', 'half is set') while true do end";
    pile_up(&mut writer, &mut reader, &mut spinner, b"second", telling);
    wait_until_busy(&mut other);
    // Asking for more does not bring it out either.
    for client in [&mut reader, &mut listener] {
        client.send(b"PING\r\n").unwrap();
    }
    wait_until_busy(&mut other);
    other.send(b"SHUTDOWN NOSAVE\r\n").unwrap();
    assert!(other.is_closed());
    assert_eq!(server.wait(), Some(0));
    for (who, client) in [("writer", &mut writer), ("reader", &mut reader), ("listener", &mut listener)] {
        let heard = client.receive().map(|reply| String::from_utf8_lossy(&reply).into_owned());
        assert!(heard.is_err(), "the {who} was told {heard:?}, and it is not so");
    }
    let server = start(rsedis_program(), folder.path(), &options);
    assert_eq!(server.client().call("GET key"), "$5\r\nfirst\r\n", "the commands were those of one turn");
}

const PING: &[u8] = b"PING\r\n";
/// Far more than what the system keeps for a connection, and four times what fills 64 MiB with replies.
const PINGS_MAX: usize = 4 << 20;

/// Sends PINGs without reading until nobody takes them; the bytes that were taken.
fn pump(stream: &mut TcpStream) -> usize {
    stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let (bytes, mut sent) = (PING.repeat(PINGS_MAX), 0);
    while sent < bytes.len() {
        match stream.write(&bytes[sent..(sent + (64 << 10)).min(bytes.len())]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    sent
}

fn spin_for_ever(server: &Server) -> (Client, Client) {
    let (mut spinner, mut other) = (server.client(), server.client());
    spinner.send(&encode(&[b"EVAL", FOR_EVER, b"0"])).unwrap();
    wait_until_busy(&mut other);
    (spinner, other)
}

/// Who does not take his replies is not listened to, and again once he has, while the script still runs.
#[test]
fn who_asks_a_busy_server_without_reading_is_paused() {
    let folder = harness::folder();
    let server = start(rsedis_program(), folder.path(), &["--busy-reply-threshold", "20"]);
    let (_spinner, mut other) = spin_for_ever(&server);
    let mut greedy = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let sent = pump(&mut greedy);
    assert!(sent < PINGS_MAX * PING.len(), "{sent} bytes of commands were taken, and no reply was");
    assert!(other.call("PING").starts_with("-BUSY"));
    greedy.set_read_timeout(Some(LONG)).unwrap();
    let mut replies = vec![0; sent / PING.len() * "+PONG\r\n".len()];
    greedy.read_exact(&mut replies).unwrap();
    assert!(other.call("PING").starts_with("-BUSY"), "the script still runs");
}

/// `client-output-buffer-limit` holds while a script runs.
#[test]
fn who_asks_a_busy_server_without_reading_is_cut_off_at_the_limit() {
    let folder = harness::folder();
    let options = ["--busy-reply-threshold", "20", "--client-output-buffer-limit", "normal 16mb 0 0"];
    let server = start(rsedis_program(), folder.path(), &options);
    let (_spinner, mut other) = spin_for_ever(&server);
    let mut greedy = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let sent = pump(&mut greedy);
    assert!(sent < PINGS_MAX * PING.len(), "{sent} bytes of commands were taken, and no reply was");
    assert_eq!(other.call("SCRIPT KILL"), "+OK\r\n");
    greedy.set_read_timeout(Some(LONG)).unwrap();
    let mut taken = Vec::new();
    // The end may be a reset: not all that was sent had been read.
    if let Err(error) = greedy.read_to_end(&mut taken) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    assert!(taken.len() < 16 << 20, "{} bytes came after the limit was passed", taken.len());
}

/// A script that waits for that to happen sees it; and one that has written may write on, though there are too few replicas by then.
#[test]
fn a_replica_that_goes_while_a_script_runs_is_counted_no_more() {
    let (folder, replicas_folder) = (harness::folder(), harness::folder());
    let server = start(rsedis_program(), folder.path(), &["--busy-reply-threshold", "20"]);
    let follows = format!("127.0.0.1 {}", server.port);
    let replica = start(rsedis_program(), replicas_folder.path(), &["--replicaof", &follows]);
    let (mut client, mut other) = (server.client(), server.client());
    until("the replica has come", || client.call("INFO replication").contains("state=online"));
    assert_eq!(client.call("CONFIG SET min-replicas-to-write 1"), "+OK\r\n");
    let script = b"redis.call('set', 'first', 1) \
        while not string.find(redis.call('info', 'replication'), 'connected_slaves:0', 1, true) do end \
        redis.call('set', 'second', 1) return 1";
    client.send(&encode(&[b"EVAL", script, b"0"])).unwrap();
    wait_until_busy(&mut other);
    replica.kill();
    assert_eq!(client.receive().unwrap(), b":1\r\n");
    assert_eq!(client.call("GET second"), "$1\r\n1\r\n");
}

/// Few instructions that take long each: the clock was looked at after 10,000 of them.
#[test]
fn a_script_that_asks_for_memory_again_and_again_is_ended_in_time() {
    let folder = harness::folder();
    let server = start(rsedis_program(), folder.path(), &["--busy-reply-threshold", "20"]);
    for script in [
        "while true do pcall(function() return string.rep('y', 400000000) end) end",
        "while true do pcall(function() return string.rep('y', 4000000000) end) end",
        "local t = {} for i = 1, 1000 do t[i] = string.rep('y', 100000) end while true do pcall(table.concat, t, 'x') end",
        "local t = {} while true do pcall(function() while true do t[#t + 1] = 1 end end) end",
    ] {
        let (mut spinner, mut other) = (server.client(), server.client());
        spinner.send(&encode(&[b"EVAL", script.as_bytes(), b"0"])).unwrap();
        wait_until_busy(&mut other);
        // Where memory is full as well.
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!(other.call("SCRIPT KILL"), "+OK\r\n", "{script}");
        let began = std::time::Instant::now();
        let ended = String::from_utf8(spinner.receive().unwrap()).unwrap();
        assert!(ended.contains("Script killed by user with SCRIPT KILL"), "{script}: {ended}");
        assert!(began.elapsed() < LONG / 4, "{script}: {:?}", began.elapsed());
        assert_eq!(other.call("EVAL return(1) 0"), ":1\r\n", "{script}");
    }
}
