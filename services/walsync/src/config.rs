//! Configuration: our own YAML, and Litestream's. Unknown words are refused, with their place.

use crate::pin::PinKind;
use crate::replicator::{DrillSettings, Settings, Unfit};
use crate::retention::Policy;
use crate::store::StoreError;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

mod clouds;
mod directory;
mod either;
mod found;
mod home;
pub mod litestream;
mod location;
mod place;
mod s3;
mod yaml;

pub use clouds::{AzureOptions, GcsOptions};
pub use either::{Either, Opened};
pub use found::Found;
pub use location::{Location, StoreOptions};
pub use place::{Place, Places, with_name};
pub use s3::{S3Options, S3Place};
use yaml::parse;

/// What is wrong with what the user wrote.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{0}: {1}")]
    Read(PathBuf, std::io::Error),
    /// The file is not what it should be.
    #[error("{0}: {1}")]
    Syntax(PathBuf, String),
    /// A value cannot be so.
    #[error("{field}: {problem}")]
    Value {
        /// The field.
        field: String,
        /// What is wrong, and the remedy.
        problem: String,
    },
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn refuse<T>(field: &str, problem: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError::Value { field: field.into(), problem: problem.into() })
}

/// Whether a replicator can have these settings; `field` is what the one that it cannot have is called.
fn check(settings: &Settings, field: impl FnOnce(Unfit) -> &'static str) -> Result<(), ConfigError> {
    settings.check().or_else(|unfit| refuse(field(unfit), unfit.to_string()))
}

/// SQLite itself lets a WAL grow to a thousand pages, of 4 KiB as a rule.
const WAL_BYTES_MAX_LEAST: u64 = 4 << 20;

/// Restores for the sake of knowing that they work.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DrillOptions {
    /// Between two drills, in seconds; a day where absent.
    pub interval_seconds: Option<u64>,
    /// Databases of each drill; all take turns. 1 where absent.
    pub databases: Option<usize>,
    /// Where databases are restored to, and removed: there must be room for the largest one, and no other process that has its drills there.
    pub folder: PathBuf,
}

impl DrillOptions {
    fn settings(&self) -> Result<DrillSettings, ConfigError> {
        let (interval_seconds, databases) = (self.interval_seconds.unwrap_or(86_400), self.databases.unwrap_or(1));
        if interval_seconds == 0 {
            return refuse("restore-drill.interval-seconds", "must be 1 or more");
        }
        if databases == 0 {
            return refuse("restore-drill.databases", "must be 1 or more");
        }
        home::check("restore-drill.folder", &self.folder)?;
        let interval = Duration::from_secs(interval_seconds);
        Ok(DrillSettings { interval, databases, folder: self.folder.clone() })
    }
}

/// What is kept of what was merged.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RetentionOptions {
    /// Every upload, in seconds; 300 where absent.
    pub uploads_seconds: Option<u64>,
    /// Every merged file and snapshot, in seconds; a day where absent.
    pub merged_seconds: Option<u64>,
    /// Before that one point in each of so many hours; 24 where absent.
    pub hourly: Option<u32>,
    /// … days; 7 where absent.
    pub daily: Option<u32>,
    /// … weeks; 12 where absent.
    pub weekly: Option<u32>,
    /// … months; 12 where absent.
    pub monthly: Option<u32>,
    /// For how long what is not kept any more stays, in seconds; an hour where absent.
    pub grace_seconds: Option<u64>,
    /// Remove nothing.
    pub keep_everything: bool,
}

impl RetentionOptions {
    /// The policy; `None` where nothing is removed.
    pub fn policy(&self) -> Option<Policy> {
        let default = Policy::default();
        let seconds = |seconds: Option<u64>, default| seconds.map_or(default, Duration::from_secs);
        (!self.keep_everything).then(|| Policy {
            uploads: seconds(self.uploads_seconds, default.uploads),
            merged: seconds(self.merged_seconds, default.merged),
            hourly: self.hourly.unwrap_or(default.hourly),
            daily: self.daily.unwrap_or(default.daily),
            weekly: self.weekly.unwrap_or(default.weekly),
            monthly: self.monthly.unwrap_or(default.monthly),
            grace: seconds(self.grace_seconds, default.grace),
        })
    }
}

/// One database, or many of a folder.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DatabaseOptions {
    /// A database; in its last part `*` stands for anything, also for files that come later.
    pub path: PathBuf,
    /// Its folder in the store; its file name where absent. Not together with `*`.
    pub name: Option<String>,
}

