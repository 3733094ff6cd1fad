//! All entries of a database as they were at one moment, while it goes on changing.
//!
//! The walk goes group by group, and in a group from the last entry to the first: entries that are added come behind those that it
//! has yet to visit, and one that is moved into a hole comes from behind. An entry that changes before it was visited is written
//! first, and its key remembered until the walk is over.

use std::collections::HashSet;

use super::Entry;
use crate::hash;
use crate::structure::table::Element as _;

/// Writes an entry.
pub type Encode = fn(&Entry, &mut Vec<u8>);

/// See the module's description.
#[derive(Debug)]
pub(super) struct Walk {
    encode: Encode,
    /// The number of the database when the walk began.
    pub(super) number: usize,
    group: usize,
    /// Entries of the group with numbers below this have yet to be visited.
    left: u32,
    /// Not to be visited: written before, or added since the walk began.
    skipped: HashSet<Box<[u8]>, ahash::RandomState>,
    /// Written before they were visited.
    early: Vec<u8>,
}

impl Walk {
    pub(super) fn new(encode: Encode, number: usize, first_group_len: u32) -> Self {
        let skipped = HashSet::with_hasher(hash::state().clone());
        Self { encode, number, group: 0, left: first_group_len, skipped, early: Vec::new() }
    }

    fn is_ahead(&self, group: usize, number: u32) -> bool {
        group > self.group || (group == self.group && number < self.left)
    }

    pub(super) fn before_change(&mut self, group: usize, number: u32, entry: &Entry) {
        if self.is_ahead(group, number) && self.skipped.insert(entry.key().into()) {
            (self.encode)(entry, &mut self.early);
        }
    }

    pub(super) fn is_new(&mut self, group: usize, number: u32, key: &[u8]) {
        if self.is_ahead(group, number) {
            self.skipped.insert(key.into());
        }
    }

    /// An entry was removed, and the last one of its group, whose number was `moved`, took its place.
    pub(super) fn is_removed(&mut self, group: usize, number: u32, key: &[u8], moved: Option<(u32, &[u8])>, len: u32) {
        self.skipped.remove(key);
        if let Some((moved, key)) = moved
            && self.is_ahead(group, number)
            && !self.is_ahead(group, moved)
        {
            self.skipped.insert(key.into());
        }
        if group == self.group {
            self.left = self.left.min(len);
        }
    }

    /// Gives about so many bytes of entries; false: there are no more. `groups` gives a group's length and its entries.
    pub(super) fn step<'a, F: Fn(u32) -> &'a Entry>(
        &mut self,
        out: &mut Vec<u8>,
        bytes: usize,
        groups: impl Fn(usize) -> Option<(u32, F)>,
    ) -> bool {
        out.append(&mut self.early);
        let begin = out.len();
        while out.len() - begin < bytes {
            let Some((_, entry)) = groups(self.group) else { return false };
            match self.left.checked_sub(1) {
                Some(number) => {
                    self.left = number;
                    let entry = entry(number);
                    if !self.skipped.remove(entry.key()) {
                        (self.encode)(entry, out);
                    }
                }
                None => {
                    self.group += 1;
                    self.left = groups(self.group).map_or(0, |(len, _)| len);
                }
            }
        }
        true
    }
}
