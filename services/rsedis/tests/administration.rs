//! What administrators change while the server runs, and how it ends when it is told to.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::net::TcpListener;
use std::time::Instant;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};
use support::node::Node;
use support::{Client, redis_program, rsedis_program, start};

const ALWAYS: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

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

#[test]
fn config_set_appendonly_yes_makes_nobody_wait() {
    let node = Node::ours(&[]);
    let mut client = node.client();
    client.call("DEBUG POPULATE 300");
    client.call("CONFIG SET rdb-key-save-delay 10000");
    assert_eq!(client.call("CONFIG SET appendonly yes"), "+OK\r\n");
    assert_eq!(client.call("SET key value"), "+OK\r\n");
    assert_eq!(node.info("aof_rewrite_in_progress"), "1", "it was waited for");
    let refused = client.call("SHUTDOWN");
    assert!(refused.starts_with("-ERR Errors trying to SHUTDOWN"), "all would be lost: {refused}");
    client.call("CONFIG SET rdb-key-save-delay 0");
    harness::until("the base", || node.info("aof_rewrite_in_progress") == "0");
    let node = node.restart(&["--appendonly", "yes"]);
    assert_eq!(node.call("GET key"), "$5\r\nvalue\r\n");
    assert_eq!(node.call("DBSIZE"), ":301\r\n");
}

#[test]
fn under_always_nothing_is_acknowledged_before_the_file_has_a_base() {
    let node = Node::ours(&["--appendfsync", "always"]);
    let (mut client, mut writer) = (node.client(), node.client());
    client.call("DEBUG POPULATE 100");
    client.call("CONFIG SET rdb-key-save-delay 10000");
    assert_eq!(client.call("CONFIG SET appendonly yes"), "+OK\r\n");
    writer.send(b"SET acked 1\r\n").unwrap();
    assert_eq!(client.call("GET key:1"), "$7\r\nvalue:1\r\n", "reads go on");
    assert_eq!(node.info("aof_rewrite_in_progress"), "1");
    assert_eq!(writer.receive().unwrap(), b"+OK\r\n");
    let node = node.restart(ALWAYS);
    assert_eq!(node.call("GET acked"), "$1\r\n1\r\n");
    assert_eq!(node.call("DBSIZE"), ":101\r\n");
}

/// Until the file begun behind a master's keys has a base, a restart reads the file of before.
#[test]
fn a_replica_acknowledges_nothing_before_its_new_file_has_a_base_and_neither_does_a_promoted_one() {
    let (master, replica) = (Node::ours(&[]), Node::ours(ALWAYS));
    master.call("DEBUG POPULATE 200");
    replica.call("SET old 1");
    replica.call("CONFIG SET rdb-key-save-delay 10000");
    replica.follow(master.server.port);
    replica.wait_for_link();
    let mut client = master.client();
    client.call("SET waited 1");
    assert_eq!(client.call("WAIT 1 200"), ":0\r\n", "a restart of the replica would not have it");
    assert_eq!(replica.call("REPLICAOF NO ONE"), "+OK\r\n");
    assert_eq!(replica.call("SET acked 1"), "+OK\r\n");
    let replica = replica.restart(ALWAYS);
    assert_eq!(replica.call("GET acked"), "$1\r\n1\r\n");
    assert_eq!(replica.call("GET waited"), "$1\r\n1\r\n");
    assert_eq!(replica.call("GET old"), "$-1\r\n");
}

/// Whoever watches a replica by its master's INFO sees how far it is in Redis's words.
#[test]
fn who_is_sent_keys_while_they_are_taken_waits_for_the_save() {
    for diskless in ["yes", "no"] {
        let options = ["--repl-diskless-sync", diskless, "--repl-diskless-sync-delay", "0"];
        for master in [Node::ours(&options), Node::theirs(&options)] {
            let replica = Node::ours(&[]);
            master.call("DEBUG POPULATE 100");
            master.call("CONFIG SET rdb-key-save-delay 100000");
            replica.follow(master.server.port);
            harness::until("the save", || master.info("rdb_bgsave_in_progress") == "1");
            let slave = master.info("slave0");
            assert!(slave.contains("state=wait_bgsave"), "{diskless}: {slave}");
            master.call("CONFIG SET rdb-key-save-delay 0");
        }
    }
}

