//! Reads blocks beside the writer: what is shown is safe on disk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use wal::files::{Directory, File};
use zstd::dict::DecoderDictionary;

use super::compress::{SharedDictionary, StoredAs, UnpackError, unpack};
use super::digests::Acknowledged;
use super::format::{DIGEST_FRAME_BYTES, HEAD_BYTES, Head, Kind, Place};
use super::index::Entry;
use super::segments::OpenFiles;
use super::{heads, rows, scan};
use crate::block::{Chain, Digest, Evidence};
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
    /// The last block and its root hash, as far as that is known.
    last: Mutex<Option<(u64, Hash)>>,
    quarantined: Mutex<BTreeSet<u64>>,
    /// Held by whoever writes to the index: the writer, and readers that mend it.
    index: Mutex<()>,
    /// Entries for which the disk had no room. They are found before those that are written.
    unwritten: Mutex<BTreeMap<u64, Entry>>,
    /// Held by the reader that looks for blocks whose entries are damaged.
    pub(super) mending: Mutex<()>,
    /// Dictionaries that were used last, by segment and offset.
    dictionaries: Mutex<VecDeque<((u32, u32), SharedDictionary)>>,
}

impl<D: Directory> Shown<D> {
    pub(super) fn new(files: OpenFiles<D>, first: u64) -> Self {
        let (first, next) = (AtomicU64::new(first), AtomicU64::new(first));
        let (last, quarantined, index, unwritten, mending, dictionaries) = Default::default();
        let salt = AtomicU64::default();
        Self { files, first, next, salt, last, quarantined, index, unwritten, mending, dictionaries }
    }

    pub(super) fn files(&self) -> &OpenFiles<D> {
        &self.files
    }

    pub(super) fn set(&self, first: u64, chain: &Chain, quarantined: Vec<u64>, salt: u64) {
        self.first.store(first, Ordering::Relaxed);
        self.quarantined().extend(quarantined);
        self.advance(chain, salt);
    }

    /// What the index says of a block; `None`: nothing that is valid.
    pub(super) fn entry(&self, number: u64) -> io::Result<Option<Entry>> {
        match self.unwritten().get(&number) {
            Some(entry) => Ok(Some(*entry)),
            None => rows::find(&self.files, number),
        }
    }

    /// Entries that the disk has no room for are kept here, until the next start writes them.
    pub(super) fn keep_unwritten(&self, entries: impl IntoIterator<Item = (u64, Entry)>) {
        self.unwritten().extend(entries);
    }

    fn unwritten(&self) -> MutexGuard<'_, BTreeMap<u64, Entry>> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The index may be written to as long as this is held.
    pub(super) fn index(&self) -> MutexGuard<'_, ()> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of the first block of a segment; see [`heads::first_block`].
    pub(super) fn first_block(&self, segment: u64) -> io::Result<Option<u64>> {
        heads::first_block(&self.files, segment, self.salt())
    }

    pub(super) fn salt(&self) -> u64 {
        self.salt.load(Ordering::Relaxed)
    }

