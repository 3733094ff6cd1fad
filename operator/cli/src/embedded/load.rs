//! One load process: starts `bench-job`, follows its lines, measures the store between its phases, reads its summary.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bench_jobs::measure::meter::Meter;
use rustix::process::{Pid, Signal, kill_process_group};
use storebench_core::record::{ControlPlaneUsage, FailureCause, TrialFailure, WorkloadMeasurement};
use storebench_core::trial::{Gathering, Loaded};
use storebench_crds::job::{JobLine, JobOutcome, JobSpec, JobSummary, Phase};

use super::deployed::Deployed;
use super::process::{describe, last_word};
use super::progress::Progress;
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
/// Up to so much processor time is never held against others: it is counted in ticks of 10 ms, of many processes.
const FOREIGN_HARMLESS: Duration = Duration::from_millis(100);

/// Loads a store to the end of the job, or until the deadline. `None` where a signal asked for the end.
pub(super) fn load(
    job: &JobSpec,
    deployed: &mut Deployed,
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
    let mut follower =
        Follower { processes: Processes::of(deployed), gathering: Gathering::default(), meters: None, progress };
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
            && let Some(description) = deployed.death()
        {
            death = Some(description);
            deadline = deadline.min(Instant::now() + LAST_WORDS_TIMEOUT);
        }
        if Instant::now() > deadline {
            let detail = death.unwrap_or_else(|| "did not finish within spec.trials.timeout".into());
            return Ok(Some(Loaded::failed(FailureCause::StoreFailed, detail)));
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
        return Ok(Some(Loaded::failed(FailureCause::Platform, detail)));
    };
    let failed_store = matches!(summary.outcome, JobOutcome::StoreFailed { .. });
    let patience = if failed_store { OBITUARY_TIMEOUT } else { Duration::ZERO };
    let death = death.or_else(|| deployed.death_within(patience));
    let mut loaded = follower.gathering.finish(summary);
    if let Some(detail) = death {
        loaded.failure = Some(TrialFailure { cause: FailureCause::StoreFailed, detail });
    }
    loaded.failure = loaded.failure.or_else(|| disturbance(&loaded.workloads));
    Ok(Some(loaded))
}

/// A measurement during which processes that are neither store nor loader took a large part of the machine: they take it
/// from the arms in unequal parts.
fn disturbance(workloads: &[WorkloadMeasurement]) -> Option<TrialFailure> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let foreign = |one: &WorkloadMeasurement| {
        let (millicores, elapsed_nanos) = (one.foreign_millicores()?, one.usage?.elapsed_nanos);
        let is_much = millicores > cores * FOREIGN_MILLICORES_PER_CORE_MAX
            && u128::from(millicores) * u128::from(elapsed_nanos) / 1_000 > FOREIGN_HARMLESS.as_nanos();
        is_much.then_some(millicores)
    };
    let (name, foreign) = workloads.iter().find_map(|one| Some((&one.summary.name, foreign(one)?)))?;
    let used = foreign as f64 / 1_000.0;
    let detail = format!("{name}: other processes used {used:.1} of {cores} cores during the measurement: stop them");
    Some(TrialFailure { cause: FailureCause::Disturbed, detail })
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

/// Whose use is measured.
struct Processes {
    store: Vec<u32>,
    /// Where the store keeps its data.
    data: PathBuf,
    /// The API server, and the other processes of the control plane.
    control_plane: Option<(u32, Vec<u32>)>,
}

impl Processes {
    fn of(deployed: &Deployed) -> Self {
        let control_plane = deployed.control_plane.as_ref();
        Self {
            store: deployed.store.processes(),
            data: deployed.store.data(),
            control_plane: control_plane.map(|plane| (plane.api_server(), plane.others())),
        }
    }

    fn measure(&self) -> Meters {
        let control_plane = self.control_plane.as_ref();
        Meters {
            store: Meter::of_store(&self.store, &self.data),
            control_plane: control_plane.map(|(server, others)| (Meter::start(&[*server]), Meter::start(others))),
        }
    }
}

/// What is measured of a phase.
struct Meters {
    store: Meter,
    control_plane: Option<(Meter, Meter)>,
}

impl Meters {
    fn sample(&mut self) {
        self.store.sample();
        if let Some((api_server, others)) = &mut self.control_plane {
            api_server.sample();
            others.sample();
        }
    }

    fn finish(self, workload: &str, gathering: &mut Gathering) {
        gathering.usage(workload, self.store.finish());
        if let Some((api_server, others)) = self.control_plane {
            let usage = ControlPlaneUsage { api_server: api_server.finish(), others: others.finish() };
            gathering.control_plane_usage(workload, usage);
        }
    }
}

/// Turns lines into measurements.
struct Follower<'a> {
    processes: Processes,
    gathering: Gathering,
    meters: Option<Meters>,
    progress: &'a Progress,
}

impl Follower<'_> {
    fn line(&mut self, line: &str) -> anyhow::Result<()> {
        match self.gathering.line(line)? {
            Some(JobLine::Phase { workload, phase }) => self.phase(&workload, phase),
            Some(JobLine::Progress { workload, operations, elapsed_millis, .. }) => {
                self.progress.workload_goes_on(&workload, operations, elapsed_millis);
            }
            _ => {}
        }
        Ok(())
    }

    fn phase(&mut self, workload: &str, phase: Phase) {
        if let Some(meters) = self.meters.take() {
            meters.finish(workload, &mut self.gathering);
        }
        if phase == Phase::Measure {
            self.meters = Some(self.processes.measure());
        }
        self.progress.phase_begins(workload, phase);
    }

    fn sample(&mut self) {
        if let Some(meters) = &mut self.meters {
            meters.sample();
        }
    }
}
