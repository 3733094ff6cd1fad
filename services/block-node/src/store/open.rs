//! Opens a store, and appends to it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use wal::files::{Directory, File};

use super::compress::Prepared;
use super::dictionary::Dictionary;
use super::format::{Head, Kind, Place, record_bytes};
use super::index::{Entry, IndexWriter};
use super::reader::{Reader, Shown};
use super::retention::Retention;
use super::scan::{self, Record, Scan, SegmentHead};
use super::segments::{self, OpenFiles};
use super::{AppendError, OpenError, Options, failed, index};
use crate::block::Chain;
use crate::hash::Hash;

/// Offsets in the index have 32 bits.
const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// The segment that is written to.
struct Current<F> {
    number: u64,
    file: F,
    end: u64,
    /// By the beginning of its hash, where each copy of a dictionary begins.
    dictionaries: BTreeMap<u64, [u32; 2]>,
}

impl<F> Current<F> {
    /// Where the copies of a dictionary begin; they are appended to the batch where there are none.
    fn copies(&mut self, dictionary: &Dictionary, salt: u64, batch: u64, bytes: &mut Vec<u8>) -> [u32; 2] {
        if let Some(copies) = self.dictionaries.get(&dictionary.id()) {
            return *copies;
        }
        let head = dictionary_head(dictionary, batch);
        let copies = [(); 2].map(|()| {
            let offset = batch + bytes.len() as u64;
            head.encode(Place { salt, segment: self.number, offset }, dictionary.bytes(), bytes);
            offset as u32
        });
        self.dictionaries.insert(dictionary.id(), copies);
        copies
    }
}

/// A store that is open, for its only writer.
pub struct Store<D: Directory> {
    directory: D,
    options: Options,
    /// None until something is written to a new store.
    current: Option<Current<D::File>>,
    index: IndexWriter<D>,
    salt: u64,
    /// What the next block continues.
    chain: Chain,
    shown: Arc<Shown<D>>,
    retention: Retention,
    /// The last one that blocks of the last segment were compressed with.
    dictionary: Option<Arc<Dictionary>>,
    failed: Option<AppendError>,
    syncs: u64,
}

impl<D: Directory> Store<D> {
    /// Opens the store in this directory, which may be empty.
    pub fn open(directory: D, options: Options) -> Result<Self, OpenError> {
        let names = directory.names().map_err(failed("list the directory"))?;
        let mut segments: Vec<u64> = names.iter().filter_map(|name| scan::number(name)).collect();
        segments.sort_unstable();
        let files = OpenFiles::new(directory.clone());
        let chain = Chain::from(options.first_block);
        let shown = Arc::new(Shown::new(files, options.first_block));
        let mut store = Self {
            index: IndexWriter::new(directory.clone()),
            options: Options { segment_bytes: options.segment_bytes.min(SEGMENT_BYTES_MAX), ..options },
            directory,
            current: None,
            salt: options.salt,
            chain,
            shown,
            retention: Retention::new(options.keep_blocks),
            dictionary: None,
            failed: None,
            syncs: 0,
        };
        while let Some(last) = segments.pop() {
            if store.take_up(last, &segments)? {
                store.retention.found(segments.into_iter().chain([last]));
                break;
            }
        }
        Ok(store)
    }

    /// Goes on with the last segment; `false`: nothing was ever safe in it, and it is removed.
    fn take_up(&mut self, number: u64, earlier: &[u64]) -> Result<bool, OpenError> {
        let name = scan::name(number);
        let file = self.directory.open(&name).map_err(failed(format!("open {name}")))?;
        let bytes = file.read().map_err(failed(format!("read {name}")))?;
        let Some(scan) = scan::scan(number, &bytes, false) else {
            if let Some(offset) = later_batch(&bytes) {
                let what = format!("the segment's head is not valid, but a later record, at byte {offset}, is there");
                return Err(OpenError::Damaged { file: name, offset: 0, what });
            }
            self.directory.remove(&name).map_err(failed(format!("remove {name}")))?;
            self.directory.sync().map_err(failed("sync the directory"))?;
            return Ok(false);
        };
        secure(&file, &bytes, &scan).map_err(failed(format!("write {name}")))?;
        // Whoever created it may have been killed before its name was safe.
        self.directory.sync().map_err(failed("sync the directory"))?;
        let first = self.first_block(number, earlier, &scan)?;
        if earlier.last().is_some() && self.is_index_lost(&scan)? {
            self.rebuild_index(earlier)?;
        }
        self.adopt(number, &scan, first)?;
        let mut dictionaries = BTreeMap::new();
        for Record { offset, head } in &scan.dictionaries {
            // Of a copy that is damaged the other one stands in for both.
            let copies = dictionaries.entry(head.number).or_insert([*offset as u32; 2]);
            copies[1] = *offset as u32;
        }
        let last = scan.dictionaries.last();
        let last = last.and_then(|record| record.head.stored(bytes.get(record.offset as usize..)?));
        self.dictionary =
            last.map(|content| Arc::new(Dictionary::new(content.to_vec(), self.options.compression_level)));
        self.current = Some(Current { number, file, end: scan.end, dictionaries });
        Ok(true)
    }

