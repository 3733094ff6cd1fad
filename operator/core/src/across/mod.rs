//! What several runs say together: [`TwoRuns`] of one and a later one, [`Trend`] of many; [`Held`]: the verdict of a run that is held
//! against a kept one.
//!
//! Promises: what differs between the circumstances of runs is named; runs of unlike machines are not compared unless that is asked for,
//! and then it is said; only arms and workloads of which the same was asked are compared. Nothing here measures; each report is judged by
//! itself before.
//!
//! Runs of different days were not interleaved: what moved on the machine between them is in the difference, and no interval of either
//! contains it. Where both measured an arm that did not change, the baseline, ratios to it are compared instead, in which that cancels.

mod conditions;
mod figures;
mod held;
mod practice;
mod trend;
mod two_runs;

#[cfg(test)]
mod tests;

use storebench_crds::metric::Direction;
use storebench_crds::status::NOISE_FLOOR;
use storebench_crds::{Metric, Workload};

pub use conditions::{Difference, Differences, Part};
pub use figures::{Figures, Measured};
#[cfg(test)]
pub(crate) use held::decided;
pub use held::{Baseline, Held, HeldAgainst, judged_again, tell_both};
pub use practice::{GateCourse, Needed};
pub use trend::{Change, Point, RECENT_RUNS, Series, Trend};
pub use two_runs::{Against, Outcome, Row, Side, TwoRuns, check_comparable};

use crate::record::{ArmRecord, RunRecord};

/// Why runs cannot be compared, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AcrossError {
    /// They were not measured on the same machine.
    #[error(
        "{run}: {before} and {after} were measured on unlike machines ({facts}): compare runs of one machine, or say --allow-different-machine"
    )]
    OtherMachine {
        /// The run's name.
        run: String,
        /// When the first began.
        before: String,
        /// When the second began.
        after: String,
        /// In what.
        facts: String,
    },
    /// There is nothing that both measured alike.
    #[error("{run}: {before} and {after} have nothing in common that could be compared: {why}")]
    NothingInCommon {
        /// The run's name.
        run: String,
        /// When the first began.
        before: String,
        /// When the second began.
        after: String,
        /// Why not.
        why: String,
    },
}

/// How many basis points a metric may be worse by, unless somebody says otherwise: 5 %.
pub const TOLERANCE_DEFAULT_BASIS_POINTS: u32 = 500;

/// The arms that are somebody's work. The noise floor, the baseline against itself, is nobody's.
fn arms(record: &RunRecord) -> impl Iterator<Item = &ArmRecord> {
    record.arms.iter().filter(|arm| arm.name != NOISE_FLOOR)
}

/// The metrics that decide: how fast, and how long one waits; what it costs is shown. Where the highest rate is looked for, which is another in
/// each run, how long one waits at it decides nothing.
fn decides(record: &RunRecord, workload: &str, metric: Metric) -> bool {
    let is_of_highest_rate = |one: &Workload| one.name == workload && one.load.highest_rate.is_some();
    let waits = metric.direction.is_waiting() && !record.spec.workloads.iter().any(is_of_highest_rate);
    metric.is_headline && (metric.direction == Direction::Speed || waits)
}

/// The arm that did not change between two runs, to which others may be held: the baseline of both. Of a store that was there already nobody
/// knows whether it changed.
fn control<'a>(before: &'a RunRecord, after: &RunRecord) -> Option<&'a ArmRecord> {
    let baseline = |record: &'a RunRecord| record.arms.iter().find(|arm| arm.baseline && arm.is_available());
    let (arm, other) = (baseline(before)?, after.arms.iter().find(|arm| arm.baseline && arm.is_available())?);
    let is_same = arm.name == other.name
        && !arm.is_external()
        && conditions::of_arms(arm, other).is_empty()
        && conditions::executables(before, arm) == conditions::executables(after, other);
    is_same.then_some(arm)
}

/// Three of them, and how many more there are.
fn few(all: &[String]) -> String {
    let shown = &all[..all.len().min(3)];
    let more = all.len() - shown.len();
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    shown.join(", ") + &more
}
