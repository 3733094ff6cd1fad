//! What Redis clients send. However the bytes are cut, the same commands come out, and the same error; nothing panics.

#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use libfuzzer_sys::fuzz_target;
use rsedis::protocol::{Limits, Parser, ProtocolError};

/// Commands, and the error at the end, if `cut` bytes come at a time.
fn read(bytes: &[u8], cut: usize) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    let limits = Limits { bulk_max: 512 << 20, is_stranger: bytes.len() % 2 == 1 };
    let (mut parser, mut buffer, mut commands) = (Parser::default(), Vec::new(), Vec::new());
    for piece in bytes.chunks(cut) {
        buffer.extend_from_slice(piece);
        loop {
            match parser.next(&buffer, limits) {
                Ok(Some(length)) => {
                    assert!(length > 0 && length <= buffer.len());
                    commands.push(parser.args(&buffer).iter().map(<[u8]>::to_vec).collect());
                    buffer.drain(..length);
                }
                Ok(None) => break,
                Err(error) => return (commands, Some(error)),
            }
        }
    }
    (commands, None)
}

fuzz_target!(|bytes: &[u8]| {
    let whole = read(bytes, bytes.len().max(1));
    assert_eq!(read(bytes, 1), whole);
    assert_eq!(read(bytes, 7), whole);
});
