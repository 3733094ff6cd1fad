//! Objects in memory, with the faults that a test plants.

use crate::{Attributes, Body, Object, Part, Store, StoreError};
use std::collections::BTreeMap;
use std::io::{Cursor, Read, SeekFrom};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What happens to a call that creates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// It fails and writes nothing.
    Refuse,
    /// It refuses for good, as where credentials are out of date.
    Forbid,
    /// It writes, and the answer is lost.
    LoseAnswer,
}

/// One object.
#[derive(Clone)]
struct Content {
    bytes: Arc<[u8]>,
    modified_millis: i64,
    /// Tells it from every other.
    number: u64,
}

impl Content {
    /// Those of its bytes that lie in a range.
    fn slice(&self, range: Range<u64>) -> Vec<u8> {
        let end = range.end.min(self.bytes.len() as u64) as usize;
        let start = (range.start as usize).min(end);
        self.bytes[start..end].to_vec()
    }
}

/// A store in memory.
#[derive(Default)]
pub struct MemoryStore {
    objects: Mutex<BTreeMap<String, Content>>,
    created: AtomicU64,
    fault: Mutex<Fault>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryStore {
    /// What befalls creations from now on.
    pub fn set_fault(&self, fault: Fault) {
        *lock(&self.fault) = fault;
    }

    fn content(&self, key: &str) -> Result<Content, StoreError> {
        self.may()?;
        lock(&self.objects).get(key).cloned().ok_or_else(|| StoreError::NotFound(key.to_owned()))
    }

    fn may(&self) -> Result<(), StoreError> {
        match *lock(&self.fault) {
            Fault::Forbid => Err(StoreError::Permanent("403 ExpiredToken".into())),
            _ => Ok(()),
        }
    }
}

impl Store for MemoryStore {
    fn create(&self, key: &str, body: &mut dyn Body, length: u64, attributes: &Attributes) -> Result<(), StoreError> {
        let fault = *lock(&self.fault);
        if fault == Fault::Refuse {
            return Err(StoreError::Transient("503 Slow Down".into()));
        }
        self.may()?;
        body.seek(SeekFrom::Start(0))?;
        let mut content = Vec::new();
        body.take(length).read_to_end(&mut content)?;
        assert_eq!(content.len() as u64, length, "the body must have the length that was announced");
        let mut objects = lock(&self.objects);
        if objects.contains_key(key) {
            return Err(StoreError::AlreadyExists(key.to_owned()));
        }
        let (bytes, modified_millis) = (content.into(), attributes.modified_millis);
        let number = self.created.fetch_add(1, Ordering::Relaxed);
        objects.insert(key.to_owned(), Content { bytes, modified_millis, number });
        if fault == Fault::LoseAnswer { Err(StoreError::Transient("connection reset".into())) } else { Ok(()) }
    }

    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Box<dyn Read + Send>, StoreError> {
        let content = self.content(key)?;
        if range.as_ref().is_some_and(|range| range.start >= content.bytes.len() as u64) {
            return Err(StoreError::Permanent(format!("416 InvalidRange for {key}")));
        }
        Ok(Box::new(Cursor::new(content.slice(range.unwrap_or(0..u64::MAX)))))
    }

    fn get_part(&self, key: &str, range: Range<u64>, version: Option<&str>) -> Result<Part, StoreError> {
        let content = self.content(key)?;
        let (now, object_bytes) = (content.number.to_string(), content.bytes.len() as u64);
        if version.is_some_and(|version| version != now) || object_bytes <= range.start {
            return Err(StoreError::Changed(key.to_owned()));
        }
        Ok(Part { body: Box::new(Cursor::new(content.slice(range))), object_bytes, version: Some(now) })
    }

    fn list_after(&self, prefix: &str, after: &str) -> Result<Vec<Object>, StoreError> {
        self.may()?;
        let objects = lock(&self.objects);
        let objects = objects.iter().filter(|(key, _)| key.starts_with(prefix) && key.as_str() > after);
        let object = |(key, content): (&String, &Content)| Object {
            key: key.clone(),
            size: content.bytes.len() as u64,
            modified_millis: content.modified_millis,
        };
        Ok(objects.map(object).collect())
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.may()?;
        lock(&self.objects).remove(key);
        Ok(())
    }
}
