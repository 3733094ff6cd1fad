//! The reference for readers: every field, family, metric and engine as Markdown, made of the same schema, facts, descriptors and rows that
//! everything else is made of. Checked in as `docs/reference.md`.

use std::fmt::Write as _;

use serde_json::Value;

use crate::engine::ENGINES;
use crate::metric::{Direction, Metric, OverTrials, Unit};
use crate::workload::{Api, Family};
use crate::{duration, ratio, schema};

/// Fields whose types are Kubernetes' own: it explains what is in them.
const OF_KUBERNETES: [&str; 4] = ["env", "resources", "affinity", "tolerations"];

/// The document.
pub fn markdown() -> String {
    let mut text = String::from(
        "# Reference\n\n\
         Every field that a user writes, every family of workloads, every metric and every engine. Written by\n\
         `make generate` from the compiled schema; what several fields must be together is in the\n\
         CEL rules of [crds/yaml/](../crds/yaml/), and `storebench validate` says it of a file.\n",
    );
    let _ = write!(
        text,
        "\nA duration is a whole number and a unit: {}. Bounds of gates take up to three decimals, too, as 1.5ms.\n",
        duration::EXAMPLE
    );
    for definition in schema::definitions() {
        let kind = &definition.spec.names.kind;
        let schema = schema::of_kind(kind).unwrap_or_default();
        let spec = &schema["properties"]["spec"];
        let _ = write!(text, "\n## {kind}\n\n{}\n", words(&schema));
        let mut rows = Vec::new();
        let families: Vec<&str> = Family::ALL.iter().map(|family| family.field()).collect();
        fields("spec", spec, &mut rows, &|path| !is_of_family(path, &families));
        table(&mut text, &rows);
    }
    text += "\n## Families of workloads\n\nA workload has exactly one of these fields beside `name` and `load`.\n";
    let run = schema::of_kind("BenchmarkRun").unwrap_or_default();
    let workload = &run["properties"]["spec"]["properties"]["workloads"]["items"]["properties"];
    for family in Family::ALL {
        let field = family.field();
        let schema = &workload[field];
        let loads: Vec<String> = family.facts().loads.iter().map(|api| loaded(*api)).collect();
        let _ = write!(text, "\n### `{field}`\n\n{} It loads {}.\n", words(schema), loads.join("; "));
        let mut rows = Vec::new();
        fields(field, schema, &mut rows, &|_| true);
        table(&mut text, &rows);
        let own: Vec<Metric> = Metric::all().filter(|metric| metric.family() == Some(*family)).collect();
        if !own.is_empty() {
            text += "\nWhat only these workloads measure:\n";
            metrics(&mut text, own.into_iter());
        }
    }
    text += "\n## Metrics\n\nWhat every workload may measure. All can be gated (`gates[].metric`) and are compared as ratios to the baseline.\n";
    metrics(&mut text, Metric::all().filter(|metric| metric.family().is_none() && !metric.is_of_faults()));
    text += "\nWhat is measured where a workload has a fault (`load.fault`, or operation Failover of `keyValue`):\n";
    metrics(&mut text, Metric::all().filter(|metric| metric.is_of_faults()));
    engines(&mut text);
    text
}

/// What can be loaded through an API, by the names that `engine` has for it.
fn loaded(api: Api) -> String {
    if api == Api::Kubernetes {
        return "what an arm names as `controlPlaneRef` or `kubeconfigSecretRef`".into();
    }
    let engines: Vec<_> = ENGINES.iter().filter(|engine| engine.protocol.api() == Some(api)).collect();
    let mut protocols: Vec<&str> = engines.iter().map(|engine| engine.protocol.name()).collect();
    protocols.dedup();
    let engines: Vec<String> = engines.iter().map(|engine| format!("`{:?}`", engine.kind)).collect();
    format!("{} (protocol {})", engines.join(", "), protocols.join(", "))
}

/// A field as a row: its path, its type, its default, what it is.
struct Row {
    path: String,
    kind: String,
    default: String,
    about: String,
}

/// The fields below a path, each before those in it, in alphabetical order, of which a place can be left out.
fn fields(path: &str, schema: &Value, rows: &mut Vec<Row>, is_shown: &dyn Fn(&str) -> bool) {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let is_list = property["type"] == "array";
        let path = format!("{path}.{name}{}", if is_list { "[]" } else { "" });
        if !is_shown(&path) {
            continue;
        }
        let default = match &property["default"] {
            Value::Null if required.contains(&name.as_str()) => "required".to_owned(),
            Value::Null => String::new(),
            Value::String(text) => format!("`{text}`"),
            // What its fields are by default stands at them.
            Value::Object(_) => String::new(),
            other => format!("`{other}`"),
        };
        rows.push(Row { kind: kind(property), default, about: words(property), path: path.clone() });
        if !OF_KUBERNETES.contains(&name.as_str()) {
            fields(&path, if is_list { &property["items"] } else { property }, rows, is_shown);
        }
    }
}

fn is_of_family(path: &str, families: &[&str]) -> bool {
    // That of a run, and that of a template.
    let rest = path.strip_prefix("spec.workloads[].").or(path.strip_prefix("spec."));
    rest.is_some_and(|rest| families.contains(&rest))
}

