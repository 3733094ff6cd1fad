//! Leases: the arithmetic of who may count on what, until when. Pure.
//!
//! A follower that hears a leader **promises** not to vote for anybody else for an election timeout of its own setting and clock. It
//! says when the leader sent what it heard, and how long it promises that for: members may have different settings, as while they
//! are restarted with another one. A leader whose messages of time *t* a quorum has acknowledged so is the only one that can commit
//! anything until *t* plus the lease, which is shorter than the least promise of that quorum by what clocks may differ. Of who does
//! not say how long, as releases before did not, nothing is assumed. The promise is not on disk: a node that comes back withholds its
//! vote for an election timeout, of the setting that it has now, as if it had just heard a leader.
//!
//! A leader's connection that closes takes nothing of that promise back. The leader may live: somebody between the two may have
//! closed it, and on other connections it may have the majority on which its lease stands. So a follower that has lost its leader's
//! connection asks for votes earlier than it would by chance, but not before its own promise has ended; and who is asked
//! withholds its vote until its own has. A lease rests on nothing else, and is not touched by when somebody asks.
//!
//! Handing over leadership makes the other node ask for votes that nobody withholds, and that request may be late by any time.
//! Hence a leader that has sent that offer takes no lease in this term any more, whatever comes of it. It sends it only to who has its
//! whole log: one that is down or behind costs it nothing.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::membership::Membership;

/// What a voter has promised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promise {
    until: u64,
    /// The end of the time after a start in which not even a hand-over counts.
    restart: u64,
}

impl Promise {
    /// Of a node that starts now. A node that has never been in any term cannot have promised anything.
    pub(crate) fn at_start(now: u64, is_new: bool, election_micros: u64) -> Self {
        let until = if is_new { 0 } else { now + election_micros };
        Self { until, restart: until }
    }

    /// A lease of which nobody has promised anything yet.
    pub(crate) fn none() -> Self {
        Self { until: 0, restart: 0 }
    }

    /// A leader was heard.
    pub(crate) fn heard(&mut self, now: u64, election_micros: u64) {
        self.until = self.until.max(now + election_micros);
    }

    /// Whether a vote must be withheld; also this node's own.
    pub(crate) fn withholds(&self, now: u64, is_transfer: bool) -> bool {
        now < if is_transfer { self.restart } else { self.until }
    }
}

/// What another has acknowledged.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    /// When the newest message was sent that the other is known to have heard.
    sent: u64,
    /// Until then it votes for nobody else, by the leader's clock.
    until: u64,
}

/// What a leader knows about who has heard it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lease {
    /// The term that this is about.
    term: u64,
    heard: BTreeMap<u64, Heard>,
    /// The term in which leadership was offered to another node.
    given_up: u64,
}

impl Lease {
    /// When the newest message was sent that another is known to have heard in this term; 0: none.
    pub(crate) fn heard_at(&self, term: u64, other: u64) -> u64 {
        if term == self.term { self.heard.get(&other).map_or(0, |heard| heard.sent) } else { 0 }
    }

    /// `from` has heard, in this term, what was sent at `sent`, and promises a vote for so long as to allow for this lease.
    pub(crate) fn acknowledged(&mut self, term: u64, from: u64, sent: u64, lease_micros: u64) {
        if term != self.term {
            self.term = term;
            self.heard.clear();
        }
        let until = sent.saturating_add(lease_micros);
        let newest = self.heard.entry(from).or_default();
        // Who has started again may promise less than before, and the same message may have reached it before and after.
        match sent.cmp(&newest.sent) {
            Ordering::Greater => *newest = Heard { sent, until },
            Ordering::Equal => newest.until = newest.until.min(until),
            Ordering::Less => {}
        }
    }

    /// Leadership is offered to another node.
    pub(crate) fn give_up(&mut self, term: u64) {
        self.given_up = term;
    }

