//! Every trial in the order they ran: throughput over the instant it began. Drift, warm-up and outliers show here, and
//! that the arms took turns.

use storebench_crds::status::TrialState;

use super::super::Report;
use super::super::lookup;
use super::super::units;
use super::RenderError;
use super::axes::{Axes, HEIGHT, NamedArm, Tick};
use super::canvas::{self, Canvas, Caption};
use super::palette::Ink;
use super::scale::{round_ticks, without_zeros};
use crate::judgement::TrialPoint;

/// The vertical axis spans at least this share of the largest value, so that noise does not look like drama.
const SPAN_MIN: f64 = 0.2;

/// The chart. `None`: no trial measured this workload.
pub(super) fn chart(report: &Report, workload: &str) -> Result<Option<String>, RenderError> {
    let points: Vec<&TrialPoint> = report.judgement.points.iter().filter(|point| point.workload == workload).collect();
    if points.is_empty() {
        return Ok(None);
    }
    let lost: Vec<u64> = report
        .record
        .trials
        .iter()
        .filter(|trial| trial.state == TrialState::Invalid)
        .map(|trial| trial.started_millis)
        .collect();
    let rates = || points.iter().map(|point| point.throughput_milli);
    let (least, most) = (rates().min().unwrap_or(0), rates().max().unwrap_or(0));
    let caption = Caption {
        title: format!("Trials of {workload} in the order they ran"),
        description: format!(
            "{} valid trials between {} and {}; {} invalid",
            points.len(),
            units::rate_milli(least),
            units::rate_milli(most),
            lost.len()
        ),
    };
    canvas::chart(HEIGHT, &caption, |canvas| draw(canvas, report, &points, &lost)).map(Some)
}

fn draw(canvas: &Canvas<'_>, report: &Report, points: &[&TrialPoint], lost: &[u64]) -> Result<(), RenderError> {
    let rates = || points.iter().map(|point| point.throughput_milli as f64);
    let (least, most) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
    let missing = (most * SPAN_MIN - (most - least)).max(0.0) / 2.0;
    let margin = (most - least) * 0.08 + 1.0;
    let range = ((least - missing - margin).max(0.0), most + missing + margin);
    let starts = || points.iter().map(|point| point.started_millis).chain(lost.iter().copied());
    let last = starts().max().unwrap_or(0).max(1000) as f64 / 1000.0;
    // A little room to either side, so that the first and the last mark are whole.
    let letters = lookup::started_arms(report).map(|(_, arm)| arm.name.chars().count()).max().unwrap_or(0);
    let axes = Axes::new((-last * 0.03, last * 1.03), range, letters);
    let (size, unit) = if last > 180.0 { (60.0, "minutes") } else { (1.0, "seconds") };
    let x: Vec<Tick> =
        round_ticks(0.0, last / size, 5).into_iter().map(|tick| (tick * size, format!("{tick}"))).collect();
    let y: Vec<Tick> = round_ticks(range.0, range.1, 5)
        .into_iter()
        .map(|tick| (tick, if tick == 0.0 { "0".into() } else { without_zeros(&units::rate_milli(tick as u64)) }))
        .collect();
    axes.draw(canvas, &x, &y, &format!("{unit} after the run began"))?;
    for &start in lost {
        let (position, bottom) = axes.at(start as f64 / 1000.0, range.0);
        canvas.cross((position, bottom - 7.0), Ink::Alarm)?;
    }
    let mut named = Vec::new();
    for (arm, record) in lookup::started_arms(report) {
        let mine = points.iter().filter(|point| point.arm == record.name);
        let places: Vec<(f64, f64)> =
            mine.map(|point| axes.at(point.started_millis as f64 / 1000.0, point.throughput_milli as f64)).collect();
        // The line only leads the eye from trial to trial; between them nothing was measured.
        canvas.line(&places, Ink::Arm(arm), 0.5)?;
        for &place in &places {
            canvas.mark(arm, place)?;
        }
        if let Some(&end) = places.last() {
            named.push(NamedArm { position: arm, name: &record.name, end });
        }
    }
    axes.name_arms(canvas, &named, false)
}
