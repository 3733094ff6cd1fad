//! Many runs of one name: where a metric of an arm moved to another level, and what else changed then; and what became of gates.

use std::collections::BTreeSet;

use serde::Serialize;
use storebench_crds::Metric;
use storebench_crds::status::Verdict;

use super::conditions::{Difference, Differences, Part};
use super::practice::{GateCourse, Needed, needed};
use super::{Figures, arms, control, decides, few};
use crate::judgement::{Report, figure};
use crate::record::{ArmRecord, RunRecord};
use crate::statistics::{change_points, hodges_lehmann};

/// A change for the worse is an alarm for so many runs; then it is the new level.
pub const RECENT_RUNS: usize = 10;

/// One run's value.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Point {
    /// When the run began.
    pub started_at: String,
    /// The value in the metric's unit, as the run's report has it; or, against a control, the ratio to it.
    pub value: f64,
}

/// A new level.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The position of its first run among the points.
    pub position: usize,
    /// When that began.
    pub started_at: String,
    /// The new level divided by the one before, basis points.
    pub ratio_basis_points: u64,
    /// Whether it is worse.
    pub is_worse: bool,
    /// Whether it began in one of the last [`RECENT_RUNS`] that count, and still stands: the newest level is not back at the one before it.
    pub is_recent: bool,
    /// What else changed between its first run and the one before.
    pub differences: Differences,
}

/// One metric of one arm in one workload over all runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Series {
    /// The workload's name.
    pub workload: String,
    /// The arm's name.
    pub arm: String,
    /// The metric.
    pub metric: Metric,
    /// The arm to which ratios are taken, since it never changed. Absent: values are as measured.
    pub control: Option<String>,
    /// The values, the oldest first.
    pub points: Vec<Point>,
    /// The new levels, the oldest first.
    pub changes: Vec<Change>,
    /// How many trials it takes to see a change within a run. Empty: the arm is the baseline.
    pub needed: Vec<Needed>,
    /// The runs in which the loader was the limit of the arm, or of the control: when they began, and why. The oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limited: Vec<(String, String)>,
}

impl Series {
    /// Why the newest value is the loader's and not the store's, so that nothing is decided; `None`: the loader had time to spare.
    pub fn limited_now(&self) -> Option<&str> {
        let newest = &self.points.last()?.started_at;
        let (_, why) = self.limited.last().filter(|(started_at, _)| started_at == newest)?;
        Some(why)
    }
}

/// What many runs of one name say together.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trend {
    /// The run's name.
    pub run: String,
    /// When the runs that count began, the oldest first.
    pub runs: Vec<String>,
    /// Runs that do not count: when they began, and why not.
    pub set_aside: Vec<(String, String)>,
    /// The arms that the newest run asks for and no run that counts has measured; `arm in workload` where it has measured others of the arm.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub never_measured: Vec<String>,
    /// What was followed.
    pub series: Vec<Series>,
    /// What became of the gates.
    pub gates: Vec<GateCourse>,
    /// Regressed where a recent level is worse; else Inconclusive where the newest run does not count or lacks what was measured before it, where
    /// no run has measured an arm in a workload, the loader is the limit now, or runs are too few; else Passed.
    pub verdict: Verdict,
    /// Why, in one line.
    pub message: String,
}

impl Trend {
    /// Follows runs of one name. They are put in order here; machines other than that of the newest are set aside unless they are allowed.
    /// `None`: there are none.
    pub fn of(reports: &[Report], allow_different_machine: bool) -> Option<Self> {
        let mut ordered: Vec<&Report> = reports.iter().collect();
        // RFC 3339 in UTC, to the second: the order of the texts.
        ordered.sort_by(|one, other| one.record.started_at.cmp(&other.record.started_at));
        let newest = *ordered.last()?;
        let mut set_aside = Vec::new();
        ordered.retain(|report| {
            let why = why_not(report, newest, allow_different_machine);
            let is_kept = why.is_none();
            set_aside.extend(why.map(|why| (report.record.started_at.clone(), why)));
            is_kept
        });
        let figures: Vec<Figures> = ordered.iter().map(|report| Figures::of(report)).collect();
        let mut series = Vec::new();
        for workload in &newest.record.spec.workloads {
            for arm in arms(&newest.record) {
                let metrics = Metric::all().filter(|metric| decides(&newest.record, &workload.name, *metric));
                series.extend(metrics.filter_map(|metric| {
                    let mut series = follow(&figures, &workload.name, &arm.name, metric)?;
                    if series.control.is_none() {
                        show_as_reported(&mut series.points, &ordered, &workload.name, &arm.name, metric);
                    }
                    Some(series)
                }));
            }
        }
        let aside = set_aside.iter().find(|(started_at, _)| *started_at == newest.record.started_at);
        let never_measured = never_measured(&newest.record, &figures);
        let (verdict, message) = decide(&series, &figures, &never_measured, aside);
        Some(Self {
            run: newest.record.name.clone(),
            runs: ordered.iter().map(|report| report.record.started_at.clone()).collect(),
            set_aside,
            never_measured,
            series,
            gates: GateCourse::all(&ordered),
            verdict,
            message,
        })
    }
}

