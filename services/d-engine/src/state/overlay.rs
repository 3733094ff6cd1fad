//! What a transaction has done so far: seen by what follows in it, and by nobody else until all of it can be done.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;
use d_engine_client::{Condition, Lease, Operation, OperationResult};

use super::apply::{CHANGES_BYTES_MAX, StateError};
use super::bounds::{EXPIRED_MAX, LEASE_KEYS_MAX, LOOKED_AT_BYTES_MAX, REVOKED_MAX};
use super::leases::{self, Leased};
use super::refusal::Refusal;
use super::rows::{END_MAX, Value, numbered, numbers, of_numbered};
use super::storage::{Storage, Table};

/// What something had, and will have.
pub(super) struct Changed<T> {
    pub(super) before: Option<T>,
    pub(super) after: Option<T>,
}

/// What will change.
#[derive(Default)]
pub(super) struct Pending {
    /// Boxed: a map makes room for eleven at once, and most transactions have one.
    pub(super) keys: BTreeMap<Bytes, Box<Changed<Value>>>,
    pub(super) leases: BTreeMap<u64, Changed<Leased>>,
    /// What values have that were there before and are held, and those that are not, because they would be too much, bytes.
    held_bytes: usize,
    pub(super) lost_bytes: usize,
}

impl Pending {
    /// What a key had: all of it, or, where that would be too much, all but its value.
    fn hold(&mut self, mut before: Value) -> Value {
        self.held_bytes += before.value.len();
        if self.held_bytes > CHANGES_BYTES_MAX {
            self.held_bytes -= before.value.len();
            self.lost_bytes += std::mem::take(&mut before.value).len();
        }
        before
    }
}

/// A transaction that is under way.
pub(super) struct Overlay<'a, S> {
    storage: &'a S,
    index: u64,
    time_millis: u64,
    /// Whose a lease is that is granted.
    owner: Bytes,
    pending: Pending,
    /// Keys that were attached to a lease here, and are in no table yet; perhaps they are attached no more.
    attached: BTreeMap<u64, Vec<Bytes>>,
    /// Keys that leases have ended with.
    revoked: usize,
    /// What values have that were compared, or get a lease, bytes.
    looked_at: usize,
}

type Done = Result<OperationResult, Refusal>;

impl<'a, S: Storage> Overlay<'a, S> {
    pub(super) fn new(storage: &'a S, index: u64, time_millis: u64) -> Self {
        let (pending, attached) = (Pending::default(), BTreeMap::new());
        Self { storage, index, time_millis, owner: Bytes::new(), pending, attached, revoked: 0, looked_at: 0 }
    }

    /// The same for a user.
    pub(super) fn of(self, owner: &Bytes) -> Self {
        Self { owner: Bytes::copy_from_slice(owner), ..self }
    }

    pub(super) fn into_pending(self) -> Pending {
        self.pending
    }

    fn get(&self, key: &Bytes) -> Result<Option<Value>, StateError> {
        match self.pending.keys.get(key) {
            Some(pending) => Ok(pending.after.clone()),
            None => self.stored(key),
        }
    }

    fn stored(&self, key: &[u8]) -> Result<Option<Value>, StateError> {
        let row = self.storage.get(Table::Keys, key)?;
        Ok(row.map(|row| Value::decode(&row)).transpose()?)
    }

    /// Whether it was there. Leases count their keys.
    pub(super) fn set(&mut self, key: &Bytes, after: Option<Value>) -> Result<bool, StateError> {
        let before = self.get(key)?;
        let lease_of = |value: &Option<Value>| value.as_ref().map_or(0, |value| value.lease);
        let (old, new) = (lease_of(&before), lease_of(&after));
        if old != new {
            self.count(old, |keys| keys.saturating_sub(1))?;
            self.count(new, |keys| keys + 1)?;
            if new > 0 {
                self.attached.entry(new).or_default().push(key.clone());
            }
        }
        let was_there = before.is_some();
        match self.pending.keys.get_mut(key) {
            Some(changed) => changed.after = after,
            None => {
                let before = before.map(|before| self.pending.hold(before));
                self.pending.keys.insert(key.clone(), Box::new(Changed { before, after }));
            }
        }
        Ok(was_there)
    }

    fn count(&mut self, lease: u64, change: impl FnOnce(u32) -> u32) -> Result<(), StateError> {
        if let Some(leased) = self.lease(lease)? {
            self.set_lease(lease, Some(Leased { keys: change(leased.keys), ..leased }))?;
        }
        Ok(())
    }

    fn lease(&self, number: u64) -> Result<Option<Leased>, StateError> {
        match self.pending.leases.get(&number) {
            Some(pending) => Ok(pending.after.clone()),
            // No lease has this number.
            None if number == 0 => Ok(None),
            None => leases::get(self.storage, number),
        }
    }

    fn set_lease(&mut self, number: u64, after: Option<Leased>) -> Result<(), StateError> {
        let before = self.lease(number)?;
        self.pending.leases.entry(number).or_insert(Changed { before, after: None }).after = after;
        Ok(())
    }

    /// Ends a lease and its keys; how many these are, if it was there.
    fn revoke(&mut self, number: u64) -> Result<Option<usize>, StateError> {
        if self.lease(number)?.is_none() {
            return Ok(None);
        }
        let mut keys = Vec::new();
        let end = number.checked_add(1).map(|next| numbered(next, &[]));
        self.storage.scan(Table::LeaseKeys, &numbered(number, &[]), end.as_deref(), &mut |row, _| {
            keys.push(of_numbered(row).1);
            ControlFlow::Continue(())
        })?;
        keys.extend(self.attached.remove(&number).unwrap_or_default());
        let mut ended = 0;
        for key in keys {
            if self.get(&key)?.is_some_and(|value| value.lease == number) {
                self.set(&key, None)?;
                ended += 1;
            }
        }
        self.set_lease(number, None)?;
        self.revoked += ended;
        Ok(Some(ended))
    }

