//! Litestream's configuration, as far as it is honoured. What would change what is replicated, or where to, is refused by its name;
//! what is about Litestream's own check points is taken and has no meaning, for walsync makes none.

use super::place::BUCKETS;
use super::{
    AzureOptions, ConfigError, GcsOptions, Location, Place, Places, S3Options, StoreOptions, expand, place, read,
    refuse,
};
use crate::replica::Replica;
use crate::replicator::Settings;
use crate::retention::Policy;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `litestream.yml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Config {
    access_key_id: Option<String>,
    secret_access_key: Option<String>,
    region: Option<String>,
    bucket: Option<String>,
    endpoint: Option<String>,
    force_path_style: Option<bool>,
    account_name: Option<String>,
    account_key: Option<String>,
    sas_token: Option<String>,
    sync_interval: Option<String>,
    addr: Option<String>,
    #[serde(default)]
    levels: Vec<Level>,
    #[serde(default)]
    snapshot: Snapshot,
    l0_retention: Option<String>,
    #[serde(default)]
    retention: Retention,
    #[serde(default)]
    socket: Socket,
    #[serde(default)]
    dbs: Vec<Database>,
    // Of Litestream's own working.
    #[serde(rename = "l0-retention-check-interval")]
    _l0_retention_check_interval: Option<IgnoredAny>,
    #[serde(rename = "verify-compaction")]
    _verify_compaction: Option<IgnoredAny>,
    #[serde(rename = "logging")]
    _logging: Option<IgnoredAny>,
    #[serde(rename = "shutdown-sync-timeout")]
    _shutdown_sync_timeout: Option<IgnoredAny>,
    #[serde(rename = "shutdown-sync-interval")]
    _shutdown_sync_interval: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Level {
    interval: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Snapshot {
    interval: Option<String>,
    retention: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Retention {
    enabled: Option<bool>,
}

/// Litestream's control socket.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Socket {
    enabled: bool,
    #[serde(rename = "path")]
    _path: Option<IgnoredAny>,
    #[serde(rename = "permissions")]
    _permissions: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Database {
    path: PathBuf,
    replica: Option<ReplicaOptions>,
    #[serde(default)]
    replicas: Vec<ReplicaOptions>,
    #[serde(rename = "monitor-interval")]
    _monitor_interval: Option<IgnoredAny>,
    #[serde(rename = "checkpoint-interval")]
    _checkpoint_interval: Option<IgnoredAny>,
    #[serde(rename = "busy-timeout")]
    _busy_timeout: Option<IgnoredAny>,
    #[serde(rename = "min-checkpoint-page-count")]
    _min_checkpoint_page_count: Option<IgnoredAny>,
    #[serde(rename = "truncate-page-n")]
    _truncate_page_n: Option<IgnoredAny>,
    #[serde(rename = "meta-path")]
    _meta_path: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ReplicaOptions {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(rename = "name")]
    _name: Option<IgnoredAny>,
    url: Option<String>,
    path: Option<String>,
    bucket: Option<String>,
    endpoint: Option<String>,
    region: Option<String>,
    force_path_style: Option<bool>,
    access_key_id: Option<String>,
    secret_access_key: Option<String>,
    account_name: Option<String>,
    account_key: Option<String>,
    sas_token: Option<String>,
    sync_interval: Option<String>,
}

/// Go's notation of times: `1s`, `500ms`, `1h30m`.
pub fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut all = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|character: char| !character.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|character: char| character.is_ascii_digit()).unwrap_or(rest.len());
        let millis = match &rest[..unit] {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        all = all.checked_add(Duration::from_millis(number.checked_mul(millis)?))?;
        rest = &rest[unit..];
    }
    (!text.is_empty()).then_some(all)
}

fn time(field: &str, text: &str) -> Result<Duration, ConfigError> {
    match duration(text) {
        Some(time) => Ok(time),
        None => refuse(field, format!("\"{text}\": write it as 1s, 500ms or 1h30m")),
    }
}

/// A host as Litestream takes it, with or without `https://`.
pub fn endpoint(text: &str) -> String {
    if text.contains("://") { text.to_owned() } else { format!("https://{text}") }
}

/// `$NAME` and `${NAME}` as Litestream replaces them; a variable that is not set is empty.
fn with_variables(text: &str, variable: impl Fn(&str) -> Option<String>) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        replaced.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
        let braced = rest.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let (name, after) = braced.unwrap_or_else(|| rest.split_at(rest.find(|c| !is_name(c)).unwrap_or(rest.len())));
        if name.is_empty() {
            replaced.push('$');
        } else {
            replaced.push_str(&variable(name).unwrap_or_default());
        }
        rest = after;
    }
    replaced + rest
}

