//! Whether a dashboard asks for what a program says, and for all of it.

use std::collections::BTreeSet;
use std::path::Path;

/// Fails unless `grafana/DASHBOARD` asks for each metric whose name begins with `prefix` that `exposition`, the text of
/// `/metrics`, has, and for no other.
#[track_caller]
pub fn check(dashboard: &str, prefix: &str, exposition: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../grafana").join(dashboard);
    let asked = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let samples = exposition.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
    let (asked, said) = (metrics(prefix, &asked), metrics(prefix, &samples));
    assert!(!said.is_empty(), "nothing that begins with {prefix} in:\n{exposition}");
    assert_eq!(asked, said, "{dashboard} asks for the left, and the program says the right");
}

/// Fails unless every metric whose name begins with `prefix` that `grafana/RULES` asks for is one that `exposition` has.
#[track_caller]
pub fn check_rules(rules: &str, prefix: &str, exposition: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../grafana").join(rules);
    let asked = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (asked, said) = (metrics(prefix, &asked), metrics(prefix, exposition));
    let missing: Vec<_> = asked.difference(&said).collect();
    assert!(asked.len() > 3 && missing.is_empty(), "{rules} asks for {missing:?}, which the program does not say");
}

/// Names of metrics in a text, without the endings that a histogram or a counter gives them.
fn metrics<'a>(prefix: &str, text: &'a str) -> BTreeSet<&'a str> {
    let is_of_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let starts = text.match_indices(prefix).map(|(start, _)| start);
    let whole = starts.filter(|start| !text[..*start].ends_with(is_of_name));
    let name = |start: usize| text[start..].split(|character| !is_of_name(character)).next().unwrap_or_default();
    let endings = ["_bucket", "_sum", "_count", "_total"];
    let family = |name: &'a str| endings.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
    whole.map(name).map(family).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_whole_and_without_the_ending_of_its_kind() {
        let query = "sum(rate(store_puts_total[1m])) / store_wait_seconds_bucket{le=\"1\"} + other_store_gets";
        assert_eq!(metrics("store_", query), BTreeSet::from(["store_puts", "store_wait_seconds"]));
    }
}
