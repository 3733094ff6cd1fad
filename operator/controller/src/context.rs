//! What all reconciliations share.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use kube::runtime::events::Recorder;
use kube::{Client, ResourceExt as _};
use storebench_core::archive::TrialFile;
use storebench_crds::{BenchmarkRun, BenchmarkRunStatus};

use crate::lock::lock;
use crate::queue::Queue;
use crate::settings::Settings;
use crate::signature::Signer;
use crate::telemetry::Metrics;

/// What all reconciliations share.
pub struct Context {
    /// The way to the API server.
    pub client: Client,
    /// What the operator was told when it started.
    pub settings: Settings,
    /// Tells this build of the operator from every other.
    pub build: String,
    /// Signs what was measured.
    pub signer: Signer,
    /// Writes events.
    pub recorder: Recorder,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Who may run.
    pub queue: Queue,
    /// Statuses that were written and may not have come back through the watch.
    pub statuses: Statuses,
    /// Trials that were read once.
    pub archive: Archive,
    /// How often in a row each object has failed.
    pub failures: Failures,
}

/// Trials' files by run and name. They never change once written.
#[derive(Debug, Default)]
pub struct Archive(Mutex<HashMap<String, BTreeMap<String, Filed>>>);

/// A trial as it is on file.
#[derive(Clone, Debug)]
pub struct Filed {
    /// What is in it.
    pub file: Arc<TrialFile>,
    /// The hash of its ConfigMap.
    pub hash: String,
}

impl Archive {
    /// A file that was read before.
    pub fn get(&self, run_uid: &str, name: &str) -> Option<Filed> {
        lock(&self.0).get(run_uid)?.get(name).cloned()
    }

    /// Remembers a file.
    pub fn put(&self, run_uid: &str, name: &str, file: Filed) {
        lock(&self.0).entry(run_uid.into()).or_default().insert(name.into(), file);
    }

    /// A file that was read before and is not among these.
    pub fn missing(&self, run_uid: &str, names: &[String]) -> Option<String> {
        lock(&self.0).get(run_uid)?.keys().find(|name| !names.contains(name)).cloned()
    }

    /// Forgets the files of a run that is over.
    pub fn forget(&self, run_uid: &str) {
        lock(&self.0).remove(run_uid);
    }
}

/// The latest status of runs that go on. The operator is the only one who writes it, so what it wrote last is true even
/// before the watch has seen it.
#[derive(Debug, Default)]
pub struct Statuses(Mutex<HashMap<String, BenchmarkRunStatus>>);

impl Statuses {
    /// What was written last, or else what the watch has seen.
    pub fn latest(&self, run: &BenchmarkRun) -> BenchmarkRunStatus {
        let seen = run.status.clone().unwrap_or_default();
        let mut statuses = lock(&self.0);
        let uid = run.uid().unwrap_or_default();
        if statuses.get(&uid) == Some(&seen) {
            statuses.remove(&uid);
        }
        statuses.get(&uid).cloned().unwrap_or(seen)
    }

    /// A status was written.
    pub fn wrote(&self, run: &BenchmarkRun, status: BenchmarkRunStatus) {
        lock(&self.0).insert(run.uid().unwrap_or_default(), status);
    }

    /// The run is gone.
    pub fn forget(&self, run_uid: &str) {
        lock(&self.0).remove(run_uid);
    }
}

/// Failures in a row, by object.
#[derive(Debug, Default)]
pub struct Failures(Mutex<HashMap<String, u32>>);

impl Failures {
    /// One more; returns how many in a row.
    pub fn add(&self, object: &str) -> u32 {
        let mut failures = lock(&self.0);
        let count = failures.entry(object.into()).or_default();
        *count = count.saturating_add(1);
        *count
    }

    /// How many in a row so far.
    pub fn count(&self, object: &str) -> u32 {
        lock(&self.0).get(object).copied().unwrap_or_default()
    }

    /// A success.
    pub fn clear(&self, object: &str) {
        lock(&self.0).remove(object);
    }
}
