//! One Redis conversation through the proxy: which commands are writes to lose, which replies are values to spoil.
//!
//! A lost write is not cut out of the stream: it is replaced by `CLIENT REPLY ON`, a command that changes nothing and
//! is answered with the same `+OK`. So the store itself keeps the replies in order, however deep the pipeline, answers
//! `+QUEUED` inside MULTI, and takes a round trip for it.
//!
//! Promises: what is not altered passes byte for byte; the count of writes and reads runs over all connections; after
//! a command that breaks the rule of one reply for one command (SUBSCRIBE, MONITOR, …) the connection is passed
//! through untouched, as it is after anything that is not RESP.
//!
//! Counted as writes: SET without NX, XX or GET, SETEX, PSETEX, MSET, HMSET, which are those answered `+OK` whatever
//! the store holds. Counted as reads: answers to GET that are not null and not empty.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::proxy::{Answered, Downward, Upward};
use crate::resp::{self, Command, Parsed, ReplyScan};
use crate::tally::Tally;

/// What is sent in place of a lost write.
const HARMLESS: &[u8] = b"*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$2\r\nON\r\n";

/// What the next reply belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Value(Instant),
    Other(Instant),
    /// From here on nothing is understood.
    Anything,
}

type Queue = Arc<Mutex<VecDeque<Expected>>>;

/// The two directions of a new connection.
pub fn conversation(tally: &Arc<Tally>) -> (Commands, Replies) {
    let expected = Queue::default();
    let commands = Commands { tally: tally.clone(), expected: expected.clone(), buffer: Vec::new(), raw: false };
    let scan = ReplyScan::default();
    (commands, Replies { tally: tally.clone(), expected, buffer: Vec::new(), scan, raw: false })
}

/// From client to store.
pub struct Commands {
    tally: Arc<Tally>,
    expected: Queue,
    buffer: Vec<u8>,
    raw: bool,
}

impl Upward for Commands {
    fn pass(&mut self, chunk: &[u8], now: Instant, out: &mut Vec<u8>) -> bool {
        self.buffer.extend_from_slice(chunk);
        let mut at = 0;
        while !self.raw {
            match resp::command(&self.buffer[at..]) {
                Parsed::Incomplete => break,
                Parsed::Broken => self.surrender(),
                Parsed::Complete(command) => {
                    let bytes = &self.buffer[at..at + command.length];
                    let kind = Kind::of(bytes, &command);
                    out.extend_from_slice(if kind == Kind::Write && self.tally.drops_write() {
                        HARMLESS
                    } else {
                        bytes
                    });
                    at += command.length;
                    match kind {
                        Kind::Nothing => {}
                        Kind::Unruly => self.surrender(),
                        Kind::Read => self.expect(Expected::Value(now)),
                        Kind::Write | Kind::Other => self.expect(Expected::Other(now)),
                    }
                }
            }
        }
        if self.raw {
            out.extend_from_slice(&self.buffer[at..]);
            self.buffer.clear();
        } else {
            self.buffer.drain(..at);
        }
        at > 0
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.buffer);
    }
}

impl Commands {
    fn expect(&self, expected: Expected) {
        if expected != Expected::Anything {
            self.tally.request_passed();
        }
        self.expected.lock().unwrap_or_else(PoisonError::into_inner).push_back(expected);
    }

    fn surrender(&mut self) {
        self.raw = true;
        self.expect(Expected::Anything);
    }
}

/// From store to client.
pub struct Replies {
    tally: Arc<Tally>,
    expected: Queue,
    buffer: Vec<u8>,
    scan: ReplyScan,
    raw: bool,
}

impl Downward for Replies {
    fn pass(&mut self, chunk: &[u8], out: &mut Vec<u8>) -> Answered {
        let mut asked: Option<Instant> = None;
        self.buffer.extend_from_slice(chunk);
        let mut at = 0;
        let mut expected = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.raw {
            if expected.front() == Some(&Expected::Anything) {
                self.raw = true;
                break;
            }
            let length = match self.scan.advance(&self.buffer[at..]) {
                Parsed::Incomplete => break,
                Parsed::Broken => {
                    self.raw = true;
                    break;
                }
                Parsed::Complete(length) => length,
            };
            let reply = &mut self.buffer[at..at + length];
            at += length;
            // A push (`>`) belongs to no command.
            if reply.first() != Some(&b'>') {
                match expected.pop_front() {
                    Some(Expected::Value(instant)) => {
                        asked = asked.or(Some(instant));
                        let last =
                            resp::value_of(reply).map(|value| value.end - 1).filter(|_| self.tally.flips_value());
                        if let Some(byte) = last.and_then(|last| reply.get_mut(last)) {
                            *byte ^= 1;
                        }
                    }
                    Some(Expected::Other(instant)) => asked = asked.or(Some(instant)),
                    Some(Expected::Anything) | None => {}
                }
            }
            out.extend_from_slice(reply);
        }
        if self.raw {
            out.extend_from_slice(&self.buffer[at..]);
            self.buffer.clear();
        } else {
            self.buffer.drain(..at);
        }
        Answered { asked, alone: expected.is_empty() }
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.buffer);
    }
}

