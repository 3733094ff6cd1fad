//! Opening a log: what its files hold, what a crash has left, and what must be refused.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::error::OpenError;
use crate::files::{Directory, File};
use crate::log::{Log, PAGE_BYTES, Torn, remember};
use crate::options::Options;
use crate::record::{Code, Record};
use crate::rotation::{Ahead, NEW, SPARE, Segment};
use crate::segment::{self, Damage};

/// Whether a folder of the file system holds a log, or the first file of one that was never written to. Looks at names alone, and
/// takes no lock; a folder that is not there holds none.
pub fn is_begun(folder: &Path) -> io::Result<bool> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        entries => entries?,
    };
    for entry in entries {
        if entry?.file_name().to_str().is_some_and(|name| segment::number(name).is_some()) {
            return Ok(true);
        }
    }
    Ok(false)
}

impl<D: Directory> Log<D> {
    /// Opens a log, or begins one in an empty directory. `visit` is given every record that is still there, in the order in
    /// which they were appended; of entries with equal index the last one counts, and ends those after it.
    pub fn open(directory: D, options: Options, mut visit: impl FnMut(Record<&[u8]>)) -> Result<Self, OpenError> {
        let mut log = Self::new(directory, options);
        let mut files = log.find()?;
        let ahead = files.split_off(log.written(&files)?);
        log.keep_ahead(ahead, files.is_empty())?;
        let count = files.len();
        for (position, (number, file)) in files.into_iter().enumerate() {
            log.read(number, file, position + 1 == count, &mut visit)?;
        }
        Ok(log)
    }

    /// Segments' files in order, without gaps; what is left of an interrupted creation is removed.
    fn find(&self) -> Result<Vec<(u64, D::File)>, OpenError> {
        let names = self.segments.directory.names().map_err(failed("list the directory"))?;
        for name in names.iter().filter(|name| *name == SPARE || *name == NEW) {
            self.segments.directory.remove(name).map_err(failed(&format!("remove {name}")))?;
        }
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment::number(name)).collect();
        numbers.sort_unstable();
        if let Some(pair) = numbers.windows(2).find(|pair| pair[1] != pair[0] + 1) {
            return Err(damaged(pair[0] + 1, Damage { offset: 0, what: "this segment is missing".into() }));
        }
        let open = |number| {
            let name = segment::name(number);
            Ok((number, self.segments.directory.open(&name).map_err(failed(&format!("open {name}")))?))
        };
        numbers.into_iter().map(open).collect()
    }

    /// How many of these were written to: those behind the last one with a head were not, or not so that it was safe.
    fn written(&self, files: &[(u64, D::File)]) -> Result<usize, OpenError> {
        for (position, (number, file)) in files.iter().enumerate().rev() {
            let first = file.read_first(segment::head_bytes());
            let first = first.map_err(failed(&format!("read {}", segment::name(*number))))?;
            if segment::has_head(*number, &first) {
                return Ok(position + 1);
            }
        }
        Ok(0)
    }

    /// Looks at the files that have no head. The first one may be a segment whose head was damaged, or hold a part of a batch
    /// that would have been its first. Only where it is all zeros are they kept for the segments to come.
    fn keep_ahead(&mut self, files: Vec<(u64, D::File)>, is_all: bool) -> Result<(), OpenError> {
        let Some((first, file)) = files.first() else { return Ok(()) };
        if is_all && *first != 1 {
            return Err(damaged(*first, Damage { offset: 0, what: "the segment has no head".into() }));
        }
        let bytes = file.read().map_err(failed(&format!("read {}", segment::name(*first))))?;
        let end = segment::scan(*first, &bytes, |_| ()).map_err(|damage| damaged(*first, damage))?;
        if end.dirty == 0 {
            let mut ahead = Vec::new();
            for (number, file) in files {
                let bytes = file.bytes().map_err(failed(&format!("read {}", segment::name(number))))?;
                ahead.push(Ahead { file, bytes });
            }
            self.segments.keep_ahead(ahead);
            return Ok(());
        }
        for (number, _) in files.iter().rev() {
            let name = segment::name(*number);
            self.segments.directory.remove(&name).map_err(failed(&format!("remove {name}")))?;
        }
        self.segments.directory.sync().map_err(failed("sync the directory"))
    }

    fn read(
        &mut self,
        number: u64,
        file: D::File,
        is_last: bool,
        visit: &mut impl FnMut(Record<&[u8]>),
    ) -> Result<(), OpenError> {
        let name = segment::name(number);
        let bytes = file.read().map_err(failed(&format!("read {name}")))?;
        let mut segment = Segment { number, bytes: bytes.len() as u64, file, highest: BTreeMap::new() };
        let mut said_end = None;
        let groups = &mut self.groups;
        let end = segment::scan(number, &bytes, |raw| {
            segment.note(raw.code, raw.group, raw.index);
            if raw.code == Code::SegmentHead {
                said_end = Some(raw.term);
            }
            if let Some(kind) = raw.code.kind() {
                let record = Record { kind, group: raw.group, term: raw.term, index: raw.index, payload: raw.payload };
                remember(groups, &record);
                visit(record);
            }
        })
        .map_err(|damage| damaged(number, damage))?;
        let Some(said) = said_end else {
            return Err(damaged(number, Damage { offset: 0, what: "the segment has no head".into() }));
        };
        // Behind the end may stand what the file held before; that the end is right is known from here.
        if !self.segments.needed.is_empty() && said != u64::from(self.end) {
            let what = format!("the next segment says that this one ends at byte {said}");
            return Err(damaged(number - 1, Damage { offset: self.end, what }));
        }
        self.end = end.offset;
        if is_last {
            self.secure(&segment, &bytes, end)?;
        }
        self.segments.needed.push_back(segment);
        Ok(())
    }

    /// Makes the end of the log what it was shown to be, whatever happens next.
    fn secure(&mut self, segment: &Segment<D::File>, bytes: &[u8], end: segment::End) -> Result<(), OpenError> {
        let name = segment::name(segment.number);
        // What is written ends with zeros up to a page.
        let page_end = (end.offset as usize).next_multiple_of(PAGE_BYTES as usize).min(bytes.len());
        if bytes.get(end.offset as usize..page_end).is_some_and(|rest| rest.iter().any(|byte| *byte != 0)) {
            self.torn = Some(Torn { segment: name.clone(), offset: end.offset.into() });
        }
        // The last batch may be in the page cache only: its writer was killed before the sync, or the sync failed and left
        // pages that count as clean. It was shown, so it must stay, and only what is written again is sure to be written.
        let mut again = bytes.get(end.batch as usize..end.offset as usize).unwrap_or_default().to_vec();
        let cut = segment::cut(end.batch);
        // Where there is no room for it there is none for a batch either.
        let has_room = u64::from(end.offset) + cut.size() as u64 <= segment.bytes;
        if end.dirty > end.offset && has_room {
            cut.encode(segment.number, end.offset, &mut again);
            self.end += cut.size() as u32;
        }
        segment.file.write_at(&again, end.batch.into()).map_err(failed(&format!("write {name}")))?;
        segment.file.sync_data().map_err(failed(&format!("sync {name}")))
    }
}

fn failed(what: &str) -> impl FnOnce(io::Error) -> OpenError {
    let what = what.to_owned();
    move |source| OpenError::Files { what, source }
}

fn damaged(number: u64, Damage { offset, what }: Damage) -> OpenError {
    OpenError::Damaged { segment: segment::name(number), offset: offset.into(), what }
}
