//! Runs as JUnit's XML, which every pipeline shows: each gate a test case, and one for whether the measurement can be trusted.

use std::fmt::Write as _;

use storebench_crds::status::{GateOutcome, GateResult, Verdict};

use super::Report;
use crate::across::HeldAgainst;

/// Renders reports: each a test suite.
///
/// A gate that was missed is a failure. One that is undecided is a failure where the run is Inconclusive by it, and skipped where the run
/// lets it be. A run that was held against an earlier one has a test case for that. A run that is Regressed or Inconclusive has a failure,
/// whatever made it so. Nothing of a run that is Invalid passes: its first test case is an error, its gates are skipped.
pub fn junit(reports: &[Report]) -> String {
    let mut suites = String::new();
    let mut totals = Counts::default();
    for report in reports {
        let (suite, counts) = suite(report);
        suites.push_str(&suite);
        totals.add(&counts);
    }
    let time: u64 = reports.iter().map(|report| report.record.duration_millis).sum();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"storebench\"{}{}>\n{suites}</testsuites>\n",
        totals.attributes(),
        seconds(time)
    )
}

#[derive(Default)]
struct Counts {
    tests: usize,
    failures: usize,
    errors: usize,
    skipped: usize,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.tests += other.tests;
        self.failures += other.failures;
        self.errors += other.errors;
        self.skipped += other.skipped;
    }

    fn attributes(&self) -> String {
        let Self { tests, failures, errors, skipped } = self;
        format!(" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\"")
    }
}

fn seconds(millis: u64) -> String {
    format!(" time=\"{}.{:03}\"", millis / 1000, millis % 1000)
}

