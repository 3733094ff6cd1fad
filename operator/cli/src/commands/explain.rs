//! `storebench explain FIELD`: what the schema says of a field, without a cluster.

use std::fmt::Write as _;

use anyhow::bail;
use serde_json::Value;
use service_kit::console;
use storebench_crds::document::{KINDS, nearest};
use storebench_crds::{Metric, duration, ratio, schema};

use crate::exit::Exit;
use crate::output::{width, wrapped};

/// Below the help: what to type, and what comes next.
pub(crate) const AFTER_HELP: &str = "\
Examples:
  storebench explain benchmarkrun.spec               # every field of a run
  storebench explain benchmarkrun.spec.trials.min    # one of them
  storebench explain storageservice.spec.external    # a store of your own

Prints, and writes nothing. Next:
  storebench validate run.yaml                       # holds a file to all of this
  storebench schema BenchmarkRun > run.schema.json   # the same for an editor";

/// Columns of a description at most: longer lines are hard to read.
const COLUMNS_MAX: usize = 96;

pub(crate) fn explain(field: &str) -> anyhow::Result<Exit> {
    console::print(explained(field, width().min(COLUMNS_MAX))?)?;
    Ok(Exit::Passed)
}

fn explained(field: &str, columns: usize) -> anyhow::Result<String> {
    let mut parts = field.split('.').map(|part| part.split('[').next().unwrap_or_default());
    let written = parts.next().unwrap_or_default();
    let Some(kind) = kind_named(written) else {
        let meant = did_you_mean(written, KINDS);
        bail!("`{written}` is no kind: {meant}begin with one of {}, as in benchmarkrun.spec.trials", KINDS.join(", "));
    };
    let mut schema = schema::of_kind(kind).unwrap_or_default();
    let (mut path, mut is_required) = (String::new(), false);
    for name in parts {
        let inner = inside(&schema);
        let properties = inner["properties"].as_object();
        let Some(found) = properties.and_then(|properties| properties.get(name)) else {
            let known: Vec<&str> = properties.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
            let place = format!("{kind}{path}");
            match known.is_empty() {
                true => bail!("{place} has no fields, so none is named `{name}`"),
                false => {
                    let meant = did_you_mean(name, known.iter().copied());
                    bail!("{place} has no field `{name}`: {meant}its fields are {}", known.join(", "))
                }
            }
        };
        is_required = requires(inner, name);
        schema = match kind_of_template(&path, name) {
            Some(kind) => with_fields_of(kind, found),
            None => found.clone(),
        };
        path = format!("{path}.{name}");
    }
    let mut text = format!("{kind}{path} <{}>{}\n", type_of(&schema), if is_required { ", required" } else { "" });
    let words = words(&schema);
    let metrics: Vec<Metric> = words.iter().copied().filter_map(Metric::named).collect();
    // What each metric is says more than a line of names.
    let one_of = one_of(&words).filter(|_| metrics.is_empty());
    for line in one_of.into_iter().chain(facts(&schema)) {
        paragraph(&mut text, columns, "  ", &line);
    }
    paragraph(&mut text, columns, "", schema["description"].as_str().unwrap_or_default());
    rules(&mut text, columns, &schema);
    if !metrics.is_empty() {
        text.push_str("\nMETRICS\n");
    }
    for metric in metrics {
        paragraph(&mut text, columns, "  ", &format!("{}: {}", metric.name, metric.about));
    }
    let inner = inside(&schema);
    if let Some(properties) = inner["properties"].as_object().filter(|properties| !properties.is_empty()) {
        text.push_str("\nFIELDS\n");
        // Every object has both; deeper down `kind` is a field like others.
        let is_object = properties.contains_key("apiVersion");
        let is_shown = |name: &str| !is_object || !matches!(name, "apiVersion" | "kind");
        for (name, property) in properties.iter().filter(|(name, _)| is_shown(name)) {
            let required = if requires(inner, name) { ", required" } else { "" };
            writeln!(text, "  {name} <{}>{required}", type_of(property))?;
            let description = property["description"].as_str().unwrap_or_default();
            let first = description.split_inclusive(". ").next().unwrap_or_default();
            paragraph(&mut text, columns, "      ", first.trim_end());
            let place = format!("{kind}{path}.{name}");
            paragraph(&mut text, columns, "      ", &in_short(&place, property).join("; "));
        }
    }
    Ok(text)
}

