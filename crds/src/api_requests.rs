//! What an API server itself says of the requests that it answered, and of those that it sent to its store, during a measured
//! phase: the growth of its own histograms. Part of the contract of [`crate::job`].
//!
//! Kubernetes' histograms begin with a bucket of 5 ms: where requests are faster, only their mean is precise.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an API server says of a measured phase.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiRequests {
    /// Requests of the kinds that the workload makes or causes; watches are left out, since they end when a client leaves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<RequestHistogram>,
    /// Why they are not known, in one line. Absent: they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Latencies of requests of one kind.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestHistogram {
    /// Who answered.
    pub answered_by: AnsweredBy,
    /// What was asked, in the words of whom was asked: `POST`, or of the store `create`.
    pub verb: String,
    /// Of what, such as `configmaps` or `pods/binding`.
    pub resource: String,
    /// All latencies together, nanoseconds.
    pub sum_nanos: u64,
    /// Rising and without gaps in what they count; empty ones are left out.
    pub buckets: Vec<RequestBucket>,
}

/// Who answered a request.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AnsweredBy {
    /// The API server: `apiserver_request_duration_seconds`.
    ApiServer,
    /// The store, as the API server saw it: `etcd_request_duration_seconds`.
    Store,
}

/// Requests whose latency was within these bounds.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestBucket {
    /// Above this, nanoseconds.
    pub above_nanos: u64,
    /// Up to this, nanoseconds. Absent: the last bucket, which has no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_to_nanos: Option<u64>,
    /// How many.
    pub count: u64,
}

impl RequestHistogram {
    /// How many requests there were.
    pub fn requests(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.count).sum()
    }

    /// Whether such requests change something.
    pub fn is_write(&self) -> bool {
        match self.answered_by {
            AnsweredBy::ApiServer => !matches!(self.verb.as_str(), "GET" | "LIST"),
            AnsweredBy::Store => !self.verb.starts_with("get") && !self.verb.starts_with("list"),
        }
    }
}
