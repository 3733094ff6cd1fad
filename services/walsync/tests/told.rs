//! What is told, and to whom: names of files that would forge a line, JSON and exit codes for scripts, what a configuration means before it is watched.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{Process, TempDir, folder, free_port, until};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use support::{Walsync, database, said, walsync};

#[test]
#[ignore = "the application of other tests"]
fn application_process() {
    support::application_process();
}

/// A configuration of all databases of `data`, which says where to serve.
fn configured(folder: &TempDir, more: &str) -> std::path::PathBuf {
    let (here, config) = (folder.path().display(), folder.path().join("walsync.yml"));
    std::fs::create_dir_all(folder.path().join("data")).unwrap();
    let text = format!(
        "store: file://{here}/store\nlisten: http://127.0.0.1:{}\ninterval-millis: 50\n{more}databases:\n  - path: \"{here}/data/*.db\"\n",
        free_port()
    );
    std::fs::write(&config, text).unwrap();
    config
}

fn verb(words: &[&str], config: &Path) -> Command {
    let mut command = walsync();
    command.args(words).arg("--config").arg(config);
    command
}

fn watching(config: &Path, folder: &TempDir) -> Walsync {
    let watching = Walsync::start(verb(&["watch"], config), &folder.path().join("log"));
    until("its start", || watching.log().contains("watching"));
    watching
}

#[test]
fn a_name_with_line_breaks_forges_no_line_of_anything() {
    let folder = folder();
    let config = configured(&folder, "");
    let data = folder.path().join("data");
    database(&data.join("victim.db"));
    let forged = "a\n2026-01-01T00:00:00Z\tINFO forged victim.db\trunning\t4711\t-\t0.000\u{1b}[31m\n.db";
    std::fs::write(data.join(forged), "no database, however long one reads it".repeat(10)).unwrap();
    let watching = watching(&config, &folder);
    let status = || harness::output(&mut verb(&["status"], &config));
    until("both", || status().contains("running\t") && status().contains("refused"));
    let told = status();
    assert_eq!(told.lines().count(), 3, "{told}");
    assert!(told.lines().skip(1).all(|line| line.starts_with('/') && line.split('\t').count() == 5), "{told}");
    let of_victim = harness::output(&mut verb(&["status", data.join("victim.db").to_str().unwrap()], &config));
    assert!(!of_victim.contains("4711"), "{of_victim}");
    let log = watching.log();
    assert!(log.lines().all(|line| line.contains("walsync::") && !line.contains('\u{1b}')), "{log}");
    let explained = harness::output(&mut verb(&["explain"], &config));
    assert!(!explained.lines().any(|line| line.starts_with("2026") || line.contains('\u{1b}')), "{explained}");
    let litestream = folder.path().join("litestream.yml");
    let text = format!("dbs: [{{dir: {0}, pattern: \"*.db\", replica: {{path: {0}/store}}}}]", data.display());
    std::fs::write(&litestream, text).unwrap();
    std::fs::write(data.join(forged), "SQLite format 3\0").unwrap();
    let listed = harness::output(walsync().arg("databases").arg("-config").arg(&litestream));
    assert_eq!(listed.lines().count(), 2, "{listed}");
    watching.kill();
}

