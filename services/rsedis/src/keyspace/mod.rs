//! The keys of a database, in groups. SCAN goes group by group, each group resizes by itself, and what comes later (snapshots,
//! cluster slots) takes a group at a time.

mod clocks;
mod entry;
mod walk;
mod warm;

use std::collections::BTreeSet;

use clocks::Clocks;
pub use entry::Entry;
pub use walk::Encode;
use walk::Walk;
pub use warm::WARM_AT_ONCE;

use crate::hash;
use crate::random::Random;
use crate::structure::table::{Element as _, Table};
use crate::value::Value;

const GROUP_BITS: u32 = 4;
const GROUPS: usize = 1 << GROUP_BITS;

/// A key with its hash, which is computed once per command.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// Its name.
    pub bytes: &'a [u8],
    hash: u64,
}

impl<'a> Key<'a> {
    /// Of this name.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, hash: hash::of(bytes) }
    }

    fn group(&self) -> usize {
        group_of(self.hash)
    }
}

#[inline]
fn group_of(hash: u64) -> usize {
    // Bits that the table of a group does not use.
    (hash >> 48) as usize & (GROUPS - 1)
}

/// Where an entry is, until the next key is added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    group: u8,
    number: u32,
}

/// Expiries in their order, with the numbers of their entries.
#[derive(Debug, Default)]
struct Expiries {
    order: BTreeSet<(i64, u32)>,
    sum: i128,
}

impl Expiries {
    fn insert(&mut self, expiry: i64, number: u32) {
        self.sum += i128::from(expiry);
        self.order.insert((expiry, number));
    }

    fn remove(&mut self, expiry: i64, number: u32) {
        self.sum -= i128::from(expiry);
        self.order.remove(&(expiry, number));
    }

    /// The entry has another expiry.
    fn change(&mut self, number: u32, before: Option<i64>, after: Option<i64>) {
        if before == after {
            return;
        }
        if let Some(before) = before {
            self.remove(before, number);
        }
        if let Some(after) = after {
            self.insert(after, number);
        }
    }
}

#[derive(Debug, Default)]
struct Group {
    table: Table<Entry>,
    expiries: Expiries,
    /// By the entries' numbers, if they are kept.
    clocks: Option<Clocks>,
    /// Where the next draw among the entries that expire goes on, in their order.
    drawn: (i64, u32),
}

/// One of the numbered databases.
#[derive(Debug)]
pub struct Database {
    groups: Vec<Group>,
    /// All entries are being written somewhere as they were at one moment.
    walk: Option<Box<Walk>>,
    /// A new key's clock.
    first_clock: u32,
    /// Keys that were added, while that is noted.
    new_keys: Option<Vec<Vec<u8>>>,
}

impl Default for Database {
    fn default() -> Self {
        Self { groups: (0..GROUPS).map(|_| Group::default()).collect(), walk: None, first_clock: 0, new_keys: None }
    }
}

impl Database {
    /// Keys in it.
    pub fn len(&self) -> usize {
        self.groups.iter().map(|group| group.table.len()).sum()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.groups.iter().all(|group| group.table.is_empty())
    }

    /// Keys that expire.
    pub fn expiring(&self) -> usize {
        self.groups.iter().map(|group| group.expiries.order.len()).sum()
    }

    /// The mean of all expiries, milliseconds since 1970.
    pub fn mean_expiry(&self) -> Option<i64> {
        let sum: i128 = self.groups.iter().map(|group| group.expiries.sum).sum();
        sum.checked_div(self.expiring() as i128).map(|mean| mean as i64)
    }

    /// Where a key is.
    #[inline]
    pub fn find(&self, key: &Key<'_>) -> Option<Place> {
        let group = key.group();
        let number = self.groups[group].table.find(key.hash, key.bytes)?;
        Some(Place { group: group as u8, number })
    }

    /// What is there.
    #[inline]
    pub fn entry(&self, place: Place) -> &Entry {
        self.groups[place.group as usize].table.get(place.number)
    }

    /// The same, to change its value but not its expiry.
    #[inline]
    pub fn entry_mut(&mut self, place: Place) -> &mut Entry {
        self.before_change(place);
        self.groups[place.group as usize].table.get_mut(place.number)
    }

