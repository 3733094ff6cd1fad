//! What was found right: the `Validated…` types, which [`crate::validate`] makes, and from which everything else plans.

use std::time::Duration;

use storebench_crds::ControlPlaneSpec;
use storebench_crds::DurationText;
use storebench_crds::Workload;
use storebench_crds::benchmark_run::{BenchmarkRunSpec, Bound, Gate, OnInconclusive, WorkloadRef};
use storebench_crds::engine::{DurabilityClass, Engine};
use storebench_crds::external::External;
use storebench_crds::ratio::percent;
use storebench_crds::storage_service::{Durability, StorageServiceSpec};
use storebench_crds::workload::{Api, Load};

use crate::units;

/// A run that can be planned.
#[derive(Clone, Debug)]
pub struct ValidatedRun {
    /// The run's name.
    pub name: String,
    /// What was asked.
    pub spec: BenchmarkRunSpec,
    /// The arms, in the spec's order.
    pub arms: Vec<ValidatedArm>,
    /// The templates that the workloads are of, one for each; empty where they were written in the run.
    pub workload_refs: Vec<WorkloadRef>,
}

impl ValidatedRun {
    /// What each gate asks, as it was understood, one line for each.
    pub fn gates_in_words(&self) -> Vec<String> {
        let baseline = self.arms.iter().find(|arm| arm.baseline).map_or("the baseline", |arm| arm.name.as_str());
        let words = |gate: &Gate| {
            let value = |bound: u64| {
                let (exact, read) =
                    (units::exact(gate.metric.unit, bound as f64), units::of_metric(gate.metric.unit, bound as f64));
                let is_told = gate.metric.unit.of_time().is_none() || read == exact;
                if is_told { exact } else { format!("{exact} ({read})") }
            };
            let share = |basis_points: u32| format!("{} of {baseline}", percent(basis_points.into()));
            let asked = match gate.bound()? {
                Bound::AtLeast(bound) => format!("at least {}", value(bound)),
                Bound::AtMost(bound) => format!("at most {}", value(bound)),
                Bound::RatioAtLeast(bound) => format!("at least {}", share(bound)),
                Bound::RatioAtMost(bound) => format!("at most {}", share(bound)),
            };
            let workload = gate.workload.as_deref().unwrap_or("every workload");
            let undecided = match gate.on_inconclusive {
                OnInconclusive::Fail => "",
                OnInconclusive::Warn => "; if undecided: warns, and does not count",
                OnInconclusive::Pass => "; if undecided: counts as met",
            };
            Some(format!("gate: {:?} of {} in {workload}: {asked}{undecided}", gate.metric, gate.arm))
        };
        self.spec.gates.iter().filter_map(words).collect()
    }

    /// What so few trials cannot tell, in one line; `None`: they are enough.
    pub fn few_trials(&self) -> Option<String> {
        let most = self.spec.trials.max;
        let trials = if most == 1 { "1 trial gives".into() } else { format!("{most} trials give") };
        let compared = if self.arms.len() > 1 { ": nothing will be compared" } else { "" };
        let is_few = (most as usize) < crate::statistics::TRIALS_MIN;
        is_few.then(|| {
            format!("{trials} no interval{compared}; set trials.max to {} at least", crate::statistics::TRIALS_MIN)
        })
    }

    /// When a run ends of which nothing ends by time: what is done how often, from the fewest trials to the most.
    pub fn how_often(&self) -> String {
        let names: Vec<&str> = self.spec.workloads.iter().map(|workload| workload.name.as_str()).collect();
        let arms = self.arms.len() as u32;
        let (least, most) = (self.spec.trials.min * arms, self.spec.trials.max * arms);
        let times = if least == most { least.to_string() } else { format!("{least} to {most}") };
        format!(
            "ends when {} is done, {times} times in all: how long that takes depends on the stores",
            names.join(", ")
        )
    }

    /// The workload that fills a store with most, by its position, and with how many bytes of values. `None`: none has a key space of values.
    pub fn largest_key_space(&self) -> Option<(usize, u64)> {
        let bytes = self.spec.workloads.iter().map(|workload| workload.parameters.key_space_bytes());
        bytes.enumerate().max_by_key(|(_, bytes)| *bytes).filter(|(_, bytes)| *bytes > 0)
    }

