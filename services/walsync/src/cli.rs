//! Words of the command line: walsync's, and those of Litestream that a user may already have in scripts.

mod ask;
mod bench;
mod control;
mod explain;
mod follow;
mod go;
mod inspect;
mod litestream;
mod number;
mod once;
mod operations;
mod program;
mod restore;
mod stop;
mod table;
mod verify;
mod watch;

use clap::{Args, Parser, Subcommand};
use number::whole;
use service_kit::console;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;
use walsync::config::{
    AzureOptions, Config, ConfigError, Either, GcsOptions, Location, RetentionOptions, S3Options, with_name,
};
use walsync::replica::Replica;
use walsync::replicator::{INTERVAL_LEAST, Settings};
use walsync::retention::Policy;

pub use go::long_flags;
pub use litestream::{instead, unknown_verb};

/// Replicas that are told by name where none was meant.
const NAMED_MAX: usize = 3;

/// Replicates SQLite databases into object storage, and restores them.
///
/// Databases must be in WAL mode. They are read, never written. Objects are laid out as Litestream 0.5 lays them out:
/// either program restores what the other wrote.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
pub struct Walsync {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Replicate until SIGTERM or SIGINT; then send what is committed and stop within 10 seconds
    Watch(ServeArgs),
    /// Send what is committed now, with a snapshot, and stop; not beside a process that replicates into the same place
    Snapshot(SnapshotArgs),
    /// Make a database of a replica; never over one that is there
    Restore(restore::RestoreArgs),
    /// List the files of a replica with their times, and the points that can be restored
    List(ListArgs),
    /// Read the files of a replica and compare their checksums; say what is missing
    Verify(VerifyArgs),
    /// Say what no point that is kept needs any more; with --force, remove it
    Compact(CompactArgs),
    /// Say what a configuration means, and what its requests cost
    Explain(WatchArgs),
    /// Make a replica of one of Litestream 0.3, with its history; that one is only read
    Import(ImportArgs),
    /// Say how each database of a replicator at work stands
    Status(StatusArgs),
    /// Wait until what is committed in a database is durable
    Sync(SyncArgs),
    /// Measure what this does and costs on this machine, and Litestream beside it where that is there; everything is removed at the end
    Bench(bench::BenchArgs),
    /// Litestream's: replicate as litestream.yml says
    Replicate(litestream::ReplicateArgs),
    /// Litestream's: the databases in litestream.yml
    Databases(litestream::DatabasesArgs),
    /// Litestream's: the files of a replica
    Ltx(ListArgs),
    /// Litestream's: which version this is
    #[command(hide = true)]
    Version,
    #[command(flatten)]
    Foreign(litestream::Foreign),
}

/// S3, where flags are handier than a file.
#[derive(Args, Clone, Default)]
struct S3Args {
    /// S3's endpoint, https://host[:port] [default: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS's own]
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// S3's region [default: AWS_REGION, AWS_DEFAULT_REGION, us-east-1]
    #[arg(long, value_name = "NAME")]
    region: Option<String>,
}

impl S3Args {
    /// Refuses what would be without effect beside a file.
    fn without_file(&self) -> Result<(), ConfigError> {
        let said = [("--endpoint", &self.endpoint), ("--region", &self.region)];
        match said.into_iter().find(|(_, value)| value.is_some()) {
            None => Ok(()),
            Some((flag, _)) => {
                let problem =
                    "cannot be used with --config: the file says how its store is reached; write it there".into();
                Err(ConfigError::Value { field: flag.into(), problem })
            }
        }
    }

    /// With what the environment says where the flags say nothing: for who has to know what it is.
    fn of_environment(&self) -> S3Args {
        let said = |flag: &Option<String>, names: [&str; 2]| {
            let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
            flag.clone().or_else(|| names.into_iter().find_map(set))
        };
        S3Args {
            endpoint: said(&self.endpoint, ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]),
            region: said(&self.region, ["AWS_REGION", "AWS_DEFAULT_REGION"]),
        }
    }

    fn options(&self) -> S3Options {
        S3Options { endpoint: self.endpoint.clone(), region: self.region.clone(), ..S3Options::default() }
    }
}

