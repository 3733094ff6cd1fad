//! Which trials are discarded for what others use must not depend on the store: simulated trials of stores that use little, all they
//! get, that fork, and that make the kernel work, without a quota and under two.

use std::collections::BTreeMap;

use harness::Random;

use super::census::{Census, Process};
use super::used::Used;
use crate::measure::control_group::Quota;

const MILLISECOND: u64 = 1_000_000;
const TRIALS: u64 = 200;
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

    /// A second passes. The stranger takes what it wants; load and store share what is left as the store is.
    fn second(&mut self, store: Store, stranger_millis: u64, random: &mut Random) {
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
    }
}

/// How many trials are lost, and in how many the stranger worked.
fn lost(store: Store, cores: usize, quota_millicores: Option<u64>, seed: u64) -> (u64, u64) {
    // The stranger is the same for every store; the store's own ups and downs are not.
    let (mut of_stranger, mut of_store) = (Random::new(seed), Random::new(seed ^ 0xabcd ^ store as u64));
    let mut machine = Machine::new(cores, quota_millicores);
    let (mut lost, mut disturbed) = (0, 0);
    for _ in 0..TRIALS {
        let works = of_stranger.below(5) == 0;
        disturbed += u64::from(works);
        let capacity = quota_millicores.unwrap_or(cores as u64 * 1_000);
        let share = if works { 300 + of_stranger.below(300) } else { of_stranger.below(100) };
        let mut used = Used::default();
        for _ in 0..SPANS {
            let before = machine.census.clone();
            machine.second(store, capacity * share / 1_000, &mut of_store);
            used.add(Used::between(&before, &machine.census));
        }
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