    /// Number of the first block of all, from the head of the first segment.
    fn first_block(&self, number: u64, earlier: &[u64], scan: &Scan) -> Result<u64, OpenError> {
        let Some(first) = earlier.first().filter(|first| **first != number) else { return Ok(scan.head.chain.next()) };
        let name = scan::name(*first);
        match segments::first_block(&self.directory, *first).map_err(failed(format!("read {name}")))? {
            Some(number) => Ok(number),
            None => Err(OpenError::Damaged { file: name, offset: 0, what: "the segment has no head".into() }),
        }
    }

    /// Shows the blocks of the last segment, and writes their places into the index once more.
    fn adopt(&mut self, number: u64, scan: &Scan, first: u64) -> Result<(), OpenError> {
        self.salt = scan.head.salt;
        self.chain = scan.head.chain.clone();
        let mut quarantined = Vec::new();
        let repaired: BTreeMap<u64, Hash> =
            scan.repaired.iter().map(|record| (record.head.number, record.head.root)).collect();
        for record in &scan.blocks {
            let head = &record.head;
            if head.number < self.chain.next() {
                let what = format!("block {} stands behind block {}", head.number, self.chain.next() - 1);
                return Err(OpenError::Damaged { file: scan::name(number), offset: record.offset, what });
            }
            self.pass_damaged(head.number, &repaired, &mut quarantined);
            self.chain.extend(head.root);
        }
        // The last blocks may be there as repaired ones alone; only one that was there before is repaired.
        if let Some(last) = repaired.last_key_value().map(|(last, _)| *last) {
            self.pass_damaged(last + 1, &repaired, &mut quarantined);
        }
        self.write_index(number, scan).map_err(failed("write the index"))?;
        self.shown.set(first, self.chain.next(), quarantined, scan.head.salt);
        Ok(())
    }

    /// Goes on to this block, over those before it that are not whole where they stood first.
    fn pass_damaged(&mut self, end: u64, repaired: &BTreeMap<u64, Hash>, quarantined: &mut Vec<u64>) {
        for missing in self.chain.next()..end {
            match repaired.get(&missing) {
                Some(root) => self.chain.extend(*root),
                // Of a damaged block the root is not known, and so not the tree of all roots either.
                None => {
                    quarantined.push(missing);
                    self.chain = Chain::unknown(missing + 1);
                }
            }
        }
    }

    /// Whether the index of the segments before the last one is not there.
    fn is_index_lost(&self, scan: &Scan) -> Result<bool, OpenError> {
        let Some(last_before) = scan.head.chain.next().checked_sub(1) else { return Ok(false) };
        let found = index::find(self.shown.files(), last_before).map_err(failed("read the index"))?;
        Ok(found.is_none())
    }

    fn rebuild_index(&mut self, segments: &[u64]) -> Result<(), OpenError> {
        for number in segments {
            let name = scan::name(*number);
            let file = self.directory.open(&name).map_err(failed(format!("open {name}")))?;
            let bytes = file.read().map_err(failed(format!("read {name}")))?;
            let Some(scan) = scan::scan(*number, &bytes, true) else {
                return Err(OpenError::Damaged { file: name, offset: 0, what: "the segment has no head".into() });
            };
            self.write_index(*number, &scan).map_err(failed("write the index"))?;
        }
        self.index.sync().map_err(failed("sync the index"))
    }

