//! Clients, what they ask and what they are told; and the end of a run, when everything must work again.

use super::checks::{Checked, broken};
use super::host::Asked;
use super::kv;
use super::world::{Ending, Event, World};
use crate::consensus::Role;
use crate::random::Random;
use crate::reads::ReadLevel;

impl World {
    /// A client asks somebody for something.
    pub(super) fn client(&mut self) {
        let up: Vec<u64> = self.hosts.iter().filter(|host| host.process.is_some()).map(|host| host.id).collect();
        let mut leaders: Vec<u64> = up.iter().copied().filter(|id| self.leads(*id)).collect();
        leaders.sort_by_key(|id| self.process(*id).map(|process| process.log.node().term()));
        if self.ending.is_none() {
            // Two leaders are not two for long.
            let pace = if leaders.len() > 1 { 500 } else { self.client_micros };
            let next = 1 + self.random.below(2 * pace);
            self.after(next, Event::Client);
        }
        let some = |pool: &[u64], random: &mut Random| pool.get(random.below(pool.len() as u64) as usize).copied();
        let pool = if self.random.below(4) > 0 && !leaders.is_empty() { &leaders } else { &up };
        let Some(mut host) = some(pool, &mut self.random) else { return };
        let mut is_write = self.random.below(100) < self.writes && self.now >= self.quiet_until;
        if let [oldest, .., newest] = leaders[..]
            && self.random.below(2) == 0
        {
            // The worst that a client can do to two leaders: write to the one, and ask the other.
            is_write = self.random.below(3) == 0;
            host = if is_write { newest } else { oldest };
        }
        if is_write {
            let key = self.random.next() >> 8;
            return self.after(0, Event::Write { host, key });
        }
        let level = match self.random.below(6) {
            0 | 1 => ReadLevel::Linearizable,
            2 | 3 => ReadLevel::Lease,
            4 => ReadLevel::Bounded { max_staleness_micros: self.random.below(300_000) },
            _ => ReadLevel::Eventual,
        };
        self.ask(host, level);
    }

    pub(super) fn ask(&mut self, host: u64, level: ReadLevel) {
        let staleness = match level {
            // A node's clock may be slow, and a microsecond of its is not one of ours.
            ReadLevel::Bounded { max_staleness_micros } => {
                let drift = u64::from(self.settings.clock_drift_ppm);
                max_staleness_micros + max_staleness_micros * 2 * drift / 1_000_000 + 2
            }
            _ => 0,
        };
        let must_see = self.checks.must_see(self.now, staleness);
        self.after(0, Event::Read { host, asked: Asked { level, must_see } });
    }

    pub(super) fn leads(&self, id: u64) -> bool {
        self.hosts[id as usize - 1].process.as_ref().is_some_and(|process| process.log.node().role() == Role::Leader)
    }

    /// The leader of the highest term, if any.
    pub(super) fn leader(&self) -> Option<u64> {
        let processes = self.hosts.iter().filter_map(|host| Some((host.process.as_ref()?, host.id)));
        let leading = processes.filter(|(process, _)| process.log.node().role() == Role::Leader);
        leading.max_by_key(|(process, _)| process.log.node().term()).map(|(_, id)| id)
    }

    /// Ends all faults, so that the group can finish its work.
    pub(super) fn calm(&mut self) -> Checked {
        self.say(0, || "ALL FAULTS END".into());
        self.network.calm();
        self.ending = Some(Ending { since: self.now, ..Ending::default() });
        for id in 1..=self.hosts.len() as u64 {
            self.host(id).slow_until = 0;
            if self.host(id).process.is_none() {
                self.after(0, Event::Restart { host: id });
            } else if self.host(id).paused_until > self.now {
                self.host(id).paused_until = self.now;
                self.resume(id)?;
            }
        }
        self.after(0, Event::Probe);
        Ok(())
    }

    /// When everything works: in some seeds the leader's disk stops to answer, for good and without an error. The others must go on
    /// without it. Whether it does.
    pub(super) fn hang_a_disk(&mut self) -> bool {
        let Some(leader) = self.leader().filter(|_| self.hanging.is_none()) else { return false };
        let process = self.hosts[leader as usize - 1].process.as_ref();
        let voters = process.map_or(0, |process| process.log.node().membership().voters.len());
        if voters < 3 || self.random.below(4) > 0 {
            return false;
        }
        self.say(leader, || "ITS DISK HANGS".into());
        self.hanging = Some(leader);
        self.ending = Some(Ending { since: self.now, ..Ending::default() });
        true
    }

    /// After the faults: a write, if none has succeeded yet, and strong reads everywhere.
    pub(super) fn probe(&mut self) {
        self.after(self.settings.election_micros() / 4, Event::Probe);
        let Some(leader) = self.leader() else { return };
        let now = self.clock(leader);
        let committed = self.checks.last_committed();
        let key = self.random.next();
        let Some(ending) = &mut self.ending else { return };
        if ending.probe.is_none_or(|probe| probe > committed) {
            let Some(process) = self.hosts[leader as usize - 1].process.as_mut() else { return };
            if let Ok(proposed) = process.log.propose(vec![kv::command(key, key, 0)], now) {
                process.proposals.push_back(proposed);
                ending.probe = Some(proposed.last);
            }
        }
        let waiting: Vec<u64> = self
            .members(leader)
            .into_iter()
            .filter(|id| self.ending.as_ref().is_some_and(|ending| !ending.answered.contains(id)))
            .collect();
        for id in waiting {
            self.ask(id, ReadLevel::Linearizable);
        }
    }

    pub(super) fn members(&self, leader: u64) -> Vec<u64> {
        let process = self.hosts[leader as usize - 1].process.as_ref();
        process.map(|process| process.log.node().membership().all()).unwrap_or_default()
    }

    pub(super) fn has_recovered(&self, ending: &Ending) -> bool {
        let (Some(probe), Some(leader)) = (ending.probe, self.leader()) else { return false };
        if probe > self.checks.last_committed() {
            return false;
        }
        self.hanging != Some(leader)
            && self.members(leader).iter().filter(|id| self.hanging != Some(**id)).all(|id| {
                let process = self.hosts[*id as usize - 1].process.as_ref();
                process.is_some_and(|process| process.log.node().applied_index() >= probe)
                    && ending.answered.contains(id)
            })
    }

    pub(super) fn not_alive(&self) -> Checked {
        let states: Vec<String> = self
            .hosts
            .iter()
            .map(|host| match &host.process {
                None => format!("{}: down", host.id),
                Some(process) => {
                    let node = process.log.node();
                    format!(
                        "{}: {:?} term {} leader {:?} last {} commit {} applied {} unsafe {}",
                        host.id,
                        node.role(),
                        node.term(),
                        node.leader(),
                        node.last_index(),
                        node.commit_index(),
                        node.applied_index(),
                        node.unsafe_batches()
                    )
                }
            })
            .collect();
        broken("everything works some time after the last fault", format!("{:?}; {}", self.ending, states.join("; ")))
    }
}
