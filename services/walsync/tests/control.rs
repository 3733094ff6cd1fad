//! `status` and `sync`, which ask a replicator at work, and what its metrics say of commits at risk.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{TempDir, folder, free_port, until};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::Output;
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
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }
}

fn said(output: &Output) -> (bool, String) {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
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
    assert!(!done && text.contains("none.db: waiting: "), "{text}");
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
    application.close();
    scene.walsync.kill();
}
