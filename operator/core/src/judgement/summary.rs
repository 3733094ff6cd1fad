//! What all counted trials measured: each counts alike, however many requests it had, so that what is shown is what is judged.

use storebench_crds::benchmark_run::Isolation;
use storebench_crds::job::{MachineUse, WorkloadSummary};
use storebench_crds::status::{
    ApiServerResources, ArmResources, Comparison, LatencySummary, TrialState, WorkloadResult,
};
use storebench_crds::workload::FaultKind;
use storebench_crds::{LoadMode, Metric, Workload};

use super::compare::{baseline, candidates, serial_correlation_of, unequal};
use super::metric::{latency_over_trials, over_trials, too_few};
use super::{TrialPoint, Valid, available, limit, requests};
use crate::durability::{Basis, is_unweighed};
use crate::placement;
use crate::record::{
    ArmRecord, ControlPlaneUsage, FailureCause, RunRecord, TrialFailure, TrialRecord, Usage, WorkloadMeasurement,
};
use crate::statistics::median_of_whole as median;
use crate::units;

/// Processes that are neither store nor loader and used more of the machine than this, thousandths of a core, deserve a
/// word: they took it from both arms, but not in equal parts.
const FOREIGN_MILLICORES: u64 = 200;
/// The same for what the hypervisor gave to other machines.
const STOLEN_MILLICORES: u64 = 50;
/// Arms that answered so many times each other's requests have histories that memory and disk show.
const UNEQUAL_HISTORY: f64 = 1.1;
/// A quota that stops the loader for so much of the time deserves a word.
const THROTTLED_PERCENT: u64 = 1;

/// Two etcds that lived as long as a run differed by 0.56 (0.46 to 0.69) in one of docs/accuracy.md, though they were equal.
const SHARED: &str = "isolation is Shared: every trial inherits what earlier ones left in the store, and a difference may be one of \
                      these processes, which intervals do not contain; Fresh has a new store for every trial";

pub(super) fn results(valid: &Valid) -> Vec<WorkloadResult> {
    let mut results = Vec::new();
    for workload in &valid.record.spec.workloads {
        for arm in available(valid.record) {
            let measurements = measurements(valid, arm, &workload.name);
            if measurements.is_empty() {
                continue;
            }
            let sum = |field: fn(&WorkloadSummary) -> u64| measurements.iter().map(|one| field(&one.summary)).sum();
            let service: Vec<LatencySummary> = measurements.iter().map(|one| one.summary.service).collect();
            let intended: Option<Vec<LatencySummary>> = measurements.iter().map(|one| one.summary.intended).collect();
            let throughput_per_second = over_trials(Metric::THROUGHPUT, &measurements).unwrap_or_default();
            let mut result = WorkloadResult {
                workload: workload.name.clone(),
                arm: arm.into(),
                trials: measurements.len() as u32,
                operations: sum(|summary| summary.operations),
                errors: sum(|summary| summary.errors),
                throughput_milli: milli(throughput_per_second),
                // The judgement has them beside the results; a status has them here.
                throughput_low_milli: None,
                throughput_high_milli: None,
                service_latency: latency_over_trials(&service).unwrap_or_default(),
                intended_latency: intended.and_then(|intended| latency_over_trials(&intended)),
                cpu_nanos_per_operation: None,
                write_bytes_per_operation: None,
                fsyncs_per_thousand_operations: None,
                api_server: requests::summary(&measurements),
                measures: Vec::new(),
            };
            for metric in Metric::all() {
                let value = over_trials(metric, &measurements);
                if let Some(value) = value.filter(|_| withheld(valid, arm, &workload.name, metric).is_none()) {
                    result.put(metric, value);
                }
            }
            results.push(result);
        }
    }
    results
}

pub(super) fn measurements<'a>(valid: &Valid<'a>, arm: &str, workload: &str) -> Vec<&'a WorkloadMeasurement> {
    let of_trial = |trial: &'a TrialRecord| trial.workloads.iter().find(|one| one.summary.name == workload);
    valid.trials(arm).into_iter().filter_map(of_trial).collect()
}

