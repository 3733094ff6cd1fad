//! When leases end. Only the leader knows: it renews leases in its memory, and asks the log to revoke those that have ended.
//!
//! A new leader gives every lease its full time again, as it cannot know what its predecessor renewed; a lease lives longer than it
//! should, never shorter.

use std::collections::BTreeSet;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::store::View;

/// When each lease ends, in this member's time.
#[derive(Debug)]
pub struct Lessor {
    ttl_min_seconds: i64,
    ends: Mutex<Ends>,
}

#[derive(Debug, Default)]
struct Ends {
    /// Grants below this number were seen.
    next_sequence: u64,
    /// When it ends, and the number of its grant.
    by_id: HashMap<i64, (Instant, u64)>,
    by_time: BTreeSet<(Instant, i64)>,
}

impl Lessor {
    /// Leases shall outlive an election of this length.
    pub fn new(election: Duration) -> Self {
        let ttl_min_seconds = (election * 3 / 2).as_secs_f64().ceil() as i64;
        Self { ttl_min_seconds, ends: Mutex::default() }
    }

    /// No lease is granted for less.
    pub fn ttl_min_seconds(&self) -> i64 {
        self.ttl_min_seconds
    }

    fn lock(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a lease its full time again, and says how much that is, in seconds. `None`: there is no such lease.
    pub fn renew(&self, id: i64, view: &View) -> Option<i64> {
        let lease = view.leases.get(id)?;
        self.lock().set(id, lease.sequence, lease.ttl_seconds);
        Some(lease.ttl_seconds)
    }

    /// What is left of a lease, in whole seconds; `None` if it is not known yet.
    pub fn remaining_seconds(&self, id: i64) -> Option<i64> {
        let (end, _) = *self.lock().by_id.get(&id)?;
        Some(end.saturating_duration_since(Instant::now()).as_secs_f64().ceil() as i64)
    }

    /// Takes notice of leases that were granted since, and names at most so many that have ended.
    pub fn ended(&self, view: &View, count_max: usize) -> Vec<i64> {
        let mut ends = self.lock();
        for lease in view.leases.granted_since(ends.next_sequence) {
            let seconds = if lease.remaining_seconds > 0 { lease.remaining_seconds } else { lease.ttl_seconds };
            if ends.by_id.get(&lease.id).is_none_or(|(_, sequence)| *sequence != lease.sequence) {
                ends.set(lease.id, lease.sequence, seconds);
            }
        }
        ends.next_sequence = view.leases.next_sequence();
        let now = Instant::now();
        let mut ended = Vec::new();
        let due = ends.by_time.range(..(now, i64::MAX)).map(|(_, id)| *id).collect::<Vec<_>>();
        for id in due {
            match view.leases.get(id) {
                Some(_) if ended.len() < count_max => ended.push(id),
                Some(_) => break,
                None => ends.forget(id),
            }
        }
        ended
    }

    /// Begins anew: this member leads now, and knows of no renewal.
    pub fn begin(&self) {
        *self.lock() = Ends::default();
    }
}

impl Ends {
    fn set(&mut self, id: i64, sequence: u64, seconds: i64) {
        self.forget(id);
        let end = Instant::now() + Duration::from_secs(seconds.max(0).unsigned_abs());
        self.by_id.insert(id, (end, sequence));
        self.by_time.insert((end, id));
    }

    fn forget(&mut self, id: i64) {
        if let Some((end, _)) = self.by_id.remove(&id) {
            self.by_time.remove(&(end, id));
        }
    }
}