    pub(super) fn next(&self) -> u64 {
        self.next.load(Ordering::Acquire)
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

    pub(super) fn advance(&self, chain: &Chain, salt: u64) {
        self.salt.store(salt, Ordering::Relaxed);
        let last = chain.next().checked_sub(1).zip(chain.previous());
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = last;
        self.next.store(chain.next(), Ordering::Release);
    }

    pub(super) fn quarantined(&self) -> MutexGuard<'_, BTreeSet<u64>> {
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
    /// Which block was acknowledged, byte for byte; `None`: it was stored by a release that kept no digests.
    pub digest: Option<Digest>,
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
        self.shown.next()
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
        // The oldest may go meanwhile: one look at where they begin.
        let (first, next) = (self.first(), self.next());
        let Some(last) = next.checked_sub(1).filter(|last| *last >= first) else { return Vec::new() };
        let mut ranges = Vec::new();
        let mut from = first;
        for hole in self.shown.quarantined().range(first..=last) {
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

    /// Whether a block is known to be damaged.
    pub fn is_quarantined(&self, number: u64) -> bool {
        self.shown.quarantined().contains(&number)
    }

    /// Which blocks are damaged, as far as is known; so many of them, down from this number and then from the last: of several in a row the last
    /// tells which is the one before.
    pub fn quarantined_blocks(&self, from: u64, count_max: usize) -> Vec<u64> {
        let quarantined = self.shown.quarantined();
        let (below, rest) = (quarantined.range(..=from).rev(), quarantined.range(from.saturating_add(1)..).rev());
        let all = below.chain(rest.take_while(|number| **number > from));
        all.copied().take(count_max).collect()
    }

    /// Reads a block. It is compared with its checksums; one that is damaged is quarantined.
    pub fn read(&self, number: u64) -> Result<Stored, ReadError> {
        if number < self.first() || number >= self.next() {
            return Err(ReadError::NotStored(number));
        }
        if self.is_quarantined(number) {
            return Err(ReadError::Damaged { number, what: "it was found damaged before".into() });
        }
        let what = match self.find(number) {
            Ok(stored) => return Ok(stored),
            Err(Trouble::Files(source)) => return Err(ReadError::Files { number, source }),
            Err(Trouble::Damage { what, entry }) if self.quarantine(number, entry) => {
                return Err(ReadError::Damaged { number, what });
            }
            // Its segment was removed meanwhile.
            Err(_) if number < self.first() => return Err(ReadError::NotStored(number)),
            Err(Trouble::Damage { what, .. }) => what,
        };
        // It was repaired meanwhile, and stands elsewhere. Twice within one read is no matter of chance: it is read again when asked for.
        self.find(number).map_err(|trouble| match trouble {
            Trouble::Files(source) => ReadError::Files { number, source },
            Trouble::Damage { .. } => ReadError::Damaged { number, what },
        })
    }

    /// Quarantines a block whose record is damaged that the index named; `false`: it was repaired or removed meanwhile.
    pub(super) fn quarantine(&self, number: u64, entry: Option<Entry>) -> bool {
        // Who repairs a block writes its entry first, and takes it out of quarantine then; who removes blocks tells the first that is left
        // before that.
        let mut quarantined = self.shown.quarantined();
        let is_still = number >= self.first() && self.shown.entry(number).ok().flatten() == entry;
        if is_still {
            quarantined.insert(number);
        }
        is_still
    }

    /// What the index says of a block.
    #[cfg(test)]
    pub(super) fn entry(&self, number: u64) -> Option<Entry> {
        self.shown.entry(number).unwrap()
    }

    /// The root hash that a block was stored with, also of one that is damaged, as far as that is known: of the last one, and where the head
    /// of the record is whole.
    pub fn root(&self, number: u64) -> Option<Hash> {
        if number < self.first() || number >= self.next() {
            return None;
        }
        let last = *self.shown.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, root)) = last.filter(|(last, _)| *last == number) {
            return Some(root);
        }
        self.whole_head(number).map(|head| head.root)
    }

    /// What was known of the signature of a block when it was stored, and how long it is, bytes; also of one that is damaged, as far as the head
    /// of its record is whole.
    pub fn stored_as(&self, number: u64) -> Option<(Evidence, usize)> {
        let head = self.whole_head(number)?;
        Some((Evidence::stored(head.evidence)?, head.plain_bytes as usize))
    }

    /// Which block was acknowledged, byte for byte, also where it is damaged: the digest stands in its record, behind the block, and in a second file.
    /// `None`: it was stored by a release that kept no digests, or both are damaged.
    pub fn digest(&self, number: u64) -> Option<Digest> {
        match self.record(number) {
            Some((_, head)) if !head.has_digest => None,
            Some((entry, head)) => self.digest_of(entry, &head).or_else(|| self.acknowledged(number)),
            None => self.acknowledged(number),
        }
    }