/// Why a run does not count; `None`: it does.
fn why_not(report: &Report, newest: &Report, allow_different_machine: bool) -> Option<String> {
    if report.judgement.verdict == Verdict::Invalid {
        return Some("it is Invalid".into());
    }
    let differences = Differences::of(&report.record, &newest.record);
    let mut machine = differences.of_part(Part::Machine);
    if let Some(Difference { what, before, after, .. }) = machine.next().filter(|_| !allow_different_machine) {
        return Some(format!("another machine than that of the newest run: {what} was {before}, and is {after}"));
    }
    let mut spec = differences.of_part(Part::Spec);
    spec.next().map(|difference| format!("another spec than that of the newest run: {}", difference.what))
}

fn follow(runs: &[Figures], workload: &str, arm: &str, metric: Metric) -> Option<Series> {
    let newest = runs.last()?;
    // A control has never changed; the arm itself is none.
    let never_changed = |name: &str| {
        runs.iter().all(|run| control(&run.record, &newest.record).is_some_and(|control| control.name == name))
    };
    let baseline = newest.record.arms.iter().find(|one| one.baseline && one.name != arm);
    // Where the newest run has no figure of it, as of a percentile of too few requests, the arm's own moves with the machine, and is told.
    let is_told = |name: &&str| newest.has(name, workload, metric) || !newest.has(arm, workload, metric);
    let control = baseline.map(|arm| arm.name.as_str()).filter(|name| never_changed(name)).filter(is_told);
    let value = |run: &Figures| hodges_lehmann(&run.logarithms(arm, control, workload, metric)?).ok();
    let measured = runs.iter().enumerate().filter_map(|(index, run)| Some((index, run, value(run)?)));
    let measured: Vec<(usize, &Figures, f64)> = measured.collect();
    let logs: Vec<f64> = measured.iter().map(|(_, _, value)| *value).collect();
    if logs.is_empty() {
        return None;
    }
    let cuts = change_points(&logs).ok()?;
    let of_level = |position: usize| {
        let to = cuts.iter().find(|cut| **cut > position).copied().unwrap_or(logs.len());
        let from = cuts.iter().rev().find(|cut| **cut <= position).copied().unwrap_or(0);
        &logs[from..to]
    };
    let ratio = |before: &[f64], after: &[f64]| {
        let level = |values: &[f64]| hodges_lehmann(values).unwrap_or_default();
        (level(after) - level(before)).exp()
    };
    let newest_level = of_level(logs.len() - 1);
    // Whoever recovers a little is no longer where the change had put it, and still not where it was.
    let stands = |position: usize, is_less: bool| {
        let before = of_level(position - 1);
        let is_apart = || change_points(&[before, newest_level].concat()).is_ok_and(|cuts| !cuts.is_empty());
        cuts.last() == Some(&position) || (is_apart() && (ratio(before, newest_level) < 1.0) == is_less)
    };
    let changes = cuts.iter().map(|&position| {
        let [(_, before, _), (index, after, _)] = [measured[position - 1], measured[position]];
        let ratio = ratio(of_level(position - 1), of_level(position));
        Change {
            position,
            started_at: after.record.started_at.clone(),
            ratio_basis_points: (ratio * 10_000.0).round() as u64,
            is_worse: (ratio < 1.0) == metric.direction.more_is_better(),
            is_recent: runs.len() - index <= RECENT_RUNS && stands(position, ratio < 1.0),
            differences: Differences::of(&before.record, &after.record),
        }
    });
    let changes = changes.collect();
    let limited = measured.iter().filter_map(|(_, run, _)| {
        let why = [Some(arm), control].into_iter().flatten().find_map(|arm| run.limited(arm, workload))?;
        Some((run.record.started_at.clone(), why.to_owned()))
    });
    let points =
        measured.iter().map(|(_, run, value)| Point { started_at: run.record.started_at.clone(), value: value.exp() });
    Some(Series {
        workload: workload.into(),
        arm: arm.into(),
        metric,
        control: control.map(Into::into),
        points: points.collect(),
        changes,
        needed: needed(runs, workload, arm, metric),
        limited: limited.collect(),
    })
}

/// A run has one figure: what is shown of it is what its report says. Levels are found from what each of its trials measured.
fn show_as_reported(points: &mut [Point], reports: &[&Report], workload: &str, arm: &str, metric: Metric) {
    for point in points {
        let report = reports.iter().find(|report| report.record.started_at == point.started_at);
        let figure = report.and_then(|report| figure(&report.record, arm, workload, metric));
        point.value = figure.unwrap_or(point.value);
    }
}