/// A database with its replica.
pub struct LitestreamDatabase {
    /// The database.
    pub path: PathBuf,
    /// Where it goes.
    pub replica: Replica,
    /// Where that lies.
    place: Place,
    /// The store as Litestream writes it.
    pub url: String,
}

/// What a `litestream.yml` says.
pub struct Litestream {
    /// What to replicate, and where to.
    pub databases: Vec<LitestreamDatabase>,
    /// How.
    pub settings: Settings,
    /// Where to serve metrics: `addr`.
    pub listen: Option<String>,
}

impl Litestream {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Litestream, ConfigError> {
        Litestream::of_text(&read(path)?, path)
    }

    /// Reads one whose text is known.
    pub(super) fn of_text(text: &str, path: &Path) -> Result<Litestream, ConfigError> {
        Litestream::of(super::parse(&with_variables(text, |name| std::env::var(name).ok()), path)?)
    }

    /// Reads the text of one, in which variables stay as they are.
    pub fn parse(text: &str) -> Result<Litestream, ConfigError> {
        Litestream::of(super::parse(text, Path::new("litestream.yml"))?)
    }

    fn of(mut config: Config) -> Result<Litestream, ConfigError> {
        let mut databases = Vec::new();
        let mut intervals = Vec::new();
        for database in std::mem::take(&mut config.dbs) {
            let name = format!("dbs {}", database.path.display());
            let mut replicas: Vec<ReplicaOptions> = database.replica.into_iter().chain(database.replicas).collect();
            let (Some(replica), true) = (replicas.pop(), replicas.is_empty()) else {
                return refuse(&name, "needs exactly one replica");
            };
            if let Some(text) = replica.sync_interval.as_ref().or(config.sync_interval.as_ref()) {
                intervals.push(time("sync-interval", text)?);
            }
            let (url, options) = store_of(&name, replica, &config)?;
            if database.path.to_string_lossy().contains('*') {
                return refuse(&name, "\"*\" would put several databases into one place: name each database");
            }
            let paths = expand(&database.path)?;
            for path in paths {
                let location = Location::open(&url, options.clone())?;
                let (replica, place) = (location.replica(""), location.place(""));
                databases.push(LitestreamDatabase { path, replica, place, url: url.clone() });
            }
        }
        let settings = settings(&config, intervals.into_iter().min())?;
        let listen = config.addr.filter(|address| !address.is_empty()).map(|address| match address.strip_prefix(':') {
            Some(port) => format!("http://0.0.0.0:{port}"),
            None => format!("http://{address}"),
        });
        Ok(Litestream { databases, settings, listen })
    }

    /// Refuses two databases with one place, and one with two. Who restores may have such a file all the same.
    pub fn check_places(&self) -> Result<(), ConfigError> {
        let (mut places, mut known) = (Places::default(), BTreeMap::new());
        for LitestreamDatabase { path, place, .. } in &self.databases {
            if let Some(before) = known.insert(path, place).filter(|before| *before != place) {
                return refuse("dbs", place::named_twice(path, before, place));
            }
            let taken = places.take(place.clone(), path);
            taken.or_else(|problem| refuse("dbs", format!("{problem}: give one of them another path or bucket")))?;
        }
        Ok(())
    }
}

/// Where a replica is, and how to reach it.
fn store_of(name: &str, replica: ReplicaOptions, config: &Config) -> Result<(String, StoreOptions), ConfigError> {
    let bucket = replica.bucket.clone().or_else(|| config.bucket.clone());
    let path = replica.path.as_deref().unwrap_or_default().trim_start_matches('/');
    let scheme = replica.kind.as_deref().unwrap_or("s3");
    let url = match (&replica.url, &bucket, replica.kind.as_deref(), &replica.path) {
        (Some(url), ..) => url.clone(),
        (None, None, None, Some(path)) | (None, _, Some("file"), Some(path)) => format!("file://{path}"),
        (None, Some(bucket), ..) if BUCKETS.contains(&scheme) => format!("{scheme}://{bucket}/{path}"),
        (None, None, Some(_), _) if BUCKETS.contains(&scheme) => {
            return refuse(name, "replica: needs a bucket, or a url");
        }
        _ => return refuse(name, "replica: walsync knows the types s3, gs, abs and file"),
    };
    let of_replica = replica.endpoint.as_deref().map(endpoint);
    let anywhere = of_replica.clone().or_else(|| config.endpoint.as_deref().map(endpoint));
    let s3 = S3Options {
        endpoint: anywhere.clone(),
        region: replica.region.or_else(|| config.region.clone()),
        path_style: replica.force_path_style.or(config.force_path_style),
        access_key_id: replica.access_key_id.or_else(|| config.access_key_id.clone()),
        secret_access_key: replica.secret_access_key.or_else(|| config.secret_access_key.clone()),
        ..S3Options::default()
    };
    let gcs = GcsOptions { endpoint: of_replica, ..GcsOptions::default() };
    let azure = AzureOptions {
        account_name: replica.account_name.or_else(|| config.account_name.clone()),
        account_key: replica.account_key.or_else(|| config.account_key.clone()),
        sas_token: replica.sas_token.or_else(|| config.sas_token.clone()),
        endpoint: anywhere,
        ..AzureOptions::default()
    };
    Ok((url, StoreOptions { s3, gcs, azure }))
}

