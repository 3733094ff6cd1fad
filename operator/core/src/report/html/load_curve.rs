//! Latency against load: the percentile of the target over the rate, both logarithmic, one line for each arm, with the target.

use storebench_crds::workload::{HighestRate, Workload};

use super::super::Report;
use super::super::load_curve::{self, Curve};
use super::super::units;
use super::RenderError;
use super::axes::{Axes, HEIGHT, NamedArm, Tick};
use super::canvas::{self, Canvas, Caption};
use super::palette::Ink;
use super::scale::{log_ticks, without_zeros};

/// The chart. `None`: no highest rate was looked for.
///
/// # Errors
/// [`RenderError::Chart`].
pub(super) fn chart(report: &Report, workload: &Workload) -> Result<Option<String>, RenderError> {
    let Some((target, curves)) = load_curve::curves(report, workload) else { return Ok(None) };
    let caption = Caption {
        title: format!("Latency against load of {}", workload.name),
        description: curves.iter().map(|curve| describe(target, curve)).collect::<Vec<_>>().join("; "),
    };
    canvas::chart(HEIGHT, &caption, |canvas| draw(canvas, target, &curves)).map(Some)
}

fn describe(target: &HighestRate, curve: &Curve<'_>) -> String {
    let points = curve.points.iter().map(|point| {
        let rate = units::rate_milli(point.rate_per_second * 1_000);
        format!("{} at {rate}", units::duration_nanos(point.target_nanos))
    });
    format!("{}, {}: {}", curve.arm.name, target.percentile.words(), points.collect::<Vec<_>>().join(", "))
}

fn draw(canvas: &Canvas<'_>, target: &HighestRate, curves: &[Curve<'_>]) -> Result<(), RenderError> {
    let log = |value: u64| (value.max(1) as f64).log10();
    let at_most = target.at_most.duration().as_nanos() as f64;
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let ends = |values: Vec<f64>| {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let margin = ((high - low) * 0.06).max(0.03);
        (low - margin, high + margin)
    };
    let rates = ends(points().map(|point| log(point.rate_per_second)).collect());
    let latencies = points().map(|point| log(point.target_nanos));
    let latencies = ends(latencies.chain([at_most.max(1.0).log10()]).collect());
    let letters = curves.iter().map(|curve| curve.arm.name.chars().count()).max().unwrap_or(0);
    let axes = Axes::new(rates, latencies, letters);
    let x: Vec<Tick> = log_ticks(10_f64.powf(axes.x.low), 10_f64.powf(axes.x.high), 6)
        .into_iter()
        .map(|rate| (rate.log10(), without_zeros(&units::rate_milli((rate * 1e3).round() as u64))))
        .collect();
    let y: Vec<Tick> = log_ticks(10_f64.powf(axes.y.low), 10_f64.powf(axes.y.high), 9)
        .into_iter()
        .map(|nanos| (nanos.log10(), without_zeros(&units::duration_nanos(nanos.round() as u64))))
        .collect();
    axes.draw(canvas, &x, &y, "requests due in a second")?;
    let (_, height) = axes.at(axes.x.low, at_most.log10());
    canvas.line(&[(axes.x.from, height), (axes.x.to, height)], Ink::Alarm, 1.0)?;
    let mut named = Vec::new();
    for curve in curves {
        let places: Vec<(f64, f64)> =
            curve.points.iter().map(|point| axes.at(log(point.rate_per_second), log(point.target_nanos))).collect();
        canvas.line(&places, Ink::Arm(curve.position), 1.5)?;
        for &place in &places {
            canvas.mark(curve.position, place)?;
        }
        if let Some(&end) = places.last() {
            named.push(NamedArm { position: curve.position, name: &curve.arm.name, end });
        }
    }
    axes.name_arms(canvas, &named, true)
}