/// Why a percentile of an arm is not told: it is of so few requests, or lags, that it is the largest of them under another name. `None`: it is
/// told, or no percentile, or was not measured.
pub(super) fn withheld(valid: &Valid, arm: &str, workload: &str, metric: Metric) -> Option<String> {
    let needed = metric.durations_min();
    if needed <= 1 {
        return None;
    }
    let trials = measurements(valid, arm, workload);
    if trials.is_empty() {
        return None;
    }
    let durations: Vec<u64> = trials.iter().map(|trial| metric.durations(trial)).collect::<Option<_>>()?;
    let found = too_few(&durations, needed)?;
    let what = if metric.requests_min() > 0 { "requests" } else { "durations" };
    let (found, needed) = (units::count(found), units::count(needed));
    Some(format!("{found} {what} of {arm} in a trial, and {} takes {needed}", metric.words))
}

pub(super) fn points(valid: &Valid) -> Vec<TrialPoint> {
    let mut points = Vec::new();
    for trial in &valid.record.trials {
        if trial.state != TrialState::Valid || !valid.indexes.contains(&trial.index) {
            continue;
        }
        points.extend(trial.workloads.iter().map(|measurement| TrialPoint {
            workload: measurement.summary.name.clone(),
            arm: trial.arm.clone(),
            index: trial.index,
            started_millis: trial.started_millis,
            throughput_milli: milli(measurement.per_second(measurement.summary.operations)),
            p99_nanos: measurement.latency().p99_nanos,
        }));
    }
    points
}

pub(super) fn resources(valid: &Valid) -> Vec<ArmResources> {
    available(valid.record)
        .into_iter()
        .filter_map(|arm| {
            let trials = valid.trials(arm);
            trials.iter().any(|trial| has_cost(trial)).then(|| of_arm(arm, &trials))
        })
        .collect()
}

/// Whether anything is known of what it cost. A cluster that was there already says nothing of its store.
fn has_cost(trial: &TrialRecord) -> bool {
    let measured = |one: &WorkloadMeasurement| one.usage.is_some() || one.control_plane.is_some();
    trial.footprint.is_some()
        || trial.idle.is_some()
        || trial.disk_bytes.is_some()
        || trial.workloads.iter().any(measured)
}

fn of_arm(arm: &str, trials: &[&TrialRecord]) -> ArmResources {
    let usages: Vec<Usage> =
        trials.iter().flat_map(|trial| &trial.workloads).filter_map(|measurement| measurement.usage).collect();
    let idle: Vec<Usage> = trials.iter().filter_map(|trial| trial.idle).collect();
    let of = |usages: &[Usage], field: fn(&Usage) -> u64| median(usages.iter().map(field).collect());
    let peak = |field: fn(&Usage) -> u64| usages.iter().map(field).max().unwrap_or_default();
    let footprint = |field: fn(&storebench_crds::storage_service::Footprint) -> u64| {
        median(trials.iter().filter_map(|trial| trial.footprint.as_ref()).map(field).collect())
    };
    let operations_per_cpu_second = |trial: &&TrialRecord| {
        let operations: u64 = trial.workloads.iter().map(|one| one.summary.operations).sum();
        let cpu_nanos: u64 = trial.workloads.iter().filter_map(WorkloadMeasurement::store_cpu_nanos).sum();
        (u128::from(operations) * 1_000_000_000).checked_div(u128::from(cpu_nanos)).map(|value| value as u64)
    };
    ArmResources {
        arm: arm.into(),
        cpu_idle_millicores: of(&idle, millicores),
        cpu_average_millicores: of(&usages, millicores),
        cpu_peak_millicores: peak(|usage| usage.cpu_peak_millicores),
        rss_idle_bytes: of(&idle, |usage| usage.rss_average_bytes),
        rss_average_bytes: of(&usages, |usage| usage.rss_average_bytes),
        rss_peak_bytes: peak(|usage| usage.rss_peak_bytes),
        pss_peak_bytes: peak(|usage| usage.pss_peak_bytes),
        disk_bytes: median(trials.iter().filter_map(|trial| trial.disk_bytes).collect()),
        binary_bytes: footprint(|footprint| footprint.binary_bytes),
        startup_micros: footprint(|footprint| footprint.startup_micros),
        context_switches: of(&usages, |usage| usage.voluntary_switches + usage.involuntary_switches),
        operations_per_cpu_second: median(trials.iter().filter_map(operations_per_cpu_second).collect()),
        api_server: api_server(trials),
    }
}

