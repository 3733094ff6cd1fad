//! One trial of one arm: start the store (or reuse it), let it idle, load it, weigh it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bench_jobs::measure::meter::Meter;
use storebench_core::durability::hold_against_the_disk;
use storebench_core::record::{FailureCause, LeftBehind, TrialFailure, TrialRecord, Usage};
use storebench_core::trial::{Loaded, job, needs_fault_proxy};
use storebench_core::validate::{ValidatedArm, ValidatedRun};
use storebench_crds::Workload;
use storebench_crds::benchmark_run::Isolation;
use storebench_crds::status::TrialState;
use storebench_crds::storage_service::Footprint;
use storebench_crds::workload::FaultKind;

use super::deployed::{Deployed, Started};
use super::peers::Binaries;
use super::progress::Progress;
use super::service::{Between, NeverReady, Service};
use super::{interrupt, load, restore};

/// How long a store is watched before it is loaded.
const IDLE_SPAN: Duration = Duration::from_millis(300);

/// A trial that came to its end, and what it showed of its arm.
pub(super) struct Ran {
    pub(super) trial: TrialRecord,
    /// The store's command line; empty where it was there already.
    pub(super) command: Vec<String>,
    /// The version that a store which was there already told the load.
    pub(super) version: Option<String>,
}

/// Where trials of one run take place.
pub(super) struct Stage<'a> {
    run: &'a ValidatedRun,
    directory: PathBuf,
    run_started: Instant,
    /// How long a load may take, as in a cluster from its beginning: stores and control planes have a patience of their own.
    timeout: Duration,
    /// Stores that live as long as the run, by arm; empty where every trial gets a new one.
    shared: BTreeMap<String, Deployed>,
    /// What loads could not remove from stores that were there already.
    pub(super) left_behind: Vec<LeftBehind>,
}

impl<'a> Stage<'a> {
    pub(super) fn new(run: &'a ValidatedRun, directory: &Path, run_started: Instant) -> Self {
        let timeout = run.spec.trials.timeout.duration();
        Self {
            run,
            directory: directory.to_path_buf(),
            run_started,
            timeout,
            shared: BTreeMap::new(),
            left_behind: Vec::new(),
        }
    }

    /// Runs a trial. `None` where a signal asked for the end.
    pub(super) fn run(
        &mut self,
        arm: &ValidatedArm,
        binaries: &Binaries,
        index: u32,
        progress: &Progress,
    ) -> anyhow::Result<Option<Ran>> {
        let begun = Instant::now();
        let mut trial = TrialRecord {
            index,
            arm: arm.name.clone(),
            state: TrialState::Valid,
            failure: None,
            started_millis: begun.duration_since(self.run_started).as_millis() as u64,
            duration_millis: 0,
            waited_millis: None,
            nodes: Default::default(),
            workloads: Vec::new(),
            footprint: None,
            idle: None,
            disk_bytes: None,
        };
        let (mut command, mut version) = (Vec::new(), None);
        match self.deployed(arm, binaries, index)? {
            Err(NeverReady(detail)) => {
                trial.failure = Some(TrialFailure { cause: FailureCause::StoreFailed, detail });
            }
            Ok(mut deployed) => {
                let idle = deployed.started().map(|started| {
                    command.clone_from(&started.store.command);
                    watch_idle(&started.store)
                });
                let Some(mut loaded) = self.load(arm, binaries, &mut deployed, index, progress)? else {
                    return Ok(None);
                };
                hold_against_the_disk(&mut loaded, arm, &self.run.spec.workloads);
                if let (Some(idle), Some(started)) = (idle, deployed.started()) {
                    let idle_rss_bytes = idle.rss_average_bytes;
                    trial.footprint = Some(Footprint { idle_rss_bytes, ..started.store.footprint });
                    trial.idle = Some(idle);
                    trial.disk_bytes = started.store.disk_bytes();
                }
                version = loaded.store.and_then(|store| store.version);
                trial.workloads = loaded.workloads;
                trial.failure = loaded.failure;
                if self.run.spec.isolation == Isolation::Shared {
                    self.shared.insert(arm.name.clone(), deployed);
                }
            }
        }
        if interrupt::requested() {
            return Ok(None);
        }
        if trial.failure.is_some() {
            trial.state = TrialState::Invalid;
        }
        trial.duration_millis = begun.elapsed().as_millis() as u64;
        Ok(Some(Ran { trial, command, version }))
    }

    fn deployed(
        &mut self,
        arm: &ValidatedArm,
        binaries: &Binaries,
        index: u32,
    ) -> anyhow::Result<Result<Deployed, NeverReady>> {
        if let Some(deployed) = self.shared.remove(&arm.name) {
            return Ok(Ok(deployed));
        }
        let directory = self.directory.join(format!("{}-{index}", arm.name));
        std::fs::create_dir_all(&directory).with_context(|| format!("{}: cannot be created", directory.display()))?;
        let cuts = |workload: &Workload| workload.fault().is_some_and(|fault| fault.kind == FaultKind::Partition);
        let between =
            Between { fault_proxy: needs_fault_proxy(self.run), relay: self.run.spec.workloads.iter().any(cuts) };
        Deployed::start(arm, binaries, &directory, between)
    }

    fn load(
        &mut self,
        arm: &ValidatedArm,
        binaries: &Binaries,
        deployed: &mut Deployed,
        index: u32,
        progress: &Progress,
    ) -> anyhow::Result<Option<Loaded>> {
        let mut job = job(self.run, &arm.name, index, deployed.endpoints());
        if let Some(Started { control_plane, store }) = deployed.started() {
            job.kubeconfig = control_plane.as_ref().map(|plane| plane.kubeconfig().to_owned());
            job.sync_counters = store.sync_counters();
            job.shared_directory = store.shared_directory().map(|path| path.display().to_string());
            job.companions = store.companions();
            job.restore_tool = restore::tool(self.run, arm, binaries, &job.companions);
            job.fault_proxy = store.fault_proxy();
        }
        job.strikes_members = job.workloads.iter().any(|workload| workload.strike().is_some());
        let directory = self.directory.join(format!("{}-{index}-job", arm.name));
        std::fs::create_dir_all(&directory).with_context(|| format!("{}: cannot be created", directory.display()))?;
        let deadline = Instant::now() + self.timeout;
        load::load(&job, deployed, &directory, deadline, progress, &mut self.left_behind)
    }
}

fn watch_idle(store: &Service) -> Usage {
    let meter = Meter::start(&store.processes());
    std::thread::sleep(IDLE_SPAN);
    meter.finish()
}
