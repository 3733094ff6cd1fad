//! What goes over a connection between members. Pure.
//!
//! A connection carries messages one way: from who opened it to who accepted it. Everything on it is a frame:
//!
//! | bytes | field | |
//! | --- | --- | --- |
//! | 4 | length | of the payload, little-endian |
//! | 4 | checksum | CRC-32C of the length and the payload |
//! | length | payload | |
//!
//! The first frame, from who opens: magic `storebench-peer2` (16), group (8), from (8), to (8), incarnation (8), log (8) if it knows which. The
//! answer, one frame: 0 and log (8) if it knows which, or 1 and why not, or 2 and why never again. Then messages, as [`crate::Message`] has
//! them, until the connection ends.
//!
//! Who does not know yet which member it is sends magic `storebench-intro` (16) instead, and gets one frame that the server
//! around the member has written; that is all.

use crate::codec::{Malformed, Reader, put};
use crate::message::Message;

const MAGIC: &[u8; 16] = b"storebench-peer2";
const NEWCOMER: &[u8; 16] = b"storebench-intro";
pub(super) const HEAD_BYTES: usize = 8;
/// The largest first frame or answer.
pub(super) const HELLO_BYTES_MAX: usize = 256;
/// The largest introduction that is accepted, bytes.
pub(super) const INTRODUCTION_BYTES_MAX: usize = 1 << 20;

/// How a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// Which group: members of different ones must not talk.
    pub(super) group: u64,
    /// Which log of all that groups of this number have; 0: that is not known.
    pub(super) log: u64,
    pub(super) from: u64,
    pub(super) to: u64,
    /// Another one at each start of who opens.
    pub(super) incarnation: u64,
}

/// The first frame of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Greeting {
    Member(Hello),
    Newcomer,
}

impl Greeting {
    pub(super) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        if payload == NEWCOMER { Ok(Self::Newcomer) } else { Hello::decode(payload).map(Self::Member) }
    }
}

/// Asks who everybody is.
pub(super) fn encode_newcomer(out: &mut Vec<u8>) {
    frame(out, |out| out.extend_from_slice(NEWCOMER));
}

/// What a newcomer gets.
pub(super) fn encode_introduction(introduction: &[u8], out: &mut Vec<u8>) {
    frame(out, |out| out.extend_from_slice(introduction));
}

impl Hello {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        frame(out, |out| {
            out.extend_from_slice(MAGIC);
            let numbers = [self.group, self.from, self.to, self.incarnation];
            numbers.into_iter().chain((self.log > 0).then_some(self.log)).for_each(|number| put(out, number));
        });
    }

    pub(super) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let what = "the hello of a member of this version";
        let rest = payload.strip_prefix(MAGIC).ok_or(Malformed(what))?;
        let mut reader = Reader::new(rest, what);
        let (group, from, to) = (reader.number()?, reader.number()?, reader.number()?);
        let incarnation = reader.number()?;
        let log = if reader.left() > 0 { reader.number()? } else { 0 };
        reader.end()?;
        Ok(Self { group, log, from, to, incarnation })
    }

    /// Why this cannot be for a member of that number in that group, with that log.
    pub(super) fn objection(&self, group: u64, log: u64, own: u64) -> Option<String> {
        if self.group != group {
            let other = self.group;
            return Some(format!(
                "it belongs to group {other:016x}, this member to {group:016x}: were they founded with the same members, and with the same data?"
            ));
        }
        if are_different(self.log, log) {
            return Some(other_log(self.log, log));
        }
        if self.to != own {
            return Some(format!("it wants member {:x}, this is {own:x}: check the addresses of members", self.to));
        }
        (self.from == own)
            .then(|| format!("it says that it is member {own:x} itself: every member needs its own number"))
    }
}

/// Whether these are two logs for certain: 0 is one of which nobody knows yet.
pub fn are_different(one: u64, other: u64) -> bool {
    one != 0 && other != 0 && one != other
}

/// Why a member with another log is not talked to.
pub(super) fn other_log(log: u64, own: u64) -> String {
    format!(
        "its data are of another group with the same number: of log {log:016x}, and this member's of {own:016x}: check whose directory each has"
    )
}

/// Why a member does not want to talk to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Objection {
    pub(super) text: String,
    /// The other was removed from the group.
    pub(super) is_for_ever: bool,
}

/// The answer to a hello; `log` is which log this member has, 0 if it does not know.
pub(super) fn encode_answer(objection: Option<&Objection>, log: u64, out: &mut Vec<u8>) {
    frame(out, |out| {
        out.push(objection.map_or(0, |objection| 1 + u8::from(objection.is_for_ever)));
        let text = objection.map_or(&[][..], |objection| objection.text.as_bytes());
        out.extend_from_slice(&text[..text.len().min(HELLO_BYTES_MAX - 1)]);
        if objection.is_none() && log > 0 {
            put(out, log);
        }
    });
}

/// Which log the other has, 0 if it does not know. `Err`: why it does not want to talk.
pub(super) fn decode_answer(payload: &[u8]) -> Result<u64, Objection> {
    let text_of = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    match payload {
        [0] => Ok(0),
        [0, log @ ..] if let Some((log, [])) = log.split_first_chunk() => Ok(u64::from_le_bytes(*log)),
        [1, text @ ..] => Err(Objection { text: text_of(text), is_for_ever: false }),
        [2, text @ ..] => Err(Objection { text: text_of(text), is_for_ever: true }),
        _ => Err(Objection { text: "its answer is not one of a member".into(), is_for_ever: false }),
    }
}

