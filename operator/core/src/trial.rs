//! From what the load processes of a trial said to what the trial measured: the same for both drivers.
//!
//! A driver feeds every line of a process's standard output to a [`Gathering`] and finishes it with the process's summary.
//! What several processes measured is merged by [`merge`]: histograms are added, percentiles never averaged.

use std::collections::BTreeMap;
use storebench_crds::{Metric, Workload};

use storebench_crds::api_requests::ApiRequests;
use storebench_crds::job::{
    ContractError, Hindrance, JobLine, JobOutcome, JobSpec, JobSummary, LatencyKind, LoadStep, LoaderAudit, MachineUse,
    RestoreTool, StoreReading, WorkloadSummary, decode_histogram, encode_histogram, latency_histogram,
};
use storebench_crds::measure::{Reading, Readings};
use storebench_crds::status::LatencySummary;
use storebench_crds::workload::FaultKind;
use storebench_crds::workload::sqlite_replication::{Outage, OutageKind};

use crate::engine;
use crate::record::{
    ControlPlaneUsage, EncodedHistogram, FailureCause, LeftBehind, TrialFailure, Usage, WorkloadMeasurement,
};
use crate::validated::{Target, ValidatedRun};

/// What a load process of this trial is to do, apart from where it finds meters, companions and other load processes.
pub fn job(run: &ValidatedRun, arm: &str, index: u32, endpoints: Vec<String>) -> JobSpec {
    let loaded = run.arms.iter().find(|candidate| candidate.name == arm).map(|arm| &arm.target);
    let (told, external) = match loaded {
        Some(Target::Service(service)) => (Some(service), None),
        // What its owner states of a store, nobody here told it.
        Some(Target::External(store)) => (None, Some(store.external.clone())),
        // Below Kubernetes others write as well, and its requests are not the store's.
        Some(Target::ControlPlane(_) | Target::Cluster(_)) | None => (None, None),
    };
    JobSpec {
        run: run.name.clone(),
        arm: arm.into(),
        trial: index,
        // The same for every arm of a trial, so that a pair is loaded with the same keys and values.
        seed: run.spec.trials.seed.wrapping_add(u64::from(index)),
        endpoints,
        kubeconfig: None,
        meters: Vec::new(),
        sync_counters: Vec::new(),
        control_plane_meter: None,
        external,
        is_namespaced: run.arms.iter().any(|arm| arm.external().is_some()),
        durability: told.map(|service| service.durability),
        store_settings: told.map(engine::stated_settings).unwrap_or_default(),
        shared_directory: None,
        companions: BTreeMap::new(),
        restore_tool: None,
        fault_proxy: None,
        strikes_members: false,
        meters_strike: false,
        processes: run.spec.parallelism,
        barrier: None,
        workloads: run.spec.workloads.clone(),
    }
}

/// The outages that a run asks for, of the store's companions and of the store itself.
pub fn outages(run: &ValidatedRun) -> impl Iterator<Item = &Outage> {
    run.spec.workloads.iter().filter_map(|workload| workload.parameters.outage())
}

/// Whether members of the store are struck in this run.
pub fn strikes(run: &ValidatedRun) -> bool {
    run.spec.workloads.iter().any(|workload| workload.strike().is_some())
}

/// How often a load of this run has a member of the store killed.
pub fn kills(run: &ValidatedRun) -> u32 {
    let faults = run.spec.workloads.iter().filter_map(Workload::fault);
    faults.filter(|fault| fault.kind == FaultKind::Kill).count() as u32
}

/// Whether the store of this run reaches its object store through the load, which lets it fail.
pub fn needs_fault_proxy(run: &ValidatedRun) -> bool {
    outages(run).any(|outage| outage.kind != OutageKind::Kill)
}

/// Whether the load restores with a tool after an outage: with one that is the same for every arm where there is one.
pub fn restores_after_an_outage(run: &ValidatedRun) -> bool {
    outages(run).next().is_some()
}

/// What a reader must know of who restored after an outage.
pub fn restore_caveat(arm: &str, tool: &RestoreTool) -> String {
    format!("what {arm} lost in an outage is what a restore by {} did not bring back", tool.name)
}

/// What a load process measured, and why it does not count, if it does not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loaded {
    /// What was measured, for each workload that ran to its end.
    pub workloads: Vec<WorkloadMeasurement>,
    /// Why it does not count. Absent: it does.
    pub failure: Option<TrialFailure>,
    /// What the meters said. Absent: there are none, or the process had no time to ask them.
    pub store: Option<StoreReading>,
}

