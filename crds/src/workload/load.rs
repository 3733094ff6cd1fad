//! How hard a workload loads: how much, for how long, how fast. The same for every family.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::{DurationText, LONGER_THAN_ZERO};
use crate::rules::{Rule, Rules};

/// Which fields belong together.
const RULES: &[Rule] = &[
    Rule {
        field: "",
        holds: "has(self.total) != has(self.duration)",
        otherwise: "give exactly one of total or duration",
    },
    Rule {
        field: ".rate",
        holds: "has(self.rate) == (self.mode == 'OpenLoop')",
        otherwise: "rate and mode: OpenLoop belong together: set both, or neither for a closed loop",
    },
    Rule {
        field: ".threads",
        holds: "self.threads <= self.connections",
        otherwise: "threads must not exceed connections: each thread owns at least one",
    },
];

/// How much, for how long, how fast.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = Rules(RULES))]
pub struct Load {
    /// Network connections.
    #[serde(default = "Load::one")]
    #[schemars(range(min = 1, max = 10_000))]
    pub connections: u32,
    /// Clients, each with one request in flight, spread over the connections. Absent: one per connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub clients: Option<u32>,
    /// Operating-system threads that the loader uses.
    #[serde(default = "Load::one")]
    #[schemars(range(min = 1, max = 256))]
    pub threads: u32,
    /// Stop after so many measured requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub total: Option<u64>,
    /// Stop after so much measured time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = LONGER_THAN_ZERO)]
    pub duration: Option<DurationText>,
    /// Load before the measurement, not counted.
    #[serde(default = "Load::default_warm_up")]
    pub warm_up: DurationText,
    /// Whether a client waits for an answer before its next request, or requests follow a timetable.
    #[serde(default)]
    pub mode: LoadMode,
    /// OpenLoop: requests per second in all. Latency is then also measured from the instant a request was due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub rate: Option<u64>,
    /// A request without an answer after this long counts as an error.
    #[serde(default = "Load::default_timeout")]
    #[x_kube(validation = LONGER_THAN_ZERO)]
    pub timeout: DurationText,
}

impl Load {
    fn one() -> u32 {
        1
    }
    fn default_warm_up() -> DurationText {
        DurationText::literal("1s")
    }
    fn default_timeout() -> DurationText {
        DurationText::literal("10s")
    }

    /// Clients in all: as given, or one per connection.
    pub fn clients(&self) -> u32 {
        self.clients.unwrap_or(self.connections)
    }
}

/// Closed or open loop.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LoadMode {
    /// Each client sends its next request when the last was answered: measures capacity. Stalls hide queueing.
    #[default]
    ClosedLoop,
    /// Requests are due on a timetable at `rate`, whether or not the store keeps up: measures what users would feel.
    OpenLoop,
}