#[derive(Args)]
struct WatchArgs {
    /// Databases; * in the last part of a path stands for anything
    databases: Vec<PathBuf>,
    /// Where to: s3://bucket/prefix, gs://bucket/prefix, abs://account@container/prefix or file:///folder
    #[arg(long, value_name = "URL", required_unless_present = "config", conflicts_with = "config")]
    to: Option<String>,
    /// Instead: a configuration in YAML, walsync's or Litestream's
    #[arg(long, value_name = "FILE", conflicts_with = "databases")]
    config: Option<PathBuf>,
    /// Between uploads of one database, in milliseconds
    #[arg(long, value_name = "MILLIS", conflicts_with = "config", value_parser = whole::<u64>("milliseconds", INTERVAL_LEAST.as_millis() as u64..=u64::MAX))]
    interval_millis: Option<u64>,
    /// For staged files that do not fit into memory [default: the system's temporary folder]
    #[arg(long, value_name = "FOLDER", conflicts_with = "config")]
    staging_folder: Option<PathBuf>,
    /// What holds frames in the WAL [default: locks, and where they do not work a read transaction]
    #[arg(long, value_name = "KIND", conflicts_with = "config")]
    pin: Option<walsync::pin::PinKind>,
    #[command(flatten)]
    s3: S3Args,
}

/// Of the verbs that go on until they are told to stop.
#[derive(Args)]
struct ServeArgs {
    /// Where to serve /metrics, /livez and /readyz: http://HOST:PORT [default: nowhere]
    #[arg(long, value_name = "URL", value_parser = operations::address)]
    listen: Option<service_kit::url::Url>,
    #[command(flatten)]
    beside: Beside,
    #[command(flatten)]
    watch: WatchArgs,
}

/// What is at work beside the replicator.
#[derive(Args)]
struct Beside {
    /// A program to run meanwhile: walsync ends when it does, and ends it when it is told to stop
    #[arg(long, value_name = "COMMAND")]
    exec: Option<String>,
    /// Another walsync watches the databases, and replicates them into another place
    #[arg(long)]
    elsewhere: bool,
}

#[derive(Args)]
struct SnapshotArgs {
    /// Another walsync watches the databases, and replicates them into another place
    #[arg(long)]
    elsewhere: bool,
    /// End after so long, whatever was not sent [default: when the store says that trying again will not help, or fails for a minute]
    #[arg(long, value_name = "SECONDS", value_parser = whole::<u64>("seconds", 0..=u64::MAX))]
    timeout: Option<u64>,
    #[command(flatten)]
    watch: WatchArgs,
}

impl WatchArgs {
    /// The configuration that the flags mean.
    fn config(&self) -> Result<Either, ConfigError> {
        if let Some(path) = &self.config {
            self.s3.without_file()?;
            return Either::read(path);
        }
        if self.databases.is_empty() {
            return Err(ConfigError::Value { field: "databases".into(), problem: "name at least one".into() });
        }
        let databases = self.databases.iter().cloned();
        Ok(Either::Walsync(Box::new(Config {
            store: self.to.clone().unwrap_or_default(),
            listen: None,
            s3: self.s3.options(),
            gcs: GcsOptions::default(),
            azure: AzureOptions::default(),
            interval_millis: self.interval_millis,
            snapshot_interval_seconds: None,
            levels_millis: None,
            retention: RetentionOptions::default(),
            uploads: None,
            staging_folder: self.staging_folder.clone(),
            pin: self.pin,
            wal_bytes_max: None,
            uploads_a_month_max: None,
            restore_drill: None,
            databases: databases.map(|path| walsync::config::DatabaseOptions { path, name: None }).collect(),
        })))
    }
}

