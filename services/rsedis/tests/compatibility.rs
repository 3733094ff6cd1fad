//! Commands for people and tools, beside Redis 7.0.15.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use support::node::{Node, wait_until_same};
use support::{Server, redis_program, rsedis_program, start};

#[test]
fn help_and_what_is_absent_are_told_as_by_redis() {
    let directories = [harness::folder(), harness::folder()];
    let ours = start(rsedis_program(), directories[0].path(), &[]);
    let theirs = start(&redis_program("redis-server"), directories[1].path(), &[]);
    let (mut ours, mut theirs) = (ours.client(), theirs.client());
    for line in [
        "ACL HELP",
        "CLIENT HELP",
        "COMMAND HELP",
        "CONFIG HELP",
        "LATENCY HELP",
        "LATENCY LATEST",
        "LATENCY HISTORY command",
        "LATENCY GRAPH command",
        "LATENCY DOCTOR",
        "LATENCY RESET",
        "LATENCY HISTOGRAM nothing",
        "MEMORY HELP",
        "MEMORY PURGE",
        "CLUSTER INFO",
        "CLUSTER HELP",
        "CLUSTER KEYSLOT x",
        "CLUSTER NOTHING",
        "FUNCTION HELP",
        "MODULE HELP",
        "OBJECT HELP",
        "PUBSUB HELP",
        "SCRIPT HELP",
        "SLOWLOG HELP",
        "XGROUP HELP",
        "XINFO HELP",
        "MODULE LIST",
        "MODULE LOAD /nowhere",
        "MODULE UNLOAD nothing",
        "LOLWUT",
        "LOLWUT VERSION 9",
        "READONLY",
        "READWRITE",
        "ASKING",
        "PUBSUB SHARDCHANNELS",
        "MEMORY DOCTOR",
        "MEMORY USAGE nothing",
        "SSUBSCRIBE one",
        "SET x y",
        "SUNSUBSCRIBE",
        "SUNSUBSCRIBE one",
        "PUBSUB SHARDNUMSUB one two",
    ] {
        assert_eq!(ours.call(line), theirs.call(line), "{line}");
    }
}

/// Whole seconds are taken from the machine: what is compared is what does not depend on them.
#[test]
fn spikes_are_seen_and_told_as_by_redis() {
    let mut transcripts = Vec::new();
    for program in [rsedis_program().to_path_buf(), redis_program("redis-server")] {
        let directory = harness::folder();
        let server = start(&program, directory.path(), &["--enable-debug-command", "yes"]);
        let mut client = server.client();
        assert_eq!(client.call("CONFIG SET latency-monitor-threshold 50"), "+OK\r\n");
        for line in ["DEBUG SLEEP 0.06", "DEBUG SLEEP 0.01", "SET a b", "SET a c", "GET a", "HGET a b"] {
            client.call(line);
        }
        let latest = client.call("LATENCY LATEST");
        let words: Vec<&str> = latest.split("\r\n").collect();
        assert_eq!(words[..4], ["*1", "*4", "$7", "command"], "{latest}");
        let (at, last, most) = (&words[4][1..], &words[5][1..], &words[6][1..]);
        assert!((60..1_000).contains(&last.parse::<i64>().unwrap()) && last == most, "{latest}");
        assert_eq!(client.call("LATENCY HISTORY command"), format!("*1\r\n*2\r\n:{at}\r\n:{last}\r\n"));
        let graph = client.call("LATENCY GRAPH command");
        let shown: Vec<&str> = graph.lines().skip(1).collect();
        assert!(shown[0].starts_with(&format!("command - high {last} ms, low {last} ms")), "{graph}");
        transcripts.push(shown[1..6].join("|"));
        // How long each took is the machine's; how often, and which are told of, is not.
        let histogram = client.call("LATENCY HISTOGRAM set get hget latency nothing");
        let parts: Vec<&[u8]> = support::elements(histogram.as_bytes());
        for pair in parts.chunks(2) {
            let calls = support::elements(pair[1])[1];
            transcripts.push(format!("{} {}", pair[0].escape_ascii(), calls.escape_ascii()));
        }
        assert!(client.call("LATENCY DOCTOR").contains("1. command: 1 latency spikes (average "));
        transcripts.push(client.call("LATENCY RESET nothing"));
        transcripts.push(client.call("LATENCY RESET COMMAND"));
        transcripts.push(client.call("LATENCY LATEST"));
        transcripts.push("end".to_owned());
    }
    let (ours, theirs) = transcripts.split_at(transcripts.len() / 2);
    let sorted = |lines: &[String]| lines.iter().cloned().collect::<std::collections::BTreeSet<_>>();
    assert_eq!(sorted(ours), sorted(theirs));
}

