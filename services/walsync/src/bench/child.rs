//! Programs that are measured: each a child that ends with us, and what the kernel counts of it.

use anyhow::Context as _;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use nix::time::ClockId;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// From SIGTERM to SIGKILL.
const STOP: Duration = Duration::from_secs(15);
/// Between two looks at a program that runs to its end.
const LOOK: Duration = Duration::from_micros(500);

/// A program at work. Dropped, it is killed.
pub struct Child {
    child: std::process::Child,
    log: PathBuf,
}

/// What a program takes, in MiB.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    pub rss: f64,
    pub pss: f64,
    pub private: f64,
    pub descriptors: u64,
}

/// What a program needed that ran to its end.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    pub seconds: f64,
    pub processor_seconds: f64,
    /// Nobody looked where it is none.
    pub peak_mib: Option<f64>,
}

impl Child {
    /// Starts it; what it says goes into `log`.
    pub fn start(command: &mut Command, log: &Path) -> anyhow::Result<Child> {
        let program = PathBuf::from(command.get_program());
        let file = fs::File::options().create(true).append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).env("NO_COLOR", "1");
        // A proxy's certificates stop Litestream's S3 client, and are none of an object store's.
        command.env_remove("AWS_CA_BUNDLE");
        let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Child { child, log: log.to_owned() })
    }

    /// An error where it has ended, with the last that it said.
    pub fn must_live(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => anyhow::bail!("{}", failure(status, &self.log)),
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(id) = Pid::from_raw(self.child.id().cast_signed()) {
            // It may have ended by itself.
            let _ = kill_process(id, signal);
        }
    }

    /// Asks it to end, and makes it.
    pub fn stop(mut self) {
        self.signal(Signal::TERM);
        let end = Instant::now() + STOP;
        while Instant::now() < end && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Of all its threads, those that have ended too.
    pub fn processor_seconds(&self) -> anyhow::Result<f64> {
        let clock = ClockId::pid_cpu_clock_id(nix::unistd::Pid::from_raw(self.child.id().cast_signed()))?;
        Ok(clock.now()?.num_nanoseconds() as f64 / 1e9)
    }

    pub fn memory(&self) -> anyhow::Result<Memory> {
        let folder = PathBuf::from(format!("/proc/{}", self.child.id()));
        let read = |name: &str| fs::read_to_string(folder.join(name)).with_context(|| format!("/proc: {name}"));
        let (status, rollup) = (read("status")?, read("smaps_rollup")?);
        let mib = |text: &str, word: &str| kib(text, word).with_context(|| format!("/proc: no {word}"));
        Ok(Memory {
            rss: mib(&status, "VmRSS:")? / 1024.0,
            pss: mib(&rollup, "Pss:")? / 1024.0,
            private: mib(&status, "RssAnon:")? / 1024.0,
            descriptors: fs::read_dir(folder.join("fd"))?.count() as u64,
        })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SIGKILL is what comes next for whoever does not want to end; nothing is left of one that has.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn failure(status: std::process::ExitStatus, log: &Path) -> String {
    let said = fs::read_to_string(log).unwrap_or_default();
    let last: Vec<&str> = said.lines().rev().take(5).collect();
    let said = last.into_iter().rev().collect::<Vec<_>>().join("; ");
    let name = log.file_stem().unwrap_or_default().display();
    format!("{name} has ended ({status}): {said}")
}

/// A line of /proc's, in KiB.
fn kib(text: &str, word: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(word)?.split_whitespace().next()?.parse().ok())
}

/// Processor time of children that were waited for, or of ourselves.
fn processor_seconds(who: UsageWho) -> anyhow::Result<f64> {
    let usage = getrusage(who)?;
    Ok((usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6)
}

/// Runs a program to its end. No other child may end meanwhile. An error within says how it failed, also where it takes longer than it may; it is
/// given up when `stop` is set.
pub fn run(
    command: &mut Command,
    log: &Path,
    within: Duration,
    stop: &AtomicBool,
) -> anyhow::Result<Result<Usage, String>> {
    let before = processor_seconds(UsageWho::RUSAGE_CHILDREN)?;
    // Of the last run nothing is told again.
    let _ = fs::remove_file(log);
    let begun = Instant::now();
    let mut child = Child::start(command, log)?;
    let status_file = format!("/proc/{}/status", child.child.id());
    let mut peak_mib = None;
    let status = loop {
        let status = child.child.try_wait()?;
        // First of all: Ctrl-C ends it, too, and that is no failure of its own.
        anyhow::ensure!(!stop.load(Ordering::Acquire), super::STOPPED);
        if let Some(status) = status {
            break status;
        }
        if begun.elapsed() > within {
            return Ok(Err(format!("not done after {within:?}")));
        }
        // The kernel's own peak: what is missed is what it grows by after the last look.
        let status = fs::read_to_string(&status_file).unwrap_or_default();
        peak_mib = kib(&status, "VmHWM:").map(|kib| kib / 1024.0).or(peak_mib);
        std::thread::sleep(LOOK);
    };
    let seconds = begun.elapsed().as_secs_f64();
    if !status.success() {
        return Ok(Err(failure(status, log)));
    }
    let processor_seconds = processor_seconds(UsageWho::RUSAGE_CHILDREN)? - before;
    Ok(Ok(Usage { seconds, processor_seconds, peak_mib }))
}

/// What something takes that we do ourselves, with nothing beside it.
pub fn ourselves(action: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Usage> {
    let (before, begun) = (processor_seconds(UsageWho::RUSAGE_SELF)?, Instant::now());
    action()?;
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Usage { seconds, processor_seconds: processor_seconds(UsageWho::RUSAGE_SELF)? - before, peak_mib: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_program_that_does_not_end_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let (log, short) = (folder.path().join("sleep.log"), Duration::from_millis(50));
        let failed = run(Command::new("sleep").arg("60"), &log, short, &AtomicBool::new(false)).unwrap().unwrap_err();
        assert_eq!(failed, "not done after 50ms");
    }

    #[test]
    fn lines_of_proc_are_read_by_their_first_word() {
        let text = "Name:\twalsync\nVmRSS:\t    5944 kB\nPss_Anon:  1 kB\nPss:                2100 kB\n";
        assert_eq!(kib(text, "VmRSS:"), Some(5944.0));
        assert_eq!(kib(text, "Pss:"), Some(2100.0));
        assert_eq!(kib(text, "RssAnon:"), None);
    }

    #[test]
    fn a_program_that_fails_is_told_with_its_last_words() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("sh.log");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo one; echo two >&2; exit 3"]);
        let failed = run(&mut command, &log, LONG, &AtomicBool::new(false)).unwrap().unwrap_err();
        assert_eq!(failed, "sh has ended (exit status: 3): one; two");
    }

    #[test]
    fn what_a_program_needs_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"]);
        let usage = run(&mut command, &folder.path().join("sh.log"), LONG, &AtomicBool::new(false)).unwrap().unwrap();
        assert!(usage.processor_seconds > 0.01 && usage.processor_seconds < usage.seconds * 1.5, "{usage:?}");
        assert!(usage.peak_mib.unwrap() > 0.1, "{usage:?}");
    }
}
