//! How hard a workload loads: how much, for how long, how fast. The same for every family.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fault::Fault;
use crate::descriptor::Statistic;
use crate::duration::{DurationText, LONGER_THAN_ZERO};
use crate::latency::LatencySummary;
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
        field: ".arrivals",
        holds: "self.arrivals == 'Constant' || self.mode == 'OpenLoop'",
        otherwise: "arrivals: Poisson needs mode: OpenLoop: in a closed loop answers decide when requests leave",
    },
    Rule {
        field: ".highestRate",
        holds: "!has(self.highestRate) || (self.mode == 'OpenLoop' && has(self.duration))",
        otherwise: "highestRate needs mode: OpenLoop with rate, where the search begins, and duration, for how long the rate that was \
            found is measured",
    },
    Rule {
        field: ".fault",
        holds: "!has(self.fault) || has(self.duration)",
        otherwise: "fault needs duration, not total: it happens at a time of it",
    },
    Rule {
        field: ".fault",
        holds: "!has(self.fault) || !has(self.highestRate)",
        otherwise: "fault and highestRate exclude each other: remove one",
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
    /// OpenLoop: requests per second in all. Latency is then also measured from the instant a request was due. With `highestRate`, where
    /// the search for it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub rate: Option<u64>,
    /// OpenLoop: how the instants at which requests are due are spaced.
    #[serde(default)]
    pub arrivals: Arrivals,
    /// OpenLoop: look for the highest rate at which latency keeps to a target, in every trial, and measure that rate for `duration`.
    /// Steps of the search are not measured; they are the curve of latency against load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest_rate: Option<HighestRate>,
    /// Strike a member of the store within `duration`, and measure what users feel of it: requests that fail meanwhile are counted and fail no
    /// trial, the time to recover is measured, and what was acknowledged is read back at the end. In a cluster
    /// kinds Kill and Stop alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
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

    /// Requests per second that every arm is sent; `None`: answers decide when requests leave, or a search finds a rate of its own.
    pub fn given_rate(&self) -> Option<u64> {
        self.rate.filter(|_| self.mode == LoadMode::OpenLoop && self.highest_rate.is_none())
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

/// How the instants at which requests of an open loop are due are spaced.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Arrivals {
    /// Evenly: one every 1 / `rate` seconds. The kindest to a store.
    #[default]
    Constant,
    /// As from many users who know nothing of each other: a Poisson process, whose requests come in bunches.
    Poisson,
}

/// What the highest rate is looked for to keep. A rate holds where the percentile of latency from the due instant is at most `atMost`,
/// nothing failed, and every request that was due was sent.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HighestRate {
    /// Which percentile of latency.
    #[serde(default)]
    pub percentile: Percentile,
    /// What it may be at most.
    #[x_kube(validation = LONGER_THAN_ZERO)]
    #[schemars(extend("example" = "5ms"))]
    pub at_most: DurationText,
    /// How fine rates are told apart, in basis points (100 = 1 %): the rate that was found holds, and one higher by this missed twice.
    #[serde(default = "HighestRate::default_tolerance_basis_points")]
    #[schemars(range(min = 10, max = 5_000))]
    pub tolerance_basis_points: u32,
    /// For how long each rate is tried, after `warmUp` at that rate.
    #[serde(default = "HighestRate::default_step_duration")]
    #[x_kube(validation = LONGER_THAN_ZERO)]
    pub step_duration: DurationText,
}

impl HighestRate {
    fn default_tolerance_basis_points() -> u32 {
        300
    }
    fn default_step_duration() -> DurationText {
        DurationText::literal("2s")
    }

    /// What keeps to the target, in words, as `p99 at most 5ms`.
    pub fn target(&self) -> String {
        format!("{} at most {}", self.percentile.words(), self.at_most.as_str())
    }
}

/// A percentile of latency.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Percentile {
    /// The median.
    P50,
    /// The 90th percentile.
    P90,
    /// The 95th percentile.
    P95,
    /// The 99th percentile.
    #[default]
    P99,
    /// The 99.9th percentile.
    P999,
}

impl Percentile {
    /// This percentile, nanoseconds.
    pub fn of(self, summary: &LatencySummary) -> u64 {
        self.statistic().of(summary)
    }

    /// As reports call it.
    pub fn words(self) -> &'static str {
        match self {
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P95 => "p95",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
        }
    }

    /// Of how many requests one is beyond it: with fewer it is the largest latency under another name.
    pub fn requests_min(self) -> u64 {
        self.statistic().durations_min()
    }

    fn statistic(self) -> Statistic {
        match self {
            Self::P50 => Statistic::P50,
            Self::P90 => Statistic::P90,
            Self::P95 => Statistic::P95,
            Self::P99 => Statistic::P99,
            Self::P999 => Statistic::P999,
        }
    }
}
