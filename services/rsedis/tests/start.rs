//! How the server starts and ends: its command line, its directory, its sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use support::{Client, encode, rsedis_program, start};

const ALWAYS: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

#[test]
fn the_version_is_where_the_platform_looks_for_it() {
    let output = Command::new(rsedis_program()).arg("--version").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("rsedis server v="), "{text}");
    let version = text.split_once(" v=").unwrap().1.split_whitespace().next().unwrap();
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
}

#[test]
fn nobody_needs_to_listen_to_what_it_says() {
    let script = "{ sleep 0.2; \"$0\" --version; echo \"$?\" >&2; } | true";
    let output = Command::new("sh").args(["-c", script]).arg(rsedis_program()).output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "0\n");
}

#[test]
fn mistakes_are_one_line_and_exit_code_1() {
    for options in [&["--foo", "bar"][..], &["--port", "x"], &["--daemonize", "yes"], &["/no/such/file.conf"]] {
        let output = Command::new(rsedis_program()).args(options).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{options:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(text.trim_end().lines().count(), 1, "{text}");
        // In Redis's words, an option is a line of redis.conf.
        assert!(text.contains(options[0].trim_start_matches('-')), "{text}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = Command::new(rsedis_program()).args(["--bind", "127.0.0.1", "--port", &port]).output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains(&format!("Failed listening on port {port}")));
}

#[test]
fn sigterm_makes_all_safe_and_files_are_their_owners() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), &["--appendonly", "yes", "--appendfsync", "no"]);
    assert_eq!(server.client().call("SET key value"), "+OK\r\n");
    assert_eq!(server.terminate(), Some(0));
    let folder = directory.path().join("appendonlydir");
    assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    for entry in std::fs::read_dir(&folder).unwrap() {
        assert_eq!(entry.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    let server = start(rsedis_program(), directory.path(), ALWAYS);
    assert_eq!(server.client().call("GET key"), "$5\r\nvalue\r\n");
    assert_eq!(server.client().call("SHUTDOWN NOSAVE x"), "-ERR syntax error\r\n");
}

/// At any moment, also of a rewrite. `RSEDIS_KILLS=1000 cargo test --release -p rsedis --test start kill_9 -- --nocapture` kills more often.
#[test]
fn kill_9_under_always_loses_nothing_acknowledged() {
    let kills: u64 = std::env::var("RSEDIS_KILLS").map_or(5, |text| text.parse().unwrap());
    let directory = harness::folder_on_disk();
    let mut random = harness::Random::new(3);
    // Of all rounds, so that what a later rewrite loses is seen as well.
    let mut acknowledged: Vec<[u64; 8]> = Vec::new();
    let check = |client: &mut Client, round: usize, counts: &[u64; 8]| {
        for (writer, count) in counts.iter().enumerate() {
            let commands: Vec<u8> = (1..=*count)
                .flat_map(|number| encode(&[b"GET", format!("{round}:{writer}:{number}").as_bytes()]))
                .collect();
            client.send(&commands).unwrap();
            for number in (1..=*count).map(|number| number.to_string()) {
                let expected = format!("${}\r\n{number}\r\n", number.len());
                assert_eq!(client.receive().unwrap(), expected.as_bytes(), "{round}:{writer}:{number}");
            }
        }
    };
    for round in 0..kills {
        let server = start(rsedis_program(), directory.path(), ALWAYS);
        let port = server.port;
        if let Some(counts) = acknowledged.last() {
            check(&mut server.client(), acknowledged.len() - 1, counts);
        }
        let counts: [AtomicU64; 8] = Default::default();
        std::thread::scope(|scope| {
            for (writer, count) in counts.iter().enumerate() {
                scope.spawn(move || {
                    let mut client = Client::connect(port).unwrap();
                    for number in 1u64.. {
                        let key = format!("{round}:{writer}:{number}");
                        match client.try_call(&[b"SET", key.as_bytes(), number.to_string().as_bytes()]) {
                            Ok(reply) => assert_eq!(reply, b"+OK\r\n"),
                            Err(_) => return,
                        }
                        count.store(number, Ordering::Relaxed);
                    }
                });
            }
            let least = 1 + random.below(60);
            while counts.iter().any(|count| count.load(Ordering::Relaxed) < least) {
                std::thread::yield_now();
            }
            if round % 3 == 1 {
                server.client().call("BGREWRITEAOF");
                std::thread::sleep(Duration::from_micros(random.below(20_000)));
            }
            server.kill();
        });
        acknowledged.push(counts.map(AtomicU64::into_inner));
    }
    let server = start(rsedis_program(), directory.path(), ALWAYS);
    for (round, counts) in acknowledged.iter().enumerate() {
        check(&mut server.client(), round, counts);
    }
    println!("{kills} kills, {} acknowledged writes, all there", acknowledged.iter().flatten().sum::<u64>());
}

#[test]
fn two_servers_never_share_a_directory() {
    let directory = harness::folder();
    let _server = start(rsedis_program(), directory.path(), ALWAYS);
    let port = harness::free_port().to_string();
    let second = Command::new(rsedis_program())
        .args(["--bind", "127.0.0.1", "--port", &port, "--appendonly", "yes", "--dir"])
        .arg(directory.path())
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(1));
    let text = String::from_utf8_lossy(&second.stderr);
    assert!(text.contains("appendonlydir/lock: another process uses this directory"), "{text}");
}

/// Redis allows it. With a lock on the directory one or the other could not start, save or end.
#[test]
fn servers_with_rdb_files_of_their_own_share_a_directory() {
    let directory = harness::folder();
    let servers: Vec<_> = ["one.rdb", "two.rdb"]
        .map(|name| start(rsedis_program(), directory.path(), &["--dbfilename", name, "--save", "3600 1"]))
        .into();
    for _ in 0..5 {
        for server in &servers {
            assert_eq!(server.client().call(&format!("SET port {}", server.port)), "+OK\r\n");
            assert!(server.client().call("BGSAVE").starts_with("+Background saving started"));
        }
        for server in &servers {
            let mut client = server.client();
            harness::until("the end of BGSAVE", || {
                client.call("INFO persistence").contains("rdb_bgsave_in_progress:0")
            });
            assert!(client.call("INFO persistence").contains("rdb_last_bgsave_status:ok"));
            assert_eq!(client.call("SAVE"), "+OK\r\n");
        }
    }
    for server in servers {
        assert_eq!(server.terminate(), Some(0));
    }
    let mut names: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["one.rdb", "two.rdb"]);
}

