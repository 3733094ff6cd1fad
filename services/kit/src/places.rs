//! Places for connections: as many as may be open at a time. Where all are taken, one that is idle loses its own to one that comes, so that
//! clients who say nothing keep nobody out, probes least of all.
//!
//! Idle is a connection with no call under way that was asked for in full, health aside. Who has never made any goes first, unless it has
//! just come; then who has made none for [`IDLE_MIN`]. A connection with a call under way is never closed for another.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::lines::Lines;

/// How long one that was closed may take to be gone, and how long it is waited where all are busy, before it is looked again.
const PAUSE: Duration = Duration::from_millis(20);

/// How long a client may take to make its first call, as long as somebody else can be closed.
const STRANGER_MIN: Duration = Duration::from_secs(1);
/// How long a client that has made calls may make none: what it was answered has reached it by then, and what it asks next has not yet gone.
const IDLE_MIN: Duration = Duration::from_secs(5);

/// Connections of this process that were closed for others.
static CLOSED: AtomicU64 = AtomicU64::new(0);

/// How many connections of this process lost their place to others, for [`crate::metrics::Process`].
pub fn closed() -> u64 {
    CLOSED.load(Ordering::Relaxed)
}

/// What [`Presence`] counts from.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);
/// No time at which a connection became idle.
const BUSY: u64 = u64::MAX;

/// Whether a connection has a call under way, and since when it has none.
#[derive(Clone, Debug)]
pub struct Presence(Arc<State>);

#[derive(Debug)]
struct State {
    /// Nanoseconds, or [`BUSY`].
    idle_since: AtomicU64,
    has_called: AtomicBool,
}

impl Presence {
    /// Idle from now on.
    pub fn begin() -> Self {
        Self(Arc::new(State { idle_since: AtomicU64::new(now()), has_called: AtomicBool::new(false) }))
    }

    /// A call is under way.
    pub fn busy(&self) {
        self.0.idle_since.store(BUSY, Ordering::Relaxed);
    }

    /// A call was made, and none is under way any more.
    pub fn idle(&self) {
        self.0.has_called.store(true, Ordering::Relaxed);
        self.0.idle_since.store(now(), Ordering::Relaxed);
    }

    /// When its turn is to be closed for another; `None`: it stays.
    fn turn(&self, now: u64) -> Option<Turn> {
        let since = self.0.idle_since.load(Ordering::Relaxed);
        if since == BUSY {
            return None;
        }
        let idle = Duration::from_nanos(now.saturating_sub(since));
        match self.0.has_called.load(Ordering::Relaxed) {
            false if idle >= STRANGER_MIN => Some((0, since)),
            true if idle >= IDLE_MIN => Some((1, since)),
            false => Some((2, since)),
            true => None,
        }
    }
}

/// Whether a connection is idle, and when it shall end.
pub type Life = (Presence, watch::Receiver<bool>);

/// In which order connections are closed for others, and since when they are idle.
type Turn = (u8, u64);

/// Nanoseconds; a program does not run for the 584 years that fill it.
fn now() -> u64 {
    EPOCH.elapsed().as_nanos().try_into().unwrap_or(BUSY - 1)
}

/// The places, and who has them.
#[derive(Clone, Debug)]
pub struct Places {
    free: Arc<Semaphore>,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    last: u64,
    guests: BTreeMap<u64, Guest>,
}

#[derive(Debug)]
struct Guest {
    presence: Presence,
    /// What serves it, from when something does.
    task: Option<AbortHandle>,
}

