//! What must not pass: alarms that something else hid, and good news of what was not looked at.

use super::*;

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
