//! Where in a database's history a replica stands, and the proof that nothing between two looks was missed.
//!
//! Frames that follow ours in the same WAL (same salts, chain of checksums unbroken) are all there are. After a restart
//! that is not enough: frames that we never saw may have been copied into the database and written over. They were not,
//! if all of this holds: salt 1 has grown by exactly one; SQLite's counter of transactions (which a restart does not
//! touch) has grown by exactly the transactions of the new WAL, and of the frames at our old place in the file that continue
//! the old chain, if there are any: these are read first; and nobody has begun that counter anew, which we know where we have held the index in use
//! meanwhile ([`crate::pin::Pin::witness`]). Otherwise the database must be read whole.

use crate::wal_index::{Counter, WalIndex};
use crate::wal_reader::{ReadAt, WalHeader, WalPosition, read_changes};
use std::io;

/// The end of what is staged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// In the WAL; `None` where the database had none.
    pub wal: Option<WalPosition>,
    /// Size of the database in pages.
    pub size: u32,
    /// SQLite's counter of transactions at this place, where it is known.
    pub changes: Option<Counter>,
    /// Size and time of change of the database file, where there was no WAL.
    pub database: Option<(u64, i64, i64)>,
}

const MAGIC: [u8; 2] = *b"w1";

impl Position {
    /// For the reserved bytes of an LTX header: `w1`, unused 2, checksum of the last frame 8, frames 4. Four are left, for [`crate::chain::follow`].
    pub fn reserved(&self) -> [u8; ltx::RESERVED_SIZE] {
        let mut bytes = [0; ltx::RESERVED_SIZE];
        if let Some(wal) = &self.wal {
            bytes[..2].copy_from_slice(&MAGIC);
            bytes[4..8].copy_from_slice(&wal.checksum[0].to_be_bytes());
            bytes[8..12].copy_from_slice(&wal.checksum[1].to_be_bytes());
            bytes[12..16].copy_from_slice(&wal.frames.to_be_bytes());
        }
        bytes
    }

    /// Whether `index` tells of no transaction after this place: it ends here, or it is of a WAL that was emptied without one, as its counter
    /// says where nobody can have begun that anew.
    pub fn is_end_of(&self, index: &WalIndex) -> bool {
        let here = |wal: WalPosition| {
            index.frames == wal.frames && index.salts == wal.header.salts() && index.checksum == wal.checksum
        };
        let emptied = index.frames == 0 && self.changes.is_some() && self.changes == index.counter();
        emptied || self.wal.is_some_and(here)
    }

    /// Whether all up to this place, and nothing else, is in the database file: the WAL was restarted or cut, which comes after the copying of
    /// all that it had, and has no transaction since. `database` is the state of the database file now.
    pub fn is_in_database(&self, index: &WalIndex, database: (u64, i64, i64)) -> bool {
        index.frames == 0 && (self.is_end_of(index) || self.is_still(Some(index), database))
    }

    /// Whether the database, which had no WAL at this place, looks as it did. A counter of the same life that went on says more than its file.
    pub fn is_still(&self, index: Option<&WalIndex>, database: (u64, i64, i64)) -> bool {
        let now = index.and_then(WalIndex::counter);
        let went_on = self.changes.zip(now).is_some_and(|(before, now)| before.life == now.life && before != now);
        self.wal.is_none() && self.database == Some(database) && !went_on
    }
}

/// The place that the newest file of a replica names, if `wal` still has it: same salts, and the same chain up to there.
/// What happened while nobody looked is proved by the chain alone; the counter of transactions is that of now.
pub fn resume(wal: &dyn ReadAt, index: Option<&WalIndex>, newest: &ltx::Header) -> io::Result<Option<Position>> {
    let word = |at: usize| u32::from_be_bytes(std::array::from_fn(|byte| newest.reserved[at + byte]));
    let Some(header) = WalHeader::read(wal)? else { return Ok(None) };
    let same = newest.reserved[..2] == MAGIC
        && header.salts() == [newest.wal_salt1, newest.wal_salt2]
        && header.page_size == newest.page_size;
    if !same {
        return Ok(None);
    }
    let found = read_changes(wal, WalPosition::start(header), Some(word(12)))?.end;
    let reached = found.frames == word(12) && found.checksum == [word(4), word(8)];
    Ok(reached.then(|| Position {
        wal: Some(found),
        size: newest.commit,
        changes: index.and_then(|index| index.counter_at(&found)),
        database: None,
    }))
}

/// How the WAL of now follows a position.
pub enum Continuity {
    /// It is the same WAL: read on from here.
    Same(WalPosition),
    /// It was restarted once, and nothing was missed: read from its start.
    Restarted(WalPosition),
    /// It was restarted once, and what came before that is still behind our place, all of it: read on from here to its end.
    Before(WalPosition),
    /// Something may have been missed, and why.
    Lost(&'static str),
}

/// Compares the WAL with a position; `database` is the state of the database file now.
pub fn continuity(
    wal: &dyn ReadAt,
    header: WalHeader,
    index: Option<&WalIndex>,
    database: (u64, i64, i64),
    position: &Position,
) -> io::Result<Continuity> {
    let start = WalPosition::start(header);
    let Some(before) = position.wal else {
        // The database had no WAL, and nothing was copied into its file since: all transactions are in this WAL if the counter says so, which a new
        // index begins at zero, and one that was there goes on with.
        return Ok(match index {
            Some(index) if index.salts == header.salts() && position.database == Some(database) => {
                let new = read_changes(wal, start, Some(index.frames))?;
                let checksum = if new.commits > 0 { new.end.checksum } else { index.checksum };
                let is_all = match position.changes.filter(|before| before.life == index.life) {
                    Some(before) => index.counter() == Some(before.after(new.commits, checksum)),
                    None => index.changes == new.commits,
                };
                if new.end.frames == index.frames && is_all {
                    Continuity::Restarted(start)
                } else {
                    Continuity::Lost("the WAL is new, and transactions may have come before it")
                }
            }
            _ => Continuity::Lost("the WAL is new"),
        });
    };
    if before.header.salts() == header.salts() {
        return Ok(if before.header == header {
            Continuity::Same(before)
        } else {
            Continuity::Lost("the WAL's header differs")
        });
    }
    if before.header.page_size != header.page_size {
        return Ok(Continuity::Lost("the page size is another"));
    }
    let (Some(index), Some(before_it)) = (index, position.changes) else {
        return Ok(Continuity::Lost("the WAL was restarted while nobody looked"));
    };
    if index.life != before_it.life {
        return Ok(Continuity::Lost("the WAL was restarted, and its index may have been made anew"));
    }
    if index.salts != header.salts() || header.salt1 != before.header.salt1.wrapping_add(1) {
        return Ok(Continuity::Lost("the WAL was restarted more than once"));
    }
    let new = read_changes(wal, start, Some(index.frames))?;
    // Frames that we missed still lie behind ours, unless they are written over already.
    let old = read_changes(wal, before, None)?;
    let checksum = match (new.commits, old.commits) {
        (0, 0) => before_it.checksum,
        (0, _) => old.end.checksum,
        _ => new.end.checksum,
    };
    let expected = before_it.after(new.commits + old.commits, checksum);
    if new.end.frames != index.frames || index.counter() != Some(expected) {
        return Ok(Continuity::Lost("transactions came before the WAL was restarted"));
    }
    Ok(if old.commits > 0 { Continuity::Before(before) } else { Continuity::Restarted(start) })
}
