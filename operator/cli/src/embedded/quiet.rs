//! Quiet: whether other processes leave this machine alone, and the waiting room where a run stays until they do.
//!
//! A run glances around before its first trial, and looks longer after each trial that was disturbed. It goes on as soon as
//! others have been quiet for a while. How long a run may wait in all is limited; beyond that it measures all the same,
//! and what is disturbed does not count. What is seen, and how it is shown, comes in as [`Surroundings`].

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bench_jobs::measure::foreign::{Survey, Used};

use super::interrupt;
use super::progress::Progress;

/// How long a look around takes.
const LOOK: Duration = Duration::from_millis(500);
/// How long others must have been quiet, once they were busy: a build is quiet for a moment between two compilers.
const QUIET_SPAN: Duration = Duration::from_secs(3);
/// Between two lines about one and the same waiting.
const TOLD_INTERVAL: Duration = Duration::from_secs(30);
/// Between two looks at whether a signal has asked for the end.
const INTERRUPT_INTERVAL: Duration = Duration::from_millis(50);

/// What the waiting room sees, and where it shows it.
pub(super) trait Surroundings {
    /// Looks around for a moment. `None`: the run was asked to end.
    fn look(&mut self) -> Option<Used>;
    /// Others are busy, or were a moment ago; for at most this long it goes on.
    fn busy(&mut self, used: &Used, at_most: Duration);
    /// They have been quiet for long enough.
    fn quiet(&mut self, waited: Duration);
    /// The limit is reached, and they are still busy.
    fn still_busy(&mut self, used: &Used);
}

/// What became of the waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// Others were quiet, or it was not to wait.
    NotAtAll,
    /// Others were busy, and are quiet after this long.
    UntilQuiet(Duration),
    /// Others are still busy, and it may wait no longer.
    InVain,
    /// A signal has asked for the end.
    Interrupted,
}

/// Where a run waits for quiet; knows how long it still may.
#[derive(Debug)]
pub(super) struct WaitingRoom {
    left: Duration,
    waited: Duration,
    /// Who was still busy when the limit was reached.
    still_busy: Option<Used>,
}

impl WaitingRoom {
    /// For a run that may wait this long in all; none: it never looks around.
    pub(super) fn new(limit: Duration) -> Self {
        Self { left: limit, waited: Duration::ZERO, still_busy: None }
    }

    /// What a reader of the results must know of the waiting; `None` where there was none.
    pub(super) fn caveat(&self) -> Option<String> {
        let waited = in_words(self.waited);
        match &self.still_busy {
            Some(used) => {
                Some(format!("measured on a busy machine: after {waited} of waiting, others still used {used}"))
            }
            None if self.waited.is_zero() => None,
            None => Some(format!("waited {waited} in all until other processes were quiet")),
        }
    }

    /// Before the first trial: goes on at once if all is quiet at a glance.
    pub(super) fn before_the_first_trial(&mut self, surroundings: &mut impl Surroundings) -> Waited {
        self.wait(LOOK, surroundings)
    }

    /// After a trial that was disturbed: who disturbed it may just take a breath.
    pub(super) fn after_a_disturbance(&mut self, surroundings: &mut impl Surroundings) -> Waited {
        self.wait(QUIET_SPAN, surroundings)
    }

    fn wait(&mut self, mut quiet_span: Duration, surroundings: &mut impl Surroundings) -> Waited {
        let (mut waited, mut quiet) = (Duration::ZERO, Duration::ZERO);
        let mut busy: Option<Used> = None;
        while !self.left.is_zero() {
            let Some(used) = surroundings.look() else { return Waited::Interrupted };
            let span = Duration::from_nanos(used.elapsed_nanos);
            waited += span;
            quiet += span;
            if used.is_disturbing() {
                (quiet, quiet_span) = (Duration::ZERO, QUIET_SPAN);
                busy = Some(used);
            }
            let done = quiet >= quiet_span;
            match &busy {
                None if done => return Waited::NotAtAll,
                None => {}
                Some(_) if done => {
                    self.left = self.left.saturating_sub(waited);
                    self.waited += waited;
                    surroundings.quiet(waited);
                    return Waited::UntilQuiet(waited);
                }
                Some(used) if waited >= self.left => {
                    self.left = Duration::ZERO;
                    self.waited += waited;
                    surroundings.still_busy(used);
                    self.still_busy = busy;
                    return Waited::InVain;
                }
                Some(used) => surroundings.busy(used, self.left - waited),
            }
        }
        Waited::NotAtAll
    }
}

