//! From a suite to its runs, for both drivers: what each run is called and asks, which is next, and what came of all of them.
//!
//! Promises: the same suite always gives the same runs in the same order, under names that fit and differ; nothing is made from a template
//! that is not a valid run with every combination of values; which run is next depends on nothing but what became of the runs.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use storebench_crds::benchmark_suite::{
    BenchmarkSuite, BenchmarkSuiteSpec, OnFailure, Parameter, ParameterValue, RUNS_MAX, SuiteCounts, SuiteRun,
    SuiteRunState,
};
use storebench_crds::document::of_template;
use storebench_crds::status::Verdict;
use storebench_crds::template::TemplateMetadata;
use storebench_crds::{BenchmarkRun, GROUP, VERSION};

use crate::fingerprint;
use crate::validate::Problem;

/// The suite that a run belongs to.
pub const SUITE_LABEL: &str = "storebench.dev/suite";
/// The place of a run in its suite, counted from 0.
pub const INDEX_LABEL: &str = "storebench.dev/suite-index";
/// Before the name of a parameter: the value that a run has of it.
pub const PARAMETER_LABEL: &str = "parameter.storebench.dev/";

/// Characters of an object's name at most.
const NAME_CHARACTERS_MAX: usize = 63;
/// Characters of a suite's name that are kept in a name that is too long.
const SUITE_CHARACTERS_MAX: usize = 28;
/// Characters of the values of a run in a line of the status.
const VALUES_CHARACTERS_MAX: usize = 60;
/// Problems that are told of a suite at most: one mistake in a template is one in each run.
const PROBLEMS_MAX: usize = 20;

/// A run of a suite before it is made.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// The run's name.
    pub name: String,
    /// The parameters with their values, in the suite's order.
    pub values: Vec<(String, ParameterValue)>,
    /// The run's labels.
    pub labels: BTreeMap<String, String>,
    /// The spec with values in the place of `$(NAME)`.
    spec: Map<String, Value>,
}

impl Planned {
    /// The values in words, such as `valueBytes 64, clients 8`.
    pub fn words(&self) -> String {
        let words = self.values.iter().map(|(name, value)| format!("{name} {value}"));
        words.collect::<Vec<_>>().join(", ")
    }

    /// The run, held to every rule that it must fulfil by itself.
    ///
    /// # Errors
    /// All that is wrong with it: the field of the run, and the text.
    pub fn run(&self) -> Result<BenchmarkRun, Vec<(String, String)>> {
        of_template("BenchmarkRun", object_value("BenchmarkRun", &self.name, &self.labels, &self.spec))
    }
}

/// What is made, as a user would have written it.
pub(crate) fn object_value(
    kind: &str,
    name: &str,
    labels: &BTreeMap<String, String>,
    spec: &Map<String, Value>,
) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": kind,
        "metadata": { "name": name, "labels": labels },
        "spec": spec,
    })
}

/// The runs of a suite, the last parameter varying fastest, none of them held to the rules of a run yet.
///
/// # Errors
/// What is wrong with the suite itself: parameters that are given twice, too many, not used, or not known.
pub fn plan(suite: &BenchmarkSuite) -> Result<Vec<Planned>, Vec<Problem>> {
    let name = suite.metadata.name.as_deref().unwrap_or_default();
    let spec = &suite.spec;
    let problems = problems_of(spec);
    if !problems.is_empty() {
        return Err(of_suite(name, problems));
    }
    let mut combinations: Vec<Vec<(String, ParameterValue)>> = vec![Vec::new()];
    for Parameter { name, values } in &spec.parameters {
        let with = |before: &Vec<(String, ParameterValue)>, value: &ParameterValue| {
            before.iter().cloned().chain([(name.clone(), value.clone())]).collect::<Vec<_>>()
        };
        combinations =
            combinations.iter().flat_map(|before| values.iter().map(move |value| with(before, value))).collect();
    }
    let planned = combinations.into_iter().enumerate().map(|(index, values)| {
        let in_place = |text: &str| substituted(text, &values);
        let spec = spec.template.spec.iter().map(|(key, value)| (key.clone(), filled(value, &in_place)));
        Planned {
            name: run_name(name, &values),
            labels: labels(name, index, &values, suite.spec.template.metadata.as_ref()),
            spec: spec.collect(),
            values,
        }
    });
    let planned: Vec<Planned> = planned.collect();
    let twice = planned.iter().enumerate().find_map(|(index, one)| {
        planned[..index].iter().find(|other| other.name == one.name).map(|other| (one, other))
    });
    if let Some((one, other)) = twice {
        let text = format!(
            "has runs of one name, {}: that of {} and that of {}: choose values that differ in more than capitals",
            one.name,
            other.words(),
            one.words()
        );
        return Err(of_suite(name, vec![("spec.parameters".into(), text)]));
    }
    Ok(planned)
}

