//! Leases: keys that end together, unless somebody says in time that they shall not. Granting, keeping alive and ending are entries of
//! the log; no member ends a lease by its own clock.

use std::ops::ControlFlow;

use bytes::Bytes;

use super::apply::StateError;
use super::codec::{Malformed, Reader, put_number, put_small, put_string};
use super::rows::{number, numbers, of_numbered, pair, read_all, single};
use super::storage::{Rows, Storage, StorageError, Table};

/// A lease's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leased {
    pub(super) ttl_millis: u64,
    pub(super) expires_millis: u64,
    /// How many keys are attached to it.
    pub(super) keys: u32,
    /// The user that it was granted to; empty: nobody.
    pub(super) owner: Bytes,
}

impl Leased {
    fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(20);
        put_number(&mut out, self.ttl_millis);
        put_number(&mut out, self.expires_millis);
        put_small(&mut out, self.keys as usize);
        if !self.owner.is_empty() {
            put_string(&mut out, &self.owner);
        }
        out.into()
    }

    fn decode(row: Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(row, "the row of a lease");
        let (ttl_millis, expires_millis, keys) = (reader.number()?, reader.number()?, reader.small()?);
        let leased = Self { ttl_millis, expires_millis, keys, owner: reader.last_string()? };
        reader.end().map(|()| leased)
    }
}

/// The lease with this number.
pub(super) fn get(rows: &impl Rows, number: u64) -> Result<Option<Leased>, StateError> {
    Ok(rows.get(Table::Leases, &single(number))?.map(Leased::decode).transpose()?)
}

/// Whether this is so of all keys of a lease.
pub(super) fn are_keys_all(rows: &impl Rows, number: u64, is: impl Fn(&[u8]) -> bool) -> Result<bool, StorageError> {
    let mut are_all = true;
    let end = number.checked_add(1).map(single);
    rows.scan(Table::LeaseKeys, &single(number), end.as_deref(), &mut |row, _| {
        are_all = is(&of_numbered(row).1);
        if are_all { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(are_all)
}

/// All of them. The row without a number is none.
pub(super) fn each(rows: &impl Rows, mut each: impl FnMut(u64, Leased)) -> Result<(), StorageError> {
    read_all(rows, Table::Leases, |key, row| {
        if !key.is_empty() {
            each(numbers(key).0, Leased::decode(row.clone())?);
        }
        Ok(())
    })
}

/// From this time on all leases last as long as they were granted for, and sessions as if they were used then. That takes one row,
/// however many they are: who ends what is over looks at it.
pub(super) fn renew(storage: &mut impl Storage, since_millis: u64) -> Result<(), StorageError> {
    let since_millis = since_millis.max(renewed(storage)?);
    storage.put(Table::Leases, Bytes::new(), Bytes::copy_from_slice(&since_millis.to_le_bytes()))
}

/// When all leases began anew last; 0: never.
pub(super) fn renewed(rows: &impl Rows) -> Result<u64, StorageError> {
    Ok(rows.get(Table::Leases, &[])?.map_or(0, |row| number(&row)))
}

/// What one has is nobody's, and over: nothing renews it.
pub(super) fn release(storage: &mut impl Storage, owner: &Bytes, time_millis: u64) -> Result<(), StorageError> {
    let mut owned = Vec::new();
    each(storage, |number, leased| {
        if leased.owner == *owner {
            owned.push((number, leased));
        }
    })?;
    for (number, before) in owned {
        let after = Leased { ttl_millis: 0, expires_millis: time_millis, keys: before.keys, owner: Bytes::new() };
        set(storage, number, Some(before), Some(after))?;
    }
    Ok(())
}

/// Gives a lease what it has from now on.
pub(super) fn set(
    storage: &mut impl Storage,
    number: u64,
    before: Option<Leased>,
    after: Option<Leased>,
) -> Result<(), StorageError> {
    let end = |leased: &Leased| pair(leased.expires_millis, number);
    if before.as_ref().map(end) != after.as_ref().map(end) {
        if let Some(before) = &before {
            storage.delete(Table::LeaseEnds, &end(before))?;
        }
        if let Some(after) = &after {
            storage.put(Table::LeaseEnds, end(after), Bytes::new())?;
        }
    }
    match after {
        Some(after) => storage.put(Table::Leases, single(number), after.encode()),
        None if before.is_some() => storage.delete(Table::Leases, &single(number)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
