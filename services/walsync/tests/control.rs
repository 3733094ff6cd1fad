//! `status` and `sync`, which ask a replicator at work, and what its metrics say of commits at risk.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{TempDir, folder, free_port, until};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::Output;
use std::time::{Duration, Instant};
use support::{Application, Walsync, walsync};

#[test]
#[ignore = "the body of child processes, started by the other tests"]
fn application_process() {
    support::application_process();
}

/// A replicator of two databases, of which the second is not there.
struct Scene {
    folder: TempDir,
    database: PathBuf,
    port: u16,
    walsync: Walsync,
}

impl Scene {
    /// With so long between uploads.
    fn start(interval_millis: &str) -> (Scene, Application) {
        let folder = folder();
        let database = folder.path().join("app one.db");
        let application = Application::start(&database, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)");
        let port = free_port();
        let mut command = walsync();
        command.arg("watch").arg(&database).arg(folder.path().join("none.db"));
        command.arg("--to").arg(folder.path().join("store")).args(["--interval-millis", interval_millis]);
        command.arg(format!("--listen=http://127.0.0.1:{port}"));
        let mut scene = Scene { walsync: Walsync::start(command, &folder.path().join("log")), folder, database, port };
        scene.walsync.wait_durable(1);
        (scene, application)
    }

    fn ask(&self, verb: &str, arguments: &[&str]) -> Output {
        let mut command = walsync();
        command.arg(verb).args(arguments).arg(format!("--listen=http://127.0.0.1:{}", self.port));
        command.output().unwrap()
    }

    fn sync(&self, arguments: &[&str]) -> Output {
        self.ask("sync", &[&[self.database.to_str().unwrap()], arguments].concat())
    }

    fn metrics(&self) -> String {
        metrics_at(self.port)
    }
}

