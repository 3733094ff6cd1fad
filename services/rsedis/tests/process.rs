//! The server as its users meet it: a process, its flags, its files, other people's clients.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::process::Command;

use harness::until;
use support::{Client, encode, redis_program, rsedis_program, start, start_command};

const ALWAYS: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];
const ALWAYS_AND_DEBUG: &[&str] = &["--appendonly", "yes", "--appendfsync", "always", "--enable-debug-command", "yes"];

#[test]
fn the_command_line_tools_of_redis_run_unchanged() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), &[]);
    let port = server.port.to_string();
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(redis_program(program)).args(["-p", &port]).args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {text}");
        text
    };
    assert_eq!(run("redis-cli", &["SET", "key", "some value"]), "OK\n");
    assert_eq!(run("redis-cli", &["-3", "HGETALL", "none"]).trim(), "");
    assert!(run("redis-cli", &["INFO"]).contains("redis_version:7.0.15"));
    assert_eq!(run("redis-cli", &["--scan"]), "key\n");
    assert!(run("redis-cli", &["--bigkeys"]).contains("Biggest string found '\"key\"' has 10 bytes"));
    for options in
        [&["-n", "2000", "-q"][..], &["-n", "2000", "-q", "-P", "16", "-r", "1000"], &["-n", "500", "-q", "-3"]]
    {
        let text = run("redis-benchmark", options);
        for test in [
            "PING_INLINE",
            "PING_MBULK",
            "SET",
            "GET",
            "INCR",
            "LPUSH",
            "RPUSH",
            "LPOP",
            "RPOP",
            "SADD",
            "HSET",
            "SPOP",
            "ZADD",
            "ZPOPMIN",
            "LRANGE_600",
            "MSET",
        ] {
            assert!(text.contains(test), "{test}: {text}");
        }
        assert!(!text.to_lowercase().contains("err"), "{text}");
    }
}

/// The published report's stress test: one connection, one command at a time; there, 5.4 % of the writes failed.
#[test]
fn every_write_of_the_stress_test_succeeds_and_memory_is_as_stated() {
    const KEYS: u32 = 20_000;
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), &[]);
    let mut client = server.client();
    let used = |client: &mut Client| -> u64 {
        // Counted ten times a second.
        std::thread::sleep(std::time::Duration::from_millis(300));
        let info = client.call("INFO memory");
        info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().trim().parse().unwrap()
    };
    let before = used(&mut client);
    let value = "v".repeat(200);
    for number in 0..KEYS {
        assert_eq!(client.call(&format!("SET key:{number:012} {value}")), "+OK\r\n");
    }
    for number in (0..KEYS).step_by(97) {
        assert_eq!(client.call(&format!("GET key:{number:012}")), format!("$200\r\n{value}\r\n"));
    }
    assert_eq!(client.call("DBSIZE"), format!(":{KEYS}\r\n"));
    let overhead = (used(&mut client) - before) as f64 / f64::from(KEYS) - 216.0;
    println!("bytes per key beyond key and value: {overhead:.1}");
    assert!(overhead < 60.0, "{overhead}");
}

/// A script of all that has effects of its own in the file.
const EFFECTS: &[&str] = &[
    "SET a 1",
    "INCR a",
    "APPEND a x",
    "SETRANGE a 5 z",
    "INCRBYFLOAT f 0.1",
    "SET e v EX 100000",
    "SET kept v PX 900000000",
    "SET kept w KEEPTTL",
    "GETEX a EX 5000",
    "GETDEL f",
    "SETEX s 5000 v",
    "EXPIRE s 7000",
    "PERSIST s",
    "RPUSH l a b c d",
    "LPOP l 2",
    "LMOVE l l LEFT RIGHT",
    "SADD t 1 2 3 4 5 6",
    "SPOP t 3",
    "SADD u a b",
    "SUNIONSTORE w t u",
    "SINTERSTORE w nokey u",
    "HSET h f 1 g 2",
    "HINCRBYFLOAT h f 0.5",
    "HDEL h g",
    "ZADD z 1 a 2 b 3 c",
    "ZINCRBY z 1.5 a",
    "ZPOPMIN z",
    "ZUNIONSTORE y 2 z u",
    "ZRANGESTORE x z 0 0",
    "RENAME h hh",
    "COPY z zz",
    "SELECT 3",
    "SET other db",
    "MOVE other 4",
    "SELECT 0",
    "XADD st * f v",
    "XADD st MAXLEN ~ 10 * f w",
    "XADD st MAXLEN 2 * g 5",
    "MULTI",
    "SET m 1",
    "INCR m",
    "EXEC",
    "MSET p 1 q 2",
    "DEL p",
    "SET gone v PX 1",
];

