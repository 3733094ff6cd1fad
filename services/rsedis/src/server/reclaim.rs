//! Frees what is large on another thread (UNLINK, `FLUSHALL ASYNC`, and what the `lazyfree` parameters ask for), so that nobody waits
//! for it. What is small is freed at once: that takes less than to hand it over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use crate::keyspace::{Database, Entry};
use crate::log;
use crate::value::{Hash, Set, Value, Zset};

/// What has fewer pieces of memory than this is freed at once, as in Redis.
const PIECES_MIN: usize = 64;
/// What waits for the thread; when that is full the next is freed at once.
const WAITING_MAX: usize = 1_024;

#[derive(Debug)]
enum Garbage {
    Entry(Entry),
    Database(Box<Database>),
}

/// The thread, once there was something for it, and what it has done.
#[derive(Debug, Default)]
pub struct Reclaimer {
    thread: Option<SyncSender<(Garbage, u64)>>,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    pending: AtomicU64,
    freed: AtomicU64,
}

/// How many pieces of memory a value has, nearly.
fn pieces(value: &Value) -> usize {
    match value {
        Value::String(_) => 1,
        Value::List(list) => list.nodes().count(),
        Value::Set(set @ Set::Table(_)) => set.len(),
        Value::Hash(hash @ Hash::Table(_)) => hash.len(),
        Value::Zset(zset @ Zset::Tree(_)) => zset.len(),
        Value::Set(_) | Value::Hash(_) | Value::Zset(_) => 1,
        Value::Stream(stream) => {
            let groups = stream.groups.values().map(|group| 1 + group.pending.len() + group.consumers.len());
            stream.nodes().len() + groups.sum::<usize>()
        }
    }
}

impl Reclaimer {
    /// Frees a key's value, here or there.
    pub fn free(&mut self, entry: Entry) {
        if entry.value().is_some_and(|value| pieces(value) > PIECES_MIN) {
            self.hand_over(Garbage::Entry(entry), 1);
        }
    }

    /// Frees all of a database: few keys may be large.
    pub fn free_database(&mut self, database: Database) {
        let keys = database.len();
        if keys > 0 {
            self.hand_over(Garbage::Database(Box::new(database)), keys as u64);
        }
    }

    /// Objects that are still to be freed, and those that were.
    pub fn counters(&self) -> (u64, u64) {
        (self.counters.pending.load(Ordering::Relaxed), self.counters.freed.load(Ordering::Relaxed))
    }

    /// CONFIG RESETSTAT.
    pub fn reset(&self) {
        self.counters.freed.store(0, Ordering::Relaxed);
    }

    fn hand_over(&mut self, garbage: Garbage, objects: u64) {
        if self.thread.is_none() {
            self.thread = start(Arc::clone(&self.counters));
        }
        let Some(thread) = &self.thread else { return };
        self.counters.pending.fetch_add(objects, Ordering::Relaxed);
        // What it does not take is freed here, at the end of this statement.
        if thread.try_send((garbage, objects)).is_err() {
            self.counters.pending.fetch_sub(objects, Ordering::Relaxed);
        }
    }
}

/// The thread; nothing if the system has none: then everything is freed at once.
fn start(counters: Arc<Counters>) -> Option<SyncSender<(Garbage, u64)>> {
    let (sender, receiver) = sync_channel::<(Garbage, u64)>(WAITING_MAX);
    let work = move || {
        for (garbage, objects) in receiver {
            match garbage {
                Garbage::Entry(entry) => drop(entry),
                Garbage::Database(database) => drop(database),
            }
            counters.freed.fetch_add(objects, Ordering::Relaxed);
            counters.pending.fetch_sub(objects, Ordering::Relaxed);
        }
    };
    match thread::Builder::new().name("reclaim".into()).spawn(work) {
        Ok(_) => Some(sender),
        Err(error) => {
            log::warning(format_args!("start a thread that frees memory: {error}: it is freed at once"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::Key;
    use crate::value::Packing;

    fn set(members: usize) -> Entry {
        let mut set = Set::default();
        for number in 0..members {
            assert!(set.insert(format!("member {number}").as_bytes(), 512));
        }
        Entry::object(b"key", Value::Set(set), None)
    }

    #[test]
    fn what_is_large_is_freed_elsewhere_and_counted() {
        let mut reclaimer = Reclaimer::default();
        reclaimer.free(set(PIECES_MIN));
        assert!(reclaimer.thread.is_none(), "small values go at once");
        reclaimer.free(set(PIECES_MIN + 1));
        let mut database = Database::default();
        for number in 0..200u32 {
            let name = number.to_string();
            database.set_string(&Key::new(name.as_bytes()), None, b"value", None);
        }
        reclaimer.free_database(database);
        harness::until("the thread", || reclaimer.counters() == (0, 201));
        reclaimer.reset();
        assert_eq!(reclaimer.counters(), (0, 0));
    }

    #[test]
    fn packed_values_are_one_piece() {
        let mut zset = Zset::default();
        for number in 0..100 {
            zset.insert(format!("{number}").as_bytes(), f64::from(number), &Packing::default());
        }
        assert_eq!(pieces(&Value::Zset(zset)), 1);
    }
}
