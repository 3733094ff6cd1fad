//! What can be compared and gated: one [`Descriptor`] for each metric, and nothing about it anywhere else.
//!
//! The schema's enumeration, the judgement, the status, the tables and words of reports and the operator's metrics are all fed
//! from descriptors. What every workload may measure stands in `built_in.rs`, what is measured of faults in [`crate::workload::fault`]; what one
//! family measures stands among the [facts](crate::workload::Facts) of that family.

mod built_in;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use crate::descriptor::{
    Column, Descriptor, Direction, Field, Gauge, OverTrials, Per, Place, Source, Statistic, Unit, column, gauge,
};
use crate::measure::{Durations, Largest, Total};
use crate::measurement::WorkloadMeasurement;
use crate::workload::{Family, fault};

/// A metric: what is known of it by its name.
#[derive(Clone, Copy)]
pub struct Metric(&'static Descriptor);

impl Metric {
    /// Requests answered per second.
    pub const THROUGHPUT: Self = Self(&built_in::THROUGHPUT);
    /// Mean latency.
    pub const LATENCY_MEAN: Self = Self(&built_in::LATENCY_MEAN);
    /// The 99th percentile of latency.
    pub const LATENCY_P99: Self = Self(&built_in::LATENCY_P99);
    /// The highest rate at which latency kept to a target.
    pub const HIGHEST_RATE: Self = Self(&built_in::HIGHEST_RATE);
    /// Processor time of the store for each request.
    pub const CPU: Self = Self(&built_in::CPU);

    /// Every metric: what every workload may measure, what is measured of faults, then what the families measure.
    pub fn all() -> impl Iterator<Item = Self> {
        let of_families = Family::ALL.iter().flat_map(|family| family.facts().metrics);
        built_in::BUILT_IN.iter().chain(fault::METRICS).chain(of_families).map(|descriptor| Self(descriptor))
    }

    /// The metric of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|metric| metric.name == name)
    }

    /// The metric that was probably meant: of which this is the name without the unit, or what reports call it, or the first word of that.
    pub fn meant(written: &str) -> Option<Self> {
        let plain = |text: &str| text.replace(|letter: char| !letter.is_ascii_alphanumeric(), "").to_lowercase();
        let written = plain(written);
        let lacks_unit = |metric: &Self| {
            let rest = metric.name.get(written.len()..).unwrap_or_default();
            plain(metric.name).starts_with(&written) && rest.starts_with(|letter: char| letter.is_ascii_uppercase())
        };
        let mut lacking = Self::all().filter(lacks_unit);
        let is_called = |metric: &Self| {
            let first_word = metric.words.split(' ').next().unwrap_or_default();
            plain(metric.words) == written || plain(first_word) == written
        };
        lacking.next().filter(|_| lacking.next().is_none()).or_else(|| Self::all().find(is_called))
    }

    /// The family whose workloads alone measure it; `None`: every workload may.
    pub fn family(self) -> Option<Family> {
        let has = |family: &&Family| family.facts().metrics.iter().any(|descriptor| descriptor.name == self.name);
        Family::ALL.iter().find(has).copied()
    }

    /// Whether it is measured only where a workload has a fault.
    pub fn is_of_faults(self) -> bool {
        fault::METRICS.iter().any(|descriptor| descriptor.name == self.name)
    }

    /// Whether any metric reads this measure. What nobody reads need not be measured.
    pub fn reads(measure: &str) -> bool {
        Self::all().any(|metric| match metric.source {
            Source::Computed(_) | Source::Latency(_) => false,
            Source::Durations(Durations(name), _) | Source::Total(Total(name), _) | Source::Largest(Largest(name)) => {
                name == measure
            }
            Source::Measures(names, _) => names.contains(&measure),
        })
    }

    /// How many requests a trial takes for it: with fewer, a percentile of their latencies is the largest under another name.
    pub fn requests_min(self) -> u64 {
        if let Source::Latency(statistic) = self.source { statistic.durations_min() } else { 0 }
    }

    /// The same of all durations: requests' latencies, and what a load measures besides. 0: it is no statistic of them.
    pub fn durations_min(self) -> u64 {
        let (Source::Latency(statistic) | Source::Durations(_, statistic)) = self.source else { return 0 };
        statistic.durations_min()
    }

    /// Of how many durations a trial's value is a statistic; `None` where it is none, or they were not measured.
    pub fn durations(self, measured: &WorkloadMeasurement) -> Option<u64> {
        match self.source {
            Source::Latency(_) => Some(measured.summary.operations),
            Source::Durations(durations, _) => measured.number_of(durations),
            Source::Computed(_) | Source::Total(..) | Source::Largest(_) | Source::Measures(..) => None,
        }
    }

    /// The value of one trial, in the metric's unit; `None` where it was not measured.
    pub fn value(self, measured: &WorkloadMeasurement) -> Option<f64> {
        match self.source {
            Source::Computed(compute) | Source::Measures(_, compute) => compute(measured),
            Source::Latency(statistic) => Some(self.unit.of_nanos(statistic.of(&measured.latency()))),
            Source::Durations(durations, statistic) => {
                Some(self.unit.of_nanos(statistic.of(measured.durations(durations)?)))
            }
            Source::Total(total, per) => {
                let total = measured.total(total)?;
                Some(match per {
                    Per::Trial => total as f64,
                    Per::Second => measured.per_second(total),
                    Per::Operation => measured.per_operation(total),
                    Per::ThousandOperations => measured.per_operation(total) * 1e3,
                })
            }
            Source::Largest(largest) => Some(measured.largest(largest)? as f64),
        }
    }
}