#[test]
fn who_wants_no_replies_gets_none_later_either() {
    let node = Node::ours(&[]);
    let (mut client, mut other) = (node.client(), node.client());
    client.send(b"CLIENT REPLY OFF\r\nBLPOP k 0\r\n").unwrap();
    harness::until("somebody who waits", || node.info("blocked_clients") == "1");
    other.call("RPUSH k v");
    client.send(b"CLIENT REPLY ON\r\n").unwrap();
    assert_eq!(client.receive().unwrap(), b"+OK\r\n");
    client.send(b"CLIENT REPLY SKIP\r\nBLPOP k 0.01\r\nPING\r\nBLMOVE k l LEFT LEFT 0.01\r\n").unwrap();
    assert_eq!(client.receive().unwrap(), b"+PONG\r\n");
    assert_eq!(client.receive().unwrap(), b"*-1\r\n");
    client.send(b"CLIENT REPLY SKIP\r\nSUBSCRIBE x\r\nPING\r\nPING\r\n").unwrap();
    assert!(client.receive().unwrap().starts_with(b"*3\r\n$9\r\nsubscribe"));
    (0..2).for_each(|_| assert!(client.receive().unwrap().starts_with(b"*2\r\n$4\r\npong")));
}

#[test]
fn what_is_answered_later_has_no_place_in_a_transaction() {
    let node = Node::ours(ALWAYS);
    let mut client = node.client();
    client.call("MULTI");
    client.call("DEBUG LOADAOF");
    client.call("ECHO a");
    let reply = client.call("EXEC");
    assert!(
        reply.starts_with("*2\r\n-ERR DEBUG LOADAOF is answered later") && reply.ends_with("$1\r\na\r\n"),
        "{reply}"
    );
}

#[test]
fn a_browser_that_is_made_to_ask_runs_no_command() {
    let node = Node::ours(&[]);
    let mut client = node.client();
    client.send(b"POST / HTTP/1.1\r\nHost: here\r\n\r\nSET key value\r\n").unwrap();
    assert!(client.is_closed());
    assert_eq!(node.call("GET key"), "$-1\r\n");
}

#[test]
fn a_promotion_in_a_transaction_is_survived() {
    let replica = Node::ours(&["--replica-read-only", "no", "--appendonly", "yes"]);
    let (master, follower) = (Node::ours(&[]), Node::ours(&[]));
    replica.follow(master.server.port);
    replica.wait_for_link();
    follower.follow(replica.server.port);
    follower.wait_for_link();
    let mut client = replica.client();
    for line in ["MULTI", "SET a 1", "REPLICAOF NO ONE", "SET b 1", "SET c 1"] {
        client.call(line);
    }
    assert_eq!(client.call("EXEC"), "*4\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n");
    let replica = replica.restart(&["--appendonly", "yes"]);
    assert_eq!(replica.call("MGET a b c"), "*3\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n1\r\n");
}

#[test]
fn where_the_arguments_of_an_unfinished_command_are_is_not_counted() {
    const COUNT: usize = 600_000;
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), &[]);
    let (mut client, mut other) = (server.client(), server.client());
    assert_eq!(client.call("CLIENT SETNAME sender"), "+OK\r\n");
    client.send(format!("*{}\r\n{}", COUNT + 1, "$0\r\n\r\n".repeat(COUNT)).as_bytes()).unwrap();
    // A place of each is two numbers of four bytes.
    harness::until("all that was sent is there, and counted", || {
        let list = other.call("CLIENT LIST");
        let line = list.lines().find(|line| line.contains("name=sender")).unwrap();
        let number = |field: &str| -> usize {
            line.split(' ').find_map(|word| word.strip_prefix(field)?.strip_prefix('=')).unwrap().parse().unwrap()
        };
        number("tot-mem") >= number("qbuf") + number("qbuf-free") + COUNT * 8
    });
}

