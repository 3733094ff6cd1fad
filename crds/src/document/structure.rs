//! Checks a value against a structural OpenAPI schema: the part of validation that the API server does before CEL.
//!
//! Covers what the generated schemas use: types, required and unknown fields, enumerations, ranges, lengths, patterns.
//! Unlike the API server, an unknown field is an error, not pruned (`kubectl` asks for the same with strict validation).

use serde_json::{Map, Value};

use super::Problem;
use super::text::{folded, shorten};
use crate::external::{ENDPOINT_PATTERN, endpoint_remedy};
use crate::gate_value;

/// A list of values in a message is no longer than this, about.
const LISTED_BYTES_MAX: usize = 300;

/// No more problems of an object are looked for than anybody will read.
const PROBLEMS_MAX: usize = 50;

/// Finds the problems of a value, in the order in which the fields were written.
pub(crate) fn check(schema: &Value, value: &Value) -> Vec<Problem> {
    let mut found = Vec::new();
    let spec = &schema["properties"]["spec"];
    match value.get("spec") {
        Some(written) => check_at("spec", spec, written, &mut found),
        None => found.push(Problem { field: "spec".into(), text: "is missing: say what you want under spec".into() }),
    }
    found
}

/// The first problem of a value that the schema describes as a whole.
pub(crate) fn check_whole(schema: &Value, value: &Value) -> Result<(), Problem> {
    let mut found = Vec::new();
    check_at("", schema, value, &mut found);
    found.into_iter().next().map_or(Ok(()), Err)
}

fn check_at(path: &str, schema: &Value, value: &Value, found: &mut Vec<Problem>) {
    if found.len() >= PROBLEMS_MAX {
        return;
    }
    match (schema["type"].as_str(), value) {
        (Some("object"), Value::Object(fields)) => check_object(path, schema, fields, found),
        (Some("array"), Value::Array(items)) => check_array(path, schema, items, found),
        _ => found.extend(check_value(path, schema, value).err()),
    }
}

/// A value that holds no others, or is not what it should be.
fn check_value(path: &str, schema: &Value, value: &Value) -> Result<(), Problem> {
    let problem = |text: String| Err(Problem { field: path.into(), text });
    if value.is_null() {
        return if schema["nullable"] == Value::Bool(true) {
            Ok(())
        } else {
            problem("is empty: give it a value or remove the field".into())
        };
    }
    if schema["x-kubernetes-int-or-string"] == Value::Bool(true) {
        return match value {
            Value::String(text) => check_string(path, schema, text),
            _ if value.is_i64() => check_integer(path, schema, value),
            _ if schema["pattern"] == gate_value::PATTERN => problem(format!(
                "must be a whole number or a duration, not {}: write it like {}",
                describe(value),
                gate_value::EXAMPLE
            )),
            _ => problem(format!("must be a whole number or a text, not {}: put it in quotes", describe(value))),
        };
    }
    match schema["type"].as_str() {
        Some("object") => {
            problem(format!("must be an object, not {}: write its fields below it, indented", describe(value)))
        }
        Some("array") => problem(format!("must be a list, not {}: start each item with `- `", describe(value))),
        Some("string") => match value {
            Value::String(text) => check_string(path, schema, text),
            Value::Number(_) if schema["pattern"] == crate::duration::PATTERN => {
                let like = schema["example"].as_str().unwrap_or("5s");
                problem(format!("must be a duration, not {}: add a unit, as in {like}", describe(value)))
            }
            Value::Number(number) if schema["pattern"] == crate::ratio::PATTERN => {
                // 0.95 is a factor, 95 were percent, 9500 basis points.
                let percent = number.as_f64().map_or(0.0, |number| match number {
                    factor if factor < 10.0 => factor * 100.0,
                    percent if percent < 1000.0 => percent,
                    basis_points => basis_points / 100.0,
                });
                let percent = (percent * 100.0).round() / 100.0;
                problem(format!(
                    "must be a text, not {}: write {percent}%, or \"{}\"",
                    describe(value),
                    percent / 100.0
                ))
            }
            _ => problem(format!("must be a text, not {}: put it in quotes", describe(value))),
        },
        Some("boolean") => {
            if value.is_boolean() {
                Ok(())
            } else {
                problem(format!("must be true or false, not {}: write one of them, without quotes", describe(value)))
            }
        }
        Some("integer") => check_integer(path, schema, value),
        _ => Ok(()),
    }
}

