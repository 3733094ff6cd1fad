//! Whether somebody else was busy on the machine while a workload was measured: then the trial does not count, and who it was is told. Pure.

use bench_jobs::measure::foreign::Used;
use storebench_core::record::{FailureCause, TrialFailure, WorkloadMeasurement};

/// What others used during the measured phase of each workload, by its name.
pub(super) type Others = Vec<(String, Used)>;

/// A measurement during which processes that are neither store nor loader took a large part of the machine: they take it
/// from the arms in unequal parts. What the store makes others do for it is not theirs; see [`Used`].
pub(super) fn disturbance(workloads: &[WorkloadMeasurement], others: &Others) -> Option<TrialFailure> {
    let (name, used) = others
        .iter()
        .find(|(name, used)| workloads.iter().any(|one| one.summary.name == *name) && used.is_disturbing())?;
    let detail = format!("{name}: other processes used {used} during the measurement: stop them");
    Some(TrialFailure { cause: FailureCause::Disturbed, detail })
}

/// A loader that was hindered says how, but not by whom.
pub(super) fn with_who_was_busy(failure: TrialFailure, others: &Others) -> TrialFailure {
    match others.iter().rev().find(|(_, used)| used.is_disturbing()) {
        Some((_, used)) => {
            let detail = format!("{}; meanwhile other processes used {used}: stop them", failure.detail);
            TrialFailure { detail, ..failure }
        }
        None => failure,
    }
}
