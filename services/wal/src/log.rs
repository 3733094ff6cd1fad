//! The log itself: batches into segments, segments into what is still needed. No threads, no clock.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::CommitError;
use crate::files::{Directory, File};
use crate::record::{Code, Kind, PAYLOAD_BYTES_MAX, Raw, Record, size};
use crate::rotation::Ahead;
use crate::segment;

/// What is written ends at a multiple of this, with zeros.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// The largest batch: offsets have 32 bits.
const BATCH_BYTES_MAX: u64 = 2 << 30;

/// Settings of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Size of a segment's file. A batch that is larger gets a segment of its size.
    pub segment_bytes: u32,
    /// Size of the first segment of a new log: small, so that a new store need not wait until a large file is zeroed.
    pub first_segment_bytes: u32,
    /// Whether a batch is synced before it counts as committed. Without it a crash of the process loses nothing, but a
    /// crash of the system may leave a log that [`Log::open`] has to refuse.
    pub sync: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { segment_bytes: 4 << 20, first_segment_bytes: 1 << 20, sync: true }
    }
}

/// A segment's file, and what it holds that may still be needed.
#[derive(Debug)]
pub(crate) struct Segment<F> {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    pub(crate) file: F,
    /// The highest index of an entry of each group.
    pub(crate) highest: BTreeMap<u16, u64>,
}

impl<F> Segment<F> {
    pub(crate) fn note(&mut self, code: Code, group: u16, index: u64) {
        if code == Code::Entry {
            let highest = self.highest.entry(group).or_default();
            *highest = index.max(*highest);
        }
    }
}

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
    pub(crate) compacted: Option<Record>,
}

/// A log that is open.
#[derive(Debug)]
pub struct Log<D: Directory> {
    pub(crate) directory: D,
    pub(crate) options: Options,
    /// Oldest first; the last one is written to. None until something is written to a new log.
    pub(crate) segments: VecDeque<Segment<D::File>>,
    /// Files that have the names of the next segments already.
    pub(crate) ahead: VecDeque<Ahead<D::File>>,
    /// Changes of names so far, and how many of these are known to be safe.
    pub(crate) renamed: u64,
    pub(crate) renamed_safe: u64,
    pub(crate) end: u32,
    pub(crate) torn: Option<Torn>,
    pub(crate) groups: BTreeMap<u16, Group>,
    /// Kept for its allocation.
    buffer: Vec<u8>,
    poisoned: Option<CommitError>,
    /// Syncs of records since it was opened; those of files that are made or renamed are not in it.
    pub(crate) syncs: u64,
}

impl<D: Directory> Log<D> {
    /// A log in which nothing was found yet.
    pub(crate) fn new(directory: D, options: Options) -> Self {
        Self {
            directory,
            options,
            segments: VecDeque::new(),
            ahead: VecDeque::new(),
            renamed: 0,
            renamed_safe: 0,
            end: 0,
            torn: None,
            groups: BTreeMap::new(),
            buffer: Vec::new(),
            poisoned: None,
            syncs: 0,
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
        let room = self.segments.back().map_or(0, |segment| segment.bytes.saturating_sub(self.end.into()));
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
        let Some(segment) = self.segments.back().filter(|_| self.options.sync) else { return Ok(()) };
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
        written.map_err(|(what, source)| self.poison(what, source))
    }

    fn try_write(
        &mut self,
        batch: u32,
        records: &[Record],
        seal: Option<Raw<'_>>,
    ) -> Result<(), (&'static str, io::Error)> {
        let Some(segment) = self.segments.back_mut() else {
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
        if self.options.sync {
            segment.file.sync_data().map_err(|error| ("a sync", error))?;
            self.syncs += 1;
        }
        self.end = end as u32;
        Ok(())
    }

    pub(crate) fn poison(&mut self, what: &'static str, source: io::Error) -> CommitError {
        let poisoned = CommitError::Poisoned { what, source: Arc::new(source) };
        self.poisoned = Some(poisoned.clone());
        poisoned
    }

    /// What stood behind its end when it was opened, and was not whole: see [`Torn`].
    pub fn torn(&self) -> Option<&Torn> {
        self.torn.as_ref()
    }

    /// The directory it is in.
    pub fn directory(&self) -> &D {
        &self.directory
    }

    /// Bytes of all segments' files, those of segments to come included.
    pub fn bytes(&self) -> u64 {
        let segments = self.segments.iter().map(|segment| segment.bytes);
        segments.chain(self.ahead.iter().map(|ahead| ahead.bytes)).sum()
    }

    /// The settings it was opened with.
    pub fn options(&self) -> Options {
        self.options
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