    /// When the lease of the leader of `term` ends: always computed from the membership as it is, so that who left it no
    /// longer counts. `lease_micros` is what the leader's own setting allows for.
    pub(crate) fn until(&self, term: u64, own: u64, now: u64, membership: &Membership, lease_micros: u64) -> u64 {
        if self.given_up == term {
            return 0;
        }
        let until = |id: u64| match id {
            id if id == own => now.saturating_add(lease_micros),
            id if self.term == term => self.heard.get(&id).map_or(0, |heard| heard.until),
            _ => 0,
        };
        let last_of_majority = |voters: &[u64]| {
            let mut ends: Vec<u64> = voters.iter().map(|id| until(*id)).collect();
            ends.sort_unstable_by(|a, b| b.cmp(a));
            ends.get(voters.len() / 2).copied().unwrap_or_default()
        };
        let end = last_of_majority(&membership.voters);
        if membership.is_joint() { end.min(last_of_majority(&membership.outgoing)) } else { end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: u64 = 1_000;

    fn until(lease: &Lease, now: u64, voters: &[u64]) -> u64 {
        lease.until(7, 1, now, &Membership::of(voters.iter().copied()), LEASE)
    }

    /// Requirement (a) of the design: per follower, from the send time, the newest that a quorum has.
    #[test]
    fn the_lease_counts_from_the_newest_message_that_a_quorum_heard() {
        let mut lease = Lease::default();
        assert_eq!(until(&lease, 5_000, &[1, 2, 3]), 0, "nobody was heard of");
        lease.acknowledged(7, 2, 4_000, LEASE);
        assert_eq!(until(&lease, 5_000, &[1, 2, 3]), 5_000);
        lease.acknowledged(7, 3, 4_500, LEASE);
        assert_eq!(until(&lease, 5_000, &[1, 2, 3]), 5_500, "the leader and 3");
        assert_eq!(until(&lease, 5_000, &[1, 2, 3, 4, 5]), 5_000, "the leader, 3 and 2");
        lease.acknowledged(7, 3, 100, LEASE);
        assert_eq!(until(&lease, 5_000, &[1, 2, 3]), 5_500, "an acknowledgement that was overtaken takes nothing back");
    }

    #[test]
    fn acknowledgements_of_an_earlier_term_do_not_count() {
        let mut lease = Lease::default();
        lease.acknowledged(6, 2, 4_000, LEASE);
        assert_eq!(until(&lease, 5_000, &[1, 2, 3]), 0);
        lease.acknowledged(7, 3, 4_100, LEASE);
        assert_eq!(until(&lease, 5_000, &[1, 2, 3]), 5_100);
    }

    #[test]
    fn while_members_change_both_majorities_must_have_heard() {
        let mut lease = Lease::default();
        lease.acknowledged(7, 2, 4_000, LEASE);
        let mut membership = Membership::of([1, 2, 3]);
        membership.outgoing = vec![1, 4, 5];
        assert_eq!(lease.until(7, 1, 5_000, &membership, LEASE), 0);
        lease.acknowledged(7, 4, 3_000, LEASE);
        assert_eq!(lease.until(7, 1, 5_000, &membership, LEASE), 4_000);
    }

    #[test]
    fn a_leader_outside_of_the_membership_does_not_count_itself() {
        let mut lease = Lease::default();
        lease.acknowledged(7, 2, 4_000, LEASE);
        assert_eq!(until(&lease, 5_000, &[2, 3]), 0);
    }

    /// Tests requirement (f) of the module.
    #[test]
    fn who_offers_leadership_takes_no_lease_in_that_term() {
        let mut lease = Lease::default();
        lease.acknowledged(7, 2, 4_000, LEASE);
        lease.give_up(7);
        assert_eq!(until(&lease, 4_100, &[1, 2, 3]), 0);
        lease.acknowledged(7, 2, 4_200, LEASE);
        assert_eq!(until(&lease, 4_300, &[1, 2, 3]), 0);
    }

    #[test]
    fn the_only_voter_always_has_a_lease() {
        assert_eq!(until(&Lease::default(), 5_000, &[1]), 6_000);
    }

    /// Whoever leads with a longer election timeout than the others have counted on its own.
    #[test]
    fn the_lease_ends_with_the_least_promise_of_a_quorum() {
        let mut lease = Lease::default();
        lease.acknowledged(7, 2, 4_000, 200);
        assert_eq!(until(&lease, 4_100, &[1, 2, 3]), 4_200);
        lease.acknowledged(7, 3, 3_500, LEASE);
        assert_eq!(until(&lease, 4_100, &[1, 2, 3]), 4_500, "the leader and 3");
        assert_eq!(until(&lease, 4_100, &[1, 2, 3, 4, 5]), 4_200, "the leader, 3 and 2");
    }

    #[test]
    fn who_has_started_again_with_a_shorter_promise_is_taken_at_that() {
        let mut lease = Lease::default();
        lease.acknowledged(7, 2, 4_000, LEASE);
        lease.acknowledged(7, 2, 4_000, 300);
        assert_eq!(until(&lease, 4_100, &[1, 2, 3]), 4_300, "the same message, before and after");
        lease.acknowledged(7, 2, 4_010, 200);
        assert_eq!(until(&lease, 4_100, &[1, 2, 3]), 4_210);
    }

    /// Members of releases before do not say how long they promise their vote.
    #[test]
    fn who_promises_nothing_gives_no_lease() {
        let mut lease = Lease::default();
        lease.acknowledged(7, 2, 4_000, 0);
        assert_eq!(until(&lease, 4_100, &[1, 2, 3]), 4_000, "it had not voted for another before");
    }

    /// Requirements (b) and (c).
    #[test]
    fn votes_are_withheld_after_a_leader_was_heard_and_after_a_start() {
        let mut promise = Promise::at_start(10_000, false, 500);
        assert!(promise.withholds(10_499, false) && promise.withholds(10_499, true));
        assert!(!promise.withholds(10_500, false));
        promise.heard(11_000, 500);
        assert!(promise.withholds(11_499, false));
        assert!(!promise.withholds(11_499, true), "the leader itself asked for it");
        assert!(!promise.withholds(11_500, false));
        assert!(!Promise::at_start(10_000, true, 500).withholds(10_001, false), "a new node has promised nothing");
    }
}
