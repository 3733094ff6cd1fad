//! Reads blocks beside the writer: what is shown is safe on disk.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wal::files::{Directory, File};
use zstd::dict::DecoderDictionary;

use super::compress::{Encoding, SharedDictionary, UnpackError, unpack};
use super::format::{HEAD_BYTES, Head, Kind, Place};
use super::segments::OpenFiles;
use super::{index, scan};
use crate::hash::Hash;

/// Dictionaries that are kept for readers.
const DICTIONARIES_MAX: usize = 8;

/// What the writer shows.
pub(super) struct Shown<D: Directory> {
    files: OpenFiles<D>,
    first: AtomicU64,
    /// One behind the last.
    next: AtomicU64,
    salt: AtomicU64,
    quarantined: Mutex<BTreeSet<u64>>,
    /// Dictionaries that were used last, by segment and offset.
    dictionaries: Mutex<VecDeque<((u32, u32), SharedDictionary)>>,
}

impl<D: Directory> Shown<D> {
    pub(super) fn new(files: OpenFiles<D>, first: u64) -> Self {
        let (first, next) = (AtomicU64::new(first), AtomicU64::new(first));
        let (quarantined, dictionaries) = Default::default();
        Self { files, first, next, salt: AtomicU64::default(), quarantined, dictionaries }
    }

    pub(super) fn files(&self) -> &OpenFiles<D> {
        &self.files
    }

    pub(super) fn set(&self, first: u64, next: u64, quarantined: Vec<u64>, salt: u64) {
        self.first.store(first, Ordering::Relaxed);
        self.quarantined().extend(quarantined);
        self.advance(next, salt);
    }

    /// Earlier blocks are no longer stored.
    pub(super) fn begin_at(&self, first: u64) {
        self.first.store(first, Ordering::Release);
        self.quarantined().retain(|number| *number >= first);
    }

    /// A block that was damaged is whole again.
    pub(super) fn repaired(&self, number: u64) {
        self.quarantined().remove(&number);
    }

    pub(super) fn first(&self) -> u64 {
        self.first.load(Ordering::Acquire)
    }

    pub(super) fn advance(&self, next: u64, salt: u64) {
        self.salt.store(salt, Ordering::Relaxed);
        self.next.store(next, Ordering::Release);
    }

    fn quarantined(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.quarantined.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A block that is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its number.
    pub number: u64,
    /// Its `Block` message.
    pub bytes: Vec<u8>,
    /// Its root hash.
    pub root: Hash,
}

/// Why a block cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is not here.
    #[error("block {0} is not stored")]
    NotStored(u64),
    /// It was here, and is damaged.
    #[error("block {number} is damaged and quarantined: {what}")]
    Damaged {
        /// Its number.
        number: u64,
        /// What is wrong.
        what: String,
    },
    /// The file system.
    #[error("block {number} cannot be read: {source}")]
    Files {
        /// Its number.
        number: u64,
        /// What it said.
        source: io::Error,
    },
}

/// Reads a store. Clones are handles of the same one.
pub struct Reader<D: Directory> {
    shown: Arc<Shown<D>>,
}

impl<D: Directory> Clone for Reader<D> {
    fn clone(&self) -> Self {
        Self { shown: Arc::clone(&self.shown) }
    }
}

impl<D: Directory> Reader<D> {
    pub(super) fn new(shown: Arc<Shown<D>>) -> Self {
        Self { shown }
    }

    /// Number of the next block; the one before it is the last, unless this is [`Reader::first`].
    pub fn next(&self) -> u64 {
        self.shown.next.load(Ordering::Acquire)
    }

    /// Number of the first block that is stored, or will be.
    pub fn first(&self) -> u64 {
        self.shown.first()
    }

    /// Numbers of the last block, if there is one.
    pub fn last(&self) -> Option<u64> {
        let next = self.next();
        (next > self.first()).then(|| next - 1)
    }

    /// Which blocks are stored and whole, in ascending ranges.
    pub fn ranges(&self) -> Vec<RangeInclusive<u64>> {
        let Some(last) = self.last() else { return Vec::new() };
        let mut ranges = Vec::new();
        let mut from = self.first();
        for hole in self.shown.quarantined().iter() {
            if *hole > from {
                ranges.push(from..=*hole - 1);
            }
            from = hole + 1;
        }
        if from <= last {
            ranges.push(from..=last);
        }
        ranges
    }

