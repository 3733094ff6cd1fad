//! What must be true after every step, whatever happens.

use std::collections::VecDeque;

use super::mirror::Mirror;
use super::world::World;
use crate::consensus::Role;
use crate::membership::Membership;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The promise that was broken.
    pub promise: &'static str,
    /// How the promise was broken, in one line.
    pub detail: String,
}

pub(super) type Checked = Result<(), Violation>;

pub(super) fn broken<T>(promise: &'static str, detail: String) -> Result<T, Violation> {
    Err(Violation { promise, detail })
}

/// What all members together have done so far.
#[derive(Debug, Default)]
pub(super) struct Checks {
    /// Who led, by term.
    leaders: Vec<u64>,
    /// By index: term and chain of every entry that any log ever had.
    entries: Vec<Vec<(u64, u64)>>,
    /// By index: the chain of what is committed, and the term of the leader that committed it.
    committed: Vec<(u64, u64)>,
    /// By index: the state after it.
    states: Vec<u64>,
    /// The newest entry whose write was acknowledged or that a strong read has seen, and what it was earlier.
    acknowledged: u64,
    history: VecDeque<(u64, u64)>,
}

fn slot<T: Clone>(list: &mut Vec<T>, at: u64, empty: T) -> &mut T {
    let at = at as usize;
    if list.len() <= at {
        list.resize(at + 1, empty);
    }
    &mut list[at]
}

impl Checks {
    /// All begin with the founders' snapshot, at index 1.
    pub(super) fn new() -> Self {
        Self { committed: vec![(0, 0), (1, 1)], ..Self::default() }
    }

    pub(super) fn chain_of(&self, index: u64) -> Option<u64> {
        self.committed.get(index as usize).map(|(chain, _)| *chain)
    }

    pub(super) fn last_committed(&self) -> u64 {
        self.committed.len() as u64 - 1
    }

    /// Log matching: an entry of this index and term always has the same entries before it.
    pub(super) fn entry(&mut self, host: u64, index: u64, term: u64, chain: u64) -> Checked {
        let known = slot(&mut self.entries, index, Vec::new());
        match known.iter().find(|(other, _)| *other == term) {
            None => known.push((term, chain)),
            Some((_, other)) if *other != chain => {
                return broken("log matching", format!("entry {index} of term {term} differs on node {host}"));
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Election safety and leader completeness.
    pub(super) fn leads(&mut self, host: u64, term: u64, log: &Mirror) -> Checked {
        let leader = slot(&mut self.leaders, term, 0);
        if *leader != 0 && *leader != host {
            return broken("election safety", format!("nodes {leader} and {host} both lead term {term}"));
        }
        *leader = host;
        let before = self.committed.partition_point(|(_, by)| *by < term) as u64 - 1;
        if before >= log.base() && log.chain(before) != self.chain_of(before) {
            let last = log.last();
            let detail =
                format!("node {host} leads term {term} without committed entry {before}; its log ends at {last}");
            return broken("leader completeness", detail);
        }
        Ok(())
    }

    /// State-machine safety; and of what is new: acknowledged implies durable on a quorum.
    pub(super) fn commits<'a>(
        &mut self,
        (host, term): (u64, u64),
        index: u64,
        log: &Mirror,
        memberships: [&Membership; 2],
        disk_of: impl Fn(u64) -> Option<&'a Mirror>,
    ) -> Checked {
        let Some(chain) = log.chain(index) else {
            let (base, last) = (log.base(), log.last());
            let detail = format!("node {host} says {index} is committed, and has entries {base} to {last}");
            return if index < base { Ok(()) } else { broken("state-machine safety", detail) };
        };
        if let Some(other) = self.chain_of(index) {
            if other != chain {
                return broken("state-machine safety", format!("node {host} commits another entry {index}"));
            }
            return Ok(());
        }
        let last = self.last_committed();
        if log.base() <= last && log.chain(last) != self.chain_of(last) {
            return broken("state-machine safety", format!("node {host} commits {index} behind another entry {last}"));
        }
        let has = |id: u64| disk_of(id).is_some_and(|disk| disk.chain(index) == Some(chain) || disk.base() > index);
        let is_looked_at = !memberships[0].voters.is_empty() || !memberships[1].voters.is_empty();
        if is_looked_at && !memberships.iter().any(|membership| membership.is_quorum(has)) {
            let on: Vec<u64> = memberships[1].all().into_iter().filter(|id| has(*id)).collect();
            let detail =
                format!("node {host} commits {index}, which is on the disks of {on:?} of {:?}", memberships[1]);
            return broken("acknowledged implies durable on a quorum", detail);
        }
        for index in last + 1..=index {
            match log.chain(index) {
                Some(chain) => self.committed.push((chain, term)),
                None => return broken("state-machine safety", format!("node {host} commits over a gap at {index}")),
            }
        }
        Ok(())
    }

    /// Replicas are equal at equal applied index.
    pub(super) fn state(&mut self, host: u64, index: u64, digest: u64) -> Checked {
        // No digest is 0 but that of no rows, which then is equal to an unknown one.
        let known = slot(&mut self.states, index, 0);
        if *known != 0 && *known != digest {
            return broken("equal state at equal index", format!("node {host} has another state after entry {index}"));
        }
        *known = digest;
        Ok(())
    }

    /// A client was told that its write succeeded, or saw somebody's: who asks later must see it.
    pub(super) fn acknowledge(&mut self, now: u64, index: u64) {
        if index > self.acknowledged {
            self.acknowledged = index;
            self.history.push_back((now, index));
            // No bound of a read is longer than the last few hundred acknowledgements.
            if self.history.len() > 2000 {
                self.history.pop_front();
            }
        }
    }

    /// What a read that begins now must see, if it may be so stale.
    pub(super) fn must_see(&self, now: u64, staleness_micros: u64) -> u64 {
        let then = now.saturating_sub(staleness_micros);
        let later = self.history.partition_point(|(at, _)| *at <= then);
        later.checked_sub(1).and_then(|at| self.history.get(at)).map_or(0, |(_, index)| *index)
    }
}

impl World {
    /// What must be true of a member now.
    pub(super) fn check(&mut self, id: u64) -> Checked {
        let Self { hosts, checks, .. } = self;
        let Some(process) = &hosts[id as usize - 1].process else { return Ok(()) };
        let node = process.log.node();
        let (term, commit) = (node.term(), node.commit_index());
        let led = (node.role() == Role::Leader).then_some(term);
        let log = &hosts[id as usize - 1].mirror;
        if let Some(term) = led
            && process.led != led
        {
            checks.leads(id, term, log)?;
            self.stats.elections += 1;
        }
        if commit > process.commit {
            let nobody = Membership::default();
            let memberships = match self.options.harm_only {
                true => [&nobody, &nobody],
                false => [&process.membership, node.membership()],
            };
            checks.commits((id, term), commit, log, memberships, |other| {
                hosts.get(other as usize - 1).map(|host| &host.disk)
            })?;
        }
        let membership = node.membership().clone();
        let old = process.led;
        if let Some(process) = self.process(id) {
            process.led = led;
            process.commit = commit;
            process.membership = membership;
        }
        if let Some(term) = led.filter(|_| old != led) {
            self.say(id, || format!("LEADS term {term}"));
            self.curse(id);
        }
        Ok(())
    }
}
