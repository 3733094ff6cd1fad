//! Litestream's configuration, as far as it is honoured. What would change what is replicated, or where to, is refused by its name;
//! what is about Litestream's own check points is taken and has no meaning, for walsync makes none.

use super::directory::Directory;
use super::found::{Fields, Found, NO_TEXT, Wanted};
use super::place::{BUCKETS, endpoint, with_name};
use super::{AzureOptions, ConfigError, GcsOptions, Location, Places, S3Options, StoreOptions, home, read, refuse};
use crate::replica::Replica;
use crate::replicator::{Settings, Unfit};
use crate::retention::Policy;
use serde::Deserialize;
use serde::de::IgnoredAny;
use service_kit::duration::of_go;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `litestream.yml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
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
    exec: Option<String>,
    levels: Vec<Level>,
    snapshot: Snapshot,
    l0_retention: Option<String>,
    retention: Retention,
    socket: Socket,
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

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Database {
    path: Option<PathBuf>,
    dir: Option<PathBuf>,
    pattern: Option<String>,
    recursive: bool,
    restore_if_db_not_exists: bool,
    replica: Option<ReplicaOptions>,
    replicas: Vec<ReplicaOptions>,
    // New databases are always looked for.
    #[serde(rename = "watch")]
    _watch: Option<IgnoredAny>,
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
    #[serde(rename = "meta-dir")]
    _meta_dir: Option<IgnoredAny>,
    #[serde(rename = "max-sync-wal-bytes")]
    _max_sync_wal_bytes: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
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

fn time(field: &str, text: &str) -> Result<Duration, ConfigError> {
    match of_go(text) {
        Some(time) => Ok(time),
        None => refuse(field, format!("\"{text}\": write it as 1s, 500ms or 1h30m")),
    }
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

/// Words that mean nothing here, by how they begin, and what there is instead.
const INSTEAD: [(&str, &str); 17] = [
    ("age", "walsync does not encrypt: let the bucket do so"),
    ("auto-recover", "leave it out: what differs is found by comparing, and sent"),
    ("concurrency", "leave it out: a restore fetches ahead in eight requests, in bounded memory"),
    ("heartbeat", "leave it out: /metrics has walsync_databases_at_risk, and /readyz"),
    ("host", TYPES),
    ("max-sync-ltx-files", "leave it out: what is staged is sent"),
    ("mcp-addr", "there is no MCP server: leave it out; `walsync status` tells how each database stands"),
    ("part-size", "say s3: {part-bytes: …} in walsync.yml"),
    ("retention", "say snapshot: {retention: …} beside dbs"),
    ("require-content-md5", "leave it out: requests are signed with their content"),
    ("sign-", "leave it out: requests are signed with their content"),
    ("skip-verify", "say s3: {certificates: FILE} in walsync.yml"),
    ("sse-", "let the bucket encrypt by itself"),
    ("storage-class", "let a rule of the bucket say so"),
    ("user", TYPES),
    (
        "validation",
        "leave it out: `walsync verify` reads and compares a replica, and restore-drill of walsync.yml restores it now and then",
    ),
    ("webdav", TYPES),
];

const TYPES: &str = "walsync knows the types s3, gs, abs and file";

/// What is wrong with the file; of a word that means nothing here what there is instead.
fn with_remedy(error: ConfigError) -> ConfigError {
    let ConfigError::Syntax(path, problem) = error else { return error };
    if problem.contains(": retention: has words of its own") {
        return ConfigError::Syntax(
            path,
            "retention: say snapshot: {retention: 24h}; retention has enabled alone".into(),
        );
    }
    let word = problem.split_once("unknown field `").and_then(|(_, rest)| rest.split('`').next());
    let instead =
        word.and_then(|word| INSTEAD.iter().find(|(begin, _)| word.starts_with(begin)).map(|(_, what)| (word, what)));
    match instead {
        Some((word, what)) => {
            let known = format!("unknown field `{word}`");
            let before = problem.split(&known).next().unwrap_or_default();
            ConfigError::Syntax(path, format!("{before}{known}: {what}"))
        }
        None => ConfigError::Syntax(path, problem),
    }
}

