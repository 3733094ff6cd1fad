//! `watch` and `replicate`: a replicator, until a signal.

use super::control::Patterns;
use super::operations::{self, Listening};
use super::program::{Program, is_told};
use super::stop::Stop;
use service_kit::logs;
use service_kit::url::Url;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::Level;
use walsync::clock::SystemClock;
use walsync::config::{ConfigError, Either, Found, Opened, Places};
use walsync::database::DatabaseFiles;
use walsync::replica::Replica;
use walsync::replicator::{Phase, Replicator, Settings, Status};
use walsync::restore::{RestoreError, Target, restore};

/// From the signal to the end, less what the end itself takes.
const STOP: Duration = Duration::from_secs(8);
/// Between two looks at signals, and at the program.
const LOOK: Duration = Duration::from_millis(100);
/// By how much a signal to a whole group may come to us later than to the program.
const SAME_SIGNAL: Duration = Duration::from_secs(1);
/// From when on a store is called silent: a small file is sent in less.
pub(super) const SILENCE: Duration = Duration::from_secs(10);
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

pub(super) fn add(replicator: &Replicator, patterns: &Patterns, found: Found) {
    found.databases.into_iter().for_each(|(path, replica)| replicator.add(path, replica));
    found.refused.into_iter().for_each(|(path, why)| replicator.refuse(path, why));
    patterns.set(found.empty);
}

/// What is done before a replicator is started.
pub(super) fn begin(level: Option<Level>) {
    start_logs(level);
    // A thread that panics would leave its database unreplicated, and nobody would know.
    service_kit::panics::end_the_process();
}

/// What a configuration says of what is beside the replicator: where it serves, and the program that runs meanwhile. `explain` asks, too, so that
/// what it finds right is begun.
pub(super) fn beside(config: &Either) -> Result<(Option<Url>, Option<Program>), ConfigError> {
    let exec = match config {
        Either::Walsync(config) => {
            config.check_drill_folder()?;
            None
        }
        Either::Litestream(config) => config.exec.as_deref(),
    };
    Ok((operations::address_of(config)?, exec.map(Program::parse).transpose()?))
}

/// What is told of the folder for staged files, which may come later.
pub(super) fn without_staging_folder(settings: &Settings) -> Option<&'static str> {
    let problem = "the staging folder is not there: what does not fit into memory waits until it is";
    (!settings.staging_folder.is_dir()).then_some(problem)
}

/// Replicates what the configuration names until it is told to stop, or until the program ends that runs meanwhile.
pub fn watch(config: &Either, with: With) -> anyhow::Result<()> {
    let (listen, program) = beside(config)?;
    let listen = with.listen.or(listen);
    let program = with.exec.as_deref().map(Program::parse).transpose()?.or(program);
    let (opened, mut places) = (config.open(true)?, Places::default());
    let found = opened.look(&mut places)?;
    let settings = Settings { stands_back: !with.elsewhere, ..config.settings()? };
    begin(with.log_level);
    if !with.elsewhere {
        refuse_beside_a_watcher(&found.databases, "of two that write there the first one stops; end that first")?;
    }
    restore_lost(&opened, with.restores)?;
    run(settings, listen.as_ref(), program, &opened, places, found)
}

