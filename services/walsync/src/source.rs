//! What the replicator asks of a database's files, and what it makes of them: a file of changes, or of everything.
//!
//! Behind a trait, so that a test can have others change something between two looks (`tests/position.rs`), and that what is fuzzed can say anything
//! (`fuzz/fuzz_targets/walsync_source.rs`). The replicator has real files, in the simulation, too.

use crate::arena::{Arena, NoRoom, Staging};
use crate::difference::PageChecksums;
use crate::position::{Continuity, Position, continuity};
use crate::replica::LtxFile;
use crate::wal_index::{Counter, WalIndex};
use crate::wal_reader::{self, Changes, ReadAt, WAL_HEADER_SIZE, WalHeader, WalPosition, read_changes};
use ltx::{Encoder, Header, NO_CHECKSUM};
use std::io::{self, Write};
use std::sync::Arc;

/// The files of one database, opened.
pub trait Source: Send {
    /// Whether these are still the files at the path: none replaced, removed or new.
    fn is_current(&self) -> io::Result<bool>;
    /// The database file.
    fn database(&self) -> &dyn ReadAt;
    /// Size and time of change of the database file.
    fn database_state(&self) -> io::Result<(u64, i64, i64)>;
    /// The WAL, where there is one.
    fn wal(&self) -> Option<&dyn ReadAt>;
    /// The index of the WAL, where there is one that can be trusted.
    fn wal_index(&self) -> io::Result<Option<WalIndex>>;
}

/// Why nothing could be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A file failed.
    #[error("cannot read the database's files: {0}")]
    Io(#[from] io::Error),
    /// The content cannot be replicated.
    #[error("{0}")]
    Refused(String),
    /// Nothing was ever written into it.
    #[error("it is still empty")]
    Empty,
    /// Somebody was at work; the same call will succeed a moment later.
    #[error("the database is being changed: {0}")]
    Busy(&'static str),
    /// Reading the whole database was given up for somebody who waits.
    #[error("the database is wanted by others: {}", .0.why())]
    GaveWay(GaveWay),
    /// The staging area, or the format.
    #[error("cannot stage: {0}")]
    Stage(#[from] ltx::Error),
}

impl SourceError {
    /// What is wrong with the staging folder, where that is why nothing could be read.
    pub fn no_room(&self) -> Option<&NoRoom> {
        match self {
            SourceError::Stage(ltx::Error::Write(error)) | SourceError::Io(error) => NoRoom::of(error),
            _ => None,
        }
    }
}

/// Why reading a whole database is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GaveWay {
    /// For a check point that waits.
    CheckPoint,
    /// For the application's disk.
    WalGrows,
    /// Whoever reads is to end.
    Stops,
    /// The files are none of ours any more.
    Gone,
}

impl GaveWay {
    /// In words.
    pub fn why(self) -> &'static str {
        match self {
            GaveWay::CheckPoint => "a check point waits",
            GaveWay::WalGrows => "its WAL grows beyond wal-bytes-max while it is read whole",
            GaveWay::Stops => "walsync is being stopped",
            GaveWay::Gone => "its files are not held any more",
        }
    }
}

/// What every database begins with.
pub(crate) const MAGIC: [u8; 16] = *b"SQLite format 3\0";

/// The first 100 bytes of a database say whether it can be replicated, and how large its pages are.
pub fn page_size(database: &dyn ReadAt) -> Result<u32, SourceError> {
    let refuse = |why: &str| Err(SourceError::Refused(why.to_owned()));
    let mut bytes = [0; 100];
    match database.read_at(0, &mut bytes)? {
        0 => return Err(SourceError::Empty),
        100 => {}
        _ => return refuse("the file is shorter than the header of an SQLite database"),
    }
    if bytes[..16] != MAGIC {
        return refuse("the file is not an SQLite database, or is encrypted");
    }
    if bytes[18] != 2 || bytes[19] != 2 {
        return refuse("the database is not in WAL mode; its application must set PRAGMA journal_mode=WAL");
    }
    let size = u32::from(u16::from_be_bytes([bytes[16], bytes[17]]));
    let size = if size == 1 { 65_536 } else { size };
    if !size.is_power_of_two() || size < 512 {
        return refuse("the page size in the database's header is not a power of two from 512 to 65536");
    }
    Ok(size)
}

/// What names a file that is being made.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// First transaction ID: 1 for a snapshot.
    pub min_txid: u64,
    /// Last transaction ID.
    pub max_txid: u64,
    /// Unix time in milliseconds.
    pub timestamp_millis: i64,
    /// The writer.
    pub node_id: u64,
    /// The upload before it, by its [`crate::chain::tag`]; 0: not known, or none.
    pub follows: u32,
}

