//! Reads Prometheus's text format, as far as a scraper of known metrics needs it: the samples of the metrics that are wanted.
//! Pure.
//!
//! Format: "Exposition formats" of Prometheus's documentation, version 0.0.4; OpenMetrics' timestamps and exemplars behind a
//! value are skipped.

use std::borrow::Cow;

/// One sample: a line `name{label="value",…} 1.5`.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample<'a> {
    /// The metric's name; of a histogram with its `_bucket`, `_sum` or `_count`.
    pub name: &'a str,
    /// Labels in the order in which they stand.
    pub labels: Vec<(&'a str, Cow<'a, str>)>,
    /// The value, which may be infinite or not a number.
    pub value: f64,
}

impl Sample<'_> {
    /// The value of a label; empty where there is none, which means the same.
    pub fn label(&self, name: &str) -> &str {
        self.labels.iter().find(|(label, _)| *label == name).map_or("", |(_, value)| value)
    }
}

/// A line that should be a sample and is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the metrics is no sample: {problem}")]
pub struct ExpositionError {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: &'static str,
}

/// The samples of those metrics whose names are wanted, in the order in which they stand.
///
/// # Errors
/// [`ExpositionError`] for a line that begins with a wanted name and goes on as no sample does. Others are not looked at.
pub fn samples(text: &str, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<Sample<'_>>, ExpositionError> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let end = line.find(['{', ' ', '\t']).unwrap_or(line.len());
        let (name, rest) = line.split_at(end);
        // A comment begins with a name that nobody wants.
        if is_wanted(name) {
            let sample = sample(name, rest).map_err(|problem| ExpositionError { line: index + 1, problem })?;
            found.push(sample);
        }
    }
    Ok(found)
}

fn sample<'a>(name: &'a str, rest: &'a str) -> Result<Sample<'a>, &'static str> {
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    // "+Inf" and "NaN" are numbers to Rust as well.
    let value = rest.split_ascii_whitespace().next().and_then(|value| value.parse().ok());
    Ok(Sample { name, labels, value: value.ok_or("its value is no number")? })
}

type Labels<'a> = Vec<(&'a str, Cow<'a, str>)>;

/// Labels up to the closing brace, and what follows that.
fn labels(mut rest: &str) -> Result<(Labels<'_>, &str), &'static str> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(rest) = rest.strip_prefix('}') {
            return Ok((labels, rest));
        }
        let (name, quoted) = rest.split_once("=\"").ok_or("a label has no value in quotes")?;
        let (value, behind) = quoted_text(quoted).ok_or("a label's quotes are not closed")?;
        labels.push((name.trim(), value));
        rest = behind;
    }
}

/// A label's value up to its closing quote, and what follows that.
fn quoted_text(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let first = text.find(['"', '\\'])?;
    if text[first..].starts_with('"') {
        return Some((Cow::Borrowed(&text[..first]), &text[first + 1..]));
    }
    let mut value = text[..first].to_owned();
    let mut characters = text[first..].char_indices();
    while let Some((offset, character)) = characters.next() {
        match character {
            '"' => return Some((Cow::Owned(value), &text[first + offset + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(text: &str) -> Result<Vec<Sample<'_>>, ExpositionError> {
        samples(text, |name| !name.is_empty() && !name.starts_with('#'))
    }

    #[test]
    fn samples_are_read_and_what_is_not_wanted_is_not_looked_at() {
        let text =
            "# HELP a{ b\n# TYPE a counter\na 1\nb{x=\"1\",le=\"+Inf\"} 2.5 1700000000000\n\nc{broken\na{} +Inf\n";
        let found = samples(text, |name| name == "a" || name == "b").unwrap();
        assert_eq!(found.len(), 3);
        assert_eq!((found[0].name, found[0].value, found[0].labels.len()), ("a", 1.0, 0));
        assert_eq!(
            (found[1].label("x"), found[1].label("le"), found[1].label("none"), found[1].value),
            ("1", "+Inf", "", 2.5)
        );
        assert!(found[2].value.is_infinite());
    }

    #[test]
    fn a_line_that_is_no_sample_is_named() {
        for (text, line, problem) in [
            ("a 1\na x\n", 2, "its value is no number"),
            ("a\n", 1, "its value is no number"),
            ("a{b=\"c\n", 1, "a label's quotes are not closed"),
            ("a{b} 1\n", 1, "a label has no value in quotes"),
            ("a{b=\"c\" 1\n", 1, "a label has no value in quotes"),
        ] {
            assert_eq!(all(text), Err(ExpositionError { line, problem }), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            labels in prop::collection::vec(("[a-z_]{1,8}", any::<String>()), 0..4),
            value in any::<u32>(),
        ) {
            let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            // A carriage return at a line's end is the reader's, as with any reader of lines.
            let labels: Vec<_> = labels.into_iter().map(|(name, text)| (name, text.replace('\r', ""))).collect();
            let inside: Vec<String> = labels.iter().map(|(name, text)| format!("{name}=\"{}\"", escaped(text))).collect();
            let text = format!("metric{{{}}} {value}\n", inside.join(","));
            let found = all(&text).unwrap();
            prop_assert_eq!(found[0].value, f64::from(value));
            let read: Vec<(String, String)> =
                found[0].labels.iter().map(|(name, text)| ((*name).to_owned(), text.to_string())).collect();
            prop_assert_eq!(read, labels);
        }

        #[test]
        fn arbitrary_text_is_refused_not_fatal(text in any::<String>()) {
            let _ = samples(&text, |_| true);
        }
    }
}