/// What a command means here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Ignored by the server, without an answer.
    Nothing,
    Read,
    Write,
    Other,
    /// Answered by more or fewer replies than one.
    Unruly,
}

impl Kind {
    fn of(bytes: &[u8], command: &Command) -> Self {
        let word = |at: usize| command.words.get(at).map(|range| bytes[range.clone()].to_ascii_uppercase());
        let Some(name) = word(0) else { return Self::Nothing };
        match name.as_slice() {
            b"GET" => Self::Read,
            b"SET" => {
                let conditional = |at| matches!(word(at).as_deref(), Some(b"NX" | b"XX" | b"GET"));
                if (3..command.words.len()).any(conditional) { Self::Other } else { Self::Write }
            }
            b"SETEX" | b"PSETEX" | b"MSET" | b"HMSET" => Self::Write,
            b"SUBSCRIBE" | b"PSUBSCRIBE" | b"SSUBSCRIBE" | b"UNSUBSCRIBE" | b"PUNSUBSCRIBE" | b"SUNSUBSCRIBE"
            | b"MONITOR" | b"SYNC" | b"PSYNC" => Self::Unruly,
            b"CLIENT" if word(1).as_deref() == Some(b"REPLY") => Self::Unruly,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::faults::{Faults, Store};

    fn tally(faults: &[&str]) -> Arc<Tally> {
        let list: Vec<String> = faults.iter().map(|fault| (*fault).to_owned()).collect();
        Arc::new(Tally::new(Faults::parse(&list, Store::Redis).unwrap()))
    }

    fn encode(words: &[&[u8]]) -> Vec<u8> {
        let mut out = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            out.extend_from_slice(word);
            out.extend_from_slice(b"\r\n");
        }
        out
    }

    fn up(commands: &mut Commands, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        commands.pass(bytes, Instant::now(), &mut out);
        out
    }

    fn down(replies: &mut Replies, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        replies.pass(bytes, &mut out);
        out
    }

    #[test]
    fn what_counts_as_a_write() {
        let kind = |line: &str| match resp::command(line.as_bytes()) {
            Parsed::Complete(command) => Kind::of(line.as_bytes(), &command),
            other => panic!("{other:?}"),
        };
        for write in ["SET k v\n", "set k nx\n", "SET k v EX 5\n", "SETEX k 5 v\n", "MSET a 1 b 2\n", "HMSET h f v\n"] {
            assert_eq!(kind(write), Kind::Write, "{write}");
        }
        for other in ["SET k v NX\n", "SET k v px 5 get\n", "INCR k\n", "LPUSH l v\n", "HSET h f v\n", "CLIENT ID\n"] {
            assert_eq!(kind(other), Kind::Other, "{other}");
        }
        assert_eq!((kind("get k\n"), kind("\n")), (Kind::Read, Kind::Nothing));
        assert_eq!((kind("client reply off\n"), kind("MONITOR\n")), (Kind::Unruly, Kind::Unruly));
    }

    #[test]
    fn every_third_write_of_all_connections_is_replaced() {
        let tally = tally(&["drop-write-every=3"]);
        let (mut first, _) = conversation(&tally);
        let (mut second, _) = conversation(&tally);
        let set = encode(&[b"SET", b"k", b"v"]);
        assert_eq!(up(&mut first, &set), set);
        assert_eq!(up(&mut second, &[set.clone(), b"PING\r\n".to_vec()].concat()), [&set[..], b"PING\r\n"].concat());
        assert_eq!(up(&mut first, &[set.clone(), set.clone()].concat()), [HARMLESS, &set].concat());
        assert_eq!(up(&mut second, &[set.clone(), set.clone()].concat()), [&set, HARMLESS].concat());
    }

    #[test]
    fn only_values_that_were_asked_for_are_flipped() {
        let tally = tally(&["flip-value-every=2"]);
        let (mut commands, mut replies) = conversation(&tally);
        up(&mut commands, b"GET a\r\nINFO\r\nGET nothing\r\nGET b\r\nGET empty\r\n\r\nGET c\r\nGET d\r\n");
        let answer =
            b"$3\r\naaa\r\n$3\r\naaa\r\n$-1\r\n>1\r\n$3\r\naaa\r\n$3\r\naaa\r\n$0\r\n\r\n$3\r\naaa\r\n$3\r\naaa\r\n";
        let spoilt =
            b"$3\r\naaa\r\n$3\r\naaa\r\n$-1\r\n>1\r\n$3\r\naaa\r\n$3\r\naa`\r\n$0\r\n\r\n$3\r\naaa\r\n$3\r\naa`\r\n";
        assert_eq!(down(&mut replies, answer).escape_ascii().to_string(), spoilt.escape_ascii().to_string());
    }

    #[test]
    fn after_an_unruly_command_all_passes() {
        let tally = tally(&["drop-write-every=1", "flip-value-every=1"]);
        let (mut commands, mut replies) = conversation(&tally);
        let stream = b"GET a\r\nSUBSCRIBE x y\r\nSET k v\r\nGET k\r\n\x00\x01";
        assert_eq!(up(&mut commands, stream), stream);
        assert_eq!(down(&mut replies, b"$1\r\na\r\n$1\r\na\r\n\x00junk"), b"$1\r\n`\r\n$1\r\na\r\n\x00junk");
        let (mut commands, _) = conversation(&tally);
        assert_eq!(up(&mut commands, b"*1\r\nnonsense\r\n\x00"), b"*1\r\nnonsense\r\n\x00");
    }

    #[test]
    fn the_oldest_question_answered_is_known() {
        let (mut commands, mut replies) = conversation(&tally(&[]));
        let early = Instant::now();
        commands.pass(b"PING\r\nPING\r\n", early, &mut Vec::new());
        commands.pass(b"PING\r\n", early + std::time::Duration::from_secs(1), &mut Vec::new());
        let answered = replies.pass(b"+PONG\r\n+PO", &mut Vec::new());
        assert_eq!((answered.asked, answered.alone), (Some(early), false));
        let answered = replies.pass(b"NG\r\n+PONG\r\n", &mut Vec::new());
        assert_eq!((answered.asked, answered.alone), (Some(early), true));
    }

    /// Cuts `bytes` at any places.
    fn pieces(bytes: &[u8], cuts: &[prop::sample::Index]) -> Vec<Vec<u8>> {
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        places.extend([0, bytes.len()]);
        places.sort_unstable();
        places.windows(2).map(|pair| bytes[pair[0]..pair[1]].to_vec()).collect()
    }

    proptest! {
        #[test]
        fn faults_are_placed_alike_however_the_stream_is_cut(
            kinds in prop::collection::vec(0..4_u8, 0..40),
            values in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 40),
            every in 1..5_usize,
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let tally = tally(&[&format!("drop-write-every={every}"), &format!("flip-value-every={every}")]);
            let (mut commands, mut replies) = conversation(&tally);
            let (mut sent, mut kept, mut answer, mut spoilt) = (vec![], vec![], vec![], vec![]);
            let (mut writes, mut reads) = (0, 0);
            for (kind, value) in kinds.iter().zip(&values) {
                match kind {
                    0 => {
                        let set = encode(&[b"SET", b"key", value]);
                        sent.extend_from_slice(&set);
                        writes += 1;
                        kept.extend_from_slice(if writes % every == 0 { HARMLESS } else { &set });
                        for replies in [&mut answer, &mut spoilt] { replies.extend_from_slice(b"+OK\r\n"); }
                    }
                    1 => {
                        for commands in [&mut sent, &mut kept] { commands.extend_from_slice(&encode(&[b"get", b"key"])); }
                        reads += 1;
                        let mut other = value.clone();
                        if reads % every == 0 { *other.last_mut().unwrap() ^= 1; }
                        for (replies, value) in [(&mut answer, value), (&mut spoilt, &other)] {
                            replies.extend_from_slice(&encode(&[value])[4..]);
                        }
                    }
                    2 => {
                        for commands in [&mut sent, &mut kept] { commands.extend_from_slice(b"LRANGE l 0 -1\r\n"); }
                        for replies in [&mut answer, &mut spoilt] { replies.extend_from_slice(&encode(&[value, value])); }
                    }
                    _ => {
                        for commands in [&mut sent, &mut kept] { commands.extend_from_slice(&encode(&[b"GET", value])); }
                        for replies in [&mut answer, &mut spoilt] { replies.extend_from_slice(b"$-1\r\n"); }
                    }
                }
            }
            let passed: Vec<u8> = pieces(&sent, &cuts).iter().flat_map(|piece| up(&mut commands, piece)).collect();
            prop_assert_eq!(passed, kept);
            let passed: Vec<u8> = pieces(&answer, &cuts).iter().flat_map(|piece| down(&mut replies, piece)).collect();
            prop_assert_eq!(passed, spoilt);
        }
    }
}
