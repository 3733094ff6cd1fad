//! A user's file, opened once for all of the process.
//!
//! Locks of a process (POSIX) go as soon as *any* descriptor of the file is closed within it. SQLite's connections hold such locks, so that
//! whoever reads beside them must not open the same file again and close it: all share one description, which outlives them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Device and inode.
pub(crate) type Identity = (u64, u64);

struct Opened {
    identity: Identity,
    file: File,
    /// Opened for a path at which this file had just been put: not to be closed before this one.
    others: Mutex<Vec<File>>,
}

static OPENED: Mutex<BTreeMap<Identity, Weak<Opened>>> = Mutex::new(BTreeMap::new());

fn opened() -> MutexGuard<'static, BTreeMap<Identity, Weak<Opened>>> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that is open for reading until its last descriptor is dropped.
pub struct Descriptor(Option<Arc<Opened>>);

pub(crate) fn identity(metadata: &std::fs::Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// What is said of a file that this user may not read: which it is, and who he is. Of other errors whoever asked says that.
pub(crate) fn told(path: &Path, error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return error;
    }
    let (path, user, group) = (path.display(), rustix::process::geteuid(), rustix::process::getegid());
    let (user, group) = (user.as_raw(), group.as_raw());
    let remedy = "let it read the database with its -wal and -shm, and enter their folder";
    io::Error::new(error.kind(), format!("{path}: {error}; walsync runs as user {user} of group {group}: {remedy}"))
}

/// Opens a file that can be waited for neither now nor when it is read: no named pipe, no device.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let file =
        File::options().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path).map_err(|error| told(path, error))?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::other(format!("{} is no regular file: remove it, or leave the database out", path.display())))
}

impl Descriptor {
    /// Opens the file at `path`; `None` where there is none.
    pub fn open(path: &Path) -> io::Result<Option<Descriptor>> {
        let absent = |error: io::Error| if error.kind() == io::ErrorKind::NotFound { Ok(None) } else { Err(error) };
        let mut opened = opened();
        let metadata = match std::fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) => return absent(told(path, error)),
        };
        if let Some(before) = opened.get(&identity(&metadata)).and_then(Weak::upgrade) {
            return Ok(Some(Descriptor(Some(before))));
        }
        let file = match open_regular(path) {
            Ok(file) => file,
            Err(error) => return absent(error),
        };
        let identity = identity(&file.metadata()?);
        // Between the two looks another file may have come to this path, one that is open already.
        if let Some(before) = opened.get(&identity).and_then(Weak::upgrade) {
            before.others.lock().unwrap_or_else(PoisonError::into_inner).push(file);
            return Ok(Some(Descriptor(Some(before))));
        }
        let new = Arc::new(Opened { identity, file, others: Mutex::default() });
        opened.insert(identity, Arc::downgrade(&new));
        Ok(Some(Descriptor(Some(new))))
    }

    /// The same file once more.
    pub fn share(&self) -> Descriptor {
        Descriptor(self.0.clone())
    }
}

impl Deref for Descriptor {
    type Target = File;

    fn deref(&self) -> &File {
        match &self.0 {
            Some(opened) => &opened.file,
            // Only while it is dropped.
            None => unreachable!("a descriptor is used after its end"),
        }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // It is closed under the lock: whoever opens the file next gets its locks afterwards.
        let mut opened = opened();
        if let Some(last) = self.0.take().and_then(Arc::into_inner) {
            opened.remove(&last.identity);
            drop(last);
        }
    }
}
