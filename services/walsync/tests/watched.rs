//! What a watch looks at, and who else may write where it does: links that are turned, files that are no databases, a snapshot beside it.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{Process, folder, until};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};
use support::{Application, Walsync, content, restored_by_walsync, walsync};

#[test]
#[ignore = "the application of other tests"]
fn application_process() {
    support::application_process();
}

const TABLE: &str = "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v)";
const INSERT: &str = "INSERT INTO t(v) VALUES (randomblob(3000))";

#[test]
fn a_link_that_is_turned_to_another_database_is_seen_in_a_path_and_at_its_end() {
    for is_file in [false, true] {
        let folder = folder();
        let at = |name: &str| folder.path().join(name);
        let path = |release: &str| at(release).join("app.db");
        let applications = ["r1", "r2"].map(|release| {
            std::fs::create_dir(at(release)).unwrap();
            Application::start(&path(release), TABLE)
        });
        let [mut first, mut second] = applications;
        first.run(INSERT);
        let turn = |release: &str| {
            let to = if is_file { path(release) } else { at(release) };
            symlink(to, at("new")).unwrap();
            std::fs::rename(at("new"), at("current")).unwrap();
        };
        turn("r1");
        let watched = if is_file { at("current") } else { at("current").join("app.db") };
        let store = at("store");
        let mut running = Walsync::watch(&[&watched], &store, &at("log"));
        running.wait_durable(1);
        turn("r2");
        for _ in 0..20 {
            second.run(INSERT);
        }
        until("the second database", || {
            restored_by_walsync(store.join(watched.file_name().unwrap())) == content(&path("r2"))
        });
        running.stop();
        first.close();
        second.close();
    }
}

#[test]
fn a_database_that_takes_the_place_of_an_idle_one_is_seen_with_the_next_look() {
    let folder = folder();
    let (path, store, next) =
        (folder.path().join("app.db"), folder.path().join("store"), folder.path().join("next.db"));
    Application::start(&path, TABLE).close();
    let interval = Duration::from_secs(3);
    let mut running = Walsync::watch_each(3000, &[&path], &store, &folder.path().join("log"));
    running.wait_durable(1);
    for _ in 0..2 {
        let mut application = Application::start(&path, TABLE);
        let before = running.durable();
        application.run(INSERT);
        running.wait_durable(before + 1);
        // Idle from 2 s after a change on.
        std::thread::sleep(Duration::from_secs(6));
        let before = running.durable();
        Application::start(&next, TABLE).close();
        application.close();
        for suffix in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(walsync::database::with_suffix(&path, suffix));
        }
        std::fs::rename(&next, &path).unwrap();
        let replaced = Instant::now();
        running.wait_durable(before + 1);
        assert!(replaced.elapsed() < interval + Duration::from_secs(2), "{:?}", replaced.elapsed());
    }
    running.stop();
}

#[test]
fn a_snapshot_is_not_taken_into_the_replica_of_a_process_at_work() {
    let folder = folder();
    let (database, store) = (folder.path().join("app.db"), folder.path().join("store"));
    let mut application = Application::start(&database, TABLE);
    for pin in ["locks", "read-transaction"] {
        application.run(INSERT);
        let mut command = walsync();
        command.args(["watch", "--interval-millis", "50", "--pin", pin]).arg(&database).arg("--to").arg(&store);
        let mut running = Walsync::start(command, &folder.path().join(pin));
        running.wait_durable(1);
        let snapshot = |arguments: &[&str], to: &Path| {
            let output = walsync().arg("snapshot").args(arguments).arg(&database).arg("--to").arg(to).output().unwrap();
            (output.status.code(), String::from_utf8(output.stderr).unwrap())
        };
        let (code, said) = snapshot(&[], &store);
        assert!(code == Some(1) && said.contains("is watched by another walsync"), "{code:?} {said}");
        for _ in 0..2 {
            let (code, said) = snapshot(&["--elsewhere"], &folder.path().join("elsewhere"));
            assert_eq!(code, Some(0), "{said}");
        }
        application.run(INSERT);
        until("what came afterwards", || restored_by_walsync(store.join("app.db")) == content(&database));
        running.stop();
        let (code, said) = snapshot(&[], &store);
        assert_eq!(code, Some(0), "{said}");
    }
    application.close();
}

