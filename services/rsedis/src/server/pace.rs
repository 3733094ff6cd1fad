//! How much is done at the moment: for INFO's `instantaneous_*`.

use std::collections::VecDeque;

/// Counters at a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Milliseconds since 1970.
    pub at: i64,
    /// Commands that were run.
    pub commands: u64,
    /// Bytes received.
    pub input_bytes: u64,
    /// Bytes sent.
    pub output_bytes: u64,
}

/// What was counted last.
#[derive(Clone, Debug, Default)]
pub struct Pace(VecDeque<Sample>);

/// As many as Redis takes the mean of; ten a second.
const SAMPLES: usize = 16;

impl Pace {
    /// What the counters say now.
    pub fn note(&mut self, sample: Sample) {
        // CONFIG RESETSTAT: what was counted before is nothing to compare with.
        if self.0.back().is_some_and(|last| sample.commands < last.commands || sample.input_bytes < last.input_bytes) {
            self.0.clear();
        }
        if self.0.len() == SAMPLES {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    /// A counter's growth per second.
    pub fn per_second(&self, counter: impl Fn(&Sample) -> u64) -> f64 {
        let (Some(first), Some(last)) = (self.0.front(), self.0.back()) else { return 0.0 };
        let millis = (last.at - first.at).max(0) as f64;
        let grown = counter(last).saturating_sub(counter(first)) as f64;
        if millis > 0.0 { grown * 1000.0 / millis } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_of_the_last_samples_and_begins_anew_with_the_counters() {
        let mut pace = Pace::default();
        let sample = |tenth: i64, commands: u64| Sample { at: tenth * 100, commands, ..Sample::default() };
        assert_eq!(pace.per_second(|sample| sample.commands), 0.0);
        (0..100).for_each(|tenth| pace.note(sample(tenth, 0)));
        (100..200).for_each(|tenth| pace.note(sample(tenth, (tenth as u64 - 100) * 5)));
        assert_eq!(pace.per_second(|sample| sample.commands), 50.0);
        pace.note(sample(200, 3));
        assert_eq!(pace.per_second(|sample| sample.commands), 0.0);
        pace.note(sample(201, 5));
        assert_eq!(pace.per_second(|sample| sample.commands), 20.0);
    }
}
