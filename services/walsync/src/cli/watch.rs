//! `watch`, `replicate` and `snapshot`: a replicator, until a signal or until all is sent.

use super::control::Patterns;
use super::operations::{self, Listening};
use service_kit::console;
use service_kit::url::Url;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use walsync::clock::SystemClock;
use walsync::config::{Config, ConfigError, Location, litestream::Litestream};
use walsync::replica::Replica;
use walsync::replicator::{Phase, Replicator, Settings};

/// From the signal to the end, less what the end itself takes.
const STOP: Duration = Duration::from_secs(8);
/// Between two looks for new databases.
const RESCAN: Duration = Duration::from_secs(5);

pub(super) fn logs() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A second subscriber is refused, and the first one stays: nothing to do about it.
    let _ = subscriber.try_init();
}

/// Set by SIGTERM and SIGINT.
pub(super) fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        // A second signal ends at once.
        signal_hook::flag::register_conditional_shutdown(signal, 130, flag.clone())?;
        signal_hook::flag::register(signal, flag.clone())?;
    }
    Ok(flag)
}

/// What there is to replicate now: databases, and patterns that no file matches.
type Found = (Vec<(PathBuf, Replica)>, Vec<PathBuf>);

fn run(
    settings: Settings,
    listen: Option<&Url>,
    mut look: impl FnMut() -> anyhow::Result<Found>,
) -> anyhow::Result<()> {
    logs();
    // A thread that panics would leave its database unreplicated, and nobody would know.
    service_kit::panics::end_the_process();
    // A database takes four and more.
    service_kit::open_files::raise();
    let stop = stop_flag()?;
    let listening = listen.map(Listening::bind).transpose()?;
    let replicator = Replicator::start(settings, Arc::new(SystemClock::default()))?;
    let patterns = Patterns::default();
    let serve = |listening: Listening| listening.serve(replicator.observer(), patterns.clone());
    let readiness = listening.map(serve).transpose()?;
    let (databases, empty) = look()?;
    tracing::info!(databases = databases.len(), "watching");
    for (path, replica) in databases {
        replicator.add(path, replica);
    }
    patterns.set(empty);
    readiness.iter().for_each(operations::is_watching);
    let mut scanned = Instant::now();
    let mut told = None;
    while !stop.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(100));
        if scanned.elapsed() >= RESCAN {
            let problem = match look() {
                Ok((databases, empty)) => {
                    databases.into_iter().for_each(|(path, replica)| replicator.add(path, replica));
                    patterns.set(empty);
                    None
                }
                Err(error) => Some(error.to_string()),
            };
            if let Some(problem) = problem.as_ref().filter(|_| problem != told) {
                tracing::warn!(problem, "cannot look for new databases; tried again");
            }
            told = problem;
            scanned = Instant::now();
        }
    }
    tracing::info!("stopping: sending what is committed");
    let behind = replicator.stop(STOP);
    let Some(first) = behind.first() else { return Ok(()) };
    anyhow::bail!(
        "stopped before everything was durable: {} databases, {} among them ({:?}); their WALs still have it",
        behind.len(),
        first.path.display(),
        first.phase
    )
}

/// Our own configuration.
pub fn watch(config: &Config, listen: Option<&Url>) -> anyhow::Result<()> {
    config.check_drill_folder()?;
    let store = Location::open(&config.store, &config.s3)?;
    config.databases(&store)?;
    run(config.settings()?, listen, || Ok((config.databases(&store)?, config.patterns_without_files()?)))
}

/// Where a replicator of Litestream's configuration serves, if it does.
pub fn address(config: &Litestream) -> anyhow::Result<Option<Url>> {
    let listen = config.listen.as_deref().map(str::parse::<Url>).transpose();
    listen.map_err(|error| anyhow::anyhow!("addr: {error}"))
}

/// Litestream's.
pub fn replicate(config: Litestream) -> anyhow::Result<()> {
    let listen = address(&config)?;
    if config.databases.is_empty() {
        let problem = "names no database: nothing would be replicated".into();
        return Err(ConfigError::Value { field: "dbs".into(), problem }.into());
    }
    run(config.settings, listen.as_ref(), || {
        let databases = config.databases.iter().map(|database| (database.path.clone(), database.replica.clone()));
        Ok((databases.collect(), Vec::new()))
    })
}

/// Once.
pub fn snapshot(config: &Config) -> anyhow::Result<()> {
    logs();
    let store = Location::open(&config.store, &config.s3)?;
    let settings = Settings { snapshot_interval: Duration::ZERO, drill: None, ..config.settings()? };
    let databases = config.databases(&store)?;
    anyhow::ensure!(!databases.is_empty(), "no file matches: nothing was sent");
    let replicator = Replicator::start(settings, Arc::new(SystemClock::default()))?;
    for (path, replica) in databases {
        replicator.add(path, replica);
    }
    let durable = replicator.sync(Duration::from_secs(3600));
    let mut refused = 0;
    for status in replicator.status() {
        match &status.phase {
            Phase::Running => {
                console::print(format_args!("{}: TXID {}\n", status.path.display(), status.durable_txid))?
            }
            Phase::Waiting(why) => console::print(format_args!("{}: {why}\n", status.path.display()))?,
            Phase::Failing(why) | Phase::Stalled(why) | Phase::Refused(why) => {
                console::print(format_args!("{}: {why}\n", status.path.display()))?
            }
            Phase::Fenced(key) => {
                console::print(format_args!("{}: another process writes {key}\n", status.path.display()))?
            }
        }
        refused += usize::from(status.phase != Phase::Running);
    }
    anyhow::ensure!(durable && refused == 0, "{refused} databases were not sent");
    Ok(())
}
