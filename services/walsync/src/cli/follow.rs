//! `restore --follow`: a database for readers, kept up to date until a signal.

use super::restore::{RestoreArgs, print_restored};
use super::stop::Stop;
use super::watch;
use service_kit::console::{self, OneLine};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use walsync::follow::{FollowError, Follower, Step};
use walsync::restore::RestoreError;

/// Between two looks at whether to stop.
const LOOK: Duration = Duration::from_millis(50);

/// The replica as the note beside the database names it: the same from every folder.
fn place(arguments: &RestoreArgs) -> String {
    let place = &arguments.place.place;
    if place.contains("://") {
        return place.clone();
    }
    std::path::absolute(place).unwrap_or_else(|_| PathBuf::from(place)).display().to_string()
}

fn wait(interval: Duration, stop: &AtomicBool) {
    let mut left = interval;
    while !left.is_zero() && !stop.load(Ordering::Acquire) {
        let slice = left.min(LOOK);
        std::thread::sleep(slice);
        left -= slice;
    }
}

/// Restores or goes on, and follows until it is told to stop. What does not pass by itself is an error; what may is told once and tried
/// again.
pub fn follow(arguments: &RestoreArgs) -> anyhow::Result<()> {
    watch::start_logs(None);
    let stop = Stop::on_signals()?.flag();
    let output = arguments.output()?;
    // SQLite is told of it by name.
    anyhow::ensure!(output.to_str().is_some(), "{}: a copy that follows needs a name in UTF-8", output.display());
    let replica = arguments.place.replica()?;
    let started = Follower::start(replica.clone(), &place(arguments), output, arguments.integrity_check());
    let (mut follower, restored) = started.map_err(|error| match error {
        FollowError::Restore(RestoreError::Empty) => arguments.place.no_replica(&replica),
        error => error.into(),
    })?;
    if let Some(restored) = &restored {
        print_restored(arguments, restored)?;
    }
    tracing::info!(path = %output.display(), txid = follower.txid(), "following");
    let mut told = None;
    while !stop.load(Ordering::Acquire) {
        let problem = match follower.step(&stop) {
            Ok(Step::Current | Step::Stopped) => None,
            Ok(Step::Applied { txid, files, pages }) => {
                tracing::info!(path = %output.display(), txid, files, pages, "applied");
                None
            }
            Ok(Step::Hole { missing, newest }) => Some(format!(
                "a file with TXID {missing} is missing, though others reach {newest}; stays at TXID {} until a snapshot \
                 mends it",
                follower.txid()
            )),
            Err(error) if error.may_pass() => Some(format!("{error}; tried again")),
            Err(error) => return Err(error.into()),
        };
        if problem != told {
            match &problem {
                Some(problem) => tracing::warn!(path = %output.display(), problem, "does not follow"),
                None => tracing::info!(path = %output.display(), txid = follower.txid(), "follows again"),
            }
            told = problem;
        }
        wait(arguments.interval(), &stop);
    }
    console::print(format_args!("{} is at TXID {}\n", OneLine(output.display()), follower.txid()))?;
    Ok(())
}
