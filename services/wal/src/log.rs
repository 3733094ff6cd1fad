//! The log itself: batches into segments, segments into what is still needed. No threads, no clock.

use std::collections::BTreeMap;
use std::io;

use bytes::Bytes;

use crate::error::CommitError;
use crate::files::{Directory, File};
use crate::options::Options;
use crate::record::{Kind, PAYLOAD_BYTES_MAX, Raw, Record, size};
use crate::rotation::Segments;
use crate::segment;

/// What is written ends at a multiple of this, with zeros.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// The largest batch: offsets have 32 bits.
const BATCH_BYTES_MAX: u64 = 2 << 30;

/// Where the end of a log that was opened is the beginning of something that is not whole: a write that a crash has torn, which was never
/// acknowledged; or the last write before a crash, of which a disk has changed a byte, which was. Nobody can tell them apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The name of the segment's file.
    pub segment: String,
    /// The byte at which it begins.
    pub offset: u64,
}

/// What is repeated at the beginning of every segment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    hard_state: Option<Record>,
    /// Term and index of the newest compaction.
    compacted: Option<Record>,
}

/// A log that is open.
#[derive(Debug)]
pub struct Log<D: Directory> {
    pub(crate) segments: Segments<D>,
    pub(crate) end: u32,
    pub(crate) torn: Option<Torn>,
    pub(crate) groups: BTreeMap<u16, Group>,
    /// Kept for its allocation.
    buffer: Vec<u8>,
    poisoned: Option<CommitError>,
}

impl<D: Directory> Log<D> {
    /// A log in which nothing was found yet.
    pub(crate) fn new(directory: D, options: Options) -> Self {
        Self {
            segments: Segments::new(directory, options),
            end: 0,
            torn: None,
            groups: BTreeMap::new(),
            buffer: Vec::new(),
            poisoned: None,
        }
    }

    /// Writes records as one batch. When this returns `Ok`, all of them are there for good. When it fails, none was
    /// acknowledged, and see [`CommitError`] for what can be done next.
    pub fn commit(&mut self, records: &[Record]) -> Result<(), CommitError> {
        if let Some(poisoned) = &self.poisoned {
            return Err(poisoned.clone());
        }
        if records.is_empty() {
            return Ok(());
        }
        let bytes: u64 = records.iter().map(|record| size(record.payload.len()) as u64).sum();
        if bytes > BATCH_BYTES_MAX || records.iter().any(|record| record.payload.len() > PAYLOAD_BYTES_MAX) {
            return Err(CommitError::TooLarge(bytes));
        }
        let room = self.segments.needed.back().map_or(0, |segment| segment.bytes.saturating_sub(self.end.into()));
        if bytes <= room {
            self.write(self.end, records, None)?;
        } else {
            self.add_segment(bytes)?;
            self.write(0, records, None)?;
        }
        for record in records {
            remember(&mut self.groups, record);
        }
        self.collect()
    }

    /// Says behind the last batch, in one of its own, that everything before is safe. Otherwise only the next batch says so, and a byte of the
    /// last one that a disk has changed would be taken for what a crash has left. For a gentle end; more may be committed all the same.
    pub fn seal(&mut self) -> Result<(), CommitError> {
        if let Some(poisoned) = &self.poisoned {
            return Err(poisoned.clone());
        }
        // Without syncs nothing is known to be safe.
        let Some(segment) = self.segments.needed.back().filter(|_| self.options().sync) else { return Ok(()) };
        let seal = segment::cut(self.end);
        if u64::from(self.end) + seal.size() as u64 <= segment.bytes {
            return self.write(self.end, &[], Some(seal));
        }
        // The head of a segment says where the one before ends.
        self.add_segment(0)?;
        self.write(0, &[], None)
    }

    /// Encodes, writes and syncs one batch.
    fn write(&mut self, batch: u32, records: &[Record], seal: Option<Raw<'_>>) -> Result<(), CommitError> {
        let written = self.try_write(batch, records, seal);
        self.heed(written.map_err(|(what, source)| CommitError::poisoned(what, source)))
    }

