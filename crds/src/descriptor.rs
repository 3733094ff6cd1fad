//! What is known of a metric, and of what kinds that can be. What describes one, as families of workloads do, needs no list of all, which is
//! [`crate::metric`].

use crate::gate_value::GateValue;
use crate::latency::LatencySummary;
use crate::measure::{Durations, Largest, Total};
use crate::measurement::WorkloadMeasurement;

/// Everything that is known of a metric.
#[derive(Debug)]
pub struct Descriptor {
    /// As users write it; the unit is the end of the name.
    pub name: &'static str,
    /// What it is, for people who have not met it. One sentence, without its stop.
    pub about: &'static str,
    /// What reports call it, such as `p99 latency`.
    pub words: &'static str,
    /// What it is counted in.
    pub unit: Unit,
    /// What a larger value means.
    pub direction: Direction,
    /// Where one trial's value comes from.
    pub source: Source,
    /// How the values of several trials become one.
    pub over_trials: OverTrials,
    /// Whether it stands among the first that a reader looks at: in every table of comparisons, and as a chart.
    pub is_headline: bool,
    /// Where a status has it.
    pub place: Place,
    /// Its column in the tables of results, where an arm has it. Absent: it has none, or one that is not generated.
    pub column: Option<Column>,
    /// The operator's metric that shows it. Absent: `result_measure`, which has a label for the metric.
    pub gauge: Option<Gauge>,
}

/// What a metric is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things in a second.
    PerSecond,
    /// Bytes in a second.
    BytesPerSecond,
    /// Milliseconds.
    Millis,
    /// Microseconds.
    Micros,
    /// Nanoseconds.
    Nanos,
    /// Bytes.
    Bytes,
    /// Things.
    Count,
    /// Thousandths of a thing for each request.
    PerThousandOperations,
}

impl Unit {
    /// Nanoseconds of one, and the word for several; `None` where this is no unit of time.
    pub fn of_time(self) -> Option<(u64, &'static str)> {
        match self {
            Self::Millis => Some((1_000_000, "milliseconds")),
            Self::Micros => Some((1_000, "microseconds")),
            Self::Nanos => Some((1, "nanoseconds")),
            Self::PerSecond | Self::BytesPerSecond | Self::Bytes | Self::Count | Self::PerThousandOperations => None,
        }
    }

    /// A bound in this unit; `None` of a duration that is no whole number of it, or where this is no unit of time.
    pub fn whole(self, value: &GateValue) -> Option<u64> {
        match value {
            GateValue::Number(number) => Some(*number),
            GateValue::Duration { nanos, .. } => {
                let (nanos_of_one, _) = self.of_time()?;
                nanos.is_multiple_of(nanos_of_one).then_some(nanos / nanos_of_one)
            }
        }
    }

    /// A duration of so many nanoseconds in this unit; unchanged where this is no unit of time.
    pub(crate) fn of_nanos(self, nanos: u64) -> f64 {
        let nanos = nanos as f64;
        match self {
            Self::Millis => nanos / 1e6,
            Self::Micros => nanos / 1e3,
            Self::Nanos
            | Self::PerSecond
            | Self::BytesPerSecond
            | Self::Bytes
            | Self::Count
            | Self::PerThousandOperations => nanos,
        }
    }
}

/// What a larger value means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Faster, which is better.
    Speed,
    /// More, which is better.
    Gain,
    /// More, which is worse: what is used up.
    Cost,
    /// Higher, which is worse: what is waited for, by clients of whom each has one request under way. A loader that is the limit makes a store look
    /// slower in it.
    Delay,
    /// Higher, which is worse: for how long something is behind, or gone. The less a store is asked, the less it has to make up for, so that a loader
    /// that is the limit may make it look better, and late answers worse.
    Lag,
    /// More, which is worse: what goes wrong. The less a store is asked, the less of it there is, so that a loader that is the limit makes a store
    /// look better.
    Harm,
}

impl Direction {
    /// Words for larger and smaller.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Speed => ("faster", "slower"),
            Self::Gain | Self::Cost | Self::Harm => ("more", "less"),
            Self::Delay | Self::Lag => ("higher", "lower"),
        }
    }

    /// Whether it is a time for which somebody waits.
    pub fn is_waiting(self) -> bool {
        matches!(self, Self::Delay | Self::Lag)
    }

    /// Whether larger is better.
    pub fn more_is_better(self) -> bool {
        match self {
            Self::Speed | Self::Gain => true,
            Self::Cost | Self::Delay | Self::Lag | Self::Harm => false,
        }
    }
}

