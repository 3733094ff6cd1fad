//! Words of `bench`.

use super::S3Args;
use super::number::whole;
use crate::bench::{Options, Test};
use clap::Args;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;
use walsync::replicator::INTERVAL_LEAST;

/// What either program takes.
const INTERVAL_MILLIS: RangeInclusive<u64> = INTERVAL_LEAST.as_millis() as u64..=60_000;

#[derive(Args)]
pub struct BenchArgs {
    /// What to measure, several by commas. idle: memory and processor time beside databases into which nobody writes; active: the same, with
    /// commits; sync: from a commit to an object that has it; throughput: commits of one writer as fast as it can, and whether all come back;
    /// restore: beside a plain copy; checkpoint: commits while others make check points; network: what is lost when the store goes away
    #[arg(long, value_name = "TESTS", value_delimiter = ',', default_value = "idle", value_parser = Test::parse)]
    test: Vec<Test>,
    /// Numbers of databases, of idle and active
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "1,5,10,20", value_parser = whole::<u32>("databases", 1..=10_000))]
    dbs: Vec<u32>,
    /// For how long each arm is measured in a round, and how long an outage is, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    duration: Duration,
    /// Size of each database, in KB
    #[arg(long, value_name = "KB", default_value_t = 100, value_parser = whole::<u32>("KB", 50..=10_000_000))]
    db_size: u32,
    /// Sizes of databases that are restored, in MB
    #[arg(long, value_name = "MB", value_delimiter = ',', default_value = "1,10,100", value_parser = whole::<u32>("MB", 1..=100_000))]
    sizes: Vec<u32>,
    /// Commits a second: into each database of active, and during an outage
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = whole::<u32>("commits a second", 1..=100_000))]
    commits: u32,
    /// Between uploads of one database, of both programs, in milliseconds
    #[arg(long, value_name = "MILLIS", default_value_t = 1000, value_parser = whole::<u64>("milliseconds", INTERVAL_MILLIS))]
    interval_millis: u64,
    /// How often every arm is measured, in turns
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = whole::<u32>("rounds", 1..=1000))]
    rounds: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Litestream 0.5 [default: what `peers/fetch litestream` installs, or that of PATH; without one walsync is measured alone]
    #[arg(long, value_name = "PATH")]
    litestream: Option<PathBuf>,
    /// With idle and active also one Litestream for each database, as a published comparison has it: RSS then counts its binary so many times, PSS once
    #[arg(long)]
    litestream_each: bool,
    /// Where replicas go: s3://bucket/prefix or file:///folder, in a folder of their own that is removed at the end [default: beside the databases]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Where databases go [default: the system's temporary folder]; one that is in memory makes syncs look cheap
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    #[command(flatten)]
    s3: S3Args,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<f64>().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    parsed.map(Duration::from_secs_f64).ok_or_else(|| "seconds are a number from 0.1 to 3600".into())
}

impl BenchArgs {
    pub fn options(self) -> Options {
        Options {
            tests: self.test,
            databases: self.dbs,
            duration: self.duration,
            database_kilobytes: self.db_size,
            megabytes: self.sizes,
            commits_per_second: self.commits,
            interval: Duration::from_millis(self.interval_millis),
            rounds: self.rounds,
            json: self.json,
            litestream: self.litestream,
            litestream_each: self.litestream_each,
            store: self.store,
            folder: self.folder,
            s3: self.s3.of_environment().options(),
        }
    }
}