fn check_object(path: &str, schema: &Value, fields: &Map<String, Value>, found: &mut Vec<Problem>) {
    let known = schema["properties"].as_object();
    for (name, value) in fields {
        let child = format!("{path}.{}", shorten(name));
        match (known.and_then(|known| known.get(name)), schema.get("additionalProperties")) {
            (Some(schema), _) => check_at(&child, schema, value, found),
            (None, Some(schema)) if schema.is_object() => check_at(&child, schema, value, found),
            _ if schema["x-kubernetes-preserve-unknown-fields"] == Value::Bool(true) => {}
            _ => {
                let names = known.into_iter().flat_map(Map::keys).map(String::as_str).collect();
                found.push(unknown_field(path, name, names));
            }
        }
        if found.len() >= PROBLEMS_MAX {
            return;
        }
    }
    for required in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(required) {
            let text = format!("is missing: {}", remedy_of(known.and_then(|known| known.get(required))));
            found.push(Problem { field: format!("{path}.{required}"), text });
        }
    }
}

/// The one of some words that was probably meant: the same but for capitals, a few letters away, or the only one that begins so.
pub fn nearest<'a>(written: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let words: Vec<&str> = words.into_iter().collect();
    let lower = written.to_lowercase();
    let near = words.iter().map(|word| (edit_distance(&lower, &word.to_lowercase()), *word)).min();
    // Of three letters one may be wrong.
    if let Some((distance, word)) = near
        && distance <= lower.chars().count().div_ceil(3).min(3)
        && distance < word.chars().count()
    {
        return Some(word);
    }
    let mut begin = words.iter().filter(|word| lower.len() >= 3 && word.to_lowercase().starts_with(&lower));
    begin.next().copied().filter(|_| begin.next().is_none())
}

/// A field that is not among the known ones, with the nearest of them.
pub(super) fn unknown_field(path: &str, name: &str, names: Vec<&str>) -> Problem {
    let remedy = match nearest(name, names.iter().copied()) {
        Some(nearest) => format!("did you mean {nearest}?"),
        _ if names.is_empty() => "remove it".into(),
        _ => format!("the fields here are {}", names.join(", ")),
    };
    Problem { field: format!("{path}.{}", shorten(name)), text: format!("is not a known field: {remedy}") }
}

fn remedy_of(schema: Option<&Value>) -> String {
    let Some(schema) = schema else { return "add it".into() };
    match (enumeration(schema), schema["description"].as_str()) {
        (Some(values), _) => format!("set it to one of {values}"),
        (None, Some(description)) => {
            let first = description.split(". ").next().unwrap_or(description);
            format!("add it ({})", folded(first.trim_end_matches('.')))
        }
        (None, None) => "add it".into(),
    }
}

/// What may be written, as much of it as fits a line.
fn enumeration(schema: &Value) -> Option<String> {
    let values: Vec<&str> = schema["enum"].as_array()?.iter().filter_map(Value::as_str).collect();
    (!values.is_empty()).then(|| listed(&values))
}

/// Values, as many as fit a line; how many more there are, and where.
fn listed(values: &[&str]) -> String {
    let mut line = String::new();
    for (index, value) in values.iter().enumerate() {
        if line.len() + value.len() > LISTED_BYTES_MAX {
            return format!("{line} or {} others (`storebench crds` has them)", values.len() - index);
        }
        line += if index == 0 { "" } else { ", " };
        line += value;
    }
    line
}

fn check_array(path: &str, schema: &Value, items: &[Value], found: &mut Vec<Problem>) {
    let mut problem = |text: String| found.push(Problem { field: path.into(), text });
    if let Some(least) = schema["minItems"].as_u64()
        && (items.len() as u64) < least
    {
        problem(format!("holds {} items: give at least {least}", items.len()));
    }
    if let Some(most) = schema["maxItems"].as_u64()
        && (items.len() as u64) > most
    {
        problem(format!("holds {} items: give at most {most}", items.len()));
    }
    for (index, item) in items.iter().enumerate() {
        check_at(&format!("{path}[{index}]"), &schema["items"], item, found);
        if found.len() >= PROBLEMS_MAX {
            return;
        }
    }
}