    /// How much a store will hold, in one line; `None`: little enough for anybody's machine.
    pub fn how_much(&self) -> Option<String> {
        let (index, bytes) = self.largest_key_space().filter(|(_, bytes)| *bytes >= WORTH_A_LINE_BYTES)?;
        let name = &self.spec.workloads[index].name;
        let values = units::bytes(bytes);
        Some(format!(
            "{name} writes up to {values} of values into each store (keySpace × valueBytes); keys, logs and earlier values come on top"
        ))
    }

    /// For how long the stores are loaded in all, from the fewest trials to the most, without what is repeated. `None`: nothing ends by time.
    pub fn how_long(&self) -> Option<String> {
        let (timed, others): (Vec<&Workload>, Vec<&Workload>) =
            self.spec.workloads.iter().partition(|one| one.load.duration.is_some());
        let once = |doublings: u32| {
            let loads = timed.iter().map(|workload| with_search(&workload.load, doublings));
            loads.fold(Duration::ZERO, Duration::saturating_add)
        };
        // At best the first rate of a search holds and the next misses.
        let (shortest, longest) = (once(1), once(DOUBLINGS_TOLD));
        if longest.is_zero() {
            return None;
        }
        let in_all =
            |once: Duration, trials: u32| in_words(once.saturating_mul(trials).saturating_mul(self.arms.len() as u32));
        let (least, most) = (in_all(shortest, self.spec.trials.min), in_all(longest, self.spec.trials.max));
        let so_long = if least == most { least } else { format!("{least} to {most}") };
        let searched = timed.iter().filter(|workload| workload.load.highest_rate.is_some());
        let searched: Vec<&str> = searched.map(|workload| workload.name.as_str()).collect();
        let searched = match searched.is_empty() {
            true => String::new(),
            false => format!(
                " (the highest rate of {} is looked for in each trial, the longer the farther it is from load.rate: up to {DOUBLINGS_TOLD} \
                 doublings are counted)",
                searched.join(", ")
            ),
        };
        let beside: Vec<&str> = others.iter().map(|workload| workload.name.as_str()).collect();
        let beside = match beside.is_empty() {
            true => String::new(),
            false => format!(", and until {} is done", beside.join(", ")),
        };
        Some(format!(
            "loads its stores for {so_long}{searched}{beside}; starting, filling and checking them comes on top"
        ))
    }
}

/// A highest rate that is farther than so many doublings from where the search begins is looked for longer than was told.
const DOUBLINGS_TOLD: u32 = 7;

/// For how long a load that ends by time loads a store once, with its search, if it has one, which doubles its rate so often.
/// Each rate is warmed up at and tried: the first, one for each doubling, those that halve what is left of the last doubling, and the one that missed
/// once more. What was found has warmed up then.
fn with_search(load: &Load, doublings: u32) -> Duration {
    let measured = load.duration.as_ref().map_or(Duration::ZERO, DurationText::duration);
    let Some(highest) = &load.highest_rate else { return load.warm_up.duration().saturating_add(measured) };
    let neighbours = 1.0 + f64::from(highest.tolerance_basis_points.max(1)) / 10_000.0;
    let halvings = (2f64.ln() / neighbours.ln()).max(1.0).log2().ceil() as u32;
    let step = load.warm_up.duration().saturating_add(highest.step_duration.duration());
    step.saturating_mul(1 + doublings + halvings + 1).saturating_add(measured)
}

/// What a machine has free for a store; `None`: not known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Room {
    /// Memory.
    pub memory_bytes: Option<u64>,
    /// Of the disk on which stores keep their data.
    pub disk_bytes: Option<u64>,
}

/// From here on what a store is to hold is told before it is filled.
const WORTH_A_LINE_BYTES: u64 = 1 << 30;

/// As `90 s`, `7 min`, `2.5 h`.
fn in_words(duration: Duration) -> String {
    match duration.as_secs() {
        0..120 => format!("{} s", duration.as_secs_f64().ceil()),
        120..7_200 => format!("{} min", duration.as_secs().div_ceil(60)),
        seconds => format!("{:.1} h", seconds as f64 / 3_600.0),
    }
}

