//! What each workload measured, and how the arms compare: the tables at the heart of a report.

use storebench_crds::Metric;
use storebench_crds::metric::{self, Direction, Place, Source, Statistic};
use storebench_crds::status::{Comparison, LatencySummary, NOISE_FLOOR, TrialState, Verdict, WorkloadResult};
use storebench_crds::workload::Workload;

use super::Report;
use super::load_curve;
use super::lookup::{self, comparison, interval, is_open_loop, result};
use super::requests;
use super::table::{Cell, Column, SUBORDINATE, Table, Tone};
use super::units;
use super::wording::finding;
use crate::judgement::{Standing, too_few};
use crate::record::ArmRecord;

/// What stands in the place of a workload's tables where no trial of any arm counts.
pub(super) fn nothing_measured(report: &Report, workload: &Workload) -> Option<&'static str> {
    let is_measured = report.judgement.results.iter().any(|result| result.workload == workload.name);
    (!is_measured).then_some("no trial that counts has measured this workload")
}

/// What was measured, one arm to a row (two in an open loop: intended latency, then service).
pub(super) fn results(report: &Report, workload: &Workload) -> Table {
    let known = known(report, workload);
    let mut columns = vec![
        Column::words("arm"),
        Column::numbers("throughput"),
        Column::numbers("±95 %"),
        Column::numbers("p50"),
        Column::numbers("p90").dispensable(3),
        Column::numbers("p95").dispensable(4),
        Column::numbers("p99"),
        Column::numbers("p99.9"),
        Column::numbers("max").dispensable(1),
    ];
    columns.extend(known.iter().map(|(_, column)| Column::numbers(column.title).dispensable(column.dispensable)));
    columns.push(Column::numbers("errors"));
    let mut rows = Vec::new();
    for (position, arm) in lookup::started_arms(report) {
        let Some(result) = result(report, &workload.name, &arm.name) else {
            let mut row = vec![Cell::arm(&arm.name, position)];
            row.resize(columns.len(), Cell::absent());
            rows.push(row);
            continue;
        };
        let first = result.intended_latency.as_ref().unwrap_or(&result.service_latency);
        rows.push(result_row(report, arm, position, result, first, &known));
        if result.intended_latency.is_some() {
            rows.push(service_row(report, result, columns.len()));
        }
    }
    Table { columns, rows }
}

/// The metrics that have a column, where any arm knows them.
fn known(report: &Report, workload: &Workload) -> Vec<(Metric, metric::Column)> {
    let results = || report.judgement.results.iter().filter(|result| result.workload == workload.name);
    let is_known = |metric: &Metric| results().any(|result| result.value(*metric).is_some());
    Metric::all().filter(is_known).filter_map(|metric| Some((metric, metric.column?))).collect()
}

fn result_row(
    report: &Report,
    arm: &ArmRecord,
    position: usize,
    result: &WorkloadResult,
    latency: &LatencySummary,
    known: &[(Metric, metric::Column)],
) -> Vec<Cell> {
    let around = interval(report, &result.workload, &result.arm)
        .and_then(|found| units::plus_minus(result.throughput_milli, found.low_milli, found.high_milli));
    let errors = units::count(result.errors);
    let mut row = vec![
        Cell::arm(&arm.name, position),
        Cell::toned(units::rate_milli(result.throughput_milli), Tone::Strong),
        Cell::or_absent(around),
    ];
    row.extend(latency_cells(latency, &requests_by_trial(report, result), Tone::Plain));
    let shown = |metric: Metric| result.value(metric).map(|value| units::of_metric(metric.unit, value));
    row.extend(known.iter().map(|(metric, _)| Cell::or_absent(shown(*metric))));
    row.push(if result.errors == 0 { Cell::toned(errors, Tone::Dim) } else { Cell::toned(errors, Tone::Bad) });
    row
}

fn service_row(report: &Report, result: &WorkloadResult, columns: usize) -> Vec<Cell> {
    let mut row = vec![Cell::toned(format!("{SUBORDINATE}service"), Tone::Dim), Cell::plain(""), Cell::plain("")];
    row.extend(latency_cells(&result.service_latency, &requests_by_trial(report, result), Tone::Dim));
    row.resize(columns, Cell::plain(""));
    row
}

/// How many requests an arm answered in each trial: of so many are the percentiles.
fn requests_by_trial(report: &Report, result: &WorkloadResult) -> Vec<u64> {
    let measured = lookup::valid_trials(report, &result.arm).flat_map(|trial| &trial.workloads);
    let measured = measured.filter(|measured| measured.summary.name == result.workload);
    measured.map(|measured| measured.summary.operations).collect()
}

/// The columns of a latency.
const STATISTICS: [Statistic; 6] =
    [Statistic::P50, Statistic::P90, Statistic::P95, Statistic::P99, Statistic::P999, Statistic::Max];

