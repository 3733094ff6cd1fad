//! Which trials are discarded for what others use must not depend on the store, nor may a verdict: simulated trials and runs of stores that use
//! little, all they get, that fork, and that make the kernel work, without a quota and under some. What is simulated is the machine;
//! who was foreign, which trial is next, and what is said of the run is decided by what decides it in a real one.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::Path;

use bench_jobs::measure::control_group::Quota;
use bench_jobs::measure::foreign::Used;
use bench_jobs::measure::foreign::census::{Census, Process};
use harness::Random;
use serde_json::json;
use storebench_core::input::load;
use storebench_core::judgement::judge;
use storebench_core::ledger::{Next, next};
use storebench_core::record::{ArmRecord, Driver, RECORD_VERSION, RunRecord};
use storebench_crds::status::Verdict;

const MILLISECOND: u64 = 1_000_000;
const TRIALS: u64 = 200;
const RUNS: u64 = 200;
/// Censuses of a trial are a second apart.
const SPANS: u64 = 3;
const STORE: i32 = 200;
const STRANGER: i32 = 900;

/// What a store does of what it could use.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Store {
    /// It waits most of the time.
    Sleeps,
    /// It uses whatever it gets, and the kernel's journal works for it.
    UsesAll,
    /// As that, and it forks children that lose their parent, some seen by a census and some not.
    Forks,
}

struct Machine {
    census: Census,
    quota_millicores: Option<u64>,
    quota_nanos: u64,
    next_id: i32,
}

impl Machine {
    fn new(cores: usize, quota_millicores: Option<u64>) -> Self {
        let mut machine = Self {
            census: Census { cores, own: 100, ..Census::default() },
            quota_millicores,
            quota_nanos: 0,
            next_id: 1_000,
        };
        let rows = [(1, 0, 1, "init"), (2, 0, 0, "kthreadd"), (30, 2, 0, "jbd2/sda1-8"), (100, 1, 90, "storebench")];
        for (id, parent, group, program) in rows {
            machine.starts(id, parent, group, program);
        }
        machine.starts(150, 100, 150, "bench-job");
        machine.starts(STORE, 100, STORE, "store");
        machine.starts(STRANGER, 1, STRANGER, "stranger");
        machine.shows_quota();
        machine
    }

    fn starts(&mut self, id: i32, parent: i32, group: i32, program: &str) {
        let process = Process {
            parent,
            group,
            started_ticks: id.unsigned_abs().into(),
            program: program.into(),
            is_kernel: id == 2 || parent == 2,
            cpu_nanos: 0,
            children_nanos: 0,
            shares_quota: id != 1 && parent != 2,
        };
        self.census.processes.insert(id, process);
    }

    fn uses(&mut self, id: i32, millis: u64) {
        let process = self.census.processes.get_mut(&id).unwrap();
        process.cpu_nanos += millis * MILLISECOND;
        self.census.machine_cpu_nanos += millis * MILLISECOND;
        self.quota_nanos += if process.is_kernel { 0 } else { millis * MILLISECOND };
    }

    fn shows_quota(&mut self) {
        self.census.quota =
            self.quota_millicores.map(|millicores| Quota::new(millicores, Some(self.quota_nanos), "/".into()));
    }

    /// A second passes. The stranger takes what it wants; load and store share what is left as the store is. Returns what they had of what
    /// there was, as a share.
    fn second(&mut self, store: Store, stranger_millis: u64, random: &mut Random) -> f64 {
        self.census.monotonic_nanos += 1_000 * MILLISECOND;
        self.uses(STRANGER, stranger_millis);
        let capacity = self.quota_millicores.unwrap_or(self.census.cores as u64 * 1_000);
        let left = capacity - stranger_millis;
        self.uses(150, left / 5);
        if store == Store::Sleeps {
            self.uses(STORE, left / 10);
        } else {
            self.uses(STORE, left / 2 + random.below(left / 10));
            // The journal takes from what is left, and from beyond a quota.
            self.uses(30, left / 5);
        }
        if store == Store::Forks {
            // A child whose parent ended before any census saw it; of the last one, what it used is in this one.
            self.census.processes.retain(|id, _| *id < 1_000);
            self.next_id += 1;
            self.starts(self.next_id, 1, STORE, "store");
            self.uses(self.next_id, left / 10);
        }
        self.shows_quota();
        left as f64 / capacity as f64
    }

