//! Out: what a load process says. See [`crate::job`].

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api_requests::ApiRequests;
use crate::latency::{ContractError, LatencySummary};
use crate::measure::Reading;
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
    /// The loader did not do what it was asked: lag, throttling, a stepped clock, a rate out of reach.
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

/// A thread of the loader that ran or was runnable for so much of the time had none left, basis points: 95 %.
pub const SATURATED_BASIS_POINTS_MIN: u32 = 9_500;

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

impl Hindrance {
    /// Whether a repetition may fare better: false where the request itself is out of reach.
    pub fn is_transient(self) -> bool {
        !matches!(self, Self::RateNotReached | Self::Saturated)
    }
}

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

/// What a store used over a span of time, all its processes together.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Length of the span, nanoseconds.
    pub elapsed_nanos: u64,
    /// Processor time, user and system, nanoseconds.
    pub cpu_nanos: u64,
    /// Largest processor use over a sampling interval, thousandths of a core.
    pub cpu_peak_millicores: u64,
    /// Resident memory, average over samples, bytes.
    pub rss_average_bytes: u64,
    /// Resident memory, largest sample, bytes.
    pub rss_peak_bytes: u64,
    /// Proportional set size (shared pages divided among their users), largest sample, bytes.
    pub pss_peak_bytes: u64,
    /// Voluntary context switches.
    pub voluntary_switches: u64,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
    /// Processor time of everything on the machine, store and loader included, nanoseconds; 0 where it is not known.
    #[serde(default)]
    pub machine_cpu_nanos: u64,
    /// What was written to the disks under its data, bytes, by whomever, the file system's own bookkeeping included. Absent: not
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_bytes: Option<u64>,
}

/// What one machine went through during a measured phase, and how much of that was the trial's own.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineUse {
    /// The identifier that its kernel chose when it started.
    pub machine: String,
    /// What of the trial ran there: `load-0`, `store-1`, `control-plane-0`.
    pub parts: BTreeSet<String>,
    /// Length of the span, nanoseconds.
    pub elapsed_nanos: u64,
    /// Processor time of everything on it, nanoseconds; 0 where it is not known.
    pub cpu_nanos: u64,
    /// Processor time of these parts, nanoseconds.
    pub own_nanos: u64,
    /// Time that its hypervisor gave to others although a processor here had work, of all processors together, nanoseconds.
    pub stolen_nanos: u64,
    /// Time during which at least one task waited for a processor, nanoseconds. Absent: its kernel does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure_nanos: Option<u64>,
}

impl MachineUse {
    /// What several parts said of their machines, machine by machine. All parts of a machine see all of it, each for as long as it
    /// measured, so that the longest span counts; what they used themselves adds up.
    pub fn together(all: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut machines: BTreeMap<String, Self> = BTreeMap::new();
        for one in all {
            let Some(known) = machines.get_mut(&one.machine) else {
                machines.insert(one.machine.clone(), one);
                continue;
            };
            let own_nanos = known.own_nanos + one.own_nanos;
            known.parts.extend(one.parts.iter().cloned());
            let parts = std::mem::take(&mut known.parts);
            let longest = if one.elapsed_nanos > known.elapsed_nanos { one } else { known.clone() };
            *known = Self { parts, own_nanos, ..longest };
        }
        machines.into_values().collect()
    }

    /// What others than these parts used, the kernel's work for them included, thousandths of a core; `None`: not known.
    pub fn foreign_millicores(&self) -> Option<u64> {
        let foreign_nanos = self.cpu_nanos.saturating_sub(self.own_nanos);
        (self.cpu_nanos > 0).then(|| (u128::from(foreign_nanos) * 1_000 / u128::from(self.elapsed_nanos.max(1))) as u64)
    }

    /// What its hypervisor gave to others, thousandths of a core.
    pub fn stolen_millicores(&self) -> u64 {
        (u128::from(self.stolen_nanos) * 1_000 / u128::from(self.elapsed_nanos.max(1))) as u64
    }
}

/// What a control plane used, its store not included.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneUsage {
    /// The API server.
    pub api_server: Usage,
    /// Controller manager, scheduler and the simulator of nodes together.
    pub others: Usage,
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

/// What a histogram is of.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LatencyKind {
    /// From send to answer.
    Service,
    /// From the instant the request was due to the answer.
    Intended,
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
    fn parts_on_one_machine_see_it_once_and_add_up_what_they_used() {
        let on = |machine: &str, part: &str, elapsed_nanos: u64, own_nanos: u64| MachineUse {
            machine: machine.into(),
            parts: [part.to_owned()].into(),
            elapsed_nanos,
            cpu_nanos: 10 * elapsed_nanos / 4,
            own_nanos,
            stolen_nanos: elapsed_nanos / 100,
            pressure_nanos: Some(elapsed_nanos / 10),
        };
        let found = MachineUse::together([
            on("one", "load-0", 1_000, 400),
            on("two", "store-0", 1_000, 500),
            on("one", "store-1", 1_200, 600),
        ]);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].parts, ["load-0".to_owned(), "store-1".to_owned()].into());
        assert_eq!((found[0].elapsed_nanos, found[0].cpu_nanos, found[0].own_nanos), (1_200, 3_000, 1_000));
        assert_eq!((found[0].foreign_millicores(), found[1].foreign_millicores()), (Some(1_666), Some(2_000)));
        assert_eq!(found[0].stolen_millicores(), 10);
        assert_eq!(MachineUse::default().foreign_millicores(), None, "nobody knows");
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
