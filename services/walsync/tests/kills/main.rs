//! kill -9 of walsync in the place of each of its system calls that do something outside of the process: whatever it leaves behind is
//! restored to a commit that is not older than the last one called durable, and the next walsync goes on from there.
//!
//! A few of the calls, spread over the run, unless `WALSYNC_KILLS` says how many at most in each scene (0: each, until a run ends
//! without having been hit); `WALSYNC_CALLS=all` counts also those that only read or wait.

// Helpers outside #[test] functions are test code all the same. The tracer knows the registers of one architecture.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(target_arch = "x86_64")]

#[path = "../support/mod.rs"]
mod support;
mod tracer;

use harness::{TempDir, folder, free_port, until};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::gateway::{Gateway, with_credentials};
use support::{Application, Walsync, content};
use tracer::{Calls, End, Tally, Traced};
use walsync::chain::Chain;
use walsync::config::{Location, S3Options};
use walsync::follow::Note;
use walsync::replica::Replica;
use walsync::restore::{RestoreError, Target, restore};

#[test]
#[ignore = "the body of child processes, started by the other tests"]
fn application_process() {
    support::application_process();
}

#[test]
#[ignore = "the body of child processes, started by the other tests"]
fn tracer_process() {
    tracer::tracer_process();
}

/// Kills in each scene, where nobody says how many.
const KILLS: u64 = 24;
const TABLE: &str = "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v BLOB)";
/// Nothing of what was is kept for long.
const RETENTION: &str =
    "{uploads-seconds: 0, merged-seconds: 0, hourly: 1, daily: 1, weekly: 1, monthly: 1, grace-seconds: 0}";
const STEPS: &[&str] = &[
    "INSERT INTO t(v) VALUES (randomblob(3000))",
    "UPDATE t SET v = randomblob(700) WHERE id % 2 = 1",
    "PRAGMA wal_checkpoint(TRUNCATE)",
    "INSERT INTO t(v) VALUES (randomblob(90000))",
    "VACUUM",
    "DELETE FROM t WHERE id = 2",
];

/// The program itself: the kernel kills it with its tracer.
fn walsync() -> Command {
    Command::new(env!("CARGO_BIN_EXE_walsync"))
}

fn log_of(folder: &Path) -> std::fs::File {
    std::fs::OpenOptions::new().create(true).append(true).open(folder.join("log")).unwrap()
}

/// Runs a scene with kills in ever later places, until it ends without one. The scene is told the place, counted from 1, and says how the
/// program ended.
fn kill_everywhere(name: &str, mut scene: impl FnMut(u64, Calls) -> End) {
    let set = |name| std::env::var(name).ok();
    let calls = if set("WALSYNC_CALLS").as_deref() == Some("all") { Calls::All } else { Calls::Effects };
    let most = set("WALSYNC_KILLS").map_or(KILLS, |kills| kills.parse().expect("WALSYNC_KILLS is a number"));
    let End::Exited(0, count) = scene(u64::MAX, calls) else { panic!("{name}: it fails by itself") };
    let stride = if most == 0 { 1 } else { count.div_ceil(most).max(1) };
    let mut tally = Tally::default();
    for place in (stride.div_ceil(2)..).step_by(stride as usize) {
        match scene(place, calls) {
            End::KilledAt(call) => tally.add(call),
            End::Exited(code, _) => {
                assert_eq!(code, 0, "{name}: place {place}");
                break;
            }
        }
    }
    println!("{name}, {count} calls: {tally}");
    assert!(tally.total() >= 5, "{name}: {tally}");
}

/// A database that is watched, its replica in a folder, and all states that the database ever had.
struct Scene {
    folder: TempDir,
    application: Application,
    states: Vec<Vec<u8>>,
    /// The state that was called durable last.
    durable: Option<usize>,
    port: u16,
    replica: Replica,
}

impl Scene {
    /// With its replica in a folder.
    fn new() -> Scene {
        let folder = folder();
        let store = format!("file://{}", folder.path().join("store").display());
        Scene::with(folder, &store, &S3Options::default())
    }

    fn with(folder: TempDir, store: &str, s3: &S3Options) -> Scene {
        let database = folder.path().join("app.db");
        let endpoint =
            s3.endpoint.as_ref().map_or(String::new(), |endpoint| format!("s3: {{endpoint: \"{endpoint}\"}}\n"));
        // Everything happens within a second: merging, snapshots, and what retention removes.
        let config = format!(
            "store: {store}\n{endpoint}interval-millis: 50\nlevels-millis: [60, 150]\nsnapshot-interval-seconds: 1\n\
             retention: {RETENTION}\ndatabases: [{{path: {}}}]\n",
            database.display()
        );
        std::fs::write(folder.path().join("walsync.yml"), config).unwrap();
        let application = Application::start(&database, TABLE);
        let replica = Location::open(store, s3).unwrap().replica("app.db");
        let mut scene = Scene { application, states: Vec::new(), durable: None, port: free_port(), replica, folder };
        scene.remember();
        scene
    }

