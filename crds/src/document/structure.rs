//! Checks a value against a structural OpenAPI schema: the part of validation that the API server does before CEL.
//!
//! Covers what the generated schemas use: types, required and unknown fields, enumerations, ranges, lengths, patterns.
//! Unlike the API server, an unknown field is an error, not pruned (`kubectl` asks for the same with strict validation).

use serde_json::{Map, Value};

use super::Problem;
use super::text::{folded, shorten};

/// A list of values in a message is no longer than this, about.
const LISTED_BYTES_MAX: usize = 300;

/// Finds the first problem of a value, in the order in which the fields were written.
pub(crate) fn check(schema: &Value, value: &Value) -> Result<(), Problem> {
    let spec = &schema["properties"]["spec"];
    match value.get("spec") {
        Some(found) => check_at("spec", spec, found),
        None => Err(Problem { field: "spec".into(), text: "is missing: say what you want under spec".into() }),
    }
}

/// The same of a value that the schema describes as a whole.
pub(crate) fn check_whole(schema: &Value, value: &Value) -> Result<(), Problem> {
    check_at("", schema, value)
}

fn check_at(path: &str, schema: &Value, value: &Value) -> Result<(), Problem> {
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
            _ => problem(format!("must be a whole number or a text, not {}: put it in quotes", describe(value))),
        };
    }
    match schema["type"].as_str() {
        Some("object") => match value {
            Value::Object(fields) => check_object(path, schema, fields),
            _ => problem(format!("must be an object, not {}: write its fields below it, indented", describe(value))),
        },
        Some("array") => match value {
            Value::Array(items) => check_array(path, schema, items),
            _ => problem(format!("must be a list, not {}: start each item with `- `", describe(value))),
        },
        Some("string") => match value {
            Value::String(text) => check_string(path, schema, text),
            Value::Number(_) if schema["pattern"] == crate::duration::PATTERN => {
                problem(format!("must be a duration, not {}: add a unit, as in 5s", describe(value)))
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

fn check_object(path: &str, schema: &Value, fields: &Map<String, Value>) -> Result<(), Problem> {
    let known = schema["properties"].as_object();
    for (name, value) in fields {
        let child = format!("{path}.{}", shorten(name));
        match (known.and_then(|known| known.get(name)), schema.get("additionalProperties")) {
            (Some(schema), _) => check_at(&child, schema, value)?,
            (None, Some(schema)) if schema.is_object() => check_at(&child, schema, value)?,
            _ if schema["x-kubernetes-preserve-unknown-fields"] == Value::Bool(true) => {}
            _ => {
                let names = known.into_iter().flat_map(Map::keys).map(String::as_str).collect();
                return Err(unknown_field(path, name, names));
            }
        }
    }
    for required in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(required) {
            let text = format!("is missing: {}", remedy_of(known.and_then(|known| known.get(required))));
            return Err(Problem { field: format!("{path}.{required}"), text });
        }
    }
    Ok(())
}

/// A field that is not among the known ones, with the nearest of them.
pub(super) fn unknown_field(path: &str, name: &str, names: Vec<&str>) -> Problem {
    let nearest = names.iter().map(|known| (edit_distance(name, known), *known)).min();
    let remedy = match nearest {
        Some((distance, nearest)) if distance <= 3 && distance < nearest.len() => format!("did you mean {nearest}?"),
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

fn check_array(path: &str, schema: &Value, items: &[Value]) -> Result<(), Problem> {
    let problem = |text: String| Err(Problem { field: path.into(), text });
    if let Some(least) = schema["minItems"].as_u64()
        && (items.len() as u64) < least
    {
        return problem(format!("holds {} items: give at least {least}", items.len()));
    }
    if let Some(most) = schema["maxItems"].as_u64()
        && (items.len() as u64) > most
    {
        return problem(format!("holds {} items: give at most {most}", items.len()));
    }
    items.iter().enumerate().try_for_each(|(index, item)| check_at(&format!("{path}[{index}]"), &schema["items"], item))
}

fn check_string(path: &str, schema: &Value, text: &str) -> Result<(), Problem> {
    let problem = |message: String| Err(Problem { field: path.into(), text: message });
    if let Some(values) = enumeration(schema) {
        let matches = schema["enum"].as_array().into_iter().flatten().any(|value| value.as_str() == Some(text));
        return if matches {
            Ok(())
        } else {
            problem(format!("`{}` is not allowed: use one of {values}", shorten(text)))
        };
    }
    let length = text.chars().count() as u64;
    if schema["minLength"].as_u64().is_some_and(|least| length < least) {
        return problem("is too short: give it a value".into());
    }
    if let Some(pattern) = schema["pattern"].as_str() {
        let matches = regex_lite::Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text));
        if !matches {
            let is_duration = pattern == crate::duration::PATTERN;
            let example = if is_duration { Some("500ms, 5s, 2m or 1h") } else { schema["example"].as_str() };
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
            _ => range,
        };
        return problem(format!("must be a whole number, not {}: {remedy}", describe(value)));
    };
    if bound("minimum").is_some_and(|least| number < least) || bound("maximum").is_some_and(|most| number > most) {
        return problem(format!("is {number}: {range}"));
    }
    Ok(())
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
        for (a, b, distance) in [("arms", "arms", 0), ("arm", "arms", 1), ("amrs", "arms", 2), ("", "arms", 4)] {
            assert_eq!(edit_distance(a, b), distance, "{a} {b}");
        }
    }
}
