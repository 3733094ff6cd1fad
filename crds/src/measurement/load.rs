//! What a load process measured of its requests, and of itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::latency::LatencySummary;

/// A thread of the loader that ran or was runnable for so much of the time had none left, basis points: 95 %.
pub const SATURATED_BASIS_POINTS_MIN: u32 = 9_500;

/// What was measured for one workload.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadSummary {
    /// The workload's name.
    pub name: String,
    /// Requests answered in the measured phase (WatchThroughput: events delivered).
    pub operations: u64,
    /// Requests that failed in the measured phase.
    pub errors: u64,
    /// Length of the measured phase, nanoseconds.
    pub elapsed_nanos: u64,
    /// Answers compared with what had been written.
    pub verified: u64,
    /// From send to answer.
    pub service: LatencySummary,
    /// Open loop: from the instant the request was due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intended: Option<LatencySummary>,
}

/// What a histogram is of.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LatencyKind {
    /// From send to answer.
    Service,
    /// From the instant the request was due to the answer.
    Intended,
}

/// A rate that was tried in search of the highest that keeps to a target ([`crate::workload::HighestRate`]).
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadStep {
    /// Requests that were due in a second.
    pub rate_per_second: u64,
    /// Whether this was the measured phase, for `load.duration`, and not a step of the search.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_measured: bool,
    /// Why the target was missed, in one line. Absent: it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<String>,
    /// Whether it was missed while the loader itself had no time left or was late, so that it is no limit of the store.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_loader: bool,
    /// Requests that failed: refused, broken off, or without an answer. The step ended with the first of them, so that its latencies are
    /// those of the beginning.
    #[serde(default, skip_serializing_if = "crate::latency::is_zero")]
    pub failed: u64,
    /// From the instant a request was due to its answer, of those that were answered.
    pub intended: LatencySummary,
}

/// The loader's account of itself during one measured phase.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoaderAudit {
    /// Largest delay between the instant a request was due and its send while a client was free, nanoseconds. Open loop only.
    pub lag_max_nanos: u64,
    /// Requests that were due, open loop only.
    pub scheduled: u64,
    /// Time during which the control group's CPU quota stopped the loader, nanoseconds.
    pub throttled_nanos: u64,
    /// Processor time used, user and system, nanoseconds.
    pub cpu_nanos: u64,
    /// Busiest thread's processor time as a share of elapsed time, basis points. Near 10000 the loader itself is the limit.
    pub busiest_thread_basis_points: u32,
    /// The most that one thread ran or was runnable, as a share of elapsed time, basis points. Near 10000 the loader itself is the limit.
    #[serde(default)]
    pub saturation_basis_points: u32,
    /// Which thread that was.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub saturated_thread: String,
    /// Time that runnable threads waited for a processor, nanoseconds.
    pub run_queue_nanos: u64,
    /// Voluntary context switches.
    pub voluntary_switches: u64,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
    /// Change of wall clock against monotonic clock, nanoseconds.
    pub clock_step_nanos: i64,
    /// Largest resident memory, bytes.
    pub rss_peak_bytes: u64,
    /// When the measured phase began, by the wall clock, nanoseconds since 1970; 0 where it is not known. Compared between
    /// the load processes of a trial.
    #[serde(default)]
    pub started_unix_nanos: u64,
}

impl LoaderAudit {
    /// Counts a thread in that is in the way of requests, whoever's it is: in so much time it ran for so long, and waited for so long for a
    /// processor.
    pub fn count_in(&mut self, thread: &str, cpu_nanos: u64, waited_nanos: u64, elapsed_nanos: u64) {
        let share = |nanos: u64| (u128::from(nanos) * 10_000 / u128::from(elapsed_nanos.max(1))) as u32;
        self.cpu_nanos += cpu_nanos;
        self.run_queue_nanos += waited_nanos;
        self.busiest_thread_basis_points = self.busiest_thread_basis_points.max(share(cpu_nanos));
        let wanted = share(cpu_nanos + waited_nanos);
        if wanted > self.saturation_basis_points {
            self.saturation_basis_points = wanted;
            thread.clone_into(&mut self.saturated_thread);
        }
    }

    /// Whether a thread had no time left, so that the loader itself was the limit.
    pub fn is_saturated(&self) -> bool {
        self.saturation_basis_points >= SATURATED_BASIS_POINTS_MIN
    }

    /// Whether the kernel counted no time of any thread, so that none could be found saturated: each has run for some of it.
    pub fn is_blind(&self) -> bool {
        self.cpu_nanos == 0 && self.saturation_basis_points == 0
    }
}
