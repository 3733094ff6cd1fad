//! When leases end: the store's timers on this member's clock. Only the leader has any.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::store::timers::LeaseTimers;
use crate::store::{Error, Leases, View};

/// The timers of a member.
#[derive(Debug)]
pub struct Lessor {
    election: Duration,
    begun: Instant,
    timers: Mutex<LeaseTimers>,
    renewed: AtomicU64,
}

impl Lessor {
    /// Leases shall outlive an election of this length.
    pub fn new(election: Duration) -> Self {
        Self { election, begun: Instant::now(), timers: Mutex::default(), renewed: AtomicU64::new(0) }
    }

    /// No lease is granted for less.
    pub fn ttl_min_seconds(&self) -> i64 {
        (self.election * 3 / 2).as_secs_f64().ceil() as i64
    }

    fn lock(&self) -> MutexGuard<'_, LeaseTimers> {
        self.timers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_micros(&self) -> u64 {
        self.begun.elapsed().as_micros() as u64
    }

    /// This member leads now, and knows of no renewal: every lease has its full time again.
    pub fn promote(&self, leases: &Leases) {
        self.lock().promote(leases, self.now_micros(), self.election.as_micros() as u64);
    }

    /// This member leads no more.
    pub fn demote(&self) {
        self.lock().demote();
    }

    /// Gives a lease its full time again: so many seconds.
    pub fn renew(&self, id: i64, view: &View) -> Result<i64, Error> {
        let renewed = self.lock().renew(&view.leases, id, self.now_micros()).map(|lease| lease.ttl_seconds)?;
        self.renewed.fetch_add(1, Ordering::Relaxed);
        Ok(renewed)
    }

    /// How many leases were given their full time again.
    pub fn renewed(&self) -> u64 {
        self.renewed.load(Ordering::Relaxed)
    }

    /// What is left of a lease, in seconds.
    pub fn remaining_seconds(&self, id: i64, view: &View) -> Result<i64, Error> {
        self.lock().remaining_seconds(&view.leases, id, self.now_micros())
    }

    /// Leases that have ended, at most so many.
    pub fn expired(&self, view: &View, leases_max: usize) -> Vec<i64> {
        self.lock().expired(&view.leases, self.now_micros(), leases_max)
    }
}
