//! What threads of this process have used, as the kernel counts it. What it does not offer counts as zero.

use procfs::process::{Process, Task};

/// What one thread has used since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadUse {
    /// For how long it ran, nanoseconds.
    pub cpu_nanos: u64,
    /// For how long it could have run, had there been a processor, nanoseconds.
    pub waited_nanos: u64,
    /// How often it waited for something.
    pub voluntary_switches: u64,
    /// How often another thread got its processor.
    pub involuntary_switches: u64,
}

impl ThreadUse {
    /// Of a thread; nothing of one that has ended.
    pub fn of(task: &Task) -> Self {
        let mut used = Self::default();
        if let Ok(schedule) = task.schedstat() {
            used.cpu_nanos = schedule.sum_exec_runtime;
            used.waited_nanos = schedule.run_delay;
        }
        if let Ok(status) = task.status() {
            used.voluntary_switches = status.voluntary_ctxt_switches.unwrap_or_default();
            used.involuntary_switches = status.nonvoluntary_ctxt_switches.unwrap_or_default();
        }
        used
    }

    /// Of the thread of this process that the kernel knows by this number.
    pub fn of_own(thread: i32) -> Self {
        let task = Process::myself().and_then(|process| process.task_from_tid(thread));
        task.map(|task| Self::of(&task)).unwrap_or_default()
    }

    /// What it has used since it had used so much.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            cpu_nanos: self.cpu_nanos.saturating_sub(earlier.cpu_nanos),
            waited_nanos: self.waited_nanos.saturating_sub(earlier.waited_nanos),
            voluntary_switches: self.voluntary_switches.saturating_sub(earlier.voluntary_switches),
            involuntary_switches: self.involuntary_switches.saturating_sub(earlier.involuntary_switches),
        }
    }
}
