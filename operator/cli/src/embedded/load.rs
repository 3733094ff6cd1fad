//! One load process: starts `bench-job`, follows its lines, measures the store between its phases, reads its summary.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process_group};
use storebench_core::record::{EncodedHistogram, FailureCause, TrialFailure, Usage, WorkloadMeasurement};
use storebench_crds::job::{Hindrance, JobLine, JobOutcome, JobSpec, JobSummary, LoaderAudit, Phase, decode_histogram};

use super::progress::Progress;
use super::service::{Service, describe, last_word};
use super::usage::Meter;
use super::{guard, interrupt};

/// Between two samples of what the store uses.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// Lines that wait to be read; a load process writes a few each second.
const LINES_MAX: usize = 1024;
/// How long a load process may go on after its store died: long enough to write its summary.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(15);
/// How long after a broken connection the store's death may take to be seen: "killed" explains more than "broken pipe".
const OBITUARY_TIMEOUT: Duration = Duration::from_secs(1);

/// Processor time of processes that are neither store nor loader, thousandths of a core for each core of the machine, from
/// which on a measurement is disturbed. On a quiet machine the figure is 0 ± 0.1 core in all (docs/accuracy.md).
const FOREIGN_MILLICORES_PER_CORE_MAX: u64 = 200;

/// What a load process measured, and why it does not count, if it does not.
pub(super) struct Loaded {
    pub(super) workloads: Vec<WorkloadMeasurement>,
    pub(super) failure: Option<TrialFailure>,
}

/// What came in for one workload besides its summary.
#[derive(Default)]
struct Gathered {
    name: String,
    histograms: Vec<EncodedHistogram>,
    audit: Option<LoaderAudit>,
    usage: Option<Usage>,
}

/// Loads a store to the end of the job, or until the deadline. `None` where a signal asked for the end.
pub(super) fn load(
    job: &JobSpec,
    service: &mut Service,
    directory: &Path,
    deadline: Instant,
    progress: &Progress,
) -> anyhow::Result<Option<Loaded>> {
    let job_file = directory.join("job.json");
    let summary_file = directory.join("summary.json");
    std::fs::write(&job_file, serde_json::to_vec(job)?).context("the job file cannot be written")?;
    let log = directory.join("bench-job.log");
    let errors = File::create(&log).with_context(|| format!("{}: cannot be created", log.display()))?;
    let child = guard::command(&std::env::current_exe()?)?
        .arg("bench-job")
        .arg("--job")
        .arg(&job_file)
        .arg("--termination-message")
        .arg(&summary_file)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn()
        .context("the load process cannot be started")?;
    let mut process = LoadProcess { child };
    let lines = process.lines()?;
    let mut follower = Follower { processes: service.processes(), gathered: Vec::new(), meter: None, progress };
    let mut deadline = deadline;
    let mut death = None;
    loop {
        match lines.recv_timeout(SAMPLE_INTERVAL) {
            Ok(line) => follower.line(&line?)?,
            Err(RecvTimeoutError::Timeout) => follower.sample(),
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if interrupt::requested() {
            return Ok(None);
        }
        if death.is_none()
            && let Some(description) = service.death()
        {
            death = Some(description);
            deadline = deadline.min(Instant::now() + LAST_WORDS_TIMEOUT);
        }
        if Instant::now() > deadline {
            let detail = death.unwrap_or_else(|| "did not finish within spec.trials.timeout".into());
            return Ok(Some(failed(FailureCause::StoreFailed, detail)));
        }
    }
    let status = process.child.wait().context("the load process cannot be waited for")?;
    if interrupt::requested() {
        return Ok(None);
    }
    let summary = std::fs::read(&summary_file).ok().and_then(|bytes| serde_json::from_slice::<JobSummary>(&bytes).ok());
    let Some(summary) = summary else {
        let last = last_word(&log);
        let detail = format!("the load process {} without a summary{last}", describe(status));
        return Ok(Some(failed(FailureCause::Platform, detail)));
    };
    let failed_store = matches!(summary.outcome, JobOutcome::StoreFailed { .. });
    let failure =
        match death.or_else(|| service.death_within(if failed_store { OBITUARY_TIMEOUT } else { Duration::ZERO })) {
            Some(detail) => Some(TrialFailure { cause: FailureCause::StoreFailed, detail }),
            None => failure(&summary.outcome),
        };
    let workloads = follower.measurements(summary);
    let failure = failure.or_else(|| disturbance(&workloads));
    Ok(Some(Loaded { workloads, failure }))
}

/// A measurement during which processes that are neither store nor loader took a large part of the machine: they take it
/// from the arms in unequal parts.
fn disturbance(workloads: &[WorkloadMeasurement]) -> Option<TrialFailure> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let most = |foreign: &u64| *foreign > cores * FOREIGN_MILLICORES_PER_CORE_MAX;
    let (name, foreign) = workloads
        .iter()
        .filter_map(|one| Some((&one.summary.name, one.foreign_millicores().filter(most)?)))
        .next()?;
    let used = foreign as f64 / 1_000.0;
    let detail = format!("{name}: other processes used {used:.1} of {cores} cores during the measurement: stop them");
    Some(TrialFailure { cause: FailureCause::Disturbed, detail })
}