/// What the API servers used, where the arm has them.
fn api_server(trials: &[&TrialRecord]) -> Option<ApiServerResources> {
    let used: Vec<ControlPlaneUsage> =
        trials.iter().flat_map(|trial| &trial.workloads).filter_map(|measurement| measurement.control_plane).collect();
    let of = |field: fn(&ControlPlaneUsage) -> u64| median(used.iter().map(field).collect());
    (!used.is_empty()).then(|| ApiServerResources {
        cpu_average_millicores: of(|used| millicores(&used.api_server)),
        cpu_peak_millicores: used.iter().map(|used| used.api_server.cpu_peak_millicores).max().unwrap_or_default(),
        others_cpu_average_millicores: of(|used| millicores(&used.others)),
        rss_average_bytes: of(|used| used.api_server.rss_average_bytes),
        rss_peak_bytes: used.iter().map(|used| used.api_server.rss_peak_bytes).max().unwrap_or_default(),
    })
}

fn millicores(usage: &Usage) -> u64 {
    (u128::from(usage.cpu_nanos) * 1_000 / u128::from(usage.elapsed_nanos.max(1))) as u64
}

/// What a reader must know before believing a number.
pub(super) fn caveats(valid: &Valid, comparisons: &[Comparison]) -> Vec<String> {
    let record = valid.record;
    let mut caveats: Vec<String> = record.arms.iter().filter_map(other_version).collect();
    caveats.extend(record.caveats.iter().cloned());
    if record.spec.isolation == Isolation::Shared {
        caveats.push(SHARED.to_owned());
    }
    for arm in record.arms.iter().filter(|arm| arm.unavailable.is_some()) {
        caveats.push(format!("{} was not measured: it is not installed here", arm.name));
    }
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for comparison in comparisons {
        if let Some(reason) = &comparison.not_ranked
            && !seen.contains(&(&comparison.arm, reason))
        {
            seen.push((&comparison.arm, reason));
            caveats.push(format!("{} and {} are not ranked: {reason}", comparison.arm, comparison.baseline));
        }
    }
    if let Some(baseline) = baseline(record) {
        for arm in candidates(record, baseline) {
            let differences = record.spec.workloads.iter().map(|workload| unequal(record, arm, baseline, workload));
            let mut allowed: Vec<String> = differences.filter_map(|found| found.allowed).collect();
            allowed.dedup();
            caveats.extend(allowed.into_iter().map(|what| {
                format!(
                    "{} and {} differ in more than the store, which allowUnequal permits: {what}",
                    arm.name, baseline.name
                )
            }));
        }
    }
    caveats.extend(allocators(record));
    caveats.extend(unequal_histories(valid));
    caveats.extend(resemblances(valid));
    caveats.extend(limit::not_known(valid));
    for workload in &record.spec.workloads {
        for arm in available(record) {
            if let Some(why) = limit::of_arm(valid, arm, &workload.name) {
                caveats.push(format!("{why}: the store may be faster than shown"));
            }
            let throttled = |one: &WorkloadMeasurement| {
                let audit = one.audit.as_ref()?;
                Some(audit.throttled_nanos * 100 / one.summary.elapsed_nanos.max(1))
            };
            let most = measurements(valid, arm, &workload.name).into_iter().filter_map(throttled).max();
            if let Some(percent) = most.filter(|percent| *percent >= THROTTLED_PERCENT) {
                caveats.push(format!(
                    "a CPU quota stopped the loader for up to {percent} % of the time in {} on {arm}: what is compared is what the arms make \
                     of that quota",
                    workload.name
                ));
            }
        }
    }
    // Of the trials that count: what disturbed one that does not is in no number.
    let counted = || available(record).into_iter().flat_map(|arm| valid.trials(arm)).flat_map(|trial| &trial.workloads);
    let foreign = counted().filter_map(WorkloadMeasurement::foreign).max();
    if let Some(millicores) = foreign.filter(|millicores| *millicores > FOREIGN_MILLICORES) {
        let cores = millicores as f64 / 1_000.0;
        caveats
            .push(format!("other processes used up to {cores:.1} cores during a measurement: stop them and run again"));
    }
    if let Some(stolen) = counted()
        .flat_map(|one| &one.machines)
        .map(MachineUse::stolen_millicores)
        .max()
        .filter(|most| *most > STOLEN_MILLICORES)
    {
        let cores = stolen as f64 / 1_000.0;
        caveats.push(format!(
            "the hypervisor gave up to {cores:.2} cores to others during a measurement: measure on a machine that is not shared"
        ));
    }
    caveats.extend(available(record).into_iter().filter_map(|arm| placement::moved(record, arm)));
    let is_disturbed = |failure: &TrialFailure| failure.cause == FailureCause::Disturbed;
    let disturbed = record.trials.iter().filter(|trial| trial.failure.as_ref().is_some_and(is_disturbed)).count();
    if disturbed > 0 {
        let of = |arm: &str| {
            let trials = record.trials.iter().filter(|trial| trial.arm == arm);
            trials.filter(|trial| trial.failure.as_ref().is_some_and(is_disturbed)).count()
        };
        let per_arm: Vec<String> = available(record).into_iter().map(|arm| format!("{arm} {}", of(arm))).collect();
        caveats.push(format!(
            "disturbed and not counted: {disturbed} ({}), with their pairs; see trials",
            per_arm.join(", ")
        ));
    }
    caveats.extend(costs_not_measured(valid));
    caveats.extend(durability_not_known(record));
    caveats.extend(durability_not_counted(valid));
    caveats.extend(durability_not_weighed(valid));
    if valid.indexes.len() < crate::statistics::TRIALS_MIN {
        caveats.push(format!("{} complete trials: too few for intervals, which take 3", valid.indexes.len()));
    }
    caveats
}