/// A file that may not grow stands for a disk that is full.
#[test]
fn a_snapshot_that_fails_leaves_nothing_on_the_disk() {
    let directory = harness::folder();
    // What a server has left that was killed, and that of one that lives.
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let left = directory.path().join(format!("temp-{}-dump.rdb", ended.id()));
    let of_another = directory.path().join(format!("temp-{}-dump.rdb", std::process::id()));
    for file in [&left, &of_another] {
        std::fs::write(file, "x").unwrap();
    }
    let log = directory.path().join("log");
    let mut command = harness::command("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$0\" \"$@\""]).arg(rsedis_program());
    let options = ["--logfile", log.to_str().unwrap(), "--repl-diskless-sync", "no"];
    let server = support::start_command(&mut command, directory.path(), &options);
    assert!(!left.exists() && of_another.exists());
    std::fs::remove_file(of_another).unwrap();
    let mut client = server.client();
    for number in 0..100 {
        client.call(&format!("SETRANGE key:{number} 1000 {number}{}", "x".repeat(number)));
    }
    client.call("CONFIG SET rdbcompression no");
    assert_eq!(client.call("SAVE"), "-ERR Errors trying to save. Check logs.\r\n");
    assert!(client.call("BGSAVE").starts_with("+Background saving started"));
    harness::until("the failure", || client.call("INFO persistence").contains("rdb_last_bgsave_status:err"));
    let replica_folder = harness::folder();
    let follows = ["--replicaof", &format!("127.0.0.1 {}", server.port)].map(str::to_owned);
    let follows: Vec<&str> = follows.iter().map(String::as_str).collect();
    let _replica = start(rsedis_program(), replica_folder.path(), &follows);
    let text = || std::fs::read_to_string(&log).unwrap();
    let whole = directory.path().canonicalize().unwrap().join("dump.rdb");
    for line in ["save: ", "snapshot: "] {
        let line = format!("{line}{}: File too large", whole.display());
        harness::until("the line of the log", || text().contains(&line));
    }
    harness::until("two lines for BGSAVE and the replica", || text().matches("# snapshot: ").count() >= 2);
    let names =
        || -> Vec<_> { std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect() };
    harness::until("no file but the log", || names() == ["log"]);
    assert_eq!(client.call("SHUTDOWN SAVE"), "-ERR Errors trying to SHUTDOWN. Check logs.\r\n");
    harness::until("no file but the log", || names() == ["log"]);
}

