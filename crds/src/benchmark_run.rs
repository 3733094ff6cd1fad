//! `BenchmarkRun`: one bounded comparison. Its spec never changes; a new run is a new name.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::control_plane::{ControlPlaneRef, SecretRef};
use crate::durability::Durability;
use crate::duration::{DurationText, LONGER_THAN_ZERO};
use crate::gate_value::GateValue;
use crate::metric::Metric;
use crate::ratio::RatioText;
use crate::rules::{Rule, Rules};
use crate::status::{BenchmarkRunStatus, NOISE_FLOOR};
use crate::storage_service::ServiceRef;
use crate::workload::{self, Workload};

/// What names of workloads and, so that a run can name them, of templates must be.
pub(crate) const NAME_PATTERN: &str = r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$";

/// What a run as a whole must be; what concerns its workloads is added by [`workload::add_run_rules`].
const RUN_RULES: &[Rule] = &[
    Rule {
        field: ".arms",
        holds: "self.arms.filter(a, a.baseline).size() <= 1",
        otherwise: "at most one arm may have baseline: true",
    },
    Rule {
        field: ".arms",
        holds: "self.arms.all(a, self.arms.exists_one(b, b.name == a.name))",
        otherwise: "arms must have distinct names",
    },
    Rule {
        field: ".gates",
        holds: "!has(self.gates) || self.gates.all(g, self.arms.exists(a, a.name == g.arm))",
        otherwise: "gates: arm must name one of spec.arms",
    },
    Rule {
        field: ".gates",
        holds: "!has(self.gates) || self.gates.all(g, !has(g.workload) \
            || (has(self.workloads) && self.workloads.exists(w, w.name == g.workload)) \
            || (has(self.workloadRefs) && self.workloadRefs.exists(w, w.name == g.workload)))",
        otherwise: "gates: workload must name one of spec.workloads or spec.workloadRefs",
    },
    Rule {
        field: "",
        holds: "has(self.workloads) != has(self.workloadRefs)",
        otherwise: "give exactly one of workloads (the loads themselves) or workloadRefs (names of WorkloadTemplates)",
    },
    Rule {
        field: ".workloadRefs",
        holds: "!has(self.workloadRefs) || self.workloadRefs.all(w, self.workloadRefs.exists_one(v, v.name == w.name))",
        otherwise: "workloadRefs must have distinct names",
    },
    Rule {
        field: ".gates",
        holds: "!has(self.gates) || self.gates.all(g, !(has(g.ratioAtLeast) || has(g.ratioAtMost) \
            || has(g.ratioAtLeastBasisPoints) || has(g.ratioAtMostBasisPoints)) \
            || self.arms.exists(a, a.baseline && a.name != g.arm))",
        otherwise: "gates: a ratio compares an arm with another one that has baseline: true; mark one, or give atLeast or \
            atMost",
    },
    Rule {
        field: ".noiseFloor",
        holds: "!self.noiseFloor || self.arms.exists(a, a.baseline)",
        otherwise: "noiseFloor runs the baseline twice, and no arm is one: give an arm baseline: true",
    },
    Rule {
        field: ".arms",
        holds: "self.arms.all(a, a.name != 'noise-floor')",
        otherwise: "noise-floor is the name of the arm that noiseFloor adds: give this one another",
    },
    Rule {
        field: ".trials.min",
        holds: "!has(self.gates) || self.gates.size() == 0 || self.trials.min >= 3",
        otherwise: "gates need an interval, which takes at least 3 trials: set trials.min to 3 or more, or remove gates",
    },
    Rule {
        field: ".nodePool",
        holds: "!has(self.nodePool) || (self.isolation == 'Fresh' && self.arms.all(a, !has(a.kubeconfigSecretRef)))",
        otherwise: "nodePool places what is made for each trial: give isolation: Fresh, and no arm with kubeconfigSecretRef, \
            or remove nodePool",
    },
    // One term for each field but suspend: comparing the specs whole would let a change of suspend hide any other change.
    Rule {
        field: "",
        holds: "self.arms == oldSelf.arms \
            && has(self.workloads) == has(oldSelf.workloads) \
            && (!has(self.workloads) || self.workloads == oldSelf.workloads) \
            && has(self.workloadRefs) == has(oldSelf.workloadRefs) \
            && (!has(self.workloadRefs) || self.workloadRefs == oldSelf.workloadRefs) \
            && self.trials == oldSelf.trials \
            && self.isolation == oldSelf.isolation \
            && self.noiseFloor == oldSelf.noiseFloor \
            && has(self.allowUnequal) == has(oldSelf.allowUnequal) \
            && (!has(self.allowUnequal) || self.allowUnequal == oldSelf.allowUnequal) \
            && has(self.gates) == has(oldSelf.gates) && (!has(self.gates) || self.gates == oldSelf.gates) \
            && self.parallelism == oldSelf.parallelism \
            && has(self.nodePool) == has(oldSelf.nodePool) && (!has(self.nodePool) || self.nodePool == oldSelf.nodePool) \
            && has(self.baselineRef) == has(oldSelf.baselineRef) \
            && (!has(self.baselineRef) || self.baselineRef == oldSelf.baselineRef) \
            && has(self.ttl) == has(oldSelf.ttl) && (!has(self.ttl) || self.ttl == oldSelf.ttl)",
        otherwise: "spec is immutable except for suspend: create a new run under a new name",
    },
];

