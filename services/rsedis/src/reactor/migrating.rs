//! Sends keys to another server (MIGRATE). Everybody waits for it, as in Redis: a key is here or there, and never changed in between.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use wal::files::Directory;

use super::Reactor;
use super::sockets::Sockets;
use crate::command;
use crate::protocol::OwnedArgs;
use crate::server::Migration;

/// An answer's longest line, as in Redis.
const LINE_BYTES_MAX: u64 = 1 << 10;
/// Redis gives the other server its timeout anew for each piece of this size.
const PIECE_BYTES: usize = 64 << 10;

/// What went wrong, and with which words Redis says so.
struct Interruption(&'static str);

const UNWRITTEN: Interruption = Interruption("IOERR error or timeout writing to target instance");
const UNREAD: Interruption = Interruption("IOERR error or timeout reading to target instance");

/// What the other server said.
#[derive(Default)]
struct Answers {
    /// For each key, as far as it was heard, whether it was taken.
    taken: Vec<bool>,
    /// The first error.
    error: Option<String>,
}

/// How long an exchange may take as a whole, and without any progress.
struct Patience {
    began: Instant,
    whole: Duration,
    step: Duration,
}

impl Patience {
    /// The client's timeout is for the whole; where more than a piece is to be said, there is more of it.
    fn of(migration: &Migration) -> Self {
        let step = Duration::from_millis(migration.patience_millis);
        let pieces = u32::try_from(migration.bytes.len().div_ceil(PIECE_BYTES)).unwrap_or(u32::MAX);
        Self { began: Instant::now(), whole: step.saturating_mul(pieces), step }
    }

    /// What the next step may take. Errors: nothing is left.
    fn left(&self) -> io::Result<Duration> {
        let left = self.whole.saturating_sub(self.began.elapsed()).min(self.step);
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

/// A connection that is not waited for beyond its time.
struct Stream {
    stream: TcpStream,
    patience: Patience,
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.patience.left()?))?;
        self.stream.read(into)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.patience.left()?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// The time begins once the name is known: the system's resolver has a time of its own.
fn connect(migration: &Migration) -> io::Result<Stream> {
    let addresses = (migration.host.as_str(), migration.port).to_socket_addrs()?;
    let patience = Patience::of(migration);
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match TcpStream::connect_timeout(&address, patience.left()?) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(Stream { stream, patience });
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The next answer: nothing where that is well, or the error. Errors: it has not come in time, or is no short line.
fn hear(stream: &mut BufReader<Stream>) -> Result<Option<String>, Interruption> {
    let mut line = Vec::new();
    match stream.take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
        Ok(_) if line.ends_with(b"\n") => {}
        _ => return Err(UNREAD),
    }
    let error = line.strip_prefix(b"-");
    Ok(error.map(|text| String::from_utf8_lossy(text).trim_end().to_owned()))
}

/// Says all, and hears an answer to each key; fewer where the other server is not heard any more.
fn send(migration: &Migration) -> Result<Answers, Interruption> {
    let mut stream = connect(migration).map_err(|error| match error.kind() {
        // Redis hears of it when it writes.
        io::ErrorKind::ConnectionRefused => UNWRITTEN,
        _ => Interruption("IOERR error or timeout connecting to the client"),
    })?;
    stream.write_all(&migration.bytes).map_err(|_| UNWRITTEN)?;
    let mut stream = BufReader::new(stream);
    let mut refused = None;
    for _ in 0..migration.answers_before {
        refused = hear(&mut stream)?.or(refused);
    }
    let mut answers = Answers::default();
    for _ in &migration.keys {
        let Ok(answer) = hear(&mut stream) else { break };
        let error = refused.clone().or(answer);
        answers.taken.push(error.is_none());
        answers.error = answers.error.or(error);
    }
    Ok(answers)
}

impl<S: Sockets, D: Directory> Reactor<S, D> {
    pub(super) fn migrate(&mut self) {
        let Some(migration) = self.server.migration.take() else { return };
        let outcome = send(&migration);
        let answers = outcome.as_ref().map_or(&[][..], |answers| &answers.taken);
        let taken = migration.keys.iter().zip(answers).filter(|(_, is_taken)| **is_taken).map(|(key, _)| key);
        let taken: Vec<&[u8]> = taken.map(Vec::as_slice).collect();
        if !migration.copies && !taken.is_empty() {
            self.remove_migrated(migration.slot, &taken);
        }
        let is_heard = answers.len() == migration.keys.len();
        let outcome = match outcome {
            Ok(Answers { error: Some(error), .. }) => Err(format!("ERR Target instance replied with error: {error}")),
            Ok(_) if is_heard => Ok(()),
            Ok(_) => Err(UNREAD.0.to_owned()),
            Err(Interruption(text)) => Err(text.to_owned()),
        };
        self.reply(Some(migration.slot), outcome);
    }

    /// What the other server has is removed here, as DEL would, and safely so before the client hears of it.
    fn remove_migrated(&mut self, slot: usize, keys: &[&[u8]]) {
        let (Some(Some(mut session)), Some(command)) =
            (self.server.sessions.get_mut(slot).map(Option::take), command::find(b"del"))
        else {
            return;
        };
        let words: Vec<&[u8]> = [b"DEL".as_slice()].into_iter().chain(keys.iter().copied()).collect();
        let args = OwnedArgs::new(words);
        let before = session.reply.bytes.len();
        command::run(&mut self.server, &mut session, command, args.as_args());
        session.reply.bytes.truncate(before);
        self.server.sessions[slot] = Some(session);
        self.touched.push(slot);
        self.commit();
    }
}
