//! The program that restores a database as its users would, and what that takes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use procfs::process::{Process, all_processes};
use storebench_crds::job::RestoreTool;

use crate::failure::Failure;
use crate::measure::machine;
use crate::measure::network::{received_bytes, received_since};

/// Between two looks at a process: a 64th of how long it has run, within these.
const LOOK_MIN: Duration = Duration::from_micros(200);
const LOOK_MAX: Duration = Duration::from_millis(5);

/// At least one of so many bytes of a snapshot must be read: a replicator may have made a smaller one meanwhile.
const RECEIVED_DIVISOR: u64 = 4;

/// A program that restores.
#[derive(Clone, Debug)]
pub(super) struct Tool {
    words: RestoreTool,
    program: PathBuf,
}

/// What a plain GET of all objects that a restore needs took, one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlainRead {
    pub(super) time: Duration,
    /// Of the snapshot, without which there is no restore.
    pub(super) snapshot_bytes: u64,
    /// As of a restore.
    pub(super) received_bytes: Option<u64>,
}

/// What a restore took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    /// From the start of the process to its end, too long by at most a 64th, or 0.2 ms.
    pub(super) time: Duration,
    /// The most that it had resident, as last seen before its end.
    pub(super) rss_peak_bytes: u64,
    /// What came in over the network meanwhile, for whomever. `None`: nobody counts that.
    pub(super) received_bytes: Option<u64>,
}

impl Tool {
    /// Finds the executable. One that is given by its name is that of a process beside us, as in a pod, where the replicator has an
    /// image of its own and is seen all the same.
    pub(super) fn find(words: &RestoreTool) -> Result<Self, Failure> {
        let program = match words.program.contains('/') {
            true => PathBuf::from(&words.program),
            false => running(&words.program).ok_or_else(|| {
                Failure::new(format_args!("restoreTool.program: no process of {} runs beside the load", words.program))
            })?,
        };
        Ok(Self { words: words.clone(), program })
    }

    /// What it is.
    pub(super) fn name(&self) -> &str {
        &self.words.name
    }

    /// Restores a database into a file, which it replaces. Blocks until the process has ended, or has been killed because the time is
    /// over.
    pub(super) fn restore(&self, database: &str, output: &Path, timeout: Duration) -> Result<Taken, Failure> {
        let failed = |what: &str, error| Failure::io(format_args!("{}: {what}", self.name()), &error);
        let log_path = output.with_extension("log");
        let log = File::create(&log_path).map_err(|error| failed("make its log", error))?;
        let _ = std::fs::remove_file(output);
        let file = output.display().to_string();
        let argument =
            |text: &String| text.replace(RestoreTool::DATABASE, database).replace(RestoreTool::OUTPUT, &file);
        let mut command = Command::new(&self.program);
        command.args(self.words.arguments.iter().map(argument)).env_clear().envs(&self.words.environment);
        command.stdin(Stdio::null()).stdout(log.try_clone().map_err(|error| failed("make its log", error))?);
        command.stderr(log);
        let (begun, received_before) = (Instant::now(), received_bytes());
        let mut child = command.spawn().map_err(|error| failed("start", error))?;
        let process = Process::new(child.id().cast_signed()).ok();
        let mut rss_peak_bytes = 0;
        let status = loop {
            if let Some(status) = child.try_wait().map_err(|error| failed("wait", error))? {
                break status;
            }
            let elapsed = begun.elapsed();
            if elapsed > timeout {
                // An error means that it has ended meanwhile.
                let _ = child.kill();
                let _ = child.wait();
                return Err(Failure::new(format_args!(
                    "{}: {database} was not restored within {timeout:?}",
                    self.name()
                )));
            }
            let peak = process.as_ref().and_then(|process| process.status().ok()?.vmhwm).unwrap_or_default();
            rss_peak_bytes = rss_peak_bytes.max(peak * 1024);
            std::thread::sleep((elapsed / 64).clamp(LOOK_MIN, LOOK_MAX));
        };
        let time = begun.elapsed();
        let received_bytes = received_since(received_before);
        let said = std::fs::read_to_string(&log_path).unwrap_or_default();
        let _ = std::fs::remove_file(&log_path);
        if status.success() && output.is_file() {
            return Ok(Taken { time, rss_peak_bytes, received_bytes });
        }
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
        Err(Failure::new(format_args!("{}: {database} was not restored ({status}): {last}", self.name())))
    }
}

