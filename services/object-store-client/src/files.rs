//! Objects as files below a folder. A file appears whole and synced, by a link.

use crate::{Attributes, Body, Object, Part, Store, StoreError};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tempfile::NamedTempFile;

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

/// Makes a folder and those above it; the name of each is durable.
fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.as_os_str().is_empty() {
        return Ok(());
    }
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => {}
        Err(_) if folder.is_dir() => return Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let above = folder.parent().ok_or(error)?;
            make_folder(above)?;
            // Somebody else may have made it meanwhile.
            return make_folder(folder);
        }
        Err(error) => return Err(error),
    }
    let above = folder.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    sync_folder(above)
}

/// Makes the names in a folder durable.
fn sync_folder(folder: &Path) -> io::Result<()> {
    #[cfg(test)]
    tests::SYNCED.with(|synced| synced.borrow_mut().push(folder.to_owned()));
    File::open(folder)?.sync_all()
}

/// A file beside `path` that becomes it, under one name for all who write it: whoever lists the folder, by us or otherwise, knows by that name that
/// it is no object yet, and what a process that was killed left there goes with the next try.
fn temporary(folder: &Path, path: &Path) -> io::Result<NamedTempFile> {
    let busy = || io::Error::new(ErrorKind::WouldBlock, "another process is writing it");
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    let mut left = name.clone();
    left.push(".tmp");
    let left = folder.join(left);
    match File::open(&left) {
        Ok(file) if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) => return Err(busy()),
        Ok(file) if lies_at(&file, &left) => fs::remove_file(&left)?,
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let file = match tempfile::Builder::new().prefix(&name).suffix(".tmp").rand_bytes(0).tempfile_in(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(busy()),
        result => result?,
    };
    // Before it was locked somebody may have taken it for one that was left: what has its name next is not ours.
    if matches!(file.as_file().try_lock(), Err(TryLockError::WouldBlock)) || !lies_at(file.as_file(), file.path()) {
        let _ = file.keep();
        return Err(busy());
    }
    Ok(file)
}

/// Whether a file is the one that lies at a path.
fn lies_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let ours = file.metadata().map(identity);
    ours.is_ok_and(|ours| fs::symlink_metadata(path).map(identity).is_ok_and(|there| there == ours))
}

impl FileStore {
    /// Nothing is made before the first object.
    pub fn new(root: PathBuf) -> FileStore {
        FileStore { root }
    }

    fn write(folder: &Path, path: &Path, body: &mut dyn Body, length: u64, attributes: &Attributes) -> io::Result<()> {
        make_folder(folder)?;
        let mut file = temporary(folder, path)?;
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
        let placed = file.persist_noclobber(path);
        // Also where it has been there: whoever put it there may have died before this.
        sync_folder(folder)?;
        placed.map(drop).map_err(|error| error.error)
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

    fn settle(&self, prefix: &str) -> Result<(), StoreError> {
        let settle = |folder: &Path| match sync_folder(folder) {
            Err(failure) if failure.kind() == ErrorKind::NotFound => Ok(()),
            result => result.map_err(|failure| error(folder, &failure)),
        };
        let below = self.list_after(prefix, "")?;
        let mut folders: BTreeSet<PathBuf> = BTreeSet::new();
        for key in below.iter().map(|object| object.key.as_str()).chain([prefix]) {
            let folder = self.root.join(key.rsplit_once('/').map_or("", |(folder, _)| folder));
            // Its own name lies in the one above.
            let above = folder.ancestors().take_while(|folder| folder.starts_with(&self.root));
            folders.extend(above.map(Path::to_owned));
        }
        folders.extend(self.root.parent().filter(|above| !above.as_os_str().is_empty()).map(Path::to_owned));
        folders.iter().try_for_each(|folder| settle(folder))
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        let path = self.root.join(key);
        match fs::remove_file(&path) {
            Err(failure) if failure.kind() != ErrorKind::NotFound => Err(error(&path, &failure)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    thread_local! {
        pub static SYNCED: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
    }

    #[test]
    fn what_a_process_put_there_that_died_before_it_was_durable_becomes_so() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("store");
        let place = root.join("a/b");
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("first"), "1").unwrap();
        let store = FileStore::new(root.clone());
        assert!(matches!(create(&store, "a/b/first", b"1"), Err(StoreError::AlreadyExists(_))));
        assert_eq!(SYNCED.take(), std::slice::from_ref(&place), "who finds it there may call it durable");
        store.settle("a/").unwrap();
        assert_eq!(SYNCED.take(), [folder.path().to_owned(), root.clone(), root.join("a"), place]);
        FileStore::new(folder.path().join("none")).settle("a/").unwrap();
    }

    fn create(store: &FileStore, key: &str, content: &[u8]) -> Result<(), StoreError> {
        store.create(key, &mut io::Cursor::new(content), content.len() as u64, &Attributes::default())
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_a_killed_upload_left_goes_with_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::new(folder.path().join("store"));
        create(&store, "a/b/first", b"1").unwrap();
        let place = folder.path().join("store/a/b");
        fs::write(place.join(".second.tmp"), "half of it").unwrap();
        create(&store, "a/b/second", b"2").unwrap();
        assert_eq!(names(&place), ["first", "second"]);
        assert!(matches!(create(&store, "a/b/second", b"3"), Err(StoreError::AlreadyExists(_))));
        assert_eq!(names(&place), ["first", "second"]);
    }

    #[test]
    fn an_upload_that_is_under_way_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::new(folder.path().to_owned());
        let other = File::create(folder.path().join(".key.tmp")).unwrap();
        other.lock().unwrap();
        let error = create(&store, "key", b"1").unwrap_err();
        assert!(error.is_transient() && error.to_string().contains("another process is writing it"), "{error}");
        assert_eq!((names(folder.path()), store.list("").unwrap()), (vec![".key.tmp".to_owned()], vec![]));
        drop(other);
        create(&store, "key", b"1").unwrap();
        assert_eq!(names(folder.path()), ["key"]);
    }
}
