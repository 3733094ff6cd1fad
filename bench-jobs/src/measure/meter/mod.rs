//! What a store uses, from instantaneous readings of `/proc` to [`Usage`] over a span: the same code wherever the store
//! runs.
//!
//! - [`tree`]: reads what a process and everything below it have used so far; [`Meter`] does so for processes of this
//!   machine, which is what the embedded driver needs
//! - [`accumulator`]: pure; turns readings of several members into one [`Usage`]
//!
//! A [`Reading`] is what `store-meter` says, too: [`storebench_crds::meter`].
//!
//! Processor time is counted by the kernel in ticks of 10 ms: sample no more often than every 100 ms.

pub mod accumulator;
pub mod tree;

use std::path::{Path, PathBuf};

use storebench_crds::job::Usage;
use storebench_crds::meter::Reading;

use accumulator::Accumulator;
use tree::ProcessTree;

use crate::measure::disk;

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
    use rustix::time::{ClockId, clock_gettime};

    /// However little of the machine others leave to it.
    #[test]
    fn a_busy_process_is_measured() {
        let mut meter = Meter::start(&[std::process::id()]);
        let used_nanos = || {
            let used = clock_gettime(ClockId::ThreadCPUTime);
            used.tv_sec * 1_000_000_000 + used.tv_nsec
        };
        let before = used_nanos();
        while used_nanos() - before < 100_000_000 {
            std::hint::black_box(0);
        }
        meter.sample();
        let usage = meter.finish();
        assert!(usage.elapsed_nanos >= 100_000_000, "{usage:?}");
        assert!(usage.cpu_nanos >= 50_000_000 && usage.machine_cpu_nanos >= 50_000_000, "{usage:?}");
        let average_millicores = usage.cpu_nanos * 1_000 / usage.elapsed_nanos;
        assert!(usage.cpu_peak_millicores + 10 >= average_millicores, "{usage:?}");
        assert!(usage.rss_peak_bytes >= usage.rss_average_bytes && usage.rss_average_bytes > 1_000_000, "{usage:?}");
        assert!(usage.pss_peak_bytes > 1_000_000, "{usage:?}");
    }
}
