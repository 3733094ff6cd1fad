//! `bench-job`, run as a driver runs it.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{ChildStderr, ChildStdout, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use harness::{Process, TempDir, command};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use storebench_crds::job::{Hindrance, JobLine, JobOutcome, JobSummary, LoaderAudit, Phase, WorkloadSummary};

/// A running bench-job.
pub struct Job {
    process: Process,
    lines: BufReader<ChildStdout>,
    errors: JoinHandle<String>,
    seen: Vec<JobLine>,
    folder: TempDir,
    /// Dropped when the job is over; until then a watchdog waits for that.
    _running: Sender<()>,
}

/// A bench-job that has ended, having written a summary.
pub struct Ended {
    pub summary: JobSummary,
    pub lines: Vec<JobLine>,
    /// What it wrote for people.
    pub errors: String,
}

impl Job {
    pub fn start(spec: &Value, arguments: &[&str]) -> Self {
        let folder = harness::folder();
        let job = folder.path().join("job.json");
        fs::write(&job, spec.to_string()).unwrap();
        let mut bench_job = command(env!("CARGO_BIN_EXE_bench-job"));
        bench_job
            .arg("--job")
            .arg(&job)
            .arg("--termination-message")
            .arg(folder.path().join("summary.json"))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = Process::start(&mut bench_job);
        let lines = BufReader::new(process.child().stdout.take().unwrap());
        let errors = everything(process.child().stderr.take().unwrap());
        let pid = Pid::from_child(process.child());
        let (running, ended) = channel();
        // A job that hangs is a failure that must not hang the test.
        thread::spawn(move || {
            if ended.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        Self { process, lines, errors, seen: Vec::new(), folder, _running: running }
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    fn next_line(&mut self) -> Option<JobLine> {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        let decoded = JobLine::decode(line.trim_end())?.unwrap();
        self.seen.push(decoded.clone());
        Some(decoded)
    }

    /// Waits until a phase begins.
    pub fn until(&mut self, phase: Phase) {
        while let Some(line) = self.next_line() {
            if matches!(line, JobLine::Phase { phase: found, .. } if found == phase) {
                return;
            }
        }
        panic!("{phase:?} did not begin: {:?}", self.seen);
    }

    /// Waits until it has ended well.
    pub fn end(mut self) -> Ended {
        while self.next_line().is_some() {}
        let status = self.process.wait();
        let errors = self.errors.join().unwrap();
        assert!(status.success(), "bench-job ended with {status}: {errors}");
        let summary = fs::read(self.folder.path().join("summary.json")).unwrap();
        Ended { summary: serde_json::from_slice(&summary).unwrap(), lines: self.seen, errors }
    }

    /// Waits until it has ended by itself, without a summary: what it wrote for people.
    pub fn fail(mut self) -> (ExitStatus, String) {
        while self.next_line().is_some() {}
        let status = self.process.wait();
        assert!(!self.folder.path().join("summary.json").exists());
        (status, self.errors.join().unwrap())
    }
}

/// All that comes, read on a thread of its own.
fn everything(mut errors: ChildStderr) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut text = String::new();
        errors.read_to_string(&mut text).unwrap();
        text
    })
}

impl Ended {
    /// The workload's figures, if nothing was wrong with the store or the load. A busy machine may have hindered the
    /// loader, which a test of answers need not care about.
    pub fn measured(&self) -> &WorkloadSummary {
        match &self.summary.outcome {
            JobOutcome::Completed => {}
            JobOutcome::Hindered { hindrance, .. } if *hindrance != Hindrance::RateNotReached => {}
            other => panic!("{other:?}: {}", self.errors),
        }
        &self.summary.workloads[0]
    }

    pub fn store_failed(&self) -> &str {
        match &self.summary.outcome {
            JobOutcome::StoreFailed { workload, detail } if workload == "w" => {
                assert!(self.summary.workloads.is_empty());
                assert!(!detail.contains('\n') && !detail.is_empty());
                detail
            }
            // Had the machine stood still, it is said so besides.
            JobOutcome::Hindered { hindrance: Hindrance::ProcessorWithheld, detail, .. } => {
                detail.split_once("before it failed: ").map_or_else(|| panic!("{detail}"), |(_, detail)| detail)
            }
            other => panic!("{other:?}"),
        }
    }

    /// The first workload's account of the loader.
    pub fn audit(&self) -> &LoaderAudit {
        let audit = self.lines.iter().find_map(|line| match line {
            JobLine::Audit { audit, .. } => Some(audit),
            _ => None,
        });
        audit.expect("an audit")
    }
}