impl Loaded {
    /// Nothing was measured.
    pub fn failed(cause: FailureCause, detail: String) -> Self {
        TrialFailure { cause, detail }.into()
    }

    /// Something that the trial stood on ended, or was taken away. That explains a store that does not answer and a loader that is hindered, and
    /// is told instead; it explains no wrong answer, which stays what it is, or who takes the store away afterwards would have it repeated.
    pub fn ended_by(&mut self, death: TrialFailure) {
        if self.failure.as_ref().is_none_or(|found| found.cause != FailureCause::WrongAnswer) {
            self.failure = Some(death);
        }
    }
}

/// Nothing was measured.
impl From<TrialFailure> for Loaded {
    fn from(failure: TrialFailure) -> Self {
        Self { failure: Some(failure), ..Self::default() }
    }
}

/// Collects the lines of one load process.
#[derive(Clone, Debug, Default)]
pub struct Gathering {
    workloads: Vec<Gathered>,
    store: Option<StoreReading>,
    /// See [`Gathering::left_behind`]; of whatever arm.
    left_behind: Option<LeftBehind>,
}

#[derive(Clone, Debug, Default)]
struct Gathered {
    name: String,
    histograms: Vec<EncodedHistogram>,
    audit: Option<LoaderAudit>,
    usage: Option<Usage>,
    control_plane: Option<ControlPlaneUsage>,
    measures: Readings,
    machines: Vec<MachineUse>,
    api_requests: Option<ApiRequests>,
    steps: Vec<LoadStep>,
    /// Of the driver's, which were in the way of requests.
    threads: Vec<ThreadInTheWay>,
}

/// What a thread of the driver used in a measured phase through which all requests went, as they go through the loader's threads.
#[derive(Clone, Debug)]
pub struct ThreadInTheWay {
    /// What it is called.
    pub name: String,
    /// For how long it ran, nanoseconds.
    pub cpu_nanos: u64,
    /// For how long it waited for a processor, nanoseconds.
    pub waited_nanos: u64,
    /// Length of the phase, nanoseconds.
    pub elapsed_nanos: u64,
}

impl Gathering {
    /// Takes a line of standard output. Returns what it says, for drivers that follow a process while it runs; `None` for a
    /// line that is for people.
    pub fn line(&mut self, line: &str) -> Result<Option<JobLine>, ContractError> {
        let Some(line) = JobLine::decode(line).transpose()? else { return Ok(None) };
        match &line {
            JobLine::Phase { .. }
            | JobLine::Progress { .. }
            | JobLine::LoadStepBegins { .. }
            | JobLine::Strike { .. } => {}
            JobLine::Namespace { workload, prefix, removal } => {
                let (workload, prefix, removal) = (workload.clone(), prefix.clone(), removal.clone());
                self.left_behind = Some(LeftBehind { arm: String::new(), workload, prefix, removal });
            }
            JobLine::NamespaceRemoved { .. } => self.left_behind = None,
            JobLine::Histogram { workload, latency, data } => {
                decode_histogram(data)?;
                self.of(workload).histograms.push(EncodedHistogram { latency: *latency, data: data.clone() });
            }
            JobLine::Audit { workload, audit } => self.of(workload).audit = Some(audit.clone()),
            JobLine::Usage { workload, usage } => self.of(workload).usage = Some(*usage),
            JobLine::ControlPlaneUsage { workload, usage } => self.of(workload).control_plane = Some(*usage),
            JobLine::Machine { workload, machine } => self.of(workload).machines.push(machine.clone()),
            JobLine::Measure { workload, measure, reading } => {
                if !Metric::reads(measure) {
                    let text = format!("no metric reads the measure `{measure}`: declare one where its family is");
                    return Err(ContractError::new(text));
                }
                if let Reading::Durations(distribution) = reading {
                    distribution.decode()?;
                }
                self.of(workload).measures.insert(measure.clone(), reading.clone());
            }
            JobLine::LoadStep { workload, step } => self.of(workload).steps.push(step.clone()),
            JobLine::ApiRequests { workload, requests } => self.of(workload).api_requests = Some(requests.clone()),
            JobLine::Store { reading } => self.store = Some(reading.clone()),
        }
        Ok(Some(line))
    }

