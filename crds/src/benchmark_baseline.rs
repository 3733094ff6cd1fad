//! `BenchmarkBaseline`: what a finished run measured, kept so that later runs can be held against it. Its spec never changes; a new
//! baseline is a new name.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rules::{Rule, Rules};
use crate::status::{Fingerprint, ReportRef, Verdict};

const BASELINE_RULES: &[Rule] = &[Rule {
    field: "",
    holds: "self == oldSelf",
    otherwise: "spec is immutable: create a new baseline under a new name",
}];

/// Which run is kept.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "storebench.dev",
    version = "v1alpha1",
    kind = "BenchmarkBaseline",
    namespaced,
    status = "BenchmarkBaselineStatus",
    derive = "PartialEq",
    shortname = "benchbaseline",
    category = "storebench",
    doc = "What a finished BenchmarkRun measured, kept beyond its deletion. Later runs name it in baselineRef and are held against it. The spec cannot be changed; make a new baseline under a new name.",
    validation = crate::rules::of_names(),
    printcolumn(
        name = "State",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        description = "Kept, RunNotComplete, or why it keeps nothing"
    ),
    printcolumn(name = "Run", type_ = "string", json_path = ".spec.runRef.name"),
    printcolumn(name = "Arms", type_ = "string", json_path = ".status.arms"),
    printcolumn(
        name = "Measured",
        type_ = "date",
        json_path = ".status.measuredAt",
        description = "How long ago the run began"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = Rules(BASELINE_RULES))]
pub struct BenchmarkBaselineSpec {
    /// The BenchmarkRun that is kept. It is waited for until it is complete; one that is Invalid is not kept.
    pub run_ref: RunRef,
}

/// A reference to a BenchmarkRun.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRef {
    /// The BenchmarkRun's name, in the same namespace.
    #[schemars(regex(pattern = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"), length(max = 63), extend("example" = "release-1-4"))]
    pub name: String,
}

/// What a baseline keeps.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BenchmarkBaselineStatus {
    /// The generation of the spec that this status describes; −1 until it was looked at.
    #[serde(default = "crate::object_status::never_observed")]
    pub observed_generation: i64,
    /// Ready, Reconciling, Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::object_status::conditions")]
    pub conditions: Vec<Condition>,
    /// What is kept, or what is waited for, in one line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When the run began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_at: Option<Time>,
    /// The version of storebench that ran it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storebench_version: Option<String>,
    /// What the run was judged by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// The arms' names, in the run's order.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub arms: String,
    /// Where the run ran: what is measured elsewhere is not compared unless that is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Fingerprint>,
    /// The ConfigMap with what was measured, signed by the operator. It goes with the baseline, not with the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figures_ref: Option<ReportRef>,
}
