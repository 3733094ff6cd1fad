//! `walsync bench`: what walsync does and costs, and Litestream beside it, for anybody who has the executable.
//!
//! Replicators and restores are children: this executable with the verbs that everybody uses, and Litestream. We are the application. Arms take
//! turns, forwards and backwards, each with databases and a place in the store of its own; what is durable is asked of the store, and what a
//! replica holds of a restore. Nothing stays: not after an error, and not after Ctrl-C.
//!
//! The family `sqlite_replication` of `bench-jobs` measures much the same, and the two are kept apart. That one is a judge, which must not stand on the
//! code of what it judges: it knows the file format and no replicator. This one is for whoever has nothing but the executable, and asks walsync's own
//! modules what a replica holds. Where both measure one thing, each checks the other.

mod application;
mod check_points;
mod child;
mod memory;
mod network;
mod place;
mod relay;
mod replicator;
mod restoring;
mod statistics;
mod sync;
mod table;
mod throughput;

use place::Place;
use replicator::{Arm, Litestream};
use serde_json::json;
use service_kit::console;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use table::Table;
use tempfile::TempDir;
use walsync::config::{ConfigError, S3Options};

/// Between two looks at whether something has happened.
const LOOK: Duration = Duration::from_millis(5);
/// How long an arm may take until a small database is durable, or the last commit is, before it counts as failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Before something is measured: databases count as active for 2 s after a change.
const SETTLE: Duration = Duration::from_secs(3);
const STOPPED: &str = "stopped; nothing was left behind";

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// Memory and processor time beside databases into which nobody writes
    Idle,
    /// The same, with commits
    Active,
    /// From a commit to an object that has it
    Sync,
    /// Commits of one writer as fast as it can, and whether all of them come back
    Throughput,
    /// Time, processor time and memory of a restore, and a plain copy beside it
    Restore,
    /// Commits while somebody else makes check points
    Checkpoint,
    /// The store goes away, or the replicator is killed: what is lost
    Network,
}

impl Test {
    const ALL: [Test; 7] =
        [Test::Idle, Test::Active, Test::Sync, Test::Throughput, Test::Restore, Test::Checkpoint, Test::Network];

    /// The test of that name.
    pub fn parse(name: &str) -> Result<Test, String> {
        let names = Test::ALL.map(Test::name).join(", ");
        let found = Test::ALL.into_iter().find(|test| test.name() == name);
        found.ok_or_else(|| format!("a test is one of {names}"))
    }

    fn name(self) -> &'static str {
        match self {
            Test::Idle => "idle",
            Test::Active => "active",
            Test::Sync => "sync",
            Test::Throughput => "throughput",
            Test::Restore => "restore",
            Test::Checkpoint => "checkpoint",
            Test::Network => "network",
        }
    }
}

/// What the command line says.
pub struct Options {
    pub tests: Vec<Test>,
    pub databases: Vec<u32>,
    pub duration: Duration,
    pub database_kilobytes: u32,
    pub megabytes: Vec<u32>,
    pub commits_per_second: u32,
    pub interval: Duration,
    pub rounds: u32,
    pub json: bool,
    pub litestream: Option<PathBuf>,
    pub litestream_each: bool,
    pub store: Option<String>,
    pub folder: Option<PathBuf>,
    pub s3: S3Options,
}

/// What all tests share.
struct Bench {
    options: Options,
    litestream: Option<Litestream>,
    place: Place,
    stop: Arc<AtomicBool>,
    /// What must not happen and did: the exit code is not 0 then.
    failures: Vec<String>,
    folder: TempDir,
}

fn wrong(field: &str, problem: String) -> ConfigError {
    ConfigError::Value { field: field.into(), problem }
}

/// Measures what was asked for, and prints it.
pub fn run(options: Options, stop: Arc<AtomicBool>) -> anyhow::Result<()> {
    service_kit::open_files::raise();
    let litestream = Litestream::find(options.litestream.as_deref())?;
    let parent = options.folder.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new().prefix("walsync-bench-").tempdir_in(&parent);
    let folder = folder.map_err(|error| wrong("--folder", format!("{}: {error}", parent.display())))?;
    let place = Place::open(options.store.as_deref(), &options.s3, folder.path())?;
    let mut bench = Bench { options, litestream, place, stop, failures: Vec::new(), folder };
    bench.measure()
}