/// Restores what is to be there before it is watched. What has no replica yet is made by the application.
pub(super) fn restore_lost(opened: &Opened, all: bool) -> anyhow::Result<()> {
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
    let stop = Stop::on_signals()?;
    if let Some(problem) = without_staging_folder(&settings) {
        tracing::warn!(path = %settings.staging_folder.display(), "{problem}");
    }
    let listening = listen.map(Listening::bind).transpose()?;
    let replicator = Replicator::start(settings, Arc::new(SystemClock::default()))?;
    stop.tells_of(replicator.observer());
    let patterns = Patterns::default();
    // It has as many open files as it would have without us. Who asks at the address is answered a moment later.
    let mut running = program.map(Program::start).transpose()?;
    // A database takes four and more.
    service_kit::open_files::raise();
    let to = opened.places();
    let more = to.len().saturating_sub(1);
    let (to, more) = (to.first().map(String::as_str), (more > 0).then_some(more));
    tracing::info!(databases = found.databases.len(), to, and_other_places = more, "watching");
    add(&replicator, &patterns, found);
    // Before that who asks for one of them would be told that nobody watches it.
    let serve = |listening: Listening| listening.serve(replicator.observer(), patterns.clone());
    let readiness = listening.map(serve).transpose()?;
    readiness.iter().for_each(operations::is_watching);
    let (mut scanned, mut told, mut silent, mut ended) = (Instant::now(), None, false, None);
    while !stop.is_set() && ended.is_none() {
        std::thread::sleep(LOOK);
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
                    places.keep(|path| wanted.contains(path) || replicator.has(path));
                    add(&replicator, &patterns, found);
                    None
                }
                Err(error) => Some(error.to_string()),
            };
            if let Some(problem) = problem.as_ref().filter(|_| problem != told) {
                tracing::warn!(problem, "cannot look for new databases; tried again");
            }
            told = problem;
            silent = tell_of_silence(&replicator.status(), silent);
            scanned = Instant::now();
        }
    }
    readiness.iter().for_each(operations::is_stopping);
    // Ctrl-C, and systemd, signal to the whole group: then the program has ended as we are told to.
    if ended.is_some_and(is_told) {
        let end = Instant::now() + SAME_SIGNAL;
        while !stop.is_set() && Instant::now() < end {
            std::thread::sleep(LOOK);
        }
    }
    // What it commits at its end is sent, too.
    if let (Some(running), None) = (&mut running, ended) {
        ended = Some(running.end()?);
    }
    let ended = ended.filter(|status| !(status.success() || stop.is_set() && is_told(*status)));
    tracing::info!("stopping: sending what is committed");
    match (left_behind(&replicator.stop(STOP)), ended) {
        (None, None) => Ok(()),
        (Some(what), _) => anyhow::bail!(what),
        (None, Some(status)) => anyhow::bail!("exec: the program ended with {status}; everything is durable"),
    }
}

/// Tells once of a store that does not answer: that it fails is found out much later.
fn tell_of_silence(status: &[Status], was_silent: bool) -> bool {
    let asked = |one: &&Status| one.asked.is_some_and(|asked| asked >= SILENCE);
    let silent: Vec<&Status> = status.iter().filter(asked).collect();
    if let (Some(first), false) = (silent.first(), was_silent) {
        let (path, seconds) = (first.path.display(), first.asked.unwrap_or_default().as_secs());
        tracing::warn!(%path, seconds, databases = silent.len(), "the store does not answer; frames stay in the WAL until it does");
    }
    !silent.is_empty()
}

/// What is not durable at the end; `None`: everything is. What was refused is told apart: no time would have helped it.
pub(super) fn left_behind(behind: &[Status]) -> Option<String> {
    let (refused, late): (Vec<&Status>, Vec<&Status>) =
        behind.iter().partition(|one| matches!(one.phase, Phase::Refused(_)));
    let late = named(&late)
        .map(|late| format!("stopped before everything was durable: {late}; what the store lacks is still in the WAL"));
    let never = refused.iter().all(|one| one.durable_txid == 0);
    let since = if never { "never replicated since the start" } else { "not replicated any more" };
    let refused = named(&refused).map(|refused| format!("{since}: {refused}"));
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

/// Refuses to write into a replica beside a process that may be its writer: that one would stop, for good. `instead`: what to do.
pub(super) fn refuse_beside_a_watcher(databases: &[(PathBuf, Replica)], instead: &str) -> anyhow::Result<()> {
    for (path, replica) in databases {
        let is_watched = match DatabaseFiles::open(path) {
            Ok(files) => files.is_watched()?,
            // What it is about is said where it is opened next.
            Err(_) => false,
        };
        let is_begun = is_watched && !replica.files()?.is_empty();
        if is_watched && !is_begun {
            let path = path.display();
            tracing::warn!(%path, "another walsync watches it; where that one replicates into another place, say --elsewhere: without it the next start is refused");
        }
        anyhow::ensure!(
            !is_begun,
            "{} is watched by another walsync, which stops when somebody else writes into its replica: {instead}. Where it replicates into \
             another place than this one, say --elsewhere",
            path.display()
        );
    }
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
        let since = Status { durable_txid: 7, ..refused.clone() };
        assert!(left_behind(&[since]).unwrap().starts_with("not replicated any more: 1 database, /r.db"));
        assert_eq!(left_behind(&[refused, failing("/a.db")]), Some(format!("{late}; {never}")));
        let both = left_behind(&[failing("/a.db"), failing("/b.db")]).unwrap();
        assert!(both.contains("2 databases, /a.db among them (the store fails"), "{both}");
    }
}
