//! One load process: starts `bench-job`, follows its lines, measures the store between its phases, has members struck where it asks for
//! that ([`Striker`]), reads its summary.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bench_jobs::measure::foreign::{Served, Survey, Used};
use bench_jobs::measure::meter::Meter;
use rustix::process::{Pid, Signal, kill_process_group};
use storebench_core::record::{ControlPlaneUsage, FailureCause, LeftBehind, TrialFailure, WorkloadMeasurement};
use storebench_core::trial::{Gathering, Loaded};
use storebench_crds::Workload;
use storebench_crds::job::{JobLine, JobOutcome, JobSpec, JobSummary, LoadStep, Phase};
use storebench_crds::workload::sqlite_replication::Outage;
use storebench_crds::workload::{FaultKind, Parameters};

use super::deployed::{Deployed, Started};
use super::process::{describe, last_word};
use super::progress::Progress;
use super::steps::Steps;
use super::striker::Striker;
use super::{guard, interrupt};

/// Between two samples of what the store uses.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// Lines that wait to be read; a load process writes a few each second.
const LINES_MAX: usize = 1024;
/// How long a load process may go on after its store died: long enough to write its summary.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(15);
/// How long after a broken connection the store's death may take to be seen: "killed" explains more than "broken pipe".
const OBITUARY_TIMEOUT: Duration = Duration::from_secs(1);

