//! Colours and shapes. Charts are drawn in placeholder colours; the page's style sheet maps each to a variable that
//! depends on `prefers-color-scheme`, so that one drawing serves light and dark.
//!
//! Arms differ in colour and in shape, and are labelled: nobody needs to see colours to read a chart. The colours are
//! those of Okabe and Ito ("Color Universal Design", 2008), which the common kinds of colour blindness tell apart; of its
//! eight, those with a contrast of at least 3:1 against the page (WCAG 2.2, 1.4.11).

use plotters::style::RGBColor;

/// What a drawn thing is, instead of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
    /// Names and values.
    Text,
    /// Axes' labels.
    Muted,
    /// Grid lines.
    Grid,
    /// What must not be overlooked in a chart: lost trials.
    Alarm,
    /// The page itself, to cut one thing off from another.
    Paper,
    /// An arm, by its position in the record.
    Arm(usize),
    /// An arm's second line, dashed.
    ArmDashed(usize),
}

/// Shapes that mark arms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// ●
    Circle,
    /// ■
    Square,
    /// ▲
    Triangle,
    /// ◆
    Diamond,
}

/// Arms that can be told apart; the API allows no more in a run. Further ones would begin again.
pub(super) const ARMS: usize = 4;

const SHAPES: [Shape; ARMS] = [Shape::Circle, Shape::Square, Shape::Triangle, Shape::Diamond];

/// Blue, vermillion, bluish green, reddish purple.
const ARMS_ON_LIGHT: [&str; ARMS] = ["#0072B2", "#D55E00", "#00875F", "#B8558F"];
/// Sky blue, orange, bluish green, reddish purple: the lighter relatives.
const ARMS_ON_DARK: [&str; ARMS] = ["#56B4E9", "#E69F00", "#1FBF92", "#DE8FBC"];

/// The shape of an arm, by its position in the record.
pub(super) fn shape(arm: usize) -> Shape {
    SHAPES[arm % ARMS]
}

impl Ink {
    /// The colour that stands for it in a drawing.
    pub(super) fn placeholder(self) -> RGBColor {
        match self {
            Self::Text => RGBColor(1, 0, 0),
            Self::Muted => RGBColor(2, 0, 0),
            Self::Grid => RGBColor(3, 0, 0),
            Self::Alarm => RGBColor(4, 0, 0),
            Self::Paper => RGBColor(5, 0, 0),
            Self::Arm(arm) => RGBColor(6, 0, (arm % ARMS) as u8),
            Self::ArmDashed(arm) => RGBColor(7, 0, (arm % ARMS) as u8),
        }
    }

    fn variable(self) -> String {
        match self {
            Self::Text => "--text".into(),
            Self::Muted => "--muted".into(),
            Self::Grid => "--grid".into(),
            Self::Alarm => "--bad".into(),
            Self::Paper => "--paper".into(),
            Self::Arm(arm) | Self::ArmDashed(arm) => format!("--arm-{}", arm % ARMS),
        }
    }
}

/// Every ink that a drawing can contain.
fn inks() -> impl Iterator<Item = Ink> {
    [Ink::Text, Ink::Muted, Ink::Grid, Ink::Alarm, Ink::Paper]
        .into_iter()
        .chain((0..ARMS).map(Ink::Arm))
        .chain((0..ARMS).map(Ink::ArmDashed))
}

/// Style rules that turn placeholders into the page's colours.
pub(super) fn style_rules() -> String {
    let arms = |colours: [&str; ARMS]| -> String {
        colours.iter().enumerate().map(|(arm, colour)| format!("--arm-{arm}:{colour};")).collect()
    };
    let mut rules = format!(
        ":root{{{}}}\n@media (prefers-color-scheme:dark){{:root{{{}}}}}\n",
        arms(ARMS_ON_LIGHT),
        arms(ARMS_ON_DARK)
    );
    for ink in inks() {
        let RGBColor(red, green, blue) = ink.placeholder();
        let (code, variable) = (format!("#{red:02X}{green:02X}{blue:02X}"), ink.variable());
        let dashes = if matches!(ink, Ink::ArmDashed(_)) { ";stroke-dasharray:22 15" } else { "" };
        rules.push_str(&format!(".chart [fill=\"{code}\"]{{fill:var({variable})}}\n"));
        rules.push_str(&format!(".chart [stroke=\"{code}\"]{{stroke:var({variable}){dashes}}}\n"));
    }
    rules
}

/// The arms' marks, to be used in tables by `<use href="#mark-0">`.
pub(super) fn mark_symbols() -> String {
    let symbols: String = (0..ARMS)
        .map(|arm| {
            let outline = match shape(arm) {
                Shape::Circle => "<circle cx=\"6\" cy=\"6\" r=\"5\"/>",
                Shape::Square => "<rect x=\"1.5\" y=\"1.5\" width=\"9\" height=\"9\"/>",
                Shape::Triangle => "<path d=\"M6 .8 11.4 10.6H.6z\"/>",
                Shape::Diamond => "<path d=\"M6 0 12 6 6 12 0 6z\"/>",
            };
            format!("<symbol id=\"mark-{arm}\" viewBox=\"0 0 12 12\" fill=\"var(--arm-{arm})\">{outline}</symbol>")
        })
        .collect();
    format!("<svg width=\"0\" height=\"0\" aria-hidden=\"true\" class=\"symbols\"><defs>{symbols}</defs></svg>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_inks_share_a_placeholder() {
        let mut seen: Vec<_> = inks().map(|ink| ink.placeholder()).map(|RGBColor(r, g, b)| (r, g, b)).collect();
        let all = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), all);
    }

    /// Relative luminance, WCAG 2.2.
    fn luminance(colour: &str) -> f64 {
        let channel = |from: usize| {
            let value = f64::from(u8::from_str_radix(&colour[from..from + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    #[test]
    fn arms_stand_out_from_the_page() {
        for (colours, page) in [(ARMS_ON_LIGHT, "#FFFFFF"), (ARMS_ON_DARK, "#15181D")] {
            for colour in colours {
                let (a, b) = (luminance(colour).max(luminance(page)), luminance(colour).min(luminance(page)));
                assert!((a + 0.05) / (b + 0.05) >= 3.0, "{colour} on {page}");
            }
        }
    }
}