/// This machine, shown by the run's progress.
pub(super) struct ThisMachine<'a> {
    /// Processes of stores that were there already: nobody waits until these are quiet.
    stores: BTreeSet<i32>,
    progress: &'a Progress,
    /// When a line was last written about the waiting that is under way.
    told: Option<Instant>,
}

impl<'a> ThisMachine<'a> {
    pub(super) fn new(stores: BTreeSet<i32>, progress: &'a Progress) -> Self {
        Self { stores, progress, told: None }
    }
}

impl Surroundings for ThisMachine<'_> {
    fn look(&mut self) -> Option<Used> {
        let survey = Survey::begin(&self.stores);
        let end = Instant::now() + LOOK;
        while Instant::now() < end {
            if interrupt::requested() {
                return None;
            }
            std::thread::sleep(INTERRUPT_INTERVAL);
        }
        Some(survey.finish())
    }

    fn busy(&mut self, used: &Used, at_most: Duration) {
        let at_most = in_words(at_most);
        self.progress.waits(&format!("for quiet, at most {at_most}: others use {used}"));
        if self.told.is_none_or(|told| told.elapsed() >= TOLD_INTERVAL) {
            let hint = if self.told.is_none() { "; to measure at once: --wait-for-quiet 0s" } else { "" };
            self.progress.tell(&format!("waiting for quiet: other processes use {used}, for at most {at_most}{hint}"));
            self.told = Some(Instant::now());
        }
    }

    fn quiet(&mut self, waited: Duration) {
        self.progress.tell(&format!("quiet after {}", in_words(waited)));
    }

    fn still_busy(&mut self, used: &Used) {
        self.progress.tell(&format!(
            "other processes still use {used}: measuring all the same; what they disturb does not count"
        ));
    }
}

