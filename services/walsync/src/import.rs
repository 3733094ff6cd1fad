//! A replica of Litestream 0.3 becomes one of LTX files, with its history.
//!
//! ```text
//! generations/GENERATION/snapshots/INDEX.snapshot.lz4    the database file at some moment of WAL number INDEX
//! generations/GENERATION/wal/INDEX_OFFSET.wal.lz4        what came to that WAL from byte OFFSET on; numbers are hexadecimal
//! ```
//!
//! A snapshot may have pages of its WAL already, nobody knows which: it is a state only together with all of that WAL. That is TXID 1, and each
//! later piece that has a commit is the next. The oldest snapshot from which every WAL to the newest is there comes first. What is missing is
//! an error that names it; every checksum is compared: those of LZ4, and of SQLite in the WAL, to the last byte of each piece.
//!
//! What is written follows from what is read alone: an import that was broken off is run again and goes on.

use crate::arena::Arena;
use crate::replica::{LtxFile, PutError, Replica, TRIES};
use crate::source::{SourceError, page_size};
use crate::store::{Object, Store, StoreError, retry};
use crate::wal_reader::{Changes, WAL_HEADER_SIZE, WalHeader, WalPosition, read_changes, read_frame};
use ltx::{Encoder, Header, Lz4Frame, NO_CHECKSUM};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

const BUFFER_BYTES: usize = 65_536;

