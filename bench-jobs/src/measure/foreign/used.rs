//! From two censuses to what others used of the machine in between. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::census::{Census, Process};

/// Programs that are named; the rest is summed up.
const NAMED_MAX: usize = 3;
/// Less than this is not worth a name, thousandths of a core.
const NAMED_MILLICORES_MIN: u64 = 50;
/// The first process adopts orphans: what it waits for, it did not start.
const INIT: i32 = 1;

/// What others used of the machine's processors over a span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// How long the span was, nanoseconds.
    pub elapsed_nanos: u64,
    /// Processors of the machine.
    pub cores: usize,
    /// What all others used together, the kernel included, nanoseconds.
    pub total_nanos: u64,
    /// What those used that were seen, by the program's name, nanoseconds.
    pub programs: BTreeMap<String, u64>,
}

impl Used {
    /// What was used between two censuses of one machine.
    pub fn between(first: &Census, last: &Census) -> Self {
        let elapsed_nanos = last.monotonic_nanos.saturating_sub(first.monotonic_nanos);
        let cores = last.cores;
        let own_before = own(first, &BTreeSet::new());
        let own_now = own(last, &own_before);
        let total = |census: &Census, own: &BTreeSet<Identity>| -> u64 {
            own.iter().filter_map(|identity| same(census, *identity)).map(Process::total_nanos).sum()
        };
        let own_nanos = total(last, &own_now).saturating_sub(total(first, &own_before));
        let machine_nanos = last.machine_cpu_nanos.saturating_sub(first.machine_cpu_nanos);
        let ended = ended(first, last);
        let mut programs = BTreeMap::new();
        for (id, now) in &last.processes {
            let identity = identity(*id, now);
            if now.is_kernel || own_now.contains(&identity) {
                continue;
            }
            let before = same(first, identity);
            let inherited = before.map_or(now.children_nanos, |before| {
                let known = ended.get(id).copied().unwrap_or_default();
                now.children_nanos.saturating_sub(before.children_nanos).saturating_sub(known)
            });
            // More than there was is the past of an adopted process, or of one that the first census overlooked.
            let possible = |nanos: u64| if nanos <= elapsed_nanos * cores as u64 { nanos } else { 0 };
            let own = possible(now.cpu_nanos.saturating_sub(before.map_or(0, |before| before.cpu_nanos)));
            let inherited = if *id == INIT { 0 } else { possible(inherited) };
            if own + inherited > 0 {
                *programs.entry(now.program.clone()).or_default() += own + inherited;
            }
        }
        Self { elapsed_nanos, cores, total_nanos: machine_nanos.saturating_sub(own_nanos), programs }
    }

    /// Adds what was used over the span that followed.
    pub fn add(&mut self, next: Self) {
        self.elapsed_nanos += next.elapsed_nanos;
        self.cores = next.cores;
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
        let sums = [("other programs", others), ("the kernel and unseen processes", rest)];
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
        write!(formatter, "{} of {} cores", cores(self.millicores()), self.cores)?;
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

/// Our processes: everything below [`Census::own`], and what was ours before and has lost its parent since.
fn own(census: &Census, before: &BTreeSet<Identity>) -> BTreeSet<Identity> {
    let is_own = |id: i32| {
        let mut id = id;
        // No longer than there are processes: parents read at different instants could form a ring.
        for _ in 0..census.processes.len() {
            match census.processes.get(&id) {
                _ if id == census.own => return true,
                Some(process) => id = process.parent,
                None => return false,
            }
        }
        false
    };
    let all = census.processes.iter().map(|(id, process)| (*id, identity(*id, process)));
    all.filter(|(id, identity)| before.contains(identity) || is_own(*id)).map(|(_, identity)| identity).collect()
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
                started_ticks: 1,
                program: program.into(),
                is_kernel: id == 2 || parent == 2,
                cpu_nanos: own * MILLISECOND,
                children_nanos: children * MILLISECOND,
            };
            (id, process)
        };
        Census {
            monotonic_nanos: millis * MILLISECOND,
            machine_cpu_nanos: machine_millis * MILLISECOND,
            cores: 2,
            own: 100,
            processes: always.into_iter().chain(rows.iter().copied()).map(process).collect(),
        }
    }

    fn used(machine_millis: u64, before: &[Row], after: &[Row]) -> Used {
        Used::between(&census(0, 0, before), &census(1_000, machine_millis, after))
    }

    #[test]
    fn the_busiest_programs_are_named_first_and_kernel_threads_are_the_rest() {
        let before =
            [(7, 1, "cc1plus", 500, 0), (8, 1, "cc1plus", 0, 0), (9, 1, "Web Content", 0, 0), (30, 2, "kworker", 0, 0)];
        let after = [
            (7, 1, "cc1plus", 1_000, 0),
            (8, 1, "cc1plus", 600, 0),
            (9, 1, "Web Content", 210, 0),
            (30, 2, "kworker", 120, 0),
        ];
        let used = used(1_450, &before, &after);
        assert_eq!(
            used.to_string(),
            "1.4 of 2 cores (cc1plus 1.1, Web Content 0.2, the kernel and unseen processes 0.1)"
        );
        assert_eq!(used.millicores(), 1_450);
    }

    #[test]
    fn what_is_our_own_is_not_foreign_even_once_it_has_ended_or_lost_its_parent() {
        let before = [(101, 100, "bench-job", 0, 0), (102, 100, "proxy", 0, 0), (103, 102, "etcd", 0, 0)];
        // The loader has ended and was waited for; the proxy died and its store was adopted by init.
        let mut after = census(1_000, 1_500, &[(103, 1, "etcd", 600, 0)]);
        after.processes.get_mut(&100).unwrap().children_nanos = 800 * MILLISECOND;
        let used = Used::between(&census(0, 0, &before), &after);
        assert_eq!((used.total_nanos, used.programs.len()), (100 * MILLISECOND, 0), "{used:?}");
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
            assert_eq!(used.to_string(), "0.9 of 2 cores (the kernel and unseen processes 0.9)");
        }
    }

    #[test]
    fn beyond_three_programs_the_rest_is_summed_and_trifles_are_left_out() {
        let programs = [("a", 300), ("b", 270), ("c", 240), ("d", 210), ("e", 180), ("f", 150), ("g", 120), ("h", 90)];
        let after: Vec<Row> = (10..).zip(programs).map(|(id, (program, used))| (id, 1, program, used, 0)).collect();
        let used = used(1_560, &[], &after);
        assert_eq!(used.to_string(), "1.6 of 2 cores (a 0.3, b 0.3, c 0.2, other programs 0.8)");
        let trifle = Used { elapsed_nanos: 1_000 * MILLISECOND, cores: 2, ..Used::default() };
        assert_eq!(trifle.to_string(), "0.0 of 2 cores");
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
            prop_assert_eq!(used.total_nanos, 1_000 * MILLISECOND);
        }
    }
}
