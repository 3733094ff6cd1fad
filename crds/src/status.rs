//! What a run reports: verdict, trial ledger, results, comparisons, fingerprint. Integers in stated units, small enough
//! to read in `kubectl get -o yaml`; full histograms live in the report object that `reportRef` names.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::latency::LatencySummary;
use crate::metric::{Field, Metric, Place};

/// The arm that `noiseFloor` adds: the baseline once more.
pub const NOISE_FLOOR: &str = "noise-floor";

/// What a run has found so far.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BenchmarkRunStatus {
    /// The generation of the spec that this status describes; −1 until it was looked at.
    #[serde(default = "crate::object_status::never_observed")]
    pub observed_generation: i64,
    /// Succeeded, Complete, Reconciling, Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::object_status::conditions")]
    pub conditions: Vec<Condition>,
    /// The judgement, once the run is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// The judgement, or the progress, in one line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Texts for the columns of `kubectl get`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Columns>,
    /// In which order arms ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// Every trial of every arm, in the order they ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trials: Vec<TrialEntry>,
    /// What was measured, for each workload and arm, over all valid trials.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<WorkloadResult>,
    /// What each arm cost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ArmResources>,
    /// How each arm compares with the baseline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<Comparison>,
    /// How each gate was decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<GateResult>,
    /// How it compares with the earlier run that `spec.baselineRef` names. Absent: it names none, or the run is not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<BaselineResult>,
    /// Where it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Fingerprint>,
    /// Runs that go first, this one not counted. Absent: the run is not waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_position: Option<u32>,
    /// What was left out to keep the status small, such as `comparisons`; it is in the report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub omitted: Vec<String>,
    /// The ConfigMap with the report; those with raw trials and full histograms carry the same label `storebench.dev/run`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_ref: Option<ReportRef>,
    /// Which trials the verdict was found from. Absent: the run is not complete, or has no record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed_trials: Option<SealedTrials>,
    /// The public key of the operator that measured, Ed25519 in Base64: it has signed the report and the trials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signing_key: Option<String>,
}

/// Which trials a verdict was found from: whoever reads them later can tell whether one is gone.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SealedTrials {
    /// How many there were, of all arms together.
    pub count: u32,
    /// SHA-256 over the names of their ConfigMaps and the hashes of these, 64 hexadecimal digits.
    pub digest: String,
    /// The operator's signature over it and the run's uid, Base64; see `signingKey`.
    pub signature: String,
}

/// The judgement of a run.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Verdict {
    /// No gate was missed. Gates with `onInconclusive` Warn or Pass may be undecided, and without gates nothing was judged.
    Passed,
    /// At least one gate was missed, beyond noise.
    Regressed,
    /// The trials cannot tell.
    Inconclusive,
    /// The measurement cannot be trusted: a wrong answer, a failed store, a hindered loader.
    Invalid,
    /// There was nothing to compare with.
    NoBaseline,
}

/// Texts for the columns of `kubectl get`.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Columns {
    /// The arms' names, baseline last.
    pub arms: String,
    /// Such as `1.62 ±0.04`, or `1.62 ±0.04, not ranked`. Absent: the run is invalid, or compared nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_ratio: Option<String>,
    /// Such as `0.81 ±0.10`, or `0.81 ±0.10, not ranked`. Absent: the run is invalid, or compared nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ratio: Option<String>,
    /// Such as `release-1-4: Passed`, or `release-1-4` as long as the run goes on. Absent: the run is held against no earlier one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// Such as `7/10`.
    pub trials: String,
}

/// In which order arms ran.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Schedule {
    /// The seed it was drawn from.
    pub seed: u64,
    /// Arms' names in the order they ran, trial after trial, as `a b b a`.
    pub order: String,
}

/// One trial of one arm.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrialEntry {
    /// Counts from 0; every arm runs once in each.
    pub index: u32,
    /// The arm's name.
    pub arm: String,
    /// The Job that ran it. Absent in embedded runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// What became of it.
    pub state: TrialState,
    /// Why it is not valid, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What became of a trial.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TrialState {
    /// Under way.
    Running,
    /// Measured and usable.
    Valid,
    /// Measured or not, unusable.
    Invalid,
    /// The arm could not be started here.
    Unavailable,
}

