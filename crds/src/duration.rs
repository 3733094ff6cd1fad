//! Durations as users write them: `500ms`, `5s`, `2m`, `1h`. One number, one unit, never a float.

use std::borrow::Cow;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The pattern a duration must match, as it stands in the schema.
pub const PATTERN: &str = "^[0-9]{1,6}(ms|s|m|h)$";

/// A duration such as `500ms`, `5s`, `2m` or `1h`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DurationText(String);

/// A text that is not a duration.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not a duration: write a whole number and a unit, such as 500ms, 5s, 2m or 1h")]
pub struct DurationError(String);

impl DurationText {
    /// Takes a text if it is a duration.
    pub fn new(text: impl Into<String>) -> Result<Self, DurationError> {
        let text = Self(text.into());
        text.parse().map(|_| text)
    }

    /// The duration that the text means.
    pub fn parse(&self) -> Result<Duration, DurationError> {
        let error = || DurationError(self.0.clone());
        let split = self.0.find(|c: char| !c.is_ascii_digit()).ok_or_else(error)?;
        let (number, unit) = self.0.split_at(split);
        if number.len() > 6 {
            return Err(error());
        }
        let number: u64 = number.parse().map_err(|_| error())?;
        let millis = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(error()),
        };
        Ok(Duration::from_millis(number * millis))
    }

    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
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
            let duration = DurationText::new(text).unwrap().parse().unwrap();
            assert_eq!(duration, Duration::from_millis(millis), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_the_remedy() {
        for text in ["", "5", "s", "5 s", "-5s", "1.5s", "5d", "1000000s", "5S", "1m30s"] {
            let error = DurationText::new(text).unwrap_err().to_string();
            assert!(error.contains("500ms"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn pattern_and_parser_agree(text in "[0-9]{0,8}(ms|s|m|h|d|)") {
            let pattern = regex_lite::Regex::new(PATTERN).unwrap();
            prop_assert_eq!(pattern.is_match(&text), DurationText::new(text.clone()).is_ok());
        }
    }
}
