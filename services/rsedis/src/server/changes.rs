//! What follows from a change of a key: watches break, who waits may go on, events and effects; and keys that go.

use super::Server;
use crate::command::tracking;
use crate::events;
use crate::eviction;
use crate::keyspace::{Key, Place};
use crate::number::integer_text;
use crate::value::Value;

impl Server {
    /// A key was changed so many times: watchers learn of it, the command has an effect. A value with nothing left goes.
    pub fn changed(&mut self, database: usize, key: &Key<'_>, times: usize) {
        if times > 0 {
            self.changed_string(database, key.bytes);
            self.dirty += times as u64 - 1;
        }
        self.drop_empty(database, key);
    }

    /// A value with nothing left goes.
    pub fn drop_empty(&mut self, database: usize, key: &Key<'_>) {
        let keys = &mut self.databases[database];
        if let Some(place) = keys.find(key)
            && keys.entry(place).value().is_some_and(Value::is_empty)
        {
            keys.remove(key);
            self.notify(events::GENERIC, "del", database, key.bytes);
        }
    }

    /// What a command would have stored under a name is empty, so that what was there is gone: files and replicas hear of that alone.
    pub fn replaced_by_nothing(&mut self, database: usize, name: &[u8]) {
        self.effects.say(database, &[b"DEL", name]);
        self.dirty += 1;
        self.touch(database, name);
        self.notify(events::GENERIC, "del", database, name);
    }

    /// A string was changed; the same without a look whether anything is left.
    #[inline]
    pub fn changed_string(&mut self, database: usize, key: &[u8]) {
        self.dirty += 1;
        self.touch(database, key);
        if self.settings.events != 0
            && let Some((class, event)) = self.running.and_then(|command| events::of(command.name))
        {
            self.notify(class, event, database, key);
        }
    }

    /// A key was changed: watches of it break, and who waits for it may go on.
    #[inline]
    pub fn touch(&mut self, database: usize, key: &[u8]) {
        self.touch_by(database, key, self.current);
    }

    /// The same, changed by a client with this identifier; 0: by the server, in nobody's name.
    #[inline]
    pub fn touch_by(&mut self, database: usize, key: &[u8], changer: u64) {
        if !self.watchers.is_empty() {
            self.break_watches(database, key);
        }
        if !self.waiters.is_empty() {
            self.make_ready(database, key);
        }
        // While data are read nobody has read any.
        if self.trackers.is_any() && !self.is_loading {
            tracking::note_change(self, key, changer);
        }
    }

    fn make_ready(&mut self, database: usize, key: &[u8]) {
        let place = (database, key.to_vec());
        if self.waiters.contains_key(&place) && !self.ready.contains(&place) {
            self.ready.push(place);
        }
    }

    /// What was over when it was watched, and is gone now, did not change.
    fn break_watches(&mut self, database: usize, key: &[u8]) {
        let place = (database, key.to_vec());
        if let Some(ids) = self.watchers.get(&place) {
            let mut ids = ids.clone();
            let keys = &self.databases[database];
            let found = keys.find(&Key::new(key)).map(|at| keys.entry(at).expiry());
            let is_over = found.is_some_and(|expiry| expiry.is_some_and(|expiry| expiry <= self.now));
            if let Some(stale) = self.stale_watches.get(&place)
                && (found.is_none() || is_over)
            {
                ids.retain(|id| !stale.contains(id));
            }
            if found.is_none() {
                self.stale_watches.remove(&place);
            }
            self.broken_watches.extend_from_slice(&ids);
            for session in self.sessions.iter_mut().flatten().filter(|session| ids.contains(&session.id)) {
                session.is_watch_broken = true;
            }
        }
    }

    /// Gives a key another value, or none if there is nothing in it, whatever it held before; whether it held something. Its clock goes on.
    pub fn put(&mut self, database: usize, key: &Key<'_>, value: Value) -> bool {
        let place = self.find(database, key);
        let keys = &mut self.databases[database];
        match place {
            Some(place) if !value.is_empty() => keys.replace(place, value),
            _ => {
                // What has expired may be there still.
                keys.remove(key);
                if !value.is_empty() {
                    keys.insert_value(key, value);
                }
            }
        }
        place.is_some()
    }

