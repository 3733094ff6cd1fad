//! Follows what a load process says, line by line: measures between its phases, and turns what it says into measurements.

use std::collections::BTreeSet;

use bench_jobs::measure::foreign::Survey;
use storebench_core::trial::Gathering;
use storebench_crds::job::{JobLine, LoadStep, Phase};

use super::deployed::{Deployed, Started};
use super::disturbance::Others;
use super::progress::Progress;
use super::steps::Steps;
use super::usage::{Meters, Processes, Relaying};

/// A workload in its measured phase.
struct Measuring {
    workload: String,
    /// Absent where a member was killed: what it used is no longer known, nor what another process of it uses part of. Or where it was traced.
    meters: Option<Meters>,
    /// Absent where nothing stands between the load and the store.
    relaying: Option<Relaying>,
    survey: Survey,
}

/// Turns lines into measurements.
pub(super) struct Follower<'a> {
    processes: Option<Processes>,
    /// The thread of ours through which all requests go.
    relay: Option<i32>,
    /// Processes of a store that was there already, on this machine: what they use is not foreign.
    store: BTreeSet<i32>,
    gathering: Gathering,
    measuring: Option<Measuring>,
    others: Others,
    /// What others used while rates were tried.
    steps: Steps,
    /// What became of the rate that was measured in the phase that is about to end.
    measured_step: Option<LoadStep>,
    progress: &'a Progress,
}

/// What was found by whoever followed a load process to its end.
pub(super) struct Followed {
    pub(super) gathering: Gathering,
    pub(super) others: Others,
    pub(super) steps: Steps,
}

impl<'a> Follower<'a> {
    /// Follows the load of what is deployed, of which these processes were there already.
    pub(super) fn new(deployed: &Deployed, store: BTreeSet<i32>, progress: &'a Progress) -> Self {
        let started = deployed.started();
        Self {
            processes: started.map(Processes::of),
            relay: started.and_then(|started| started.store.relay_thread()),
            store,
            gathering: Gathering::default(),
            measuring: None,
            others: Vec::new(),
            steps: Steps::default(),
            measured_step: None,
            progress,
        }
    }

    /// Takes a line, and returns what it says.
    pub(super) fn line(&mut self, line: &str) -> anyhow::Result<Option<JobLine>> {
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
    pub(super) fn loses_sight(&mut self) {
        if let Some(measuring) = &mut self.measuring {
            measuring.meters = None;
        }
    }

    /// A member has another process now.
    pub(super) fn sees_again(&mut self, started: Option<&Started>) {
        self.processes = started.map(Processes::of);
    }

    fn phase(&mut self, workload: &str, phase: Phase) {
        self.measured();
        self.steps.end();
        if phase == Phase::Measure {
            // The survey around the meters: reading all processes takes longer than reading the store's.
            let survey = Survey::begin(&self.store);
            let meters = self.processes.as_ref().map(Processes::measure);
            let relaying = self.relay.map(Relaying::begin);
            self.measuring = Some(Measuring { workload: workload.into(), meters, relaying, survey });
        }
        self.progress.phase_begins(workload, phase);
    }

    /// Nothing was said for a while.
    pub(super) fn sample(&mut self) {
        self.steps.sample();
        if let Some(measuring) = &mut self.measuring {
            measuring.meters.iter_mut().for_each(Meters::sample);
            measuring.survey.sample();
        }
    }

    /// The measured phase is over, if there was one.
    fn measured(&mut self) {
        let Some(Measuring { workload, meters, relaying, survey }) = self.measuring.take() else { return };
        if let Some(relaying) = relaying {
            self.gathering.thread(&workload, relaying.finish());
        }
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

    /// What it wrote so far and may stay; see [`Gathering::left_behind`].
    pub(super) fn gathered(&self) -> &Gathering {
        &self.gathering
    }

    /// The load process has ended.
    pub(super) fn finish(mut self) -> Followed {
        // A loader that was hindered ends within the measured phase.
        self.measured();
        Followed { gathering: self.gathering, others: self.others, steps: self.steps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{TryRecvError, channel};
    use std::time::Duration;

    use storebench_crds::job::{JobOutcome, JobSummary, LoaderAudit, WorkloadSummary};
    use storebench_crds::status::LatencySummary;

    fn audit_beside(relay: Option<i32>) -> LoaderAudit {
        let progress = Progress::hidden();
        let mut follower = Follower::new(&Deployed::External(Vec::new()), BTreeSet::new(), &progress);
        follower.relay = relay;
        let phase = |phase| JobLine::Phase { workload: "cut".into(), phase }.encode();
        follower.line(&phase(Phase::Measure)).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        follower.line(&phase(Phase::Verify)).unwrap();
        follower.line(&JobLine::Audit { workload: "cut".into(), audit: LoaderAudit::default() }.encode()).unwrap();
        let summary = WorkloadSummary {
            name: "cut".into(),
            operations: 1,
            errors: 0,
            elapsed_nanos: 1,
            verified: 0,
            service: LatencySummary::default(),
            intended: None,
        };
        let summary = JobSummary { outcome: JobOutcome::Completed, workloads: vec![summary] };
        follower.finish().gathering.finish(summary).workloads.remove(0).audit.unwrap()
    }

    /// It is in this process, of which the loader's account of itself says nothing.
    #[test]
    fn a_relay_that_has_no_time_left_is_in_the_account_of_the_loader() {
        let (told, thread) = channel();
        let (done, stop) = channel::<()>();
        std::thread::spawn(move || {
            let own = std::fs::read_link("/proc/thread-self").unwrap();
            told.send(own.file_name().unwrap().to_str().unwrap().parse().unwrap()).unwrap();
            while stop.try_recv() == Err(TryRecvError::Empty) {}
        });
        let busy = audit_beside(Some(thread.recv().unwrap()));
        drop(done);
        assert!(busy.is_saturated() && busy.saturated_thread == "relay", "{busy:?}");
        let without = audit_beside(None);
        assert_eq!(without.saturation_basis_points, 0, "nothing stands between");
    }
}