/// Why nothing is said of what stores used in a workload: what a process used goes with it, and who traces one makes it use more.
fn costs_not_measured(valid: &Valid) -> Vec<String> {
    let record = valid.record;
    let mut caveats = Vec::new();
    for workload in &record.spec.workloads {
        let why = match workload.strike() {
            Some(FaultKind::Kill) => "kills a process of it, with which goes what that used",
            Some(FaultKind::SlowDisk) => "traces a process of it, which costs that more than what it does",
            Some(FaultKind::Stop | FaultKind::Partition) | None => continue,
        };
        let mut measured =
            available(record).into_iter().flat_map(|arm| measurements(valid, arm, &workload.name)).peekable();
        if measured.peek().is_some() && measured.all(|one| one.usage.is_none()) {
            let name = &workload.name;
            caveats.push(format!("what the store uses in {name} is not known, for {name} {why}"));
        }
    }
    caveats
}

/// What a reader must know of stores of which nobody has said what an acknowledged write survives: they are compared all the same.
fn durability_not_known(record: &RunRecord) -> Option<String> {
    let is_unknown = |arm: &&ArmRecord| arm.is_available() && arm.durability.is_none();
    let arms: Vec<&str> = record.arms.iter().filter(is_unknown).map(|arm| arm.name.as_str()).collect();
    (!arms.is_empty()).then(|| {
        format!(
            "durability of {} is not known: what is faster may only sync less; state it in arms[].durability, and arms that differ in it are \
             not ranked",
            arms.join(", ")
        )
    })
}

/// What a reader must know of durability that nobody has seen kept: for each way in which it was established, the arms of which that is so.
fn durability_not_counted(valid: &Valid) -> Vec<String> {
    let record = valid.record;
    let mut found: Vec<(String, Vec<&str>)> = Vec::new();
    for arm in record.arms.iter().filter(|arm| arm.is_available()) {
        let trials = valid.trials(&arm.name);
        let basis = Basis::of(arm, &record.spec.workloads, trials.iter().copied());
        let Some(basis) = basis.filter(|basis| !trials.is_empty() && !basis.is_counted()) else { continue };
        let words = basis.words();
        match found.iter_mut().find(|(known, _)| *known == words) {
            Some((_, arms)) => arms.push(&arm.name),
            None => found.push((words, vec![&arm.name])),
        }
    }
    found.into_iter().map(|(words, arms)| format!("durability of {}: {words}", arms.join(", "))).collect()
}