/// The runs of a suite, each a valid run by itself.
///
/// # Errors
/// As [`plan`], and what is wrong with the template, once where it is wrong in every run.
pub fn expand(suite: &BenchmarkSuite) -> Result<Vec<(Planned, BenchmarkRun)>, Vec<Problem>> {
    let name = suite.metadata.name.as_deref().unwrap_or_default();
    let (mut runs, mut told) = (Vec::new(), Told::default());
    for planned in plan(suite)? {
        match planned.run() {
            Ok(run) => runs.push((planned, run)),
            Err(problems) => problems.into_iter().for_each(|(field, text)| told.add(&planned, &field, text)),
        }
    }
    let problems = told.problems();
    if problems.is_empty() { Ok(runs) } else { Err(of_suite(name, problems)) }
}

/// Problems of runs as those of their template, each told once.
#[derive(Debug, Default)]
pub struct Told(Vec<(String, String, String)>);

impl Told {
    /// A problem of a run at a field of the run.
    pub fn add(&mut self, planned: &Planned, field: &str, text: String) {
        let field = field
            .strip_prefix("spec")
            .map_or_else(|| format!("spec.template {field}"), |rest| format!("spec.template.spec{rest}"));
        if self.0.len() < PROBLEMS_MAX && !self.0.iter().any(|(other, said, _)| *other == field && *said == text) {
            self.0.push((field, text, planned.words()));
        }
    }

    /// Field and text of each.
    pub fn problems(self) -> Vec<(String, String)> {
        let with_values = |(field, text, values)| (field, format!("{text} (in the run of {values})"));
        self.0.into_iter().map(with_values).collect()
    }
}

fn of_suite(name: &str, problems: Vec<(String, String)>) -> Vec<Problem> {
    let object = format!("BenchmarkSuite/{name}");
    problems.into_iter().map(|(field, text)| Problem { object: object.clone(), field, text }).collect()
}

/// What is wrong with parameters and with the places in the template where they stand.
fn problems_of(spec: &BenchmarkSuiteSpec) -> Vec<(String, String)> {
    let mut problems = Vec::new();
    let count = spec.parameters.iter().try_fold(1_usize, |count, one| count.checked_mul(one.values.len()));
    if count.is_none_or(|count| count > RUNS_MAX) {
        let text = format!("makes more than {RUNS_MAX} runs: give fewer values, or make several suites");
        problems.push(("spec.parameters".into(), text));
    }
    for (index, parameter) in spec.parameters.iter().enumerate() {
        for (place, value) in parameter.values.iter().enumerate() {
            if parameter.values[..place].contains(value) {
                let text = format!("`{value}` is there already: give each value once");
                problems.push((format!("spec.parameters[{index}].values[{place}]"), text));
            }
        }
    }
    let template = Value::Object(spec.template.spec.clone());
    let mut used = Vec::new();
    texts("spec.template.spec", &template, &mut |path, text| {
        for name in placeholders(text) {
            if !spec.parameters.iter().any(|parameter| parameter.name == name) {
                let known: Vec<&str> = spec.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
                let text = format!("$({name}) names no parameter: those of this suite are {}", known.join(", "));
                problems.push((path.to_owned(), text));
            }
            used.push(name.to_owned());
        }
    });
    for (index, parameter) in spec.parameters.iter().enumerate() {
        if !used.contains(&parameter.name) {
            let name = &parameter.name;
            let text =
                format!("`{name}` is not used: write $({name}) where the template wants its value, or remove it");
            problems.push((format!("spec.parameters[{index}].name"), text));
        }
    }
    problems.truncate(PROBLEMS_MAX);
    problems
}

