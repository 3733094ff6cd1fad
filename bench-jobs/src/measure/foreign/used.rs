//! From two censuses to what others used of the machine in between. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use super::census::{Census, Process};
use crate::measure::control_group::Quota;

/// What others may use of each processor before a measurement is disturbed, thousandths of a core. On a quiet machine the figure is
/// 0 ± 0.1 core in all (docs/accuracy.md).
const MILLICORES_PER_CORE_MAX: u64 = 200;
/// Up to so much processor time is never held against others: it is counted in ticks of 10 ms, of many processes.
const HARMLESS: Duration = Duration::from_millis(100);

/// Programs that are named; the rest is summed up.
const NAMED_MAX: usize = 3;
/// Less than this is not worth a name, thousandths of a core.
const NAMED_MILLICORES_MIN: u64 = 50;
/// The first process adopts orphans: what it waits for, it did not start.
const INIT: i32 = 1;

/// Of what nobody can be named for, so much is the kernel's work for store and load: one part of this many of what these used themselves.
/// Interrupts and a file system's journal serve who writes and sends most, so a fixed bound would disturb the busier store.
const KERNEL_DIVISOR: u64 = 4;

/// What others used of the processors over a span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// How long the span was, nanoseconds.
    pub elapsed_nanos: u64,
    /// What there was to use: the machine's processors, or the quota of our control group, thousandths of a core.
    pub capacity_millicores: u64,
    /// What all others used together, nanoseconds.
    pub total_nanos: u64,
    /// What those used that were seen, by the program's name, nanoseconds.
    pub programs: BTreeMap<String, u64>,
}

impl Used {
    /// What was used between two censuses of one machine.
    pub fn between(first: &Census, last: &Census) -> Self {
        let elapsed_nanos = last.monotonic_nanos.saturating_sub(first.monotonic_nanos);
        let (own_before, own_now) = own_of_both(first, last);
        let own_nanos_where = |is_counted: &dyn Fn(&Process) -> bool| {
            total(last, &own_now, is_counted).saturating_sub(total(first, &own_before, is_counted))
        };
        let own_nanos = own_nanos_where(&|_| true);
        let machine_nanos = last.machine_cpu_nanos.saturating_sub(first.machine_cpu_nanos);
        let kernel_nanos = kernel_nanos(last).saturating_sub(kernel_nanos(first));
        let grown = grown(first, last, &own_now, elapsed_nanos);
        let by_name = |is_counted: &dyn Fn(&Process) -> bool| {
            let mut programs = BTreeMap::<String, u64>::new();
            for (process, nanos) in grown.iter().filter(|(process, nanos)| *nanos > 0 && is_counted(process)) {
                *programs.entry(process.program.clone()).or_default() += nanos;
            }
            programs
        };
        let machine_millicores = last.cores as u64 * 1_000;
        let Some(quota) = last.quota.as_ref().filter(|quota| quota.millicores < machine_millicores) else {
            let programs = by_name(&|_| true);
            let seen_nanos: u64 = programs.values().sum();
            let unseen_nanos = machine_nanos.saturating_sub(own_nanos + kernel_nanos + seen_nanos);
            let total_nanos = seen_nanos + unseen_nanos.saturating_sub(own_nanos / KERNEL_DIVISOR);
            return Self { elapsed_nanos, capacity_millicores: machine_millicores, total_nanos, programs };
        };
        // Of the quota others use what they use within the group. Beyond it they do harm only where they leave less than the quota of
        // the machine.
        let programs = by_name(&|process| process.shares_quota);
        let seen_nanos: u64 = programs.values().sum();
        // A store that was there already need not share our quota.
        let own_within_nanos = own_nanos_where(&|process| process.shares_quota);
        let group_nanos = match (&first.quota, quota.used_nanos) {
            (Some(Quota { used_nanos: Some(before), .. }), Some(now)) => now.saturating_sub(*before),
            _ => own_within_nanos + seen_nanos,
        };
        let own_beyond_nanos = own_nanos.saturating_sub(own_within_nanos);
        let beyond_nanos = machine_nanos.saturating_sub(group_nanos + own_beyond_nanos + kernel_nanos);
        let spare_millicores = machine_millicores.saturating_sub(quota.millicores);
        let spare_nanos = (u128::from(elapsed_nanos) * u128::from(spare_millicores) / 1_000) as u64;
        let total_nanos = group_nanos.saturating_sub(own_within_nanos) + beyond_nanos.saturating_sub(spare_nanos);
        Self { elapsed_nanos, capacity_millicores: quota.millicores, total_nanos, programs }
    }

