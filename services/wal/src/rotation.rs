//! How segments follow one another. Files whose segment is no longer needed become segments to come: their blocks are written
//! already, so that nothing needs to be written twice. What stands in them is of another number, and hence not valid.
//!
//! A file that waits has the name of the segment that it will be. So what takes long, making zeros and making names safe, can be
//! done beside the writing, and the next segment begins without a wait.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crate::error::CommitError;
use crate::files::{Directory, File};
use crate::log::{Log, Segment, repeated};
use crate::record::size;
use crate::segment;

/// A file of zeros that is made beside the writing.
pub(crate) const SPARE: &str = "spare";
/// A file that is made because there is none ahead. Not the same name: the other one may be half made just then.
pub(crate) const NEW: &str = "new";
/// Files that may wait; more are removed.
const AHEAD_MAX: usize = 8;

/// A file that has its name, and waits to be written to.
#[derive(Debug)]
pub(crate) struct Ahead<F> {
    pub(crate) file: F,
    pub(crate) bytes: u64,
}

impl<D: Directory> Log<D> {
    /// The number of the segment that is written to; 0 before the first.
    pub(crate) fn segment_number(&self) -> u64 {
        self.segments.back().map_or(0, |segment| segment.number)
    }

    /// Begins the next segment. Nothing is written to it yet.
    pub(crate) fn add_segment(&mut self, batch_bytes: u64) -> Result<(), CommitError> {
        let repeated: usize = repeated(&self.groups).map(|record| size(record.payload.len())).sum();
        let needed = batch_bytes + (repeated + segment::head_bytes()) as u64;
        let number = self.segment_number() + 1;
        if self.ahead.front().is_none_or(|ahead| ahead.bytes < needed) {
            self.replace_ahead(number, needed)?;
        }
        // What was not synced in the segment before must not be found missing behind a later one.
        if !self.options.sync
            && let Some(synced) = self.segments.back().map(|segment| segment.file.sync_data())
        {
            synced.map_err(|error| self.poison("a sync", error))?;
            self.syncs += 1;
        }
        if self.renamed_safe < self.renamed {
            let renamed = self.renamed;
            let synced = self.directory.sync();
            self.names_synced(renamed, synced)?;
        }
        let Some(Ahead { file, bytes }) = self.ahead.pop_front() else {
            return Err(self.poison("finding a segment", io::ErrorKind::NotFound.into()));
        };
        self.segments.push_back(Segment { number, bytes, file, highest: BTreeMap::new() });
        Ok(())
    }

    /// Makes a file for this segment, in place of one that is too small, if there is one.
    fn replace_ahead(&mut self, number: u64, needed: u64) -> Result<(), CommitError> {
        let usual = if number == 1 { self.options.first_segment_bytes } else { self.options.segment_bytes };
        let bytes = needed.max(usual.into());
        let made = self.directory.create_zeroed(NEW, bytes);
        let file = made.map_err(|error| CommitError::NoSegment(Arc::new(error)))?;
        if let Err(error) = self.directory.rename(NEW, &segment::name(number)) {
            return Err(self.poison("naming a segment", error));
        }
        self.renamed += 1;
        self.ahead.pop_front();
        self.ahead.push_front(Ahead { file, bytes });
        Ok(())
    }

    /// Lets go of segments in which nothing is needed any more, oldest first.
    pub(crate) fn collect(&mut self) -> Result<(), CommitError> {
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
            let name = segment::name(segment.number);
            // The first one, and those of large batches, are of other sizes.
            if segment.bytes == u64::from(self.options.segment_bytes) && self.ahead.len() < AHEAD_MAX {
                self.add_ahead(&name, segment.file, segment.bytes)?;
            } else if let Err(error) = self.directory.remove(&name) {
                return Err(self.poison("removing a segment", error));
            }
        }
        Ok(())
    }

    /// Gives a file the name of a segment to come.
    fn add_ahead(&mut self, name: &str, file: D::File, bytes: u64) -> Result<(), CommitError> {
        let number = self.segment_number() + 1 + self.ahead.len() as u64;
        if let Err(error) = self.directory.rename(name, &segment::name(number)) {
            return Err(self.poison("naming a segment", error));
        }
        self.renamed += 1;
        self.ahead.push_back(Ahead { file, bytes });
        Ok(())
    }

    /// Takes the file that [`Log::create_spare`] made.
    pub(crate) fn add_spare(&mut self, file: D::File, bytes: u64) -> Result<(), CommitError> {
        self.add_ahead(SPARE, file, bytes)
    }

    /// Makes a file of zeros for [`Log::add_spare`], on whatever thread.
    pub(crate) fn create_spare(directory: &D, bytes: u64) -> io::Result<D::File> {
        directory.create_zeroed(SPARE, bytes)
    }

    /// Whether the next segment will be needed before long, and there is no file for it.
    pub(crate) fn wants_spare(&self) -> bool {
        let is_filling = self.segments.back().is_some_and(|segment| u64::from(self.end) * 4 > segment.bytes);
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
            Err(error) => return Err(self.poison("naming a segment", error)),
        }
        Ok(())
    }
}
