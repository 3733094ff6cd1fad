//! All keys as they are at one moment, while the loop goes on: as an RDB file, or as commands; into a file, or to whom they are sent.
//!
//! Keys are taken a little in each turn of the loop ([`crate::keyspace::Database::walk`]); another thread writes and syncs. The file has
//! a temporary name until it is whole and safe: what is there under the final name is always whole. One that fails or is given up has no
//! name any more.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use wal::files::{Directory, File};

use crate::keyspace::Entry;
use crate::number::integer_text;
use crate::protocol::{Limits, Parser, push_command};
use crate::rdb;
use crate::replication::Contents;
use crate::server::Server;
use crate::structure::table::Element as _;

/// What the file is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// RDB; `is_base`: as the base of an append-only file.
    Rdb {
        /// See above.
        is_base: bool,
    },
    /// RDB for replicas, of this alone.
    Part(Contents),
    /// A RESTORE for each key.
    Commands,
}

/// How far it is.
#[derive(Debug)]
pub enum Progress {
    /// There is more to do at once.
    Busy,
    /// The thread has enough to do for now.
    Waits,
    /// The file is whole and safe under its temporary name, and has so many bytes.
    Done(io::Result<u64>),
}

/// Pieces that wait for the thread, 4 MiB. In a turn of the loop that is long many are taken at once, and it may have its processor behind that only.
const PIECES_MAX: usize = 64;
/// Keys are taken until a piece has this many bytes.
const PIECE_BYTES: usize = 64 << 10;
/// And so many at a time, between two looks at the clock: about 10 microseconds.
const STEP_BYTES: usize = 4 << 10;

/// What writes them takes the processor when nobody else wants it.
const NICE: i32 = 10;

/// All keys of one moment as bytes, a piece at a time, wherever they go.
#[derive(Debug)]
pub struct Walk {
    format: Format,
    /// Not given yet.
    piece: Vec<u8>,
    database: Option<usize>,
    is_walked: bool,
    /// One of the commands could not be read again.
    is_unreadable: bool,
    /// Before this nothing is taken (`rdb-key-save-delay`).
    next: Option<Instant>,
}

fn encode_command(entry: &Entry, out: &mut Vec<u8>) {
    let expiry = integer_text(entry.expiry().unwrap_or(0));
    let payload = rdb::dump(entry, true);
    push_command(out, [b"RESTORE".as_slice(), entry.key(), &expiry, &payload, b"REPLACE", b"ABSTTL"].into_iter());
}