/// An arm whose service exists and fits the workloads.
#[derive(Clone, Debug)]
pub struct ValidatedArm {
    /// The arm's name.
    pub name: String,
    /// Whether the others are compared with it.
    pub baseline: bool,
    /// What is loaded.
    pub target: Target,
}

/// What an arm loads.
#[derive(Clone, Debug)]
pub enum Target {
    /// A store that is deployed.
    Service(ValidatedService),
    /// A store that is there already.
    External(ExternalStore),
    /// Kubernetes on a store.
    ControlPlane(ValidatedControlPlane),
    /// A cluster that is there already.
    Cluster(ForeignCluster),
}

/// A cluster that is there already: nothing is known of its store but what its owner states.
#[derive(Clone, Debug)]
pub struct ForeignCluster {
    /// The name of the Secret that says how it is reached.
    pub secret: String,
    /// What an acknowledged write survives. Absent: not stated.
    pub durability: Option<Durability>,
}

impl Target {
    /// What an arm loads that names this service.
    pub fn of(service: ValidatedService) -> Self {
        match service.spec.external {
            Some(external) => Self::External(ExternalStore {
                name: service.name,
                engine: service.engine,
                durability: service.durability,
                external,
            }),
            None => Self::Service(service),
        }
    }
}

impl ValidatedArm {
    /// The store that is deployed to be loaded, or to hold the cluster that is loaded; `None` where it is there already.
    pub fn service(&self) -> Option<&ValidatedService> {
        match &self.target {
            Target::Service(service) => Some(service),
            Target::ControlPlane(plane) => Some(&plane.service),
            Target::External(_) | Target::Cluster(_) => None,
        }
    }

    /// The store that is loaded, where it is there already.
    pub fn external(&self) -> Option<&ExternalStore> {
        match &self.target {
            Target::External(store) => Some(store),
            Target::Service(_) | Target::ControlPlane(_) | Target::Cluster(_) => None,
        }
    }

    /// The control plane that is loaded, where it is one of ours.
    pub fn control_plane(&self) -> Option<&ValidatedControlPlane> {
        match &self.target {
            Target::ControlPlane(plane) => Some(plane),
            Target::Service(_) | Target::External(_) | Target::Cluster(_) => None,
        }
    }

    /// The cluster that is loaded, where it is there already.
    pub fn cluster(&self) -> Option<&ForeignCluster> {
        match &self.target {
            Target::Cluster(cluster) => Some(cluster),
            Target::Service(_) | Target::External(_) | Target::ControlPlane(_) => None,
        }
    }

    /// Whether it can be asked by the streaming RPC of our d-engine, which alone has leases and reads of bounded age.
    pub fn has_streaming_door(&self) -> bool {
        match &self.target {
            Target::Service(ValidatedService { engine, .. }) | Target::External(ExternalStore { engine, .. }) => {
                engine.protocol.has_streaming_door()
            }
            Target::ControlPlane(_) | Target::Cluster(_) => false,
        }
    }

    /// What it can be loaded through; `None` where there is no family of workloads yet that speaks as it does.
    pub fn api(&self) -> Option<Api> {
        match &self.target {
            Target::ControlPlane(_) | Target::Cluster(_) => Some(Api::Kubernetes),
            Target::Service(ValidatedService { engine, .. }) | Target::External(ExternalStore { engine, .. }) => {
                engine.protocol.api()
            }
        }
    }
}

/// A store that is there already: nothing of it is started, and nothing known but what its owner states.
#[derive(Clone, Debug)]
pub struct ExternalStore {
    /// The name of the StorageService that says where it is.
    pub name: String,
    /// Whose protocol it speaks.
    pub engine: &'static Engine,
    /// What an acknowledged write survives, as its owner states it.
    pub durability: Durability,
    /// Where it is, and what may be done to it.
    pub external: External,
}

/// What stands for a setting of a store that nobody here has set.
pub const STATED_BY_USER: &str = "as stated by the user";

impl ExternalStore {
    /// What was asked: its rules allow nothing else.
    pub fn spec(&self) -> StorageServiceSpec {
        let external = Some(self.external.clone());
        StorageServiceSpec { external, ..StorageServiceSpec::of(self.engine.kind, self.durability) }
    }

