//! One connection: sends commands in batches, reads replies in place.
//!
//! The hot path costs one write and one read per batch and allocates nothing: commands are encoded into a buffer that
//! is used again, replies are parsed where they were received. A batch larger than 64 KiB is sent in pieces
//! while replies are read, so that two full socket buffers never wait for each other.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use storebench_crds::workload::redis::RedisProtocol;
use tokio::time::timeout;

use crate::failure::{Failure, Kind};
use crate::family::redis::resp::{self, Token, write_command};
use crate::load::outside::{Credentials, Outside};
use crate::load::session::{Batch, Session};
use crate::net::dial::dial_once;
use crate::net::stream::Stream;

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
    stream: Stream,
    out: Vec<u8>,
    /// How much of `out` was sent.
    written: usize,
    input: Vec<u8>,
    /// What was received and not yet parsed is `input[parsed..received]`.
    parsed: usize,
    received: usize,
    answered_at: Option<Instant>,
}

impl Connection {
    /// Connects, over TLS and logged in where a store that is somebody's asks for that, and agrees on the protocol.
    pub async fn open(
        endpoint: &str,
        protocol: RedisProtocol,
        patience: Duration,
        outside: Option<&Outside>,
    ) -> Result<Self, Failure> {
        let tls = outside.and_then(|outside| outside.tls.as_ref());
        let stream = Stream::connect(endpoint, tls, patience).await?;
        let credentials = outside.and_then(|outside| outside.credentials.as_ref());
        Self::over(stream, endpoint, protocol, patience, credentials).await
    }

    /// The same of a store of ours that may be down: one attempt.
    pub async fn open_once(endpoint: &str, protocol: RedisProtocol, patience: Duration) -> Result<Self, Failure> {
        Self::over(Stream::Clear(dial_once(endpoint, patience).await?), endpoint, protocol, patience, None).await
    }

