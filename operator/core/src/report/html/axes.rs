//! What charts share: a plot with grid lines and labelled ticks, and arms' names beside their data.

use super::super::safe_line::elide_middle;
use super::RenderError;
use super::canvas::{Anchor, Canvas, LETTER_WIDTH, MARK_RADIUS, TEXT_SIZE, WIDTH};
use super::palette::Ink;
use super::scale::{Scale, spread};

/// Room for the labels of the vertical axis.
const LEFT: f64 = 56.0;
/// Most room for arms' names.
const RIGHT_MAX: f64 = 108.0;
/// From the plot's end to an arm's mark.
const MARK_GAP: f64 = 16.0;
/// From there to its name.
const NAME_GAP: f64 = MARK_RADIUS + 5.0;
/// Room above the plot for half a label.
const TOP: f64 = 10.0;
/// Room for the labels and the name of the horizontal axis.
const BOTTOM: f64 = 42.0;
/// Height of a chart with two axes.
pub(super) const HEIGHT: f64 = 270.0;

/// A tick and its label.
pub(super) type Tick = (f64, String);

/// A plot with two axes, its vertical one upwards.
pub(super) struct Axes {
    /// Values to horizontal positions.
    pub(super) x: Scale,
    /// Values to vertical positions.
    pub(super) y: Scale,
}

impl Axes {
    /// A plot of these ranges of values, with room for names of so many letters.
    pub(super) fn new((x_low, x_high): (f64, f64), (y_low, y_high): (f64, f64), name_letters: usize) -> Self {
        let right = (MARK_GAP + NAME_GAP + name_letters as f64 * LETTER_WIDTH + 1.0).min(RIGHT_MAX);
        Self {
            x: Scale { low: x_low, high: x_high, from: LEFT, to: WIDTH - right },
            y: Scale { low: y_low, high: y_high, from: HEIGHT - BOTTOM, to: TOP },
        }
    }

    /// Where a pair of values stands.
    pub(super) fn at(&self, x: f64, y: f64) -> (f64, f64) {
        (self.x.at(x), self.y.at(y))
    }

    /// Grid lines, labels, and what the horizontal axis counts.
    pub(super) fn draw(&self, canvas: &Canvas<'_>, x: &[Tick], y: &[Tick], x_name: &str) -> Result<(), RenderError> {
        let bottom = self.y.from;
        for (value, label) in y {
            let height = self.y.at(*value);
            canvas.line(&[(self.x.from, height), (self.x.to, height)], Ink::Grid, 1.0)?;
            canvas.text(label, (self.x.from - 7.0, height), Anchor::End, Ink::Muted)?;
        }
        for (value, label) in x {
            let position = self.x.at(*value);
            canvas.line(&[(position, self.y.to), (position, bottom + 3.0)], Ink::Grid, 1.0)?;
            canvas.text(label, (position, bottom + 13.0), Anchor::Middle, Ink::Muted)?;
        }
        canvas.line(&[(self.x.from, bottom), (self.x.to, bottom)], Ink::Muted, 1.0)?;
        let middle = f64::midpoint(self.x.from, self.x.to);
        canvas.text(x_name, (middle, HEIGHT - TEXT_SIZE / 2.0), Anchor::Middle, Ink::Muted)
    }

    /// Arms' names to the right of the plot, each as near to its height as its neighbours allow, with its mark. With
    /// `leaders`, a line goes from there to where its data end; where data are marks themselves, it would make one more.
    pub(super) fn name_arms(
        &self,
        canvas: &Canvas<'_>,
        arms: &[NamedArm<'_>],
        leaders: bool,
    ) -> Result<(), RenderError> {
        let mut heights: Vec<f64> = arms.iter().map(|arm| arm.end.1).collect();
        spread(&mut heights, TEXT_SIZE + 3.0, self.y.to, self.y.from);
        let mark_x = self.x.to + MARK_GAP;
        let text_x = mark_x + NAME_GAP;
        let letters = ((WIDTH - text_x) / LETTER_WIDTH) as usize;
        for (arm, height) in arms.iter().zip(heights) {
            if leaders {
                canvas.line(&[arm.end, (mark_x, height)], Ink::Muted, 0.75)?;
            }
            canvas.mark(arm.position, (mark_x, height))?;
            canvas.text(&elide_middle(arm.name, letters), (text_x, height), Anchor::Start, Ink::Text)?;
        }
        Ok(())
    }
}

/// An arm and where its data end in a plot.
pub(super) struct NamedArm<'a> {
    /// Its position in the record.
    pub(super) position: usize,
    /// Its name.
    pub(super) name: &'a str,
    /// Where its data end.
    pub(super) end: (f64, f64),
}