    /// A trial, in some of which the stranger works. Returns what others used, and what was left as a share.
    fn trial(&mut self, store: Store, stranger_share: u64, random: &mut Random) -> (Used, f64) {
        let capacity = self.quota_millicores.unwrap_or(self.census.cores as u64 * 1_000);
        let (mut used, mut left) = (Used::default(), 0.0);
        for _ in 0..SPANS {
            let before = self.census.clone();
            left += self.second(store, capacity * stranger_share / 1_000, random) / SPANS as f64;
            used.add(Used::between(&before, &self.census));
        }
        (used, left)
    }
}

/// Whether the stranger works in a trial, and then how much of the capacity it takes, thousandths; else it takes little.
fn stranger(random: &mut Random) -> (bool, u64) {
    let works = random.below(5) == 0;
    (works, if works { 300 + random.below(300) } else { random.below(100) })
}

/// How many trials are lost, and in how many the stranger worked.
fn lost(store: Store, cores: usize, quota_millicores: Option<u64>, seed: u64) -> (u64, u64) {
    // The stranger is the same for every store; the store's own ups and downs are not.
    let (mut of_stranger, mut of_store) = (Random::new(seed), Random::new(seed ^ 0xabcd ^ store as u64));
    let mut machine = Machine::new(cores, quota_millicores);
    let (mut lost, mut disturbed) = (0, 0);
    for _ in 0..TRIALS {
        let (works, share) = stranger(&mut of_stranger);
        disturbed += u64::from(works);
        let (used, _) = machine.trial(store, share, &mut of_store);
        lost += u64::from(used.is_disturbing());
    }
    (lost, disturbed)
}

#[test]
fn what_a_store_uses_forks_and_makes_the_kernel_do_loses_it_no_trial() {
    let mut all = BTreeMap::new();
    for (cores, quota) in [(2, None), (8, None), (8, Some(1_000)), (8, Some(2_000)), (2, Some(1_500))] {
        for store in [Store::Sleeps, Store::UsesAll, Store::Forks] {
            for seed in 1..=3 {
                let (lost, disturbed) = lost(store, cores, quota, seed);
                assert!(disturbed > 20, "{disturbed}");
                all.insert(format!("{store:?} on {cores} cores, quota {quota:?}, seed {seed}"), (lost, disturbed));
            }
        }
    }
    let unfair: Vec<_> = all.iter().filter(|(_, (lost, disturbed))| lost != disturbed).collect();
    assert!(unfair.is_empty(), "lost, and disturbed by a stranger: {unfair:#?}");
}

/// Two arms and a gate.
const RUN: &str = "
apiVersion: storebench.dev/v1alpha1
kind: StorageService
metadata: { name: store }
spec: { engine: Redis }
---
apiVersion: storebench.dev/v1alpha1
kind: BenchmarkRun
metadata: { name: run }
spec:
  arms:
  - { name: one, baseline: true, serviceRef: { name: store } }
  - { name: other, serviceRef: { name: store } }
  workloads:
  - { name: set, redis: { command: Set }, load: { duration: 3s } }
  trials: { min: 10, max: 10 }
  gates:
  - { arm: other, metric: ThroughputPerSecond, ratioAtLeast: 95% }
";

/// Noise of 5 % between trials, about 1: the sum of twelve uniform numbers is nearly normal.
fn noise(random: &mut Random) -> f64 {
    let sum: f64 = (0..12).map(|_| random.below(1 << 20) as f64 / f64::from(1 << 20)).sum();
    (0.05 * (sum - 6.0)).exp()
}

/// The run before its first trial. Read once and not for each simulation: all rules are asked then.
fn begun() -> RunRecord {
    let input = load(&[("run.yaml".into(), RUN.as_bytes().to_vec())], Path::new("")).unwrap();
    let run = &input.runs[0];
    RunRecord {
        record_version: RECORD_VERSION,
        name: run.name.clone(),
        storebench_version: String::new(),
        started_at: "2026-03-01T12:00:00Z".into(),
        duration_millis: 1,
        driver: Driver::Embedded,
        spec: run.spec.clone(),
        arms: run.arms.iter().map(ArmRecord::of).collect(),
        trials: Vec::new(),
        fingerprint: storebench_core::fingerprint::of(BTreeMap::new()),
        caveats: Vec::new(),
        aborted: None,
        left_behind: Vec::new(),
    }
}

