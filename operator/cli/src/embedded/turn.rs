//! One measurement at a time on a machine: whoever begins while another storebench measures waits for it, and says for whom.
//!
//! The lock is the kernel's, on a file in the temporary directory, and ends with the process that holds it, however that ends; what
//! stands in the file only tells others who it is.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use storebench_crds::line::short_line;

use super::interrupt;
use super::progress::Progress;

/// Between two attempts to get the lock.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// Bytes of the file that are looked at.
const HOLDER_BYTES_MAX: u64 = 200;
/// The file must be one, not a link that somebody left for us.
const NO_FOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits() as i32;

/// The right to measure, until dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _lock: File,
}

/// What to do where another storebench measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfTaken {
    /// Wait until it is done.
    Wait,
    /// Fail, and name it.
    Refuse,
}

impl Turn {
    /// Takes the turn of this machine for a run. `None`: a signal asked for the end while it was waited for.
    pub(crate) fn take(run: &str, if_taken: IfTaken, progress: &Progress) -> anyhow::Result<Option<Self>> {
        Self::take_at(&path(), run, if_taken, |line| progress.waits_for_turn(line), interrupt::requested)
    }

    fn take_at(
        path: &Path,
        run: &str,
        if_taken: IfTaken,
        mut tell: impl FnMut(&str),
        is_interrupted: impl Fn() -> bool,
    ) -> anyhow::Result<Option<Self>> {
        let said = || format!("{}: the lock of this machine", path.display());
        let (mut file, is_ours) = open(path)
            .map_err(|error| anyhow!("{} cannot be opened: {error}: name another folder with TMPDIR", said()))?;
        let mut told = String::new();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => return Err(error).with_context(said),
                Err(TryLockError::WouldBlock) => {}
            }
            let holder = holder(&mut file);
            if if_taken == IfTaken::Refuse {
                bail!(
                    "{run}: {holder} measures on this machine, and two would disturb each other: wait for it, or leave out --no-wait"
                );
            }
            if told != holder {
                tell(&holder);
                told = holder;
            }
            if is_interrupted() {
                return Ok(None);
            }
            std::thread::sleep(RETRY_INTERVAL);
        }
        if is_ours {
            // A file that cannot be written keeps nobody from measuring: others just see no name.
            let _ = write_holder(&mut file, run);
        }
        Ok(Some(Self { _lock: file }))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let _ = self._lock.set_len(0);
    }
}

fn path() -> PathBuf {
    std::env::temp_dir().join("storebench.lock")
}

/// The file, and whether it can be written: one that another user made can be locked, not written. It is never removed, since whoever
/// waits has it open.
fn open(path: &Path) -> io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(NO_FOLLOW);
    match options.open(path) {
        Ok(file) => Ok((file, true)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let file = options.create(true).truncate(false).mode(0o666).open(path)?;
            // Whatever the mask of this user: others wait, too.
            let _ = file.set_permissions(std::fs::Permissions::from_mode(0o666));
            Ok((file, true))
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Ok((OpenOptions::new().read(true).custom_flags(NO_FOLLOW).open(path)?, false))
        }
        Err(error) => Err(error),
    }
}

fn write_holder(file: &mut File, run: &str) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(format!("run {run} (pid {})\n", std::process::id()).as_bytes())
}

/// Who measures, as the file tells; it may have been written by anybody.
fn holder(file: &mut File) -> String {
    let mut text = Vec::new();
    let read = file.rewind().and_then(|()| file.take(HOLDER_BYTES_MAX).read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    match text.trim() {
        "" => "another storebench".into(),
        _ if read.is_err() => "another storebench".into(),
        said => format!("another storebench, {},", short_line(said, HOLDER_BYTES_MAX as usize)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(path: &Path, run: &str, if_taken: IfTaken) -> anyhow::Result<Option<Turn>> {
        Turn::take_at(path, run, if_taken, |_| {}, || false)
    }

    #[test]
    fn the_second_is_refused_with_the_name_of_the_first_or_waits_for_its_end() {
        let folder = harness::folder();
        let path = folder.path().join("lock");
        let first = take(&path, "nightly", IfTaken::Refuse).unwrap().unwrap();
        let refused = take(&path, "mine", IfTaken::Refuse).unwrap_err().to_string();
        let id = std::process::id();
        assert!(
            refused.starts_with(&format!("mine: another storebench, run nightly (pid {id}), measures")),
            "{refused}"
        );
        let mut said = Vec::new();
        let waiting = Turn::take_at(&path, "mine", IfTaken::Wait, |line| said.push(line.to_owned()), || true).unwrap();
        assert!(waiting.is_none(), "a signal ends the waiting");
        assert_eq!(said, [format!("another storebench, run nightly (pid {id}),")]);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| take(&path, "mine", IfTaken::Wait).unwrap().is_some());
            std::thread::sleep(RETRY_INTERVAL / 2);
            drop(first);
            assert!(second.join().unwrap());
        });
        assert!(take(&path, "third", IfTaken::Refuse).unwrap().is_some(), "whoever is done holds nothing");
    }

    #[test]
    fn a_link_that_somebody_left_is_not_followed() {
        let folder = harness::folder();
        let (path, target) = (folder.path().join("lock"), folder.path().join("precious"));
        std::fs::write(&target, "precious").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert!(take(&path, "mine", IfTaken::Wait).is_err());
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "precious");
    }
}
