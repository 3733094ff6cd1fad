//! Reads that look at a member's state, on its core thread or beside it, and whether what they saw may be told.

use super::checks::{Checked, broken};
use super::host::Asked;
use super::world::World;
use crate::bugs::Bug;
use crate::clock::Now;
use crate::reads::{ReadLevel, ReadPath, ReadPermit};

impl World {
    /// A read looks, and is answered if it may.
    pub(super) fn look(&mut self, id: u64, permit: ReadPermit, now: Now) -> Checked {
        let Some(process) = self.process(id) else { return Ok(()) };
        let Some(asked) = process.reads.remove(&permit.id) else { return Ok(()) };
        let seen = process.log.node().applied_index();
        if process.log.answer(&permit, |_| (), || now).is_none() {
            if let Ok(read) = process.log.read(ReadLevel::Linearizable, 0, now) {
                process.reads.insert(read, asked);
            }
            return Ok(());
        }
        self.answered(id, asked, (permit.path, permit.term, seen))
    }

    /// A read that asks nobody: it looks at what was published, and looks again whether the lease still holds.
    pub(super) fn glance(&mut self, id: u64, asked: Asked, term: u64, now: Now) -> Checked {
        let rechecks = !self.planted().has(Bug::LeaseNotRechecked);
        let Some(process) = self.process(id) else { return Ok(()) };
        let (standing, seen) = (process.published, process.log.node().applied_index());
        if rechecks && (standing.term != term || !standing.has_lease(now.boot_micros)) {
            if let Ok(read) = process.log.read(ReadLevel::Linearizable, 0, now) {
                process.reads.insert(read, asked);
            }
            return Ok(());
        }
        self.answered(id, asked, (ReadPath::Lease, term, seen))
    }

    /// A client gets an answer.
    fn answered(&mut self, id: u64, asked: Asked, (path, term, seen): (ReadPath, u64, u64)) -> Checked {
        self.stats.reads += 1;
        self.stats.lease_reads += u64::from(path == ReadPath::Lease);
        self.say(id, || format!("answers {:?} by {path:?} at {seen}, must see {}", asked.level, asked.must_see));
        if asked.level != ReadLevel::Eventual && seen < asked.must_see {
            let detail = format!(
                "node {id} answers a read {:?} by {path:?} in term {term} at {seen}; {} was acknowledged or seen before",
                asked.level, asked.must_see
            );
            return broken("no strong read is older than a write acknowledged before it began", detail);
        }
        if matches!(asked.level, ReadLevel::Linearizable | ReadLevel::Lease) {
            self.checks.acknowledge(self.now, seen);
        }
        if let Some(ending) = &mut self.ending
            && asked.level != ReadLevel::Eventual
            && !ending.answered.contains(&id)
        {
            ending.answered.push(id);
        }
        Ok(())
    }
}