/// A whole run of two stores of this kind, of which the other takes so many times as long for a request.
fn verdict(
    begun: &RunRecord,
    store: Store,
    cores: usize,
    quota_millicores: Option<u64>,
    factor: f64,
    seed: u64,
) -> Verdict {
    let mut record = begun.clone();
    record.spec.trials.seed = seed;
    let mut random = Random::new(seed);
    let mut machine = Machine::new(cores, quota_millicores);
    while let Next::Run { index, arm } = next(&record.spec, &["one", "other"], &record.trials, Vec::new) {
        let (_, share) = stranger(&mut random);
        let (used, left) = machine.trial(store, share, &mut random);
        // Who sleeps most of the time is held back by nobody.
        let had = if store == Store::Sleeps { 1.0 } else { left };
        let slower = if arm == "other" { factor } else { 1.0 };
        let nanos = (1e6 * slower * noise(&mut random) / had) as u64;
        // The gate is about throughput. Latencies of 0 are compared with nothing: intervals of them would take most of the time.
        let latency = json!({ "meanNanos": 0, "p50Nanos": 0, "p99Nanos": 0, "maxNanos": 0 });
        let summary = json!({
            "name": "set", "operations": 3_000, "errors": 0, "elapsedNanos": 3_000 * nanos, "verified": 10, "service": latency,
        });
        // As the driver: what was waited out uses up no retry.
        let (state, failure, waited) = match used.is_disturbing() {
            true => ("Invalid", json!({ "cause": "Disturbed", "detail": used.to_string() }), json!(3_000)),
            false => ("Valid", json!(null), json!(null)),
        };
        let trial = json!({
            "index": index, "arm": arm, "state": state, "failure": failure, "waitedMillis": waited, "startedMillis": record.trials.len(),
            "durationMillis": 1, "workloads": [{ "summary": summary, "histograms": [] }],
        });
        record.trials.push(serde_json::from_value(trial).unwrap());
    }
    judge(&record).verdict
}

#[test]
fn equal_stores_that_sleep_are_hardly_ever_told_apart_and_a_slower_one_is_found() {
    are_told_apart_as_they_are(Store::Sleeps);
}

#[test]
fn equal_stores_that_use_all_they_get_are_hardly_ever_told_apart_and_a_slower_one_is_found() {
    are_told_apart_as_they_are(Store::UsesAll);
}

#[test]
fn equal_stores_that_fork_are_hardly_ever_told_apart_and_a_slower_one_is_found() {
    are_told_apart_as_they_are(Store::Forks);
}

/// One false alarm in twenty at most, and nineteen of twenty found, whatever both do with the machine.
fn are_told_apart_as_they_are(store: Store) {
    let begun = &begun();
    for (cores, quota) in [(2, None), (8, Some(1_000)), (8, Some(2_000))] {
        let verdicts = |factor: f64| (0..RUNS).map(move |seed| verdict(begun, store, cores, quota, factor, seed));
        let equal: Vec<Verdict> = verdicts(1.0).collect();
        let count = |wanted: Verdict| equal.iter().filter(|one| **one == wanted).count() as u64;
        let (alarms, invalid) = (count(Verdict::Regressed), count(Verdict::Invalid));
        let found = verdicts(1.25).filter(|one| *one == Verdict::Regressed).count() as u64;
        println!(
            "{store:?} on {cores} cores, quota {quota:?}: of {RUNS} runs {alarms} false alarms, {invalid} Invalid; 25 % slower found in {found}"
        );
        assert!(alarms * 20 <= RUNS && invalid * 20 <= RUNS && found * 20 >= RUNS * 19, "{store:?} {quota:?}");
    }
}

/// A quota is a part of the machine: what others do with the rest takes nothing from it, until there is no rest.
#[test]
fn beyond_a_quota_others_count_only_where_they_leave_less_than_it() {
    for (neighbour_millis, is_disturbing) in [(5_500, false), (7_900, true)] {
        let mut machine = Machine::new(8, Some(2_000));
        let before = machine.census.clone();
        machine.second(Store::UsesAll, 0, &mut Random::new(1));
        machine.census.machine_cpu_nanos += neighbour_millis * MILLISECOND;
        let used = Used::between(&before, &machine.census);
        assert_eq!(used.is_disturbing(), is_disturbing, "{neighbour_millis}: {used}");
        assert_eq!(used.capacity_millicores, 2_000);
    }
}