/// What may stand there: a type, its bounds, or the words to choose from.
fn kind(property: &Value) -> String {
    if property["x-kubernetes-int-or-string"] == true {
        return "number or text".into();
    }
    match property["pattern"].as_str() {
        Some(duration::PATTERN) => return "duration".into(),
        Some(ratio::PATTERN) => return format!("ratio: {}", ratio::EXAMPLE),
        _ => {}
    }
    let of = match property["type"].as_str() {
        Some("array") => return format!("list of {}", plural(&kind(&property["items"]))),
        Some("integer") => "number",
        Some("boolean") => "true or false",
        Some("object") => "object",
        _ => "text",
    };
    if let Some(words) = property["enum"].as_array() {
        let words: Vec<String> = words.iter().filter_map(Value::as_str).map(|word| format!("`{word}`")).collect();
        // Metrics have a table of their own.
        let is_metric = words.iter().any(|word| word == "`ThroughputPerSecond`");
        return if is_metric { "a metric".into() } else { words.join(", ") };
    }
    let bound = |name: &str| property[name].as_f64().map(|bound| format!("{bound}"));
    match (bound("minimum"), bound("maximum")) {
        (Some(low), Some(high)) => format!("{of}, {low} to {high}"),
        (Some(low), None) => format!("{of}, {low} or more"),
        (None, Some(high)) => format!("{of}, {high} or less"),
        (None, None) => of.to_owned(),
    }
}

fn plural(kind: &str) -> String {
    match kind {
        "text" => "texts".into(),
        "object" => "objects".into(),
        other => other.into(),
    }
}

/// The description as one line that does not end its cell.
fn words(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

fn table(text: &mut String, rows: &[Row]) {
    *text += "\n| field | what may stand there | default | what it is |\n| --- | --- | --- | --- |\n";
    for Row { path, kind, default, about } in rows {
        let path = path.strip_prefix("spec.").unwrap_or(path);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `{path}` | {kind} | {default} | {about} |");
    }
}

fn metrics(text: &mut String, metrics: impl Iterator<Item = Metric>) {
    *text += "\n| metric | what it is | better | of several trials |\n| --- | --- | --- | --- |\n";
    for metric in metrics {
        let better = match metric.direction {
            Direction::Speed | Direction::Gain => "more",
            Direction::Cost | Direction::Delay | Direction::Lag | Direction::Harm => "less",
        };
        let over_trials = match metric.over_trials {
            OverTrials::Median => "the median",
            OverTrials::Largest => "the largest",
        };
        // Where the name does not end in it.
        let unit = if metric.unit == Unit::PerThousandOperations { ", in thousandths" } else { "" };
        let _ = writeln!(text, "| `{metric:?}` | {}{unit} | {better} | {over_trials} |", metric.about);
    }
}

fn engines(text: &mut String) {
    *text += "\n## Engines\n\nWhat `engine` may be. `storebench engines` says which are installed here.\n\n\
              | engine | what it is | protocol | workloads | version | members | durability, and how it is honoured | memory is allocated by |\n\
              | --- | --- | --- | --- | --- | --- | --- | --- |\n";
    for engine in ENGINES {
        let members: Vec<String> = engine.replicas.iter().map(ToString::to_string).collect();
        let durability: Vec<String> =
            engine.durability.iter().map(|one| format!("`{:?}`: {}", one.class, one.setting)).collect();
        let about = engine.description().replace('|', "\\|");
        let (version, members, durability) = (engine.default_version, members.join(", "), durability.join("; "));
        let allocator = engine.allocator.words();
        let loads = |family: &&Family| engine.protocol.api().is_some_and(|api| family.facts().loads.contains(&api));
        let families: Vec<String> =
            Family::ALL.iter().filter(loads).map(|family| format!("`{}`", family.field())).collect();
        let families = if families.is_empty() { "none: a companion of others".into() } else { families.join(", ") };
        let _ = writeln!(
            text,
            "| `{:?}` | {about} | {} | {families} | {version} | {members} | {durability} | {allocator} |",
            engine.kind,
            engine.protocol.name()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_family_and_engine_is_there_and_every_field_of_a_run() {
        let text = markdown();
        for metric in Metric::all() {
            assert_eq!(text.matches(&format!("\n| `{metric:?}` |")).count(), 1, "{metric:?}");
        }
        for family in Family::ALL {
            assert!(text.contains(&format!("\n### `{}`\n", family.field())), "{family:?}");
        }
        for engine in ENGINES {
            assert!(text.contains(&format!("\n| `{:?}` |", engine.kind)), "{:?}", engine.kind);
        }
        for field in
            ["trials.targetIntervalBasisPoints", "gates[].metric", "workloads[].load.connections", "etcd.operation"]
        {
            assert!(text.contains(&format!("\n| `{field}` |")), "{field}");
        }
        assert!(text.contains("| `trials.max` | number, 1 to 30 | `10` |"), "{text}");
        // Whoever has Rusd or Valkey finds which workloads it takes.
        let row = |engine: &str| text.lines().find(|line| line.starts_with(&format!("| `{engine}` |"))).unwrap();
        assert!(row("Rusd").contains("| etcd | `etcd`, `keyValue` |"), "{}", row("Rusd"));
        assert!(row("Valkey").contains("| redis | `redis` |"), "{}", row("Valkey"));
        assert!(text.contains("`Redis`, `Valkey`") && text.contains("500ms, 5s, 2m or 1h"), "{text}");
        // A cell that holds a bar would end too early.
        let cells = |line: &str| line.replace("\\|", "").matches('|').count();
        let rows = text.lines().filter(|line| line.starts_with('|'));
        assert!(rows.clone().count() > 150 && rows.clone().all(|row| (5..=9).contains(&cells(row))));
    }
}