    /// Whether others used so much that a measurement beside them is disturbed.
    pub fn is_disturbing(&self) -> bool {
        self.millicores() * 1_000 > self.capacity_millicores * MILLICORES_PER_CORE_MAX
            && self.total_nanos > HARMLESS.as_nanos() as u64
    }

    /// Adds what was used over the span that followed.
    pub fn add(&mut self, next: Self) {
        self.elapsed_nanos += next.elapsed_nanos;
        self.capacity_millicores = next.capacity_millicores;
        self.total_nanos += next.total_nanos;
        for (program, nanos) in next.programs {
            *self.programs.entry(program).or_default() += nanos;
        }
    }

    /// What all others used on average, thousandths of a core.
    pub fn millicores(&self) -> u64 {
        self.per_elapsed(self.total_nanos)
    }

    /// Who used how much, thousandths of a core, the busiest program first; then what the others used together, and last the
    /// rest, for which no program can be named. Only what is worth mentioning.
    pub fn shares(&self) -> Vec<(&str, u64)> {
        let mut programs: Vec<(&str, u64)> =
            self.programs.iter().map(|(program, nanos)| (program.as_str(), self.per_elapsed(*nanos))).collect();
        programs.sort_by_key(|(_, millicores)| std::cmp::Reverse(*millicores));
        let named =
            programs.iter().take(NAMED_MAX).take_while(|(_, millicores)| *millicores >= NAMED_MILLICORES_MIN).count();
        let others = programs.split_off(named).iter().map(|(_, millicores)| millicores).sum();
        let seen: u64 = self.programs.values().sum();
        let rest = self.per_elapsed(self.total_nanos.saturating_sub(seen));
        let sums = [("other programs", others), ("unseen processes", rest)];
        programs.extend(sums.into_iter().filter(|(_, millicores)| *millicores >= NAMED_MILLICORES_MIN));
        programs
    }

    fn per_elapsed(&self, nanos: u64) -> u64 {
        (u128::from(nanos) * 1_000 / u128::from(self.elapsed_nanos.max(1))) as u64
    }
}

/// As in `1.9 of 2 cores (rustc 1.7, cargo 0.1)`.
impl fmt::Display for Used {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cores = |millicores: u64| format!("{:.1}", millicores as f64 / 1_000.0);
        // Whole processors without a fraction, as most machines have them.
        let all = self.capacity_millicores as f64 / 1_000.0;
        write!(formatter, "{} of {all} cores", cores(self.millicores()))?;
        let shares: Vec<String> =
            self.shares().into_iter().map(|(name, millicores)| format!("{name} {}", cores(millicores))).collect();
        if shares.is_empty() { Ok(()) } else { write!(formatter, " ({})", shares.join(", ")) }
    }
}

/// What tells a process from every other: identifiers are used again, but not at the same instant.
type Identity = (i32, u64);

fn identity(id: i32, process: &Process) -> Identity {
    (id, process.started_ticks)
}

/// The same process in another census.
fn same(census: &Census, (id, started_ticks): Identity) -> Option<&Process> {
    census.processes.get(&id).filter(|process| process.started_ticks == started_ticks)
}