/// Loads a store to the end of the job, or until the deadline. `None` where a signal asked for the end. What stays in a store that was there
/// already goes to `left_behind`.
pub(super) fn load(
    job: &JobSpec,
    deployed: &mut Deployed,
    directory: &Path,
    deadline: Instant,
    progress: &Progress,
    left_behind: &mut Vec<LeftBehind>,
) -> anyhow::Result<Option<Loaded>> {
    let job_file = directory.join("job.json");
    let summary_file = directory.join("summary.json");
    std::fs::write(&job_file, serde_json::to_vec(job)?).context("the job file cannot be written")?;
    let log = directory.join("bench-job.log");
    let errors = File::create(&log).with_context(|| format!("{}: cannot be created", log.display()))?;
    let child = guard::command(&guard::own_executable()?)?
        .arg("bench-job")
        .arg("--job")
        .arg(&job_file)
        .arg("--termination-message")
        .arg(&summary_file)
        .stdin(if job.strikes_members { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn()
        .context("the load process cannot be started")?;
    let mut process = LoadProcess { child };
    let lines = process.lines()?;
    // Anew for each trial: its owner may have started it again.
    let served = match deployed {
        Deployed::Started(_) => Served::default(),
        Deployed::External(endpoints) => Served::at(endpoints),
    };
    let mut striker = Striker::new(process.child.stdin.take());
    let mut follower = Follower {
        // The meters of what is killed would run backwards.
        processes: deployed
            .started()
            .filter(|_| job.workloads.iter().all(|workload| kill_of(workload).is_none()))
            .map(Processes::of),
        store: served.ids(),
        gathering: Gathering::default(),
        measuring: None,
        others: Vec::new(),
        steps: Steps::default(),
        measured_step: None,
        progress,
    };
    let mut kill = None;
    let mut deadline = deadline;
    let mut death = None;
    loop {
        let mut unable = None;
        match striker.releases(deployed) {
            // Its process is another one.
            Ok(true) => follower.processes = deployed.started().map(Processes::of),
            Ok(false) => {}
            Err(error) => unable = Some(error),
        }
        let patience = kill.as_ref().map_or(SAMPLE_INTERVAL, Kill::patience);
        match lines.recv_timeout(striker.patience(patience)) {
            Ok(line) => match follower.line(&line?)? {
                Some(JobLine::Phase { workload, phase: Phase::Measure }) => {
                    kill = kill_in(&job.workloads, &workload).map(Kill::begin).or(kill);
                }
                Some(JobLine::Strike { workload, endpoint, kind, duration_millis }) => {
                    if matches!(kind, FaultKind::Kill | FaultKind::SlowDisk) {
                        follower.loses_sight();
                    }
                    let of_workload = job.workloads.iter().find(|one| one.name == workload);
                    let delay = of_workload.and_then(|one| one.fault()?.sync_delay);
                    let delay = delay.map(|delay| delay.duration()).unwrap_or_default();
                    let duration = Duration::from_millis(duration_millis);
                    unable = unable.or(striker.strike(deployed, &endpoint, kind, duration, delay).err());
                }
                _ => {}
            },
            Err(RecvTimeoutError::Timeout) => follower.sample(),
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if interrupt::requested() {
            left_behind.extend(follower.gathering.left_behind(&job.arm));
            return Ok(None);
        }
        if let Some(kill) = &mut kill {
            unable = unable.or(kill.go_on(deployed).err());
        }
        if let Some(error) = unable {
            left_behind.extend(follower.gathering.left_behind(&job.arm));
            return Ok(Some(without_its_fault(&error, deployed)));
        }
        if death.is_none()
            && let Some(description) = deployed.death()
        {
            death = Some(description);
            deadline = deadline.min(Instant::now() + LAST_WORDS_TIMEOUT);
        }
        if Instant::now() > deadline {
            left_behind.extend(follower.gathering.left_behind(&job.arm));
            let detail = death.unwrap_or_else(|| "did not finish within spec.trials.timeout".into());
            return Ok(Some(Loaded::failed(FailureCause::StoreFailed, detail)));
        }
    }
    let status = process.child.wait().context("the load process cannot be waited for")?;
    let summary = std::fs::read(&summary_file).ok().and_then(|bytes| serde_json::from_slice::<JobSummary>(&bytes).ok());
    left_behind.extend(follower.gathering.left_behind(&job.arm));
    if interrupt::requested() {
        return Ok(None);
    }
    let Some(summary) = summary else {
        let last = last_word(&log);
        let detail = format!("the load process {} without a summary{last}", describe(status));
        return Ok(Some(Loaded::failed(FailureCause::Platform, detail)));
    };
    let failed_store = matches!(summary.outcome, JobOutcome::StoreFailed { .. });
    let patience = if failed_store { OBITUARY_TIMEOUT } else { Duration::ZERO };
    let death = death.or_else(|| deployed.death_within(patience));
    let (gathering, others, steps) = follower.finish();
    let mut loaded = gathering.finish(summary);
    if deployed.started().is_none() {
        // What the store used there is not in them.
        loaded.workloads.iter_mut().for_each(|workload| workload.machines.clear());
    }
    if !served.unseen.is_empty() {
        // It is on this machine, and cannot be told from others there; the record says so.
        return Ok(Some(loaded));
    }
    for workload in &mut loaded.workloads {
        let found = others.iter().find(|(name, _)| *name == workload.summary.name);
        workload.foreign_millicores = found.map(|(_, used)| used.millicores());
        // The load process, which alone speaks of the machine, does not see the rest of what the trial used there.
        let of_control_plane = workload.control_plane.map(|used| used.api_server.cpu_nanos + used.others.cpu_nanos);
        let unseen_nanos = workload.usage.map_or(0, |used| used.cpu_nanos) + of_control_plane.unwrap_or_default();
        workload.machines.iter_mut().for_each(|machine| machine.own_nanos += unseen_nanos);
    }
    if let Some(detail) = death {
        loaded.ended_by(TrialFailure { cause: FailureCause::StoreFailed, detail });
    }
    let disturbed_search = || steps.disturbance().map(|detail| TrialFailure { cause: FailureCause::Disturbed, detail });
    loaded.failure = match loaded.failure {
        None => disturbance(&loaded.workloads, &others).or_else(disturbed_search),
        // Even the lowest rate missed, but somebody else was busy meanwhile.
        Some(failure) if failure.cause == FailureCause::OutOfReach => disturbed_search().or(Some(failure)),
        Some(failure) if failure.cause == FailureCause::Disturbed => Some(with_who_was_busy(failure, &others)),
        failure => failure,
    };
    Ok(Some(loaded))
}

/// A trial with a fault that could not be done, or undone: mostly because the store died meanwhile.
fn without_its_fault(error: &anyhow::Error, deployed: &mut Deployed) -> Loaded {
    match deployed.death_within(OBITUARY_TIMEOUT) {
        Some(death) => Loaded::failed(FailureCause::StoreFailed, death),
        None => Loaded::failed(FailureCause::Platform, format!("{error:#}")),
    }
}

/// What others used during the measured phase of each workload, by its name.
type Others = [(String, Used)];

/// A measurement during which processes that are neither store nor loader took a large part of the machine: they take it
/// from the arms in unequal parts. What the store makes others do for it is not theirs; see [`Used`].
fn disturbance(workloads: &[WorkloadMeasurement], others: &Others) -> Option<TrialFailure> {
    let (name, used) = others
        .iter()
        .find(|(name, used)| workloads.iter().any(|one| one.summary.name == *name) && used.is_disturbing())?;
    let detail = format!("{name}: other processes used {used} during the measurement: stop them");
    Some(TrialFailure { cause: FailureCause::Disturbed, detail })
}

/// A loader that was hindered says how, but not by whom.
fn with_who_was_busy(failure: TrialFailure, others: &Others) -> TrialFailure {
    match others.iter().rev().find(|(_, used)| used.is_disturbing()) {
        Some((_, used)) => {
            let detail = format!("{}; meanwhile other processes used {used}: stop them", failure.detail);
            TrialFailure { detail, ..failure }
        }
        None => failure,
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

/// The outage of a workload that kills its store, if it asks for one.
fn kill_of(workload: &Workload) -> Option<&Outage> {
    match &workload.parameters {
        Parameters::SqliteReplication(replication) => replication.outage_of_replicator(),
        _ => None,
    }
}

/// The same of the workload whose measured phase begins; others of the job are left alone.
fn kill_in<'a>(workloads: &'a [Workload], name: &str) -> Option<&'a Outage> {
    workloads.iter().find(|workload| workload.name == name).and_then(kill_of)
}

/// Kills the store within the measured phase, and starts it again.
#[derive(Debug)]
struct Kill {
    at: Instant,
    until: Instant,
    state: Killing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Killing {
    Before,
    Dead,
    Over,
}

impl Kill {
    /// The measured phase begins now.
    fn begin(outage: &Outage) -> Self {
        let at = Instant::now() + outage.after.duration();
        Self { at, until: at + outage.duration.duration(), state: Killing::Before }
    }

    /// How long nothing is to be done, at most.
    fn patience(&self) -> Duration {
        let next = match self.state {
            Killing::Before => self.at,
            Killing::Dead => self.until,
            Killing::Over => return SAMPLE_INTERVAL,
        };
        next.saturating_duration_since(Instant::now()).min(SAMPLE_INTERVAL)
    }

    fn go_on(&mut self, deployed: &mut Deployed) -> anyhow::Result<()> {
        let now = Instant::now();
        if self.state == Killing::Before && now >= self.at {
            // One that has died by itself is no outage of ours: that is noticed as ever.
            if deployed.death().is_none() {
                deployed.store()?.kill_store();
                self.state = Killing::Dead;
            }
        } else if self.state == Killing::Dead && now >= self.until {
            deployed.store()?.start_again()?;
            self.state = Killing::Over;
        }
        Ok(())
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
    fn of(started: &Started) -> Self {
        let control_plane = started.control_plane.as_ref();
        Self {
            store: started.store.processes(),
            data: started.store.data(),
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

/// A workload in its measured phase.
struct Measuring {
    workload: String,
    /// Absent where a member was killed: what it used is no longer known, nor what another process of it uses part of. Or where it was traced.
    meters: Option<Meters>,
    survey: Survey,
}

/// Turns lines into measurements.
struct Follower<'a> {
    processes: Option<Processes>,
    /// Processes of a store that was there already, on this machine: what they use is not foreign.
    store: BTreeSet<i32>,
    gathering: Gathering,
    measuring: Option<Measuring>,
    others: Vec<(String, Used)>,
    /// What others used while rates were tried.
    steps: Steps,
    /// What became of the rate that was measured in the phase that is about to end.
    measured_step: Option<LoadStep>,
    progress: &'a Progress,
}

impl Follower<'_> {
    /// Takes a line, and returns what it says.
    fn line(&mut self, line: &str) -> anyhow::Result<Option<JobLine>> {
        let line = self.gathering.line(line)?;
        match &line {
            Some(JobLine::Phase { workload, phase }) => self.phase(workload, *phase),
            Some(JobLine::Progress { workload, operations, recent_per_second, recent_p99_nanos_max, .. }) => {
                self.progress.workload_goes_on(workload, *recent_per_second, *recent_p99_nanos_max, *operations);
            }
            Some(JobLine::LoadStepBegins { .. }) => self.steps.begin(&self.store),
            Some(JobLine::LoadStep { workload, step }) => {
                self.progress.rate_tried(workload, step);
                match step.is_measured {
                    true => self.measured_step = Some(step.clone()),
                    false => self.steps.tried(workload, step),
                }
            }
            _ => {}
        }
        Ok(line)
    }

    /// A member is about to be killed, or to be traced, which costs it what is not its own.
    fn loses_sight(&mut self) {
        if let Some(measuring) = &mut self.measuring {
            measuring.meters = None;
        }
    }

    fn phase(&mut self, workload: &str, phase: Phase) {
        self.measured();
        self.steps.end();
        if phase == Phase::Measure {
            // The survey around the meters: reading all processes takes longer than reading the store's.
            let survey = Survey::begin(&self.store);
            let meters = self.processes.as_ref().map(Processes::measure);
            self.measuring = Some(Measuring { workload: workload.into(), meters, survey });
        }
        self.progress.phase_begins(workload, phase);
    }

    fn sample(&mut self) {
        self.steps.sample();
        if let Some(measuring) = &mut self.measuring {
            measuring.meters.iter_mut().for_each(Meters::sample);
            measuring.survey.sample();
        }
    }

    /// The measured phase is over, if there was one.
    fn measured(&mut self) {
        if let Some(Measuring { workload, meters, survey }) = self.measuring.take() {
            if let Some(meters) = meters {
                meters.finish(&workload, &mut self.gathering);
            }
            // Where a rate was found to miss its target, the workload is measured again at a lower one.
            self.others.retain(|(measured, _)| *measured != workload);
            let used = survey.finish();
            if let Some(step) = self.measured_step.take() {
                self.steps.came(&workload, &step, used.clone());
            }
            self.others.push((workload, used));
        }
    }

    fn finish(mut self) -> (Gathering, Vec<(String, Used)>, Steps) {
        // A loader that was hindered ends within the measured phase.
        self.measured();
        (self.gathering, self.others, self.steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replicator_is_killed_in_the_workload_that_asks_for_it_and_in_no_other() {
        let workloads: Vec<Workload> = serde_json::from_value(serde_json::json!([
            { "name": "write", "sqliteReplication": { "operation": "Write" }, "load": { "duration": "9s" } },
            {
                "name": "outage",
                "sqliteReplication": {
                    "operation": "Outage",
                    "outage": { "kind": "Kill", "after": "1s", "duration": "2s" },
                },
                "load": { "duration": "9s" },
            },
        ]))
        .unwrap();
        assert!(kill_in(&workloads, "write").is_none());
        assert!(kill_in(&workloads, "outage").is_some());
    }
}