#[test]
fn keys_migrate_to_redis_and_back() {
    let folders = [harness::folder(), harness::folder()];
    let ours = start(rsedis_program(), folders[0].path(), &["--appendonly", "yes", "--appendfsync", "always"]);
    let theirs = start(&redis_program("redis-server"), folders[1].path(), &["--requirepass", "secret"]);
    let (mut here, mut there) = (ours.client(), theirs.client());
    assert_eq!(there.call("AUTH secret"), "+OK\r\n");
    for line in ["SET one 1 PX 100000", "RPUSH two a b c", "ZADD three 1 x", "SET stays here"] {
        here.call(line);
    }
    let port = theirs.port;
    assert_eq!(here.call(&format!("MIGRATE 127.0.0.1 {port} nothing 0 1000")), "+NOKEY\r\n");
    let refused = here.call(&format!("MIGRATE 127.0.0.1 {port} one 0 1000"));
    assert_eq!(refused, "-ERR Target instance replied with error: NOAUTH Authentication required.\r\n");
    let words: Vec<&[u8]> = vec![b"MIGRATE", b"127.0.0.1", b"PORT", b"", b"3", b"5000", b"AUTH", b"secret", b"KEYS"];
    let text = port.to_string();
    let mut words: Vec<&[u8]> =
        words.into_iter().map(|word| if word == b"PORT" { text.as_bytes() } else { word }).collect();
    words.extend([b"one".as_slice(), b"two", b"gone", b"three"]);
    assert_eq!(here.try_call(&words).unwrap(), b"+OK\r\n");
    assert_eq!(here.call("KEYS *"), "*1\r\n$5\r\nstays\r\n");
    there.call("SELECT 3");
    assert_eq!(there.call("LRANGE two 0 -1"), "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n");
    let left: i64 = there.call("PTTL one")[1..].trim().parse().unwrap();
    assert!((1..=100_000).contains(&left), "{left}");
    // And back, while the other one has such a key: refused, then replaced.
    here.call("SET one other");
    let back = format!("MIGRATE 127.0.0.1 {} one 0 1000", ours.port);
    assert!(there.call(&back).contains("BUSYKEY"));
    assert_eq!(there.call(&format!("{back} COPY REPLACE")), "+OK\r\n");
    assert_eq!((here.call("GET one"), there.call("EXISTS one")), ("$1\r\n1\r\n".to_owned(), ":1\r\n".to_owned()));
    // What has gone is gone after a crash as well.
    drop(here);
    ours.kill();
    let ours = start(rsedis_program(), folders[0].path(), &["--appendonly", "yes", "--appendfsync", "always"]);
    assert_eq!(ours.client().call("EXISTS one two three stays"), ":2\r\n");
    // Nobody listens there.
    let nobody = harness::free_port();
    let mut here = ours.client();
    assert!(
        here.call(&format!("MIGRATE 127.0.0.1 {nobody} stays 0 100"))
            .starts_with("-IOERR error or timeout writing to target")
    );
    for line in
        ["MIGRATE 127.0.0.1 1 k 0 0 COPY KEYS a", "MIGRATE 127.0.0.1 1 k 0 0 NOTHING", "MIGRATE 127.0.0.1 1 k 0 0 AUTH"]
    {
        assert_eq!(here.call(line), there.call(line), "{line}");
    }
}

/// Another server that takes keys and talks as it likes; MIGRATE's answer, how long it took, and what the other one returned.
fn migrate_to<T: Send + 'static>(talk: impl FnOnce(TcpStream) -> T + Send + 'static) -> (String, Duration, T) {
    let folder = harness::folder();
    let server = start(rsedis_program(), folder.path(), &[]);
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let other = std::thread::spawn(move || talk(listener.accept().unwrap().0));
    let mut client = server.client();
    client.call("SET key value");
    let began = Instant::now();
    let answer = client.call(&format!("MIGRATE 127.0.0.1 {port} key 0 300"));
    let took = began.elapsed();
    assert_eq!(client.call("EXISTS key"), ":1\r\n", "it was not taken");
    (answer, took, other.join().unwrap())
}

