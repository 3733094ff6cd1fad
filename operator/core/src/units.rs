//! Numbers as people read them: three significant digits, the unit last, the same everywhere in a report.
//!
//! Promises: a value is never rounded across a unit in a way that shows four digits (999.7 µs is `1.00 ms`); no
//! function panics for any input.

use storebench_crds::metric::Unit;

/// The value of a metric, in its unit, with that unit.
pub(crate) fn of_metric(unit: Unit, value: f64) -> String {
    match unit {
        Unit::PerSecond => rate_milli((value * 1e3) as u64),
        Unit::BytesPerSecond => format!("{}/s", bytes(value as u64)),
        Unit::Millis => duration_nanos((value * 1e6) as u64),
        Unit::Micros => duration_nanos((value * 1e3) as u64),
        Unit::Nanos => duration_nanos(value as u64),
        Unit::Bytes => bytes(value as u64),
        Unit::Count => count_short(value as u64),
        Unit::PerThousandOperations => per_operation_milli(value as u64),
    }
}

/// A value as exact as it was given, in its metric's own unit and with it, as `5,000 µs`: for bounds, which must not be rounded away.
pub(crate) fn exact(unit: Unit, value: f64) -> String {
    let number =
        if value < 100.0 && value.fract() != 0.0 { format!("{value:.1}") } else { count(value.round() as u64) };
    match unit {
        Unit::PerSecond => format!("{number}/s"),
        Unit::BytesPerSecond => format!("{}/s", bytes(value as u64)),
        Unit::Millis => format!("{number} ms"),
        Unit::Micros => format!("{number} µs"),
        Unit::Nanos => format!("{number} ns"),
        Unit::Bytes => bytes(value as u64),
        Unit::Count => number,
        Unit::PerThousandOperations => format!("{number} per 1,000 requests"),
    }
}

/// Nanoseconds as `842 ns`, `512 µs`, `1.84 ms`, `12.3 s`.
pub(crate) fn duration_nanos(nanos: u64) -> String {
    scaled(nanos as f64, &[(1.0, " ns"), (1e3, " µs"), (1e6, " ms"), (1e9, " s")])
}

/// Microseconds as `842 µs`, `1.84 ms`, `12.3 s`.
pub(crate) fn duration_micros(micros: u64) -> String {
    duration_nanos(micros.saturating_mul(1000))
}

/// Thousandths of a request per second as `842/s`, `12.3k/s`, `1.20M/s`.
pub(crate) fn rate_milli(milli: u64) -> String {
    scaled(milli as f64 / 1000.0, &[(1.0, "/s"), (1e3, "k/s"), (1e6, "M/s"), (1e9, "G/s")])
}