    fn try_write(
        &mut self,
        batch: u32,
        records: &[Record],
        seal: Option<Raw<'_>>,
    ) -> Result<(), (&'static str, io::Error)> {
        let Some(segment) = self.segments.needed.back_mut() else {
            return Err(("finding a segment", io::ErrorKind::NotFound.into()));
        };
        let number = segment.number;
        self.buffer.clear();
        let mut encode = |raw: Raw<'_>| {
            segment.note(raw.code, raw.group, raw.index);
            let offset = batch + self.buffer.len() as u32;
            raw.encode(number, offset, &mut self.buffer);
        };
        // A segment begins with its head, and nothing else does.
        if batch == 0 {
            encode(segment::head(number, self.end));
            for record in repeated(&self.groups) {
                encode(raw(record, batch));
            }
        }
        for record in records {
            encode(raw(record, batch));
        }
        seal.into_iter().for_each(&mut encode);
        let end = u64::from(batch) + self.buffer.len() as u64;
        assert!(end <= segment.bytes, "a batch that ends at {end} does not fit a segment of {} bytes", segment.bytes);
        // Up to a whole page: the system need not read what stood there in an earlier life of the file.
        let page_end = end.next_multiple_of(PAGE_BYTES).clamp(end, segment.bytes.max(end));
        self.buffer.resize((page_end - u64::from(batch)) as usize, 0);
        segment.file.write_at(&self.buffer, batch.into()).map_err(|error| ("a write", error))?;
        if self.segments.options.sync {
            segment.file.sync_data().map_err(|error| ("a sync", error))?;
            self.segments.syncs += 1;
        }
        self.end = end as u32;
        Ok(())
    }

    /// Once it is not known what is on disk, nothing more is written.
    fn heed<T>(&mut self, done: Result<T, CommitError>) -> Result<T, CommitError> {
        if let Err(error @ CommitError::Poisoned { .. }) = &done {
            self.poisoned = Some(error.clone());
        }
        done
    }

    /// Begins the next segment, for a batch of so many bytes. Nothing is written to it yet.
    fn add_segment(&mut self, batch_bytes: u64) -> Result<(), CommitError> {
        let repeated: usize = repeated(&self.groups).map(|record| size(record.payload.len())).sum();
        let begun = self.segments.begin(batch_bytes + (repeated + segment::head_bytes()) as u64);
        self.heed(begun)
    }

    /// Lets go of segments in which nothing is needed any more.
    fn collect(&mut self) -> Result<(), CommitError> {
        let compacted = |group: u16| Some(self.groups.get(&group)?.compacted.as_ref()?.index);
        let collected = self.segments.collect(compacted);
        self.heed(collected)
    }

    /// Takes the file that [`crate::rotation::create_spare`] made.
    pub(crate) fn add_spare(&mut self, file: D::File, bytes: u64) -> Result<(), CommitError> {
        let added = self.segments.add_spare(file, bytes);
        self.heed(added)
    }

    /// So many changes of names are safe, if they are.
    pub(crate) fn names_synced(&mut self, renamed: u64, synced: io::Result<()>) -> Result<(), CommitError> {
        let known = self.segments.names_synced(renamed, synced);
        self.heed(known)
    }

    /// What stood behind its end when it was opened, and was not whole: see [`Torn`].
    pub fn torn(&self) -> Option<&Torn> {
        self.torn.as_ref()
    }

    /// The directory it is in.
    pub fn directory(&self) -> &D {
        &self.segments.directory
    }

    /// Bytes of all segments' files, those of segments to come included.
    pub fn bytes(&self) -> u64 {
        self.segments.bytes()
    }

    /// The settings it was opened with.
    pub fn options(&self) -> Options {
        self.segments.options
    }
}

fn raw(record: &Record, batch: u32) -> Raw<'_> {
    let Record { kind, group, term, index, payload } = record;
    Raw { code: (*kind).into(), group: *group, batch, term: *term, index: *index, payload }
}

/// What stands at the beginning of every segment, so that older ones can go.
pub(crate) fn repeated(groups: &BTreeMap<u16, Group>) -> impl Iterator<Item = &Record> {
    groups.values().flat_map(|group| [&group.hard_state, &group.compacted]).flatten()
}

/// Keeps what is to be repeated in the next segment.
pub(crate) fn remember<P: AsRef<[u8]>>(groups: &mut BTreeMap<u16, Group>, record: &Record<P>) {
    let kept = || {
        Some(Record {
            kind: record.kind,
            group: record.group,
            term: record.term,
            index: record.index,
            payload: Bytes::copy_from_slice(record.payload.as_ref()),
        })
    };
    match record.kind {
        Kind::Entry => {}
        Kind::HardState => groups.entry(record.group).or_default().hard_state = kept(),
        Kind::Compaction => {
            let group = groups.entry(record.group).or_default();
            if group.compacted.as_ref().is_none_or(|compacted| compacted.index <= record.index) {
                group.compacted = kept();
            }
        }
    }
}
