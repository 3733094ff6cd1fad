//! The file that a restore makes: beside its place until it is whole, and written in runs of pages.

use super::RestoreError;
use crate::threads;
use service_kit::directory::above;
use std::ffi::OsString;
use std::fs::{File, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::Scope;
use std::time::Duration;
use tempfile::NamedTempFile;

/// Bytes of a run of pages at most.
const RUN_BYTES: usize = 1 << 20;
/// Runs in memory at most: one that is filled, and those that are written.
const RUNS: usize = 4;
/// Between the syncs of a file that is written.
const SYNC_INTERVAL: Duration = Duration::from_millis(200);

/// Bytes of a file's name at most, as file systems have it.
const NAME_BYTES_MAX: usize = 255;

/// What the name of an output begins with until it is whole.
const SCRATCH_PREFIX: &str = ".walsync-restore-";

/// Whether a file of this name is an output that is not whole yet, or was abandoned.
pub fn is_scratch(name: &str) -> bool {
    name.starts_with(SCRATCH_PREFIX)
}

/// What an output is called until it is whole: the same for all who restore to it.
fn scratch_name(output: &Path) -> io::Result<OsString> {
    let name = output.file_name().ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "it has no name of a file"))?;
    let mut scratch = OsString::from(SCRATCH_PREFIX);
    if scratch.len() + name.len() <= NAME_BYTES_MAX {
        scratch.push(name);
    } else {
        // What tells it from others is enough.
        scratch.push(format!("{:016x}", ltx::page_checksum(1, name.as_bytes())));
    }
    Ok(scratch)
}

/// Whether a file is the one that lies at a path.
fn lies_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    let ours = file.metadata().map(identity);
    ours.is_ok_and(|ours| std::fs::symlink_metadata(path).map(identity).is_ok_and(|there| there == ours))
}

/// Makes the file that is to become `output`, beside it and locked: it goes with its owner, but for one that is killed. What such a one left
/// behind is removed first.
///
/// # Errors
/// [`RestoreError::Busy`]: another process is restoring to this place.
pub(crate) fn scratch(output: &Path) -> Result<NamedTempFile, RestoreError> {
    let failed = |error: io::Error| RestoreError::Output(output.to_owned(), error);
    remove_abandoned(output)?;
    let name = scratch_name(output).map_err(failed)?;
    // As a database has that an application makes, and as Litestream has it: what the umask leaves of it.
    let permissions = Permissions::from_mode(0o666);
    let made = tempfile::Builder::new().prefix(&name).rand_bytes(0).permissions(permissions).tempfile_in(above(output));
    let file = match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(RestoreError::Busy(output.to_owned())),
        result => result.map_err(failed)?,
    };
    let lock = file.as_file().try_lock();
    own(file, lock, output)
}

/// The file that was just made, if it is ours, as what came of locking it tells. Where the file system has no locks, it is: nobody could make
/// another one of this name.
fn own(file: NamedTempFile, lock: Result<(), TryLockError>, output: &Path) -> Result<NamedTempFile, RestoreError> {
    if matches!(lock, Err(TryLockError::WouldBlock)) || !lies_at(file.as_file(), file.path()) {
        // Somebody took it for abandoned before it was locked, and removes it or has: what has its name next is not ours.
        let _ = file.keep();
        return Err(RestoreError::Busy(output.to_owned()));
    }
    Ok(file)
}

/// Removes what a restore to `output` that was killed left behind; nothing is no error.
pub(crate) fn remove_abandoned(output: &Path) -> Result<(), RestoreError> {
    let failed = |error: io::Error| RestoreError::Output(output.to_owned(), error);
    let path: PathBuf = above(output).join(scratch_name(output).map_err(failed)?);
    // A named pipe would be waited for, for ever.
    let file = match File::options().read(true).custom_flags(nix::libc::O_NONBLOCK).open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        result => result.map_err(failed)?,
    };
    if !file.metadata().map_err(failed)?.is_file() {
        let text = format!("{} is in the way, and no file that a restore left: remove it", path.display());
        return Err(failed(io::Error::new(ErrorKind::AlreadyExists, text)));
    }
    may_remove(file.try_lock(), &path, output)?;
    // Its owner may have finished, and another begun, between the two: then it is not that file any more.
    if lies_at(&file, &path) { std::fs::remove_file(&path).map_err(failed) } else { Ok(()) }
}