/// The end of the session that has started it is none of its own.
#[test]
fn a_hangup_does_not_end_the_server() {
    let directory = harness::folder();
    let mut server = start(rsedis_program(), directory.path(), &[]);
    let mut client = server.client();
    server.process.signal(rustix::process::Signal::HUP);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(client.call("PING"), "+PONG\r\n");
    assert_eq!(server.process.ended(), None);
}

#[test]
fn a_socket_file_serves_like_a_port_and_goes_with_the_server() {
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::PermissionsExt as _;
    let directory = harness::folder();
    let path = directory.path().join("socket");
    let options = ["--unixsocket", path.to_str().unwrap(), "--unixsocketperm", "770"];
    let server = start(rsedis_program(), directory.path(), &options);
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.write_all(b"SET a 1\r\nGET a\r\nCLIENT INFO\r\n").unwrap();
    let mut received = String::new();
    while !received.contains("user=default") {
        let mut piece = [0; 1024];
        let count = stream.read(&mut piece).unwrap();
        received.push_str(&String::from_utf8_lossy(&piece[..count]));
    }
    assert!(received.starts_with("+OK\r\n$1\r\n1\r\n"), "{received}");
    assert!(received.contains(&format!("addr={}:0", path.display())) && received.contains("flags=U"), "{received}");
    assert_eq!(server.client().call("GET a"), "$1\r\n1\r\n");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o770);
    // One that a killed server has left is replaced.
    server.kill();
    assert!(path.exists());
    let server = start(rsedis_program(), directory.path(), &options);
    assert!(std::os::unix::net::UnixStream::connect(&path).is_ok());
    assert_eq!(server.terminate(), Some(0));
    assert!(!path.exists());
}

/// Its path need not begin with a slash.
#[test]
fn who_comes_by_a_socket_file_is_local_whatever_its_path() {
    use std::io::{Read as _, Write as _};
    let directory = harness::folder();
    let mut command = harness::command(rsedis_program());
    command.current_dir(directory.path());
    let options = ["--unixsocket", "socket", "--enable-debug-command", "local"];
    let server = support::start_command(&mut command, directory.path(), &options);
    let mut stream = std::os::unix::net::UnixStream::connect(directory.path().join("socket")).unwrap();
    // A script is as local as who runs it.
    stream.write_all(b"DEBUG SLEEP 0\r\nEVAL \"return redis.call('PING')\" 0\r\nQUIT\r\n").unwrap();
    let mut received = String::new();
    stream.read_to_string(&mut received).unwrap();
    assert_eq!(received, "+OK\r\n+PONG\r\n+OK\r\n");
    assert_eq!(server.client().call("DEBUG SLEEP 0"), "+OK\r\n");
}