    /// Ends leases whose end is before this row of the table of ends, and their keys, but about [`EXPIRED_MAX`] of these at most. Those that
    /// have begun anew since then end later.
    pub(super) fn end_leases(&mut self, end: &[u8], renewed_millis: u64) -> Result<(), StateError> {
        let mut over = Vec::new();
        self.storage.scan(Table::LeaseEnds, &[], Some(end), &mut |row, _| {
            over.push(numbers(row).1);
            if over.len() < EXPIRED_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let mut keys = 0;
        for number in over {
            if let Some(leased) = self.lease(number)? {
                let expires_millis = renewed_millis.saturating_add(leased.ttl_millis).min(END_MAX);
                if expires_millis > self.time_millis {
                    self.set_lease(number, Some(Leased { expires_millis, ..leased }))?;
                    continue;
                }
            }
            keys += self.revoke(number)?.unwrap_or_default();
            if keys >= EXPIRED_MAX {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn is_true(&mut self, key: &Bytes, condition: &Condition) -> Result<Result<bool, Refusal>, StateError> {
        let value = self.get(key)?;
        let revision = value.as_ref().map_or(0, |value| value.revision);
        if value.as_ref().is_some_and(|value| self.has_looked_at_too_much(value)) {
            return Ok(Err(Refusal::AnswerTooLarge));
        }
        Ok(Ok(match condition {
            Condition::ValueIs(expected) => value.is_some_and(|value| value.value == *expected),
            Condition::Exists(exists) => value.is_some() == *exists,
            Condition::RevisionIs(other) => revision == *other,
            Condition::RevisionBelow(other) => revision < *other,
            Condition::RevisionAbove(other) => revision > *other,
        }))
    }

    fn has_looked_at_too_much(&mut self, value: &Value) -> bool {
        self.looked_at += value.value.len();
        self.looked_at > LOOKED_AT_BYTES_MAX
    }

    fn end(&self, ttl_millis: u64) -> u64 {
        self.time_millis.saturating_add(ttl_millis).min(END_MAX)
    }

    /// The lease with this number lasts from now on as long as it was granted for.
    fn begin_lease(
        &mut self,
        number: u64,
        ttl_millis: u64,
        keys: u32,
        owner: Bytes,
    ) -> Result<OperationResult, StateError> {
        let expires_millis = self.end(ttl_millis);
        self.set_lease(number, Some(Leased { ttl_millis, expires_millis, keys, owner }))?;
        Ok(OperationResult::Lease(Some(Lease { number, ttl_millis, expires_millis })))
    }

    pub(super) fn carry_out(&mut self, operation: &Operation) -> Result<Done, StateError> {
        let revision = self.index;
        Ok(Ok(match operation {
            Operation::Put { key, value, ttl_millis } => {
                let expires_millis = if *ttl_millis == 0 { 0 } else { self.end(*ttl_millis) };
                self.set(key, Some(Value { revision, expires_millis, lease: 0, value: value.clone() }))?;
                OperationResult::Put
            }
            Operation::Delete { key } => OperationResult::Deleted(self.set(key, None)?),
            Operation::Get { key } => OperationResult::Got(self.get(key)?.map(|value| value.of_key(key))),
            Operation::Add { key, delta } => {
                let before = self.get(key)?;
                // It ends when it was to end.
                let (expires_millis, lease) =
                    before.as_ref().map_or((0, 0), |before| (before.expires_millis, before.lease));
                let number = before.map_or(Some(0), |before| counter(&before.value));
                let Some(number) = number else { return Ok(Err(Refusal::NotACounter)) };
                let Some(sum) = number.checked_add(*delta) else { return Ok(Err(Refusal::CounterOverflow)) };
                self.set(key, Some(Value { revision, expires_millis, lease, value: sum.to_string().into() }))?;
                OperationResult::Sum(sum)
            }
            Operation::Attach { key, lease } => {
                let Some(leased) = self.lease(*lease)? else { return Ok(Err(Refusal::NoLease)) };
                match self.get(key)? {
                    None => OperationResult::Attached(false),
                    Some(value) if value.lease != *lease && leased.keys >= LEASE_KEYS_MAX => {
                        return Ok(Err(Refusal::TooManyLeaseKeys));
                    }
                    Some(value) if self.has_looked_at_too_much(&value) => return Ok(Err(Refusal::AnswerTooLarge)),
                    Some(value) => {
                        self.set(key, Some(Value { revision, lease: *lease, ..value }))?;
                        OperationResult::Attached(true)
                    }
                }
            }
            Operation::Grant { ttl_millis } => self.begin_lease(revision, *ttl_millis, 0, self.owner.clone())?,
            Operation::KeepAlive { lease } => match self.lease(*lease)? {
                Some(Leased { ttl_millis, keys, owner, .. }) => self.begin_lease(*lease, ttl_millis, keys, owner)?,
                None => OperationResult::Lease(None),
            },
            Operation::Revoke { lease } => {
                let keys = self.lease(*lease)?.map_or(0, |leased| leased.keys as usize);
                if self.revoked + keys > REVOKED_MAX {
                    return Ok(Err(Refusal::TooManyRevokedKeys));
                }
                OperationResult::Revoked(self.revoke(*lease)?.is_some())
            }
        }))
    }
}

/// The number that a value says.
fn counter(value: &[u8]) -> Option<i64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}
