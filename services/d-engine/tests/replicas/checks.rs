//! What must be true after every step.

use std::collections::{BTreeMap, BTreeSet};

use d_engine::history::TooOld;
use d_engine::machine::{Reply, Shown};
use d_engine::state::{Applied, Refusal, answer, write_rows};
use d_engine_client::{Event, OperationResult, Query, WatchOptions};
use replog::Role;

use crate::bugs::Bug;
use crate::world::{Asked, World};

/// The sum of all additions that a member shows.
pub fn sum(shown: &Shown) -> i64 {
    let found = answer(&*shown.view().rows, &Query::Get("sum".into())).unwrap();
    found.items.first().map_or(0, |item| std::str::from_utf8(&item.value).unwrap().parse().unwrap())
}

/// Every key of the clients, with what it had before.
pub fn everything() -> WatchOptions {
    WatchOptions { end: Some("~".into()), with_previous: true, ..WatchOptions::default() }
}

impl World {
    /// A term has one leader.
    pub fn check_leader(&mut self, id: u64) {
        let Some(process) = &self.hosts[id as usize - 1].process else { return };
        let node = process.log.node();
        if node.role() == Role::Leader {
            let leader = *self.leaders.entry(node.term()).or_insert(id);
            assert_eq!(leader, id, "members {leader} and {id} both lead term {}", node.term());
        }
    }

    /// Equal entries make equal rows.
    pub fn check_rows(&mut self, id: u64) {
        let Some(process) = &self.hosts[id as usize - 1].process else { return };
        assert_eq!(process.shown.broken(), None);
        let view = process.shown.view();
        let mut rows = Vec::new();
        write_rows(&*view.rows, &mut rows).unwrap();
        if let Some(known) = self.rows_at.get(&view.applied) {
            assert_eq!(*known, rows, "member {id} differs at index {}", view.applied);
        } else {
            self.rows_at.insert(view.applied, rows);
        }
    }

    /// Equal entries make equal events, and who watches is told of each of them once and in order, or that it was not.
    pub fn check_events(&mut self, id: u64) {
        let bug = self.bug;
        let Some(process) = &mut self.hosts[id as usize - 1].process else { return };
        loop {
            let step = match process.watch.step() {
                Ok(step) => step,
                Err(TooOld(oldest)) => {
                    // A snapshot took the place of what happened: it is said from where on one can watch.
                    process.watch = process.shown.history.watch(everything()).unwrap();
                    if bug != Some(Bug::WatchesOverGaps) {
                        process.watched = (oldest - 1).max(process.shown.view().applied);
                    }
                    continue;
                }
            };
            self.events += step.events.len() as u64;
            let mut by_entry: BTreeMap<u64, Vec<Event>> = BTreeMap::new();
            let mut last = process.watched;
            for event in step.events {
                let revision = event.revision;
                assert!(revision > process.watched && revision >= last, "member {id} tells of {revision} after {last}");
                last = revision;
                by_entry.entry(revision).or_default().push(event);
            }
            for index in process.watched + 1..=step.index {
                let told = by_entry.remove(&index).unwrap_or_default();
                let mut keys = BTreeSet::new();
                assert!(told.iter().all(|event| keys.insert(event.key.clone())), "member {id} repeats {told:?}");
                let known = self.events_at.entry(index).or_insert_with(|| told.clone());
                assert_eq!(*known, told, "member {id} tells something else of entry {index}");
            }
            process.watched = process.watched.max(step.index);
            if !step.has_more {
                return;
            }
        }
    }

    pub fn told(&mut self, asked: Asked, reply: Reply) {
        let Applied { index, outcome, .. } = reply.unwrap();
        self.acknowledged = self.acknowledged.max(index);
        match (asked, outcome) {
            (Asked::Open, Ok(_)) => self.session = self.session.or(Some(index)),
            (Asked::Add(sequence), Ok(results)) => {
                let [OperationResult::Sum(sum)] = results.results[..] else { panic!("{results:?}") };
                let first = *self.answers.entry(sequence).or_insert((index, sum));
                assert_eq!(first, (index, sum), "addition {sequence} was done twice");
            }
            (Asked::Add(sequence), Err(Refusal::Forgotten)) => assert!(self.answers.contains_key(&sequence)),
            (Asked::Lease, Ok(results)) => {
                if let [OperationResult::Lease(Some(lease))] = &results.results[..] {
                    self.leases.push(lease.number);
                }
            }
            (Asked::Other, _) => {}
            (asked, outcome) => panic!("{asked:?}: {outcome:?}"),
        }
    }
}