/// Everything in all databases, by commands that both servers have.
fn dump(client: &mut Client) -> Vec<String> {
    let mut found = Vec::new();
    for database in 0..5 {
        client.call(&format!("SELECT {database}"));
        let keys = client.call("KEYS *");
        let mut names: Vec<&str> = keys.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
        names.sort_unstable();
        for name in names {
            let kind = client.call(&format!("TYPE {name}"));
            let read = match kind.trim() {
                "+string" => format!("GET {name}"),
                "+list" => format!("LRANGE {name} 0 -1"),
                "+set" => format!("SMEMBERS {name}"),
                "+hash" => format!("HGETALL {name}"),
                "+zset" => format!("ZRANGE {name} 0 -1 WITHSCORES"),
                "+stream" => format!("XRANGE {name} - +"),
                other => panic!("{other}"),
            };
            let value = client.call(&read);
            let mut lines: Vec<&str> = value.lines().collect();
            if kind.trim() == "+set" {
                lines.sort_unstable();
            }
            found.push(format!(
                "{database} {name} {} {}",
                lines.join(" "),
                client.call(&format!("PEXPIRETIME {name}"))
            ));
        }
    }
    found
}

#[test]
fn redis_reads_our_file_and_we_read_that_of_redis() {
    let options = ["--appendonly", "yes", "--appendfsync", "always", "--aof-use-rdb-preamble", "no"];
    let (ours, theirs) = (rsedis_program().to_owned(), redis_program("redis-server"));
    for (writer, reader) in [(&ours, &ours), (&ours, &theirs), (&theirs, &ours)] {
        let directory = harness::folder();
        let server = start(writer, directory.path(), &options);
        let mut client = server.client();
        for line in EFFECTS {
            let reply = client.call(line);
            assert!(!reply.starts_with('-'), "{line}: {reply}");
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        let expected = dump(&mut client);
        assert!(expected.len() > 12 && expected.iter().all(|line| !line.contains(" gone ")));
        server.kill();
        let server = start(reader, directory.path(), &options);
        assert_eq!(dump(&mut server.client()), expected, "{} to {}", writer.display(), reader.display());
    }
}

/// A file that may not grow stands for a disk that is full.
#[test]
fn a_full_disk_refuses_writes_serves_reads_and_acknowledges_nothing_false() {
    for policy in ["always", "everysec"] {
        let directory = harness::folder();
        let mut command = harness::command("sh");
        command.args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$0\" \"$@\""]).arg(rsedis_program());
        command.stderr(std::process::Stdio::null());
        let server = start_command(&mut command, directory.path(), &["--appendonly", "yes", "--appendfsync", policy]);
        let mut acknowledged = 0;
        let mut client = server.client();
        let refusal = loop {
            let set = format!("SET {acknowledged} {}", "v".repeat(500));
            let words: Vec<&[u8]> = set.split(' ').map(str::as_bytes).collect();
            match client.try_call(&words) {
                Ok(reply) if reply == b"+OK\r\n" => acknowledged += 1,
                Ok(reply) => break String::from_utf8(reply).unwrap(),
                // The write that found the disk full was cut off, not acknowledged.
                Err(_) => client = server.client(),
            }
            assert!(acknowledged < 1000, "the limit is met");
        };
        assert!(refusal.starts_with("-MISCONF Errors writing to the AOF file: write: "), "{refusal}");
        assert!(client.call("GET 0").starts_with("$500\r\n"));
        assert!(client.call("INFO persistence").contains("aof_last_write_status:err"));
        // It takes effect, whatever the disk says: the reply must not deny it.
        assert_eq!(client.call("CONFIG SET appendonly no"), "+OK\r\n");
        assert_eq!(client.call("SET beside value"), "+OK\r\n");
        server.kill();
        let server = start(rsedis_program(), directory.path(), ALWAYS);
        let mut client = server.client();
        for key in 0..acknowledged {
            assert!(client.call(&format!("GET {key}")).starts_with("$500\r\n"), "{policy}: {key} of {acknowledged}");
        }
    }
}

