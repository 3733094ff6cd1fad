//! Carries out a [`search`](super::search): what became of a rate that was tried or measured, and in whose words.
//!
//! A request that fails while a rate is tried is a miss: above what it can take, a store refuses requests or leaves them without an answer. It leaves
//! broken connections and writes of which nobody knows whether they were made, so the workload then begins anew, with new connections and
//! values, and the search goes on where it was ([`Hunt::begin_anew`]). Where no lower rate can be tried, and where the rate that was found
//! is measured, a request that fails fails the store.

use std::time::Duration;

use storebench_crds::job::{Hindrance, LoadStep, LoaderAudit};
use storebench_crds::status::LatencySummary;
use storebench_crds::workload::HighestRate;

use crate::content::seeds::mix;
use crate::load::Context;
use crate::load::audit::{Figures, judge};
use crate::load::search::{Next, Search};
use crate::report::record::Record;

/// A step that something outside of store and loader disturbed is tried so often in all.
const ATTEMPTS_MAX: u32 = 3;

/// What the search for the highest rate of one workload has come to.
#[derive(Debug)]
pub struct Hunt {
    target: HighestRate,
    search: Search,
    attempts: u32,
    /// Requests failed, and nothing of the workload is of use any more but this search.
    is_broken: bool,
    /// The workload began anew, and has not loaded the store yet.
    is_cold: bool,
}

/// What became of a rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Became {
    /// It counts.
    Step(LoadStep),
    /// Something outside disturbed it: once more.
    Disturbed,
}

impl Hunt {
    /// The search that a workload asks for, if it does.
    pub fn of(context: &Context) -> Option<Self> {
        let target = context.highest_rate.clone()?;
        // Differs between trials and arms, so that no two round off alike.
        let shift = mix(context.arm_seed, 0) as f64 / u64::MAX as f64;
        let per_second = target.percentile.requests_min() as f64 / target.step_duration.duration().as_secs_f64();
        let search = Search::new(
            context.rate.unwrap_or_default(),
            target.tolerance_basis_points,
            per_second.ceil() as u64,
            shift,
        );
        Some(Self { target, search, attempts: 0, is_broken: false, is_cold: false })
    }

    /// Whether the workload is to begin anew, since requests failed at a rate that is only a miss. Says so once.
    pub fn begin_anew(&mut self) -> bool {
        self.is_cold = std::mem::take(&mut self.is_broken);
        self.is_cold
    }

    /// Whether the store has had no load since the workload began anew. Says so once.
    pub(super) fn take_cold(&mut self) -> bool {
        std::mem::take(&mut self.is_cold)
    }

    /// What to do next.
    pub(super) fn next(&self) -> Next {
        self.search.next()
    }

    /// For how long a rate is tried.
    pub(super) fn step_duration(&self) -> Duration {
        self.target.step_duration.duration()
    }

    /// What became of a rate that was tried.
    pub(super) fn tried(&mut self, rate: u64, record: &Record, audit: &LoaderAudit, figures: &Figures) -> Became {
        self.attempts += 1;
        let hindrance = judge(audit, figures).map(|(hindrance, _)| hindrance);
        if hindrance.is_some_and(Hindrance::is_transient) && self.attempts < ATTEMPTS_MAX {
            return Became::Disturbed;
        }
        self.attempts = 0;
        let step = self.step(rate, record, audit, figures);
        self.search.tried(step.missed.is_none());
        Became::Step(step)
    }

    /// What became of a rate at which requests failed while it was tried. `None`: it is no miss, for no lower rate can be tried, or something
    /// outside disturbed it and it is tried once more.
    pub(super) fn failed(
        &mut self,
        rate: u64,
        record: &Record,
        audit: &LoaderAudit,
        figures: &Figures,
    ) -> Option<LoadStep> {
        if !self.search.can_go_below(rate) {
            return None;
        }
        self.is_broken = true;
        match self.tried(rate, record, audit, figures) {
            Became::Step(step) => Some(step),
            Became::Disturbed => None,
        }
    }

