//! What must not pass: alarms that something else hid, and good news of what was not looked at.

use super::*;
use crate::record::Unavailable;

/// Nights in which the arm took so many times as long, the first of them first.
fn nights(levels: &[(usize, f64)]) -> Vec<Report> {
    let (_, arm) = names();
    let factors = levels.iter().flat_map(|(nights, factor)| std::iter::repeat_n(*factor, *nights));
    factors.enumerate().map(|(day, factor)| run_of(day as u32, &[(&arm, factor)])).collect()
}

fn throughput<'a>(trend: &'a Trend, arm: &str) -> &'a Series {
    trend.series.iter().find(|one| one.arm == arm && one.metric == Metric::THROUGHPUT).unwrap()
}

#[test]
fn a_store_that_recovers_a_little_and_is_still_slower_is_an_alarm() {
    let (_, arm) = names();
    let trend = Trend::of(&nights(&[(6, 1.0), (3, 1.43), (3, 1.33)]), false).unwrap();
    let changes = &throughput(&trend, &arm).changes;
    let found: Vec<_> = changes.iter().map(|one| (one.position, one.is_worse, one.is_recent)).collect();
    assert_eq!(found, [(6, true, true), (9, false, true)]);
    assert_eq!(trend.verdict, Verdict::Regressed, "{}", trend.message);
    assert!(trend.message.contains("since 2026-01-07T01:00:00Z"), "{}", trend.message);
}

#[test]
fn a_store_that_recovers_to_where_it_was_is_no_alarm() {
    let (_, arm) = names();
    let trend = Trend::of(&nights(&[(30, 1.0), (5, 1.43), (5, 1.0)]), false).unwrap();
    let found: Vec<_> = throughput(&trend, &arm).changes.iter().map(|one| (one.position, one.is_recent)).collect();
    assert_eq!(found, [(30, false), (35, true)]);
    assert_eq!(trend.verdict, Verdict::Passed, "{}", trend.message);
    // Ten nights later what became worse is the new level, whatever came after it.
    let trend = Trend::of(&nights(&[(6, 1.0), (6, 1.43), (6, 1.33)]), false).unwrap();
    assert_eq!(trend.verdict, Verdict::Passed, "{}", trend.message);
}

#[test]
fn no_more_runs_are_told_of_than_there_are() {
    let trend = Trend::of(&nights(&[(8, 1.0)]), false).unwrap();
    let said = "nothing that became worse in the last 8 of 8 runs still is";
    assert_eq!((trend.verdict, trend.message.as_str()), (Verdict::Passed, said));
}

#[test]
fn a_history_whose_newest_runs_are_invalid_is_no_good_news() {
    let mut reports = nights(&[(12, 1.0)]);
    for report in &mut reports[4..] {
        (report.judgement.verdict, report.judgement.message) = (Verdict::Invalid, "a wrong answer".into());
    }
    let trend = Trend::of(&reports, false).unwrap();
    assert_eq!((trend.verdict, trend.runs.len()), (Verdict::Inconclusive, 4), "{}", trend.message);
    let said = "the newest run, of 2026-01-12T01:00:00Z, does not count: it is Invalid";
    assert!(trend.message.ends_with(said), "{}", trend.message);
}

/// The same run with an arm besides.
fn with_third(mut report: Report) -> Report {
    let (_, arm) = names();
    let record = &mut report.record;
    let mut third = record.arms.iter().find(|one| one.name == arm).unwrap().clone();
    third.name = "third".into();
    record.arms.push(third);
    let own = record.trials.iter().filter(|trial| trial.arm == arm);
    let own: Vec<_> = own.map(|trial| TrialRecord { arm: "third".into(), ..trial.clone() }).collect();
    record.trials.extend(own);
    report
}

fn without_third(record: &mut RunRecord) {
    record.arms.retain(|arm| arm.name != "third");
    record.trials.retain(|trial| trial.arm != "third");
}

fn third_unavailable(record: &mut RunRecord) {
    record.trials.retain(|trial| trial.arm != "third");
    let third = record.arms.iter_mut().find(|arm| arm.name == "third").unwrap();
    third.unavailable = Some(Unavailable { reason: "is not installed".into(), install: "install it".into() });
}