impl Places {
    /// So many.
    pub fn new(count: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(count)), taken: Arc::default() }
    }

    /// Those that nobody has.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.free.available_permits()
    }

    /// A place, as soon as there is one. `lines` says how often it is told that there was none.
    pub(crate) async fn take(&self, lines: &mut Lines) -> Place {
        loop {
            if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
                return self.place(permit);
            }
            // While it is so this happens with each that comes: whoever comes and goes must not fill the log.
            if let Some(times) = lines.one_more(Instant::now()) {
                tracing::warn!(
                    times,
                    "as many connections are open as the limit on open files (ulimit -n) allows: one that is idle is closed for each that \
                     comes, and where none is others wait"
                );
            }
            self.close_one_that_is_idle();
            // The semaphore is never closed.
            if let Ok(Ok(permit)) = timeout(PAUSE, Arc::clone(&self.free).acquire_owned()).await {
                return self.place(permit);
            }
        }
    }

    fn place(&self, permit: OwnedSemaphorePermit) -> Place {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.last += 1;
        let number = taken.last;
        let presence = Presence::begin();
        taken.guests.insert(number, Guest { presence: presence.clone(), task: None });
        Place { presence, number, taken: Arc::clone(&self.taken), _permit: permit }
    }

    fn close_one_that_is_idle(&self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let now = now();
        let goes = taken.guests.iter().filter(|(_, guest)| guest.task.is_some());
        let goes = goes.filter_map(|(number, guest)| Some((guest.presence.turn(now)?, *number))).min();
        // Nobody is asked twice, however long leaving takes.
        let Some((_, number)) = goes else { return };
        if let Some(task) = taken.guests.remove(&number).and_then(|guest| guest.task) {
            CLOSED.fetch_add(1, Ordering::Relaxed);
            task.abort();
        }
    }
}

/// A place, free again when it is dropped.
#[derive(Debug)]
pub struct Place {
    presence: Presence,
    number: u64,
    taken: Arc<Mutex<Taken>>,
    _permit: OwnedSemaphorePermit,
}

impl Place {
    /// For those who know when a call is under way.
    pub fn presence(&self) -> Presence {
        self.presence.clone()
    }

    /// How its holder is told, once `task` serves it.
    pub(crate) fn served_by(&self) -> impl FnOnce(AbortHandle) + use<> {
        let (taken, number) = (Arc::clone(&self.taken), self.number);
        move |task| {
            let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(guest) = taken.guests.get_mut(&number) {
                guest.task = Some(task);
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).guests.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds a place until it is aborted.
    fn hold(place: Place) -> AbortHandle {
        let served = place.served_by();
        let task = tokio::spawn(async move {
            let _place = place;
            std::future::pending::<()>().await;
        });
        served(task.abort_handle());
        task.abort_handle()
    }

    #[test]
    fn strangers_go_before_those_who_have_called_and_nobody_who_has_just_been_answered() {
        let begun = now();
        let at = |after: Duration| begun + u64::try_from((after + Duration::from_millis(500)).as_nanos()).unwrap();
        let (stranger, caller, busy) = (Presence::begin(), Presence::begin(), Presence::begin());
        caller.idle();
        busy.busy();
        let kinds = |now| [&stranger, &caller, &busy].map(|presence| presence.turn(now).map(|(kind, _)| kind));
        assert_eq!(kinds(at(Duration::ZERO)), [Some(2), None, None]);
        assert_eq!(kinds(at(STRANGER_MIN)), [Some(0), None, None]);
        assert_eq!(kinds(at(IDLE_MIN)), [Some(0), Some(1), None]);
    }

    #[tokio::test]
    async fn a_stranger_leaves_for_one_that_comes_and_who_calls_or_has_just_called_stays() {
        let (places, mut lines) = (Places::new(3), Lines::default());
        let (busy, once_busy, silent) =
            (places.take(&mut lines).await, places.take(&mut lines).await, places.take(&mut lines).await);
        busy.presence().busy();
        once_busy.presence().idle();
        let tasks = [busy, once_busy, silent].map(hold);
        let ended = || tasks.each_ref().map(AbortHandle::is_finished);
        let fourth = places.take(&mut lines).await;
        assert_eq!(ended(), [false, false, true]);
        // What nothing serves yet cannot be closed.
        assert!(timeout(PAUSE * 5, places.take(&mut lines)).await.is_err());
        drop(fourth);
        let _fifth = places.take(&mut lines).await;
        assert_eq!(ended(), [false, false, true]);
        assert_eq!(places.taken.lock().unwrap().guests.len(), 3);
    }
}
