//! What one workload of one trial measured: the raw material of every metric.

mod load;
mod usage;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api_requests::ApiRequests;
use crate::latency::LatencySummary;
use crate::measure::{Durations, FSYNCS, Largest, Reading, Readings, TOOLS_CPU_NANOS, Total};

pub use load::{LatencyKind, LoadStep, LoaderAudit, WorkloadSummary};
pub use usage::{ControlPlaneUsage, MachineUse, Usage};

/// What one workload of one trial measured.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadMeasurement {
    /// What the loader measured.
    pub summary: WorkloadSummary,
    /// The loader's account of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<LoaderAudit>,
    /// What the store used during the measured phase, all members together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// What the control plane used during the measured phase. Absent: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<ControlPlaneUsage>,
    /// What processes other than store, control plane and loader used of the machine, thousandths of a core, found by a census of
    /// them. Absent: there was none; see [`Self::foreign`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign_millicores: Option<u64>,
    /// What the machines of load, store and control plane went through, one entry for each. Empty: not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<MachineUse>,
    /// Syncs of the store's disk in records from before they were a measure ([`FSYNCS`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fsyncs: Option<u64>,
    /// What else was measured, by measure.
    #[serde(default, skip_serializing_if = "Readings::is_empty")]
    pub measures: Readings,
    /// What the API server says of its requests during the measured phase. Absent: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_requests: Option<ApiRequests>,
    /// How far apart several load processes began to measure, nanoseconds. Absent: there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_skew_nanos: Option<u64>,
    /// What was tried in search of the highest rate, in order; the last was measured. Empty: none was looked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<LoadStep>,
    /// Latency histograms, encoded as in [`crate::job::JobLine::Histogram`].
    pub histograms: Vec<EncodedHistogram>,
}

/// A latency histogram, HDR V2, deflated, base64; nanoseconds.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EncodedHistogram {
    /// What it is a histogram of.
    pub latency: LatencyKind,
    /// The encoded histogram.
    pub data: String,
}

impl WorkloadMeasurement {
    /// The latency that users would feel: from the due instant in an open loop, from the send in a closed one.
    pub fn latency(&self) -> LatencySummary {
        self.summary.intended.unwrap_or(self.summary.service)
    }

    /// The highest rate that was measured to keep to the target, requests in a second. `None`: none was looked for.
    pub fn highest_rate_per_second(&self) -> Option<u64> {
        let held = self.steps.iter().rfind(|step| step.is_measured && step.missed.is_none());
        held.map(|step| step.rate_per_second)
    }

    /// The lowest rate above what was found that missed the target, if the loader had no time left at it when it was tried last: then what was
    /// found is no limit of the store.
    pub fn limited_by_loader(&self) -> Option<&LoadStep> {
        // A lower one held when it was tried again.
        let found = self.highest_rate_per_second().unwrap_or_default();
        let missed = self.steps.iter().rev().filter(|step| step.missed.is_some() && step.rate_per_second > found);
        missed.min_by_key(|step| step.rate_per_second).filter(|step| step.is_loader)
    }

    /// So many in all, for each request.
    pub fn per_operation(&self, all: u64) -> f64 {
        all as f64 / self.summary.operations.max(1) as f64
    }

    /// So many in all, for each second of the measured phase.
    pub fn per_second(&self, all: u64) -> f64 {
        all as f64 * 1e9 / self.summary.elapsed_nanos.max(1) as f64
    }

    /// The reading of a total.
    pub fn total(&self, Total(measure): Total) -> Option<u64> {
        match self.measures.get(measure) {
            Some(Reading::Total(total)) => Some(*total),
            None if measure == FSYNCS.0 => self.fsyncs,
            _ => None,
        }
    }

    /// The reading of a largest value.
    pub fn largest(&self, Largest(measure): Largest) -> Option<u64> {
        if let Reading::Largest(largest) = self.measures.get(measure)? { Some(*largest) } else { None }
    }

    /// Processor time of the store during the measured phase, its own tools included where the load ran them: a restore is the work of
    /// a tool, beside which the replicator does nothing.
    pub fn store_cpu_nanos(&self) -> Option<u64> {
        Some(self.usage?.cpu_nanos + self.total(TOOLS_CPU_NANOS).unwrap_or_default())
    }

    /// The reading of durations.
    pub fn durations(&self, Durations(measure): Durations) -> Option<&LatencySummary> {
        if let Reading::Durations(distribution) = self.measures.get(measure)? {
            Some(&distribution.summary)
        } else {
            None
        }
    }

    /// How many durations of a measure there are. Of a histogram that cannot be read there are none.
    pub fn number_of(&self, Durations(measure): Durations) -> Option<u64> {
        let Reading::Durations(distribution) = self.measures.get(measure)? else { return None };
        Some(distribution.decode().map_or(0, |histogram| histogram.len()))
    }

    /// What processes other than store, control plane and loader used of the machine, thousandths of a core; `None` where the driver
    /// does not know. Without a census it is what the machine did less what these three did, the kernel's work for the store included.
    pub fn foreign(&self) -> Option<u64> {
        if self.foreign_millicores.is_some() {
            return self.foreign_millicores;
        }
        // The busiest machine of several.
        if !self.machines.is_empty() {
            return self.machines.iter().filter_map(MachineUse::foreign_millicores).max();
        }
        let usage = self.usage.filter(|usage| usage.machine_cpu_nanos > 0)?;
        let control_plane = self.control_plane.map(|used| used.api_server.cpu_nanos + used.others.cpu_nanos);
        let own_nanos = usage.cpu_nanos + self.audit.as_ref()?.cpu_nanos + control_plane.unwrap_or_default();
        let foreign_nanos = usage.machine_cpu_nanos.saturating_sub(own_nanos);
        Some((u128::from(foreign_nanos) * 1_000 / u128::from(usage.elapsed_nanos.max(1))) as u64)
    }
}