    /// The digest in a block's record.
    fn digest_of(&self, entry: Entry, head: &Head) -> Option<Digest> {
        let mut frame = [0; DIGEST_FRAME_BYTES];
        let place = u64::from(entry.offset) + head.digest_place()?.start as u64;
        let file = self.shown.files.file(&scan::name(entry.segment.into())).ok()?;
        file.read_at(&mut frame, place).ok()?;
        self.place_in(entry).digest(&frame)
    }

    /// Writes digests of blocks that were just read into the second file, as far as it has lost them; how many.
    pub fn restore_digests(&self, read: &[(u64, Digest)]) -> io::Result<usize> {
        let is_lost = |(number, _): &&(u64, Digest)| *number >= self.first() && self.acknowledged(*number).is_none();
        let lost: Vec<_> =
            read.iter().filter(is_lost).map(|(number, digest)| (*number, Acknowledged(*digest))).collect();
        if !lost.is_empty() {
            self.shown.mend_digests(&lost)?;
        }
        Ok(lost.len())
    }

    /// The digest in the second file.
    pub(super) fn acknowledged(&self, number: u64) -> Option<Digest> {
        let stored = number >= self.first() && number < self.next();
        let found = rows::find(&self.shown.files, number).ok().flatten().filter(|_| stored);
        found.map(|Acknowledged(digest)| digest)
    }

    /// The head of a block's record, if it is whole.
    fn whole_head(&self, number: u64) -> Option<Head> {
        self.record(number).map(|(_, head)| head)
    }

    /// Where a block's record stands, and its head, if it is whole.
    fn record(&self, number: u64) -> Option<(Entry, Head)> {
        let entry = self.shown.entry(number).ok().flatten()?;
        let mut record = [0; HEAD_BYTES];
        let file = self.shown.files.file(&scan::name(entry.segment.into())).ok()?;
        file.read_at(&mut record, entry.offset.into()).ok()?;
        Some((entry, self.head(number, entry, &record)?))
    }

    /// What the checksums of a record know of it.
    fn place_in(&self, entry: Entry) -> Place {
        Place { salt: self.shown.salt(), segment: entry.segment.into(), offset: entry.offset.into() }
    }

    /// The head of a block's record, of these bytes, if it is whole.
    fn head(&self, number: u64, entry: Entry, record: &[u8]) -> Option<Head> {
        Head::decode(self.place_in(entry), record)
            .filter(|head| matches!(head.kind, Kind::Block | Kind::Repaired) && head.number == number)
    }

    /// About how much room a block takes on disk, bytes; 0 where that is not known.
    pub fn record_bytes(&self, number: u64) -> u64 {
        let entry = self.shown.entry(number).ok().flatten();
        entry.map_or(0, |entry| entry.record_bytes.into())
    }

    /// How long a block is, bytes, by the head of its record; 0 where that cannot be read.
    pub fn plain_bytes(&self, number: u64) -> usize {
        self.whole_head(number).map_or(0, |head| head.plain_bytes as usize)
    }

    /// The file of a block's record, and where in it that begins.
    #[cfg(test)]
    pub(crate) fn place(&self, number: u64) -> (String, usize) {
        let entry = self.entry(number).unwrap();
        (scan::name(entry.segment.into()), entry.offset as usize)
    }

    fn find(&self, number: u64) -> Result<Stored, Trouble> {
        let entry = match self.shown.entry(number) {
            Ok(Some(entry)) => entry,
            Ok(None) => match self.shown.mend(number) {
                Ok(Some(entry)) => entry,
                Ok(None) => {
                    let what = "neither its entry in the index nor its record is there".into();
                    return Err(Trouble::Damage { what, entry: None });
                }
                Err(error) => return Err(Wrong::from(error).at(None)),
            },
            Err(error) => return Err(Wrong::from(error).at(None)),
        };
        self.at(number, entry).map_err(|wrong| wrong.at(Some(entry)))
    }