/// What was probably meant, as the beginning of a remedy; empty where nothing is near.
pub(super) fn did_you_mean<'a>(written: &str, words: impl IntoIterator<Item = &'a str>) -> String {
    nearest(written, words).map_or_else(String::new, |meant| format!("did you mean {meant}? Else "))
}

/// A kind as `kubectl` takes it: in any case, and in the plural.
pub(super) fn kind_named(written: &str) -> Option<&'static str> {
    let lower = written.to_lowercase();
    KINDS.into_iter().find(|kind| {
        let kind = kind.to_lowercase();
        lower == kind || lower == format!("{kind}s")
    })
}

/// Of what kind a spec inside a template is: the schema leaves it open, for a suite puts texts where numbers belong.
fn kind_of_template(path: &str, name: &str) -> Option<&'static str> {
    match path.rsplit('.').next() {
        Some("template" | "runTemplate") if name == "spec" => Some("BenchmarkRun"),
        Some("suiteTemplate") if name == "spec" => Some("BenchmarkSuite"),
        _ => None,
    }
}

/// A spec of a template, with its own words and the fields of its kind.
fn with_fields_of(kind: &str, template: &Value) -> Value {
    let mut spec = schema::of_kind(kind).unwrap_or_default()["properties"]["spec"].clone();
    if template["description"].is_string() {
        spec["description"] = template["description"].clone();
    }
    spec
}

/// What has the fields: of a list its items.
fn inside(schema: &Value) -> &Value {
    if schema["type"] == "array" { &schema["items"] } else { schema }
}

fn requires(schema: &Value, name: &str) -> bool {
    schema["required"].as_array().is_some_and(|required| required.iter().any(|one| one == name))
}

fn type_of(schema: &Value) -> String {
    if schema["x-kubernetes-int-or-string"] == true {
        return "integer or text".into();
    }
    match schema["type"].as_str() {
        Some("array") => format!("list of {}", type_of(&schema["items"])),
        Some("object") if schema["additionalProperties"].is_object() => {
            format!("{} by name", type_of(&schema["additionalProperties"]))
        }
        Some("string") if schema["pattern"] == duration::PATTERN => "duration".into(),
        Some("string") if schema["pattern"] == ratio::PATTERN => "ratio".into(),
        Some("string") if schema["enum"].is_array() => "word".into(),
        Some("string") => "text".into(),
        Some(other) => other.into(),
        None => "anything".into(),
    }
}

/// The words to choose from, where a value, or each of a list, is one of some.
fn words(schema: &Value) -> Vec<&str> {
    let words = schema["enum"].as_array().or_else(|| inside(schema)["enum"].as_array());
    words.into_iter().flatten().filter_map(Value::as_str).collect()
}

fn one_of(words: &[&str]) -> Option<String> {
    (!words.is_empty()).then(|| format!("one of {}", words.join(", ")))
}

