//! Snapshots in files. A snapshot that has its name is whole and safe; one that is on its way is called `incoming`, and a crash
//! leaves what has come of it.
//!
//! | offset | bytes | field | |
//! | --- | --- | --- | --- |
//! | 0 | 16 | magic | `storebench-snap1` |
//! | 16 | 4 | length | of the description |
//! | 20 | 4 | checksum | CRC-32C of the description |
//! | 24 | length | description | index, term, time, membership, size, chunk size, checksum of all |
//! | then | | chunks | each: CRC-32C of snapshot, number and data (4), data |
//!
//! A chunk that has not come is zeros, which is not a valid chunk: the checksum covers its number.

use std::io::{self, Write};

use wal::files::{Directory, File};

use super::chunks::{ChunkReader, ChunkWriter, chunk_checksum, chunk_offset, damaged, failed, with_checksum};
use super::chunks_job::ChunksJob;
use super::files_job::{Done, FilesJob, FilesJobDone, Work};
use super::{SnapshotId, SnapshotMeta};
use crate::bugs::{Bug, Planted};

pub(super) const INCOMING: &str = "incoming";
pub(super) const NEW: &str = "new";
const MAGIC: &[u8; 16] = b"storebench-snap1";
/// In front of the description.
const HEAD_FRONT_BYTES: usize = 24;

/// A snapshot on its way.
pub(super) struct Incoming<F> {
    pub(super) meta: SnapshotMeta,
    pub(super) file: F,
    /// Where the first chunk begins.
    pub(super) start: u64,
    pub(super) has: Vec<bool>,
}

/// The directory of snapshots.
pub(crate) struct Store<D: Directory> {
    directory: D,
    planted: Planted,
    incoming: Option<Incoming<D::File>>,
}

