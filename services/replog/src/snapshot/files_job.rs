//! What takes long with the file of a snapshot that comes from elsewhere, for another thread: to make room for all of it, to see what of
//! it has come before a crash, and to check it when it is whole.

use std::fmt;
use std::io;

use wal::files::{Directory, File};

use super::SnapshotMeta;
use super::chunks::{ChunkReader, chunk_offset, failed, read_chunk, with_checksum};
use super::store::{INCOMING, Incoming, head, name, read_head};

/// Work for another thread. What comes of it must come back: see [`crate::ReplicatedLog::files_job_done`].
pub struct FilesJob<D: Directory> {
    pub(super) directory: D,
    pub(super) work: Work<D::File>,
    /// For the planted error only.
    pub(super) unchecked: bool,
}

pub(super) enum Work<F> {
    /// Begin to receive it, or go on with it.
    Begin(SnapshotMeta),
    /// Nothing is missing any more: check all of it, make it safe and give it its name.
    Finish(Incoming<F>),
}

/// What came of it.
pub struct FilesJobDone<D: Directory>(pub(super) io::Result<Done<D::File>>);

pub(super) enum Done<F> {
    Begun(Incoming<F>),
    /// It is here, whole and safe.
    Whole(SnapshotMeta),
    /// It was not what was offered, and was thrown away.
    Refused(SnapshotMeta),
}

impl<D: Directory> FilesJob<D> {
    /// Takes as long as the disk does.
    pub fn run(self) -> FilesJobDone<D> {
        let Self { directory, work, unchecked } = self;
        FilesJobDone(match work {
            Work::Begin(meta) => begin(&directory, meta).map(Done::Begun).map_err(|error| failed(INCOMING, &error)),
            Work::Finish(incoming) => finish(&directory, incoming, unchecked),
        })
    }
}

impl<D: Directory> fmt::Debug for FilesJob<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FilesJob").finish_non_exhaustive()
    }
}

fn begin<D: Directory>(directory: &D, meta: SnapshotMeta) -> io::Result<Incoming<D::File>> {
    let chunks = meta.chunks();
    if directory.names()?.iter().any(|name| name == INCOMING) {
        let file = directory.open(INCOMING)?;
        if let Some((written, start)) = read_head(&file)?
            && written == meta
        {
            // Who wrote it may have been killed, or its sync may have failed: only what is written again is sure to be
            // written by the next sync.
            file.write_at(&head(&meta), 0)?;
            let mut has = Vec::with_capacity(chunks as usize);
            for chunk in 0..chunks {
                let data = read_chunk(&file, &meta, start, chunk, false);
                if let Ok(data) = &data {
                    file.write_at(&with_checksum(&meta.id(), chunk, data), chunk_offset(&meta, start, chunk))?;
                }
                has.push(data.is_ok());
            }
            return Ok(Incoming { meta, file, start, has });
        }
    }
    let head = head(&meta);
    let size = head.len() as u64 + meta.bytes + 4 * u64::from(chunks);
    let file = directory.create_zeroed(INCOMING, size)?;
    file.write_at(&head, 0)?;
    let has = vec![false; chunks as usize];
    Ok(Incoming { meta, file, start: head.len() as u64, has })
}

fn finish<D: Directory>(directory: &D, incoming: Incoming<D::File>, unchecked: bool) -> io::Result<Done<D::File>> {
    let Incoming { meta, file, start, .. } = incoming;
    let of_incoming = |error: io::Error| failed(INCOMING, &error);
    file.sync_data().map_err(of_incoming)?;
    let mut reader = ChunkReader::new(file, meta.clone(), start, unchecked);
    if let Err(error) = io::copy(&mut reader, &mut io::sink()) {
        if error.kind() != io::ErrorKind::InvalidData {
            return Err(error);
        }
        directory.remove(INCOMING).map_err(of_incoming)?;
        return Ok(Done::Refused(meta));
    }
    directory.rename(INCOMING, &name(&meta.id())).map_err(of_incoming)?;
    directory.sync().map_err(of_incoming)?;
    Ok(Done::Whole(meta))
}
