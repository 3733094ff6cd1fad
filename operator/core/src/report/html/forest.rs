//! How every arm compares with the baseline in every workload, in one metric: ratios with their intervals on one
//! logarithmic axis, 1 marked. An interval that crosses the mark decides nothing.

use storebench_crds::Metric;
use storebench_crds::status::Comparison;

use super::super::Report;
use super::super::lookup;
use super::super::safe_line::elide_middle;
use super::super::wording;
use super::RenderError;
use super::canvas::{self, Anchor, Canvas, Caption, LETTER_WIDTH, MARK_RADIUS, WIDTH};
use super::palette::Ink;
use super::scale::Scale;
use crate::judgement::Standing;

/// Height of a comparison: a line of text, and its interval below.
const ROW: f64 = 36.0;
/// From the row's top to where the text's clear ground ends.
const TEXT_END: f64 = 18.0;
/// From the row's top to the interval.
const INTERVAL: f64 = 26.0;
/// Between workloads, where several arms are compared in each.
const GROUP_GAP: f64 = 10.0;
const TOP: f64 = 18.0;
const BOTTOM: f64 = 24.0;
/// The axis shows at least from 1/1.1 to 1.1, so that a difference of a thousandth does not fill it.
const SPAN_MIN: f64 = 1.1;
/// Ratios worth a tick, those that matter most first.
const TICKS: [f64; 29] = [
    1.0, 2.0, 0.5, 10.0, 0.1, 5.0, 0.2, 1.5, 0.7, 100.0, 0.01, 1.2, 0.8, 1.4, 1.1, 0.9, 0.6, 1.05, 0.95, 3.0, 0.3,
    20.0, 0.05, 50.0, 0.02, 1.3, 4.0, 1000.0, 0.001,
];
/// Least distance between ticks, logical pixels.
const TICK_GAP: f64 = 42.0;

/// One comparison in the chart.
struct Row<'a> {
    arm: usize,
    compared: &'a Comparison,
    top: f64,
}

/// The chart. `None`: nothing was compared in this metric.
pub(super) fn chart(report: &Report, metric: Metric) -> Result<Option<String>, RenderError> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    let mut top = TOP;
    for workload in &report.record.spec.workloads {
        let arms = lookup::compared_arms(report, &workload.name);
        if arms.len() > 1 && !rows.is_empty() {
            top += GROUP_GAP;
        }
        for (arm, record) in arms {
            if let Some(compared) = lookup::comparison(report, &workload.name, &record.name, metric) {
                rows.push(Row { arm, compared, top });
                top += ROW;
            }
        }
    }
    if rows.is_empty() {
        return Ok(None);
    }
    let sentences = rows.iter().map(|Row { compared, .. }| {
        format!("{}, {}: {}", compared.workload, compared.arm, wording::finding(report, compared).sentence)
    });
    let caption = Caption {
        title: format!("Ratios to the baseline: {}", metric.words),
        description: sentences.collect::<Vec<_>>().join("; "),
    };
    canvas::chart(top + BOTTOM, &caption, |canvas| {
        let reach = SPAN_MIN.ln();
        let low = rows.iter().map(|row| log_ratio(row.compared.low_basis_points)).fold(-reach, f64::min);
        let high = rows.iter().map(|row| log_ratio(row.compared.high_basis_points)).fold(reach, f64::max);
        let margin = (high - low) * 0.05;
        let scale = Scale { low: low - margin, high: high + margin, from: 2.0, to: WIDTH - 2.0 };
        axis(canvas, &scale, top)?;
        // Where nothing may be ranked, no side is the better one.
        if rows.iter().any(|row| lookup::standing(report, row.compared) != Standing::NotRanked) {
            directions(canvas, metric, &scale)?;
        }
        rows.iter().try_for_each(|row| draw_row(canvas, report, row, &scale))
    })
    .map(Some)
}

fn log_ratio(basis_points: u64) -> f64 {
    (basis_points.max(1) as f64 / 10_000.0).ln()
}

