//! Objects as files below a folder. A file appears whole and synced, by a link.

use crate::{Attributes, Body, Object, Part, Store, StoreError};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A store below a folder.
pub struct FileStore {
    root: PathBuf,
}

fn error(path: &Path, error: &io::Error) -> StoreError {
    let text = format!("{}: {error}", path.display());
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => StoreError::Permanent(text),
        _ => StoreError::Transient(text),
    }
}

fn modified(metadata: &fs::Metadata) -> i64 {
    let since = metadata.modified().ok().and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

impl FileStore {
    /// Nothing is made before the first object.
    pub fn new(root: PathBuf) -> FileStore {
        FileStore { root }
    }

    fn write(folder: &Path, path: &Path, body: &mut dyn Body, length: u64, attributes: &Attributes) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        // Whoever lists the folder, by us or otherwise, knows by the name that it is not one yet.
        let mut file = tempfile::Builder::new().prefix(".").suffix(".tmp").tempfile_in(folder)?;
        body.seek(SeekFrom::Start(0))?;
        let written = io::copy(&mut body.take(length), &mut file)?;
        if written != length {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "the body is shorter than announced"));
        }
        file.flush()?;
        if let Ok(millis) = u64::try_from(attributes.modified_millis) {
            file.as_file().set_modified(SystemTime::UNIX_EPOCH + Duration::from_millis(millis))?;
        }
        file.as_file().sync_all()?;
        file.persist_noclobber(path).map_err(|error| error.error)?;
        File::open(folder)?.sync_all()
    }

    fn open(&self, key: &str) -> Result<(File, PathBuf), StoreError> {
        let path = self.root.join(key);
        match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(StoreError::NotFound(key.to_owned())),
            result => result.map_err(|failure| error(&path, &failure)).map(|file| (file, path)),
        }
    }

    fn walk(&self, folder: &Path, objects: &mut Vec<Object>) -> io::Result<()> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(()),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let (entry, path) = entry.map(|entry| (entry.metadata(), entry.path()))?;
            match entry {
                Ok(metadata) if metadata.is_dir() => self.walk(&path, objects)?,
                Ok(metadata) => {
                    let name = path.strip_prefix(&self.root).ok().and_then(Path::to_str);
                    if let Some(key) = name.filter(|name| !name.ends_with(".tmp")) {
                        let size = metadata.len();
                        objects.push(Object { key: key.to_owned(), size, modified_millis: modified(&metadata) });
                    }
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Store for FileStore {
    fn create(&self, key: &str, body: &mut dyn Body, length: u64, attributes: &Attributes) -> Result<(), StoreError> {
        let path = self.root.join(key);
        let folder = path.parent().unwrap_or(&self.root);
        match Self::write(folder, &path, body, length, attributes) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(StoreError::AlreadyExists(key.to_owned())),
            result => result.map_err(|failure| error(&path, &failure)),
        }
    }

    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Box<dyn Read + Send>, StoreError> {
        let (mut file, _) = self.open(key)?;
        let range = range.unwrap_or(0..u64::MAX);
        file.seek(SeekFrom::Start(range.start))?;
        Ok(Box::new(file.take(range.end - range.start)))
    }

    fn get_part(&self, key: &str, range: Range<u64>, version: Option<&str>) -> Result<Part, StoreError> {
        let (mut file, path) = self.open(key)?;
        let metadata = file.metadata().map_err(|failure| error(&path, &failure))?;
        let (device, inode, bytes) = (metadata.dev(), metadata.ino(), metadata.len());
        let now = format!("{device}-{inode}-{}.{:09}-{bytes}", metadata.mtime(), metadata.mtime_nsec());
        if version.is_some_and(|version| version != now) || bytes <= range.start {
            return Err(StoreError::Changed(key.to_owned()));
        }
        file.seek(SeekFrom::Start(range.start))?;
        let body = Box::new(file.take(range.end - range.start));
        Ok(Part { body, object_bytes: bytes, version: Some(now) })
    }

    fn list_after(&self, prefix: &str, after: &str) -> Result<Vec<Object>, StoreError> {
        let folder = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut objects = Vec::new();
        let folder = self.root.join(folder);
        self.walk(&folder, &mut objects).map_err(|failure| error(&folder, &failure))?;
        objects.retain(|object| object.key.starts_with(prefix) && *object.key > *after);
        objects.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(objects)
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        let path = self.root.join(key);
        match fs::remove_file(&path) {
            Err(failure) if failure.kind() != ErrorKind::NotFound => Err(error(&path, &failure)),
            _ => Ok(()),
        }
    }
}
