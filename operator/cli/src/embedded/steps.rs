//! The search for the highest rate, watched: whether others used the machine while the rate that bounds it was tried. What is found lies below
//! that, so that a step that only missed because of others would lower it, and nobody would know.
//!
//! What is surveyed is what counts of a step, without its warm-up: who disturbed just that would be averaged away with the rest.

use std::collections::{BTreeMap, BTreeSet};

use bench_jobs::measure::foreign::{Survey, Used};
use storebench_crds::job::LoadStep;

/// What others used while rates were tried.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// The step that is under way.
    survey: Option<Survey>,
    /// What others used while a rate missed, each time, by workload and rate; not of rates that held when they were tried again.
    missed: BTreeMap<String, BTreeMap<u64, Vec<Used>>>,
}

impl Steps {
    /// What counts of a step begins, beside these processes of a store that was there already.
    pub(super) fn begin(&mut self, store: &BTreeSet<i32>) {
        self.survey = Some(Survey::begin(store));
    }

    /// Call this often.
    pub(super) fn sample(&mut self) {
        self.survey.iter_mut().for_each(Survey::sample);
    }

    /// A rate was tried.
    pub(super) fn tried(&mut self, workload: &str, step: &LoadStep) {
        // One at which requests failed as early as in its warm-up has none.
        let used = self.survey.take().map(Survey::finish).unwrap_or_default();
        self.came(workload, step, used);
    }

    /// No rate is tried any more, for now.
    pub(super) fn end(&mut self) {
        self.survey = None;
    }

    /// What came of a rate that was tried or measured, and what others used meanwhile.
    pub(super) fn came(&mut self, workload: &str, step: &LoadStep, used: Used) {
        let missed = self.missed.entry(workload.to_owned()).or_default();
        if step.missed.is_some() {
            missed.entry(step.rate_per_second).or_default().push(used);
        } else {
            missed.remove(&step.rate_per_second);
        }
    }

    /// What disturbed one of the steps that decided, in one line; `None`: nobody did.
    pub(super) fn disturbance(&self) -> Option<String> {
        let lowest = self.missed.iter().filter_map(|(workload, missed)| Some((workload, missed.first_key_value()?)));
        let mut disturbed = lowest.filter_map(|(workload, (rate, used))| {
            Some((workload, rate, used.iter().find(|used| used.is_disturbing())?))
        });
        let (workload, rate, used) = disturbed.next()?;
        Some(format!("{workload}: other processes used {used} while {rate}/s was tried, which missed: stop them"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use storebench_crds::status::LatencySummary;

    fn step(rate: u64, missed: bool) -> LoadStep {
        LoadStep {
            rate_per_second: rate,
            is_measured: false,
            missed: missed.then(|| "slow".into()),
            is_loader: false,
            failed: 0,
            intended: LatencySummary::default(),
        }
    }

    /// Two cores, of which others used so much of a second.
    fn used(millicores: u64) -> Used {
        Used {
            elapsed_nanos: 1_000_000_000,
            capacity_millicores: 2_000,
            total_nanos: millicores * 1_000_000,
            programs: [("compiler".to_owned(), millicores * 1_000_000)].into(),
        }
    }

    #[test]
    fn a_miss_that_others_made_is_told_where_it_decided() {
        let mut steps = Steps::default();
        steps.came("set", &step(1_000, false), used(1_500));
        assert_eq!(steps.disturbance(), None, "what holds beside others holds");
        steps.came("set", &step(4_000, true), used(1_500));
        let said = steps.disturbance().unwrap();
        assert!(said.starts_with("set: other processes used ") && said.contains("while 4000/s was tried"), "{said}");
        assert!(said.contains("compiler"), "{said}");
        steps.came("set", &step(3_000, true), used(0));
        assert_eq!(steps.disturbance(), None, "a lower rate missed when nobody was there");
        steps.came("set", &step(3_500, true), used(1_500));
        assert_eq!(steps.disturbance(), None, "the lowest decides");
        steps.came("set", &step(3_000, true), used(1_500));
        assert!(steps.disturbance().is_some(), "of its two misses one was others' doing, and one is not enough");
        steps.came("set", &step(3_000, false), used(0));
        assert!(steps.disturbance().unwrap().contains("while 3500/s"), "what held when it was tried again is no bound");
    }

    #[test]
    fn between_two_steps_nothing_is_surveyed() {
        let mut steps = Steps::default();
        steps.begin(&BTreeSet::new());
        steps.tried("set", &step(1_000, false));
        assert!(steps.survey.is_none(), "until the next step begins to count");
    }
}
