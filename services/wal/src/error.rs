//! What can go wrong, with the remedy.

use std::io;
use std::sync::Arc;

/// Why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The files cannot be read or prepared.
    #[error("{what}: {source}")]
    Files {
        /// What was tried, with the file's name.
        what: String,
        /// What the file system said.
        source: io::Error,
    },
    /// What was safe on disk has been damaged.
    #[error(
        "{segment}: damaged at byte {offset}: {what}; restore this directory from a backup or from another member, the log cannot be used"
    )]
    Damaged {
        /// Name of the file.
        segment: String,
        /// Where the damage begins.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
}

/// Why a batch was not committed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommitError {
    /// Nothing was written, and the log can be used further: there was no room for a new segment.
    #[error("no new segment can be made: {0}; free some space")]
    NoSegment(Arc<io::Error>),
    /// It is not known what is on disk. The log accepts nothing more until it is opened again.
    #[error("the log is out of service since {what} failed: {source}; correct the cause and restart")]
    Poisoned {
        /// The operation that failed.
        what: &'static str,
        /// What the file system said then.
        source: Arc<io::Error>,
    },
    /// Nothing was written: a payload, or all records together, are too large for a segment.
    #[error("{0} bytes are too much for one batch; split it")]
    TooLarge(u64),
}

impl CommitError {
    /// What failed, and how.
    pub(crate) fn poisoned(what: &'static str, source: io::Error) -> Self {
        Self::Poisoned { what, source: Arc::new(source) }
    }
}
