//! Reads what processes have used so far from `/proc`: given processes and everything below them.

use procfs::process::Process;

use storebench_crds::meter::{Reading, Switches};

use super::Extras;
use crate::measure::machine;

/// A store has few processes; more than this are not followed.
const PROCESSES_MAX: usize = 256;

/// Processes, and whatever is below them when they are read: a store that forks, as to rewrite its log, pays for that too.
#[derive(Clone, Debug)]
pub struct ProcessTree {
    roots: Vec<u32>,
    machine: String,
}

impl ProcessTree {
    /// These processes and their descendants.
    pub fn of(roots: &[u32]) -> Self {
        Self { roots: roots.to_vec(), machine: machine::boot_identifier().unwrap_or_default() }
    }

    /// What they have used until now. The processor time of a child that has ended and was waited for counts with who waited; a root that
    /// has ended counts for nothing.
    pub fn read(&self, extras: Extras) -> Reading {
        let mut reading = machine::reading(self.machine.clone());
        let mut switches = Switches::default();
        let mut pss_bytes = 0;
        for process in descendants(&self.roots).into_iter().filter_map(|pid| Process::new(pid).ok()) {
            if let Ok(stat) = process.stat() {
                let of_children = (stat.cutime + stat.cstime).max(0).unsigned_abs();
                reading.cpu_nanos += (stat.utime + stat.stime + of_children) * machine::nanos_per_tick();
                reading.rss_bytes += stat.rss * procfs::page_size();
            }
            if extras.switches {
                add_switches(&process, &mut switches);
            }
            if extras.pss {
                pss_bytes += read_pss_bytes(&process).unwrap_or_default();
            }
        }
        reading.switches = extras.switches.then_some(switches);
        reading.pss_bytes = extras.pss.then_some(pss_bytes);
        reading
    }
}

/// The processes themselves and everything below them, in the order found.
pub fn descendants(roots: &[u32]) -> Vec<i32> {
    let mut found: Vec<i32> = roots.iter().map(|pid| pid.cast_signed()).collect();
    let mut index = 0;
    while index < found.len() && found.len() < PROCESSES_MAX {
        let tasks = Process::new(found[index]).and_then(|process| process.tasks()).into_iter().flatten().flatten();
        for child in tasks.filter_map(|task| task.children().ok()).flatten() {
            found.push(child.cast_signed());
        }
        index += 1;
    }
    found
}

/// What lives below a child of this process. Nothing where it is no child of it any more: its number may be somebody else's by now.
pub fn below_child(child: u32) -> Vec<i32> {
    let stat = |pid: i32| Process::new(pid).and_then(|process| process.stat());
    let is_ours = stat(child.cast_signed()).is_ok_and(|stat| stat.ppid == std::process::id().cast_signed());
    if !is_ours {
        return Vec::new();
    }
    let below = descendants(&[child]).into_iter().skip(1);
    below.filter(|pid| stat(*pid).is_ok_and(|stat| stat.state != 'Z')).collect()
}

fn add_switches(process: &Process, switches: &mut Switches) {
    for status in process.tasks().into_iter().flatten().flatten().filter_map(|task| task.status().ok()) {
        switches.voluntary += status.voluntary_ctxt_switches.unwrap_or_default();
        switches.involuntary += status.nonvoluntary_ctxt_switches.unwrap_or_default();
    }
}

fn read_pss_bytes(process: &Process) -> Option<u64> {
    let rollup = process.smaps_rollup().ok()?;
    rollup.memory_map_rollup.0.first()?.extension.map.get("Pss").copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_child_counts_with_its_parent() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let found = descendants(&[std::process::id()]);
        let is_found = found.contains(&child.id().cast_signed());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_found, "{found:?} has no {}", child.id());
    }

    #[test]
    fn what_is_below_a_child_is_found_while_it_lives_and_nothing_of_others() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 60 & echo; wait"]).stdout(std::process::Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(shell.stdout.take().unwrap()), &mut line).unwrap();
        let below = below_child(shell.id());
        assert_eq!(below.len(), 1, "{below:?}");
        let sleep = rustix::process::Pid::from_raw(below[0]).unwrap();
        rustix::process::kill_process(sleep, rustix::process::Signal::KILL).unwrap();
        shell.wait().unwrap();
        assert_eq!(below_child(shell.id()), [0; 0], "it is gone");
        assert_eq!(below_child(std::os::unix::process::parent_id()), [0; 0], "no child of this process");
    }

    /// As Redis does to rewrite its log: the child begins and ends between two readings.
    #[test]
    fn what_a_fork_used_that_came_and_went_is_its_parents() {
        let script = "read go; ( i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done ); echo done; read end";
        let mut shell = harness::command("sh");
        shell.args(["-c", script]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let tree = ProcessTree::of(&[shell.id()]);
        let before = tree.read(Extras::NONE).cpu_nanos;
        let mut input = shell.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, b"go\n").unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(shell.stdout.take().unwrap()), &mut line).unwrap();
        let used_nanos = tree.read(Extras::NONE).cpu_nanos - before;
        drop(input);
        shell.wait().unwrap();
        assert!(used_nanos > 50_000_000, "a million rounds of a loop took {used_nanos} ns");
    }

    #[test]
    fn only_what_is_asked_for_is_read() {
        let tree = ProcessTree::of(&[std::process::id()]);
        let sample = tree.read(Extras::NONE);
        assert!(sample.rss_bytes > 0 && sample.monotonic_nanos > 0 && !sample.machine.is_empty(), "{sample:?}");
        assert_eq!((sample.switches, sample.pss_bytes), (None, None));
        // A process so young may have given up no processor yet.
        std::thread::sleep(std::time::Duration::from_millis(1));
        let all = tree.read(Extras::ALL);
        assert!(all.switches.is_some_and(|switches| switches.voluntary > 0), "{all:?}");
        assert!(all.pss_bytes.is_some_and(|bytes| bytes > 0), "{all:?}");
    }

    #[test]
    fn a_process_that_is_gone_counts_for_nothing() {
        let mut child = Command::new("true").spawn().unwrap();
        let tree = ProcessTree::of(&[child.id()]);
        child.wait().unwrap();
        let reading = tree.read(Extras::ALL);
        assert_eq!((reading.cpu_nanos, reading.rss_bytes, reading.pss_bytes), (0, 0, Some(0)));
    }
}
