//! Where objects are kept: [`memory`], [`files`], [`s3`], and with the feature `clouds` Google's `gcs` and Azure's `azure`, behind one trait.
//!
//! Google's and Azure's interfaces are spoken here, and not through the crate `object_store`: there the end of an upload in parts has no
//! condition, and a large object could be written over.
//!
//! Calls block; whoever wants several at once has several threads. A store does not retry: its caller knows for how long.

use std::io::{Read, Seek};
use std::ops::Range;

#[cfg(feature = "clouds")]
pub mod azure;
#[cfg(feature = "clouds")]
mod cloud;
pub mod credentials;
mod encoding;
pub mod files;
#[cfg(feature = "clouds")]
pub mod gcs;
pub mod http;
pub mod listing;
mod loan;
pub mod memory;
#[cfg(test)]
mod noting;
pub mod s3;
mod signature;
#[cfg(feature = "clouds")]
pub mod token;

/// What can be sent, and sent again.
pub trait Body: Read + Seek + Send {}
impl<T: Read + Seek + Send> Body for T {}

/// One object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its key, whole.
    pub key: String,
    /// Bytes.
    pub size: u64,
    /// When it was written, as the store tells, or what [`Attributes`] said where the store keeps that; Unix time in milliseconds.
    pub modified_millis: i64,
}

/// A part of an object, and what it is a part of.
pub struct Part {
    /// Its bytes. A store may send fewer than were asked for: who reads counts them.
    pub body: Box<dyn Read + Send>,
    /// Bytes of the whole object.
    pub object_bytes: u64,
    /// What tells the object from every other that has or had its key; `None` where the store does not say.
    pub version: Option<String>,
}

/// What goes along with an object.
#[derive(Clone, Debug, Default)]
pub struct Attributes<'a> {
    /// From when it is, Unix time in milliseconds: what stores without metadata list as its time of change.
    pub modified_millis: i64,
    /// Words and values, where the store has a place for them.
    pub metadata: &'a [(&'a str, String)],
}

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such object.
    #[error("there is no object {0}")]
    NotFound(String),
    /// [`Store::create`] found one.
    #[error("an object {0} is there already")]
    AlreadyExists(String),
    /// [`Store::get_part`] found another object than the one whose parts were read before.
    #[error("the object {0} was replaced while it was read")]
    Changed(String),
    /// An object is not what was written, as its reader found.
    #[error("{0}")]
    Damaged(String),
    /// Trying again may help: no connection, a timeout, a server that is busy or broken.
    #[error("{0}")]
    Transient(String),
    /// Trying again will not help: no permission, no bucket.
    #[error("{0}")]
    Permanent(String),
}

impl StoreError {
    /// Whether trying again may help.
    pub fn is_transient(&self) -> bool {
        matches!(self, StoreError::Transient(_))
    }

    /// No error where it only says that there is no such object.
    fn unless_not_found(self) -> Result<(), StoreError> {
        match self {
            StoreError::NotFound(_) => Ok(()),
            error => Err(error),
        }
    }
}

impl From<std::io::Error> for StoreError {
    fn from(error: std::io::Error) -> Self {
        StoreError::Transient(error.to_string())
    }
}

/// Objects under keys.
pub trait Store: Send + Sync {
    /// Writes `length` bytes of `body` from its start as a new object: whole or not at all, and durable when this returns.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExists`] leaves what is there. After a transient error the object may be there or not.
    fn create(&self, key: &str, body: &mut dyn Body, length: u64, attributes: &Attributes) -> Result<(), StoreError>;
    /// Reads an object, or a range of its bytes, which may be shorter at the end.
    ///
    /// # Errors
    /// A range that begins at the end or beyond it is one where S3 is asked; [`Store::get_part`] tells that apart.
    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Box<dyn Read + Send>, StoreError>;
    /// Reads a range of an object's bytes, which is not empty; where `version` is that of an earlier part, only if it is still that object.
    ///
    /// # Errors
    /// [`StoreError::Changed`]: it is another one now, or ends before the range.
    fn get_part(&self, key: &str, range: Range<u64>, version: Option<&str>) -> Result<Part, StoreError>;
    /// All objects whose keys begin with `prefix`, ordered by key.
    fn list(&self, prefix: &str) -> Result<Vec<Object>, StoreError> {
        self.list_after(prefix, "")
    }
    /// Those of them whose keys come after `after`.
    fn list_after(&self, prefix: &str, after: &str) -> Result<Vec<Object>, StoreError>;
    /// Makes what is listed below `prefix` durable, where a writer that died may have left something that is not yet. Most stores list nothing
    /// else.
    fn settle(&self, _prefix: &str) -> Result<(), StoreError> {
        Ok(())
    }
    /// Removes an object; one that is not there is no error.
    fn delete(&self, key: &str) -> Result<(), StoreError>;
    /// Removes objects, in as few requests as the store allows. After an error some are gone, and others are not.
    fn delete_all(&self, keys: &[String]) -> Result<(), StoreError> {
        keys.iter().try_for_each(|key| self.delete(key))
    }
}

/// Calls `action` until it succeeds, fails for good, or has been tried `tries` times; waits in between with jitter.
pub fn retry<T>(tries: u32, mut action: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let mut tried = 0;
    loop {
        tried += 1;
        match action() {
            Err(error) if error.is_transient() && tried < tries => {
                std::thread::sleep(backoff(tried, rand::random()));
            }
            result => return result,
        }
    }
}

/// How long to wait after `failures` in a row: 100 ms doubled up to 10 s, then between half and all of it by `random`.
pub fn backoff(failures: u32, random: u32) -> std::time::Duration {
    let most_millis = (100u64 << failures.saturating_sub(1).min(7)).min(10_000);
    std::time::Duration::from_millis(most_millis / 2 + u64::from(random) % (most_millis / 2 + 1))
}