#[derive(Args)]
struct PlaceArgs {
    /// The replica, with its name: s3://bucket/prefix/app.db; or the path of a database in the configuration
    place: String,
    /// The configuration with which it was replicated, walsync's or Litestream's: it says where the replica of a database is, and how its
    /// store is reached
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Leave $VARIABLES in Litestream's configuration as they are
    #[arg(long, requires = "config")]
    no_expand_env: bool,
    #[command(flatten)]
    s3: S3Args,
}

impl PlaceArgs {
    fn replica(&self) -> Result<Replica, ConfigError> {
        if let Some(config) = &self.config {
            self.s3.without_file()?;
            return Either::read_as(config, !self.no_expand_env)?.replica(&self.place, config);
        }
        Ok(Location::open(&self.place, &self.s3.options())?.replica(""))
    }

    /// Whether Litestream 0.3 has written there.
    fn is_legacy(&self) -> bool {
        let location = Location::open(&self.place, &self.s3.options());
        location.is_ok_and(|location| location.legacy().is_there().unwrap_or_default())
    }

    /// Says where there is no replica, and which ones lie below that place: one of them may have been meant.
    fn no_replica(&self, replica: &Replica) -> anyhow::Error {
        if let Some(config) = &self.config {
            let config = config.display();
            return anyhow::anyhow!("there is no replica of {} where {config} has it: no LTX file", self.place);
        }
        // Where nothing can be listed, nothing else is known.
        let names = replica.names_below().unwrap_or_default();
        let shown: Vec<String> = names.iter().take(NAMED_MAX).map(|name| with_name(&self.place, name)).collect();
        let shown = shown.join(", ");
        let place = &self.place;
        match names.len() {
            0 if self.is_legacy() => anyhow::anyhow!(
                "{place} is a replica of Litestream 0.3: `walsync import {place} --to URL` makes one of it that can be restored"
            ),
            0 if !place.contains("://") => anyhow::anyhow!(
                "there is no replica in the folder {place}: where that is the path of a database, --config FILE says where its replica is"
            ),
            0 => anyhow::anyhow!("there is no replica here: no LTX file below {place}"),
            1 => anyhow::anyhow!("there is no replica at {place}, but there is one at {shown}: name that"),
            count => anyhow::anyhow!("there is no replica at {place}, but {count} below it: name one, such as {shown}"),
        }
    }
}

#[derive(Args)]
struct VerifyArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Read so many files instead of all, chosen at random: what is missing is found all the same, and damage the sooner the more often this runs
    #[arg(long, value_name = "FILES", value_parser = whole::<u64>("files", 1..=u64::MAX))]
    sample: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct ListArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Files of this level alone, 0 to 9 [default: all]
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    level: Option<Level>,
    /// Print Litestream's JSON, and files alone
    #[arg(long)]
    json: bool,
}

/// Whose files are listed; `None`: those of all levels.
#[derive(Clone, Copy)]
struct Level(Option<u8>);

fn level(text: &str) -> Result<Level, String> {
    match text.parse() {
        Ok(level @ 0..=9) => Ok(Level(Some(level))),
        _ if text == "all" => Ok(Level(None)),
        _ => Err("a level is a digit, or all".into()),
    }
}

fn txid(text: &str) -> Result<u64, String> {
    let parsed = if text.len() == 16 { u64::from_str_radix(text, 16) } else { text.parse() };
    parsed
        .ok()
        .filter(|txid| (1..=ltx::TXID_MAX).contains(txid))
        .ok_or_else(|| "a TXID is a whole number from 1".into())
}

const POINTS: RangeInclusive<u64> = 0..=u32::MAX as u64;

