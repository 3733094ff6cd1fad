//! Checks a value against a structural OpenAPI schema: the part of validation that the API server does before CEL.
//!
//! Covers what the generated schemas use: types, required and unknown fields, enumerations, ranges, lengths, patterns.
//! Unlike the API server, an unknown field is an error, not pruned (`kubectl` asks for the same with strict validation).

use serde_json::{Map, Value};

use super::{Problem, shorten};

/// Finds the first problem of a value, in the order in which the fields were written.
pub(crate) fn check(schema: &Value, value: &Value) -> Result<(), Problem> {
    let spec = &schema["properties"]["spec"];
    match value.get("spec") {
        Some(found) => check_at("spec", spec, found),
        None => Err(Problem {
            field: "spec".into(),
            text: "is missing: say what you want under spec".into(),
        }),
    }
}

fn check_at(path: &str, schema: &Value, value: &Value) -> Result<(), Problem> {
    let problem = |text: String| {
        Err(Problem {
            field: path.into(),
            text,
        })
    };
    if value.is_null() {
        return if schema["nullable"] == Value::Bool(true) {
            Ok(())
        } else {
            problem("is empty: give it a value or remove the field".into())
        };
    }
    if schema["x-kubernetes-int-or-string"] == Value::Bool(true) {
        return if value.is_string() || value.is_i64() {
            Ok(())
        } else {
            problem("must be a whole number or a text".into())
        };
    }
    match schema["type"].as_str() {
        Some("object") => match value {
            Value::Object(fields) => check_object(path, schema, fields),
            _ => problem(format!("must be an object with fields, not {}", describe(value))),
        },
        Some("array") => match value {
            Value::Array(items) => check_array(path, schema, items),
            _ => problem(format!(
                "must be a list, not {}: start each item with `- `",
                describe(value)
            )),
        },
        Some("string") => match value {
            Value::String(text) => check_string(path, schema, text),
            _ => problem(format!("must be a text, not {}: put it in quotes", describe(value))),
        },
        Some("boolean") => {
            if value.is_boolean() {
                Ok(())
            } else {
                problem(format!("must be true or false, not {}", describe(value)))
            }
        }
        Some("integer") => check_integer(path, schema, value),
        _ => Ok(()),
    }
}

fn check_object(path: &str, schema: &Value, fields: &Map<String, Value>) -> Result<(), Problem> {
    let known = schema["properties"].as_object();
    for (name, value) in fields {
        let child = format!("{path}.{name}");
        match (
            known.and_then(|known| known.get(name)),
            schema.get("additionalProperties"),
        ) {
            (Some(schema), _) => check_at(&child, schema, value)?,
            (None, Some(schema)) if schema.is_object() => check_at(&child, schema, value)?,
            _ if schema["x-kubernetes-preserve-unknown-fields"] == Value::Bool(true) => {}
            _ => return Err(unknown_field(path, name, known)),
        }
    }
    for required in schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        if !fields.contains_key(required) {
            let text = format!("is missing: {}", remedy_of(known.and_then(|known| known.get(required))));
            return Err(Problem {
                field: format!("{path}.{required}"),
                text,
            });
        }
    }
    Ok(())
}

fn unknown_field(path: &str, name: &str, known: Option<&Map<String, Value>>) -> Problem {
    let names: Vec<&str> = known.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    let nearest = names.iter().map(|known| (edit_distance(name, known), *known)).min();
    let remedy = match nearest {
        Some((distance, nearest)) if distance <= 3 && distance < nearest.len() => format!("did you mean {nearest}?"),
        _ if names.is_empty() => "remove it".into(),
        _ => format!("the fields here are {}", names.join(", ")),
    };
    Problem {
        field: format!("{path}.{}", shorten(name)),
        text: format!("is not a known field: {remedy}"),
    }
}

fn remedy_of(schema: Option<&Value>) -> String {
    let Some(schema) = schema else { return "add it".into() };
    match (enumeration(schema), schema["description"].as_str()) {
        (Some(values), _) => format!("set it to one of {values}"),
        (None, Some(description)) => {
            let first = description.split_inclusive('.').next().unwrap_or(description);
            format!("add it ({})", first.trim_end_matches('.').replace('\n', " "))
        }
        (None, None) => "add it".into(),
    }
}

fn enumeration(schema: &Value) -> Option<String> {
    let values: Vec<&str> = schema["enum"].as_array()?.iter().filter_map(Value::as_str).collect();
    (!values.is_empty()).then(|| values.join(", "))
}

fn check_array(path: &str, schema: &Value, items: &[Value]) -> Result<(), Problem> {
    let problem = |text: String| {
        Err(Problem {
            field: path.into(),
            text,
        })
    };
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
    items
        .iter()
        .enumerate()
        .try_for_each(|(index, item)| check_at(&format!("{path}[{index}]"), &schema["items"], item))
}

fn check_string(path: &str, schema: &Value, text: &str) -> Result<(), Problem> {
    let problem = |message: String| {
        Err(Problem {
            field: path.into(),
            text: message,
        })
    };
    if let Some(values) = enumeration(schema) {
        let matches = schema["enum"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|value| value.as_str() == Some(text));
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
    if let Some(most) = schema["maxLength"].as_u64()
        && length > most
    {
        return problem(format!("has {length} characters: use at most {most}"));
    }
    if let Some(pattern) = schema["pattern"].as_str() {
        let matches = regex_lite::Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text));
        if !matches {
            let example = if pattern == crate::duration::PATTERN {
                " (such as 500ms, 5s, 2m or 1h)"
            } else {
                ""
            };
            return problem(format!(
                "`{}` does not fit: it must match {pattern}{example}",
                shorten(text)
            ));
        }
    }
    Ok(())
}

fn check_integer(path: &str, schema: &Value, value: &Value) -> Result<(), Problem> {
    let problem = |text: String| {
        Err(Problem {
            field: path.into(),
            text,
        })
    };
    let Some(number) = value
        .as_i64()
        .map(i128::from)
        .or_else(|| value.as_u64().map(i128::from))
    else {
        return problem(format!("must be a whole number, not {}", describe(value)));
    };
    // schemars writes bounds as floats; all of ours are exact in a double.
    let bound = |name: &str| schema[name].as_f64().map(|bound| bound as i128);
    match (bound("minimum"), bound("maximum")) {
        (Some(least), Some(most)) if number < least || number > most => {
            problem(format!("is {number}: give a number from {least} to {most}"))
        }
        (Some(least), None) if number < least => problem(format!("is {number}: give a number of at least {least}")),
        (None, Some(most)) if number > most => problem(format!("is {number}: give a number of at most {most}")),
        _ => Ok(()),
    }
}

fn describe(value: &Value) -> String {
    match value {
        Value::Null => "nothing".into(),
        Value::Bool(value) => format!("{value}"),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => format!("the text `{}`", shorten(text)),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
    }
}

/// Levenshtein distance, over at most the first 64 characters of each.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        for (a, b, distance) in [
            ("arms", "arms", 0),
            ("arm", "arms", 1),
            ("amrs", "arms", 2),
            ("", "arms", 4),
        ] {
            assert_eq!(edit_distance(a, b), distance, "{a} {b}");
        }
    }
}
