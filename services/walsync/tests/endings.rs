//! How walsync ends: by signals to it or to its whole group, by a second one, and by a store that takes nothing from who sends once.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{Process, TempDir, folder, until};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{Application, Walsync, said, walsync};

#[test]
#[ignore = "the application of other tests"]
fn application_process() {
    support::application_process();
}

const TABLE: &str = "CREATE TABLE t(v)";
const INSERT: &str = "INSERT INTO t VALUES (randomblob(3000))";

/// A folder with a database of one row.
fn scene() -> TempDir {
    let folder = folder();
    let mut application = Application::start(&folder.path().join("app.db"), TABLE);
    application.run(INSERT);
    application.close();
    folder
}

/// A watch of it, with a program beside it.
fn watch(folder: &TempDir, to: &str, exec: &str) -> Command {
    let mut command = walsync();
    command.arg("watch").arg(folder.path().join("app.db")).args(["--to", to, "--interval-millis", "50"]);
    command.args(["--exec", exec]).current_dir(folder.path()).process_group(0);
    command
}

fn log(folder: &TempDir) -> String {
    std::fs::read_to_string(folder.path().join("log")).unwrap_or_default()
}

/// Starts it with its words in `log`, once its program has begun.
fn started(folder: &TempDir, mut command: Command) -> Process {
    let file = std::fs::File::create(folder.path().join("log")).unwrap();
    let mut process = Process::start(command.env("NO_COLOR", "1").stderr(file));
    until("its program", || {
        assert!(process.ended().is_none(), "{}", log(folder));
        folder.path().join("ready").exists()
    });
    process
}

#[test]
fn a_signal_to_the_whole_group_is_an_orderly_end_and_so_is_a_hang_up() {
    for (signal, exec) in [
        (Signal::TERM, "sh -c 'echo > ready; exec sleep 60'"),
        (Signal::INT, "sh -c 'echo > ready; exec sleep 60'"),
        (Signal::HUP, "sh -c 'echo > ready; exec sleep 60'"),
        // As programs do that take the signal, and shells that wait for one that was ended by it.
        (Signal::TERM, "sh -c 'trap \"exit 143\" TERM; echo > ready; while :; do sleep 0.05; done'"),
    ] {
        let folder = scene();
        let mut process = started(&folder, watch(&folder, "store", exec));
        until("a durable row", || log(&folder).contains(" durable "));
        kill_process_group(Pid::from_raw(process.id() as i32).unwrap(), signal).unwrap();
        let status = process.wait();
        assert!(status.success() && log(&folder).contains("stopping"), "{signal:?}: {status} {}", log(&folder));
    }
}

#[test]
fn a_program_that_fails_by_itself_is_told() {
    let folder = scene();
    let (code, text) = said(&mut watch(&folder, "store", "sh -c 'kill -KILL $$'"));
    assert!(code == Some(1) && text.contains("exec: the program ended with signal: 9"), "{code:?} {text}");
}

#[test]
fn a_hang_up_that_was_ignored_before_us_ends_nothing() {
    let folder = scene();
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        "trap '' HUP; exec \"$@\"",
        "sh",
        env!("CARGO_BIN_EXE_walsync"),
        "watch",
        "app.db",
        "--to",
        "store",
    ]);
    let mut shell = watched_by(shell, &folder);
    shell.0.signal(Signal::HUP);
    std::thread::sleep(Duration::from_millis(300));
    assert!(shell.0.ended().is_none(), "{}", log(&folder));
    shell.0.signal(Signal::TERM);
    assert!(shell.0.wait().success(), "{}", log(&folder));
}

/// Started by something else, until it watches.
struct Watched(Process);

fn watched_by(mut command: Command, folder: &TempDir) -> Watched {
    let file = std::fs::File::create(folder.path().join("log")).unwrap();
    command.current_dir(folder.path()).env("NO_COLOR", "1").stderr(file);
    let process = Process::start(&mut command);
    until("its start", || log(folder).contains("watching"));
    Watched(process)
}