fn check_string(path: &str, schema: &Value, text: &str) -> Result<(), Problem> {
    let problem = |message: String| Err(Problem { field: path.into(), text: message });
    if let Some(values) = enumeration(schema) {
        let allowed = || schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
        if allowed().any(|value| value == text) {
            return Ok(());
        }
        let remedy = match nearest(text, allowed()) {
            Some(meant) if values.len() > LISTED_BYTES_MAX / 2 => format!("did you mean {meant}?"),
            Some(meant) => format!("did you mean {meant}? Else use one of {values}"),
            None => format!("use one of {values}"),
        };
        return problem(format!("`{}` is not allowed: {remedy}", shorten(text)));
    }
    let length = text.chars().count() as u64;
    if schema["minLength"].as_u64().is_some_and(|least| length < least) {
        return problem("is too short: give it a value".into());
    }
    if let Some(pattern) = schema["pattern"].as_str() {
        let matches = regex_lite::Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text));
        if !matches && pattern == ENDPOINT_PATTERN {
            // A password in it is not to be read in a log.
            let shown = if text.contains('@') { "what is written".into() } else { format!("`{}`", shorten(text)) };
            return problem(format!("{shown} does not fit: {}", endpoint_remedy(text)));
        }
        if !matches {
            let is_duration = pattern == crate::duration::PATTERN;
            let example = match schema["example"].as_str() {
                _ if is_duration => Some(crate::duration::EXAMPLE),
                // The one quantity that is no bytes stands among the others.
                Some("512Mi") if path.ends_with(".cpu") => Some("2 or 500m"),
                example => example,
            };
            // A long pattern helps nobody who reads a line.
            let remedy = match example {
                Some(example) if pattern.len() > 50 => format!("write it like {example}"),
                Some(example) => format!("write it like {example}; it must match {pattern}"),
                None => format!("it must match {pattern}"),
            };
            return problem(format!("`{}` does not fit: {remedy}", shorten(text)));
        }
    }
    if let Some(most) = schema["maxLength"].as_u64()
        && length > most
    {
        return problem(format!("has {length} characters: use at most {most}"));
    }
    Ok(())
}

fn check_integer(path: &str, schema: &Value, value: &Value) -> Result<(), Problem> {
    let problem = |text: String| Err(Problem { field: path.into(), text });
    // schemars writes bounds as floats; all of ours are exact in a double.
    let bound = |name: &str| schema[name].as_f64().map(|bound| bound as i128);
    let range = match (bound("minimum"), bound("maximum")) {
        (Some(least), Some(most)) => format!("give a number from {least} to {most}"),
        (Some(least), None) => format!("give a number of at least {least}"),
        (None, Some(most)) => format!("give a number of at most {most}"),
        (None, None) => "write digits only".into(),
    };
    let Some(number) = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from)) else {
        let remedy = match value {
            Value::String(text) if text.parse::<i64>().is_ok() => "remove the quotes".into(),
            _ => in_basis_points(path, value).unwrap_or(range),
        };
        return problem(format!("must be a whole number, not {}: {remedy}", describe(value)));
    };
    if bound("minimum").is_some_and(|least| number < least) || bound("maximum").is_some_and(|most| number > most) {
        return problem(format!("is {number}: {range}"));
    }
    Ok(())
}

/// What a percentage or a fraction would be in a field of basis points, and where it may stand as it is.
fn in_basis_points(path: &str, value: &Value) -> Option<String> {
    let field = path.rsplit('.').next()?.strip_suffix("BasisPoints")?;
    let text = match value {
        Value::String(text) => text.replace(' ', ""),
        other => other.to_string(),
    };
    let ratio = crate::RatioText::new(text).ok()?;
    let or_as_text = match field.starts_with("ratio") {
        true => format!(", or {field}: \"{}\"", ratio.as_str()),
        false => String::new(),
    };
    Some(format!("write {}{or_as_text}", ratio.basis_points()))
}

/// A value as it is named in a message.
pub(super) fn describe(value: &Value) -> String {
    match value {
        Value::Null => "nothing".into(),
        Value::Bool(value) => format!("{value}"),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => format!("the text `{}`", shorten(text)),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
    }
}

/// Levenshtein distance, over at most the first 64 characters of each: it costs as much as their product.
fn edit_distance(a: &str, b: &str) -> usize {
    let begin = |text: &str| text.chars().take(64).collect::<String>();
    strsim::levenshtein(&begin(a), &begin(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_of_values_is_cut() {
        assert_eq!(listed(&["a", "b"]), "a, b");
        let long = ["ThirtyTwoLettersMakeALongMetrics"; 20];
        let cut = listed(&long);
        assert!(cut.ends_with("Metrics or 12 others (`storebench crds` has them)"), "{cut}");
    }

    #[test]
    fn distance_counts_edits() {
        assert_eq!(nearest("redis", ["Etcd", "Redis", "Rsedis"]), Some("Redis"));
        assert_eq!(nearest("LatencyP99", ["LatencyP99Micros", "LatencyP999Micros"]), None, "either may be meant");
        assert_eq!(nearest("Throughput", ["LatencyP99Micros", "ThroughputPerSecond"]), Some("ThroughputPerSecond"));
        assert_eq!(nearest("PostgreSQL", ["Etcd", "Redis"]), None);
        for (a, b, distance) in [("arms", "arms", 0), ("arm", "arms", 1), ("amrs", "arms", 2), ("", "arms", 4)] {
            assert_eq!(edit_distance(a, b), distance, "{a} {b}");
        }
    }
}
