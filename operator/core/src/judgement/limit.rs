//! Whether the loader was the limit, so that what was measured is the loader. Two stores that one busy loader thread holds back look
//! equal, and the interval is narrow: nothing can be decided from it.

use storebench_crds::job::{LoadStep, LoaderAudit};

use super::summary::measurements;
use super::{Valid, available};

/// What the names of threads begin with that make load, of which `load.threads` is the number. Others relay, for a fault of the network.
const LOAD_THREAD: &str = "load-";

/// Why a workload decides nothing about an arm: in half of its counted trials or more, a thread of the loader had no time left. The reason
/// says which, where its time went, and what to change. `None`: the loader had time to spare.
pub(super) fn of_arm(valid: &Valid, arm: &str, workload: &str) -> Option<String> {
    let all = measurements(valid, arm, workload);
    let is_half = |count: usize| count > 0 && count * 2 >= all.len();
    let limited: Vec<&LoadStep> = all.iter().filter_map(|one| one.limited_by_loader()).collect();
    if is_half(limited.len())
        && let Some(step) = limited.first()
    {
        let (rate, why) = (step.rate_per_second, step.missed.as_deref().unwrap_or_default());
        return Some(format!("the loader is the limit in {workload} on {arm}: at {rate}/s {why}"));
    }
    let saturated: Vec<&LoaderAudit> =
        all.iter().filter_map(|one| one.audit.as_ref()).filter(|audit| audit.is_saturated()).collect();
    if !is_half(saturated.len()) {
        return None;
    }
    let worst = saturated.into_iter().max_by_key(|audit| audit.saturation_basis_points)?;
    let ran = worst.busiest_thread_basis_points.min(worst.saturation_basis_points);
    let waited = worst.saturation_basis_points - ran;
    let load = &valid.record.spec.workloads.iter().find(|one| one.name == workload)?.load;
    let remedy = if !worst.saturated_thread.starts_with(LOAD_THREAD) {
        "load.threads adds none of these: ask for less (load.rate, or fewer load.connections)".to_owned()
    } else if waited > ran {
        "give it more processors, or fewer clients in load".to_owned()
    } else if load.threads < load.connections {
        format!("raise load.threads above {}", load.threads)
    } else {
        "raise load.connections and load.threads".to_owned()
    };
    Some(format!(
        "the loader is the limit in {workload} on {arm}: its thread {} ran for {} % and waited for a processor for {} % of the time; {remedy}",
        worst.saturated_thread,
        ran / 100,
        waited / 100,
    ))
}

/// That nobody can tell whether the loader was the limit, since the kernel does not count for how long its threads run. `None`: it does.
pub(super) fn not_known(valid: &Valid) -> Option<String> {
    let record = valid.record;
    let arms = available(record).into_iter();
    let mut all = arms.flat_map(|arm| record.spec.workloads.iter().map(move |one| measurements(valid, arm, &one.name)));
    let is_blind = all.any(|of_arm| of_arm.iter().filter_map(|one| one.audit.as_ref()).any(LoaderAudit::is_blind));
    is_blind.then(|| {
        "whether the loader was the limit is not known: the kernel does not count for how long its threads run (no schedstat), and arms that a \
         busy loader holds back look equal; measure on a kernel with CONFIG_SCHED_INFO, and not in gVisor"
            .to_owned()
    })
}

/// [`of_arm`] of two arms that are compared.
pub(super) fn of_pair(valid: &Valid, arm: &str, baseline: &str, workload: &str) -> Option<String> {
    of_arm(valid, arm, workload).or_else(|| of_arm(valid, baseline, workload))
}