/// Whether what was restored came from elsewhere than the object store: less came in over the network meanwhile than a quarter of the snapshot,
/// without which there is no restore. Nothing is known where nobody counts, or counts not even what the loader reads there.
pub(super) fn is_from_elsewhere(received_bytes: Option<u64>, plainly: &PlainRead) -> bool {
    let is_counted = plainly.received_bytes.is_some_and(|received| received >= plainly.snapshot_bytes);
    is_counted && received_bytes.is_some_and(|received| received < plainly.snapshot_bytes / RECEIVED_DIVISOR)
}

/// The executable of a process that runs, by its file name.
fn running(name: &str) -> Option<PathBuf> {
    let is_it = |process: &Process| process.exe().is_ok_and(|path| path.file_name().is_some_and(|file| file == name));
    let found = all_processes().ok()?.filter_map(Result::ok).find(is_it)?;
    // Not the path that it tells, which is one of its own file system.
    Some(PathBuf::from(format!("/proc/{}/exe", found.pid)))
}

/// Processor time of all processes that this one has started and that have ended, nanoseconds. In ticks, but added up before that.
pub(super) fn cpu_of_ended_children_nanos() -> u64 {
    let Ok(stat) = Process::myself().and_then(|process| process.stat()) else { return 0 };
    (stat.cutime + stat.cstime).max(0).unsigned_abs() * machine::nanos_per_tick()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(script: &str) -> Tool {
        let words = RestoreTool {
            name: "shell 1".into(),
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into(), "sh".into(), "{output}".into(), "x/{database}".into()],
            environment: [("WORD".to_owned(), "told".to_owned())].into(),
        };
        Tool::find(&words).unwrap()
    }

    #[test]
    fn a_tool_is_told_what_to_restore_and_where_and_its_failure_is_its_last_line() {
        let folder = harness::folder();
        let output = folder.path().join("restored.tmp");
        std::fs::write(&output, "left behind").unwrap();
        let restore = |script| tool(script).restore("0001.db", &output, Duration::from_secs(20));
        let taken = restore("echo $2 $WORD $HOME > $1; sleep 0.05").unwrap();
        assert_eq!(std::fs::read_to_string(&output).unwrap(), "x/0001.db told\n", "and of our own environment nothing");
        assert!(taken.time >= Duration::from_millis(50) && taken.rss_peak_bytes > 100_000, "{taken:?}");
        let said = restore("echo first; echo 'a hole' >&2; exit 3").unwrap_err();
        assert_eq!(said.text(), "shell 1: 0001.db was not restored (exit status: 3): a hole");
        let said = restore("true").unwrap_err();
        assert!(said.text().ends_with("it says nothing"), "a success without a file is none: {}", said.text());
        let said = tool("sleep 30").restore("0001.db", &output, Duration::from_millis(50)).unwrap_err();
        assert_eq!(said.text(), "shell 1: 0001.db was not restored within 50ms");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "only the log of what was killed");
    }

    #[test]
    fn what_is_restored_without_reading_the_object_store_is_told_where_that_is_counted() {
        let plainly = |received_bytes| PlainRead { time: Duration::ZERO, snapshot_bytes: 4_000, received_bytes };
        assert!(is_from_elsewhere(Some(999), &plainly(Some(4_500))));
        assert!(!is_from_elsewhere(Some(1_000), &plainly(Some(4_500))));
        assert!(!is_from_elsewhere(None, &plainly(Some(4_500))));
        // Packets that go past the counter say nothing of whose they are.
        assert!(!is_from_elsewhere(Some(0), &plainly(Some(3_999))));
        assert!(!is_from_elsewhere(Some(0), &plainly(None)));
    }

    #[test]
    fn the_executable_of_a_running_process_can_be_run_by_its_name() {
        let folder = harness::folder();
        let named = folder.path().join("some-replicator");
        std::fs::copy("/bin/sleep", &named).unwrap();
        let mut replicator = Command::new(&named).arg("60").spawn().unwrap();
        harness::until("it runs", || running("some-replicator").is_some());
        std::fs::remove_file(&named).unwrap();
        let found = PathBuf::from(format!("/proc/{}/exe", replicator.id()));
        let worked = Command::new(&found).arg("0").status().unwrap().success();
        replicator.kill().unwrap();
        replicator.wait().unwrap();
        assert!(worked);
        assert_eq!(running("no-such-replicator"), None);
    }
}