/// A file ready for its upload.
pub struct Staged {
    /// The file.
    pub file: LtxFile,
    /// Where reading goes on after it.
    pub position: Position,
    /// Whether it ends before a restart of the WAL: what was committed since is staged next.
    pub is_before_restart: bool,
}

/// A database, or what differs in it from its replica.
pub struct Image {
    /// The file, and where reading goes on.
    pub staged: Staged,
    /// Pages in it.
    pub pages: u32,
}

/// The WAL up to which frame, given what its index says. `None`: to the last valid commit.
fn limit(header: &WalHeader, index: Option<&WalIndex>) -> Option<u32> {
    let index = index?;
    // With other salts, and not those of a restart: the first transaction of a new WAL is being written, and is none yet.
    let is_begun = index.frames == 0 && !is_restarted(header, index);
    (index.salts == header.salts() || is_begun).then_some(index.frames)
}

/// Whether the index tells of a restart since which nothing was written: the WAL still has all of the generation before.
fn is_restarted(header: &WalHeader, index: &WalIndex) -> bool {
    index.frames == 0 && index.salts[0] == header.salt1.wrapping_add(1)
}

/// Said of a database whose application goes on with a WAL that is not the one at its path.
pub const OTHER_WAL: &str = "the WAL at its path is not the one that its application writes, which was removed or replaced: nothing of it can be sent. \
     Have the application close the database, without killing it: its last close copies what it has into the database file";

/// Refuses a database whose application goes on with a WAL that is not the one at its path, because somebody removed or replaced that: what it
/// commits is in no file that has a name, nor is what was in it, and the database file alone is an older state.
///
/// `index` as it was just read says which frame is the last. Where nobody uses it, as `is_in_use` tells, whoever opens the database next makes it anew.
pub fn refuse_other_wal(
    source: &dyn Source,
    index: Option<&WalIndex>,
    is_in_use: impl Fn() -> io::Result<bool>,
) -> Result<(), SourceError> {
    let Some(index) = index.filter(|index| index.frames > 0) else { return Ok(()) };
    let has_last = match source.wal() {
        Some(wal) => wal_reader::has_frame(wal, index.frames, index.page_size, index.salts, index.checksum)?,
        None => false,
    };
    if has_last || !is_in_use()? {
        return Ok(());
    }
    // Not what was restarted, or has just come, between two looks.
    let stays = |now: WalIndex| now.salts == index.salts && now.frames >= index.frames;
    if !source.wal_index()?.is_some_and(stays) || !source.is_current()? {
        return Err(SourceError::Busy("its WAL was just begun anew"));
    }
    Err(SourceError::Refused(OTHER_WAL.to_owned()))
}

fn encode_header(stamp: Stamp, page_size: u32, size: u32, position: &Position) -> Header {
    let mut header = Header {
        flags: NO_CHECKSUM,
        page_size,
        commit: size,
        min_txid: stamp.min_txid,
        max_txid: stamp.max_txid,
        timestamp_millis: stamp.timestamp_millis,
        node_id: stamp.node_id,
        ..Header::default()
    };
    // Where Litestream goes on after us: at the beginning of a WAL of these salts, or else with the whole database. Told of our place
    // in the WAL, it would look for our last page there, and take one of a WAL that was restarted since for proof of continuity.
    header.wal_offset = WAL_HEADER_SIZE;
    if let Some(wal) = &position.wal {
        header.wal_salt1 = wal.header.salt1;
        header.wal_salt2 = wal.header.salt2;
        header.reserved = position.reserved();
    }
    crate::chain::follow(&mut header, stamp.follows);
    header
}

