//! Configuration: our own YAML, and Litestream's. Unknown words are refused, with their place.

use crate::replica::Replica;
use crate::replicator::Settings;
use crate::store::credentials::Credentials;
use crate::store::files::FileStore;
use crate::store::s3::{S3Settings, S3Store};
use crate::store::{Store, StoreError};
use ltx::Layout;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

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

/// How to reach S3.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct S3Options {
    /// `https://host[:port]`; AWS's own for the region where absent.
    pub endpoint: Option<String>,
    /// us-east-1 where absent.
    pub region: Option<String>,
    /// `endpoint/bucket` instead of `bucket.endpoint`; on by itself where there is an endpoint.
    pub path_style: Option<bool>,
    /// Instead of the environment's.
    pub access_key_id: Option<String>,
    /// Instead of the environment's.
    pub secret_access_key: Option<String>,
    /// Certificates to trust, in PEM.
    pub certificates: Option<PathBuf>,
    /// For one request, in seconds; 30 where absent.
    pub timeout_seconds: Option<u64>,
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
    /// `s3://bucket/prefix` or `file:///folder`.
    pub store: String,
    /// How to reach S3.
    #[serde(default)]
    pub s3: S3Options,
    /// Between uploads of one database, in milliseconds; 1000 where absent.
    pub interval_millis: Option<u64>,
    /// Between snapshots of one database, in seconds; a day where absent.
    pub snapshot_interval_seconds: Option<u64>,
    /// Uploads at once; 4 where absent.
    pub uploads: Option<usize>,
    /// For staged files that do not fit into memory; the system's temporary folder where absent.
    pub staging_folder: Option<PathBuf>,
    /// What to replicate.
    pub databases: Vec<DatabaseOptions>,
}

fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|error| ConfigError::Read(path.to_owned(), error))?;
    serde_yaml::from_str(&text).map_err(|error| {
        let line = error.to_string();
        ConfigError::Syntax(path.to_owned(), line.lines().next().unwrap_or_default().to_owned())
    })
}

impl Config {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        read(path)
    }

    /// The replicator's settings.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        let default = Settings::default();
        let seconds = |seconds: Option<u64>, default| seconds.map_or(default, Duration::from_secs);
        let interval = self.interval_millis.map_or(default.interval, Duration::from_millis);
        if interval < Duration::from_millis(25) {
            return refuse("interval-millis", "must be 25 or more");
        }
        if self.uploads.is_some_and(|uploads| !(1..=64).contains(&uploads)) {
            return refuse("uploads", "must be from 1 to 64");
        }
        Ok(Settings {
            interval,
            snapshot_interval: seconds(self.snapshot_interval_seconds, default.snapshot_interval),
            uploads: self.uploads.unwrap_or(default.uploads),
            staging_folder: self.staging_folder.clone().unwrap_or(default.staging_folder),
            ..default
        })
    }

    /// The databases that are there now, each with its place in the store.
    pub fn databases(&self, store: &Location) -> Result<Vec<(PathBuf, Replica)>, ConfigError> {
        let mut names: BTreeMap<String, PathBuf> = BTreeMap::new();
        for options in &self.databases {
            for path in expand(&options.path)? {
                let file_name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                let name = options.name.clone().unwrap_or_else(|| file_name.to_owned());
                if name.is_empty() || name.split('/').any(|part| part.is_empty() || part == "..") {
                    return refuse("databases.name", format!("\"{name}\" cannot be a folder in the store"));
                }
                match names.get(&name) {
                    Some(other) if *other != path => {
                        let (a, b) = (other.display(), path.display());
                        return refuse(
                            "databases.name",
                            format!("{a} and {b} would both be \"{name}\": name one of them"),
                        );
                    }
                    _ => names.insert(name, path),
                };
            }
        }
        Ok(names.into_iter().map(|(name, path)| (path, store.replica(&name))).collect())
    }
}

