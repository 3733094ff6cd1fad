//! Writes replies. What RESP3 says with a type of its own, RESP2 says as Redis 7.0 does.

use super::{push_bulk, push_length};
use crate::number::{double_text, push_integer};
use crate::structure::listpack::Item;

/// A client's replies.
#[derive(Debug, Default)]
pub struct Reply {
    /// Not sent yet.
    pub bytes: Vec<u8>,
    /// The client has said `HELLO 3`.
    pub is_resp3: bool,
    /// With more bytes than this the client is cut off; 0: no limit. Kept by the reactor.
    pub most: usize,
}

impl Reply {
    /// Whether the client is cut off for what it is answered: nobody reads what follows, and a long answer may end here.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.most > 0 && self.bytes.len() > self.most
    }

    /// `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.bytes.extend_from_slice(b"+OK\r\n");
    }

    /// A status.
    pub fn simple(&mut self, text: impl AsRef<[u8]>) {
        self.bytes.push(b'+');
        self.bytes.extend_from_slice(text.as_ref());
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// An error: its code and text. Line breaks become spaces.
    pub fn error(&mut self, text: impl AsRef<[u8]>) {
        self.bytes.push(b'-');
        let bytes = text.as_ref().iter();
        self.bytes.extend(bytes.map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }));
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// An integer.
    #[inline]
    pub fn integer(&mut self, number: i64) {
        match number {
            0 => self.bytes.extend_from_slice(b":0\r\n"),
            1 => self.bytes.extend_from_slice(b":1\r\n"),
            _ => {
                self.bytes.push(b':');
                push_integer(&mut self.bytes, number);
                self.bytes.extend_from_slice(b"\r\n");
            }
        }
    }

    /// How many.
    #[inline]
    pub fn count(&mut self, count: usize) {
        self.integer(count as i64);
    }

    /// 1 or 0.
    #[inline]
    pub fn flag(&mut self, is_so: bool) {
        self.integer(i64::from(is_so));
    }

    /// A boolean where RESP3 has one.
    pub fn boolean(&mut self, is_so: bool) {
        match (self.is_resp3, is_so) {
            (true, true) => self.bytes.extend_from_slice(b"#t\r\n"),
            (true, false) => self.bytes.extend_from_slice(b"#f\r\n"),
            (false, is_so) => self.flag(is_so),
        }
    }

    /// A string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        push_bulk(&mut self.bytes, bytes);
    }

    /// An integer as a string.
    pub fn bulk_integer(&mut self, number: i64) {
        self.bulk(itoa::Buffer::new().format(number).as_bytes());
    }

    /// An element as a string.
    #[inline]
    pub fn item(&mut self, item: Item<'_>) {
        match item {
            Item::Bytes(bytes) => self.bulk(bytes),
            Item::Integer(number) => self.bulk_integer(number),
        }
    }

    /// A double; a string in RESP2.
    pub fn double(&mut self, value: f64) {
        let text = double_text(value);
        if self.is_resp3 {
            self.bytes.push(b',');
            self.bytes.extend_from_slice(&text);
            self.bytes.extend_from_slice(b"\r\n");
        } else {
            self.bulk(&text);
        }
    }

    /// No value.
    #[inline]
    pub fn null(&mut self) {
        self.bytes.extend_from_slice(if self.is_resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// No array.
    pub fn null_array(&mut self) {
        self.bytes.extend_from_slice(if self.is_resp3 { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// The head of an array.
    #[inline]
    pub fn array(&mut self, length: usize) {
        push_length(&mut self.bytes, b'*', length);
    }

    /// The head of a map of so many pairs.
    pub fn map(&mut self, pairs: usize) {
        match self.is_resp3 {
            true => push_length(&mut self.bytes, b'%', pairs),
            false => push_length(&mut self.bytes, b'*', pairs * 2),
        }
    }

    /// The head of a set.
    pub fn set(&mut self, length: usize) {
        push_length(&mut self.bytes, if self.is_resp3 { b'~' } else { b'*' }, length);
    }

    /// The head of what was not asked for.
    pub fn push(&mut self, length: usize) {
        push_length(&mut self.bytes, if self.is_resp3 { b'>' } else { b'*' }, length);
    }

    /// A text to be shown as it is.
    pub fn verbatim(&mut self, text: &str) {
        if self.is_resp3 {
            push_length(&mut self.bytes, b'=', text.len() + 4);
            self.bytes.extend_from_slice(b"txt:");
            self.bytes.extend_from_slice(text.as_bytes());
            self.bytes.extend_from_slice(b"\r\n");
        } else {
            self.bulk(text.as_bytes());
        }
    }

    /// An array of statuses; a set in RESP3.
    pub fn set_of_simple(&mut self, texts: &[&str]) {
        self.set(texts.len());
        for text in texts {
            self.simple(text);
        }
    }
}
