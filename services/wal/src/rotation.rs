//! How segments follow one another. Files whose segment is no longer needed become segments to come: their blocks are written
//! already, so that nothing needs to be written twice. What stands in them is of another number, and hence not valid.
//!
//! A file that waits has the name of the segment that it will be. So what takes long, making zeros and making names safe, can be
//! done beside the writing, and the next segment begins without a wait.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::Arc;

use crate::error::CommitError;
use crate::files::{Directory, File};
use crate::options::Options;
use crate::record::Code;
use crate::segment;

/// A file of zeros that is made beside the writing.
pub(crate) const SPARE: &str = "spare";
/// A file that is made because there is none ahead. Not the same name: the other one may be half made just then.
pub(crate) const NEW: &str = "new";
/// Files that may wait; more are removed.
const AHEAD_MAX: usize = 8;

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

/// A file that has its name, and waits to be written to.
#[derive(Debug)]
pub(crate) struct Ahead<F> {
    pub(crate) file: F,
    pub(crate) bytes: u64,
}

/// The files of a log. After an error that says so it is not known what is on disk, and whoever writes must write no more.
pub(crate) struct Segments<D: Directory> {
    pub(crate) directory: D,
    pub(crate) options: Options,
    /// Oldest first; the last one is written to. None until something is written to a new log.
    pub(crate) needed: VecDeque<Segment<D::File>>,
    /// Files that have the names of the next segments already.
    ahead: VecDeque<Ahead<D::File>>,
    /// Changes of names so far, and how many of these are known to be safe.
    renamed: u64,
    renamed_safe: u64,
    /// Syncs of records since the log was opened; those of files that are made or renamed are not in it.
    pub(crate) syncs: u64,
}

impl<D: Directory> fmt::Debug for Segments<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Segments").field("number", &self.number()).finish_non_exhaustive()
    }
}

impl<D: Directory> Segments<D> {
    /// Those of a log in which nothing was found yet.
    pub(crate) fn new(directory: D, options: Options) -> Self {
        let (needed, ahead) = (VecDeque::new(), VecDeque::new());
        Self { directory, options, needed, ahead, renamed: 0, renamed_safe: 0, syncs: 0 }
    }

    /// The number of the segment that is written to; 0 before the first.
    pub(crate) fn number(&self) -> u64 {
        self.needed.back().map_or(0, |segment| segment.number)
    }

    /// Bytes of all files, those of segments to come included.
    pub(crate) fn bytes(&self) -> u64 {
        let needed = self.needed.iter().map(|segment| segment.bytes);
        needed.chain(self.ahead.iter().map(|ahead| ahead.bytes)).sum()
    }

    /// Keeps files that have no head, for the segments to come. Whoever gave them their names may have been killed before these were safe.
    pub(crate) fn keep_ahead(&mut self, ahead: Vec<Ahead<D::File>>) {
        self.ahead = ahead.into();
        self.renamed += 1;
    }

    /// Begins the next segment, of which so many bytes are needed. Nothing is written to it yet.
    pub(crate) fn begin(&mut self, needed: u64) -> Result<(), CommitError> {
        let number = self.number() + 1;
        if self.ahead.front().is_none_or(|ahead| ahead.bytes < needed) {
            self.replace_ahead(number, needed)?;
        }
        // What was not synced in the segment before must not be found missing behind a later one.
        if !self.options.sync
            && let Some(synced) = self.needed.back().map(|segment| segment.file.sync_data())
        {
            synced.map_err(|error| CommitError::poisoned("a sync", error))?;
            self.syncs += 1;
        }
        if self.renamed_safe < self.renamed {
            let renamed = self.renamed;
            let synced = self.directory.sync();
            self.names_synced(renamed, synced)?;
        }
        let Some(Ahead { file, bytes }) = self.ahead.pop_front() else {
            return Err(CommitError::poisoned("finding a segment", io::ErrorKind::NotFound.into()));
        };
        self.needed.push_back(Segment { number, bytes, file, highest: BTreeMap::new() });
        Ok(())
    }

    /// Makes a file for this segment, in place of one that is too small, if there is one.
    fn replace_ahead(&mut self, number: u64, needed: u64) -> Result<(), CommitError> {
        let usual = if number == 1 { self.options.first_segment_bytes } else { self.options.segment_bytes };
        let bytes = needed.max(usual.into());
        let made = self.directory.create_zeroed(NEW, bytes);
        let file = made.map_err(|error| CommitError::NoSegment(Arc::new(error)))?;
        if let Err(error) = self.directory.rename(NEW, &segment::name(number)) {
            return Err(CommitError::poisoned("naming a segment", error));
        }
        self.renamed += 1;
        self.ahead.pop_front();
        self.ahead.push_front(Ahead { file, bytes });
        Ok(())
    }

    /// Lets go of segments in which nothing is needed any more, oldest first: no entry of a group up to the index that `compacted` has of it.
    pub(crate) fn collect(&mut self, compacted: impl Fn(u16) -> Option<u64>) -> Result<(), CommitError> {
        while self.needed.len() > 1 {
            let is_needed = self.needed.front().is_some_and(|segment| {
                let mut groups = segment.highest.iter();
                groups.any(|(group, highest)| compacted(*group).is_none_or(|index| index < *highest))
            });
            if is_needed {
                break;
            }
            let Some(segment) = self.needed.pop_front() else { break };
            let name = segment::name(segment.number);
            // The first one, and those of large batches, are of other sizes.
            if segment.bytes == u64::from(self.options.segment_bytes) && self.ahead.len() < AHEAD_MAX {
                self.add_ahead(&name, segment.file, segment.bytes)?;
            } else if let Err(error) = self.directory.remove(&name) {
                return Err(CommitError::poisoned("removing a segment", error));
            }
        }
        Ok(())
    }

    /// Gives a file the name of a segment to come.
    fn add_ahead(&mut self, name: &str, file: D::File, bytes: u64) -> Result<(), CommitError> {
        let number = self.number() + 1 + self.ahead.len() as u64;
        if let Err(error) = self.directory.rename(name, &segment::name(number)) {
            return Err(CommitError::poisoned("naming a segment", error));
        }
        self.renamed += 1;
        self.ahead.push_back(Ahead { file, bytes });
        Ok(())
    }

    /// Takes the file that [`create_spare`] made.
    pub(crate) fn add_spare(&mut self, file: D::File, bytes: u64) -> Result<(), CommitError> {
        self.add_ahead(SPARE, file, bytes)
    }

    /// Whether the next segment will be needed before long, since the one that is written to is full up to `end`, and there is no file for it.
    pub(crate) fn wants_spare(&self, end: u32) -> bool {
        let is_filling = self.needed.back().is_some_and(|segment| u64::from(end) * 4 > segment.bytes);
        self.ahead.is_empty() && is_filling
    }

    /// Changes of names that are not known to be safe: how many there were so far.
    pub(crate) fn unsafe_names(&self) -> Option<u64> {
        (self.renamed_safe < self.renamed).then_some(self.renamed)
    }

    /// So many changes of names are safe, if they are.
    pub(crate) fn names_synced(&mut self, renamed: u64, synced: io::Result<()>) -> Result<(), CommitError> {
        match synced {
            Ok(()) => self.renamed_safe = self.renamed_safe.max(renamed),
            Err(error) => return Err(CommitError::poisoned("naming a segment", error)),
        }
        Ok(())
    }
}

/// Makes a file of zeros for [`Segments::add_spare`], on whatever thread.
pub(crate) fn create_spare<D: Directory>(directory: &D, bytes: u64) -> io::Result<D::File> {
    directory.create_zeroed(SPARE, bytes)
}
