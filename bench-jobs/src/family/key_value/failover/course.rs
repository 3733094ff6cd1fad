//! What becomes of a group that loses its leader: has it killed, and times what follows. Shared by all threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use storebench_crds::DurationText;
use storebench_crds::workload::key_value::{
    CATCH_UP, FAILED_REQUESTS, FIRST_WRITE, KeyValueWorkload, ReadLevel, UNKNOWN_WRITES, WRITE_PAUSE,
};
use tokio::time::sleep;

use super::super::store::{Connection, Store};
use super::leader;
use super::line::{Caller, Line};
use crate::failure::Failure;
use crate::load::Context;
use crate::load::control::Control;
use crate::load::session::Session;

/// How long a killed member may take to start and to have what the others have.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(60);
/// Before the member is asked again whether it has.
const CATCH_UP_PAUSE: Duration = Duration::from_millis(2);
/// Written after the killed member was started again, to see when that has it. No key of the load is named so.
const MARK: &[u8] = b"storebench-probe/caught-up";

/// A moment since the course began, nanoseconds; 0: not yet.
#[derive(Debug, Default)]
struct Moment(AtomicU64);

impl Moment {
    fn set(&self, nanos: u64) {
        self.0.store(nanos.max(1), Ordering::Release);
    }

    fn get(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Acquire)).filter(|nanos| *nanos != 0)
    }

    /// Sets it to the earliest of all moments that were ever given.
    fn set_earliest(&self, nanos: u64) {
        let earlier = |now: u64| (now == 0 || now > nanos).then_some(nanos.max(1));
        // It is an earlier one already: as it should be.
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, earlier);
    }
}

/// One failover.
#[derive(Debug)]
pub(in super::super) struct Course {
    control: Arc<Control>,
    kill_after: Duration,
    restart_after: Duration,
    /// What moments count from.
    origin: Instant,
    began: Moment,
    asked: Moment,
    dead: Moment,
    caught_up: Moment,
    /// The newest acknowledgement of a write.
    last: AtomicU64,
    /// The longest time between two.
    pause_max: AtomicU64,
    first_after_death: Moment,
}

impl Course {
    pub(in super::super) fn new(control: &Arc<Control>, parameters: &KeyValueWorkload) -> Self {
        let length = |text: &Option<DurationText>| text.as_ref().map(DurationText::duration).unwrap_or_default();
        Self {
            control: Arc::clone(control),
            kill_after: length(&parameters.kill_after),
            restart_after: length(&parameters.restart_after),
            origin: Instant::now(),
            began: Moment::default(),
            asked: Moment::default(),
            dead: Moment::default(),
            caught_up: Moment::default(),
            last: AtomicU64::new(0),
            pause_max: AtomicU64::new(0),
            first_after_death: Moment::default(),
        }
    }

    /// What the driver did not do.
    pub(in super::super) fn broken(&self) -> Option<&str> {
        self.control.broken()
    }