/// One comparison: load these stores, compare them, judge them.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "storebench.dev",
    version = "v1alpha1",
    kind = "BenchmarkRun",
    namespaced,
    status = "BenchmarkRunStatus",
    derive = "PartialEq",
    shortname = "benchrun",
    category = "storebench",
    doc = "One comparison of stores: the same workloads on every arm, in interleaved trials, with a verdict. The spec cannot be changed; make a new run under a new name.",
    validation = crate::rules::of_names(),
    printcolumn(
        name = "State",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Succeeded\")].reason",
        description = "Queued, Running, Suspended, or the verdict"
    ),
    printcolumn(name = "Arms", type_ = "string", json_path = ".status.columns.arms"),
    printcolumn(
        name = "Throughput",
        type_ = "string",
        json_path = ".status.columns.throughputRatio",
        description = "Throughput of the first arm that is not the baseline, relative to the baseline, first workload"
    ),
    printcolumn(
        name = "P99",
        type_ = "string",
        json_path = ".status.columns.p99Ratio",
        description = "99th percentile of latency, relative to the baseline, first workload"
    ),
    printcolumn(
        name = "Baseline",
        type_ = "string",
        json_path = ".status.columns.baseline",
        description = "The BenchmarkBaseline that the run is held against, and what came of it"
    ),
    printcolumn(name = "Trials", type_ = "string", json_path = ".status.columns.trials"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = Rules(RUN_RULES))]
#[schemars(transform = workload::add_run_rules)]
pub struct BenchmarkRunSpec {
    /// The stores to load, 1 to 4. Their trials are interleaved.
    #[schemars(length(min = 1, max = 4))]
    pub arms: Vec<Arm>,

    /// The loads, run in this order inside every trial. Give them here, or name WorkloadTemplates in workloadRefs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 8))]
    pub workloads: Vec<Workload>,

    /// WorkloadTemplates in the place of workloads, in this order. They are read once, when the run begins; results and gates know each workload
    /// by the name of its template.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 8))]
    pub workload_refs: Vec<WorkloadRef>,

    /// How often to repeat, and when to stop.
    #[serde(default)]
    pub trials: Trials,

    /// What a trial starts from.
    #[serde(default)]
    pub isolation: Isolation,

    /// Conditions the run must meet. Without gates nothing is judged; comparisons are still reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub gates: Vec<Gate>,

    /// Run the baseline twice in every trial, the second time as an arm named noise-floor, and report its ratio to itself with its interval: how far
    /// apart equal arms come out here. A difference no larger than that is called so, and is neither better nor worse. Gates are decided as ever.
    #[serde(default)]
    pub noise_floor: bool,

    /// Holds this run against an earlier one, which a BenchmarkBaseline keeps: each arm against the arm of the same name. The run is
    /// Regressed if throughput or waiting of any arm is worse by more than is tolerated, beyond noise. Embedded runs take `--baseline` instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline_ref: Option<BaselineRef>,

    /// In which of the fields that bear on performance arms may differ and be ranked all the same, as to compare one store under two
    /// arguments. Results name what differs. Durability is never among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 9), extend("example" = ["args"]))]
    pub allow_unequal: Vec<ArmField>,

