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

use std::io;

use bytes::Bytes;
use wal::files::{Directory, File};

use super::{SnapshotId, SnapshotMeta};
use crate::bugs::{Bug, Planted};

const INCOMING: &str = "incoming";
const NEW: &str = "new";
const MAGIC: &[u8; 16] = b"storebench-snap1";

/// A snapshot on its way.
struct Incoming<F> {
    meta: SnapshotMeta,
    file: F,
    /// Where the first chunk begins.
    start: usize,
    has: Vec<bool>,
}

/// The directory of snapshots.
pub(crate) struct Store<D: Directory> {
    directory: D,
    planted: Planted,
    incoming: Option<Incoming<D::File>>,
    /// One that will be asked for again: it is being sent, or it has just come.
    loaded: Option<(SnapshotMeta, Bytes)>,
}

/// What is written to a file at once, about.
const PIECE_BYTES: usize = 1 << 20;

/// Writes a snapshot, whole and safe when this returns; one at a time in a directory. `meta` describes `bytes`.
pub(crate) fn write(directory: &impl Directory, meta: &SnapshotMeta, bytes: &Bytes) -> io::Result<()> {
    // What a full disk has taken of it must not keep the disk full.
    write_new(directory, meta, bytes).inspect_err(|_| drop(directory.remove(NEW)))?;
    directory.rename(NEW, &name(&meta.id()))?;
    directory.sync()
}

/// Piece by piece: the state is in memory twice already, and large files of zeros would be written twice.
fn write_new(directory: &impl Directory, meta: &SnapshotMeta, bytes: &Bytes) -> io::Result<()> {
    let file = directory.create_zeroed(NEW, 0)?;
    let (mut pending, mut offset) = (head(meta), 0);
    for chunk in 0..meta.chunks() {
        let data = piece(meta, bytes, chunk);
        pending.extend_from_slice(&chunk_checksum(&meta.id(), chunk, data).to_le_bytes());
        pending.extend_from_slice(data);
        if pending.len() >= PIECE_BYTES {
            file.write_at(&pending, offset)?;
            offset += pending.len() as u64;
            pending.clear();
        }
    }
    file.write_at(&pending, offset)?;
    file.sync_data()
}

/// The bytes of a snapshot, checked. `unchecked` is for the planted error only.
fn read(directory: &impl Directory, meta: &SnapshotMeta, unchecked: bool) -> io::Result<Bytes> {
    let content = directory.open(&name(&meta.id()))?.read()?;
    let (written, start) = parse_head(&content).ok_or_else(|| damaged("its description"))?;
    if written != *meta {
        return Err(damaged("its description is another's"));
    }
    assemble(meta, &content, start, unchecked)
}

/// The bytes of a snapshot, checked.
pub(crate) fn load(directory: &impl Directory, meta: &SnapshotMeta) -> io::Result<Bytes> {
    read(directory, meta, false)
}

impl<D: Directory> Store<D> {
    pub(crate) fn open(directory: D, planted: Planted) -> Self {
        Self { directory, planted, incoming: None, loaded: None }
    }

    /// Where it writes.
    pub(crate) fn directory(&self) -> &D {
        &self.directory
    }

    /// The bytes of a snapshot, checked.
    pub(crate) fn load(&self, meta: &SnapshotMeta) -> io::Result<Bytes> {
        if let Some((loaded, bytes)) = &self.loaded
            && loaded.id() == meta.id()
        {
            return Ok(bytes.clone());
        }
        read(&self.directory, meta, self.planted.has(Bug::HalfSnapshot))
    }

    /// Forgets the bytes that it keeps: whoever needs them reads them again.
    pub(crate) fn forget(&mut self) {
        self.loaded = None;
    }

