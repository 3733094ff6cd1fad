//! Two runs and many, made from a report that a driver could have written, so that what moved is known.

use storebench_crds::Metric;
use storebench_crds::status::Verdict;

use super::*;
use crate::judgement::judge;
use crate::report::fixture;
use crate::report::{Report, document_html, document_markdown, document_text, trends, two_runs};

/// A run of that day, in which every arm of these names took so many times as long for each request.
fn run_of(day: u32, slower: &[(&str, f64)]) -> Report {
    let mut report = fixture::two_arms();
    report.record.started_at = format!("2026-{:02}-{:02}T01:00:00Z", 1 + day / 28, 1 + day % 28);
    for trial in &mut report.record.trials {
        // Each night is a little different, each trial again.
        let noise = f64::from((day * 7 + trial.index * 13 + trial.arm.len() as u32) % 11) / 1_000.0;
        let factor = slower.iter().find(|(arm, _)| *arm == trial.arm).map_or(1.0, |(_, factor)| *factor) + noise;
        for workload in &mut trial.workloads {
            workload.summary.elapsed_nanos = (workload.summary.elapsed_nanos as f64 * factor) as u64;
        }
    }
    report.judgement = judge(&report.record);
    report
}

fn names() -> (String, String) {
    let report = fixture::two_arms();
    let name = |baseline| report.record.arms.iter().find(|arm| arm.baseline == baseline).unwrap().name.clone();
    (name(true), name(false))
}

fn compared(before: &Report, after: &Report) -> TwoRuns {
    TwoRuns::of(before, after, TOLERANCE_DEFAULT_BASIS_POINTS, false).unwrap()
}

fn row<'a>(pair: &'a TwoRuns, arm: &str) -> &'a Row {
    pair.rows.iter().find(|row| row.arm == arm && row.metric == Metric::THROUGHPUT).unwrap()
}

#[test]
fn a_run_compared_with_itself_is_not_worse() {
    let (_, arm) = names();
    let report = run_of(1, &[]);
    let pair = compared(&report, &report);
    assert!(pair.differences.0.is_empty(), "{:?}", pair.differences);
    assert_eq!(row(&pair, &arm).ratio_basis_points, 10_000);
    assert_ne!(pair.verdict, Verdict::Regressed);
}

#[test]
fn an_arm_that_became_slower_is_told_from_a_machine_that_did() {
    let (control, arm) = names();
    let before = run_of(1, &[]);
    let slower = compared(&before, &run_of(2, &[(&arm, 1.3)]));
    assert_eq!(slower.verdict, Verdict::Regressed, "{}", slower.message);
    assert!(slower.message.contains(&format!("throughput of {arm}")), "{}", slower.message);
    assert_eq!(row(&slower, &arm).against, Against::Control(control.clone()));
    let machine = compared(&before, &run_of(2, &[(&arm, 1.3), (&control, 1.3)]));
    assert_ne!(machine.verdict, Verdict::Regressed, "{}", machine.message);
    assert!(row(&machine, &control).ratio_basis_points < 8_000, "what the control did is shown");
    assert_eq!(row(&machine, &control).outcome, Outcome::Shown);
}

#[test]
fn an_unchanged_baseline_is_none_after_an_upgrade() {
    let (control, arm) = names();
    let before = run_of(1, &[]);
    let mut after = run_of(2, &[(&arm, 1.3)]);
    let baseline = after.record.arms.iter_mut().find(|one| one.name == control).unwrap();
    baseline.version = Some("99".into());
    let pair = compared(&before, &after);
    assert_eq!(row(&pair, &arm).against, Against::Nothing);
    assert_eq!(pair.verdict, Verdict::Regressed);
    let told = pair.differences.0.iter().find(|one| one.what == format!("version of arm {control}")).unwrap();
    assert_eq!((told.part, told.after.as_str()), (Part::Services, "99"));
}

#[test]
fn unlike_machines_are_not_compared_in_silence() {
    let before = run_of(1, &[]);
    let mut after = run_of(2, &[]);
    after.record.fingerprint.facts.insert("kernel".into(), "7.0".into());
    let refused = TwoRuns::of(&before, &after, 500, false).unwrap_err().to_string();
    assert!(refused.contains("kernel: ") && refused.contains("then 7.0"), "{refused}");
    assert!(refused.ends_with("say --allow-different-machine"), "{refused}");
    let pair = TwoRuns::of(&before, &after, 500, true).unwrap();
    let text = document_text(two_runs(&[pair]), 120, false);
    assert!(text.contains("UNLIKE MACHINES") && text.contains("machine: kernel: "), "{text}");
}

#[test]
fn only_what_was_asked_alike_is_compared_and_the_rest_is_named() {
    let before = run_of(1, &[]);
    let mut after = run_of(2, &[]);
    let name = after.record.spec.workloads[0].name.clone();
    after.record.spec.workloads[0].load.connections += 1;
    let pair = compared(&before, &after);
    assert!(pair.rows.iter().all(|row| row.workload != name));
    assert_eq!(pair.left_out, [format!("workload {name} asks for something else")]);
    after.record.spec.workloads.truncate(1);
    let refused = TwoRuns::of(&before, &after, 500, false).unwrap_err().to_string();
    assert!(refused.contains("nothing in common") && refused.contains(&name), "{refused}");
}

