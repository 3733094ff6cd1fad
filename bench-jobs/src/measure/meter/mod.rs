//! What a store uses, from instantaneous readings of `/proc` to [`Usage`] over a span: the same code wherever the store
//! runs.
//!
//! - [`tree`]: reads what a process and everything below it have used so far; [`Meter`] does so for processes of this
//!   machine, which is what the embedded driver needs
//! - [`accumulator`]: pure; turns readings of several members into one [`Usage`]
//! - [`MemberReading`]: what `store-meter` says of the member beside it (its `/store`), and [`Reading`] (its `/reading`)
//!
//! Processor time is counted by the kernel in ticks of 10 ms: sample no more often than every 100 ms.

pub mod accumulator;
pub mod tree;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use storebench_crds::job::{MachineUse, Usage};
use storebench_crds::storage_service::Footprint;

use accumulator::Accumulator;
use tree::ProcessTree;

use crate::measure::disk::{self, DiskWrites};
use crate::measure::machine;

/// What the processes of one member have used so far, at one instant. Counters only grow, unless `restarts` does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reading {
    /// When, by the monotonic clock of the member's machine, nanoseconds.
    pub monotonic_nanos: u64,
    /// Processor time, user and system, nanoseconds.
    pub cpu_nanos: u64,
    /// Resident memory, bytes.
    pub rss_bytes: u64,
    /// Context switches; absent where not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switches: Option<Switches>,
    /// What was written to the disk under the member's data; absent where not asked for, or not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskWrites>,
    /// Proportional set size, bytes; absent where not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pss_bytes: Option<u64>,
    /// Time that all processors of the machine together were not idle since it started, nanoseconds; 0 where it cannot be
    /// read.
    pub machine_cpu_nanos: u64,
    /// Time that the machine's hypervisor gave to others although a processor had work, since it started, nanoseconds.
    #[serde(default)]
    pub machine_stolen_nanos: u64,
    /// Time during which at least one task of the machine waited for a processor, since it started, nanoseconds. Absent: its kernel
    /// does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_pressure_nanos: Option<u64>,
    /// The machine's boot identifier; empty where it cannot be read.
    pub machine: String,
    /// How often the member's process was replaced by another since the meter began. Its counters began anew then.
    pub restarts: u32,
}

impl Reading {
    /// What this process's machine has gone through so far, and nothing of any process.
    pub fn of_machine(machine: String) -> Self {
        let (machine_cpu_nanos, machine_stolen_nanos) = machine::busy_and_stolen_nanos().unwrap_or_default();
        Self {
            monotonic_nanos: machine::monotonic_nanos(),
            machine_cpu_nanos,
            machine_stolen_nanos,
            machine_pressure_nanos: machine::pressure_nanos(),
            machine,
            ..Self::default()
        }
    }

    /// What the machine went through from this reading to a later one of it, as this part of the trial saw it.
    pub fn machine_until(&self, later: &Self, part: String) -> MachineUse {
        let grown = |counter: fn(&Self) -> u64| counter(later).saturating_sub(counter(self));
        let pressure = self.machine_pressure_nanos.zip(later.machine_pressure_nanos);
        MachineUse {
            machine: later.machine.clone(),
            parts: [part].into(),
            elapsed_nanos: grown(|reading| reading.monotonic_nanos),
            cpu_nanos: grown(|reading| reading.machine_cpu_nanos),
            own_nanos: grown(|reading| reading.cpu_nanos),
            stolen_nanos: grown(|reading| reading.machine_stolen_nanos),
            pressure_nanos: pressure.map(|(before, now)| now.saturating_sub(before)),
        }
    }
}

/// Context switches of all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Switches {
    /// The thread waited for something.
    pub voluntary: u64,
    /// Another thread got the processor.
    pub involuntary: u64,
}

/// What is read besides processor time and resident memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// Context switches: a file for each thread.
    pub switches: bool,
    /// Proportional set size: reading it holds up the store.
    pub pss: bool,
}

impl Extras {
    /// Neither: for samples.
    pub const NONE: Self = Self { switches: false, pss: false };
    /// For the beginning of a span.
    pub const SWITCHES: Self = Self { switches: true, pss: false };
    /// For the end of a span.
    pub const ALL: Self = Self { switches: true, pss: true };
}

/// What a meter says of the member beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberReading {
    /// The version as the server itself reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What the idle member costs; absent until it has answered and been watched, or if it cannot be known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub footprint: Option<Footprint>,
    /// Why there is no footprint (yet), in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Space that the data directory takes on disk, bytes: allocated blocks, as `du` counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// Facts about the machine.
    #[serde(default)]
    pub facts: BTreeMap<String, String>,
}

/// Measures processes of this machine from [`Meter::start`] to [`Meter::finish`].
#[derive(Debug)]
pub struct Meter {
    tree: ProcessTree,
    /// Where the processes keep their data, if what is written there counts.
    data: Option<PathBuf>,
    accumulator: Accumulator,
}

impl Meter {
    /// Starts to measure these processes and their descendants of this moment.
    pub fn start(roots: &[u32]) -> Self {
        Self::begin(roots, None)
    }

    /// The same of a store, and what is written to the disk under its data.
    pub fn of_store(roots: &[u32], data: &Path) -> Self {
        Self::begin(roots, Some(data.to_owned()))
    }

    fn begin(roots: &[u32], data: Option<PathBuf>) -> Self {
        let tree = ProcessTree::of(roots);
        let disk = data.as_deref().and_then(disk::writes);
        let accumulator = Accumulator::start(vec![Reading { disk, ..tree.read(Extras::SWITCHES) }]);
        Self { tree, data, accumulator }
    }

    /// Takes a sample.
    pub fn sample(&mut self) {
        self.accumulator.sample(vec![self.tree.read(Extras::NONE)]);
    }

    /// Ends the measurement. Reads the proportional set size once, here, because reading it holds up the store.
    pub fn finish(self) -> Usage {
        let disk = self.data.as_deref().and_then(disk::writes);
        self.accumulator.finish(&[Reading { disk, ..self.tree.read(Extras::ALL) }])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_busy_process_is_measured() {
        let mut meter = Meter::start(&[std::process::id()]);
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(500) {
            std::hint::black_box(0);
        }
        meter.sample();
        let usage = meter.finish();
        assert!(usage.elapsed_nanos >= 500_000_000, "{usage:?}");
        assert!(usage.cpu_nanos >= 50_000_000 && usage.machine_cpu_nanos >= 50_000_000, "{usage:?}");
        // A busy machine may leave it a tenth of a core.
        assert!(usage.cpu_peak_millicores >= 100, "{usage:?}");
        assert!(usage.rss_peak_bytes >= usage.rss_average_bytes && usage.rss_average_bytes > 1_000_000, "{usage:?}");
        assert!(usage.pss_peak_bytes > 1_000_000, "{usage:?}");
    }
}