#[test]
fn shutdown_nosave_leaves_the_dump_and_a_failed_save_leaves_the_server() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), &["--save", "3600 1"]);
    let mut client = server.client();
    assert_eq!(client.call("SET key value"), "+OK\r\n");
    assert_eq!(client.call("SAVE"), "+OK\r\n");
    assert_eq!(client.call("DEL key"), ":1\r\n");
    assert_eq!(client.call("SHUTDOWN SAVE NOSAVE"), "-ERR syntax error\r\n");
    drop(client.try_call(&[b"SHUTDOWN", b"NOSAVE"]));
    assert_eq!(server.wait(), Some(0));

    let server = start(rsedis_program(), directory.path(), &["--save", "3600 1"]);
    let mut client = server.client();
    assert_eq!(client.call("GET key"), "$5\r\nvalue\r\n", "NOSAVE has saved");
    // Its files have no place any more.
    std::fs::remove_file(directory.path().join("dump.rdb")).unwrap();
    std::fs::create_dir(directory.path().join("dump.rdb")).unwrap();
    std::fs::write(directory.path().join("dump.rdb/file"), "").unwrap();
    assert_eq!(client.call("SHUTDOWN"), "-ERR Errors trying to SHUTDOWN. Check logs.\r\n");
    assert_eq!(client.call("GET key"), "$5\r\nvalue\r\n");
    drop(client.try_call(&[b"SHUTDOWN", b"FORCE"]));
    assert_eq!(server.wait(), Some(0));
}

/// Who asks while data are read hears so, and the server can be asked to end.
#[test]
fn while_data_are_read_clients_are_answered() {
    for appends in ["no", "yes"] {
        let directory = harness::folder();
        let options = ["--appendonly", appends];
        let server = start(rsedis_program(), directory.path(), &options);
        let mut client = server.client();
        for number in 0..300 {
            client.call(&format!("SET key:{number} value"));
        }
        client.call(if appends == "yes" { "BGREWRITEAOF" } else { "SAVE" });
        harness::until("the base", || client.call("INFO persistence").contains("aof_rewrite_in_progress:0"));
        client.call("SET last value");
        client.call(if appends == "yes" { "PING" } else { "SAVE" });
        server.kill();

        let port = harness::free_port();
        let slow = || {
            let mut command = harness::command(rsedis_program());
            command.args([
                "--bind",
                "127.0.0.1",
                "--port",
                &port.to_string(),
                "--save",
                "",
                "--key-load-delay",
                "10000",
            ]);
            harness::Process::start(command.args(options).arg("--dir").arg(directory.path()))
        };
        let mut process = slow();
        let mut client = harness::eventually("a connection", || Client::connect(port).ok());
        assert_eq!(client.call("GET last"), "-LOADING Redis is loading the dataset in memory\r\n");
        let info = client.call("INFO persistence");
        assert!(info.contains("loading:1"));
        let number = |name: &str| -> f64 {
            let found = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            found.unwrap_or_else(|| panic!("{name}: {info}")).parse().unwrap()
        };
        let (loaded, total) = (number("loading_loaded_bytes"), number("loading_total_bytes"));
        assert!(0.0 < total && loaded < total && number("loading_loaded_perc") < 100.0, "{info}");
        assert_eq!(client.call("MULTI"), "+OK\r\n");
        assert!(client.call("SET last lost").starts_with("-LOADING"));
        assert!(client.call("EXEC").starts_with("-EXECABORT"));
        process.signal(rustix::process::Signal::TERM);
        assert_eq!(process.wait().code(), Some(0), "it has nothing to keep");

        let _process = slow();
        let mut client = harness::eventually("a connection", || Client::connect(port).ok());
        assert!(client.call("PING").starts_with("-LOADING"));
        harness::until("the end of the reading", || client.call("GET last") == "$5\r\nvalue\r\n");
        assert_eq!(client.call("DBSIZE"), ":301\r\n");
        let mut client = Client::connect(port).unwrap();
        assert_eq!(client.call("SET last written"), "+OK\r\n");
    }
}