/// What became of a test case.
enum Outcome {
    Passed,
    Failure(&'static str, String),
    Error(&'static str, String),
    Skipped(String),
}

fn suite(report: &Report) -> (String, Counts) {
    let (record, judgement) = (&report.record, &report.judgement);
    let class = escape(&record.name);
    let mut cases = String::new();
    let mut counts = Counts::default();
    let mut case = |name: &str, found: &str, outcome: Outcome| {
        let inside = match outcome {
            Outcome::Passed => String::new(),
            Outcome::Failure(kind, why) => {
                counts.failures += 1;
                format!("      <failure type=\"{kind}\" message=\"{}\"/>\n", escape(&why))
            }
            Outcome::Error(kind, why) => {
                counts.errors += 1;
                format!("      <error type=\"{kind}\" message=\"{}\"/>\n", escape(&why))
            }
            Outcome::Skipped(why) => {
                counts.skipped += 1;
                format!("      <skipped message=\"{}\"/>\n", escape(&why))
            }
        };
        counts.tests += 1;
        let found = if found.is_empty() {
            String::new()
        } else {
            format!("      <system-out>{}</system-out>\n", escape(found))
        };
        let _ = write!(
            cases,
            "    <testcase classname=\"{class}\" name=\"{}\">\n{inside}{found}    </testcase>\n",
            escape(name)
        );
    };
    let against = HeldAgainst::of(judgement);
    let measured = measurement(report, against.map(|held| held.verdict));
    case("the measurement can be trusted", &judgement.caveats.join("; "), measured);
    for gate in &judgement.gates {
        case(&gate.gate, &gate.found, of_gate(gate, judgement.verdict));
    }
    if let Some(held) = against {
        case("against the baseline", &held.to_string(), of_baseline(&held));
    }
    let properties = [
        ("verdict", format!("{:?}", judgement.verdict)),
        ("message", judgement.message.clone()),
        ("fingerprint", record.fingerprint.hash.clone()),
        ("storebench", record.storebench_version.clone()),
    ];
    let properties = properties
        .iter()
        .map(|(name, value)| format!("      <property name=\"{name}\" value=\"{}\"/>\n", escape(value)))
        .collect::<String>();
    let text = format!(
        "  <testsuite name=\"{class}\"{}{} timestamp=\"{}\">\n    <properties>\n{properties}    </properties>\n{cases}  </testsuite>\n",
        counts.attributes(),
        seconds(record.duration_millis),
        escape(&record.started_at)
    );
    (text, counts)
}

/// `against`: what came of holding the run against an earlier one.
fn measurement(report: &Report, against: Option<Verdict>) -> Outcome {
    let message = || report.judgement.message.clone();
    let is_said = has_failed(report) || matches!(against, Some(Verdict::Regressed | Verdict::Inconclusive));
    match report.judgement.verdict {
        Verdict::Invalid => Outcome::Error("Invalid", message()),
        // Said by the case of the baseline, which the run has.
        Verdict::NoBaseline if against.is_none() => Outcome::Skipped(message()),
        // Said by what failed; where nothing did, by this.
        Verdict::Regressed if !is_said => Outcome::Failure("Regressed", message()),
        Verdict::Inconclusive if !is_said => Outcome::Failure("Inconclusive", message()),
        Verdict::Passed | Verdict::NoBaseline | Verdict::Regressed | Verdict::Inconclusive => Outcome::Passed,
    }
}

fn of_baseline(held: &HeldAgainst<'_>) -> Outcome {
    let message = held.message.to_owned();
    match held.verdict {
        Verdict::Passed => Outcome::Passed,
        Verdict::Regressed => Outcome::Failure("Regressed", message),
        Verdict::Inconclusive => Outcome::Failure("Inconclusive", message),
        Verdict::Invalid | Verdict::NoBaseline => Outcome::Skipped(message),
    }
}

/// Whether a gate says why the run has not passed.
fn has_failed(report: &Report) -> bool {
    let verdict = report.judgement.verdict;
    let is_why = |gate: &GateResult| match verdict {
        Verdict::Regressed => gate.outcome == GateOutcome::Missed,
        _ => matches!(of_gate(gate, verdict), Outcome::Failure(..)),
    };
    report.judgement.gates.iter().any(is_why)
}

fn of_gate(gate: &GateResult, verdict: Verdict) -> Outcome {
    let found = || gate.found.clone();
    match gate.outcome {
        _ if verdict == Verdict::Invalid => Outcome::Skipped("the measurement cannot be trusted".into()),
        GateOutcome::Met => Outcome::Passed,
        GateOutcome::Missed => Outcome::Failure("Missed", found()),
        GateOutcome::Undecided | GateOutcome::NotJudged if verdict == Verdict::Inconclusive => {
            Outcome::Failure("Undecided", found())
        }
        GateOutcome::Undecided | GateOutcome::NotJudged => Outcome::Skipped(found()),
    }
}

/// Text in an attribute or element: one line, as in HTML, without the two characters that XML has no place for.
fn escape(text: &str) -> String {
    super::html::escape(text).replace(['\u{FFFE}', '\u{FFFF}'], "\u{FFFD}")
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;
    use crate::across::tell_both;

    fn with(verdict: Verdict, outcomes: &[GateOutcome]) -> Report {
        let mut report = fixture::two_arms();
        report.record.name = "a&b".into();
        report.judgement.verdict = verdict;
        let gate = |(index, outcome): (usize, &GateOutcome)| GateResult {
            gate: format!("valkey set ThroughputPerSecond ≥ 9{index} % of <redis>"),
            outcome: *outcome,
            found: "97.0 % (95.0–99.0 %), 6 pairs".into(),
        };
        report.judgement.gates = outcomes.iter().enumerate().map(gate).collect();
        report
    }

    fn head(reports: &[Report]) -> String {
        junit(reports).lines().nth(1).unwrap_or_default().to_owned()
    }

    #[test]
    fn each_gate_is_a_test_case() {
        let report = with(Verdict::Regressed, &[GateOutcome::Met, GateOutcome::Missed]);
        let xml = junit(std::slice::from_ref(&report));
        assert!(head(&[report]).contains("tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"0\""), "{xml}");
        assert!(
            xml.contains("classname=\"a&amp;b\" name=\"valkey set ThroughputPerSecond ≥ 91 % of &lt;redis&gt;\""),
            "{xml}"
        );
        assert!(xml.contains("<failure type=\"Missed\" message=\"97.0 %"), "{xml}");
        assert_eq!(xml.matches("<testcase ").count(), xml.matches("</testcase>").count());
    }

    #[test]
    fn what_is_undecided_fails_only_where_the_run_says_so() {
        let undecided = [GateOutcome::Undecided];
        assert!(head(&[with(Verdict::Inconclusive, &undecided)]).contains("failures=\"1\" errors=\"0\" skipped=\"0\""));
        assert!(head(&[with(Verdict::Passed, &undecided)]).contains("failures=\"0\" errors=\"0\" skipped=\"1\""));
    }

    #[test]
    fn a_run_that_is_worse_than_its_baseline_is_not_all_green() {
        let held = |own, gates: &[GateOutcome], against| {
            let mut report = with(own, gates);
            let before = report.record.clone();
            tell_both(&mut report.judgement, "--baseline", &before, against, "slower by far");
            report
        };
        let worse = held(Verdict::Passed, &[GateOutcome::Met], Verdict::Regressed);
        let xml = junit(std::slice::from_ref(&worse));
        assert!(head(&[worse]).contains("tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"0\""), "{xml}");
        assert!(xml.contains("name=\"against the baseline\"") && xml.contains("<failure type=\"Regressed\""), "{xml}");
        let cannot = held(Verdict::Passed, &[], Verdict::NoBaseline);
        assert!(head(&[cannot]).contains("tests=\"2\" failures=\"0\" errors=\"0\" skipped=\"1\""));
        let untold = held(Verdict::Passed, &[], Verdict::Inconclusive);
        assert!(head(&[untold]).contains("tests=\"2\" failures=\"1\""));
        // Whoever made it so: no verdict of this kind is without a failure.
        assert!(head(&[with(Verdict::Regressed, &[GateOutcome::Met])]).contains("tests=\"2\" failures=\"1\""));
    }

    #[test]
    fn nothing_of_an_invalid_run_passes() {
        let report = with(Verdict::Invalid, &[GateOutcome::Met, GateOutcome::Missed]);
        assert!(head(std::slice::from_ref(&report)).contains("tests=\"3\" failures=\"0\" errors=\"1\" skipped=\"2\""));
        assert!(head(&[report, with(Verdict::Passed, &[])]).contains("tests=\"4\" failures=\"0\" errors=\"1\""));
    }

    #[test]
    fn text_from_outside_cannot_become_markup() {
        let mut report = with(Verdict::Passed, &[]);
        report.judgement.caveats = vec!["]]><x a=\"'\u{1b}[31m\u{FFFF}\n".into()];
        let xml = junit(&[report]);
        assert!(!xml.contains("<x") && !xml.contains('\u{1b}') && !xml.contains('\u{FFFF}'), "{xml}");
    }
}
