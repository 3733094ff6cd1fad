//! One connection: sends commands in batches, reads replies in place.
//!
//! The hot path costs one write and one read per batch and allocates nothing: commands are encoded into a buffer that
//! is used again, replies are parsed where they were received. A batch larger than 64 KiB is sent in pieces
//! while replies are read, so that two full socket buffers never wait for each other.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use storebench_crds::workload::redis::RedisProtocol;
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::failure::Failure;
use crate::family::redis::resp::{self, Token, write_command};
use crate::load::session::{Batch, Session};
use crate::net::dial::dial;

/// Commands are written when so many bytes have gathered.
const FLUSH_BYTES: usize = 64 << 10;
/// Size of the receive buffer, bytes; it grows for larger values.
const RECEIVE_BYTES: usize = 64 << 10;

/// Whether a reply is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// This token was its last.
    Complete,
    /// Elements follow.
    More,
}

/// What is said on a connection: one side of commands and replies, which come in the same order.
pub trait Dialogue {
    /// Appends the next command.
    fn send(&mut self, out: &mut Vec<u8>);

    /// Takes the next token. An error ends the workload.
    fn receive(&mut self, token: Token<'_>) -> Result<Received, Failure>;
}

/// A connection to the store.
#[derive(Debug)]
pub struct Connection {
    endpoint: String,
    stream: TcpStream,
    out: Vec<u8>,
    /// How much of `out` was sent.
    written: usize,
    input: Vec<u8>,
    /// What was received and not yet parsed is `input[parsed..received]`.
    parsed: usize,
    received: usize,
}

impl Connection {
    /// Connects, and agrees on the protocol.
    pub async fn open(endpoint: &str, protocol: RedisProtocol, patience: Duration) -> Result<Self, Failure> {
        let mut connection = Self {
            endpoint: endpoint.to_owned(),
            stream: dial(endpoint).await?,
            out: Vec::with_capacity(FLUSH_BYTES),
            written: 0,
            input: vec![0; RECEIVE_BYTES],
            parsed: 0,
            received: 0,
        };
        if protocol == RedisProtocol::Resp3 {
            let mut hello = Hello { missing: 1 };
            hello.send(&mut connection.out);
            match timeout(patience, connection.talk(&mut hello)).await {
                Ok(said) => said?,
                Err(_) => return Err(connection.failed("HELLO 3", "no answer")),
            }
        }
        Ok(connection)
    }

    /// Writes what is buffered and reads one reply.
    async fn talk(&mut self, dialogue: &mut impl Dialogue) -> Result<(), Failure> {
        loop {
            self.transfer().await?;
            if self.parse(dialogue, 1)? == 1 {
                return Ok(());
            }
        }
    }

    /// Sends a batch and takes its replies, telling the session.
    #[inline]
    pub async fn exchange(
        &mut self,
        dialogue: &mut impl Dialogue,
        session: &Session,
        mut batch: Batch,
    ) -> Result<(), Failure> {
        let mut to_send = batch.count();
        while batch.answered() < batch.count() {
            while to_send > 0 && self.out.len() < FLUSH_BYTES {
                dialogue.send(&mut self.out);
                to_send -= 1;
            }
            self.transfer().await?;
            let now = Instant::now();
            let answered = self.parse(dialogue, batch.count() - batch.answered())?;
            if answered > 0 {
                session.answered(&mut batch, answered, now);
            }
        }
        Ok(())
    }