#[test]
fn a_second_signal_ends_it_at_once_and_one_line_tells_what_was_not_sent() {
    let folder = scene();
    // Connections are taken by the kernel, and nobody ever answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = walsync();
    command.args(["watch", "app.db", "--to", "s3://bucket", "--interval-millis", "50"]);
    command.arg(format!("--endpoint=http://{}", silent.local_addr().unwrap()));
    command.envs([("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "secret")]);
    let mut watched = watched_by(command, &folder);
    let _asked = silent.accept().unwrap();
    let mut application = Application::start(&folder.path().join("app.db"), "CREATE TABLE IF NOT EXISTS t(v)");
    application.run(INSERT);
    watched.0.signal(Signal::TERM);
    until("its first answer", || log(&folder).contains("stopping"));
    let began = Instant::now();
    watched.0.signal(Signal::TERM);
    assert_eq!(watched.0.wait().code(), Some(130));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let told =
        log(&folder).lines().filter(|line| line.contains("a second signal")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(told.len(), 1, "{}", log(&folder));
    assert!(told[0].contains("1 database, ") && told[0].contains("app.db"), "{}", told[0]);
    application.close();
}

#[test]
fn a_program_has_as_many_open_files_as_without_us() {
    let folder = scene();
    let exec = "sh -c 'ulimit -Sn > program; ulimit -Hn >> program; echo > ready; exec sleep 60'";
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -Sn 500; ulimit -Hn 700; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_walsync")]);
    shell.args(["watch", "app.db", "--to", "store", "--exec", exec]).current_dir(folder.path());
    let mut process = started(&folder, shell);
    assert_eq!(std::fs::read_to_string(folder.path().join("program")).unwrap(), "500\n700\n");
    let soft = || {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", process.id())).unwrap();
        limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap().split_whitespace().next().unwrap()
            == "700"
    };
    until("our own, which is raised", soft);
    process.signal(Signal::TERM);
    assert!(process.wait().success(), "{}", log(&folder));
}

/// A store that says this to everything.
fn store_that_says(answer: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut request = [0; 65536];
                while stream.read(&mut request).is_ok_and(|length| length > 0) {
                    let length = answer.len();
                    let head = format!("HTTP/1.1 403 Forbidden\r\ncontent-length: {length}\r\n\r\n");
                    if stream.write_all(format!("{head}{answer}").as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

#[test]
fn who_sends_once_does_not_wait_for_a_database_that_is_still_empty() {
    let folder = folder();
    std::fs::write(folder.path().join("empty.db"), "").unwrap();
    for words in [&["replicate", "-once", "empty.db", "store"][..], &["snapshot", "empty.db", "--to", "store"]] {
        let output = harness::output(walsync().current_dir(folder.path()).args(words));
        assert!(output.contains("empty.db: it is still empty"), "{output}");
    }
}

/// Sends once into a place in S3.
fn once(folder: &TempDir, port: u16, words: &[&str]) -> Command {
    let mut command = walsync();
    command.args(words).current_dir(folder.path());
    command.env("AWS_ENDPOINT_URL_S3", format!("http://127.0.0.1:{port}"));
    command.envs([("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "secret")]);
    command
}

#[test]
fn who_sends_once_into_a_store_that_refuses_for_good_ends_at_once() {
    let folder = scene();
    let port = store_that_says("<Error><Code>AccessDenied</Code></Error>");
    for words in [&["replicate", "-once", "app.db", "s3://b/p"][..], &["snapshot", "app.db", "--to", "s3://b/p"]] {
        let began = Instant::now();
        let (code, text) = said(&mut once(&folder, port, words));
        assert!(code == Some(1) && text.contains("AccessDenied"), "{code:?} {text}");
        assert!(text.contains("1 database was not sent"), "{text}");
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    }
}

#[test]
fn who_sends_once_waits_for_a_store_for_no_longer_than_he_says() {
    let folder = scene();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for words in [
        &["replicate", "-once", "--timeout", "1", "app.db", "s3://b/p"][..],
        &["snapshot", "--timeout=1", "app.db", "--to", "s3://b/p"],
    ] {
        let began = Instant::now();
        let (code, text) = said(&mut once(&folder, nobody, words));
        assert!(code == Some(1) && text.contains("1 database was not sent"), "{code:?} {text}");
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    }
}

#[test]
fn who_sends_once_and_is_ended_by_a_signal_tells_what_is_not_sent() {
    let folder = scene();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let file = std::fs::File::create(folder.path().join("log")).unwrap();
    let mut process = Process::start(once(&folder, nobody, &["snapshot", "app.db", "--to", "s3://b/p"]).stderr(file));
    until("a store that fails", || log(&folder).contains("the store fails"));
    process.signal(Signal::TERM);
    let (status, log) = (process.wait(), log(&folder));
    assert!(status.code() == Some(130) && log.contains("before everything was durable: 1 database"), "{status} {log}");
}

#[test]
fn who_sends_once_restores_first_what_is_lost_and_tells_as_much_as_he_says() {
    let folder = scene();
    let (path, store) = (folder.path().join("app.db"), format!("file://{}", folder.path().join("store").display()));
    harness::output(walsync().args(["replicate", "-once"]).arg(&path).arg(&store));
    let state = support::content(&path);
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(walsync::database::with_suffix(&path, suffix));
    }
    let mut command = walsync();
    command.args(["replicate", "-once", "-restore-if-db-not-exists", "-log-level", "error"]).arg(&path).arg(&store);
    let output = command.output().unwrap();
    assert!(output.status.success() && path.exists(), "{output:?}");
    assert!(support::content(&path) == state);
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "nothing but errors");
}

#[test]
fn a_store_that_does_not_answer_is_told_long_before_it_is_given_up() {
    let folder = scene();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", harness::free_address());
    let mut command = walsync();
    command.args(["watch", "app.db", "--to", "s3://bucket", "--listen", &address]);
    command.arg(format!("--endpoint=http://{}", silent.local_addr().unwrap()));
    command.envs([("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "secret")]);
    let watched = watched_by(command, &folder);
    let _asked = silent.accept().unwrap();
    until("a warning", || log(&folder).contains("the store does not answer"));
    assert!(!log(&folder).contains("the store fails"), "{}", log(&folder));
    let status = harness::output(walsync().args(["status", "--listen", &address]));
    assert!(status.contains("; the store has not answered for 1"), "{status}");
    drop(watched);
}

/// A walsync that restores what is lost, as a second one beside one that waits for the same database.
#[test]
fn a_second_watch_that_restores_what_both_name_leaves_one_at_work() {
    let folder = scene();
    let path = folder.path().join("app.db");
    let config = folder.path().join("litestream.yml");
    let text = format!(
        "dbs: [{{path: {}, restore-if-db-not-exists: true, replica: {{type: file, path: {}, sync-interval: 50ms}}}}]\n",
        path.display(),
        folder.path().join("store").display()
    );
    std::fs::write(&config, text).unwrap();
    let replicate = |log: &str| {
        let mut command = walsync();
        command.args(["replicate", "-config"]).arg(&config);
        Walsync::start(command, &folder.path().join(log))
    };
    let mut first = replicate("first");
    first.wait_durable(1);
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(walsync::database::with_suffix(&path, suffix));
    }
    until("its loss", || first.log().contains("there is no such file"));
    let second = replicate("second");
    until("the database", || path.exists());
    let one_of_both = |words: &str| [&first, &second].iter().filter(|one| one.log().contains(words)).count();
    until("one that stands back", || one_of_both("another walsync watches it") > 0);
    let mut application = Application::start(&path, "CREATE TABLE IF NOT EXISTS t(v)");
    for _ in 0..5 {
        application.run(INSERT);
        std::thread::sleep(Duration::from_millis(100));
    }
    let place = folder.path().join("store");
    until("what is committed", || support::restored_by_walsync(&place) == support::content(&path));
    assert_eq!((one_of_both("another walsync watches it"), one_of_both("another process replicates")), (1, 0));
    application.close();
    // Who stood back takes over when the other one has gone.
    let (one, other) =
        if first.log().contains("another walsync watches it") { (second, first) } else { (first, second) };
    one.stop();
    let before = other.log().matches("replicating").count();
    until("its turn", || other.log().matches("replicating").count() > before);
    other.stop();
}

#[test]
fn a_database_that_comes_to_two_who_watch_its_folder_has_one_of_them() {
    let folder = folder();
    let (here, link) = (folder.path().join("data"), folder.path().join("link"));
    for name in ["data", "empty"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    std::os::unix::fs::symlink(folder.path().join("empty"), &link).unwrap();
    let mut application = Application::start(&here.join("app.db"), TABLE);
    let store = folder.path().join("store");
    let watch = |folder_: &Path, log: &str| Walsync::watch(&[&folder_.join("*.db")], &store, &folder.path().join(log));
    let mut first = watch(&here, "first");
    first.wait_durable(1);
    let second = watch(&link, "second");
    until("its start", || second.log().contains("no file matches"));
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&here, &link).unwrap();
    until("it to stand back", || second.log().contains("another walsync watches it"));
    application.run(INSERT);
    until("what is committed", || {
        support::restored_by_walsync(store.join("app.db")) == support::content(&here.join("app.db"))
    });
    first.stop();
    until("its turn", || second.log().contains("replicating"));
    second.stop();
    application.close();
}

#[test]
fn of_two_who_let_one_copy_follow_the_second_is_refused() {
    let folder = scene();
    harness::output(walsync().current_dir(folder.path()).args(["snapshot", "app.db", "--to", "store"]));
    let follow = || {
        let mut command = walsync();
        command.current_dir(folder.path()).args(["restore", "store/app.db", "-o", "copy.db", "--follow"]);
        command
    };
    let first = Walsync::start(follow(), &folder.path().join("log"));
    until("the copy", || first.log().contains("following"));
    let (code, text) = said(&mut follow());
    assert!(code == Some(1) && text.contains("copy.db: another process lets it follow already"), "{code:?} {text}");
    first.stop();
    let again = Walsync::start(follow(), &folder.path().join("log"));
    again.stop();
}