/// Tells every text in a value, with its place.
fn texts(path: &str, value: &Value, tell: &mut impl FnMut(&str, &str)) {
    match value {
        Value::String(text) => tell(path, text),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| texts(&format!("{path}[{index}]"), item, tell));
        }
        Value::Object(fields) => fields.iter().for_each(|(name, value)| texts(&format!("{path}.{name}"), value, tell)),
        _ => {}
    }
}

/// A value with every text in it replaced.
fn filled(value: &Value, in_place: &impl Fn(&str) -> Value) -> Value {
    match value {
        Value::String(text) => in_place(text),
        Value::Array(items) => items.iter().map(|item| filled(item, in_place)).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, value)| (name.clone(), filled(value, in_place))).collect())
        }
        other => other.clone(),
    }
}

/// The names in `$(NAME)`, in the order in which they stand.
fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    text.split("$(").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0))
}

/// A text with values in the place of `$(NAME)`; alone, a number is a number.
fn substituted(text: &str, values: &[(String, ParameterValue)]) -> Value {
    let alone = |name: &str| text.strip_prefix("$(").and_then(|rest| rest.strip_suffix(')')) == Some(name);
    if let Some((_, value)) = values.iter().find(|(name, _)| alone(name)) {
        return value.json();
    }
    let replaced = values
        .iter()
        .fold(text.to_owned(), |text, (name, value)| text.replace(&format!("$({name})"), &value.to_string()));
    replaced.into()
}

/// The name of a run: the suite's and the values, as long as these tell it from all others and fit; else shortened, with a hash of both.
fn run_name(suite: &str, values: &[(String, ParameterValue)]) -> String {
    let parts: Vec<String> = values.iter().map(|(_, value)| value.to_string().to_lowercase()).collect();
    // A dash or dot within a value would make `1-2` and `3` read as `1` and `2-3`.
    let is_plain = parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    let plain = format!("{suite}-{}", parts.join("-"));
    if is_plain && plain.len() <= NAME_CHARACTERS_MAX {
        return plain;
    }
    let mut hash = Sha256::new();
    hash.update(suite);
    for (name, value) in values {
        hash.update([0]);
        hash.update(name);
        hash.update([0]);
        hash.update(value.to_string());
    }
    let hash: String = hash.finalize()[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    let suite = cut(suite, SUITE_CHARACTERS_MAX);
    let written: String =
        parts.join("-").chars().map(|one| if one.is_ascii_alphanumeric() { one } else { '-' }).collect();
    let written = cut(&written, NAME_CHARACTERS_MAX - suite.len() - hash.len() - 2);
    format!("{suite}-{written}-{hash}")
}

/// The beginning of an ASCII name, not ending with a dash.
pub(crate) fn cut(name: &str, characters_max: usize) -> &str {
    name.get(..characters_max).unwrap_or(name).trim_end_matches('-')
}

fn labels(
    suite: &str,
    index: usize,
    values: &[(String, ParameterValue)],
    metadata: Option<&TemplateMetadata>,
) -> BTreeMap<String, String> {
    let mut labels = metadata.map(|metadata| metadata.labels.clone()).unwrap_or_default();
    labels.extend(values.iter().map(|(name, value)| (format!("{PARAMETER_LABEL}{name}"), value.to_string())));
    labels.insert(SUITE_LABEL.into(), suite.into());
    labels.insert(INDEX_LABEL.into(), index.to_string());
    labels
}

/// Tells one template from every other: SHA-256, first 16 hexadecimal digits.
pub fn template_hash(suite: &BenchmarkSuite) -> String {
    // Maps are sorted, so that one template is always written alike.
    let text = serde_json::to_string(&suite.spec.template).unwrap_or_default();
    fingerprint::shortened(Sha256::digest(text).as_ref())
}

/// What is to be done for a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// This run is to be made.
    Make(usize),
    /// This run is not over.
    Wait(usize),
    /// Nothing: all have ended, or are left out.
    End {
        /// The gravest of all.
        verdict: Verdict,
        /// The run that has not passed, for which those that wait are left out.
        stopped_by: Option<usize>,
    },
}

