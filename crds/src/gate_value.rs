//! Bounds of gates as users write them: a whole number in the metric's unit, or, of a metric that is a time, a duration such as `5ms` or
//! `1.5s`. Exact to a nanosecond, never a float.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::duration::micros_of;

/// The pattern that a bound must match where it is a text, as it stands in the schema: at most three digits behind the point.
pub const PATTERN: &str = r"^[0-9]{1,6}(\.[0-9]{1,3})?(us|ms|s|m|h)$";
/// How bounds are written, of whatever metric.
pub const EXAMPLE: &str =
    "5000 or 5ms: a whole number, for bytes such as 104857600, or a duration such as 5ms or 1.5ms";
/// How bounds of metrics that are a time are written.
pub const EXAMPLE_OF_TIME: &str = "5000 or 5ms";
/// The largest number that every reader of JSON has exactly.
const NUMBER_MAX: u64 = 9_007_199_254_740_991;

/// The bound of a gate, as it was written and as it is meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum GateValue {
    /// So many of the metric's unit.
    Number(u64),
    /// A duration.
    Duration {
        /// As it was written.
        text: String,
        /// What it means.
        nanos: u64,
    },
}

/// A bound as it is written.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Number(u64),
    Text(String),
}

/// A text that is not a duration.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is no bound of a gate: write it like {EXAMPLE}")]
pub struct GateValueError(String);

impl GateValue {
    /// Takes a text if it is a duration.
    ///
    /// # Errors
    /// [`GateValueError`] for any other text.
    pub fn new(text: impl Into<String>) -> Result<Self, GateValueError> {
        let text = text.into();
        match parse(&text) {
            Some(nanos) => Ok(Self::Duration { text, nanos }),
            None => Err(GateValueError(text)),
        }
    }
}

/// Nanoseconds: a number with at most three decimals, one unit.
fn parse(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|letter: char| letter.is_ascii_alphabetic())?);
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let are_digits =
        |part: &str, most| (1..=most).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    if !are_digits(whole, 6) || !are_digits(decimals, 3) {
        return None;
    }
    // Nine digits at most.
    let thousandths: u64 = format!("{whole}{decimals:0<3}").parse().ok()?;
    // A thousandth of a microsecond is a nanosecond.
    thousandths.checked_mul(micros_of(unit)?)
}

impl TryFrom<Written> for GateValue {
    type Error = GateValueError;

    fn try_from(written: Written) -> Result<Self, GateValueError> {
        match written {
            Written::Number(number) => Ok(Self::Number(number)),
            Written::Text(text) => Self::new(text),
        }
    }
}

impl From<GateValue> for Written {
    fn from(value: GateValue) -> Self {
        match value {
            GateValue::Number(number) => Self::Number(number),
            GateValue::Duration { text, .. } => Self::Text(text),
        }
    }
}

impl JsonSchema for GateValue {
    fn schema_name() -> Cow<'static, str> {
        "GateValue".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "pattern": PATTERN,
            "maxLength": 12,
            "minimum": 0,
            "maximum": NUMBER_MAX,
            "example": EXAMPLE,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_mean_what_they_say() {
        for (text, nanos) in [
            ("5us", 5_000),
            ("0.5us", 500),
            ("5ms", 5_000_000),
            ("1.5s", 1_500_000_000),
            ("1.025s", 1_025_000_000),
            ("2m", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("999999.999h", 3_599_999_996_400_000_000),
        ] {
            let written = GateValue::Duration { text: text.into(), nanos };
            assert_eq!(GateValue::new(text).as_ref(), Ok(&written), "{text}");
            let json = serde_json::to_string(&written).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<GateValue>(&json).unwrap(), written);
        }
        assert_eq!(serde_json::from_str::<GateValue>("5000").unwrap(), GateValue::Number(5_000));
        assert_eq!(serde_json::to_string(&GateValue::Number(5_000)).unwrap(), "5000");
    }

    #[test]
    fn anything_else_is_refused_with_the_remedy() {
        for text in ["", "5", "ms", "5 ms", "-5ms", ".5s", "5.s", "1.0005s", "1000000s", "5MS", "1m30s", "5ns", "95%"] {
            let error = GateValue::new(text).unwrap_err().to_string();
            assert!(error.contains(EXAMPLE), "{error}");
        }
        assert!(serde_json::from_str::<GateValue>("1.5").is_err());
    }

    /// Whoever bounds memory was told to write a duration.
    #[test]
    fn a_quantity_of_bytes_is_answered_with_a_number_of_bytes() {
        let error = GateValue::new("100Mi").unwrap_err().to_string();
        assert!(error.contains("a whole number, for bytes such as 104857600"), "{error}");
        assert_eq!(104_857_600, 100 << 20);
    }

    #[test]
    fn what_is_given_as_an_example_is_taken() {
        for example in ["5ms", "1.5ms"] {
            assert!(EXAMPLE.contains(example) && GateValue::new(example).is_ok(), "{example}");
        }
    }

    proptest! {
        #[test]
        fn pattern_and_parser_agree(text in "[0-9]{0,7}(\\.[0-9]{0,4})?(us|ms|s|m|h|d|)") {
            let pattern = regex_lite::Regex::new(PATTERN).unwrap();
            prop_assert_eq!(pattern.is_match(&text), GateValue::new(text.clone()).is_ok());
        }
    }
}
