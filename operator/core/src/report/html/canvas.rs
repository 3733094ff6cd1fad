//! A drawing surface for the charts: plotters' SVG backend, in logical pixels, with inks instead of colours.
//!
//! plotters counts in whole pixels. The drawing is [`SCALE`] times as large as it is meant to appear and the SVG's
//! `viewBox` scales it down, so that curves are smooth.

use plotters::coord::Shift;
use plotters::drawing::DrawingArea;
use plotters::element::{Circle, Drawable, PathElement, PointCollection, Polygon, Rectangle, Text};
use plotters::prelude::{IntoDrawingArea, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontFamily, ShapeStyle, TextStyle};

use super::RenderError;
use super::escape::escape;
use super::palette::{self, Ink, Shape};

/// Drawn pixels per logical pixel.
const SCALE: f64 = 4.0;
/// Height of letters, logical pixels. All text in charts has one size, so that it stays readable on a phone.
pub(super) const TEXT_SIZE: f64 = 12.0;
/// Width of a letter at that size, for deciding how much of a name fits: that of DejaVu Sans, wider than most.
pub(super) const LETTER_WIDTH: f64 = 7.2;
/// Width of every chart, logical pixels: that of a phone, so that text is not scaled down there.
pub(super) const WIDTH: f64 = 400.0;
/// Radius of an arm's mark, logical pixels.
pub(super) const MARK_RADIUS: f64 = 4.0;

/// Which part of a text stands at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    /// Its beginning.
    Start,
    /// Its middle.
    Middle,
    /// Its end.
    End,
}

/// What a chart is called and says, for those who do not see it.
pub(super) struct Caption {
    /// A name.
    pub(super) title: String,
    /// What it shows, with the numbers that matter.
    pub(super) description: String,
}

/// The surface.
pub(super) struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
    chart: &'a str,
}

/// Draws a chart and returns it as an `<svg>` element to put into a page.
pub(super) fn chart(
    height: f64,
    caption: &Caption,
    draw: impl FnOnce(&Canvas<'_>) -> Result<(), RenderError>,
) -> Result<String, RenderError> {
    let mut drawing = String::new();
    let (drawn_width, drawn_height) = (drawn(WIDTH), drawn(height));
    let size = (drawn_width.unsigned_abs(), drawn_height.unsigned_abs());
    {
        let area = SVGBackend::with_string(&mut drawing, size).into_drawing_area();
        let canvas = Canvas { area, chart: &caption.title };
        draw(&canvas)?;
        canvas.area.present().map_err(|error| canvas.failure(error))?;
    }
    // The root element is replaced: this one scales, has a text alternative, and says once what is true of every text.
    let body = drawing.split_once('>').map_or("", |(_, body)| body);
    let body = body
        .replace(" opacity=\"1\"", "")
        .replace(&format!(" font-family=\"{}\" font-size=\"{}\"", FONT.as_str(), TEXT_SIZE * SCALE), "");
    let (title, description) = (escape(&caption.title), escape(&caption.description));
    let text_size = TEXT_SIZE * SCALE;
    Ok(format!(
        "<svg class=\"chart\" role=\"img\" aria-label=\"{title}\" viewBox=\"0 0 {drawn_width} {drawn_height}\" font-size=\"{text_size}\">\n<title>{title}</title><desc>{description}</desc>{body}"
    ))
}

const FONT: FontFamily<'static> = FontFamily::SansSerif;

/// A logical length in drawn pixels. NaN, which no caller produces, becomes 0.
fn drawn(length: f64) -> i32 {
    (length * SCALE).round().clamp(-100_000.0, 100_000.0) as i32
}

fn at((x, y): (f64, f64)) -> (i32, i32) {
    (drawn(x), drawn(y))
}

fn stroke(ink: Ink, width: f64) -> ShapeStyle {
    ShapeStyle { color: ink.placeholder().to_rgba(), filled: false, stroke_width: drawn(width).unsigned_abs() }
}

fn fill(ink: Ink) -> ShapeStyle {
    ShapeStyle { color: ink.placeholder().to_rgba(), filled: true, stroke_width: 0 }
}

impl<'a> Canvas<'a> {
    fn failure(&self, error: impl std::fmt::Display) -> RenderError {
        RenderError::Chart { chart: self.chart.to_owned(), reason: error.to_string() }
    }

    fn draw<E>(&self, element: &E) -> Result<(), RenderError>
    where
        for<'b> &'b E: PointCollection<'b, (i32, i32)>,
        E: Drawable<SVGBackend<'a>>,
    {
        self.area.draw(element).map_err(|error| self.failure(error))
    }

    /// A line through points.
    pub(super) fn line(&self, points: &[(f64, f64)], ink: Ink, width: f64) -> Result<(), RenderError> {
        let points: Vec<_> = points.iter().copied().map(at).collect();
        self.draw(&PathElement::new(points, stroke(ink, width)))
    }

    /// A filled rectangle between opposite corners.
    pub(super) fn rectangle(&self, from: (f64, f64), to: (f64, f64), ink: Ink) -> Result<(), RenderError> {
        self.draw(&Rectangle::new([at(from), at(to)], fill(ink)))
    }

    /// One line of text, its height centred at the position.
    pub(super) fn text(&self, text: &str, position: (f64, f64), anchor: Anchor, ink: Ink) -> Result<(), RenderError> {
        let horizontal = match anchor {
            Anchor::Start => HPos::Left,
            Anchor::Middle => HPos::Center,
            Anchor::End => HPos::Right,
        };
        // The backend divides sizes by this number.
        let font = (FONT, TEXT_SIZE * SCALE * 1.24);
        let colour = ink.placeholder();
        let style = TextStyle::from(font).color(&colour).pos(Pos::new(horizontal, VPos::Center));
        self.draw(&Text::new(super::super::safe_line::safe_line(text), at(position), style))
    }

    /// An arm's mark.
    pub(super) fn mark(&self, arm: usize, (x, y): (f64, f64)) -> Result<(), RenderError> {
        let style = fill(Ink::Arm(arm));
        let reach = MARK_RADIUS;
        match palette::shape(arm) {
            Shape::Circle => self.draw(&Circle::new(at((x, y)), drawn(reach), style)),
            Shape::Square => {
                let half = reach * 0.9;
                self.rectangle((x - half, y - half), (x + half, y + half), Ink::Arm(arm))
            }
            Shape::Triangle => {
                let points =
                    [(x, y - reach * 1.15), (x + reach * 1.1, y + reach * 0.85), (x - reach * 1.1, y + reach * 0.85)];
                self.draw(&Polygon::new(points.map(at).to_vec(), style))
            }
            Shape::Diamond => {
                let reach = reach * 1.2;
                let points = [(x, y - reach), (x + reach, y), (x, y + reach), (x - reach, y)];
                self.draw(&Polygon::new(points.map(at).to_vec(), style))
            }
        }
    }

    /// A small ✕.
    pub(super) fn cross(&self, (x, y): (f64, f64), ink: Ink) -> Result<(), RenderError> {
        let reach = MARK_RADIUS * 0.8;
        self.line(&[(x - reach, y - reach), (x + reach, y + reach)], ink, 1.5)?;
        self.line(&[(x - reach, y + reach), (x + reach, y - reach)], ink, 1.5)
    }
}