fn metrics_at(port: u16) -> String {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn said(output: &Output) -> (bool, String) {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn a_database_is_asked_for_by_whatever_way_leads_to_it() {
    let (scene, mut application) = Scene::start("50");
    let (link, outside) = (scene.folder.path().join("link.db"), scene.folder.path().join("other.db"));
    std::os::unix::fs::symlink(&scene.database, &link).unwrap();
    std::fs::write(&outside, "").unwrap();
    std::fs::create_dir(scene.folder.path().join("sub")).unwrap();
    for way in [link, scene.folder.path().join("sub/../app one.db")] {
        application.run("INSERT INTO t(v) VALUES (1)");
        let output = scene.ask("sync", &[way.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {said}", way.display());
    }
    let output = scene.ask("sync", &[outside.to_str().unwrap()]);
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("is not watched here"));
    scene.walsync.stop();
    application.close();
}

#[test]
fn what_sync_has_waited_for_is_durable() {
    // So rare that nothing becomes durable unasked.
    let (scene, mut application) = Scene::start("60000");
    for _ in 0..3 {
        application.run("INSERT INTO t(v) VALUES (randomblob(100))");
        let before = scene.walsync.durable();
        let (done, text) = said(&scene.sync(&["--wait", "latest"]));
        assert!(done && scene.walsync.durable() > before, "{text}");
        assert!(text.contains(&format!("app one.db\trunning\t{}\t", before + 1)), "{text}");
    }
    let durable = scene.walsync.durable();
    let (done, text) = said(&scene.sync(&["--wait", &durable.to_string()]));
    assert!(done, "{text}");
    let (done, text) = said(&scene.sync(&["--wait", &(durable + 9).to_string(), "--timeout", "1"]));
    assert!(!done && text.contains(&format!("not durable after 1s: the store has TXID {durable}; running")), "{text}");
    let (done, text) = said(&scene.ask("sync", &[scene.folder.path().join("other.db").to_str().unwrap()]));
    assert!(!done && text.contains("other.db is not watched here"), "{text}");
    let (done, text) = said(&scene.ask("sync", &[scene.folder.path().join("none.db").to_str().unwrap()]));
    assert!(!done && text.contains("none.db: waiting: there is no such file"), "{text}");
    application.close();
    scene.walsync.kill();
}

#[test]
fn status_and_metrics_tell_what_is_at_risk() {
    let (scene, mut application) = Scene::start("60000");
    until("nothing at risk", || scene.metrics().contains("walsync_databases_at_risk{longer_than_seconds=\"0\"} 0"));
    application.run("INSERT INTO t(v) VALUES (randomblob(100))");
    until("a database at risk for a second", || {
        scene.metrics().contains("walsync_databases_at_risk{longer_than_seconds=\"1\"} 1")
    });
    let metrics = scene.metrics();
    assert!(metrics.contains("walsync_databases_at_risk{longer_than_seconds=\"60\"} 0"), "{metrics}");
    assert!(metrics.contains("walsync_at_risk_seconds{database=\"") && metrics.contains("app one.db\"} "), "{metrics}");
    let (done, text) = said(&scene.ask("status", &[]));
    let line = text.lines().find(|line| line.contains("app one.db")).unwrap();
    let fields: Vec<&str> = line.split('\t').collect();
    assert!(done && fields[1] == "running" && fields[4].parse::<f64>().unwrap() > 1.0, "{text}");
    assert!(text.lines().any(|line| line.contains("none.db\twaiting") && line.ends_with("\t0.000")), "{text}");
    let (done, text) = said(&scene.sync(&[]));
    assert!(done && text.trim_end().ends_with("\t0.000"), "{text}");
    let metrics = scene.metrics();
    assert!(metrics.contains("walsync_databases_at_risk{longer_than_seconds=\"0\"} 0"), "{metrics}");
    let counted = metrics.lines().find(|line| line.starts_with("walsync_durable_after_seconds_count"));
    assert!(counted.is_some_and(|line| !line.ends_with(" 0")), "{metrics}");
    // Nobody there, and nobody named.
    let mut nobody = walsync();
    let (done, text) =
        said(&nobody.args(["status", &format!("--listen=http://127.0.0.1:{}", free_port())]).output().unwrap());
    assert!(!done && text.contains("is walsync at work there"), "{text}");
    assert_eq!(walsync().arg("status").output().unwrap().status.code(), Some(2));
    let mistyped = walsync().args(["status", "--lisen=http://127.0.0.1:1"]).output().unwrap();
    let text = String::from_utf8(mistyped.stderr).unwrap();
    assert!(text.contains("a similar argument exists: '--listen'") && text.lines().count() == 1, "{text}");
    application.close();
    scene.walsync.kill();
}

/// The answer's head, long before the store is given up.
fn answers_at_once(port: u16, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn a_store_that_is_silent_at_the_start_keeps_neither_probes_nor_the_end_waiting() {
    let folder = folder();
    let database = folder.path().join("app.db");
    let application = Application::start(&database, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)");
    // Connections are taken by the kernel, and nobody ever reads.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free_port();
    let mut command = walsync();
    command.arg("watch").arg(&database).args(["--to", "s3://bucket", "--interval-millis", "50"]);
    command.arg(format!("--endpoint=http://{}", silent.local_addr().unwrap()));
    command.arg(format!("--listen=http://127.0.0.1:{port}"));
    command.envs([("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "secret")]);
    let walsync = Walsync::start(command, &folder.path().join("log"));
    until("its start", || walsync.log().contains("watching"));
    let _asked = silent.accept().unwrap();
    for path in ["/livez", "/readyz", "/metrics", "/status"] {
        assert!(answers_at_once(port, path).contains(" 200 "), "{path}");
    }
    let began = Instant::now();
    assert!(!walsync.terminate().success(), "nothing is durable");
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    application.close();
}

/// A replicator of what the arguments say, with an address, that has said that it watches.
fn watch(folder: &TempDir, databases: &[&str]) -> Scene {
    let port = free_port();
    let mut command = walsync();
    command.current_dir(folder.path()).arg("watch").args(databases).args(["--to", "store", "--interval-millis", "50"]);
    command.arg(format!("--listen=http://127.0.0.1:{port}"));
    let walsync = Walsync::start(command, &folder.path().join("log"));
    until("its start", || walsync.log().contains("watching"));
    Scene { walsync, folder: harness::folder(), database: folder.path().join("none"), port }
}

/// Lines of the log about a file with these words.
fn lines(scene: &Scene, file: &str, words: &str) -> usize {
    scene.walsync.log().lines().filter(|line| line.contains(file) && line.contains(words)).count()
}

#[test]
fn what_is_not_replicated_is_told_once_at_the_start_and_when_it_changes() {
    let folder = folder();
    std::fs::write(folder.path().join("text.db"), "no database, however long one reads it".repeat(10)).unwrap();
    std::fs::write(folder.path().join("empty.db"), "").unwrap();
    let old = rusqlite::Connection::open(folder.path().join("old.db")).unwrap();
    old.execute_batch("CREATE TABLE t(a)").unwrap();
    let scene = watch(&folder, &["text.db", "old.db", "none.db", "empty.db", "later-*.db"]);
    let expected = [
        ("text.db", "refused: the file is not an SQLite database, or is encrypted"),
        ("old.db", "refused: the database is not in WAL mode; its application must set PRAGMA journal_mode=WAL"),
        ("none.db", "waiting: there is no such file"),
        ("empty.db", "waiting: it is still empty"),
        ("later-*.db", "waiting: no file matches"),
    ];
    let status = || said(&scene.ask("status", &[])).1;
    let told = |file: &str, state: &str| status().lines().any(|line| line.contains(&format!("{file}\t{state}\t0\t-")));
    for (file, state) in expected {
        until(state, || told(file, state));
        let why = state.split_once(": ").unwrap().1;
        assert_eq!(lines(&scene, file, why), 1, "{}", scene.walsync.log());
    }
    assert!(status().lines().any(|line| line.contains("empty.db") && line.ends_with("\t0.000")), "nothing is at risk");
    // Each comes to be one that is replicated.
    let of = |name: &str| rusqlite::Connection::open(folder.path().join(name)).unwrap();
    old.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE u(a)").unwrap();
    let others = ["none.db", "empty.db", "later-1.db"].map(of);
    others.iter().for_each(|one| one.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t(a)").unwrap());
    for file in ["old.db", "none.db", "empty.db", "later-1.db"] {
        until(file, || status().lines().any(|line| line.contains(&format!("{file}\trunning"))));
        assert_eq!(lines(&scene, file, "replicating"), 1, "{}", scene.walsync.log());
    }
    assert!(!status().contains("later-*.db") && lines(&scene, "later-*.db", "files match now") == 1);
    // Said once, however often it was looked at.
    assert_eq!(lines(&scene, "text.db", "not an SQLite database"), 1, "{}", scene.walsync.log());
    drop((old, others));
    std::fs::remove_file(folder.path().join("old.db")).unwrap();
    until("a database that is gone", || told_again(&status(), "old.db"));
    // What a pattern stands for and that is gone is watched no more, until there is such a file again.
    let later = folder.path().join("later-1.db");
    std::fs::remove_file(&later).unwrap();
    until("it being let go of", || !status().contains("later-1.db"));
    assert!(status().contains("later-*.db\twaiting: no file matches"), "{}", status());
    assert!(told_again(&status(), "old.db"), "what was named is waited for");
    let again = of("later-1.db");
    again.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t(a)").unwrap();
    until("it being found", || status().lines().any(|line| line.contains("later-1.db\trunning")));
    drop(again);
    scene.walsync.kill();
}

fn told_again(status: &str, file: &str) -> bool {
    status.lines().any(|line| line.contains(&format!("{file}\twaiting: there is no such file")))
}

#[test]
fn where_there_is_nothing_to_watch_and_nothing_can_come_it_ends_at_once() {
    let folder = folder();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("walsync.yml", "store: file:///nowhere\ndatabases: []\n");
    write("litestream.yml", "dbs: []\n");
    let said = |arguments: &[&str]| {
        let output = walsync().current_dir(folder.path()).args(arguments).output().unwrap();
        (output.status.code(), said(&output).1)
    };
    for (arguments, expected) in [
        (&["watch", "--config", "walsync.yml"][..], "databases: names none"),
        (&["replicate", "-config", "litestream.yml"], "dbs: names no database"),
        (&["watch", ".", "--to", "store"], ". is a folder: name its databases, as in ./*.db"),
    ] {
        let (code, text) = said(arguments);
        assert!(code == Some(2) && text.contains(expected), "{arguments:?}: {code:?} {text}");
    }
    let (code, text) = said(&["snapshot", "*.none", "--to", "store"]);
    assert!(code == Some(1) && text.contains("no file matches"), "{code:?} {text}");
}

#[test]
fn every_query_of_the_dashboard_has_its_metric_and_every_metric_its_query() {
    let folder = folder();
    let config = folder.path().join("walsync.yml");
    let here = folder.path().display();
    let text = format!(
        "store: file://{here}/store\nrestore-drill: {{folder: {here}}}\ndatabases: [{{path: {here}/app.db}}]\n"
    );
    std::fs::write(&config, text).unwrap();
    let _application = Application::start(&folder.path().join("app.db"), "CREATE TABLE t(id INTEGER PRIMARY KEY)");
    let port = free_port();
    let mut command = walsync();
    command.arg("watch").arg("--config").arg(&config).arg(format!("--listen=http://127.0.0.1:{port}"));
    let mut watching = Walsync::start(command, &folder.path().join("log"));
    watching.wait_durable(1);
    // What has a sample for each of some databases has none where all is well: its type is told all the same.
    let said = metrics_at(port).replace("# TYPE ", "");
    harness::dashboard::check("services/walsync.json", "walsync_", &said);
    harness::dashboard::check_rules("services/walsync-rules.yaml", "walsync_", &said);
    watching.stop();
}
