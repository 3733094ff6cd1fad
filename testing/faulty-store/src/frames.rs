//! HTTP/2 seen from outside: which stream a frame belongs to, so that a delay is counted from a request to its own answer.
//!
//! Both sides also send frames that are no requests and no answers (PING, SETTINGS, WINDOW_UPDATE), and an etcd server
//! sends such ones between a request and its answer; to take those for the answer would delay nothing.
//!
//! Promises: every byte passes unchanged; HEADERS and DATA of a stream from the client are a question, the next HEADERS
//! or DATA of that stream from the store are its answer. Frame layout: RFC 9113 §4.1.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::proxy::{Answered, Downward, Upward};
use crate::tally::Tally;

/// What an HTTP/2 client sends first (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;

/// Finds frame headers in a stream of bytes that comes in pieces.
///
/// ```text
/// offset  bytes  field
///      0      3  length of the payload
///      3      1  type
///      4      1  flags
///      5      4  stream (highest bit reserved)
///      9      …  payload
/// ```
#[derive(Debug, Default)]
struct Scanner {
    /// Bytes to pass over before the next header.
    skip: usize,
    header: [u8; 9],
    filled: usize,
}

impl Scanner {
    /// Calls `frame` with type and stream of every frame whose header is completed by `chunk`.
    fn feed(&mut self, mut chunk: &[u8], mut frame: impl FnMut(u8, u32)) {
        while !chunk.is_empty() {
            let skipped = self.skip.min(chunk.len());
            self.skip -= skipped;
            chunk = &chunk[skipped..];
            let taken = (self.header.len() - self.filled).min(chunk.len());
            self.header[self.filled..self.filled + taken].copy_from_slice(&chunk[..taken]);
            self.filled += taken;
            chunk = &chunk[taken..];
            if self.filled == self.header.len() {
                let [l0, l1, l2, kind, _flags, s0, s1, s2, s3] = self.header;
                frame(kind, u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]));
                (self.skip, self.filled) = (u32::from_be_bytes([0, l0, l1, l2]) as usize, 0);
            }
        }
    }
}

/// When each stream asked what is not answered yet.
type Open = Arc<Mutex<HashMap<u32, Instant>>>;

/// The two directions of a new connection.
pub fn conversation(tally: &Arc<Tally>) -> (Questions, Answers) {
    let open = Open::default();
    let scanner = Scanner { skip: PREFACE.len(), ..Scanner::default() };
    (Questions { tally: tally.clone(), open: open.clone(), scanner }, Answers { open, scanner: Scanner::default() })
}

/// From client to store.
pub struct Questions {
    tally: Arc<Tally>,
    open: Open,
    scanner: Scanner,
}

impl Upward for Questions {
    fn pass(&mut self, chunk: &[u8], now: Instant, out: &mut Vec<u8>) -> bool {
        let mut asks = false;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        self.scanner.feed(chunk, |kind, stream| match kind {
            HEADERS | DATA => {
                asks = true;
                open.entry(stream).or_insert(now);
                if kind == HEADERS {
                    self.tally.request_passed();
                }
            }
            RST_STREAM => _ = open.remove(&stream),
            _ => {}
        });
        out.extend_from_slice(chunk);
        asks
    }
}

/// From store to client.
pub struct Answers {
    open: Open,
    scanner: Scanner,
}

impl Downward for Answers {
    fn pass(&mut self, chunk: &[u8], out: &mut Vec<u8>) -> Answered {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut asked: Option<Instant> = None;
        self.scanner.feed(chunk, |kind, stream| {
            if matches!(kind, HEADERS | DATA | RST_STREAM)
                && let Some(instant) = open.remove(&stream)
            {
                asked = Some(asked.map_or(instant, |oldest| oldest.min(instant)));
            }
        });
        out.extend_from_slice(chunk);
        Answered { asked, alone: open.is_empty() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::faults::Faults;

    fn frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = &(payload.len() as u32).to_be_bytes()[1..];
        [length, &[kind, 0xff], &(stream | 1 << 31).to_be_bytes(), payload].concat()
    }

    #[test]
    fn frames_however_they_are_cut() {
        let bytes =
            [frame(4, 0, &[9; 30]), frame(HEADERS, 1, b"h"), frame(DATA, 1, &[]), frame(DATA, 3, &[0; 300])].concat();
        for size in 1..bytes.len() {
            let (mut scanner, mut seen) = (Scanner::default(), Vec::new());
            for chunk in bytes.chunks(size) {
                scanner.feed(chunk, |kind, stream| seen.push((kind, stream)));
            }
            assert_eq!(seen, [(4, 0), (HEADERS, 1), (DATA, 1), (DATA, 3)], "in pieces of {size}");
        }
    }

    #[test]
    fn a_ping_is_no_answer() {
        let (mut questions, mut answers) = conversation(&Arc::new(Tally::new(Faults::default())));
        let start = Instant::now();
        let mut out = Vec::new();
        let mut ask = |bytes: &[u8], micros| {
            questions.pass(bytes, start + Duration::from_micros(micros), &mut out);
        };
        ask(PREFACE, 0);
        ask(&[frame(HEADERS, 1, b"h"), frame(DATA, 1, b"d")].concat(), 1);
        ask(&frame(HEADERS, 3, b"h"), 2);
        let mut answer = |bytes: &[u8]| {
            let answered = answers.pass(bytes, &mut Vec::new());
            (answered.asked.map(|asked| (asked - start).as_micros()), answered.alone)
        };
        assert_eq!(answer(&frame(6, 0, &[0; 8])), (None, false));
        assert_eq!(answer(&frame(HEADERS, 3, b"h")), (Some(2), false));
        assert_eq!(answer(&frame(DATA, 3, b"d")), (None, false));
        // A watch asks again on a stream that was answered before.
        ask(&frame(DATA, 3, b"d"), 5);
        assert_eq!(answer(&[frame(DATA, 3, b"d"), frame(HEADERS, 1, b"h")].concat()), (Some(1), true));
    }
}
