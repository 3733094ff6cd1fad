//! Fewer and larger files: what came into a level is merged into one file of the next, as Litestream does.
//!
//! ```text
//! level 0 (each upload) ──30 s──► level 1 ──5 min──► level 2 ──1 h──► level 3        level 9: snapshots
//! ```
//!
//! A merged file is written before anything that it replaces is removed (by [`crate::retention`]), so that no restore is ever in
//! want of one. [`Levels`] is pure: it knows names and times. [`merge_files`] reads at most [`FAN_IN`] files at once.

use crate::arena::Arena;
use crate::replica::{LtxFile, RemoteFile, Replica};
use crate::store::StoreError;
use ltx::{Decoder, FileName, Header};
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::time::Duration;

/// Files that are read at once: more are merged in turns, through staged files.
pub const FAN_IN: usize = 16;
/// Bytes that are read ahead of each of them.
const READ_BYTES: usize = 16 * 1024;

/// How long a file waits in its level for others to be merged with: `intervals[0]` in level 0, and so on.
pub const LITESTREAM_INTERVALS: [Duration; 3] =
    [Duration::from_secs(30), Duration::from_secs(5 * 60), Duration::from_secs(3600)];

/// The files of one level that no file of the next one has yet.
#[derive(Clone, Debug, Default)]
struct Level {
    waiting: Vec<FileName>,
    since: Duration,
}

/// What waits to be merged, of one replica. A snapshot does not, in whatever level: to merge it would copy the database.
#[derive(Clone, Debug, Default)]
pub struct Levels(Vec<Level>);

impl Levels {
    /// What waits in a replica that has these files; `levels` are merged. Time begins now.
    pub fn new(files: &[RemoteFile], levels: usize, now: Duration) -> Levels {
        let of_level = |level: u8| files.iter().filter(move |file| file.level == level);
        let waiting = |level: u8| {
            let merged = of_level(level + 1).map(|file| file.name.max_txid).max().unwrap_or(0);
            let mut waiting: Vec<FileName> = of_level(level)
                .map(|file| file.name)
                .filter(|name| name.max_txid > merged && !name.is_snapshot())
                .collect();
            waiting.sort();
            Level { waiting, since: now }
        };
        Levels((0..levels as u8).map(waiting).collect())
    }

    /// A file was written into a level.
    pub fn arrived(&mut self, level: u8, name: FileName, now: Duration) {
        if let Some(level) = self.0.get_mut(usize::from(level))
            && !name.is_snapshot()
        {
            if level.waiting.is_empty() {
                level.since = now;
            }
            level.waiting.push(name);
        }
    }

    /// The lowest level that has waited for its interval.
    pub fn due(&self, intervals: &[Duration], now: Duration) -> Option<u8> {
        let due = |(level, interval): (&Level, &Duration)| !level.waiting.is_empty() && now >= level.since + *interval;
        self.0.iter().zip(intervals).position(due).map(|level| level as u8)
    }

    /// What to merge first of a level: files that follow each other without a gap.
    pub fn batch(&self, level: u8) -> Vec<FileName> {
        let waiting = self.0.get(usize::from(level)).map_or(&[][..], |level| &level.waiting);
        let gap = |pair: &[FileName]| pair[1].min_txid > pair[0].max_txid.saturating_add(1);
        let end = waiting.windows(2).position(gap).map_or(waiting.len(), |at| at + 1);
        waiting[..end].to_vec()
    }

    /// A batch of a level is merged, and its file is in the store.
    pub fn merged(&mut self, level: u8, batch: &[FileName], now: Duration) {
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else { return };
        if let Some(level) = self.0.get_mut(usize::from(level)) {
            level.waiting.retain(|name| name.max_txid > last.max_txid);
            level.since = now;
        }
        self.arrived(level + 1, FileName { min_txid: first.min_txid, max_txid: last.max_txid }, now);
    }
    /// A batch of a level cannot be merged: it stays as it is.
    pub fn given_up(&mut self, level: u8, batch: &[FileName]) {
        let Some(last) = batch.last() else { return };
        if let Some(level) = self.0.get_mut(usize::from(level)) {
            level.waiting.retain(|name| name.max_txid > last.max_txid);
        }
    }
}

type Input = Decoder<BufReader<Box<dyn Read + Send>>>;

fn decoder(reader: Box<dyn Read + Send>) -> Result<Input, ltx::Error> {
    Decoder::new(BufReader::with_capacity(READ_BYTES, reader))
}

/// Why files were not merged.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// One of them is damaged or gone: trying again does not help.
    #[error("{0}")]
    Damaged(String),
    /// A file that was written here is another writer's now.
    #[error("another process has replaced {0}")]
    Replaced(String),
    /// The store failed or refused, and nothing is known of the files.
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for MergeError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound(key) => Self::Damaged(format!("there is no object {key}")),
            error => Self::Store(error),
        }
    }
}

impl From<std::io::Error> for MergeError {
    fn from(error: std::io::Error) -> Self {
        Self::Store(error.into())
    }
}

/// Merges files of one level that follow each other. Every checksum of what is read is compared before this returns.
///
/// Memory: [`FAN_IN`] pages and buffers, and the index of the pages. `is_as_sent` is asked of each file: a writer that knows of no condition, as
/// Litestream, replaces what is there.
///
/// # Errors
/// A file that is damaged, gone or replaced, or a store that fails. Nothing was written into the store.
pub fn merge_files(
    replica: &Replica,
    level: u8,
    batch: &[FileName],
    arena: &Arc<Arena>,
    is_as_sent: impl Fn(&Header) -> bool,
) -> Result<LtxFile, MergeError> {
    let transient = |text: String| MergeError::Store(StoreError::Transient(text));
    let damaged = |key: &str, error: ltx::Error| match error {
        ltx::Error::Read(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => {
            transient(format!("{key}: {error}"))
        }
        ltx::Error::Write(error) => transient(format!("cannot stage a merged file: {error}")),
        error => MergeError::Damaged(format!("{key}: {error}")),
    };
    let merge = |inputs: Vec<Input>| -> Result<LtxFile, ltx::Error> {
        let (mut content, header, checksum) = ltx::merge(inputs, arena.stage())?;
        content.flush().map_err(ltx::Error::Write)?;
        Ok(LtxFile { content, header, checksum })
    };
    let mut merged: Vec<LtxFile> = Vec::new();
    for names in batch.chunks(FAN_IN) {
        let mut inputs = Vec::new();
        for name in names {
            let key = replica.key(level, *name);
            let input = decoder(replica.open(level, *name)?).map_err(|error| damaged(&key, error))?;
            if !is_as_sent(input.header()) {
                return Err(MergeError::Replaced(key));
            }
            inputs.push(input);
        }
        let keys = || match names {
            [one] => replica.key(level, *one),
            [first, .., last] => format!("{} to {last}", replica.key(level, *first)),
            [] => String::new(),
        };
        merged.push(merge(inputs).map_err(|error| damaged(&keys(), error))?);
    }
    let here = |error| damaged("a staged file", error);
    while merged.len() > 1 {
        let mut next = Vec::new();
        let mut rest = merged.into_iter().peekable();
        while rest.peek().is_some() {
            let mut inputs = Vec::new();
            for mut file in rest.by_ref().take(FAN_IN) {
                file.content.seek(SeekFrom::Start(0))?;
                inputs.push(decoder(Box::new(file.content)).map_err(here)?);
            }
            next.push(merge(inputs).map_err(here)?);
        }
        merged = next;
    }
    merged.pop().ok_or_else(|| MergeError::Damaged("there is nothing to merge".into()))
}