    /// Adds a key that is not there.
    pub fn insert(&mut self, key: &Key<'_>, entry: Entry) -> Place {
        debug_assert_eq!(key.bytes, entry.key());
        let group = key.group();
        let Group { table, expiries, clocks, .. } = &mut self.groups[group];
        let expiry = entry.expiry();
        let number = table.insert(key.hash, entry);
        if let Some(clocks) = clocks {
            clocks.push(self.first_clock);
        }
        if let Some(expiry) = expiry {
            expiries.insert(expiry, number);
        }
        if let Some(walk) = &mut self.walk {
            walk.is_new(group, number, key.bytes);
        }
        if let Some(names) = &mut self.new_keys {
            names.push(key.bytes.to_vec());
        }
        Place { group: group as u8, number }
    }

    /// Whether keys that are added are noted from now on.
    pub fn note_new_keys(&mut self, wanted: bool) {
        self.new_keys = wanted.then(Vec::new);
    }

    /// Keys that were added since they were asked for last, if that is noted.
    pub fn take_new_keys(&mut self) -> Vec<Vec<u8>> {
        self.new_keys.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Adds a key that is not there, with a value that does not expire.
    pub fn insert_value(&mut self, key: &Key<'_>, value: Value) -> Place {
        self.insert(key, Entry::object(key.bytes, value, None))
    }

    /// Gives a key a string, whatever it held before.
    #[inline]
    pub fn set_string(&mut self, key: &Key<'_>, place: Option<Place>, text: &[u8], expiry: Option<i64>) {
        match place {
            None => {
                self.insert(key, Entry::string(key.bytes, text, expiry));
            }
            Some(place) => {
                self.before_change(place);
                let Group { table, expiries, .. } = &mut self.groups[place.group as usize];
                let entry = table.get_mut(place.number);
                expiries.change(place.number, entry.expiry(), expiry);
                entry.set_string(text, expiry);
            }
        }
    }

    /// Puts another value in the place of one. The expiry goes.
    pub fn replace(&mut self, place: Place, value: Value) {
        self.before_change(place);
        let Group { table, expiries, .. } = &mut self.groups[place.group as usize];
        let entry = table.get_mut(place.number);
        expiries.change(place.number, entry.expiry(), None);
        *entry = Entry::object(entry.key(), value, None);
    }

    /// Lets a key expire, or not.
    pub fn set_expiry(&mut self, place: Place, expiry: Option<i64>) {
        self.before_change(place);
        let Group { table, expiries, .. } = &mut self.groups[place.group as usize];
        let entry = table.get_mut(place.number);
        expiries.change(place.number, entry.expiry(), expiry);
        entry.set_expiry(expiry);
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &Key<'_>) -> Option<Entry> {
        let group = key.group();
        let number = self.groups[group].table.find(key.hash, key.bytes)?;
        self.before_change(Place { group: group as u8, number });
        let Group { table, expiries, clocks, .. } = &mut self.groups[group];
        let removed = table.remove(key.hash, key.bytes)?;
        if let Some(clocks) = clocks {
            clocks.swap_remove(number);
        }
        if let Some(expiry) = removed.element.expiry() {
            expiries.remove(expiry, number);
        }
        if let Some(moved) = removed.moved
            && let Some(expiry) = table.get(number).expiry()
        {
            expiries.remove(expiry, moved);
            expiries.insert(expiry, number);
        }
        if let Some(walk) = &mut self.walk {
            let moved = removed.moved.map(|moved| (moved, table.get(number).key()));
            walk.is_removed(group, number, key.bytes, moved, table.len() as u32);
        }
        Some(removed.element)
    }

    /// An entry is about to change: if it has yet to be written as it was, that is done now.
    #[inline]
    fn before_change(&mut self, place: Place) {
        if let Some(walk) = &mut self.walk {
            let entry = self.groups[place.group as usize].table.get(place.number);
            walk.before_change(place.group as usize, place.number, entry);
        }
    }

    /// From now on [`Database::walk`] gives all entries as they are at this moment, whatever becomes of them.
    pub fn begin_walk(&mut self, encode: Encode, number: usize) {
        let first = self.groups[0].table.len() as u32;
        self.walk = Some(Box::new(Walk::new(encode, number, first)));
    }

    /// Appends entries that have not been given yet, about so many bytes of them. False: there are no more.
    pub fn walk(&mut self, out: &mut Vec<u8>, bytes: usize) -> bool {
        let Some(walk) = &mut self.walk else { return false };
        let has_more = walk.step(out, bytes, |group| {
            let table = &self.groups.get(group)?.table;
            Some((table.len() as u32, |number| table.get(number)))
        });
        if !has_more {
            self.walk = None;
        }
        has_more
    }

    /// Gives up what [`Database::begin_walk`] began.
    pub fn end_walk(&mut self) {
        self.walk = None;
    }

    /// The number that the database had when its walk began, if one is under way.
    pub fn walked_number(&self) -> Option<usize> {
        self.walk.as_ref().map(|walk| walk.number)
    }

    /// A key that has expired at this time (milliseconds since 1970).
    pub fn expired(&self, now: i64) -> Option<&[u8]> {
        let is_due = |group: &&Group| group.expiries.order.first().is_some_and(|(expiry, _)| *expiry <= now);
        let group = self.groups.iter().find(is_due)?;
        let (_, number) = group.expiries.order.first()?;
        Some(group.table.get(*number).key())
    }

    /// A key, each as likely as any other.
    pub fn random(&self, random: &mut Random) -> Option<Place> {
        let mut place = random.below(self.len())?;
        for (number, group) in self.groups.iter().enumerate() {
            match place.checked_sub(group.table.len()) {
                Some(rest) => place = rest,
                None => return Some(Place { group: number as u8, number: place as u32 }),
            }
        }
        None
    }

    /// A key that expires: by chance where they are many, else one after the other.
    pub fn random_expiring(&mut self, random: &mut Random) -> Option<Place> {
        const DRAWS: usize = 8;
        if self.expiring() == 0 {
            return None;
        }
        for _ in 0..DRAWS {
            let place = self.random(random)?;
            if self.entry(place).expiry().is_some() {
                return Some(place);
            }
        }
        let first = random.below(GROUPS)?;
        let with_some = (first..first + GROUPS).find(|group| !self.groups[group % GROUPS].expiries.order.is_empty())?;
        let group = &mut self.groups[with_some % GROUPS];
        let order = &group.expiries.order;
        let &(expiry, number) = order.range(group.drawn..).next().or_else(|| order.first())?;
        group.drawn = (expiry, number.saturating_add(1));
        Some(Place { group: (with_some % GROUPS) as u8, number })
    }

    /// The key that expires first, and when.
    pub fn next_to_expire(&self) -> Option<(i64, &[u8])> {
        let first = |group: &Group| group.expiries.order.first().copied();
        let ((expiry, number), group) =
            self.groups.iter().filter_map(|group| Some((first(group)?, group))).min_by_key(|(first, _)| *first)?;
        Some((expiry, group.table.get(number).key()))
    }

    /// Keeps a clock for every key from now on, all with this word; or none.
    pub fn keep_clocks(&mut self, word: Option<u32>) {
        self.first_clock = word.unwrap_or(0);
        for group in &mut self.groups {
            group.clocks = word.map(|word| Clocks::new(group.table.len(), word));
        }
    }

    /// Bytes of the tables, without what is in them.
    pub fn table_bytes(&self) -> usize {
        self.groups.iter().map(|group| group.table.bytes()).sum()
    }

    /// Bytes of the order of expiries, nearly.
    pub fn expiry_bytes(&self) -> usize {
        self.expiring() * size_of::<(i64, u32)>()
    }

    /// Sets what a new key's clock says.
    pub fn set_first_clock(&mut self, word: u32) {
        self.first_clock = word;
    }

    /// A key's clock, if they are kept.
    #[inline]
    pub fn clock(&self, place: Place) -> Option<u32> {
        self.groups[place.group as usize].clocks.as_ref().map(|clocks| clocks.get(place.number))
    }

    /// Sets it.
    pub fn set_clock(&mut self, place: Place, word: u32) {
        if let Some(clocks) = &mut self.groups[place.group as usize].clocks {
            clocks.set(place.number, word);
        }
    }

    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.groups.iter().flat_map(|group| group.table.iter())
    }

