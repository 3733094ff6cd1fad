//! Replays the append-only file at the start.

use wal::files::{Directory, File};

use super::{Kind, Manifest};
use crate::protocol::{Args, Limits, Parser};

/// What was replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Commands.
    pub commands: u64,
    /// Bytes that were cut from the end of the last file.
    pub cut_bytes: u64,
}

/// What the state is made of again.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// A command.
    Command(Args<'a>),
    /// An RDB file, and what may follow it; to be told how long it is.
    Rdb(&'a [u8]),
}

/// Why a file cannot be replayed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Something that is no command.
    #[error(
        "{file}, byte {offset}: {what}: Bad file format reading the append only file: make a backup of the append-only directory, then run \
         redis-check-aof --fix on its manifest, which cuts the file there"
    )]
    Format {
        /// The file.
        file: String,
        /// Where the command begins that cannot be read.
        offset: u64,
        /// What is wrong with it.
        what: String,
    },
    /// The file ends in the middle of a command.
    #[error(
        "{file}, byte {offset}: Unexpected end of file reading the append only file, in the middle of a command: start with --aof-load-truncated yes, which cuts it \
         there, or run redis-check-aof --fix"
    )]
    Truncated {
        /// The file.
        file: String,
        /// Where the unfinished command begins.
        offset: u64,
    },
    /// An RDB base that cannot be read.
    #[error("{file}: {what}")]
    Rdb {
        /// The file.
        file: String,
        /// What is wrong with it.
        what: String,
    },
    /// The file system says no.
    #[error("{file} cannot be read: {error}: restore it from a backup")]
    Io {
        /// The file.
        file: String,
        /// What it said.
        error: std::io::Error,
    },
}

/// Read at a time, bytes.
const PIECE_BYTES: u64 = 1 << 20;

/// Replays all files of a manifest.
pub(super) fn all<D: Directory>(
    directory: &D,
    manifest: &Manifest,
    cuts: bool,
    mut apply: impl FnMut(Piece<'_>) -> Result<usize, String>,
) -> Result<Loaded, LoadError> {
    let mut loaded = Loaded::default();
    let last = manifest.last_increment();
    for named in manifest.replayed() {
        let failed = |error| LoadError::Io { file: named.name.clone(), error };
        let file = directory.open(&named.name).map_err(failed)?;
        let mut begin = 0;
        if named.kind == Kind::Base && file.read_first(5).map_err(failed)? == b"REDIS" {
            let all = file.read().map_err(failed)?;
            begin = apply(Piece::Rdb(&all)).map_err(|what| LoadError::Rdb { file: named.name.clone(), what })? as u64;
        }
        let bytes = file.bytes().map_err(failed)?;
        let mut apply = |args: Args<'_>| apply(Piece::Command(args)).map(drop);
        let whole = one(&file, &named.name, (begin, bytes), &mut loaded.commands, &mut apply)?;
        if whole < bytes {
            if !cuts || Some(named.name.as_str()) != last {
                return Err(LoadError::Truncated { file: named.name.clone(), offset: whole });
            }
            file.truncate(whole).and_then(|()| file.sync_data()).map_err(failed)?;
            loaded.cut_bytes = bytes - whole;
        }
    }
    Ok(loaded)
}

/// Replays one file from an offset on; how many of its bytes are whole commands and transactions.
fn one<F: File>(
    file: &F,
    name: &str,
    (begin, bytes): (u64, u64),
    commands: &mut u64,
    apply: &mut impl FnMut(Args<'_>) -> Result<(), String>,
) -> Result<u64, LoadError> {
    let (mut parser, mut buffer, mut read) = (Parser::default(), Vec::new(), begin);
    // Where the buffer begins in the file, and how much of the buffer was replayed.
    let (mut start, mut done) = (begin, 0);
    // Commands of a transaction that has not ended, and where it begins.
    let mut transaction: Option<(u64, Vec<crate::protocol::OwnedArgs>)> = None;
    loop {
        let rest = &buffer[done..];
        let offset = start + done as u64;
        let format = |what: String| LoadError::Format { file: name.to_owned(), offset, what };
        let length = match rest.first() {
            Some(b'#') if !parser.is_busy() => {
                // A remark, such as the time that Redis notes.
                let end = memchr::memchr(b'\n', rest);
                if end.is_none() && rest.len() > crate::protocol::request::LINE_BYTES_MAX {
                    return Err(format("a remark that does not end".to_owned()));
                }
                end.map(|end| end + 1)
            }
            Some(b'*') | None => {
                let length = parser.next(rest, Limits::TAKEN).map_err(|error| format(error.to_string()))?;
                if let Some(length) = length {
                    let args = parser.args(rest);
                    if args.is_empty() {
                        return Err(format("a command without a name".to_owned()));
                    }
                    replay(args, offset, &mut transaction, commands, apply).map_err(format)?;
                    debug_assert!(length > 0);
                }
                length
            }
            Some(other) => return Err(format(format!("expected '*', got '{}'", other.escape_ascii()))),
        };
        match length {
            Some(length) => done += length,
            None if read == bytes => break,
            None => {
                buffer.drain(..done);
                start += done as u64;
                done = 0;
                let more = PIECE_BYTES.min(bytes - read);
                let from = buffer.len();
                buffer.resize(from + more as usize, 0);
                let failed = |error| LoadError::Io { file: name.to_owned(), error };
                file.read_at(&mut buffer[from..], read).map_err(failed)?;
                read += more;
            }
        }
    }
    Ok(transaction.map_or(start + done as u64, |(begins, _)| begins))
}

/// Applies a command, or keeps it until its transaction has ended.
fn replay(
    args: Args<'_>,
    offset: u64,
    transaction: &mut Option<(u64, Vec<crate::protocol::OwnedArgs>)>,
    commands: &mut u64,
    apply: &mut impl FnMut(Args<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let name = args.at(0);
    if name.eq_ignore_ascii_case(b"MULTI") {
        return match transaction.replace((offset, Vec::new())) {
            None => Ok(()),
            Some(_) => Err("MULTI in a transaction".to_owned()),
        };
    }
    if name.eq_ignore_ascii_case(b"EXEC") {
        let (_, kept) = transaction.take().ok_or("EXEC without MULTI")?;
        *commands += kept.len() as u64;
        return kept.iter().try_for_each(|args| apply(args.as_args()));
    }
    match transaction {
        Some((_, kept)) => kept.push(args.to_owned()),
        None => {
            *commands += 1;
            apply(args)?;
        }
    }
    Ok(())
}
