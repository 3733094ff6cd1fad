//! `snapshot` and `replicate -once`: what is committed now is sent, and the process ends. A store that says that trying again will not help ends it
//! at once, and one that fails for a minute then, as does a database that somebody has locked for so long.

use super::control::Patterns;
use super::stop::on_signal;
use super::watch::{add, begin, left_behind, refuse_beside_a_watcher, restore_lost};
use service_kit::console::{self, OneLine};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tracing::Level;
use walsync::clock::SystemClock;
use walsync::config::{Either, Places};
use walsync::replicator::{Phase, Replicator, Settings, Status, Waits};

/// How long a store may fail without a success in between, and how long a snapshot is waited for that cannot be taken at once.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// How it is sent.
#[derive(Default)]
pub struct Once {
    /// Who watches the databases already replicates them into another place.
    pub elsewhere: bool,
    /// Each with a snapshot.
    pub whole: bool,
    /// What is not there is restored first.
    pub restores: bool,
    /// How much it tells.
    pub log_level: Option<Level>,
    /// After so long it ends, whatever is missing.
    pub timeout: Option<Duration>,
}

/// Sends everything that is committed.
pub fn once(config: &Either, how: &Once) -> anyhow::Result<()> {
    let opened = config.open(true)?;
    let mut settings = Settings { drill: None, stands_back: !how.elsewhere, ..config.settings()? };
    if how.whole {
        settings.snapshot_interval = Duration::ZERO;
    }
    let found = opened.look(&mut Places::default())?;
    anyhow::ensure!(found.databases.len() + found.refused.len() > 0, "no file matches: nothing was sent");
    begin(how.log_level);
    if !how.elsewhere {
        let instead =
            "it takes snapshots itself (snapshot-interval-seconds), and `walsync sync` waits until all is durable";
        refuse_beside_a_watcher(&found.databases, instead)?;
    }
    restore_lost(&opened, how.restores)?;
    service_kit::open_files::raise();
    let replicator = Replicator::start(settings, Arc::new(SystemClock::default()))?;
    let observer = replicator.observer();
    on_signal(move || match left_behind(&observer.behind()) {
        Some(behind) => console::tell(OneLine(format_args!("walsync: {behind}"))),
        None => console::tell("walsync: nothing is known that was not sent"),
    })?;
    add(&replicator, &Patterns::default(), found);
    let now = Instant::now();
    let mut patience =
        Patience { end: how.timeout.and_then(|timeout| now.checked_add(timeout)), next: now, failing: None };
    let durable = replicator.sync_until(|| patience.is_over(&replicator));
    // Who asks for one waits until the application is out of the way.
    let end = Instant::now() + PATIENCE;
    let end = patience.end.map_or(end, |other| other.min(end));
    while durable && replicator.status().iter().any(|one| one.snapshot_late.is_some()) && Instant::now() < end {
        std::thread::sleep(LOOK);
        replicator.sync(end.saturating_duration_since(Instant::now()));
    }
    let mut unsent = 0;
    for status in replicator.status() {
        let said = match (status.phase.why(), &status.snapshot_late) {
            (Some(why), _) => why,
            (None, None) => format!("TXID {}", status.durable_txid).into(),
            (None, Some(late)) => format!("no snapshot: {}", late.why).into(),
        };
        console::print(format_args!("{}: {}\n", OneLine(status.path.display()), OneLine(said)))?;
        let has_all = matches!(status.phase, Phase::Running | Phase::Waiting(Waits::Empty));
        unsent += usize::from(!has_all || status.snapshot_late.is_some());
    }
    let databases = if unsent == 1 { "database was" } else { "databases were" };
    anyhow::ensure!(durable && unsent == 0, "{unsent} {databases} not sent");
    Ok(())
}

/// For how long the store is tried.
struct Patience {
    end: Option<Instant>,
    /// When to look again.
    next: Instant,
    /// Since when it fails without a success, how many objects there were then, and how many failures at the last look.
    failing: Option<(Instant, u64, u64)>,
}

impl Patience {
    /// Whether it is no use any more. A request that is under way, however long, is waited for.
    fn is_over(&mut self, replicator: &Replicator) -> bool {
        let now = Instant::now();
        if now < self.next {
            return false;
        }
        self.next = now + LOOK;
        let behind = replicator.observer().behind();
        if behind.iter().any(|one| one.fails_for_good) && !behind.iter().any(is_pending) || are_locked(&behind) {
            return true;
        }
        let count = |total: &std::sync::atomic::AtomicU64| total.load(Ordering::Relaxed);
        let totals = replicator.totals();
        let (objects, failures) = (count(&totals.objects), count(&totals.failures) + count(&totals.without_room));
        let is_spent = match &mut self.failing {
            _ if failures == 0 => false,
            Some((since, before, last)) if *before == objects => {
                // That it has failed once says nothing: that it does so again and again for long does.
                let is_new = std::mem::replace(last, failures) != failures;
                is_new && now.duration_since(*since) >= PATIENCE
            }
            failing => {
                *failing = Some((now, objects, failures));
                false
            }
        };
        is_spent || self.end.is_some_and(|end| now >= end)
    }
}

/// Whether somebody has been in the way of all of these for too long.
fn are_locked(behind: &[Status]) -> bool {
    let is_locked = |one: &Status| matches!(one.phase, Phase::Waiting(Waits::Busy(_))) && one.at_risk >= PATIENCE;
    !behind.is_empty() && behind.iter().all(is_locked)
}

/// Whether more may come of a database of which something is not sent: it was not looked at, is on its way, or the store may take it the next time.
fn is_pending(status: &Status) -> bool {
    let may_come = match &status.phase {
        Phase::Waiting(why) => *why == Waits::NotLookedAt,
        Phase::Running | Phase::Failing(_) | Phase::Stalled(_) => true,
        Phase::Refused(_) | Phase::Fenced(_) => false,
    };
    may_come && !status.fails_for_good || status.asked.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_that_somebody_has_locked_for_a_minute_are_not_waited_for() {
        let locked = |seconds| Status {
            phase: Phase::Waiting(Waits::Busy("somebody has locked it whole")),
            at_risk: Duration::from_secs(seconds),
            ..Status::default()
        };
        let sending = Status { phase: Phase::Running, at_risk: Duration::from_secs(100), ..Status::default() };
        assert!(are_locked(&[locked(60), locked(61)]));
        assert!(!are_locked(&[locked(60), locked(59)]) && !are_locked(&[locked(60), sending]) && !are_locked(&[]));
    }
}