/// Why nothing, or not everything, was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// Nothing of 0.3 is there.
    #[error("there is no replica of Litestream 0.3 here: nothing below generations/")]
    Empty,
    /// Another generation was asked for.
    #[error("there is no generation {0}; those that are: {1}")]
    NoSuchGeneration(String, String),
    /// What is missing.
    #[error(
        "generation {0}: {1}; name another one with --generation, or restore with Litestream 0.3 what it still can"
    )]
    Hole(String, String),
    /// An object is not what Litestream writes.
    #[error("{0}: {1}")]
    Damaged(String, String),
    /// The place is taken.
    #[error("there is another replica already where this one is to go: choose a place without one")]
    Occupied,
    /// A temporary file.
    #[error("cannot write a temporary file: {0}; --staging-folder names another folder")]
    Temporary(#[from] io::Error),
    /// Staging of what is sent.
    #[error("cannot stage what is sent: {0}")]
    Stage(#[from] ltx::Error),
    /// A store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The place into which it is written.
    #[error(transparent)]
    Put(#[from] PutError),
}

/// What became of it.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The generation.
    pub generation: String,
    /// The last transaction ID; the first is 1.
    pub txid: u64,
    /// From when the first state is, and the last, Unix time in milliseconds.
    pub millis: (i64, i64),
}

/// A place in which Litestream 0.3 has written.
pub struct LegacyReplica {
    store: Arc<dyn Store>,
    prefix: String,
}

/// One unbroken history of a database.
#[derive(Default)]
struct Generation {
    snapshots: BTreeMap<u32, Object>,
    /// By number of the WAL and byte in it.
    wal: BTreeMap<u32, BTreeMap<u64, Object>>,
    newest_millis: i64,
}

impl Generation {
    /// The snapshot to begin with.
    fn first(&self, id: &str) -> Result<(u32, &Object), ImportError> {
        let hole = |what: String| ImportError::Hole(id.to_owned(), what);
        let newest = self.snapshots.last_key_value();
        let (newest, _) = newest.ok_or_else(|| hole("it has no snapshot".into()))?;
        let last = self.wal.last_key_value().map_or(*newest, |(last, _)| *last.max(newest));
        let begins = |index: &u32| self.wal.get(index).is_some_and(|pieces| pieces.contains_key(&0));
        // The newest snapshot may have come before the first byte of its WAL.
        let is_bare = |first: u32| first == last && !self.wal.contains_key(&first);
        let missing = |first: u32| (first..=last).find(|index| !begins(index) && !is_bare(first));
        let whole = self.snapshots.iter().find(|(index, _)| missing(**index).is_none());
        let missing = || missing(*newest).unwrap_or(*newest);
        whole
            .map(|(index, object)| (*index, object))
            .ok_or_else(|| hole(format!("the start of WAL {:08x} is missing", missing())))
    }
}

/// `INDEX.snapshot.lz4`, or `INDEX_OFFSET.wal.lz4`.
fn parse(name: &str) -> Option<(u32, Option<u64>)> {
    let index = |text: &str| u32::from_str_radix(text, 16).ok().filter(|_| text.len() == 8);
    if let Some(name) = name.strip_prefix("snapshots/") {
        return index(name.strip_suffix(".snapshot.lz4")?).map(|index| (index, None));
    }
    let (number, offset) = name.strip_prefix("wal/")?.strip_suffix(".wal.lz4")?.split_once('_')?;
    Some((index(number)?, Some(u64::from_str_radix(offset, 16).ok()?)))
}

impl LegacyReplica {
    /// The one at `prefix`, which has no slash at its ends and may be empty.
    pub fn new(store: Arc<dyn Store>, prefix: &str) -> LegacyReplica {
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        LegacyReplica { store, prefix }
    }

    fn generations(&self) -> Result<BTreeMap<String, Generation>, StoreError> {
        let prefix = format!("{}generations/", self.prefix);
        let mut generations: BTreeMap<String, Generation> = BTreeMap::new();
        for object in retry(TRIES, || self.store.list(&prefix))? {
            let Some((id, name)) = object.key.strip_prefix(&prefix).and_then(|key| key.split_once('/')) else {
                continue;
            };
            let Some((index, offset)) = parse(name) else { continue };
            let generation = generations.entry(id.to_owned()).or_default();
            generation.newest_millis = generation.newest_millis.max(object.modified_millis);
            match offset {
                None => generation.snapshots.insert(index, object),
                Some(offset) => generation.wal.entry(index).or_default().insert(offset, object),
            };
        }
        Ok(generations)
    }

    /// Whether anything of 0.3 is there.
    pub fn is_there(&self) -> Result<bool, StoreError> {
        self.generations().map(|generations| !generations.is_empty())
    }

    /// Appends what an object holds to a file of `length` bytes, and gives its new length.
    fn append(&self, object: &Object, file: &File, length: u64) -> Result<u64, ImportError> {
        let key = &object.key;
        let failed = |error: io::Error| match error.kind() {
            ErrorKind::InvalidData => StoreError::Damaged(format!("{key}: {error}")),
            _ => StoreError::Transient(format!("{key}: {error}")),
        };
        let written = |error: io::Error| StoreError::Permanent(format!("cannot write a temporary file: {error}"));
        let append = || {
            let reader = BufReader::with_capacity(BUFFER_BYTES, self.store.get(key, None)?);
            let mut content = Lz4Frame::new(reader).map_err(failed)?;
            let (mut at, mut buffer) = (length, vec![0; BUFFER_BYTES]);
            loop {
                let count = content.read(&mut buffer).map_err(failed)?;
                if count == 0 {
                    return Ok(at);
                }
                file.write_all_at(&buffer[..count], at).map_err(written)?;
                at += count as u64;
            }
        };
        Ok(retry(TRIES, append)?)
    }
}

/// One WAL, put together of its pieces.
struct Wal {
    file: File,
    length: u64,
    /// Behind the last commit; `None` before the header.
    end: Option<WalPosition>,
}

impl Wal {
    fn new(folder: &Path) -> io::Result<Wal> {
        Ok(Wal { file: tempfile::tempfile_in(folder)?, length: 0, end: None })
    }

    /// Adds a piece, and gives what was committed in it, all of which must hold.
    fn add(
        &mut self,
        from: &LegacyReplica,
        offset: u64,
        object: &Object,
        page_size: u32,
    ) -> Result<Changes, ImportError> {
        let damaged = |what: &str| ImportError::Damaged(object.key.clone(), what.to_owned());
        if offset != self.length {
            return Err(damaged(&format!("the piece before it is missing, or ends at byte {:08x}", self.length)));
        }
        self.length = from.append(object, &self.file, self.length)?;
        let start = match self.end {
            Some(end) => end,
            None => {
                let header = WalHeader::read(&self.file)?.ok_or_else(|| damaged("it is not the start of a WAL"))?;
                WalPosition::start(header)
            }
        };
        if start.header.page_size != page_size {
            return Err(damaged("its pages have another size than the snapshot's"));
        }
        let changes = read_changes(&self.file, start, None)?;
        if WAL_HEADER_SIZE + u64::from(changes.end.frames) * start.header.frame_size() != self.length {
            return Err(damaged("its frames do not hold up to its end, or that lies within a transaction"));
        }
        self.end = Some(changes.end);
        Ok(changes)
    }

    fn page(&self, header: &WalHeader, frame: u32, page: &mut [u8]) -> io::Result<()> {
        if read_frame(&self.file, header, frame, page)? { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
    }
}

/// What is made of it, and where it goes.
struct Import<'a> {
    from: &'a LegacyReplica,
    to: &'a Replica,
    arena: &'a Arc<Arena>,
    folder: &'a Path,
    page_size: u32,
    /// Pages of the database after the last transaction.
    size: u32,
    txid: u64,
    millis: i64,
}

impl Import<'_> {
    /// Sends the next transaction: pages with increasing numbers, and what `read` finds each of them by.
    fn send<A>(
        &mut self,
        pages: impl Iterator<Item = (u32, A)>,
        mut read: impl FnMut(A, &mut [u8]) -> io::Result<()>,
    ) -> Result<(), ImportError> {
        self.txid += 1;
        // From nobody in particular: it must be the same file when it is made again.
        let header = Header {
            flags: NO_CHECKSUM,
            page_size: self.page_size,
            commit: self.size,
            min_txid: self.txid,
            max_txid: self.txid,
            timestamp_millis: self.millis,
            ..Header::default()
        };
        let mut encoder = Encoder::new(self.arena.stage(), header.clone())?;
        let mut page = vec![0; self.page_size as usize];
        for (number, at) in pages {
            read(at, &mut page)?;
            encoder.page(number, &page)?;
        }
        let (mut content, checksum) = encoder.finish()?;
        content.flush()?;
        self.to.put(0, &mut LtxFile { content, header, checksum })?;
        Ok(())
    }

    /// Takes over the size after a piece, which may be no larger than it can be.
    fn grow(&mut self, object: &Object, changes: &Changes) -> Result<(), ImportError> {
        if !changes.can_follow(self.size) {
            let what = format!("it says that the database has {} pages, which cannot be", changes.size);
            return Err(ImportError::Damaged(object.key.clone(), what));
        }
        self.size = changes.size;
        Ok(())
    }

    /// The first state: a snapshot, and all of its WAL over it.
    fn begin(&mut self, snapshot: &Object, pieces: &BTreeMap<u64, Object>) -> Result<(), ImportError> {
        let damaged = |what: String| ImportError::Damaged(snapshot.key.clone(), what);
        let database = tempfile::tempfile_in(self.folder)?;
        let length = self.from.append(snapshot, &database, 0)?;
        self.page_size = page_size(&database).map_err(|error| match error {
            SourceError::Io(error) => ImportError::Temporary(error),
            error => damaged(error.to_string()),
        })?;
        let bytes = u64::from(self.page_size);
        self.size = u32::try_from(length / bytes)
            .ok()
            .filter(|_| length % bytes == 0)
            .ok_or_else(|| damaged("it ends within a page".into()))?;
        self.millis = snapshot.modified_millis;
        let mut wal = Wal::new(self.folder)?;
        let mut page = vec![0; self.page_size as usize];
        for (offset, object) in pieces {
            let changes = wal.add(self.from, *offset, object, self.page_size)?;
            self.millis = self.millis.max(object.modified_millis);
            if changes.commits == 0 {
                continue;
            }
            // Before anything is written: what lies at an impossible place would fail by that, or take the disk.
            self.grow(object, &changes)?;
            for (number, frame) in &changes.pages {
                wal.page(&changes.end.header, *frame, &mut page)?;
                database.write_all_at(&page, u64::from(number - 1) * bytes)?;
            }
            database.set_len(u64::from(changes.size) * bytes)?;
        }
        let lock_page = ltx::lock_page(self.page_size);
        let pages = (1..=self.size).filter(|number| *number != lock_page);
        self.send(pages.map(|number| (number, u64::from(number - 1) * bytes)), |at, page| {
            database.read_exact_at(page, at)
        })
    }

    /// What came with one WAL, a transaction for each piece.
    fn go_on(&mut self, pieces: &BTreeMap<u64, Object>) -> Result<(), ImportError> {
        let mut wal = Wal::new(self.folder)?;
        for (offset, object) in pieces {
            let changes = wal.add(self.from, *offset, object, self.page_size)?;
            self.millis = self.millis.max(object.modified_millis);
            if changes.commits == 0 {
                continue;
            }
            let before = self.size;
            self.grow(object, &changes)?;
            self.send(changes.pages_with_growth(before), |frame, page| match frame {
                Some(frame) => wal.page(&changes.end.header, frame, page),
                // Nobody reads it; what restores wants it.
                None => {
                    page.fill(0);
                    Ok(())
                }
            })?;
        }
        Ok(())
    }
}

