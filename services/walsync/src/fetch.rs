//! Objects of a store, read one after the other, and fetched ahead: large ones in ranges, several small ones at once.
//!
//! ```text
//! objects, in order ──► parts, in order ──► a few threads, a GET each ──► one slot a part ──► the reader, in order
//! ```
//!
//! Memory is that of [`ReadAhead::parts`] parts, however large the objects are: a part counts from when it is asked for until it is read to
//! its end. All parts of an object are of the same object, which is as long as it was listed, or reading it is an error that names it: a
//! store that sends less is asked again a few times, and one that has another object there by now is not.

use crate::store::{Store, StoreError, backoff};
use crate::threads;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Tries of one part that bring nothing of it.
const TRIES: u32 = 5;

/// How much is fetched ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAhead {
    /// Bytes of one request at most; 1 or more.
    pub part_bytes: u64,
    /// Requests at once; 1 or more.
    pub parts: usize,
}

impl Default for ReadAhead {
    fn default() -> Self {
        ReadAhead { part_bytes: 4 << 20, parts: 8 }
    }
}

impl ReadAhead {
    /// Bytes that are in memory at most.
    pub fn bytes_max(&self) -> u64 {
        self.part_bytes * self.parts as u64
    }
}

/// An object that is to be read.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Its key.
    pub key: String,
    /// Its bytes, as it was listed.
    pub bytes: u64,
}

/// Objects that are being fetched. Dropping it ends that.
pub struct Fetch {
    shared: Arc<Shared>,
    /// The next object to be read.
    next: usize,
    /// The part that is being read, and how far.
    part: Vec<u8>,
    read: usize,
}

struct Shared {
    store: Arc<dyn Store>,
    objects: Vec<Wanted>,
    read_ahead: ReadAhead,
    state: Mutex<State>,
    /// There is room for another part, or nobody wants one.
    room: Condvar,
    /// A part is here.
    arrived: Condvar,
}

type Slot = Option<Result<Vec<u8>, StoreError>>;

#[derive(Default)]
struct State {
    /// Where the next part begins that nobody fetches: the object, and the byte in it.
    object: usize,
    offset: u64,
    /// Parts that are here or on their way, in order. `None`: on its way.
    slots: VecDeque<Slot>,
    /// Parts before the first slot.
    passed: u64,
    /// What tells each object that is being fetched from others of its key, from the first answer on.
    versions: BTreeMap<usize, Option<String>>,
    /// Memory of parts that were read.
    free: Vec<Vec<u8>>,
    /// Parts that take up memory, and their bytes.
    parts: usize,
    bytes: u64,
    bytes_max: u64,
    stop: bool,
}

/// One request.
struct Part {
    number: u64,
    object: usize,
    range: Range<u64>,
    buffer: Vec<u8>,
    /// Bytes of the buffer that have arrived.
    filled: usize,
}

impl Fetch {
    /// Begins to fetch.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(store: Arc<dyn Store>, objects: Vec<Wanted>, read_ahead: ReadAhead) -> io::Result<Fetch> {
        let parts: u64 = objects.iter().map(|object| object.bytes.div_ceil(read_ahead.part_bytes)).sum();
        let threads = parts.min(read_ahead.parts as u64);
        let (room, arrived) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { store, objects, read_ahead, state: Mutex::default(), room, arrived });
        let fetch = Fetch { shared, next: 0, part: Vec::new(), read: 0 };
        for _ in 0..threads {
            let shared = fetch.shared.clone();
            threads::named("fetcher").spawn(move || shared.work())?;
        }
        Ok(fetch)
    }

    /// The next object; the one before it must have been read to its end. Beyond the last one it is empty.
    pub fn next_object(&mut self) -> ObjectReader<'_> {
        let left = self.shared.objects.get(self.next).map_or(0, |object| object.bytes);
        let mut state = self.shared.state();
        state.versions = state.versions.split_off(&self.next);
        drop(state);
        self.next += 1;
        ObjectReader { fetch: self, left }
    }

    /// The most bytes that were in memory at any time.
    pub fn bytes_max(&self) -> u64 {
        self.shared.state().bytes_max
    }

    /// Gives the part back that was read, and waits for the next one.
    fn next_part(&mut self) -> Result<(), StoreError> {
        let mut state = self.shared.state();
        let part = std::mem::take(&mut self.part);
        if !part.is_empty() {
            state.parts -= 1;
            state.bytes -= part.len() as u64;
            state.free.push(part);
            self.shared.room.notify_one();
        }
        loop {
            if let Some(part) = state.slots.front_mut().and_then(Option::take) {
                state.slots.pop_front();
                state.passed += 1;
                self.read = 0;
                self.part = part?;
                return Ok(());
            }
            state = self.shared.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        self.shared.state().stop = true;
        self.shared.room.notify_all();
        // A request that hangs ends by its own time limit, or with the process: nobody waits for it here.
    }
}