    /// How many blocks are damaged, as far as is known.
    pub fn quarantined(&self) -> usize {
        self.shown.quarantined().len()
    }

    /// Which blocks are damaged, as far as is known; the first so many of them.
    pub fn quarantined_blocks(&self, count_max: usize) -> Vec<u64> {
        self.shown.quarantined().iter().copied().take(count_max).collect()
    }

    /// Reads a block. It is compared with its checksums; one that is damaged is quarantined.
    pub fn read(&self, number: u64) -> Result<Stored, ReadError> {
        if number < self.first() || number >= self.next() {
            return Err(ReadError::NotStored(number));
        }
        if self.shown.quarantined().contains(&number) {
            return Err(ReadError::Damaged { number, what: "it was found damaged before".into() });
        }
        match self.find(number) {
            // Its segment was removed meanwhile.
            Err(Trouble::Damage(_)) if number < self.first() => Err(ReadError::NotStored(number)),
            Err(Trouble::Damage(what)) => {
                self.shown.quarantined().insert(number);
                Err(ReadError::Damaged { number, what })
            }
            Err(Trouble::Files(source)) => Err(ReadError::Files { number, source }),
            Ok(stored) => Ok(stored),
        }
    }

    /// The file of a block's record, and where in it that begins.
    #[cfg(test)]
    pub(super) fn place(&self, number: u64) -> (String, usize) {
        let entry = index::find(&self.shown.files, number).unwrap().unwrap();
        (scan::name(entry.segment.into()), entry.offset as usize)
    }

    fn find(&self, number: u64) -> Result<Stored, Trouble> {
        let Some(entry) = index::find(&self.shown.files, number)? else {
            return Err(Trouble::Damage("its entry in the index is not there".into()));
        };
        let file = self.shown.files.file(&scan::name(entry.segment.into()))?;
        let mut record = vec![0; entry.record_bytes as usize];
        file.read_at(&mut record, entry.offset.into())?;
        let salt = self.shown.salt.load(Ordering::Relaxed);
        let place = Place { salt, segment: entry.segment.into(), offset: entry.offset.into() };
        let head = Head::decode(place, &record)
            .filter(|head| matches!(head.kind, Kind::Block | Kind::Repaired) && head.number == number);
        let head = head.ok_or_else(|| Trouble::Damage("its head is not valid".into()))?;
        let stored = head.stored(&record).ok_or_else(|| Trouble::Damage("its checksum is wrong".into()))?;
        let encoding = Encoding::of(head.encoding);
        let encoding = encoding.ok_or_else(|| Trouble::Damage(format!("encoding {} is unknown", head.encoding)))?;
        let dictionary =
            |copies: [u32; 2]| copies.into_iter().find_map(|offset| self.dictionary(entry.segment, offset));
        let bytes = unpack(encoding, stored.to_vec(), head.plain_bytes, dictionary)?;
        Ok(Stored { number, bytes, root: head.root })
    }

    /// A copy of a dictionary; `None`: it is damaged.
    fn dictionary(&self, segment: u32, offset: u32) -> Option<SharedDictionary> {
        let lock = || self.shown.dictionaries.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().iter().find(|(place, _)| *place == (segment, offset)).map(|(_, found)| Arc::clone(found));
        if known.is_some() {
            return known;
        }
        let file = self.shown.files.file(&scan::name(segment.into())).ok()?;
        let mut record = vec![0; HEAD_BYTES];
        file.read_at(&mut record, offset.into()).ok()?;
        let salt = self.shown.salt.load(Ordering::Relaxed);
        let place = Place { salt, segment: segment.into(), offset: offset.into() };
        let head = Head::decode(place, &record).filter(|head| head.kind == Kind::Dictionary)?;
        record.resize(head.record_bytes(), 0);
        file.read_at(&mut record, offset.into()).ok()?;
        let dictionary = Arc::new(DecoderDictionary::copy(head.stored(&record)?));
        let mut kept = lock();
        kept.push_back(((segment, offset), Arc::clone(&dictionary)));
        if kept.len() > DICTIONARIES_MAX {
            kept.pop_front();
        }
        Some(dictionary)
    }
}

enum Trouble {
    Damage(String),
    Files(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof => {
                Self::Damage(format!("its file ends before: {error}"))
            }
            _ => Self::Files(error),
        }
    }
}

impl From<UnpackError> for Trouble {
    fn from(error: UnpackError) -> Self {
        Self::Damage(error.to_string())
    }
}
