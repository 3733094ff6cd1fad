//! Latency against load: what became of each rate that was tried in search of the highest, all valid trials together.
//!
//! Trials try different rates. Rates that lie within a tenth of each other are put together; the median over their steps stands for them.

use storebench_crds::job::LoadStep;
use storebench_crds::workload::{HighestRate, Workload};

use super::Report;
use super::lookup;
use super::table::{Cell, Column, Table, Tone};
use super::units;
use crate::record::ArmRecord;
use crate::statistics::median_of_whole;

/// Rates that are put together: so many in a factor of ten.
const BINS_PER_DECADE: f64 = 24.0;

/// What a rate came to on one arm.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Point {
    /// The median of the rates, requests in a second.
    pub(super) rate_per_second: u64,
    /// The median of the percentile that the target is about, nanoseconds.
    pub(super) target_nanos: u64,
    /// The median of medians, nanoseconds.
    pub(super) p50_nanos: u64,
    /// Steps in which the target was kept.
    pub(super) held: usize,
    /// Steps in all.
    pub(super) steps: usize,
}

/// The curve of one arm, by rising rate.
#[derive(Clone, Debug)]
pub(super) struct Curve<'a> {
    /// The arm's position in the record.
    pub(super) position: usize,
    /// The arm.
    pub(super) arm: &'a ArmRecord,
    /// Its points. Not empty.
    pub(super) points: Vec<Point>,
}

/// The target of a workload, and the curve of each arm. `None`: no highest rate was looked for, or no trial found one.
pub(super) fn curves<'a>(report: &'a Report, workload: &'a Workload) -> Option<(&'a HighestRate, Vec<Curve<'a>>)> {
    let target = workload.load.highest_rate.as_ref()?;
    let of_arm = |(position, arm): (usize, &'a ArmRecord)| {
        let trials = lookup::valid_trials(report, &arm.name).flat_map(|trial| &trial.workloads);
        let steps = trials.filter(|measured| measured.summary.name == workload.name).flat_map(|one| &one.steps);
        let points = points(steps.collect(), target);
        (!points.is_empty()).then_some(Curve { position, arm, points })
    };
    let curves: Vec<Curve<'a>> = lookup::started_arms(report).filter_map(of_arm).collect();
    (!curves.is_empty()).then_some((target, curves))
}

fn points(mut steps: Vec<&LoadStep>, target: &HighestRate) -> Vec<Point> {
    // One that ended with a failure has the latencies of its beginning, which are no point of the curve.
    steps.retain(|step| step.failed == 0);
    steps.sort_by_key(|step| step.rate_per_second);
    let bin = |step: &LoadStep| ((step.rate_per_second.max(1) as f64).log10() * BINS_PER_DECADE).round() as i64;
    let point = |steps: &[&LoadStep]| Point {
        rate_per_second: median_of_whole(steps.iter().map(|step| step.rate_per_second).collect()),
        target_nanos: median_of_whole(steps.iter().map(|step| target.percentile.of(&step.intended)).collect()),
        p50_nanos: median_of_whole(steps.iter().map(|step| step.intended.p50_nanos).collect()),
        held: steps.iter().filter(|step| step.missed.is_none()).count(),
        steps: steps.len(),
    };
    steps.chunk_by(|one, other| bin(one) == bin(other)).map(point).collect()
}

/// The curves as a table, one rate of an arm to a row. `None`: there are none.
pub(super) fn table(report: &Report, workload: &Workload) -> Option<Table> {
    let (target, curves) = curves(report, workload)?;
    let has_median = target.percentile.requests_min() > 2;
    let mut columns = vec![Column::words("latency against load"), Column::numbers("rate")];
    if has_median {
        columns.push(Column::numbers("p50"));
    }
    columns.push(Column::numbers(target.percentile.words()));
    columns.push(Column::words("target kept"));
    let mut rows = Vec::new();
    for Curve { position, arm, points } in &curves {
        for point in points {
            let mut row =
                vec![Cell::arm(&arm.name, *position), Cell::plain(units::rate_milli(point.rate_per_second * 1_000))];
            if has_median {
                row.push(Cell::plain(units::duration_nanos(point.p50_nanos)));
            }
            row.push(Cell::plain(units::duration_nanos(point.target_nanos)));
            let kept = format!("{} of {}", point.held, point.steps);
            row.push(Cell::toned(kept, if point.held == point.steps { Tone::Good } else { Tone::Plain }));
            rows.push(row);
        }
    }
    Some(Table { columns, rows })
}

