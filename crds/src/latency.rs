//! Latencies: histograms as they are recorded, sent and added up, and the percentiles that are read from them. Nanoseconds.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Percentiles of a latency histogram, nanoseconds. Where a status would grow too large, some are left out (see `omitted`).
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LatencySummary {
    /// Mean.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mean_nanos: u64,
    /// Median.
    pub p50_nanos: u64,
    /// 90th percentile.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub p90_nanos: u64,
    /// 95th percentile.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub p95_nanos: u64,
    /// 99th percentile.
    pub p99_nanos: u64,
    /// 99.9th percentile.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub p999_nanos: u64,
    /// Largest.
    pub max_nanos: u64,
}

pub(crate) fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// A line or histogram that could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ContractError(String);

impl ContractError {
    /// With this to say, in one line.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// An empty latency histogram: nanoseconds, up to an hour, three significant digits (an error of at most 0.1 %).
pub fn latency_histogram() -> Histogram<u64> {
    // The bounds are constants that the library accepts.
    #[allow(clippy::expect_used)]
    let mut histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("constant bounds");
    histogram.auto(true);
    histogram
}

/// Encodes a histogram for [`JobLine::Histogram`].
pub fn encode_histogram(histogram: &Histogram<u64>) -> Result<String, ContractError> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(histogram, &mut bytes)
        .map_err(|error| ContractError(format!("histogram could not be encoded: {error}")))?;
    Ok(BASE64.encode(bytes))
}

/// Decodes the data of [`JobLine::Histogram`].
pub fn decode_histogram(data: &str) -> Result<Histogram<u64>, ContractError> {
    let bytes = BASE64.decode(data).map_err(|error| ContractError(format!("histogram is not base64: {error}")))?;
    Deserializer::new()
        .deserialize(&mut bytes.as_slice())
        .map_err(|error| ContractError(format!("histogram could not be decoded: {error}")))
}

impl LatencySummary {
    /// The percentiles of a histogram of nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        Self {
            mean_nanos: histogram.mean() as u64,
            p50_nanos: histogram.value_at_quantile(0.5),
            p90_nanos: histogram.value_at_quantile(0.9),
            p95_nanos: histogram.value_at_quantile(0.95),
            p99_nanos: histogram.value_at_quantile(0.99),
            p999_nanos: histogram.value_at_quantile(0.999),
            max_nanos: histogram.max(),
        }
    }
}