/// Appends a message and its frame to `out`.
pub(super) fn encode_message(message: &Message, out: &mut Vec<u8>) {
    frame(out, |out| message.encode_into(out));
}

/// Appends a frame whose payload `write` appends.
fn frame(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; HEAD_BYTES]);
    write(out);
    let payload = start + HEAD_BYTES;
    let length = ((out.len() - payload) as u32).to_le_bytes();
    let checksum = checksum(length, &out[payload..]);
    out[start..start + 4].copy_from_slice(&length);
    out[start + 4..payload].copy_from_slice(&checksum.to_le_bytes());
}

/// The head of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    length: [u8; 4],
    checksum: u32,
}

impl Head {
    /// The head, unless the payload would be larger than it may be.
    pub(super) fn decode(head: [u8; HEAD_BYTES], payload_bytes_max: usize) -> Result<Self, Malformed> {
        let [l0, l1, l2, l3, c0, c1, c2, c3] = head;
        let head = Self { length: [l0, l1, l2, l3], checksum: u32::from_le_bytes([c0, c1, c2, c3]) };
        if head.payload_bytes() > payload_bytes_max { Err(Malformed("a frame of allowed size")) } else { Ok(head) }
    }

    pub(super) fn payload_bytes(&self) -> usize {
        u32::from_le_bytes(self.length) as usize
    }

    /// Whether this is the payload.
    pub(super) fn check(&self, payload: &[u8]) -> Result<(), Malformed> {
        let is_same = checksum(self.length, payload) == self.checksum;
        if is_same { Ok(()) } else { Err(Malformed("a frame: its checksum is wrong")) }
    }
}

fn checksum(length: [u8; 4], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&length), payload)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(bytes: &[u8], max: usize) -> Option<Vec<u8>> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let head = Head::decode(*head, max).ok()?;
        let payload = rest.get(..head.payload_bytes())?;
        head.check(payload).ok()?;
        Some(payload.to_vec())
    }

    #[test]
    fn a_hello_says_who_wants_whom() {
        let hello = Hello { group: 7, log: 0, from: 1, to: 2, incarnation: 9 };
        for (hello, payload_bytes) in [(hello, 48), (Hello { log: 5, ..hello }, 56)] {
            let mut bytes = Vec::new();
            hello.encode(&mut bytes);
            let payload = parse(&bytes, HELLO_BYTES_MAX).unwrap();
            assert_eq!((Greeting::decode(&payload), payload.len()), (Ok(Greeting::Member(hello)), payload_bytes));
        }
        assert_eq!(hello.objection(7, 0, 2), None);
        assert!(hello.objection(8, 0, 2).unwrap().contains("group"));
        assert!(hello.objection(7, 0, 3).unwrap().contains("wants member 2"));
        assert!(Hello { from: 2, ..hello }.objection(7, 0, 2).unwrap().contains("own number"));
        // Who does not know yet may be anybody.
        let with = |log| Hello { log, ..hello };
        assert_eq!(
            [with(0).objection(7, 5, 2), with(5).objection(7, 0, 2), with(5).objection(7, 5, 2)],
            [None, None, None]
        );
        assert!(with(6).objection(7, 5, 2).unwrap().contains("another group with the same number"));
    }

    #[test]
    fn an_answer_is_told() {
        let no = |text: &str, is_for_ever| Some(Objection { text: text.into(), is_for_ever });
        for objection in [None, no("no", false), no("never", true), no(&"x".repeat(HELLO_BYTES_MAX - 1), false)] {
            let mut bytes = Vec::new();
            encode_answer(objection.as_ref(), 7, &mut bytes);
            let answer = decode_answer(&parse(&bytes, HELLO_BYTES_MAX).unwrap());
            assert_eq!(answer, objection.map_or(Ok(7), Err));
        }
        let mut unknown = Vec::new();
        encode_answer(None, 0, &mut unknown);
        let unknown = parse(&unknown, HELLO_BYTES_MAX).unwrap();
        assert_eq!((unknown.len(), decode_answer(&unknown)), (1, Ok(0)));
        let mut bytes = Vec::new();
        encode_answer(no(&"x".repeat(1000), false).as_ref(), 7, &mut bytes);
        assert!(parse(&bytes, HELLO_BYTES_MAX).is_some(), "a long reason is cut");
    }

    #[test]
    fn a_newcomer_is_introduced() {
        let mut bytes = Vec::new();
        encode_newcomer(&mut bytes);
        assert_eq!(Greeting::decode(&parse(&bytes, HELLO_BYTES_MAX).unwrap()), Ok(Greeting::Newcomer));
        bytes.clear();
        encode_introduction(b"all of us", &mut bytes);
        assert_eq!(parse(&bytes, INTRODUCTION_BYTES_MAX).unwrap(), b"all of us");
    }

    proptest! {
        #[test]
        fn what_was_framed_is_read(payload: Vec<u8>) {
            let mut bytes = vec![1, 2, 3];
            frame(&mut bytes, |out| out.extend_from_slice(&payload));
            prop_assert_eq!(parse(&bytes[3..], payload.len()), Some(payload));
        }

        /// Whatever comes: no panic, no more than what is there, and no damage that goes unnoticed.
        #[test]
        fn garbage_is_refused(mut bytes: Vec<u8>, payload: Vec<u8>, at: usize, bit in 0u8..8) {
            let _ = parse(&bytes, 1000);
            let _ = Greeting::decode(&bytes);
            let _ = decode_answer(&bytes);
            let _ = Message::decode(&bytes);
            bytes.clear();
            frame(&mut bytes, |out| out.extend_from_slice(&payload));
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(parse(&bytes, usize::MAX), None);
        }
    }
}