/// Points that are kept, of the time before the last day.
#[derive(Args)]
struct CompactArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// One in each of so many hours
    #[arg(long, default_value_t = Policy::default().hourly, value_parser = whole::<u32>("points", POINTS))]
    hourly: u32,
    /// One in each of so many days
    #[arg(long, default_value_t = Policy::default().daily, value_parser = whole::<u32>("points", POINTS))]
    daily: u32,
    /// One in each of so many weeks
    #[arg(long, default_value_t = Policy::default().weekly, value_parser = whole::<u32>("points", POINTS))]
    weekly: u32,
    /// One in each of so many months
    #[arg(long, default_value_t = Policy::default().monthly, value_parser = whole::<u32>("points", POINTS))]
    monthly: u32,
    /// The configuration of the process that watches this database: what it keeps, not the flags, stays
    #[arg(long, value_name = "FILE", conflicts_with_all = ["hourly", "daily", "weekly", "monthly"])]
    watched_by: Option<PathBuf>,
    /// No process watches this database any more
    #[arg(long, conflicts_with = "watched_by")]
    unwatched: bool,
    /// Remove it; needs --watched-by, --config or --unwatched, since what a process keeps must not be taken from under it
    #[arg(long)]
    force: bool,
}

impl CompactArgs {
    /// What is kept, and in how many levels it lies.
    fn kept(&self) -> anyhow::Result<(Policy, usize)> {
        let settings = match (&self.watched_by, &self.place.config) {
            (Some(file), _) => Some((file, Either::read(file)?.settings()?)),
            (None, Some(file)) if !self.unwatched => Some((file, Either::read(file)?.settings()?)),
            _ => None,
        };
        if let Some((file, settings)) = settings {
            let levels = settings.levels.len();
            let kept = settings.retention.map(|policy| (policy, levels));
            return kept.ok_or_else(|| anyhow::anyhow!("{} keeps everything: nothing may go", file.display()));
        }
        if self.force && !self.unwatched {
            let problem =
                "needs --watched-by FILE, the configuration of the process that watches the database, or --unwatched";
            return Err(ConfigError::Value { field: "--force".into(), problem: problem.into() }.into());
        }
        let (hourly, daily, weekly, monthly) = (self.hourly, self.daily, self.weekly, self.monthly);
        Ok((Policy { hourly, daily, weekly, monthly, ..Policy::default() }, Settings::default().levels.len()))
    }
}

#[derive(Args)]
struct ImportArgs {
    /// The replica of Litestream 0.3, with its name: s3://bucket/path or file:///folder; `generations` lies below it
    from: String,
    /// Where to, with the name that it is to have: s3://bucket/prefix/app.db
    #[arg(long, value_name = "URL")]
    to: String,
    /// Of several generations this one [default: the one that was written last]
    #[arg(long, value_name = "ID")]
    generation: Option<String>,
    /// With room for the database and one WAL [default: the system's temporary folder]
    #[arg(long, value_name = "FOLDER")]
    staging_folder: Option<PathBuf>,
    #[command(flatten)]
    s3: S3Args,
}

/// Whom to ask.
#[derive(Args)]
struct AskArgs {
    /// Where the replicator serves: its --listen
    #[arg(long, value_name = "URL", value_parser = operations::address, required_unless_present = "config", conflicts_with = "config")]
    listen: Option<service_kit::url::Url>,
    /// Instead: the configuration, whose `listen` says so, or in Litestream's words its `addr`
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl AskArgs {
    fn replicator(&self) -> anyhow::Result<service_kit::url::Url> {
        let missing = |problem: String| ConfigError::Value { field: "--listen".into(), problem };
        match (&self.listen, &self.config) {
            (Some(listen), _) => Ok(listen.clone()),
            (None, Some(file)) => {
                let config = Either::read(file)?;
                let file = file.display();
                let why = match &config {
                    Either::Litestream(_) => format!("is missing, and {file} has no addr: nobody can be asked"),
                    Either::Walsync(_) => {
                        format!("is missing, and {file} has no listen: either names the one of `watch`")
                    }
                };
                Ok(operations::address_of(&config)?.ok_or_else(|| missing(why))?)
            }
            (None, None) => anyhow::bail!("--listen or --config says whom to ask"),
        }
    }
}

#[derive(Args)]
struct StatusArgs {
    /// Of this database alone
    database: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// End with exit code 1 while a database is failing, stalled, refused or fenced, or at risk for too long
    #[arg(long)]
    check: bool,
    /// For how long a database may be at risk, with --check
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, requires = "check", value_parser = number::seconds)]
    at_risk_max: f64,
    #[command(flatten)]
    ask: AskArgs,
}