fn failed(cause: FailureCause, detail: String) -> Loaded {
    Loaded { workloads: Vec::new(), failure: Some(TrialFailure { cause, detail }) }
}

/// Why a trial with this outcome does not count; `None` where it does.
fn failure(outcome: &JobOutcome) -> Option<TrialFailure> {
    let (cause, detail) = match outcome {
        JobOutcome::Completed => return None,
        JobOutcome::WrongAnswer { workload, count, key, detail } => {
            (FailureCause::WrongAnswer, format!("{workload}: {count} wrong answers, the first for key {key}: {detail}"))
        }
        JobOutcome::StoreFailed { workload, detail } => (FailureCause::StoreFailed, format!("{workload}: {detail}")),
        JobOutcome::Hindered { workload, hindrance, detail } => {
            let cause = if hindrance.is_transient() { FailureCause::Disturbed } else { FailureCause::OutOfReach };
            (cause, format!("{workload}: {}: {detail}", in_words(*hindrance)))
        }
    };
    Some(TrialFailure { cause, detail })
}

fn in_words(hindrance: Hindrance) -> &'static str {
    match hindrance {
        Hindrance::CpuThrottled => "the loader was stopped by a CPU quota",
        Hindrance::RateNotReached => "the rate was not reached",
        Hindrance::ScheduleLag => "the loader sent late",
        Hindrance::ClockStepped => "the clock was stepped",
        Hindrance::ProcessorWithheld => "the loader was kept from the processor",
    }
}

/// The load process; killed when dropped.
struct LoadProcess {
    child: Child,
}

impl LoadProcess {
    /// Its standard output, line by line, until it ends.
    fn lines(&mut self) -> anyhow::Result<Receiver<std::io::Result<String>>> {
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

/// Turns lines into measurements.
struct Follower<'a> {
    processes: Vec<u32>,
    gathered: Vec<Gathered>,
    meter: Option<Meter>,
    progress: &'a Progress,
}

impl Follower<'_> {
    fn line(&mut self, line: &str) -> anyhow::Result<()> {
        match JobLine::decode(line).transpose()? {
            None => {}
            Some(JobLine::Phase { workload, phase }) => self.phase(&workload, phase),
            Some(JobLine::Progress { workload, operations, elapsed_millis, .. }) => {
                self.progress.workload_goes_on(&workload, operations, elapsed_millis);
            }
            Some(JobLine::Histogram { workload, latency, data }) => {
                decode_histogram(&data)?;
                self.of(&workload).histograms.push(EncodedHistogram { latency, data });
            }
            Some(JobLine::Audit { workload, audit }) => self.of(&workload).audit = Some(audit),
        }
        Ok(())
    }

    fn phase(&mut self, workload: &str, phase: Phase) {
        if let Some(meter) = self.meter.take() {
            self.of(workload).usage = Some(meter.finish());
        }
        if phase == Phase::Measure {
            self.meter = Some(Meter::start(&self.processes));
        }
        self.progress.phase_begins(workload, phase);
    }

    fn sample(&mut self) {
        if let Some(meter) = &mut self.meter {
            meter.sample();
        }
    }

    fn of(&mut self, workload: &str) -> &mut Gathered {
        let position = self.gathered.iter().position(|gathered| gathered.name == workload);
        let position = position.unwrap_or_else(|| {
            self.gathered.push(Gathered { name: workload.into(), ..Gathered::default() });
            self.gathered.len() - 1
        });
        &mut self.gathered[position]
    }

    fn measurements(mut self, summary: JobSummary) -> Vec<WorkloadMeasurement> {
        summary
            .workloads
            .into_iter()
            .map(|summary| {
                let gathered = std::mem::take(self.of(&summary.name));
                WorkloadMeasurement {
                    summary,
                    audit: gathered.audit,
                    usage: gathered.usage,
                    histograms: gathered.histograms,
                }
            })
            .collect()
    }
}
