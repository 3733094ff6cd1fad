//! Sees objects arrive: how long after a commit an object that holds it is in the object store.
//!
//! One thread lists what is new of each watched database, every [`LOOK_INTERVAL`] while commits are missing there, and reads the
//! number of the last transaction in it. A file that arrives before one that precedes it does not count until that has arrived, for nothing
//! could be restored from it. The instant is that of the listing's answer: a lag is too long by at most the time between two
//! looks, never too short.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::application::Mark;
use super::replica::{RemoteFile, Replica};
use crate::failure::Failure;

/// Between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Of the commits of a database within this time, the first is waited for: a million lags would say no more.
const COMMIT_INTERVAL: Duration = Duration::from_millis(1);
/// How long the watcher may take to see what a replica is known to have.
const FINISH_TIMEOUT: Duration = Duration::from_secs(30);

/// One database that is watched.
pub(super) struct Watched {
    replica: Replica,
    mark: Mark,
    state: Mutex<State>,
}

/// A commit that was seen in the object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) committed: Instant,
    pub(super) lag: Duration,
}

#[derive(Default)]
struct State {
    /// Commits that were not seen yet, in order.
    missing: VecDeque<(u64, Instant)>,
    /// When the last of them was noted.
    noted: Option<Instant>,
    seen: Vec<Seen>,
    /// The newest object up to which nothing is missing, and its last transaction ID.
    newest: Option<(String, u64)>,
}

impl Watched {
    pub(super) fn new(replica: Replica, mark: Mark) -> Self {
        Self { replica, mark, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A transaction was acknowledged.
    pub(super) fn committed(&self, sequence: u64, at: Instant) {
        let mut state = self.state();
        if state.noted.is_none_or(|noted| at.saturating_duration_since(noted) >= COMMIT_INTERVAL) {
            state.noted = Some(at);
            state.missing.push_back((sequence, at));
        }
    }

    /// All commits, when none is missing any more.
    pub(super) async fn finish(&self) -> Result<Vec<Seen>, Failure> {
        let deadline = Instant::now() + FINISH_TIMEOUT;
        while !self.state().missing.is_empty() {
            if Instant::now() > deadline {
                let text = "the object store does not list files of level 0 that its replica is known to have";
                return Err(Failure::new(text));
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        Ok(std::mem::take(&mut self.state().seen))
    }

    /// All commits, those that are missing and no longer waited for as if they were seen now.
    pub(super) fn give_up(&self) -> Vec<Seen> {
        let mut state = self.state();
        state.saw(u64::MAX, Instant::now());
        std::mem::take(&mut state.seen)
    }

    /// Looks for what is new. What cannot be read now is looked at again.
    fn look(&self) {
        let newest = {
            let state = self.state();
            if state.missing.is_empty() {
                return;
            }
            state.newest.clone()
        };
        let (after, newest_txid) = newest.unzip();
        let Ok(mut arrived) = self.replica.arrived(after.as_deref().unwrap_or_default()) else { return };
        let seen = Instant::now();
        // A file is worth nothing to a restore while one before it is missing.
        arrived.truncate(contiguous(newest_txid, arrived.iter().map(RemoteFile::transactions)));
        let Some(last) = arrived.last() else { return };
        // A replicator may add transactions of its own, which have no mark: the newest that has one counts.
        let marks = arrived.iter().rev().map(|file| self.replica.mark_in(file.key(), &self.mark));
        for mark in marks {
            match mark {
                Err(_) => return,
                Ok(None) => {}
                Ok(Some(sequence)) => {
                    self.state().saw(sequence, seen);
                    break;
                }
            }
        }
        self.state().newest = Some((last.key().to_owned(), last.transactions().1));
    }
}

/// How many of these files, given by their first and last transaction ID, follow what is there up to `newest`, and one another, without a
/// gap. Where nothing is there yet, the first file is the beginning: what was before may have been merged.
fn contiguous(newest: Option<u64>, files: impl Iterator<Item = (u64, u64)>) -> usize {
    let mut newest = newest;
    let follows = |(first, last): &(u64, u64)| {
        let follows = newest.is_none_or(|newest| *first <= newest + 1);
        newest = newest.max(Some(*last));
        follows
    };
    files.take_while(follows).count()
}

impl State {
    /// All transactions up to this one are in the object store.
    fn saw(&mut self, sequence: u64, at: Instant) {
        while let Some((_, committed)) = self.missing.pop_front_if(|(missing, _)| *missing <= sequence) {
            self.seen.push(Seen { committed, lag: at.saturating_duration_since(committed) });
        }
    }
}

/// The thread that looks.
pub(super) struct Watcher {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Watcher {
    pub(super) fn start(watched: Arc<[Watched]>) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("watcher".into()).spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let begun = Instant::now();
                watched.iter().for_each(Watched::look);
                std::thread::sleep(LOOK_INTERVAL.saturating_sub(begun.elapsed()));
            }
        })?;
        Ok(Self { stop, thread })
    }

    pub(super) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        // It has nothing to say but what it has told already.
        let _ = self.thread.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_overtook_another_does_not_count_before_that_one() {
        assert_eq!(contiguous(Some(4), [(5, 5), (6, 9), (11, 12)].into_iter()), 2, "10 is missing");
        assert_eq!(contiguous(Some(4), [(6, 9)].into_iter()), 0, "5 is missing");
        assert_eq!(contiguous(Some(4), [(5, 9), (10, 12)].into_iter()), 2);
        assert_eq!(contiguous(Some(7), [(5, 9), (10, 12)].into_iter()), 2, "one that repeats what is there");
        assert_eq!(contiguous(None, [(3, 3), (4, 4), (6, 6)].into_iter()), 2, "the first begins");
    }

    #[test]
    fn a_mark_tells_of_all_commits_up_to_it() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut state = State { missing: [(3, at(0)), (5, at(10)), (6, at(20))].into(), ..State::default() };
        state.saw(2, at(30));
        assert!(state.seen.is_empty());
        state.saw(5, at(100));
        let seen = |committed, lag| Seen { committed: at(committed), lag: Duration::from_millis(lag) };
        assert_eq!(state.seen, [seen(0, 100), seen(10, 90)]);
        assert_eq!(state.missing, [(6, at(20))]);
    }
}
