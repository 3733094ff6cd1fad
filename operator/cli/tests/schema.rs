//! What storebench prints as JSON Schema: real results fit it, what is none does not, and files that `validate` takes fit those of kinds.
//! The schema of results is checked in, so that a change of it is seen:
//! `UPDATE_SCHEMA=1 cargo test -p storebench --test schema` rewrites it.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod finished;
#[allow(dead_code)]
mod world;

use std::path::{Path, PathBuf};

use finished::Finished;
use serde_json::{Value, json};
use storebench_core::report::result_schema;
use world::{World, two_arms};

fn schema_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/result-1.json")
}

#[test]
fn the_schema_is_what_is_checked_in() {
    let generated = serde_json::to_string_pretty(&result_schema()).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::create_dir_all(schema_file().parent().unwrap()).unwrap();
        std::fs::write(schema_file(), &generated).unwrap();
    }
    let checked_in = std::fs::read_to_string(schema_file()).unwrap_or_default();
    assert!(
        checked_in == generated,
        "docs/schema/result-1.json has drifted: run UPDATE_SCHEMA=1 cargo test -p storebench --test schema; where a reader of \
         version 1 would be wrong, raise RECORD_VERSION"
    );
}

/// What a schema may say here. What is not among these would not be checked, so that it is a failure.
const KNOWN: [&str; 28] = [
    "$schema",
    "$id",
    "$defs",
    "$ref",
    "title",
    "description",
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "anyOf",
    "oneOf",
    "allOf",
    "enum",
    "const",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "format",
    "default",
    "pattern",
    "examples",
    "maxProperties",
    "uniqueItems",
];

/// Why a value does not fit a schema; a reading of JSON Schema 2020-12 as far as ours goes.
fn misfit(root: &Value, schema: &Value, value: &Value, path: &str) -> Option<String> {
    let Some(says) = schema.as_object() else {
        return (schema != &json!(true)).then(|| format!("{path}: nothing fits {schema}"));
    };
    if let Some(unknown) = says.keys().find(|word| !KNOWN.contains(&word.as_str())) {
        panic!("{path}: teach this test `{unknown}`");
    }
    let fits = |schema: &Value| misfit(root, schema, value, path).is_none();
    let number = |word: &str| says.get(word).and_then(Value::as_f64);
    let is_type = |wanted: &str| match wanted {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{path}: no type is named {other}"),
    };
    let types: Vec<&str> = match says.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !types.is_empty() && !types.iter().any(|one| is_type(one)) {
        return Some(format!("{path}: {value} is no {types:?}"));
    }
    if let Some(target) = says.get("$ref").and_then(Value::as_str) {
        let target =
            root.pointer(target.trim_start_matches('#')).unwrap_or_else(|| panic!("{path}: {target} leads nowhere"));
        if let Some(why) = misfit(root, target, value, path) {
            return Some(why);
        }
    }
    let all = |word: &str| says.get(word).and_then(Value::as_array);
    if let Some(why) = all("allOf").into_iter().flatten().find_map(|one| misfit(root, one, value, path)) {
        return Some(why);
    }
    if all("anyOf").is_some_and(|any| !any.iter().any(fits)) {
        let whys: Vec<_> = all("anyOf").unwrap().iter().filter_map(|one| misfit(root, one, value, path)).collect();
        return Some(whys.join("; or "));
    }
    if all("oneOf").is_some_and(|one| one.iter().filter(|one| fits(one)).count() != 1) {
        return Some(format!("{path}: {value} is not one of oneOf"));
    }
    if all("enum").is_some_and(|values| !values.contains(value)) || says.get("const").is_some_and(|one| one != value) {
        return Some(format!("{path}: {value} is not allowed"));
    }
    let size = |of: f64, least: &str, most: &str| {
        number(least).is_some_and(|least| of < least) || number(most).is_some_and(|most| of > most)
    };
    let is_out = match value {
        Value::Number(_) => size(value.as_f64().unwrap(), "minimum", "maximum"),
        Value::String(text) => {
            let pattern = says.get("pattern").and_then(Value::as_str);
            size(text.chars().count() as f64, "minLength", "maxLength")
                || pattern.is_some_and(|pattern| !regex_lite::Regex::new(pattern).unwrap().is_match(text))
        }
        Value::Array(items) => {
            let is_twice = |(index, item): (usize, &Value)| items[..index].contains(item);
            size(items.len() as f64, "minItems", "maxItems")
                || (says.get("uniqueItems") == Some(&json!(true)) && items.iter().enumerate().any(is_twice))
        }
        Value::Object(fields) => size(fields.len() as f64, "minProperties", "maxProperties"),
        _ => false,
    };
    if is_out {
        return Some(format!("{path}: {value} is out of bounds"));
    }
    if let (Some(items), Value::Array(values)) = (says.get("items"), value) {
        let mut items =
            values.iter().enumerate().map(|(index, one)| misfit(root, items, one, &format!("{path}[{index}]")));
        return items.find_map(|why| why);
    }
    let Value::Object(fields) = value else { return None };
    if let Some(missing) =
        all("required").into_iter().flatten().find(|name| !fields.contains_key(name.as_str().unwrap()))
    {
        return Some(format!("{path}: {missing} is missing"));
    }
    let known = says.get("properties").and_then(Value::as_object);
    fields.iter().find_map(|(name, value)| {
        let inner = known.and_then(|known| known.get(name)).or_else(|| says.get("additionalProperties"));
        inner.and_then(|inner| misfit(root, inner, value, &format!("{path}.{name}")))
    })
}