    /// Load pods per trial. Connections, clients, totals, rates and keys are shared out among them, they start together, and
    /// their histograms are merged. Embedded runs take 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    pub parallelism: u32,

    /// The nodes that the run has for itself: those with this value of the label `storebench.dev/node-pool`. Its stores, control planes and
    /// loads stay there, and tolerate the taint of that key, which keeps others away. Runs of other pools go on at the same time; one
    /// pool has one run at a time. Absent: any node, as one pool. Ignored by embedded runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), pattern(r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"), extend("example" = "fast-disks"))]
    pub node_pool: Option<String>,

    /// Do not start, or stop after the trial that is running.
    #[serde(default)]
    pub suspend: bool,

    /// When a finished run is deleted. Absent: never. Ignored by embedded runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<TimeToLive>,
}

/// A WorkloadTemplate that a run takes a workload from.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRef {
    /// The WorkloadTemplate's name, in the same namespace (embedded: in the same files). The workload has this name in the run.
    #[schemars(regex(pattern = NAME_PATTERN), length(max = 40), extend("example" = "agreed-1-kib"))]
    pub name: String,
}

fn one() -> u32 {
    1
}

impl BenchmarkRunSpec {
    /// Names of all arms that are measured, in order: those that were asked for, and the noise floor.
    pub fn arm_names(&self) -> impl Iterator<Item = &str> {
        let asked = self.arms.iter().map(|arm| arm.name.as_str());
        asked.chain(self.noise_floor.then_some(NOISE_FLOOR))
    }
}

/// What an arm must be.
const ARM_RULES: &[Rule] = &[
    Rule {
        field: "",
        holds: "[has(self.serviceRef), has(self.controlPlaneRef), has(self.kubeconfigSecretRef)].filter(given, \
                given).size() == 1",
        otherwise: "give exactly one of serviceRef, controlPlaneRef or kubeconfigSecretRef",
    },
    Rule {
        field: ".durability",
        holds: "!has(self.durability) || has(self.kubeconfigSecretRef)",
        otherwise: "durability is stated of a cluster that is there already: remove it, for the StorageService has its own",
    },
];

/// One side of a comparison.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = Rules(ARM_RULES))]
pub struct Arm {
    /// A name, unique in the run; results and gates refer to it.
    #[schemars(regex(pattern = r"^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$"), length(max = 32), extend("example" = "etcd-fsync"))]
    pub name: String,
    /// The arm that the others are compared with.
    #[serde(default)]
    pub baseline: bool,
    /// The StorageService to load, in the same namespace (embedded: in the same files).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_ref: Option<ServiceRef>,
    /// The ControlPlane to load, in the same namespace (embedded: in the same files): Kubernetes on a StorageService.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_ref: Option<ControlPlaneRef>,
    /// A cluster that is there already, given by a Secret in the same namespace whose key `kubeconfig` has everything in it
    /// (no paths, no programs, no proxy), and which is labelled `storebench.dev/allowed=true`. It must be reachable from the pods of this one. Every trial creates namespaces of its own
    /// there and removes them; what its store uses is not measured. Not in embedded runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret_ref: Option<SecretRef>,
    /// What an acknowledged write survives in the store of a cluster that is there already, as you state it: nobody here can look. Arms that
    /// differ in it are not ranked; of arms without it reports say that their durability is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    // As what is absent the schema would have the words of the type, and not these.
    #[schemars(with = "Durability")]
    pub durability: Option<Durability>,
}

/// An earlier run to be held against, and on which terms.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BaselineRef {
    /// The BenchmarkBaseline's name, in the same namespace. As long as it is missing or not ready nothing is measured.
    #[schemars(regex(pattern = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"), length(max = 63), extend("example" = "release-1-4"))]
    pub name: String,
    /// How much worse throughput or waiting may be, in basis points (100 = 1 %).
    #[serde(default = "BaselineRef::default_tolerance_basis_points")]
    #[schemars(range(min = 0, max = 9_999))]
    pub tolerance_basis_points: u32,
    /// Compare with what was measured on another machine, too. Otherwise the run has nothing to compare with there, and says in what the
    /// machines differ.
    #[serde(default)]
    pub allow_different_machine: bool,
}

impl BaselineRef {
    fn default_tolerance_basis_points() -> u32 {
        500
    }
}