fn draw_row(canvas: &Canvas<'_>, report: &Report, row: &Row<'_>, scale: &Scale) -> Result<(), RenderError> {
    let Row { arm, compared, top } = *row;
    let finding = wording::finding(report, compared);
    let is_ranked = lookup::standing(report, compared) != Standing::NotRanked;
    let letters = (WIDTH / LETTER_WIDTH) as usize;
    let name = format!("{} · {}", compared.workload, compared.arm);
    let name = elide_middle(&name, letters.saturating_sub(finding.ratio.chars().count() + 2));
    // Text stands on clear ground, not on grid lines.
    canvas.rectangle((0.0, top), (WIDTH, top + TEXT_END), Ink::Paper)?;
    let text_y = top + TEXT_END / 2.0;
    canvas.text(&name, (0.0, text_y), Anchor::Start, Ink::Text)?;
    canvas.text(&finding.ratio, (WIDTH, text_y), Anchor::End, if is_ranked { Ink::Text } else { Ink::Muted })?;
    let y = top + INTERVAL;
    let place = |basis_points: u64| scale.at(log_ratio(basis_points));
    let (from, to) = (place(compared.low_basis_points), place(compared.high_basis_points));
    let ink = if is_ranked { Ink::Arm(arm) } else { Ink::Muted };
    canvas.line(&[(from, y), (to, y)], ink, 2.0)?;
    for end in [from, to] {
        canvas.line(&[(end, y - MARK_RADIUS), (end, y + MARK_RADIUS)], ink, 1.5)?;
    }
    let middle = (place(compared.ratio_basis_points), y);
    // What may not be ranked takes part without its arm's mark.
    if is_ranked { canvas.mark(arm, middle) } else { canvas.cross(middle, ink) }
}

/// Grid lines and ticks.
fn axis(canvas: &Canvas<'_>, scale: &Scale, bottom: f64) -> Result<(), RenderError> {
    let mut taken: Vec<f64> = Vec::new();
    for tick in TICKS {
        let x = scale.at(tick.ln());
        let is_inside = (scale.low..=scale.high).contains(&tick.ln()) && (18.0..=WIDTH - 18.0).contains(&x);
        if !is_inside || taken.iter().any(|other| (x - other).abs() < TICK_GAP) {
            continue;
        }
        taken.push(x);
        let (ink, width) = if tick == 1.0 { (Ink::Muted, 1.5) } else { (Ink::Grid, 1.0) };
        canvas.line(&[(x, TOP), (x, bottom + 3.0)], ink, width)?;
        canvas.text(&format!("{tick}×"), (x, bottom + 13.0), Anchor::Middle, Ink::Muted)?;
    }
    Ok(())
}

/// Which way is better.
fn directions(canvas: &Canvas<'_>, metric: Metric, scale: &Scale) -> Result<(), RenderError> {
    let (larger, smaller) = metric.direction.words();
    let larger_is_better = metric.direction.more_is_better();
    let parity = scale.at(0.0);
    // Each side of 1 says what it means, in as many words as it has room for.
    let (left_room, right_room) = (parity - 6.0, WIDTH - parity - 6.0);
    if let Some(words) = direction(smaller, !larger_is_better, left_room) {
        canvas.text(&format!("← {words}"), (left_room, TOP / 2.0), Anchor::End, Ink::Muted)?;
    }
    if let Some(words) = direction(larger, larger_is_better, right_room) {
        canvas.text(&format!("{words} →"), (parity + 6.0, TOP / 2.0), Anchor::Start, Ink::Muted)?;
    }
    Ok(())
}

/// What a side of 1 means, in the most words that fit into `room` with an arrow.
fn direction(word: &str, is_better: bool, room: f64) -> Option<String> {
    let choices = if is_better { vec![format!("{word}, better"), "better".to_owned()] } else { vec![word.to_owned()] };
    choices.into_iter().find(|words| (words.chars().count() + 2) as f64 * LETTER_WIDTH <= room)
}
