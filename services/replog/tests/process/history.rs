//! What clients did and saw. Written as JSON lines for a checker of linearizability, and checked here by rules that are necessary
//! for it and cheap.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

/// One request whose effect or answer counts.
#[derive(Clone, Debug)]
pub struct Operation {
    pub client: usize,
    pub key: String,
    /// For a get, what was seen.
    pub value: Option<String>,
    pub start_nanos: u64,
    /// `None`: nobody knows whether it happened.
    pub end_nanos: Option<u64>,
    /// Of a get; puts have none.
    pub level: Option<&'static str>,
}

impl Operation {
    fn is_put(&self) -> bool {
        self.level.is_none()
    }

    fn to_json(&self) -> String {
        let text = |value: &Option<String>| value.as_ref().map_or("null".into(), |value| format!("\"{value}\""));
        format!(
            r#"{{"client":{},"key":"{}","op":"{}","value":{},"start_nanos":{},"end_nanos":{},"level":{}}}"#,
            self.client,
            self.key,
            if self.is_put() { "put" } else { "get" },
            text(&self.value),
            self.start_nanos,
            self.end_nanos.map_or("null".into(), |end| end.to_string()),
            text(&self.level.map(str::to_owned)),
        )
    }
}

pub fn write(path: &Path, history: &[Operation]) {
    let mut out = BufWriter::new(File::create(path).unwrap());
    for operation in history {
        writeln!(out, "{}", operation.to_json()).unwrap();
    }
    out.flush().unwrap();
}

/// What is wrong, for every get: it saw a value that nobody had begun to write, or one that had certainly been replaced before the
/// get began, or nothing although something had been acknowledged.
pub fn violations(history: &[Operation]) -> Vec<String> {
    let mut keys: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    history.iter().for_each(|operation| keys.entry(&operation.key).or_default().push(operation));
    keys.into_values().flat_map(|operations| violations_of_key(&operations)).collect()
}

fn violations_of_key(operations: &[&Operation]) -> Vec<String> {
    let puts = operations.iter().filter(|operation| operation.is_put());
    let writers: BTreeMap<&str, &Operation> =
        puts.clone().filter_map(|put| Some((put.value.as_deref()?, *put))).collect();
    // By the end of acknowledged puts: when the newest of those so far began.
    let mut acknowledged: Vec<(u64, u64)> = puts.filter_map(|put| Some((put.end_nanos?, put.start_nanos))).collect();
    acknowledged.sort_unstable();
    let mut newest = 0;
    for (_, start) in &mut acknowledged {
        newest = newest.max(*start);
        *start = newest;
    }
    let mut wrong = Vec::new();
    for get in operations.iter().filter(|operation| !operation.is_put()) {
        let before = acknowledged.partition_point(|(end, _)| *end < get.start_nanos);
        let newest_start = before.checked_sub(1).map(|last| acknowledged[last].1);
        let problem = match &get.value {
            None => newest_start.map(|_| "saw nothing, after a put was acknowledged"),
            Some(value) => match writers.get(value.as_str()) {
                None => Some("saw what nobody wrote"),
                Some(put) if get.end_nanos.is_some_and(|end| put.start_nanos > end) => {
                    Some("saw what was written later")
                }
                Some(put) if newest_start > Some(put.end_nanos.unwrap_or(u64::MAX)) => {
                    Some("saw what had been replaced")
                }
                Some(_) => None,
            },
        };
        wrong.extend(problem.map(|problem| format!("{problem}: {}", get.to_json())));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(value: Option<&str>, start: u64, end: Option<u64>, level: Option<&'static str>) -> Operation {
        let value = value.map(str::to_owned);
        Operation { client: 1, key: "a".into(), value, start_nanos: start, end_nanos: end, level }
    }

    #[test]
    fn what_cannot_be_is_seen() {
        let puts = [operation(Some("1"), 10, Some(20), None), operation(Some("2"), 30, Some(40), None)];
        let unknown = operation(Some("3"), 25, None, None);
        let check = |value: Option<&str>, start: u64| {
            let get = operation(value, start, Some(start + 5), Some("lease"));
            violations(&[puts[0].clone(), puts[1].clone(), unknown.clone(), get]).len()
        };
        assert_eq!(check(Some("2"), 50), 0);
        assert_eq!(check(Some("3"), 50), 0, "it may have happened at any time since");
        assert_eq!(check(Some("1"), 35), 0, "the second may not have happened yet");
        assert_eq!(check(None, 5), 0);
        assert_eq!(check(Some("1"), 50), 1, "replaced");
        assert_eq!(check(None, 50), 1, "lost");
        assert_eq!(check(Some("9"), 50), 1, "invented");
        assert_eq!(check(Some("2"), 1), 1, "from the future");
    }
}
