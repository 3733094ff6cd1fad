//! Two runs and many, made from a report that a driver could have written, so that what moved is known.

use storebench_crds::Metric;
use storebench_crds::benchmark_run::{ArmField, BaselineRef};
use storebench_crds::status::{GateOutcome, GateResult, NOISE_FLOOR, Verdict};

mod alarms;

use super::*;
use crate::judgement::judge;
use crate::record::TrialRecord;
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

/// The same run, in which a thread of the loader had no time left for this arm.
fn limited(mut report: Report) -> Report {
    let (_, arm) = names();
    let of_arm = report.record.trials.iter_mut().filter(|trial| trial.arm == arm);
    for audit in of_arm.flat_map(|trial| &mut trial.workloads).map(|one| one.audit.get_or_insert_default()) {
        (audit.saturation_basis_points, audit.busiest_thread_basis_points) = (9_990, 9_900);
        audit.saturated_thread = "load-0".into();
    }
    report.judgement = judge(&report.record);
    report
}

#[test]
fn what_the_loader_limits_in_either_run_is_undecided() {
    let (_, arm) = names();
    for (before, after) in [
        (limited(run_of(1, &[])), run_of(2, &[])),
        (run_of(1, &[]), limited(run_of(2, &[(&arm, 1.3)]))),
        (limited(run_of(1, &[])), limited(run_of(2, &[]))),
    ] {
        let pair = compared(&before, &after);
        assert_eq!((row(&pair, &arm).outcome, pair.verdict), (Outcome::Undecided, Verdict::Inconclusive));
        assert!(pair.message.contains("the loader is the limit in "), "{}", pair.message);
    }
}

#[test]
fn the_baseline_against_itself_is_held_to_nothing() {
    let (control, arm) = names();
    let mut floors = [run_of(1, &[]), run_of(2, &[(&arm, 1.5)])];
    for report in &mut floors {
        report.record.arms.iter_mut().filter(|one| one.name == arm).for_each(|one| one.name = NOISE_FLOOR.into());
        report.record.trials.iter_mut().filter(|one| one.arm == arm).for_each(|one| one.arm = NOISE_FLOOR.into());
        report.judgement = judge(&report.record);
    }
    let pair = compared(&floors[0], &floors[1]);
    assert!(pair.rows.iter().all(|row| row.arm == control), "{:?}", pair.rows);
    assert_ne!(pair.verdict, Verdict::Regressed);
}