/// What a value may be besides one of some words, one fact to a line.
fn facts(schema: &Value) -> Vec<String> {
    let mut facts = Vec::new();
    let number = |value: &Value| value.as_f64().map(|number| format!("{number:.0}"));
    let mut between = |least: &str, most: &str, of: &str| match (number(&schema[least]), number(&schema[most])) {
        (Some(least), Some(most)) => facts.push(format!("{least} to {most}{of}")),
        (Some(least), None) => facts.push(format!("{least}{of} at least")),
        (None, Some(most)) => facts.push(format!("{most}{of} at most")),
        (None, None) => {}
    };
    between("minimum", "maximum", "");
    between("minItems", "maxItems", " items");
    if type_of(schema) == "text" {
        between("minLength", "maxLength", " characters");
    }
    if type_of(schema) == "duration" {
        facts.push(format!("a whole number and a unit, as in {}", duration::EXAMPLE));
    }
    if let Some(example) = schema["example"].as_str() {
        facts.push(format!("as in {example}"));
    }
    let default = &schema["default"];
    match default {
        Value::Null | Value::Object(_) => {}
        Value::Array(items) if items.is_empty() => facts.push("absent: none".into()),
        Value::String(text) if text.is_empty() => facts.push("absent: empty".into()),
        Value::String(text) => facts.push(format!("absent: {text}")),
        other => facts.push(format!("absent: {other}")),
    }
    facts
}

/// As many words are listed where there are other fields, too.
const WORDS_MAX: usize = 12;

/// What a field may be, for a list of fields: what fits there.
fn in_short(place: &str, schema: &Value) -> Vec<String> {
    let words = words(schema);
    let one_of = match words.len() > WORDS_MAX {
        true => Some(format!("one of {}, which storebench explain {place} lists", words.len())),
        false => one_of(&words),
    };
    let mut facts: Vec<String> = one_of.into_iter().chain(facts(schema)).collect();
    if !matches!(schema["type"].as_str(), Some("object" | "array")) {
        facts.extend(messages(schema).into_iter().map(str::to_owned));
    }
    facts
}

/// What rules say to whoever breaks them, each once, without the remedy that is only for those: to remove something.
fn messages(schema: &Value) -> Vec<&str> {
    let mut said: Vec<&str> = Vec::new();
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let message = rule["message"].as_str().map(|message| {
            let remedy = [", or remove ", "; remove "].into_iter().find_map(|words| message.split_once(words));
            remedy.map_or(message, |(rule, _)| rule)
        });
        said.extend(message.filter(|message| !said.contains(message)));
    }
    said
}

/// What else must hold, in the words of whoever breaks it.
fn rules(text: &mut String, columns: usize, schema: &Value) {
    let said = messages(schema);
    if !said.is_empty() {
        text.push_str("\nRULES\n");
        said.into_iter().for_each(|message| paragraph(text, columns, "  ", message));
    }
}