/// Whether the runs after one with this verdict are left out.
fn stops(on_failure: OnFailure, verdict: Verdict) -> bool {
    on_failure == OnFailure::Stop && verdict != Verdict::Passed
}

/// What is next, from what became of the runs, in their order.
pub fn next(states: &[SuiteRunState], on_failure: OnFailure) -> Next {
    if let Some(index) = states.iter().position(|state| *state == SuiteRunState::Running) {
        return Next::Wait(index);
    }
    let stopped_by = states.iter().position(|state| state.verdict().is_some_and(|verdict| stops(on_failure, verdict)));
    match states.iter().position(|state| *state == SuiteRunState::Waiting) {
        Some(index) if stopped_by.is_none() => Next::Make(index),
        _ => Next::End { verdict: gravest(states.iter().filter_map(|state| state.verdict())), stopped_by },
    }
}

/// A suite has ended: the runs that wait are left out.
pub fn leave_out(states: &mut [SuiteRunState]) {
    for state in states.iter_mut().filter(|state| **state == SuiteRunState::Waiting) {
        *state = SuiteRunState::Skipped;
    }
}

/// The gravest of verdicts; of none, that nothing was found wrong.
pub fn gravest(verdicts: impl Iterator<Item = Verdict>) -> Verdict {
    let rank = |verdict: &Verdict| match verdict {
        Verdict::Passed => 0,
        Verdict::NoBaseline => 1,
        Verdict::Inconclusive => 2,
        Verdict::Regressed => 3,
        Verdict::Invalid => 4,
    };
    verdicts.max_by_key(rank).unwrap_or(Verdict::Passed)
}

/// Runs by what became of them.
pub fn counts(states: &[SuiteRunState]) -> SuiteCounts {
    let mut counts = SuiteCounts { total: states.len() as u32, ..SuiteCounts::default() };
    for state in states {
        *match state {
            SuiteRunState::Waiting => &mut counts.waiting,
            SuiteRunState::Running => &mut counts.running,
            SuiteRunState::Passed => &mut counts.passed,
            SuiteRunState::Skipped => &mut counts.skipped,
            SuiteRunState::Regressed
            | SuiteRunState::Inconclusive
            | SuiteRunState::Invalid
            | SuiteRunState::NoBaseline
            | SuiteRunState::Deleted => &mut counts.failed,
        } += 1;
    }
    counts
}

/// A line of the status.
pub fn line(planned: &Planned, state: SuiteRunState, throughput_ratio: Option<String>) -> SuiteRun {
    let values = planned.values.iter().map(|(_, value)| value.to_string()).collect::<Vec<_>>().join(" ");
    let throughput_ratio = throughput_ratio.map(|ratio| ratio.chars().take(28).collect());
    SuiteRun {
        name: planned.name.clone(),
        values: values.chars().take(VALUES_CHARACTERS_MAX).collect(),
        state,
        throughput_ratio,
    }
}

#[cfg(test)]
mod tests;
