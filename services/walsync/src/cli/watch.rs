//! `watch`, `replicate` and `snapshot`: a replicator, until a signal or until all is sent.

use super::control::Patterns;
use super::operations::{self, Listening};
use super::program::Program;
use service_kit::url::Url;
use service_kit::{console, logs};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tracing::Level;
use walsync::clock::SystemClock;
use walsync::config::{Either, Found, Opened, Places, litestream::Litestream};
use walsync::database::DatabaseFiles;
use walsync::replica::Replica;
use walsync::replicator::{Phase, Replicator, Settings, Status};
use walsync::restore::{RestoreError, Target, restore};

/// From the signal to the end, less what the end itself takes.
const STOP: Duration = Duration::from_secs(8);
/// How long `snapshot` waits for a snapshot that cannot be taken at once.
const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks for new databases.
const RESCAN: Duration = Duration::from_secs(5);

/// What is said about a replicator beside its configuration.
#[derive(Default)]
pub struct With {
    /// Where it serves.
    pub listen: Option<Url>,
    /// A program that runs meanwhile.
    pub exec: Option<String>,
    /// Who watches the databases already replicates them into another place.
    pub elsewhere: bool,
    /// What is not there is restored first.
    pub restores: bool,
    /// How much it tells.
    pub log_level: Option<Level>,
}