/// What a reader must know of these figures.
pub(super) fn notes(report: &Report, workload: &Workload) -> Vec<String> {
    let Some((target, _)) = curves(report, workload) else { return Vec::new() };
    let tolerance = units::percent_bound(target.tolerance_basis_points.into());
    vec![format!(
        "the highest rate was looked for in each trial by steps of {}, and then measured: it kept {}, and one higher by {tolerance} \
         missed twice; throughput and cost are at that rate, and so are the percentiles above",
        target.step_duration.as_str(),
        target.target(),
    )]
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::super::{html, markdown, text};
    use super::*;
    use storebench_crds::LoadMode;
    use storebench_crds::status::LatencySummary;

    fn step(rate: u64, p99_millis: u64) -> LoadStep {
        LoadStep {
            rate_per_second: rate,
            is_measured: false,
            missed: (p99_millis > 5).then(|| "slow".into()),
            is_loader: false,
            failed: 0,
            intended: LatencySummary { p99_nanos: p99_millis * 1_000_000, ..LatencySummary::default() },
        }
    }

    fn target() -> HighestRate {
        serde_json::from_value(serde_json::json!({ "atMost": "5ms" })).unwrap()
    }

    #[test]
    fn rates_that_are_close_are_put_together_and_others_are_not() {
        let broken_off = LoadStep { missed: Some("1 request failed".into()), failed: 1, ..step(16_000, 1) };
        let mut steps = vec![step(1_000, 1), step(8_000, 4), step(1_010, 3), step(8_100, 9), step(1_005, 2)];
        steps.extend([step(16_000, 90), broken_off]);
        let found = points(steps.iter().collect(), &target());
        let found: Vec<_> =
            found.iter().map(|point| (point.rate_per_second, point.target_nanos, point.held, point.steps)).collect();
        assert_eq!(
            found,
            [(1_005, 2_000_000, 3, 3), (8_050, 6_500_000, 1, 2), (16_000, 90_000_000, 0, 1)],
            "the median of two is their mean"
        );
    }

    /// A report of which the first workload looked for a highest rate.
    fn searched() -> Report {
        let (_, mut report) = fixture::all().swap_remove(0);
        let workload = &mut report.record.spec.workloads[0];
        (workload.load.mode, workload.load.rate) = (LoadMode::OpenLoop, Some(1_000));
        workload.load.highest_rate = Some(target());
        let name = workload.name.clone();
        let measured = report.record.trials.iter_mut().flat_map(|trial| &mut trial.workloads);
        for one in measured.filter(|one| one.summary.name == name) {
            one.steps = vec![
                step(1_000, 1),
                step(12_000, 90),
                step(6_000, 3),
                LoadStep { is_measured: true, ..step(7_000, 4) },
            ];
        }
        report
    }

    #[test]
    fn every_rendering_shows_the_curve_and_what_was_looked_for() {
        let report = searched();
        for (medium, rendered) in
            [("text", text(&report, 120, false)), ("markdown", markdown(&report)), ("html", html(&report).unwrap())]
        {
            // Where lines break is none of this test's business.
            let rendered = rendered.split_whitespace().collect::<Vec<_>>().join(" ");
            for words in ["p99 at most 5ms", "latency against load", "12.0k/s", "3 %", "target kept"] {
                assert!(rendered.contains(words), "{medium}: {words} is not in {rendered}");
            }
        }
        let page = html(&report).unwrap();
        assert!(page.contains("aria-label=\"Latency against load of"), "the chart");
        let (_, plain) = fixture::all().swap_remove(0);
        assert!(!html(&plain).unwrap().contains("Latency against load"));
    }
}