    /// Visits the entries of one step of a SCAN; the cursor to go on with, zero at the end.
    pub fn scan(&self, cursor: u64, visit: impl FnMut(&Entry)) -> u64 {
        let number = cursor as usize & (GROUPS - 1);
        match self.groups[number].table.scan(cursor >> GROUP_BITS, visit) {
            0 if number + 1 == GROUPS => 0,
            0 => number as u64 + 1,
            next => next << GROUP_BITS | number as u64,
        }
    }

    /// Goes on with resizes that are under way; whether there were any.
    pub fn step(&mut self) -> bool {
        let mut any = false;
        for group in self.groups.iter_mut().filter(|group| group.table.is_resizing()) {
            any = true;
            for _ in 0..16 {
                group.table.step();
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// A walk gives every entry once, as it was when the walk began.
        #[test]
        fn a_walk_is_of_one_moment(
            names in 0u32..300,
            actions in prop::collection::vec((0u8..5, 0u32..400), 0..600),
        ) {
            fn encode(entry: &Entry, out: &mut Vec<u8>) {
                out.extend_from_slice(entry.key());
                out.push(b'=');
                out.extend_from_slice(&entry.text().unwrap().to_vec());
                out.push(b' ');
            }
            let mut database = Database::default();
            for name in 0..names {
                let name = name.to_string();
                database.set_string(&Key::new(name.as_bytes()), None, b"old", None);
            }
            database.begin_walk(encode, 0);
            let mut out = Vec::new();
            for (action, name) in actions {
                let name = name.to_string();
                let key = Key::new(name.as_bytes());
                let place = database.find(&key);
                match (action, place) {
                    (0, place) => database.set_string(&key, place, b"new", None),
                    (1, Some(_)) => drop(database.remove(&key)),
                    (2, Some(place)) => database.entry_mut(place).text_mut().unwrap().push(b'!'),
                    (3, Some(place)) => database.set_expiry(place, Some(5)),
                    (4, _) => drop(database.walk(&mut out, 20)),
                    _ => {}
                }
            }
            while database.walk(&mut out, 1000) {}
            let text = String::from_utf8(out).unwrap();
            let mut found: Vec<&str> = text.split_terminator(' ').collect();
            found.sort_by_key(|pair| pair.split('=').next().unwrap().parse::<u32>().unwrap());
            let expected: Vec<String> = (0..names).map(|name| format!("{name}=old")).collect();
            prop_assert_eq!(found, expected);
        }

        /// Clocks stay with their keys, whatever happens to the keys around them.
        #[test]
        fn clocks_follow_their_keys(
            before in 0u32..1200,
            actions in prop::collection::vec((0u8..3, 0u32..1300, any::<u32>()), 0..2000),
        ) {
            let (mut database, mut model): (Database, BTreeMap<Vec<u8>, u32>) = Default::default();
            for name in 0..before {
                let name = name.to_string().into_bytes();
                database.set_string(&Key::new(&name), None, b"value", None);
                model.insert(name, 7);
            }
            database.keep_clocks(Some(7));
            for (action, name, word) in actions {
                let name = name.to_string().into_bytes();
                let key = Key::new(&name);
                let place = database.find(&key);
                prop_assert_eq!(place.and_then(|place| database.clock(place)), model.get(&name).copied());
                match (action, place) {
                    (0, None) => {
                        database.set_first_clock(word);
                        database.set_string(&key, None, b"value", None);
                        model.insert(name, word);
                    }
                    (1, Some(place)) => {
                        database.set_clock(place, word);
                        model.insert(name, word);
                    }
                    (2, Some(_)) => {
                        database.remove(&key).unwrap();
                        model.remove(&name);
                    }
                    _ => {}
                }
            }
            for (name, word) in model {
                let place = database.find(&Key::new(&name)).unwrap();
                prop_assert_eq!(database.clock(place), Some(word));
            }
        }

        /// Expiries come in order, whatever happens to the keys around them.
        #[test]
        fn expiries_follow_their_keys(actions in prop::collection::vec((0u8..4, 0u32..60, prop::option::of(0i64..100)), 0..600)) {
            let (mut database, mut model): (Database, BTreeMap<Vec<u8>, Option<i64>>) = Default::default();
            for (action, name, expiry) in actions {
                let name = name.to_string().into_bytes();
                let key = Key::new(&name);
                let place = database.find(&key);
                prop_assert_eq!(place.map(|place| database.entry(place).expiry()), model.get(&name).copied());
                match (action, place) {
                    (0 | 1, place) => {
                        database.set_string(&key, place, b"value", expiry);
                        model.insert(name, expiry);
                    }
                    (2, Some(place)) => {
                        database.set_expiry(place, expiry);
                        model.insert(name, expiry);
                    }
                    (3, Some(_)) => {
                        database.remove(&key).unwrap();
                        model.remove(&name);
                    }
                    _ => {}
                }
            }
            prop_assert_eq!(database.len(), model.len());
            prop_assert_eq!(database.expiring(), model.values().flatten().count());
            while let Some(name) = database.expired(50).map(<[u8]>::to_vec) {
                let expiry = model.remove(&name).flatten().unwrap();
                prop_assert!(expiry <= 50);
                database.remove(&Key::new(&name)).unwrap();
            }
            prop_assert!(model.values().flatten().all(|expiry| *expiry > 50));
        }
    }
}
