//! A date that steps: what a restore by time says then, and what retention removes.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::folder;
use ltx::Layout;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};
use support::{Application, SetClock};
use walsync::clock::{BelievedDate, Clock};
use walsync::replica::Replica;
use walsync::replicator::{Replicator, Settings};
use walsync::restore::{Target, restore};
use walsync::retention::Policy;
use walsync::store::files::FileStore;

#[test]
#[ignore = "the application of other tests"]
fn application_process() {
    support::application_process();
}

const TABLE: &str = "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v BLOB)";
const INSERT: &str = "INSERT INTO t(v) VALUES (randomblob(900))";
const LONG: Duration = Duration::from_secs(60);
const DAY: i64 = 86_400_000;

fn now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as i64
}

/// A database that is replicated into a folder by a machine whose date is set.
struct Machine {
    folder: tempfile::TempDir,
    clock: Arc<SetClock>,
    application: Application,
}

impl Machine {
    fn new() -> Machine {
        let folder = folder();
        let application = Application::start(&folder.path().join("app.db"), TABLE);
        Machine { folder, clock: Arc::default(), application }
    }

    fn replica(&self) -> Replica {
        Replica::new(Arc::new(FileStore::new(self.folder.path().join("store"))), Layout::Files, "")
    }

    fn start(&self, settings: Settings, millis: i64) -> Replicator {
        self.clock.set(millis);
        let replicator = Replicator::start(settings, self.clock.clone()).unwrap();
        replicator.add(self.folder.path().join("app.db"), self.replica());
        replicator
    }

    /// A commit at each of these times, and the transaction of each.
    fn commit(&mut self, replicator: &Replicator, times: impl IntoIterator<Item = i64>) -> Vec<u64> {
        let mut commit = |millis| {
            self.clock.set(millis);
            self.application.run(INSERT);
            assert!(replicator.sync(LONG));
            replicator.status()[0].durable_txid
        };
        times.into_iter().map(&mut commit).collect()
    }

    fn restored(&self, target: Target) -> Result<u64, String> {
        let output = self.folder.path().join("restored.db");
        let _ = std::fs::remove_file(&output);
        restore(&self.replica(), target, &output, false)
            .map(|restored| restored.txid)
            .map_err(|error| error.to_string())
    }
}

fn settings() -> Settings {
    Settings { interval: Duration::from_millis(50), levels: Vec::new(), retention: None, ..Settings::default() }
}

#[test]
fn a_restore_by_time_does_not_give_an_old_state_after_a_clock_that_was_ahead() {
    let mut machine = Machine::new();
    let begin = now() - 600_000;
    let replicator = machine.start(settings(), begin);
    let at = |seconds: i64| begin + seconds * 1000;
    let before = machine.commit(&replicator, [1, 2, 3].map(at));
    machine.commit(&replicator, [4, 5].map(|seconds| at(seconds) + 3 * DAY));
    let after = machine.commit(&replicator, [66, 67, 68].map(at));
    assert_eq!(machine.restored(support::time(at(67))), Ok(after[1]));
    assert_eq!(machine.restored(support::time(at(2))), Ok(before[1]));
    assert_eq!(machine.restored(support::time(now())), Ok(after[2]));
    // Of those that were committed meanwhile nobody knows when.
    let error = machine.restored(support::time(at(30))).unwrap_err();
    assert!(error.contains(&format!("TXID {} to {}", before[2], after[0] - 1)), "{error}");
}

#[test]
fn a_restore_by_time_names_both_points_that_a_step_of_the_past_makes_of_one_time() {
    for step in [3 * DAY, -3 * DAY] {
        let mut machine = Machine::new();
        let begin = now() - 30 * DAY;
        let replicator = machine.start(settings(), begin);
        let at = |seconds: i64| begin + seconds * 1000;
        let before = machine.commit(&replicator, [1, 2, 3].map(at));
        let stepped = machine.commit(&replicator, [4, 5].map(|seconds| at(seconds) + step));
        let after = machine.commit(&replicator, [66, 67, 68].map(at));
        let (asked, first, last) = match step {
            ..0 => (at(2), before[1], stepped[1]),
            _ => (at(67), before[2], after[1]),
        };
        let error = machine.restored(support::time(asked)).unwrap_err();
        assert!(error.contains(&format!("TXID {first} to {last}")), "{step}: {error}");
        assert_eq!(machine.restored(Target::Txid(last)), Ok(last));
    }
}

#[test]
fn a_restore_by_time_tells_that_times_are_of_the_future() {
    let mut machine = Machine::new();
    let begin = now() - 600_000;
    let replicator = machine.start(settings(), begin);
    let before = machine.commit(&replicator, [begin + 1000]);
    let ahead = machine.commit(&replicator, [begin + 3 * DAY, begin + 3 * DAY + 1000]);
    let error = machine.restored(support::time(now())).unwrap_err();
    assert!(error.contains(&format!("TXID {} to {}", before[0], ahead[1])), "{error}");
    assert_eq!(machine.restored(Target::Latest), Ok(ahead[1]));
}

fn points(machine: &Machine) -> usize {
    walsync::chain::Chain::new(machine.replica().files().unwrap()).restorable().count()
}

#[test]
fn a_date_that_was_ahead_for_a_moment_thins_nothing() {
    let policy = Policy { uploads: Duration::from_secs(3600), ..Policy::default() };
    let settings = || Settings { retention: Some(policy.clone()), ..settings() };
    let mut machine = Machine::new();
    let begin = now() - 600_000;
    // Each point is whole by itself: none is kept for the sake of another.
    let replicator = machine.start(Settings { snapshot_interval: Duration::ZERO, ..settings() }, begin);
    machine.commit(&replicator, (1..=12).map(|second| begin + second * 1000));
    machine.commit(&replicator, [begin + 3 * DAY, begin + 3 * DAY + 1000]);
    drop(replicator);
    let all = points(&machine);
    // Retention looks anew at once.
    let replicator = machine.start(settings(), begin + 66_000);
    machine.commit(&replicator, [begin + 67_000]);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!((replicator.totals().removed.load(Ordering::Relaxed), points(&machine)), (0, all + 1));
}

struct At(Duration, i64);

impl Clock for At {
    fn monotonic(&self) -> Duration {
        self.0
    }

    fn unix_millis(&self) -> i64 {
        self.1
    }
}

#[test]
fn a_date_that_steps_ahead_is_believed_after_a_day_and_one_that_goes_back_at_once() {
    let believed = BelievedDate::default();
    let day = 86_400_000;
    let begin = 20_000 * day;
    let date = |seconds: u64, ahead| {
        let right = begin + seconds as i64 * 1000;
        believed.unix_millis(&At(Duration::from_secs(seconds), right + ahead)) - right
    };
    assert_eq!([date(1, 0), date(10, 3 * day), date(20, 0), date(30, 59_000)], [0, 0, 0, 59_000]);
    assert_eq!([date(40, 0), date(50, 3 * day), date(86_400, 3 * day)], [0, 0, 0]);
    assert_eq!([date(86_450, 3 * day), date(86_460, 3 * day)], [3 * day, 3 * day]);
    assert_eq!([date(86_470, -day), date(86_480, 0)], [-day, -day]);
}
