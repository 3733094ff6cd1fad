//! Replication with Redis 7.0.15, in both directions: what one has, the other has, however the connection between them fares.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use harness::{Random, until};
use support::node::{Node, wait_until_same};
use support::templates::{TEMPLATES, fill};
use support::{Client, redis_program};

/// Random commands of every group, in several databases, and in transactions and scripts.
fn write_at_random(node: &Node, seed: u64, count: usize) {
    let mut random = Random::new(seed);
    let mut client = node.client();
    for number in 0..count {
        match number % 40 {
            0 => drop(client.call(&format!("SELECT {}", random.index(3)))),
            10 => drop(client.call("MULTI")),
            15 => drop(client.call("EXEC")),
            20 => {
                let script: &[u8] = b"redis.call('INCR', KEYS[1]); redis.call('SADD', KEYS[2], ARGV[1]); return redis.call('SPOP', KEYS[2])";
                client.try_call(&[b"EVAL", script, b"2", b"script:counter", b"script:set", b"a"]).unwrap();
                client.call("SADD script:other 1 2 3 4 5 6 7");
                client.call("SPOP script:other 2");
                client.call(&format!("SET lasts{number} value PX 100000"));
                client.call(&format!("SET goes{number} value PX 20"));
            }
            _ => {}
        }
        let (_, templates) = random.pick(TEMPLATES);
        let template = random.pick(templates);
        // Those that leave nothing to compare, or end the connection.
        if [
            "FLUSH",
            "QUIT",
            "RESET",
            "SWAPDB",
            "SUBSCRIBE",
            "PSUBSCRIBE",
            "MULTI",
            "EXEC",
            "DISCARD",
            "HELLO",
            "CLIENT",
        ]
        .iter()
        .any(|word| template.starts_with(word))
        {
            continue;
        }
        let words: Vec<Vec<u8>> = template.split(' ').map(|word| fill(&mut random, word)).collect();
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        client.try_call(&words).unwrap();
    }
    client.call("EXEC");
    client.call("SET written yes");
}

const LIBRARY: &[u8] = b"#!lua name=mine\nredis.register_function('put', function(keys, args) return redis.call('SET', keys[1], args[1]) end)";

