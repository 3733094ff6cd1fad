//! When leases end: what only the leader knows, in memory.
//!
//! Renewing a lease is no command. The leader keeps deadlines by its own clock, which never goes back ([`replog::Now::boot_micros`]);
//! a member that becomes leader gives every lease its full time, or what was left of it at its last checkpoint. No lease ends
//! early by that, and some later; etcd does the same. From etcd's `server/lease/lessor.go`.
//!
//! No clock and no thread here: every call says what time it is.

use std::collections::{BTreeSet, HashMap};

use super::error::Error;
use super::lease::{Lease, Leases};

const SECOND_MICROS: u64 = 1_000_000;
/// A lease whose end was proposed is proposed again after this, if it is still there.
const RETRY_MICROS: u64 = 3 * SECOND_MICROS;
/// Leases that were revoked are forgotten together, and not a few.
const REVOKED_MIN: usize = 1_000;

/// Deadlines of leases, while this member leads.
#[derive(Debug, Default)]
pub struct LeaseTimers {
    leading: bool,
    /// Grants with a lower number have a deadline.
    known: u64,
    deadlines: HashMap<i64, Deadline>,
    /// When to look at which lease.
    due: BTreeSet<(u64, i64)>,
}

#[derive(Clone, Copy, Debug)]
struct Deadline {
    /// When the lease ends.
    ends_micros: u64,
    /// When to look at it: then, or later if its end was proposed and nothing came of it.
    due_micros: u64,
}

impl LeaseTimers {
    /// This member leads from now on. `extend_micros` is added to all: as long as the group may have been without a leader.
    pub fn promote(&mut self, leases: &Leases, now_micros: u64, extend_micros: u64) {
        *self = Self { leading: true, known: leases.next_sequence(), ..Self::default() };
        for lease in leases.iter() {
            let left = if lease.remaining_seconds > 0 { lease.remaining_seconds } else { lease.ttl_seconds };
            self.set(lease.id, now_micros.saturating_add(extend_micros).saturating_add(micros(left)));
        }
    }

    /// This member leads no more.
    pub fn demote(&mut self) {
        *self = Self::default();
    }

    /// Gives leases a deadline that were granted since the last call.
    pub fn observe(&mut self, leases: &Leases, now_micros: u64) {
        if self.leading && self.known < leases.next_sequence() {
            for lease in leases.granted_since(self.known) {
                self.set(lease.id, now_micros.saturating_add(micros(lease.ttl_seconds)));
            }
            self.known = leases.next_sequence();
        }
    }

    /// Renews a lease; its time to live in seconds comes back. One that has ended can only be revoked, even if that has not
    /// happened yet: its client is told that it is gone.
    pub fn renew(&mut self, leases: &Leases, id: i64, now_micros: u64) -> Result<Lease, Error> {
        if !self.leading {
            return Err(Error::NotLeader);
        }
        let lease = leases.get(id).ok_or(Error::LeaseNotFound)?;
        self.observe(leases, now_micros);
        if self.deadlines.get(&id).is_some_and(|deadline| deadline.ends_micros <= now_micros) {
            return Err(Error::LeaseNotFound);
        }
        self.set(id, now_micros.saturating_add(micros(lease.ttl_seconds)));
        Ok(lease)
    }

    /// How long a lease still lives, in seconds, rounded down; below 0 if it has ended and is not revoked yet.
    pub fn remaining_seconds(&mut self, leases: &Leases, id: i64, now_micros: u64) -> Result<i64, Error> {
        if !self.leading {
            return Err(Error::NotLeader);
        }
        leases.get(id).ok_or(Error::LeaseNotFound)?;
        self.observe(leases, now_micros);
        let ends = self.deadlines.get(&id).map_or(now_micros, |deadline| deadline.ends_micros);
        let seconds = |micros: u64| i64::try_from(micros / SECOND_MICROS).unwrap_or(i64::MAX);
        Ok(if ends >= now_micros { seconds(ends - now_micros) } else { -seconds(now_micros - ends).max(1) })
    }

    /// Up to so many leases that have ended: propose to revoke them. Those that are still there come again a little later.
    pub fn expired(&mut self, leases: &Leases, now_micros: u64, leases_max: usize) -> Vec<i64> {
        self.observe(leases, now_micros);
        self.forget_revoked(leases);
        let mut expired = Vec::new();
        while expired.len() < leases_max
            && let Some((due, id)) = self.due.first().copied().filter(|(due, _)| *due <= now_micros)
        {
            self.due.remove(&(due, id));
            if leases.get(id).is_none() {
                self.deadlines.remove(&id);
                continue;
            }
            expired.push(id);
            if let Some(deadline) = self.deadlines.get_mut(&id) {
                deadline.due_micros = now_micros.saturating_add(RETRY_MICROS);
                self.due.insert((deadline.due_micros, id));
            }
        }
        expired
    }

    /// When [`LeaseTimers::expired`] should be asked again.
    pub fn next_due_micros(&self) -> Option<u64> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Lets go of leases that were revoked before their end, when there are more of them than of others.
    fn forget_revoked(&mut self, leases: &Leases) {
        // A lease that is missing from an older view may just have been granted.
        let is_newest = leases.next_sequence() >= self.known;
        if !is_newest || self.deadlines.len() <= 2 * leases.len() + REVOKED_MIN {
            return;
        }
        let Self { deadlines, due, .. } = self;
        deadlines.retain(|id, _| leases.get(*id).is_some());
        deadlines.shrink_to_fit();
        due.retain(|(_, id)| deadlines.contains_key(id));
    }

