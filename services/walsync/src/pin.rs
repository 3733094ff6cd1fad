//! Keeps the frames of a WAL where they are, without a byte written: by locks alone, without a connection to the database, or, where the kernel
//! or the file system has no such locks, by a [`read_transaction`]. What both promise is [`Pin`]; `tests/pin.rs` asks it of both.
//!
//! [`LockPin`] is Linux's open-file-description locks, read locks all, in the places where SQLite looks:
//!
//! | [`Hold`] | lock | what it stops |
//! | --- | --- | --- |
//! | `Presence` | database file, 510 bytes from 0x40000002 (SHARED) | the last close of the application, which would check point and unlink the WAL |
//! | `Frames` | also one of the read marks 1 to 4 in `-shm` (bytes 124 to 127) | a restart of the WAL; check points still copy its frames into the database |
//! | `Image` | also read mark 0 (byte 123) | any copying into the database file: file and WAL together are a snapshot |
//!
//! `Frames` takes the used mark that is furthest behind. A check point copies no further than that mark, once, and comes back at once
//! ever after. Under a mark that bounds nobody it would look for pages to copy at each commit beyond the application's threshold, and
//! copy and sync them: that makes a busy writer many times slower.
//!
//! The lock on the `-shm` file's life (DMS, byte 128) is taken by [`Pin::witness`] while an application has it, and given back when the last one
//! has gone: as long as we have it nobody makes the index anew, so that its counter of transactions goes on. Never without an application: the first
//! connection after a power cut would believe an index that was never synced.
//! A RESTART or TRUNCATE check point waits for `Frames` with the write lock in its hand; [`Pin::checkpointer_waits`] tells,
//! and the replicator then lets go. What must not be lost is not proved by the lock but by [`crate::position`].

use crate::wal_index::{UNUSED_MARK, WalIndex};
use nix::errno::Errno;
use serde::Deserialize;
use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub mod read_transaction;

/// What holds the frames of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum PinKind {
    /// Open-file-description locks, without a connection.
    Locks,
    /// A read transaction of a connection of ours.
    ReadTransaction,
}

impl PinKind {
    /// Whose its locks are.
    fn locks(self) -> Locks {
        match self {
            PinKind::Locks => Locks::OfDescription,
            PinKind::ReadTransaction => Locks::OfProcess,
        }
    }
}

impl fmt::Display for PinKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            PinKind::Locks => "locks",
            PinKind::ReadTransaction => "read-transaction",
        })
    }
}

/// What a pin holds; each includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// Nothing.
    #[default]
    Nothing,
    /// The files stay.
    Presence,
    /// Frames stay.
    Frames,
    /// The database file stays as it is.
    Image,
}

/// Locks on one database.
pub trait Pin: Send {
    /// How it holds.
    fn kind(&self) -> PinKind;
    /// Takes or gives back locks until it holds `hold`; `Ok(false)` where somebody is in the way for the moment. Where there is nothing to
    /// hold (no index, nobody who uses it) it is `Ok(true)`, and [`Pin::held`] tells.
    fn hold(&mut self, hold: Hold, index: Option<&WalIndex>) -> io::Result<bool>;
    /// What it holds.
    fn held(&self) -> Hold;
    /// Lets go of what it holds for nobody, now that nothing happens.
    fn settle(&mut self) -> io::Result<()>;
    /// Keeps whoever opens the database from making its index anew, where an application has it open already: from then on, and until
    /// [`Pin::settle`] finds nobody left, what the index counts is counted in one life.
    fn witness(&mut self) -> io::Result<()>;
    /// Whether somebody else has the index in use.
    fn is_in_use(&self) -> io::Result<bool>;
    /// Whether a connection has the database file open. Where another process watches it, too, nobody can tell, and it is false.
    fn is_database_in_use(&self) -> io::Result<bool>;
    /// Whether somebody holds both the check point and the write lock: most likely a check point that waits for us.
    fn checkpointer_waits(&self) -> io::Result<bool>;
}

const SHARED: (i64, i64) = (0x4000_0002, 510);
/// A byte of the database file of which SQLite knows nothing: a read lock on it tells other processes of ours that this one watches.
const WATCHED: i64 = 0x4000_0400;
/// One beside it: a write lock on it is held by who lets a copy follow a replica.
const FOLLOWED: i64 = 0x4000_0401;
const WRITE: i64 = 120;
const CHECKPOINT: i64 = 121;
const READ_MARK_0: i64 = 123;
/// The byte of `-shm` that each connection holds for as long as it uses the index. Who finds it free makes the index anew.
const IN_USE: i64 = 128;

