//! The pin where open-file-description locks are not to be had: SQLite's own, by a connection that holds a read transaction.
//!
//! | [`Hold`] | what holds it |
//! | --- | --- |
//! | `Presence` | SHARED on the database file, a lock of the process; SQLite's connection holds the same one |
//! | `Frames`, `Image` | a read transaction, where an application has the database open |
//!
//! A read transaction locks the read mark that is furthest ahead, under which check points copy up to that mark and no further, and nobody restarts
//! the WAL. Where all of the WAL is in the database file already it locks mark 0 instead: nothing is copied then, and the WAL may be restarted
//! once. It is begun anew as soon as there is a frame to hold. In both cases pages that the WAL has not stay as they are in the database file,
//! which makes file and WAL a snapshot; who reads it looks afterwards whether the WAL is still the same, and how far check points have come.
//!
//! Nothing is written. The connection is read-only, and maps `-shm` for reading alone (`readonly_shm`): it creates and recovers none, and sets no
//! mark. It is opened while SHARED is held and both files are there, for SQLite would create a WAL that is not; it makes no check point
//! when it is closed. As root, SQLite gives `-shm` the owner of the database, as it does for every connection of root.
//! Its locks are those of a process: what else reads the files here does so through the same [`Descriptor`].

use super::{CHECKPOINT, Hold, Life, Locks, Pin, PinKind, SHARED, WATCHED, WRITE, is_database_in_use, is_in_use};
use crate::descriptor::Descriptor;
use crate::paths::{sqlite_uri, with_suffix};
use crate::wal_index::WalIndex;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The pin by a read transaction. What it drops first is the connection: its locks end with the first descriptor that is closed.
pub struct ReadTransactionPin {
    connection: Option<Connection>,
    path: PathBuf,
    database: Descriptor,
    index: Option<Descriptor>,
    held: Hold,
    /// The transaction may hold mark 0, under which the WAL can be restarted.
    may_be_restarted: bool,
    /// That of the connection, which keeps the index in use.
    life: Life,
}

/// `false` where somebody is in the way, or nobody is there who keeps the index.
fn begun(result: rusqlite::Result<()>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) => match error.sqlite_error_code() {
            Some(
                ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::FileLockingProtocolFailed
                | ErrorCode::ReadOnly
                | ErrorCode::CannotOpen,
            ) => Ok(false),
            _ => Err(io::Error::other(format!("SQLite cannot begin a read transaction: {error}"))),
        },
    }
}

impl ReadTransactionPin {
    /// A pin that holds nothing on the database at `path`, which is absolute and no symbolic link.
    pub fn new(path: PathBuf, database: Descriptor, index: Option<Descriptor>, life: Life) -> ReadTransactionPin {
        let connection = None;
        ReadTransactionPin { connection, path, database, index, held: Hold::Nothing, may_be_restarted: false, life }
    }

    fn connect(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(sqlite_uri(&self.path, "mode=ro&readonly_shm=1"), flags)?;
        connection.busy_timeout(Duration::ZERO)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        Ok(connection)
    }

    /// Begins a transaction; `false` where that cannot be for the moment.
    fn begin(&mut self, index: &Descriptor) -> io::Result<bool> {
        // While a writer is at work there, SQLite would wait for it, and with it all databases. One that was killed leaves nothing to wait for.
        let Some(before) = WalIndex::read(&**index)? else { return Ok(!self.has_others(index)?) };
        if self.connection.is_none() {
            match self.connect() {
                Ok(connection) => self.connection = Some(connection),
                Err(error) => return begun(Err(error)),
            }
        }
        let Some(connection) = &self.connection else { return Ok(false) };
        // What reads least: one page, and no schema.
        let read = || {
            connection.execute_batch("BEGIN")?;
            connection.query_row("PRAGMA schema_version", [], |_| Ok(()))
        };
        if !begun(read())? {
            self.end()?;
            return Ok(false);
        }
        if self.life.number() == 0 {
            self.life.begins();
        }
        let after = WalIndex::read(&**index)?;
        self.may_be_restarted =
            after.is_none_or(|after| after.salts != before.salts || after.backfilled >= before.frames);
        Ok(true)
    }