/// What the numbers of trials must be.
const TRIALS_RULES: &[Rule] =
    &[Rule { field: ".min", holds: "self.min <= self.max", otherwise: "trials.min must not exceed trials.max" }];

/// Trials that a run may have of every arm.
pub const TRIALS_MAX: u32 = 30;

/// As many trials as a run may repeat.
pub const RETRIES_MAX: u32 = 10;

/// How often to repeat, and when to stop.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = Rules(TRIALS_RULES))]
pub struct Trials {
    /// Trials of every arm before the run may stop early. An interval needs at least 3; an even number lets every order of
    /// the arms run equally often.
    #[serde(default = "Trials::default_min")]
    #[schemars(range(min = 1, max = 30))]
    pub min: u32,
    /// Trials of every arm at most.
    #[serde(default = "Trials::default_max")]
    #[schemars(range(min = 1, max = TRIALS_MAX))]
    pub max: u32,
    /// Stop early when the intervals that gates look at are narrower than ± this, in basis points (100 = 1 %), and, where no gate is on a ratio, those of
    /// throughput, or of p99 latency at a given rate. The rule looks at precision only, never at significance, so that stopping early does not favour
    /// either arm.
    #[serde(default = "Trials::default_target_interval_basis_points")]
    #[schemars(range(min = 1, max = 10_000))]
    pub target_interval_basis_points: u32,
    /// Seeds the order of arms, the keys and the values. The same seed gives the same schedule.
    #[serde(default = "Trials::default_seed")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991u64))]
    pub seed: u64,
    /// Trials that may be repeated because something outside the store disturbed them (other busy programs, a loader that sent late, a stepped
    /// clock, a machine that stood still). Waiting for a busy machine to become quiet uses up none of them. Wrong answers, failures of the
    /// store, and a given rate that was not reached are never repeated.
    #[serde(default = "Trials::default_retries")]
    #[schemars(range(min = 0, max = RETRIES_MAX))]
    pub retries: u32,
    /// How long the load of one arm may take in a trial, preparation and warm-up included. A store has a time of its own to start in.
    #[serde(default = "Trials::default_timeout")]
    #[x_kube(validation = LONGER_THAN_ZERO)]
    pub timeout: DurationText,
}

impl Trials {
    fn default_min() -> u32 {
        6
    }
    fn default_max() -> u32 {
        10
    }
    fn default_target_interval_basis_points() -> u32 {
        200
    }
    fn default_seed() -> u64 {
        1
    }
    fn default_retries() -> u32 {
        2
    }
    fn default_timeout() -> DurationText {
        DurationText::literal("10m")
    }
}

impl Default for Trials {
    fn default() -> Self {
        Self {
            min: Self::default_min(),
            max: Self::default_max(),
            target_interval_basis_points: Self::default_target_interval_basis_points(),
            seed: Self::default_seed(),
            retries: Self::default_retries(),
            timeout: Self::default_timeout(),
        }
    }
}

/// What bears on the performance of an arm besides its engine and durability, by the field that says it.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ArmField {
    /// `args` of the StorageService.
    Args,
    /// `env` of the StorageService.
    Env,
    /// `replicas` of the StorageService: agreement costs.
    Replicas,
    /// `storage` of the StorageService: an emptyDir, or a claim of this class and size.
    Storage,
    /// `resources` of the StorageService.
    Resources,
    /// `pod` of the StorageService: on which nodes it may run.
    Pod,
    /// How a group makes sure that a linearizable read is not stale: by a round among its members, or by a lease, which trusts their
    /// clocks and costs nothing. Differs by engine, and by rusd's `--linearizable-reads`.
    LinearizableReads,
    /// How requests reach a store: by a call for each, or many in a frame of a stream, where a workload's `door` asks for that and the engine has
    /// it.
    Door,
    /// `external` of the StorageService: on what it runs, how it is set up and who else uses it is known to nobody here.
    External,
}

impl ArmField {
    /// As users write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Args => "args",
            Self::Env => "env",
            Self::Replicas => "replicas",
            Self::Storage => "storage",
            Self::Resources => "resources",
            Self::Pod => "pod",
            Self::LinearizableReads => "linearizableReads",
            Self::Door => "door",
            Self::External => "external",
        }
    }
}

