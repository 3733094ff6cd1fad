//! Throughput of each arm as a bar from zero, with the 95 % interval of its median.

use super::super::Report;
use super::super::lookup;
use super::super::safe_line::elide_middle;
use super::super::units;
use super::RenderError;
use super::canvas::{self, Anchor, Canvas, Caption, LETTER_WIDTH, MARK_RADIUS, WIDTH};
use super::palette::Ink;
use super::scale::{Scale, round_ticks, without_zeros};

/// Height of an arm: a line of text, and its bar below.
const ROW: f64 = 46.0;
/// From the row's top to the middle of the text.
const TEXT: f64 = 11.0;
/// From the row's top to the bar's upper and lower edge.
const BAR: (f64, f64) = (22.0, 36.0);
const LEFT: f64 = 1.0;
const BOTTOM: f64 = 24.0;

struct Bar<'a> {
    arm: usize,
    name: &'a str,
    middle: f64,
    interval: Option<(f64, f64)>,
    label: String,
}

/// The chart. `None`: no arm measured this workload.
pub(super) fn chart(report: &Report, workload: &str) -> Result<Option<String>, RenderError> {
    let bars: Vec<Bar<'_>> = lookup::started_arms(report)
        .filter_map(|(arm, record)| {
            let result = lookup::result(report, workload, &record.name)?;
            let interval = lookup::interval(report, workload, &record.name);
            let around = interval
                .and_then(|found| units::plus_minus(result.throughput_milli, found.low_milli, found.high_milli));
            let label = [Some(units::rate_milli(result.throughput_milli)), around];
            Some(Bar {
                arm,
                name: &record.name,
                middle: result.throughput_milli as f64,
                interval: interval.map(|found| (found.low_milli as f64, found.high_milli as f64)),
                label: label.into_iter().flatten().collect::<Vec<_>>().join(" "),
            })
        })
        .collect();
    if bars.is_empty() {
        return Ok(None);
    }
    let caption = Caption {
        title: format!("Throughput of {workload}"),
        description: bars.iter().map(|bar| format!("{}: {}", bar.name, bar.label)).collect::<Vec<_>>().join("; "),
    };
    let height = ROW * bars.len() as f64 + BOTTOM;
    canvas::chart(height, &caption, |canvas| draw(canvas, &bars, height)).map(Some)
}

fn draw(canvas: &Canvas<'_>, bars: &[Bar<'_>], height: f64) -> Result<(), RenderError> {
    let ends = bars.iter().map(|bar| bar.interval.map_or(bar.middle, |(_, high)| high.max(bar.middle)));
    let scale = Scale { low: 0.0, high: ends.fold(1.0, f64::max), from: LEFT, to: WIDTH - 4.0 };
    let bottom = height - BOTTOM;
    for tick in round_ticks(0.0, scale.high, 4) {
        let x = scale.at(tick);
        canvas.line(&[(x, BAR.0 - 4.0), (x, bottom)], Ink::Grid, 1.0)?;
        let label = if tick == 0.0 { "0".to_owned() } else { without_zeros(&units::rate_milli(tick as u64)) };
        let half = label.chars().count() as f64 * LETTER_WIDTH / 2.0;
        canvas.text(&label, (x.clamp(half, WIDTH - half), bottom + 11.0), Anchor::Middle, Ink::Muted)?;
    }
    for (row, bar) in bars.iter().enumerate() {
        draw_bar(canvas, bar, &scale, ROW * row as f64)?;
    }
    Ok(())
}

fn draw_bar(canvas: &Canvas<'_>, bar: &Bar<'_>, scale: &Scale, top: f64) -> Result<(), RenderError> {
    // Text stands on clear ground, not on grid lines.
    canvas.rectangle((0.0, top), (WIDTH, top + BAR.0 - 4.0), Ink::Paper)?;
    let name_x = LEFT + MARK_RADIUS * 2.0 + 5.0;
    let letters = (WIDTH - name_x) / LETTER_WIDTH - bar.label.chars().count() as f64 - 2.0;
    canvas.mark(bar.arm, (LEFT + MARK_RADIUS, top + TEXT))?;
    canvas.text(&elide_middle(bar.name, letters as usize), (name_x, top + TEXT), Anchor::Start, Ink::Text)?;
    canvas.text(&bar.label, (WIDTH - 1.0, top + TEXT), Anchor::End, Ink::Text)?;
    let (upper, lower) = (top + BAR.0, top + BAR.1);
    canvas.rectangle((LEFT, upper), (scale.at(bar.middle), lower), Ink::Arm(bar.arm))?;
    canvas.line(&[(LEFT, upper - 4.0), (LEFT, lower + 4.0)], Ink::Muted, 1.0)?;
    let Some((low, high)) = bar.interval else { return Ok(()) };
    let (low, high, middle) = (scale.at(low), scale.at(high), f64::midpoint(upper, lower));
    canvas.line(&[(low, middle), (high, middle)], Ink::Text, 1.5)?;
    for end in [low, high] {
        canvas.line(&[(end, upper - 2.0), (end, lower + 2.0)], Ink::Text, 1.5)?;
    }
    Ok(())
}
