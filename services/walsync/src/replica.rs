//! One database's files in a store, laid out as Litestream lays them out: levels, and names of transaction IDs.

use crate::arena::Staging;
use crate::fetch::{Fetch, ReadAhead, Wanted};
use crate::store::{Attributes, Object, Store, StoreError, retry};
use ltx::{Decoder, FileName, HEADER_SIZE, Header, Layout, TIMESTAMP_METADATA};
use std::collections::BTreeSet;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

/// Tries of one request, where somebody waits for the answer.
pub(crate) const TRIES: u32 = 5;
/// Tries to read one file to its end.
pub(crate) const READ_TRIES: u32 = 3;

/// One file of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteFile {
    /// 0 to 9.
    pub level: u8,
    /// Its transaction IDs.
    pub name: FileName,
    /// Bytes.
    pub size: u64,
    /// When its last transaction was committed, as far as the store's listing tells: in S3 that is when it was written.
    pub modified_millis: i64,
}

/// A file that is made, and not in the store yet.
pub struct LtxFile {
    /// The content.
    pub content: Staging,
    /// Its header.
    pub header: Header,
    /// Its checksum.
    pub checksum: u64,
}

impl LtxFile {
    /// What it is called.
    pub fn name(&self) -> FileName {
        self.header.name()
    }
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
    layout: Layout,
    prefix: String,
    read_ahead: ReadAhead,
}

impl Replica {
    /// The replica below `prefix`, which neither begins nor ends with a slash and may be empty.
    pub fn new(store: Arc<dyn Store>, layout: Layout, prefix: &str) -> Replica {
        let prefix = prefix.trim_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Replica { store, layout, prefix, read_ahead: ReadAhead::default() }
    }

    /// The same, of which a restore fetches so much ahead.
    pub fn reading_ahead(self, read_ahead: ReadAhead) -> Replica {
        Replica { read_ahead, ..self }
    }

    /// The key of a file.
    pub fn key(&self, level: u8, name: FileName) -> String {
        format!("{}{}", self.prefix, self.layout.key(level, name))
    }

    /// The file that a key names. Other objects below the prefix are nobody's.
    fn parse(&self, object: &Object) -> Option<RemoteFile> {
        let (level, name) = self.layout.parse(object.key.strip_prefix(&self.prefix)?)?;
        Some(RemoteFile { level, name, size: object.size, modified_millis: object.modified_millis })
    }

    /// All files, ordered by level and transaction ID.
    pub fn files(&self) -> Result<Vec<RemoteFile>, StoreError> {
        let objects = retry(TRIES, || self.store.list(&self.prefix))?;
        let mut files: Vec<RemoteFile> = objects.iter().filter_map(|object| self.parse(object)).collect();
        files.sort_by_key(|file| (file.level, file.name));
        Ok(files)
    }

    /// Files of a level behind one of them, in order.
    pub fn files_after(&self, level: u8, after: Option<FileName>) -> Result<Vec<RemoteFile>, StoreError> {
        let prefix = format!("{}{}", self.prefix, self.layout.level(level));
        let after = after.map_or_else(String::new, |name| self.key(level, name));
        let objects = retry(TRIES, || self.store.list_after(&prefix, &after))?;
        Ok(objects.iter().filter_map(|object| self.parse(object)).collect())
    }

    /// Makes what is listed durable: a writer that was killed may have left what is there and not durable yet.
    pub fn settle(&self) -> Result<(), StoreError> {
        retry(TRIES, || self.store.settle(&self.prefix))
    }

    /// Names of replicas below this place: what who named a folder of replicas may have meant.
    pub fn names_below(&self) -> Result<BTreeSet<String>, StoreError> {
        let objects = retry(TRIES, || self.store.list(&self.prefix))?;
        let name = |object: &Object| {
            let key = object.key.strip_prefix(&self.prefix)?;
            let mut ends = key.match_indices('/').map(|(end, _)| end);
            ends.find(|end| self.layout.parse(&key[end + 1..]).is_some()).map(|end| key[..end].to_owned())
        };
        Ok(objects.iter().filter_map(name).collect())
    }

    /// A file's header, by a read of 100 bytes.
    pub fn header(&self, file: &RemoteFile) -> Result<Header, StoreError> {
        let key = self.key(file.level, file.name);
        if file.size < HEADER_SIZE as u64 {
            return Err(StoreError::Damaged(format!("{key}: has {} bytes, and a header {HEADER_SIZE}", file.size)));
        }
        let bytes = retry(TRIES, || {
            let mut bytes = [0; HEADER_SIZE];
            self.store.get(&key, Some(0..HEADER_SIZE as u64))?.read_exact(&mut bytes)?;
            Ok(bytes)
        })?;
        let header = Header::decode(&bytes).map_err(|error| StoreError::Damaged(format!("{key}: {error}")))?;
        self.refuse_another(file, &header)?;
        Ok(header)
    }

