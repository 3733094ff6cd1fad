//! Every process of this machine at one instant, as far as `/proc` shows them.

use std::collections::{BTreeMap, BTreeSet};

use procfs::process::{Stat, StatFlags, all_processes};

use crate::measure::control_group::{self, Quota};
use crate::measure::machine;

/// What a process has used so far, and where it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The process that started it, or that adopted it.
    pub parent: i32,
    /// Its process group, which it keeps when its parent ends.
    pub group: i32,
    /// When it started, by the kernel's count: with the identifier, the same for one process only.
    pub started_ticks: u64,
    /// The program's name, at most 15 bytes as the kernel keeps it; no control characters.
    pub program: String,
    /// Whether it is a thread of the kernel, which nobody can stop.
    pub is_kernel: bool,
    /// Processor time of its own, nanoseconds.
    pub cpu_nanos: u64,
    /// Processor time of its children that have ended and were waited for, and of theirs, nanoseconds.
    pub children_nanos: u64,
    /// Whether it uses up the quota of [`Census::quota`]; false where there is none.
    pub shares_quota: bool,
}

impl Process {
    fn of(stat: Stat) -> Self {
        let nanos = |ticks: u64| ticks * machine::nanos_per_tick();
        let is_kernel = stat.flags().is_ok_and(|flags| flags.contains(StatFlags::PF_KTHREAD));
        let visible = |character: char| if character.is_control() { '?' } else { character };
        Self {
            parent: stat.ppid,
            group: stat.pgrp,
            started_ticks: stat.starttime,
            program: stat.comm.chars().map(visible).collect(),
            is_kernel,
            cpu_nanos: nanos(stat.utime + stat.stime),
            children_nanos: nanos((stat.cutime + stat.cstime).max(0).unsigned_abs()),
            shares_quota: false,
        }
    }

    /// Its own processor time and that of its children that have ended, nanoseconds.
    pub fn total_nanos(&self) -> u64 {
        self.cpu_nanos + self.children_nanos
    }
}

/// All processes, and what the machine has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// When, by the monotonic clock, nanoseconds.
    pub monotonic_nanos: u64,
    /// Time that all processors together were not idle, nanoseconds.
    pub machine_cpu_nanos: u64,
    /// Processors of the machine.
    pub cores: usize,
    /// What the control group of this process may use of them, and has used. Absent: all of them.
    pub quota: Option<Quota>,
    /// The process below which everything is our own.
    pub own: i32,
    /// Processes of a store that was there already: what is below them is not foreign either. Empty where there is none.
    pub store: BTreeSet<i32>,
    /// By identifier. Those that others may not see (`hidepid`, containers) are missing.
    pub processes: BTreeMap<i32, Process>,
}

impl Census {
    /// A census of this instant, beside a store that was there already. What cannot be read is left out.
    pub fn take(store: &BTreeSet<i32>) -> Self {
        let found = all_processes().into_iter().flatten().flatten();
        let stats = found.filter_map(|process| process.stat().ok());
        let processes = stats.map(|stat| (stat.pid, Process::of(stat))).collect();
        let mut census = Self {
            monotonic_nanos: machine::monotonic_nanos(),
            machine_cpu_nanos: machine::cpu_nanos().unwrap_or_default(),
            cores: machine::cores().unwrap_or(1),
            quota: control_group::quota(),
            own: std::process::id().cast_signed(),
            store: store.clone(),
            processes,
        };
        if let Some(quota) = &census.quota {
            for (id, process) in &mut census.processes {
                process.shares_quota = quota.binds(*id);
            }
        }
        census
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_and_the_one_that_started_it_are_found() {
        let census = Census::take(&BTreeSet::new());
        let myself = &census.processes[&census.own];
        assert!(!myself.is_kernel && myself.started_ticks > 0, "{myself:?}");
        assert_eq!(myself.parent, std::os::unix::process::parent_id().cast_signed());
        assert_eq!(myself.program, std::fs::read_to_string("/proc/self/comm").unwrap().trim());
        assert!(census.processes.contains_key(&myself.parent), "{census:?}");
        assert!(census.cores > 0 && census.machine_cpu_nanos > 0, "{census:?}");
    }
}
