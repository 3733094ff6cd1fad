//! What goes wrong, and what administrators do meanwhile.

use wal::files::Fault;

use super::checks::Checked;
use super::world::{Event, World};
use crate::membership::Change;

/// Nodes that a group ever has.
const HOSTS_MAX: usize = 9;

impl World {
    fn some_host(&mut self) -> u64 {
        1 + self.random.below(self.hosts.len() as u64)
    }

    /// Something goes wrong, or gets well again.
    pub(super) fn trouble(&mut self) -> Checked {
        if self.ending.is_some() {
            return Ok(());
        }
        let election = self.settings.election_micros();
        let next = election / 4 + self.random.below(election);
        self.after(next, Event::Trouble);
        let host = self.some_host();
        match self.random.below(26) {
            0..4 => {
                self.say(0, || "the network heals".into());
                self.network.heal();
            }
            4..9 => self.partition(),
            9..13 => {
                let is_power_lost = self.random.below(2) == 0;
                self.crash(host, is_power_lost);
                self.restart_later(host);
            }
            13 => {
                // The whole site.
                for host in 1..=self.hosts.len() as u64 {
                    self.crash(host, true);
                    self.restart_later(host);
                }
            }
            14..17 => self.pause(host),
            17 => {
                let until = self.now + self.random.below(4 * election);
                self.host(host).slow_until = until;
            }
            18 => self.break_disk(host),
            19 | 20 => self.ambush(),
            21 | 22 => {
                self.say(0, || "who leads now has bad luck".into());
                self.unlucky_until = self.now + self.random.below(20 * election);
            }
            23 | 24 => {
                // Somebody between them resets connections, and no message is lost.
                let other = self.leader().unwrap_or(host);
                self.close_links(other);
            }
            _ => {
                // Somebody sets a clock.
                let offset = 1_700_000_000_000 + self.random.below(5_000);
                self.host(host).clock.unix_offset_millis = offset;
            }
        }
        Ok(())
    }

    pub(super) fn restart_later(&mut self, host: u64) {
        let election = self.settings.election_micros();
        // Often at once: what was promised before the crash still counts then.
        let delay = if self.random.below(2) == 0 { self.random.below(2_000) } else { self.random.below(3 * election) };
        self.after(delay, Event::Restart { host });
    }

    /// All hear soon that the connections of one machine have closed, whether it lives or not.
    pub(super) fn close_links(&mut self, other: u64) {
        for host in (1..=self.hosts.len() as u64).filter(|host| *host != other) {
            let delay = self.random.below(2 * self.network.delay_micros);
            self.after(delay, Event::Closed(host, other));
        }
    }

    /// Nobody hears it, and it hears nobody; often the others are told so by whoever is between them.
    pub(super) fn isolate(&mut self, one: u64) {
        self.say(one, || "is cut off".into());
        if self.random.below(2) == 0 {
            self.close_links(one);
        }
        for id in (1..=self.hosts.len() as u64).filter(|id| *id != one) {
            self.network.cut(one, id);
            self.network.cut(id, one);
        }
    }

    /// Who has just won an election may not enjoy it: its first entries reach nobody, or few.
    pub(super) fn curse(&mut self, id: u64) {
        if self.now >= self.unlucky_until || self.ending.is_some() {
            return;
        }
        let is_alone = self.process(id).is_some_and(|process| process.log.node().membership().voters.len() == 1);
        // Who leads alone leads before its disk knows: then is the time.
        let delay = self.random.below(if is_alone { 4_000 } else { 8 * self.network.delay_micros });
        for _ in 0..self.random.below(3) {
            let (at, key) = (self.random.below(delay.max(1)), self.random.next() >> 8);
            self.after(at, Event::Write { host: id, key });
        }
        match if is_alone { 0 } else { self.random.below(8) } {
            0 => self.after(delay, Event::Crash { host: id, is_power_lost: true }),
            1 => self.after(delay, Event::Crash { host: id, is_power_lost: false }),
            2..5 => {
                // Not even its first message gets out. Who had that luck before is back.
                self.network.heal();
                self.isolate(id);
            }
            5..7 => {
                self.network.heal();
                self.after(delay, Event::Isolate { host: id });
            }
            _ => {}
        }
    }

    /// One voter does not hear the leader and wants to lead; then the leader is cut off while it still counts on the others,
    /// who are started again and have forgotten what they said.
    fn ambush(&mut self) {
        let Some(leader) = self.leader() else { return };
        self.stats.partitions += 1;
        self.network.heal();
        let members = self.members(leader);
        let others: Vec<u64> = members.into_iter().filter(|id| *id != leader).collect();
        if others.is_empty() {
            return;
        }
        let rival = others[self.random.below(others.len() as u64) as usize];
        self.say(rival, || format!("does not hear {leader} any more, and the others will forget it"));
        self.network.cut(leader, rival);
        self.network.cut(rival, leader);
        let election = self.settings.election_micros();
        let then = election / 2 + self.random.below(2 * election);
        self.after(then, Event::Isolate { host: leader });
        // Sometimes they are not started again, and may vote when they have waited long enough by their clocks.
        let forgetful = if self.random.below(2) == 0 { others } else { Vec::new() };
        for host in forgetful.into_iter().filter(|host| *host != rival) {
            self.after(then, Event::Crash { host, is_power_lost: false });
            self.after(then + 500, Event::Restart { host });
        }
        self.quiet_until = self.now + then + election;
    }

