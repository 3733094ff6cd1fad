//! Durations as users write them: `500us`, `500ms`, `5s`, `2m`, `1h`. One number, one unit, never a float. Whatever is a time takes each of these
//! units: there is one table of them.

use std::borrow::Cow;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The pattern a duration must match, as it stands in the schema.
pub const PATTERN: &str = "^[0-9]{1,6}(us|ms|s|m|h)$";
/// How durations are written.
pub const EXAMPLE: &str = "500us, 500ms, 5s, 2m or 1h";
/// The CEL rule of durations that may not be 0, and what is said otherwise.
pub(crate) const LONGER_THAN_ZERO: (&str, &str) = ("!self.matches('^0+[a-z]')", "must be longer than 0");

/// A duration such as `500us`, `500ms`, `5s`, `2m` or `1h`, as it was written and as it is meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DurationText {
    text: String,
    duration: Duration,
}

/// A text that is not a duration.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not a duration: write a whole number and a unit, such as {EXAMPLE}")]
pub struct DurationError(String);

impl DurationText {
    /// Takes a text if it is a duration.
    pub fn new(text: impl Into<String>) -> Result<Self, DurationError> {
        let text = text.into();
        match parse(&text) {
            Some(duration) => Ok(Self { text, duration }),
            None => Err(DurationError(text)),
        }
    }

    /// A default of this crate. A wrong literal is caught by the test of the schema, which writes every default.
    pub(crate) fn literal(text: &'static str) -> Self {
        #[allow(clippy::expect_used)]
        Self::new(text).expect("a literal duration")
    }

    /// The duration that the text means.
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// One number of at most six digits, one unit.
fn parse(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|character: char| !character.is_ascii_digit())?);
    let number: u64 = if number.len() <= 6 { number.parse().ok()? } else { return None };
    Some(Duration::from_micros(number * micros_of(unit)?))
}

/// Microseconds of one of a unit.
pub(crate) fn micros_of(unit: &str) -> Option<u64> {
    match unit {
        "us" => Some(1),
        "ms" => Some(1_000),
        "s" => Some(1_000_000),
        "m" => Some(60_000_000),
        "h" => Some(3_600_000_000),
        _ => None,
    }
}

impl TryFrom<String> for DurationText {
    type Error = DurationError;

    fn try_from(text: String) -> Result<Self, DurationError> {
        Self::new(text)
    }
}

impl From<DurationText> for String {
    fn from(duration: DurationText) -> Self {
        duration.text
    }
}

impl JsonSchema for DurationText {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": PATTERN, "maxLength": 8 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn units_mean_what_they_say() {
        for (text, millis) in [("500ms", 500), ("5s", 5_000), ("2m", 120_000), ("1h", 3_600_000), ("0s", 0)] {
            let duration = DurationText::new(text).unwrap().duration();
            assert_eq!(duration, Duration::from_millis(millis), "{text}");
        }
        assert_eq!(DurationText::new("500us").unwrap().duration(), Duration::from_micros(500));
    }

    #[test]
    fn anything_else_is_refused_with_the_remedy() {
        for text in ["", "5", "s", "5 s", "-5s", "1.5s", "5d", "1000000s", "5S", "1m30s", "5ns"] {
            let error = DurationText::new(text).unwrap_err().to_string();
            assert!(error.contains("500ms"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn pattern_and_parser_agree(text in "[0-9]{0,8}(us|ms|s|m|h|d|)") {
            let pattern = regex_lite::Regex::new(PATTERN).unwrap();
            prop_assert_eq!(pattern.is_match(&text), DurationText::new(text.clone()).is_ok());
        }
    }
}
