//! A fault of the store within the measured phase: has a member struck ([`Control`]), times what follows, and says which requests may fail. Shared
//! by all threads; the first client of the first thread runs it beside its load.
//!
//! A request may fail from the moment at which the fault is asked for until the member is back ([`Course::run`]), and at no other time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use storebench_crds::workload::FaultKind;
use storebench_crds::workload::fault::{FAILED_REQUESTS, RECOVERY, UNKNOWN_WRITES, WRITE_PAUSE};
use tokio::time::sleep;

use crate::failure::Failure;
use crate::load::control::Control;
use crate::load::session::Session;
use crate::load::{Context, Surroundings};

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

/// One fault, from the beginning of the measured phase to its end.
#[derive(Debug)]
pub struct Course {
    control: Arc<Control>,
    kind: FaultKind,
    after: Duration,
    duration: Duration,
    /// Whether other members go on meanwhile.
    has_others: bool,
    /// What moments count from.
    origin: Instant,
    began: Moment,
    asked: Moment,
    struck: Moment,
    /// When the fault was due to end, or ended where others start the member again. Not when that was heard: it would be shorter by how long
    /// who strikes and this loader took.
    due: Moment,
    released: Moment,
    back: Moment,
    /// The newest acknowledgement of a write.
    last: AtomicU64,
    /// The longest time between two.
    pause_max: AtomicU64,
    /// Of a write that was sent after the member was struck.
    first_after_strike: Moment,
    /// Of any write, after the fault was due to end.
    first_after_end: Moment,
    /// The latest at which a client had no more to send.
    ended: AtomicU64,
}

impl Course {
    /// The fault of a workload, if it has one. Errors: the driver does not do what it takes.
    pub fn of(context: &Context, around: &Surroundings<'_>) -> io::Result<Option<Arc<Self>>> {
        let Some(fault) = &context.fault else { return Ok(None) };
        let Some(control) = around.control else {
            let text = "a member of the store is to be struck, which nobody does for this load: the job has neither strikesMembers nor metersStrike";
            return Err(io::Error::other(text));
        };
        let has_others = context.endpoints.len() > 1;
        let course = Self::new(control, fault.kind, fault.after.duration(), fault.duration.duration(), has_others);
        Ok(Some(Arc::new(course)))
    }

    fn new(control: &Arc<Control>, kind: FaultKind, after: Duration, duration: Duration, has_others: bool) -> Self {
        Self {
            control: Arc::clone(control),
            kind,
            after,
            duration,
            has_others,
            origin: Instant::now(),
            began: Moment::default(),
            asked: Moment::default(),
            struck: Moment::default(),
            due: Moment::default(),
            released: Moment::default(),
            back: Moment::default(),
            last: AtomicU64::new(0),
            pause_max: AtomicU64::new(0),
            first_after_strike: Moment::default(),
            first_after_end: Moment::default(),
            ended: AtomicU64::new(0),
        }
    }

    /// What was not done of what was asked for.
    pub fn broken(&self) -> Option<&str> {
        self.control.broken()
    }