/// What was said behind the base was said of keys that were there: the base's keys do not expire before that is done again.
#[test]
fn a_key_that_was_kept_behind_the_base_outlives_the_time_it_had() {
    let directory = harness::folder();
    let options = ["--appendonly", "yes", "--appendfsync", "always"];
    let server = start(rsedis_program(), directory.path(), &options);
    let mut client = server.client();
    for line in ["SET kept value PX 8000", "SET gone value PX 8000", "BGREWRITEAOF"] {
        client.call(line);
    }
    harness::until("the base", || client.call("INFO persistence").contains("aof_rewrites:1"));
    assert_eq!(client.call("PERSIST kept"), ":1\r\n");
    server.kill();
    std::thread::sleep(std::time::Duration::from_millis(8_100));
    let server = start(rsedis_program(), directory.path(), &options);
    let mut client = server.client();
    assert_eq!(client.call("GET kept"), "$5\r\nvalue\r\n");
    assert_eq!(client.call("GET gone"), "$-1\r\n");
}

/// A directory that is not there, is a file, or takes no files: told in one line, with what to do, before anything else is done.
#[test]
fn a_bad_data_directory_is_told_of_with_its_remedy() {
    let folder = harness::folder();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let missing = folder.path().join("missing");
    let appends: &[&str] = &["--appendonly", "yes"];
    for (directory, options, expected) in [
        (missing.as_path(), &[][..], "there is no such directory: create it, or name another with dir"),
        (&missing, appends, "there is no such directory"),
        (&file, &[], "it is no directory: name another with dir"),
        // No files can be made there, also not by root.
        (std::path::Path::new("/proc/self"), appends, "no files can be made in it: "),
        (std::path::Path::new("/proc/self"), &["--save", "60 1"], "no files can be made in it: "),
    ] {
        let port = harness::free_port().to_string();
        let output = Command::new(rsedis_program())
            .args(["--bind", "127.0.0.1", "--port", &port, "--dir"])
            .arg(directory)
            .args(options)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(&format!("dir {}: {expected}", directory.display())), "{text}");
        assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    }
    assert!(!missing.exists());
    // Who writes nothing needs to write nothing.
    let server = start(rsedis_program(), std::path::Path::new("/proc/self"), &[]);
    assert_eq!(server.client().call("SET key value"), "+OK\r\n");
}

/// What was acknowledged is read again, whatever the counters and the limits are then.
#[test]
fn no_acknowledged_command_is_refused_when_it_is_replayed() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), ALWAYS);
    let mut client = server.client();
    client.call("XADD x 1-1 a b");
    client.call("XGROUP CREATE x g 0 ENTRIESREAD 9223372036854775807");
    assert!(client.call("XREADGROUP GROUP g c STREAMS x >").contains("1-1"));
    client.call("XADD y 1-1 a b");
    client.call("XGROUP CREATE y g 0");
    client.call("XREADGROUP GROUP g c STREAMS y >");
    client.call("XCLAIM y g c 0 1-1 RETRYCOUNT 9223372036854775807 JUSTID");
    client.call("XCLAIM y g c 0 1-1");
    client.call("XDEL y 1-1");
    client.call("XCLAIM y g d 0 1-1 LASTID 5-5");
    assert_eq!(client.call("SETRANGE big 2000000 x"), ":2000001\r\n");
    let groups = client.call("XINFO GROUPS y");
    assert!(groups.contains("5-5"), "{groups}");
    server.kill();
    let options = [ALWAYS, &["--proto-max-bulk-len", "1mb"]].concat();
    let server = start(rsedis_program(), directory.path(), &options);
    let mut client = server.client();
    assert_eq!(client.call("STRLEN big"), ":2000001\r\n");
    assert_eq!(client.call("XINFO GROUPS y"), groups);
    assert!(client.call("SETRANGE big 3000000 x").starts_with("-ERR string exceeds"));
}

