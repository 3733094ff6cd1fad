//! What suites and schedules make objects from, and what both have in common.
//!
//! The spec inside a template is not described by the schema: a suite puts texts where the schema of a run wants numbers. It is checked
//! in full, by the rules of the kind that it is a template of, by `storebench validate` and by the operator before it makes anything.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What BenchmarkRuns are made from.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunTemplate {
    /// What the runs are labelled with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// The spec of a BenchmarkRun. In a suite, `$(NAME)` stands for the value of the parameter of that name: alone it is the value itself,
    /// within a text a part of it.
    #[schemars(schema_with = "anything")]
    pub spec: Map<String, Value>,
}

/// What BenchmarkSuites are made from.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SuiteTemplate {
    /// What the suites are labelled with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// The spec of a BenchmarkSuite.
    #[schemars(schema_with = "anything")]
    pub spec: Map<String, Value>,
}

/// Metadata of what is made.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMetadata {
    /// Labels, besides those that storebench sets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "labels")]
    pub labels: BTreeMap<String, String>,
}

/// Labels that an object of a suite or schedule has besides its own at most.
pub const LABELS_MAX: usize = 16;

fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

fn labels(_: &mut SchemaGenerator) -> Schema {
    let value = r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$";
    json_schema!({
        "type": "object",
        "maxProperties": LABELS_MAX,
        "additionalProperties": { "type": "string", "maxLength": 63, "pattern": value, "example": "nightly" },
    })
}