    /// Writes the entries of a segment's blocks, each row of consecutive numbers at once: a segment may have hundreds of thousands. Then
    /// come those that were repaired. Of two records of a block the later one counts.
    fn write_index(&mut self, segment: u64, scan: &Scan) -> io::Result<()> {
        for row in scan.blocks.chunk_by(|one, next| one.head.number.checked_add(1) == Some(next.head.number)) {
            let Some(first) = row.first() else { continue };
            let entries: Vec<Entry> = row.iter().map(|record| entry(segment, record.offset, &record.head)).collect();
            self.index.write(first.head.number, &entries)?;
        }
        let is_last = |record: &&Record| {
            let first = scan.blocks.binary_search_by_key(&record.head.number, |block| block.head.number);
            first.ok().and_then(|at| scan.blocks.get(at)).is_none_or(|first| first.offset < record.offset)
        };
        scan.repaired.iter().filter(is_last).try_for_each(|record| {
            let entry = entry(segment, record.offset, &record.head);
            self.index.write(record.head.number, &[entry])
        })
    }

    /// The first block of all is this one, as long as there is none.
    pub fn begin_at(&mut self, first: u64) {
        if self.current.is_none() {
            self.chain = Chain::from(first);
            // In this order no reader believes that there is a block.
            self.shown.begin_at(first);
            self.shown.advance(first, self.salt);
        }
    }

    /// What the next block continues.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// What the newest blocks that it found were compressed with.
    pub fn dictionary(&self) -> Option<Arc<Dictionary>> {
        self.dictionary.clone()
    }

    /// How hard zstd tries, as it was opened.
    pub fn compression_level(&self) -> i32 {
        self.options.compression_level
    }

    /// Reads what is safe, beside the writer.
    pub fn reader(&self) -> Reader<D> {
        Reader::new(Arc::clone(&self.shown))
    }

    /// Syncs of blocks since it was opened.
    pub fn syncs(&self) -> u64 {
        self.syncs
    }

    /// Appends the next blocks as one batch. When this returns `Ok`, all of them are there for good and shown to readers. When it
    /// fails, none is, and nothing more can be appended until the store is opened again.
    pub fn append(&mut self, blocks: &[Prepared]) -> Result<(), AppendError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let Some(first) = blocks.first() else { return Ok(()) };
        debug_assert_eq!(first.number, self.chain.next());
        let written = self.write(blocks, Kind::Block);
        self.remember(written)?;
        blocks.iter().for_each(|block| self.chain.extend(block.root));
        self.shown.advance(self.chain.next(), self.salt);
        Ok(())
    }

    /// Writes an earlier block once more, which was damaged. When this returns `Ok`, it is there for good, and served from here; or it
    /// is none of those any more that are kept. The caller has compared it with those beside it. Errors are those of [`Store::append`].
    pub fn repair(&mut self, block: &Prepared) -> Result<(), AppendError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        debug_assert!(block.number < self.chain.next());
        // It went meanwhile, with the oldest ones.
        if block.number < self.shown.first() {
            return Ok(());
        }
        let written = self.write(std::slice::from_ref(block), Kind::Repaired);
        self.remember(written)?;
        self.shown.repaired(block.number);
        Ok(())
    }

    /// As if the last block had not been written.
    #[cfg(test)]
    pub(super) fn forget_last(&mut self) {
        self.chain = Chain::unknown(self.chain.next() - 1);
    }

    fn remember(&mut self, written: Result<(), (&'static str, io::Error)>) -> Result<(), AppendError> {
        written.map_err(|(what, source)| {
            let error = AppendError { what, source: Arc::new(source) };
            self.failed = Some(error.clone());
            error
        })
    }

    /// One batch of blocks of consecutive numbers.
    fn write(&mut self, blocks: &[Prepared], kind: Kind) -> Result<(), (&'static str, io::Error)> {
        let Some(first) = blocks.first() else { return Ok(()) };
        let is_new = self.current.as_ref().is_none_or(|current| current.end >= self.options.segment_bytes);
        // Without dictionaries and a head, which come seldom.
        let bytes_about = blocks.iter().map(|block| record_bytes(block.stored.len() + 8)).sum();
        let mut bytes = Vec::with_capacity(bytes_about);
        if is_new {
            self.begin_segment(&mut bytes)?;
        }
        let Some(current) = &mut self.current else {
            return Err(("finding a segment", io::ErrorKind::NotFound.into()));
        };
        let batch = current.end;
        let mut entries = Vec::with_capacity(blocks.len());
        for block in blocks {
            let stored = match &block.dictionary {
                None => Cow::Borrowed(&block.stored),
                Some(dictionary) => {
                    let copies = current.copies(dictionary, self.salt, batch, &mut bytes);
                    Cow::Owned([&copies[0].to_le_bytes()[..], &copies[1].to_le_bytes(), &block.stored].concat())
                }
            };
            let offset = batch + bytes.len() as u64;
            let head = head(block, kind, batch, &stored);
            let place = Place { salt: self.salt, segment: current.number, offset };
            head.encode(place, &stored, &mut bytes);
            entries.push(entry(current.number, offset, &head));
        }
        current.file.write_at(&bytes, batch).map_err(|error| ("a write of blocks", error))?;
        current.file.sync_data().map_err(|error| ("a sync of blocks", error))?;
        self.syncs += 1;
        if is_new {
            self.directory.sync().map_err(|error| ("a sync of names", error))?;
        }
        current.end = batch + bytes.len() as u64;
        self.index.write(first.number, &entries).map_err(|error| ("a write of the index", error))
    }

    /// Removes the oldest segments whose blocks need not be kept; how many. An error is none of appending: nothing that must stay is
    /// touched, and the next call tries again.
    pub fn remove_old(&mut self) -> io::Result<usize> {
        self.retention.apply(&self.directory, &self.shown, self.chain.next())
    }

    /// Creates the next segment; its head goes into the first batch.
    fn begin_segment(&mut self, bytes: &mut Vec<u8>) -> Result<(), (&'static str, io::Error)> {
        // What the next start will not write again must be safe by then.
        self.index.sync().map_err(|error| ("a sync of the index", error))?;
        self.directory.sync().map_err(|error| ("a sync of names", error))?;
        let number = self.current.as_ref().map_or(1, |current| current.number + 1);
        let name = scan::name(number);
        let file = self.directory.create_zeroed(&name, 0).map_err(|error| ("the creation of a segment", error))?;
        SegmentHead { salt: self.salt, chain: self.chain.clone() }.encode(number, bytes);
        self.current = Some(Current { number, file, end: 0, dictionaries: BTreeMap::new() });
        self.retention.begun(number);
        Ok(())
    }
}

