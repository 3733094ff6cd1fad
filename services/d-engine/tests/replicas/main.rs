//! Three members in one thread and in no real time, on simulated disks, with the code that servers run: messages are lost, late and
//! repeated, links break one way and both ways, processes are killed, machines lose power, one or all, snapshots are made and sent. A seed
//! decides all of it.
//!
//! After every step: members that have applied the same have the same rows, and a term has one leader. A session's additions are done once,
//! however often they were sent; no strong read is older than anything that was acknowledged before it began; whoever watches is told what
//! everybody else is told, once, in order, without a gap that is not said. In the end everything works.
//!
//! `REPLICAS_SEEDS=10000 cargo test --release -p d-engine --test replicas members_stay -- --nocapture` looks longer; `REPLICAS_SEED=7` at one.
//!
//! | file | is |
//! | --- | --- |
//! | `world` | members, hosts, network, and what goes wrong |
//! | `life` | how a member starts, ends, and does what its log asks for |
//! | `lasting` | a state that a restart finds again |
//! | `clients` | what is asked |
//! | `checks` | what must be true |
//! | `bugs` | errors that are planted, which the checks must notice |

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bugs;
mod checks;
mod clients;
mod lasting;
mod life;
mod world;

use std::any::Any;
use std::ops::Range;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use d_engine_client::EventKind;

use crate::bugs::Bug;
use crate::world::World;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// What was looked at: for a run that looks at nothing proves nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Looked {
    seeds: u64,
    reads: u64,
    states: u64,
    events: u64,
    expired: u64,
    /// Starts behind the beginning of the log.
    passed_over: u64,
    /// Terms that had a leader.
    terms: u64,
    /// Times that links broke.
    cuts: u64,
}

/// Runs one seed.
fn look(seed: u64) -> Looked {
    let mut world = World::new(seed, None);
    world.run();
    let expired = world.events_at.values().flatten().filter(|event| event.kind == EventKind::Expire).count();
    Looked {
        seeds: 1,
        reads: world.reads,
        states: world.rows_at.len() as u64,
        events: world.events,
        expired: expired as u64,
        passed_over: world.passed_over,
        terms: world.leaders.len() as u64,
        cuts: world.cuts_made,
    }
}

/// Runs all of them on all processors. Ends with the first that shows an error, and names it.
fn look_at_all(seeds: Range<u64>) -> Looked {
    let next = AtomicU64::new(seeds.start);
    let worker = || {
        let mut all = Looked::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return all;
            }
            let Ok(one) = catch_unwind(|| look(seed)) else {
                next.store(seeds.end, Ordering::Relaxed);
                panic!("seed {seed} shows an error: REPLICAS_SEED={seed} repeats it");
            };
            all = all.and(one);
        }
    };
    thread::scope(|scope| {
        let jobs = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).fold(Looked::default(), Looked::and)
    })
}

impl Looked {
    fn and(self, other: Self) -> Self {
        Self {
            seeds: self.seeds + other.seeds,
            reads: self.reads + other.reads,
            states: self.states + other.states,
            events: self.events + other.events,
            expired: self.expired + other.expired,
            passed_over: self.passed_over + other.passed_over,
            terms: self.terms + other.terms,
            cuts: self.cuts + other.cuts,
        }
    }
}

#[test]
fn members_stay_alike_and_additions_are_done_once() {
    if let Some(seed) = number("REPLICAS_SEED") {
        eprintln!("{:?}", look(seed));
        return;
    }
    let begin = Instant::now();
    let looked = look_at_all(0..number("REPLICAS_SEEDS").unwrap_or(30));
    eprintln!("{looked:?} in {:.1} s", begin.elapsed().as_secs_f64());
    let Looked { seeds, reads, states, events, expired, passed_over, terms, cuts } = looked;
    let least = [reads, states, events, expired, passed_over, terms, cuts].into_iter().min().unwrap();
    assert!(least > seeds, "too little was looked at: {looked:?}");
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("something else")
}

#[test]
fn planted_errors_are_noticed() {
    let mut missed = Vec::new();
    for bug in Bug::ALL {
        let notice = |seed| catch_unwind(|| World::new(seed, Some(bug)).run()).err().map(|panic| (seed, panic));
        match (0..400).find_map(notice) {
            Some((seed, panic)) => {
                let said = said(&*panic).lines().next().unwrap_or_default();
                eprintln!("{bug:?} is noticed with seed {seed}: {said}");
            }
            None => missed.push(bug),
        }
    }
    assert_eq!(missed, [], "these are not noticed");
}
