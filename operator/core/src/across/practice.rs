//! Whether a team can live with a comparison that runs every night: gates that change their minds while nothing else did, and how many
//! trials it takes to see what somebody wants to see. Both from what the last runs measured.

use std::sync::LazyLock;

use serde::Serialize;
use storebench_crds::Metric;
use storebench_crds::benchmark_run::TRIALS_MAX;
use storebench_crds::status::GateOutcome;

use super::{Figures, RECENT_RUNS};
use crate::judgement::Report;
use crate::statistics::{CONFIDENCE_DEFAULT, POWER_DEFAULT, TRIALS_MIN, minimum_detectable_effect};

/// A level that became worse turns a gate once, and turns it back when it is mended; what turns it more often is noise.
const TURNS_OF_A_CHANGE_MAX: u32 = 2;

/// What became of a gate over all runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GateCourse {
    /// The gate in words, as reports have it.
    pub gate: String,
    /// How it was decided, the oldest run first.
    pub outcomes: Vec<GateOutcome>,
    /// How often within the last [`RECENT_RUNS`] it was met after it had been missed, or missed after it had been met. Runs that did not decide
    /// it are passed over.
    pub turns: u32,
    /// Whether it turned more often than a change that was mended explains.
    pub is_flaky: bool,
}

impl GateCourse {
    /// The gates of the newest of these runs, which are in order, over all of them.
    pub(super) fn all(ordered: &[&Report]) -> Vec<Self> {
        let gates = ordered.last().map_or(&[][..], |newest| newest.judgement.gates.as_slice());
        gates.iter().map(|gate| Self::of(&gate.gate, ordered)).collect()
    }

    fn of(gate: &str, ordered: &[&Report]) -> Self {
        let outcome =
            |report: &&Report| report.judgement.gates.iter().find(|one| one.gate == gate).map(|one| one.outcome);
        let outcomes: Vec<GateOutcome> = ordered.iter().filter_map(outcome).collect();
        let recent = &outcomes[outcomes.len().saturating_sub(RECENT_RUNS)..];
        let is_decided = |outcome: &&GateOutcome| matches!(outcome, GateOutcome::Met | GateOutcome::Missed);
        let decided: Vec<&GateOutcome> = recent.iter().filter(is_decided).collect();
        let turns = decided.windows(2).filter(|pair| pair[0] != pair[1]).count() as u32;
        Self { gate: gate.into(), outcomes, turns, is_flaky: turns > TURNS_OF_A_CHANGE_MAX }
    }

    /// How many of all runs decided it so.
    pub fn count(&self, outcome: GateOutcome) -> usize {
        self.outcomes.iter().filter(|one| **one == outcome).count()
    }
}

/// How many trials of each arm it takes to see a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Needed {
    /// The change, basis points.
    pub change_basis_points: u32,
    /// The trials that would find it four times in five. Absent: more than a run can have.
    pub trials: Option<u32>,
}

/// The changes that people ask for, basis points.
const CHANGES: [u32; 3] = [200, 500, 1_000];

/// What so many trials would see, from [`TRIALS_MIN`] on, where the ratio moves from trial to trial with a standard deviation of 1.
static DETECTABLE: LazyLock<Vec<f64>> = LazyLock::new(|| {
    let detectable = |trials| {
        minimum_detectable_effect(1.0, trials, 1.0 - CONFIDENCE_DEFAULT, POWER_DEFAULT).unwrap_or(f64::INFINITY)
    };
    (TRIALS_MIN..=TRIALS_MAX as usize).map(detectable).collect()
});

/// How many trials it takes to see some changes of an arm against the baseline of the same run, from how its ratio moved from trial to trial in
/// the last [`RECENT_RUNS`]. Empty: it is the baseline, or nobody knows.
pub(super) fn needed(runs: &[Figures], workload: &str, arm: &str, metric: Metric) -> Vec<Needed> {
    let Some(deviation) = deviation(runs, workload, arm, metric) else { return Vec::new() };
    let needed = CHANGES.map(|change_basis_points| {
        let change = (1.0 + f64::from(change_basis_points) / 10_000.0).ln();
        let enough = DETECTABLE.iter().position(|effect| effect * deviation <= change);
        Needed { change_basis_points, trials: enough.map(|position| (TRIALS_MIN + position) as u32) }
    });
    needed.into()
}

/// The standard deviation of the logarithm of the ratio to the baseline from trial to trial, of all recent runs together.
fn deviation(runs: &[Figures], workload: &str, arm: &str, metric: Metric) -> Option<f64> {
    let baseline = runs.last()?.record.arms.iter().find(|one| one.baseline && one.name != arm)?;
    let (mut squares, mut degrees) = (0.0, 0);
    for run in &runs[runs.len().saturating_sub(RECENT_RUNS)..] {
        let Some(ratios) = run.logarithms(arm, Some(&baseline.name), workload, metric) else { continue };
        if ratios.len() < 2 || !ratios.iter().all(|ratio| ratio.is_finite()) {
            continue;
        }
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        squares += ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum::<f64>();
        degrees += ratios.len() - 1;
    }
    (degrees > 0).then(|| (squares / degrees as f64).sqrt())
}