/// What was measured for one workload on one arm, over all valid trials.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadResult {
    /// The workload's name.
    pub workload: String,
    /// The arm's name.
    pub arm: String,
    /// Valid trials.
    pub trials: u32,
    /// Requests answered in the measured phases.
    pub operations: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Median over trials of requests per second, in thousandths of a request per second.
    pub throughput_milli: u64,
    /// Lower end of the 95 % interval of that median, in thousandths of a request per second. Absent: too few trials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_low_milli: Option<u64>,
    /// Upper end of the 95 % interval of that median, in thousandths of a request per second. Absent: too few trials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_high_milli: Option<u64>,
    /// Latency from send to answer: of each percentile and of the mean the median over trials, of the largest the largest.
    pub service_latency: LatencySummary,
    /// Open loop: latency from the instant a request was due, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intended_latency: Option<LatencySummary>,
    /// Processor time of the store per request, nanoseconds. The median over trials, as of what follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_nanos_per_operation: Option<u64>,
    /// What was written to the store's disk per request, bytes, by whomever, the file system's own bookkeeping included.
    /// Absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_bytes_per_operation: Option<u64>,
    /// Syncs of the store's disk per thousand requests, as the store counts them. Absent: the store does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fsyncs_per_thousand_operations: Option<u64>,
    /// What the API server above the store says of its requests. Absent: there is none, or it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_server: Option<ApiServerLatency>,
    /// What else was measured, such as what only workloads of this family measure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub measures: Vec<MeasuredValue>,
}

impl WorkloadResult {
    fn field(&mut self, field: Field) -> &mut Option<u64> {
        match field {
            Field::Cpu => &mut self.cpu_nanos_per_operation,
            Field::Written => &mut self.write_bytes_per_operation,
            Field::Fsyncs => &mut self.fsyncs_per_thousand_operations,
        }
    }

    /// The value of a metric, in the metric's unit; `None` where it was not measured, or stands here in another form.
    pub fn value(&self, metric: Metric) -> Option<f64> {
        match metric.place {
            Place::Field(Field::Cpu) => Some(self.cpu_nanos_per_operation? as f64),
            Place::Field(Field::Written) => Some(self.write_bytes_per_operation? as f64),
            Place::Field(Field::Fsyncs) => Some(self.fsyncs_per_thousand_operations? as f64),
            Place::Measures => {
                let found = self.measures.iter().find(|measured| measured.metric == metric)?;
                Some(found.value_milli as f64 / 1e3)
            }
            Place::OtherForm => None,
        }
    }

    /// Takes the value of a metric, in the metric's unit, unless it stands here in another form.
    pub fn put(&mut self, metric: Metric, value: f64) {
        match metric.place {
            Place::Field(field) => *self.field(field) = Some(value as u64),
            Place::Measures => {
                self.measures.push(MeasuredValue { metric, value_milli: (value * 1e3).round() as u64 });
            }
            Place::OtherForm => {}
        }
    }
}

/// The value of a metric over all valid trials.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeasuredValue {
    /// What was measured. The unit is the end of its name.
    pub metric: Metric,
    /// How much, in thousandths of that unit.
    pub value_milli: u64,
}

/// Latencies as an API server itself measured them, of the requests that the workload makes or causes; watches are left out.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiServerLatency {
    /// Requests that change something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<RequestLatency>,
    /// Requests that do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<RequestLatency>,
    /// The API server's own requests to the store that change something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_writes: Option<RequestLatency>,
    /// The API server's own requests to the store that do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_reads: Option<RequestLatency>,
}

/// Latency from a histogram of few buckets. The mean is precise; percentiles are interpolated within a bucket, the first of
/// which reaches from 0 to 5 ms in Kubernetes.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestLatency {
    /// How many requests.
    pub requests: u64,
    /// Mean, nanoseconds.
    pub mean_nanos: u64,
    /// Median, nanoseconds, interpolated.
    pub p50_nanos: u64,
    /// 99th percentile, nanoseconds, interpolated.
    pub p99_nanos: u64,
}

/// What an arm cost over all valid trials: medians of averages, maxima of peaks.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArmResources {
    /// The arm's name.
    pub arm: String,
    /// Processor use before load, thousandths of a core.
    pub cpu_idle_millicores: u64,
    /// Processor use under load, thousandths of a core.
    pub cpu_average_millicores: u64,
    /// Largest processor use over a sampling interval, thousandths of a core.
    pub cpu_peak_millicores: u64,
    /// Resident memory before load, bytes.
    pub rss_idle_bytes: u64,
    /// Resident memory under load, bytes.
    pub rss_average_bytes: u64,
    /// Largest resident memory, bytes.
    pub rss_peak_bytes: u64,
    /// Largest proportional set size (shared pages divided among their users), bytes.
    pub pss_peak_bytes: u64,
    /// Space taken on disk after the trial, bytes.
    pub disk_bytes: u64,
    /// Size of the executable, bytes.
    pub binary_bytes: u64,
    /// From process start to the first answered request, microseconds.
    pub startup_micros: u64,
    /// Context switches of the store under load, voluntary and not.
    pub context_switches: u64,
    /// Requests answered per second of the store's processor time, over all workloads.
    pub operations_per_cpu_second: u64,
    /// What the API server above the store used. Absent: the store itself was loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_server: Option<ApiServerResources>,
}