const FIELDS: Fields =
    Fields { path: "dbs", name: "dbs", other: "give one of them another path or bucket", rename: "rename it" };

/// Which databases an entry of `dbs` means.
enum Which {
    Path(PathBuf),
    Directory(Directory),
}

/// An entry of `dbs`.
struct Entry {
    which: Which,
    /// Where to, as Litestream writes it, and how that is reached.
    url: String,
    options: StoreOptions,
    restores: bool,
}

/// What a `litestream.yml` says.
pub struct Litestream {
    entries: Vec<Entry>,
    /// How databases are replicated.
    pub settings: Settings,
    /// Where to serve metrics: `addr`.
    pub listen: Option<String>,
    /// What to run meanwhile: `exec`.
    pub exec: Option<String>,
}

impl Litestream {
    /// Reads one whose text is known; `path` is where it lies. With `expands` variables are replaced.
    pub(super) fn of_text(text: &str, path: &Path, expands: bool) -> Result<Litestream, ConfigError> {
        let expanded = expands.then(|| with_variables(text, |name| std::env::var(name).ok()));
        Litestream::of(super::parse(expanded.as_deref().unwrap_or(text), path).map_err(with_remedy)?)
    }

    /// Reads a file.
    pub fn read(path: &Path, expands: bool) -> Result<Litestream, ConfigError> {
        Litestream::of_text(&read(path)?, path, expands)
    }

    /// Reads the text of one, in which variables stay as they are.
    pub fn parse(text: &str) -> Result<Litestream, ConfigError> {
        Litestream::of_text(text, Path::new("litestream.yml"), false)
    }

    /// What Litestream's users say without a file: one database, and where to.
    pub fn of_one(path: &Path, url: &str) -> Result<Litestream, ConfigError> {
        let replica = ReplicaOptions { url: Some(url.to_owned()), ..ReplicaOptions::default() };
        let database = Database { path: Some(path.to_owned()), replica: Some(replica), ..Database::default() };
        Litestream::of(Config { dbs: vec![database], ..Config::default() })
    }

    fn of(mut config: Config) -> Result<Litestream, ConfigError> {
        let (mut entries, mut intervals) = (Vec::new(), Vec::new());
        for mut database in std::mem::take(&mut config.dbs) {
            let (name, which) = which(&mut database)?;
            let restores = database.restore_if_db_not_exists;
            let mut replicas: Vec<ReplicaOptions> = database.replica.into_iter().chain(database.replicas).collect();
            let (Some(replica), true) = (replicas.pop(), replicas.is_empty()) else {
                return refuse(&name, "needs exactly one replica");
            };
            if let Some(text) = replica.sync_interval.as_ref().or(config.sync_interval.as_ref()) {
                intervals.push(time("sync-interval", text)?);
            }
            let (url, options) = store_of(&name, replica, &config)?;
            entries.push(Entry { which, url, options, restores });
        }
        let settings = settings(&config, intervals.into_iter().min())?;
        let listen = config.addr.filter(|address| !address.is_empty()).map(|address| match address.strip_prefix(':') {
            Some(port) => format!("http://0.0.0.0:{port}"),
            None => format!("http://{address}"),
        });
        Ok(Litestream { entries, settings, listen, exec: config.exec.filter(|exec| !exec.is_empty()) })
    }

    /// The stores of all entries, in their order. Where nobody logs in they only tell what is meant.
    pub(super) fn open(&self, logs_in: bool) -> Result<Vec<Location>, ConfigError> {
        let open = |entry: &Entry| Location::open_as(&entry.url, entry.options.clone(), logs_in);
        self.entries.iter().map(open).collect()
    }

