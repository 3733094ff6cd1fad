//! Ratios as users write them: `95%` or `0.95`. Exact to a basis point (1/10 000), never a float.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The pattern a ratio must match, as it stands in the schema: at most four digits behind the point, or two before a `%`.
pub const PATTERN: &str = r"^([0-9]{1,4}(\.[0-9]{1,4})?|[0-9]{1,6}(\.[0-9]{1,2})?%)$";

/// How ratios are written; a fraction in quotes, since a schema takes either texts or whole numbers.
pub const EXAMPLE: &str = "95% or \"0.95\"";

/// A ratio such as `95%` or `0.95`, as it was written and as it is meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RatioText {
    text: String,
    basis_points: u32,
}

/// A text that is not a ratio.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not a ratio: write it like {EXAMPLE}")]
pub struct RatioError(String);

impl RatioText {
    /// Takes a text if it is a ratio.
    ///
    /// # Errors
    /// [`RatioError`] for any other text.
    pub fn new(text: impl Into<String>) -> Result<Self, RatioError> {
        let text = text.into();
        match parse(&text) {
            Some(basis_points) => Ok(Self { text, basis_points }),
            None => Err(RatioError(text)),
        }
    }

    /// The ratio that the text means, basis points (10 000 = equal).
    pub fn basis_points(&self) -> u32 {
        self.basis_points
    }

    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Basis points as a percentage, exact, as `95 %`, `95.5 %`.
pub fn percent(basis_points: u64) -> String {
    let (whole, rest) = (basis_points / 100, basis_points % 100);
    match (rest, rest % 10) {
        (0, _) => format!("{whole} %"),
        (_, 0) => format!("{whole}.{} %", rest / 10),
        _ => format!("{whole}.{rest:02} %"),
    }
}

fn parse(text: &str) -> Option<u32> {
    let (number, whole_digits_max, decimals_max) = match text.strip_suffix('%') {
        Some(number) => (number, 6, 2),
        None => (text, 4, 4),
    };
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (number, None),
    };
    let are_digits = |part: &str, most| (1..=most).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    if !are_digits(whole, whole_digits_max) || !fraction.is_none_or(|part| are_digits(part, decimals_max)) {
        return None;
    }
    // Ten digits at most, of which the last are the decimals: below 10⁸.
    format!("{whole}{:0<decimals_max$}", fraction.unwrap_or_default()).parse().ok()
}

impl TryFrom<String> for RatioText {
    type Error = RatioError;

    fn try_from(text: String) -> Result<Self, RatioError> {
        Self::new(text)
    }
}

impl From<RatioText> for String {
    fn from(ratio: RatioText) -> Self {
        ratio.text
    }
}

impl JsonSchema for RatioText {
    fn schema_name() -> Cow<'static, str> {
        "Ratio".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": PATTERN, "maxLength": 10, "example": EXAMPLE })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn percent_and_fraction_mean_the_same() {
        for (text, basis_points) in [
            ("95%", 9_500),
            ("0.95", 9_500),
            ("95.5%", 9_550),
            ("1.05", 10_500),
            ("1", 10_000),
            ("100%", 10_000),
            ("0.0001", 1),
            ("9999.9999", 99_999_999),
            ("999999.99%", 99_999_999),
        ] {
            assert_eq!(RatioText::new(text).unwrap().basis_points(), basis_points, "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_the_remedy() {
        for text in ["", "%", ".95", "95.", "95 %", "-5%", "+1", "0.95001", "95.555%", "1e3", "12345", "٣%"] {
            let error = RatioText::new(text).unwrap_err().to_string();
            assert!(error.contains(EXAMPLE), "{error}");
        }
    }

    #[test]
    fn percentages_are_exact() {
        let shown = [9_500, 9_550, 9_555, 10_005, 0].map(percent);
        assert_eq!(shown, ["95 %", "95.5 %", "95.55 %", "100.05 %", "0 %"]);
    }

    proptest! {
        #[test]
        fn pattern_and_parser_agree(text in "[0-9]{0,7}(\\.[0-9]{0,5})?%?") {
            let pattern = regex_lite::Regex::new(PATTERN).unwrap();
            prop_assert_eq!(pattern.is_match(&text), RatioText::new(text.clone()).is_ok());
        }

        #[test]
        fn every_basis_point_can_be_written(basis_points in 0u32..10_000_000) {
            let text = percent(basis_points.into()).replace(' ', "");
            prop_assert_eq!(RatioText::new(text).unwrap().basis_points(), basis_points);
        }
    }
}