    /// What became of the rate that was measured. Where something outside disturbed it, the trial is repeated, and with it the search.
    pub(super) fn measured(&mut self, rate: u64, record: &Record, audit: &LoaderAudit, figures: &Figures) -> LoadStep {
        let mut step = self.step(rate, record, audit, figures);
        step.is_measured = true;
        let is_disturbed = judge(audit, figures).is_some_and(|(hindrance, _)| hindrance.is_transient());
        self.search.measured(step.missed.is_none() || is_disturbed);
        step
    }

    fn step(&self, rate_per_second: u64, record: &Record, audit: &LoaderAudit, figures: &Figures) -> LoadStep {
        let intended = LatencySummary::of(&record.intended);
        let (percentile, at_most) = (self.target.percentile, self.target.at_most.duration());
        let found = Duration::from_nanos(percentile.of(&intended));
        let hindrance = judge(audit, figures);
        let is_late = hindrance.as_ref().is_some_and(|(hindrance, _)| hindrance.is_transient());
        let missed = match (&record.first_failure, hindrance) {
            (Some(failure), _) => {
                let requests = if record.errors == 1 { "request" } else { "requests" };
                Some(format!("{} {requests} failed, the first: {failure}", record.errors))
            }
            (None, Some((_, detail))) => Some(detail),
            (None, None) if record.intended.len() < percentile.requests_min() => {
                Some(format!("{} requests are too few for {}", record.intended.len(), percentile.words()))
            }
            (None, None) if found > at_most => {
                let slow = format!("{} was {found:.1?}, above {}", percentile.words(), self.target.at_most.as_str());
                Some(match audit.is_saturated() {
                    true => format!(
                        "{slow}; but thread {} of the loader ran or waited for a processor all the time: raise load.threads",
                        audit.saturated_thread
                    ),
                    false => slow,
                })
            }
            (None, None) => None,
        };
        let is_loader = missed.is_some() && (is_late || audit.is_saturated());
        LoadStep { rate_per_second, is_measured: false, missed, is_loader, failed: record.errors, intended }
    }

    /// Why there is no highest rate, in one line.
    pub(super) fn never_held(&self, rate: u64, last: Option<&LoadStep>) -> String {
        let why = last.and_then(|step| step.missed.clone()).unwrap_or_default();
        format!(
            "{} did not hold even at {rate}/s, below which too few requests are answered in {}: {why}",
            self.target.target(),
            self.target.step_duration.as_str()
        )
    }