    fn be_present(&mut self) -> io::Result<bool> {
        if !Locks::OfProcess.set(&self.database, SHARED.0, SHARED.1, nix::libc::F_RDLCK)? {
            return Ok(false);
        }
        Locks::OfProcess.set(&self.database, WATCHED, 1, nix::libc::F_RDLCK)?;
        self.held = Hold::Presence;
        Ok(true)
    }

    fn is_reading(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| !connection.is_autocommit())
    }

    fn end(&mut self) -> io::Result<()> {
        match &self.connection {
            Some(connection) if self.is_reading() => connection.execute_batch("ROLLBACK").map_err(io::Error::other),
            _ => Ok(()),
        }
    }

    /// Whether another process uses the index: without one nobody copies or restarts anything. The kernel tells of other processes alone.
    fn has_others(&self, index: &Descriptor) -> io::Result<bool> {
        is_in_use(index, PinKind::ReadTransaction)
    }

    /// Whether there is anything to hold by a transaction. Nothing is opened that is not there.
    fn has_something(&self, index: &Descriptor) -> io::Result<bool> {
        let are_there = || ["-wal", "-shm"].iter().all(|suffix| with_suffix(&self.path, suffix).exists());
        Ok(self.connection.is_some() || self.has_others(index)? && are_there())
    }
}

impl Drop for ReadTransactionPin {
    fn drop(&mut self) {
        // The descriptor is shared, and would keep the lock. Nobody is left to hear of an error.
        let _ = self.hold(Hold::Nothing, None);
    }
}

impl Pin for ReadTransactionPin {
    fn kind(&self) -> PinKind {
        PinKind::ReadTransaction
    }

    fn hold(&mut self, hold: Hold, _: Option<&WalIndex>) -> io::Result<bool> {
        if hold >= Hold::Presence && self.held < Hold::Presence && !self.be_present()? {
            return Ok(false);
        }
        if hold >= Hold::Frames
            && let Some(index) = self.index.as_ref().map(Descriptor::share)
        {
            let now = WalIndex::read(&*index)?;
            let is_outdated = self.may_be_restarted && now.is_none_or(|now| now.frames > now.backfilled);
            if self.held >= Hold::Frames && is_outdated {
                self.end()?;
                self.held = Hold::Presence;
            }
            if self.held < Hold::Frames && self.has_something(&index)? && !self.begin(&index)? {
                return Ok(false);
            }
            if self.is_reading() {
                self.held = hold;
            }
        }
        if hold < Hold::Frames && self.held >= Hold::Frames {
            self.end()?;
            self.held = Hold::Presence;
        }
        if hold < Hold::Presence && self.held >= Hold::Presence {
            self.life.ends();
            self.connection = None;
            Locks::OfProcess.set(&self.database, SHARED.0, SHARED.1, nix::libc::F_UNLCK)?;
            Locks::OfProcess.set(&self.database, WATCHED, 1, nix::libc::F_UNLCK)?;
            self.held = Hold::Nothing;
        }
        Ok(true)
    }

    fn held(&self) -> Hold {
        self.held
    }

    /// A connection keeps the index in use: whoever comes next, and may not write, would wait for somebody to recover it.
    fn settle(&mut self) -> io::Result<()> {
        let Some(index) = &self.index else { return Ok(()) };
        if self.connection.is_some() && !self.has_others(index)? {
            self.life.ends();
            self.connection = None;
            self.held = Hold::Nothing;
            // The last connection of a process takes all of its locks along.
            self.be_present()?;
        }
        Ok(())
    }

    /// The connection does, from its first transaction on.
    fn witness(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn is_in_use(&self) -> io::Result<bool> {
        self.index.as_ref().map_or(Ok(false), |index| self.has_others(index))
    }

    fn is_database_in_use(&self) -> io::Result<bool> {
        is_database_in_use(&self.database, PinKind::ReadTransaction)
    }

    fn checkpointer_waits(&self) -> io::Result<bool> {
        let Some(index) = &self.index else { return Ok(false) };
        let is_taken = |byte| Locks::OfProcess.is_taken(index, byte, nix::libc::F_RDLCK);
        Ok(is_taken(CHECKPOINT)? && is_taken(WRITE)?)
    }
}