    fn pause(&mut self, id: u64) {
        let election = self.settings.election_micros();
        // A leader's pause is what matters most.
        let id = self.leader().filter(|_| self.random.clone().below(3) > 0).unwrap_or(id);
        let length = self.random.below(4 * election);
        let (now, clock) = (self.now, self.hosts[id as usize - 1].clock.at(self.now));
        let host = self.host(id);
        if host.process.is_none() || host.paused_until > now {
            return;
        }
        host.paused_until = now + length;
        host.paused_at = clock;
        self.stats.pauses += 1;
        self.say(id, || format!("is stopped for {} ms", length / 1000));
        self.after(length, Event::Resume { host: id });
    }

    fn break_disk(&mut self, id: u64) {
        let kinds = [Fault::Write, Fault::DataSync, Fault::NameSync, Fault::Create];
        let kind = kinds[self.random.below(4) as usize];
        let after = self.random.below(4);
        self.stats.disk_faults += 1;
        self.say(id, || format!("its disk will fail: {kind:?}"));
        let host = self.host(id);
        if after.is_multiple_of(2) { host.wal.fail(kind, after) } else { host.snapshots.fail(kind, after / 2) }
    }

    /// Symmetric, asymmetric and partial ones, and nodes that nobody hears.
    fn partition(&mut self) {
        self.stats.partitions += 1;
        if self.random.below(2) == 0 {
            self.network.heal();
        }
        let count = self.hosts.len() as u64;
        let leader = self.leader().unwrap_or(1);
        let one = if self.random.below(2) == 0 { leader } else { self.some_host() };
        let other = self.some_host();
        let kind = self.random.below(6);
        if self.random.below(2) == 0 {
            self.quiet_until = self.now + 2 * self.settings.election_micros();
        }
        self.say(0, || format!("the network breaks: kind {kind}, node {one}, node {other}"));
        for id in (1..=count).filter(|id| *id != one) {
            match kind {
                // Isolated; only deaf; only mute.
                0 => {
                    self.network.cut(one, id);
                    self.network.cut(id, one);
                }
                1 => self.network.cut(id, one),
                2 => self.network.cut(one, id),
                _ => {}
            }
        }
        match kind {
            3 => self.network.cut(one, other),
            4 => {
                self.network.cut(one, other);
                self.network.cut(other, one);
            }
            5 => {
                // Two halves.
                let side: Vec<bool> = (0..=count).map(|_| self.random.below(2) == 0).collect();
                for a in 1..=count {
                    for b in 1..=count {
                        if side[a as usize] != side[b as usize] {
                            self.network.cut(a, b);
                        }
                    }
                }
            }
            _ => {}
        }
    }

    /// Members come and go, and leadership is handed over.
    pub(super) fn administer(&mut self) {
        if self.ending.is_some() {
            return;
        }
        let election = self.settings.election_micros();
        let next = election / 2 + self.random.below(2 * election);
        self.after(next, Event::Administer);
        let Some(leader) = self.leader() else { return };
        let Some(process) = self.process(leader) else { return };
        let membership = process.log.node().membership().clone();
        let others: Vec<u64> = membership.voters.iter().copied().filter(|id| *id != leader).collect();
        let pick = |list: &[u64], random: &mut crate::random::Random| -> Option<u64> {
            list.get(random.below(list.len() as u64) as usize).copied()
        };
        let voter = pick(&others, &mut self.random);
        let learner = pick(&membership.learners, &mut self.random);
        let changes = match (self.random.below(10), learner, voter) {
            (0..3, _, Some(voter)) => {
                self.stats.transfers += 1;
                self.say(leader, || format!("is asked to hand over to {voter}"));
                if let Some(process) = self.process(leader) {
                    let _ = process.log.transfer_leader(voter);
                }
                Vec::new()
            }
            (0..5, None, None) | (3 | 4, None, _) if self.hosts.len() < HOSTS_MAX => {
                vec![Change::AddLearner(self.add_host(false))]
            }
            (3..6, Some(learner), _) => vec![Change::Promote(learner)],
            (6, Some(learner), Some(voter)) => vec![Change::Promote(learner), Change::Remove(voter)],
            (7, Some(learner), _) => vec![Change::Remove(learner)],
            (8, _, Some(voter)) if membership.voters.len() > 3 => vec![Change::Remove(voter)],
            (9, _, Some(voter)) if membership.voters.len() > 3 => vec![Change::AddLearner(voter)],
            _ => Vec::new(),
        };
        if !changes.is_empty() {
            let made = self.process(leader).map(|process| process.log.change_membership(&changes));
            self.stats.membership_changes += u64::from(matches!(made, Some(Ok(_))));
            self.say(leader, || format!("is asked for {changes:?}: {made:?}"));
        }
    }
}
