//! Makes the syncs of a process slower for a while: `strace` attaches to it and lets each wait before it returns.
//!
//! Nothing else works for programs of all kinds without root: a preloaded library does not reach programs that have no C library, and a slow device
//! is root's to make. The price: while it is attached, every system call of the process stops for strace, which takes microseconds. Syncs that are
//! asked for in another way (io_uring, files opened for synchronous writes) are not delayed; that not a single one was is an error.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::guard;
use super::process::last_word;

/// The calls by which a process waits for its disk; a question mark before those that not every machine has.
const SYNCS: &str = "fsync,fdatasync,?msync,?sync_file_range,?syncfs";
/// How long attaching and detaching may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Before it is looked again whether that is done.
const PAUSE: Duration = Duration::from_millis(1);

/// A process with a slow disk, until [`SlowDisk::end`].
#[derive(Debug)]
pub(super) struct SlowDisk {
    strace: Child,
    /// A line for each sync.
    log: PathBuf,
}

impl SlowDisk {
    /// Makes each sync of a process take longer by `delay`; returns when it is so. Files go to `directory`.
    pub(super) fn begin(process: u32, delay: Duration, directory: &Path) -> anyhow::Result<Self> {
        let program = program()?;
        let log = directory.join(format!("syncs-{process}"));
        let errors = directory.join(format!("strace-{process}.log"));
        let strace = guard::command(&program)?
            .args(["-f", "-qq", "-e"])
            .arg(format!("trace={SYNCS}"))
            .arg("-e")
            .arg(format!("inject={SYNCS}:delay_exit={}", delay.as_micros()))
            .arg("-o")
            .arg(&log)
            .args(["-p", &process.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&errors)?)
            .spawn()
            .context("strace cannot be started")?;
        let mut slow = Self { strace, log };
        let deadline = Instant::now() + PATIENCE;
        while !is_traced(process) {
            let has_ended = slow.strace.try_wait()?.is_some();
            if has_ended || Instant::now() > deadline {
                anyhow::bail!(
                    "SlowDisk: strace cannot attach to the store{}: the kernel may forbid it (kernel.yama.ptrace_scope above 1, or a container \
                     without SYS_PTRACE)",
                    last_word(&errors)
                );
            }
            std::thread::sleep(PAUSE);
        }
        Ok(slow)
    }

    /// Lets syncs be as they were. Returns how many were delayed. Errors: strace was there for a part of the time only.
    pub(super) fn end(mut self) -> anyhow::Result<usize> {
        if let Some(status) = self.strace.try_wait()? {
            anyhow::bail!(
                "SlowDisk: strace ended before its time ({status}), and the store had a slow disk until then only"
            );
        }
        // It detaches, and lets go what waits.
        if let Some(strace) = Pid::from_raw(self.strace.id().cast_signed()) {
            kill_process(strace, Signal::TERM).context("strace cannot be ended")?;
        }
        let deadline = Instant::now() + PATIENCE;
        while self.strace.try_wait()?.is_none() {
            anyhow::ensure!(Instant::now() < deadline, "SlowDisk: strace does not let the store go");
            std::thread::sleep(PAUSE);
        }
        let log = std::fs::read_to_string(&self.log).with_context(|| format!("{}: unreadable", self.log.display()))?;
        Ok(log.lines().filter(|line| line.ends_with("(DELAYED)")).count())
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        if let (Ok(None), Some(group)) = (self.strace.try_wait(), Pid::from_raw(self.strace.id().cast_signed())) {
            // Traced processes go on without it.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.strace.wait();
    }
}

/// Where strace is. Errors: nowhere, and how to get it.
pub(super) fn program() -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("strace")).find(|path| path.is_file());
    found.context("is SlowDisk, which needs strace, and that is not in PATH: install it (apt install strace), or leave the workload out")
}

/// Tries it on a process of ours, before anything is measured. Errors: it does not work here, and why.
pub(super) fn try_out(directory: &Path) -> anyhow::Result<()> {
    program()?;
    let mut sleeper = guard::command(Path::new("/bin/sleep"))?.arg("60").spawn().context("sleep cannot be started")?;
    let tried = SlowDisk::begin(sleeper.id(), Duration::from_millis(1), directory).and_then(SlowDisk::end);
    let _ = sleeper.kill();
    let _ = sleeper.wait();
    tried.map(drop)
}

/// Whether all threads of a process are traced.
fn is_traced(process: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let mut statuses = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok()).peekable();
    let traced = |status: String| {
        let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
        tracer.is_some_and(|tracer| tracer.trim() != "0")
    };
    statuses.peek().is_some() && statuses.all(traced)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn syncs_are_slow_until_the_end_and_counted() {
        let folder = harness::folder();
        let directory = folder.path();
        let file = directory.join("file");
        std::fs::write(&file, "").unwrap();
        // Writes and syncs while there is a file, and tells of each. Killing the shell would leave the last dd, which would make the file again.
        let script = format!(
            "while [ -e {0} ]; do dd if=/dev/zero of={0} bs=1 count=1 conv=fsync,nocreat 2>&-; echo; done",
            file.display()
        );
        let told = directory.join("told");
        let mut writer = Command::new("sh").arg("-c").arg(script).stdout(File::create(&told).unwrap()).spawn().unwrap();
        let done = || std::fs::metadata(&told).unwrap().len();
        let delay = Duration::from_millis(250);
        let began = std::time::Instant::now();
        let slow = SlowDisk::begin(writer.id(), delay, directory).unwrap();
        let before = done();
        std::thread::sleep(Duration::from_secs(2));
        let while_slow = done() - before;
        let delayed = slow.end().unwrap();
        let delays_max = (began.elapsed().as_millis() / delay.as_millis()) as usize + 1;
        // As many as were slow in all that time, and sooner than that takes on a disk of any speed.
        let (before, ended) = (done(), std::time::Instant::now());
        while done() < before + 12 && ended.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let afterwards = done() - before;
        std::fs::remove_file(&file).unwrap();
        writer.wait().unwrap();
        assert!((1..=delays_max).contains(&delayed), "{delayed} of {delays_max}");
        assert!(while_slow <= delays_max as u64, "{while_slow}, though {delays_max} take longer");
        assert!(afterwards >= 12, "{afterwards}");
    }

    #[test]
    fn a_slow_disk_that_ended_by_itself_is_none() {
        let folder = harness::folder();
        let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        let mut slow = SlowDisk::begin(sleeper.id(), Duration::from_millis(1), folder.path()).unwrap();
        slow.strace.kill().unwrap();
        slow.strace.wait().unwrap();
        let error = slow.end().unwrap_err().to_string();
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert!(error.contains("strace ended before its time (signal: 9"), "{error}");
    }
}
