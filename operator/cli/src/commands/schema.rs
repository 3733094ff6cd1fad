//! `storebench schema KIND|result`: JSON Schemas, for editors and for whoever reads results.

use anyhow::bail;
use serde_json::{Map, Value, json};
use service_kit::console;
use storebench_core::report::result_schema;
use storebench_crds::document::KINDS;
use storebench_crds::{GROUP, VERSION, schema};

use super::explain::{did_you_mean, kind_named};
use crate::exit::Exit;

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

pub(crate) fn schema(of: &str) -> anyhow::Result<Exit> {
    let schema = match kind_named(of) {
        _ if of == "result" => result_schema(),
        Some(kind) => of_kind(kind),
        None => {
            let meant = did_you_mean(of, KINDS.into_iter().chain(["result"]));
            bail!("`{of}` has no schema: {meant}write `result` or one of {}", KINDS.join(", "))
        }
    };
    console::print(serde_json::to_string_pretty(&schema)? + "\n")?;
    Ok(Exit::Passed)
}

/// The schema of a kind as editors take it: what users write, and nothing else.
fn of_kind(kind: &str) -> Value {
    let mut schema = schema::of_kind(kind).unwrap_or_default();
    let mut spec = schema["properties"]["spec"].take();
    for_editors(&mut spec);
    if kind == "BenchmarkRun" {
        // A rule in CEL, which editors do not know.
        spec["oneOf"] = json!([{ "required": ["workloads"] }, { "required": ["workloadRefs"] }]);
    }
    json!({
        "$schema": DIALECT,
        "$id": format!("https://{GROUP}/schema/{VERSION}/{}.json", kind.to_lowercase()),
        "title": kind,
        "description": schema["description"],
        "type": "object",
        "properties": {
            "apiVersion": { "const": format!("{GROUP}/{VERSION}") },
            "kind": { "const": kind },
            "metadata": metadata(&schema),
            "spec": spec,
        },
        "required": ["apiVersion", "kind", "metadata", "spec"],
        // `status` is there in what a cluster gives.
        "additionalProperties": true,
    })
}

/// What a pod and a namespace may be called.
const NAME: (&str, &str) = (
    "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
    "At most 63 of a-z, 0-9 and -, starting and ending with a letter or digit.",
);

/// The pattern of an object's name and words for it, from the rule in CEL that its kind has about it.
fn name_rule(schema: &Value) -> Option<(&str, &str)> {
    schema["x-kubernetes-validations"].as_array()?.iter().find_map(|rule| {
        let pattern = rule["rule"].as_str()?.strip_prefix("self.metadata.name.matches('")?.strip_suffix("')")?;
        Some((pattern, rule["message"].as_str()?))
    })
}

fn metadata(schema: &Value) -> Value {
    let name = |(pattern, words): (&str, &str)| json!({ "type": "string", "pattern": pattern, "description": words });
    let own = name(name_rule(schema).unwrap_or(NAME));
    let texts = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    json!({
        "type": "object",
        "properties": {
            "name": own, "namespace": name(NAME), "labels": texts, "annotations": texts,
            "generateName": { "type": "string", "description": "What a generated name begins with." },
        },
        "anyOf": [{ "required": ["name"] }, { "required": ["generateName"] }],
    })
}

/// OpenAPI as JSON Schema: fields that there are not are mistakes, and what only Kubernetes knows is left out.
fn for_editors(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    let is_open = fields.remove("x-kubernetes-preserve-unknown-fields").is_some();
    if fields.remove("x-kubernetes-int-or-string").is_some() {
        int_or_string(fields);
    }
    fields.retain(|name, _| !name.starts_with("x-kubernetes-"));
    if let Some(example) = fields.remove("example") {
        fields.insert("examples".into(), json!([example]));
    }
    if fields.contains_key("properties") && !is_open && !fields.contains_key("additionalProperties") {
        fields.insert("additionalProperties".into(), false.into());
    }
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(for_editors);
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get_mut(inner) {
            for_editors(inner);
        }
    }
}

/// Bounds hold for the number, patterns for the text.
fn int_or_string(fields: &mut Map<String, Value>) {
    let mut number = Map::from_iter([("type".to_owned(), json!("integer"))]);
    let mut text = Map::from_iter([("type".to_owned(), json!("string"))]);
    for name in ["minimum", "maximum"] {
        number.extend(fields.remove(name).map(|value| (name.to_owned(), value)));
    }
    for name in ["pattern", "maxLength", "minLength"] {
        text.extend(fields.remove(name).map(|value| (name.to_owned(), value)));
    }
    fields.remove("format");
    fields.remove("anyOf");
    fields.insert("anyOf".into(), json!([number, text]));
}