    /// One chunk with its checksum, unless that snapshot is no longer here.
    pub(crate) fn chunk(&mut self, meta: &SnapshotMeta, chunk: u32) -> Option<(u32, Bytes)> {
        let bytes = self.load(meta).ok()?;
        if self.loaded.as_ref().is_none_or(|(loaded, _)| loaded.id() != meta.id()) {
            // More of it will be asked for.
            self.loaded = Some((meta.clone(), bytes.clone()));
        }
        let data = piece(meta, &bytes, chunk);
        Some((chunk_checksum(&meta.id(), chunk, data), bytes.slice_ref(data)))
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

    /// Begins to receive a snapshot, or goes on with it.
    pub(crate) fn begin(&mut self, meta: &SnapshotMeta) -> io::Result<()> {
        if self.incoming.as_ref().is_some_and(|incoming| incoming.meta == *meta) {
            return Ok(());
        }
        self.incoming = None;
        let chunks = meta.chunks();
        if self.directory.names()?.iter().any(|name| name == INCOMING) {
            let file = self.directory.open(INCOMING)?;
            let content = file.read()?;
            if let Some((written, start)) = parse_head(&content)
                && written == *meta
            {
                // Who wrote it may have been killed, or its sync may have failed: only what is written again is sure to be
                // written by the next sync.
                file.write_at(&content, 0)?;
                let has = (0..chunks).map(|chunk| chunk_in(meta, &content, start, chunk, false).is_some()).collect();
                self.incoming = Some(Incoming { meta: meta.clone(), file, start, has });
                return Ok(());
            }
        }
        let head = head(meta);
        let size = head.len() as u64 + meta.bytes + 4 * u64::from(chunks);
        let file = self.directory.create_zeroed(INCOMING, size)?;
        file.write_at(&head, 0)?;
        let has = vec![false; chunks as usize];
        self.incoming = Some(Incoming { meta: meta.clone(), file, start: head.len(), has });
        Ok(())
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
        let mut content = checksum.to_le_bytes().to_vec();
        content.extend_from_slice(data);
        incoming.file.write_at(&content, chunk_offset(meta, incoming.start, chunk) as u64)?;
        incoming.has[chunk as usize] = true;
        let is_last = chunk as usize + 1 == incoming.has.len();
        if is_last && self.planted.has(Bug::HalfSnapshot) {
            incoming.has.fill(true);
        }
        Ok(true)
    }

    /// When nothing is missing any more: checks all of it, makes it safe and gives it its name. `false`: it was not what was
    /// offered, and was thrown away.
    pub(crate) fn finish(&mut self, id: &SnapshotId) -> io::Result<bool> {
        let Some(incoming) = self.incoming.take_if(|incoming| incoming.meta.id() == *id) else { return Ok(false) };
        let meta = incoming.meta;
        incoming.file.sync_data()?;
        let content = incoming.file.read()?;
        let Ok(bytes) = assemble(&meta, &content, incoming.start, self.planted.has(Bug::HalfSnapshot)) else {
            self.directory.remove(INCOMING)?;
            return Ok(false);
        };
        self.directory.rename(INCOMING, &name(id))?;
        self.directory.sync()?;
        // It will be installed next.
        self.loaded = Some((meta, bytes));
        Ok(true)
    }

    /// Removes every whole snapshot that is older than this one, which the log relies on.
    pub(crate) fn prune(&mut self, settled: &SnapshotId) -> io::Result<()> {
        self.loaded.take_if(|(loaded, _)| loaded.id() != *settled);
        let settled = name(settled);
        for name in self.directory.names()? {
            if name.starts_with(PREFIX) && name < settled {
                self.directory.remove(&name)?;
            }
        }
        Ok(())
    }
}

const PREFIX: &str = "snapshot-";

/// Sorts by index.
fn name(id: &SnapshotId) -> String {
    format!("{PREFIX}{:020}-{:020}-{:08x}", id.index, id.term, id.checksum)
}

fn head(meta: &SnapshotMeta) -> Vec<u8> {
    let mut description = Vec::new();
    meta.encode(&mut description);
    let mut head = MAGIC.to_vec();
    head.extend_from_slice(&(description.len() as u32).to_le_bytes());
    head.extend_from_slice(&crc32c::crc32c(&description).to_le_bytes());
    head.append(&mut description);
    head
}

/// The description and where it ends.
fn parse_head(content: &[u8]) -> Option<(SnapshotMeta, usize)> {
    let rest = content.strip_prefix(MAGIC)?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (checksum, rest) = rest.split_first_chunk::<4>()?;
    let description = rest.get(..u32::from_le_bytes(*length) as usize)?;
    if crc32c::crc32c(description) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let meta = SnapshotMeta::parse(description).ok()?;
    Some((meta, MAGIC.len() + 8 + description.len()))
}

fn chunk_offset(meta: &SnapshotMeta, start: usize, chunk: u32) -> usize {
    start + chunk as usize * (meta.chunk_bytes as usize + 4)
}

/// All bytes of a snapshot in a file, each chunk and all of them checked. `unchecked` is for the planted error only.
fn assemble(meta: &SnapshotMeta, content: &[u8], start: usize, unchecked: bool) -> io::Result<Bytes> {
    let mut bytes = Vec::with_capacity(meta.bytes as usize);
    for chunk in 0..meta.chunks() {
        let data = chunk_in(meta, content, start, chunk, unchecked);
        bytes.extend_from_slice(data.ok_or_else(|| damaged(&format!("chunk {chunk}")))?);
    }
    if crc32c::crc32c(&bytes) != meta.checksum && !unchecked {
        return Err(damaged("the checksum of all"));
    }
    Ok(bytes.into())
}

/// The data of a chunk in a file, if it is there. `unchecked` is for the planted error only.
fn chunk_in<'a>(meta: &SnapshotMeta, content: &'a [u8], start: usize, chunk: u32, unchecked: bool) -> Option<&'a [u8]> {
    let offset = chunk_offset(meta, start, chunk);
    let (checksum, rest) = content.get(offset..)?.split_first_chunk::<4>()?;
    let data = rest.get(..meta.chunk_len(chunk))?;
    let is_valid = u32::from_le_bytes(*checksum) == chunk_checksum(&meta.id(), chunk, data);
    (is_valid || unchecked).then_some(data)
}

fn piece<'a>(meta: &SnapshotMeta, bytes: &'a [u8], chunk: u32) -> &'a [u8] {
    let start = (chunk as usize * meta.chunk_bytes as usize).min(bytes.len());
    &bytes[start..(start + meta.chunk_len(chunk)).min(bytes.len())]
}

pub(super) fn chunk_checksum(id: &SnapshotId, chunk: u32, data: &[u8]) -> u32 {
    let mut place = [0; 24];
    place[..8].copy_from_slice(&id.index.to_le_bytes());
    place[8..16].copy_from_slice(&id.term.to_le_bytes());
    place[16..20].copy_from_slice(&id.checksum.to_le_bytes());
    place[20..].copy_from_slice(&chunk.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&place), data)
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a snapshot is damaged: {what}"))
}