/// Imports a generation, by default the one that was written last, into a place without a replica. `folder` has room for the database and a WAL.
pub fn import(
    from: &LegacyReplica,
    generation: Option<&str>,
    to: &Replica,
    arena: &Arc<Arena>,
    folder: &Path,
) -> Result<Imported, ImportError> {
    let generations = from.generations()?;
    let newest = generations.iter().max_by_key(|(_, generation)| generation.newest_millis);
    let (id, chosen) = match generation {
        None => newest.ok_or(ImportError::Empty)?,
        Some(id) => generations.get_key_value(id).ok_or_else(|| {
            let known = generations.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            ImportError::NoSuchGeneration(id.to_owned(), if known.is_empty() { "none".into() } else { known })
        })?,
    };
    let (first, snapshot) = chosen.first(id)?;
    let after = || chosen.wal.range(first + 1..).map(|(_, pieces)| pieces);
    // One of ours that was broken off has not more than this one.
    let most = 1 + after().map(BTreeMap::len).sum::<usize>() as u64;
    if to
        .files()?
        .iter()
        .any(|file| file.level > 0 || file.name.min_txid != file.name.max_txid || file.name.max_txid > most)
    {
        return Err(ImportError::Occupied);
    }
    let mut import = Import { from, to, arena, folder, page_size: 0, size: 0, txid: 0, millis: 0 };
    let occupied = |error| match error {
        ImportError::Put(PutError::Fenced(_)) => ImportError::Occupied,
        error => error,
    };
    import.begin(snapshot, chosen.wal.get(&first).unwrap_or(&BTreeMap::new())).map_err(occupied)?;
    let began = import.millis;
    for pieces in after() {
        import.go_on(pieces).map_err(occupied)?;
    }
    Ok(Imported { generation: id.clone(), txid: import.txid, millis: (began, import.millis) })
}
