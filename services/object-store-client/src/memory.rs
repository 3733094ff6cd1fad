//! Objects in memory, with the faults that a test plants.

use crate::{Attributes, Body, Object, Store, StoreError};
use std::collections::BTreeMap;
use std::io::{Cursor, Read, SeekFrom};
use std::ops::Range;
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

/// Its bytes, and from when it is.
type Content = (Arc<[u8]>, i64);

/// A store in memory.
#[derive(Default)]
pub struct MemoryStore {
    objects: Mutex<BTreeMap<String, Content>>,
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
        objects.insert(key.to_owned(), (content.into(), attributes.modified_millis));
        if fault == Fault::LoseAnswer { Err(StoreError::Transient("connection reset".into())) } else { Ok(()) }
    }

    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Box<dyn Read + Send>, StoreError> {
        self.may()?;
        let (content, _) = lock(&self.objects).get(key).cloned().ok_or_else(|| StoreError::NotFound(key.to_owned()))?;
        let range = range.unwrap_or(0..u64::MAX);
        let end = range.end.min(content.len() as u64) as usize;
        let start = (range.start as usize).min(end);
        Ok(Box::new(Cursor::new(content[start..end].to_vec())))
    }

    fn list_after(&self, prefix: &str, after: &str) -> Result<Vec<Object>, StoreError> {
        self.may()?;
        let objects = lock(&self.objects);
        let objects = objects.iter().filter(|(key, _)| key.starts_with(prefix) && key.as_str() > after);
        let object = |(key, (content, modified_millis)): (&String, &Content)| Object {
            key: key.clone(),
            size: content.len() as u64,
            modified_millis: *modified_millis,
        };
        Ok(objects.map(object).collect())
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.may()?;
        lock(&self.objects).remove(key);
        Ok(())
    }
}
