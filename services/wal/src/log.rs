//! The log itself: batches into segments, segments into what is still needed. No threads, no clock.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{CommitError, OpenError};
use crate::files::{Directory, File};
use crate::record::{Code, Kind, PAYLOAD_BYTES_MAX, Raw, Record, size};
use crate::segment::{self, Damage};

/// A file of zeros that was made ahead and will become a segment.
const SPARE: &str = "spare";
/// A file that is being made because there was no spare one. Not the same name: the spare one may be half made just then.
const NEW: &str = "new";
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
        Self { segment_bytes: 64 << 20, first_segment_bytes: 1 << 20, sync: true }
    }
}

/// A segment's file, and what it holds that may still be needed.
#[derive(Debug)]
struct Segment {
    number: u64,
    bytes: u64,
    /// The highest index of an entry of each group.
    highest: BTreeMap<u16, u64>,
}

impl Segment {
    fn note(&mut self, code: Code, group: u16, index: u64) {
        if code == Code::Entry {
            let highest = self.highest.entry(group).or_default();
            *highest = index.max(*highest);
        }
    }
}

/// What is repeated at the beginning of every segment.
#[derive(Clone, Debug, Default)]
struct Group {
    hard_state: Option<Record>,
    /// Term and index of the newest compaction.
    compacted: Option<Record>,
}

/// A log that is open.
#[derive(Debug)]
pub struct Log<D: Directory> {
    directory: D,
    options: Options,
    /// Oldest first; the last one is written to.
    segments: VecDeque<Segment>,
    /// `None` until something is written to a new log.
    file: Option<D::File>,
    end: u32,
    groups: BTreeMap<u16, Group>,
    spare: Option<(D::File, u64)>,
    /// Kept for its allocation.
    buffer: Vec<u8>,
    poisoned: Option<CommitError>,
}

impl<D: Directory> Log<D> {
    /// Opens a log, or begins one in an empty directory. `visit` is given every record that is still there, in the order in
    /// which they were appended; of entries with equal index the last one counts, and ends those after it.
    pub fn open(directory: D, options: Options, mut visit: impl FnMut(Record<&[u8]>)) -> Result<Self, OpenError> {
        let mut log = Self {
            directory,
            options,
            segments: VecDeque::new(),
            file: None,
            end: 0,
            groups: BTreeMap::new(),
            spare: None,
            buffer: Vec::new(),
            poisoned: None,
        };
        let numbers = log.find()?;
        let mut previous_end = None;
        for (position, number) in numbers.iter().enumerate() {
            let is_last = position + 1 == numbers.len();
            log.read(*number, previous_end, is_last, &mut visit)?;
            previous_end = Some(log.end);
        }
        Ok(log)
    }