/// Debian's redis.conf has `set-proc-title yes`. What is set and does nothing is told, once.
#[test]
fn parameters_without_effect_are_named_at_the_start() {
    let directory = harness::folder();
    let (file, log) = (directory.path().join("redis.conf"), directory.path().join("log"));
    std::fs::write(&file, "set-proc-title yes\nactivedefrag yes\nhz 10\nlist-compress-depth 1\n").unwrap();
    let mut command = harness::command(rsedis_program());
    command.arg(&file);
    let options = ["--loglevel", "notice", "--logfile", log.to_str().unwrap()];
    let server = support::start_command(&mut command, directory.path(), &options);
    assert_eq!(server.client().call("CONFIG GET set-proc-title"), "*2\r\n$14\r\nset-proc-title\r\n$3\r\nyes\r\n");
    let text = std::fs::read_to_string(&log).unwrap();
    let told: Vec<&str> = text.lines().filter(|line| line.contains("Without effect")).collect();
    assert_eq!(told.len(), 1, "{text}");
    assert!(told[0].ends_with("* Without effect in this server: list-compress-depth, activedefrag"), "{text}");
}

/// Who has locked everybody else out could not take it back.
#[test]
fn config_set_maxclients_is_refused_where_the_system_allows_fewer_files() {
    let directory = harness::folder();
    let mut command = harness::command("sh");
    command.args(["-c", "ulimit -n 132; exec \"$0\" \"$@\""]).arg(rsedis_program());
    command.stderr(std::process::Stdio::null());
    let server = support::start_command(&mut command, directory.path(), &["--maxclients", "50"]);
    let mut client = server.client();
    assert_eq!(client.call("CONFIG SET maxclients 100"), "+OK\r\n");
    assert_eq!(
        client.call("CONFIG SET maxclients 101"),
        "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system is not able to \
         handle the specified number of clients, try with 100\r\n"
    );
    assert!(client.call("CONFIG GET maxclients").contains("\r\n100\r\n"));
    let others: Vec<Client> = (1..100).map(|_| server.client()).collect();
    assert_eq!(client.call("PING"), "+PONG\r\n");
    assert!(server.client().try_call(&[b"PING"]).map_or(true, |reply| reply.starts_with(b"-ERR max number")));
    drop(others);
}

fn lines_of(log: &std::path::Path) -> String {
    std::fs::read_to_string(log).unwrap()
}

/// In Redis's words, which tools look for.
#[test]
fn what_succeeds_is_told() {
    let directory = harness::folder();
    let log = directory.path().join("log");
    let options = ["--loglevel", "notice", "--logfile", log.to_str().unwrap()];
    let server = start(rsedis_program(), directory.path(), &options);
    let mut client = server.client();
    for number in 0..5 {
        client.call(&format!("SET key:{number} value"));
    }
    let mut is_there = |line: &str, expected: &[&str]| {
        let before = lines_of(&log).len();
        assert!(!client.call(line).starts_with('-'), "{line}");
        harness::until(line, || {
            let text = lines_of(&log)[before..].to_owned();
            expected.iter().all(|words| text.contains(words))
        });
    };
    is_there("SAVE", &["* DB saved on disk"]);
    let success =
        ["* Background saving started by pid", "* DB saved on disk", "* Background saving terminated with success"];
    is_there("BGSAVE", &success);
    let rewritten = [
        "* Background append only file rewriting started by pid",
        "* Background AOF rewrite terminated with success",
        "* Background AOF rewrite finished successfully",
    ];
    is_there("CONFIG SET appendonly yes", &rewritten);
    is_there("BGREWRITEAOF", &rewritten);
    is_there("REPLICAOF 127.0.0.1 1", &["* REPLICAOF 127.0.0.1:1 enabled (user request from 'id="]);
    is_there("REPLICAOF NO ONE", &["* MASTER MODE enabled (user request from 'id="]);
    is_there("SET another value", &[]);
    server.kill();

    let server = start(rsedis_program(), directory.path(), &options);
    let text = lines_of(&log);
    assert!(text.contains("* Done loading RDB, keys loaded: 5, keys expired: 0.\n"), "{text}");
    assert!(text.contains("* DB loaded from disk: 0."), "{text}");
    server.kill();
    let _server = start(rsedis_program(), directory.path(), &[&options[..], ALWAYS].concat());
    let text = lines_of(&log);
    let line = text.lines().find(|line| line.contains("DB loaded from append only file: 0.")).unwrap();
    assert!(line.contains(" seconds, keys: 6, commands behind the base: "), "{line}");
}