    /// The same where all rates held.
    pub(super) fn always_held(&self, rate: u64) -> String {
        format!("{} held even at {rate}/s, the highest rate there is: set a narrower target", self.target.target())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;
    use crate::load::share::Share;

    fn hunt(arm_seed: u64) -> Hunt {
        let target = serde_json::json!({ "percentile": "P99", "atMost": "5ms" });
        Hunt::of(&Context {
            workload: "w".into(),
            seed: 7,
            arm_seed,
            share: Share::WHOLE,
            endpoints: vec!["127.0.0.1:1".into()],
            connections: 1,
            clients: 1,
            threads: 1,
            total: None,
            duration: Some(Duration::from_secs(1)),
            warm_up: Duration::ZERO,
            rate: Some(1_000),
            arrivals: Default::default(),
            highest_rate: Some(serde_json::from_value(target).unwrap()),
            timeout: Duration::from_secs(1),
            synced_writes_percent: 0,
            in_flight_max: 1,
            fault: None,
            may_lose_writes: false,
            restarts_members: false,
            outside: None,
            namespace: None,
            store_settings: Default::default(),
        })
        .unwrap()
    }

    fn record(millis: u64) -> Record {
        let mut record = Record::default();
        record.intended.record_n(millis * 1_000_000, 1_000).unwrap();
        record
    }

    fn audit(saturation_basis_points: u32) -> LoaderAudit {
        LoaderAudit {
            scheduled: 1_000,
            saturation_basis_points,
            saturated_thread: "load-0".into(),
            ..LoaderAudit::default()
        }
    }

    fn step(became: Became) -> LoadStep {
        let Became::Step(step) = became else { panic!("{became:?}") };
        step
    }

    #[test]
    fn a_rate_holds_where_latency_keeps_to_the_target_and_every_request_was_sent() {
        let figures = Figures::default();
        let held = step(hunt(1).tried(1_000, &record(4), &audit(5_000), &figures));
        assert_eq!((held.missed, held.is_loader), (None, false));
        let slow = step(hunt(1).tried(1_000, &record(6), &audit(5_000), &figures));
        assert_eq!(slow.missed.as_deref(), Some("p99 was 6.0ms, above 5ms"));
        let unsent = Figures { unsent: 500, ..figures };
        let unsent = step(hunt(1).tried(1_000, &record(4), &audit(5_000), &unsent)).missed.unwrap();
        assert!(unsent.starts_with("500 of 1000 requests that were due could be sent"), "{unsent}");
        let few = step(hunt(1).tried(1_000, &Record::default(), &audit(5_000), &figures)).missed;
        assert_eq!(few.as_deref(), Some("0 requests are too few for p99"));
    }

    #[test]
    fn a_rate_that_a_busy_loader_misses_is_the_loaders_limit() {
        let missed = step(hunt(1).tried(1_000, &record(6), &audit(9_900), &Figures::default()));
        assert!(missed.is_loader && missed.missed.unwrap().ends_with("raise load.threads"));
        let held = step(hunt(1).tried(1_000, &record(4), &audit(9_900), &Figures::default()));
        assert!(!held.is_loader, "what holds holds");
    }

    #[test]
    fn a_step_that_was_disturbed_is_tried_again_and_not_for_ever() {
        let late = Figures { late: 500, lag_p99_nanos: 20_000_000, ..Figures::default() };
        let mut hunt = hunt(1);
        let before = hunt.next();
        for _ in 1..ATTEMPTS_MAX {
            assert_eq!(hunt.tried(1_000, &record(4), &audit(5_000), &late), Became::Disturbed);
            assert_eq!(hunt.next(), before);
        }
        let missed = step(hunt.tried(1_000, &record(4), &audit(5_000), &late));
        assert!(missed.missed.is_some() && missed.is_loader, "what the loader missed is no limit of the store");
        assert_ne!(hunt.next(), before);
    }

    fn broken() -> Record {
        let mut record = record(1);
        record.failed(&Failure::new("read from 127.0.0.1:1: connection closed by the store"));
        record
    }

    #[test]
    fn a_rate_at_which_requests_fail_is_missed_and_the_workload_begins_anew() {
        let mut hunt = hunt(1);
        let before = hunt.next();
        let missed = hunt.failed(1_000, &broken(), &audit(5_000), &Figures::default()).expect("a miss");
        let expected = "1 request failed, the first: read from 127.0.0.1:1: connection closed by the store";
        assert_eq!((missed.missed.as_deref(), missed.failed, missed.is_loader), (Some(expected), 1, false));
        assert_ne!(hunt.next(), before, "it goes on below");
        assert!(!hunt.take_cold(), "it has not begun anew yet");
        assert!(hunt.begin_anew() && hunt.take_cold());
        assert!(!hunt.begin_anew() && !hunt.take_cold(), "once");
    }

    #[test]
    fn what_fails_at_the_lowest_rate_is_no_miss() {
        let mut hunt = hunt(1);
        let before = hunt.next();
        // A 99th percentile takes 100 requests in a step of two seconds.
        assert_eq!(hunt.failed(50, &broken(), &audit(5_000), &Figures::default()), None);
        assert!(hunt.next() == before && !hunt.begin_anew());
    }

    #[test]
    fn a_failure_of_a_loader_that_was_late_is_tried_again() {
        let late = Figures { late: 500, lag_p99_nanos: 20_000_000, ..Figures::default() };
        let mut hunt = hunt(1);
        let before = hunt.next();
        assert_eq!(hunt.failed(1_000, &broken(), &audit(5_000), &late), None);
        assert!(hunt.next() == before && hunt.begin_anew());
    }

    #[test]
    fn arms_do_not_round_off_alike() {
        assert_ne!(hunt(1).next(), hunt(2).next());
        assert_eq!(hunt(1).next(), hunt(1).next());
    }
}
