//! What every workload may measure.

use crate::descriptor::{Descriptor, Direction, Field, OverTrials, Per, Place, Source, Statistic, Unit, column, gauge};
use crate::measure::FSYNCS;

pub(super) static THROUGHPUT: Descriptor = Descriptor {
    name: "ThroughputPerSecond",
    about: "Requests answered per second (WatchThroughput: events delivered per second)",
    words: "throughput",
    unit: Unit::PerSecond,
    direction: Direction::Speed,
    source: Source::Computed(|measured| Some(measured.per_second(measured.summary.operations))),
    over_trials: OverTrials::Median,
    is_headline: true,
    place: Place::OtherForm,
    column: None,
    gauge: gauge("result_throughput_per_second", 1.0),
};

const fn latency(
    name: &'static str,
    words: &'static str,
    about: &'static str,
    statistic: Statistic,
    is_headline: bool,
) -> Descriptor {
    Descriptor {
        name,
        about,
        words,
        unit: Unit::Micros,
        direction: Direction::Delay,
        source: Source::Latency(statistic),
        over_trials: OverTrials::of(statistic),
        is_headline,
        place: Place::OtherForm,
        column: None,
        gauge: None,
    }
}

pub(super) static LATENCY_MEAN: Descriptor = latency(
    "LatencyMeanMicros",
    "mean latency",
    "Mean latency; in an open loop from the due instant",
    Statistic::Mean,
    false,
);
static LATENCY_P50: Descriptor = latency("LatencyP50Micros", "p50 latency", "Median latency", Statistic::P50, false);
static LATENCY_P90: Descriptor =
    latency("LatencyP90Micros", "p90 latency", "90th percentile of latency", Statistic::P90, false);
static LATENCY_P95: Descriptor =
    latency("LatencyP95Micros", "p95 latency", "95th percentile of latency", Statistic::P95, false);
pub(super) static LATENCY_P99: Descriptor =
    latency("LatencyP99Micros", "p99 latency", "99th percentile of latency", Statistic::P99, true);
static LATENCY_P999: Descriptor =
    latency("LatencyP999Micros", "p99.9 latency", "99.9th percentile of latency", Statistic::P999, false);
static LATENCY_MAX: Descriptor =
    latency("LatencyMaxMicros", "largest latency", "Largest latency", Statistic::Max, false);

pub(super) static CPU: Descriptor = Descriptor {
    name: "CpuNanosPerOperation",
    about: "Processor time of the store for each request, its own tools included where the load runs them",
    words: "CPU per operation",
    unit: Unit::Nanos,
    direction: Direction::Cost,
    source: Source::Computed(|measured| Some(measured.per_operation(measured.store_cpu_nanos()?))),
    over_trials: OverTrials::Median,
    is_headline: true,
    place: Place::Field(Field::Cpu),
    column: column("CPU/op", 0),
    gauge: gauge("result_cpu_seconds_per_operation", 1e-9),
};

static MEMORY_PEAK: Descriptor = Descriptor {
    name: "MemoryPeakBytes",
    about: "Largest resident memory of the store during the workload",
    words: "peak memory",
    unit: Unit::Bytes,
    direction: Direction::Cost,
    source: Source::Computed(|measured| Some(measured.usage?.rss_peak_bytes as f64)),
    over_trials: OverTrials::Largest,
    is_headline: false,
    place: Place::OtherForm,
    column: None,
    gauge: None,
};

static WRITE_BYTES: Descriptor = Descriptor {
    name: "WriteBytesPerOperation",
    about: "Written to the disk under the store, by whomever, for each request",
    words: "bytes written per operation",
    unit: Unit::Bytes,
    direction: Direction::Cost,
    source: Source::Computed(|measured| Some(measured.per_operation(measured.usage?.written_bytes?))),
    over_trials: OverTrials::Median,
    is_headline: false,
    place: Place::Field(Field::Written),
    column: column("written/op", 1),
    gauge: gauge("result_written_bytes_per_operation", 1.0),
};

static FSYNCS_PER_OPERATION: Descriptor = Descriptor {
    name: "FsyncsPerThousandOperations",
    about: "Syncs of the store's disk for each request, as the store counts them",
    words: "fsyncs per operation",
    unit: Unit::PerThousandOperations,
    direction: Direction::Cost,
    source: Source::Total(FSYNCS, Per::ThousandOperations),
    over_trials: OverTrials::Median,
    is_headline: false,
    place: Place::Field(Field::Fsyncs),
    column: column("fsyncs/op", 1),
    gauge: gauge("result_fsyncs_per_operation", 1e-3),
};

pub(super) static HIGHEST_RATE: Descriptor = Descriptor {
    name: "HighestRatePerSecond",
    about: "The highest rate at which latency kept to the target of `load.highestRate`",
    words: "highest rate",
    unit: Unit::PerSecond,
    direction: Direction::Speed,
    source: Source::Computed(|measured| Some(measured.highest_rate_per_second()? as f64)),
    over_trials: OverTrials::Median,
    is_headline: true,
    place: Place::Measures,
    column: column("highest rate", 0),
    gauge: None,
};

/// What every workload may measure, in the order of the schema. A new one is added at the end.
pub(super) static BUILT_IN: &[&Descriptor] = &[
    &THROUGHPUT,
    &LATENCY_MEAN,
    &LATENCY_P50,
    &LATENCY_P90,
    &LATENCY_P95,
    &LATENCY_P99,
    &LATENCY_P999,
    &LATENCY_MAX,
    &CPU,
    &MEMORY_PEAK,
    &WRITE_BYTES,
    &FSYNCS_PER_OPERATION,
    &HIGHEST_RATE,
];