/// Whether the disk is full, and another time will do.
pub(crate) fn is_without_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Writes a snapshot of what `view` writes, whole and safe when this returns; one at a time in a directory. `meta` lacks what that
/// decides, and comes back with it.
pub(crate) fn make(
    directory: &impl Directory,
    meta: SnapshotMeta,
    view: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<SnapshotMeta> {
    // What a full disk has taken of it must not keep the disk full.
    let meta = make_new(directory, meta, view).inspect_err(|_| drop(directory.remove(NEW)))?;
    directory.rename(NEW, &name(&meta.id()))?;
    directory.sync()?;
    Ok(meta)
}

fn make_new(
    directory: &impl Directory,
    meta: SnapshotMeta,
    view: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<SnapshotMeta> {
    // Not as large as it will be: large files of zeros would be written twice.
    let file = directory.create_zeroed(NEW, 0)?;
    let mut writer = ChunkWriter::new(&file, meta);
    view(&mut writer)?;
    let meta = writer.finish()?;
    file.sync_data()?;
    Ok(meta)
}

impl<D: Directory> Store<D> {
    pub(crate) fn open(directory: D, planted: Planted) -> Self {
        Self { directory, planted, incoming: None }
    }

    /// The directory that snapshots are written to.
    pub(crate) fn directory(&self) -> &D {
        &self.directory
    }

    /// The bytes of a snapshot, which are checked while they are read.
    pub(crate) fn load(&self, meta: &SnapshotMeta) -> io::Result<ChunkReader<D::File>> {
        read(&self.directory, meta, self.planted.has(Bug::HalfSnapshot))
    }

    /// To read chunks of a snapshot that is here, for another member.
    pub(crate) fn read_chunks(&self, to: u64, meta: SnapshotMeta, chunks: Vec<u32>) -> ChunksJob<D> {
        let unchecked = self.planted.has(Bug::HalfSnapshot);
        ChunksJob { directory: self.directory.clone(), to, meta, chunks, unchecked }
    }

    /// Whether this snapshot is here, whole and safe.
    pub(crate) fn has(&self, id: &SnapshotId) -> io::Result<bool> {
        let is_here = self.directory.names()?.contains(&name(id));
        if is_here {
            // Who renamed it may not have lived to make the name safe.
            self.directory.sync()?;
        }
        Ok(is_here)
    }

    /// Begins to receive a snapshot, or goes on with it; `None`: it has begun.
    pub(crate) fn begin(&mut self, meta: &SnapshotMeta) -> Option<FilesJob<D>> {
        if self.incoming.as_ref().is_some_and(|incoming| incoming.meta == *meta) {
            return None;
        }
        self.incoming = None;
        Some(self.job(Work::Begin(meta.clone())))
    }

    fn job(&self, work: Work<D::File>) -> FilesJob<D> {
        FilesJob { directory: self.directory.clone(), work, unchecked: self.planted.has(Bug::HalfSnapshot) }
    }

    /// What [`Store::begin`] or [`Store::finish`] wanted done is done. The snapshot that is here now, whole and safe, if one is.
    pub(crate) fn job_done(&mut self, done: FilesJobDone<D>) -> io::Result<Option<SnapshotMeta>> {
        Ok(match done.0? {
            Done::Begun(incoming) => {
                self.incoming = Some(incoming);
                None
            }
            Done::Whole(meta) => Some(meta),
            Done::Refused(meta) => {
                let (snapshot, bytes) = (name(&meta.id()), meta.bytes);
                tracing::warn!(
                    %snapshot,
                    bytes,
                    "a snapshot that another member sent is not what it was said to be, or was not kept as it came: it is thrown away \
                     and fetched anew"
                );
                None
            }
        })
    }

    /// The first chunks that are missing.
    pub(crate) fn missing(&self, id: &SnapshotId, max: usize) -> Vec<u32> {
        let Some(incoming) = self.incoming.as_ref().filter(|incoming| incoming.meta.id() == *id) else {
            return Vec::new();
        };
        let missing = incoming.has.iter().enumerate().filter(|(_, has)| !**has);
        missing.map(|(chunk, _)| chunk as u32).take(max).collect()
    }

    /// Keeps a chunk, if it is one that is missing and as it should be. Says whether it did.
    pub(crate) fn keep(&mut self, id: &SnapshotId, chunk: u32, checksum: u32, data: &[u8]) -> io::Result<bool> {
        let Some(incoming) = self.incoming.as_mut().filter(|incoming| incoming.meta.id() == *id) else {
            return Ok(false);
        };
        let meta = &incoming.meta;
        let is_missing = incoming.has.get(chunk as usize) == Some(&false);
        if !is_missing || data.len() != meta.chunk_len(chunk) || checksum != chunk_checksum(id, chunk, data) {
            return Ok(false);
        }
        let content = with_checksum(id, chunk, data);
        let offset = chunk_offset(meta, incoming.start, chunk);
        incoming.file.write_at(&content, offset).map_err(|error| failed(INCOMING, &error))?;
        incoming.has[chunk as usize] = true;
        let is_last = chunk as usize + 1 == incoming.has.len();
        if is_last && self.planted.has(Bug::HalfSnapshot) {
            incoming.has.fill(true);
        }
        Ok(true)
    }

    /// When nothing is missing any more: checks all of it, makes it safe and gives it its name. What is not what was offered is
    /// thrown away.
    pub(crate) fn finish(&mut self, id: &SnapshotId) -> Option<FilesJob<D>> {
        let incoming = self.incoming.take_if(|incoming| incoming.meta.id() == *id)?;
        Some(self.job(Work::Finish(incoming)))
    }

    /// Removes every whole snapshot that is older than this one, which the log relies on.
    pub(crate) fn prune(&mut self, settled: &SnapshotId) -> io::Result<()> {
        let settled = name(settled);
        for name in self.directory.names()? {
            if name.starts_with(PREFIX) && name < settled {
                self.directory.remove(&name).map_err(|error| failed(&name, &error))?;
            }
        }
        Ok(())
    }
}

const PREFIX: &str = "snapshot-";

/// The snapshot's file name; names sort as indexes do.
pub(super) fn name(id: &SnapshotId) -> String {
    format!("{PREFIX}{:020}-{:020}-{:08x}", id.index, id.term, id.checksum)
}

pub(super) fn head(meta: &SnapshotMeta) -> Vec<u8> {
    let mut description = Vec::new();
    meta.encode(&mut description);
    let mut head = MAGIC.to_vec();
    head.extend_from_slice(&(description.len() as u32).to_le_bytes());
    head.extend_from_slice(&crc32c::crc32c(&description).to_le_bytes());
    head.append(&mut description);
    head
}

/// The description and where it ends, if it is one.
pub(super) fn read_head(file: &impl File) -> io::Result<Option<(SnapshotMeta, u64)>> {
    let front = file.read_first(HEAD_FRONT_BYTES)?;
    let length = front.strip_prefix(MAGIC).and_then(|rest| rest.first_chunk::<4>());
    let Some(length) = length.map(|length| u32::from_le_bytes(*length) as usize) else { return Ok(None) };
    let content = file.read_first(HEAD_FRONT_BYTES.saturating_add(length))?;
    Ok(parse_head(&content))
}

fn parse_head(content: &[u8]) -> Option<(SnapshotMeta, u64)> {
    let rest = content.strip_prefix(MAGIC)?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (checksum, rest) = rest.split_first_chunk::<4>()?;
    let description = rest.get(..u32::from_le_bytes(*length) as usize)?;
    if crc32c::crc32c(description) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let meta = SnapshotMeta::parse(description).ok()?;
    Some((meta, (HEAD_FRONT_BYTES + description.len()) as u64))
}

/// The file of a snapshot, and where its first chunk begins.
pub(super) fn open<D: Directory>(directory: &D, meta: &SnapshotMeta) -> io::Result<(D::File, u64)> {
    let id = meta.id();
    let unread = |error: io::Error| failed(&name(&id), &error);
    let file = directory.open(&name(&id)).map_err(unread)?;
    let (written, start) = read_head(&file).map_err(unread)?.ok_or_else(|| damaged(&id, "its description"))?;
    if written != *meta {
        return Err(damaged(&id, "its description is another's"));
    }
    Ok((file, start))
}

/// The bytes of a snapshot. `unchecked` is for the planted error only.
fn read<D: Directory>(directory: &D, meta: &SnapshotMeta, unchecked: bool) -> io::Result<ChunkReader<D::File>> {
    let (file, start) = open(directory, meta)?;
    Ok(ChunkReader::new(file, meta.clone(), start, unchecked))
}

/// The bytes of a snapshot, which are checked while they are read.
pub(crate) fn load<D: Directory>(directory: &D, meta: &SnapshotMeta) -> io::Result<ChunkReader<D::File>> {
    read(directory, meta, false)
}