    /// What is there to replicate now. Who has a place in `places` keeps it.
    pub(super) fn look(&self, stores: &[Location], places: &mut Places) -> Result<Found, ConfigError> {
        if self.entries.is_empty() {
            return refuse("dbs", "names no database: nothing would be replicated");
        }
        let (mut found, mut wanted, mut below) = (Found::default(), vec![], vec![]);
        for (entry, store) in self.entries.iter().zip(stores) {
            match &entry.which {
                Which::Path(path) => {
                    let (path, name) = (path.clone(), String::new());
                    wanted.push(Wanted { path, name, store, is_named: true });
                }
                Which::Directory(directory) => {
                    let paths = directory.find()?;
                    if paths.is_empty() {
                        found.empty.insert(directory.shown(), directory.why_empty());
                    }
                    for path in paths {
                        match directory.name(&path) {
                            Some(name) => below.push(Wanted { path, name, store, is_named: false }),
                            None => found.refused.push((path, NO_TEXT.to_owned())),
                        }
                    }
                }
            }
        }
        wanted.append(&mut below);
        found.place(wanted, &FIELDS, places)?;
        Ok(found)
    }

    /// All databases of now, each with where it goes as Litestream writes that.
    pub fn listed(&self) -> Result<Vec<(PathBuf, String)>, ConfigError> {
        let mut listed = Vec::new();
        for Entry { which, url, .. } in &self.entries {
            match which {
                Which::Path(path) => listed.push((path.clone(), url.clone())),
                Which::Directory(directory) => {
                    let with_url = |path: PathBuf| directory.name(&path).map(|name| (path, with_name(url, &name)));
                    listed.extend(directory.find()?.into_iter().filter_map(with_url));
                }
            }
        }
        Ok(listed)
    }

    /// The replica of a database, which need not be there any more; `None`: no entry means it.
    pub fn replica(&self, path: &Path) -> Option<Result<Replica, ConfigError>> {
        let named = self.entries.iter().find(|entry| matches!(&entry.which, Which::Path(named) if named == path));
        let below =
            || self.entries.iter().find(|entry| matches!(&entry.which, Which::Directory(one) if one.means(path)));
        let entry = named.or_else(below)?;
        let name = match &entry.which {
            Which::Path(_) => String::new(),
            Which::Directory(directory) => directory.name(path)?,
        };
        Some(Location::open(&entry.url, entry.options.clone()).map(|location| location.replica(&name)))
    }

    /// Databases that are named and not there, and are to be restored first: those of which that is said, or `all`.
    pub(super) fn lost(&self, stores: &[Location], all: bool) -> Vec<(PathBuf, Replica)> {
        let lost = |(entry, store): (&Entry, &Location)| match &entry.which {
            Which::Path(path) if (all || entry.restores) && !path.exists() => Some((path.clone(), store.replica(""))),
            _ => None,
        };
        self.entries.iter().zip(stores).filter_map(lost).collect()
    }
}

/// Which databases are meant, and how mistakes name them.
fn which(database: &mut Database) -> Result<(String, Which), ConfigError> {
    match (database.path.take(), database.dir.take()) {
        (Some(path), None) => {
            let name = format!("dbs {}", path.display());
            let path = home::litestreams(&name, &path)?;
            if path.to_string_lossy().contains('*') {
                return refuse(&name, "\"*\" would put several databases into one place: say dir and pattern");
            }
            if path.is_dir() {
                return refuse(&name, "is a folder: say dir and pattern, as in dir: /data, pattern: \"*.db\"");
            }
            Ok((name, Which::Path(path)))
        }
        (None, Some(dir)) => {
            let name = format!("dbs {}", dir.display());
            let Some(pattern) = database.pattern.take() else {
                return refuse(&name, "has no pattern: \"*\" means every database");
            };
            if pattern.contains(['?', '[', '\\', '/']) {
                return refuse(&name, format!("pattern {pattern}: walsync knows * alone: write * for what differs"));
            }
            let dir = home::litestreams(&name, &dir)?;
            Ok((name, Which::Directory(Directory::new(dir, pattern, database.recursive))))
        }
        _ => refuse("dbs", "each needs a path, or a dir with a pattern"),
    }
}