/// What was postponed by CLIENT PAUSE, and what somebody waited for, runs outside of the client's own turn.
#[test]
fn what_cannot_be_made_safe_is_not_acknowledged_to_those_who_waited() {
    let large = "v".repeat(50_000);
    let limited = |directory: &std::path::Path| {
        let mut command = harness::command("sh");
        command.args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$0\" \"$@\""]).arg(rsedis_program());
        command.stderr(std::process::Stdio::null());
        start_command(&mut command, directory, ALWAYS)
    };
    let directory = harness::folder();
    let server = limited(directory.path());
    let (mut first, mut second) = (server.client(), server.client());
    assert_eq!(first.call("CLIENT PAUSE 200 WRITE"), "+OK\r\n");
    assert!(second.try_call(&[b"SET", b"key", large.as_bytes()]).is_err(), "a postponed write was acknowledged");
    let directory = harness::folder();
    let server = limited(directory.path());
    let (mut waits, mut pushes) = (server.client(), server.client());
    waits.send(b"BLPOP list 0\r\n").unwrap();
    until("somebody who waits", || pushes.call("INFO clients").contains("blocked_clients:1"));
    assert!(pushes.try_call(&[b"RPUSH", b"list", large.as_bytes()]).is_err());
    assert!(waits.receive().is_err(), "an element that nobody may have was handed out");
}

#[test]
fn a_snapshot_that_failed_stops_writes_where_snapshots_are_asked_for() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), &["--save", "3600 1"]);
    let mut client = server.client();
    client.call("SET key value");
    // Its files have no place any more.
    std::fs::create_dir(directory.path().join("dump.rdb")).unwrap();
    std::fs::write(directory.path().join("dump.rdb/file"), "").unwrap();
    assert!(client.call("BGSAVE").starts_with("+Background"));
    until("a snapshot that failed", || !client.call("INFO persistence").contains("rdb_last_bgsave_status:ok"));
    assert!(client.call("SET key other").starts_with("-MISCONF Redis is configured to save RDB snapshots"));
    assert_eq!(client.call("GET key"), "$5\r\nvalue\r\n");
    assert_eq!(client.call("CONFIG SET stop-writes-on-bgsave-error no"), "+OK\r\n");
    assert_eq!(client.call("SET key other"), "+OK\r\n");
}

/// Two megabytes, so that the file that may have eight kilobytes fails while keys are still taken.
#[test]
fn what_was_flushed_after_a_failed_snapshot_does_not_come_back() {
    let directory = harness::folder();
    let mut command = harness::command("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$0\" \"$@\""]).arg(rsedis_program());
    command.stderr(std::process::Stdio::null());
    let server = start_command(&mut command, directory.path(), &["--rdbcompression", "no"]);
    let mut client = server.client();
    let value = "v".repeat(2048);
    for number in 0..1000 {
        assert_eq!(client.call(&format!("SET key{number} {value}")), "+OK\r\n");
    }
    assert!(client.call("BGSAVE").starts_with("+Background"));
    until("a snapshot that failed", || !client.call("INFO persistence").contains("rdb_last_bgsave_status:ok"));
    assert_eq!(client.call("FLUSHALL"), "+OK\r\n");
    assert_eq!(client.call("SET left behind"), "+OK\r\n");
    assert_eq!(client.call("SAVE"), "+OK\r\n");
    drop(server);
    let server = start(rsedis_program(), directory.path(), &[]);
    assert_eq!(server.client().call("DBSIZE"), ":1\r\n");
}