pub(super) fn start_logs(level: Option<Level>) {
    match level {
        Some(level) => logs::start(logs::Format::Text, level),
        None => logs::start_by_environment(),
    }
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

fn add(replicator: &Replicator, patterns: &Patterns, found: Found) {
    found.databases.into_iter().for_each(|(path, replica)| replicator.add(path, replica));
    found.refused.into_iter().for_each(|(path, why)| replicator.refuse(path, why));
    patterns.set(found.empty);
}

/// What is done before a replicator is started.
fn begin(level: Option<Level>) {
    start_logs(level);
    // A thread that panics would leave its database unreplicated, and nobody would know.
    service_kit::panics::end_the_process();
    // A database takes four and more.
    service_kit::open_files::raise();
}

/// Replicates what the configuration names until it is told to stop, or until the program ends that runs meanwhile.
pub fn watch(config: &Either, with: With) -> anyhow::Result<()> {
    let (listen, exec) = match config {
        Either::Walsync(config) => {
            config.check_drill_folder()?;
            (with.listen, with.exec.as_ref())
        }
        Either::Litestream(config) => (
            with.listen.map_or_else(|| address(config), |url| Ok(Some(url)))?,
            with.exec.as_ref().or(config.exec.as_ref()),
        ),
    };
    let program = exec.map(|command| Program::parse(command)).transpose()?;
    let (opened, mut places) = (config.open(true)?, Places::default());
    let found = opened.look(&mut places)?;
    let settings = config.settings()?;
    begin(with.log_level);
    if !with.elsewhere {
        refuse_beside_a_watcher(&found.databases, "of two that write there the first one stops; end that first")?;
    }
    restore_lost(&opened, with.restores)?;
    run(settings, listen.as_ref(), program, &opened, places, found)
}

/// Restores what is to be there before it is watched. What has no replica yet is made by the application.
fn restore_lost(opened: &Opened, all: bool) -> anyhow::Result<()> {
    for (path, replica) in opened.lost(all) {
        match restore(&replica, Target::Latest, &path, false) {
            Ok(restored) => tracing::info!(path = %path.display(), txid = restored.txid, "restored"),
            Err(RestoreError::Empty) => tracing::info!(path = %path.display(), "there is no replica yet"),
            Err(error) => return Err(anyhow::Error::from(error).context(path.display().to_string())),
        }
    }
    Ok(())
}

/// `found`: what there is to begin with, and has its place in `places`.
fn run(
    settings: Settings,
    listen: Option<&Url>,
    program: Option<Program>,
    opened: &Opened,
    mut places: Places,
    found: Found,
) -> anyhow::Result<()> {
    let stop = stop_flag()?;
    let listening = listen.map(Listening::bind).transpose()?;
    let replicator = Replicator::start(settings, Arc::new(SystemClock::default()))?;
    let patterns = Patterns::default();
    tracing::info!(databases = found.databases.len(), "watching");
    add(&replicator, &patterns, found);
    // Before that who asks for one of them would be told that nobody watches it.
    let serve = |listening: Listening| listening.serve(replicator.observer(), patterns.clone());
    let readiness = listening.map(serve).transpose()?;
    readiness.iter().for_each(operations::is_watching);
    let mut running = program.map(Program::start).transpose()?;
    let (mut scanned, mut told, mut ended) = (Instant::now(), None, None);
    while !stop.load(Ordering::Acquire) && ended.is_none() {
        std::thread::sleep(Duration::from_millis(100));
        if let Some(running) = &mut running {
            ended = running.ended()?;
        }
        if scanned.elapsed() >= RESCAN {
            let problem = match opened.look(&mut places) {
                Ok(found) => {
                    // What is named is wanted, be it there or not.
                    let wanted =
                        found.databases.iter().map(|(path, _)| path).chain(found.refused.iter().map(|(path, _)| path));
                    let wanted: HashSet<PathBuf> = wanted.cloned().collect();
                    replicator.forget(|path| wanted.contains(path));
                    add(&replicator, &patterns, found);
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
    // What it commits at its end is sent, too.
    if let (Some(running), None) = (&mut running, ended) {
        ended = Some(running.end()?);
    }
    tracing::info!("stopping: sending what is committed");
    match (left_behind(&replicator.stop(STOP)), ended.filter(|status| !status.success())) {
        (None, None) => Ok(()),
        (Some(what), _) => anyhow::bail!(what),
        (None, Some(status)) => anyhow::bail!("exec: the program ended with {status}; everything is durable"),
    }
}

/// What is not durable at the end; `None`: everything is. What was refused is told apart: no time would have helped it.
fn left_behind(behind: &[Status]) -> Option<String> {
    let (refused, late): (Vec<&Status>, Vec<&Status>) =
        behind.iter().partition(|one| matches!(one.phase, Phase::Refused(_)));
    let late = named(&late)
        .map(|late| format!("stopped before everything was durable: {late}; what the store lacks is still in the WAL"));
    let refused = named(&refused).map(|refused| format!("never replicated since the start: {refused}"));
    match (late, refused) {
        (Some(late), Some(refused)) => Some(format!("{late}; {refused}")),
        (late, refused) => late.or(refused),
    }
}

/// How many they are, the first by its name, and why that one is among them.
fn named(databases: &[&Status]) -> Option<String> {
    let first = databases.first()?;
    let path = first.path.display();
    let why = match &first.phase {
        Phase::Failing(why) => format!("the store fails: {why}").into(),
        phase => phase.why().unwrap_or("there was no time left to send it".into()),
    };
    Some(match databases.len() {
        1 => format!("1 database, {path} ({why})"),
        count => format!("{count} databases, {path} among them ({why})"),
    })
}

/// Where a replicator of Litestream's configuration serves, if it does.
pub fn address(config: &Litestream) -> anyhow::Result<Option<Url>> {
    let listen = config.listen.as_deref().map(str::parse::<Url>).transpose();
    listen.map_err(|error| anyhow::anyhow!("addr: {error}"))
}

/// Refuses to write into a replica beside a process that may be its writer: that one would stop, for good. `instead`: what to do.
fn refuse_beside_a_watcher(databases: &[(PathBuf, Replica)], instead: &str) -> anyhow::Result<()> {
    for (path, replica) in databases {
        let is_watched = match DatabaseFiles::open(path) {
            Ok(files) => files.is_watched()?,
            // What it is about is said where it is opened next.
            Err(_) => false,
        };
        anyhow::ensure!(
            !is_watched || replica.files()?.is_empty(),
            "{} is watched by another walsync, which stops when somebody else writes into its replica: {instead}. Where it replicates into \
             another place than this one, say --elsewhere",
            path.display()
        );
    }
    Ok(())
}

/// Once, with a snapshot of each where `whole`. `elsewhere`: whoever watches the databases replicates into another place.
pub fn once(config: &Either, elsewhere: bool, whole: bool) -> anyhow::Result<()> {
    let opened = config.open(true)?;
    let mut settings = Settings { drill: None, ..config.settings()? };
    if whole {
        settings.snapshot_interval = Duration::ZERO;
    }
    let found = opened.look(&mut Places::default())?;
    anyhow::ensure!(found.databases.len() + found.refused.len() > 0, "no file matches: nothing was sent");
    begin(None);
    if !elsewhere {
        let instead =
            "it takes snapshots itself (snapshot-interval-seconds), and `walsync sync` waits until all is durable";
        refuse_beside_a_watcher(&found.databases, instead)?;
    }
    let replicator = Replicator::start(settings, Arc::new(SystemClock::default()))?;
    add(&replicator, &Patterns::default(), found);
    let durable = replicator.sync(Duration::from_secs(3600));
    // Who asks for one waits until the application is out of the way.
    let end = Instant::now() + SNAPSHOT_PATIENCE;
    while replicator.status().iter().any(|one| one.snapshot_late.is_some()) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(100));
        replicator.sync(SNAPSHOT_PATIENCE);
    }
    let mut refused = 0;
    for status in replicator.status() {
        let said = match (status.phase.why(), &status.snapshot_late) {
            (Some(why), _) => why,
            (None, None) => format!("TXID {}", status.durable_txid).into(),
            (None, Some(late)) => format!("no snapshot: {}", late.why).into(),
        };
        console::print(format_args!("{}: {said}\n", status.path.display()))?;
        refused += usize::from(status.phase != Phase::Running || status.snapshot_late.is_some());
    }
    let databases = if refused == 1 { "database was" } else { "databases were" };
    anyhow::ensure!(durable && refused == 0, "{refused} {databases} not sent");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_behind_is_told_in_words_and_what_was_refused_apart() {
        let status = |path: &str, phase| Status { path: path.into(), phase, ..Status::default() };
        let failing = |path| status(path, Phase::Failing("GET http://a:1/bucket/: io: Connection refused".into()));
        let refused = status("/r.db", Phase::Refused("not in WAL mode".into()));
        assert_eq!(left_behind(&[]), None);
        let late = "stopped before everything was durable: 1 database, /a.db (the store fails: GET http://a:1/bucket/: \
                    io: Connection refused); what the store lacks is still in the WAL";
        let never = "never replicated since the start: 1 database, /r.db (not in WAL mode)";
        assert_eq!(left_behind(&[failing("/a.db")]).as_deref(), Some(late));
        assert_eq!(left_behind(std::slice::from_ref(&refused)).as_deref(), Some(never));
        assert_eq!(left_behind(&[refused, failing("/a.db")]), Some(format!("{late}; {never}")));
        let both = left_behind(&[failing("/a.db"), failing("/b.db")]).unwrap();
        assert!(both.contains("2 databases, /a.db among them (the store fails"), "{both}");
    }
}