    fn nanos(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.origin).as_nanos() as u64
    }

    /// A write that was sent at one moment was acknowledged at another: when the answer came, not when somebody got round to it.
    pub fn acknowledged(&self, sent: Instant, now: Instant) {
        if self.began.get().is_none() {
            return;
        }
        let (sent, now) = (self.nanos(sent), self.nanos(now));
        self.noted(now);
        if self.struck.get().is_some_and(|struck| sent > struck) {
            self.first_after_strike.set_earliest(now);
        }
        if self.due.get().is_some_and(|due| now > due) {
            self.first_after_end.set_earliest(now);
        }
    }

    /// Until now there was no acknowledgement since the last.
    fn noted(&self, now: u64) {
        let last = self.last.fetch_max(now, Ordering::AcqRel);
        self.pause_max.fetch_max(now.saturating_sub(last), Ordering::AcqRel);
    }

    /// A client has no more to send. That nothing is acknowledged after the last one has said so is no pause, however long the member still takes
    /// to be back.
    pub fn ended(&self, now: Instant) {
        if self.began.get().is_some() {
            self.ended.fetch_max(self.nanos(now), Ordering::AcqRel);
        }
    }

    /// The longest time without an acknowledgement, nanoseconds.
    fn longest_pause(&self) -> u64 {
        let last = self.last.load(Ordering::Acquire);
        self.pause_max.load(Ordering::Acquire).max(self.ended.load(Ordering::Acquire).saturating_sub(last))
    }

    /// Whether a request may fail that was sent then, or on a connection of then: one that was under way when the member was struck, or was
    /// sent before it was back.
    pub fn may_fail(&self, sent: Instant) -> bool {
        let sent = self.nanos(sent);
        self.asked.get().is_some() && self.back.get().is_none_or(|until| sent <= until)
    }

    /// Whether the fault was over when something was sent.
    pub fn was_over(&self, sent: Instant) -> bool {
        let sent = self.nanos(sent);
        self.released.get().is_some_and(|released| sent > released)
    }

    /// Whether a member is started again by others, when they like: only then is it known when the fault ended.
    fn ends_by_itself(&self) -> bool {
        self.kind == FaultKind::Kill && self.control.leaves_restarts_to_others()
    }

    /// Has the member struck that `choose` names by its endpoint, and returns when `is_back` does: how long that took from the moment at
    /// which the fault was due to end, or ended by itself.
    pub async fn run(
        &self,
        workload: &str,
        choose: impl Future<Output = Result<String, Failure>>,
        is_back: impl AsyncFnOnce(&str) -> Result<(), Failure>,
    ) -> Result<Duration, Failure> {
        let begun = Instant::now();
        self.last.store(self.nanos(begun), Ordering::Release);
        self.began.set(self.nanos(begun));
        sleep(self.after).await;
        let endpoint = choose.await?;
        let asked = Instant::now();
        let mut due = asked + self.duration;
        if !self.ends_by_itself() {
            self.due.set(self.nanos(due));
        }
        self.asked.set(self.nanos(asked));
        self.control.strike(workload, &endpoint, self.kind, self.duration).await?;
        self.struck.set(self.nanos(Instant::now()));
        let lasted = self.control.released(self.duration).await?;
        if let Some(lasted) = lasted.filter(|_| self.ends_by_itself()) {
            due = asked + lasted;
            self.due.set(self.nanos(due));
        }
        self.released.set(self.nanos(Instant::now()));
        is_back(&endpoint).await?;
        let now = Instant::now();
        self.back.set(self.nanos(now));
        Ok(now.saturating_duration_since(due))
    }

    /// Tells what was measured, when the load is over and the member is back. Returns the time to the first write after the fault.
    pub fn tell(&self, session: &Session) -> Result<Duration, Failure> {
        session.took(WRITE_PAUSE, Duration::from_nanos(self.longest_pause()));
        // Counted by whoever gave one up; where nobody did there were none, which is known, too.
        session.count(FAILED_REQUESTS, 0);
        session.count(UNKNOWN_WRITES, 0);
        let (from, first) = match self.has_others {
            true => (self.asked.get(), self.first_after_strike.get()),
            // When it ended is heard after it did. What is acknowledged after a kill is acknowledged by the process that was started then.
            false if self.ends_by_itself() => (self.due.get(), self.first_after_strike.get()),
            false => (self.due.get(), self.first_after_end.get()),
        };
        let recovery = from.zip(first).map(|(from, first)| Duration::from_nanos(first.saturating_sub(from)));
        let recovery = recovery.ok_or_else(|| self.without_recovery())?;
        session.took(RECOVERY, recovery);
        Ok(recovery)
    }

    /// No write was acknowledged after the fault. That is the store's fault, unless it was started too late.
    fn without_recovery(&self) -> Failure {
        let (due, ended) = (self.due.get().unwrap_or_default(), self.ended.load(Ordering::Acquire));
        if self.ends_by_itself() && due >= ended {
            let lasted = Duration::from_nanos(due.saturating_sub(self.asked.get().unwrap_or_default()));
            return self.control.fault(format!(
                "the killed member was started again only {:.1} s later, when the load was over: make load.duration longer",
                lasted.as_secs_f64()
            ));
        }
        Failure::new("no write was acknowledged after the fault")
    }
}

/// For tests of those who live through one.
#[cfg(test)]
impl Course {
    /// The only member was struck just now.
    pub(crate) fn struck(duration: Duration) -> io::Result<Self> {
        let control = Arc::new(Control::listen(io::empty())?);
        let course = Self::new(&control, FaultKind::Kill, Duration::ZERO, duration, false);
        for moment in [&course.began, &course.asked, &course.struck] {
            moment.set(1);
        }
        course.due.set(duration.as_nanos() as u64);
        Ok(course)
    }

    /// It is back now.
    pub(crate) fn is_back(&self) {
        let now = self.nanos(Instant::now());
        self.released.set(now);
        self.back.set(now);
    }