    /// Where it is reached, and how, in words.
    pub fn place(&self) -> String {
        let over = if self.external.tls.is_some() { " over TLS" } else { "" };
        format!("{}{over}", self.external.endpoints.join(", "))
    }

    /// What a reader must know of an arm that loads it.
    pub fn caveat(&self, arm: &str) -> String {
        format!(
            "{arm} is a store that was there already, at {}: what it uses of its machine is not known, its durability ({:?}) is \
             {STATED_BY_USER}, and who else uses it, and the network to it, are in its numbers",
            self.place(),
            self.durability
        )
    }
}

/// A service that its engine can deploy.
#[derive(Clone, Debug)]
pub struct ValidatedService {
    /// The service's name.
    pub name: String,
    /// Its engine.
    pub engine: &'static Engine,
    /// The version to deploy.
    pub version: String,
    /// The container image, pinned.
    pub image: String,
    /// Whether the user named that version, so that no other will do.
    pub version_is_pinned: bool,
    /// Members.
    pub replicas: u32,
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// How the engine honours it.
    pub durability_class: &'static DurabilityClass,
    /// Further arguments.
    pub args: Vec<String>,
    /// Further environment variables with literal values.
    pub env: Vec<(String, String)>,
    /// What it needs beside itself, by role.
    pub companions: Vec<(&'static str, ValidatedService)>,
    /// What was asked.
    pub spec: StorageServiceSpec,
}

impl ValidatedService {
    /// What a reader must know of its companions: their use of the machine is not the store's.
    pub fn companions_caveat(&self) -> Option<String> {
        let names = self.companions.iter().map(|(role, one)| format!("{role} ({} {})", one.engine.name, one.version));
        let names = names.collect::<Vec<_>>().join(", ");
        (!names.is_empty())
            .then(|| format!("beside {} runs its {names}, which is not measured as the store", self.name))
    }
}

/// A control plane whose store exists and speaks the etcd API.
#[derive(Clone, Debug)]
pub struct ValidatedControlPlane {
    /// The ControlPlane's name.
    pub name: String,
    /// The store that holds the cluster.
    pub service: ValidatedService,
    /// The version of Kubernetes, such as `1.34.4`.
    pub kubernetes_version: String,
    /// Whether the user named that version, so that no other will do.
    pub version_is_pinned: bool,
    /// Simulated nodes.
    pub nodes: u32,
    /// What was asked.
    pub spec: ControlPlaneSpec,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Nobody knows else whether to wait for it or to have dinner.
    #[test]
    fn how_long_a_search_takes_is_told_before_it_begins() {
        let told = |more: &str| {
            let text = format!(
                "apiVersion: storebench.dev/v1alpha1
kind: StorageService
metadata: {{ name: redis }}
spec: {{ engine: Redis }}
---
apiVersion: storebench.dev/v1alpha1
kind: BenchmarkRun
metadata: {{ name: run }}
spec:
  arms: [{{ name: redis, serviceRef: {{ name: redis }} }}]
  workloads:
  - name: set
    redis: {{ command: Set }}
    load: {{ connections: 8, duration: 5s, warmUp: 1s{more} }}
  trials: {{ min: 3, max: 10 }}
"
            );
            let input = crate::input::load(&[("run.yaml".into(), text.into_bytes())], Path::new(""));
            input.unwrap_or_else(|error| panic!("{error}")).runs[0].how_long().unwrap()
        };
        let comes = "; starting, filling and checking them comes on top";
        assert_eq!(told(""), format!("loads its stores for 18 s to 60 s{comes}"));
        // Rates that are 3 % apart: of one doubling five halvings are left. Eight steps of three seconds, or fourteen.
        let search = ", mode: OpenLoop, rate: 1000, highestRate: { percentile: P99, atMost: 5ms, stepDuration: 2s }";
        let said = told(search);
        assert!(
            said.starts_with("loads its stores for 87 s to 8 min (the highest rate of set is looked for"),
            "{said}"
        );
        assert!(said.ends_with(comes), "{said}");
    }
}
