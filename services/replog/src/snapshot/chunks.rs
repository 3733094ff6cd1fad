//! A snapshot's bytes on their way into a file and out of it, chunk by chunk: no more than a piece of it is in memory.

use std::io::{self, Read, Write};

use wal::files::File;

use super::store::{head, name};
use super::{SnapshotId, SnapshotMeta};

const CHECKSUM_BYTES: usize = 4;
/// What is written to a file at once, about.
const PIECE_BYTES: usize = 1 << 20;

/// Writes chunks behind the room for the head. What their checksums and the head say is known only at the end: it is filled in then.
pub(super) struct ChunkWriter<'a, F> {
    file: &'a F,
    meta: SnapshotMeta,
    start: u64,
    /// Not written yet, and where that belongs.
    pending: Vec<u8>,
    offset: u64,
    /// CRC-32C of the chunks' data, and how many bytes the last one has.
    checksums: Vec<u32>,
    last_bytes: usize,
}

impl<'a, F: File> ChunkWriter<'a, F> {
    /// `meta` lacks what the bytes decide.
    pub(super) fn new(file: &'a F, meta: SnapshotMeta) -> Self {
        let start = head(&meta).len() as u64;
        let mut writer =
            Self { file, meta, start, pending: Vec::new(), offset: start, checksums: Vec::new(), last_bytes: 0 };
        // Every snapshot has one.
        writer.begin();
        writer
    }

    fn begin(&mut self) {
        self.pending.extend_from_slice(&[0; CHECKSUM_BYTES]);
        self.checksums.push(0);
        self.last_bytes = 0;
    }

    fn write_pending(&mut self) -> io::Result<()> {
        self.file.write_at(&self.pending, self.offset)?;
        self.offset += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Fills in what is known now, which comes back.
    pub(super) fn finish(mut self) -> io::Result<SnapshotMeta> {
        self.write_pending()?;
        let chunk_bytes = self.meta.chunk_bytes as usize;
        let before_last = (self.checksums.len() - 1) * chunk_bytes;
        let meta = SnapshotMeta {
            bytes: (before_last + self.last_bytes) as u64,
            checksum: {
                let (last, whole) = self.checksums.split_last().unwrap_or((&0, &[]));
                let all = whole.iter().fold(0, |all, chunk| crc32c::crc32c_combine(all, *chunk, chunk_bytes));
                crc32c::crc32c_combine(all, *last, self.last_bytes)
            },
            ..self.meta
        };
        for (chunk, checksum) in (0..).zip(&self.checksums) {
            let place = crc32c::crc32c(&place(&meta.id(), chunk));
            let checksum = crc32c::crc32c_combine(place, *checksum, meta.chunk_len(chunk));
            self.file.write_at(&checksum.to_le_bytes(), chunk_offset(&meta, self.start, chunk))?;
        }
        self.file.write_at(&head(&meta), 0)?;
        Ok(meta)
    }
}

impl<F: File> Write for ChunkWriter<'_, F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let chunk_bytes = self.meta.chunk_bytes.max(1) as usize;
        if self.last_bytes == chunk_bytes && !bytes.is_empty() {
            if self.pending.len() >= PIECE_BYTES {
                self.write_pending()?;
            }
            self.begin();
        }
        let taken = &bytes[..bytes.len().min(chunk_bytes - self.last_bytes)];
        self.pending.extend_from_slice(taken);
        self.last_bytes += taken.len();
        if let Some(checksum) = self.checksums.last_mut() {
            *checksum = crc32c::crc32c_append(*checksum, taken);
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads the bytes of a snapshot. Each chunk is checked before any of it is given, and all of them before the last one is.
pub(crate) struct ChunkReader<F> {
    file: F,
    meta: SnapshotMeta,
    start: u64,
    next: u32,
    chunk: Vec<u8>,
    taken: usize,
    /// Of all chunks so far.
    checksum: u32,
    /// For the planted error only.
    unchecked: bool,
}

impl<F: File> ChunkReader<F> {
    pub(super) fn new(file: F, meta: SnapshotMeta, start: u64, unchecked: bool) -> Self {
        Self { file, meta, start, next: 0, chunk: Vec::new(), taken: 0, checksum: 0, unchecked }
    }

    fn read_next(&mut self) -> io::Result<()> {
        self.chunk = read_chunk(&self.file, &self.meta, self.start, self.next, self.unchecked)?;
        self.taken = 0;
        self.next += 1;
        self.checksum = crc32c::crc32c_append(self.checksum, &self.chunk);
        if self.next == self.meta.chunks() && self.checksum != self.meta.checksum && !self.unchecked {
            return Err(damaged(&self.meta.id(), "the checksum of all"));
        }
        Ok(())
    }
}

impl<F: File> Read for ChunkReader<F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.chunk.len() && self.next < self.meta.chunks() {
            self.read_next()?;
        }
        let rest = &self.chunk[self.taken..];
        let bytes = rest.len().min(into.len());
        into[..bytes].copy_from_slice(&rest[..bytes]);
        self.taken += bytes;
        Ok(bytes)
    }
}