/// Everybody waits for MIGRATE: its timeout is for the whole, not for each byte.
#[test]
fn migrate_does_not_wait_for_a_server_that_answers_byte_by_byte() {
    let (answer, took, ()) = migrate_to(|mut stream| {
        // A minute, if it is waited for.
        for _ in 0..1_200 {
            if stream.write_all(b"+").is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    assert_eq!(answer, "-IOERR error or timeout reading to target instance\r\n");
    assert!(took < Duration::from_secs(30), "{took:?}");
}

/// A line of an answer is short, and no memory is spent on one that is not.
#[test]
fn migrate_does_not_keep_an_endless_answer() {
    const ENOUGH_BYTES: usize = 256 << 20;
    let (answer, _, sent) = migrate_to(|mut stream| {
        let (piece, mut sent) = (vec![b'+'; 1 << 20], 0);
        while sent < ENOUGH_BYTES && stream.write_all(&piece).is_ok() {
            sent += piece.len();
        }
        sent
    });
    assert_eq!(answer, "-IOERR error or timeout reading to target instance\r\n");
    assert!(sent < 16 << 20, "{sent} bytes were read");
}

#[test]
fn messages_of_shards_are_those_of_redis() {
    let mut transcripts = Vec::new();
    for program in [rsedis_program().to_path_buf(), redis_program("redis-server")] {
        let directory = harness::folder();
        let server = start(&program, directory.path(), &[]);
        let (mut listener, mut other) = (server.client(), server.client());
        let mut transcript = vec![listener.call("SSUBSCRIBE one two one")];
        for _ in 0..2 {
            transcript.push(String::from_utf8(listener.receive().unwrap()).unwrap());
        }
        for line in ["SPUBLISH one hello", "PUBLISH one hello", "PUBSUB SHARDNUMSUB one", "PUBSUB CHANNELS"] {
            transcript.push(other.call(line));
        }
        transcript.push(String::from_utf8(listener.receive().unwrap()).unwrap());
        transcript.push(listener.call("SUNSUBSCRIBE one"));
        transcript.push(other.call("SPUBLISH one hello"));
        transcripts.push(transcript);
    }
    assert_eq!(transcripts[0], transcripts[1]);
}

/// The time and the address are the only difference.
#[test]
fn monitors_see_what_redis_shows_them() {
    let mut transcripts = Vec::new();
    for program in [rsedis_program().to_path_buf(), redis_program("redis-server")] {
        let directory = harness::folder();
        let server = start(&program, directory.path(), &[]);
        let (mut monitor, mut client, mut waiting) = (server.client(), server.client(), server.client());
        assert_eq!(monitor.call("MONITOR"), "+OK\r\n");
        let binary: [&[u8]; 3] = [b"SET", b"k", b"\"\\\n\x00\xff"];
        client.try_call(&binary).unwrap();
        waiting.send(b"BLPOP list 0\r\n").unwrap();
        harness::until("it waits", || client.call("CLIENT LIST").contains("cmd=blpop"));
        for line in [
            "SELECT 3",
            "GET k extra",
            "AUTH wrong words",
            "CONFIG GET port",
            "MULTI",
            "INCR n",
            "EXEC",
            "EVAL redis.call('set','a','b') 0",
            "RPUSH list x",
            "SELECT 0",
            "RPUSH list x",
            "ECHO end",
        ] {
            client.call(line);
        }
        let mut lines = Vec::new();
        loop {
            let line = String::from_utf8(monitor.receive().unwrap()).unwrap();
            let (_, rest) = line.split_once(" [").unwrap();
            let (head, words) = rest.split_once("] ").unwrap();
            let database = head.split(' ').next().unwrap();
            let who = if head.ends_with("lua") { "lua" } else { "client" };
            lines.push(format!("{database} {who} {}", words.trim_end()));
            if words.contains("\"end\"") {
                break;
            }
        }
        transcripts.push(lines);
    }
    assert_eq!(transcripts[0], transcripts[1]);
}

fn start_with_file(file: &Path) -> Server {
    let mut command = harness::command(rsedis_program());
    command.arg(file);
    support::start_command(&mut command, file.parent().unwrap(), &[])
}

#[test]
fn what_is_set_is_there_after_config_rewrite() {
    let directory = harness::folder();
    let file = directory.path().join("redis.conf");
    std::fs::write(&file, "# by hand\nmaxmemory 1gb\nuser default on nopass ~* &* +@all\n").unwrap();
    let server = start_with_file(&file);
    let mut client = server.client();
    assert_eq!(client.call("CONFIG SET maxmemory 2gb maxmemory-policy allkeys-lfu"), "+OK\r\n");
    assert_eq!(client.call("ACL SETUSER someone on >secret ~a:* +get"), "+OK\r\n");
    assert_eq!(client.call("CONFIG REWRITE"), "+OK\r\n");
    let users = client.call("ACL LIST");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("# by hand\nmaxmemory 2147483648\nuser default "), "{text}");
    assert_eq!(server.terminate(), Some(0));
    let server = start_with_file(&file);
    let mut client = server.client();
    assert!(client.call("CONFIG GET maxmemory-policy").contains("allkeys-lfu"));
    assert_eq!(client.call("ACL LIST"), users);
    let elsewhere = harness::folder();
    let server = start(rsedis_program(), elsewhere.path(), &[]);
    assert_eq!(server.client().call("CONFIG REWRITE"), "-ERR The server is running without a config file\r\n");
}

/// A server that begins with the file has the same users, whatever their patterns are.
#[test]
fn what_config_rewrite_writes_of_users_is_read_as_it_was() {
    let directory = harness::folder();
    let (file, other) = (directory.path().join("redis.conf"), directory.path().join("other.conf"));
    let before = format!("include {}\n", other.display());
    std::fs::write(&file, &before).unwrap();
    std::fs::write(&other, "maxmemory 1gb\n").unwrap();
    let server = start_with_file(&file);
    let mut client = server.client();
    let rules: [&[u8]; 11] = [
        b"ACL",
        b"SETUSER",
        b"someone",
        b"on",
        b"~a\"b",
        b"~\xff\xfe*",
        b"~it's",
        b"%R~back\\slash#",
        b"+select|\xff",
        b"(~\"a\\\"b)\" +get)",
        b"&\x01",
    ];
    assert_eq!(client.try_call(&rules).unwrap(), b"+OK\r\n");
    for broken in ["0 on", "0\nuser other on nopass ~* +@all"] {
        let reply = client.try_call(&[b"ACL", b"SETUSER", b"other", format!("+select|{broken}").as_bytes()]).unwrap();
        assert!(reply.ends_with(b"Syntax error\r\n"), "{}", reply.escape_ascii());
    }
    let ask = |client: &mut support::Client| client.try_call(&[b"ACL", b"GETUSER", b"someone"]).unwrap();
    let user = ask(&mut client);
    // What could not be read again is not written.
    let away = directory.path().join("away.conf");
    std::fs::rename(&other, &away).unwrap();
    let refused = client.call("CONFIG REWRITE");
    assert!(refused.starts_with("-ERR Rewriting config file: ") && refused.contains("other.conf"), "{refused}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
    std::fs::rename(&away, &other).unwrap();
    assert_eq!(client.call("CONFIG REWRITE"), "+OK\r\n");
    assert_eq!(server.terminate(), Some(0));
    let server = start_with_file(&file);
    let again = ask(&mut server.client());
    assert_eq!(again.escape_ascii().to_string(), user.escape_ascii().to_string());
}

/// The link to the master may break between a command that is queued and EXEC.
#[test]
fn exec_is_refused_where_its_commands_would_be() {
    let mut transcripts = Vec::new();
    for program in [rsedis_program().to_path_buf(), redis_program("redis-server")] {
        let directory = harness::folder();
        let nobody = harness::free_port().to_string();
        let server = start(&program, directory.path(), &["--replicaof", &format!("127.0.0.1 {nobody}")]);
        let (mut client, mut other) = (server.client(), server.client());
        let mut said: Vec<String> = ["MULTI", "GET key"].map(|line| client.call(line)).into();
        said.push(other.call("CONFIG SET replica-serve-stale-data no"));
        said.extend(["EXEC", "EXEC", "MULTI", "INFO nothing", "EXEC"].map(|line| client.call(line)));
        transcripts.push(said);
    }
    assert_eq!(transcripts[0], transcripts[1]);
}

/// A key whose time had come when it was watched does not break the watch by going.
#[test]
fn stale_keys_are_watched_as_by_redis() {
    let mut transcripts = Vec::new();
    for program in [rsedis_program().to_path_buf(), redis_program("redis-server")] {
        let directory = harness::folder();
        let server = start(&program, directory.path(), &["--enable-debug-command", "yes"]);
        let (mut client, mut other) = (server.client(), server.client());
        client.call("DEBUG SET-ACTIVE-EXPIRE 0");
        let mut said = Vec::new();
        for change in ["GET key", "DEL key", "FLUSHDB", "SWAPDB 0 1", "SET key new", "PING"] {
            client.call("FLUSHALL");
            client.call("SET key value PX 1");
            std::thread::sleep(std::time::Duration::from_millis(20));
            client.call("WATCH key");
            other.call(change);
            client.call("MULTI");
            client.call("PING");
            said.push(format!("{change}: {}", client.call("EXEC")));
        }
        transcripts.push(said);
    }
    assert_eq!(transcripts[0], transcripts[1]);
}

/// One of two that ran in the same turn was never answered.
#[test]
fn migrations_that_a_pause_has_held_back_are_all_answered() {
    let directories = [harness::folder(), harness::folder()];
    let [here, there] = directories.each_ref().map(|directory| start(rsedis_program(), directory.path(), &[]));
    let (mut first, mut second, mut other) = (here.client(), here.client(), here.client());
    for line in ["MSET a 1 b 2", "CLIENT PAUSE 100000 WRITE"] {
        assert_eq!(other.call(line), "+OK\r\n");
    }
    for (client, key) in [(&mut first, "a"), (&mut second, "b")] {
        client.send(format!("MIGRATE 127.0.0.1 {} {key} 0 60000\r\n", there.port).as_bytes()).unwrap();
    }
    harness::until("two that wait", || other.call("CLIENT LIST").matches(" cmd=migrate ").count() == 2);
    assert_eq!(other.call("CLIENT UNPAUSE"), "+OK\r\n");
    for client in [&mut first, &mut second] {
        assert_eq!(client.receive().unwrap(), b"+OK\r\n");
    }
    assert_eq!((other.call("DBSIZE"), there.client().call("DBSIZE")), (":0\r\n".to_owned(), ":2\r\n".to_owned()));
}

/// Redis takes what its master sends, and runs it once the pause is over.
#[test]
fn a_paused_replica_does_not_run_what_its_master_sends() {
    let (master, replica) = (Node::ours(&[]), Node::ours(&[]));
    replica.follow(master.server.port);
    replica.wait_for_link();
    for (pause, ends) in [("CLIENT PAUSE 100000 WRITE", true), ("CLIENT PAUSE 1000 ALL", false)] {
        master.call("DEL key");
        harness::until("the stream", || replica.info("slave_repl_offset") == master.info("master_repl_offset"));
        let offset = replica.info("slave_repl_offset");
        assert_eq!(replica.call(pause), "+OK\r\n");
        assert_eq!(master.call("SET key value"), "+OK\r\n");
        if ends {
            let read = || replica.info("slave_read_repl_offset").parse::<u64>().unwrap();
            harness::until("what is sent", || read() > offset.parse().unwrap());
            assert_eq!((replica.info("slave_repl_offset"), replica.call("GET key")), (offset, "$-1\r\n".to_owned()));
            assert_eq!(replica.call("CLIENT UNPAUSE"), "+OK\r\n");
        }
        harness::until("the key", || replica.call("GET key") == "$5\r\nvalue\r\n");
    }
}

/// `bind-source-addr`: loopback has many addresses.
#[test]
fn a_replica_connects_from_the_address_that_is_set() {
    let (master, replica) = (Node::ours(&[]), Node::ours(&["--bind-source-addr", "127.0.0.2"]));
    replica.follow(master.server.port);
    replica.wait_for_link();
    assert!(master.info("slave0").starts_with("ip=127.0.0.2,"), "{}", master.info("slave0"));
}

/// Redis tells what it has trimmed exactly, beside the limit that it kept to, which it takes from nobody else.
#[test]
fn a_trim_with_a_limit_is_taken_from_redis_and_from_its_file() {
    let master = Node::theirs(&["--appendonly", "yes", "--appendfsync", "always"]);
    let replica = Node::ours(&[]);
    replica.follow(master.server.port);
    replica.wait_for_link();
    for line in [
        "XADD stream MAXLEN ~ 1000 LIMIT 10 1-1 a b",
        "XADD stream MINID ~ 0 LIMIT 10 1-2 a b",
        "XADD other 1-1 a b",
        "XTRIM other MAXLEN ~ 0 LIMIT 0",
    ] {
        assert!(!master.call(line).starts_with('-'), "{line}");
    }
    wait_until_same(&master, &replica);
    let digest = master.call("DEBUG DIGEST");
    let of_its_file = master.restart_as_ours(&["--appendonly", "yes"]);
    assert_eq!(of_its_file.call("DEBUG DIGEST"), digest);
    assert!(of_its_file.call("XADD stream MAXLEN = 1000 LIMIT 10 2-1 a b").starts_with("-ERR syntax error, LIMIT"));
}