/// A path, or the files that it stands for: `*` in its last part. What SQLite puts beside a database is left out.
pub fn expand(path: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let text = path.to_string_lossy();
    if !text.contains('*') {
        return Ok(vec![std::path::absolute(path).unwrap_or_else(|_| path.to_owned())]);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let pattern = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if folder.to_string_lossy().contains('*') {
        return refuse("databases.path", format!("{text}: * is allowed in the last part only"));
    }
    let entries = std::fs::read_dir(folder).map_err(|error| ConfigError::Read(folder.to_owned(), error))?;
    let beside = |name: &str| ["-wal", "-shm", "-journal"].iter().any(|suffix| name.ends_with(suffix));
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| matches(pattern, name) && !beside(name)))
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .map(|path| std::path::absolute(&path).unwrap_or(path))
        .collect();
    paths.sort();
    Ok(paths)
}

/// Whether `name` is what `pattern` stands for.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|tail| {
            tail.char_indices().map(|(at, _)| at).chain([tail.len()]).any(|at| matches(rest, &tail[at..]))
        }),
    }
}

/// A store and a place in it.
#[derive(Clone)]
pub struct Location {
    store: Arc<dyn Store>,
    layout: Layout,
    prefix: String,
}

impl Location {
    fn folder(path: PathBuf) -> Location {
        Location { store: Arc::new(FileStore::new(path)), layout: Layout::Files, prefix: String::new() }
    }

    /// Opens `s3://bucket/prefix`, `file:///folder`, or a folder. Credentials come from `options`, else from the machine.
    pub fn open(url: &str, options: &S3Options) -> Result<Location, ConfigError> {
        if let Some(path) = url.strip_prefix("file://") {
            return Ok(Location::folder(path.into()));
        }
        let Some(place) = url.strip_prefix("s3://") else {
            if url.contains("://") {
                return refuse("store", format!("{url}: walsync knows s3://bucket/prefix and file:///folder"));
            }
            let folder = std::path::absolute(url).unwrap_or_else(|_| url.into());
            return Ok(Location::folder(folder));
        };
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        if bucket.is_empty() {
            return refuse("store", format!("{url}: there is no bucket"));
        }
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        // Litestream has two of its own.
        let environment = |name: &str| {
            variable(name).or_else(|| match name {
                "AWS_ACCESS_KEY_ID" => variable("LITESTREAM_ACCESS_KEY_ID"),
                "AWS_SECRET_ACCESS_KEY" => variable("LITESTREAM_SECRET_ACCESS_KEY"),
                _ => None,
            })
        };
        let either = |option: &Option<String>, names: [&str; 2]| {
            option.clone().or_else(|| names.iter().find_map(|name| environment(name)))
        };
        let region = either(&options.region, ["AWS_REGION", "AWS_DEFAULT_REGION"]).unwrap_or("us-east-1".into());
        let endpoint = either(&options.endpoint, ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]);
        let credentials = match (&options.access_key_id, &options.secret_access_key) {
            (Some(id), Some(secret)) => {
                Some(Credentials { access_key_id: id.clone(), secret_access_key: secret.clone(), session_token: None })
            }
            (None, None) => Credentials::find(environment),
            _ => return refuse("s3", "access-key-id and secret-access-key go together"),
        };
        let Some(credentials) = credentials else {
            return refuse(
                "s3",
                "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write ~/.aws/credentials",
            );
        };
        let settings = S3Settings {
            bucket: bucket.to_owned(),
            path_style: options.path_style.unwrap_or(endpoint.is_some()),
            endpoint: endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com")),
            region,
            timeout: Duration::from_secs(options.timeout_seconds.unwrap_or(30).max(1)),
            certificates: options.certificates.clone(),
        };
        let store = Arc::new(S3Store::new(settings, credentials)?);
        Ok(Location { store, layout: Layout::Objects, prefix: prefix.trim_matches('/').to_owned() })
    }

    /// The replica called `name`; the place itself where that is empty.
    pub fn replica(&self, name: &str) -> Replica {
        let prefix = if self.prefix.is_empty() || name.is_empty() { "" } else { "/" };
        Replica::new(self.store.clone(), self.layout, &format!("{}{prefix}{name}", self.prefix))
    }
}

/// Litestream's configuration, as far as it is honoured; what is not is refused by its name.
pub mod litestream {
    use super::{ConfigError, Location, S3Options, expand, read, refuse};
    use crate::replica::Replica;
    use serde::Deserialize;
    use std::path::{Path, PathBuf};