/// The data of a chunk in a file. `unchecked` is for the planted error only.
pub(super) fn read_chunk(
    file: &impl File,
    meta: &SnapshotMeta,
    start: u64,
    chunk: u32,
    unchecked: bool,
) -> io::Result<Vec<u8>> {
    let mut checksum = [0; CHECKSUM_BYTES];
    let offset = chunk_offset(meta, start, chunk);
    let id = meta.id();
    let as_damaged = || damaged(&id, &format!("chunk {chunk}"));
    let ends = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => as_damaged(),
        _ => failed(&name(&id), &error),
    };
    file.read_at(&mut checksum, offset).map_err(ends)?;
    let mut data = vec![0; meta.chunk_len(chunk)];
    file.read_at(&mut data, offset + CHECKSUM_BYTES as u64).map_err(ends)?;
    let is_valid = u32::from_le_bytes(checksum) == chunk_checksum(&id, chunk, &data);
    if is_valid || unchecked { Ok(data) } else { Err(as_damaged()) }
}

/// A chunk as it stands in a file.
pub(super) fn with_checksum(id: &SnapshotId, chunk: u32, data: &[u8]) -> Vec<u8> {
    let mut content = chunk_checksum(id, chunk, data).to_le_bytes().to_vec();
    content.extend_from_slice(data);
    content
}

pub(super) fn chunk_offset(meta: &SnapshotMeta, start: u64, chunk: u32) -> u64 {
    start + u64::from(chunk) * (u64::from(meta.chunk_bytes) + CHECKSUM_BYTES as u64)
}

pub(super) fn chunk_checksum(id: &SnapshotId, chunk: u32, data: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&place(id, chunk)), data)
}

/// Which chunk of which snapshot.
fn place(id: &SnapshotId, chunk: u32) -> [u8; 24] {
    let mut place = [0; 24];
    place[..8].copy_from_slice(&id.index.to_le_bytes());
    place[8..16].copy_from_slice(&id.term.to_le_bytes());
    place[16..20].copy_from_slice(&id.checksum.to_le_bytes());
    place[20..].copy_from_slice(&chunk.to_le_bytes());
    place
}

/// What to do about a snapshot that is not there as it was written.
const REMEDY: &str = "restore the member's directory, or replace the member by a new one";

/// A snapshot is not what was written.
pub(super) fn damaged(id: &SnapshotId, what: &str) -> io::Error {
    let told = format!("{}: the snapshot is damaged: {what}; {REMEDY}", name(id));
    io::Error::new(io::ErrorKind::InvalidData, told)
}

/// A file of snapshots cannot be read or written.
pub(super) fn failed(name: &str, error: &io::Error) -> io::Error {
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => REMEDY,
        _ => "correct the cause and start the member again",
    };
    io::Error::new(error.kind(), format!("{name}: {error}; {remedy}"))
}