/// Whether all of these commands are such as a file may have. They need not have come whole.
fn can_be_read(mut commands: &[u8]) -> bool {
    let mut parser = Parser::default();
    loop {
        match parser.next(commands, Limits::TAKEN) {
            Ok(Some(length)) => commands = &commands[length..],
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

impl Walk {
    /// Of the keys of this moment. No other walk may be under way.
    pub fn begin(server: &mut Server, format: Format) -> Self {
        debug_assert!(server.flushed.is_empty(), "the walk before this one left what it had to take");
        let encode = match format {
            Format::Commands => encode_command,
            _ if server.settings.is_yes("rdbcompression") => rdb::encode_compressed,
            _ => rdb::encode_plain,
        };
        let contents = if let Format::Part(contents) = format { contents } else { Contents::ALL };
        if contents.has_keys {
            for (number, database) in server.databases.iter_mut().enumerate() {
                database.begin_walk(encode, number);
            }
        }
        let piece = match format {
            Format::Rdb { is_base } => rdb::header(server, is_base, true),
            Format::Part(Contents { has_functions, .. }) => rdb::header(server, false, has_functions),
            Format::Commands => {
                let notes_time = server.settings.is_yes("aof-timestamp-enabled");
                let mut piece = if notes_time { super::time_note(server.now / 1000) } else { Vec::new() };
                for code in crate::scripting::library_codes(server) {
                    push_command(&mut piece, [b"FUNCTION".as_slice(), b"LOAD", b"REPLACE", code].into_iter());
                }
                piece
            }
        };
        Self { format, piece, database: None, is_walked: false, is_unreadable: false, next: None }
    }

    /// A piece that is ready, if one is; [`Walk::advance`] makes the next.
    pub fn take_piece(&mut self) -> Option<Vec<u8>> {
        let is_ready = self.piece.len() >= PIECE_BYTES || (self.is_walked && !self.piece.is_empty());
        is_ready.then(|| std::mem::take(&mut self.piece))
    }

    /// Whether all keys were taken.
    pub fn is_over(&self) -> bool {
        self.is_walked && self.piece.is_empty()
    }

    /// Whether it is to take nothing yet.
    pub fn is_waiting(&self) -> bool {
        self.next.is_some_and(|next| Instant::now() < next)
    }

    /// Takes some keys.
    pub fn advance(&mut self, server: &mut Server) {
        let delay = server.settings.save_delay;
        self.next = (!delay.is_zero()).then(|| Instant::now() + delay);
        let most = if delay.is_zero() { STEP_BYTES } else { 1 };
        let Server { databases, flushed, .. } = server;
        let Some(database) = flushed.iter_mut().chain(databases).find(|database| database.walked_number().is_some())
        else {
            flushed.clear();
            if self.format != Format::Commands {
                self.piece.push(rdb::END);
            }
            self.is_walked = true;
            return;
        };
        let number = database.walked_number();
        let mut taken = Vec::new();
        database.walk(&mut taken, most);
        if taken.is_empty() {
            return;
        }
        // A value as large as this is seldom, and to look at every command would take its time.
        self.is_unreadable |=
            self.format == Format::Commands && u32::try_from(taken.len()).is_err() && !can_be_read(&taken);
        if self.database != number {
            self.database = number;
            let number = number.unwrap_or(0);
            match self.format {
                Format::Rdb { .. } | Format::Part(_) => rdb::push_database(&mut self.piece, number),
                Format::Commands => {
                    push_command(&mut self.piece, [b"SELECT".as_slice(), &integer_text(number as i64)].into_iter());
                }
            }
        }
        self.piece.append(&mut taken);
    }

    /// Gives up: the keys are not watched any more.
    pub fn abandon(server: &mut Server) {
        server.databases.iter_mut().for_each(crate::keyspace::Database::end_walk);
        server.flushed.clear();
    }
}

/// See the module's description.
pub struct Snapshot {
    walk: Walk,
    /// Taken from the walk, and not taken by the thread.
    piece: Option<Vec<u8>>,
    /// Gone when everything was given.
    pieces: Option<SyncSender<Vec<u8>>>,
    outcome: Receiver<io::Result<u64>>,
    /// Removes the file; gone once it is whole.
    remove: Option<Box<dyn FnOnce()>>,
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if let Some(remove) = self.remove.take() {
            remove();
        }
    }
}

/// Takes a temporary file's name away. What it holds is freed by another thread, which may also be the one that still writes.
pub fn remove<D: Directory>(directory: &D, name: &str) {
    let file = directory.open(name);
    // Where that cannot be done either, the file is replaced by the next one.
    drop(directory.remove(name));
    super::free(file.into_iter().collect());
}

impl Snapshot {
    /// Begins a file under a temporary name. What is written are the keys of this moment.
    pub fn begin<D: Directory>(server: &mut Server, directory: &D, name: &str, format: Format) -> io::Result<Self> {
        // The thread of a snapshot that was given up may write on for a while: it keeps its file, which has no name any more.
        match directory.remove(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = directory.create_zeroed(name, 0)?;
        let (pieces, received) = sync_channel::<Vec<u8>>(PIECES_MAX);
        let (done, outcome) = channel();
        let has_checksum = format != Format::Commands;
        let begun = thread::Builder::new().name("snapshot".into()).spawn(move || {
            // Who waits for the executor waits for its processor. Of this thread alone, on Linux; where it cannot be had it is done without.
            let _ = rustix::process::nice(NICE);
            // Whoever waits may have given up.
            drop(done.send(write_all(&file, &received, has_checksum)));
        });
        begun.inspect_err(|_| remove(directory, name))?;
        let (place, called) = (directory.clone(), name.to_owned());
        let remove: Box<dyn FnOnce()> = Box::new(move || remove(&place, &called));
        let walk = Walk::begin(server, format);
        Ok(Self { walk, piece: None, pieces: Some(pieces), outcome, remove: Some(remove) })
    }

    /// Goes on, for about so long. When it is done, well or not, nothing is left of the walk.
    pub fn step(&mut self, server: &mut Server, budget: Duration) -> Progress {
        let progress = self.go_on(server, budget);
        match progress {
            Progress::Done(Ok(_)) => self.remove = None,
            Progress::Done(Err(_)) => Walk::abandon(server),
            Progress::Busy | Progress::Waits => {}
        }
        progress
    }

    fn go_on(&mut self, server: &mut Server, budget: Duration) -> Progress {
        let began = Instant::now();
        while let Some(pieces) = &self.pieces {
            if let Some(piece) = self.piece.take().or_else(|| self.walk.take_piece()) {
                match pieces.try_send(piece) {
                    Ok(()) => {}
                    Err(TrySendError::Full(piece)) => {
                        self.piece = Some(piece);
                        return Progress::Waits;
                    }
                    // It has failed, and says why.
                    Err(TrySendError::Disconnected(_)) => self.pieces = None,
                }
                continue;
            }
            if self.walk.is_over() {
                self.pieces = None;
                break;
            }
            if self.walk.is_waiting() {
                return Progress::Waits;
            }
            self.walk.advance(server);
            if self.walk.is_unreadable {
                return Progress::Done(Err(io::Error::other(
                    "a value is larger than 4 GiB as a command, which could not be read again: set aof-use-rdb-preamble yes",
                )));
            }
            if began.elapsed() >= budget {
                return Progress::Busy;
            }
        }
        match self.outcome.try_recv() {
            Ok(outcome) => Progress::Done(outcome),
            Err(TryRecvError::Empty) => Progress::Waits,
            Err(TryRecvError::Disconnected) => Progress::Done(Err(io::Error::other("the thread that writes has gone"))),
        }
    }

    /// Goes on until it is done; the loop stands still meanwhile.
    pub fn finish(mut self, server: &mut Server) -> io::Result<u64> {
        loop {
            match self.step(server, Duration::MAX) {
                Progress::Done(outcome) => return outcome,
                Progress::Busy => {}
                Progress::Waits => thread::sleep(Duration::from_micros(200)),
            }
        }
    }

    /// Gives up.
    pub fn abandon(self, server: &mut Server) {
        Walk::abandon(server);
    }
}

/// Writes what comes, its checksum, and syncs; how many bytes.
fn write_all<F: File>(file: &F, pieces: &Receiver<Vec<u8>>, has_checksum: bool) -> io::Result<u64> {
    let mut digest = rdb::CRC.digest();
    let mut at = 0;
    while let Ok(piece) = pieces.recv() {
        file.write_at(&piece, at)?;
        digest.update(&piece);
        at += piece.len() as u64;
    }
    if has_checksum {
        file.write_at(&digest.finalize().to_le_bytes(), at)?;
        at += 8;
    }
    file.sync_data()?;
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_holds_a_command_that_is_too_large_to_be_read() {
        let mut commands = Vec::new();
        push_command(&mut commands, [b"SELECT".as_slice(), b"0"].into_iter());
        let whole = [&commands[..], b"*6\r\n$7\r\nRESTORE\r\n$3\r\nkey\r\n$1\r\n0\r\n$4294960000\r\n"].concat();
        assert!(can_be_read(&whole));
        let large = [&commands[..], b"*6\r\n$7\r\nRESTORE\r\n$3\r\nkey\r\n$1\r\n0\r\n$4294967296\r\n"].concat();
        assert!(!can_be_read(&large));
    }
}
