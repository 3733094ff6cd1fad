//! Opens a store, and appends to it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use wal::files::{Directory, File};

use super::compress::Prepared;
use super::dictionary::Dictionary;
use super::digests::Acknowledged;
use super::format::{DIGEST_FRAME_BYTES, Head, Kind, Place, checksum, record_bytes};
use super::index::Entry;
use super::reader::{Reader, Shown};
use super::replay::{Replayed, replay};
use super::retention::Retention;
use super::rows::{self, RowWriter};
use super::scan::{self, Record, Scan, SegmentHead};
use super::segments::OpenFiles;
use super::{AppendError, OpenError, Options, failed, heads, is_full};
use crate::block::Chain;

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
            head.encode(Place { salt, segment: self.number, offset }, &[dictionary.bytes()], bytes);
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
    index: RowWriter<D, Entry>,
    digests: RowWriter<D, Acknowledged>,
    salt: u64,
    /// What the next block continues.
    chain: Chain,
    shown: Arc<Shown<D>>,
    retention: Retention,
    /// The last one that blocks of the last segment were compressed with.
    dictionary: Option<Arc<Dictionary>>,
    failed: Option<AppendError>,
    /// The head of the next segment, if the copy of it is safe.
    prepared: Vec<u8>,
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
            index: RowWriter::new(directory.clone()),
            digests: RowWriter::new(directory.clone()),
            options: Options { segment_bytes: options.segment_bytes.min(SEGMENT_BYTES_MAX), ..options },
            directory,
            current: None,
            salt: options.salt,
            chain,
            shown,
            retention: Retention::new(options.keep_blocks),
            dictionary: None,
            failed: None,
            prepared: Vec::new(),
            syncs: 0,
        };
        while let Some(last) = segments.pop() {
            if store.take_up(last, &segments)? {
                store.retention.found(segments.into_iter().chain([last]));
                return Ok(store);
            }
        }
        match rows::all::<Entry, _>(&store.directory).map_err(failed("read the index"))?.first() {
            Some((block, _)) => {
                let what = format!("it names block {block}, but no segment is there");
                Err(OpenError::Damaged { file: rows::name::<Entry>(*block), offset: 0, what })
            }
            None => Ok(store),
        }
    }

    /// Goes on with the last segment; `false`: nothing was ever safe in it, and it is removed.
    fn take_up(&mut self, number: u64, earlier: &[u64]) -> Result<bool, OpenError> {
        let name = scan::name(number);
        let file = self.directory.open(&name).map_err(failed(format!("open {name}")))?;
        let bytes = file.read().map_err(failed(format!("read {name}")))?;
        let Some(head) = self.head(number, earlier, &bytes)? else {
            self.refuse_if_safe(number, &bytes)?;
            return self.remove(number, &bytes).map(|()| false);
        };
        let begin = head.chain.next();
        let entries = rows::from::<Entry, _>(&self.directory, begin).map_err(failed("read the index"))?;
        let digests_end = rows::end::<Acknowledged, _>(&self.directory, begin).map_err(failed("read the digests"))?;
        let of_segment = entries.iter().filter(|(_, entry)| u64::from(entry.segment) == number);
        let safe_end = of_segment.map(|(_, entry)| entry.end()).max().unwrap_or(0);
        let scan = scan::scan(number, head, &bytes, safe_end);
        if scan.end == 0 {
            return self.remove(number, &bytes).map(|()| false);
        }
        if let Err(error) = self.secure(number, &file, &bytes, &scan) {
            self.goes_on_full("setting aside what was cut off", error).map_err(failed(format!("write {name}")))?;
        }
        self.salt = scan.head.salt;
        let first = self.first_block(earlier).map_err(failed("read heads of segments"))?;
        // A block that is known to one of them was acknowledged.
        let end = entries.last().map_or(0, |(last, _)| last + 1).max(digests_end);
        self.adopt(number, &scan, first, end)?;
        let mut dictionaries = BTreeMap::new();
        for Record { offset, head, .. } in &scan.dictionaries {
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

    /// The head of the last segment: its own, its copy, or what the segment before tells; `None`: it is lost.
    fn head(&self, number: u64, earlier: &[u64], bytes: &[u8]) -> Result<Option<SegmentHead>, OpenError> {
        if let Some((head, _)) = SegmentHead::decode(number, bytes) {
            return Ok(Some(head));
        }
        let reading = "read heads of segments";
        if let Some(head) = heads::copy(&self.directory, number).map_err(failed(reading))? {
            return Ok(Some(head));
        }
        for before in earlier.iter().rev() {
            let Some(head) = heads::find(&self.directory, *before).map_err(failed(reading))? else { continue };
            let salt = head.salt;
            if earlier.last() != Some(before) {
                let first = scan::first_block(number, salt, bytes);
                return Ok(first.map(|first| SegmentHead { salt, chain: Chain::unknown(first) }));
            }
            let name = scan::name(*before);
            let bytes = self.directory.open(&name).and_then(|file| file.read());
            let scan = scan::scan(*before, head, &bytes.map_err(failed(format!("read {name}")))?, u64::MAX);
            let chain = replay(&scan, 0, None).map_err(|record| out_of_order(*before, record))?.chain;
            return Ok(Some(SegmentHead { salt, chain }));
        }
        Ok(None)
    }

    /// An error where a segment whose head is lost was safe.
    fn refuse_if_safe(&self, number: u64, bytes: &[u8]) -> Result<(), OpenError> {
        let entries = rows::all::<Entry, _>(&self.directory).map_err(failed("read the index"))?;
        let indexed = entries.iter().find(|(_, entry)| u64::from(entry.segment) == number);
        match later_batch(bytes).or(indexed.map(|(_, entry)| entry.offset as usize)) {
            Some(offset) => {
                let what =
                    format!("neither head nor copy of it is valid, but a record that was safe, at byte {offset}");
                Err(OpenError::Damaged { file: scan::name(number), offset: 0, what })
            }
            None => Ok(()),
        }
    }

    /// Removes a segment in which nothing was safe, as far as can be told. What looks like records is kept aside.
    fn remove(&mut self, number: u64, bytes: &[u8]) -> Result<(), OpenError> {
        let name = scan::name(number);
        let remove = || {
            if records(bytes).next().is_some() {
                let aside = heads::set_aside(&self.directory, number, bytes)?;
                tracing::warn!(
                    segment = name,
                    aside,
                    "a segment's first write was cut off; what is there of it is kept aside"
                );
            }
            self.directory.remove(&name)?;
            heads::remove(&self.directory, number)?;
            self.directory.sync()
        };
        remove()
            .or_else(|error| self.goes_on_full("setting aside what was cut off", error))
            .map_err(failed(format!("remove {name}")))
    }

    /// Where only room is missing, what is stored is served, and nothing taken; other errors are returned.
    fn goes_on_full(&mut self, what: &'static str, error: io::Error) -> io::Result<()> {
        if !is_full(&error) {
            return Err(error);
        }
        let failed = AppendError { what, source: Arc::new(error) };
        tracing::error!("{failed}");
        self.failed.get_or_insert(failed);
        Ok(())
    }

    /// Why nothing can be appended, if that is so.
    pub fn failed(&self) -> Option<&AppendError> {
        self.failed.as_ref()
    }

    /// Makes the end of the segment what it was found to be: the last batch may be in the page cache only, and was shown. Its head and
    /// the copy of that are both whole then.
    fn secure(&self, number: u64, file: &D::File, bytes: &[u8], scan: &Scan) -> io::Result<()> {
        let (batch, end) = (scan.batch as usize, scan.end as usize);
        let segment = scan::name(number);
        let mut full = None;
        if scan.cut_off > 0 {
            match heads::set_aside(&self.directory, number, bytes.get(end..).unwrap_or_default()) {
                Ok(aside) => {
                    let blocks = scan.cut_off;
                    tracing::warn!(segment, aside, blocks, "a write was cut off; blocks behind the cut are kept aside");
                }
                // They stay where they are.
                Err(error) if is_full(&error) => full = Some(error),
                Err(error) => return Err(error),
            }
        }
        let mut head = Vec::new();
        scan.head.encode(number, &mut head);
        if SegmentHead::decode(number, bytes).is_none() {
            tracing::error!(segment, "the segment's head is damaged; what it said is known from elsewhere");
            // A head that knows less than the one before has another length, and is in its copy alone.
            if scan.first() == Some(head.len() as u64) {
                file.write_at(&head, 0)?;
            }
        }
        if heads::copy(&self.directory, number)?.as_ref() != Some(&scan.head) {
            // On a full disk what is stored is served all the same.
            if let Err(error) = heads::write(&self.directory, number, &head) {
                tracing::warn!(segment, %error, "no copy of the segment's head is written; the next start tries again");
            }
        }
        let mut again = bytes.get(batch..).unwrap_or_default().to_vec();
        again.resize(again.len().max(end - batch), 0);
        match full {
            Some(_) => again.truncate(end - batch),
            None => again[end - batch..].fill(0),
        }
        if batch == 0 && scan.first() == Some(head.len() as u64) {
            again[..head.len()].copy_from_slice(&head);
        }
        file.write_at(&again, scan.batch)?;
        file.sync_data()?;
        // Whoever created it may have been killed before its name was safe.
        self.directory.sync()?;
        full.map_or(Ok(()), Err)
    }

    /// Number of the first block of all, where the first of these segments tells it.
    fn first_block(&self, earlier: &[u64]) -> io::Result<Option<u64>> {
        let mut firsts = earlier.iter().map(|first| heads::first_block(self.shown.files(), *first, self.salt));
        firsts.find_map(Result::transpose).transpose()
    }

    /// Shows the blocks of the last segment, and writes their places into the index once more. The index knows of blocks before `end`.
    fn adopt(&mut self, number: u64, scan: &Scan, first: Option<u64>, end: u64) -> Result<(), OpenError> {
        // What it continued when it was closed last, if that was in order.
        let closed = heads::copy(&self.directory, number + 1).map_err(failed("read heads of segments"))?;
        let closed = closed.filter(|head| head.salt == scan.head.salt).map(|head| head.chain);
        let replayed = replay(scan, end, closed.as_ref()).map_err(|record| out_of_order(number, record))?;
        let Replayed { chain, quarantined } = replayed;
        if let (Some(block), blocks) = (quarantined.first(), quarantined.len()) {
            tracing::error!(blocks, first = block, "blocks are damaged; they are quarantined, and all others served");
        }
        // An entry would say that all of its batch was safe, also what could not be set aside.
        let written = if self.failed.is_none() { self.write_index(number, scan) } else { Ok(()) };
        if let Err(error) = written {
            self.goes_on_full("a write of the index", error).map_err(failed("write the index"))?;
        }
        if self.failed.is_some() {
            let (rows, repaired) = scan.indexed();
            let entry = |record: &Record| (record.head.number, entry(number, record.offset, &record.head));
            self.shown.keep_unwritten(rows.into_iter().chain(repaired).map(entry));
        }
        let first = first.unwrap_or_else(|| scan.head.chain.next());
        self.shown.set(first, &chain, quarantined, scan.head.salt);
        self.chain = chain;
        Ok(())
    }

    /// Writes the entries of a segment's blocks, and their digests as far as they are known. Then come those that were repaired.
    fn write_index(&mut self, segment: u64, scan: &Scan) -> io::Result<()> {
        let (blocks, repaired) = scan.indexed();
        let records: Vec<&Record> = blocks.into_iter().chain(repaired).collect();
        let entry = |record: &&Record| (record.head.number, entry(segment, record.offset, &record.head));
        self.index.write_all(&records.iter().map(entry).collect::<Vec<_>>())?;
        let digest = |record: &&Record| Some((record.head.number, Acknowledged(record.digest?)));
        self.digests.write_all(&records.iter().filter_map(digest).collect::<Vec<_>>())
    }

    /// The first block of all is this one, as long as there is none.
    pub fn begin_at(&mut self, first: u64) {
        if self.current.is_none() {
            self.chain = Chain::from(first);
            // In this order no reader believes that there is a block.
            if first < self.shown.first() {
                self.shown.advance(&self.chain, self.salt);
                self.shown.begin_at(first);
            } else {
                self.shown.begin_at(first);
                self.shown.advance(&self.chain, self.salt);
            }
        }
    }

    /// What the next block continues.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Whether the root hash of the last block is known, if there is one. Without it nothing can be compared with what is there.
    pub fn knows_last(&self) -> bool {
        self.chain.previous().is_some() || self.chain.next() == self.shown.first()
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
        self.shown.advance(&self.chain, self.salt);
        Ok(())
    }

    /// Where the next batch begins a segment, does what must be safe before that; otherwise nothing. Whoever has just acknowledged a batch
    /// calls this, or the next one waits for it. What fails here is told by [`Store::append`].
    pub fn prepare(&mut self) {
        if self.failed.is_none() && self.current.is_some() && self.is_full() {
            let prepared = self.prepare_segment();
            // It is remembered.
            let _ = self.remember(prepared);
        }
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
        if self.chain.know_previous(block.number, block.root) {
            self.shown.advance(&self.chain, self.salt);
        }
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
        let is_new = self.is_full();
        // Without dictionaries and a head, which come seldom.
        let bytes_about = blocks.iter().map(|block| record_bytes(block.stored.len() + 8 + DIGEST_FRAME_BYTES)).sum();
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
            let mut copies = Vec::new();
            if let Some(dictionary) = &block.dictionary {
                let places = current.copies(dictionary, self.salt, batch, &mut bytes);
                copies.extend(places.iter().flat_map(|place| place.to_le_bytes()));
            }
            let offset = batch + bytes.len() as u64;
            let place = Place { salt: self.salt, segment: current.number, offset };
            let digest = place.digest_frame(&block.digest);
            let stored = [&copies[..], &block.stored, &digest];
            let head = head(block, kind, batch, &stored);
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
        let _alone = self.shown.index();
        self.index.write(first.number, &entries).map_err(|error| ("a write of the index", error))?;
        let digests: Vec<_> = blocks.iter().map(|block| Acknowledged(block.digest)).collect();
        self.digests.write(first.number, &digests).map_err(|error| ("a write of the digests", error))
    }

    /// Makes index and digests safe, which are a start's best witnesses of what was acknowledged, and the root hash of the last block, by the
    /// copy of the head that the next segment would have now.
    pub fn close(&mut self) -> io::Result<()> {
        self.index.sync()?;
        self.digests.sync()?;
        self.directory.sync()?;
        if let (Some(current), true) = (&self.current, self.knows_last()) {
            let mut head = Vec::new();
            SegmentHead { salt: self.salt, chain: self.chain.clone() }.encode(current.number + 1, &mut head);
            heads::write(&self.directory, current.number + 1, &head)?;
            self.directory.sync()?;
        }
        Ok(())
    }

    /// Removes the oldest segments whose blocks need not be kept; how many. An error is none of appending: nothing that must stay is
    /// touched, and the next call tries again.
    pub fn remove_old(&mut self) -> io::Result<usize> {
        self.retention.apply(&self.directory, &self.shown, self.chain.next())
    }

    /// Whether the next batch begins a segment.
    pub(super) fn is_full(&self) -> bool {
        self.current.as_ref().is_none_or(|current| current.end >= self.options.segment_bytes)
    }

    fn next_segment(&self) -> u64 {
        self.current.as_ref().map_or(1, |current| current.number + 1)
    }

    /// Makes safe what the next start will not write again once there is another segment, and the copy of that one's head.
    fn prepare_segment(&mut self) -> Result<(), (&'static str, io::Error)> {
        let (number, mut head) = (self.next_segment(), Vec::new());
        SegmentHead { salt: self.salt, chain: self.chain.clone() }.encode(number, &mut head);
        if self.prepared != head {
            self.index.sync().map_err(|error| ("a sync of the index", error))?;
            self.digests.sync().map_err(|error| ("a sync of the digests", error))?;
            let written = heads::write(&self.directory, number, &head);
            written.map_err(|error| ("the creation of a segment", error))?;
            self.directory.sync().map_err(|error| ("a sync of names", error))?;
            self.prepared = head;
        }
        Ok(())
    }

    /// Creates the next segment; its head goes into the first batch.
    fn begin_segment(&mut self, bytes: &mut Vec<u8>) -> Result<(), (&'static str, io::Error)> {
        self.prepare_segment()?;
        bytes.append(&mut self.prepared);
        let number = self.next_segment();
        let created = self.directory.create_zeroed(&scan::name(number), 0);
        let file = created.map_err(|error| ("the creation of a segment", error))?;
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
        has_digest: false,
        batch,
        number: dictionary.id(),
        stored_bytes: bytes,
        plain_bytes: bytes,
        root: [0; 48],
        stored_checksum: crc32c::crc32c(dictionary.bytes()),
    }
}

fn head(block: &Prepared, kind: Kind, batch: u64, stored: &[&[u8]]) -> Head {
    Head {
        kind,
        encoding: block.encoding as u8,
        evidence: block.evidence as u8,
        has_digest: true,
        batch,
        number: block.number,
        stored_bytes: stored.iter().map(|piece| piece.len() as u32).sum(),
        plain_bytes: block.plain_bytes,
        root: block.root,
        stored_checksum: checksum(stored),
    }
}

fn entry(segment: u64, offset: u64, head: &Head) -> Entry {
    Entry { segment: segment as u32, offset: offset as u32, record_bytes: head.record_bytes() as u32 }
}

fn out_of_order(segment: u64, record: &Record) -> OpenError {
    let what = format!("block {} stands behind a later one", record.head.number);
    OpenError::Damaged { file: scan::name(segment), offset: record.offset, what }
}

/// Whether a segment without a valid head holds a record that was written when the head was already safe. Its checksum cannot be
/// computed without the head; that it says so of itself must do.
fn later_batch(bytes: &[u8]) -> Option<usize> {
    records(bytes).find(|offset| {
        let batch = bytes[*offset..].get(16..24).and_then(|batch| batch.first_chunk::<8>());
        let batch = batch.map(|batch| u64::from_le_bytes(*batch));
        batch.is_some_and(|batch| batch > 0 && batch <= *offset as u64)
    })
}

/// Where what looks like records stands, but for the first.
fn records(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let places = (0..bytes.len()).step_by(super::format::ALIGNMENT).skip(1);
    places.filter(|offset| super::format::has_magic(&bytes[*offset..]))
}