impl Bench {
    fn measure(&mut self) -> anyhow::Result<()> {
        let version = env!("CARGO_PKG_VERSION");
        let litestream = self.litestream.as_ref().map(|litestream| litestream.version.clone());
        match &self.litestream {
            Some(found) => self.say(format_args!("Litestream {} ({})", found.version, found.program.display())),
            None => self.say("no Litestream: measured without it (peers/fetch litestream, or --litestream PATH)"),
        }
        let mut tables = Vec::new();
        if !self.options.json {
            let beside = litestream.as_ref().map_or("no Litestream".into(), |version| format!("Litestream {version}"));
            console::print(format_args!("walsync {version}, {beside}\n"))?;
        }
        for test in self.options.tests.clone() {
            let table = match test {
                Test::Idle => memory::measure(self, false),
                Test::Active => memory::measure(self, true),
                Test::Sync => sync::measure(self),
                Test::Throughput => throughput::measure(self),
                Test::Restore => restoring::measure(self),
                Test::Checkpoint => check_points::measure(self),
                Test::Network => network::measure(self),
            }?;
            if !self.options.json {
                console::print(table.text())?;
            }
            tables.push(table);
        }
        if self.options.json {
            let tests = tables.iter().map(Table::json).collect::<Vec<_>>();
            let found =
                json!({ "walsync": version, "litestream": litestream, "tests": tests, "failures": self.failures });
            console::print(format_args!("{found:#}\n"))?;
        }
        anyhow::ensure!(self.failures.is_empty(), "{}", self.failures.join("; "));
        Ok(())
    }

    /// A line for who waits.
    fn say(&self, what: impl std::fmt::Display) {
        console::tell(format_args!("bench: {what}"));
    }

    /// Whose turn it is in a round, of those that can be measured.
    fn turns(&self, arms: &[Arm], round: u32) -> Vec<Arm> {
        let mut arms: Vec<Arm> =
            arms.iter().copied().filter(|arm| self.litestream.is_some() || !arm.is_litestream()).collect();
        if round % 2 == 1 {
            arms.reverse();
        }
        arms
    }

    /// What is taken of each arm in each round, in turns.
    fn rounds<S>(
        &mut self,
        what: &str,
        arms: &[Arm],
        mut sample: impl FnMut(&mut Bench, Arm, u32) -> anyhow::Result<S>,
    ) -> anyhow::Result<Vec<(Arm, S)>> {
        let (of, mut samples) = (self.options.rounds, Vec::new());
        for round in 0..of {
            for arm in self.turns(arms, round) {
                self.say(format_args!("{what}, round {} of {of}: {}", round + 1, arm.name()));
                samples.push((arm, sample(self, arm, round)?));
            }
        }
        Ok(samples)
    }

    /// An error as soon as somebody wants us to end.
    fn go_on(&self) -> anyhow::Result<()> {
        anyhow::ensure!(!self.stop.load(Ordering::Acquire), STOPPED);
        Ok(())
    }

    fn pause(&self, duration: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + duration;
        loop {
            self.go_on()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(20)));
        }
    }

    /// Databases have been left alone for so long before they are measured.
    fn settle(&self) -> anyhow::Result<()> {
        self.pause(SETTLE.min(self.options.duration))
    }

    /// Whether something has come about within a time.
    fn comes(&self, within: Duration, mut holds: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<bool> {
        let end = Instant::now() + within;
        loop {
            // First of all: Ctrl-C ends children, too, and that is no failure of theirs.
            self.go_on()?;
            let begun = Instant::now();
            if holds()? {
                return Ok(true);
            }
            if Instant::now() >= end {
                return Ok(false);
            }
            // A look at thousands of objects is work, too, which whoever is waited for needs to get done.
            std::thread::sleep(begun.elapsed().max(LOOK));
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Err(error) = self.place.remove() {
            self.say(format_args!("the replicas could not be removed: {error:#}"));
        }
    }
}