/// What those of these that count have used, and what their children had that have ended, nanoseconds.
fn total(census: &Census, processes: &BTreeSet<Identity>, is_counted: &dyn Fn(&Process) -> bool) -> u64 {
    let found = processes.iter().filter_map(|identity| same(census, *identity));
    found.filter(|process| is_counted(process)).map(Process::total_nanos).sum()
}

/// What threads of the kernel have used, nanoseconds. They work for whoever writes or sends, which none of them says: the journal of a
/// file system for the store that syncs, as a rule. Where they cannot be seen, they are among what nobody can be named for.
fn kernel_nanos(census: &Census) -> u64 {
    census.processes.values().filter(|process| process.is_kernel).map(|process| process.cpu_nanos).sum()
}

/// What each process that is neither ours nor the kernel's has used between two censuses, its children that ended included, nanoseconds.
fn grown<'a>(
    first: &Census,
    last: &'a Census,
    own_now: &BTreeSet<Identity>,
    elapsed_nanos: u64,
) -> Vec<(&'a Process, u64)> {
    let ended = ended(first, last);
    // More than there was is the past of an adopted process, or of one that the first census overlooked.
    let possible = |nanos: u64| if nanos <= elapsed_nanos * last.cores as u64 { nanos } else { 0 };
    let is_foreign = |id: i32, process: &Process| !process.is_kernel && !own_now.contains(&identity(id, process));
    let foreign = last.processes.iter().filter(|(id, process)| is_foreign(**id, process));
    let used = foreign.map(|(id, now)| {
        let before = same(first, identity(*id, now));
        let inherited = before.map_or(now.children_nanos, |before| {
            let known = ended.get(id).copied().unwrap_or_default();
            now.children_nanos.saturating_sub(before.children_nanos).saturating_sub(known)
        });
        let own = possible(now.cpu_nanos.saturating_sub(before.map_or(0, |before| before.cpu_nanos)));
        let inherited = if *id == INIT { 0 } else { possible(inherited) };
        (now, own + inherited)
    });
    used.collect()
}

/// Our processes in two censuses, and what became ours in between. A process is ours for the whole span as soon as it is in one of them:
/// what a store's fork had used before its parent ended is not foreign either.
fn own_of_both(first: &Census, last: &Census) -> (BTreeSet<Identity>, BTreeSet<Identity>) {
    let own_before = own(first, &BTreeSet::new(), &BTreeSet::new());
    let own_now = own(last, &own_before, &groups(first, &own_before));
    (own_before, own_now)
}

/// The process groups that are ours alone. That of this process may be its caller's, as of a script's, and is not; nor is that of a store
/// which was there already.
fn groups(census: &Census, own: &BTreeSet<Identity>) -> BTreeSet<i32> {
    let begun_by_others = std::iter::once(&census.own).chain(&census.store);
    let callers: BTreeSet<i32> =
        begun_by_others.filter_map(|id| census.processes.get(id)).map(|process| process.group).collect();
    let all = own.iter().filter_map(|identity| same(census, *identity)).map(|process| process.group);
    all.filter(|group| *group > 0 && !callers.contains(group)).collect()
}

/// Our processes: everything below [`Census::own`] and below a store that was there already, what was ours before and has lost its parent since, and what is in a process group of
/// ours, as is a store's fork that nobody saw before it lost its parent.
fn own(census: &Census, before: &BTreeSet<Identity>, groups_before: &BTreeSet<i32>) -> BTreeSet<Identity> {
    let is_below = |id: i32| {
        let mut id = id;
        // No longer than there are processes: parents read at different instants could form a ring.
        for _ in 0..census.processes.len() {
            match census.processes.get(&id) {
                _ if id == census.own || census.store.contains(&id) => return true,
                Some(process) => id = process.parent,
                None => return false,
            }
        }
        false
    };
    let all = || census.processes.iter().map(|(id, process)| (identity(*id, process), process));
    let below = all().filter(|(identity, _)| before.contains(identity) || is_below(identity.0));
    let below: BTreeSet<Identity> = below.map(|(identity, _)| identity).collect();
    let mut ours = groups(census, &below);
    ours.extend(groups_before);
    all()
        .filter(|(identity, process)| below.contains(identity) || ours.contains(&process.group))
        .map(|(identity, _)| identity)
        .collect()
}

