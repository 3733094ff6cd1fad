//! One database's files in a store, laid out as Litestream lays them out: levels, and names of transaction IDs.

use crate::source::Staged;
use crate::store::{Object, Store, StoreError, retry};
use ltx::{Decoder, FileName, HEADER_SIZE, Header};
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;

/// Tries of one request, where somebody waits for the answer.
const TRIES: u32 = 5;

/// One file of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteFile {
    /// 0 to 9.
    pub level: u8,
    /// Its transaction IDs.
    pub name: FileName,
    /// Bytes.
    pub size: u64,
}

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
pub enum PutError {
    /// Another writer has written this transaction ID: it owns the replica now.
    #[error("{0} was written by somebody else: another process replicates into this place")]
    Fenced(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A place in a store.
#[derive(Clone)]
pub struct Replica {
    store: Arc<dyn Store>,
    prefix: String,
}

impl Replica {
    /// The replica below `prefix`, which neither begins nor ends with a slash and may be empty.
    pub fn new(store: Arc<dyn Store>, prefix: &str) -> Replica {
        let prefix = prefix.trim_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Replica { store, prefix }
    }

    /// The key of a file.
    pub fn key(&self, level: u8, name: FileName) -> String {
        let prefix = &self.prefix;
        if self.store.has_file_layout() {
            format!("{prefix}ltx/{level}/{name}")
        } else {
            format!("{prefix}{level:04x}/{name}")
        }
    }

    /// The file that a key names. Other objects below the prefix are nobody's.
    fn parse(&self, object: &Object) -> Option<RemoteFile> {
        let rest = object.key.strip_prefix(&self.prefix)?;
        let (level, name) = if self.store.has_file_layout() {
            let (level, name) = rest.strip_prefix("ltx/")?.split_once('/')?;
            (level.parse().ok()?, name)
        } else {
            let (level, name) = rest.split_once('/')?;
            (u8::from_str_radix(level, 16).ok().filter(|_| level.len() == 4)?, name)
        };
        Some(RemoteFile { level, name: name.parse().ok()?, size: object.size }).filter(|_| level <= ltx::SNAPSHOT_LEVEL)
    }

    /// All files, ordered by level and transaction ID.
    pub fn files(&self) -> Result<Vec<RemoteFile>, StoreError> {
        let objects = retry(TRIES, || self.store.list(&self.prefix))?;
        let mut files: Vec<RemoteFile> = objects.iter().filter_map(|object| self.parse(object)).collect();
        files.sort_by_key(|file| (file.level, file.name));
        Ok(files)
    }

    /// A file's header, by a read of 100 bytes.
    pub fn header(&self, file: &RemoteFile) -> Result<Header, StoreError> {
        let key = self.key(file.level, file.name);
        let bytes = retry(TRIES, || {
            let mut bytes = [0; HEADER_SIZE];
            self.store.get(&key, Some(0..HEADER_SIZE as u64))?.read_exact(&mut bytes)?;
            Ok(bytes)
        })?;
        let header = Header::decode(&bytes).map_err(|error| StoreError::Permanent(format!("{key}: {error}")))?;
        if (header.min_txid, header.max_txid) != (file.name.min_txid, file.name.max_txid) {
            return Err(StoreError::Permanent(format!("{key}: its header names other transaction IDs than its name")));
        }
        Ok(header)
    }

    /// Begins to read a file.
    pub fn open(&self, file: &RemoteFile) -> Result<Box<dyn Read + Send>, StoreError> {
        self.store.get(&self.key(file.level, file.name), None)
    }

    /// Reads a file to its end, and gives every page to `page` before the checksum is compared.
    pub fn read(
        &self,
        file: &RemoteFile,
        mut page: impl FnMut(&Header, u32, &[u8]) -> std::io::Result<()>,
    ) -> Result<(Header, u64), StoreError> {
        let key = self.key(file.level, file.name);
        let damaged = |error: ltx::Error| match error {
            ltx::Error::Read(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => {
                StoreError::Transient(format!("{key}: {error}"))
            }
            error => StoreError::Permanent(format!("{key}: {error}")),
        };
        let reader = std::io::BufReader::with_capacity(65_536, self.open(file)?);
        let mut decoder = Decoder::new(reader).map_err(damaged)?;
        let header = decoder.header().clone();
        if (header.min_txid, header.max_txid) != (file.name.min_txid, file.name.max_txid) {
            return Err(StoreError::Permanent(format!("{key}: its header names other transaction IDs than its name")));
        }
        let mut buffer = vec![0; header.page_size as usize];
        while let Some(number) = decoder.page(&mut buffer).map_err(damaged)? {
            page(&header, number, &buffer)
                .map_err(|error| StoreError::Permanent(format!("cannot write what was read: {error}")))?;
        }
        let (header, trailer) = decoder.finish().map_err(damaged)?;
        Ok((header, trailer.file_checksum))
    }

    /// Writes a file once. An object of that name is accepted where it is this very file (an answer was lost).
    pub fn put(&self, level: u8, staged: &mut Staged) -> Result<u64, PutError> {
        let name = FileName { min_txid: staged.header.min_txid, max_txid: staged.header.max_txid };
        let key = self.key(level, name);
        let content = &mut staged.staging.content;
        let length = content.seek(SeekFrom::End(0)).map_err(StoreError::from)?;
        match self.store.create(&key, content, length, staged.header.timestamp_millis) {
            Err(StoreError::AlreadyExists(_)) => {
                let mut end = Vec::new();
                self.store.get(&key, Some(length - 8..length + 1))?.read_to_end(&mut end).map_err(StoreError::from)?;
                if end == staged.checksum.to_be_bytes() { Ok(length) } else { Err(PutError::Fenced(key)) }
            }
            result => Ok(result.map(|()| length)?),
        }
    }
}
