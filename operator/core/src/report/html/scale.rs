//! From values to positions: straight scales, the ticks that people expect on them, and labels kept from overlapping.

/// A straight scale. For logarithmic axes, callers pass logarithms.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// The value at the first position.
    pub(super) low: f64,
    /// The value at the second position.
    pub(super) high: f64,
    /// The first position, logical pixels.
    pub(super) from: f64,
    /// The second position, logical pixels.
    pub(super) to: f64,
}

impl Scale {
    /// Where a value stands. Values outside the scale are held at its ends.
    pub(super) fn at(&self, value: f64) -> f64 {
        let span = self.high - self.low;
        if !(span > 0.0 && span.is_finite() && value.is_finite()) {
            return self.from;
        }
        self.from + ((value - self.low) / span).clamp(0.0, 1.0) * (self.to - self.from)
    }
}

/// Round values (1, 2 or 5 times a power of ten) in `low..=high`, about `wanted` of them, at most three times as many.
pub(super) fn round_ticks(low: f64, high: f64, wanted: usize) -> Vec<f64> {
    let span = high - low;
    if !(span > 0.0 && span.is_finite()) || wanted == 0 {
        return vec![];
    }
    let rough = span / wanted as f64;
    let power = 10_f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|&step| step >= rough).unwrap_or(rough);
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last).take(wanted * 3).map(|tick| tick as f64 * step).collect()
}

/// Round values above zero in `low..=high` for a logarithmic axis: powers of ten, with 2 and 5 between them as long as
/// there are at most `limit`.
pub(super) fn log_ticks(low: f64, high: f64, limit: usize) -> Vec<f64> {
    if !(low > 0.0 && high >= low && high.is_finite()) {
        return vec![];
    }
    let decades = || (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
    let with = |factors: &[f64]| -> Vec<f64> {
        decades()
            .flat_map(|decade| factors.iter().map(move |factor| factor * 10_f64.powi(decade)))
            .filter(|tick| (low..=high).contains(tick))
            .collect()
    };
    let fine = with(&[1.0, 2.0, 5.0]);
    if fine.len() <= limit { fine } else { with(&[1.0]) }
}

/// Moves positions apart so that neighbours keep `gap`, in their own order, within `low..=high` as far as they fit.
pub(super) fn spread(positions: &mut [f64], gap: f64, low: f64, high: f64) {
    let mut order: Vec<usize> = (0..positions.len()).collect();
    order.sort_by(|&a, &b| positions[a].total_cmp(&positions[b]));
    let mut floor = low;
    for &index in &order {
        positions[index] = positions[index].max(floor);
        floor = positions[index] + gap;
    }
    let mut ceiling = high;
    for &index in order.iter().rev() {
        positions[index] = positions[index].min(ceiling);
        ceiling = positions[index] - gap;
    }
}

/// A number and its unit without the zeros that say nothing on an axis: `1.00 ms` as `1 ms`.
pub(super) fn without_zeros(text: &str) -> String {
    let end = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(round_ticks(0.0, 27.0, 4), [0.0, 10.0, 20.0]);
        assert_eq!(round_ticks(970.0, 1040.0, 3), [1000.0]);
        assert_eq!(log_ticks(3e5, 4e6, 6), [5e5, 1e6, 2e6]);
        assert_eq!(log_ticks(1e3, 1e9, 7).len(), 7);
        assert_eq!(without_zeros("1.00 ms"), "1 ms");
        assert_eq!(without_zeros("2.50k/s"), "2.5k/s");
        assert_eq!(without_zeros("500 µs"), "500 µs");
    }

    proptest! {
        #[test]
        fn labels_keep_their_distance_and_their_order(mut wanted in prop::collection::vec(0.0..200.0_f64, 1..5)) {
            let before = wanted.clone();
            spread(&mut wanted, 14.0, 0.0, 200.0);
            for (a, b) in (0..wanted.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
                prop_assert!((wanted[a] - wanted[b]).abs() >= 13.999);
                prop_assert!((before[a] - before[b]) * (wanted[a] - wanted[b]) >= 0.0);
            }
            prop_assert!(wanted.iter().all(|position| (0.0..=200.0).contains(position)));
        }

        #[test]
        fn no_scale_leaves_the_drawing(low in any::<f64>(), high in any::<f64>(), value in any::<f64>()) {
            let scale = Scale { low, high, from: 10.0, to: 90.0 };
            prop_assert!((10.0..=90.0).contains(&scale.at(value)));
            let _ = (round_ticks(low, high, 4), log_ticks(low, high, 6));
        }
    }
}
