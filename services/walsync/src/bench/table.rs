//! What a test found: one row for each arm and number, as text or as JSON.

use super::Test;
use serde_json::{Map, json};

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Text(String),
    Count(u64),
    Number(f64),
    /// Nobody can say.
    Missing,
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<Option<f64>> for Value {
    fn from(number: Option<f64>) -> Value {
        number.map_or(Value::Missing, Value::Number)
    }
}

impl From<Option<u64>> for Value {
    fn from(count: Option<u64>) -> Value {
        count.map_or(Value::Missing, Value::Count)
    }
}

/// What a figure is called: in JSON, and above its column; and how exact it is in text.
pub struct Column(pub &'static str, pub &'static str, pub usize);

pub struct Table {
    pub test: Test,
    /// How it was measured, in a line.
    pub about: String,
    pub columns: &'static [Column],
    pub rows: Vec<Vec<Value>>,
}

impl Table {
    pub fn text(&self) -> String {
        let cell = |value: &Value, decimals: usize| match value {
            Value::Text(text) => text.clone(),
            Value::Count(count) => count.to_string(),
            Value::Number(number) => format!("{number:.decimals$}"),
            Value::Missing => "-".to_owned(),
        };
        let mut lines = vec![self.columns.iter().map(|column| column.1.to_owned()).collect::<Vec<_>>()];
        lines.extend(
            self.rows
                .iter()
                .map(|row| row.iter().zip(self.columns).map(|(value, column)| cell(value, column.2)).collect()),
        );
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|at| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or_default())
            .collect();
        let mut text = format!("\n{}: {}\n", self.test.name(), self.about);
        for line in lines {
            let padded = line.iter().zip(&widths).enumerate().map(|(at, (cell, width))| {
                // Words begin where their column does, figures end there.
                let is_words = self.rows.iter().any(|row| matches!(row[at], Value::Text(_)));
                if is_words { format!("{cell:width$}") } else { format!("{cell:>width$}") }
            });
            text += padded.collect::<Vec<_>>().join("  ").trim_end();
            text.push('\n');
        }
        text
    }

    pub fn json(&self) -> serde_json::Value {
        let row = |row: &Vec<Value>| {
            let pairs = row.iter().zip(self.columns).map(|(value, column)| {
                let value = match value {
                    Value::Text(text) => json!(text),
                    Value::Count(count) => json!(count),
                    Value::Number(number) => json!(number),
                    Value::Missing => serde_json::Value::Null,
                };
                (column.0.to_owned(), value)
            });
            serde_json::Value::Object(pairs.collect::<Map<_, _>>())
        };
        json!({ "test": self.test.name(), "about": self.about, "rows": self.rows.iter().map(row).collect::<Vec<_>>() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table {
            test: Test::Idle,
            about: "nobody writes".into(),
            columns: &[Column("databases", "databases", 0), Column("arm", "arm", 0), Column("rss_mib", "RSS MiB", 1)],
            rows: vec![
                vec![Value::Count(1), "walsync".into(), Value::Number(5.94)],
                vec![Value::Count(1000), "litestream".into(), Value::Missing],
            ],
        }
    }

    #[test]
    fn figures_end_with_their_column_and_words_begin_with_it() {
        let expected = "\nidle: nobody writes\n\
                        databases  arm         RSS MiB\n        \
                        1  walsync         5.9\n     \
                        1000  litestream        -\n";
        assert_eq!(table().text(), expected);
    }

    #[test]
    fn json_has_each_figure_by_its_name_and_null_where_there_is_none() {
        let rows = json!([
            { "databases": 1, "arm": "walsync", "rss_mib": 5.94 },
            { "databases": 1000, "arm": "litestream", "rss_mib": null },
        ]);
        assert_eq!(table().json(), json!({ "test": "idle", "about": "nobody writes", "rows": rows }));
    }
}
