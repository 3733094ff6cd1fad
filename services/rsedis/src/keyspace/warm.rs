//! What commands will look for is fetched from memory before they run: loads of one loop do not wait for each other, where one search after
//! the other would wait for each. Nothing changes but when.

use super::{Database, Entry, group_of};
use crate::hash;
use crate::protocol::Args;
use crate::structure::table::Table;
use crate::value::Value;

/// Keys that [`Database::warm`] takes: as many loads as a processor has under way, and no more, since what was fetched must not be driven
/// out before it is used.
pub const WARM_AT_ONCE: usize = 16;

/// With fewer keys or members they are in the processor's own cache anyway: entries of some tens of bytes each fill it with about so many.
const WARM_MIN: usize = 10_000;

impl Database {
    fn table(&self, hash: u64) -> &Table<Entry> {
        &self.groups[group_of(hash)].table
    }

    /// Has the processor fetch what [`Database::find`] of the first [`WARM_AT_ONCE`] of these keys will look at, at the same time.
    pub fn warm<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) {
        self.fetch(keys);
    }

    /// Also tells which entries may be theirs, if it was done.
    fn fetch<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) -> [Option<&Entry>; WARM_AT_ONCE] {
        let mut entries = [None; WARM_AT_ONCE];
        if self.len() < WARM_MIN {
            return entries;
        }
        let mut hashes = [0; WARM_AT_ONCE];
        let mut count = 0;
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = hash::of(key);
            count += 1;
        }
        // The loads of each loop need what the one before has fetched.
        let hashes = &hashes[..count];
        let buckets = hashes.iter().fold(0, |all, &hash| all ^ self.table(hash).touch(hash));
        for (entry, &hash) in entries.iter_mut().zip(hashes) {
            *entry = self.table(hash).guess(hash);
        }
        let begins = entries.iter().flatten().fold(0, |all, entry| all ^ entry.touch());
        let ends = entries.iter().flatten().fold(0, |all, entry| all ^ entry.touch_end());
        std::hint::black_box((buckets, begins, ends));
        entries
    }

    /// The same for commands that stand behind each other: their first keys, and the member or field of a large value that each begins with.
    pub fn warm_commands<'a>(&self, commands: impl Iterator<Item = Args<'a>>) {
        let mut all = [None; WARM_AT_ONCE];
        for (place, command) in all.iter_mut().zip(commands.filter(|args| args.len() > 1)) {
            *place = Some(command);
        }
        let commands = || all.iter().flatten();
        let entries = self.fetch(commands().map(|args| args.at(1)));
        let mut members = [None; WARM_AT_ONCE];
        let mut last: Option<(&[u8], Option<&Value>)> = None;
        for ((place, entry), args) in members.iter_mut().zip(entries).zip(commands()) {
            let (key, Some(mut member)) = (args.at(1), args.get(2)) else { continue };
            let value = match last {
                Some((before, value)) if before == key => value,
                _ => {
                    let guess = || {
                        let hash = hash::of(key);
                        self.table(hash).guess(hash)
                    };
                    entry.or_else(guess).and_then(Entry::value).filter(|value| value.table_len() >= WARM_MIN)
                }
            };
            last = Some((key, value));
            if let (Some(Value::Zset(_)), Some(behind)) = (value, args.get(3)) {
                // ZADD has a score in front.
                member = behind;
            }
            *place = value.map(|value| (value, hash::of(member)));
        }
        let buckets = members.iter().flatten().fold(0, |all, (value, hash)| all ^ value.touch(*hash));
        let elements = members.iter().flatten().fold(0, |all, (value, hash)| all ^ value.touch_element(*hash));
        std::hint::black_box((buckets, elements));
    }
}