    /// Segments in order, without gaps; what is left of an interrupted creation is removed.
    fn find(&self) -> Result<Vec<u64>, OpenError> {
        let names = self.directory.names().map_err(failed("list the directory"))?;
        for name in names.iter().filter(|name| *name == SPARE || *name == NEW) {
            self.directory.remove(name).map_err(failed(&format!("remove {name}")))?;
        }
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment::number(name)).collect();
        numbers.sort_unstable();
        if let Some(pair) = numbers.windows(2).find(|pair| pair[1] != pair[0] + 1) {
            return Err(damaged(pair[0] + 1, Damage { offset: 0, what: "this segment is missing".into() }));
        }
        Ok(numbers)
    }

    fn read(
        &mut self,
        number: u64,
        previous_end: Option<u32>,
        is_last: bool,
        visit: &mut impl FnMut(Record<&[u8]>),
    ) -> Result<(), OpenError> {
        let name = segment::name(number);
        let file = self.directory.open(&name).map_err(failed(&format!("open {name}")))?;
        let bytes = file.read().map_err(failed(&format!("read {name}")))?;
        let mut segment = Segment { number, bytes: bytes.len() as u64, highest: BTreeMap::new() };
        let mut said_end = None;
        let groups = &mut self.groups;
        let end = segment::scan(number, &bytes, |raw| {
            segment.note(raw.code, raw.group, raw.index);
            match raw.code.kind() {
                None => said_end = Some(raw.term),
                Some(kind) => {
                    let record =
                        Record { kind, group: raw.group, term: raw.term, index: raw.index, payload: raw.payload };
                    remember(groups, &record);
                    visit(record);
                }
            }
        })
        .map_err(|damage| damaged(number, damage))?;
        if let (Some(said), Some(previous)) = (said_end, previous_end)
            && said != u64::from(previous)
        {
            let what = format!("the next segment says that this one ends at byte {said}");
            return Err(damaged(number - 1, Damage { offset: previous, what }));
        }
        if end.dirty > end.offset && !is_last {
            let what = "this record is not valid, and there is a later segment".into();
            return Err(damaged(number, Damage { offset: end.offset, what }));
        }
        if said_end.is_none() {
            if !is_last {
                return Err(damaged(number, Damage { offset: 0, what: "the segment has no head".into() }));
            }
            // Nothing in it was ever acknowledged; the segment before goes on.
            self.directory.remove(&name).map_err(failed(&format!("remove {name}")))?;
            self.directory.sync().map_err(failed("sync the directory"))?;
            return Ok(());
        }
        if end.dirty > end.offset {
            let zeros = vec![0; (end.dirty - end.offset) as usize];
            file.write_at(&zeros, end.offset.into()).map_err(failed(&format!("cut {name}")))?;
        }
        if is_last && self.options.sync {
            // The last batch may be in the page cache only: its writer was killed before the sync, or the sync failed and left
            // pages that count as clean. It was shown, so it must stay, and only what is written again is sure to be written.
            let batch = bytes.get(end.batch as usize..end.offset as usize).unwrap_or_default();
            file.write_at(batch, end.batch.into()).map_err(failed(&format!("write {name}")))?;
        }
        if is_last {
            file.sync_data().map_err(failed(&format!("sync {name}")))?;
        }
        self.segments.push_back(segment);
        self.file = Some(file);
        self.end = end.offset;
        Ok(())
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
        let written = if self.file.is_some() && bytes <= room {
            self.write(self.end, records, false)
        } else {
            self.add_segment(bytes)?;
            self.write(0, records, true)
        };
        if let Err((what, source)) = written {
            return Err(self.poison(what, source));
        }
        for record in records {
            remember(&mut self.groups, record);
        }
        self.collect()
    }

    /// Encodes, writes and syncs one batch.
    fn write(&mut self, batch: u32, records: &[Record], is_first: bool) -> Result<(), (&'static str, io::Error)> {
        let (Some(segment), Some(file)) = (self.segments.back_mut(), &self.file) else {
            return Err(("finding a segment", io::ErrorKind::NotFound.into()));
        };
        let number = segment.number;
        self.buffer.clear();
        let mut encode = |raw: Raw<'_>| {
            segment.note(raw.code, raw.group, raw.index);
            let offset = batch + self.buffer.len() as u32;
            raw.encode(number, offset, &mut self.buffer);
        };
        if is_first {
            encode(segment::head(number, self.end));
            for record in repeated(&self.groups) {
                encode(raw(record, batch));
            }
        }
        for record in records {
            encode(raw(record, batch));
        }
        file.write_at(&self.buffer, batch.into()).map_err(|error| ("a write", error))?;
        if self.options.sync {
            file.sync_data().map_err(|error| ("a sync", error))?;
        }
        self.end = batch + self.buffer.len() as u32;
        Ok(())
    }

    /// Begins the next segment. Nothing is written to it yet.
    fn add_segment(&mut self, batch_bytes: u64) -> Result<(), CommitError> {
        let repeated: usize = repeated(&self.groups).map(|record| size(record.payload.len())).sum();
        let needed = batch_bytes + (repeated + segment::head(0, 0).size()) as u64;
        let number = self.segments.back().map_or(1, |segment| segment.number + 1);
        let (file, bytes, name) = match self.spare.take_if(|(_, bytes)| *bytes >= needed) {
            Some((file, bytes)) => (file, bytes, SPARE),
            None => {
                let usual = if number == 1 { self.options.first_segment_bytes } else { self.options.segment_bytes };
                let bytes = needed.max(usual.into());
                let file = self.directory.create_zeroed(NEW, bytes);
                (file.map_err(|error| CommitError::NoSegment(Arc::new(error)))?, bytes, NEW)
            }
        };
        // What was not synced in the segment before must not be found missing behind a later one.
        if !self.options.sync
            && let Some(Err(error)) = self.file.as_ref().map(File::sync_data)
        {
            return Err(self.poison("a sync", error));
        }
        let named = self.directory.rename(name, &segment::name(number)).and_then(|()| self.directory.sync());
        if let Err(error) = named {
            return Err(self.poison("naming a segment", error));
        }
        self.segments.push_back(Segment { number, bytes, highest: BTreeMap::new() });
        self.file = Some(file);
        Ok(())
    }

    /// Removes segments in which nothing is needed any more, oldest first.
    fn collect(&mut self) -> Result<(), CommitError> {
        while self.segments.len() > 1 {
            let is_needed = self.segments.front().is_some_and(|segment| {
                segment.highest.iter().any(|(group, highest)| {
                    let compacted = self.groups.get(group).and_then(|group| group.compacted.as_ref());
                    compacted.is_none_or(|compacted| compacted.index < *highest)
                })
            });
            if is_needed {
                break;
            }
            let Some(segment) = self.segments.pop_front() else { break };
            if let Err(error) = self.directory.remove(&segment::name(segment.number)) {
                return Err(self.poison("removing a segment", error));
            }
        }
        Ok(())
    }

    fn poison(&mut self, what: &'static str, source: io::Error) -> CommitError {
        let poisoned = CommitError::Poisoned { what, source: Arc::new(source) };
        self.poisoned = Some(poisoned.clone());
        poisoned
    }

    /// Makes a file of zeros for [`Log::set_spare`], on whatever thread. One at a time, and not while the log has one.
    pub(crate) fn create_spare(directory: &D, bytes: u64) -> io::Result<D::File> {
        directory.create_zeroed(SPARE, bytes)
    }

    /// Keeps a file of zeros, so that the next segment need not be waited for.
    pub(crate) fn set_spare(&mut self, file: D::File, bytes: u64) {
        self.spare = Some((file, bytes));
    }

    /// Whether there is a file for the next segment.
    pub(crate) fn has_spare(&self) -> bool {
        self.spare.is_some()
    }

    /// The number of the segment that is written to; 0 before the first.
    pub(crate) fn segment_number(&self) -> u64 {
        self.segments.back().map_or(0, |segment| segment.number)
    }

    /// The directory it is in.
    pub fn directory(&self) -> &D {
        &self.directory
    }

    /// Bytes of all segments' files.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
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
fn repeated(groups: &BTreeMap<u16, Group>) -> impl Iterator<Item = &Record> {
    groups.values().flat_map(|group| [&group.hard_state, &group.compacted]).flatten()
}

/// Keeps what is to be repeated in the next segment.
fn remember<P: AsRef<[u8]>>(groups: &mut BTreeMap<u16, Group>, record: &Record<P>) {
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

fn failed(what: &str) -> impl FnOnce(io::Error) -> OpenError {
    let what = what.to_owned();
    move |source| OpenError::Files { what, source }
}

fn damaged(number: u64, Damage { offset, what }: Damage) -> OpenError {
    OpenError::Damaged { segment: segment::name(number), offset: offset.into(), what }
}
