//! What a client sends, in pieces: the messages are those that its frames hold, however it was cut, and no longer than is accepted.

#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use service_kit::grpc::{Deframer, FrameError};

const LENGTH_MAX: usize = 300;

fn messages(pieces: impl Iterator<Item = Bytes>) -> (Vec<Bytes>, Result<(), FrameError>) {
    let mut deframer = Deframer::new(LENGTH_MAX);
    let mut messages = Vec::new();
    for piece in pieces {
        deframer.push(piece);
        loop {
            match deframer.message() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Err(error)),
            }
        }
    }
    let end = deframer.finish();
    (messages, end)
}

fuzz_target!(|data: &[u8]| {
    let [size, content @ ..] = data else { return };
    let whole = messages(std::iter::once(Bytes::copy_from_slice(content)));
    assert!(whole.0.iter().all(|message| message.len() <= LENGTH_MAX));
    let pieces = content.chunks(usize::from(*size).max(1)).map(Bytes::copy_from_slice);
    assert_eq!(messages(pieces), whole);
});