/// Who keeps a higher rate waits longer at it.
#[test]
fn what_one_waits_at_the_highest_rate_decides_nothing() {
    let (_, arm) = names();
    let mut runs = [run_of(1, &[]), run_of(2, &[])];
    for report in &mut runs {
        for workload in &mut report.record.spec.workloads {
            let target = serde_json::json!({ "percentile": "P99", "atMost": "5ms" });
            workload.load.highest_rate = Some(serde_json::from_value(target).unwrap());
        }
        report.judgement = judge(&report.record);
    }
    let pair = compared(&runs[0], &runs[1]);
    let waiting = pair.rows.iter().filter(|row| row.arm == arm && row.metric.direction.is_waiting());
    let outcomes: Vec<Outcome> = waiting.map(|row| row.outcome).collect();
    assert!(!outcomes.is_empty() && outcomes.iter().all(|outcome| *outcome == Outcome::Shown), "{outcomes:?}");
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

/// A store that became slower behind a busy loader looks as it did before.
#[test]
fn a_history_whose_newest_run_the_loader_limits_is_no_good_news_and_says_so() {
    let (_, arm) = names();
    let mut nights = history(None);
    let newest = nights.pop().unwrap();
    nights.push(limited(newest));
    let trend = Trend::of(&nights, false).unwrap();
    assert_eq!(trend.verdict, Verdict::Inconclusive, "{}", trend.message);
    assert!(trend.message.contains("the loader is the limit in "), "{}", trend.message);
    let page = document_markdown(trends(&[trend]));
    assert!(page.contains("in 1 of 30 runs the loader was the limit"), "{page}");
    // Nor is it the store that became slower.
    let mut slower = history(Some(26));
    let is_after = |report: &Report| report.record.started_at >= run_of(26, &[]).record.started_at;
    slower = slower.into_iter().map(|report| if is_after(&report) { limited(report) } else { report }).collect();
    let trend = Trend::of(&slower, false).unwrap();
    assert_eq!(trend.verdict, Verdict::Inconclusive, "{}", trend.message);
    // What was limited once, and is no more, is the store's again.
    let mut nights = history(Some(20));
    nights[3] = limited(nights[3].clone());
    let trend = Trend::of(&nights, false).unwrap();
    assert_ne!(trend.verdict, Verdict::Inconclusive, "{}", trend.message);
    let series = trend.series.iter().find(|one| one.arm == arm).unwrap();
    assert_eq!((series.limited.len(), series.limited_now()), (1, None));
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

fn baseline_of(report: &Report) -> Baseline {
    let kept = serde_json::to_string(&Figures::of(report)).unwrap();
    Baseline { name: "last".into(), figures: serde_json::from_str(&kept).unwrap() }
}

fn terms() -> BaselineRef {
    serde_json::from_value(serde_json::json!({ "name": "last" })).unwrap()
}

#[test]
fn what_is_kept_of_a_run_compares_as_the_run_itself_and_is_a_fraction_of_it() {
    let (_, arm) = names();
    let (before, after) = (run_of(1, &[]), run_of(2, &[(&arm, 1.3)]));
    let kept = baseline_of(&before).figures;
    let pair = TwoRuns::between(&kept, &Figures::of(&after), TOLERANCE_DEFAULT_BASIS_POINTS, false).unwrap();
    assert_eq!(pair, compared(&before, &after));
    assert!(kept.record.trials.is_empty());
    let bytes = |value: String| value.len();
    let (kept, whole) = (serde_json::to_string(&kept).unwrap(), serde_json::to_string(&before.record).unwrap());
    assert!(bytes(kept.clone()) * 2 < bytes(whole.clone()), "{} of {} bytes", kept.len(), whole.len());
}

#[test]
fn a_run_that_is_worse_than_its_baseline_is_regressed_whatever_it_says_by_itself() {
    let (control, arm) = names();
    let baseline = baseline_of(&run_of(1, &[]));
    let mut report = run_of(2, &[(&arm, 1.3)]);
    assert_eq!(report.judgement.verdict, Verdict::Passed, "{}", report.judgement.message);
    let held = baseline.hold(&mut report, &terms());
    let judgement = &report.judgement;
    assert_eq!((judgement.verdict, held.result.verdict), (Verdict::Regressed, Verdict::Regressed));
    assert!(judgement.message.starts_with("against BenchmarkBaseline/last: worse by more than 5 %"), "{judgement:?}");
    assert!(judgement.caveats.last().unwrap().contains("BenchmarkBaseline/last, which keeps"), "{judgement:?}");
    let worse = held.result.moved.iter().find(|one| one.outcome == GateOutcome::Missed).unwrap();
    assert_eq!((&worse.arm, &worse.control), (&arm, &Some(control)));
    // As bad as is tolerated.
    let mut report = run_of(2, &[(&arm, 1.3)]);
    let tolerant = BaselineRef { tolerance_basis_points: 9_000, ..terms() };
    assert_eq!(baseline.hold(&mut report, &tolerant).result.verdict, Verdict::Passed);
    assert_eq!(report.judgement.verdict, Verdict::Passed, "{}", report.judgement.message);
}

#[test]
fn a_run_on_an_unlike_machine_has_nothing_to_compare_with_and_says_why() {
    let baseline = baseline_of(&run_of(1, &[]));
    let mut report = run_of(2, &[]);
    report.record.fingerprint.facts.insert("kernel".into(), "7.0".into());
    let refused = baseline.check(&report.record, &terms()).unwrap_err();
    assert!(refused.starts_with("not compared, for the machines are unlike (kernel: "), "{refused}");
    let held = baseline.hold(&mut report, &terms());
    assert_eq!((held.pair, report.judgement.verdict), (None, Verdict::NoBaseline));
    let result = held.result;
    assert!(result.message.contains("kernel: ") && result.message.contains("then 7.0"), "{}", result.message);
    assert!(result.message.ends_with("set spec.baselineRef.allowDifferentMachine"), "{}", result.message);
    assert!(result.differences.iter().any(|one| one.starts_with("machine: kernel: ")), "{:?}", result.differences);
    // So few trials, of runs that may stop early, leave intervals that are wider than 5 %.
    let allowed = BaselineRef { allow_different_machine: true, tolerance_basis_points: 1_000, ..terms() };
    let mut report = run_of(2, &[]);
    report.record.fingerprint.facts.insert("kernel".into(), "7.0".into());
    assert_eq!(baseline.check(&report.record, &allowed), Ok(()));
    assert_eq!(baseline.hold(&mut report, &allowed).result.verdict, Verdict::Passed);
}

/// It has no trials, which is not its fault.
#[test]
fn a_run_that_was_not_begun_for_its_baseline_has_nothing_to_compare_with_and_is_not_invalid() {
    let mut before = run_of(1, &[]);
    before.record.fingerprint.facts.insert("nodes".into(), "store on n1".into());
    let baseline = baseline_of(&before);
    let ended = |kernel: &str| {
        let mut report = run_of(2, &[]);
        report.record.trials.clear();
        report.record.fingerprint.facts.insert("kernel".into(), kernel.into());
        report.judgement = judge(&report.record);
        assert_eq!(report.judgement.verdict, Verdict::Invalid);
        report
    };
    let mut report = ended("7.0");
    let held = baseline.hold(&mut report, &terms());
    assert_eq!((report.judgement.verdict, held.result.verdict), (Verdict::NoBaseline, Verdict::NoBaseline));
    let message = &report.judgement.message;
    assert!(
        message.starts_with("nothing was measured; against BenchmarkBaseline/last: not compared, for the machines"),
        "{message}"
    );
    assert!(message.contains("kernel: ") && !message.contains("nodes: "), "{message}");
    // One that could have begun, and did not, is.
    let mut report = ended(&before.record.fingerprint.facts["kernel"]);
    baseline.hold(&mut report, &terms());
    assert_eq!(report.judgement.verdict, Verdict::Invalid, "{}", report.judgement.message);
}

/// What a node says of itself shows in the first trial, and is no reason to refuse a run before it.
#[test]
fn before_the_first_trial_only_what_is_known_counts() {
    let mut before = run_of(1, &[]);
    before.record.fingerprint.facts.insert("nodes".into(), "store on n1".into());
    let baseline = baseline_of(&before);
    assert_eq!(baseline.check(&run_of(2, &[]).record, &terms()), Ok(()));
    let held = baseline.hold(&mut run_of(2, &[]), &terms());
    assert_eq!(held.result.verdict, Verdict::NoBaseline, "{}", held.result.message);
}

#[test]
fn the_operator_s_own_build_is_no_machine() {
    let mut before = run_of(1, &[]);
    let mut after = run_of(2, &[]);
    for (report, build) in [(&mut before, "1"), (&mut after, "2")] {
        let facts = &mut report.record.fingerprint.facts;
        for fact in ["operator build", "load image", "image of the load", "processor requests"] {
            facts.insert(fact.into(), build.into());
        }
    }
    let pair = compared(&before, &after);
    let parts: Vec<Part> = pair.differences.0.iter().map(|one| one.part).collect();
    assert_eq!(parts, [Part::Loader, Part::Loader, Part::Loader, Part::Services]);
}

#[test]
fn an_invalid_run_stays_invalid_and_one_without_a_baseline_arm_has_the_earlier_run() {
    assert_eq!(decided(Verdict::Invalid, Verdict::Passed), Verdict::Invalid);
    assert_eq!(decided(Verdict::Passed, Verdict::NoBaseline), Verdict::NoBaseline);
    assert_eq!(decided(Verdict::NoBaseline, Verdict::Passed), Verdict::Passed);
    assert_eq!(decided(Verdict::Regressed, Verdict::NoBaseline), Verdict::Regressed);
    let mut report = run_of(2, &[]);
    (report.judgement.verdict, report.judgement.message) = (Verdict::Invalid, "a wrong answer".into());
    let held = baseline_of(&run_of(1, &[])).hold(&mut report, &terms());
    assert_eq!((held.pair, report.judgement.message.as_str()), (None, "a wrong answer"));
    assert_eq!(held.result.message, "the run itself is Invalid");
}

/// Whatever name it has in both: a run may take it from a WorkloadTemplate, which may be changed between them.
#[test]
fn a_workload_of_the_same_name_that_asked_otherwise_differs_by_its_hash() {
    let (before, mut after) = (run_of(1, &[]), run_of(2, &[]));
    after.record.spec.workloads[0].load.connections += 1;
    let differences = Differences::of(&before.record, &after.record).0;
    let [found] = differences.as_slice() else { panic!("{differences:?}") };
    let [one, other] = [&before, &after].map(|report| &report.record.spec.workloads[0]);
    let hashes = [one, other].map(crate::fingerprint::of_workload);
    assert_eq!((&found.what, [&found.before, &found.after]), (&format!("workload {}", one.name), hashes.each_ref()));
    assert_ne!(hashes[0], hashes[1]);
}

#[test]
fn a_tag_that_came_to_mean_another_image_is_no_control() {
    let (control, arm) = names();
    let image = |report: &mut Report, digest: &str| {
        report.record.fingerprint.facts.insert(format!("image of {control}"), digest.into());
    };
    let (mut before, mut after) = (run_of(1, &[]), run_of(2, &[]));
    image(&mut before, "sha256:1");
    image(&mut after, "sha256:1");
    assert_eq!(row(&compared(&before, &after), &arm).against, Against::Control(control.clone()));
    image(&mut after, "sha256:2");
    let pair = compared(&before, &after);
    assert_eq!(row(&pair, &arm).against, Against::Nothing);
    assert_eq!(row(&pair, &control).against, Against::Nothing, "it may have become slower itself");
}

#[test]
fn a_store_that_was_there_already_is_no_control() {
    let (control, arm) = names();
    let (mut before, mut after) = (run_of(1, &[]), run_of(2, &[]));
    for report in [&mut before, &mut after] {
        let baseline = report.record.arms.iter_mut().find(|one| one.name == control).unwrap();
        baseline.fields = Some([(ArmField::External, "localhost:6379".to_owned())].into());
    }
    assert_eq!(row(&compared(&before, &after), &arm).against, Against::Nothing);
}

#[test]
fn a_metric_that_only_one_run_has_is_left_out_and_named() {
    let (_, arm) = names();
    let before = run_of(1, &[]);
    let workload = before.record.spec.workloads[0].name.clone();
    let lacking = |report: &Report| {
        let mut figures = Figures::of(report);
        let is_it = |one: &Measured| (&one.arm, &one.workload, one.metric) == (&arm, &workload, Metric::THROUGHPUT);
        figures.series.retain(|one| !is_it(one));
        figures
    };
    let (whole, lacking) = (Figures::of(&before), lacking(&run_of(2, &[])));
    for (before, after, which) in [(&whole, &lacking, "first"), (&lacking, &whole, "second")] {
        let pair = TwoRuns::between(before, after, 9_000, false).unwrap();
        let said = format!("throughput of {arm} in {workload} is in the {which} run only");
        assert_eq!(pair.left_out, std::slice::from_ref(&said));
        assert!(pair.message.ends_with(&format!("; 1 left out: {said}")), "{}", pair.message);
    }
}

#[test]
fn a_run_that_lacks_a_part_of_its_baseline_has_not_passed() {
    let (_, arm) = names();
    let tolerant = BaselineRef { tolerance_basis_points: 9_000, ..terms() };
    // A workload.
    let mut report = run_of(2, &[]);
    let gone = report.record.spec.workloads.pop().unwrap().name;
    let pair = TwoRuns::of(&run_of(1, &[]), &report, 9_000, false).unwrap();
    assert_eq!(pair.verdict, Verdict::Inconclusive, "without an operator, too: {}", pair.message);
    let held = baseline_of(&run_of(1, &[])).hold(&mut report, &tolerant);
    assert_eq!((held.result.verdict, report.judgement.verdict), (Verdict::Inconclusive, Verdict::Inconclusive));
    assert!(held.result.message.contains(&format!("was not compared: workload {gone}")), "{}", held.result.message);
    assert_eq!(held.result.left_out, [format!("workload {gone} is in the first run only")]);
    // An arm.
    let mut before = run_of(1, &[]);
    let mut third = before.record.arms.iter().find(|one| one.name == arm).unwrap().clone();
    third.name = "third".into();
    before.record.arms.push(third);
    let own = before.record.trials.iter().filter(|trial| trial.arm == arm).cloned();
    let own: Vec<_> = own.map(|trial| TrialRecord { arm: "third".into(), ..trial }).collect();
    before.record.trials.extend(own);
    let held = baseline_of(&before).hold(&mut run_of(2, &[]), &tolerant);
    assert_eq!(held.result.verdict, Verdict::Inconclusive, "{}", held.result.message);
    assert!(held.result.message.contains("was not compared: arm third"), "{}", held.result.message);
    assert_eq!(held.pair.unwrap().verdict, Verdict::Inconclusive, "the report says so, too");
}

/// A gate whose bound lies where the arm is: chance decides it anew each night.
#[test]
fn a_gate_that_changes_its_mind_while_no_level_did_is_called_flaky() {
    let (_, arm) = names();
    let nights = |outcome: &dyn Fn(u32) -> GateOutcome| -> Vec<Report> {
        let night = |day| {
            let mut report = run_of(day, &[]);
            let gate = format!("{arm} set ThroughputPerSecond ≥ 100 % of the baseline");
            report.judgement.gates = vec![GateResult { gate, outcome: outcome(day), found: String::new() }];
            report
        };
        (0..20).map(night).collect()
    };
    let steady = Trend::of(&nights(&|_| GateOutcome::Met), false).unwrap();
    assert_eq!((steady.gates[0].turns, steady.gates[0].is_flaky), (0, false));
    // It became slower, and was mended: that is what gates are for. And what did not decide it says nothing.
    let mended = |day| match day {
        12..=14 => GateOutcome::Missed,
        16 => GateOutcome::Undecided,
        _ => GateOutcome::Met,
    };
    let mended = Trend::of(&nights(&mended), false).unwrap();
    assert_eq!((mended.gates[0].turns, mended.gates[0].is_flaky), (2, false));
    let flaky = |day: u32| if day.is_multiple_of(3) { GateOutcome::Missed } else { GateOutcome::Met };
    let flaky = Trend::of(&nights(&flaky), false).unwrap();
    assert!(flaky.gates[0].is_flaky && flaky.gates[0].turns >= 5, "{:?}", flaky.gates);
    assert_eq!(flaky.gates[0].count(GateOutcome::Missed), 7);
    assert_eq!(flaky.verdict, Verdict::Passed, "no level changed: {}", flaky.message);
    let text = document_text(trends(std::slice::from_ref(&flaky)), 160, false);
    assert!(text.contains("is flaky: it turned ") && text.contains("✗✓✓✗"), "{text}");
    assert!(!document_text(trends(&[steady]), 160, false).contains("is flaky"));
}

#[test]
fn how_many_trials_a_change_takes_follows_from_the_noise_of_the_last_runs() {
    let (control, arm) = names();
    let needed = |noisier: f64| {
        let mut reports = history(None);
        for report in &mut reports {
            for trial in report.record.trials.iter_mut().filter(|trial| trial.arm == arm) {
                let factor = 1.0 + noisier * (f64::from(trial.index % 3) - 1.0);
                for workload in &mut trial.workloads {
                    workload.summary.elapsed_nanos = (workload.summary.elapsed_nanos as f64 * factor) as u64;
                }
            }
            report.judgement = judge(&report.record);
        }
        let trend = Trend::of(&reports, false).unwrap();
        let of = |arm: &str| {
            let series = trend.series.iter().find(|one| one.arm == arm && one.metric == Metric::THROUGHPUT).unwrap();
            series.needed.clone()
        };
        assert_eq!(of(&control), [], "it is what others are compared with");
        let text = document_text(trends(std::slice::from_ref(&trend)), 160, false);
        assert!(text.contains("trials to see") && text.contains("5 %: "), "{text}");
        of(&arm)
    };
    let (quiet, noisy) = (needed(0.0), needed(0.1));
    for (before, after) in quiet.iter().zip(&noisy) {
        let [before, after] = [before, after].map(|one| one.trials.unwrap_or(u32::MAX));
        assert!(before <= after, "{quiet:?} {noisy:?}");
    }
    // A standard deviation of 8 % shows 10 % with the trials that the formula of the paired t test wants, and 2 % with none that a run can have.
    assert_eq!(noisy[0], Needed { change_basis_points: 200, trials: None });
    assert!(noisy[2].trials.is_some_and(|trials| (5..=16).contains(&trials)), "{noisy:?}");
}

#[test]
fn a_run_has_the_same_figure_in_its_report_and_in_its_history() {
    let (_, arm) = names();
    let mut reports: Vec<Report> = (1..5).map(|day| run_of(day, &[])).collect();
    for (index, report) in reports.iter_mut().enumerate() {
        // Without a control, and with an even number of trials.
        report.record.trials.retain(|trial| trial.index < 4);
        report.record.spec.trials.min = 4;
        report.record.arms.iter_mut().for_each(|arm| arm.version = Some(format!("1.{index}")));
        report.judgement = judge(&report.record);
    }
    let trend = Trend::of(&reports, true).unwrap();
    let series = trend.series.iter().find(|one| one.arm == arm && one.metric == Metric::THROUGHPUT).unwrap();
    assert_eq!((series.control.clone(), series.points.len()), (None, 4));
    for (point, report) in series.points.iter().zip(&reports) {
        let mut results = report.judgement.results.iter();
        let result = results.find(|one| one.arm == arm && one.workload == series.workload).unwrap();
        assert!((point.value - result.throughput_milli as f64 / 1e3).abs() < 1e-3, "{point:?}");
    }
}