    /// The block whose record stands there.
    fn at(&self, number: u64, entry: Entry) -> Result<Stored, Wrong> {
        let file = self.shown.files.file(&scan::name(entry.segment.into()))?;
        let mut record = vec![0; entry.record_bytes as usize];
        file.read_at(&mut record, entry.offset.into())?;
        let head = self.head(number, entry, &record);
        let head = head.ok_or_else(|| Wrong::Damage("its head is not valid".into()))?;
        let stored = head.stored(&record).ok_or_else(|| Wrong::Damage("its checksum is wrong".into()))?;
        let digest = head.digest(self.place_in(entry), &record);
        // What was stored without one has none to be parted from.
        let stored = match head.digest_place() {
            Some(place) => &stored[..place.start - HEAD_BYTES],
            None => stored,
        };
        let encoding = StoredAs::of(head.encoding);
        let encoding = encoding.ok_or_else(|| Wrong::Damage(format!("encoding {} is unknown", head.encoding)))?;
        // A copy that cannot be read for now is not damaged.
        let mut unread = None;
        let dictionary = |copies: [u32; 2]| {
            copies.into_iter().find_map(|offset| match self.dictionary(entry.segment, offset) {
                Ok(dictionary) => Some(dictionary),
                Err(Wrong::Damage(_)) => None,
                Err(Wrong::Files(error)) => {
                    unread = Some(error);
                    None
                }
            })
        };
        let unpacked = unpack(encoding, stored, head.plain_bytes, dictionary);
        let bytes = unpacked.map_err(|error| unread.map_or_else(|| error.into(), Wrong::Files))?;
        Ok(Stored { number, bytes, root: head.root, digest })
    }

    /// A copy of a dictionary.
    fn dictionary(&self, segment: u32, offset: u32) -> Result<SharedDictionary, Wrong> {
        let damaged = || Wrong::Damage("a copy of its dictionary is damaged".into());
        let lock = || self.shown.dictionaries.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().iter().find(|(place, _)| *place == (segment, offset)).map(|(_, found)| Arc::clone(found));
        if let Some(known) = known {
            return Ok(known);
        }
        let file = self.shown.files.file(&scan::name(segment.into()))?;
        let mut record = vec![0; HEAD_BYTES];
        file.read_at(&mut record, offset.into())?;
        let salt = self.shown.salt();
        let place = Place { salt, segment: segment.into(), offset: offset.into() };
        let head = Head::decode(place, &record).filter(|head| head.kind == Kind::Dictionary).ok_or_else(damaged)?;
        record.resize(head.record_bytes(), 0);
        file.read_at(&mut record, offset.into())?;
        let dictionary = Arc::new(DecoderDictionary::copy(head.stored(&record).ok_or_else(damaged)?));
        let mut kept = lock();
        kept.push_back(((segment, offset), Arc::clone(&dictionary)));
        if kept.len() > DICTIONARIES_MAX {
            kept.pop_front();
        }
        Ok(dictionary)
    }
}

/// Why a block was not found, by what the index said.
enum Trouble {
    Damage { what: String, entry: Option<Entry> },
    Files(io::Error),
}

/// What is wrong with a record.
enum Wrong {
    Damage(String),
    Files(io::Error),
}

impl Wrong {
    fn at(self, entry: Option<Entry>) -> Trouble {
        match self {
            Self::Damage(what) => Trouble::Damage { what, entry },
            Self::Files(error) => Trouble::Files(error),
        }
    }
}

impl From<io::Error> for Wrong {
    fn from(error: io::Error) -> Self {
        // What the disk, or the file system with checksums of its own, says of these bytes. Anything else is of the process or passes.
        const OF_THE_DISK: [Errno; 3] = [Errno::IO, Errno::BADMSG, Errno::UCLEAN];
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof => {
                Self::Damage(format!("its file ends before: {error}"))
            }
            _ if OF_THE_DISK.iter().any(|of_disk| error.raw_os_error() == Some(of_disk.raw_os_error())) => {
                Self::Damage(format!("it cannot be read: {error}"))
            }
            _ => Self::Files(error),
        }
    }
}

impl From<UnpackError> for Wrong {
    fn from(error: UnpackError) -> Self {
        Self::Damage(error.to_string())
    }
}