/// What a reader must know of stores of which nobody has seen what they wrote: a sync of nothing counts, too.
fn durability_not_weighed(valid: &Valid) -> Option<String> {
    let record = valid.record;
    let is = |arm: &&ArmRecord| is_unweighed(arm, &record.spec.workloads, valid.trials(&arm.name).into_iter());
    let arms: Vec<&str> = record.arms.iter().filter(is).map(|arm| arm.name.as_str()).collect();
    (!arms.is_empty()).then(|| {
        format!(
            "durability of {}: what reached the disk is not known, and was not held against what was acknowledged: nothing measured it, or data lie \
             in memory or on an overlay, which count nothing",
            arms.join(", ")
        )
    })
}

/// Ratios that resemble those of the trial before are fewer than they look, and their intervals too narrow.
fn resemblances(valid: &Valid) -> Vec<String> {
    let record = valid.record;
    let Some(baseline) = baseline(record) else { return Vec::new() };
    let mut caveats = Vec::new();
    for workload in &record.spec.workloads {
        for arm in candidates(record, baseline) {
            if let Some(correlation) = serial_correlation_of(valid, &arm.name, &workload.name) {
                caveats.push(format!(
                    "{}: the ratios of {} to {} resemble those of the trial before (correlation {correlation:.1}): intervals may be too \
                     narrow; take more and longer trials, on a machine that nothing else uses",
                    workload.name, arm.name, baseline.name
                ));
            }
        }
    }
    caveats
}

/// What a reader must know of an executable that is not what its folder says.
pub(crate) fn other_version(arm: &ArmRecord) -> Option<String> {
    let (folder, version) = (arm.folder_version.as_ref()?, arm.version.as_ref()?);
    Some(format!(
        "{} ran {version}, as its executable says, not {folder}, as the folder of the executable does: numbers are of {version}",
        arm.name
    ))
}

/// What of a difference in memory, and some of one in throughput, may be due to who built the executables.
fn allocators(record: &RunRecord) -> Vec<String> {
    let allocator = |arm: &ArmRecord| arm.engine.map(|engine| engine.engine().allocator).filter(|one| one.is_choice());
    let Some(baseline) = baseline(record) else { return Vec::new() };
    let Some(other) = allocator(baseline) else { return Vec::new() };
    let unlike =
        candidates(record, baseline).filter_map(|arm| Some((arm, allocator(arm).filter(|own| *own != other)?)));
    unlike
        .map(|(arm, own)| {
            format!(
                "{} allocates memory with {}, {} with {}, as they are built or fetched here: a part of what they differ by in memory and \
                 throughput is the allocators'",
                arm.name,
                own.words(),
                baseline.name,
                other.words()
            )
        })
        .collect()
}

/// In a closed loop by time the faster arm answers more requests, and then has a longer history to keep in memory and on disk.
fn unequal_histories(valid: &Valid) -> Vec<String> {
    let record = valid.record;
    let Some(baseline) = baseline(record) else { return Vec::new() };
    let is_by_time = |workload: &&Workload| workload.load.total.is_none() && workload.load.mode == LoadMode::ClosedLoop;
    let writes = |workload: &&Workload| workload.parameters.writes_percent() > 0;
    let mut caveats = Vec::new();
    for workload in record.spec.workloads.iter().filter(is_by_time).filter(writes) {
        let operations = |arm: &str| -> u64 {
            measurements(valid, arm, &workload.name).iter().map(|one| one.summary.operations).sum()
        };
        let of_baseline = operations(&baseline.name).max(1);
        for arm in candidates(record, baseline) {
            let ratio = operations(&arm.name) as f64 / of_baseline as f64;
            if ratio > 0.0 && !(1.0 / UNEQUAL_HISTORY..=UNEQUAL_HISTORY).contains(&ratio) {
                caveats.push(format!(
                    "memory and disk are of unequal histories: {} answered {ratio:.2} times the requests of {} in {}; load.total instead of \
                     load.duration makes them equal",
                    arm.name, baseline.name, workload.name
                ));
            }
        }
    }
    caveats
}

fn milli(per_second: f64) -> u64 {
    (per_second * 1_000.0).round() as u64
}