    /// Removes all keys of a database, and tells who watches, waits or has read; how many there were. `lazily`: they may be freed later.
    pub fn flush_database(&mut self, database: usize, lazily: bool) -> usize {
        let keys = &self.databases[database];
        // Who watches or waits for a key that goes is told.
        let names: Vec<Vec<u8>> = (self.watchers.keys().chain(self.waiters.keys()))
            .filter(|(watched, name)| *watched == database && keys.find(&Key::new(name)).is_some())
            .map(|(_, name)| name.clone())
            .collect();
        let count = self.take_database(database, lazily);
        names.iter().for_each(|name| self.touch(database, name));
        tracking::note_flush(self);
        count
    }

    /// Removes all keys of all databases, in the same way.
    pub fn flush_databases(&mut self, lazily: bool) -> usize {
        (0..self.databases.len()).map(|database| self.flush_database(database, lazily)).sum()
    }

    /// Removes all keys and functions: others will take their place. How many keys there were.
    pub fn empty(&mut self, lazily: bool) -> usize {
        if let Some(scripts) = &mut self.scripts {
            scripts.flush_libraries();
        }
        self.flush_databases(lazily)
    }

    /// Removes all keys of a database; how many it had.
    fn take_database(&mut self, database: usize, lazily: bool) -> usize {
        let empty = eviction::empty_database(self);
        let keys = std::mem::replace(&mut self.databases[database], empty);
        let count = keys.len();
        self.own_expiries.forget_database(database);
        if keys.walked_number().is_some() {
            self.flushed.push(keys);
        } else if lazily {
            self.reclaimer.free_database(keys);
        }
        count
    }

    /// Removes a key for good; whether it was there. `lazily`: its value may be freed later.
    pub fn delete(&mut self, database: usize, key: &Key<'_>, lazily: bool) -> bool {
        self.find(database, key).is_some() && {
            if let Some(entry) = self.databases[database].remove(key)
                && lazily
            {
                self.reclaimer.free(entry);
            }
            self.dirty += 1;
            self.touch(database, key.bytes);
            self.notify(events::GENERIC, "del", database, key.bytes);
            true
        }
    }

    /// Removes a key whose time has come, and says so.
    pub fn expire(&mut self, database: usize, key: &Key<'_>) {
        if let Some(entry) = self.databases[database].remove(key) {
            if self.settings.lazily.expires {
                self.reclaimer.free(entry);
            }
            self.stats.expired += 1;
            self.touch_by(database, key.bytes, 0);
            self.notify(events::EXPIRED, "expired", database, key.bytes);
            self.effects.add(database, &[b"DEL", key.bytes]);
        }
    }

    /// Removes keys whose time has come: at most so many.
    pub fn expire_some(&mut self, most: usize) {
        if self.is_paused() || self.is_loading {
            return;
        }
        if self.replication.is_replica() {
            return self.expire_own(most);
        }
        self.own_expiries.clear();
        let mut left = most;
        for database in 0..self.databases.len() {
            while left > 0
                && let Some(name) = self.databases[database].expired(self.now)
            {
                let name = name.to_vec();
                self.expire(database, &Key::new(&name));
                left -= 1;
            }
        }
    }

    /// Whether what changes now is changed by a client of a replica, and not by its master.
    #[inline]
    pub fn is_own_change(&self) -> bool {
        self.replication.is_replica() && !self.applies_stream
    }

    /// A client has changed a key of a replica that takes writes: no master knows when it goes, so this server has to.
    #[cold]
    pub fn note_own_expiry(&mut self, database: usize, key: &[u8]) {
        let keys = &self.databases[database];
        let expiry = keys.find(&Key::new(key)).and_then(|place| keys.entry(place).expiry());
        if expiry.is_some() || !self.own_expiries.is_empty() {
            self.own_expiries.set(database, key, expiry);
        }
    }

    /// Removes keys of [`Server::note_own_expiry`] whose time has come: at most so many.
    fn expire_own(&mut self, most: usize) {
        for _ in 0..most {
            let Some((database, name)) = self.own_expiries.take_due(self.now) else { return };
            // It may have another time by now, or none.
            let key = Key::new(&name);
            let keys = &self.databases[database];
            match keys.find(&key).and_then(|place| keys.entry(place).expiry()) {
                Some(expiry) if expiry <= self.now => self.expire(database, &key),
                _ => self.note_own_expiry(database, &name),
            }
        }
    }

    /// Sets a key's expiry and makes that the command's effect.
    pub fn expire_at(&mut self, database: usize, key: &Key<'_>, place: Place, at: i64) {
        self.databases[database].set_expiry(place, Some(at));
        self.effects.say(database, &[b"PEXPIREAT", key.bytes, &integer_text(at)]);
        self.changed_string(database, key.bytes);
    }
}