#[test]
fn a_save_waits_for_the_rewrite_that_is_under_way() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), ALWAYS);
    let mut client = server.client();
    client.call("SET key value");
    assert_eq!(client.call("MULTI"), "+OK\r\n");
    client.call("BGREWRITEAOF");
    client.call("BGSAVE SCHEDULE");
    assert!(client.call("EXEC").starts_with("*2\r\n+Background append only file rewriting"));
    let done = |client: &mut Client| {
        let info = client.call("INFO persistence");
        info.contains("aof_rewrites:1") && info.contains("rdb_saves:1") && info.contains("rdb_bgsave_in_progress:0")
    };
    until("both files", || done(&mut client));
    assert!(client.call("BGREWRITEAOF").starts_with("+Background"), "it may begin again");
}

#[test]
fn a_rewrite_that_gave_way_to_a_save_is_done_after_it() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), ALWAYS_AND_DEBUG);
    let mut client = server.client();
    // Enough that the rewrite is under way when SAVE comes.
    assert_eq!(client.call("DEBUG POPULATE 20000 key 1000"), "+OK\r\n");
    client.send(b"BGREWRITEAOF\r\nSAVE\r\n").unwrap();
    assert!(client.receive().unwrap().starts_with(b"+Background append only file rewriting started"));
    assert_eq!(client.receive().unwrap(), b"+OK\r\n");
    until("the rewrite", || client.call("INFO persistence").contains("aof_rewrites:1"));
    assert!(client.call("INFO persistence").contains("aof_rewrite_scheduled:0"));
}

#[test]
fn an_append_only_file_that_cannot_be_read_again_takes_no_writes() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), ALWAYS_AND_DEBUG);
    let mut client = server.client();
    assert_eq!(client.call("SET key value"), "+OK\r\n");
    assert_eq!(client.call("DEBUG LOADAOF"), "+OK\r\n");
    let file = directory.path().join("appendonlydir/appendonly.aof.1.incr.aof");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[0] = b'x';
    std::fs::write(&file, bytes).unwrap();
    assert!(client.call("DEBUG LOADAOF").starts_with("-ERR"));
    let refused = client.call("SET key other");
    assert!(refused.starts_with("-MISCONF Errors writing to the AOF file: DEBUG LOADAOF: "), "{refused}");
    assert!(refused.contains("byte 0: expected '*', got 'x'"), "{refused}");
}

#[test]
fn an_append_only_file_that_cannot_be_begun_is_told_of_and_can_be_switched_off() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), &[]);
    let mut client = server.client();
    let folder = directory.path().join("appendonlydir");
    std::fs::write(&folder, "in the way").unwrap();
    let refused = client.call("CONFIG SET appendonly yes");
    assert!(refused.starts_with("-ERR append-only file: "), "{refused}");
    assert!(client.call("SET key value").starts_with("-MISCONF"));
    assert_eq!(client.call("CONFIG SET appendonly no"), "+OK\r\n");
    assert_eq!(client.call("SET key value"), "+OK\r\n");
    std::fs::remove_file(&folder).unwrap();
    assert_eq!(client.call("CONFIG SET appendonly yes"), "+OK\r\n");
    assert_eq!(client.call("SET key other"), "+OK\r\n");
    // Where the reply has its place in an array it cannot wait.
    assert_eq!(client.call("MULTI"), "+OK\r\n");
    client.call("CONFIG SET appendonly no");
    assert_eq!(client.call("EXEC"), "*1\r\n+OK\r\n");
    assert_eq!(client.call("PING"), "+PONG\r\n");
}

#[test]
fn keys_expire_also_while_the_server_is_away() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), ALWAYS);
    let mut client = server.client();
    assert_eq!(client.call("SET soon v PX 50"), "+OK\r\n");
    assert_eq!(client.call("SET later v PX 4000"), "+OK\r\n");
    assert_eq!(client.call("SET stays v EX 1000"), "+OK\r\n");
    // Without a look at the key: the active cycle takes it.
    until("a key that goes", || client.call("DBSIZE") == ":2\r\n");
    assert!(client.call("INFO stats").contains("expired_keys:1"));
    server.kill();
    std::thread::sleep(std::time::Duration::from_millis(4100));
    let server = start(rsedis_program(), directory.path(), ALWAYS);
    let mut client = server.client();
    assert_eq!(client.call("EXISTS soon later stays"), ":1\r\n");
    let ttl: i64 = client.call("TTL stays")[1..].trim().parse().unwrap();
    assert!((900..=1000).contains(&ttl), "{ttl}");
}