fn without_second_workload(record: &mut RunRecord) {
    record.spec.workloads.truncate(1);
}

fn third_answered_nothing_once(record: &mut RunRecord) {
    let trial = record.trials.iter_mut().rfind(|trial| trial.arm == "third" && trial.index == 9).unwrap();
    trial.workloads[0].summary.operations = 0;
}

#[test]
fn what_the_newest_run_lacks_is_no_good_news_and_is_named() {
    let workloads = fixture::two_arms().record.spec.workloads;
    type Change = fn(&mut RunRecord);
    let cases: [(String, Change); 4] = [
        ("arm third".into(), without_third),
        ("arm third".into(), third_unavailable),
        (format!("workload {}", workloads[1].name), without_second_workload),
        (format!("throughput of third in {}", workloads[0].name), third_answered_nothing_once),
    ];
    for (lacking, change) in cases {
        let mut reports: Vec<Report> = nights(&[(12, 1.0)]).into_iter().map(with_third).collect();
        assert_eq!(Trend::of(&reports, false).unwrap().verdict, Verdict::Passed);
        change(&mut reports[11].record);
        let trend = Trend::of(&reports, false).unwrap();
        assert_eq!((trend.verdict, trend.runs.len()), (Verdict::Inconclusive, 12), "{lacking}: {}", trend.message);
        let said = format!("a store that became slower may not show: the newest run has no figure of {lacking}");
        assert_eq!(trend.message, said);
    }
}

#[test]
fn an_arm_that_was_taken_out_is_missed_for_ten_runs_and_one_that_is_asked_for_as_long_as_it_is() {
    let verdict = |without: usize, change: fn(&mut RunRecord)| {
        let mut reports: Vec<Report> = nights(&[(5 + without, 1.0)]).into_iter().map(with_third).collect();
        reports[5..].iter_mut().for_each(|report| change(&mut report.record));
        Trend::of(&reports, false).unwrap().verdict
    };
    assert_eq!([9, 10].map(|runs| verdict(runs, without_third)), [Verdict::Inconclusive, Verdict::Passed]);
    assert_eq!(verdict(10, third_unavailable), Verdict::Inconclusive);
}

/// It had no course, and the history passed as if nobody had asked for it.
#[test]
fn an_arm_that_no_run_has_ever_measured_is_no_good_news_and_is_named() {
    let mut reports: Vec<Report> = nights(&[(12, 1.0)]).into_iter().map(with_third).collect();
    assert!(Trend::of(&reports, false).unwrap().never_measured.is_empty());
    reports.iter_mut().for_each(|report| third_unavailable(&mut report.record));
    let trend = Trend::of(&reports, false).unwrap();
    assert_eq!((trend.verdict, trend.never_measured.as_slice()), (Verdict::Inconclusive, &["third".to_owned()][..]));
    let said = "a store that became slower may not show: the newest run has no figure of arm third";
    assert_eq!(trend.message, said);
    assert_eq!(serde_json::to_value(&trend).unwrap()["neverMeasured"], serde_json::json!(["third"]));
    let line = "third was never measured in 12 runs: storebench report says why";
    let page = || trends(std::slice::from_ref(&trend));
    for page in [document_text(page(), 120, false), document_markdown(page()), document_html(page())] {
        assert!(page.contains(line), "{page}");
    }
    // Who is not asked for is not missed.
    reports.iter_mut().for_each(|report| without_third(&mut report.record));
    assert_eq!(Trend::of(&reports, false).unwrap().verdict, Verdict::Passed);
}

/// It was said only of arms of which no workload at all was measured.
#[test]
fn a_workload_that_no_run_has_ever_measured_of_one_arm_is_no_good_news_and_is_named() {
    let mut reports: Vec<Report> = nights(&[(12, 1.0)]).into_iter().map(with_third).collect();
    let workload = reports[0].record.spec.workloads[0].name.clone();
    for report in &mut reports {
        let of_third = report.record.trials.iter_mut().filter(|trial| trial.arm == "third");
        of_third.for_each(|trial| trial.workloads.retain(|one| one.summary.name != workload));
    }
    let trend = Trend::of(&reports, false).unwrap();
    let what = format!("third in {workload}");
    assert_eq!((trend.verdict, trend.never_measured.as_slice()), (Verdict::Inconclusive, &[what.clone()][..]));
    assert!(trend.message.ends_with(&format!("no figure of arm {what}")), "{}", trend.message);
    let page = document_text(trends(std::slice::from_ref(&trend)), 120, false);
    assert!(page.contains(&format!("{what} was never measured in 12 runs")), "{page}");
}

