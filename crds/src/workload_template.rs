//! `WorkloadTemplate`: a workload that several runs share. Who names it gets it as it is when the run begins, so it may be changed at any time:
//! what was measured stands in the record of the run.
//!
//! It is not called Workload: Kueue has a kind of that name, and Kubernetes calls so whatever runs in pods.

use std::borrow::Cow;

use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::benchmark_run::NAME_PATTERN;
use crate::workload::{Load, Parameters, Workload};

/// A workload without its name, which is that of the object.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "storebench.dev",
    version = "v1alpha1",
    kind = "WorkloadTemplate",
    namespaced,
    derive = "PartialEq",
    shortname = "benchworkload",
    category = "storebench",
    doc = "One workload that several BenchmarkRuns share: they name it in workloadRefs, and it has its own name in them. A run takes it as it is when the run begins; a later change changes neither that run nor what is kept of it.",
    validation = of_names(),
    printcolumn(
        name = "Connections",
        type_ = "integer",
        json_path = ".spec.load.connections",
        description = "Connections to the store"
    ),
    printcolumn(name = "Duration", type_ = "string", json_path = ".spec.load.duration"),
    printcolumn(name = "Total", type_ = "integer", json_path = ".spec.load.total"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(try_from = "Map<String, Value>", into = "Map<String, Value>")]
pub struct WorkloadTemplateSpec {
    /// What is asked for.
    pub parameters: Parameters,
    /// How much, for how long, how fast.
    pub load: Load,
}

/// The rule about its name: that of a workload.
fn of_names() -> kube::core::cel::Rule {
    kube::core::cel::Rule::new(format!("self.metadata.name.matches('{NAME_PATTERN}')"))
        .message("metadata.name must be at most 40 of a-z, 0-9 and -, starting and ending with a letter or digit: workloads have no longer names")
}

impl WorkloadTemplateSpec {
    /// The workload, under this name.
    pub fn named(&self, name: &str) -> Workload {
        Workload { name: name.into(), parameters: self.parameters.clone(), load: self.load.clone() }
    }
}

impl TryFrom<Map<String, Value>> for WorkloadTemplateSpec {
    type Error = serde_json::Error;

    fn try_from(mut written: Map<String, Value>) -> Result<Self, serde_json::Error> {
        written.insert("name".into(), "".into());
        let Workload { parameters, load, .. } = serde_json::from_value(Value::Object(written))?;
        Ok(Self { parameters, load })
    }
}

impl From<WorkloadTemplateSpec> for Map<String, Value> {
    fn from(spec: WorkloadTemplateSpec) -> Self {
        // A workload is an object, and can always be written.
        let written = serde_json::to_value(spec.named("")).unwrap_or_default();
        let mut written = if let Value::Object(written) = written { written } else { Map::new() };
        written.remove("name");
        written
    }
}

impl JsonSchema for WorkloadTemplateSpec {
    fn schema_name() -> Cow<'static, str> {
        "WorkloadTemplateSpec".into()
    }

    /// The schema of a workload, rules included, without its name.
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Workload::json_schema(generator);
        if let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            fields.remove("name");
        }
        if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|field| field != "name");
        }
        schema
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_template_is_a_workload_without_a_name() {
        let written = json!({ "redis": { "command": "Set", "valueBytes": 1024 }, "load": { "connections": 64, "duration": "5s" } });
        let spec: WorkloadTemplateSpec = serde_json::from_value(written.clone()).unwrap();
        let mut inline = written;
        inline["name"] = "agreed".into();
        assert_eq!(spec.named("agreed"), serde_json::from_value::<Workload>(inline).unwrap());
        let back = serde_json::to_value(&spec).unwrap();
        assert_eq!((back.get("name"), &back["redis"]["valueBytes"]), (None, &json!(1024)));
        assert_eq!(serde_json::from_value::<WorkloadTemplateSpec>(back).unwrap(), spec);
    }
}
