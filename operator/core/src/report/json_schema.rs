//! The form of a report in JSON, as JSON Schema: what `report.json` and `-o json` hold, for whoever reads results elsewhere.

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};
use storebench_crds::GROUP;

use super::Report;
use crate::record::RECORD_VERSION;

/// The schema of one report, or of a list of several. It goes with [`RECORD_VERSION`]: fields may be added within a version, so that what is
/// not known is not refused.
pub fn result_schema() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut report = generator.into_root_schema_for::<Report>().to_value();
    without_kubernetes(&mut report);
    let definitions = report["$defs"].take();
    let mut definitions = match definitions {
        Value::Object(definitions) => definitions,
        _ => serde_json::Map::new(),
    };
    if let Some(report) = report.as_object_mut() {
        report.retain(|name, _| !matches!(name.as_str(), "$schema" | "$defs"));
    }
    if let Some(version) = definitions.get_mut("RunRecord").map(|record| &mut record["properties"]["recordVersion"]) {
        version["const"] = RECORD_VERSION.into();
    }
    definitions.insert("Report".into(), report);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": format!("https://{GROUP}/schema/result-{RECORD_VERSION}.json"),
        "title": format!("storebench result, version {RECORD_VERSION}"),
        "anyOf": [
            { "$ref": "#/$defs/Report" },
            { "type": "array", "items": { "$ref": "#/$defs/Report" } },
        ],
        "$defs": definitions,
    })
}

/// Takes out what only Kubernetes understands.
fn without_kubernetes(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.retain(|name, _| !name.starts_with("x-kubernetes-") && name != "example");
            fields.values_mut().for_each(without_kubernetes);
        }
        Value::Array(items) => items.iter_mut().for_each(without_kubernetes),
        _ => {}
    }
}
