//! The report as JSON: complete, so that it can be judged and rendered again elsewhere.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Report;
use crate::across::Figures;
use crate::record::RECORD_VERSION;

/// The largest count that a report may have: sums of those of a run are far below what a number holds, and JSON has them exactly.
const COUNT_MAX: u64 = 9_007_199_254_740_991;

/// Why a report could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// The report could not be written.
    #[error("the report could not be written as JSON: {0}")]
    Write(#[source] serde_json::Error),
    /// Not JSON, or JSON of something else: names the line, the column and what is wrong there.
    #[error("this is not a storebench report in JSON: {0}")]
    NotAReport(#[source] serde_json::Error),
    /// A count that no run has come to.
    #[error("this is not a storebench report: {field} is {number}, and no count is above {COUNT_MAX}")]
    TooLarge {
        /// The field.
        field: String,
        /// What it has.
        number: String,
    },
    /// Written by a newer storebench, whose fields might mean something else.
    #[error(
        "this report has recordVersion {found}, and this storebench reads up to {RECORD_VERSION}: use storebench {written_by} or newer"
    )]
    Newer {
        /// The report's version.
        found: u32,
        /// The version of storebench that wrote it.
        written_by: String,
    },
}

/// Just enough of a report to know whether the rest can be understood.
#[derive(Deserialize)]
struct Probe {
    record: ProbeRecord,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProbeRecord {
    record_version: u32,
    #[serde(default)]
    storebench_version: String,
}

/// Writes a report as indented JSON, with a line end.
///
/// # Errors
/// [`JsonError::Write`], which no report that this crate can build provokes.
pub fn json(report: &Report) -> Result<String, JsonError> {
    let mut text = serde_json::to_string_pretty(report).map_err(JsonError::Write)?;
    text.push('\n');
    Ok(text)
}

/// Writes reports as a list.
///
/// # Errors
/// As [`json`].
pub fn json_list(reports: &[Report]) -> Result<String, JsonError> {
    let mut text = serde_json::to_string_pretty(reports).map_err(JsonError::Write)?;
    text.push('\n');
    Ok(text)
}

/// Reads what [`json`] or [`json_list`] wrote.
///
/// # Errors
/// As [`from_json`].
pub fn list_from_json(text: &str) -> Result<Vec<Report>, JsonError> {
    match text.trim_start().starts_with('[') {
        true => {
            let value = value(text)?;
            of::<Vec<Probe>>(&value, text)?.into_iter().try_for_each(check_version)?;
            of(&value, text)
        }
        false => Ok(vec![from_json(text)?]),
    }
}

/// Reads what [`json`] wrote.
///
/// # Errors
/// [`JsonError::NotAReport`] for anything else, [`JsonError::Newer`] for a report of a newer format.
pub fn from_json(text: &str) -> Result<Report, JsonError> {
    one(text)
}

/// Reads the figures that a baseline keeps, which may be from long ago, or from a newer storebench than this.
///
/// # Errors
/// As [`from_json`].
pub fn figures_from_json(text: &str) -> Result<Figures, JsonError> {
    one(text)
}

fn one<T: DeserializeOwned>(text: &str) -> Result<T, JsonError> {
    let value = value(text)?;
    check_version(of(&value, text)?)?;
    of(&value, text)
}

/// What the text says, which may be megabytes: it is read once.
fn value(text: &str) -> Result<Value, JsonError> {
    let value = serde_json::from_str(text).map_err(JsonError::NotAReport)?;
    check_numbers(&value)?;
    Ok(value)
}

/// A part of it, or all. Where it is something else, the text is read again, since a value does not know its line.
fn of<T: DeserializeOwned>(value: &Value, text: &str) -> Result<T, JsonError> {
    T::deserialize(value).map_err(|error| JsonError::NotAReport(serde_json::from_str::<T>(text).err().unwrap_or(error)))
}

/// Refuses numbers that no run has counted: they are added up. Moments and seeds are not.
fn check_numbers(value: &Value) -> Result<(), JsonError> {
    const NOT_COUNTED: [&str; 2] = ["startedUnixNanos", "seed"];
    fn largest_in(value: &Value, field: &str) -> Result<(), JsonError> {
        match value {
            Value::Number(number) if number.as_u64().is_some_and(|number| number > COUNT_MAX) => {
                Err(JsonError::TooLarge { field: field.to_owned(), number: number.to_string() })
            }
            Value::Array(values) => values.iter().try_for_each(|value| largest_in(value, field)),
            Value::Object(fields) => {
                let mut counted = fields.iter().filter(|(name, _)| !NOT_COUNTED.contains(&name.as_str()));
                counted.try_for_each(|(name, value)| largest_in(value, name))
            }
            _ => Ok(()),
        }
    }
    largest_in(value, "")
}

fn check_version(probe: Probe) -> Result<(), JsonError> {
    let ProbeRecord { record_version: found, storebench_version: written_by } = probe.record;
    match found > RECORD_VERSION {
        true => Err(JsonError::Newer { found, written_by }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_count_that_no_run_has_come_to_is_named() {
        let text = json(&fixture::two_arms()).unwrap();
        assert!(from_json(&text).is_ok());
        let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
        value["record"]["trials"][0]["workloads"][0]["summary"]["operations"] = u64::MAX.into();
        let refused =
            [value.to_string(), format!("[{value}]")].map(|text| list_from_json(&text).unwrap_err().to_string());
        for refused in refused {
            assert!(refused.contains("operations is 18446744073709551615, and no count is above"), "{refused}");
        }
    }

    #[test]
    fn every_fixture_survives() {
        for (name, report) in fixture::all() {
            let text = json(&report).unwrap();
            assert_eq!(from_json(&text).unwrap(), report, "{name}");
        }
    }

    #[test]
    fn several_are_a_list() {
        let reports: Vec<Report> = fixture::all().into_iter().map(|(_, report)| report).collect();
        assert_eq!(list_from_json(&json_list(&reports).unwrap()).unwrap(), reports);
        assert_eq!(list_from_json(&json(&reports[0]).unwrap()).unwrap(), reports[..1]);
        assert!(list_from_json("[1]").is_err());
    }

    #[test]
    fn a_newer_format_is_refused_even_if_it_is_otherwise_unreadable() {
        let text = r#"{"record": {"recordVersion": 2, "storebenchVersion": "0.9.0", "trials": "elsewhere"}}"#;
        for error in [from_json(text).unwrap_err(), figures_from_json(text).unwrap_err()] {
            let error = error.to_string();
            assert!(error.contains("recordVersion 2") && error.contains("0.9.0"), "{error}");
        }
    }

    #[test]
    fn errors_name_what_is_wrong_and_where() {
        for (text, expected) in [
            ("", "EOF"),
            ("{}", "missing field `record`"),
            (r#"{"record": {}}"#, "missing field `recordVersion`"),
            (r#"{"record": {"recordVersion": 1}}"#, "missing field `name`"),
        ] {
            let error = from_json(text).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("line"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_and_any_number_survives(name in any::<String>(), caveats in prop::collection::vec(any::<String>(), 0..4), number in 0..=COUNT_MAX) {
            let mut report = fixture::two_arms();
            report.record.name = name;
            report.judgement.caveats = caveats;
            report.judgement.results[0].throughput_milli = number;
            report.record.trials[0].started_millis = number;
            prop_assert_eq!(from_json(&json(&report).unwrap()).unwrap(), report);
        }

        #[test]
        fn arbitrary_input_is_refused_not_fatal(text in any::<String>()) {
            prop_assert!(from_json(&text).is_err());
        }
    }
}
