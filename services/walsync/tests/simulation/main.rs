//! Lives of a replicator, by a seed: it is killed and started again, its application too, the power is cut and takes along what was not
//! synced, the date jumps, and the bucket answers 503, loses answers, keeps halves of objects, lists what was, or twice. Whatever
//! happens, a restore gives a commit that is not older than the last one called durable, or names the object that is damaged.
//!
//! A seed decides what happens to whom, and not how threads interleave: these are the replicator's own threads, files and
//! locks, with SQLite in a process of its own. `WALSYNC_SEEDS` says how many lives; 12 where it is not set.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod store;
#[path = "../support/mod.rs"]
mod support;

use harness::{Random, TempDir, folder, until};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use store::{Bucket, Connection};
use support::{Application, content};
use walsync::chain::Chain;
use walsync::clock::{Clock, SystemClock};
use walsync::database::with_suffix;
use walsync::replica::Replica;
use walsync::replicator::{Phase, Replicator, Settings, Status};
use walsync::restore::{RestoreError, Target, restore};
use walsync::retention::Policy;
use walsync::store::Store;

#[test]
#[ignore = "the body of child processes, started by the other tests"]
fn application_process() {
    support::application_process();
}

/// Things that happen in a life.
const EVENTS: u32 = 30;
const LONG: Duration = Duration::from_secs(60);
const OPEN: &str = "PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=0; \
                    CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v BLOB)";
const SECTOR: usize = 512;

/// A date that jumps; time that passes as ever.
#[derive(Default)]
struct Jumping(SystemClock, AtomicI64);

impl Clock for Jumping {
    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    fn unix_millis(&self) -> i64 {
        self.0.unix_millis() + self.1.load(Ordering::Relaxed)
    }
}

/// What happened in all lives.
#[derive(Debug, Default)]
struct Tally {
    commits: u64,
    syncs: u64,
    kills_of_walsync: u64,
    kills_of_the_application: u64,
    power_cuts: u64,
    faults: u64,
    torn_objects: u64,
    stale_lists: u64,
    fenced: u64,
    restores: u64,
    restores_that_named_damage: u64,
}

struct Life<'a> {
    seed: u64,
    random: Random,
    folder: TempDir,
    bucket: Arc<Bucket>,
    clock: Arc<Jumping>,
    application: Option<Application>,
    replicator: Option<(Replicator, Connection)>,
    /// All that the database ever held, in order.
    states: Vec<Vec<u8>>,
    /// The one that was called durable last.
    durable: Option<usize>,
    /// The WAL as it was last synced, and the database file of then.
    synced: (Option<Vec<u8>>, Vec<u8>),
    /// Old lists that were given before the replicator of now.
    stale_before: u64,
    tally: &'a mut Tally,
}

