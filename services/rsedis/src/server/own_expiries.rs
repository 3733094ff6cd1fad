//! On a replica that takes writes: keys that clients have let expire. No master knows when those go, so this server has to.

use std::collections::{BTreeSet, HashMap};

/// When such keys go, milliseconds since 1970. A key has one time, whatever it had before.
#[derive(Debug, Default)]
pub struct OwnExpiries {
    /// By database and key.
    times: HashMap<(usize, Vec<u8>), i64>,
    /// The same in the order of their times.
    order: BTreeSet<(i64, usize, Vec<u8>)>,
}

impl OwnExpiries {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Whether a key is one of them.
    pub fn has(&self, database: usize, key: &[u8]) -> bool {
        self.times.contains_key(&(database, key.to_vec()))
    }

    /// A key goes at a time, or is not to be looked after.
    pub fn set(&mut self, database: usize, key: &[u8], time: Option<i64>) {
        let place = (database, key.to_vec());
        let before = match time {
            Some(time) => self.times.insert(place, time),
            None => self.times.remove(&place),
        };
        if let Some(before) = before {
            self.order.remove(&(before, database, key.to_vec()));
        }
        if let Some(time) = time {
            self.order.insert((time, database, key.to_vec()));
        }
    }

    /// Takes a key whose time has come.
    pub fn take_due(&mut self, now: i64) -> Option<(usize, Vec<u8>)> {
        self.order.first().filter(|(time, ..)| *time <= now)?;
        let (_, database, key) = self.order.pop_first()?;
        let place = (database, key);
        self.times.remove(&place);
        Some(place)
    }

    /// A database has lost all its keys.
    pub fn forget_database(&mut self, database: usize) {
        self.times.retain(|(number, _), _| *number != database);
        self.order.retain(|(_, number, _)| *number != database);
    }

    /// Two databases have changed places.
    pub fn swap(&mut self, one: usize, other: usize) {
        let moved = |number: usize| match number {
            number if number == one => other,
            number if number == other => one,
            number => number,
        };
        let times = std::mem::take(&mut self.times);
        self.times = times.into_iter().map(|((number, key), time)| ((moved(number), key), time)).collect();
        let order = std::mem::take(&mut self.order);
        self.order = order.into_iter().map(|(time, number, key)| (time, moved(number), key)).collect();
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.times.clear();
        self.order.clear();
    }
}
