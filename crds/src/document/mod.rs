//! From the bytes of a file to typed objects, with one clear error for anything that is not one.
//!
//! The same rules as the API server's: structure from the generated schema ([`structure`]), then CEL. Every error names
//! the file, the field and the remedy, in one line. Nothing here reads files; bytes come in as an argument.

mod structure;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{BenchmarkRun, GROUP, StorageService, VERSION, schema};

/// Files above this size are refused, bytes. The API server's own limit for an object is 1.5 MiB.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// Documents in a file above this number are refused.
pub const DOCUMENTS_MAX: usize = 64;

/// One object of a file.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant)]
pub enum Object {
    /// A store to deploy.
    StorageService(StorageService),
    /// A comparison to run.
    BenchmarkRun(BenchmarkRun),
}

/// Why a file, or an object in it, was refused. Displays as `file: field: problem`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {}{problem}", if field.is_empty() { String::new() } else { format!("{field}: ") })]
pub struct InputError {
    /// The file's name.
    pub file: String,
    /// The field, such as `BenchmarkRun/demo spec.arms[0].name`; empty where the file as a whole is meant.
    pub field: String,
    /// What is wrong, and the remedy, in one line.
    pub problem: String,
}

/// A problem at a field, before it is known which file and object it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) field: String,
    pub(crate) text: String,
}

/// Reads all objects of a file.
pub fn parse(file: &str, bytes: &[u8]) -> Result<Vec<Object>, InputError> {
    let whole = |problem: String| InputError {
        file: file.into(),
        field: String::new(),
        problem,
    };
    if bytes.len() > FILE_BYTES_MAX {
        return Err(whole(format!(
            "is larger than {} KiB, which no run needs: pass a smaller file",
            FILE_BYTES_MAX / 1024
        )));
    }
    let text = std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    let text = text.ok_or_else(|| whole("is not text: pass a YAML file in UTF-8".into()))?;
    let options = serde_yaml::options! { with_snippet: false };
    let documents: Vec<Value> = serde_yaml::from_multiple_with_options(text, options).map_err(|error| {
        whole(format!(
            "is not the YAML that was expected: {}",
            one_line(&error.to_string())
        ))
    })?;
    let documents: Vec<Value> = documents.into_iter().filter(|document| !document.is_null()).collect();
    if documents.is_empty() {
        return Err(whole(
            "holds no object: write a BenchmarkRun and its StorageServices".into(),
        ));
    }
    if documents.len() > DOCUMENTS_MAX {
        return Err(whole(format!(
            "holds more than {DOCUMENTS_MAX} objects: split the file"
        )));
    }
    documents
        .into_iter()
        .enumerate()
        .map(|(index, document)| object(file, index, document))
        .collect()
}

/// Folds a message of several lines into one.
fn one_line(text: &str) -> String {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

fn object(file: &str, index: usize, value: Value) -> Result<Object, InputError> {
    let at = |object: &str, problem: Problem| InputError {
        file: file.into(),
        field: [object, problem.field.as_str()]
            .iter()
            .filter(|part| !part.is_empty())
            .copied()
            .collect::<Vec<_>>()
            .join(" "),
        problem: problem.text,
    };
    let document = format!("document {}", index + 1);
    let kind = identify(&value).map_err(|problem| at(&document, problem))?;
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    let label = if name.is_empty() {
        document
    } else {
        format!("{kind}/{name}")
    };
    match kind {
        "StorageService" => typed(kind, value)
            .map(Object::StorageService)
            .map_err(|problem| at(&label, problem)),
        _ => typed(kind, value)
            .map(Object::BenchmarkRun)
            .map_err(|problem| at(&label, problem)),
    }
}

/// The kind, if apiVersion, kind and metadata are ours.
fn identify(value: &Value) -> Result<&'static str, Problem> {
    let problem = |field: &str, text: String| Problem {
        field: field.into(),
        text,
    };
    let fields = value.as_object().ok_or_else(|| {
        problem(
            "",
            "is not an object: start with apiVersion, kind, metadata and spec".into(),
        )
    })?;
    let api_version = format!("{GROUP}/{VERSION}");
    match fields.get("apiVersion").and_then(Value::as_str) {
        Some(found) if found == api_version => {}
        Some(found) => {
            return Err(problem(
                "apiVersion",
                format!("`{}` is not known: write {api_version}", shorten(found)),
            ));
        }
        None => {
            return Err(problem(
                "apiVersion",
                format!("is missing: write apiVersion: {api_version}"),
            ));
        }
    }
    let kind = match fields.get("kind").and_then(Value::as_str) {
        Some("StorageService") => "StorageService",
        Some("BenchmarkRun") => "BenchmarkRun",
        Some(other) => {
            return Err(problem(
                "kind",
                format!(
                    "`{}` is not known: write StorageService or BenchmarkRun",
                    shorten(other)
                ),
            ));
        }
        None => {
            return Err(problem(
                "kind",
                "is missing: write StorageService or BenchmarkRun".into(),
            ));
        }
    };
    let name = fields
        .get("metadata")
        .and_then(|metadata| metadata.get("name"))
        .and_then(Value::as_str);
    let name = name.ok_or_else(|| problem("metadata.name", "is missing: give the object a name".into()))?;
    if !is_dns_label(name) {
        return Err(problem(
            "metadata.name",
            format!(
                "`{}` is not a valid name: use at most 63 of a-z, 0-9 and -, starting and ending with a letter or digit",
                shorten(name)
            ),
        ));
    }
    for key in fields.keys() {
        if !matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "spec" | "status") {
            return Err(problem(
                key,
                "is not a field of an object: the fields are apiVersion, kind, metadata, spec".into(),
            ));
        }
    }
    Ok(kind)
}

fn is_dns_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len()) && name.bytes().all(inner) && !name.starts_with('-') && !name.ends_with('-')
}

/// Cuts user text that is quoted in a message to a readable length.
fn shorten(text: &str) -> String {
    let short: String = text.chars().take(60).collect();
    let short = short.replace(['\n', '\r'], " ");
    if short.len() < text.len() {
        format!("{short}…")
    } else {
        short
    }
}

fn typed<T: DeserializeOwned>(kind: &str, mut value: Value) -> Result<T, Problem> {
    // As on the API server, status is not the user's to write.
    if let Some(fields) = value.as_object_mut() {
        fields.remove("status");
    }
    let schema = schema::of_kind(kind).ok_or_else(|| Problem {
        field: "kind".into(),
        text: format!("{kind} has no schema: this is a defect of storebench"),
    })?;
    structure::check(&schema, &value)?;
    if let Err(errors) = kube::core::cel::Validator::new().validate(&schema, &value, None)
        && let Some(error) = errors.into_iter().next()
    {
        return Err(Problem {
            field: error.field_path.trim_start_matches('.').into(),
            text: one_line(&error.message),
        });
    }
    serde_json::from_value(value).map_err(|error| Problem {
        field: "spec".into(),
        text: one_line(&error.to_string()),
    })
}