/// Where the value of one trial comes from.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// From what every workload measures.
    Computed(fn(&WorkloadMeasurement) -> Option<f64>),
    /// From latency: from the due instant in an open loop, from the send in a closed one.
    Latency(Statistic),
    /// From durations that a load measured.
    Durations(Durations, Statistic),
    /// From a total that a load or a meter counted.
    Total(Total, Per),
    /// From the largest value that a load saw.
    Largest(Largest),
    /// From several measures of a load, which are named.
    Measures(&'static [&'static str], fn(&WorkloadMeasurement) -> Option<f64>),
}

/// A statistic of many durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    /// The mean.
    Mean,
    /// The median.
    P50,
    /// The 90th percentile.
    P90,
    /// The 95th percentile.
    P95,
    /// The 99th percentile.
    P99,
    /// The 99.9th percentile.
    P999,
    /// The largest.
    Max,
}

impl Statistic {
    /// This statistic, nanoseconds.
    pub fn of(self, summary: &LatencySummary) -> u64 {
        match self {
            Self::Mean => summary.mean_nanos,
            Self::P50 => summary.p50_nanos,
            Self::P90 => summary.p90_nanos,
            Self::P95 => summary.p95_nanos,
            Self::P99 => summary.p99_nanos,
            Self::P999 => summary.p999_nanos,
            Self::Max => summary.max_nanos,
        }
    }

    /// Of how many durations one is beyond it: of fewer it is the largest under another name.
    pub const fn durations_min(self) -> u64 {
        match self {
            Self::Mean | Self::Max => 1,
            Self::P50 => 2,
            Self::P90 => 10,
            Self::P95 => 20,
            Self::P99 => 100,
            Self::P999 => 1_000,
        }
    }
}

/// What a total is related to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// Nothing: the total of a trial.
    Trial,
    /// A second of the measured phase.
    Second,
    /// A request.
    Operation,
    /// A thousand requests.
    ThousandOperations,
}

/// How the values of several trials become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverTrials {
    /// The median of the trials' values.
    Median,
    /// The largest of them.
    Largest,
}

impl OverTrials {
    /// Of a statistic. Each trial counts alike, however many requests it had, as in gates and ratios: of all requests as one, a trial would have
    /// the more the faster it was. What is the largest of a trial is the largest of all.
    pub(crate) const fn of(statistic: Statistic) -> Self {
        match statistic {
            Statistic::Max => Self::Largest,
            Statistic::Mean | Statistic::P50 | Statistic::P90 | Statistic::P95 | Statistic::P99 | Statistic::P999 => {
                Self::Median
            }
        }
    }
}

/// Where a status has a metric.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// In a field of its own, which stood there before there were [`Place::Measures`].
    Field(Field),
    /// In `results[].measures`, by name.
    Measures,
    /// In another form: throughput with its interval, latencies as summaries, memory as an arm's. No more are added.
    OtherForm,
}

/// A field of a result that is a metric's own. No more are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// `cpuNanosPerOperation`.
    Cpu,
    /// `writeBytesPerOperation`.
    Written,
    /// `fsyncsPerThousandOperations`.
    Fsyncs,
}

/// A statistic of durations that a load measured: longer is worse.
pub const fn delay(
    name: &'static str,
    words: &'static str,
    about: &'static str,
    durations: Durations,
    statistic: Statistic,
    column: Option<Column>,
) -> Descriptor {
    Descriptor {
        name,
        about,
        words,
        unit: Unit::Micros,
        direction: Direction::Delay,
        source: Source::Durations(durations, statistic),
        over_trials: OverTrials::of(statistic),
        is_headline: false,
        place: Place::Measures,
        column,
        gauge: None,
    }
}

/// A column of a table of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// What stands above it: short.
    pub title: &'static str,
    /// 0: always shown. Above: left out where space is short, the highest first.
    pub dispensable: u8,
}

/// One of the operator's metrics. Dashboards know it by name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gauge {
    /// Its name, without the prefix of all.
    pub name: &'static str,
    /// How many of its unit one of the metric's is.
    pub scale: f64,
}

/// A column of a table of results.
pub const fn column(title: &'static str, dispensable: u8) -> Option<Column> {
    Some(Column { title, dispensable })
}

/// One of the operator's metrics.
pub const fn gauge(name: &'static str, scale: f64) -> Option<Gauge> {
    Some(Gauge { name, scale })
}