    /// Writes what is buffered and receives something. Returns without having received when the socket took a part only
    /// or all, and there is room for more commands.
    #[inline]
    async fn transfer(&mut self) -> Result<(), Failure> {
        if self.written < self.out.len() {
            match self.stream.try_write(&self.out[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return self.wait_for_either().await,
                Err(error) => return Err(self.lost("write to", &error)),
            }
            if self.written < self.out.len() {
                return Ok(());
            }
            let was_flushed_early = self.out.len() >= FLUSH_BYTES;
            self.out.clear();
            self.written = 0;
            if was_flushed_early {
                // Commands may be left to send. Take what has come, but do not wait for it.
                return self.receive_now();
            }
        }
        self.make_room();
        let received = self.stream.read(&mut self.input[self.received..]).await;
        self.note_received(received)
    }

    /// The socket takes no more: wait until it does, or until replies have come.
    async fn wait_for_either(&mut self) -> Result<(), Failure> {
        let ready = self.stream.ready(Interest::READABLE | Interest::WRITABLE).await;
        match ready {
            Ok(ready) if ready.is_readable() => self.receive_now(),
            Ok(_) => Ok(()),
            Err(error) => Err(self.lost("wait for", &error)),
        }
    }

    fn receive_now(&mut self) -> Result<(), Failure> {
        self.make_room();
        match self.stream.try_read(&mut self.input[self.received..]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            received => self.note_received(received),
        }
    }

    #[inline]
    fn note_received(&mut self, received: io::Result<usize>) -> Result<(), Failure> {
        match received {
            Ok(0) => Err(self.failed("read from", "connection closed by the store")),
            Ok(count) => {
                self.received += count;
                Ok(())
            }
            Err(error) => Err(self.lost("read from", &error)),
        }
    }

    /// Makes sure that something can be received: moves an unfinished reply to the front, or grows the buffer.
    #[inline]
    fn make_room(&mut self) {
        if self.received < self.input.len() {
            return;
        }
        if self.parsed > 0 {
            self.input.copy_within(self.parsed..self.received, 0);
            self.received -= self.parsed;
            self.parsed = 0;
        } else {
            // One token fills the buffer. Tokens are bounded, hence so is the buffer.
            self.input.resize(self.input.len() * 2, 0);
        }
    }

    /// Hands complete tokens to the dialogue, for at most `most` replies; how many replies were completed.
    #[inline]
    fn parse(&mut self, dialogue: &mut impl Dialogue, most: u32) -> Result<u32, Failure> {
        let mut complete = 0;
        while complete < most {
            match resp::read(&self.input[self.parsed..self.received]) {
                Ok(Some((token, length))) => {
                    match dialogue.receive(token) {
                        Ok(Received::Complete) => complete += 1,
                        Ok(Received::More) => {}
                        Err(failure) => return Err(self.failed("", failure.text())),
                    }
                    self.parsed += length;
                }
                Ok(None) => break,
                Err(malformed) => return Err(self.failed("", &malformed.to_string())),
            }
        }
        if self.parsed == self.received {
            self.parsed = 0;
            self.received = 0;
        }
        Ok(complete)
    }

    #[cold]
    fn lost(&self, doing: &str, error: &io::Error) -> Failure {
        Failure::io(format_args!("{doing} {}", self.endpoint), error)
    }

    #[cold]
    fn failed(&self, doing: &str, what: &str) -> Failure {
        let space = if doing.is_empty() { "" } else { " " };
        Failure::new(format_args!("{doing}{space}{}: {what}", self.endpoint))
    }
}

/// `HELLO 3`, and whatever the store says of itself.
struct Hello {
    missing: u64,
}

impl Dialogue for Hello {
    fn send(&mut self, out: &mut Vec<u8>) {
        write_command(&[b"HELLO", b"3"], out);
    }

    fn receive(&mut self, token: Token<'_>) -> Result<Received, Failure> {
        if let Token::Error(text) = token {
            return Err(refused("HELLO 3", text));
        }
        self.missing = self.missing.saturating_add(token.following()).saturating_sub(1);
        Ok(if self.missing == 0 { Received::Complete } else { Received::More })
    }
}

/// The store answered a command with an error.
#[cold]
pub fn refused(command: &str, text: &[u8]) -> Failure {
    Failure::new(format_args!("{command}: {}", String::from_utf8_lossy(text)))
}

/// The store answered a command with something that the command cannot have as its answer.
#[cold]
pub fn unexpected(command: &str, token: &Token<'_>) -> Failure {
    match token {
        Token::Error(text) => refused(command, text),
        token => Failure::new(format_args!("{command}: answered with {}", token.kind())),
    }
}