/// Whether what lies at the scratch's path is abandoned, as what came of locking it tells.
fn may_remove(lock: Result<(), TryLockError>, path: &Path, output: &Path) -> Result<(), RestoreError> {
    match lock {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(RestoreError::Busy(output.to_owned())),
        Err(TryLockError::Error(error)) => {
            let path = path.display();
            let text = format!(
                "{path} is of another restore, and there are no locks here ({error}) to tell whether that is under way: remove it if it is not"
            );
            Err(RestoreError::Output(output.to_owned(), io::Error::new(error.kind(), text)))
        }
    }
}

/// Syncs a file again and again while `write` fills it, so that the disk works meanwhile, and little is left for the end.
///
/// # Errors
/// Those of a sync: the kernel tells of what it could not write once, and not again at the end.
pub(super) fn while_syncing<T>(file: &File, write: impl FnOnce() -> T) -> io::Result<T> {
    std::thread::scope(|scope| {
        let (at_work, ended) = channel::<()>();
        let syncer = threads::named("syncer").spawn_scoped(scope, move || -> io::Result<()> {
            while ended.recv_timeout(SYNC_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                file.sync_data()?;
            }
            Ok(())
        })?;
        let written = write();
        drop(at_work);
        syncer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(written)
    })
}

/// Writes pages into a file, while more of them are decoded. Those that follow each other go together.
pub(super) struct PageWriter {
    run: Vec<u8>,
    offset: u64,
    /// To the thread that writes, and back from it.
    full: SyncSender<(u64, Vec<u8>)>,
    written: Receiver<io::Result<Vec<u8>>>,
    /// Runs that are not back yet.
    under_way: usize,
}

impl PageWriter {
    /// Starts the thread, which ends with the writer.
    pub(super) fn start<'scope>(scope: &'scope Scope<'scope, '_>, file: &'scope File) -> io::Result<PageWriter> {
        let (full, to_write) = sync_channel::<(u64, Vec<u8>)>(RUNS);
        let (back, written) = sync_channel(RUNS);
        threads::named("writer").spawn_scoped(scope, move || {
            for (offset, mut run) in to_write {
                let result = file.write_all_at(&run, offset).map(|()| {
                    run.clear();
                    run
                });
                if back.send(result).is_err() {
                    break;
                }
            }
        })?;
        Ok(PageWriter { run: Vec::with_capacity(RUN_BYTES), offset: 0, full, written, under_way: 0 })
    }

    /// Writes a page at an offset, now or at the latest with [`PageWriter::flush`]. An error may be that of an earlier one.
    pub(super) fn write(&mut self, offset: u64, page: &[u8]) -> io::Result<()> {
        if offset != self.offset + self.run.len() as u64 || self.run.len() + page.len() > RUN_BYTES {
            self.send()?;
            self.offset = offset;
        }
        self.run.extend_from_slice(page);
        Ok(())
    }

    /// All pages that were given are in the file.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.send()?;
        while self.under_way > 0 {
            self.run = self.next_written()?;
        }
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        if self.run.is_empty() {
            return Ok(());
        }
        let next = match self.written.try_recv() {
            Ok(result) => {
                self.under_way -= 1;
                result?
            }
            Err(TryRecvError::Disconnected) => return Err(ended()),
            Err(TryRecvError::Empty) if self.under_way < RUNS - 1 => Vec::with_capacity(RUN_BYTES),
            Err(TryRecvError::Empty) => self.next_written()?,
        };
        let run = std::mem::replace(&mut self.run, next);
        let end = self.offset + run.len() as u64;
        self.full.send((self.offset, run)).map_err(|_| ended())?;
        self.offset = end;
        self.under_way += 1;
        Ok(())
    }

    fn next_written(&mut self) -> io::Result<Vec<u8>> {
        self.under_way -= 1;
        self.written.recv().map_err(|_| ended())?
    }
}

