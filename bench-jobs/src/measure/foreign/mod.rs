//! Who else uses this machine: what processes that are neither this one nor below it took of the processors, by program.
//!
//! - [`census`]: reads every process of the machine, at one instant
//! - [`used`]: pure; from two censuses to what others used in between
//! - [`served`]: which processes serve at an address, as a store that was there already does
//! - [`Survey`]: takes a census now and then over a span and adds up
//!
//! A process that lives too briefly to be in any census is counted with the program that started and waited for it, as
//! time(1) counts. What a store makes others do for it is not foreign: its forks, also those that lost their parent, and the kernel's
//! threads, as the file system's journal. Otherwise the store that writes most would lose most trials. Under a quota what is foreign is
//! measured within the control group, and against the quota; beyond it others count only where they leave less than the quota.
//!
//! What is neither seen nor the kernel's (other containers, brief processes that somebody else adopted, interrupts) counts as far as
//! it exceeds a quarter of what store and load used themselves.

pub mod census;
pub mod served;
pub mod used;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use census::Census;
pub use served::Served;
pub use used::Used;

/// Between two censuses of a span. A census of 400 processes takes some milliseconds of a processor: seldom enough to
/// disturb nothing, often enough to see the processes of a build.
const CENSUS_INTERVAL: Duration = Duration::from_secs(1);

/// Watches what others use, from [`Survey::begin`] to [`Survey::finish`]. Whatever this process starts is its own, and so is a store that it is
/// told of.
#[derive(Debug)]
pub struct Survey {
    store: BTreeSet<i32>,
    last: Census,
    taken: Instant,
    used: Used,
}

impl Survey {
    /// Begins to watch. `store`: processes of a store that was there already, which with all below them are not foreign.
    pub fn begin(store: &BTreeSet<i32>) -> Self {
        let last = Census::take(store);
        Self { store: store.clone(), last, taken: Instant::now(), used: Used::default() }
    }

    /// Call this often: takes a census when one is due.
    pub fn sample(&mut self) {
        if self.taken.elapsed() >= CENSUS_INTERVAL {
            self.take();
        }
    }

    /// What others used of the whole span.
    pub fn finish(mut self) -> Used {
        self.take();
        self.used
    }

    fn take(&mut self) {
        let census = Census::take(&self.store);
        self.used.add(Used::between(&self.last, &census));
        self.last = census;
        self.taken = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    use rustix::process::{Pid, Signal, kill_process};

    /// A link to `yes` of this name.
    fn busy_program(folder: &std::path::Path, name: &str) -> std::path::PathBuf {
        let path = folder.join(name);
        std::os::unix::fs::symlink("/usr/bin/yes", &path).unwrap();
        path
    }

    #[test]
    fn a_stranger_is_named_and_a_child_is_not() {
        let folder = harness::folder();
        let [stranger, child] = ["busy-stranger", "busy-child"].map(|name| busy_program(folder.path(), name));
        // Its shell ends at once, so that somebody else adopts it; it would end by itself after 20 s of processor time.
        let orphan = format!("ulimit -t 20; {} >/dev/null 2>&1 & echo $!", stranger.display());
        let output = Command::new("sh").args(["-c", &orphan]).output().unwrap();
        let stranger = Pid::from_raw(String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()).unwrap();
        let mut child = Command::new(child).stdout(Stdio::null()).spawn().unwrap();
        let mut survey = Survey::begin(&BTreeSet::new());
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(1_500) {
            std::thread::sleep(Duration::from_millis(50));
            survey.sample();
        }
        let used = survey.finish();
        let beside = Survey::begin(&BTreeSet::from([stranger.as_raw_pid()]));
        std::thread::sleep(Duration::from_millis(300));
        let beside = beside.finish();
        kill_process(stranger, Signal::KILL).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(used.programs.get("busy-stranger").is_some_and(|nanos| *nanos > 0), "{used:?}");
        assert!(!used.programs.contains_key("busy-child"), "{used:?}");
        assert!(!beside.programs.contains_key("busy-stranger"), "it is the store: {beside:?}");
        assert!(used.total_nanos > 0 && used.elapsed_nanos >= 1_500_000_000, "{used:?}");
    }
}