/// A proxy between a replica and its master, which cuts the connection when it has passed so many bytes of the master's.
struct Proxy {
    port: u16,
    /// Bytes that it passes before it cuts; then it passes everything.
    left: Arc<AtomicU64>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    fn to(target: u16, bytes: u64) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (left, streams) = (Arc::new(AtomicU64::new(bytes)), Arc::new(Mutex::new(Vec::new())));
        let (ours, kept) = (Arc::clone(&left), Arc::clone(&streams));
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                kept.lock().unwrap().extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
                let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                });
                let (mut from, mut to, left) = (server, client, Arc::clone(&ours));
                std::thread::spawn(move || {
                    let mut piece = [0; 16 << 10];
                    while let Ok(count @ 1..) = from.read(&mut piece) {
                        let before = left.load(Ordering::Relaxed);
                        let passed = before.min(count as u64);
                        if to.write_all(&piece[..passed as usize]).is_err() {
                            break;
                        }
                        left.store(before - passed, Ordering::Relaxed);
                        if passed < count as u64 {
                            left.store(u64::MAX, Ordering::Relaxed);
                            break;
                        }
                    }
                    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                });
            }
        });
        Self { port, left, streams }
    }

    fn has_cut(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 1 << 40
    }

    /// Cuts all connections now.
    fn cut(&self) {
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn follows_through_everything(master: &Node, replica: &Node) {
    write_at_random(master, 1, 800);
    assert!(master.client().try_call(&[b"FUNCTION", b"LOAD", LIBRARY]).unwrap().starts_with(b"$4"));
    replica.call("SET mine goes");
    replica.follow(master.server.port);
    replica.wait_for_link();
    wait_until_same(master, replica);
    assert_eq!(replica.call("GET mine"), "$-1\r\n");
    write_at_random(master, 2, 1_600);
    assert_eq!(master.call("FCALL put 1 by:function value"), "+OK\r\n");
    wait_until_same(master, replica);
    assert!(replica.call("FUNCTION LIST").contains("mine"), "functions come along");
    assert_eq!(replica.call("GET by:function"), "$5\r\nvalue\r\n");
    // What expires goes when the master says so.
    master.call("SET goes:soon value PX 10");
    until("the end of a key on the replica", || {
        master.call("GET goes:soon");
        replica.call("EXISTS goes:soon") == ":0\r\n" && replica.call("DBSIZE") == master.call("DBSIZE")
    });
    let mut listener = replica.client();
    listener.call("SUBSCRIBE news");
    master.call("PUBLISH news here");
    assert!(String::from_utf8_lossy(&listener.receive().unwrap()).contains("here"), "messages come along");
    master.call("FLUSHALL");
    master.call("SET after flush");
    wait_until_same(master, replica);
}

#[test]
fn redis_follows_us_with_keys_from_a_file_and_without_one() {
    for diskless in ["yes", "no"] {
        let master = Node::ours(&["--repl-diskless-sync", diskless]);
        let replica = Node::theirs(&[]);
        follows_through_everything(&master, &replica);
        assert_eq!((master.info("sync_full").as_str(), master.info("connected_slaves").as_str()), ("1", "1"));
        let line = master.info("slave0");
        assert!(line.contains(&format!("port={},state=online", replica.server.port)), "{line}");
        assert!(master.call("ROLE").starts_with("*3\r\n$6\r\nmaster"), "{}", master.call("ROLE"));
        let left: Vec<String> = std::fs::read_dir(master.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with("temp"))
            .collect();
        assert_eq!(left, [""; 0], "files that nobody needs");
    }
}

#[test]
fn we_follow_redis_with_keys_from_a_file_and_without_one() {
    for diskless in ["yes", "no"] {
        let master = Node::theirs(&["--repl-diskless-sync", diskless]);
        let replica = Node::ours(&["--appendonly", if diskless == "yes" { "no" } else { "yes" }]);
        follows_through_everything(&master, &replica);
        assert_eq!((master.info("sync_full").as_str(), replica.info("role").as_str()), ("1", "slave"));
        let role = replica.call("ROLE");
        assert!(role.contains("slave") && role.contains("connected"), "{role}");
    }
}

#[test]
fn we_follow_ourselves() {
    for diskless in ["yes", "no"] {
        let master = Node::ours(&["--repl-diskless-sync", diskless, "--appendonly", "yes", "--appendfsync", "always"]);
        let replica = Node::ours(&["--appendonly", "yes", "--appendfsync", "always"]);
        follows_through_everything(&master, &replica);
    }
}

fn goes_on_after_a_cut(master: &Node, replica: &Node) {
    let proxy = Proxy::to(master.server.port, u64::MAX);
    replica.follow(proxy.port);
    replica.wait_for_link();
    write_at_random(master, 3, 200);
    wait_until_same(master, replica);
    for round in 1..4 {
        proxy.cut();
        write_at_random(master, 3 + round, 200);
        until("the replica's return", || master.info("sync_partial_ok") == round.to_string());
        wait_until_same(master, replica);
    }
    assert_eq!(replica.call("CLIENT KILL TYPE master"), ":1\r\n");
    until("the replica's return", || master.info("sync_partial_ok") == "4");
    assert_eq!(master.call("CLIENT KILL TYPE replica"), ":1\r\n");
    until("the replica's return", || master.info("sync_partial_ok") == "5");
    wait_until_same(master, replica);
    assert_eq!(master.info("sync_full"), "1", "a cut connection is no reason for all keys");
}

#[test]
fn a_cut_connection_costs_what_was_missed_and_no_more() {
    goes_on_after_a_cut(&Node::ours(&[]), &Node::theirs(&[]));
    goes_on_after_a_cut(&Node::theirs(&[]), &Node::ours(&[]));
    goes_on_after_a_cut(&Node::ours(&[]), &Node::ours(&[]));
}

#[test]
fn a_smaller_backlog_holds_more_than_it_may_until_the_next_second() {
    let (master, replica) = (Node::ours(&[]), Node::ours(&[]));
    replica.follow(master.server.port);
    replica.wait_for_link();
    let mut client = master.client();
    let value = "v".repeat(16384);
    client.call("MULTI");
    client.call("CONFIG SET repl-backlog-size 16384");
    (0..10).for_each(|key| drop(client.call(&format!("SET key:{key} {value}"))));
    assert!(client.call("EXEC").starts_with("*11"));
    let info = client.call("INFO replication");
    assert!(info.contains("repl_backlog_histlen:16384\r\n"), "{info}");
}

#[test]
fn who_missed_more_than_the_backlog_holds_gets_all_keys() {
    let master = Node::ours(&["--repl-backlog-size", "16kb"]);
    let replica = Node::theirs(&[]);
    let proxy = Proxy::to(master.server.port, u64::MAX);
    replica.follow(proxy.port);
    replica.wait_for_link();
    wait_for_full(&master, &replica, &proxy, "2");
    assert_eq!(master.info("sync_partial_err"), "2", "a replica that was a master asks for its own history first");
}

fn wait_for_full(master: &Node, replica: &Node, proxy: &Proxy, count: &str) {
    assert_eq!(replica.call("DEBUG SLEEP 0"), "+OK\r\n");
    proxy.cut();
    let value = vec![b'x'; 100_000];
    assert_eq!(master.client().try_call(&[b"SET", b"large", &value]).unwrap(), b"+OK\r\n");
    until("all keys once more", || master.info("sync_full") == count);
    replica.wait_for_link();
    wait_until_same(master, replica);
}

fn survives_a_cut_amid_the_keys(master: &Node, replica: &Node) {
    let mut client = master.client();
    // Random, so that it does not compress.
    let mut random = Random::new(9);
    for number in 0..400 {
        let value: Vec<u8> = (0..8192).map(|_| random.index(256) as u8).collect();
        client.try_call(&[b"SET", format!("key:{number}").as_bytes(), &value]).unwrap();
    }
    replica.call("SET old value");
    let proxy = Proxy::to(master.server.port, 1_000_000);
    replica.follow(proxy.port);
    until("a cut amid the keys", || proxy.has_cut());
    master.call("SET meanwhile value");
    replica.wait_for_link();
    wait_until_same(master, replica);
    assert_eq!(replica.call("GET old"), "$-1\r\n");
}

#[test]
fn a_connection_that_is_cut_amid_the_keys_is_made_again() {
    for diskless in ["yes", "no"] {
        let options = ["--repl-diskless-sync", diskless];
        survives_a_cut_amid_the_keys(&Node::ours(&options), &Node::theirs(&[]));
        survives_a_cut_amid_the_keys(&Node::theirs(&options), &Node::ours(&[]));
    }
}

#[test]
fn killed_servers_come_back_to_the_same_keys() {
    // Ours is killed as the replica of theirs.
    let master = Node::theirs(&[]);
    let port = master.server.port.to_string();
    let options = ["--appendonly", "yes", "--replicaof", "127.0.0.1", &port];
    let mut replica = Node::ours(&options);
    for round in 0..3 {
        write_at_random(&master, 20 + round, 300);
        replica = replica.restart(&options);
        write_at_random(&master, 30 + round, 100);
        replica.wait_for_link();
        wait_until_same(&master, &replica);
    }
    // Theirs is killed as the replica of ours.
    let master = Node::ours(&["--appendonly", "yes", "--appendfsync", "always"]);
    let port = master.server.port.to_string();
    let options = ["--replicaof", "127.0.0.1", &port];
    let mut replica = Node::theirs(&options);
    for round in 0..2 {
        write_at_random(&master, 40 + round, 300);
        replica = replica.restart(&options);
        replica.wait_for_link();
        wait_until_same(&master, &replica);
    }
}

#[test]
fn the_master_is_killed_and_one_of_its_replicas_leads_without_sending_all_keys() {
    let master = Node::ours(&[]);
    let (second, third, fourth) = (Node::ours(&[]), Node::theirs(&[]), Node::ours(&[]));
    for replica in [&second, &third, &fourth] {
        replica.follow(master.server.port);
        replica.wait_for_link();
    }
    write_at_random(&master, 50, 500);
    for replica in [&second, &third, &fourth] {
        wait_until_same(&master, replica);
    }
    let name = master.info("master_replid");
    master.server.kill();
    assert_eq!(second.call("REPLICAOF NO ONE"), "+OK\r\n");
    assert_eq!(second.info("master_replid2"), name);
    assert_ne!(second.info("master_replid"), name);
    assert_eq!(second.call("SET leads second"), "+OK\r\n");
    for replica in [&third, &fourth] {
        replica.follow(second.server.port);
        replica.wait_for_link();
        wait_until_same(&second, replica);
    }
    assert_eq!((second.info("sync_partial_ok").as_str(), second.info("sync_full").as_str()), ("2", "0"));
    // The same where theirs is promoted.
    write_at_random(&second, 51, 100);
    wait_until_same(&second, &third);
    wait_until_same(&second, &fourth);
    second.server.kill();
    assert_eq!(third.call("REPLICAOF NO ONE"), "+OK\r\n");
    fourth.follow(third.server.port);
    fourth.wait_for_link();
    write_at_random(&third, 52, 100);
    wait_until_same(&third, &fourth);
    assert_eq!((third.info("sync_partial_ok").as_str(), third.info("sync_full").as_str()), ("1", "0"));
}

#[test]
fn replicas_of_replicas_have_the_same() {
    let first = Node::theirs(&[]);
    let (second, third, fourth) = (Node::ours(&[]), Node::ours(&[]), Node::theirs(&[]));
    first.call("SELECT 2");
    write_at_random(&first, 60, 200);
    for (replica, master) in [(&second, &first), (&third, &second), (&fourth, &third)] {
        replica.follow(master.server.port);
        replica.wait_for_link();
        // Every replica comes amid a stream that has selected a database.
        write_at_random(&first, 61, 100);
    }
    for replica in [&second, &third, &fourth] {
        wait_until_same(&first, replica);
        assert_eq!(replica.info("master_replid"), first.info("master_replid"));
    }
    assert_eq!(first.call("CLIENT KILL TYPE replica"), ":1\r\n");
    write_at_random(&first, 62, 300);
    for replica in [&second, &third, &fourth] {
        wait_until_same(&first, replica);
    }
}

#[test]
fn wait_counts_those_who_have_it() {
    let master = Node::ours(&["--min-replicas-max-lag", "5"]);
    let mut client = master.client();
    assert_eq!(client.call("SET a 1"), "+OK\r\n");
    assert_eq!(client.call("WAIT 0 0"), ":0\r\n");
    assert_eq!(client.call("WAIT 1 20"), ":0\r\n", "there is no replica");
    let replicas = [Node::ours(&["--appendonly", "yes", "--appendfsync", "always"]), Node::theirs(&[])];
    for replica in &replicas {
        replica.follow(master.server.port);
        replica.wait_for_link();
    }
    until("both replicas", || master.call("ROLE").matches("127.0.0.1").count() == 2);
    for number in 0..20 {
        client.call(&format!("SET counter {number}"));
        assert_eq!(client.call("WAIT 2 60000"), ":2\r\n");
        for replica in &replicas {
            assert!(replica.call("GET counter").contains(&format!("\n{number}\r")), "acknowledged and not there");
        }
    }
    assert_eq!(client.call("CONFIG SET min-replicas-to-write 2"), "+OK\r\n");
    assert_eq!(client.call("SET a 2"), "+OK\r\n");
    assert_eq!(replicas[1].call("REPLICAOF NO ONE"), "+OK\r\n");
    until("the master's refusal", || {
        client.call("SET a 3").starts_with("-NOREPLICAS Not enough good replicas to write.")
    });
    assert_eq!(client.call("WAIT 2 50"), ":1\r\n");
    assert!(replicas[0].call("WAIT 1 0").starts_with("-ERR WAIT cannot be used with replica instances."));
}

#[test]
fn a_replica_refuses_writes_and_keeps_what_has_expired_to_itself() {
    let master = Node::ours(&[]);
    let replica = Node::ours(&[]);
    replica.follow(master.server.port);
    replica.wait_for_link();
    master.call("DEBUG SET-ACTIVE-EXPIRE 0");
    let mut client = master.client();
    client.call("SET stays value");
    client.call("SET goes value PX 1");
    client.call("WAIT 1 0");
    let refused = "-READONLY You can't write against a read only replica.\r\n";
    assert_eq!(replica.call("SET a 1"), refused);
    let error = replica.client().try_call(&[b"EVAL", b"return redis.call('SET', 'a', '1')", b"0"]).unwrap();
    assert!(String::from_utf8_lossy(&error).starts_with("-READONLY"), "{}", String::from_utf8_lossy(&error));
    until("the end of a key's time", || replica.call("GET goes") == "$-1\r\n");
    assert_eq!(replica.call("DBSIZE"), ":2\r\n", "only the master removes it");
    assert_eq!(master.call("GET goes"), "$-1\r\n");
    until("the master's word", || replica.call("DBSIZE") == ":1\r\n");
    for line in ["SADD set a", "ZADD zset 1 a", "SET counter 41", "SADD other b", "ZADD another 1 b"] {
        client.call(line);
    }
    for name in ["set", "zset", "counter"] {
        client.call(&format!("PEXPIRE {name} 1"));
    }
    client.call("WAIT 1 0");
    until("the end of the keys' time", || replica.call("EXISTS set zset counter") == ":0\r\n");
    assert_eq!(replica.call("SUNION set other"), "*1\r\n$1\r\nb\r\n");
    assert_eq!(replica.call("ZUNION 2 zset another"), "*1\r\n$1\r\nb\r\n");
    replica.call("CONFIG SET replica-read-only no");
    assert_eq!(replica.call("INCR counter"), ":1\r\n", "a client's write takes the place of what has expired");
    assert_eq!((replica.call("DBSIZE").as_str(), replica.call("TTL counter").as_str()), (":6\r\n", ":-1\r\n"));
    assert_eq!(replica.call("DEL counter"), ":1\r\n");
    assert_eq!(replica.call("DBSIZE"), ":5\r\n");
    assert_eq!(replica.call("SET local value"), "+OK\r\n");
    // Without its master it answers, or not, as it is set.
    replica.call("CONFIG SET replica-serve-stale-data no");
    assert_eq!(replica.call("GET stays"), "$5\r\nvalue\r\n");
    master.server.kill();
    until("the master's end", || replica.info("master_link_status") == "down");
    assert!(replica.call("GET stays").starts_with("-MASTERDOWN"));
    replica.call("CONFIG SET replica-serve-stale-data yes");
    assert_eq!(replica.call("GET stays"), "$5\r\nvalue\r\n");
}

#[test]
fn a_replica_logs_in() {
    for (master, replica) in [
        (Node::ours(&["--requirepass", "secret"]), Node::ours(&["--masterauth", "wrong"])),
        (Node::theirs(&["--requirepass", "secret"]), Node::ours(&["--masterauth", "wrong"])),
        (Node::ours(&["--requirepass", "secret"]), Node::theirs(&["--masterauth", "wrong"])),
    ] {
        let mut client = master.client();
        client.call("AUTH secret");
        client.call("SET there value");
        replica.follow(master.server.port);
        until("an attempt", || {
            client.call("INFO errorstats").contains("errorstat_WRONGPASS") || replica.info("master_link_status") == "up"
        });
        assert_eq!(replica.info("master_link_status"), "down");
        assert_eq!(replica.call("CONFIG SET masterauth secret"), "+OK\r\n");
        replica.wait_for_link();
        until("the key", || replica.call("GET there") == "$5\r\nvalue\r\n");
    }
}

#[test]
fn a_replica_that_does_not_take_its_stream_is_cut_off() {
    let master = Node::ours(&["--client-output-buffer-limit", "replica 2mb 0 0", "--repl-diskless-sync", "no"]);
    let mut silent = master.client();
    silent.send(b"SYNC\r\n").unwrap();
    let mut client = master.client();
    let value = vec![b'x'; 1 << 20];
    until("the end of the replica", || {
        client.try_call(&[b"SET", b"key", &value]).unwrap();
        master.info("connected_slaves") == "0"
    });
    assert_eq!(client.call("PING"), "+PONG\r\n");
}

#[test]
fn history_goes_on_from_a_file() {
    let master = Node::theirs(&[]);
    let port = master.server.port.to_string();
    let options = ["--replicaof", "127.0.0.1", &port];
    let replica = Node::ours(&options);
    replica.wait_for_link();
    write_at_random(&master, 70, 200);
    wait_until_same(&master, &replica);
    assert_eq!(replica.call("SAVE"), "+OK\r\n");
    let replica = replica.restart(&options);
    replica.wait_for_link();
    wait_until_same(&master, &replica);
    assert_eq!(
        (master.info("sync_full").as_str(), master.info("sync_partial_ok").as_str()),
        ("1", "1"),
        "the file tells where it was"
    );
}

#[test]
fn what_expired_while_the_master_was_down_goes_on_its_replicas_too() {
    // No PING may come between the file and the end.
    let options = ["--repl-ping-replica-period", "10000"];
    let (master, replica) = (Node::ours(&options), Node::theirs(&[]));
    replica.follow(master.server.port);
    replica.wait_for_link();
    master.call("DEBUG SET-ACTIVE-EXPIRE 0");
    master.call("SET stays value");
    master.call("SET goes value PX 10000");
    wait_until_same(&master, &replica);
    assert_eq!(master.call("SAVE"), "+OK\r\n");
    until("the end of the key's time", || replica.call("GET goes") == "$-1\r\n");
    let master = master.restart(&options);
    replica.follow(master.server.port);
    replica.wait_for_link();
    assert_eq!((master.info("sync_partial_ok").as_str(), master.info("sync_full").as_str()), ("1", "0"));
    until("the master's word", || replica.call("DBSIZE") == ":1\r\n");
    wait_until_same(&master, &replica);
}

/// No master says when such keys go, so the replica has to; keys of its master's stay until that says so.
#[test]
fn keys_that_clients_of_a_writable_replica_let_expire_go_there() {
    let (master, replica) = (Node::ours(&[]), Node::ours(&["--replica-read-only", "no"]));
    replica.follow(master.server.port);
    replica.wait_for_link();
    master.call("DEBUG SET-ACTIVE-EXPIRE 0");
    let (mut on_master, mut on_replica) = (master.client(), replica.client());
    on_master.call("SET of-master value PX 30");
    until("the stream", || on_replica.call("DBSIZE") == ":1\r\n");
    for line in ["SET own value PX 1000", "SET later value PX 1000", "PEXPIRE later 100000"] {
        assert!(!on_replica.call(line).starts_with('-'), "{line}");
    }
    until("its own key to go", || on_replica.call("DBSIZE") == ":2\r\n");
    assert!(on_replica.call("PTTL later").starts_with(":9"));
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(on_replica.call("DBSIZE"), ":2\r\n", "the master's key has gone");
}

/// Debian's Sentinel watches a master and two replicas of ours, and lets one of them lead when the master is killed.
#[test]
fn sentinel_fails_over() {
    let master = Node::ours(&[]);
    let replicas = [Node::ours(&[]), Node::ours(&[])];
    for replica in &replicas {
        replica.follow(master.server.port);
        replica.wait_for_link();
    }
    write_at_random(&master, 80, 200);
    for replica in &replicas {
        wait_until_same(&master, replica);
    }
    let folder = harness::folder();
    let port = harness::free_port();
    let file = folder.path().join("sentinel.conf");
    let text = format!(
        "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor trio 127.0.0.1 {} 1\nsentinel down-after-milliseconds trio 1000\n\
         sentinel failover-timeout trio 20000\nsentinel parallel-syncs trio 1\n",
        folder.path().display(),
        master.server.port
    );
    std::fs::write(&file, text).unwrap();
    let mut command = harness::command(redis_program("redis-server"));
    let _sentinel = harness::Process::start(command.arg(&file).arg("--sentinel").stdout(std::process::Stdio::null()));
    until("the sentinel, and both replicas known to it", || {
        Client::connect(port).is_ok_and(|mut client| {
            client.try_call(&[b"SENTINEL", b"replicas", b"trio"]).is_ok_and(|reply| {
                String::from_utf8_lossy(&reply).matches("master-link-status\r\n$2\r\nok").count() == 2
            })
        })
    });
    master.server.kill();
    let mut sentinel = Client::connect(port).unwrap();
    let leader = harness::eventually("another leader", || {
        let reply = sentinel.call("SENTINEL get-master-addr-by-name trio");
        replicas.iter().find(|replica| reply.contains(&format!("\n{}\r", replica.server.port)))
    });
    // Whoever is told of a new master cuts its clients off (Sentinel asks for that): they come again.
    let says = |node: &Node, line: String| {
        let reply =
            Client::connect(node.server.port).and_then(|mut client| client.try_call(&[b"INFO", b"replication"]));
        reply.is_ok_and(|reply| String::from_utf8_lossy(&reply).contains(&line))
    };
    until("the leader's role", || says(leader, "role:master\r".to_owned()));
    let follower = replicas.iter().find(|replica| replica.server.port != leader.server.port).unwrap();
    until("the other one's new master", || says(follower, format!("master_port:{}\r", leader.server.port)));
    until("the link to it", || says(follower, "master_link_status:up\r".to_owned()));
    assert_eq!(leader.call("SET after failover"), "+OK\r\n");
    wait_until_same(leader, follower);
    assert_eq!(leader.info("sync_full"), "0", "the other one goes on where it was");
}