impl Life<'_> {
    fn begin(seed: u64, tally: &mut Tally) -> Life<'_> {
        let (mut random, folder) = (Random::new(seed), folder());
        let page_size = random.pick(&[512, 1024, 4096]);
        // The size of pages is nothing that changes in WAL mode.
        let sized =
            format!("PRAGMA journal_mode=DELETE; PRAGMA page_size={page_size}; VACUUM; PRAGMA journal_mode=WAL");
        let application = Application::start(&folder.path().join("app.db"), &format!("{sized}; {OPEN}"));
        let mut life = Life {
            seed,
            random,
            folder,
            bucket: Arc::default(),
            clock: Arc::default(),
            application: Some(application),
            replicator: None,
            states: Vec::new(),
            durable: None,
            synced: (None, Vec::new()),
            stale_before: 0,
            tally,
        };
        life.remember();
        life
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("app.db")
    }

    fn wal(&self) -> Option<Vec<u8>> {
        std::fs::read(with_suffix(&self.path(), "-wal")).ok()
    }

    fn remember(&mut self) {
        let state = content(&self.path());
        if self.states.last() != Some(&state) {
            self.states.push(state);
        }
    }

    fn run(&mut self, sql: &str) {
        self.application.as_mut().unwrap().run(sql);
        self.tally.commits += 1;
        self.remember();
    }

    fn statement(&mut self) -> String {
        let bytes = self.random.below(6000);
        match self.random.below(6) {
            0 => "VACUUM".into(),
            1 => "DELETE FROM t WHERE id % 3 = 1".into(),
            2 => format!("UPDATE t SET v = randomblob({}) WHERE id % 4 = 2", bytes / 10),
            _ => format!("INSERT INTO t(v) VALUES (randomblob({bytes})), (zeroblob({bytes}))"),
        }
    }

    fn check_point(&mut self) {
        let mode = self.random.pick(&["PASSIVE", "FULL", "RESTART", "TRUNCATE"]);
        self.application.as_mut().unwrap().run(&format!("PRAGMA wal_checkpoint({mode})"));
        // What is copied into the database was synced in the WAL before, and is in the database after.
        let database = std::fs::read(self.path()).unwrap();
        if database != self.synced.1 {
            self.synced = (self.wal(), database);
        }
    }

    /// Two commits without a pause, of a WAL that is let go of: one lies in it, the other restarts it.
    fn restart_behind_a_commit(&mut self) {
        let database = std::fs::read(self.path()).unwrap();
        let page_size = u64::from(u16::from_be_bytes([database[16], database[17]]));
        // More frames than a WAL may have that is held.
        self.run(&format!("INSERT INTO t(id, v) VALUES (-1, randomblob({}))", 1100 * page_size));
        self.run("DELETE FROM t WHERE id = -1");
        self.run("VACUUM");
        self.run("INSERT INTO t(v) VALUES (zeroblob(4))");
        self.sync();
        std::thread::sleep(Duration::from_millis(self.random.below(60)));
        // What there is in between is seen of a copy, where the same comes of this: it is written over in place.
        let first = "UPDATE t SET v = x'01020304' WHERE id = (SELECT max(id) FROM t)";
        let between = self.folder.path().join("between.db");
        for suffix in ["", "-wal"] {
            let _ = std::fs::copy(with_suffix(&self.path(), suffix), with_suffix(&between, suffix));
        }
        let copy = rusqlite::Connection::open(&between).unwrap();
        copy.execute_batch(&format!("PRAGMA wal_autocheckpoint=0; {first}")).unwrap();
        self.states.push(content(&between));
        drop(copy);
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(with_suffix(&between, suffix));
        }
        self.run(&format!("{first}; PRAGMA wal_checkpoint(PASSIVE); INSERT INTO t(v) VALUES (randomblob(100))"));
        self.synced = (self.wal(), std::fs::read(self.path()).unwrap());
        self.sync();
        self.judge();
    }

    /// Kills the application, perhaps in the middle of a transaction.
    fn kill_application(&mut self) {
        self.tally.kills_of_the_application += 1;
        let mut application = self.application.take().unwrap();
        if self.random.below(2) == 0 {
            application.begin("INSERT INTO t(v) VALUES (randomblob(40000))");
            std::thread::sleep(Duration::from_micros(self.random.below(3000)));
        }
        application.kill();
    }

    fn open_application(&mut self) {
        self.application = Some(Application::start(&self.path(), OPEN));
        self.remember();
    }

    /// Everything ends at once. Of what was written to the WAL since it was synced, each sector is there or not.
    fn cut_power(&mut self) {
        self.tally.power_cuts += 1;
        self.kill_replicator();
        self.kill_application();
        if let Some(new) = self.wal() {
            let old = self.synced.0.clone().unwrap_or_default();
            let header_is_new = new.get(..32) != old.get(..32);
            let sectors = new.len().max(old.len()).div_ceil(SECTOR);
            let in_order = self.random.below(2) == 0;
            let reached = self.random.below(sectors as u64 + 1) as usize;
            let mut disk = Vec::new();
            for sector in 0..sectors {
                let arrived = if in_order { sector < reached } else { self.random.below(2) == 0 };
                // SQLite syncs the header of a WAL that it begins anew.
                let from = if arrived || sector == 0 && header_is_new { &new } else { &old };
                let range = sector * SECTOR..(sector + 1) * SECTOR;
                disk.extend(range.map(|at| from.get(at).or_else(|| old.get(at)).copied().unwrap_or(0)));
            }
            disk.truncate(if self.random.below(2) == 0 {
                old.len().max(reached * SECTOR)
            } else {
                new.len().max(old.len())
            });
            std::fs::write(with_suffix(&self.path(), "-wal"), disk).unwrap();
        }
        let _ = std::fs::remove_file(with_suffix(&self.path(), "-shm"));
        self.open_application();
        self.synced = (self.wal(), std::fs::read(self.path()).unwrap());
    }

    fn start_replicator(&mut self) {
        let connection = Connection::new(&self.bucket);
        let seconds = |random: &mut Random, of: &[u64]| Duration::from_millis(random.pick(of));
        let policy = Policy {
            uploads: Duration::ZERO,
            merged: seconds(&mut self.random, &[0, 1000]),
            hourly: 2,
            daily: 1,
            weekly: 1,
            monthly: 1,
            // A restore takes milliseconds.
            grace: seconds(&mut self.random, &[500, 2000]),
        };
        let settings = Settings {
            interval: Duration::from_millis(30),
            snapshot_interval: seconds(&mut self.random, &[100, 3_600_000]),
            levels: vec![Duration::from_millis(60), Duration::from_millis(200)],
            retention: Some(policy),
            ..Settings::default()
        };
        let replicator = Replicator::start(settings, self.clock.clone()).unwrap();
        let replica = Replica::new(Arc::new(connection.clone()), ltx::Layout::Objects, "app.db");
        replicator.add(self.path(), replica);
        self.stale_before = self.bucket.stale_lists();
        self.replicator = Some((replicator, connection));
    }

    fn kill_replicator(&mut self) {
        if let Some((replicator, connection)) = self.replicator.take() {
            self.tally.kills_of_walsync += 1;
            connection.cut();
            drop(replicator);
        }
    }

    fn status(&self) -> Status {
        self.replicator.as_ref().unwrap().0.status().remove(0)
    }

    /// Good weather, until everything is durable.
    fn sync(&mut self) {
        self.bucket.set_weather(None);
        for _ in 0..4 {
            if self.replicator.is_none() {
                self.start_replicator();
            }
            let synced = self.replicator.as_ref().unwrap().0.sync(LONG);
            let status = self.status();
            match status.phase {
                Phase::Running => {
                    assert!(synced, "seed {}: not durable after {LONG:?}: {status:?}", self.seed);
                    self.durable = Some(self.states.len() - 1);
                    self.tally.syncs += 1;
                    return;
                }
                // What it wrote itself looks as if somebody else had, where half of it is there or an old list was believed.
                Phase::Fenced(_) => {
                    let has_met = self.bucket.stale_lists() > self.stale_before || !self.bucket.torn().is_empty();
                    assert!(has_met, "seed {}: {status:?}", self.seed);
                    self.tally.fenced += 1;
                    self.kill_replicator();
                }
                _ => panic!("seed {}: {status:?}", self.seed),
            }
        }
        panic!("seed {}: fenced again and again: {:?}", self.seed, self.bucket.torn());
    }

    fn restored(&mut self, store: Arc<dyn Store>, target: Target) -> Result<usize, RestoreError> {
        let output = self.folder.path().join("restored.db");
        let _ = std::fs::remove_file(&output);
        self.tally.restores += 1;
        restore(&Replica::new(store, ltx::Layout::Objects, "app.db"), target, &output, true)?;
        let bytes = std::fs::read(&output).unwrap();
        let state = self.states.iter().rposition(|state| *state == bytes);
        Ok(state.unwrap_or_else(|| panic!("seed {}: {target:?} is no state that there was", self.seed)))
    }

    /// What a restore gives now.
    fn judge(&mut self) {
        let (seed, durable) = (self.seed, self.durable);
        match self.restored(self.bucket.objects.clone(), Target::Latest) {
            Ok(state) => assert!(durable <= Some(state), "seed {seed}: {durable:?} is durable, {state} is restored"),
            Err(RestoreError::Empty) => assert_eq!(durable, None, "seed {seed}"),
            Err(error) => {
                let (text, torn) = (error.to_string(), self.bucket.torn());
                assert!(torn.iter().any(|key| text.contains(key.as_str())), "seed {seed}: {text}; torn: {torn:?}");
                self.tally.restores_that_named_damage += 1;
            }
        }
        // Through bad weather: what there was at some time, or an error.
        let connection = Arc::new(Connection::new(&self.bucket));
        let _ = self.restored(connection, Target::Latest);
    }

    fn event(&mut self) {
        match self.random.below(15) {
            0 => self.kill_replicator(),
            1 => {
                self.kill_application();
                self.open_application();
            }
            2 if self.random.below(2) == 0 => self.cut_power(),
            3 | 4 => self.check_point(),
            5 => {
                let day = 86_400_000;
                self.clock.1.store(self.random.below(2 * day) as i64 - day as i64, Ordering::Relaxed);
            }
            6 => {
                let weather = Random::new(self.random.draw());
                self.bucket.set_weather(Some(weather));
            }
            7 => {
                self.sync();
                self.judge();
            }
            8 => std::thread::sleep(Duration::from_millis(self.random.below(150))),
            9 => self.judge(),
            10 => self.restart_behind_a_commit(),
            _ => {
                let sql = self.statement();
                self.run(&sql);
                if self.replicator.is_none() && self.random.below(2) == 0 {
                    self.start_replicator();
                }
            }
        }
    }

    /// In good weather everything comes to rest: the newest point is what the database holds, and every other one what it held.
    fn end(mut self) {
        self.sync();
        // What is damaged is mended by a snapshot: of a database that changes one is taken in time, however far ahead the date once was.
        self.clock.1.store(3 * 86_400_000, Ordering::Relaxed);
        let seed = self.seed;
        until("a replica without damage", || {
            self.run("INSERT INTO t(v) VALUES (randomblob(10))");
            self.kill_replicator();
            self.sync();
            self.restored(self.bucket.objects.clone(), Target::Latest).is_ok_and(|state| state + 1 == self.states.len())
        });
        let replica = Replica::new(self.bucket.objects.clone(), ltx::Layout::Objects, "app.db");
        let points: Vec<u64> = Chain::new(replica.files().unwrap()).restorable().collect();
        for point in points {
            if let Err(error) = self.restored(self.bucket.objects.clone(), Target::Txid(point)) {
                let (text, torn) = (error.to_string(), self.bucket.torn());
                // A point that was merged and removed in between is none any more.
                let gone = !Chain::new(replica.files().unwrap()).is_restorable(point);
                let named = torn.iter().any(|key| text.contains(key.as_str()));
                assert!(gone || named, "seed {seed}, TXID {point}: {text}; torn: {torn:?}");
            }
        }
        self.tally.faults += self.bucket.faults();
        self.tally.stale_lists += self.bucket.stale_lists();
        self.tally.torn_objects += self.bucket.torn().len() as u64;
        self.kill_replicator();
        self.application.take().unwrap().close();
    }
}

#[test]
fn whatever_happens_what_is_durable_is_restored_or_its_damage_is_named() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let (first, lives) = (number("WALSYNC_FIRST_SEED").unwrap_or(1), number("WALSYNC_SEEDS").unwrap_or(12));
    let mut tally = Tally::default();
    for seed in first..first + lives {
        let mut life = Life::begin(seed, &mut tally);
        life.start_replicator();
        for _ in 0..EVENTS {
            life.event();
        }
        life.end();
    }
    println!("{lives} lives: {tally:#?}");
    assert!(tally.faults > 0 && tally.power_cuts > 0 && tally.kills_of_walsync > 0, "{tally:?}");
}