/// What came after a position.
pub enum Since {
    /// Nothing was committed.
    Nothing {
        /// The counter of transactions there, as far as it is known now.
        counter: Option<Counter>,
    },
    /// This was, up to a restart of the WAL if there was one.
    Staged(Box<Staged>),
    /// Frames that we never saw may be gone, and why: only [`stage_image`] helps.
    Lost(&'static str),
}

/// Stages what was committed after `position`.
pub fn stage_changes(
    source: &dyn Source,
    position: &Position,
    stamp: Stamp,
    arena: &Arc<Arena>,
) -> Result<Since, SourceError> {
    let nothing = Since::Nothing { counter: position.changes };
    let Some(wal) = source.wal() else {
        // Where there was none before, nothing came since either, unless the database itself is another.
        let still_none = position.is_still(source.wal_index()?.as_ref(), source.database_state()?);
        return Ok(if still_none { nothing } else { Since::Lost("the WAL is gone") });
    };
    let index = source.wal_index()?;
    let Some(header) = WalHeader::read(wal)? else {
        // Cut to nothing by a TRUNCATE: whatever it held was ours already if no transaction came since.
        let nothing_since = index.is_some_and(|index| position.is_end_of(&index));
        let still_empty = position.is_still(index.as_ref(), source.database_state()?);
        return Ok(if nothing_since || still_empty {
            nothing
        } else {
            Since::Lost("the WAL was emptied, and transactions may have been in it")
        });
    };
    let mut before_restart = false;
    let (from, changes) = match continuity(wal, header, index.as_ref(), source.database_state()?, position)? {
        Continuity::Lost(why) => return Ok(Since::Lost(why)),
        Continuity::Same(from) | Continuity::Restarted(from) => {
            (from, read_changes(wal, from, limit(&header, index.as_ref()))?)
        }
        Continuity::Before(from) => {
            before_restart = true;
            (from, read_changes(wal, from, None)?)
        }
    };
    if changes.commits == 0 {
        if limit(&header, index.as_ref()).is_some_and(|frames| frames != changes.end.frames) {
            return Ok(Since::Lost("the WAL does not hold what its index tells of"));
        }
        // A recovery begins the counter anew; this is what it is at our place now.
        let now = index.filter(|_| position.wal == Some(changes.end)).and_then(|index| index.counter_at(&changes.end));
        return Ok(Since::Nothing { counter: now.or(position.changes) });
    }
    let counted = match before_restart {
        true => position.changes.map(|before| before.after(changes.commits, changes.end.checksum)),
        false => index.and_then(|index| index.counter_at(&changes.end)),
    };
    let before = position.size;
    refuse_impossible(&changes, before)?;
    let position = Position { wal: Some(changes.end), size: changes.size, changes: counted, database: None };
    let header = encode_header(stamp, header.page_size, changes.size, &position);
    let staging = arena.stage();
    let mut encoder = Encoder::new(staging, header)?;
    let mut page = vec![0; changes.end.header.page_size as usize];
    for (number, frame) in changes.pages_with_growth(before) {
        match frame {
            Some(frame) => read_frame(wal, &changes.end.header, frame, &mut page)?,
            None => read_page(source.database(), number, &mut page)?,
        }
        encoder.page(number, &page)?;
    }
    // The new WAL grows over the old one from its start: what is whole now was whole while it was read.
    if before_restart && read_changes(wal, from, None)?.end != changes.end {
        return Ok(Since::Lost("transactions before a restart of the WAL were written over while they were read"));
    }
    let staged = finish(encoder, position)?;
    Ok(Since::Staged(Box::new(Staged { is_before_restart: before_restart, ..staged })))
}

/// Refuses a commit of more pages than there can be.
fn refuse_impossible(changes: &Changes, before: u32) -> Result<(), SourceError> {
    if changes.can_follow(before) {
        return Ok(());
    }
    let Changes { size, frames, .. } = changes;
    Err(SourceError::Refused(format!(
        "its WAL says that it has {size} pages, which cannot be: it had {before}, and {frames} frames came since; that WAL is damaged, \
         or is another database's: have SQLite check it, and restore it if need be"
    )))
}

fn finish(encoder: Encoder<Staging>, position: Position) -> Result<Staged, SourceError> {
    let header = encoder.header().clone();
    let (mut content, checksum) = encoder.finish()?;
    content.flush()?;
    Ok(Staged { file: LtxFile { content, header, checksum }, position, is_before_restart: false })
}

/// A page of the database file; zero beyond its end.
fn read_page(database: &dyn ReadAt, number: u32, page: &mut [u8]) -> io::Result<()> {
    let length = database.read_at(u64::from(number - 1) * page.len() as u64, page)?;
    page[length..].fill(0);
    Ok(())
}

fn read_frame(wal: &dyn ReadAt, header: &WalHeader, frame: u32, page: &mut [u8]) -> Result<(), SourceError> {
    match wal_reader::read_frame(wal, header, frame, page)? {
        true => Ok(()),
        false => Err(SourceError::Busy("its WAL became shorter while it was read")),
    }
}

/// Whether file and WAL were a snapshot while they were read. A pin by a read transaction lets check points copy what the WAL has, and
/// the WAL be restarted where all of it was copied before.
fn stayed(
    source: &dyn Source,
    header: Option<WalHeader>,
    before: Option<&WalIndex>,
    end: Option<WalPosition>,
) -> Result<(), SourceError> {
    let now = match source.wal() {
        Some(wal) => WalHeader::read(wal)?,
        None => None,
    };
    if now != header {
        return Err(SourceError::Busy("its WAL was restarted while it was read"));
    }
    let (Some(before), Some(end)) = (before, end) else { return Ok(()) };
    let Some(after) = source.wal_index()? else {
        return Err(SourceError::Busy("its index is being written"));
    };
    // Of a restart of which the header tells nothing yet: all that it had was copied, and nothing else can have been.
    let went_on =
        after.salts == before.salts && before.salts == end.header.salts() && after.backfill_attempted > end.frames;
    if went_on { Err(SourceError::Busy("a check point went beyond what was read")) } else { Ok(()) }
}

/// Bytes of a database between two looks at whether somebody waits for us: some milliseconds of reading.
const LOOK_BYTES: u32 = 1 << 20;

/// Stages the whole database, as it is now or as it was at `at`, which the WAL of now still has or comes after; or, of a replica that
/// `has` some pages, those that differ, and the first. The caller holds [`crate::pin::Hold::Image`], so that database file and WAL fit together.
/// Now and then it is asked whether to give way, and to whom: reading may take minutes, in which no check point passes.
pub fn stage_image(
    source: &dyn Source,
    stamp: Stamp,
    at: Option<&Position>,
    has: Option<&PageChecksums>,
    arena: &Arc<Arena>,
    gives_way: impl Fn() -> io::Result<Option<GaveWay>>,
) -> Result<Image, SourceError> {
    let page_size = page_size(source.database())?;
    let before = source.database_state()?;
    let index = source.wal_index()?;
    let header = match source.wal() {
        Some(wal) => WalHeader::read(wal)?,
        None => None,
    };
    let at = match at {
        None => None,
        Some(at) => match at.wal {
            Some(wal) if header == Some(wal.header) => Some(wal.frames),
            None if header.is_none() => None,
            _ if index.is_some_and(|index| at.is_in_database(&index, before)) => Some(0),
            _ => return Err(SourceError::Busy("its WAL was restarted")),
        },
    };
    let mut changes = None;
    let mut size = u32::try_from(before.0 / u64::from(page_size)).unwrap_or(u32::MAX);
    let mut position = Position::default();
    if let (Some(wal), Some(header)) = (source.wal(), header) {
        if header.page_size != page_size {
            return Err(SourceError::Busy("its WAL has pages of another size"));
        }
        let found = read_changes(wal, WalPosition::start(header), at.or(limit(&header, index.as_ref())))?;
        let end = found.end;
        let attempted = index.filter(|index| index.salts == header.salts()).map_or(0, |index| index.backfill_attempted);
        if end.frames < attempted {
            return Err(SourceError::Busy("its index is ahead of its WAL"));
        }
        // After a restart without a transaction the file still holds the generation before, all of it backfilled.
        let restarted = index.is_some_and(|index| is_restarted(&header, &index));
        if end.frames > 0 && !restarted {
            refuse_impossible(&found, size).or_else(|refused| {
                // Unless the file was made shorter since.
                stayed(source, Some(header), index.as_ref(), Some(end)).and(Err(refused))
            })?;
            size = found.size;
            changes = Some(found);
        }
        position =
            Position { wal: Some(end), size, changes: index.and_then(|index| index.counter_at(&end)), database: None };
        if restarted {
            position.changes = index.and_then(|index| index.counter());
        }
    } else {
        position.database = Some(before);
        // The WAL was emptied, and its index goes on counting.
        position.changes = index.filter(|index| index.frames == 0).and_then(|index| index.counter());
    }
    position.size = size;
    let ltx_header = encode_header(stamp, page_size, size, &position);
    let mut encoder = Encoder::new(arena.stage(), ltx_header)?;
    let mut page = vec![0; page_size as usize];
    let has = has.filter(|has| has.page_size() == page_size);
    let mut written = 0;
    for number in (1..=size).filter(|&number| number != ltx::lock_page(page_size)) {
        if number.is_multiple_of(LOOK_BYTES / page_size)
            && let Some(why) = gives_way()?
        {
            return Err(SourceError::GaveWay(why));
        }
        match (changes.as_ref().and_then(|changes| changes.frame_of(number)), source.wal(), header) {
            (Some(frame), Some(wal), Some(header)) => read_frame(wal, &header, frame, &mut page)?,
            _ => read_page(source.database(), number, &mut page)?,
        }
        // One page goes in any case: the file tells where we stand, and takes the replica over from another writer.
        if number == 1 || !has.is_some_and(|has| has.has(number, &page)) {
            encoder.page(number, &page)?;
            written += 1;
        }
    }
    if source.database_state()? != before || !source.is_current()? {
        return Err(SourceError::Busy("its file changed while it was read"));
    }
    stayed(source, header, index.as_ref(), position.wal)?;
    Ok(Image { staged: finish(encoder, position)?, pages: written })
}