    fn nanos(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.origin).as_nanos() as u64
    }

    /// A write that was sent at one moment was acknowledged at another.
    pub(super) fn acknowledged(&self, sent: Instant, now: Instant) {
        if self.began.get().is_none() {
            return;
        }
        let (sent, now) = (self.nanos(sent), self.nanos(now));
        self.noted(now);
        if self.dead.get().is_some_and(|dead| sent > dead) {
            self.first_after_death.set_earliest(now);
        }
    }

    /// Until now there was no acknowledgement since the last.
    fn noted(&self, now: u64) {
        let last = self.last.fetch_max(now, Ordering::AcqRel);
        self.pause_max.fetch_max(now.saturating_sub(last), Ordering::AcqRel);
    }

    /// Whether a request that was sent then may fail: one that was under way when the leader was killed, or was sent before all members
    /// were there again.
    pub(super) fn may_fail(&self, sent: Instant) -> bool {
        let sent = self.nanos(sent);
        self.asked.get().is_some() && self.caught_up.get().is_none_or(|until| sent <= until)
    }

    /// Has the leader killed, and waits until it is there again. `line` goes to whichever member answers.
    pub(super) async fn run(&self, context: &Context, line: &Line, session: &Session) -> Result<(), Failure> {
        let begun = Instant::now();
        self.last.store(self.nanos(begun), Ordering::Release);
        self.began.set(self.nanos(begun));
        sleep(self.kill_after).await;
        let leader = leader::find(line.spoken(), &context.endpoints, context.timeout).await?;
        let asked = Instant::now();
        self.asked.set(self.nanos(asked));
        self.control.kill(&context.workload, &leader, self.restart_after).await?;
        self.dead.set(self.nanos(Instant::now()));
        self.control.restarted(self.restart_after).await?;
        // Not when that was heard: it would be shorter by how long the driver and this loader took.
        let due = asked + self.restart_after;
        self.catch_up(context, &leader, line).await?;
        let now = Instant::now();
        self.caught_up.set(self.nanos(now));
        session.took(CATCH_UP, now.saturating_duration_since(due));
        Ok(())
    }

    /// Waits until the member at `endpoint` has, in its own state, a write that was acknowledged after this is called.
    async fn catch_up(&self, context: &Context, endpoint: &str, line: &Line) -> Result<(), Failure> {
        let deadline = Instant::now() + CATCH_UP_TIMEOUT;
        let value = context.seed.to_le_bytes();
        let mut caller = Caller::new(line);
        while let Err(failure) = caller.ask(async |store: &mut Store| store.put(MARK, &value).await).await {
            if Instant::now() > deadline {
                return Err(failure);
            }
        }
        let mut last = Failure::new("it was not asked");
        while Instant::now() < deadline {
            match self.mark_at(context, endpoint, line).await {
                Ok(Some(found)) if *found == value => return Ok(()),
                Ok(_) => last = Failure::new("it has not what was written since"),
                Err(failure) => last = failure,
            }
            sleep(CATCH_UP_PAUSE).await;
        }
        Err(Failure::new(format_args!(
            "{endpoint} has not caught up {CATCH_UP_TIMEOUT:?} after it was started again: {last}"
        )))
    }

    async fn mark_at(&self, context: &Context, endpoint: &str, line: &Line) -> Result<Option<bytes::Bytes>, Failure> {
        let connection = Connection::open_once(line.spoken(), endpoint, context.timeout).await?;
        connection.store().get(MARK, ReadLevel::Eventual).await
    }

    /// Tells what was measured, when the load is over.
    pub(super) fn tell(&self, session: &Session) -> Result<(), Failure> {
        let now = Instant::now();
        self.noted(self.nanos(now));
        session.took(WRITE_PAUSE, Duration::from_nanos(self.pause_max.load(Ordering::Acquire)));
        // Counted by whoever gave one up; where nobody did there were none, which is known, too.
        session.count(FAILED_REQUESTS, 0);
        session.count(UNKNOWN_WRITES, 0);
        match (self.asked.get(), self.first_after_death.get()) {
            (Some(asked), Some(first)) => {
                session.took(FIRST_WRITE, Duration::from_nanos(first.saturating_sub(asked)));
                Ok(())
            }
            _ => Err(Failure::new("no write was acknowledged after the leader was killed")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn course() -> Course {
        let control = Arc::new(Control::listen(Cursor::new(Vec::new())).unwrap());
        let text = r#"{ "operation": "Failover", "killAfter": "1s", "restartAfter": "1s" }"#;
        Course::new(&control, &serde_json::from_str(text).unwrap())
    }

    fn at(course: &Course, millis: u64) -> Instant {
        course.origin + Duration::from_millis(millis)
    }

    const MILLI: u64 = 1_000_000;

    #[test]
    fn the_longest_time_without_an_acknowledgement_is_kept_whoever_hears_of_them_last() {
        let course = course();
        course.acknowledged(at(&course, 1), at(&course, 900));
        assert_eq!(course.pause_max.load(Ordering::Acquire), 0, "the warm-up is not measured");
        course.began.set(1_000 * MILLI);
        course.last.store(1_000 * MILLI, Ordering::Release);
        for millis in [1_010, 1_500, 1_490, 1_510] {
            course.acknowledged(at(&course, 1_000), at(&course, millis));
        }
        assert_eq!(course.pause_max.load(Ordering::Acquire), 490 * MILLI);
    }

    #[test]
    fn a_write_that_the_old_leader_may_have_acknowledged_does_not_end_the_failover() {
        let course = course();
        course.began.set(1);
        course.asked.set(100 * MILLI);
        course.dead.set(103 * MILLI);
        course.acknowledged(at(&course, 99), at(&course, 101));
        course.acknowledged(at(&course, 102), at(&course, 104));
        assert_eq!(course.first_after_death.get(), None);
        course.acknowledged(at(&course, 110), at(&course, 300));
        course.acknowledged(at(&course, 105), at(&course, 290));
        course.acknowledged(at(&course, 200), at(&course, 310));
        assert_eq!(course.first_after_death.get(), Some(290 * MILLI));
    }

    #[test]
    fn a_request_may_fail_from_the_kill_until_the_member_is_back_and_at_no_other_time() {
        let course = course();
        assert!(!course.may_fail(at(&course, 10)));
        course.asked.set(100 * MILLI);
        assert!(course.may_fail(at(&course, 90)), "it was under way");
        assert!(course.may_fail(at(&course, 5_000)));
        course.caught_up.set(2_000 * MILLI);
        assert!(course.may_fail(at(&course, 1_999)), "it was sent before");
        assert!(!course.may_fail(at(&course, 2_001)));
    }
}