fn ended() -> io::Error {
    io::Error::other("the thread that writes has ended")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_lie_where_they_belong_in_whatever_order_they_come() {
        let file = tempfile::tempfile().unwrap();
        // Runs, gaps, backwards, over each other, and more than all runs take.
        let order = [0, 1, 2, 9, 10, 4, 3, 0, 1].into_iter().chain(11..3000);
        let mut expected = vec![0; 3000 * 4096];
        std::thread::scope(|scope| {
            let mut writer = PageWriter::start(scope, &file).unwrap();
            for (turn, number) in order.enumerate() {
                let page = vec![(turn % 255) as u8 + 1; 4096];
                expected[number * 4096..][..4096].copy_from_slice(&page);
                writer.write(number as u64 * 4096, &page).unwrap();
                assert!(writer.under_way < RUNS);
            }
            writer.flush().unwrap();
            assert_eq!(writer.under_way, 0);
        });
        let mut written = vec![0; expected.len()];
        file.read_exact_at(&mut written, 0).unwrap();
        assert!(written == expected);
    }

    #[test]
    fn a_file_that_takes_no_page_is_an_error_at_the_latest_when_all_are_to_be_there() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read_only = File::open(file.path()).unwrap();
        for pages in [1, 3000] {
            let result = std::thread::scope(|scope| {
                let mut writer = PageWriter::start(scope, &read_only).unwrap();
                (0..pages).try_for_each(|number| writer.write(number * 4096, &[1; 4096])).and_then(|()| writer.flush())
            });
            assert!(result.is_err(), "{pages}");
        }
    }

    #[test]
    fn what_cannot_be_synced_while_it_is_written_is_an_error() {
        let (not_a_file, _other_end) = io::pipe().unwrap();
        let not_a_file = File::from(std::os::fd::OwnedFd::from(not_a_file));
        assert_eq!(while_syncing(&not_a_file, || 1).unwrap(), 1, "done before the first");
        let written = while_syncing(&not_a_file, || std::thread::sleep(SYNC_INTERVAL * 3));
        assert_eq!(written.unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn a_named_pipe_in_the_way_is_an_error_and_nothing_to_wait_for() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("a.db");
        let pipe = folder.path().join(".walsync-restore-a.db");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || tell.send(scratch(&output).map(drop).unwrap_err().to_string()));
        let error = told.recv_timeout(Duration::from_secs(60)).expect("an answer");
        assert!(error.contains("remove it"), "{error}");
        assert!(pipe.exists());
    }

    #[test]
    fn what_a_killed_restore_left_goes_and_what_another_one_writes_stays() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("a.db");
        let left = folder.path().join(".walsync-restore-a.db");
        std::fs::write(&left, "half").unwrap();
        let first = scratch(&output).unwrap();
        assert_eq!((first.path(), std::fs::read(&left).unwrap()), (left.as_path(), Vec::new()));
        std::fs::write(&left, "ours").unwrap();
        assert!(matches!(scratch(&output), Err(RestoreError::Busy(path)) if path == output));
        assert!(matches!(remove_abandoned(&output), Err(RestoreError::Busy(_))));
        assert_eq!(std::fs::read(&left).unwrap(), b"ours");
        first.persist_noclobber(&output).unwrap();
        assert!(!left.exists());
        remove_abandoned(&output).unwrap();
        assert_eq!(std::fs::read(&output).unwrap(), b"ours", "what is whole is no leftover");
        drop(scratch(&folder.path().join("b.db")).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "an error leaves nothing");
    }

    #[test]
    fn a_name_as_long_as_names_can_be_is_restored_to_by_one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        for length in [238, 239, 250] {
            let (output, other) = (folder.path().join("n".repeat(length)), folder.path().join("m".repeat(length)));
            let first = scratch(&output).unwrap();
            assert!(matches!(scratch(&output), Err(RestoreError::Busy(path)) if path == output));
            drop((first, scratch(&other).unwrap()));
        }
    }

    #[test]
    fn a_file_that_lost_its_name_before_it_was_locked_is_given_up_and_what_has_the_name_now_stays() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("a.db");
        let made = || tempfile::Builder::new().prefix("scratch").rand_bytes(0).tempfile_in(folder.path()).unwrap();
        let ours = made();
        let path = ours.path().to_owned();
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(own(ours, Ok(()), &output), Err(RestoreError::Busy(path)) if path == output));
        let ours = made();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "theirs").unwrap();
        assert!(matches!(own(ours, Ok(()), &output), Err(RestoreError::Busy(_))));
        assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
    }

    #[test]
    fn where_there_are_no_locks_a_restore_goes_on_and_takes_nothing_for_abandoned() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("a.db");
        let no_locks = || Err(TryLockError::Error(ErrorKind::Unsupported.into()));
        let ours = tempfile::NamedTempFile::new_in(folder.path()).unwrap();
        let path = ours.path().to_owned();
        let ours = own(ours, no_locks(), &output).unwrap();
        assert!(path.exists());
        let error = may_remove(no_locks(), &path, &output).unwrap_err().to_string();
        assert!(error.contains(&format!("{} is of another restore", path.display())), "{error}");
        drop(ours);
        assert!(!path.exists());
    }
}
