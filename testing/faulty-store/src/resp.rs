//! RESP framing: where a command or a reply ends in a stream of bytes. RESP2, RESP3 and inline commands.
//!
//! Promises: looks and never copies; an incomplete element is told from a broken one; a reply that comes in many
//! pieces is not read again from its start. Source: <https://redis.io/docs/latest/develop/reference/protocol-spec/>.

use std::ops::Range;

/// What a look at some bytes gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed<T> {
    /// More bytes are needed.
    Incomplete,
    /// It is complete.
    Complete(T),
    /// It is not RESP.
    Broken,
}

/// A command at the start of a buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// How many bytes it takes.
    pub length: usize,
    /// Where its words are. No words: the server ignores it and does not answer.
    pub words: Vec<Range<usize>>,
}

/// No length line or inline command is longer than this: the limit of Redis itself, in bytes.
const LINE_MAX_BYTES: usize = 64 * 1024;
/// No command has more words than this: the limit of Redis itself.
const WORDS_MAX: i64 = i32::MAX as i64;
/// No string is longer than this: the default limit of Redis itself (`proto-max-bulk-len`), in bytes.
const BULK_MAX_BYTES: i64 = 512 * 1024 * 1024;

/// Takes `Complete` out, or returns.
macro_rules! complete {
    ($parsed:expr) => {
        match $parsed {
            Parsed::Complete(value) => value,
            Parsed::Incomplete => return Parsed::Incomplete,
            Parsed::Broken => return Parsed::Broken,
        }
    };
}

/// Looks for a command at the start of `buffer`.
pub fn command(buffer: &[u8]) -> Parsed<Command> {
    let (line, mut at) = complete!(line(buffer, 0));
    let Some(b'*') = line.first() else {
        let start = |word: &[u8]| word.as_ptr() as usize - buffer.as_ptr() as usize;
        let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        return Parsed::Complete(Command { length: at, words: words.map(|w| start(w)..start(w) + w.len()).collect() });
    };
    let Some(count) = integer(&line[1..]).filter(|count| *count <= WORDS_MAX) else {
        return Parsed::Broken;
    };
    let mut words = Vec::new();
    for _ in 0..count {
        let (line, start) = complete!(self::line(buffer, at));
        let Some((b'$', length)) = line.split_first() else {
            return Parsed::Broken;
        };
        let Some(length @ 0..=BULK_MAX_BYTES) = integer(length) else {
            return Parsed::Broken;
        };
        let end = start + length as usize;
        if buffer.len() < end + 2 {
            return Parsed::Incomplete;
        }
        words.push(start..end);
        at = end + 2;
    }
    Parsed::Complete(Command { length: at, words })
}

/// Looks for the end of a reply, and remembers how far it looked.
#[derive(Debug, Clone)]
pub struct ReplyScan {
    /// Everything before this was looked at.
    at: usize,
    /// So many elements must still come.
    remaining: u64,
}

impl Default for ReplyScan {
    fn default() -> Self {
        Self { at: 0, remaining: 1 }
    }
}

impl ReplyScan {
    /// Looks for the end of the reply at the start of `buffer`, and gives its length in bytes.
    /// `buffer` must begin with the bytes of the call before, until that reply is complete.
    pub fn advance(&mut self, buffer: &[u8]) -> Parsed<usize> {
        while self.remaining > 0 {
            let (line, next) = complete!(line(buffer, self.at));
            let Some((kind, rest)) = line.split_first() else {
                return Parsed::Broken;
            };
            // Null is `$-1` or `*-1`: nothing follows.
            let count = || integer(rest).filter(|n| *n >= -1).map(|n| n.max(0) as u64);
            let (end, children) = match kind {
                b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => (next, 0),
                b'$' | b'=' | b'!' => match integer(rest) {
                    Some(-1) => (next, 0),
                    Some(length @ 0..=BULK_MAX_BYTES) => (next + length as usize + 2, 0),
                    _ => return Parsed::Broken,
                },
                b'*' | b'~' | b'>' => (next, count().unwrap_or(u64::MAX)),
                b'%' => (next, count().and_then(|n| n.checked_mul(2)).unwrap_or(u64::MAX)),
                // An attribute comes before the element that it describes, and is none itself.
                b'|' => (next, count().and_then(|n| n.checked_mul(2)?.checked_add(1)).unwrap_or(u64::MAX)),
                _ => return Parsed::Broken,
            };
            if buffer.len() < end {
                return Parsed::Incomplete;
            }
            let Some(remaining) = (self.remaining - 1).checked_add(children) else {
                return Parsed::Broken;
            };
            if children == u64::MAX {
                return Parsed::Broken;
            }
            (self.at, self.remaining) = (end, remaining);
        }
        Parsed::Complete(std::mem::take(self).at)
    }
}