#[derive(Args)]
struct SyncArgs {
    /// The database
    database: PathBuf,
    /// Until when: `latest` is what is committed now; a TXID may also be one of the future
    #[arg(long, value_name = "TXID|latest", default_value = "latest", value_parser = wait, num_args = 0..=1,
        default_missing_value = "latest")]
    wait: Wait,
    /// For how long at most, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = whole::<u64>("seconds", 0..=u64::MAX))]
    timeout: u64,
    #[command(flatten)]
    ask: AskArgs,
}

/// What `sync` waits for; `None`: what is committed now.
#[derive(Clone, Copy)]
struct Wait(Option<u64>);

fn wait(text: &str) -> Result<Wait, String> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match text {
        "latest" => Ok(Wait(None)),
        // A database, most likely.
        _ if !is_number => Err("is no TXID; Litestream's -wait has no value: write it behind the database".into()),
        text => txid(text).map(|txid| Wait(Some(txid))),
    }
}

/// Unix milliseconds as a person reads them.
fn time(millis: i64) -> String {
    jiff::Timestamp::from_millisecond(millis).map_or_else(|_| format!("{millis} ms"), |time| time.to_string())
}

impl Walsync {
    /// Does what the words say.
    pub fn run(self) -> anyhow::Result<()> {
        match self.verb {
            Verb::Watch(arguments) => {
                let ServeArgs { listen, beside, watch } = arguments;
                let with = watch::With { listen, exec: beside.exec, elsewhere: beside.elsewhere, ..Default::default() };
                watch::watch(&watch.config()?, with)
            }
            Verb::Snapshot(arguments) => {
                let SnapshotArgs { elsewhere, timeout, watch } = arguments;
                let timeout = timeout.map(Duration::from_secs);
                once::once(&watch.config()?, &once::Once { elsewhere, timeout, whole: true, ..Default::default() })
            }
            Verb::Explain(arguments) => explain::explain(&arguments.config()?),
            Verb::Restore(arguments) => arguments.run(),
            Verb::List(arguments) | Verb::Ltx(arguments) => {
                inspect::list(&arguments.place, arguments.level.and_then(|level| level.0), arguments.json)
            }
            Verb::Verify(arguments) => verify::verify(&arguments.place, arguments.sample, arguments.json),
            Verb::Compact(arguments) => {
                let (policy, levels) = arguments.kept()?;
                inspect::compact(&arguments.place, &policy, levels as u8, arguments.force)
            }
            Verb::Foreign(verb) => Err(verb.refuse().into()),
            Verb::Import(arguments) => inspect::import(&arguments),
            Verb::Status(arguments) => {
                let told = ask::Told {
                    in_json: arguments.json,
                    at_risk_max: arguments.check.then_some(arguments.at_risk_max),
                };
                ask::status(&arguments.ask.replicator()?, arguments.database.as_deref(), told)
            }
            Verb::Sync(arguments) => {
                let timeout = Duration::from_secs(arguments.timeout);
                ask::sync(&arguments.ask.replicator()?, &arguments.database, arguments.wait.0, timeout)
            }
            Verb::Bench(arguments) => crate::bench::run(arguments.options(), stop::Stop::on_signals()?.flag()),
            Verb::Replicate(arguments) => arguments.run(),
            Verb::Databases(arguments) => arguments.run(),
            Verb::Version => Ok(console::print(format_args!("{}\n", env!("CARGO_PKG_VERSION")))?),
        }
    }
}