/// What the API server above an arm's store used under load: medians of averages, maxima of peaks.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiServerResources {
    /// Processor use, thousandths of a core.
    pub cpu_average_millicores: u64,
    /// Largest processor use over a sampling interval, thousandths of a core.
    pub cpu_peak_millicores: u64,
    /// Processor use of controller manager, scheduler and simulated nodes together, thousandths of a core.
    pub others_cpu_average_millicores: u64,
    /// Resident memory, bytes.
    pub rss_average_bytes: u64,
    /// Largest resident memory, bytes.
    pub rss_peak_bytes: u64,
}

/// How an arm compares with the baseline in one metric of one workload.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// The workload's name.
    pub workload: String,
    /// The arm's name.
    pub arm: String,
    /// The baseline's name.
    pub baseline: String,
    /// What is compared.
    pub metric: Metric,
    /// The arm divided by the baseline, basis points (10000 = equal).
    pub ratio_basis_points: u64,
    /// Lower end of the 95 % interval of the ratio, basis points.
    pub low_basis_points: u64,
    /// Upper end of the 95 % interval of the ratio, basis points.
    pub high_basis_points: u64,
    /// Pairs of trials.
    pub trials: u32,
    /// The smallest change that so many trials would detect four times in five, basis points.
    pub detectable_basis_points: u64,
    /// Why the two may not be ranked, such as unequal durability. Absent: they may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_ranked: Option<String>,
    /// How the baseline compares with itself in the same metric and workload. Absent: the run has no `noiseFloor`, or this is it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_floor: Option<NoiseFloor>,
}

impl Comparison {
    /// Whether this is the baseline against itself.
    pub fn is_noise_floor(&self) -> bool {
        self.arm == NOISE_FLOOR && self.noise_floor.is_none()
    }

    /// Whether the arm is no farther from the baseline than the baseline may be from itself: than the end of its interval that is farther from 1.
    pub fn is_within_noise_floor(&self) -> bool {
        let distance = |basis_points: u64| (basis_points.max(1) as f64 / 10_000.0).ln().abs();
        let reach = |floor: &NoiseFloor| distance(floor.low_basis_points).max(distance(floor.high_basis_points));
        self.noise_floor.as_ref().is_some_and(|floor| distance(self.ratio_basis_points) <= reach(floor))
    }
}

/// The baseline divided by itself, both measured in the same trials: an A/A comparison.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NoiseFloor {
    /// The ratio, basis points (10000 = equal).
    pub ratio_basis_points: u64,
    /// Lower end of its 95 % interval, basis points.
    pub low_basis_points: u64,
    /// Upper end of its 95 % interval, basis points.
    pub high_basis_points: u64,
}

/// How a run compares with the earlier one that it is held against.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BaselineResult {
    /// The BenchmarkBaseline's name.
    pub name: String,
    /// The name of the run that it keeps.
    pub run: String,
    /// When that began, RFC 3339, UTC.
    pub measured_at: String,
    /// What the comparison says. NoBaseline: they were not compared; Invalid: this run is.
    pub verdict: Verdict,
    /// Why, in one line.
    pub message: String,
    /// In what their circumstances differ, such as `services: version of arm etcd: 3.6.16, then 3.7.3`, the first 24.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 24))]
    pub differences: Vec<String>,
    /// What was not compared, and why, the first 24.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 24))]
    pub left_out: Vec<String>,
    /// How throughput and waiting of each arm moved, which decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<Movement>,
}

/// How one metric of an arm moved since an earlier run.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Movement {
    /// The workload's name.
    pub workload: String,
    /// The arm's name.
    pub arm: String,
    /// What moved.
    pub metric: Metric,
    /// The arm that did not change, to which ratios are compared. Absent: figures are compared as they were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<String>,
    /// This run divided by the earlier one, basis points (10000 = equal).
    pub ratio_basis_points: u64,
    /// Lower end of its interval, basis points.
    pub low_basis_points: u64,
    /// Upper end of its interval, basis points.
    pub high_basis_points: u64,
    /// Whether it was kept within what is tolerated.
    pub outcome: GateOutcome,
}

/// How a gate was decided.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GateResult {
    /// The gate in words, such as `rusd put ThroughputPerSecond ≥ 0.90 × etcd`.
    pub gate: String,
    /// What was decided.
    pub outcome: GateOutcome,
    /// What was found, in words.
    pub found: String,
}

/// What was decided about a gate.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GateOutcome {
    /// The whole interval is on the right side of the bound.
    Met,
    /// The whole interval is on the wrong side of the bound.
    Missed,
    /// The interval contains the bound.
    Undecided,
    /// There was nothing to judge, or the arms may not be ranked.
    NotJudged,
}

/// Where a run ran. Runs with different hashes were not measured under the same conditions.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fingerprint {
    /// SHA-256 over the facts, first 16 hexadecimal digits.
    pub hash: String,
    /// Facts by name: processor, cores, memory, kernel, file system, versions of every server, and the like.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
}

/// A ConfigMap in the run's namespace.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportRef {
    /// The ConfigMap's name.
    pub name: String,
}