#[test]
fn what_is_shown_as_now_is_of_the_newest_run() {
    let mut reports: Vec<Report> = nights(&[(5, 1.0)]).into_iter().map(with_third).collect();
    third_unavailable(&mut reports[4].record);
    let page = document_markdown(trends(&[Trend::of(&reports, false).unwrap()]));
    let is_row = |line: &&str| line.starts_with('|') && line.contains("third") && line.contains("throughput");
    let row = page.lines().find(is_row).unwrap();
    assert!(row.contains('—') && !row.contains("redis"), "{row}");
}

/// Its throughput was zero in one trial, or its percentile of too few requests.
#[test]
fn a_figure_that_decides_and_is_in_the_first_run_only_is_inconclusive_and_named() {
    let (control, arm) = names();
    let whole = Figures::of(&run_of(1, &[]));
    let workload = whole.record.spec.workloads[0].name.clone();
    let lacking = |of: &str, metric: Metric| {
        let mut figures = Figures::of(&run_of(2, &[]));
        figures.series.retain(|one| !(one.arm == of && one.workload == workload && one.metric == metric));
        figures
    };
    let between = |before: &Figures, after: &Figures| TwoRuns::between(before, after, 9_000, false).unwrap();
    assert_eq!(between(&whole, &Figures::of(&run_of(2, &[]))).verdict, Verdict::Passed);
    for metric in [Metric::THROUGHPUT, Metric::LATENCY_P99] {
        let said = format!("{} of {arm} in {workload}", metric.words);
        let pair = between(&whole, &lacking(&arm, metric));
        let message = &pair.message;
        assert_eq!(pair.verdict, Verdict::Inconclusive, "{message}");
        let start = format!("a part of the first run was not compared: {said}; nothing is worse by more than 90 %");
        assert!(message.starts_with(&start), "{message}");
        // Without a figure of the unchanged baseline it is held to none.
        let pair = between(&whole, &lacking(&control, metric));
        assert_eq!(pair.verdict, Verdict::Passed, "{}", pair.message);
        let is_it = |row: &&Row| row.metric == metric && row.arm == arm && row.workload == workload;
        assert_eq!(pair.rows.iter().find(is_it).map(|row| &row.against), Some(&Against::Nothing));
        let pair = between(&lacking(&arm, metric), &whole);
        assert_eq!(pair.verdict, Verdict::Passed, "a figure more is none that was lost: {}", pair.message);
        assert!(pair.message.contains(&format!("{said} is in the second run only")), "{}", pair.message);
    }
}

#[test]
fn a_baseline_whose_companion_is_another_is_no_control() {
    let (control, arm) = names();
    let with_companions = |day: u32, of_control: &str, of_arm: &str| {
        let mut report = run_of(day, &[]);
        let RunRecord { arms, fingerprint, .. } = &mut report.record;
        for (name, version) in [(&control, of_control), (&arm, of_arm)] {
            let service = &arms.iter().find(|one| one.name == *name).unwrap().service;
            fingerprint.facts.insert(format!("Store of {service}"), version.into());
        }
        report
    };
    let before = with_companions(1, "1.0", "1.0");
    let against = |after: &Report| row(&compared(&before, after), &arm).against.clone();
    assert_eq!(against(&with_companions(2, "1.0", "2.0")), Against::Control(control.clone()));
    assert_eq!(against(&with_companions(2, "2.0", "1.0")), Against::Nothing);
    assert_eq!(against(&run_of(2, &[])), Against::Nothing, "nobody knows");
}