#[test]
fn a_second_watch_into_the_replica_of_a_process_at_work_is_refused_at_its_start() {
    let folder = folder();
    let (database, store) = (folder.path().join("app.db"), folder.path().join("store"));
    let elsewhere = folder.path().join("elsewhere");
    let mut application = Application::start(&database, TABLE);
    let watch = |words: &[&str], to: &Path| {
        let mut command = walsync();
        command.arg("watch").args(words).args(["--interval-millis", "50"]).arg(&database).arg("--to").arg(to);
        command
    };
    for pin in ["locks", "read-transaction"] {
        application.run(INSERT);
        let mut first = Walsync::start(watch(&["--pin", pin], &store), &folder.path().join(pin));
        first.wait_durable(1);
        let mut replicate = walsync();
        replicate.arg("replicate").arg(&database).arg(format!("file://{}", store.join("app.db").display()));
        for (number, mut command) in
            [watch(&[], &store), watch(&["--exec", "true"], &store), replicate].into_iter().enumerate()
        {
            let log = folder.path().join(format!("refused-{pin}-{number}"));
            let mut second = Process::start(command.stderr(std::fs::File::create(&log).unwrap()));
            let said = || std::fs::read_to_string(&log).unwrap();
            until("its end", || {
                assert!(!said().contains("watching"), "{}", said());
                second.ended().is_some()
            });
            let code = second.wait().code();
            assert!(code == Some(1) && said().contains("is watched by another walsync"), "{code:?} {}", said());
        }
        for round in 0..2 {
            let log = folder.path().join(format!("elsewhere-{pin}-{round}"));
            let mut other = Walsync::start(watch(&["--elsewhere"], &elsewhere), &log);
            application.run(INSERT);
            other.wait_durable(1);
            other.stop();
        }
        until("what came meanwhile", || restored_by_walsync(store.join("app.db")) == content(&database));
        first.stop();
    }
    application.close();
}

#[test]
fn a_database_whose_place_was_taken_is_at_risk_for_as_long() {
    let folder = folder();
    let (database, store) = (folder.path().join("app.db"), folder.path().join("store"));
    let mut application = Application::start(&database, TABLE);
    let address = format!("http://{}", harness::free_address());
    let mut command = walsync();
    command.args(["watch", "--interval-millis", "3000", "--listen", &address]).arg(&database).arg("--to").arg(&store);
    let mut running = Walsync::start(command, &folder.path().join("log"));
    running.wait_durable(1);
    application.run(INSERT);
    // Untruly: it is the very place.
    walsync().args(["snapshot", "--elsewhere"]).arg(&database).arg("--to").arg(&store).output().unwrap();
    until("a fence, and time at risk", || {
        application.run(INSERT);
        let status = harness::output(walsync().args(["status", "--listen", &address]));
        let line = status.lines().last().unwrap();
        line.contains("fenced") && !line.ends_with("\t0.000")
    });
    running.kill();
    application.close();
}

#[test]
fn a_named_pipe_beside_a_database_stops_nobody() {
    let folder = folder();
    let (database, store) = (folder.path().join("c.db"), folder.path().join("store"));
    for name in ["a.db", "b.db"] {
        Application::start(&folder.path().join(name), TABLE).close();
        let pipe = folder.path().join(format!("{name}-wal"));
        harness::output(std::process::Command::new("mkfifo").arg(pipe));
    }
    harness::output(std::process::Command::new("mkfifo").arg(folder.path().join("d.db")));
    let mut application = Application::start(&database, TABLE);
    application.run(INSERT);
    let names = ["a.db", "b.db", "d.db", "c.db"].map(|name| folder.path().join(name));
    let paths = names.each_ref().map(|path| path.as_path());
    let mut running = Walsync::watch(&paths, &store, &folder.path().join("log"));
    running.wait_durable(1);
    until("the refusals", || running.log().matches("is no regular file").count() >= 3);
    running.kill();
    application.close();
}

