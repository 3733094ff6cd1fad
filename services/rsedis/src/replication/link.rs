//! The master that is followed, and what is said to it before its stream comes: the handshake, line by line, and all keys.

use crate::protocol::push_command;

/// See the module's description.
#[derive(Debug)]
pub struct Master {
    /// Where it is.
    pub host: String,
    /// See [`Master::host`].
    pub port: u16,
    /// How far the connection to it is.
    pub link: Link,
    /// The database that the stream has chosen last.
    pub database: usize,
    /// When it was heard last, milliseconds since 1970.
    pub heard_at: i64,
    /// Since when its stream has not come, milliseconds since 1970.
    pub down_since: i64,
    /// It wants to know how far we are.
    pub is_owed: bool,
}

impl Master {
    /// One that was not spoken to yet.
    pub fn new(host: String, port: u16, now: i64) -> Self {
        Self { host, port, link: Link::Down, database: 0, heard_at: now, down_since: now, is_owed: false }
    }

    /// Whether its stream comes.
    pub fn is_up(&self) -> bool {
        matches!(self.link, Link::Up)
    }

    /// Whether its keys are on their way, or are being read.
    pub fn is_syncing(&self) -> bool {
        self.receipt().is_some()
    }

    /// The keys that are on their way, or are being read.
    pub fn receipt(&self) -> Option<&Receipt> {
        match &self.link {
            Link::Receiving(receipt) | Link::Loading(receipt) => Some(receipt),
            _ => None,
        }
    }

    /// The word that ROLE has for the link.
    pub fn link_word(&self) -> &'static str {
        match self.link {
            Link::Down => "connect",
            Link::Connecting => "connecting",
            Link::Handshake(_) => "handshake",
            Link::Receiving(_) | Link::Loading(_) => "sync",
            Link::Up => "connected",
        }
    }
}

/// How far a connection to a master is.
#[derive(Debug)]
pub enum Link {
    /// There is none; one is tried before long.
    Down,
    /// It is being made.
    Connecting,
    /// An answer is waited for.
    Handshake(Asked),
    /// Keys are coming.
    Receiving(Box<Receipt>),
    /// Keys are being read, which have come or come.
    Loading(Box<Receipt>),
    /// The stream comes.
    Up,
}

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// `PING`
    Ping,
    /// `AUTH`
    Auth,
    /// `REPLCONF listening-port`
    Port,
    /// `REPLCONF ip-address`
    Address,
    /// `REPLCONF capa`
    Capabilities,
    /// `PSYNC`
    Sync,
}

/// What a replica says of itself, and what it has.
#[derive(Clone, Debug, Default)]
pub struct Introduction {
    /// `masteruser` and `masterauth`.
    pub login: Option<(String, String)>,
    /// Where it listens.
    pub port: String,
    /// `replica-announce-ip`
    pub address: String,
    /// The history that it has, and how many bytes of it.
    pub history: (String, u64),
    /// The last words of PSYNC. Who hands its lead over asks the other server to lead with them.
    pub demand: &'static [&'static [u8]],
}

/// What follows from an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Say this, and wait for the answer.
    Ask(Asked, Vec<u8>),
    /// All keys come, and then the stream of this history from this offset on.
    Full(String, u64),
    /// The stream goes on, under this name if there is a new one.
    Partial(Option<String>),
}

fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_command(&mut bytes, words.iter().copied());
    bytes
}

/// What is said first.
pub fn greeting() -> (Asked, Vec<u8>) {
    (Asked::Ping, command(&[b"PING"]))
}

