//! How long things take: a histogram for each command, and the latest spikes of each kind of event (`latency-monitor-threshold`).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Buckets of a histogram: each reaches twice as far as the one before it, the last to a second and beyond.
const BUCKETS: u32 = 21;
/// Spikes that are kept of each event.
const SAMPLES_MAX: usize = 160;

/// The most nanoseconds that a bucket holds: Redis's bounds, which are those of an HDR histogram of two digits.
fn most_nanos(bucket: u32) -> u64 {
    let value = 1024_u64 << bucket;
    value + (value >> 7) - 1
}

/// Steps of an octave: an HDR histogram of two digits, so that a time is known to within a hundredth.
const STEPS: usize = 128;
/// Below this a step is a nanosecond.
const STEP_BITS: u32 = STEPS.ilog2();
/// What takes longer counts as this: a second, as in Redis.
const NANOS_MAX: u64 = 1_000_000_000;
/// Octaves up to [`NANOS_MAX`], the first from zero.
const OCTAVES: usize = (NANOS_MAX.ilog2() - STEP_BITS) as usize + 2;

/// How often which time was taken. Octaves are made when a time falls into them: a command's times lie in a few.
#[derive(Clone, Debug, Default)]
pub struct Histogram(Option<Box<[Option<Octave>; OCTAVES]>>);

type Octave = Box<[u64; STEPS]>;

impl Histogram {
    /// It took so long.
    pub fn note(&mut self, nanos: u64) {
        let nanos = nanos.min(NANOS_MAX);
        let octave = (nanos | 1).ilog2().saturating_sub(STEP_BITS - 1) as usize;
        let step = (nanos >> octave.saturating_sub(1)) as usize % STEPS;
        let octaves = self.0.get_or_insert_default();
        octaves[octave].get_or_insert_with(|| Box::new([0; STEPS]))[step] += 1;
    }

    /// Steps that hold something, the shortest first: the most nanoseconds of each, and how many there are.
    fn steps(&self) -> impl Iterator<Item = (u64, u64)> {
        let octaves = self.0.iter().flat_map(|octaves| octaves.iter().enumerate());
        octaves.filter_map(|(octave, steps)| Some((octave, steps.as_deref()?))).flat_map(|(octave, steps)| {
            steps.iter().enumerate().filter(|(_, count)| **count > 0).map(move |(step, count)| match octave {
                0 => (step as u64, *count),
                _ => ((((step + STEPS + 1) as u64) << (octave - 1)) - 1, *count),
            })
        })
    }

    /// How many took at most so many microseconds, for all bounds at which there are more than before.
    pub fn cumulative(&self) -> Vec<(u64, u64)> {
        let (mut bounds, mut sum): (Vec<(u64, u64)>, u64) = (Vec::new(), 0);
        for (nanos, count) in self.steps() {
            sum += count;
            let bucket = (0..BUCKETS - 1).find(|bucket| nanos <= most_nanos(*bucket)).unwrap_or(BUCKETS - 1);
            let micros = most_nanos(bucket) / 1000;
            match bounds.last_mut() {
                Some(last) if last.0 == micros => last.1 = sum,
                _ => bounds.push((micros, sum)),
            }
        }
        bounds
    }

    /// Within how many nanoseconds so many percent of all were done, to a hundredth; nothing if there are none.
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        let total: u64 = self.steps().map(|(_, count)| count).sum();
        let wanted = ((percent / 100.0 * total as f64 + 0.5) as u64).clamp(1, total.max(1));
        let mut sum = 0;
        self.steps()
            .find(|(_, count)| {
                sum += count;
                sum >= wanted
            })
            .map(|(nanos, _)| nanos)
    }
}

/// An event took this long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Seconds since 1970.
    pub at: i64,
    /// See above.
    pub millis: u64,
}

/// The spikes of an event, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// The latest, at most one for each second.
    pub samples: VecDeque<Sample>,
    /// The longest of all.
    pub max_millis: u64,
}

/// What is known of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Analysis {
    /// The mean.
    pub mean_millis: u64,
    /// How far samples are from it, on the mean.
    pub deviation_millis: u64,
    /// Seconds since the oldest sample.
    pub period: i64,
}

impl Series {
    fn note(&mut self, sample: Sample) {
        self.max_millis = self.max_millis.max(sample.millis);
        match self.samples.back_mut() {
            Some(last) if last.at == sample.at => last.millis = last.millis.max(sample.millis),
            _ => {
                self.samples.push_back(sample);
                if self.samples.len() > SAMPLES_MAX {
                    self.samples.pop_front();
                }
            }
        }
    }

    /// At a time, in seconds since 1970.
    pub fn analyse(&self, now: i64) -> Analysis {
        let count = self.samples.len().max(1) as u64;
        let mean = self.samples.iter().map(|sample| sample.millis).sum::<u64>() / count;
        let deviation = self.samples.iter().map(|sample| sample.millis.abs_diff(mean)).sum::<u64>() / count;
        let period = self.samples.front().map_or(0, |first| now - first.at).max(1);
        Analysis { mean_millis: mean, deviation_millis: deviation, period }
    }
}

/// The spikes of all events, by their names.
#[derive(Clone, Debug, Default)]
pub struct Monitor {
    /// See above.
    pub events: BTreeMap<&'static str, Series>,
}

impl Monitor {
    /// An event that began at a time (milliseconds since 1970) took so long.
    pub fn note(&mut self, event: &'static str, began: i64, took: Duration) {
        let millis = took.as_millis() as u64;
        let sample = Sample { at: (began + millis as i64) / 1000, millis };
        self.events.entry(event).or_default().note(sample);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_redis() {
        let mut histogram = Histogram::default();
        for nanos in [0, 1_031, 1_032, 33_023, 33_024, u64::MAX] {
            histogram.note(nanos);
        }
        assert_eq!(histogram.cumulative(), [(1, 2), (2, 3), (33, 4), (66, 5), (1_082_130, 6)]);
    }

    #[test]
    fn percentiles_are_known_to_a_hundredth() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile(50.0), None);
        (1..=100_000).for_each(|micros| histogram.note(micros * 1_000));
        for (percent, micros) in [(0.0, 1.0), (50.0, 50_000.0), (99.0, 99_000.0), (99.9, 99_900.0), (100.0, 100_000.0)]
        {
            let found = histogram.percentile(percent).unwrap() as f64 / 1_000.0;
            assert!((found / micros - 1.0).abs() <= 0.01, "{percent}: {found}");
        }
    }

    #[test]
    fn a_second_keeps_its_worst_and_old_samples_go() {
        let mut monitor = Monitor::default();
        for (began, millis) in [(1_000, 5), (1_100, 9), (1_200, 7), (2_000, 3)] {
            monitor.note("command", began, Duration::from_millis(millis));
        }
        let series = &monitor.events["command"];
        assert_eq!(series.samples, [Sample { at: 1, millis: 9 }, Sample { at: 2, millis: 3 }]);
        assert_eq!(series.analyse(11), Analysis { mean_millis: 6, deviation_millis: 3, period: 10 });
        for second in 0..1_000 {
            monitor.note("command", second * 1_000, Duration::from_millis(1));
        }
        let series = &monitor.events["command"];
        assert_eq!((series.samples.len(), series.max_millis), (SAMPLES_MAX, 9));
    }
}
