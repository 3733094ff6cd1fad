//! Loads what is deployed with one job, to its end: follows the load process, has members struck where it asks for that, notices what dies, and
//! says what the trial measured or why it does not count.

use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use bench_jobs::measure::foreign::Served;
use storebench_core::record::{FailureCause, LeftBehind, TrialFailure};
use storebench_core::trial::{Loaded, timed_out};
use storebench_crds::job::{JobLine, JobOutcome, JobSpec};
use storebench_crds::workload::FaultKind;

use super::deployed::Deployed;
use super::disturbance::{disturbance, with_who_was_busy};
use super::follower::{Followed, Follower};
use super::interrupt;
use super::load_process::LoadProcess;
use super::progress::Progress;
use super::striker::Striker;

/// Between two samples of what the store uses.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
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
    let mut process = LoadProcess::start(job, directory)?;
    let lines = process.lines()?;
    // Anew for each trial: its owner may have started it again.
    let served = match deployed {
        Deployed::Started(_) => Served::default(),
        Deployed::External(endpoints) => Served::at(endpoints),
    };
    let mut striker = Striker::new(process.answers());
    let mut follower = Follower::new(deployed, served.ids(), progress);
    let mut deadline = deadline;
    let mut death = None;
    loop {
        let mut unable = None;
        match striker.releases(deployed) {
            Ok(true) => follower.sees_again(deployed.started()),
            Ok(false) => {}
            Err(error) => unable = Some(error),
        }
        match lines.recv_timeout(striker.patience(SAMPLE_INTERVAL)) {
            Ok(line) => {
                if let Some(JobLine::Strike { workload, endpoint, kind, duration_millis }) = follower.line(&line?)? {
                    if matches!(kind, FaultKind::Kill | FaultKind::SlowDisk) {
                        follower.loses_sight();
                    }
                    let of_workload = job.workloads.iter().find(|one| one.name == workload);
                    let delay = of_workload.and_then(|one| one.fault()?.sync_delay);
                    let delay = delay.map(|delay| delay.duration()).unwrap_or_default();
                    let duration = Duration::from_millis(duration_millis);
                    unable = unable.or(striker.strike(deployed, &endpoint, kind, duration, delay).err());
                }
            }
            Err(RecvTimeoutError::Timeout) => follower.sample(),
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let stays = || follower.gathered().left_behind(&job.arm);
        if interrupt::requested() {
            left_behind.extend(stays());
            return Ok(None);
        }
        if let Some(error) = unable {
            left_behind.extend(stays());
            return Ok(Some(without_its_fault(&error, deployed)));
        }
        if death.is_none()
            && let Some(description) = deployed.death()
        {
            death = Some(description);
            deadline = deadline.min(Instant::now() + LAST_WORDS_TIMEOUT);
        }
        if Instant::now() > deadline {
            left_behind.extend(stays());
            let died = |detail| TrialFailure { cause: FailureCause::StoreFailed, detail };
            return Ok(Some(death.map_or_else(timed_out, died).into()));
        }
    }
    let summary = process.summary()?;
    left_behind.extend(follower.gathered().left_behind(&job.arm));
    if interrupt::requested() {
        return Ok(None);
    }
    let summary = match summary {
        Ok(summary) => summary,
        Err(detail) => return Ok(Some(Loaded::failed(FailureCause::Platform, detail))),
    };
    let failed_store = matches!(summary.outcome, JobOutcome::StoreFailed { .. });
    let patience = if failed_store { OBITUARY_TIMEOUT } else { Duration::ZERO };
    let death = death.or_else(|| deployed.death_within(patience));
    let Followed { gathering, others, steps } = follower.finish();
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