    fn database(&self) -> PathBuf {
        self.folder.path().join("app.db")
    }

    fn watch(&self) -> Command {
        let mut command = walsync();
        command.arg("watch").arg("--config").arg(self.folder.path().join("walsync.yml"));
        command.arg(format!("--listen=http://127.0.0.1:{}", self.port));
        with_credentials(&mut command);
        command
    }

    fn remember(&mut self) {
        let state = content(&self.database());
        if self.states.last() != Some(&state) {
            self.states.push(state);
        }
    }

    fn run(&mut self, sql: &str) {
        self.application.run(sql);
        self.remember();
    }

    /// Asks for everything to be durable; whether the answer was that it is.
    fn sync(&mut self) -> bool {
        let ask = || -> std::io::Result<bool> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
            let path = self.database();
            let request =
                format!("GET /sync?database={} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path.display());
            stream.write_all(request.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            // Nothing of it, or half a line, is no answer.
            assert!(!answer.contains("HTTP/1.1 ") || answer.starts_with("HTTP/1.1 200"), "{answer}");
            Ok(answer.starts_with("HTTP/1.1 200") && answer.ends_with('\n'))
        };
        let done = ask().unwrap_or(false);
        if done {
            self.durable = Some(self.states.len() - 1);
        }
        done
    }

    /// Every point of the replica is a state of the database, and the newest is not older than what was called durable.
    fn judge(&self, when: &str) {
        let output = self.folder.path().join("restored.db");
        let restored = |target| -> Result<usize, RestoreError> {
            let _ = std::fs::remove_file(&output);
            restore(&self.replica, target, &output, true)?;
            let bytes = std::fs::read(&output).unwrap();
            let state = self.states.iter().rposition(|state| *state == bytes);
            Ok(state.unwrap_or_else(|| panic!("{when}: {target:?} is no state that there was")))
        };
        match (restored(Target::Latest), self.durable) {
            (Ok(state), durable) => assert!(durable <= Some(state), "{when}: {durable:?}, and {state} is restored"),
            (Err(RestoreError::Empty), None) => return,
            (Err(error), _) => panic!("{when}: {error}"),
        }
        let chain = || Chain::new(self.replica.files().unwrap());
        let points: Vec<u64> = chain().restorable().collect();
        for point in points {
            // Whoever is at work may have removed it meanwhile.
            if let Err(error) = restored(Target::Txid(point)) {
                assert!(!chain().is_restorable(point), "{when}, TXID {point}: {error}");
            }
        }
    }
}

/// A life of a replicator that is killed in one place, and of the next one.
fn watched(mut scene: Scene, place: u64, calls: Calls) -> End {
    let mut traced = Traced::start(&scene.watch(), place, calls, log_of(scene.folder.path()));
    let address = ("127.0.0.1", scene.port);
    until("its answer", || TcpStream::connect(address).is_ok() || traced.is_over());
    for step in STEPS {
        scene.run(step);
        if !scene.sync() {
            break;
        }
    }
    // Time for what is done behind the newest file.
    std::thread::sleep(std::time::Duration::from_millis(150));
    traced.terminate();
    let end = traced.end();
    let when = format!("place {place}, {end:?}");
    if matches!(end, End::Exited(0, _)) {
        scene.durable = Some(scene.states.len() - 1);
    }
    scene.judge(&when);
    // What nobody saw: commits, and every other time a check point that copies and drops them.
    scene.run("INSERT INTO t(v) VALUES (randomblob(2000))");
    if place.is_multiple_of(2) {
        scene.run("PRAGMA wal_checkpoint(TRUNCATE)");
        scene.run("INSERT INTO t(v) VALUES (randomblob(50))");
    }
    let next = Walsync::start(scene.watch(), &scene.folder.path().join("log"));
    until("an answer of the next one", || TcpStream::connect(address).is_ok());
    scene.run("UPDATE t SET v = randomblob(30) WHERE id = 1");
    assert!(scene.sync(), "{when}: {}", next.log());
    scene.judge(&format!("{when}, after the next one"));
    next.stop();
    scene.durable = Some(scene.states.len() - 1);
    scene.judge(&format!("{when}, in the end"));
    end
}

#[test]
fn a_replicator_that_is_killed_anywhere_has_told_the_truth_and_is_followed_by_another() {
    kill_everywhere("watch", |place, calls| watched(Scene::new(), place, calls));
}

#[test]
fn a_replicator_into_s3_that_is_killed_anywhere_has_told_the_truth_and_is_followed_by_another() {
    let gateway = Gateway::start();
    let mut scenes = 0;
    kill_everywhere("watch, S3", |place, calls| {
        scenes += 1;
        watched(Scene::with(folder(), &format!("s3://bucket/{scenes}"), &gateway.options()), place, calls)
    });
}

#[test]
fn a_restore_that_is_killed_anywhere_leaves_nothing_or_everything_and_is_run_again() {
    let mut scene = Scene::new();
    let watching = Walsync::start(scene.watch(), &scene.folder.path().join("log"));
    until("its answer", || TcpStream::connect(("127.0.0.1", scene.port)).is_ok());
    for step in STEPS {
        scene.run(step);
        assert!(scene.sync(), "{}", watching.log());
    }
    watching.stop();
    let expected = content(&scene.database());
    let url = format!("file://{}", scene.folder.path().join("store/app.db").display());
    kill_everywhere("restore", |place, calls| {
        let into = folder();
        let output = into.path().join("out.db");
        let mut command = walsync();
        command.args(["restore", &url, "-o"]).arg(&output);
        let end = Traced::start(&command, place, calls, log_of(scene.folder.path())).end();
        if output.exists() {
            assert!(std::fs::read(&output).unwrap() == expected, "place {place}: half of a database");
            std::fs::remove_file(&output).unwrap();
        } else {
            assert!(matches!(end, End::KilledAt(_)), "place {place}: {end:?}");
        }
        harness::output(&mut command);
        assert!(std::fs::read(&output).unwrap() == expected, "place {place}: the second time");
        let names: Vec<_> = std::fs::read_dir(into.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["out.db"], "place {place}");
        end
    });
}

#[test]
fn a_removal_that_is_killed_anywhere_takes_nothing_that_is_needed() {
    let mut scene = Scene::new();
    let (store, config) = (scene.folder.path().join("store"), scene.folder.path().join("compact.yml"));
    let text = format!(
        "store: file://{}\nlevels-millis: []\nretention: {RETENTION}\ndatabases: [{{path: {}}}]\n",
        store.display(),
        scene.database().display()
    );
    std::fs::write(&config, text).unwrap();
    for step in STEPS {
        scene.run(step);
        harness::output(walsync().arg("snapshot").arg("--config").arg(&config));
    }
    scene.durable = Some(scene.states.len() - 1);
    let whole = scene.folder.path().join("whole");
    std::fs::rename(&store, &whole).unwrap();
    let url = format!("file://{}", store.join("app.db").display());
    kill_everywhere("compact", |place, calls| {
        let _ = std::fs::remove_dir_all(&store);
        harness::output(Command::new("cp").arg("-a").arg(&whole).arg(&store));
        let mut command = walsync();
        command.args(["compact", &url, "--force", "--watched-by"]).arg(&config);
        let end = Traced::start(&command, place, calls, log_of(scene.folder.path())).end();
        scene.judge(&format!("place {place}, {end:?}"));
        harness::output(&mut command);
        scene.judge(&format!("place {place}, the second time"));
        end
    });
}

/// Without the bytes that SQLite itself writes into page 1 of a copy.
fn without_counters(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[24..28].fill(0);
    bytes[92..100].fill(0);
    bytes
}

#[test]
fn a_follower_that_is_killed_anywhere_leaves_a_state_that_there_was_and_is_followed_by_another() {
    let mut scene = Scene::new();
    let (store, first) = (scene.folder.path().join("store/app.db"), scene.folder.path().join("first"));
    let copy = |from: &Path, to: &Path| {
        std::fs::create_dir_all(to).unwrap();
        harness::output(Command::new("cp").arg("-aT").arg(from).arg(to));
    };
    for (number, step) in STEPS.iter().enumerate() {
        let watching = Walsync::start(scene.watch(), &scene.folder.path().join("log"));
        until("its answer", || TcpStream::connect(("127.0.0.1", scene.port)).is_ok());
        scene.run(step);
        assert!(scene.sync(), "{}", watching.log());
        watching.stop();
        if number == 1 {
            copy(&store, &first);
        }
    }
    let newest = scene.replica.files().unwrap().iter().map(|file| file.name.max_txid).max();
    let states: Vec<Vec<u8>> = scene.states.iter().cloned().map(without_counters).collect();
    kill_everywhere("follow", |place, calls| {
        let into = folder();
        let (live, output) = (into.path().join("live"), into.path().join("out.db"));
        copy(&first, &live);
        let mut command = walsync();
        command.args(["restore", "--follow", "--follow-interval-millis", "20"]).arg(&live).arg("-o").arg(&output);
        let applied = || Note::read(&output).unwrap().filter(|note| note.applying.is_none()).map(|note| note.applied);
        let mut traced = Traced::start(&command, place, calls, log_of(scene.folder.path()));
        until("the first restore", || output.exists() || traced.is_over());
        copy(&store, &live);
        until("the newest state", || output.exists() && applied() == newest || traced.is_over());
        traced.terminate();
        let end = traced.end();
        if output.exists() {
            let state = without_counters(content(&output));
            assert!(states.contains(&state), "place {place}, {end:?}: no state that there was");
        }
        let next = Walsync::start(command, &into.path().join("log"));
        until("the newest state, of the next one", || output.exists() && applied() == newest);
        next.stop();
        assert!(without_counters(content(&output)) == states[states.len() - 1], "place {place}, {end:?}: in the end");
        end
    });
}