#[test]
fn a_name_that_is_taken_and_one_that_is_no_text_refuse_that_database_alone() {
    use std::os::unix::ffi::OsStrExt;
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    for name in ["a", "b"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    let mut first = Application::start(&at("b/app.db"), TABLE);
    let patterns = [at("a/*.db"), at("b/*.db")];
    let mut running = Walsync::watch(&[&patterns[0], &patterns[1]], &at("store"), &at("log"));
    running.wait_durable(1);
    // They come later, and before the one that has the name already.
    let mut second = Application::start(&at("a/app.db"), TABLE);
    let mut other = Application::start(&at("a/other.db"), TABLE);
    std::fs::copy(at("b/app.db"), at("b").join(std::ffi::OsStr::from_bytes(b"no-t\xffxt.db"))).unwrap();
    for application in [&mut first, &mut second, &mut other] {
        application.run(INSERT);
    }
    until("the other database", || at("store/other.db").is_dir());
    let told = |what: &str| running.log().lines().any(|line| line.contains("not replicated") && line.contains(what));
    until("what is told", || told("would both be") && told("is no UTF-8"));
    until("the first database", || restored_by_walsync(at("store/app.db")) == content(&at("b/app.db")));
    let (log, status) = (running.log(), running.terminate());
    assert_eq!(status.code(), Some(1), "{log}");
    for application in [first, second, other] {
        application.close();
    }
}

/// What walsync says that is refused at its start for what its configuration says.
fn refused_at_the_start(words: &[&str], configuration: &str) -> String {
    let folder = folder();
    let (file, log) = (folder.path().join("configuration.yml"), folder.path().join("log"));
    std::fs::write(&file, configuration).unwrap();
    let mut command = walsync();
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
        command.env(name, "key");
    }
    command.args(words).arg(&file).env("NO_COLOR", "1");
    let mut process = Process::start(command.stderr(std::fs::File::create(&log).unwrap()));
    let said = || std::fs::read_to_string(&log).unwrap();
    until("its end", || {
        assert!(!said().contains("watching"), "not refused: {configuration}");
        process.ended().is_some()
    });
    assert_eq!(process.wait().code(), Some(2), "{}", said());
    said()
}

#[test]
fn two_databases_that_have_one_place_are_refused_at_the_start() {
    let folder = folder();
    let there = folder.path().to_str().unwrap();
    symlink(folder.path(), folder.path().join("link")).unwrap();
    let places = [
        ("{path: STORE/a}", "{path: STORE/a/}", "STORE/a"),
        ("{url: \"file://STORE/a\"}", "{type: file, path: STORE/b/..//./a}", "STORE/a"),
        // Of two links to one folder both lead there, also before there is anything in it.
        ("{path: STORE/link/new/a}", "{path: STORE/new/a}", "STORE/new/a"),
        ("{url: \"s3://b/a\"}", "{bucket: b, path: a}", "s3://b/a"),
        ("{url: \"s3://b/a/c\"}", "{type: s3, bucket: b, path: /a/c/, region: eu-west-1}", "s3://b/a/c"),
        ("{url: \"s3://b\"}", "{bucket: b}", "s3://b"),
        (
            "{url: \"s3://b/a\", endpoint: \"http://Store:80\", access-key-id: other, secret-access-key: other}",
            "{url: \"s3://b/a?endpoint=http://store/&force-path-style=true\"}",
            "s3://b/a at store",
        ),
    ];
    for (one, other, place) in places {
        let configuration =
            format!("dbs: [{{path: STORE/one.db, replica: {one}}}, {{path: STORE/other.db, replica: {other}}}]");
        let said = refused_at_the_start(&["replicate", "-config"], &configuration.replace("STORE", there));
        let expected = format!(
            "STORE/one.db and STORE/other.db would both be replicated to {place}, and each would stop the other: \
             give one of them another"
        );
        assert!(said.contains(&expected.replace("STORE", there)), "{said}");
    }
    let configuration = "{store: STORE, databases: [{path: STORE/one.db, name: a}, {path: STORE/other.db, name: a}]}";
    let said = refused_at_the_start(&["watch", "--config"], &configuration.replace("STORE", there));
    let expected = format!("{there}/one.db and {there}/other.db would both be replicated to {there}/a");
    assert!(said.contains(&expected), "{said}");
}

#[test]
fn a_database_that_is_named_twice_for_two_places_is_refused_at_the_start() {
    let folder = folder();
    let there = folder.path().to_str().unwrap();
    let cases: [(&[&str], &str); 2] = [
        (
            &["replicate", "-config"],
            "dbs: [{path: STORE/a.db, replica: {path: STORE/a}}, {path: STORE/a.db, replica: {path: STORE/b}}]",
        ),
        (
            &["watch", "--config"],
            "{store: STORE, databases: [{path: STORE/a.db, name: a}, {path: STORE/a.db, name: b}]}",
        ),
    ];
    for (words, configuration) in cases {
        let said = refused_at_the_start(words, &configuration.replace("STORE", there));
        let expected = format!("{there}/a.db is named twice, for {there}/a and for {there}/b");
        assert!(said.contains(&expected), "{said}");
    }
}