/// One that waited for what was written in that second to be safe was forgotten in silence.
#[test]
fn a_rewrite_that_the_end_of_the_append_only_file_ends_is_told_of() {
    let directory = harness::folder();
    let log = directory.path().join("log");
    let server =
        start(rsedis_program(), directory.path(), &["--loglevel", "notice", "--logfile", log.to_str().unwrap()]);
    let mut client = server.client();
    for round in 1..=20 {
        assert_eq!(client.call("CONFIG SET rdb-key-save-delay 0 appendonly yes"), "+OK\r\n");
        harness::until("a base", || client.call("INFO persistence").contains("aof_rewrite_in_progress:0"));
        assert_eq!(client.call("CONFIG SET rdb-key-save-delay 10000000"), "+OK\r\n");
        assert_eq!(client.call("SET key value"), "+OK\r\n");
        assert_eq!(client.call("BGREWRITEAOF"), "+Background append only file rewriting started\r\n");
        assert_eq!(client.call("CONFIG SET appendonly no"), "+OK\r\n");
        assert!(client.call("INFO persistence").contains("aof_rewrite_in_progress:0"));
        assert_eq!(lines_of(&log).matches("Killing running AOF rewrite child").count(), round);
    }
}

/// An RDB file of a server that is no more.
fn leave_dump(directory: &Path) {
    let server = start(rsedis_program(), directory, &[]);
    assert_eq!(server.client().call("SET key value"), "+OK\r\n");
    assert_eq!(server.client().call("SAVE"), "+OK\r\n");
    server.kill();
}

/// Who switches `appendonly` on in redis.conf finds a server without keys, and the next save would replace the last copy of them.
#[test]
fn a_dump_that_is_not_read_is_told_of() {
    let directory = harness::folder();
    leave_dump(directory.path());
    let log = directory.path().join("log");
    let options = [&["--logfile", log.to_str().unwrap()], ALWAYS].concat();
    for _ in 0..2 {
        let server = start(rsedis_program(), directory.path(), &options);
        assert_eq!(server.client().call("DBSIZE"), ":0\r\n");
        let whole = directory.path().canonicalize().unwrap().join("dump.rdb");
        let told = format!("# {} is not read, since appendonly is yes", whole.display());
        assert_eq!(lines_of(&log).matches(&told).count(), 1, "at the first start: {}", lines_of(&log));
        server.kill();
    }
}

/// Who has started it by hand would look at an empty screen. The file is named with its place, and what is wrong with it.
#[test]
fn a_start_that_fails_behind_the_log_file_is_told_on_standard_error_too() {
    let directory = harness::folder();
    leave_dump(directory.path());
    let dump = directory.path().join("dump.rdb");
    let bytes = std::fs::read(&dump).unwrap();
    let (log, port) = (directory.path().join("log"), harness::free_port().to_string());
    for cut in [9, 12] {
        std::fs::write(&dump, &bytes[..bytes.len() - cut]).unwrap();
        let mut command = Command::new(rsedis_program());
        command
            .args(["--bind", "127.0.0.1", "--port", &port, "--logfile"])
            .arg(&log)
            .arg("--dir")
            .arg(directory.path());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8(output.stderr).unwrap();
        let place = format!("rsedis: {}: RDB, byte ", dump.canonicalize().unwrap().display());
        assert!(text.starts_with(&place) && text.contains(": the file ends early"), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(lines_of(&log).contains(text.trim_start_matches("rsedis: ").trim_end()), "{}", lines_of(&log));
    }
}