/// Words in lines of bounded width.
fn paragraph(text: &mut String, columns: usize, indent: &str, words: &str) {
    text.push_str(&wrapped(indent, indent, words, columns));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(field: &str) -> anyhow::Result<String> {
        super::explained(field, COLUMNS_MAX)
    }

    /// It was said to have no fields.
    #[test]
    fn a_spec_inside_a_template_has_the_fields_of_its_kind() {
        for (field, kind) in [
            ("benchmarksuite.spec.template.spec", "BenchmarkSuite.spec.template.spec"),
            ("benchmarkschedule.spec.runTemplate.spec", "BenchmarkSchedule.spec.runTemplate.spec"),
            (
                "benchmarkschedule.spec.suiteTemplate.spec.template.spec",
                "BenchmarkSchedule.spec.suiteTemplate.spec.template.spec",
            ),
        ] {
            let arms = explained(&format!("{field}.arms")).unwrap();
            assert!(
                arms.starts_with(&format!("{kind}.arms <list of object>")) && arms.contains("serviceRef"),
                "{arms}"
            );
            assert!(explained(field).unwrap().contains("\n  workloads <list of object>"), "{field}");
        }
    }

    #[test]
    fn lines_are_as_wide_as_the_terminal() {
        for field in ["benchmarkrun.spec", "benchmarkrun.spec.gates.metric", "storageservice.spec.engine"] {
            let text = super::explained(field, 60).unwrap();
            // A line may hold one word that is longer.
            let is_wide = |line: &&str| line.chars().count() > 60 && line.split_whitespace().count() > 1;
            assert_eq!(text.lines().find(is_wide), None, "{text}");
        }
    }

    #[test]
    fn a_field_is_found_however_it_is_written() {
        let text = explained("benchmarkruns.spec.arms[0].name").unwrap();
        assert!(text.starts_with("BenchmarkRun.spec.arms.name <text>, required\n"), "{text}");
        assert!(text.contains("as in etcd-fsync"), "{text}");
        let trials = explained("BenchmarkRun.spec.trials.min").unwrap();
        assert!(trials.contains("1 to 30") && trials.contains("absent: 6"), "{trials}");
        let rules = explained("benchmarksuite.spec").unwrap();
        assert!(rules.contains("parameters must have distinct names") && rules.contains("onFailure <word>"), "{rules}");
        let rules = explained("benchmarkrun.spec.workloads.sqliteReplication").unwrap();
        assert!(rules.contains("\n  increments needs operation: Restore\n"), "{rules}");
        assert!(!rules.contains("remove"), "remedies are for who breaks a rule: {rules}");
    }

    /// Whoever reads a list of fields should not have to ask for each of them what it may be, and what it is where it is left out.
    #[test]
    fn fields_are_listed_with_what_they_may_be_and_what_they_are_where_they_are_absent() {
        let trials = explained("benchmarkrun.spec.trials").unwrap();
        let of = |name: &str| {
            let (_, rest) = trials.split_once(&format!("\n  {name} <")).unwrap_or_else(|| panic!("{name}: {trials}"));
            rest.lines().skip(1).take_while(|line| line.starts_with("      ")).collect::<String>()
        };
        assert!(of("min").ends_with("1 to 30; absent: 6"), "{trials}");
        assert!(of("timeout").contains("absent: ") && of("timeout").contains("500ms, 5s, 2m or 1h"), "{trials}");
        let service = explained("storageservice.spec").unwrap();
        assert!(service.contains("      one of Fsync, Interval, None; absent: Fsync\n"), "{service}");
        assert!(explained("benchmarkrun.spec").unwrap().contains("1 to 4 items"));
    }

    #[test]
    fn each_metric_has_a_line_that_says_what_it_is() {
        let text = super::explained("benchmarkrun.spec.gates.metric", usize::MAX).unwrap();
        for metric in Metric::all() {
            let line = format!("\n  {}: {}\n", metric.name, metric.about);
            assert!(text.contains(&line), "{metric:?}: {text}");
        }
        assert!(!text.contains("one of "), "{text}");
        let gates = explained("benchmarkrun.spec.gates").unwrap();
        assert!(gates.contains("as in 5000 or 5ms"), "{gates}");
    }

    #[test]
    fn every_field_of_every_kind_can_be_explained() {
        fn walk(path: &str, schema: &Value) {
            explained(path).unwrap_or_else(|error| panic!("{path}: {error}"));
            for (name, property) in inside(schema)["properties"].as_object().into_iter().flatten() {
                walk(&format!("{path}.{name}"), property);
            }
        }
        for kind in KINDS {
            // Types of Kubernetes itself are deep and many.
            let mut schema = schema::of_kind(kind).unwrap();
            if let Some(spec) = schema["properties"]["spec"]["properties"].as_object_mut() {
                spec.remove("pod");
            }
            walk(kind, &schema);
        }
    }

    #[test]
    fn what_is_not_there_is_answered_with_what_is() {
        let error = |field: &str| explained(field).unwrap_err().to_string();
        assert!(error("pod.spec").contains("BenchmarkSuite, BenchmarkSchedule"));
        assert!(error("benchmarkrun.spec.arm").contains("did you mean arms? Else its fields are allowUnequal, arms, "));
        assert!(error("benchmarkrun.spec.trails").contains("`trails`: did you mean trials? Else its fields are "));
        assert!(error("benchmarkrum.spec").contains("did you mean BenchmarkRun? Else begin with"));
        assert!(error("benchmarkrun.spec.suspend.x").contains("has no fields"));
    }
}