#[test]
fn transactions_see_what_others_did() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), &[]);
    let (mut one, mut other) = (server.client(), server.client());
    for (touch, expected) in
        [("SET k 2", "*-1\r\n"), ("DEL k", "*-1\r\n"), ("FLUSHALL", "*-1\r\n"), ("GET k", "*1\r\n+OK\r\n")]
    {
        other.call("SET k 1");
        one.call("WATCH k");
        other.call(touch);
        one.call("MULTI");
        one.call("SET mine 1");
        assert_eq!(one.call("EXEC"), expected, "{touch}");
    }
}

#[test]
fn messages_reach_those_who_listen() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), &[]);
    let (mut listener, mut speaker) = (server.client(), server.client());
    assert_eq!(listener.call("SUBSCRIBE news"), "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n");
    assert_eq!(listener.call("PSUBSCRIBE n?ws"), "*3\r\n$10\r\npsubscribe\r\n$4\r\nn?ws\r\n:2\r\n");
    assert!(listener.call("GET x").starts_with("-ERR Can't execute 'get': only"));
    assert_eq!(speaker.call("PUBLISH news hi"), ":2\r\n");
    assert_eq!(listener.receive().unwrap(), b"*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$2\r\nhi\r\n");
    assert_eq!(listener.receive().unwrap(), b"*4\r\n$8\r\npmessage\r\n$4\r\nn?ws\r\n$4\r\nnews\r\n$2\r\nhi\r\n");
    drop(listener);
    until("nobody who listens", || speaker.call("PUBLISH news hi") == ":0\r\n");
}

#[test]
fn strangers_are_bounded_and_passwords_open() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), &["--requirepass", "secret"]);
    let mut client = server.client();
    assert_eq!(client.call("GET x"), "-NOAUTH Authentication required.\r\n");
    assert_eq!(client.call("AUTH wrong"), "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    assert_eq!(client.call("AUTH secret"), "+OK\r\n");
    assert_eq!(client.call("GET x"), "$-1\r\n");
    let mut stranger = server.client();
    stranger.send(b"*1000\r\n").unwrap();
    assert_eq!(stranger.receive().unwrap(), b"-ERR Protocol error: unauthenticated multibulk length\r\n");
    assert!(stranger.is_closed());
}

#[test]
fn hostile_clients_are_bounded() {
    let directory = harness::folder();
    let server =
        start(rsedis_program(), directory.path(), &["--maxclients", "600", "--client-query-buffer-limit", "1mb"]);
    // Many who say nothing, or announce much and send nothing.
    let idle: Vec<Client> = (0..500)
        .map(|_| {
            let mut client = server.client();
            client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\n").unwrap();
            client
        })
        .collect();
    let mut client = server.client();
    let info = client.call("INFO memory");
    let used: u64 = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().trim().parse().unwrap();
    assert!(used < 100 << 20, "{used}");
    // One who sends more than may wait.
    let mut greedy = server.client();
    let flood = vec![b'x'; 4 << 20];
    drop(greedy.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\n"));
    drop(greedy.send(&flood));
    assert!(greedy.receive().is_err(), "cut off");
    let crowd: Vec<Client> = (0..150).map(|_| server.client()).collect();
    // One that was refused is closed: its command may find nobody.
    let is_refused = |mut client: Client| {
        client.try_call(&[b"PING"]).map_or(true, |reply| reply.starts_with(b"-ERR max number of clients reached"))
    };
    assert!(crowd.into_iter().filter_map(|client| is_refused(client).then_some(())).count() >= 50);
    drop(idle);
    assert_eq!(client.call("PING"), "+PONG\r\n");
}

#[test]
fn a_long_pipeline_needs_no_reader() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), &[]);
    let mut client = server.client();
    let one = encode(&[b"INCR", b"counter"]);
    client.send(&one.repeat(100_000)).unwrap();
    for number in 1..=100_000 {
        assert_eq!(client.receive().unwrap(), format!(":{number}\r\n").into_bytes());
    }
    // Replies far larger than what may wait: the server pauses, and goes on.
    client.call(&format!("SET big {}", "x".repeat(1 << 20)));
    client.send(&encode(&[b"GET", b"big"]).repeat(200)).unwrap();
    for _ in 0..200 {
        assert_eq!(client.receive().unwrap().len(), (1 << 20) + 12);
    }
    assert_eq!(client.call("PING"), "+PONG\r\n");
}