    /// Takes what the driver itself measured of the store.
    pub fn usage(&mut self, workload: &str, usage: Usage) {
        self.of(workload).usage = Some(usage);
    }

    /// Takes what the driver itself measured of the control plane.
    pub fn control_plane_usage(&mut self, workload: &str, usage: ControlPlaneUsage) {
        self.of(workload).control_plane = Some(usage);
    }

    /// Takes what a thread of the driver used that was in the way of requests: it limits what is measured as a thread of the loader does.
    pub fn thread(&mut self, workload: &str, thread: ThreadInTheWay) {
        let threads = &mut self.of(workload).threads;
        // Where a rate was found to miss its target, the workload is measured again at a lower one.
        threads.retain(|known| known.name != thread.name);
        threads.push(thread);
    }

    /// What stays in somebody's store, which is that of `arm`, if the process has ended now; `None`: nothing.
    pub fn left_behind(&self, arm: &str) -> Option<LeftBehind> {
        let left = self.left_behind.clone()?;
        Some(LeftBehind { arm: arm.into(), ..left })
    }

    fn of(&mut self, workload: &str) -> &mut Gathered {
        let position = self.workloads.iter().position(|gathered| gathered.name == workload);
        let position = position.unwrap_or_else(|| {
            self.workloads.push(Gathered { name: workload.into(), ..Gathered::default() });
            self.workloads.len() - 1
        });
        &mut self.workloads[position]
    }

    /// The process has ended with this summary.
    pub fn finish(mut self, summary: JobSummary) -> Loaded {
        let failure = failure(&summary.outcome);
        let mut workloads = Vec::with_capacity(summary.workloads.len());
        for summary in summary.workloads {
            let gathered = std::mem::take(self.of(&summary.name));
            let audit = gathered.audit.map(|mut audit| {
                for ThreadInTheWay { name, cpu_nanos, waited_nanos, elapsed_nanos } in &gathered.threads {
                    audit.count_in(name, *cpu_nanos, *waited_nanos, *elapsed_nanos);
                }
                audit
            });
            workloads.push(WorkloadMeasurement {
                summary,
                audit,
                usage: gathered.usage,
                control_plane: gathered.control_plane,
                fsyncs: None,
                measures: gathered.measures,
                api_requests: gathered.api_requests,
                start_skew_nanos: None,
                foreign_millicores: None,
                machines: MachineUse::together(gathered.machines),
                steps: gathered.steps,
                histograms: gathered.histograms,
            });
        }
        Loaded { workloads, failure, store: self.store }
    }
}

/// Why a trial does not count whose load took longer than it may, whoever drives it.
pub fn timed_out() -> TrialFailure {
    let detail = "did not finish within spec.trials.timeout".into();
    TrialFailure { cause: FailureCause::StoreFailed, detail }
}

/// Why a trial with this outcome does not count; `None` where it does.
fn failure(outcome: &JobOutcome) -> Option<TrialFailure> {
    let (cause, detail) = match outcome {
        JobOutcome::Completed => return None,
        JobOutcome::WrongAnswer { workload, count, key, detail } => {
            (FailureCause::WrongAnswer, format!("{workload}: {count} wrong answers, the first for key {key}: {detail}"))
        }
        JobOutcome::StoreFailed { workload, detail } => (FailureCause::StoreFailed, format!("{workload}: {detail}")),
        JobOutcome::Hindered { workload, hindrance, detail } => {
            let cause = if hindrance.is_transient() { FailureCause::Disturbed } else { FailureCause::OutOfReach };
            let to_do = match hindrance {
                Hindrance::RateNotReached => {
                    "; lower the rate, raise load.connections, or ask what it is with load.highestRate"
                }
                _ => "",
            };
            (cause, format!("{workload}: {}: {detail}{to_do}", in_words(*hindrance)))
        }
    };
    Some(TrialFailure { cause, detail })
}

fn in_words(hindrance: Hindrance) -> &'static str {
    match hindrance {
        Hindrance::RateNotReached => "the rate was not reached",
        Hindrance::ScheduleLag => "the loader sent late",
        Hindrance::ClockStepped => "the clock was stepped",
        Hindrance::ProcessorWithheld => "the loader was kept from the processor",
        Hindrance::Saturated => "the loader is the limit",
    }
}

