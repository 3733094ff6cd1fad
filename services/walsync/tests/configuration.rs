//! One configuration for all verbs: a bound on uploads holds while databases change, and who lost everything but the file restores by it.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{folder, free_port};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{Application, Walsync, content, walsync};

#[test]
#[ignore = "the body of child processes, started by the other tests"]
fn application_process() {
    support::application_process();
}

const TABLE: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)";

/// The verb with this configuration.
fn verb(words: &[&str], config: &Path) -> Command {
    let mut command = walsync();
    command.args(words).arg("--config").arg(config);
    command
}

#[test]
fn databases_that_change_all_the_time_are_sent_as_rarely_as_the_bound_wants_and_who_asks_at_once() {
    let folder = folder();
    let (config, store) = (folder.path().join("walsync.yml"), folder.path().join("store"));
    let paths = ["a.db", "b.db"].map(|name| folder.path().join(name));
    // One upload in 400 ms.
    let text = format!(
        "store: file://{}\ninterval-millis: 25\nuploads-a-month-max: {}\nlevels-millis: []\ndatabases: [{{path: {}/*.db}}]\n",
        store.display(),
        31 * 86_400 * 10 / 4,
        folder.path().display()
    );
    std::fs::write(&config, text).unwrap();
    let mut applications = paths.each_ref().map(|path| Application::start(path, TABLE));
    let listen = format!("http://127.0.0.1:{}", free_port());
    let mut watch = verb(&["watch"], &config);
    watch.arg(format!("--listen={listen}"));
    let mut watching = Walsync::start(watch, &folder.path().join("log"));
    watching.wait_durable(1);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        applications.iter_mut().for_each(|one| one.run("INSERT INTO t(v) VALUES (randomblob(100))"));
        std::thread::sleep(Duration::from_millis(10));
    }
    let sent = watching.log().lines().filter(|line| line.contains(" durable ")).count();
    let most = began.elapsed().as_millis() as usize / 400 + 4;
    assert!((4..=most).contains(&sent), "{sent} of at most {most} objects");
    // Everybody waits for those two, and they for nobody.
    let began = Instant::now();
    for path in &paths {
        let asked = walsync().arg("sync").arg(path).arg(format!("--listen={listen}")).output().unwrap();
        assert!(asked.status.success(), "{asked:?}");
    }
    assert!(began.elapsed() < Duration::from_millis(700), "{:?}", began.elapsed());
    let explained = harness::output(&mut verb(&["explain"], &config));
    assert!(explained.contains("if all databases change all the time, each is sent every 0.8 s"), "{explained}");
    watching.stop();

    let states = paths.each_ref().map(|path| content(path));
    applications.into_iter().for_each(Application::close);
    for (path, state) in paths.iter().zip(&states) {
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(walsync::database::with_suffix(path, suffix));
        }
        let name = path.to_str().unwrap();
        harness::output(&mut verb(&["list", name], &config));
        let whole = harness::output(&mut verb(&["verify", name], &config));
        let sampled = harness::output(&mut verb(&["verify", name, "--sample", "2"], &config));
        assert!(whole.contains(" files, ") && sampled.starts_with("2 of "), "{whole}{sampled}");
        // As an init container does at every start.
        let restore = &["restore", name, "--if-db-not-exists", "--if-replica-exists"];
        harness::output(&mut verb(restore, &config));
        assert!(std::fs::read(path).unwrap() == *state, "{name}");
    }
    let again = harness::output(&mut verb(&["restore", paths[0].to_str().unwrap(), "--if-db-not-exists"], &config));
    assert!(again.contains("is there already: nothing was restored"), "{again}");
    let new = folder.path().join("new.db");
    let none = harness::output(&mut verb(&["restore", new.to_str().unwrap(), "--if-replica-exists"], &config));
    assert!(none.contains("there is no replica yet") && !new.exists(), "{none}");
    let url = format!("file://{}/a.db", store.display());
    let nowhere = verb(&["restore", &url], &config).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(2), "{nowhere:?}");
    harness::output(&mut verb(&["verify", &url], &config));
    let refused = verb(&["list", "/elsewhere/a.db"], &config).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(2) && said.contains("has no database /elsewhere/a.db"), "{said}");
}

#[test]
fn the_drills_of_the_readme_have_a_folder_under_the_service_of_the_examples() {
    let read = |name: &str| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap();
    let (readme, unit) = (read("README.md"), read("examples/walsync.service"));
    let drills = readme.split_once("restore-drill:").unwrap().1;
    let folder = drills.split_once("folder: ").unwrap().1.split_whitespace().next().unwrap();
    let words = |word: &str| unit.lines().find_map(|line| line.strip_prefix(word)).unwrap_or_default();
    // What systemd makes for the user of the unit; it hides what is below /tmp and /var/tmp.
    let mut made = words("StateDirectory=").split(' ').map(|name| Path::new("/var/lib").join(name));
    assert!(made.any(|made| made == Path::new(folder)), "{folder}");
    assert!(words("ProtectSystem=") != "strict" || unit.contains("ReadWritePaths=/backup"));
}

#[test]
fn a_sample_of_a_replica_that_lacks_a_file_tells_of_the_hole_whatever_was_read() {
    let folder = folder();
    let (database, store) = (folder.path().join("a.db"), folder.path().join("store"));
    let mut application = Application::start(&database, TABLE);
    let mut watching = Walsync::watch(&[&database], &store, &folder.path().join("log"));
    for txid in 1..=4 {
        watching.wait_durable(txid);
        application.run("INSERT INTO t(v) VALUES (randomblob(100))");
    }
    watching.stop();
    let place = format!("file://{}/a.db", store.display());
    let sample = || walsync().args(["verify", &place, "--sample=1"]).output().unwrap();
    assert!(sample().status.success());
    let key = ltx::Layout::Files.key(0, ltx::FileName { min_txid: 3, max_txid: 3 });
    std::fs::remove_file(store.join("a.db").join(key)).unwrap();
    let output = sample();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("1 of "), "{said}");
}
