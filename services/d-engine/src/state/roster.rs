//! What the group knows of itself: which group it is, and of its members who has acknowledged entries, who was removed, and where each is. Kept
//! decoded beside the rows of the table of members, so that who asks for it does not read that.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::apply::StateError;
use super::rows::{Known, number, numbers, read_all, single};
use super::storage::{Rows, Storage, StorageError, Table};

/// What the group knows of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roster {
    /// Which group this is, of those of its name and founders; `None`: nobody has said so yet.
    pub serial: Option<u64>,
    /// What it knows of its members, by number.
    pub members: BTreeMap<u64, Known>,
}

impl Roster {
    /// As it stands in a storage.
    pub fn load(rows: &dyn Rows) -> Result<Self, StorageError> {
        let mut roster = Self::default();
        read_all(rows, Table::Members, |row, value| {
            // The row without a number is of no member.
            if row.is_empty() {
                roster.serial = Some(number(value));
            } else {
                roster.members.insert(numbers(row).0, Known::decode(value)?);
            }
            Ok(())
        })?;
        Ok(roster)
    }

    /// Whether a member was removed for good.
    pub fn has_removed(&self, member: u64) -> bool {
        self.members.get(&member).is_some_and(|known| known.is_removed)
    }

    /// Says which group this is, if nobody has.
    pub(super) fn is_of(&mut self, serial: u64, storage: &mut impl Storage) -> Result<(), StateError> {
        if self.serial.is_none() {
            storage.put(Table::Members, Bytes::new(), Bytes::copy_from_slice(&serial.to_le_bytes()))?;
            self.serial = Some(serial);
        }
        Ok(())
    }

    /// Changes what is known of a member.
    pub(super) fn know(
        &mut self,
        member: u64,
        change: impl FnOnce(&mut Known),
        storage: &mut impl Storage,
    ) -> Result<(), StateError> {
        let known = self.members.entry(member).or_default();
        change(known);
        storage.put(Table::Members, single(member), known.encode())?;
        Ok(())
    }
}