    fn set(&mut self, id: i64, ends_micros: u64) {
        let deadline = Deadline { ends_micros, due_micros: ends_micros };
        if let Some(old) = self.deadlines.insert(id, deadline) {
            self.due.remove(&(old.due_micros, id));
        }
        self.due.insert((ends_micros, id));
    }
}

fn micros(seconds: i64) -> u64 {
    u64::try_from(seconds).unwrap_or(0).saturating_mul(SECOND_MICROS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = SECOND_MICROS;

    fn leases(grants: &[(i64, i64)]) -> Leases {
        let mut leases = Leases::default();
        for (id, ttl) in grants {
            leases.grant(*id, *ttl).unwrap();
        }
        leases
    }

    #[test]
    fn a_lease_lives_as_long_as_it_is_renewed() {
        let leases = leases(&[(1, 10), (2, 5)]);
        let mut timers = LeaseTimers::default();
        timers.promote(&leases, 0, 0);
        assert_eq!(timers.expired(&leases, 4 * S, 9), [0_i64; 0]);
        assert_eq!(timers.renew(&leases, 2, 4 * S).map(|lease| lease.ttl_seconds), Ok(5));
        assert_eq!(timers.expired(&leases, 8 * S, 9), [0_i64; 0]);
        assert_eq!(timers.remaining_seconds(&leases, 2, 8 * S), Ok(1));
        assert_eq!(timers.expired(&leases, 9 * S, 9), [2]);
        assert_eq!(timers.renew(&leases, 2, 9 * S), Err(Error::LeaseNotFound));
        assert_eq!(timers.renew(&leases, 3, 9 * S), Err(Error::LeaseNotFound));
    }

    #[test]
    fn an_end_is_proposed_again_until_the_lease_is_gone() {
        let mut leases = leases(&[(1, 1), (2, 1), (3, 1)]);
        let mut timers = LeaseTimers::default();
        timers.promote(&leases, 0, 0);
        assert_eq!(timers.expired(&leases, 2 * S, 2), [1, 2]);
        assert_eq!(timers.expired(&leases, 2 * S, 2), [3]);
        assert_eq!(timers.expired(&leases, 2 * S, 2), [0_i64; 0]);
        leases.remove(1);
        assert_eq!(timers.expired(&leases, 5 * S, 9), [2, 3]);
        leases.remove(2);
        leases.remove(3);
        assert_eq!((timers.expired(&leases, 99 * S, 9), timers.next_due_micros()), (vec![], None));
    }

    /// Each was remembered until its old end: 29 MB after 150,000 that were granted and revoked.
    #[test]
    fn leases_that_were_revoked_are_forgotten() {
        let mut leases = leases(&[(1, 100)]);
        let mut timers = LeaseTimers::default();
        timers.promote(&leases, 0, 0);
        let before = leases.clone();
        for id in 2..10_000 {
            leases.grant(id, 100).unwrap();
            timers.observe(&leases, S);
            leases.remove(id);
        }
        leases.grant(2, 50).unwrap();
        timers.observe(&leases, S);
        assert_eq!(timers.expired(&before, S, 9), [0_i64; 0]);
        assert_eq!(timers.deadlines.len(), 9_999, "an older view knows of none of them");
        assert_eq!(timers.expired(&leases, S, 9), [0_i64; 0]);
        assert_eq!((timers.deadlines.len(), timers.due.len()), (2, 2));
        assert_eq!(timers.expired(&leases, 51 * S, 9), [2], "what is there ends when it did");
    }

    #[test]
    fn a_new_leader_gives_full_time_or_what_a_checkpoint_left() {
        let mut leases = leases(&[(1, 100), (2, 100)]);
        leases.checkpoint(2, 30);
        let mut timers = LeaseTimers::default();
        assert_eq!(timers.renew(&leases, 1, 0), Err(Error::NotLeader));
        timers.promote(&leases, 50 * S, 2 * S);
        let left = |timers: &mut LeaseTimers, id| timers.remaining_seconds(&leases, id, 50 * S).unwrap();
        assert_eq!((left(&mut timers, 1), left(&mut timers, 2)), (102, 32));
    }

    #[test]
    fn leases_granted_while_leading_get_their_time() {
        let mut leases = leases(&[(1, 100)]);
        let mut timers = LeaseTimers::default();
        timers.promote(&leases, 0, 0);
        leases.grant(2, 5).unwrap();
        leases.grant(3, 6).unwrap();
        timers.observe(&leases, 10 * S);
        assert_eq!(timers.next_due_micros(), Some(15 * S));
        assert_eq!(timers.expired(&leases, 16 * S, 9), [2, 3]);
    }

    #[test]
    fn a_time_to_live_beyond_all_time_does_not_overflow() {
        let leases = leases(&[(1, super::super::lease::TTL_MAX_SECONDS)]);
        let mut timers = LeaseTimers::default();
        timers.promote(&leases, u64::MAX - 5, u64::MAX);
        assert_eq!(timers.expired(&leases, u64::MAX - 1, 9), [0_i64; 0]);
    }
}
