//! `BenchmarkSuite`: a matrix of runs, made from one template and lists of parameters. Its spec never changes; a new suite is a new name.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::rules::{Rule, Rules};
use crate::status::Verdict;
use crate::template::RunTemplate;

/// Runs of a suite at most: a status of 16 KiB has a line for each.
pub const RUNS_MAX: usize = 64;
/// The pattern of the name of a parameter, as it stands in `$(NAME)`.
pub const PARAMETER_NAME: &str = "^[a-z][A-Za-z0-9]{0,30}$";
/// The pattern of a value that is a text: it becomes a part of names and a label.
pub const PARAMETER_TEXT: &str = "^[A-Za-z0-9]([-A-Za-z0-9_.]{0,30}[A-Za-z0-9])?$";

const SUITE_RULES: &[Rule] = &[
    Rule {
        field: ".parameters",
        holds: "self.parameters.all(p, self.parameters.exists_one(o, o.name == p.name))",
        otherwise: "parameters must have distinct names",
    },
    Rule {
        field: ".parameters",
        holds: "self.parameters[0].values.size() \
            * (self.parameters.size() > 1 ? self.parameters[1].values.size() : 1) \
            * (self.parameters.size() > 2 ? self.parameters[2].values.size() : 1) \
            * (self.parameters.size() > 3 ? self.parameters[3].values.size() : 1) <= 64",
        otherwise: "parameters make more than 64 runs: give fewer values, or make several suites",
    },
    Rule {
        field: "",
        holds: "self.parameters == oldSelf.parameters && self.onFailure == oldSelf.onFailure",
        otherwise: "spec is immutable except for suspend: create a new suite under a new name",
    },
];

/// A matrix of runs: one for each combination of parameters, one after the other.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "storebench.dev",
    version = "v1alpha1",
    kind = "BenchmarkSuite",
    namespaced,
    status = "BenchmarkSuiteStatus",
    derive = "PartialEq",
    shortname = "benchsuite",
    category = "storebench",
    doc = "A matrix of BenchmarkRuns: one for each combination of parameters, made from a template, one after the other. The spec cannot be changed; make a new suite under a new name. The runs go with their suite.",
    validation = crate::rules::of_names(),
    printcolumn(
        name = "State",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Succeeded\")].reason",
        description = "Running, Suspended, or the gravest verdict of its runs"
    ),
    printcolumn(
        name = "Runs",
        type_ = "string",
        json_path = ".status.progress",
        description = "How many of its runs have ended"
    ),
    printcolumn(name = "Passed", type_ = "integer", json_path = ".status.counts.passed"),
    printcolumn(name = "Failed", type_ = "integer", json_path = ".status.counts.failed"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = Rules(SUITE_RULES))]
pub struct BenchmarkSuiteSpec {
    /// What is varied, 1 to 4 parameters. Each combination of their values is a run, 64 at most; the last parameter varies fastest.
    #[schemars(length(min = 1, max = 4))]
    pub parameters: Vec<Parameter>,

    /// What every run is made from.
    pub template: RunTemplate,

    /// What becomes of the other runs when one has not passed.
    #[serde(default)]
    pub on_failure: OnFailure,

    /// Make no further runs. The one that is under way goes on.
    #[serde(default)]
    pub suspend: bool,
}

/// What is varied.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Parameter {
    /// Its name, unique in the suite, such as `valueBytes`; the template has it as `$(valueBytes)`.
    #[schemars(regex(pattern = PARAMETER_NAME), length(max = 31), extend("example" = "valueBytes"))]
    pub name: String,
    /// Its values, 1 to 16: whole numbers, or texts of at most 32 letters, digits, `-`, `_` and `.`.
    #[schemars(length(min = 1, max = 16))]
    pub values: Vec<ParameterValue>,
}

/// A value of a parameter: a number where the field wants one, or a text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ParameterValue {
    /// A whole number.
    Number(u64),
    /// A text.
    Text(String),
}