/// Which life of an index somebody witnesses; 0: none.
#[derive(Clone, Debug, Default)]
pub struct Life(Arc<AtomicU64>);

impl Life {
    /// Its number, of which no two lives have the same.
    pub fn number(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    fn begins(&self) {
        static LIVES: AtomicU64 = AtomicU64::new(1);
        self.0.store(LIVES.fetch_add(1, Ordering::Relaxed), Ordering::Release);
    }

    fn ends(&self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Whose locks they are.
#[derive(Clone, Copy)]
enum Locks {
    /// Of one open file description: they end with that, whatever else the process opens and closes.
    OfDescription,
    /// Of the process, as SQLite's are: they end with the first descriptor of the file that is closed.
    OfProcess,
}

impl Locks {
    fn lock(start: i64, length: i64, kind: i32) -> nix::libc::flock {
        nix::libc::flock {
            l_type: kind as i16,
            l_whence: nix::libc::SEEK_SET as i16,
            l_start: start,
            l_len: length,
            l_pid: 0,
        }
    }

    /// Takes or gives back a lock at once; `false` where it is taken.
    fn set(self, file: &File, start: i64, length: i64, kind: i32) -> nix::Result<bool> {
        let lock = Locks::lock(start, length, kind);
        let set = match self {
            Locks::OfDescription => nix::fcntl::FcntlArg::F_OFD_SETLK(&lock),
            Locks::OfProcess => nix::fcntl::FcntlArg::F_SETLK(&lock),
        };
        match nix::fcntl::fcntl(file, set) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether somebody else has the byte locked so that a lock of this kind could not be had.
    fn is_taken(self, file: &File, byte: i64, kind: i32) -> nix::Result<bool> {
        let mut probe = Locks::lock(byte, 1, kind);
        let get = match self {
            Locks::OfDescription => nix::fcntl::FcntlArg::F_OFD_GETLK(&mut probe),
            Locks::OfProcess => nix::fcntl::FcntlArg::F_GETLK(&mut probe),
        };
        nix::fcntl::fcntl(file, get)?;
        Ok(i32::from(probe.l_type) != nix::libc::F_UNLCK)
    }
}

/// Why open-file-description locks are not to be had on this file; `None`: they are.
pub fn without_locks(database: &File) -> io::Result<Option<Errno>> {
    let (start, length) = SHARED;
    let tried = Locks::OfDescription.set(database, start, length, nix::libc::F_RDLCK);
    match tried.and_then(|_| Locks::OfDescription.set(database, start, length, nix::libc::F_UNLCK)) {
        Ok(_) => Ok(None),
        // An older kernel, a kernel in another program, a file system without locks.
        Err(why @ (Errno::EINVAL | Errno::ENOSYS | Errno::ENOLCK | Errno::EOPNOTSUPP)) => Ok(Some(why)),
        Err(error) => Err(error.into()),
    }
}

/// Whether another process has a pin on the database: more than SQLite's own locks, which applications have as well.
pub fn is_watched(database: &File) -> io::Result<bool> {
    Ok(Locks::OfProcess.is_taken(database, WATCHED, nix::libc::F_WRLCK)?)
}

/// Whether somebody else has an index in use, as a pin of that kind sees it.
pub(crate) fn is_in_use(index: &File, kind: PinKind) -> io::Result<bool> {
    Ok(kind.locks().is_taken(index, IN_USE, nix::libc::F_WRLCK)?)
}

/// Whether a connection has the database file open, as a pin of that kind sees it; false where another process watches it, too.
fn is_database_in_use(database: &File, kind: PinKind) -> io::Result<bool> {
    let is_taken = |byte| kind.locks().is_taken(database, byte, nix::libc::F_WRLCK);
    Ok(is_taken(SHARED.0)? && !is_taken(WATCHED)?)
}

/// Takes a copy that follows a replica, for as long as this file is open; false: another process has taken it. Where there are no such locks
/// nobody can tell.
pub(crate) fn take_copy(copy: &File) -> bool {
    set(copy, FOLLOWED, 1, nix::libc::F_WRLCK).unwrap_or(true)
}

/// The pin by open-file-description locks.
pub struct LockPin {
    database: File,
    index: Option<File>,
    presence: bool,
    mark: Option<i64>,
    image: bool,
    life: Life,
}

fn set(file: &File, start: i64, length: i64, kind: i32) -> io::Result<bool> {
    Ok(Locks::OfDescription.set(file, start, length, kind)?)
}

impl LockPin {
    /// A pin that holds nothing. The files are its own descriptions: nobody else may use them for locks.
    pub fn new(database: File, index: Option<File>, life: Life) -> LockPin {
        LockPin { database, index, presence: false, mark: None, image: false, life }
    }

    fn take_mark(&mut self, marks: [u32; 5]) -> io::Result<bool> {
        let Some(index) = &self.index else { return Ok(false) };
        // The one that bounds check points most. An unused one bounds nobody, and is better than none.
        let mut order = [1usize, 2, 3, 4];
        order.sort_by_key(|&mark| (marks[mark] == UNUSED_MARK, marks[mark]));
        for mark in order {
            let byte = READ_MARK_0 + mark as i64;
            if set(index, byte, 1, nix::libc::F_RDLCK)? {
                self.mark = Some(byte);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Drop for LockPin {
    fn drop(&mut self) {
        self.life.ends();
    }
}

impl Pin for LockPin {
    fn kind(&self) -> PinKind {
        PinKind::Locks
    }

    fn hold(&mut self, hold: Hold, wal_index: Option<&WalIndex>) -> io::Result<bool> {
        if hold >= Hold::Presence && !self.presence {
            self.presence = set(&self.database, SHARED.0, SHARED.1, nix::libc::F_RDLCK)?;
            if !self.presence {
                return Ok(false);
            }
            set(&self.database, WATCHED, 1, nix::libc::F_RDLCK)?;
        }
        // Without an index there is no check point either: the WAL is read by nobody but us.
        if hold >= Hold::Frames && self.mark.is_none() && self.index.is_some() {
            let marks = wal_index.map_or([0; 5], |index| index.read_marks);
            if !self.take_mark(marks)? {
                return Ok(false);
            }
        }
        if let Some(index) = &self.index {
            if hold >= Hold::Image && !self.image {
                self.image = set(index, READ_MARK_0, 1, nix::libc::F_RDLCK)?;
                if !self.image {
                    return Ok(false);
                }
            }
            if hold < Hold::Image && self.image {
                set(index, READ_MARK_0, 1, nix::libc::F_UNLCK)?;
                self.image = false;
            }
            if hold < Hold::Frames
                && let Some(byte) = self.mark.take()
            {
                set(index, byte, 1, nix::libc::F_UNLCK)?;
            }
        }
        if hold < Hold::Presence && self.presence {
            set(&self.database, SHARED.0, SHARED.1, nix::libc::F_UNLCK)?;
            set(&self.database, WATCHED, 1, nix::libc::F_UNLCK)?;
            self.presence = false;
        }
        Ok(true)
    }

    fn held(&self) -> Hold {
        match (self.presence, self.mark, self.image) {
            (true, Some(_), true) => Hold::Image,
            (true, Some(_), false) => Hold::Frames,
            (true, None, _) => Hold::Presence,
            _ => Hold::Nothing,
        }
    }

    fn settle(&mut self) -> io::Result<()> {
        let Some(index) = &self.index else { return Ok(()) };
        if self.life.number() != 0 && !self.is_in_use()? {
            self.life.ends();
            set(index, IN_USE, 1, nix::libc::F_UNLCK)?;
        }
        Ok(())
    }

    fn witness(&mut self) -> io::Result<()> {
        let Some(index) = &self.index else { return Ok(()) };
        // Whoever makes it anew holds it alone.
        if self.life.number() == 0 && self.is_in_use()? && set(index, IN_USE, 1, nix::libc::F_RDLCK)? {
            self.life.begins();
        }
        Ok(())
    }

    fn is_in_use(&self) -> io::Result<bool> {
        self.index.as_ref().map_or(Ok(false), |index| is_in_use(index, PinKind::Locks))
    }

    fn is_database_in_use(&self) -> io::Result<bool> {
        is_database_in_use(&self.database, PinKind::Locks)
    }

    fn checkpointer_waits(&self) -> io::Result<bool> {
        let Some(index) = &self.index else { return Ok(false) };
        let is_taken = |byte| Locks::OfDescription.is_taken(index, byte, nix::libc::F_RDLCK);
        Ok(is_taken(CHECKPOINT)? && is_taken(WRITE)?)
    }
}
