//! Out: what a load process says. See [`crate::job`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::api_requests::ApiRequests;
use crate::latency::ContractError;
use crate::measure::Reading;
use crate::measurement::{ControlPlaneUsage, LatencyKind, LoadStep, LoaderAudit, MachineUse, Usage, WorkloadSummary};
use crate::storage_service::Footprint;
use crate::workload::FaultKind;

/// Kubernetes keeps this much of a container's termination message.
pub const SUMMARY_BYTES_MAX: usize = 4096;
/// Marks a line of standard output that is for the driver.
pub const LINE_MARK: &str = "@storebench ";

/// What a load process found: small enough for a termination message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobSummary {
    /// How it ended.
    pub outcome: JobOutcome,
    /// What was measured, for each workload that ran to its end.
    pub workloads: Vec<WorkloadSummary>,
}

/// How a load process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum JobOutcome {
    /// Every workload was measured, every checked answer was right, nothing hindered the loader.
    Completed,
    /// The store gave a wrong answer. Voids the run.
    WrongAnswer {
        /// The workload in which it was found.
        workload: String,
        /// How many wrong answers were found.
        count: u64,
        /// The key of the first.
        key: String,
        /// What was expected and found, for the first, in one line.
        detail: String,
    },
    /// The store failed: refused connections, errors, timeouts. Voids the run.
    StoreFailed {
        /// The workload in which it failed.
        workload: String,
        /// The first error, in one line.
        detail: String,
    },
    /// The loader did not do what it was asked: lag, a stepped clock, a machine that stood still, a rate out of reach.
    Hindered {
        /// The workload in which it was hindered.
        workload: String,
        /// By what.
        hindrance: Hindrance,
        /// The figures, in one line.
        detail: String,
    },
}

/// What can keep a loader from doing what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Hindrance {
    /// Open loop, or what is sent beside the load at a rate: fewer than 98 % of the requests that were due could be sent.
    RateNotReached,
    /// Open loop: requests left late although clients were free.
    ScheduleLag,
    /// The wall clock was stepped during the measurement.
    ClockStepped,
    /// A request failed, and the loader had stood still shortly before: the machine was suspended or frozen, and the store may have been, too.
    ProcessorWithheld,
    /// Open loop: requests were late or unsent, and a thread of the loader had no time left: whose delay it was cannot be told.
    Saturated,
}

impl Hindrance {
    /// Whether a repetition may fare better: false where the request itself is out of reach.
    pub fn is_transient(self) -> bool {
        !matches!(self, Self::RateNotReached | Self::Saturated)
    }
}

/// What the meters say of a store as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoreReading {
    /// The version as the server itself reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What the idle store costs; the slowest start and the sums over members.
    pub footprint: Footprint,
    /// What the store used between its first answer and the first workload; known only to who watched it then.
    #[serde(default)]
    pub idle: Usage,
    /// Space taken on disk after the last workload, bytes, all members together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// Facts about the machines of the members, by name: architecture, cores, kernel, memory, processor, file system.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
}

/// A line of standard output that is for the driver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "line")]
pub enum JobLine {
    /// A phase of a workload begins. Written before the first request of the phase is sent.
    Phase {
        /// The workload's name.
        workload: String,
        /// The phase that begins.
        phase: Phase,
    },
    /// Progress of the measured phase, about once a second.
    Progress {
        /// The workload's name.
        workload: String,
        /// Requests answered so far.
        operations: u64,
        /// Requests that failed so far.
        errors: u64,
        /// Since the phase began, milliseconds.
        elapsed_millis: u64,
        /// Requests answered per second since the last such line.
        #[serde(default)]
        recent_per_second: u64,
        /// Within what 99 of 100 of those came, nanoseconds, from send to answer; a power of two. Absent: none came, or that took longer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        recent_p99_nanos_max: Option<u64>,
    },
    /// A latency histogram of the measured phase: HDR V2, deflated, base64; nanoseconds.
    Histogram {
        /// The workload's name.
        workload: String,
        /// What it is a histogram of.
        latency: LatencyKind,
        /// The encoded histogram.
        data: String,
    },
    /// The loader's account of itself.
    Audit {
        /// The workload's name.
        workload: String,
        /// The account.
        #[serde(flatten)]
        audit: LoaderAudit,
    },
    /// What the store used during the measured phase, as its meters say. Written by the first load process.
    Usage {
        /// The workload's name.
        workload: String,
        /// What was used.
        #[serde(flatten)]
        usage: Usage,
    },
    /// What the control plane used during the measured phase, as its meter says.
    ControlPlaneUsage {
        /// The workload's name.
        workload: String,
        /// What was used.
        #[serde(flatten)]
        usage: ControlPlaneUsage,
    },
    /// What a machine went through during the measured phase. Written by each load process of its own, and by the first one of those
    /// that it asks meters of.
    Machine {
        /// The workload's name.
        workload: String,
        /// What it went through.
        #[serde(flatten)]
        machine: MachineUse,
    },
    /// A measure of the measured phase. Written once for each measure, by each load process that has it.
    Measure {
        /// The workload's name.
        workload: String,
        /// The measure's name.
        measure: String,
        /// What was read.
        #[serde(flatten)]
        reading: Reading,
    },
    /// From here on a rate is tried that may be the highest which keeps to a target, and what comes counts; its warm-up is over.
    LoadStepBegins {
        /// The workload's name.
        workload: String,
        /// Requests that are due in a second.
        rate_per_second: u64,
    },
    /// A rate was tried in search of the highest that keeps to a target. Written in the order in which they were tried.
    LoadStep {
        /// The workload's name.
        workload: String,
        /// What was tried, and what came of it.
        #[serde(flatten)]
        step: LoadStep,
    },
    /// From here on the workload writes to a store that is somebody's, below a name of its own. What it wrote stays there unless
    /// [`JobLine::NamespaceRemoved`] follows. Written before the first write.
    Namespace {
        /// The workload's name.
        workload: String,
        /// What all its keys begin with.
        prefix: String,
        /// A command that removes them; it needs the store's address and credentials.
        removal: String,
    },
    /// Nothing is left below the name that was told last.
    NamespaceRemoved {
        /// The workload's name.
        workload: String,
    },
    /// Asks the driver to do a fault to a member at once, and to undo it later; it answers with [`DriverLine`]s. Only where the job has
    /// `strikesMembers`.
    Strike {
        /// The workload's name.
        workload: String,
        /// The member's address as in the job's `endpoints`.
        endpoint: String,
        /// What is to be done to it.
        kind: FaultKind,
        /// How long it lasts, milliseconds.
        duration_millis: u64,
    },
    /// What the API server says of its requests during the measured phase. Of workloads on Kubernetes.
    ApiRequests {
        /// The workload's name.
        workload: String,
        /// What it says.
        #[serde(flatten)]
        requests: ApiRequests,
    },
    /// What the meters say of the store as a whole. Written once, at the end, by the first load process. Of a store that is somebody's,
    /// which has no meters, the version alone, before each workload.
    Store {
        /// What they say.
        #[serde(flatten)]
        reading: StoreReading,
    },
}

