//! One child process with its log, from spawn to kill. What it starts is killed with it, also what it has let go of, which [`guard`] keeps below it:
//! it would disturb whoever is measured next.

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bench_jobs::measure::meter::tree::below_child;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::guard;

/// How much of the end of a log is searched for a last word, bytes.
const LAST_WORD_BYTES_MAX: usize = 16 * 1024;
/// How long what is below a process may take to be gone, when it is killed: some of it may start others meanwhile.
const DEATH_PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks at that.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// A process that was started. Dropped, it is killed with everything in its group and everything below it.
#[derive(Debug)]
pub(super) struct Running {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Starts a program in a directory, with this environment and no other. `name` is for messages; what the program writes
    /// goes to `log`.
    pub(super) fn start(
        name: &str,
        program: &Path,
        arguments: &[String],
        environment: &[(String, String)],
        directory: &Path,
        log: PathBuf,
    ) -> anyhow::Result<Self> {
        let output = File::create(&log).with_context(|| format!("{}: cannot be created", log.display()))?;
        let child = guard::command(program)?
            .args(arguments)
            .env_clear()
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("{} cannot be started", program.display()))?;
        Ok(Self { name: name.into(), child, log })
    }

    /// The process identifier.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to it, everything in its group, and everything below it.
    pub(super) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let group = Pid::from_raw(self.child.id().cast_signed()).context("a process without an identifier")?;
        kill_process_group(group, signal).with_context(|| format!("{} cannot be sent a signal", self.name))?;
        self.signal_below(signal);
        Ok(())
    }

    /// Sends a signal to everything below it, and returns whether there is anything.
    fn signal_below(&self, signal: Signal) -> bool {
        let below = below_child(self.child.id());
        for pid in below.iter().filter_map(|pid| Pid::from_raw(*pid)) {
            // What has ended by now gets none.
            let _ = kill_process(pid, signal);
        }
        !below.is_empty()
    }

    /// Kills everything below it. It adopts what loses its parent, so that it is the last to go, and starts nothing meanwhile.
    fn kill_below(&self) {
        let begun = Instant::now();
        if self.signal_below(Signal::STOP) {
            let _ = self.signal(Signal::STOP);
        }
        while self.signal_below(Signal::KILL) && begun.elapsed() < DEATH_PATIENCE {
            sleep(LOOK_INTERVAL);
        }
    }

    /// How it died, in one line; `None` while it lives.
    pub(super) fn death(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(format!("{} {}{}", self.name, describe(status), self.last_word()))
    }

    /// The last line of its log that says something, as the end of a message.
    pub(super) fn last_word(&self) -> String {
        last_word(&self.log)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill_below();
        // An error means that the process is gone already, which is what is wanted.
        if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

pub(super) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".into(),
    }
}

/// The last line of a log that says something, as the end of a message; empty where there is none.
pub(super) fn last_word(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let tail = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(LAST_WORD_BYTES_MAX)..]);
    let line = tail.lines().rev().map(str::trim).find(|line| !line.is_empty());
    line.map_or_else(String::new, |line| format!("; its last log line: {}", line.chars().take(300).collect::<String>()))
}