impl std::ops::Deref for Metric {
    type Target = Descriptor;

    fn deref(&self) -> &Descriptor {
        self.0
    }
}

impl PartialEq for Metric {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Metric {}

impl Hash for Metric {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl PartialOrd for Metric {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By name.
impl Ord for Metric {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name.cmp(other.name)
    }
}

/// The name.
impl fmt::Debug for Metric {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

impl<'de> Deserialize<'de> for Metric {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = Cow::<'de, str>::deserialize(deserializer)?;
        Self::named(&name).ok_or_else(|| D::Error::custom(format!("`{name}` is no metric of this storebench")))
    }
}

impl JsonSchema for Metric {
    fn schema_name() -> Cow<'static, str> {
        "Metric".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = Self::all().map(|metric| metric.name).collect();
        json_schema!({ "type": "string", "enum": names })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_a_name_of_its_own_that_ends_in_its_unit() {
        let mut names = std::collections::BTreeSet::new();
        for metric in Metric::all() {
            assert!(names.insert(metric.name), "{metric:?} is there twice");
            assert!(!metric.about.is_empty() && !metric.about.ends_with('.'), "{metric:?}: {}", metric.about);
            let ends = match metric.unit {
                Unit::PerSecond | Unit::BytesPerSecond => "PerSecond",
                Unit::Millis => "Millis",
                Unit::Micros => "Micros",
                Unit::Nanos => "PerOperation",
                Unit::Bytes => "",
                Unit::Count => "",
                Unit::PerThousandOperations => "PerThousandOperations",
            };
            assert!(metric.name.ends_with(ends), "{metric:?}");
        }
    }

    #[test]
    fn who_names_a_metric_by_what_reports_call_it_is_understood() {
        for (written, meant) in [
            ("p99", "LatencyP99Micros"),
            ("P99", "LatencyP99Micros"),
            ("p99.9", "LatencyP999Micros"),
            ("p99 latency", "LatencyP99Micros"),
            ("LatencyP99", "LatencyP99Micros"),
            ("latency_p999", "LatencyP999Micros"),
            ("Throughput", "ThroughputPerSecond"),
            ("HighestRate", "HighestRatePerSecond"),
        ] {
            assert_eq!(Metric::meant(written), Metric::named(meant), "{written}");
        }
        for written in ["", "Latency", "Beauty", "LatencyP9", "µ"] {
            assert_eq!(Metric::meant(written), None, "{written}");
        }
    }

    #[test]
    fn what_a_status_lists_by_name_can_be_seen_in_a_table() {
        for metric in Metric::all().filter(|metric| matches!(metric.place, Place::Measures)) {
            assert!(metric.column.is_some(), "{metric:?} has no column: nobody would see it");
        }
    }

    #[test]
    fn a_gauge_shows_what_a_status_has_by_itself() {
        for metric in Metric::all().filter(|metric| matches!(metric.place, Place::OtherForm)) {
            assert!(
                metric.gauge.is_none() || metric == Metric::THROUGHPUT,
                "{metric:?}: its gauge would never show anything"
            );
        }
    }

    #[test]
    fn a_metric_is_written_by_its_name_and_nothing_else_is_read() {
        for metric in Metric::all() {
            let json = serde_json::to_string(&metric).unwrap();
            assert_eq!(json, format!("\"{}\"", metric.name));
            assert_eq!(serde_json::from_str::<Metric>(&json).unwrap(), metric);
        }
        let said = serde_json::from_str::<Metric>("\"Beauty\"").unwrap_err().to_string();
        assert!(said.starts_with("`Beauty` is no metric of this storebench"), "{said}");
    }
}