/// Every number that Redis takes is taken, and no other; and what is far away stays far away.
#[test]
fn numbers_at_their_ends_are_taken_as_by_redis_and_end_nothing() {
    // What is bounded otherwise on purpose, or cannot change in Redis.
    const LEFT_ALONE: [&str; 6] = ["port", "tls-port", "maxclients", "hz", "maxmemory-samples", "socket-mark-id"];
    let directories = [harness::folder(), harness::folder()];
    let ours = start(rsedis_program(), directories[0].path(), &[]);
    let theirs = start(&redis_program("redis-server"), directories[1].path(), &[]);
    let (mut mine, mut other) = (ours.client(), theirs.client());
    let shown = mine.call("CONFIG GET *");
    let lines: Vec<&str> = shown.lines().skip(2).step_by(2).collect();
    let names = lines.chunks(2).filter(|pair| pair[1].parse::<i64>().is_ok() && !LEFT_ALONE.contains(&pair[0]));
    let is_number = |name: &&str| {
        ours.client().call(&format!("CONFIG SET {name} x")).contains("couldn't be parsed into an integer")
    };
    let names: Vec<&str> = names.map(|pair| pair[0]).filter(is_number).collect();
    assert!(names.len() > 30, "{names:?}");
    let mut most = Vec::new();
    for name in names {
        for value in ["-9223372036854775808", "-1", "0", "2147483648", "9223372036854775807", "2147483647"] {
            let line = format!("CONFIG SET {name} {value}");
            // What Redis takes as bytes is refused in other words below zero.
            let told = |reply: String| if value.starts_with('-') { reply[..1].to_owned() } else { reply };
            let [reply, expected] = [&mut mine, &mut other].map(|client| told(client.call(&line)));
            assert_eq!(reply, expected, "{line}");
            if reply.starts_with('+') && value.len() > 9 {
                most.push(line);
            }
        }
    }
    // Somebody to follow, who is not there, and a replica: all that is looked at once a second is.
    let follower_folder = harness::folder();
    let follower =
        start(rsedis_program(), follower_folder.path(), &["--replicaof", &format!("127.0.0.1 {}", ours.port)]);
    let mut following = follower.client();
    for line in &most {
        assert_eq!(mine.call(line), "+OK\r\n", "{line}");
        assert_eq!(following.call(line), "+OK\r\n", "{line}");
    }
    let began = Instant::now();
    harness::until("three seconds", || began.elapsed().as_secs() >= 3);
    for client in [&mut mine, &mut following, &mut ours.client(), &mut follower.client()] {
        assert_eq!(client.call("PING"), "+PONG\r\n");
    }
}

/// The kernel refuses such a keepalive, and the connection is none the worse for it.
#[test]
fn a_keepalive_that_the_kernel_refuses_costs_the_connection() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), &[]);
    let mut client = server.client();
    assert_eq!(client.call("CONFIG SET tcp-keepalive 2147483647"), "+OK\r\n");
    assert_eq!(server.client().call("PING"), "+PONG\r\n");
    // The same of the connection to a master.
    let master = Node::ours(&[]);
    assert_eq!(client.call(&format!("REPLICAOF 127.0.0.1 {}", master.server.port)), "+OK\r\n");
    harness::until("the link to the master", || client.call("INFO replication").contains("master_link_status:up"));
}

/// The system refuses any file where there are too many.
#[test]
fn a_connection_that_cannot_be_taken_ends_the_server() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), &[]);
    let mut client = server.client();
    assert_eq!(client.call("PING"), "+PONG\r\n", "it is taken before there are too many");
    let process = Pid::from_raw(server.process.id() as i32).unwrap();
    let limit = |current| Rlimit { current: Some(current), maximum: getrlimit(Resource::Nofile).maximum };
    let before = prlimit(Some(process), Resource::Nofile, limit(0)).unwrap();
    let refused = std::net::TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let began = Instant::now();
    harness::until("a second", || client.call("PING") == "+PONG\r\n" && began.elapsed().as_secs() >= 1);
    prlimit(Some(process), Resource::Nofile, before).unwrap();
    drop(refused);
    assert_eq!(server.client().call("PING"), "+PONG\r\n");
}
