//! `BenchmarkSchedule`: runs or suites by the clock, as a CronJob makes Jobs.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::DurationText;
use crate::rules::{Rule, Rules};
use crate::status::Verdict;
use crate::template::{RunTemplate, SuiteTemplate};

const SCHEDULE_RULES: &[Rule] = &[Rule {
    field: "",
    holds: "has(self.runTemplate) != has(self.suiteTemplate)",
    otherwise: "give exactly one of runTemplate or suiteTemplate",
}];

/// When to make runs, and from what.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "storebench.dev",
    version = "v1alpha1",
    kind = "BenchmarkSchedule",
    namespaced,
    status = "BenchmarkScheduleStatus",
    derive = "PartialEq",
    shortname = "benchschedule",
    category = "storebench",
    doc = "Makes a BenchmarkRun or a BenchmarkSuite by the clock, as a CronJob makes Jobs. What it made goes with it.",
    validation = crate::rules::of_names(),
    printcolumn(name = "Schedule", type_ = "string", json_path = ".spec.schedule"),
    printcolumn(name = "Time Zone", type_ = "string", json_path = ".spec.timeZone"),
    printcolumn(name = "Suspend", type_ = "boolean", json_path = ".spec.suspend"),
    printcolumn(name = "Active", type_ = "string", json_path = ".status.active[*]"),
    printcolumn(name = "Last", type_ = "date", json_path = ".status.lastScheduleTime"),
    printcolumn(name = "Verdict", type_ = "string", json_path = ".status.lastVerdict"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = Rules(SCHEDULE_RULES))]
pub struct BenchmarkScheduleSpec {
    /// When, in the five fields of cron: minute, hour, day of the month, month, day of the week, such as `30 2 * * 1-5`.
    #[schemars(length(min = 1, max = 128))]
    pub schedule: String,

    /// The time zone in which `schedule` is read, such as `Europe/Vienna`. Absent: UTC. An hour that the clock skips has no
    /// runs; of one that comes twice the second has none, unless the field of the hour begins with `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: Option<String>,

    /// What to do while an earlier one is not over.
    #[serde(default)]
    pub concurrency_policy: ConcurrencyPolicy,

    /// How long after its time a run may still begin, where the operator was down or an earlier run was not over.
    #[serde(default = "BenchmarkScheduleSpec::default_starting_deadline")]
    pub starting_deadline: DurationText,

    /// Make nothing. What was missed meanwhile is made up for only within `startingDeadline`.
    #[serde(default)]
    pub suspend: bool,

    /// How many that passed are kept, the newest.
    #[serde(default = "BenchmarkScheduleSpec::default_history_limit")]
    #[schemars(range(min = 0, max = 100))]
    pub successful_history_limit: u32,

    /// How many that did not pass are kept, the newest.
    #[serde(default = "BenchmarkScheduleSpec::default_history_limit")]
    #[schemars(range(min = 0, max = 100))]
    pub failed_history_limit: u32,

    /// What BenchmarkRuns are made from; nothing is put in place of `$(NAME)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_template: Option<RunTemplate>,

    /// What BenchmarkSuites are made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suite_template: Option<SuiteTemplate>,
}

impl BenchmarkScheduleSpec {
    fn default_starting_deadline() -> DurationText {
        DurationText::literal("1h")
    }
    fn default_history_limit() -> u32 {
        3
    }
}

/// What to do while an earlier one is not over.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ConcurrencyPolicy {
    /// Wait for it; what could not begin within `startingDeadline` is left out.
    #[default]
    Forbid,
    /// Delete it, with what it measured.
    Replace,
    /// Make the next one all the same. Runs measure one after the other in any case.
    Allow,
}

/// What a schedule has made.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BenchmarkScheduleStatus {
    /// The generation of the spec that this status describes; −1 until it was looked at.
    #[serde(default = "crate::object_status::never_observed")]
    pub observed_generation: i64,
    /// Ready, Reconciling, Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::object_status::conditions")]
    pub conditions: Vec<Condition>,
    /// What comes next, or what is wrong, in one line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Names of those that are not over, 16 at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub active: Vec<String>,
    /// The time of the last one that was made, by the clock of the schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_schedule_time: Option<Time>,
    /// The time of the next one. Absent: it is suspended, or there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_schedule_time: Option<Time>,
    /// The newest one that is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_completed: Option<String>,
    /// Its verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_verdict: Option<Verdict>,
}