/// In a cluster the fingerprint had no companions. What was kept of a run from before then is compared, and nobody knows of such an arm whether it
/// changed; of all others everything is known.
#[test]
fn a_baseline_whose_companion_has_another_image_is_no_control() {
    let (control, arm) = names();
    let with_companion = |day: u32, of: &str, digest: &str| {
        let mut report = run_of(day, &[]);
        report.record.fingerprint.facts.insert(format!("image of object-store of {of}"), digest.into());
        report
    };
    let before = with_companion(1, &control, "sha256:1");
    let pair = compared(&before, &with_companion(2, &control, "sha256:1"));
    assert_eq!(row(&pair, &arm).against, Against::Control(control.clone()));
    let pair = compared(&before, &with_companion(2, &control, "sha256:2"));
    assert_eq!(row(&pair, &arm).against, Against::Nothing);
    let parts: Vec<Part> = pair.differences.0.iter().map(|one| one.part).collect();
    assert_eq!(parts, [Part::Services], "another companion is no other machine");
    let old = run_of(1, &[]);
    let pair = compared(&old, &with_companion(2, &control, "sha256:1"));
    assert_eq!(row(&pair, &arm).against, Against::Nothing, "nobody knows");
    let pair = compared(&old, &with_companion(2, &arm, "sha256:1"));
    assert_eq!(row(&pair, &arm).against, Against::Control(control), "it has none");
}

/// Runs of these days in which an arm answers 80 requests in each trial, of which there is no p99, and in which the p99 of the arm that is not
/// the baseline takes so many times as long.
fn with_few_requests_of(few: &str, days: std::ops::Range<u32>, factor: f64) -> Vec<Report> {
    let (_, arm) = names();
    let run = |day| {
        let mut report = run_of(day, &[]);
        for trial in &mut report.record.trials {
            let noise = f64::from((day * 7 + trial.index * 13) % 11) / 1_000.0;
            for workload in &mut trial.workloads {
                let summary = &mut workload.summary;
                if trial.arm == few {
                    summary.operations = 80;
                }
                if trial.arm == arm {
                    let latencies = std::iter::once(&mut summary.service).chain(&mut summary.intended);
                    latencies.for_each(|one| one.p99_nanos = (one.p99_nanos as f64 * (factor + noise)) as u64);
                }
            }
        }
        report.judgement = judge(&report.record);
        report
    };
    days.map(run).collect()
}

/// It was held to a figure that was not there, and so to nothing.
#[test]
fn a_percentile_that_became_worse_is_an_alarm_where_the_unchanged_baseline_has_none() {
    let (control, arm) = names();
    let mut nights = with_few_requests_of(&control, 0..9, 1.0);
    nights.extend(with_few_requests_of(&control, 9..14, 10.0));
    let trend = Trend::of(&nights, false).unwrap();
    assert_eq!(trend.verdict, Verdict::Regressed, "{}", trend.message);
    assert!(trend.message.contains(&format!("{} of {arm}", Metric::LATENCY_P99.words)), "{}", trend.message);
    let pair = compared(&nights[8], &nights[9]);
    assert_eq!(pair.verdict, Verdict::Regressed, "{}", pair.message);
}

/// Each night would have been Inconclusive until the baseline was made anew.
#[test]
fn a_baseline_of_before_that_kept_a_percentile_of_too_few_is_compared_in_the_rest() {
    let (_, arm) = names();
    let few = with_few_requests_of(&arm, 1..3, 1.0);
    let (mut before, after) = (Figures::of(&few[0]), Figures::of(&few[1]));
    let p99 = |one: &&Measured| one.metric == Metric::LATENCY_P99;
    assert!(!before.series.iter().any(|one| p99(&one) && one.arm == arm));
    let kept = Figures::of(&run_of(1, &[])).series;
    before.series.extend(kept.iter().filter(p99).filter(|one| one.arm == arm).cloned());
    before.withheld = None;
    let pair = TwoRuns::between(&before, &after, 9_000, false).unwrap();
    assert_eq!(pair.verdict, Verdict::Passed, "{}", pair.message);
    let said = format!("is in the first run only (80 requests of {arm} in a trial, and p99 latency takes 100)");
    assert!(pair.left_out.iter().any(|line| line.ends_with(&said)), "{:?}", pair.left_out);
    // Who had looked had enough of them, and lost it.
    before.withheld = Some(Vec::new());
    assert_eq!(TwoRuns::between(&before, &after, 9_000, false).unwrap().verdict, Verdict::Inconclusive);
}
