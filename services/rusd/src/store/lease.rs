//! Leases as all members have them: which there are, and which keys hang on them. Time is not known here: see [`super::timers`].

use std::cmp::Ordering;
use std::sync::Arc;

use persistent_tree::{Entry, Tree};

use super::error::Error;

/// Longest time to live of a lease, in seconds: etcd's `MaxLeaseTTL`.
pub const TTL_MAX_SECONDS: i64 = 9_000_000_000;

/// A lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its name; never 0.
    pub id: i64,
    /// How long it lives after it was granted or renewed.
    pub ttl_seconds: i64,
    /// What was left of it at its last checkpoint; 0 for all.
    pub remaining_seconds: i64,
    /// Counts grants: a later grant has a higher number.
    pub sequence: u64,
}

impl Entry for Lease {
    fn order(&self, other: &Self) -> Ordering {
        self.id.cmp(&other.id)
    }
}

/// A grant, by its number.
#[derive(Clone, Copy, Debug)]
struct Grant {
    sequence: u64,
    id: i64,
}

impl Entry for Grant {
    fn order(&self, other: &Self) -> Ordering {
        self.sequence.cmp(&other.sequence)
    }
}

/// A key that hangs on a lease.
#[derive(Clone, Debug)]
struct Attached {
    lease: i64,
    key: Arc<[u8]>,
}

impl Attached {
    fn against(&self, lease: i64, key: &[u8]) -> Ordering {
        self.lease.cmp(&lease).then_with(|| (*self.key).cmp(key))
    }
}

impl Entry for Attached {
    fn order(&self, other: &Self) -> Ordering {
        self.against(other.lease, &other.key)
    }
}

/// All leases. A clone is a view that stays as it is.
#[derive(Clone, Debug, Default)]
pub struct Leases {
    by_id: Tree<Lease>,
    grants: Tree<Grant>,
    attached: Tree<Attached>,
    /// The number of the next grant.
    next_sequence: u64,
    /// What names of keys that hang on leases take.
    key_bytes: u64,
}

/// What a lease takes, with its places in the trees, and a key that hangs on one, besides its name; about.
const LEASE_BYTES: u64 = 160;
const ATTACHED_BYTES: u64 = 64;

impl Leases {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// How much they take, about, in bytes: it counts for the quota.
    pub fn bytes(&self) -> u64 {
        self.by_id.len() as u64 * LEASE_BYTES + self.attached.len() as u64 * ATTACHED_BYTES + self.key_bytes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// A lease.
    pub fn get(&self, id: i64) -> Option<Lease> {
        self.by_id.get(|lease| lease.id.cmp(&id)).copied()
    }

    /// All leases, by id.
    pub fn iter(&self) -> impl Iterator<Item = Lease> {
        self.by_id.iter().copied()
    }

    /// The leases whose grant has this number or a higher one, by that number.
    pub fn granted_since(&self, sequence: u64) -> impl Iterator<Item = Lease> {
        self.grants.iter_from(move |grant| grant.sequence.cmp(&sequence)).filter_map(|grant| self.get(grant.id))
    }

    /// The number that the next grant will have.
    pub fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// The keys that hang on a lease, in order.
    pub fn keys(&self, id: i64) -> impl Iterator<Item = &Arc<[u8]>> {
        let from = self.attached.iter_from(move |attached| attached.against(id, &[]));
        from.take_while(move |attached| attached.lease == id).map(|attached| &attached.key)
    }

    /// How many keys hang on a lease.
    pub fn count_keys(&self, id: i64) -> usize {
        let before = self.attached.rank(|attached| attached.lease.cmp(&id).then(Ordering::Greater));
        let through = self.attached.rank(|attached| attached.lease.cmp(&id).then(Ordering::Less));
        through - before
    }

    /// Grants a lease.
    pub fn grant(&mut self, id: i64, ttl_seconds: i64) -> Result<Lease, Error> {
        if id == 0 {
            return Err(Error::LeaseNotFound);
        }
        if ttl_seconds > TTL_MAX_SECONDS {
            return Err(Error::LeaseTtlTooLarge);
        }
        if self.get(id).is_some() {
            return Err(Error::LeaseExists);
        }
        let lease = Lease { id, ttl_seconds: ttl_seconds.max(1), remaining_seconds: 0, sequence: self.next_sequence };
        self.restore(lease);
        Ok(lease)
    }

    /// Puts a lease back as it was.
    pub(super) fn restore(&mut self, lease: Lease) {
        self.next_sequence = self.next_sequence.max(lease.sequence.saturating_add(1));
        self.grants.insert(Grant { sequence: lease.sequence, id: lease.id });
        self.by_id.insert(lease);
    }

    pub(super) fn restore_next_sequence(&mut self, next: u64) {
        self.next_sequence = self.next_sequence.max(next);
    }

    /// Takes a lease away; keys that hang on it must have gone before.
    pub(super) fn remove(&mut self, id: i64) -> Option<Lease> {
        let lease = self.by_id.remove(|lease| lease.id.cmp(&id))?;
        self.grants.remove(|grant| grant.sequence.cmp(&lease.sequence));
        Some(lease)
    }

    /// Notes what is left of a lease. One that does not exist any more is passed over, as etcd does.
    pub(super) fn checkpoint(&mut self, id: i64, remaining_seconds: i64) {
        if let Some(lease) = self.get(id) {
            self.by_id.insert(Lease { remaining_seconds, ..lease });
        }
    }

    /// A key has another lease now; 0 stands for none.
    pub(super) fn move_key(&mut self, key: &[u8], from: i64, to: i64) {
        if from == to {
            return;
        }
        if from != 0 {
            let gone = self.attached.remove(|attached| attached.against(from, key));
            self.key_bytes -= gone.map_or(0, |gone| gone.key.len() as u64);
        }
        if to != 0 {
            let before = self.attached.insert(Attached { lease: to, key: Arc::from(key) });
            self.key_bytes += if before.is_none() { key.len() as u64 } else { 0 };
        }
    }
}