#[test]
fn inline_commands_and_protocol_errors() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), &[]);
    let mut client = server.client();
    client.send(b"PING\r\n\r\nSET k \"a b\"\r\nGET k\r\n*0\r\nPING\r\n").unwrap();
    for expected in [&b"+PONG\r\n"[..], b"+OK\r\n", b"$3\r\na b\r\n", b"+PONG\r\n"] {
        assert_eq!(client.receive().unwrap(), expected);
    }
    client.send(b"*1\r\nPING\r\n").unwrap();
    assert_eq!(client.receive().unwrap(), b"-ERR Protocol error: expected '$', got 'P'\r\n");
    assert!(client.is_closed());
}

#[test]
fn memory_has_a_limit() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), &["--maxmemory", "1kb"]);
    let mut client = server.client();
    assert_eq!(client.call("SET k v"), "-OOM command not allowed when used memory > 'maxmemory'.\r\n");
    assert_eq!(client.call("GET k"), "$-1\r\n");
    assert_eq!(client.call("CONFIG SET maxmemory 0"), "+OK\r\n");
    assert_eq!(client.call("SET k v"), "+OK\r\n");
}

#[test]
fn a_panic_on_any_thread_ends_the_process() {
    use std::os::unix::process::ExitStatusExt;
    let directory = harness::folder();
    let mut server = start(rsedis_program(), directory.path(), &["--enable-debug-command", "yes"]);
    let mut client = server.client();
    // A server that lives on answers.
    assert!(client.try_call(&[b"DEBUG", b"PANIC"]).is_err());
    assert_eq!(server.process.wait().signal(), Some(6), "SIGABRT");
}

/// A script that keeps its effects to itself finds a key whose time has come: that the key went is not the script's to hide.
#[test]
fn a_write_is_lost_when_a_silenced_script_found_the_expired_key() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), ALWAYS_AND_DEBUG);
    let mut client = server.client();
    assert_eq!(client.call("DEBUG SET-ACTIVE-EXPIRE 0"), "+OK\r\n");
    assert_eq!(client.call("SET k 5 PX 50"), "+OK\r\n");
    std::thread::sleep(std::time::Duration::from_millis(60));
    let silenced = b"redis.set_repl(redis.REPL_NONE); redis.call('GET', 'k'); redis.call('SET', 'hidden', 1)";
    assert_eq!(client.try_call(&[b"EVAL", silenced, b"0"]).unwrap(), b"$-1\r\n");
    assert_eq!(client.call("INCR k"), ":1\r\n");
    server.kill();
    let server = start(rsedis_program(), directory.path(), ALWAYS_AND_DEBUG);
    assert_eq!(server.client().call("GET k"), "$1\r\n1\r\n");
    assert_eq!(server.client().call("EXISTS hidden"), ":0\r\n");
}

/// Who is served because of a command may change what the command's own client watches.
#[test]
fn exec_runs_although_a_served_client_changed_a_watched_key() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), &[]);
    let (mut client, mut waiter) = (server.client(), server.client());
    waiter.send(b"BLMOVE from to LEFT LEFT 0\r\n").unwrap();
    harness::until("somebody waits", || client.call("INFO clients").contains("blocked_clients:1"));
    assert_eq!(client.call("WATCH to"), "+OK\r\n");
    assert_eq!(client.call("RPUSH from x"), ":1\r\n");
    assert_eq!(waiter.receive().unwrap(), b"$1\r\nx\r\n");
    assert_eq!(client.call("MULTI"), "+OK\r\n");
    assert_eq!(client.call("EXEC"), "*-1\r\n");
}
