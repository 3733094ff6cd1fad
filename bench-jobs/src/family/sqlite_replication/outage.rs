//! An outage within the measured phase: when it begins and ends, and what came of it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use storebench_crds::workload::sqlite_replication::{Outage, OutageKind};

use super::fault_proxy::{Fault, FaultProxy};
use super::watcher::Seen;

/// An outage that is to come, lasts, or is over.
#[derive(Debug)]
pub(super) struct Course {
    outage: Outage,
    /// Absent: the driver kills the replicator, by the same timetable.
    proxy: Option<FaultProxy>,
    window: Mutex<Option<(Instant, Instant)>>,
}

impl Course {
    pub(super) fn new(outage: Outage, proxy: Option<FaultProxy>) -> Self {
        Self { outage, proxy, window: Mutex::new(None) }
    }

    /// The measured phase begins now.
    pub(super) fn begin(&self) -> std::io::Result<()> {
        let at = Instant::now() + self.outage.after.duration();
        let until = at + self.outage.duration.duration();
        *self.window.lock().unwrap_or_else(PoisonError::into_inner) = Some((at, until));
        let fault = match self.outage.kind {
            OutageKind::BlackHole => Fault::BlackHole,
            OutageKind::ServiceUnavailable => Fault::ServiceUnavailable,
            OutageKind::Kill => return Ok(()),
        };
        let Some(proxy) = self.proxy.clone() else { return Ok(()) };
        let outage = move || {
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            proxy.set(fault);
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
            proxy.set(Fault::None);
        };
        std::thread::Builder::new().name("outage".into()).spawn(outage).map(drop)
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

    #[test]
    fn recovery_ends_with_the_last_commit_from_before_the_end_of_the_outage() {
        let outage = serde_json::json!({ "kind": "Kill", "after": "1s", "duration": "2s" });
        let course = Course::new(serde_json::from_value(outage).unwrap(), None);
        assert_eq!(course.recovery(&[]), None, "it did not begin");
        course.begin().unwrap();
        let (from, until) = course.window().unwrap();
        assert_eq!(until - from, Duration::from_secs(2));
        assert!(course.lasted_at(from) && !course.lasted_at(until));
        let seen = |committed, lag| Seen { committed, lag: Duration::from_millis(lag) };
        let before = seen(from, 2_500);
        let last = seen(until - Duration::from_millis(100), 300);
        let after = seen(until + Duration::from_millis(1), 9_000);
        assert_eq!(course.recovery(&[before, last, after]), Some(Duration::from_millis(500)));
        assert_eq!(course.recovery(&[seen(from, 10)]), Some(Duration::ZERO), "all of it arrived while it lasted");
    }
}