    /// `litestream.yml`.
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "kebab-case")]
    pub struct LitestreamConfig {
        access_key_id: Option<String>,
        secret_access_key: Option<String>,
        #[serde(default)]
        dbs: Vec<Database>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "kebab-case")]
    struct Database {
        path: PathBuf,
        replica: Option<ReplicaOptions>,
        #[serde(default)]
        replicas: Vec<ReplicaOptions>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "kebab-case")]
    struct ReplicaOptions {
        #[serde(rename = "type")]
        kind: Option<String>,
        url: Option<String>,
        path: Option<String>,
        bucket: Option<String>,
        endpoint: Option<String>,
        region: Option<String>,
        force_path_style: Option<bool>,
        access_key_id: Option<String>,
        secret_access_key: Option<String>,
        /// Go's notation: `1s`, `500ms`, `1m`.
        sync_interval: Option<String>,
    }

    /// Go's notation of short times.
    pub fn duration(text: &str) -> Option<std::time::Duration> {
        let at = text.find(|character: char| !character.is_ascii_digit())?;
        let number: u64 = text[..at].parse().ok()?;
        let millis = match &text[at..] {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        Some(std::time::Duration::from_millis(number.checked_mul(millis)?))
    }

    /// A database with its replica, and how often it is sent.
    pub struct LitestreamDatabase {
        /// The database.
        pub path: PathBuf,
        /// Where it goes.
        pub replica: Replica,
        /// The store as Litestream writes it.
        pub url: String,
        /// `sync-interval`, where it is said.
        pub interval: Option<std::time::Duration>,
    }

    /// Reads `litestream.yml`.
    pub fn databases(path: &Path) -> Result<Vec<LitestreamDatabase>, ConfigError> {
        let config: LitestreamConfig = read(path)?;
        let mut databases = Vec::new();
        for database in config.dbs {
            let mut replicas: Vec<ReplicaOptions> = database.replica.into_iter().chain(database.replicas).collect();
            let name = database.path.display().to_string();
            let (Some(replica), true) = (replicas.pop(), replicas.is_empty()) else {
                return refuse(&format!("dbs {name}"), "needs exactly one replica");
            };
            let url = match (&replica.url, &replica.bucket, replica.kind.as_deref(), &replica.path) {
                (Some(url), ..) => url.clone(),
                (None, Some(bucket), None | Some("s3"), path) => {
                    format!("s3://{bucket}/{}", path.clone().unwrap_or_default().trim_start_matches('/'))
                }
                (None, None, None | Some("file"), Some(path)) => format!("file://{path}"),
                _ => return refuse(&format!("dbs {name}"), "replica: walsync knows the types s3 and file"),
            };
            let options = S3Options {
                endpoint: replica
                    .endpoint
                    .map(|endpoint| if endpoint.contains("://") { endpoint } else { format!("https://{endpoint}") }),
                region: replica.region,
                path_style: replica.force_path_style,
                access_key_id: replica.access_key_id.or_else(|| config.access_key_id.clone()),
                secret_access_key: replica.secret_access_key.or_else(|| config.secret_access_key.clone()),
                ..S3Options::default()
            };
            let interval = match &replica.sync_interval {
                None => None,
                Some(text) => match duration(text) {
                    Some(interval) => Some(interval),
                    None => return refuse("sync-interval", format!("{text}: write it as 1s or 500ms")),
                },
            };
            for path in expand(&database.path)? {
                let replica = Location::open(&url, &options)?.replica("");
                databases.push(LitestreamDatabase { path, replica, url: url.clone(), interval });
            }
        }
        Ok(databases)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, name, expected) in [
            ("*.db", "a.db", true),
            ("*.db", "a.db-wal", false),
            ("a*b*c", "aXbYbc", true),
            ("a*b*c", "aXbYb", false),
            ("*", "", true),
            ("ä*", "äö", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn gos_durations() {
        assert_eq!(litestream::duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(litestream::duration("2m"), Some(Duration::from_secs(120)));
        assert_eq!(litestream::duration("1d"), None);
        assert_eq!(litestream::duration(""), None);
    }
}
