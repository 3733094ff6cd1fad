//! What is told of many measurements.

/// The middle one, or the mean of the two in the middle.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some((values[low] + values[high]) / 2.0)
}

/// Times, of which parts are asked for.
pub struct Times(Vec<f64>);

impl Times {
    pub fn new(mut values: Vec<f64>) -> Times {
        values.sort_by(f64::total_cmp);
        Times(values)
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The smallest that this part of all does not exceed: no value that was not measured.
    pub fn at(&self, part: f64) -> Option<f64> {
        let rank = (self.0.len() as f64 * part).ceil() as usize;
        self.0.get(rank.max(1) - 1).copied()
    }

    pub fn max(&self) -> Option<f64> {
        self.0.last().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_an_even_number_lies_between_two() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0]), Some(3.0));
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(vec![9.0, 1.0, 3.0]), Some(3.0));
    }

    #[test]
    fn a_part_is_a_value_that_was_measured() {
        let times = Times::new((1..=100).rev().map(f64::from).collect());
        assert_eq!([0.5, 0.95, 0.99, 1.0].map(|part| times.at(part)), [50.0, 95.0, 99.0, 100.0].map(Some));
        assert_eq!((times.count(), times.max()), (100, Some(100.0)));
        // Of few the last one stands for the rarest.
        assert_eq!(Times::new(vec![2.0, 1.0]).at(0.99), Some(2.0));
        assert_eq!(Times::new(vec![2.0]).at(0.0), Some(2.0));
        assert_eq!(Times::new(vec![]).at(0.5), None);
    }
}