impl ParameterValue {
    /// The value where it stands alone.
    pub fn json(&self) -> Value {
        match self {
            Self::Number(number) => Value::from(*number),
            Self::Text(text) => Value::from(text.as_str()),
        }
    }
}

impl std::fmt::Display for ParameterValue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(formatter, "{number}"),
            Self::Text(text) => formatter.write_str(text),
        }
    }
}

impl JsonSchema for ParameterValue {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ParameterValue".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "pattern": PARAMETER_TEXT,
            "maxLength": 32,
            "minimum": 0,
            "maximum": 9_007_199_254_740_991_u64,
            "example": "1024 or fsync",
        })
    }
}

/// What becomes of the other runs when one has not passed: it was Regressed, Inconclusive or Invalid, or had nothing to compare with.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OnFailure {
    /// They run.
    #[default]
    Continue,
    /// They are left out.
    Stop,
}

/// How far a suite has come.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BenchmarkSuiteStatus {
    /// The generation of the spec that this status describes; −1 until it was looked at.
    #[serde(default = "crate::object_status::never_observed")]
    pub observed_generation: i64,
    /// Succeeded, Complete, Reconciling, Stalled, Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::object_status::conditions")]
    pub conditions: Vec<Condition>,
    /// The gravest verdict of its runs, once all have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// What goes on, or what came of it, in one line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// How many runs have ended, of how many, such as `7/12`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub progress: String,
    /// Runs by what became of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<SuiteCounts>,
    /// SHA-256 over the template when the first run was made, first 16 hexadecimal digits: runs of two templates are not one matrix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_hash: Option<String>,
    /// Every run, in the order in which they run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = RUNS_MAX))]
    pub runs: Vec<SuiteRun>,
}

/// Runs by what became of them.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SuiteCounts {
    /// All of them.
    pub total: u32,
    /// Not made yet.
    pub waiting: u32,
    /// Made, and not over.
    pub running: u32,
    /// Over, with every gate met.
    pub passed: u32,
    /// Over otherwise, or deleted before.
    pub failed: u32,
    /// Left out.
    pub skipped: u32,
}

/// One run of a suite.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SuiteRun {
    /// The BenchmarkRun's name.
    pub name: String,
    /// The values of the parameters, in their order, cut where they are long.
    pub values: String,
    /// What became of it.
    pub state: SuiteRunState,
    /// Throughput of the first arm that is not the baseline, relative to the baseline, in the first workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_ratio: Option<String>,
}

/// What became of a run of a suite.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SuiteRunState {
    /// Not made yet.
    Waiting,
    /// Made, and not over.
    Running,
    /// No gate was missed.
    Passed,
    /// At least one gate was missed, beyond noise.
    Regressed,
    /// The trials cannot tell.
    Inconclusive,
    /// The measurement cannot be trusted.
    Invalid,
    /// There was nothing to compare with.
    NoBaseline,
    /// Somebody deleted it before it was over. It is not made again.
    Deleted,
    /// Left out, for an earlier one has not passed.
    Skipped,
}

impl SuiteRunState {
    /// The state of a run that is over.
    pub fn of(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Passed => Self::Passed,
            Verdict::Regressed => Self::Regressed,
            Verdict::Inconclusive => Self::Inconclusive,
            Verdict::Invalid => Self::Invalid,
            Verdict::NoBaseline => Self::NoBaseline,
        }
    }

    /// The verdict of a run that is over; one that was deleted cannot be trusted. `None`: it is not over, or left out.
    pub fn verdict(self) -> Option<Verdict> {
        match self {
            Self::Passed => Some(Verdict::Passed),
            Self::Regressed => Some(Verdict::Regressed),
            Self::Inconclusive => Some(Verdict::Inconclusive),
            Self::Invalid | Self::Deleted => Some(Verdict::Invalid),
            Self::NoBaseline => Some(Verdict::NoBaseline),
            Self::Waiting | Self::Running | Self::Skipped => None,
        }
    }
}