/// Load processes may begin apart by this part of the measured time, or by [`START_SKEW_ALLOWED_NANOS`] if that is more.
const START_SKEW_SHARE: u64 = 50;
const START_SKEW_ALLOWED_NANOS: u64 = 20_000_000;

/// Merges what the load processes of one trial measured, in the order of their numbers. A workload counts only where every
/// process measured it to its end.
pub fn merge(processes: Vec<Loaded>) -> Result<Loaded, ContractError> {
    if processes.len() == 1 {
        return Ok(processes.into_iter().next().unwrap_or_default());
    }
    // The worst failure decides; what is wrong with the store explains why a loader was hindered, not the other way round.
    let mut failure =
        processes.iter().filter_map(|process| process.failure.clone()).min_by_key(|failure| failure.cause.rank());
    let store = processes.iter().find_map(|process| process.store.clone());
    let mut workloads = Vec::new();
    for first in processes.first().map(|process| process.workloads.as_slice()).unwrap_or_default() {
        let name = &first.summary.name;
        let same = |process: &Loaded| process.workloads.iter().find(|one| one.summary.name == *name).cloned();
        let all: Vec<WorkloadMeasurement> = processes.iter().filter_map(same).collect();
        if all.len() == processes.len() {
            let all = merged(&all)?;
            failure = failure.or_else(|| began_apart(&all));
            workloads.push(all);
        }
    }
    Ok(Loaded { workloads, failure, store })
}

/// Processes that share a workload begin together. If by their clocks they did not, either some of them loaded alone for a while or the clocks
/// of their nodes differ, and then the time from the first start to the last end is not what it took.
fn began_apart(all: &WorkloadMeasurement) -> Option<TrialFailure> {
    let skew = all.start_skew_nanos?;
    let bound = (all.summary.elapsed_nanos / START_SKEW_SHARE).max(START_SKEW_ALLOWED_NANOS);
    (skew > bound).then(|| TrialFailure {
        cause: FailureCause::Disturbed,
        detail: format!(
            "{}: load processes began {} ms apart by their nodes' clocks, more than {} ms: synchronise the clocks of the nodes, or give the \
             load processors of its own",
            all.summary.name,
            skew / 1_000_000,
            bound / 1_000_000
        ),
    })
}

fn merged(all: &[WorkloadMeasurement]) -> Result<WorkloadMeasurement, ContractError> {
    let mut histograms = Vec::new();
    let mut latencies = Vec::new();
    for kind in [LatencyKind::Service, LatencyKind::Intended] {
        let mut sum = latency_histogram();
        for encoded in all.iter().flat_map(|one| &one.histograms).filter(|encoded| encoded.latency == kind) {
            // Bounds are those of `latency_histogram`, which resizes itself.
            let _ = sum.add(decode_histogram(&encoded.data)?);
        }
        latencies.push((!sum.is_empty()).then(|| LatencySummary::of(&sum)));
        if !sum.is_empty() {
            histograms.push(EncodedHistogram { latency: kind, data: encode_histogram(&sum)? });
        }
    }
    let total = |field: fn(&WorkloadSummary) -> u64| all.iter().map(|one| field(&one.summary)).sum();
    let starts = || all.iter().filter_map(|one| one.audit.as_ref()).map(|audit| audit.started_unix_nanos);
    let ends = || all.iter().filter_map(|one| Some(one.audit.as_ref()?.started_unix_nanos + one.summary.elapsed_nanos));
    let first_start = starts().min().unwrap_or_default();
    let longest = all.iter().map(|one| one.summary.elapsed_nanos).max().unwrap_or_default();
    // From the first start to the last end, so that a late process is not counted as a fast one.
    let elapsed_nanos = ends().max().map_or(longest, |end| (end - first_start).max(longest));
    let mut latencies = latencies.into_iter();
    Ok(WorkloadMeasurement {
        summary: WorkloadSummary {
            name: all[0].summary.name.clone(),
            operations: total(|summary| summary.operations),
            errors: total(|summary| summary.errors),
            elapsed_nanos,
            verified: total(|summary| summary.verified),
            service: latencies.next().flatten().unwrap_or_default(),
            intended: latencies.next().flatten(),
        },
        audit: all.iter().filter_map(|one| one.audit.clone()).reduce(both),
        usage: all.iter().find_map(|one| one.usage),
        control_plane: all.iter().find_map(|one| one.control_plane),
        fsyncs: None,
        measures: Reading::all_together(&all.iter().map(|one| &one.measures).collect::<Vec<_>>())?,
        api_requests: all.iter().find_map(|one| one.api_requests.clone()),
        start_skew_nanos: starts().max().map(|last| last - first_start),
        foreign_millicores: None,
        machines: MachineUse::together(all.iter().flat_map(|one| one.machines.iter().cloned())),
        // Looked for by one process only.
        steps: all.first().map(|one| one.steps.clone()).unwrap_or_default(),
        histograms,
    })
}

