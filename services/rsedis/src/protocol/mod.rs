//! The Redis protocol, RESP2 and RESP3: requests are read in place, replies are written straight into a client's buffer.

mod arguments;
pub mod reply;
pub mod request;
mod words;

pub use arguments::{Args, OwnedArgs};
pub use reply::Reply;
pub use request::{Limits, Parser, ProtocolError};
pub use words::{in_quotes, quoted_word, split_words};

/// Appends a command as a client would send it.
pub fn push_command<'a>(out: &mut Vec<u8>, arguments: impl ExactSizeIterator<Item = &'a [u8]>) {
    push_length(out, b'*', arguments.len());
    for argument in arguments {
        push_bulk(out, argument);
    }
}

/// Appends `$length\r\n…\r\n`.
#[inline]
pub fn push_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len() + 24);
    push_length(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends a type, a length and the end of the line.
#[inline]
pub fn push_length(out: &mut Vec<u8>, kind: u8, length: usize) {
    if length < 10 {
        out.extend_from_slice(&[kind, b'0' + length as u8, b'\r', b'\n']);
    } else {
        out.push(kind);
        out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}