fn generated() -> String {
    let workloads = "  - name: set
    redis: { command: Set }
    load: { connections: 5, total: 500, warmUp: 0s }
  - name: timetable
    redis: { command: Get, keySpace: 100 }
    load: { connections: 2, duration: 300ms, warmUp: 0s, mode: OpenLoop, rate: 200 }";
    let run = two_arms("schema", workloads).replace("{ name: schema }", "{ generateName: schema- }");
    run + "  gates: [{ arm: valkey, metric: ThroughputPerSecond, workload: set, ratioAtLeast: 10%, onInconclusive: Warn }]\n"
}

fn why(schema: &Value, value: &Value) -> Option<String> {
    misfit(schema, schema, value, "")
}

#[test]
fn real_results_fit_the_schema_and_what_is_none_does_not() {
    let world = World::new();
    let schema = result_schema();
    let printed = Finished::of(world.storebench().args(["schema", "result"]).output().unwrap());
    assert_eq!(serde_json::from_str::<Value>(&printed.stdout).unwrap(), schema);
    // What a busy machine makes of it is a result, too: nobody waits for quiet.
    let mut command = world.storebench();
    command.arg("run").arg(world.write("run.yaml", &generated())).args(["-o", "json", "--wait-for-quiet", "0s"]);
    let good = Finished::of(command.output().unwrap()).report();
    world.assert_nothing_is_left();
    assert_eq!(good["record"]["name"], "schema", "what has only a generateName is kept under it");
    let trials = good["record"]["trials"].as_array().unwrap();
    assert!(trials.iter().filter(|trial| !trial["workloads"].as_array().unwrap().is_empty()).count() >= 6);
    assert_eq!(why(&schema, &good), None);
    assert_eq!(why(&schema, &json!([good, good])), None);
    let wrong = |pointer: &str, value: Value| {
        let mut report = good.clone();
        *report.pointer_mut(pointer).unwrap() = value;
        why(&schema, &report).unwrap_or_else(|| panic!("{pointer} may be anything"))
    };
    assert!(wrong("/record/recordVersion", json!(2)).contains("recordVersion"));
    assert!(wrong("/judgement/verdict", json!("Excellent")).contains("verdict"));
    assert!(wrong("/record/trials/0/startedMillis", json!(-1)).contains("startedMillis"));
    assert!(wrong("/record/trials/0/workloads/0/summary", json!({})).contains("is missing"));
    // A machine that is too busy for a comparison has none.
    if !good["judgement"]["comparisons"].as_array().unwrap().is_empty() {
        assert!(wrong("/judgement/comparisons/0/metric", json!("Speed")).contains("metric"));
    }
    assert!(why(&schema, &json!({})).is_some());
}

fn of_kind(world: &World, kind: &str) -> Value {
    let printed = Finished::of(world.storebench().args(["schema", kind]).output().unwrap());
    assert_eq!(printed.code, Some(0), "{}", printed.stderr);
    serde_json::from_str(&printed.stdout).unwrap()
}

#[test]
fn what_validate_takes_fits_the_schemas_of_kinds_and_slips_do_not() {
    let world = World::new();
    let good = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/tests/good_input");
    let mut count = 0;
    for entry in std::fs::read_dir(good).unwrap().flatten() {
        let text = std::fs::read_to_string(entry.path()).unwrap();
        let options = serde_yaml::options! { emit_comments: false };
        for object in serde_yaml::from_multiple_with_options::<Value>(&text, options).unwrap() {
            let kind = object["kind"].as_str().unwrap();
            assert_eq!(why(&of_kind(&world, kind), &object), None, "{}", entry.path().display());
            count += 1;
        }
    }
    assert!(count >= 15, "{count}");
    let schema = of_kind(&world, "benchmarkrun");
    let run = |spec: Value| {
        let metadata = json!({ "name": "a" });
        json!({ "apiVersion": "storebench.dev/v1alpha1", "kind": "BenchmarkRun", "metadata": metadata, "spec": spec })
    };
    let load = json!({ "duration": "5s" });
    let workload = json!({ "name": "put", "etcd": { "operation": "Put" }, "load": load });
    let arm = json!({ "name": "etcd", "serviceRef": { "name": "etcd" } });
    assert_eq!(why(&schema, &run(json!({ "arms": [arm], "workloads": [workload] }))), None);
    for (spec, part) in [
        (json!({ "arms": [arm], "workloads": [workload], "arm": 1 }), "nothing fits"),
        (json!({ "workloads": [workload] }), "is missing"),
        (json!({ "arms": [arm] }), "is not one of oneOf"),
        (json!({ "arms": [arm], "workloads": [workload], "workloadRefs": [{ "name": "put" }] }), "is not one of oneOf"),
        (json!({ "arms": [], "workloads": [workload] }), "out of bounds"),
        (json!({ "arms": [arm], "workloads": [workload], "isolation": "Fersh" }), "not allowed"),
        (json!({ "arms": [arm], "workloads": [workload], "trials": { "timeout": "5" } }), "out of bounds"),
    ] {
        let said = why(&schema, &run(spec.clone())).unwrap_or_else(|| panic!("{spec} fits"));
        assert!(said.contains(part), "{said}");
    }
    let template = |letters: usize| {
        let spec = json!({ "etcd": { "operation": "Put" }, "load": load });
        let metadata = json!({ "name": "a".repeat(letters) });
        json!({ "apiVersion": "storebench.dev/v1alpha1", "kind": "WorkloadTemplate", "metadata": metadata, "spec": spec })
    };
    let schema = of_kind(&world, "workloadtemplate");
    assert_eq!(why(&schema, &template(40)), None);
    assert!(why(&schema, &template(41)).unwrap().contains("metadata.name"), "workloads have no longer names");
    let unknown = Finished::of(world.storebench().args(["schema", "Pod"]).output().unwrap());
    unknown.error(&["`Pod` has no schema: write `result` or one of StorageService"]);
}
