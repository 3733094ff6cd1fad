//! What a load measures beyond requests and their latencies: replication lag, acknowledged blocks, failover time, syncs.
//!
//! A family declares a measure as a constant of one of three kinds, its load records it ([`crate::job::JobLine::Measure`]), and
//! descriptors of metrics read it ([`crate::metric`]). In between nobody needs to know it: readings of one kind are put
//! together alike, whatever they measure.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::latency::{ContractError, LatencySummary, decode_histogram, encode_histogram, latency_histogram};

/// A measure that adds up, by name: things done, bytes moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Total(pub &'static str);

/// A measure of which the largest value counts, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Largest(pub &'static str);

/// A measure of many durations, of which the distribution counts, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durations(pub &'static str);

/// Syncs of the store's disk, all members together, as the store counts them.
pub const FSYNCS: Total = Total("fsyncs");
/// Processor time of the store's own tools that the load ran and that did what was asked, nanoseconds. Named after the first of them.
pub const TOOLS_CPU_NANOS: Total = Total("restoreCpuNanos");

/// What was read of one measure. The kind goes with it, so that who puts readings together need not know the measure.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reading {
    /// Of a [`Total`].
    Total(u64),
    /// Of a [`Largest`].
    Largest(u64),
    /// Of [`Durations`].
    Durations(Distribution),
}

/// A distribution of durations.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Distribution {
    /// Its percentiles.
    pub summary: LatencySummary,
    /// The histogram: HDR V2, deflated, base64; nanoseconds.
    pub histogram: String,
}

/// Readings by the names of their measures.
pub type Readings = BTreeMap<String, Reading>;

impl Distribution {
    /// Of a histogram of nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Result<Self, ContractError> {
        Ok(Self { summary: LatencySummary::of(histogram), histogram: encode_histogram(histogram)? })
    }

    /// The histogram.
    pub fn decode(&self) -> Result<Histogram<u64>, ContractError> {
        decode_histogram(&self.histogram)
    }
}

impl Reading {
    /// Puts readings of one measure together. Errors: they are of different kinds, or a histogram is damaged. `None` of nothing.
    pub fn together(all: &[&Self]) -> Result<Option<Self>, ContractError> {
        let unlike = || ContractError::new("readings of one measure are of different kinds");
        Ok(Some(match all {
            [] => return Ok(None),
            [one] => (*one).clone(),
            [Self::Total(_), ..] => {
                let total = |one: &&Self| if let Self::Total(total) = one { Ok(*total) } else { Err(unlike()) };
                Self::Total(all.iter().map(total).sum::<Result<u64, _>>()?)
            }
            [Self::Largest(_), ..] => {
                let largest = |one: &&Self| if let Self::Largest(largest) = one { Ok(*largest) } else { Err(unlike()) };
                let all: Vec<u64> = all.iter().map(largest).collect::<Result<_, _>>()?;
                Self::Largest(all.into_iter().max().unwrap_or_default())
            }
            [Self::Durations(_), ..] => {
                let mut sum = latency_histogram();
                for one in all {
                    let Self::Durations(distribution) = one else { return Err(unlike()) };
                    // Bounds are those of `latency_histogram`, which resizes itself.
                    let _ = sum.add(distribution.decode()?);
                }
                Self::Durations(Distribution::of(&sum)?)
            }
        }))
    }

    /// Puts all measures of several readers together, each over those who have it.
    pub fn all_together(all: &[&Readings]) -> Result<Readings, ContractError> {
        let mut names: Vec<&String> = all.iter().flat_map(|readings| readings.keys()).collect();
        names.sort_unstable();
        names.dedup();
        let mut together = Readings::new();
        for name in names {
            let of_name: Vec<&Self> = all.iter().filter_map(|readings| readings.get(name)).collect();
            together.extend(Self::together(&of_name)?.map(|reading| (name.clone(), reading)));
        }
        Ok(together)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durations(values: &[u64]) -> Reading {
        let mut histogram = latency_histogram();
        for value in values {
            histogram.record(*value).unwrap();
        }
        Reading::Durations(Distribution::of(&histogram).unwrap())
    }

    #[test]
    fn readings_of_a_kind_are_put_together_alike() {
        let together = |all: &[Reading]| Reading::together(&all.iter().collect::<Vec<_>>()).unwrap().unwrap();
        assert_eq!(together(&[Reading::Total(3), Reading::Total(4)]), Reading::Total(7));
        assert_eq!(together(&[Reading::Largest(3), Reading::Largest(4)]), Reading::Largest(4));
        assert_eq!(together(&[durations(&[1, 2]), durations(&[3])]), durations(&[1, 2, 3]));
        let unlike = [&Reading::Total(1), &Reading::Largest(1)];
        assert!(Reading::together(&unlike).unwrap_err().to_string().contains("different kinds"));
        assert_eq!(Reading::together(&[]).unwrap(), None);
    }
}
