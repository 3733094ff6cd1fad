//! The process `bench-job` of one trial: from its job in a file to its summary. Killed when dropped.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process_group};
use storebench_crds::job::{JobSpec, JobSummary};

use super::guard;
use super::process::{describe, last_word};

/// Lines that wait to be read; a load process writes a few each second.
const LINES_MAX: usize = 1024;

/// A load process.
pub(super) struct LoadProcess {
    child: Child,
    log: PathBuf,
    summary: PathBuf,
}

impl LoadProcess {
    /// Starts one, with its files in a directory that is there.
    pub(super) fn start(job: &JobSpec, directory: &Path) -> anyhow::Result<Self> {
        let [file, summary, log] = ["job.json", "summary.json", "bench-job.log"].map(|name| directory.join(name));
        std::fs::write(&file, serde_json::to_vec(job)?).context("the job file cannot be written")?;
        let errors = File::create(&log).with_context(|| format!("{}: cannot be created", log.display()))?;
        let child = guard::command(&guard::own_executable()?)?
            .arg("bench-job")
            .arg("--job")
            .arg(&file)
            .arg("--termination-message")
            .arg(&summary)
            .stdin(if job.strikes_members { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .context("the load process cannot be started")?;
        Ok(Self { child, log, summary })
    }

    /// Its standard output, line by line, until it ends.
    pub(super) fn lines(&mut self) -> anyhow::Result<Receiver<std::io::Result<String>>> {
        let output = self.child.stdout.take().context("the load process has no standard output")?;
        let (sender, receiver) = sync_channel(LINES_MAX);
        std::thread::Builder::new().name("job-lines".into()).spawn(move || {
            for line in BufReader::new(output).lines() {
                if sender.send(line).is_err() {
                    return;
                }
            }
        })?;
        Ok(receiver)
    }

    /// Where it hears what was done of what it asked for; absent where it may ask for nothing.
    pub(super) fn answers(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Waits for its end. The inner error says how it ended where it left no summary.
    pub(super) fn summary(&mut self) -> anyhow::Result<Result<JobSummary, String>> {
        let status = self.child.wait().context("the load process cannot be waited for")?;
        let summary = std::fs::read(&self.summary).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let without = || format!("the load process {} without a summary{}", describe(status), last_word(&self.log));
        Ok(summary.ok_or_else(without))
    }
}

impl Drop for LoadProcess {
    fn drop(&mut self) {
        // Errors mean that it has ended and was waited for.
        if let (Ok(None), Some(group)) = (self.child.try_wait(), Pid::from_raw(self.child.id().cast_signed())) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}