fn both(one: LoaderAudit, other: LoaderAudit) -> LoaderAudit {
    let most = if one.saturation_basis_points >= other.saturation_basis_points { &one } else { &other };
    let (saturation_basis_points, saturated_thread) = (most.saturation_basis_points, most.saturated_thread.clone());
    let farther = |one: i64, other: i64| if one.unsigned_abs() >= other.unsigned_abs() { one } else { other };
    LoaderAudit {
        lag_max_nanos: one.lag_max_nanos.max(other.lag_max_nanos),
        scheduled: one.scheduled + other.scheduled,
        throttled_nanos: one.throttled_nanos.max(other.throttled_nanos),
        cpu_nanos: one.cpu_nanos + other.cpu_nanos,
        busiest_thread_basis_points: one.busiest_thread_basis_points.max(other.busiest_thread_basis_points),
        saturation_basis_points,
        saturated_thread,
        run_queue_nanos: one.run_queue_nanos + other.run_queue_nanos,
        voluntary_switches: one.voluntary_switches + other.voluntary_switches,
        involuntary_switches: one.involuntary_switches + other.involuntary_switches,
        clock_step_nanos: farther(one.clock_step_nanos, other.clock_step_nanos),
        rss_peak_bytes: one.rss_peak_bytes.max(other.rss_peak_bytes),
        started_unix_nanos: one.started_unix_nanos.min(other.started_unix_nanos),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(values: &[u64], started_unix_nanos: u64) -> Loaded {
        let mut histogram = latency_histogram();
        for value in values {
            histogram.record(*value).unwrap();
        }
        let mut gathering = Gathering::default();
        let lines = [
            JobLine::Histogram {
                workload: "put".into(),
                latency: LatencyKind::Service,
                data: encode_histogram(&histogram).unwrap(),
            },
            JobLine::Audit {
                workload: "put".into(),
                audit: LoaderAudit { started_unix_nanos, cpu_nanos: 5, ..LoaderAudit::default() },
            },
        ];
        for line in lines {
            assert!(gathering.line(&line.encode()).unwrap().is_some());
        }
        let summary = WorkloadSummary {
            name: "put".into(),
            operations: values.len() as u64,
            errors: 0,
            elapsed_nanos: 1_000,
            verified: 0,
            service: LatencySummary::of(&histogram),
            intended: None,
        };
        gathering.finish(JobSummary { outcome: JobOutcome::Completed, workloads: vec![summary] })
    }

    #[test]
    fn a_thread_of_the_driver_through_which_requests_go_limits_them_as_one_of_the_loader_does() {
        let audit = |busy_nanos: u64| {
            let mut gathering = Gathering::default();
            let audit = LoaderAudit {
                saturation_basis_points: 4_000,
                saturated_thread: "load-0".into(),
                ..LoaderAudit::default()
            };
            gathering.line(&JobLine::Audit { workload: "put".into(), audit }.encode()).unwrap();
            for cpu_nanos in [0, busy_nanos] {
                let thread =
                    ThreadInTheWay { name: "relay".into(), cpu_nanos, waited_nanos: 200, elapsed_nanos: 1_000 };
                gathering.thread("put", thread);
            }
            let summary = measured(&[1_000], 0).workloads.remove(0).summary;
            let loaded = gathering.finish(JobSummary { outcome: JobOutcome::Completed, workloads: vec![summary] });
            loaded.workloads[0].audit.clone().unwrap()
        };
        let busy = audit(780);
        assert!(busy.is_saturated(), "{busy:?}");
        assert_eq!((busy.saturated_thread.as_str(), busy.busiest_thread_basis_points), ("relay", 7_800));
        let idle = audit(100);
        assert_eq!((idle.saturated_thread.as_str(), idle.saturation_basis_points), ("load-0", 4_000));
    }

    #[test]
    fn percentiles_of_two_processes_are_those_of_all_their_requests() {
        let merged = merge(vec![measured(&[1_000; 98], 7_000), measured(&[900_000, 1_000_000], 7_250)]).unwrap();
        let put = &merged.workloads[0];
        assert_eq!(put.summary.operations, 100);
        assert_eq!(put.summary.service.p50_nanos, 1_000);
        assert!(put.summary.service.p99_nanos.abs_diff(900_000) < 1_000, "{}", put.summary.service.p99_nanos);
        assert_eq!(put.start_skew_nanos, Some(250));
        assert_eq!(put.summary.elapsed_nanos, 1_250, "from the first start to the last end");
        assert_eq!(put.audit.as_ref().unwrap().cpu_nanos, 10);
    }

    #[test]
    fn clocks_of_nodes_that_differ_do_not_make_a_store_slower() {
        let at = |seconds: f64, started: f64| {
            let mut loaded = measured(&[1_000], (started * 1e9) as u64);
            loaded.workloads[0].summary.elapsed_nanos = (seconds * 1e9) as u64;
            loaded
        };
        let merged = merge(vec![at(60.0, 100.0), at(60.0, 102.0)]).unwrap();
        let failure = merged.failure.unwrap();
        assert_eq!(failure.cause, FailureCause::Disturbed);
        assert!(failure.detail.contains("began 2000 ms apart"), "{}", failure.detail);
        assert_eq!(merge(vec![at(60.0, 100.0), at(60.0, 101.0)]).unwrap().failure, None);
        assert_eq!(merge(vec![at(0.1, 100.0), at(0.1, 100.02)]).unwrap().failure, None);
    }

    #[test]
    fn a_measure_flows_to_the_record_and_one_that_nobody_reads_is_refused() {
        let line = |measure: &str| {
            let reading = Reading::Total(7);
            JobLine::Measure { workload: "put".into(), measure: measure.into(), reading }.encode()
        };
        let mut gathering = Gathering::default();
        gathering.line(&line("fsyncs")).unwrap();
        let said = gathering.line(&line("beauty")).unwrap_err().to_string();
        assert!(said.contains("no metric reads the measure `beauty`"), "{said}");
        let one = |total| {
            let mut loaded = measured(&[1_000], 0);
            loaded.workloads[0].measures.insert("fsyncs".into(), Reading::Total(total));
            loaded
        };
        let merged = merge(vec![one(3), one(4)]).unwrap();
        assert_eq!(merged.workloads[0].measures["fsyncs"], Reading::Total(7));
    }

    #[test]
    fn a_workload_that_one_process_did_not_finish_does_not_count() {
        let unfinished = Loaded::failed(FailureCause::Disturbed, "put: the loader sent late".into());
        let merged = merge(vec![measured(&[1_000], 0), unfinished]).unwrap();
        assert!(merged.workloads.is_empty());
        assert_eq!(merged.failure.unwrap().cause, FailureCause::Disturbed);
    }

    #[test]
    fn a_store_that_ends_after_a_wrong_answer_does_not_excuse_it() {
        let failed = |cause| Loaded::failed(cause, "the load".into());
        let death = |cause| TrialFailure { cause, detail: "the store".into() };
        for cause in [FailureCause::Disturbed, FailureCause::StoreFailed] {
            let mut wrong = failed(FailureCause::WrongAnswer);
            wrong.ended_by(death(cause));
            assert_eq!(wrong, failed(FailureCause::WrongAnswer));
            for found in [failed(FailureCause::StoreFailed), failed(FailureCause::Disturbed), Loaded::default()] {
                let mut explained = found;
                explained.ended_by(death(cause));
                assert_eq!(explained.failure, Some(death(cause)), "a store that is gone answers nobody");
            }
        }
    }

    #[test]
    fn a_load_that_takes_too_long_names_the_field_that_bounds_it_and_is_not_repeated() {
        let failure = timed_out();
        assert_eq!(failure.cause, FailureCause::StoreFailed);
        assert!(failure.detail.ends_with("spec.trials.timeout"), "{}", failure.detail);
    }

    #[test]
    fn a_wrong_answer_outranks_every_other_failure() {
        let failed = |cause| Loaded::failed(cause, String::new());
        let merged = merge(vec![failed(FailureCause::Disturbed), failed(FailureCause::WrongAnswer)]).unwrap();
        assert_eq!(merged.failure.unwrap().cause, FailureCause::WrongAnswer);
    }
}