/// Where the bytes of a value are in a reply that is one string, not null and not empty.
pub fn value_of(reply: &[u8]) -> Option<Range<usize>> {
    let Parsed::Complete((line, start)) = line(reply, 0) else {
        return None;
    };
    let length = integer(line.strip_prefix(b"$")?)?;
    (length > 0).then(|| start..start + length as usize).filter(|range| range.end <= reply.len())
}

/// The line at `start` without its end, and where the next one begins.
fn line(buffer: &[u8], start: usize) -> Parsed<(&[u8], usize)> {
    let rest = buffer.get(start..).unwrap_or_default();
    match rest.iter().take(LINE_MAX_BYTES).position(|byte| *byte == b'\n') {
        Some(end) => Parsed::Complete((rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]), start + end + 1)),
        None if rest.len() >= LINE_MAX_BYTES => Parsed::Broken,
        None => Parsed::Incomplete,
    }
}

fn integer(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(buffer: &[u8]) -> Vec<&[u8]> {
        match command(buffer) {
            Parsed::Complete(command) => command.words.iter().map(|word| &buffer[word.clone()]).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn commands() {
        assert_eq!(words(b"*2\r\n$3\r\nGET\r\n$2\r\n\r\n\r\n"), [&b"GET"[..], b"\r\n"]);
        assert_eq!(words(b"  PING  hello \r\n"), [&b"PING"[..], b"hello"]);
        assert_eq!(words(b"PING\n"), [b"PING"]);
        assert_eq!(words(b"\r\n"), [b""; 0]);
        assert_eq!(words(b"*0\r\n"), [b""; 0]);
        assert_eq!(words(b"*-1\r\n"), [b""; 0]);
        for broken in [&b"*x\r\n"[..], b"*1\r\n+OK\r\n", b"*1\r\n$-1\r\n", b"*1\r\n$9999999999\r\n"] {
            assert_eq!(command(broken), Parsed::Broken, "{}", broken.escape_ascii());
        }
        assert_eq!(command(&[b'a'; LINE_MAX_BYTES]), Parsed::Broken);
    }

    const REPLIES: [&[u8]; 14] = [
        b"+OK\r\n",
        b"-ERR no\r\n",
        b":-5\r\n",
        b"$-1\r\n",
        b"$0\r\n\r\n",
        b"$4\r\n\r\n+$\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*3\r\n:1\r\n*1\r\n$1\r\nx\r\n_\r\n",
        b"%1\r\n+a\r\n~1\r\n#t\r\n",
        b"|1\r\n+ttl\r\n:3\r\n$1\r\nx\r\n",
        b"=5\r\ntxt:a\r\n",
        b",1.5\r\n",
        b"!3\r\nERR\r\n",
    ];

    #[test]
    fn replies_byte_by_byte() {
        for reply in REPLIES {
            let mut scan = ReplyScan::default();
            for end in 0..reply.len() {
                assert_eq!(scan.advance(&reply[..end]), Parsed::Incomplete, "{}", reply.escape_ascii());
            }
            assert_eq!(scan.advance(&[reply, b"+next"].concat()), Parsed::Complete(reply.len()));
        }
    }

    #[test]
    fn broken_replies() {
        for broken in [&b"OK\r\n"[..], b"\r\n", b"$x\r\n", b"$-2\r\n", b"*-2\r\n", b"%9223372036854775807\r\n"] {
            // The last one is a promise of 2^64 elements less two: allowed, and never kept.
            let parsed = ReplyScan::default().advance(broken);
            let expected = if broken[0] == b'%' { Parsed::Incomplete } else { Parsed::Broken };
            assert_eq!(parsed, expected, "{}", broken.escape_ascii());
        }
    }

    #[test]
    fn values() {
        assert_eq!(value_of(b"$3\r\nabc\r\n"), Some(4..7));
        for none in [&b"$-1\r\n"[..], b"$0\r\n\r\n", b"+abc\r\n", b"*1\r\n$1\r\na\r\n", b"$3\r\nab", b""] {
            assert_eq!(value_of(none), None);
        }
    }

    proptest! {
        #[test]
        fn bytes_from_outside_are_never_fatal(bytes in proptest::collection::vec(
            prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'*'), Just(b'$'), Just(b'%'), Just(b'|'), Just(b'9'), any::<u8>()], 0..60))
        {
            if let Parsed::Complete(command) = command(&bytes) {
                prop_assert!(command.length <= bytes.len());
                prop_assert!(command.words.iter().all(|word| word.end <= command.length));
            }
            if let Parsed::Complete(length) = ReplyScan::default().advance(&bytes) {
                prop_assert!(length <= bytes.len());
            }
            if let Some(value) = value_of(&bytes) {
                prop_assert!(value.end <= bytes.len());
            }
        }
    }
}