/// Where a replica is, and how to reach it.
fn store_of(name: &str, replica: ReplicaOptions, config: &Config) -> Result<(String, StoreOptions), ConfigError> {
    let bucket = replica.bucket.clone().or_else(|| config.bucket.clone());
    let path = replica.path.as_deref().unwrap_or_default().trim_start_matches('/');
    let scheme = replica.kind.as_deref().unwrap_or("s3");
    let url = match (&replica.url, &bucket, replica.kind.as_deref(), &replica.path) {
        (Some(url), ..) => url.clone(),
        (None, None, None, Some(path)) | (None, _, Some("file"), Some(path)) => {
            if path.contains("://") {
                return refuse(name, format!("replica: path: {path} is no path of a folder: say url for a place"));
            }
            format!("file://{}", home::litestreams(name, path.as_ref())?.display())
        }
        (None, Some(bucket), ..) if BUCKETS.contains(&scheme) => format!("{scheme}://{bucket}/{path}"),
        (None, None, Some(_), _) if BUCKETS.contains(&scheme) => {
            return refuse(name, "replica: needs a bucket, or a url");
        }
        _ => return refuse(name, format!("replica: {TYPES}")),
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
    let or = |field, text: &Option<String>, default| text.as_ref().map_or(Ok(default), |text| time(field, text));
    if config.socket.enabled {
        return refuse("socket.enabled", "walsync has no control socket: leave it out; status and sync ask at addr");
    }
    let levels: Vec<Duration> =
        config.levels.iter().map(|level| time("levels.interval", &level.interval)).collect::<Result<_, _>>()?;
    let policy = Policy {
        uploads: or("l0-retention", &config.l0_retention, Policy::default().uploads)?,
        merged: or("snapshot.retention", &config.snapshot.retention, Policy::default().merged)?,
        // Litestream keeps nothing before that.
        ..Policy { hourly: 0, daily: 0, weekly: 0, monthly: 0, ..Policy::default() }
    };
    let settings = Settings {
        interval: interval.unwrap_or(default.interval),
        snapshot_interval: or("snapshot.interval", &config.snapshot.interval, default.snapshot_interval)?,
        levels: if levels.is_empty() { default.levels } else { levels },
        retention: config.retention.enabled.unwrap_or(true).then_some(policy),
        ..Settings::default()
    };
    super::check(&settings, |unfit| match unfit {
        Unfit::Interval => "sync-interval",
        Unfit::Levels => "levels",
        Unfit::Level => "levels.interval",
    })?;
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Litestream takes fractions, and this refused them.
    #[test]
    fn times_are_written_as_litestream_takes_them() {
        assert_eq!(time("sync-interval", "1.5s").unwrap(), Duration::from_millis(1500));
        let refused = time("sync-interval", "5").unwrap_err().to_string();
        assert!(refused.contains("sync-interval") && refused.contains("write it as 1s, 500ms or 1h30m"), "{refused}");
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
        let policy = read.settings.retention.clone().unwrap();
        assert_eq!(read.settings.levels, [10, 60].map(Duration::from_secs));
        assert_eq!((policy.uploads, policy.merged), (Duration::from_secs(10), Duration::from_secs(7200)));
        assert_eq!(read.settings.interval, Duration::from_secs(2));
        assert_eq!(read.listed().unwrap(), [(PathBuf::from("/a.db"), "file:///replica".to_owned())]);
        let error = |text: &str| Litestream::parse(text).err().unwrap().to_string();
        assert!(error("dbs: [{path: /a.db, replica: {path: /r, age: {}}}]").contains("age"));
        assert!(error("socket: {enabled: true, path: /run/l.sock}").contains("socket.enabled"));
        assert!(Litestream::parse("socket: {enabled: false, permissions: 0600}").is_ok());
        assert!(error("heartbeat-url: http://a").contains("heartbeat-url`: leave it out: /metrics"));
        assert!(
            error("dbs: [{path: /a.db, replica: {path: /r, sse-kms-key-id: k}}]").contains("let the bucket encrypt")
        );
        assert!(error("dbs: [{path: /a.db, replica: {path: /r, retention: 1h}}]").contains("say snapshot: {retention"));
        assert!(error("levels: [{interval: 0s}]").contains("levels.interval"));
        for (words, problem) in [
            ("path: /data/*.db", "say dir and pattern"),
            ("path: /tmp", "is a folder: say dir"),
            ("dir: /data", "has no pattern"),
            ("dir: /data, pattern: \"[ab].db\"", "walsync knows * alone"),
            ("pattern: \"*.db\"", "needs a path, or a dir"),
            ("path: /a.db, dir: /data", "needs a path, or a dir"),
        ] {
            let said = error(&format!("dbs: [{{{words}, replica: {{path: /r}}}}]"));
            assert!(said.contains(problem), "{said}");
        }
    }

    #[test]
    fn a_directory_is_its_databases_each_with_its_own_place_and_lost_ones_are_found_by_their_path() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("data/x/.y")).unwrap();
        for name in ["b.db", "x/.y/c.db", "a.sqlite"] {
            std::fs::write(at("data").join(name), "SQLite format 3\0...").unwrap();
        }
        for name in ["text.db", "empty.db", "b.db-wal"] {
            std::fs::write(at("data").join(name), if name == "empty.db" { "" } else { "anything" }).unwrap();
        }
        std::fs::write(at("data/.walsync-restore-b.db"), "SQLite format 3\0...").unwrap();
        let read = |recursive: bool, replica: &str| {
            let dir = at("data");
            let words = format!("dir: {}, pattern: \"*.db\", recursive: {recursive}, watch: true", dir.display());
            Litestream::parse(&format!("dbs: [{{{words}, replica: {{{replica}}}}}]")).unwrap()
        };
        let config = read(true, "url: \"s3://b/p?region=r\", access-key-id: a, secret-access-key: s");
        let named = |name: &str| (at("data").join(name), format!("s3://b/p/{name}?region=r"));
        assert_eq!(config.listed().unwrap(), [named("b.db"), named("x/.y/c.db")]);
        let stores = config.open(true).unwrap();
        let found = config.look(&stores, &mut Places::default()).unwrap();
        assert!(found.empty.is_empty() && found.refused.is_empty());
        let name = ltx::FileName { min_txid: 1, max_txid: 1 };
        let keys: Vec<String> = found.databases.iter().map(|(_, replica)| replica.key(0, name)).collect();
        assert!(keys[0].starts_with("p/b.db/0000/") && keys[1].starts_with("p/x/.y/c.db/0000/"), "{keys:?}");
        let lost = config.replica(&at("data/gone/d.db")).unwrap().unwrap();
        assert!(lost.key(0, name).starts_with("p/gone/d.db/0000/"));
        assert!(config.replica(&at("d.db")).is_none() && config.replica(&at("data/a.sqlite")).is_none());
        let flat = read(false, "path: /replicas");
        assert_eq!(flat.listed().unwrap(), [(at("data/b.db"), "file:///replicas/b.db".to_owned())]);
        assert!(flat.replica(&at("data/gone/d.db")).is_none() && flat.replica(&at("data/d.db")).is_some());
        std::fs::remove_file(at("data/b.db")).unwrap();
        let found = flat.look(&flat.open(true).unwrap(), &mut Places::default()).unwrap();
        assert!(found.databases.is_empty() && found.empty.contains_key(&at("data/*.db")));
    }
}