fn latency_cells(latency: &LatencySummary, requests: &[u64], tone: Tone) -> [Cell; 6] {
    STATISTICS.map(|statistic| match too_few(requests, statistic.durations_min()) {
        Some(_) => Cell::absent(),
        None => Cell::toned(units::duration_nanos(statistic.of(latency)), tone),
    })
}

/// How the arms compare with the baseline in what a reader looks at first: throughput, tail latency and cost, and what else is a
/// headline of the family. `None`: nothing was compared.
pub(super) fn comparisons(report: &Report, workload: &Workload) -> Option<Table> {
    let baseline = lookup::baseline(report)?;
    let arms = lookup::compared_arms(report, &workload.name);
    if arms.is_empty() {
        return None;
    }
    let of = |arm: &ArmRecord, metric| comparison(report, &workload.name, &arm.name, metric);
    let is_compared = |metric: &Metric| metric.is_headline && arms.iter().any(|(_, arm)| of(arm, *metric).is_some());
    let compared: Vec<Metric> = Metric::all().filter(is_compared).collect();
    let mut columns = vec![Column::words(format!("against {}", baseline.name))];
    columns.extend(compared.iter().map(|metric| {
        let is_intended = matches!(metric.source, Source::Latency(_)) && is_open_loop(workload);
        let column = Column::words(format!("{}{}", metric.words, if is_intended { ", intended" } else { "" }));
        if metric.direction == Direction::Cost { column.dispensable(2) } else { column }
    }));
    // Where a difference may have gone unseen, how large it may be is worth more than how it was looked for.
    let is_undecided = |(_, arm): &(usize, &ArmRecord)| {
        compared
            .iter()
            .filter_map(|metric| of(arm, *metric))
            .any(|found| lookup::standing(report, found) == Standing::Undecided)
    };
    let (pairs, would_see) = if arms.iter().any(is_undecided) { (3, 1) } else { (1, 3) };
    columns.push(Column::numbers("pairs").dispensable(pairs));
    columns.push(Column::numbers("would see").dispensable(would_see));
    let rows = arms
        .iter()
        .map(|(position, arm)| {
            let found: Vec<Option<&Comparison>> = compared.iter().map(|metric| of(arm, *metric)).collect();
            let mut row = vec![Cell::arm(&arm.name, *position)];
            row.extend(found.iter().map(|compared| match compared {
                Some(compared) => {
                    let finding = finding(report, compared);
                    Cell::toned(finding.sentence, finding.tone)
                }
                None => Cell::absent(),
            }));
            let pairs = found.iter().flatten().map(|compared| compared.trials).max();
            row.push(Cell::or_absent(pairs.map(|pairs| pairs.to_string())));
            let detects = found.first().copied().flatten();
            row.push(Cell::or_absent(detects.map(|compared| units::detectable(compared.detectable_basis_points))));
            row
        })
        .collect();
    Some(Table { columns, rows })
}

/// Every comparison in every metric. `None`: nothing was compared.
pub(super) fn comparisons_in_full(report: &Report, workload: &Workload) -> Option<Table> {
    let mut columns = vec![
        Column::words("arm"),
        Column::words("metric"),
        Column::words("ratio (95 % interval)"),
        Column::words("in words"),
        Column::numbers("pairs"),
        Column::numbers("would see"),
    ];
    let has_floor = report.record.spec.noise_floor;
    columns.extend(has_floor.then(|| Column::words("noise floor")));
    let mut rows = Vec::new();
    for (position, arm) in lookup::compared_arms(report, &workload.name) {
        let found = report.judgement.comparisons.iter();
        for compared in found.filter(|found| found.workload == workload.name && found.arm == arm.name) {
            let finding = finding(report, compared);
            let mut row = vec![
                Cell::arm(&arm.name, position),
                Cell::plain(compared.metric.words),
                Cell::plain(finding.ratio),
                Cell::toned(finding.conclusion, finding.tone),
                Cell::plain(compared.trials.to_string()),
                Cell::plain(units::detectable(compared.detectable_basis_points)),
            ];
            let floor = compared
                .noise_floor
                .as_ref()
                .map(|floor| units::ratio(floor.ratio_basis_points, floor.low_basis_points, floor.high_basis_points));
            row.extend(has_floor.then(|| Cell::or_absent(floor)));
            rows.push(row);
        }
    }
    (!rows.is_empty()).then_some(Table { columns, rows })
}

