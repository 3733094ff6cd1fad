//! What a gate may ask of a run: a metric that its workloads measure, and a ratio of arms that may be ranked. What it asks in vain is told,
//! and refuses nothing.

use storebench_crds::benchmark_run::{BenchmarkRunSpec, Bound, Gate};
use storebench_crds::gate_value;
use storebench_crds::measure::{FSYNCS, Total};
use storebench_crds::metric::{Direction, Source};
use storebench_crds::workload::FaultKind;
use storebench_crds::{Metric, Workload};

use crate::equality::{Terms, differences, permission};
use crate::validated::{ValidatedArm, ValidatedRun};

/// The workloads that a gate is on.
fn judged<'a>(spec: &'a BenchmarkRunSpec, gate: &'a Gate) -> impl Iterator<Item = &'a Workload> {
    let is_judged = |workload: &&Workload| gate.workload.as_ref().is_none_or(|wanted| *wanted == workload.name);
    spec.workloads.iter().filter(is_judged)
}

/// What only one family measures cannot be asked of another.
pub(super) fn check_metric(spec: &BenchmarkRunSpec, gate: &Gate) -> Result<(), String> {
    let lacks_search = |workload: &&Workload| workload.load.highest_rate.is_none();
    if gate.metric == Metric::HIGHEST_RATE
        && let Some(workload) = judged(spec, gate).find(lacks_search)
    {
        return Err(format!(
            "{:?} is measured where load.highestRate says what to look for, which {} does not: add it, or name another workload",
            gate.metric, workload.name
        ));
    }
    let lacks_fault = |workload: &&Workload| workload.fault().is_none();
    if gate.metric.is_of_faults()
        && let Some(workload) = judged(spec, gate).find(lacks_fault)
    {
        return Err(format!(
            "{:?} is measured where load.fault says what is done to the store, which {} does not: add it, or name another workload",
            gate.metric, workload.name
        ));
    }
    let Some(family) = gate.metric.family() else { return Ok(()) };
    match judged(spec, gate).find(|workload| workload.family() != family) {
        Some(workload) => Err(format!(
            "{:?} is measured by {} workloads only, which {} is not: name another workload or another metric",
            gate.metric,
            family.field(),
            workload.name
        )),
        None => Ok(()),
    }
}

/// Of each gate of which it is known before the run that nothing could miss it, or that nothing could meet it: its field, and why. Whoever asks for
/// this may still run it: what an earlier storebench took has begun, or is kept in a run.yaml, and is to end or to run again as it stands.
pub fn foregone_gates(run: &ValidatedRun) -> Vec<String> {
    let mut told = Vec::new();
    for (index, gate) in run.spec.gates.iter().enumerate() {
        let spec = &run.spec;
        let found = [
            foregone_bound(spec, gate),
            given_rate(spec, gate),
            too_few_requests(spec, gate),
            never_measured(run, gate),
        ];
        told.extend(found.into_iter().flatten().map(|(field, text)| format!("spec.gates[{index}].{field}: {text}")));
    }
    told
}

/// A bound of a value that no run could miss, of which a trial may take so long at most, or that none could meet.
fn foregone_bound(spec: &BenchmarkRunSpec, gate: &Gate) -> Option<(&'static str, String)> {
    let metric = gate.metric;
    let most = match gate.bound()? {
        Bound::AtLeast(0) => {
            let text = format!("is 0, so that no run could miss it: write what {metric:?} must come to at least");
            return Some(("atLeast", text));
        }
        Bound::AtMost(most) => most,
        Bound::AtLeast(_) | Bound::RatioAtLeast(_) | Bound::RatioAtMost(_) => return None,
    };
    // Of other times, such as how stale a read was, there may be none.
    if most == 0 && matches!(metric.source, Source::Latency(_)) {
        let text = format!("is 0, so that no run could meet it: write what {metric:?} may come to at most");
        return Some(("atMost", text));
    }
    // What is a time and none of these adds up over processors.
    let is_within_a_trial = matches!(metric.source, Source::Latency(_) | Source::Durations(..));
    let (nanos_of_one, unit) = metric.unit.of_time().filter(|_| is_within_a_trial)?;
    let timeout = &spec.trials.timeout;
    let is_longer = u128::from(most) * u128::from(nanos_of_one) >= timeout.duration().as_nanos();
    let (timeout, example) = (timeout.as_str(), gate_value::EXAMPLE_OF_TIME);
    let text = format!(
        "is no less than trials.timeout, {timeout}, so that no run could miss it: {metric:?} is in {unit}; write it like {example}"
    );
    is_longer.then_some(("atMost", text))
}