impl Introduction {
    /// What is to be said behind the answer to a question.
    fn after(&self, asked: Asked) -> Next {
        let next = match asked {
            Asked::Ping => Asked::Auth,
            Asked::Auth => Asked::Port,
            Asked::Port => Asked::Address,
            Asked::Address => Asked::Capabilities,
            Asked::Capabilities | Asked::Sync => Asked::Sync,
        };
        match (next, &self.login) {
            (Asked::Auth, None) => self.after(Asked::Auth),
            (Asked::Auth, Some((user, password))) if user.is_empty() => {
                Next::Ask(next, command(&[b"AUTH", password.as_bytes()]))
            }
            (Asked::Auth, Some((user, password))) => {
                Next::Ask(next, command(&[b"AUTH", user.as_bytes(), password.as_bytes()]))
            }
            (Asked::Port, _) => Next::Ask(next, command(&[b"REPLCONF", b"listening-port", self.port.as_bytes()])),
            (Asked::Address, _) if self.address.is_empty() => self.after(Asked::Address),
            (Asked::Address, _) => Next::Ask(next, command(&[b"REPLCONF", b"ip-address", self.address.as_bytes()])),
            (Asked::Capabilities, _) => Next::Ask(next, command(&[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2"])),
            _ => Next::Ask(next, self.request()),
        }
    }

    /// What asks for the stream.
    pub fn request(&self) -> Vec<u8> {
        let (id, offset) = (self.history.0.as_bytes(), (self.history.1 + 1).to_string());
        let words: [&[&[u8]]; 2] = [&[b"PSYNC", id, offset.as_bytes()], self.demand];
        command(&words.concat())
    }

    /// What follows from a line (without its end) that answers a question. Errors: the link is given up, and why.
    pub fn on_answer(&self, asked: Asked, line: &[u8]) -> Result<Next, String> {
        let text = String::from_utf8_lossy(line);
        let remedy = match text.split(' ').next() {
            Some("-NOAUTH") => ": set masterauth (and masteruser) to what it takes",
            Some("-NOPERM") => ": set masteruser to one that may do this there",
            _ => "",
        };
        let refused = || format!("the master answered {asked:?} with '{text}'{remedy}");
        match asked {
            // Whoever wants to be logged in to first is well.
            Asked::Ping => match text.starts_with('+') || text.starts_with("-NOAUTH") || text.starts_with("-NOPERM") {
                true => Ok(self.after(asked)),
                false => Err(refused()),
            },
            Asked::Auth if !text.starts_with('+') => {
                Err(format!("Unable to AUTH to MASTER: {text}: see masteruser and masterauth"))
            }
            // Old masters do not know all of this, and can do without.
            Asked::Auth | Asked::Port | Asked::Address | Asked::Capabilities => Ok(self.after(asked)),
            Asked::Sync => {
                let words: Vec<&str> = text.split(' ').collect();
                let is_id = |id: &str| id.len() == 40 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
                match words[..] {
                    ["+FULLRESYNC", id, offset] if is_id(id) => {
                        let offset = offset.parse().map_err(|_| refused())?;
                        Ok(Next::Full(id.to_owned(), offset))
                    }
                    ["+CONTINUE"] => Ok(Next::Partial(None)),
                    ["+CONTINUE", id] if is_id(id) => Ok(Next::Partial(Some(id.to_owned()))),
                    _ => Err(refused()),
                }
            }
        }
    }
}

/// Bytes of the mark behind keys whose length was not told before.
const MARK_BYTES: usize = 40;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum End {
    #[default]
    Unknown,
    Length(u64),
    Mark(Vec<u8>),
}

/// Keys that come: an RDB file, its length told before (`$length`) or a mark behind it (`$EOF:mark`).
#[derive(Debug, Default)]
pub struct Receipt {
    end: End,
    /// The file so far, without what was read and let go of.
    bytes: Vec<u8>,
    /// So many of the bytes were read.
    read: usize,
    /// How many bytes of the file have come.
    received: u64,
    is_whole: bool,
    /// The history that follows, and where it goes on.
    pub history: (String, u64),
}

impl Receipt {
    /// Of the keys before a history's offset.
    pub fn new(history: (String, u64)) -> Self {
        Self { history, ..Self::default() }
    }

    /// How long the file is, if that is known.
    pub fn total(&self) -> Option<u64> {
        match self.end {
            End::Length(length) => Some(length),
            _ => self.is_whole.then_some(self.received),
        }
    }

    /// How many bytes of the file have come.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Whether the master has said how the file will end: from here on it comes.
    pub fn has_begun(&self) -> bool {
        self.end != End::Unknown
    }

    /// Whether the file has come whole.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// What has come and was not read.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.read..]
    }

    /// So many bytes more were read.
    pub fn note_read(&mut self, count: usize) {
        self.read += count;
        // Of a file that is whole nothing comes behind that would need the room.
        if !self.is_whole && self.read > self.bytes.len() / 2 {
            self.bytes.drain(..self.read);
            self.read = 0;
        }
    }

    /// Whether the file, all of which was read, has come whole, with its mark. Errors: something else follows.
    pub fn has_ended(&self) -> Result<bool, String> {
        match self.end {
            End::Mark(_) if !self.is_whole && self.rest().len() > MARK_BYTES => {
                Err("something else follows the keys than the mark that was announced".to_owned())
            }
            _ => Ok(self.is_whole),
        }
    }

    /// Takes what has come, and leaves what follows the file; whether the file is whole. Errors: it is none.
    pub fn take(&mut self, query: &mut Vec<u8>) -> Result<bool, String> {
        if self.is_whole {
            return Ok(true);
        }
        while self.end == End::Unknown {
            let Some(at) = memchr::memchr(b'\n', query) else {
                return match query.len() > 256 {
                    true => Err("the master sent neither $length nor $EOF".to_owned()),
                    false => Ok(false),
                };
            };
            let line: Vec<u8> = query.drain(..=at).collect();
            let line = line.trim_ascii_end();
            // It says that it is still there.
            if line.is_empty() {
                continue;
            }
            let mark = line.strip_prefix(b"$EOF:").filter(|mark| mark.len() == MARK_BYTES);
            let length = line.strip_prefix(b"$").and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
            self.end = match (mark, length) {
                (Some(mark), _) => End::Mark(mark.to_vec()),
                (None, Some(length)) => End::Length(length),
                (None, None) => return Err(format!("the master sent '{}' instead of keys", line.escape_ascii())),
            };
        }
        match &self.end {
            End::Length(length) => {
                let missing = usize::try_from(*length - self.received).unwrap_or(usize::MAX);
                let taken = missing.min(query.len());
                self.bytes.extend(query.drain(..taken));
                self.received += taken as u64;
                self.is_whole = taken == missing;
            }
            End::Mark(mark) => {
                // The master waits for an acknowledgement before it sends more.
                self.received += query.len() as u64;
                self.bytes.append(query);
                // What was read is no part of the mark.
                self.is_whole = self.bytes[self.read..].ends_with(mark);
                if self.is_whole {
                    self.bytes.truncate(self.bytes.len() - MARK_BYTES);
                    self.received -= MARK_BYTES as u64;
                }
            }
            End::Unknown => {}
        }
        Ok(self.is_whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: &str = "0123456789012345678901234567890123456789";

    fn introduction() -> Introduction {
        Introduction {
            login: Some(("someone".to_owned(), "secret".to_owned())),
            port: "7000".to_owned(),
            address: "10.0.0.1".to_owned(),
            history: (ID.to_owned(), 41),
            demand: &[],
        }
    }

    fn asks(next: &Next) -> String {
        match next {
            Next::Ask(_, bytes) => {
                let text = String::from_utf8_lossy(bytes).into_owned();
                text.split("\r\n").filter(|word| !word.starts_with(['*', '$'])).collect::<Vec<_>>().join(" ")
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn a_replica_introduces_itself_in_redis_order() {
        let introduction = introduction();
        let (mut asked, _) = greeting();
        let mut said = Vec::new();
        for answer in
            ["-NOAUTH Authentication required.", "+OK", "+OK", "-ERR Unrecognized REPLCONF option: ip-address", "+OK"]
        {
            let next = introduction.on_answer(asked, answer.as_bytes()).unwrap();
            said.push(asks(&next).trim().to_owned());
            if let Next::Ask(next, _) = next {
                asked = next;
            }
        }
        assert_eq!(
            said,
            [
                "AUTH someone secret",
                "REPLCONF listening-port 7000",
                "REPLCONF ip-address 10.0.0.1",
                "REPLCONF capa eof capa psync2",
                &format!("PSYNC {ID} 42"),
            ]
        );
        let next =
            Introduction { demand: &[b"FAILOVER"], ..introduction.clone() }.on_answer(Asked::Capabilities, b"+OK");
        assert_eq!(asks(&next.unwrap()).trim(), format!("PSYNC {ID} 42 FAILOVER"));
        let full = format!("+FULLRESYNC {ID} 7");
        assert_eq!(introduction.on_answer(asked, full.as_bytes()), Ok(Next::Full(ID.to_owned(), 7)));
        assert_eq!(introduction.on_answer(asked, b"+CONTINUE"), Ok(Next::Partial(None)));
        let other = format!("+CONTINUE {ID}");
        assert_eq!(introduction.on_answer(asked, other.as_bytes()), Ok(Next::Partial(Some(ID.to_owned()))));
    }

    #[test]
    fn what_a_replica_does_not_say_is_left_out_and_refusals_end_the_link() {
        let introduction = Introduction { port: "1".to_owned(), ..Introduction::default() };
        let next = introduction.on_answer(Asked::Ping, b"+PONG").unwrap();
        assert!(asks(&next).contains("listening-port"), "{next:?}");
        let next = introduction.on_answer(Asked::Port, b"+OK").unwrap();
        assert!(asks(&next).contains("capa"), "{next:?}");
        for (asked, answer) in [
            (Asked::Ping, "-LOADING Redis is loading the dataset in memory"),
            (Asked::Auth, "-WRONGPASS invalid username-password pair or user is disabled."),
            (Asked::Sync, "-NOMASTERLINK Can't SYNC while not connected with my master"),
            (Asked::Sync, "+FULLRESYNC x 1"),
            (Asked::Sync, "+FULLRESYNC 0123456789012345678901234567890123456789 -1"),
            (Asked::Sync, ""),
        ] {
            let error = introduction.on_answer(asked, answer.as_bytes()).unwrap_err();
            assert!(error.contains(answer), "{error}");
        }
        let error = introduction.on_answer(Asked::Sync, b"-NOAUTH Authentication required.").unwrap_err();
        assert!(error.ends_with("required.': set masterauth (and masteruser) to what it takes"), "{error}");
    }

    proptest! {
        /// However the bytes come, the file is what was sent; what follows a file of a known length is left.
        #[test]
        fn a_file_comes_in_any_pieces(
            file in proptest::collection::vec(any::<u8>(), 0..200),
            follows in proptest::collection::vec(any::<u8>(), 0..20),
            newlines in 0usize..3,
            has_mark: bool,
            pieces in proptest::collection::vec(1usize..50, 1..100),
        ) {
            let mut sent = b"\n".repeat(newlines);
            let mark = ID.as_bytes();
            prop_assume!(!has_mark || !file.windows(MARK_BYTES).any(|window| window == mark));
            match has_mark {
                true => {
                    sent.extend_from_slice(b"$EOF:");
                    sent.extend_from_slice(mark);
                    sent.extend_from_slice(b"\r\n");
                    sent.extend_from_slice(&file);
                    sent.extend_from_slice(mark);
                }
                false => {
                    sent.extend_from_slice(format!("${}\r\n", file.len()).as_bytes());
                    sent.extend_from_slice(&file);
                    sent.extend_from_slice(&follows);
                }
            }
            let mut receipt = Receipt::new((ID.to_owned(), 0));
            let (mut query, mut rest, mut is_whole) = (Vec::new(), &sent[..], false);
            for piece in pieces.iter().cycle() {
                let (now, later) = rest.split_at((*piece).min(rest.len()));
                query.extend_from_slice(now);
                rest = later;
                is_whole = is_whole || receipt.take(&mut query).unwrap();
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert!(is_whole);
            prop_assert_eq!(receipt.rest(), &file);
            prop_assert_eq!(query, if has_mark { Vec::new() } else { follows });
        }

        #[test]
        fn no_bytes_of_a_master_are_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut receipt = Receipt::new((ID.to_owned(), 0));
            let _ = receipt.take(&mut bytes.clone());
            for asked in [Asked::Ping, Asked::Auth, Asked::Port, Asked::Sync] {
                let _ = introduction().on_answer(asked, &bytes);
            }
        }
    }
}
