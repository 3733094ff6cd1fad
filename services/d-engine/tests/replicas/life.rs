//! How members start and end, and what they do in between: their disks, their messages.

use std::collections::BTreeMap;

use d_engine::machine::Machine;
use replog::{Effects, Membership, Proposed, ReplicatedLog};

use crate::bugs::{Bug, Planted};
use crate::checks::{everything, sum};
use crate::lasting::{COMMITS_MAX, Lasting};
use crate::world::{Asked, MEMBERS, MustSee, Process, WAL, World, one_in, settings};

impl World {
    pub fn start(&mut self, id: u64) {
        let (settings, now, seed, bug) = (settings(), self.now(), self.random.draw(), self.bug);
        let host = &mut self.hosts[id as usize - 1];
        // One member has its state in memory.
        if id == 1 {
            host.commits.lock().unwrap().clear();
        }
        let mut storage = Lasting::open(&host.commits);
        if bug == Some(Bug::AppliesTwice) {
            storage.applied -= storage.applied.min(5);
        }
        let machine = Machine::new(storage).unwrap();
        let shown = machine.shown();
        let mut machine = Planted { machine, bug, id };
        let (mut wal, mut recovered) = replog::recover(host.wal.clone(), WAL, &settings, &mut machine).unwrap();
        if recovered.is_empty() {
            let founders = Membership::of(1..=MEMBERS);
            let (founded, records) =
                ReplicatedLog::found(&settings, &machine, founders, host.snapshots.clone()).unwrap();
            wal.commit(&records).unwrap();
            recovered = founded;
        }
        let bugs = bug.map_or([None; 2], Bug::of_the_log);
        let snapshots = host.snapshots.clone();
        let log = ReplicatedLog::with_bugs(id, settings, machine, recovered, snapshots, (seed, now), bugs).unwrap();
        self.passed_over += u64::from(log.node().applied_index() > log.node().snapshot_index());
        let (batches, proposals, reads) = (Vec::new(), Vec::new(), BTreeMap::new());
        let (watch, watched) = (shown.history.watch(everything()).unwrap(), shown.view().applied);
        let (snapshot, long_step, files_job, chunks_job) = (None, None, None, None);
        let process = Process {
            log,
            wal,
            shown,
            batches,
            snapshot,
            long_step,
            files_job,
            chunks_job,
            proposals,
            reads,
            watch,
            watched,
        };
        host.process = Some(process);
        self.drain(id);
    }

    /// A process ends; what it has not synced is lost, in part if the machine loses its power.
    pub fn kill(&mut self, id: u64, loses_power: bool, down_micros: u64) {
        let host = &mut self.hosts[id as usize - 1];
        host.process = None;
        host.down_until = self.time + down_micros;
        let random = &mut self.random;
        let mut commits = host.commits.lock().unwrap();
        let lost = random.below(if loses_power { COMMITS_MAX as u64 } else { 3 });
        let left = commits.len().saturating_sub(lost as usize);
        commits.truncate(left);
        if loses_power {
            host.wal.crash(|| random.draw());
            host.snapshots.crash(|| random.draw());
        }
    }

    pub fn drain(&mut self, id: u64) {
        loop {
            let now = self.now();
            let Some(process) = &mut self.hosts[id as usize - 1].process else { return };
            let effects = process.log.take(now).unwrap();
            if effects.is_empty() {
                break;
            }
            // Named one by one, so that what is new there is not forgotten here.
            let Effects {
                messages,
                batch,
                applied,
                installed: _,
                reads,
                failed_reads: _,
                snapshot,
                long_step,
                files_job,
                chunks_job,
            } = effects;
            if let Some(batch) = batch {
                let due = self.time + self.random.below(4_000);
                process.batches.push((due, batch));
            }
            process.snapshot = process.snapshot.take().or(snapshot);
            let mut later = || self.time + self.random.below(20_000);
            process.long_step = process.long_step.take().or(long_step.map(|step| (later(), step)));
            process.files_job = process.files_job.take().or(files_job.map(|job| (later(), job)));
            process.chunks_job = process.chunks_job.take().or(chunks_job.map(|job| (later(), job)));
            for message in messages {
                if self.cuts.contains(&(message.from(), message.to())) {
                    continue;
                }
                let copies = if !self.is_faulty { 1 } else { [0, 1, 1, 1, 1, 1, 1, 2][self.random.below(8) as usize] };
                for _ in 0..copies {
                    let late = if self.is_faulty && one_in(&mut self.random, 20) { 100_000 } else { 3_000 };
                    self.messages.push((self.time + self.random.below(late), message.clone()));
                }
            }
            let mut told = Vec::new();
            for applied in applied {
                let (index, term) = (applied.index, applied.term);
                let is_mine = |(proposed, _): &(Proposed, Asked)| (proposed.first, proposed.term) == (index, term);
                if let Some(at) = process.proposals.iter().position(is_mine) {
                    let (_, asked) = process.proposals.swap_remove(at);
                    told.extend(applied.reply.map(|reply| (asked, reply)));
                }
            }
            // Whoever is in the place of a proposal has displaced it.
            let applied = process.log.node().applied_index();
            process.proposals.retain(|(proposed, _)| proposed.first > applied);
            let mut seen = Vec::new();
            for permit in reads {
                let look = || MustSee { sum: sum(&process.shown), index: process.shown.view().applied };
                if let Some(must_see) = process.reads.remove(&permit.id)
                    && let Some(saw) = process.log.answer(&permit, |_| look(), || now)
                {
                    seen.push((must_see, saw));
                }
            }
            self.check_leader(id);
            self.check_rows(id);
            self.check_events(id);
            for (asked, reply) in told {
                self.told(asked, reply);
            }
            for (must_see, saw) in seen {
                self.reads += 1;
                let is_fresh = saw.sum >= must_see.sum && saw.index >= must_see.index;
                assert!(is_fresh, "a strong read at member {id} saw {saw:?}, acknowledged were {must_see:?}");
            }
        }
    }
}
