//! Compaction without being asked: `--auto-compaction-mode` and `--auto-compaction-retention`. From etcd's
//! `server/etcdserver/api/v3compactor/{periodic,revision}.go`.
//!
//! Periodic: what is older than the retention goes; revisions are noted ten times in that time (or in an hour, if that is less), and
//! compaction follows as often as that. By revision: every five minutes, all but the newest so many revisions go. Only the leader
//! compacts; all members note revisions, so that a new leader knows them. [`Schedule`] has no clock: it is asked at every interval.

use std::collections::VecDeque;
use std::time::Duration;

use prost::Message;
use tokio::time::{Instant, sleep};

use crate::node::Node;
use crate::proto::etcdserverpb as pb;
use crate::settings::Retention;
use crate::store::command::Kind;
use crate::store::{Caller, Error};

const RETRY_DIVISOR: u32 = 10;
const HOUR: Duration = Duration::from_secs(3600);
/// How often revisions are counted.
const REVISION_INTERVAL: Duration = Duration::from_secs(300);

/// When to compact, and at which revision.
#[derive(Debug)]
pub struct Schedule {
    retention: Retention,
    /// The revisions at the ends of past intervals, the oldest first: no more than the retention needs.
    revisions: VecDeque<i64>,
    compacted: i64,
    compacted_at: Duration,
    /// How long ago the last compaction must be.
    pause: Duration,
}

impl Schedule {
    /// Begins at this revision. Times count from here.
    pub fn new(retention: Retention, revision: i64) -> Self {
        let pause = match retention {
            Retention::Period(period) => period,
            Retention::Revisions(_) => Duration::ZERO,
        };
        Self { retention, revisions: [revision].into(), compacted: 0, compacted_at: Duration::ZERO, pause }
    }

    /// How often to ask.
    pub fn interval(&self) -> Duration {
        match self.retention {
            Retention::Period(period) => period.min(HOUR) / RETRY_DIVISOR,
            Retention::Revisions(_) => REVISION_INTERVAL,
        }
    }

    /// An interval has ended: where to compact, if it is time and this member leads.
    pub fn due(&mut self, now: Duration, revision: i64, leads: bool) -> Option<i64> {
        let at = match self.retention {
            Retention::Revisions(kept) => revision - kept,
            Retention::Period(period) => {
                let oldest = self.revisions.front().copied().unwrap_or_default();
                self.revisions.push_back(revision);
                let noted_max = (period.as_nanos() / self.interval().as_nanos().max(1)) as usize + 1;
                if self.revisions.len() > noted_max {
                    self.revisions.pop_front();
                }
                oldest
            }
        };
        let is_due = now.saturating_sub(self.compacted_at) >= self.pause && at > 0 && at != self.compacted;
        (leads && is_due).then(|| {
            if let Retention::Period(period) = self.retention {
                // After the first full period, as often as every hour.
                self.pause = period.min(HOUR);
            }
            at
        })
    }

    /// It was compacted, now or before.
    pub fn done(&mut self, now: Duration, revision: i64) {
        (self.compacted, self.compacted_at) = (revision, now);
    }
}

/// Compacts while the member runs.
pub async fn run(node: &Node) {
    let Some(retention) = node.settings.compaction else { return std::future::pending().await };
    let begun = Instant::now();
    let mut schedule = Schedule::new(retention, node.reader.view().revision());
    loop {
        sleep(schedule.interval()).await;
        let revision = node.reader.view().revision();
        let Some(revision) = schedule.due(begun.elapsed(), revision, node.handle.leader().1) else { continue };
        let request = pb::CompactionRequest { revision, physical: false }.encode_to_vec();
        match node.propose(&Caller::Server, Kind::Compaction, &request).await {
            Ok(_) => tracing::info!(revision, "completed auto compaction"),
            Err(error) if error.message == Error::Compacted.message() => {}
            Err(error) => {
                tracing::warn!(revision, error = %error.message, "failed auto compaction; it is tried again");
                continue;
            }
        }
        schedule.done(begun.elapsed(), revision);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// What is compacted in so many minutes, and when, with a new revision every minute; the leader is one from `leads_from` on.
    fn compactions(retention: Retention, minutes: u32, leads_from: u32) -> Vec<(u32, i64)> {
        let mut schedule = Schedule::new(retention, 1);
        let (mut now, mut compactions) = (Duration::ZERO, Vec::new());
        loop {
            now += schedule.interval();
            if now > MINUTE * minutes {
                return compactions;
            }
            let minute = now.as_secs() as u32 / 60;
            if let Some(revision) = schedule.due(now, 1 + i64::from(minute), minute >= leads_from) {
                compactions.push((minute, revision));
                schedule.done(now, revision);
            }
        }
    }

    #[test]
    fn an_hour_is_kept_and_compaction_follows_every_hour() {
        let hourly = compactions(Retention::Period(HOUR), 240, 0);
        assert_eq!(hourly, [(60, 1), (120, 55), (180, 115), (240, 175)]);
    }

    #[test]
    fn a_day_is_kept_and_compaction_follows_every_hour() {
        let daily = compactions(Retention::Period(24 * HOUR), 26 * 60, 0);
        assert_eq!(daily, [(1440, 1), (1500, 55), (1560, 115)]);
    }

    #[test]
    fn minutes_are_kept() {
        let minutes = compactions(Retention::Period(10 * MINUTE), 40, 0);
        assert_eq!(minutes, [(10, 1), (20, 10), (30, 20), (40, 30)]);
    }

    #[test]
    fn a_new_leader_knows_what_is_old_enough() {
        assert_eq!(compactions(Retention::Period(HOUR), 130, 100), [(102, 37)]);
    }

    #[test]
    fn so_many_revisions_are_kept() {
        assert_eq!(compactions(Retention::Revisions(10), 20, 0), [(10, 1), (15, 6), (20, 11)]);
    }

    #[test]
    fn a_store_at_rest_is_not_compacted_again() {
        let mut schedule = Schedule::new(Retention::Revisions(10), 1);
        assert_eq!(schedule.due(MINUTE, 30, true), Some(20));
        // It failed: again.
        assert_eq!(schedule.due(2 * MINUTE, 30, true), Some(20));
        schedule.done(2 * MINUTE, 20);
        assert_eq!(schedule.due(3 * MINUTE, 30, true), None);
    }
}
