//! What the operator says of itself: metrics ([`Metrics`]), and the server that shows them ([`server`]).
//!
//! Names and labels are a promise to dashboards and alerts; `grafana/` is tested against them. Label values are bounded: the
//! results of finished runs are kept for the last [`RUNS_MAX`] of them.

mod results;
pub mod server;

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use kube::runtime::controller::Action;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use storebench_core::conditions::ServiceState;
use storebench_core::gauges;
use storebench_crds::status::{BenchmarkRunStatus, TrialState};

use crate::error::Error;
use crate::lock::lock;
use results::Results;

/// Finished runs whose results are shown.
pub const RUNS_MAX: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reconciled {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InState {
    state: String,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// Every metric of the operator.
pub struct Metrics {
    registry: Registry,
    reconciles: Family<Reconciled, Counter>,
    reconcile_seconds: Histograms<OfKind>,
    status_patches: Family<OfKind, Counter>,
    trials: Family<InState, Counter>,
    trial_seconds: Histogram,
    runs: Family<InState, Gauge>,
    services: Family<InState, Gauge>,
    leader: Gauge,
    service_states: Mutex<HashMap<String, &'static str>>,
    results: Results,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix(gauges::PREFIX);
        let seconds: fn() -> Histogram = || Histogram::new([0.005, 0.02, 0.1, 0.5, 2.0, 10.0]);
        let metrics = Self {
            reconciles: Family::default(),
            reconcile_seconds: Family::new_with_constructor(seconds),
            status_patches: Family::default(),
            trials: Family::default(),
            trial_seconds: Histogram::new([2.0, 5.0, 10.0, 20.0, 60.0, 180.0, 600.0]),
            runs: Family::default(),
            services: Family::default(),
            leader: Gauge::default(),
            service_states: Mutex::default(),
            results: Results::new(&mut registry),
            registry,
        };
        metrics.registered()
    }
}

impl Metrics {
    fn registered(mut self) -> Self {
        let registry = &mut self.registry;
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The version of the operator", build);
        registry.register("reconciles", "Reconciliations by kind and outcome", self.reconciles.clone());
        registry.register_with_unit(
            "reconcile",
            "How long reconciliations take",
            Unit::Seconds,
            self.reconcile_seconds.clone(),
        );
        registry.register("status_patches", "Writes of statuses", self.status_patches.clone());
        registry.register("trials", "Trials of an arm by what became of them", self.trials.clone());
        registry.register_with_unit(
            "trial",
            "How long trials of an arm take, from the load's start",
            Unit::Seconds,
            self.trial_seconds.clone(),
        );
        registry.register("runs", "BenchmarkRuns by state or verdict", self.runs.clone());
        registry.register("services", "StorageServices by state", self.services.clone());
        registry.register("leader", "1 where this replica acts", self.leader.clone());
        // From the start, so that the first failure is an increase, which a rule sees.
        for kind in ["BenchmarkRun", "StorageService"] {
            drop(self.status_patches.get_or_create(&OfKind { kind }));
            for outcome in ["ok", "conflict", "unreachable", "refused"] {
                drop(self.reconciles.get_or_create(&Reconciled { kind, outcome }));
            }
        }
        self
    }

    /// A reconciliation has ended.
    pub fn reconciled(&self, kind: &'static str, result: &Result<Action, Error>, took: Duration) {
        let outcome = match result {
            Ok(_) => "ok",
            Err(error) => error.class().label(),
        };
        self.reconciles.get_or_create(&Reconciled { kind, outcome }).inc();
        self.reconcile_seconds.get_or_create(&OfKind { kind }).observe(took.as_secs_f64());
    }

    /// A status was written.
    pub fn status_patched(&self, kind: &'static str) {
        self.status_patches.get_or_create(&OfKind { kind }).inc();
    }

    /// A trial of an arm was filed.
    pub fn trial_ended(&self, state: TrialState, duration_millis: u64) {
        self.trials.get_or_create(&InState { state: format!("{state:?}") }).inc();
        self.trial_seconds.observe(Duration::from_millis(duration_millis).as_secs_f64());
    }

    /// This replica acts, or no longer does.
    pub fn leads(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// How many runs there are in each state.
    pub fn runs_are(&self, counts: &HashMap<String, i64>) {
        self.runs.clear();
        for (state, count) in counts {
            self.runs.get_or_create(&InState { state: state.clone() }).set(*count);
        }
    }

    /// A service's state was looked at.
    pub fn service_is(&self, namespace: &str, name: &str, state: ServiceState) {
        let state = match state {
            ServiceState::Starting => "Reconciling",
            ServiceState::Ready { .. } | ServiceState::External => "Ready",
            ServiceState::Stalled(_) => "Stalled",
        };
        lock(&self.service_states).insert(format!("{namespace}/{name}"), state);
        self.count_services();
    }

    /// The services that exist, as `namespace/name`; the others are forgotten.
    pub fn services_are(&self, exist: impl Fn(&str) -> bool) {
        lock(&self.service_states).retain(|name, _| exist(name));
        self.count_services();
    }

    fn count_services(&self) {
        self.services.clear();
        for state in lock(&self.service_states).values() {
            self.services.get_or_create(&InState { state: (*state).into() }).inc();
        }
    }

    /// A run is over: its results are shown from now on. A new leader shows what an earlier one has finished.
    pub fn run_is_complete(&self, namespace: &str, run: &str, status: &BenchmarkRunStatus) {
        self.results.show(namespace, run, status);
    }

    /// A run is gone.
    pub fn forget_run(&self, namespace: &str, name: &str) {
        self.results.forget(namespace, name);
    }

    /// Everything in OpenMetrics text.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
