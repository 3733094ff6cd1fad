//! Gates that a run may well leave undecided, or decide of these very processes alone: told before it runs, and refused nowhere.

use storebench_crds::benchmark_run::{BenchmarkRunSpec, Bound, Gate, Isolation};
use storebench_crds::ratio::percent;

use crate::judgement::PARITY;
use crate::validated::{Target, ValidatedRun};

/// No run tells two equal stores to be as near as that, basis points.
const NEAR_PARITY: u64 = 10;

/// What makes it doubtful that gates on ratios tell what is asked of them: the field, why, and the remedy, in a line each.
pub fn doubtful_gates(run: &ValidatedRun) -> Vec<String> {
    let spec = &run.spec;
    let mut told: Vec<String> = shared_processes(run).into_iter().collect();
    for (index, gate) in spec.gates.iter().enumerate() {
        let found = near_parity(gate, index).or_else(|| wide_target(spec, gate, index));
        told.extend(found);
    }
    told
}

/// That the processes of a run are those of all its trials, so that how two processes of one program differ is in the ratio and in no interval.
fn shared_processes(run: &ValidatedRun) -> Option<String> {
    let has_ratio = run.spec.gates.iter().any(|gate| gate.bound().is_some_and(Bound::is_ratio));
    if run.spec.isolation != Isolation::Shared || !has_ratio {
        return None;
    }
    let is = |kind: fn(&Target) -> bool| run.arms.iter().any(|arm| kind(&arm.target));
    let again = "make several runs and restart the stores between them";
    let remedy = if is(|target| matches!(target, Target::Cluster(_))) {
        again.to_owned()
    } else if is(|target| matches!(target, Target::External(_))) {
        format!("{again}; or, where storebench can start the engine, leave out external and set Fresh")
    } else {
        format!("set Fresh, or {again}")
    };
    Some(format!(
        "spec.isolation: is Shared, so that a difference may be one of these very processes, which intervals over their trials do not \
         contain: {remedy}"
    ))
}

/// A bound so near to parity that equal stores could hardly be told to meet it. One far above asks for a faster store, and may be meant.
fn near_parity(gate: &Gate, index: usize) -> Option<String> {
    let (field, bound, example) = match gate.bound()? {
        Bound::RatioAtLeast(bound) => ("ratioAtLeast", bound, "95%"),
        Bound::RatioAtMost(bound) => ("ratioAtMost", bound, "105%"),
        Bound::AtLeast(_) | Bound::AtMost(_) => return None,
    };
    let is_near = u64::from(bound).abs_diff(PARITY) <= NEAR_PARITY;
    is_near.then(|| {
        let bound = percent(bound.into());
        format!("spec.gates[{index}].{field}: is {bound}, which equal stores could hardly be told to meet: write it like {example}")
    })
}

/// A run may stop as soon as its intervals are as narrow as that, and one around parity that is wider still contains the bound.
fn wide_target(spec: &BenchmarkRunSpec, gate: &Gate, index: usize) -> Option<String> {
    let (Bound::RatioAtLeast(bound) | Bound::RatioAtMost(bound)) = gate.bound()? else { return None };
    let trials = &spec.trials;
    let (target, distance) = (trials.target_interval_basis_points, u64::from(bound).abs_diff(PARITY));
    let may_stop_early = trials.min < trials.max;
    (may_stop_early && u64::from(target) > distance).then(|| {
        let bound = percent(bound.into());
        format!(
            "spec.trials.targetIntervalBasisPoints: is {target}, and from equal stores to the {bound} of spec.gates[{index}] it is \
             {distance}, so that the run may stop while that gate is undecided: set it to {distance} or less"
        )
    })
}