    /// Whether a write was acknowledged after the fault was due to end.
    pub(crate) fn has_recovered(&self) -> bool {
        self.first_after_end.get().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::session::Source;

    /// Of a member that others start again.
    fn started_by_others() -> Course {
        let job = serde_json::json!({
            "run": "r", "arm": "a", "trial": 0, "seed": 7, "endpoints": ["a:1"], "meters": ["a:2"], "workloads": [],
        });
        let control = Control::of_meters(&serde_json::from_value(job).unwrap(), &"x".repeat(32)).unwrap();
        Course::new(&Arc::new(control), FaultKind::Kill, Duration::ZERO, Duration::from_secs(1), false)
    }

    fn told(course: &Course) -> Result<Duration, Failure> {
        course.tell(&Session::alone(None, Source::Closed { budget: None, deadline: None }))
    }

    /// It may be back before it is heard that it was started, and long before the time that the fault was to last.
    #[test]
    fn a_member_that_others_start_has_recovered_with_its_first_answer_after_it_was_struck() {
        let course = started_by_others();
        course.began.set(1);
        course.asked.set(100 * MILLI);
        course.struck.set(101 * MILLI);
        course.acknowledged(at(&course, 99), at(&course, 100));
        course.acknowledged(at(&course, 107), at(&course, 390));
        course.due.set(370 * MILLI);
        course.acknowledged(at(&course, 395), at(&course, 400));
        assert_eq!(told(&course), Ok(Duration::from_millis(20)));
    }

    #[test]
    fn a_member_that_others_start_when_the_load_is_over_is_no_failed_store() {
        let course = started_by_others();
        course.began.set(1);
        course.asked.set(100 * MILLI);
        course.struck.set(101 * MILLI);
        course.ended(at(&course, 5_000));
        course.due.set(4_900 * MILLI);
        assert_eq!(told(&course).unwrap_err().text(), "no write was acknowledged after the fault");
        assert_eq!(course.broken(), None, "the store had time");
        course.due.set(10_100 * MILLI);
        let said =
            "the killed member was started again only 10.0 s later, when the load was over: make load.duration longer";
        assert_eq!(told(&course).unwrap_err().text(), said);
        assert_eq!(course.broken(), Some(said));
    }

    fn course(has_others: bool) -> Course {
        let control = Arc::new(Control::listen(io::empty()).unwrap());
        Course::new(&control, FaultKind::Kill, Duration::from_secs(1), Duration::from_secs(1), has_others)
    }

    fn at(course: &Course, millis: u64) -> Instant {
        course.origin + Duration::from_millis(millis)
    }

    const MILLI: u64 = 1_000_000;

    #[test]
    fn the_longest_time_without_an_acknowledgement_is_kept_whoever_hears_of_them_last() {
        let course = course(true);
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
    fn what_is_not_written_after_the_load_is_no_pause() {
        let course = course(false);
        course.ended(at(&course, 500));
        course.began.set(1_000 * MILLI);
        course.last.store(1_000 * MILLI, Ordering::Release);
        course.acknowledged(at(&course, 1_000), at(&course, 1_200));
        assert_eq!(course.longest_pause(), 200 * MILLI);
        // One client waits for an answer for longer than the others.
        for millis in [2_000, 2_300, 2_100] {
            course.ended(at(&course, millis));
        }
        assert_eq!(course.longest_pause(), 1_100 * MILLI, "the member may be back whenever it likes");
        course.acknowledged(at(&course, 1_300), at(&course, 2_400));
        assert_eq!(course.longest_pause(), 1_200 * MILLI, "somebody had more to send");
    }

    #[test]
    fn a_write_that_the_old_leader_may_have_acknowledged_does_not_end_the_failover() {
        let course = course(true);
        course.began.set(1);
        course.asked.set(100 * MILLI);
        course.struck.set(103 * MILLI);
        course.acknowledged(at(&course, 99), at(&course, 101));
        course.acknowledged(at(&course, 102), at(&course, 104));
        assert_eq!(course.first_after_strike.get(), None);
        course.acknowledged(at(&course, 110), at(&course, 300));
        course.acknowledged(at(&course, 105), at(&course, 290));
        course.acknowledged(at(&course, 200), at(&course, 310));
        assert_eq!(course.first_after_strike.get(), Some(290 * MILLI));
    }

    /// A member that stood still answers what was sent before, too.
    #[test]
    fn a_single_member_has_recovered_with_its_first_answer_after_the_fault() {
        let course = course(false);
        course.began.set(1);
        course.asked.set(100 * MILLI);
        course.struck.set(101 * MILLI);
        course.due.set(1_100 * MILLI);
        course.acknowledged(at(&course, 99), at(&course, 100));
        assert_eq!(course.first_after_end.get(), None);
        course.acknowledged(at(&course, 99), at(&course, 1_107));
        course.acknowledged(at(&course, 1_105), at(&course, 1_108));
        assert_eq!(course.first_after_end.get(), Some(1_107 * MILLI));
    }

    #[test]
    fn a_request_may_fail_from_the_fault_until_the_member_is_back_and_at_no_other_time() {
        let course = course(true);
        assert!(!course.may_fail(at(&course, 10)));
        course.asked.set(100 * MILLI);
        assert!(course.may_fail(at(&course, 90)), "it was under way");
        assert!(course.may_fail(at(&course, 5_000)));
        course.back.set(2_000 * MILLI);
        assert!(course.may_fail(at(&course, 1_999)), "it was sent before");
        assert!(!course.may_fail(at(&course, 2_001)));
    }
}