#[test]
fn an_invalid_run_is_compared_with_nothing() {
    let before = run_of(1, &[]);
    let mut after = run_of(2, &[]);
    (after.judgement.verdict, after.judgement.message) = (Verdict::Invalid, "a wrong answer".into());
    let pair = compared(&before, &after);
    assert_eq!((pair.verdict, pair.message.as_str()), (Verdict::Invalid, "the second run is Invalid: a wrong answer"));
    assert!(document_text(two_runs(&[pair]), 100, false).contains("not ranked"));
}

/// Thirty nights; from one on the arm is slower, and its executable is another.
fn history(planted: Option<u32>) -> Vec<Report> {
    let (_, arm) = names();
    let night = |day: u32| {
        let is_after = planted.is_some_and(|planted| day >= planted);
        let factor = if is_after { 1.1 } else { 1.0 };
        let mut report = run_of(day, &[(&arm, factor)]);
        if is_after {
            let service = report.record.arms.iter().find(|one| one.name == arm).unwrap().service.clone();
            report.record.fingerprint.facts.insert(format!("service {service}"), "another build".into());
        }
        report
    };
    (0..30).map(night).collect()
}

#[test]
fn what_made_last_weeks_run_slower_is_named() {
    let (control, arm) = names();
    let trend = Trend::of(&history(Some(25)), false).unwrap();
    assert_eq!(trend.verdict, Verdict::Regressed, "{}", trend.message);
    let series = trend.series.iter().find(|one| one.arm == arm && one.metric == Metric::THROUGHPUT).unwrap();
    assert_eq!(series.control.as_ref(), Some(&control));
    let [change] = series.changes.as_slice() else { panic!("{:?}", series.changes) };
    assert_eq!(change.position, 25);
    assert!((8_900..9_300).contains(&change.ratio_basis_points), "{change:?}");
    assert!(change.differences.0.iter().any(|one| one.after == "another build"), "{change:?}");
    let text = document_text(trends(std::slice::from_ref(&trend)), 120, false);
    assert!(text.contains("slower since 2026-01-26T01:00:00Z, with service"), "{text}");
    assert!(document_markdown(trends(std::slice::from_ref(&trend))).contains("another build"));
    assert!(document_html(trends(&[trend])).contains("another build"));
}

#[test]
fn nights_without_a_change_are_no_alarm_and_an_old_change_is_the_new_level() {
    let trend = Trend::of(&history(None), false).unwrap();
    assert_eq!((trend.verdict, trend.series.iter().map(|one| one.changes.len()).sum::<usize>()), (Verdict::Passed, 0));
    let trend = Trend::of(&history(Some(12)), false).unwrap();
    assert_eq!(trend.verdict, Verdict::Passed, "{}", trend.message);
    assert!(trend.series.iter().any(|one| !one.changes.is_empty()));
}

#[test]
fn a_history_without_runs_that_count_is_no_good_news() {
    let mut reports = history(None);
    reports.iter_mut().for_each(|report| report.judgement.verdict = Verdict::Invalid);
    let trend = Trend::of(&reports, false).unwrap();
    assert_eq!(trend.verdict, Verdict::Inconclusive, "{}", trend.message);
    assert!(trend.message.starts_with("0 runs that count are too few"), "{}", trend.message);
}

#[test]
fn runs_that_do_not_count_are_set_aside_with_the_reason() {
    let mut reports = history(None);
    reports[3].judgement.verdict = Verdict::Invalid;
    reports[4].record.fingerprint.facts.insert("kernel".into(), "7.0".into());
    reports[5].record.spec.workloads[0].load.connections += 1;
    reports.reverse();
    let trend = Trend::of(&reports, false).unwrap();
    assert_eq!(trend.runs.len(), 27);
    let why: Vec<&str> = trend.set_aside.iter().map(|(_, why)| why.as_str()).collect();
    assert!(
        why[0].contains("Invalid") && why[1].contains("kernel was 7.0") && why[2].contains("another spec"),
        "{why:?}"
    );
    assert_eq!(Trend::of(&reports, true).unwrap().runs.len(), 28);
    assert_eq!(Trend::of(&[], false), None);
}

#[test]
fn every_medium_keeps_to_its_width_and_says_the_verdict() {
    let (_, arm) = names();
    let pair = compared(&run_of(1, &[]), &run_of(2, &[(&arm, 1.3)]));
    let trend = Trend::of(&history(Some(25)), false).unwrap();
    for width in [60, 80, 120] {
        for text in [
            document_text(two_runs(std::slice::from_ref(&pair)), width, false),
            document_text(trends(std::slice::from_ref(&trend)), width, false),
        ] {
            assert!(text.starts_with("✗ Regressed: "), "{text}");
            for line in text.lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }
}