/// A line on a load process's standard input: what the driver did of what a [`JobLine::Strike`] asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "line")]
pub enum DriverLine {
    /// It is done: the member is dead, stands still, is cut off, or has a slow disk.
    Struck,
    /// It is undone: the member was started again, and need not answer yet; or goes on, is reached, has its own disk.
    Released,
}

impl DriverLine {
    /// The line without its end.
    pub fn encode(&self) -> String {
        // Serialising these plain enums cannot fail; an empty object would be refused by `decode`.
        format!("{LINE_MARK}{}", serde_json::to_string(self).unwrap_or_else(|_| "{}".into()))
    }

    /// Reads a line of standard input, all of which are for the load process.
    pub fn decode(line: &str) -> Result<Self, ContractError> {
        let json = line.strip_prefix(LINE_MARK).unwrap_or(line);
        serde_json::from_str(json).map_err(|error| ContractError::new(format!("unreadable driver line: {error}")))
    }
}

/// Phases of a workload, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// Keys that reads need are written.
    Prepare,
    /// Load that is not counted.
    WarmUp,
    /// Load that is counted.
    Measure,
    /// What was written is read back and compared.
    Verify,
    /// The workload is over.
    Done,
}

impl JobLine {
    /// The line as written to standard output, without the line end.
    pub fn encode(&self) -> String {
        // Serialising these plain enums cannot fail; an empty object would be refused by `decode`.
        format!("{LINE_MARK}{}", serde_json::to_string(self).unwrap_or_else(|_| "{}".into()))
    }

    /// Reads a line of standard output: `None` for a line that is for people.
    pub fn decode(line: &str) -> Option<Result<Self, ContractError>> {
        let json = line.strip_prefix(LINE_MARK)?;
        Some(serde_json::from_str(json).map_err(|error| ContractError::new(format!("unreadable job line: {error}"))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::{decode_histogram, encode_histogram, latency_histogram};

    #[test]
    fn histograms_survive_the_log() {
        let mut histogram = latency_histogram();
        for value in [1_000, 20_000, 20_000, 3_000_000_000] {
            histogram.record(value).unwrap();
        }
        let line = JobLine::Histogram {
            workload: "put".into(),
            latency: LatencyKind::Service,
            data: encode_histogram(&histogram).unwrap(),
        };
        let JobLine::Histogram { data, .. } = JobLine::decode(&line.encode()).unwrap().unwrap() else {
            panic!("another line came back");
        };
        assert_eq!(decode_histogram(&data).unwrap(), histogram);
    }

    #[test]
    fn a_measure_is_one_flat_line() {
        let line = JobLine::Measure { workload: "put".into(), measure: "fsyncs".into(), reading: Reading::Total(7) };
        let text = line.encode();
        assert_eq!(text, r#"@storebench {"line":"measure","workload":"put","measure":"fsyncs","total":7}"#);
        assert_eq!(JobLine::decode(&text).unwrap().unwrap(), line);
    }

    #[test]
    fn what_was_asked_and_done_is_read_as_it_was_written() {
        let ask = JobLine::Strike {
            workload: "failover".into(),
            endpoint: "127.0.0.1:1".into(),
            kind: FaultKind::Kill,
            duration_millis: 2_000,
        };
        assert_eq!(JobLine::decode(&ask.encode()).unwrap().unwrap(), ask);
        for done in [DriverLine::Struck, DriverLine::Released] {
            assert_eq!(DriverLine::decode(&done.encode()).unwrap(), done);
        }
        assert!(DriverLine::decode("killed").is_err());
    }

    #[test]
    fn lines_for_people_are_not_for_the_driver() {
        assert!(JobLine::decode("put: 12,345 requests").is_none());
        assert!(JobLine::decode("@storebench {}").unwrap().is_err());
    }
}
