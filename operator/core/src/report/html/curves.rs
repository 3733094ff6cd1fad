//! Latency over percentile, from the histograms of all valid trials: at each percentile the median over trials, as in tables. The percentile axis
//! gives every further nine the same room, as HdrHistogram's own plots do, so that the tail can be read; latency is logarithmic.

use hdrhistogram::Histogram;
use storebench_crds::job::{LatencyKind, decode_histogram};
use storebench_crds::workload::Workload;

use super::super::Report;
use super::super::lookup;
use super::super::units;
use super::RenderError;
use super::axes::{Axes, HEIGHT, NamedArm, Tick};
use super::canvas::{self, Canvas, Caption};
use super::palette::Ink;
use super::scale::{log_ticks, without_zeros};
use crate::ledger::number;
use crate::statistics::median_of_whole;

/// Points in each factor of ten of requests beyond.
const POINTS_PER_NINE: u32 = 24;
/// No more nines than this, however many requests there were.
const NINES_MAX: f64 = 5.0;

/// The percentiles that are labelled, by how many nines they have.
const PERCENTILES: [&str; 6] = ["0", "90", "99", "99.9", "99.99", "99.999"];

struct Curve<'a> {
    arm: usize,
    name: &'a str,
    latency: LatencyKind,
    requests: u64,
    /// Nines, and the logarithm of nanoseconds.
    points: Vec<(f64, f64)>,
}

/// The chart. `None`: no histogram was kept for this workload.
///
/// # Errors
/// [`RenderError::Histogram`] for a histogram that cannot be decoded; [`RenderError::Chart`].
pub(super) fn chart(report: &Report, workload: &Workload) -> Result<Option<String>, RenderError> {
    let mut curves = Vec::new();
    for (arm, record) in lookup::started_arms(report) {
        for latency in [LatencyKind::Intended, LatencyKind::Service] {
            let histograms = of_trials(report, &workload.name, &record.name, latency)?;
            if !histograms.is_empty() {
                curves.push(curve(arm, &record.name, latency, &histograms));
            }
        }
    }
    if curves.is_empty() {
        return Ok(None);
    }
    let caption = Caption {
        title: format!("Latency percentiles of {}", workload.name),
        description: curves.iter().map(describe).collect::<Vec<_>>().join("; "),
    };
    canvas::chart(HEIGHT, &caption, |canvas| draw(canvas, &curves)).map(Some)
}

/// The histograms of an arm's valid trials, as far as they were kept.
fn of_trials(
    report: &Report,
    workload: &str,
    arm: &str,
    latency: LatencyKind,
) -> Result<Vec<Histogram<u64>>, RenderError> {
    let mut histograms = Vec::new();
    for trial in lookup::valid_trials(report, arm) {
        let measured = trial.workloads.iter().filter(|measured| measured.summary.name == workload);
        for encoded in measured.flat_map(|measured| &measured.histograms).filter(|encoded| encoded.latency == latency) {
            let histogram = decode_histogram(&encoded.data).map_err(|error| RenderError::Histogram {
                workload: workload.to_owned(),
                arm: arm.to_owned(),
                trial: number(&report.record.trials, trial.index),
                reason: error.to_string(),
            })?;
            histograms.push(histogram);
        }
    }
    histograms.retain(|histogram| !histogram.is_empty());
    Ok(histograms)
}

fn curve<'a>(arm: usize, name: &'a str, latency: LatencyKind, histograms: &[Histogram<u64>]) -> Curve<'a> {
    let median = |of: &dyn Fn(&Histogram<u64>) -> u64| median_of_whole(histograms.iter().map(of).collect());
    // Beyond 1 in so many there is no request of a trial left to tell of.
    let of_a_trial = median(&|histogram| histogram.len());
    let nines = (of_a_trial.max(1) as f64).log10().clamp(0.0, NINES_MAX);
    let steps = (nines * f64::from(POINTS_PER_NINE)).floor() as u32;
    let mut points: Vec<(f64, f64)> = Vec::with_capacity(steps as usize + 1);
    for step in 0..=steps {
        let nine = f64::from(step) / f64::from(POINTS_PER_NINE);
        let quantile = 1.0 - 10_f64.powf(-nine);
        let nanos = median(&|histogram| histogram.value_at_quantile(quantile)).max(1) as f64;
        points.push((nine, nanos.log10()));
    }
    let requests = histograms.iter().map(Histogram::len).sum();
    Curve { arm, name, latency, requests, points }
}

fn describe(curve: &Curve<'_>) -> String {
    let kind = match curve.latency {
        LatencyKind::Intended => "intended",
        LatencyKind::Service => "service",
    };
    let at = |nines: u32| {
        let (_, nanos) = curve.points.get((nines * POINTS_PER_NINE) as usize)?;
        let percentile = PERCENTILES.get(nines as usize)?;
        Some(format!("p{percentile} {}", units::duration_nanos(10_f64.powf(*nanos) as u64)))
    };
    let values: Vec<String> = (1..=3).filter_map(at).collect();
    format!("{}, {kind}, {} requests: {}", curve.name, units::count(curve.requests), values.join(", "))
}

fn draw(canvas: &Canvas<'_>, curves: &[Curve<'_>]) -> Result<(), RenderError> {
    let all = || curves.iter().flat_map(|curve| &curve.points);
    let nines = all().map(|point| point.0).fold(1.0, f64::max);
    let low = all().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let high = all().map(|point| point.1).fold(f64::NEG_INFINITY, f64::max);
    let margin = ((high - low) * 0.06).max(0.03);
    let letters = curves.iter().map(|curve| curve.name.chars().count()).max().unwrap_or(0);
    let axes = Axes::new((0.0, nines), (low - margin, high + margin), letters);
    let x: Vec<Tick> = PERCENTILES
        .iter()
        .enumerate()
        .map(|(nine, label)| (nine as f64, (*label).to_owned()))
        .filter(|(nine, _)| *nine <= nines)
        .collect();
    let y: Vec<Tick> = log_ticks(10_f64.powf(axes.y.low), 10_f64.powf(axes.y.high), 9)
        .into_iter()
        .map(|nanos| (nanos.log10(), without_zeros(&units::duration_nanos(nanos.round() as u64))))
        .collect();
    axes.draw(canvas, &x, &y, "percentile")?;
    let has_intended =
        |arm: usize| curves.iter().any(|curve| curve.arm == arm && curve.latency == LatencyKind::Intended);
    let mut named = Vec::new();
    for curve in curves {
        let points: Vec<(f64, f64)> = curve.points.iter().map(|&(nine, nanos)| axes.at(nine, nanos)).collect();
        let is_second = curve.latency == LatencyKind::Service && has_intended(curve.arm);
        let ink = if is_second { Ink::ArmDashed(curve.arm) } else { Ink::Arm(curve.arm) };
        canvas.line(&points, ink, if is_second { 1.5 } else { 2.0 })?;
        if let Some(&end) = points.last().filter(|_| !is_second) {
            named.push(NamedArm { position: curve.arm, name: curve.name, end });
        }
    }
    axes.name_arms(canvas, &named, true)
}