    async fn over(
        stream: Stream,
        endpoint: &str,
        protocol: RedisProtocol,
        patience: Duration,
        credentials: Option<&Credentials>,
    ) -> Result<Self, Failure> {
        let mut connection = Self {
            endpoint: endpoint.to_owned(),
            stream,
            out: Vec::with_capacity(FLUSH_BYTES),
            written: 0,
            input: vec![0; RECEIVE_BYTES],
            parsed: 0,
            received: 0,
            answered_at: None,
        };
        if let Some(Credentials { user, password }) = credentials {
            let all = [b"AUTH".as_slice(), user.as_bytes(), password.as_bytes()];
            let command: Vec<&[u8]> = all.into_iter().filter(|argument| !argument.is_empty()).collect();
            write_command(&command, &mut connection.out);
            match timeout(patience, connection.talk(&mut Login)).await {
                Ok(logged_in) => logged_in?,
                Err(_) => return Err(connection.failed("AUTH", "no answer")),
            }
        }
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

    /// One command outside of the load, whose answer is a word or a number: the number, or 0.
    pub async fn ask(&mut self, command: &[&[u8]]) -> Result<i64, Failure> {
        let name = String::from_utf8_lossy(command.first().copied().unwrap_or_default()).into_owned();
        let mut question = Question { name, answer: 0, text: String::new() };
        write_command(command, &mut self.out);
        self.talk(&mut question).await?;
        Ok(question.answer)
    }

    /// `INFO` of a section: lines of `name:value`.
    pub async fn info(&mut self, section: &str) -> Result<String, Failure> {
        let mut question = Question { name: "INFO".into(), answer: 0, text: String::new() };
        write_command(&[b"INFO", section.as_bytes()], &mut self.out);
        self.talk(&mut question).await?;
        Ok(question.text)
    }

    /// Writes what is buffered and reads one reply.
    async fn talk(&mut self, dialogue: &mut impl Dialogue) -> Result<(), Failure> {
        loop {
            self.transfer().await?;
            let (complete, parsed) = self.parse(dialogue, 1);
            parsed?;
            if complete == 1 {
                return Ok(());
            }
        }
    }

    /// When the newest reply to a batch came, also to one that failed after it. `None`: there was none.
    pub fn answered_at(&self) -> Option<Instant> {
        self.answered_at
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
            let (answered, parsed) = self.parse(dialogue, batch.count() - batch.answered());
            if answered > 0 {
                self.answered_at = Some(now);
                session.answered(&mut batch, answered, now);
            }
            parsed?;
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
        match self.stream.ready().await {
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
            Ok(0) => Err(self.failed("read from", "connection closed by the store").of_kind(Kind::HangUp)),
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

    /// Hands complete tokens to the dialogue, for at most `most` replies; how many replies were completed, also where one failed after them.
    #[inline]
    fn parse(&mut self, dialogue: &mut impl Dialogue, most: u32) -> (u32, Result<(), Failure>) {
        let mut complete = 0;
        while complete < most {
            match resp::read(&self.input[self.parsed..self.received]) {
                Ok(Some((token, length))) => {
                    match dialogue.receive(token) {
                        Ok(Received::Complete) => complete += 1,
                        Ok(Received::More) => {}
                        Err(failure) => return (complete, Err(self.at_endpoint(&failure))),
                    }
                    self.parsed += length;
                }
                Ok(None) => break,
                Err(malformed) => {
                    return (complete, Err(self.failed("", &malformed.to_string()).of_kind(Kind::Protocol)));
                }
            }
        }
        if self.parsed == self.received {
            self.parsed = 0;
            self.received = 0;
        }
        (complete, Ok(()))
    }

    #[cold]
    fn lost(&self, doing: &str, error: &io::Error) -> Failure {
        Failure::io(format_args!("{doing} {}", self.endpoint), error)
    }

    #[cold]
    fn at_endpoint(&self, failure: &Failure) -> Failure {
        failure.reworded(format_args!("{}: {failure}", self.endpoint))
    }

    #[cold]
    fn failed(&self, doing: &str, what: &str) -> Failure {
        let space = if doing.is_empty() { "" } else { " " };
        Failure::new(format_args!("{doing}{space}{}: {what}", self.endpoint))
    }
}

/// A command that was sent, and what came of it.
struct Question {
    name: String,
    answer: i64,
    text: String,
}

impl Dialogue for Question {
    fn send(&mut self, _: &mut Vec<u8>) {}

    fn receive(&mut self, token: Token<'_>) -> Result<Received, Failure> {
        match token {
            Token::Simple(_) => {}
            Token::Integer(number) => self.answer = number,
            Token::Bulk(text) => self.text = String::from_utf8_lossy(text).into_owned(),
            token => return Err(unexpected(&self.name, &token)),
        }
        Ok(Received::Complete)
    }
}

/// `AUTH`, which was sent, and what came of it. Some stores repeat the arguments of what they refuse, of which one is the password: nothing that the
/// store says goes into the failure.
struct Login;

/// The first words of errors that may be repeated: what kind of error it is.
const LOGIN_ERRORS: [&str; 8] = ["ERR", "WRONGPASS", "NOAUTH", "NOPERM", "DENIED", "LOADING", "BUSY", "MASTERDOWN"];
/// What else stores say, and what is said instead.
const LOGIN_REASONS: [(&str, &str); 2] = [
    ("without any password configured", "it is called without any password configured"),
    ("unknown command", "the store does not know this command"),
];

impl Dialogue for Login {
    fn send(&mut self, _: &mut Vec<u8>) {}

    fn receive(&mut self, token: Token<'_>) -> Result<Received, Failure> {
        match token {
            Token::Simple(_) => Ok(Received::Complete),
            Token::Error(text) => Err(login_refused(text)),
            token => Err(unexpected("AUTH", &token)),
        }
    }
}

#[cold]
fn login_refused(text: &[u8]) -> Failure {
    let text = String::from_utf8_lossy(text);
    let first = text.split(' ').next().unwrap_or_default();
    let word = LOGIN_ERRORS.iter().find(|word| **word == first).copied().unwrap_or("an error");
    let reason = LOGIN_REASONS.iter().find(|(said, _)| text.contains(said)).map(|(_, reason)| *reason);
    let reason = reason.unwrap_or("the store does not log this user in");
    Failure::new(format_args!("AUTH: {word}: {reason} (what it says is not repeated: it may have the password in it)"))
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

/// What errors begin with that pass by themselves: the store starts, has lost its master, or another one leads.
const OF_TIME: [&[u8]; 6] = [b"LOADING", b"MASTERDOWN", b"CLUSTERDOWN", b"READONLY", b"TRYAGAIN", b"NOREPLICAS"];

/// The store answered a command with an error.
#[cold]
pub fn refused(command: &str, text: &[u8]) -> Failure {
    let failure = Failure::new(format_args!("{command}: {}", String::from_utf8_lossy(text)));
    match OF_TIME.iter().any(|word| text.starts_with(word)) {
        true => failure,
        false => failure.never_of_time(),
    }
}

/// The store answered a command with something that the command cannot have as its answer.
#[cold]
pub fn unexpected(command: &str, token: &Token<'_>) -> Failure {
    match token {
        Token::Error(text) => refused(command, text),
        token => Failure::new(format_args!("{command}: answered with {}", token.kind())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_store_says_of_a_login_is_not_repeated() {
        let told = |text: &str| login_refused(text.as_bytes()).text().to_owned();
        for (said, kept) in [
            (
                "ERR unknown command 'AUTH', with args beginning with: 'bench' 's3cret' ",
                "AUTH: ERR: the store does not know",
            ),
            ("WRONGPASS invalid username-password pair or user is disabled: s3cret", "AUTH: WRONGPASS: "),
            (
                "ERR AUTH <s3cret> called without any password configured for the default user",
                "without any password configured",
            ),
            ("s3cret is not my password", "AUTH: an error: "),
            ("S3CRET", "AUTH: an error: "),
            ("", "AUTH: an error: "),
        ] {
            let told = told(said);
            assert!(told.contains(kept) && !told.to_lowercase().contains("s3cret"), "{told}");
        }
    }
}