fn settings(config: &Config, interval: Option<Duration>) -> Result<Settings, ConfigError> {
    let default = Settings::default();
    let interval = interval.unwrap_or(default.interval);
    if interval < Duration::from_millis(25) {
        return refuse("sync-interval", "must be 25ms or more");
    }
    let or = |field, text: &Option<String>, default| text.as_ref().map_or(Ok(default), |text| time(field, text));
    if config.levels.len() > 8 {
        return refuse("levels", "names more than 8 levels");
    }
    if config.socket.enabled {
        return refuse("socket.enabled", "walsync has no control socket: leave it out; status and sync ask at addr");
    }
    let levels: Vec<Duration> =
        config.levels.iter().map(|level| time("levels.interval", &level.interval)).collect::<Result<_, _>>()?;
    if levels.contains(&Duration::ZERO) {
        return refuse("levels.interval", "must be more than 0");
    }
    let policy = Policy {
        uploads: or("l0-retention", &config.l0_retention, Policy::default().uploads)?,
        merged: or("snapshot.retention", &config.snapshot.retention, Policy::default().merged)?,
        // Litestream keeps nothing before that.
        ..Policy { hourly: 0, daily: 0, weekly: 0, monthly: 0, ..Policy::default() }
    };
    Ok(Settings {
        interval,
        snapshot_interval: or("snapshot.interval", &config.snapshot.interval, default.snapshot_interval)?,
        levels: if levels.is_empty() { default.levels } else { levels },
        retention: config.retention.enabled.unwrap_or(true).then_some(policy),
        ..Settings::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gos_durations() {
        assert_eq!(duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(duration("1h30m"), Some(Duration::from_secs(5400)));
        for bad in ["1d", "", "s", "1", "99999999999999999999h", "18446744073709551615h"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn variables_are_replaced_as_litestream_does() {
        let variable = |name: &str| (name == "KEY_1").then(|| "value".to_owned());
        assert_eq!(with_variables("a: $KEY_1-${KEY_1}, $ ${OTHER}$", variable), "a: value-value, $ $");
    }

    #[test]
    fn levels_and_retention_are_honoured_and_what_is_unknown_is_named() {
        let text = "snapshot: {interval: 1h, retention: 2h}\nl0-retention: 10s\nlevels: [{interval: 10s}, {interval: 1m}]\n\
                    dbs: [{path: /a.db, monitor-interval: 1s, replica: {path: /replica, sync-interval: 2s}}]";
        let read = Litestream::parse(text).unwrap();
        let policy = read.settings.retention.unwrap();
        assert_eq!(read.settings.levels, [10, 60].map(Duration::from_secs));
        assert_eq!((policy.uploads, policy.merged), (Duration::from_secs(10), Duration::from_secs(7200)));
        assert_eq!(
            (read.settings.interval, read.databases[0].url.as_str()),
            (Duration::from_secs(2), "file:///replica")
        );
        let error = |text: &str| Litestream::parse(text).err().unwrap().to_string();
        assert!(error("dbs: [{path: /a.db, replica: {path: /r, age: {}}}]").contains("age"));
        assert!(error("socket: {enabled: true, path: /run/l.sock}").contains("socket.enabled"));
        assert!(Litestream::parse("socket: {enabled: false, permissions: 0600}").is_ok());
        assert!(error("heartbeat-url: http://a").contains("heartbeat-url"));
        assert!(error("levels: [{interval: 0s}]").contains("levels.interval"));
    }
}
