//! Checks metadata as the API server does for every kind, which the schema of a kind says nothing about.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use regex_lite::Regex;
use serde_json::{Map, Value};

use super::Problem;
use super::structure::{describe, unknown_field};
use super::text::{folded, shorten};

/// What a user writes.
const WRITTEN: [&str; 6] = ["annotations", "finalizers", "labels", "name", "namespace", "ownerReferences"];
/// What the API server adds, so that the output of `kubectl get -o yaml` is accepted.
const ADDED: [&str; 8] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generateName",
    "generation",
    "managedFields",
    "resourceVersion",
    "uid",
];

/// A key of labels and annotations: an optional domain, then a name.
const KEY: &str = r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
/// The value of a label.
const LABEL: &str = r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$";

fn problem(field: impl Into<String>, text: impl Into<String>) -> Problem {
    Problem { field: field.into(), text: text.into() }
}

/// Finds the first problem of an object's metadata.
pub(super) fn check(metadata: Option<&Value>) -> Result<(), Problem> {
    let fields = match metadata {
        Some(Value::Object(fields)) => fields,
        None | Some(Value::Null) => return Err(problem("metadata.name", "is missing: give the object a name")),
        Some(other) => {
            let text = format!("must be an object with a name, not {}", describe(other));
            return Err(problem("metadata", text));
        }
    };
    if let Some(unknown) = fields.keys().find(|key| !WRITTEN.contains(&key.as_str()) && !ADDED.contains(&key.as_str()))
    {
        return Err(unknown_field("metadata", unknown, WRITTEN.to_vec()));
    }
    match fields.get("name") {
        Some(Value::String(name)) => check_name("metadata.name", name)?,
        None | Some(Value::Null) => return Err(problem("metadata.name", "is missing: give the object a name")),
        Some(other) => return Err(must_be_text("metadata.name", other)),
    }
    match fields.get("namespace") {
        Some(Value::String(name)) => check_name("metadata.namespace", name)?,
        None => {}
        Some(other) => return Err(must_be_text("metadata.namespace", other)),
    }
    check_texts("metadata.labels", fields, Some(LABEL))?;
    check_texts("metadata.annotations", fields, None)?;
    serde_json::from_value::<ObjectMeta>(Value::Object(fields.clone()))
        .map(|_| ())
        .map_err(|error| problem("metadata", format!("{}: remove it", folded(&error.to_string()))))
}

fn must_be_text(field: impl Into<String>, found: &Value) -> Problem {
    problem(field, format!("must be a text, not {}: put it in quotes", describe(found)))
}

fn check_name(field: &str, name: &str) -> Result<(), Problem> {
    if is_name(name) {
        return Ok(());
    }
    let name = shorten(name);
    let rule = "use at most 63 of a-z, 0-9 and -, starting and ending with a letter or digit";
    Err(problem(field, format!("`{name}` is not a valid name: {rule}")))
}

/// Whether the API server takes a text as the name of a pod or service, and so of what is deployed as one.
pub(super) fn is_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len()) && name.bytes().all(inner) && !name.starts_with('-') && !name.ends_with('-')
}

/// Labels or annotations: texts by key.
fn check_texts(field: &str, metadata: &Map<String, Value>, values: Option<&str>) -> Result<(), Problem> {
    let texts = match metadata.get(field.trim_start_matches("metadata.")) {
        Some(Value::Object(texts)) => texts,
        None => return Ok(()),
        Some(other) => return Err(problem(field, format!("must be texts by name, not {}", describe(other)))),
    };
    let fits = |pattern: &str, text: &str| Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text));
    let rule = "use at most 63 of a-z, A-Z, 0-9, -, _ and ., starting and ending with a letter or digit";
    for (key, value) in texts {
        let place = format!("{field}.{}", shorten(key));
        if !fits(KEY, key) {
            return Err(problem(place, format!("is not a valid key: {rule}, perhaps after a domain and /")));
        }
        match value {
            Value::String(text) if values.is_none_or(|pattern| fits(pattern, text)) => {}
            Value::String(text) => {
                return Err(problem(place, format!("`{}` is not a valid label: {rule}", shorten(text))));
            }
            other => return Err(must_be_text(place, other)),
        }
    }
    Ok(())
}