/// Our own configuration.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// `s3://bucket/prefix` or `file:///folder`; `gs://bucket/prefix` or `abs://account@container/prefix` with the feature `clouds`.
    pub store: String,
    /// How to reach S3.
    #[serde(default)]
    pub s3: S3Options,
    /// How to reach Google Cloud Storage.
    #[serde(default)]
    pub gcs: GcsOptions,
    /// How to reach Azure Blob Storage.
    #[serde(default)]
    pub azure: AzureOptions,
    /// Where to serve `/metrics`, probes, `/status` and `/sync`: `http://HOST:PORT`; nowhere where absent.
    pub listen: Option<String>,
    /// Between uploads of one database, in milliseconds; 1000 where absent.
    pub interval_millis: Option<u64>,
    /// Between snapshots of one database, in seconds; a day where absent.
    pub snapshot_interval_seconds: Option<u64>,
    /// How long a file waits in level 0, 1, … to be merged, in milliseconds; 30 s, 5 min, 1 h where absent, never where empty.
    pub levels_millis: Option<Vec<u64>>,
    /// What is kept; see `walsync explain`. Nothing is removed where it says `keep-everything: true`.
    #[serde(default)]
    pub retention: RetentionOptions,
    /// Uploads at once; 4 where absent.
    pub uploads: Option<usize>,
    /// For staged files that do not fit into memory; the system's temporary folder where absent.
    pub staging_folder: Option<PathBuf>,
    /// What holds frames in the WAL: `locks` or `read-transaction`; where absent locks, and where these do not work the other.
    pub pin: Option<PinKind>,
    /// By how many bytes a WAL may grow because its frames are held; 4 GiB where absent. Beyond that they are let go of, and what the store has
    /// not is found by comparing.
    pub wal_bytes_max: Option<u64>,
    /// Uploads in a month, all databases together: who commits waits longer the more was sent; unbounded where absent.
    pub uploads_a_month_max: Option<u64>,
    /// What is restored now and then, to know that it can be; nothing where absent.
    pub restore_drill: Option<DrillOptions>,
    /// What to replicate.
    pub databases: Vec<DatabaseOptions>,
}

fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|error| ConfigError::Read(path.to_owned(), error))
}

impl Config {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        parse(&read(path)?, path)
    }

    /// Reads the text of one.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        parse(text, Path::new("configuration"))
    }

    /// The replicator's settings.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        let default = Settings::default();
        let seconds = |seconds: Option<u64>, default| seconds.map_or(default, Duration::from_secs);
        if self.uploads.is_some_and(|uploads| !(1..=64).contains(&uploads)) {
            return refuse("uploads", "must be from 1 to 64");
        }
        if self.wal_bytes_max.is_some_and(|bytes| bytes < WAL_BYTES_MAX_LEAST) {
            return refuse(
                "wal-bytes-max",
                format!("must be {WAL_BYTES_MAX_LEAST} or more, as SQLite's own threshold"),
            );
        }
        if self.uploads_a_month_max == Some(0) {
            return refuse("uploads-a-month-max", "must be 1 or more: with none nothing would be replicated");
        }
        let levels = self.levels_millis.as_ref();
        let levels = levels.map(|levels| levels.iter().copied().map(Duration::from_millis).collect());
        self.staging_folder.as_ref().map_or(Ok(()), |folder| home::check("staging-folder", folder))?;
        let settings = Settings {
            interval: self.interval_millis.map_or(default.interval, Duration::from_millis),
            levels: levels.unwrap_or(default.levels),
            retention: self.retention.policy(),
            snapshot_interval: seconds(self.snapshot_interval_seconds, default.snapshot_interval),
            uploads: self.uploads.unwrap_or(default.uploads),
            staging_folder: self.staging_folder.clone().unwrap_or(default.staging_folder),
            arena_bytes: default.arena_bytes,
            pin: self.pin,
            wal_bytes_max: self.wal_bytes_max.unwrap_or(default.wal_bytes_max),
            uploads_a_month_max: self.uploads_a_month_max,
            drill: self.restore_drill.as_ref().map(DrillOptions::settings).transpose()?,
            ..default
        };
        check(&settings, |unfit| match unfit {
            Unfit::Interval => "interval-millis",
            Unfit::Levels | Unfit::Level => "levels-millis",
        })?;
        Ok(settings)
    }

    /// Drills need their folder, and nothing else of this configuration does.
    pub fn check_drill_folder(&self) -> Result<(), ConfigError> {
        let folder = self.restore_drill.as_ref().map(|drill| &drill.folder);
        match folder.filter(|folder| !folder.is_dir()) {
            None => Ok(()),
            Some(folder) => {
                let problem = format!("{} is not a folder: make it, or name another one", folder.display());
                refuse("restore-drill.folder", problem)
            }
        }
    }
}

#[cfg(test)]
mod tests;