/// What a reader must know to read this workload's tables, one statement each. Nothing about columns that are left out.
pub(super) fn notes(report: &Report, workload: &Workload, left_out: &[&str]) -> Vec<String> {
    let mut notes = Vec::new();
    let has_numbers = report.judgement.results.iter().any(|result| result.workload == workload.name);
    if report.judgement.verdict == Verdict::Invalid && has_numbers {
        notes.push("the run is invalid: these numbers are for diagnosis, not for quoting".to_owned());
    }
    let results = || report.judgement.results.iter().filter(|result| result.workload == workload.name);
    for (_, arm) in lookup::started_arms(report) {
        if result(report, &workload.name, &arm.name).is_none() {
            notes.push(format!("{}: no valid trial measured this workload", arm.name));
        }
    }
    if results().any(|result| result.intended_latency.is_some()) {
        notes.push("the first line of an arm is latency from the instant a request was due (intended), the second from its send (service)".into());
    }
    let most_needed = Statistic::P999.durations_min();
    if let Some(fewest) = results().filter_map(|result| too_few(&requests_by_trial(report, result), most_needed)).min()
    {
        notes.push(format!(
            "an arm answered only {} requests in a trial: percentiles that need more are left out",
            units::count(fewest)
        ));
    }
    if report.record.spec.noise_floor {
        notes.push(format!(
            "{NOISE_FLOOR} is the baseline, measured twice in every trial: what is no farther from the baseline than the end of its interval that \
             is farther from 1 is within the noise floor, and neither better nor worse"
        ));
    }
    let valid = report.record.trials.iter().filter(|trial| trial.state == TrialState::Valid);
    let measured = valid.flat_map(|trial| &trial.workloads).filter(|measured| measured.summary.name == workload.name);
    if let Some(skew) = measured.filter_map(|measured| measured.start_skew_nanos).max() {
        notes.push(format!(
            "the {} load processes of a trial began to measure within {} of one another",
            report.record.spec.parallelism,
            units::duration_nanos(skew)
        ));
    }
    for result in results() {
        if interval(report, &result.workload, &result.arm).is_none() {
            let trials = if result.trials == 1 {
                "1 valid trial gives".into()
            } else {
                format!("{} valid trials give", result.trials)
            };
            notes.push(format!("{}: {trials} no interval", result.arm));
        }
    }
    notes.extend(load_curve::notes(report, workload));
    notes.extend(requests::notes(report, workload));
    let of_family = known(report, workload)
        .into_iter()
        .filter(|(metric, column)| matches!(metric.place, Place::Measures) && !left_out.contains(&column.title));
    notes.extend(of_family.map(|(metric, column)| format!("{}: {}", column.title, metric.about)));
    for compared in report.judgement.comparisons.iter().filter(|compared| compared.workload == workload.name) {
        if let Some(reason) = &compared.not_ranked {
            let note = format!("{} is not ranked against {}: {reason}", compared.arm, compared.baseline);
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;
    use crate::judgement::paired_values;

    /// What is shown is the median of what the trials had, and the fifth of five trials of 300 that answered 30,000 adds nothing to it.
    #[test]
    fn one_long_trial_does_not_show_a_percentile_that_the_others_cannot_have() {
        let mut report = fixture::two_arms();
        let workload = report.record.spec.workloads[0].clone();
        let arm = report.record.arms[0].name.clone();
        let trials = report.record.trials.iter_mut().filter(|trial| trial.arm == arm);
        let mut all = 0;
        let measured = trials.flat_map(|trial| &mut trial.workloads).filter(|one| one.summary.name == workload.name);
        for (position, measured) in measured.enumerate() {
            let operations = if position == 0 { 30_000 } else { 300 };
            measured.summary.operations = operations;
            all += operations;
        }
        let results = &mut report.judgement.results;
        let result = results.iter_mut().find(|result| result.arm == arm && result.workload == workload.name).unwrap();
        result.operations = all;
        assert!(all / u64::from(result.trials) > 1000, "by their mean p99.9 would be shown");
        let result = result.clone();
        assert_eq!(too_few(&requests_by_trial(&report, &result), 1_000), Some(300));
        let said = notes(&report, &workload, &[]).join("\n");
        assert!(said.contains("answered only 300 requests in a trial"), "{said}");
    }

    /// Report and judgement decided it each for itself.
    #[test]
    fn the_table_leaves_out_the_percentiles_that_the_judgement_withholds() {
        let mut report = fixture::two_arms();
        let (workload, arm) = (report.record.spec.workloads[0].name.clone(), report.record.arms[0].name.clone());
        for measured in report.record.trials.iter_mut().flat_map(|trial| &mut trial.workloads) {
            measured.summary.operations = 60;
        }
        let result = result(&report, &workload, &arm).unwrap();
        let cells = latency_cells(&result.service_latency, &requests_by_trial(&report, result), Tone::Plain);
        let shown = STATISTICS.into_iter().zip(cells).filter(|(_, cell)| *cell != Cell::absent());
        let shown: Vec<Statistic> = shown.map(|(statistic, _)| statistic).collect();
        assert_eq!(shown, [Statistic::P50, Statistic::P90, Statistic::P95, Statistic::Max]);
        for metric in Metric::all() {
            let Source::Latency(statistic) = metric.source else { continue };
            if STATISTICS.contains(&statistic) {
                let withheld = paired_values(&report.record, &arm, &workload, metric);
                assert_eq!(withheld.is_ok(), shown.contains(&statistic), "{}: {withheld:?}", metric.name);
            }
        }
    }
}