/// A number of things as `842`, `12.3k`, `1.20M`; exact below a thousand.
pub(crate) fn count_short(count: u64) -> String {
    if count < 1000 {
        return count.to_string();
    }
    scaled(count as f64, &[(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")])
}

/// Thousandths of a thing for each operation as `1.02`, `12.3`, `0`.
pub(crate) fn per_operation_milli(milli: u64) -> String {
    three_digits(milli as f64 / 1000.0)
}

/// A number of things, exact, as `1,234,567`.
pub(crate) fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of things by their name, as `1 key`, `10,000 keys`.
pub(crate) fn things(number: u32, thing: &str) -> String {
    format!("{} {thing}{}", count(number.into()), if number == 1 { "" } else { "s" })
}

/// Bytes as `842 B`, `1.84 KiB`, `12.3 MiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    const KIB: f64 = 1024.0;
    let steps = [(1.0, " B"), (KIB, " KiB"), (KIB * KIB, " MiB"), (KIB * KIB * KIB, " GiB"), (KIB.powi(4), " TiB")];
    scaled(bytes as f64, &steps)
}

/// Thousandths of a core as `0.012 cores`, `0.42 cores`, `1.84 cores`.
pub(crate) fn cores(millicores: u64) -> String {
    let cores = millicores as f64 / 1000.0;
    if millicores == 0 || millicores >= 100 { format!("{cores:.2} cores") } else { format!("{cores:.3} cores") }
}

/// Milliseconds of a whole run as `12.3 s`, `4 min 12 s`, `1 h 03 min`.
pub(crate) fn run_duration(millis: u64) -> String {
    let seconds = (millis + 500) / 1000;
    match seconds {
        0..60 if millis < 59_950 => format!("{:.1} s", millis as f64 / 1000.0),
        0..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// A ratio in basis points as `1.12×`.
pub(crate) fn times(basis_points: u64) -> String {
    format!("{:.2}×", basis_points as f64 / 10_000.0)
}

/// The smallest change that could be told, in basis points, as `3 %`, or as `only 3.2× or more` where it is more than all.
pub(crate) fn detectable(basis_points: u64) -> String {
    match basis_points {
        0..=10_000 => percent_bound(basis_points),
        more => format!("only {:.1}× or more", 1.0 + more as f64 / 10_000.0),
    }
}

/// The same in words of their own, as `a difference of less than 49 % would have gone unseen`.
pub(crate) fn unseen(basis_points: u64) -> String {
    match basis_points {
        0..=10_000 => format!("a difference of less than {} would have gone unseen", detectable(basis_points)),
        more => format!("{} would have been seen", detectable(more)),
    }
}

/// Basis points of a change as `0.4 %`, `3 %`, rounded up: a bound that is stated must hold.
pub(crate) fn percent_bound(basis_points: u64) -> String {
    if basis_points < 100 {
        let tenths = basis_points.div_ceil(10).max(1);
        return if tenths == 10 { "1 %".into() } else { format!("0.{tenths} %") };
    }
    format!("{} %", basis_points.div_ceil(100))
}

/// An interval of which one end is so many times as far from the middle as the other is shown with both.
const LOPSIDED: f64 = 1.5;

/// How far the ends of an interval are from its middle, relative to the middle: `±1.2 %`, or, where it is lopsided, both, as
/// `−12 +34 %`.
pub(crate) fn plus_minus(middle: u64, low: u64, high: u64) -> Option<String> {
    if middle == 0 {
        return None;
    }
    let percent = |distance: u64| distance as f64 / middle as f64 * 100.0;
    let (below, above) = (percent(middle.saturating_sub(low)), percent(high.saturating_sub(middle)));
    let (smaller, larger) = (below.min(above), below.max(above));
    let decimals = if larger < 9.95 { 1 } else { 0 };
    let shown = |percent: f64| format!("{percent:.decimals$}");
    let is_lopsided = larger > LOPSIDED * smaller && shown(larger) != shown(smaller);
    Some(match is_lopsided {
        true => format!("−{} +{} %", shown(below), shown(above)),
        // The farther end, so that the printed range contains the interval.
        false => format!("±{} %", shown(larger)),
    })
}

/// Decimals that show a ratio and the ends of its interval without hiding on which side of 1 they lie.
fn ratio_decimals(low: u64, high: u64) -> usize {
    let from = match low {
        100_000.. => 1,
        1_000.. => 2,
        100.. => 3,
        _ => return 4,
    };
    // An interval that does not contain 1 must not print an end that looks like 1.
    let nearest_to_parity = if low > 10_000 { low } else { high };
    if low <= 10_000 && high >= 10_000 {
        return from;
    }
    let looks_like_parity = |decimals: &usize| {
        let half_a_step = 10_f64.powi(-(*decimals as i32)) / 2.0;
        (nearest_to_parity as f64 / 10_000.0 - 1.0).abs() < half_a_step
    };
    (from..4).find(|decimals| !looks_like_parity(decimals)).unwrap_or(4)
}

/// A ratio with the ends of its interval, as `1.42× (1.35–1.49)`.
pub(crate) fn ratio(middle: u64, low: u64, high: u64) -> String {
    let decimals = ratio_decimals(low.min(middle), high.max(middle));
    let show = |basis_points: u64| format!("{:.decimals$}", basis_points as f64 / 10_000.0);
    format!("{}× ({}–{})", show(middle), show(low), show(high))
}

/// `value` in the largest unit that leaves at least 1, with three significant digits. Steps go from small to large.
fn scaled(value: f64, steps: &[(f64, &str)]) -> String {
    for (position, &(size, unit)) in steps.iter().enumerate() {
        let in_unit = value / size;
        let is_last = position + 1 == steps.len();
        let next_size = steps.get(position + 1).map_or(f64::INFINITY, |next| next.0);
        // 999.5 would print as 1000, and 0.9995 of the next unit as 1.00: go there instead.
        if is_last || (in_unit < 999.5 && value < next_size * 0.9995) {
            return format!("{}{unit}", three_digits(in_unit));
        }
    }
    String::new()
}

/// Three significant digits, or all digits of a whole number at or above 100; whole numbers below 1 as `0`.
fn three_digits(value: f64) -> String {
    if value == 0.0 {
        "0".into()
    } else if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn latencies_keep_three_digits_across_units() {
        for (nanos, text) in [
            (0, "0 ns"),
            (7, "7.00 ns"),
            (842, "842 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (512_400, "512 µs"),
            (999_400, "999 µs"),
            (999_700, "1.00 ms"),
            (1_840_000, "1.84 ms"),
            (12_345_678, "12.3 ms"),
            (99_960_000, "100 ms"),
            (999_600_000, "1.00 s"),
            (75_000_000_000, "75.0 s"),
            (3_600_000_000_000, "3600 s"),
        ] {
            assert_eq!(duration_nanos(nanos), text, "{nanos}");
        }
        assert_eq!(duration_micros(18_400), "18.4 ms");
    }

    #[test]
    fn rates_bytes_and_counts() {
        assert_eq!(rate_milli(842_000), "842/s");
        assert_eq!(rate_milli(12_345_678), "12.3k/s");
        assert_eq!(rate_milli(1_200_000_000), "1.20M/s");
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1000), "0.98 KiB");
        assert_eq!(bytes(1023), "1.00 KiB");
        assert_eq!(bytes(12 * 1024 * 1024 + 400_000), "12.4 MiB");
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count_short(842), "842");
        assert_eq!(count_short(12_345), "12.3k");
        assert_eq!(cores(0), "0.00 cores");
        assert_eq!(cores(12), "0.012 cores");
        assert_eq!(cores(1_840), "1.84 cores");
    }

    #[test]
    fn run_durations() {
        assert_eq!(run_duration(12_340), "12.3 s");
        assert_eq!(run_duration(59_960), "1 min 00 s");
        assert_eq!(run_duration(252_000), "4 min 12 s");
        assert_eq!(run_duration(3_780_000), "1 h 03 min");
    }

    #[test]
    fn what_would_have_gone_unseen_is_said() {
        assert_eq!(unseen(4_810), "a difference of less than 49 % would have gone unseen");
        assert_eq!(unseen(22_000), "only 3.2× or more would have been seen");
    }

    #[test]
    fn bounds_are_rounded_up() {
        assert_eq!(percent_bound(0), "0.1 %");
        assert_eq!(percent_bound(31), "0.4 %");
        assert_eq!(percent_bound(95), "1 %");
        assert_eq!(percent_bound(201), "3 %");
        assert_eq!(percent_bound(300), "3 %");
    }

    #[test]
    fn ratios_show_on_which_side_of_one_they_are() {
        assert_eq!(ratio(14_200, 13_500, 14_900), "1.42× (1.35–1.49)");
        assert_eq!(ratio(10_100, 10_020, 10_200), "1.010× (1.002–1.020)");
        assert_eq!(ratio(10_003, 10_001, 10_004), "1.0003× (1.0001–1.0004)");
        assert_eq!(ratio(10_000, 10_000, 10_000), "1.00× (1.00–1.00)");
        assert_eq!(ratio(9_859, 9_714, 10_004), "0.99× (0.97–1.00)");
        assert_eq!(ratio(9_859, 9_714, 9_996), "0.9859× (0.9714–0.9996)");
        assert_eq!(ratio(812, 790, 830), "0.081× (0.079–0.083)");
        assert_eq!(ratio(123_000, 120_000, 130_000), "12.3× (12.0–13.0)");
    }

    #[test]
    fn plus_minus_shows_both_ends_of_a_lopsided_interval() {
        assert_eq!(plus_minus(1000, 975, 1030).as_deref(), Some("±3.0 %"));
        assert_eq!(plus_minus(1000, 990, 1030).as_deref(), Some("−1.0 +3.0 %"));
        assert_eq!(plus_minus(1000, 800, 1030).as_deref(), Some("−20 +3 %"));
        assert_eq!(plus_minus(0, 0, 0), None);
    }

    proptest! {
        #[test]
        fn never_more_than_five_characters_before_the_unit(value in any::<u64>()) {
            for text in [duration_nanos(value % 999_000_000_000), rate_milli(value % 999_000_000_000_000)] {
                let digits = text.chars().take_while(|c| c.is_ascii_digit() || *c == '.').count();
                prop_assert!(digits <= 4, "{text}");
            }
        }

        #[test]
        fn nothing_panics(a in any::<u64>(), b in any::<u64>(), c in any::<u64>()) {
            let _ = (duration_micros(a), bytes(a), count(a), count_short(a), cores(a), run_duration(a / 2));
            let _ = (percent_bound(a), plus_minus(a, b, c), ratio(a, b, c));
        }
    }
}