/// The arms of the newest run of which these have no figure at all, and of other arms the workloads, as `arm in workload`. Where no run counts,
/// nothing is said of arms.
fn never_measured(newest: &RunRecord, runs: &[Figures]) -> Vec<String> {
    if runs.is_empty() {
        return Vec::new();
    }
    let told = runs.iter().flat_map(|run| &run.series).map(|one| (one.arm.as_str(), one.workload.as_str()));
    let withheld = runs.iter().flat_map(|run| run.withheld.iter().flatten());
    let measured: BTreeSet<(&str, &str)> =
        told.chain(withheld.map(|one| (one.arm.as_str(), one.workload.as_str()))).collect();
    let of_arm = |arm: &ArmRecord| -> Vec<String> {
        let workloads = newest.spec.workloads.iter().map(|workload| workload.name.as_str());
        let missing: Vec<&str> =
            workloads.filter(|workload| !measured.contains(&(arm.name.as_str(), *workload))).collect();
        match missing.len() == newest.spec.workloads.len() {
            true => vec![arm.name.clone()],
            false => missing.iter().map(|workload| format!("{} in {workload}", arm.name)).collect(),
        }
    };
    arms(newest).flat_map(of_arm).collect()
}

/// What decides and has no figure in the newest run that counts. What is not asked for any more is missed for [`RECENT_RUNS`]: it may have been
/// taken out since it became slower.
fn lacking(series: &[Series], runs: &[Figures], never_measured: &[String]) -> Vec<String> {
    let Some(newest) = runs.last() else { return Vec::new() };
    let is_asked = |arm: &str, workload: &str| {
        arms(&newest.record).any(|one| one.name == arm)
            && newest.record.spec.workloads.iter().any(|one| one.name == workload)
    };
    let name = |arm: &str, workload: &str, metric: Metric| {
        if newest.series.iter().all(|one| one.arm != arm) {
            format!("arm {arm}")
        } else if newest.series.iter().all(|one| one.workload != workload) {
            format!("workload {workload}")
        } else {
            format!("{} of {arm} in {workload}", metric.words)
        }
    };
    let is_older = |point: &Point| point.started_at != newest.record.started_at;
    let without_point = series.iter().filter(|one| one.points.last().is_none_or(is_older));
    let mut found: BTreeSet<String> = without_point.map(|one| name(&one.arm, &one.workload, one.metric)).collect();
    for run in &runs[runs.len().saturating_sub(RECENT_RUNS)..] {
        let decided = run.series.iter().filter(|one| {
            arms(&run.record).any(|arm| arm.name == one.arm) && decides(&run.record, &one.workload, one.metric)
        });
        let gone = decided.filter(|one| !is_asked(&one.arm, &one.workload));
        found.extend(gone.map(|one| name(&one.arm, &one.workload, one.metric)));
    }
    found.extend(never_measured.iter().map(|arm| format!("arm {arm}")));
    found.into_iter().collect()
}

/// Fewer runs tell nothing of a level.
const RUNS_MIN: usize = 3;

/// The verdict over runs that count. `aside`: when the newest of all began, and why it does not count.
fn decide(
    series: &[Series],
    counted: &[Figures],
    never_measured: &[String],
    aside: Option<&(String, String)>,
) -> (Verdict, String) {
    let runs = counted.len();
    // Two stores that one busy loader holds back look equal, and so does a store that became slower behind it.
    let (limited, told): (Vec<&Series>, Vec<&Series>) = series.iter().partition(|one| one.limited_now().is_some());
    let alarms: Vec<String> = told
        .iter()
        .flat_map(|one| one.changes.iter().map(move |change| (one, change)))
        .filter(|(_, change)| change.is_worse && change.is_recent)
        .map(|(one, change)| {
            format!("{} of {} in {} since {}", one.metric.words, one.arm, one.workload, change.started_at)
        })
        .collect();
    if !alarms.is_empty() {
        return (Verdict::Regressed, format!("worse than before: {}", alarms.join("; ")));
    }
    if runs < RUNS_MIN {
        // A job that measures nothing, night after night, is no good news.
        let text =
            format!("{runs} runs that count are too few to say anything: {RUNS_MIN} at least, of one spec and machine");
        return (Verdict::Inconclusive, text);
    }
    let lacking = lacking(series, counted, never_measured);
    let unseen = if let Some((started_at, why)) = aside {
        Some(format!("the newest run, of {started_at}, does not count: {why}"))
    } else if !lacking.is_empty() {
        Some(format!("the newest run has no figure of {}", few(&lacking)))
    } else {
        limited.iter().find_map(|one| one.limited_now()).map(|why| format!("in the newest run {why}"))
    };
    if let Some(unseen) = unseen {
        return (Verdict::Inconclusive, format!("a store that became slower may not show: {unseen}"));
    }
    let recent = runs.min(RECENT_RUNS);
    (Verdict::Passed, format!("nothing that became worse in the last {recent} of {runs} runs still is"))
}
