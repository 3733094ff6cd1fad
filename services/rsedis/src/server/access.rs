//! How commands come to keys: by name, and as values of the type that they need. A key that has expired is not there.

use super::Server;
use crate::command::{NO_TOUCH, WRITE};
use crate::failure::{Outcome, WRONG_TYPE};
use crate::keyspace::{Entry, Key, Place};
use crate::protocol::{Args, Limits};
use crate::structure::listpack::Item;
use crate::value::{Hash, List, Packing, Set, Stream, Value, Zset};
use crate::{events, eviction};

/// A value of a certain type.
pub trait Typed: Default {
    /// If it is one.
    fn of(value: &Value) -> Option<&Self>;
    /// The same, to change it.
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
    /// As a value.
    fn wrap(self) -> Value;
}

macro_rules! typed {
    ($($name:ident),*) => {$(
        impl Typed for $name {
            fn of(value: &Value) -> Option<&Self> {
                match value { Value::$name(value) => Some(value), _ => None }
            }
            fn of_mut(value: &mut Value) -> Option<&mut Self> {
                match value { Value::$name(value) => Some(value), _ => None }
            }
            fn wrap(self) -> Value {
                Value::$name(self.into())
            }
        }
    )*};
}
typed!(List, Set, Hash, Zset, Stream);

impl Server {
    /// Limits of packed values.
    #[inline]
    pub fn packing(&self) -> Packing {
        self.settings.packing
    }

    /// Bytes that a string may have. What a file or a master says was taken already.
    pub fn string_bytes_max(&self) -> i64 {
        if self.is_told() { Limits::TAKEN.bulk_max } else { self.settings.bulk_max }
    }

    /// Whether what runs now has happened already: a file or a master tells of it.
    pub fn is_told(&self) -> bool {
        self.is_loading || self.applies_stream
    }

    /// Whether a key's time has come, for who runs commands now: while keys are read, and for a master, none's has.
    pub fn is_over(&self, expiry: i64) -> bool {
        expiry <= self.now && !self.is_told()
    }

    /// Whether a time that a command gives a key has come already, so that the key goes at once. While keys are read, and on a replica,
    /// nothing goes by the clock: what follows may have given it another time.
    pub fn is_over_at_once(&self, expiry: i64) -> bool {
        expiry <= self.now && !self.is_loading && !self.replication.is_replica()
    }

    /// Whether what has expired may be removed. While writes are postponed nothing changes, and on a replica only what its master says;
    /// but a command that writes puts something in its place: one does in a pause that its own transaction has begun, and a client's does
    /// on a replica where that is allowed.
    pub fn may_remove_expired(&self) -> bool {
        let is_replica = self.replication.is_replica();
        let may_be_replaced = !is_replica || !self.settings.is_read_only;
        let is_replaced = || may_be_replaced && self.running.is_some_and(|command| command.is(WRITE));
        (!is_replica && !self.is_paused()) || is_replaced()
    }

    /// Where a key is. A key that has expired is removed, and is not there.
    #[inline]
    pub fn find(&mut self, database: usize, key: &Key<'_>) -> Option<Place> {
        let keys = &self.databases[database];
        let place = keys.find(key)?;
        match keys.entry(place).expiry() {
            Some(expiry) if self.is_over(expiry) => {
                if self.may_remove_expired() {
                    self.expire(database, key);
                }
                None
            }
            _ => {
                if self.eviction.clock().is_some() && !self.running.is_some_and(|command| command.is(NO_TOUCH)) {
                    eviction::note_use(self, database, place);
                }
                Some(place)
            }
        }
    }

    /// The same, with hits and misses counted.
    #[inline]
    pub fn find_counted(&mut self, database: usize, key: &Key<'_>) -> Option<Place> {
        let place = self.find(database, key);
        match place {
            Some(_) => self.stats.hits += 1,
            None => self.stats.misses += 1,
        }
        place
    }

    /// The same for a command that reads: a miss is told of.
    #[inline]
    pub fn find_to_read(&mut self, database: usize, key: &Key<'_>) -> Option<Place> {
        let place = self.find_counted(database, key);
        if place.is_none() {
            self.notify(events::MISS, "keymiss", database, key.bytes);
        }
        place
    }

    /// A key's entry, to be read.
    #[inline]
    pub fn entry(&mut self, database: usize, key: &Key<'_>) -> Option<&Entry> {
        let place = self.find_to_read(database, key)?;
        Some(self.databases[database].entry(place))
    }

    /// A key's string, to be read.
    #[inline]
    pub fn text(&mut self, database: usize, key: &Key<'_>) -> Outcome<Option<Item<'_>>> {
        match self.entry(database, key) {
            None => Ok(None),
            Some(entry) => entry.text().map(Some).ok_or(WRONG_TYPE),
        }
    }

    /// A key's value of a type, to be read.
    pub fn typed<T: Typed>(&mut self, database: usize, key: &Key<'_>) -> Outcome<Option<&T>> {
        match self.entry(database, key) {
            None => Ok(None),
            Some(entry) => entry.value().and_then(T::of).map(Some).ok_or(WRONG_TYPE),
        }
    }

    /// A key's value of a type, to be changed.
    pub fn typed_mut<T: Typed>(&mut self, database: usize, key: &Key<'_>) -> Outcome<Option<&mut T>> {
        match self.find(database, key) {
            None => Ok(None),
            Some(place) => {
                let entry = self.databases[database].entry_mut(place);
                entry.value_mut().and_then(T::of_mut).map(Some).ok_or(WRONG_TYPE)
            }
        }
    }

    /// The same; a key that is not there gets an empty one, which must not stay empty.
    pub fn typed_or_new<T: Typed>(&mut self, database: usize, key: &Key<'_>) -> Outcome<&mut T> {
        let place = match self.find(database, key) {
            Some(place) => place,
            None => self.databases[database].insert_value(key, T::default().wrap()),
        };
        let entry = self.databases[database].entry_mut(place);
        entry.value_mut().and_then(T::of_mut).ok_or(WRONG_TYPE)
    }

    /// A key's entry, if its time has not come; nothing is removed.
    pub fn entry_if_there(&self, database: usize, key: &Key<'_>) -> Option<&Entry> {
        let keys = &self.databases[database];
        let entry = keys.entry(keys.find(key)?);
        (!entry.expiry().is_some_and(|expiry| self.is_over(expiry))).then_some(entry)
    }

    /// The values of a type of several keys, to be read.
    pub fn typed_all<T: Typed>(&mut self, database: usize, names: Args<'_>) -> Outcome<Vec<Option<&T>>> {
        // Those that have expired go first, so that nothing moves any more.
        for name in names.iter() {
            self.find_to_read(database, &Key::new(name));
        }
        let value = |name| match self.entry_if_there(database, &Key::new(name)) {
            None => Ok(None),
            Some(entry) => entry.value().and_then(T::of).map(Some).ok_or(WRONG_TYPE),
        };
        names.iter().map(value).collect()
    }
}