    /// A file whose header is that of another one.
    fn refuse_another(&self, file: &RemoteFile, header: &Header) -> Result<(), StoreError> {
        if header.name() == file.name {
            return Ok(());
        }
        let key = self.key(file.level, file.name);
        Err(StoreError::Damaged(format!("{key}: its header names other transaction IDs than its name")))
    }

    /// Begins to read a file.
    pub fn open(&self, level: u8, name: FileName) -> Result<Box<dyn Read + Send>, StoreError> {
        self.store.get(&self.key(level, name), None)
    }

    /// Begins to fetch files, which are then to be read in this order by [`Replica::decode`].
    pub(crate) fn fetch(&self, files: &[RemoteFile]) -> io::Result<Fetch> {
        let wanted = |file: &RemoteFile| Wanted { key: self.key(file.level, file.name), bytes: file.size };
        Fetch::start(self.store.clone(), files.iter().map(wanted).collect(), self.read_ahead)
    }

    /// Reads a file to its end, and gives every page to `page` before the checksum is compared.
    pub fn read(
        &self,
        file: &RemoteFile,
        page: impl FnMut(&Header, u32, &[u8]) -> io::Result<()>,
    ) -> Result<(Header, u64), StoreError> {
        let reader = io::BufReader::with_capacity(65_536, self.open(file.level, file.name)?);
        self.decode(file, reader, page)
    }

    /// The same, where somebody has opened the file already.
    pub(crate) fn decode(
        &self,
        file: &RemoteFile,
        reader: impl Read,
        mut page: impl FnMut(&Header, u32, &[u8]) -> io::Result<()>,
    ) -> Result<(Header, u64), StoreError> {
        let key = self.key(file.level, file.name);
        let damaged = |error: ltx::Error| match error {
            ltx::Error::Read(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                error.downcast().unwrap_or_else(|error| StoreError::Transient(format!("{key}: {error}")))
            }
            error => StoreError::Damaged(format!("{key}: {error}")),
        };
        let mut decoder = Decoder::new(reader).map_err(damaged)?;
        let header = decoder.header().clone();
        self.refuse_another(file, &header)?;
        let mut buffer = vec![0; header.page_size as usize];
        while let Some(number) = decoder.page(&mut buffer).map_err(damaged)? {
            page(&header, number, &buffer)
                .map_err(|error| StoreError::Permanent(format!("cannot write what was read: {error}")))?;
        }
        let (header, trailer) = decoder.finish().map_err(damaged)?;
        Ok((header, trailer.file_checksum))
    }

    /// Removes a file; one that is gone already is no error.
    pub fn remove(&self, file: &RemoteFile) -> Result<(), StoreError> {
        self.remove_all(std::slice::from_ref(file))
    }

    /// Removes files, in few requests where the store knows how.
    pub fn remove_all(&self, files: &[RemoteFile]) -> Result<(), StoreError> {
        let keys: Vec<String> = files.iter().map(|file| self.key(file.level, file.name)).collect();
        retry(TRIES, || self.store.delete_all(&keys))
    }

    /// Writes a file once. An object of that name is accepted where it is this very file (an answer was lost).
    pub fn put(&self, level: u8, file: &mut LtxFile) -> Result<u64, PutError> {
        let key = self.key(level, file.name());
        let modified_millis = file.header.timestamp_millis;
        let time = jiff::Timestamp::from_millisecond(modified_millis).ok();
        let metadata: Vec<_> = time.iter().map(|time| (TIMESTAMP_METADATA, time.to_string())).collect();
        let content = &mut file.content;
        let length = content.seek(SeekFrom::End(0)).map_err(StoreError::from)?;
        match self.store.create(&key, content, length, &Attributes { modified_millis, metadata: &metadata }) {
            Err(StoreError::AlreadyExists(_)) => {
                // Ours ends with this checksum, and there: what ends elsewhere is somebody else's.
                let part = match self.store.get_part(&key, length - 8..length, None) {
                    Ok(part) if part.object_bytes == length => part,
                    Ok(_) | Err(StoreError::Changed(_)) => return Err(PutError::Fenced(key)),
                    Err(error) => return Err(error.into()),
                };
                let mut end = [0; 8];
                part.body.take(8).read_exact(&mut end).map_err(StoreError::from)?;
                if end == file.checksum.to_be_bytes() { Ok(length) } else { Err(PutError::Fenced(key)) }
            }
            result => Ok(result.map(|()| length)?),
        }
    }
}