fn dictionary_head(dictionary: &Dictionary, batch: u64) -> Head {
    let bytes = dictionary.bytes().len() as u32;
    Head {
        kind: Kind::Dictionary,
        encoding: 0,
        evidence: 0,
        batch,
        number: dictionary.id(),
        stored_bytes: bytes,
        plain_bytes: bytes,
        root: [0; 48],
        stored_checksum: crc32c::crc32c(dictionary.bytes()),
    }
}

fn head(block: &Prepared, kind: Kind, batch: u64, stored: &[u8]) -> Head {
    Head {
        kind,
        encoding: block.encoding as u8,
        evidence: block.evidence as u8,
        batch,
        number: block.number,
        stored_bytes: stored.len() as u32,
        plain_bytes: block.plain_bytes,
        root: block.root,
        stored_checksum: crc32c::crc32c(stored),
    }
}

fn entry(segment: u64, offset: u64, head: &Head) -> Entry {
    Entry { segment: segment as u32, offset: offset as u32, record_bytes: head.record_bytes() as u32 }
}

/// Makes the end of the segment what it was found to be: the last batch may be in the page cache only, and was shown.
fn secure(file: &impl File, bytes: &[u8], scan: &Scan) -> io::Result<()> {
    let mut again = bytes.get(scan.batch as usize..).unwrap_or_default().to_vec();
    again[(scan.end - scan.batch) as usize..].fill(0);
    file.write_at(&again, scan.batch)?;
    file.sync_data()
}

/// Whether a segment without a valid head holds a record that was written when the head was already safe. Its checksum cannot be
/// computed without the head; that it says so of itself must do.
fn later_batch(bytes: &[u8]) -> Option<usize> {
    (0..bytes.len()).step_by(super::format::ALIGNMENT).skip(1).find(|offset| {
        let record = &bytes[*offset..];
        let batch =
            record.get(16..24).and_then(|batch| batch.first_chunk::<8>()).map(|batch| u64::from_le_bytes(*batch));
        super::format::has_magic(record) && batch.is_some_and(|batch| batch > 0 && batch <= *offset as u64)
    })
}