/// How two arms compare in requests a second where a timetable says how many there are: equal, or the trials do not count.
fn given_rate(spec: &BenchmarkRunSpec, gate: &Gate) -> Option<(&'static str, String)> {
    let is_ratio = gate.bound().is_some_and(Bound::is_ratio);
    let is_given = |workload: &&Workload| workload.load.given_rate().is_some();
    let workload = judged(spec, gate).find(is_given).filter(|_| is_ratio && gate.metric == Metric::THROUGHPUT)?;
    let text = format!(
        "{} sends its requests at load.rate to every arm, so that no run could miss it: name a latency, such as LatencyP99Micros",
        workload.name
    );
    Some(("metric", text))
}

/// A percentile of fewer requests than it takes: a gate on it is missed or undecided, and never met.
fn too_few_requests(spec: &BenchmarkRunSpec, gate: &Gate) -> Option<(&'static str, String)> {
    let needed = gate.metric.requests_min();
    let mut known = judged(spec, gate).filter_map(|one| Some((one, requests_at_most(one)?)));
    let (workload, (requests, said_by)) = known.find(|(_, (requests, _))| *requests < needed)?;
    let text = format!(
        "{:?} takes {needed} requests in a trial, and {} has {requests} by {said_by}: let it have {needed} or more, or name \
         another metric",
        gate.metric, workload.name
    );
    Some(("metric", text))
}

/// What a store uses, where no trial measures it: a gate on it is never met and never missed.
fn never_measured(run: &ValidatedRun, gate: &Gate) -> Option<(&'static str, String)> {
    let metric = gate.metric;
    if metric.direction != Direction::Cost || metric.family().is_some() {
        return None;
    }
    let counts_syncs = matches!(metric.source, Source::Total(Total(name), _) if name == FSYNCS.0);
    // A member that is killed is another process when it is back, and one whose syncs are delayed is traced.
    let is_lost = |workload: &&Workload| {
        workload.fault().is_some_and(|fault| matches!(fault.kind, FaultKind::Kill | FaultKind::SlowDisk))
    };
    let lost = judged(&run.spec, gate).find(is_lost).filter(|_| !counts_syncs);
    let is_ratio = gate.bound().is_some_and(Bound::is_ratio);
    let mut looked_at = run.arms.iter().filter(|arm| arm.name == gate.arm || is_ratio && arm.baseline);
    let why = looked_at.find_map(|arm| match (arm.service(), lost) {
        (None, _) => Some(format!("of {}, which was there already", arm.name)),
        (Some(service), _) if counts_syncs && !service.engine.counts_syncs() => {
            Some(format!("of {}, whose engine does not count its syncs", arm.name))
        }
        (Some(_), Some(workload)) => Some(format!("of {} in {}, for its fault", arm.name, workload.name)),
        (Some(_), None) => None,
    })?;
    Some(("metric", format!("{metric:?} is not measured {why}: name another metric, or leave the gate out")))
}

/// How many requests a trial measures at most, and which fields say so, where they do.
fn requests_at_most(workload: &Workload) -> Option<(u64, &'static str)> {
    let is_answered = (workload.family().facts().answers_one_by_one)(&workload.parameters);
    let load = &workload.load;
    let due = || {
        let rate = load.given_rate()?;
        let seconds = load.duration.as_ref()?.duration().as_secs_f64();
        Some(((rate as f64 * seconds).ceil() as u64, "load.rate and load.duration"))
    };
    let total = load.total.map(|total| (total, "load.total"));
    // Whichever ends a trial first.
    total.into_iter().chain(due()).min().filter(|_| is_answered)
}

/// A ratio of what may not be ranked decides nothing.
pub(super) fn check(arms: &[ValidatedArm], spec: &BenchmarkRunSpec, gate: &Gate) -> Result<(), String> {
    let is_ratio = gate.bound().is_some_and(Bound::is_ratio);
    let (Some(arm), Some(baseline)) =
        (arms.iter().find(|arm| arm.name == gate.arm), arms.iter().find(|arm| arm.baseline))
    else {
        return Ok(());
    };
    let (Some(arm), Some(baseline)) = (Terms::of_arm(arm), Terms::of_arm(baseline)) else { return Ok(()) };
    let forbidden = |workload| differences(&arm, &baseline, workload, &spec.allow_unequal).forbidden;
    match judged(spec, gate).filter(|_| is_ratio).find_map(forbidden) {
        Some(reason) => Err(format!(
            "compares unlike with unlike ({reason}): make the two services alike, or gate on atLeast or atMost{}",
            permission(&arm, &baseline)
        )),
        None => Ok(()),
    }
}