/// What a trial starts from.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Isolation {
    /// A new, empty store for every trial.
    #[default]
    Fresh,
    /// One store per arm for the whole run: faster, but a trial inherits what the last one left.
    Shared,
}

/// What a gate must be.
const GATE_RULES: &[Rule] = &[Rule {
    field: "",
    holds: "[has(self.atLeast), has(self.atMost), has(self.ratioAtLeast), has(self.ratioAtMost), \
            has(self.ratioAtLeastBasisPoints), has(self.ratioAtMostBasisPoints)].filter(b, b).size() == 1",
    otherwise: "give exactly one bound: atLeast, atMost, ratioAtLeast or ratioAtMost (95%), or one of these in basis points",
}];

/// A condition that a run must meet.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = Rules(GATE_RULES))]
pub struct Gate {
    /// The arm that is judged.
    #[schemars(length(min = 1, max = 32))]
    pub arm: String,
    /// The workload that is judged. Absent: every workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 40))]
    pub workload: Option<String>,
    /// What is judged. Of fewer requests than a percentile takes (p99: 100 in a trial) the largest stands for it: that may miss the bound, and
    /// otherwise the gate is not judged and the run Inconclusive.
    pub metric: Metric,
    /// The metric itself must be at least this: a whole number in the metric's unit, or, where that is a time, a duration such as `5ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    // As what is absent the schema would have another form.
    #[schemars(with = "GateValue")]
    pub at_least: Option<GateValue>,
    /// The metric itself must be at most this: a whole number in the metric's unit, or, where that is a time, a duration such as `5ms`. Of a metric that
    /// has the largest of several trials no trial may have more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "GateValue")]
    pub at_most: Option<GateValue>,
    /// The arm's metric divided by the baseline's must be at least this, as `95%` or `"0.95"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_at_least: Option<RatioText>,
    /// The arm's metric divided by the baseline's must be at most this, as `110%` or `"1.1"`. Trials are compared one by one, also of a metric that has the
    /// largest of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_at_most: Option<RatioText>,
    /// As `ratioAtLeast`, in basis points (10000 = equal).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub ratio_at_least_basis_points: Option<u32>,
    /// As `ratioAtMost`, in basis points (10000 = equal).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub ratio_at_most_basis_points: Option<u32>,
    /// What to make of an interval that contains the bound, so that the trials cannot tell.
    #[serde(default)]
    pub on_inconclusive: OnInconclusive,
}

/// What a gate asks of its metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The value must be at least this, in the metric's unit.
    AtLeast(u64),
    /// The value must be at most this, in the metric's unit.
    AtMost(u64),
    /// The ratio to the baseline must be at least this, basis points.
    RatioAtLeast(u32),
    /// The ratio to the baseline must be at most this, basis points.
    RatioAtMost(u32),
}

impl Bound {
    /// Whether it is of a ratio to the baseline.
    pub fn is_ratio(self) -> bool {
        matches!(self, Self::RatioAtLeast(_) | Self::RatioAtMost(_))
    }
}

impl Gate {
    /// What is asked, however it was written; `None` where nothing is, which the schema refuses, or a duration of what is none, which
    /// [`crate::document`] does.
    pub fn bound(&self) -> Option<Bound> {
        let written = |text: &Option<RatioText>, number| text.as_ref().map(RatioText::basis_points).or(number);
        let at_least = written(&self.ratio_at_least, self.ratio_at_least_basis_points).map(Bound::RatioAtLeast);
        let at_most = written(&self.ratio_at_most, self.ratio_at_most_basis_points).map(Bound::RatioAtMost);
        let in_unit = |value: &Option<GateValue>| self.metric.unit.whole(value.as_ref()?);
        let value = in_unit(&self.at_least).map(Bound::AtLeast).or(in_unit(&self.at_most).map(Bound::AtMost));
        at_least.or(at_most).or(value)
    }
}

/// What to make of a gate that the trials cannot decide.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OnInconclusive {
    /// The run is Inconclusive.
    #[default]
    Fail,
    /// The gate does not count; the message warns.
    Warn,
    /// The gate counts as met.
    Pass,
}

/// When a finished run is deleted.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TimeToLive {
    /// After a verdict of Passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success: Option<DurationText>,
    /// After any other verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<DurationText>,
}