/// What processes that have ended had used by the first census, nanoseconds, by the process that now has it among its
/// children's: the nearest one above that still lives.
fn ended(first: &Census, last: &Census) -> BTreeMap<i32, u64> {
    let lives = |id: i32| first.processes.get(&id).is_some_and(|process| same(last, identity(id, process)).is_some());
    let mut ended = BTreeMap::new();
    for (_, process) in first.processes.iter().filter(|(id, _)| !lives(**id)) {
        let mut heir = process.parent;
        for _ in 0..first.processes.len() {
            match first.processes.get(&heir) {
                Some(parent) if !lives(heir) => heir = parent.parent,
                _ => break,
            }
        }
        *ended.entry(heir).or_default() += process.total_nanos();
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MILLISECOND: u64 = 1_000_000;

    /// What a process looks like: identifier, parent, program, own time and its children's, milliseconds.
    type Row = (i32, i32, &'static str, u64, u64);

    /// This process is 100; 1 and 2 are always there.
    fn census(millis: u64, machine_millis: u64, rows: &[Row]) -> Census {
        let always = [(1, 0, "init", 50, 70_000), (2, 0, "kthreadd", 0, 0), (100, 1, "storebench", 0, 0)];
        let process = |(id, parent, program, own, children): Row| {
            let process = Process {
                parent,
                group: id,
                started_ticks: 1,
                program: program.into(),
                is_kernel: id == 2 || parent == 2,
                cpu_nanos: own * MILLISECOND,
                children_nanos: children * MILLISECOND,
                shares_quota: true,
            };
            (id, process)
        };
        Census {
            monotonic_nanos: millis * MILLISECOND,
            machine_cpu_nanos: machine_millis * MILLISECOND,
            cores: 2,
            quota: None,
            own: 100,
            store: BTreeSet::new(),
            processes: always.into_iter().chain(rows.iter().copied()).map(process).collect(),
        }
    }

    fn used(machine_millis: u64, before: &[Row], after: &[Row]) -> Used {
        Used::between(&census(0, 0, before), &census(1_000, machine_millis, after))
    }

    #[test]
    fn the_busiest_programs_are_named_first_and_kernel_threads_are_nobodys() {
        let before =
            [(7, 1, "cc1plus", 500, 0), (8, 1, "cc1plus", 0, 0), (9, 1, "Web Content", 0, 0), (30, 2, "kworker", 0, 0)];
        let after = [
            (7, 1, "cc1plus", 1_000, 0),
            (8, 1, "cc1plus", 600, 0),
            (9, 1, "Web Content", 210, 0),
            (30, 2, "kworker", 120, 0),
        ];
        let used = used(1_450, &before, &after);
        assert_eq!(used.to_string(), "1.3 of 2 cores (cc1plus 1.1, Web Content 0.2)");
        assert_eq!(used.millicores(), 1_330, "the kernel works for whoever writes");
    }

    #[test]
    fn what_is_our_own_is_not_foreign_even_once_it_has_ended_or_lost_its_parent() {
        let before = [(101, 100, "bench-job", 0, 0), (102, 100, "proxy", 0, 0), (103, 102, "etcd", 0, 0)];
        // The loader has ended and was waited for; the proxy died and its store was adopted by init.
        let mut after = census(1_000, 1_500, &[(103, 1, "etcd", 600, 0)]);
        after.processes.get_mut(&100).unwrap().children_nanos = 800 * MILLISECOND;
        let used = Used::between(&census(0, 0, &before), &after);
        assert_eq!((used.total_nanos, used.programs.len()), (0, 0), "{used:?}");
    }

    /// Of a script that began both: a store that was there already, with a child that it forks for a snapshot, and a compiler.
    fn beside_a_store(millis: u64, machine_millis: u64, rows: &[Row]) -> Census {
        let mut census = census(millis, machine_millis, rows);
        census.store = BTreeSet::from([7]);
        for id in [7, 9] {
            if let Some(process) = census.processes.get_mut(&id) {
                process.group = 6;
            }
        }
        census
    }

    #[test]
    fn a_store_that_was_there_already_is_not_foreign_and_who_shares_its_script_is() {
        let before = [(7, 1, "redis-server", 900, 0), (9, 1, "cc1plus", 0, 0)];
        let after = [(7, 1, "redis-server", 1_500, 0), (8, 7, "redis-server", 300, 0), (9, 1, "cc1plus", 500, 0)];
        let used = Used::between(&beside_a_store(0, 0, &before), &beside_a_store(1_000, 1_400, &after));
        assert_eq!(used.programs, BTreeMap::from([("cc1plus".to_owned(), 500 * MILLISECOND)]));
        assert_eq!(used.total_nanos, 500 * MILLISECOND, "{used:?}");
        let untold = Used::between(&census(0, 0, &before), &census(1_000, 1_400, &after));
        assert_eq!(untold.programs["redis-server"], 900 * MILLISECOND, "who is not told of it takes it for a stranger");
    }

    #[test]
    fn a_store_beyond_our_quota_hides_nobody_within_it() {
        let quota = |used_millis: u64| Some(Quota::new(1_000, Some(used_millis * MILLISECOND), "/".into()));
        let mut first = beside_a_store(0, 0, &[(7, 1, "redis-server", 0, 0), (9, 1, "cc1plus", 0, 0)]);
        let mut last = beside_a_store(1_000, 1_400, &[(7, 1, "redis-server", 900, 0), (9, 1, "cc1plus", 500, 0)]);
        for census in [&mut first, &mut last] {
            census.processes.get_mut(&7).unwrap().shares_quota = false;
        }
        (first.quota, last.quota) = (quota(0), quota(500));
        let used = Used::between(&first, &last);
        assert_eq!(used.total_nanos, 500 * MILLISECOND, "{used:?}");
    }

    #[test]
    fn a_process_that_began_since_counts_whole_and_one_with_a_used_identifier_is_another() {
        let used = used(900, &[(7, 1, "old", 5_000, 0)], &[(7, 1, "old", 5_000, 0), (8, 1, "new", 300, 0)]);
        assert_eq!(used.programs, BTreeMap::from([("new".to_owned(), 300 * MILLISECOND)]));
        let mut after = census(1_000, 900, &[(7, 1, "another", 400, 0)]);
        after.processes.get_mut(&7).unwrap().started_ticks = 99;
        let used = Used::between(&census(0, 0, &[(7, 1, "old", 5_000, 0)]), &after);
        assert_eq!(used.programs, BTreeMap::from([("another".to_owned(), 400 * MILLISECOND)]));
    }

    #[test]
    fn children_that_came_and_went_count_with_the_program_that_started_them() {
        let used = used(900, &[(7, 1, "go", 10, 60_000)], &[(7, 1, "go", 20, 60_800)]);
        assert_eq!(used.programs, BTreeMap::from([("go".to_owned(), 810 * MILLISECOND)]));
    }

    #[test]
    fn the_past_of_a_child_that_ended_is_not_counted_again() {
        // cc1 had used 30 s, and 200 ms more before it ended; its parent make ended with it, and the shell waited for make.
        let before = [(7, 1, "sh", 0, 0), (8, 7, "make", 100, 5_000), (9, 8, "cc1", 30_000, 0)];
        let after = [(7, 1, "sh", 0, 100 + 5_000 + 30_200)];
        assert_eq!(used(900, &before, &after).programs, BTreeMap::from([("sh".to_owned(), 200 * MILLISECOND)]));
    }

    #[test]
    fn whoever_adopts_an_orphan_is_not_blamed_for_its_past() {
        // Both ended, cc1 after make, so that it was adopted: by init, or by the session's own adopter.
        let before = [(6, 1, "systemd", 0, 0), (7, 6, "sh", 0, 0), (8, 7, "make", 0, 0), (9, 8, "cc1", 30_000, 0)];
        let mut by_init = census(1_000, 900, &[(6, 1, "systemd", 0, 0), (7, 6, "sh", 0, 0)]);
        by_init.processes.get_mut(&1).unwrap().children_nanos += 30_100 * MILLISECOND;
        let by_systemd = census(1_000, 900, &[(6, 1, "systemd", 0, 30_100), (7, 6, "sh", 0, 0)]);
        for after in [by_init, by_systemd] {
            let used = Used::between(&census(0, 0, &before), &after);
            assert_eq!((used.programs.len(), used.total_nanos), (0, 900 * MILLISECOND), "{used:?}");
            assert_eq!(used.to_string(), "0.9 of 2 cores (unseen processes 0.9)");
        }
    }

    #[test]
    fn beyond_three_programs_the_rest_is_summed_and_trifles_are_left_out() {
        let programs = [("a", 300), ("b", 270), ("c", 240), ("d", 210), ("e", 180), ("f", 150), ("g", 120), ("h", 90)];
        let after: Vec<Row> = (10..).zip(programs).map(|(id, (program, used))| (id, 1, program, used, 0)).collect();
        let used = used(1_560, &[], &after);
        assert_eq!(used.to_string(), "1.6 of 2 cores (a 0.3, b 0.3, c 0.2, other programs 0.8)");
        let trifle = Used { elapsed_nanos: 1_000 * MILLISECOND, capacity_millicores: 2_000, ..Used::default() };
        assert_eq!(trifle.to_string(), "0.0 of 2 cores");
    }

    #[test]
    fn a_little_is_no_disturbance() {
        let used = |millis, of_millis| Used {
            elapsed_nanos: of_millis * MILLISECOND,
            capacity_millicores: 2_000,
            total_nanos: millis * MILLISECOND,
            ..Used::default()
        };
        assert!(!used(400, 1_000).is_disturbing());
        assert!(used(401, 1_000).is_disturbing());
        assert!(!used(100, 50).is_disturbing(), "100 ms of a processor");
    }

    #[test]
    fn spans_add_up() {
        let mut sum = used(500, &[], &[(7, 1, "a", 500, 0)]);
        sum.add(used(1_500, &[(7, 1, "a", 500, 0)], &[(7, 1, "a", 1_500, 0), (8, 1, "b", 500, 0)]));
        assert_eq!(sum.to_string(), "1.0 of 2 cores (a 0.8, b 0.2)");
    }

    fn any_rows() -> impl Strategy<Value = Vec<Row>> {
        let program = prop::sample::select(vec!["a", "b", "c"]);
        prop::collection::vec((3..40i32, 0..40i32, program, 0..90_000u64, 0..90_000u64), 0..40)
    }

    proptest! {
        /// Whatever `/proc` shows, rings of parents included: no process is said to have used more than there was, of its own
        /// and by its children.
        #[test]
        fn nobody_uses_more_than_there_is(before in any_rows(), after in any_rows()) {
            let used = used(1_000, &before, &after);
            for (program, nanos) in &used.programs {
                let processes = after.iter().filter(|row| row.2 == program).count() as u64 + 1;
                prop_assert!(*nanos <= processes * 2 * 2 * 1_000 * MILLISECOND, "{program}: {nanos}");
            }
            prop_assert!(used.total_nanos >= used.programs.values().sum());
        }
    }
}
