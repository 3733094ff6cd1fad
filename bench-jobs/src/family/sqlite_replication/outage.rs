//! An outage within the measured phase: what lets something fail, when that begins and ends, and what came of it.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use storebench_crds::workload::FaultKind;
use storebench_crds::workload::sqlite_replication::Outage;

use super::fault_proxy::{Fault, FaultProxy};
use super::watcher::Seen;
use crate::load::control::Control;

/// What lets something fail for a while.
#[derive(Clone, Debug)]
pub(super) enum Means {
    /// The replicator's way to the object store.
    Proxy(FaultProxy, Fault),
    /// Whoever has the replicator's process, which is at this endpoint of the job, and kills it.
    Kill(Arc<Control>, String),
}

impl Means {
    /// Lets it fail now and for so long. What is not done of that, [`Control::broken`] says at the end.
    fn strike(&self, workload: &str, duration: Duration) -> io::Result<()> {
        match self {
            Self::Proxy(proxy, fault) => {
                proxy.set(*fault);
                thread::sleep(duration);
                proxy.set(Fault::None);
                Ok(())
            }
            Self::Kill(control, endpoint) => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
                let struck = async {
                    control.strike(workload, endpoint, FaultKind::Kill, duration).await?;
                    control.released(duration).await
                };
                runtime.block_on(struck).map(drop).map_err(io::Error::other)
            }
        }
    }
}

/// An outage that is to come, lasts, or is over.
#[derive(Debug)]
pub(super) struct Interruption {
    outage: Outage,
    means: Means,
    window: Mutex<Option<(Instant, Instant)>>,
}

impl Interruption {
    pub(super) fn new(outage: Outage, means: Means) -> Self {
        Self { outage, means, window: Mutex::new(None) }
    }

    /// The measured phase of this workload begins now.
    pub(super) fn begin(&self, workload: &str) -> io::Result<()> {
        let (at, duration) = (Instant::now() + self.outage.after.duration(), self.outage.duration.duration());
        *self.window.lock().unwrap_or_else(PoisonError::into_inner) = Some((at, at + duration));
        let (means, workload) = (self.means.clone(), workload.to_owned());
        let outage = move || {
            thread::sleep(at.saturating_duration_since(Instant::now()));
            means.strike(&workload, duration)
        };
        thread::Builder::new().name("outage".into()).spawn(outage).map(drop)
    }

    /// What was not done of what was asked for; `None`: nothing.
    pub(super) fn broken(&self) -> Option<&str> {
        match &self.means {
            Means::Proxy(..) => None,
            Means::Kill(control, _) => control.broken(),
        }
    }

    /// Whether it lasted at this instant.
    pub(super) fn lasted_at(&self, at: Instant) -> bool {
        self.window().is_some_and(|(from, until)| from <= at && at < until)
    }

    /// From its end to the moment in which everything that was committed until then was seen. `None`: it did not begin.
    pub(super) fn recovery(&self, seen: &[Seen]) -> Option<Duration> {
        let (_, until) = self.window()?;
        let before_its_end = seen.iter().filter(|one| one.committed <= until);
        let last = before_its_end.map(|one| one.committed + one.lag).max()?;
        Some(last.saturating_duration_since(until))
    }

    fn window(&self) -> Option<(Instant, Instant)> {
        *self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use storebench_crds::job::DriverLine;

    /// The driver hears what is to be done, and its answers are these.
    fn killed_by(answers: &str) -> Interruption {
        let outage = serde_json::json!({ "kind": "Kill", "after": "50ms", "duration": "100ms" });
        let control = Control::listen(io::Cursor::new(answers.to_owned().into_bytes())).unwrap();
        let means = Means::Kill(Arc::new(control), "127.0.0.1:1".into());
        Interruption::new(serde_json::from_value(outage).unwrap(), means)
    }

    #[test]
    fn recovery_ends_with_the_last_commit_from_before_the_end_of_the_outage() {
        let interruption = killed_by("");
        assert_eq!(interruption.recovery(&[]), None, "it did not begin");
        interruption.begin("w").unwrap();
        let (from, until) = interruption.window().unwrap();
        assert_eq!(until - from, Duration::from_millis(100));
        assert!(interruption.lasted_at(from) && !interruption.lasted_at(until));
        let seen = |committed, lag| Seen { committed, lag: Duration::from_millis(lag) };
        let before = seen(from, 150);
        let last = seen(until - Duration::from_millis(10), 60);
        let after = seen(until + Duration::from_millis(1), 9_000);
        assert_eq!(interruption.recovery(&[before, last, after]), Some(Duration::from_millis(50)));
        assert_eq!(interruption.recovery(&[seen(from, 10)]), Some(Duration::ZERO), "all of it arrived while it lasted");
    }

    #[test]
    fn a_replicator_is_killed_by_who_has_its_process_and_that_it_is_not_is_told() {
        let done = [DriverLine::Struck, DriverLine::Released].map(|line| line.encode()).join("\n");
        let interruption = killed_by(&done);
        interruption.means.strike("w", Duration::from_millis(1)).unwrap();
        assert_eq!(interruption.broken(), None);
        let interruption = killed_by("");
        interruption.means.strike("w", Duration::from_millis(1)).unwrap_err();
        assert!(interruption.broken().unwrap().contains("is gone before it said Struck"));
    }
}