#[test]
fn a_status_is_told_in_json_and_by_the_exit_code() {
    let folder = folder();
    let config = configured(&folder, "");
    let data = folder.path().join("data");
    database(&data.join("app.db"));
    let watching = watching(&config, &folder);
    let check = |words: &[&str]| said(&mut verb(&[&["status"], words].concat(), &config));
    until("a running one", || check(&["--check"]).1.contains("running\t"));
    let (code, text) = check(&["--check", "--at-risk-max", "60"]);
    assert_eq!(code, Some(0), "{text}");
    std::fs::write(data.join("text.db"), "no database, however long one reads it".repeat(10)).unwrap();
    until("a refusal", || check(&[]).1.contains("refused"));
    let (code, text) = check(&["--check"]);
    assert!(
        code == Some(1) && text.contains("1 database is not well: ") && text.contains("text.db refused:"),
        "{code:?} {text}"
    );
    let (code, text) = check(&["--json"]);
    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    let refused = told.as_array().unwrap().iter().find(|one| one["state"] == "refused").unwrap();
    assert!(code == Some(0) && refused["why"].as_str().unwrap().contains("not an SQLite database"), "{text}");
    assert!(told.as_array().unwrap().iter().any(|one| one["state"] == "running" && one["durable_txid"] == 1), "{text}");
    let (code, text) = check(&["--check", data.join("app.db").to_str().unwrap()]);
    assert_eq!(code, Some(0), "{text}");
    let place = format!("file://{}", folder.path().join("store/app.db").display());
    let verify = || said(walsync().args(["verify", "--json", &place]));
    let (code, text) = verify();
    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(code == Some(0) && told["is_whole"] == true && told["newest_txid_that_restores"] == 1, "{text}");
    watching.kill();
    let key = ltx::Layout::Files.key(0, ltx::FileName { min_txid: 1, max_txid: 1 });
    std::fs::write(folder.path().join("store/app.db").join(key), "nothing").unwrap();
    let output = walsync().args(["verify", "--json", &place]).output().unwrap();
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.code() == Some(1) && told["is_whole"] == false, "{told}");
    assert_eq!(
        (told["damaged"].as_array().unwrap().len(), &told["newest_txid_that_restores"]),
        (1, &serde_json::Value::Null)
    );
}

#[test]
fn what_is_to_be_watched_is_looked_at_before() {
    let folder = folder();
    let here = folder.path().display();
    let config = configured(&folder, &format!("restore-drill: {{folder: {here}, interval-seconds: 86400}}\n"));
    let data = folder.path().join("data");
    database(&data.join("app.db"));
    let old = rusqlite::Connection::open(data.join("old.db")).unwrap();
    old.execute_batch("CREATE TABLE t(a)").unwrap();
    drop(old);
    let explained = harness::output(&mut verb(&["explain"], &config));
    for expected in [
        format!("replicates into {here}/store\n"),
        "app.db -> app.db/ltx/0/0000000000000001-0000000000000001.ltx: in WAL mode, ".into(),
        "old.db/ltx/0/0000000000000001-0000000000000001.ltx: cannot be replicated as it is: the database is not in WAL mode".into(),
        "2 databases; a change is sent within 50 ms".into(),
        "restored for a trial every 86400 s: 1 database in turn".into(),
        "requests: none, for it goes into a folder".into(),
    ] {
        assert!(explained.contains(&expected), "{expected}: {explained}");
    }
    assert!(!explained.contains("dollars") && !explained.contains("1 databases"), "{explained}");
    let text = std::fs::read_to_string(&config).unwrap().replace(&format!("file://{here}/store"), "s3://bucket/p");
    std::fs::write(&config, text).unwrap();
    let explained = harness::output(&mut verb(&["explain"], &config));
    assert!(explained.contains("replicates into s3://bucket/p") && explained.contains("dollars"), "{explained}");
    assert!(explained.contains("restores for a trial read 30 databases"), "{explained}");
}

fn asked(port: u16, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
    stream
}

fn answer(mut stream: TcpStream) -> String {
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    text
}

#[test]
fn who_would_be_one_too_many_that_waits_is_told_to_come_again() {
    let folder = folder();
    let port = free_port();
    database(&folder.path().join("app.db"));
    let mut command = walsync();
    command.current_dir(folder.path()).args(["watch", "app.db", "--to", "store"]);
    command.arg(format!("--listen=http://127.0.0.1:{port}"));
    let mut watching = Walsync::start(command, &folder.path().join("log"));
    watching.wait_durable(1);
    let path = format!("/sync?database={}/app.db&txid=999999&timeout_seconds=600", folder.path().display());
    let waiting: Vec<TcpStream> = (0..100).map(|_| asked(port, &path)).collect();
    until("an answer that all places are taken", || {
        let mut stream = asked(port, &path);
        stream.set_read_timeout(Some(std::time::Duration::from_millis(500))).unwrap();
        let mut begin = [0; 12];
        stream.read_exact(&mut begin).is_ok() && begin.ends_with(b"503")
    });
    drop(waiting);
    let path = format!("/sync?database={}/app.db", folder.path().display());
    until("a place", || answer(asked(port, &path)).contains(" 200 "));
    watching.stop();
}

