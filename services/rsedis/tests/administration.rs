//! What administrators change while the server runs, and how it ends when it is told to.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::net::TcpListener;

use rustix::process::Signal;
use support::{Client, rsedis_program, start};

#[test]
fn config_set_port_moves_and_a_port_that_is_taken_changes_nothing() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), &[]);
    let mut client = server.client();
    let port = harness::free_port();
    assert_eq!(client.call(&format!("CONFIG SET port {port}")), "+OK\r\n");
    assert!(Client::connect(server.port).is_err(), "still listened at");
    let mut newcomer = Client::connect(port).unwrap();
    assert!(newcomer.call("INFO server").contains(&format!("tcp_port:{port}\r\n")));
    // Who was there stays.
    assert_eq!(client.call("PING"), "+PONG\r\n");

    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let taken_port = taken.local_addr().unwrap().port();
    let refused = client.call(&format!("CONFIG SET maxmemory 10mb port {taken_port}"));
    assert!(
        refused.starts_with(
            "-ERR CONFIG SET failed (possibly related to argument 'port') - Unable to listen on this port"
        ),
        "{refused}"
    );
    assert_eq!(client.call("CONFIG GET maxmemory"), "*2\r\n$9\r\nmaxmemory\r\n$1\r\n0\r\n", "half of it holds");
    assert_eq!(Client::connect(port).unwrap().call("PING"), "+PONG\r\n");

    let refused = client.call("CONFIG SET bind 192.0.2.1");
    assert!(refused.contains("Failed to bind to specified addresses"), "{refused}");
    assert_eq!(Client::connect(port).unwrap().call("PING"), "+PONG\r\n");
    // Within a transaction the reply does not wait.
    client.call("MULTI");
    client.call(&format!("CONFIG SET port {}", server.port));
    assert_eq!(client.call("EXEC"), "*1\r\n+OK\r\n");
    harness::until("the port before", || Client::connect(server.port).is_ok());
}

#[test]
fn info_tells_what_is_done_at_the_moment() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), &[]);
    let mut client = server.client();
    let mut per_second = || {
        (0..50).for_each(|_| drop(client.call("PING")));
        let info = client.call("INFO stats");
        let number = |name: &str| -> f64 {
            info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap().parse().unwrap()
        };
        number("instantaneous_ops_per_sec") > 10.0 && number("instantaneous_input_kbps") > 0.0
    };
    harness::until("a pace", &mut per_second);
}

#[test]
fn clients_with_the_most_memory_go_first_and_who_may_not_stays() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), &["--maxmemory-clients", "6mb"]);
    let (mut small, mut safe, mut large) = (server.client(), server.client(), server.client());
    assert_eq!(safe.call("CLIENT NO-EVICT ON"), "+OK\r\n");
    let unfinished = |client: &mut Client, bytes: usize| {
        // Who is cut off meanwhile may hear so now.
        drop(client.send(b"*2\r\n$4\r\nECHO\r\n$8000000\r\n"));
        drop(client.send(&vec![b'x'; bytes]));
    };
    let total = |client: &mut Client| -> usize {
        let info = client.call("INFO memory");
        info.lines().find_map(|line| line.strip_prefix("mem_clients_normal:")).unwrap().parse().unwrap()
    };
    // Buffers grow by a megabyte and double: what is counted may be more than twice what was sent.
    unfinished(&mut safe, 1_000_000);
    unfinished(&mut large, 7_000_000);
    harness::until("the end of the largest", || small.call("INFO stats").contains("evicted_clients:1\r\n"));
    assert!(large.receive().is_err(), "it is still there");
    harness::until("what may stay", || total(&mut small) >= 1_000_000);
    // A limit that is lower now holds at once.
    let (before, mut other) = (total(&mut small), server.client());
    unfinished(&mut other, 500_000);
    harness::until("what was sent", || total(&mut small) >= before + 500_000);
    assert_eq!(small.call(&format!("CONFIG SET maxmemory-clients {}", before + 200_000)), "+OK\r\n");
    harness::until("the end of the other", || small.call("INFO stats").contains("evicted_clients:2\r\n"));
    assert!(other.receive().is_err(), "it is still there");
    assert!(total(&mut small) >= 1_000_000, "who may not go has gone");
}

#[test]
fn unlink_and_flushall_async_free_large_values_elsewhere() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), &[]);
    let mut client = server.client();
    let members: String = (0..10_000).map(|number| format!(" member:{number}")).collect();
    let used = |client: &mut Client| -> u64 {
        let info = client.call("INFO memory");
        info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().parse().unwrap()
    };
    std::thread::sleep(std::time::Duration::from_millis(300));
    let before = used(&mut client);
    for (line, freed) in [("UNLINK set", 1), ("FLUSHALL ASYNC", 1), ("FLUSHALL SYNC", 0), ("DEL set", 0)] {
        assert_eq!(client.call(&format!("SADD set{members}")), ":10000\r\n");
        assert_eq!(client.call("CONFIG RESETSTAT"), "+OK\r\n");
        assert!(!client.call(line).starts_with('-'), "{line}");
        harness::until(line, || client.call("INFO memory").contains(&format!("lazyfreed_objects:{freed}\r\n")));
        harness::until("the memory", || used(&mut client) < before + (1 << 20));
    }
    assert_eq!(client.call("CONFIG SET lazyfree-lazy-user-del yes"), "+OK\r\n");
    client.call(&format!("SADD set{members}"));
    assert_eq!(client.call("DEL set"), ":1\r\n");
    harness::until("DEL", || client.call("INFO memory").contains("lazyfreed_objects:1\r\n"));
}

#[test]
fn signals_end_the_server_as_the_settings_say() {
    let directory = harness::folder();
    let dump = directory.path().join("dump.rdb");
    for (signal, name, is_saved) in [
        (Signal::TERM, "shutdown-on-sigterm", false),
        (Signal::INT, "shutdown-on-sigint", false),
        (Signal::INT, "", true),
    ] {
        let server = start(rsedis_program(), directory.path(), &["--save", "3600 1"]);
        let mut client = server.client();
        assert_eq!(client.call("SET key value"), "+OK\r\n");
        if !name.is_empty() {
            assert_eq!(client.call(&format!("CONFIG SET {name} nosave")), "+OK\r\n");
        }
        server.process.signal(signal);
        assert_eq!(server.wait(), Some(0));
        assert_eq!(dump.exists(), is_saved, "{name}");
    }
}
