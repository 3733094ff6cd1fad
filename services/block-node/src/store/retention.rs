//! Removes the oldest segments of a store that keeps its newest blocks alone.
//!
//! Whole segments go, the oldest first, and a file system's journal keeps that order (`wal::files` has the same): whatever a crash leaves
//! is a store that begins earlier or later, without a gap.
//! Readers are told that the blocks are no longer stored before their file goes.

use std::collections::VecDeque;
use std::io;

use wal::files::Directory;

use super::digests::Acknowledged;
use super::index::Entry;
use super::reader::Shown;
use super::rows::is_before;
use super::{heads, scan};

/// The segments of a store, and how many blocks must stay.
pub(super) struct Retention {
    /// At least so many of the newest blocks stay; `None`: all do.
    blocks: Option<u64>,
    /// In order; the last one is written to.
    segments: VecDeque<u64>,
    /// Number of the first block behind the oldest segment; `None`: not read yet.
    oldest_end: Option<u64>,
}

impl Retention {
    pub(super) fn new(blocks: Option<u64>) -> Self {
        Self { blocks, segments: VecDeque::new(), oldest_end: None }
    }

    /// The segments that were found at the start.
    pub(super) fn found(&mut self, segments: impl IntoIterator<Item = u64>) {
        self.segments = segments.into_iter().collect();
        self.oldest_end = None;
    }

    /// A segment is begun.
    pub(super) fn begun(&mut self, segment: u64) {
        self.segments.push_back(segment);
    }

    /// Removes what need not stay; how many segments. After an error it goes on where it stopped when it is called again.
    pub(super) fn apply<D: Directory>(&mut self, directory: &D, shown: &Shown<D>, next: u64) -> io::Result<usize> {
        let Some(keep_from) = self.blocks.and_then(|blocks| next.checked_sub(blocks)) else { return Ok(0) };
        let mut removed = 0;
        while let Some(oldest) = self.segments.front().filter(|_| self.segments.len() > 1) {
            let end = match self.oldest_end {
                Some(end) => end,
                // Of segments of which nothing is left to tell it, the oldest goes with the next that tells.
                None => match self.segments.iter().skip(1).find_map(|next| shown.first_block(*next).transpose()) {
                    Some(end) => end?,
                    None => break,
                },
            };
            self.oldest_end = Some(end);
            if end > keep_from {
                break;
            }
            shown.begin_at(end);
            let name = scan::name(*oldest);
            match directory.remove(&name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                result => result?,
            }
            shown.files().forget(&name);
            self.segments.pop_front();
            self.oldest_end = None;
            removed += 1;
        }
        if removed > 0 {
            // What stays behind after a crash names no block that is stored, and goes with the next segment.
            let oldest = self.segments.front().copied().unwrap_or_default();
            let first = shown.first();
            let is_old = |name: &String| {
                is_before::<Entry>(name, first)
                    || is_before::<Acknowledged>(name, first)
                    || heads::beside(name).is_some_and(|segment| segment < oldest)
            };
            for name in directory.names()?.into_iter().filter(is_old) {
                directory.remove(&name)?;
                shown.files().forget(&name);
            }
        }
        Ok(removed)
    }
}