#[test]
fn who_is_told_to_stop_is_not_ready_any_more() {
    let folder = folder();
    database(&folder.path().join("app.db"));
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free_port();
    let mut command = walsync();
    command.current_dir(folder.path()).args(["watch", "app.db", "--to", "s3://bucket"]);
    command.arg(format!("--endpoint=http://{}", silent.local_addr().unwrap()));
    command.arg(format!("--listen=http://127.0.0.1:{port}"));
    command.envs([("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "secret")]);
    let watching = Walsync::start(command, &folder.path().join("log"));
    until("its start", || watching.log().contains("watching"));
    assert!(
        answer(asked(port, "/readyz")).contains(" 200 "),
        "a store that is silent keeps no application from its work"
    );
    watching.signal(Signal::TERM);
    until("an answer while it stops", || {
        answer(asked(port, "/readyz")).contains("stopping failed: it was told to stop")
    });
    watching.kill();
}

#[test]
fn a_folder_that_is_not_there_yet_is_waited_for() {
    let folder = folder();
    let config = configured(&folder, "");
    std::fs::remove_dir(folder.path().join("data")).unwrap();
    let mut watching = watching(&config, &folder);
    let status = harness::output(&mut verb(&["status"], &config));
    assert!(status.contains("data/*.db\twaiting: its folder is not there\t"), "{status}");
    assert!(watching.log().contains("its folder is not there"), "{}", watching.log());
    std::fs::create_dir(folder.path().join("data")).unwrap();
    database(&folder.path().join("data/app.db"));
    watching.wait_durable(1);
    watching.stop();
}

#[test]
fn a_file_that_may_not_be_read_is_told_by_its_name_and_so_is_who_may_not_read_it() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let open_to = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    open_to(folder.path(), 0o755);
    database(&at("app.db"));
    // Where somebody else may run it, too.
    std::fs::copy(env!("CARGO_BIN_EXE_walsync"), at("walsync")).unwrap();
    for suffix in ["-wal", "-shm"] {
        std::fs::write(at(&format!("app.db{suffix}")), "").unwrap();
    }
    let own = rustix::process::getuid().as_raw();
    let other = if own == 0 { 65_534 } else { own };
    for name in ["app.db", "app.db-wal", "app.db-shm"] {
        open_to(&at(name), 0o000);
        let mut explain = Command::new(at("walsync"));
        explain.arg("explain").arg(at("app.db")).args(["--to", "/none"]);
        if own == 0 {
            // Nothing is closed to root.
            explain.uid(other).gid(other);
        }
        let said = harness::output(&mut explain);
        let problem =
            format!("{}: Permission denied (os error 13); walsync runs as user {other} of", at(name).display());
        assert!(said.contains(&problem), "{said}");
        open_to(&at(name), 0o644);
    }
}

#[test]
fn a_restored_file_is_for_whom_the_umask_leaves_it() {
    let folder = folder();
    database(&folder.path().join("app.db"));
    harness::output(walsync().current_dir(folder.path()).args(["snapshot", "app.db", "--to", "store"]));
    for (umask, expected) in [("022", 0o644), ("027", 0o640), ("077", 0o600)] {
        let mut shell = Command::new("sh");
        shell.args([
            "-c",
            &format!("umask {umask}; exec \"$@\""),
            "sh",
            env!("CARGO_BIN_EXE_walsync"),
            "restore",
            "store/app.db",
        ]);
        harness::output(shell.args(["-o", umask]).current_dir(folder.path()));
        assert_eq!(folder.path().join(umask).metadata().unwrap().permissions().mode() & 0o777, expected);
    }
}

#[test]
fn a_restore_that_is_broken_off_by_a_signal_leaves_nothing() {
    let folder = folder();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    // The listing is answered, and nothing else.
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    std::thread::spawn(move || {
        let body = "<?xml version=\"1.0\"?><ListBucketResult><IsTruncated>false</IsTruncated><Contents>\
                    <Key>p/0000/0000000000000001-0000000000000001.ltx</Key><Size>4000</Size>\
                    <LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents></ListBucketResult>";
        let mut kept = Vec::new();
        for stream in silent.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 65536];
            let length = stream.read(&mut request).unwrap();
            if String::from_utf8_lossy(&request[..length]).contains("list-type") {
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
                stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
            } else {
                kept.push(stream);
            }
        }
    });
    for signal in [Signal::INT, Signal::TERM] {
        // Whoever starts these tests in the background of a shell ignores SIGINT, and so would it.
        let mut command = Command::new("env");
        command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_walsync"), "restore", "s3://bucket/p"]);
        command.args(["-o", "out.db"]).arg(format!("--endpoint={endpoint}")).current_dir(folder.path());
        command.envs([("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "secret")]);
        let mut process = Process::start(&mut command);
        until("what it has begun", || {
            assert!(process.ended().is_none());
            folder.path().join(".walsync-restore-out.db").exists()
        });
        process.signal(signal);
        assert_eq!(process.wait().code(), Some(130));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_time_between_two_known_states_gives_the_earlier_one_and_names_the_later() {
    let folder = folder();
    let replica = folder.path().join("store");
    let time = |minute: i64| jiff::Timestamp::from_second(1_790_000_000 + 60 * minute).unwrap();
    let put = |level: u8, min_txid: u64, max_txid: u64| {
        let timestamp_millis = time(max_txid as i64).as_millisecond();
        let flags = ltx::NO_CHECKSUM;
        let header = ltx::Header {
            flags,
            page_size: 512,
            commit: 1,
            min_txid,
            max_txid,
            timestamp_millis,
            ..ltx::Header::default()
        };
        let mut encoder = ltx::Encoder::new(Vec::new(), header).unwrap();
        encoder.page(1, &vec![max_txid as u8; 512]).unwrap();
        let path = replica.join(ltx::Layout::Files.key(level, ltx::FileName { min_txid, max_txid }));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, encoder.finish().unwrap().0).unwrap();
    };
    put(9, 1, 1);
    put(0, 2, 2);
    // TXIDs 3 to 9 were merged, and what they were made of is gone.
    put(3, 3, 9);
    for (minute, output, txid, next) in [
        (1, "one", 1, format!("the next known state: TXID 2, committed {}\n", time(2))),
        (5, "two", 2, format!("the next known state: TXID 9, committed {}; of those between", time(9))),
        (9, "nine", 9, "it is the newest that the replica has\n".into()),
    ] {
        let mut restore = walsync();
        restore.arg("restore").arg(&replica).args(["--timestamp", &time(minute).to_string(), "-o", output]);
        let told = harness::output(restore.current_dir(folder.path()));
        assert!(told.contains(&format!(": TXID {txid} (")) && told.contains(&next), "{told}");
        assert!(told.contains(&format!("committed {}", time(txid))), "{told}");
    }
}

#[test]
fn a_mistyped_verb_and_a_path_without_a_configuration_are_told_what_was_meant() {
    let folder = folder();
    for (words, code, expected) in [
        (&["wach"][..], 2, "there is no verb 'wach'; did you mean 'watch'?"),
        (&["restor"], 2, "there is no verb 'restor'; did you mean 'restore'?"),
        (&["publish-everything"], 2, "there is no verb 'publish-everything': walsync --help has them"),
        (&["compact", "store", "--force"], 2, "--force: needs --watched-by FILE"),
        (
            &["restore", "./app.db", "-o", "x.db"],
            1,
            "where that is the path of a database, --config FILE says where its replica is",
        ),
        (&["restore", "--o=x.db", "-if-replica-exists=true", "store"], 0, "there is no replica yet: x.db was not made"),
    ] {
        let (ended, text) = said(walsync().current_dir(folder.path()).args(words));
        assert!(
            ended == Some(code) && text.contains(expected) && text.lines().count() == 1,
            "{words:?}: {ended:?} {text}"
        );
    }
}

#[test]
fn what_a_watch_lacks_and_where_it_sends_to_is_told_at_its_start() {
    let folder = folder();
    database(&folder.path().join("app.db"));
    let watch = |to: &str| {
        let mut command = walsync();
        command.current_dir(folder.path()).args(["watch", "app.db", "--to", to, "--staging-folder", "none"]);
        let watching = Walsync::start(command, &folder.path().join(format!("{to}.log")));
        until("its start", || watching.log().contains("watching"));
        watching
    };
    let mut first = watch("one");
    first.wait_durable(1);
    assert!(first.log().contains(&format!("to=\"{}\"", folder.path().join("one").display())), "{}", first.log());
    assert!(first.log().contains("the staging folder is not there"), "{}", first.log());
    assert!(!first.log().contains("--elsewhere"), "{}", first.log());
    let second = watch("two");
    assert!(second.log().contains("say --elsewhere: without it the next start is refused"), "{}", second.log());
    second.kill();
    first.kill();
}