/// A span for people, as in `4 min 30 s`: to the second, but never nothing where there is something.
pub(super) fn in_words(span: Duration) -> String {
    let rounded = (span + Duration::from_millis(500)).as_secs();
    let seconds = rounded.max(u64::from(!span.is_zero()));
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, 0) => format!("{minutes} min"),
        (minutes, seconds) => format!("{minutes} min {seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A machine with two cores on which others use, at each look, so many thousandths of a core. What is shown is kept.
    struct Scripted {
        millicores: std::vec::IntoIter<u64>,
        shown: Vec<String>,
    }

    impl Scripted {
        fn new(millicores: Vec<u64>) -> Self {
            Self { millicores: millicores.into_iter(), shown: Vec::new() }
        }
    }

    impl Surroundings for Scripted {
        fn look(&mut self) -> Option<Used> {
            let elapsed_nanos = LOOK.as_nanos() as u64;
            let used = self.millicores.next()? * elapsed_nanos / 1_000;
            let programs = BTreeMap::from([("cc1plus".to_owned(), used)]);
            Some(Used { elapsed_nanos, capacity_millicores: 2_000, total_nanos: used, programs })
        }

        fn busy(&mut self, used: &Used, at_most: Duration) {
            self.shown.push(format!("{used}, at most {}", in_words(at_most)));
        }

        fn quiet(&mut self, waited: Duration) {
            self.shown.push(format!("quiet after {}", in_words(waited)));
        }

        fn still_busy(&mut self, used: &Used) {
            self.shown.push(format!("still {used}"));
        }
    }

    const LIMIT: Duration = Duration::from_secs(300);

    #[test]
    fn a_quiet_machine_takes_a_glance() {
        let mut machine = Scripted::new(vec![400, 2_000]);
        let mut room = WaitingRoom::new(LIMIT);
        assert_eq!((room.before_the_first_trial(&mut machine), room.caveat()), (Waited::NotAtAll, None));
        assert_eq!((machine.millicores.len(), machine.shown.len()), (1, 0), "one look, and nothing to say");
    }

    #[test]
    fn a_busy_machine_is_named_and_waited_for_until_it_has_been_quiet_for_three_seconds() {
        let mut script = vec![1_000, 1_500, 0, 0, 900];
        script.extend([300; 6]);
        script.push(2_000);
        let mut machine = Scripted::new(script);
        let mut room = WaitingRoom::new(LIMIT);
        let waited = Duration::from_millis(11 * 500);
        assert_eq!(room.before_the_first_trial(&mut machine), Waited::UntilQuiet(waited));
        assert_eq!(machine.shown[0], "1.0 of 2 cores (cc1plus 1.0), at most 5 min");
        assert_eq!(machine.shown[3], "1.5 of 2 cores (cc1plus 1.5), at most 4 min 58 s", "a pause names who paused");
        assert_eq!(machine.shown.last().unwrap(), "quiet after 6 s");
        assert_eq!(machine.millicores.len(), 1, "on as soon as it is quiet");
        assert_eq!(room.left, LIMIT - waited, "what was waited is not to be had again");
        assert_eq!(room.caveat().unwrap(), "waited 6 s in all until other processes were quiet");
    }

    #[test]
    fn who_takes_a_breath_after_a_disturbed_trial_is_waited_for() {
        let mut breath = vec![0, 0, 1_000];
        breath.extend([0; 6]);
        let waited = WaitingRoom::new(LIMIT).after_a_disturbance(&mut Scripted::new(breath));
        assert_eq!(waited, Waited::UntilQuiet(Duration::from_millis(9 * 500)));
        let waited = WaitingRoom::new(LIMIT).after_a_disturbance(&mut Scripted::new(vec![0; 6]));
        assert_eq!(waited, Waited::NotAtAll, "quiet all along is no reason to repeat for free");
    }

    #[test]
    fn at_the_limit_it_goes_on_and_never_waits_again() {
        let mut machine = Scripted::new(vec![2_000; 50]);
        let mut room = WaitingRoom::new(Duration::from_secs(5));
        assert_eq!(room.before_the_first_trial(&mut machine), Waited::InVain);
        assert_eq!(machine.shown.last().unwrap(), "still 2.0 of 2 cores (cc1plus 2.0)");
        assert_eq!((machine.shown.len(), machine.millicores.len()), (10, 40), "ten looks of half a second");
        assert_eq!(room.after_a_disturbance(&mut machine), Waited::NotAtAll);
        assert_eq!(machine.millicores.len(), 40, "no further look");
        let caveat = "measured on a busy machine: after 5 s of waiting, others still used 2.0 of 2 cores (cc1plus 2.0)";
        assert_eq!(room.caveat().unwrap(), caveat);
    }

    #[test]
    fn no_limit_means_no_look() {
        let mut machine = Scripted::new(vec![2_000; 9]);
        assert_eq!(WaitingRoom::new(Duration::ZERO).before_the_first_trial(&mut machine), Waited::NotAtAll);
        assert_eq!(machine.millicores.len(), 9);
    }

    #[test]
    fn a_signal_ends_the_waiting() {
        let mut machine = Scripted::new(vec![2_000; 3]);
        assert_eq!(WaitingRoom::new(LIMIT).before_the_first_trial(&mut machine), Waited::Interrupted);
    }

    #[test]
    fn spans_are_in_words() {
        let words =
            [0, 400, 2_100, 59_000, 60_000, 61_500, 300_000].map(|millis| in_words(Duration::from_millis(millis)));
        assert_eq!(words, ["0 s", "1 s", "2 s", "59 s", "1 min", "1 min 2 s", "5 min"]);
    }
}