/// One object, to its end.
pub struct ObjectReader<'a> {
    fetch: &'a mut Fetch,
    left: u64,
}

impl Read for ObjectReader<'_> {
    /// An error of the store is a [`StoreError`] within the [`io::Error`].
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 || buffer.is_empty() {
            return Ok(0);
        }
        if self.fetch.read == self.fetch.part.len() {
            self.fetch.next_part().map_err(io::Error::other)?;
        }
        let here = &self.fetch.part[self.fetch.read..];
        let count = here.len().min(buffer.len());
        buffer[..count].copy_from_slice(&here[..count]);
        self.fetch.read += count;
        self.left -= count as u64;
        Ok(count)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What each thread does.
    fn work(&self) {
        while let Some(mut part) = self.take() {
            let fetched = self.fetch_whole(&mut part);
            let mut state = self.state();
            let slot = (part.number - state.passed) as usize;
            state.slots[slot] = Some(fetched.map(|()| part.buffer));
            drop(state);
            self.arrived.notify_one();
        }
    }

    /// The next part, when there is room for it; `None`: there is none, or nobody wants it.
    fn take(&self) -> Option<Part> {
        let mut state = self.state();
        while !state.stop && state.parts == self.read_ahead.parts {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        while self.objects.get(state.object).is_some_and(|object| state.offset == object.bytes) {
            (state.object, state.offset) = (state.object + 1, 0);
        }
        let object = self.objects.get(state.object).filter(|_| !state.stop)?;
        let range = state.offset..object.bytes.min(state.offset + self.read_ahead.part_bytes);
        state.offset = range.end;
        state.parts += 1;
        state.bytes += range.end - range.start;
        state.bytes_max = state.bytes_max.max(state.bytes);
        let number = state.passed + state.slots.len() as u64;
        state.slots.push_back(None);
        let buffer = state.free.pop().unwrap_or_default();
        Some(Part { number, object: state.object, range, buffer, filled: 0 })
    }

    /// Fetches a part, however often it is broken off, as long as something comes.
    fn fetch_whole(&self, part: &mut Part) -> Result<(), StoreError> {
        let mut tries = 0;
        loop {
            let before = part.filled;
            let result = self.fetch(part);
            tries = if part.filled > before { 1 } else { tries + 1 };
            match result {
                Err(error) if error.is_transient() && tries < TRIES => {
                    std::thread::sleep(backoff(tries, rand::random()));
                }
                result => return result,
            }
        }
    }

    /// Fetches what of a part has not arrived.
    fn fetch(&self, part: &mut Part) -> Result<(), StoreError> {
        let Wanted { key, bytes } = &self.objects[part.object];
        let known = self.state().versions.get(&part.object).cloned();
        let stopped = || StoreError::Permanent(format!("{key} is not read any more"));
        if self.state().stop {
            return Err(stopped());
        }
        let missing = part.range.start + part.filled as u64..part.range.end;
        let mut answer = self.store.get_part(key, missing, known.flatten().as_deref())?;
        let version = answer.version;
        let first = self.state().versions.entry(part.object).or_insert_with(|| version.clone()).clone();
        // Where the store ignores the condition, or its first answer came while others were under way.
        if answer.object_bytes != *bytes || version != first {
            return Err(StoreError::Changed(key.clone()));
        }
        let wanted = (part.range.end - part.range.start) as usize;
        part.buffer.resize(wanted, 0);
        while part.filled < wanted && !self.state().stop {
            match answer.body.read(&mut part.buffer[part.filled..]) {
                Ok(0) => break,
                Ok(count) => part.filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(StoreError::Transient(format!("{key}: {error}"))),
            }
        }
        if part.filled < wanted {
            let (start, filled) = (part.range.start, part.filled);
            let short = format!("{key}: the store sent {filled} of {wanted} bytes from byte {start} on");
            return Err(if self.state().stop { stopped() } else { StoreError::Transient(short) });
        }
        // Who has not seen the end keeps the connection from being used again.
        match answer.body.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(StoreError::Permanent(format!("{key}: the store sent more bytes than it was asked for"))),
            // All bytes are here: only the connection is lost.
            Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::MemoryStore;
    use crate::store::{Attributes, Body, Object, Part};

    fn content(bytes: usize, seed: usize) -> Vec<u8> {
        (0..bytes).map(|at| ((at + seed).wrapping_mul(0x9e37_79b9) >> 11) as u8).collect()
    }

    fn put(store: &MemoryStore, key: &str, content: &[u8]) {
        store.create(key, &mut io::Cursor::new(content), content.len() as u64, &Attributes::default()).unwrap();
    }

    fn wanted(store: &dyn Store) -> Vec<Wanted> {
        store.list("").unwrap().into_iter().map(|object| Wanted { key: object.key, bytes: object.size }).collect()
    }

    /// What befalls an answer of a store, given its number from 0.
    type Fault = fn(&MemoryStore, usize, Part) -> Part;

    struct Faulty {
        store: MemoryStore,
        honours_conditions: bool,
        /// Held while one is made, so that nobody sees a fault half done.
        answers: Mutex<usize>,
        fault: Fault,
    }

    impl Store for Faulty {
        fn create(&self, key: &str, body: &mut dyn Body, length: u64, with: &Attributes) -> Result<(), StoreError> {
            self.store.create(key, body, length, with)
        }

        fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Box<dyn Read + Send>, StoreError> {
            self.store.get(key, range)
        }

        fn get_part(&self, key: &str, range: Range<u64>, version: Option<&str>) -> Result<Part, StoreError> {
            let mut answers = self.answers.lock().unwrap();
            let part = self.store.get_part(key, range, version.filter(|_| self.honours_conditions))?;
            *answers += 1;
            Ok((self.fault)(&self.store, *answers - 1, part))
        }

        fn list_after(&self, prefix: &str, after: &str) -> Result<Vec<Object>, StoreError> {
            self.store.list_after(prefix, after)
        }

        fn delete(&self, key: &str) -> Result<(), StoreError> {
            self.store.delete(key)
        }
    }

    /// What comes of reading an object of ten parts from a store with a fault.
    fn read_ten_parts(parts: usize, honours_conditions: bool, fault: Fault) -> Result<Vec<u8>, StoreError> {
        let store = MemoryStore::default();
        put(&store, "large", &content(100, 0));
        let store = Arc::new(Faulty { store, honours_conditions, answers: Mutex::new(0), fault });
        let objects = wanted(&*store);
        let mut fetch = Fetch::start(store, objects, ReadAhead { part_bytes: 10, parts }).unwrap();
        let mut read = Vec::new();
        let result = fetch.next_object().read_to_end(&mut read);
        result.map(|_| read).map_err(|error| error.downcast().unwrap())
    }

    #[test]
    fn objects_of_every_size_come_whole_and_in_order_within_the_memory_that_was_given() {
        let store = Arc::new(MemoryStore::default());
        let sizes = [0, 1, 9, 10, 11, 20, 95, 0, 3, 3, 3, 3, 1000, 0];
        for (number, bytes) in sizes.into_iter().enumerate() {
            put(&store, &format!("{number:03}"), &content(bytes, number));
        }
        for (part_bytes, parts) in [(10, 1), (10, 3), (1, 8), (64, 4), (4096, 8)] {
            let read_ahead = ReadAhead { part_bytes, parts };
            let mut fetch = Fetch::start(store.clone(), wanted(&*store), read_ahead).unwrap();
            for (number, bytes) in sizes.into_iter().enumerate() {
                let mut read = Vec::new();
                fetch.next_object().read_to_end(&mut read).unwrap();
                assert!(read == content(bytes, number), "{read_ahead:?} {number}");
            }
            assert_eq!(fetch.next_object().read(&mut [0]).unwrap(), 0);
            assert!((1..=read_ahead.bytes_max()).contains(&fetch.bytes_max()), "{read_ahead:?} {}", fetch.bytes_max());
        }
    }

    #[test]
    fn nothing_is_fetched_beyond_the_memory_that_was_given_while_nobody_reads() {
        let store = Arc::new(MemoryStore::default());
        put(&store, "large", &content(1000, 0));
        let mut fetch = Fetch::start(store.clone(), wanted(&*store), ReadAhead { part_bytes: 10, parts: 4 }).unwrap();
        let all_here = |fetch: &Fetch| fetch.shared.state().slots.iter().filter(|slot| slot.is_some()).count();
        while all_here(&fetch) < 4 {
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(fetch.shared.state().slots.len(), 4);
        assert_eq!(fetch.bytes_max(), 40);
        fetch.next_object().read_exact(&mut [0; 5]).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(fetch.shared.state().slots.len(), 3, "the part that is half read takes its memory");
    }

    #[test]
    fn an_object_that_is_replaced_between_two_ranges_is_an_error_that_names_it() {
        // By another one of the same length.
        let replace: Fault = |store, number, part| {
            if number == 4 {
                store.delete("large").unwrap();
                put(store, "large", &content(100, 7));
            }
            part
        };
        for (parts, honours_conditions) in [(1, true), (3, true), (1, false), (3, false)] {
            let result = read_ten_parts(parts, honours_conditions, replace);
            assert!(matches!(&result, Err(StoreError::Changed(key)) if key == "large"), "{parts} {result:?}");
        }
    }

    #[test]
    fn an_object_that_is_not_as_long_as_it_was_listed_is_an_error_that_names_it() {
        let store = Arc::new(MemoryStore::default());
        put(&store, "large", &content(100, 0));
        for bytes in [5, 99, 101, 110, 200] {
            let objects = vec![Wanted { key: "large".into(), bytes }];
            let mut fetch = Fetch::start(store.clone(), objects, ReadAhead { part_bytes: 10, parts: 2 }).unwrap();
            let error = fetch.next_object().read_to_end(&mut Vec::new()).unwrap_err();
            assert!(matches!(error.downcast().unwrap(), StoreError::Changed(key) if key == "large"), "{bytes}");
        }
    }

    #[test]
    fn what_a_range_that_is_cut_short_lacks_is_asked_for_again_and_then_an_error_that_names_the_object() {
        let once: Fault = |_, number, part| match number {
            3 => Part { body: Box::new(part.body.take(7)), ..part },
            _ => part,
        };
        let always: Fault = |_, number, part| match number {
            0..3 => part,
            3 => Part { body: Box::new(part.body.take(7)), ..part },
            _ => Part { body: Box::new(part.body.take(0)), ..part },
        };
        // A byte at a time: more tries than there are, of which each brings something.
        let drips: Fault = |_, number, part| match number {
            3..11 => Part { body: Box::new(part.body.take(1)), ..part },
            _ => part,
        };
        assert!(read_ten_parts(1, true, drips).unwrap() == content(100, 0));
        for parts in [1, 3] {
            assert!(read_ten_parts(parts, true, once).unwrap() == content(100, 0));
            let error = read_ten_parts(parts, true, always).unwrap_err();
            assert!(error.is_transient() && error.to_string().contains("of 10 bytes from byte 30 on"), "{error}");
        }
    }

    #[test]
    fn a_range_that_is_longer_than_it_was_asked_for_is_an_error_that_names_the_object() {
        let error = read_ten_parts(2, true, |_, _, part| Part { body: Box::new(part.body.chain(&b"x"[..])), ..part });
        assert!(error.unwrap_err().to_string().contains("large: the store sent more bytes"));
    }

    #[test]
    fn an_object_that_is_gone_is_told_in_its_turn() {
        let store = Arc::new(MemoryStore::default());
        put(&store, "a", &content(30, 0));
        let objects = ["a", "b"].map(|key| Wanted { key: key.into(), bytes: 30 }).to_vec();
        let mut fetch = Fetch::start(store, objects, ReadAhead { part_bytes: 10, parts: 8 }).unwrap();
        let mut read = Vec::new();
        fetch.next_object().read_to_end(&mut read).unwrap();
        assert!(read == content(30, 0));
        let error = fetch.next_object().read(&mut [0]).unwrap_err();
        assert!(matches!(error.downcast().unwrap(), StoreError::NotFound(key) if key == "b"));
    }
}
