//! What travels beside the consensus' own messages, for leases and for reads of bounded age.

use super::{Freshness, Heard, Node};
use crate::bugs::Bug;
use crate::clock::Now;
use crate::consensus::{self, Role};
use crate::message::{Body, Mark, Message, Stamp};

/// What a node knows about the freshness of its applied state, in numbers that stay true until they are replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The term that the node is in.
    pub term: u64,
    /// Until then, by `CLOCK_BOOTTIME`, nobody else leads; the applied state has everything that was committed. 0: not known.
    pub lease_until_micros: u64,
    /// The applied state has everything that was acknowledged before then. 0: not known.
    pub as_of_micros: u64,
    /// The last entry that was applied.
    pub applied: u64,
}

impl Standing {
    /// Whether nobody else leads at this moment.
    pub fn has_lease(&self, boot_micros: u64) -> bool {
        boot_micros < self.lease_until_micros
    }
}

impl Node {
    /// Stamps what is about to be sent. `now` is not later than that.
    pub(super) fn stamp(&self, messages: &mut [Message], now: Now) {
        if messages.is_empty() {
            return;
        }
        let lease_commit = if self.has_lease(now) { Some(self.consensus.commit()) } else { None };
        for message in messages {
            let Body::Consensus(wire, stamp) = &mut message.body else { continue };
            if consensus::is_from_leader(wire) && wire.term == self.consensus.term() {
                stamp.sent = now.boot_micros;
                if let Some(commit) = lease_commit {
                    stamp.echo = self.marks.get(&wire.to).copied().unwrap_or_default();
                    stamp.commit_or_promise = commit;
                }
            } else if consensus::is_answer_to_leader(wire) {
                stamp.mark = Mark { incarnation: self.incarnation, micros: now.boot_micros };
                if wire.term == self.heard.term && wire.to == self.heard.leader {
                    stamp.heard = self.heard.sent;
                    stamp.commit_or_promise = self.settings.election_micros();
                }
            }
        }
    }

    /// The leader of this term was heard, and the vote is promised.
    pub(super) fn hear(&mut self, leader: u64, term: u64, stamp: Stamp, now: Now) {
        if (self.heard.leader, self.heard.term) != (leader, term) {
            self.heard = Heard { leader, term, sent: 0 };
        }
        self.heard.sent = self.heard.sent.max(stamp.sent);
        let echo = stamp.echo;
        if echo.incarnation == self.incarnation && echo.micros <= now.boot_micros && echo.micros > self.freshness.as_of
        {
            let commit = stamp.commit_or_promise.max(self.freshness.commit);
            self.learn(Freshness { as_of: echo.micros, commit });
        }
    }

    /// What is newer replaces what was known. What is applied keeps its age until what the newer one asks for is applied, too.
    fn learn(&mut self, newer: Freshness) {
        self.reached_micros = self.as_of_applied(self.freshness);
        self.freshness = newer;
    }

    /// Before this node may cease to lead: what it knows of its age as a leader it must still know then.
    pub(super) fn keep_freshness(&mut self, now: Now) {
        let freshness = self.freshness(now);
        if freshness.as_of > self.freshness.as_of {
            self.learn(freshness);
        }
    }

    /// As of when what is applied has everything, given what is known. 0: not known.
    pub(super) fn as_of_applied(&self, freshness: Freshness) -> u64 {
        if self.applied >= freshness.commit { freshness.as_of } else { self.reached_micros }
    }

    /// Takes note of a message that answers one of ours: of the lease that it acknowledges and of its sender's mark.
    pub(super) fn note_answer(&mut self, from: u64, term: u64, stamp: Stamp, now: Now) {
        if stamp.heard > 0 {
            let sent = if self.planted.has(Bug::LeaseFromWrongRound) { now.boot_micros } else { stamp.heard };
            let is_assumed = self.planted.has(Bug::PromiseAssumed);
            let promised = if is_assumed { self.settings.election_micros() } else { stamp.commit_or_promise };
            self.lease.acknowledged(term, from, sent, self.lease_micros(promised));
        }
        let mark = self.marks.entry(from).or_default();
        // Of two incarnations nobody can say which is newer: the last one that came will do, the other's echo is ignored.
        if mark.incarnation != stamp.mark.incarnation || mark.micros < stamp.mark.micros {
            *mark = stamp.mark;
        }
    }

    /// Whether this node leads, knows what is committed, and nobody else can lead now.
    pub(crate) fn has_lease(&self, now: Now) -> bool {
        let knows = self.consensus.is_committed_in_term()
            || (self.planted.has(Bug::LeaseBeforeOwnEntry) && self.role() == Role::Leader);
        knows && now.boot_micros < self.lease_until(now)
    }

    /// What readers on other threads may know, until it is replaced. It must be replaced after every call that changes this node,
    /// before any message is sent.
    pub fn standing(&self, now: Now) -> Standing {
        let (term, applied) = (self.consensus.term(), self.applied);
        // Who sees the state without asking must see all that earlier leaders acknowledged: it lies before an entry of this term.
        // And all that is committed: with a slow disk of its own a leader applies later than followers, who show it to others.
        let is_current = applied >= self.consensus.commit() || self.planted.has(Bug::LeaseBehindCommit);
        let has_lease = self.has_applied_own_entry() && is_current && self.has_lease(now);
        let lease_until_micros = if has_lease { self.lease_until(now) } else { 0 };
        let as_of_micros = self.as_of_applied(self.freshness(now));
        Standing { term, lease_until_micros, as_of_micros, applied }
    }

    fn lease_until(&self, now: Now) -> u64 {
        let (term, own) = (self.consensus.term(), self.consensus.id());
        let lease_micros = self.lease_micros(self.settings.election_micros());
        self.lease.until(term, own, now.boot_micros, &self.membership, lease_micros)
    }

    /// How long a vote counts that was promised for so long.
    fn lease_micros(&self, promised: u64) -> u64 {
        match self.planted.has(Bug::DriftIgnored) {
            true => promised.min(self.settings.election_micros()),
            false => self.settings.lease_micros(promised),
        }
    }

    /// What this node knows about its age.
    pub(super) fn freshness(&self, now: Now) -> Freshness {
        if self.role() == Role::Leader && self.consensus.is_committed_in_term() {
            // As long as the lease lasted, nobody else acknowledged anything.
            let as_of = self.lease_until(now).min(now.boot_micros);
            if as_of > self.freshness.as_of {
                return Freshness { as_of, commit: self.consensus.commit() };
            }
        }
        self.freshness
    }
}
