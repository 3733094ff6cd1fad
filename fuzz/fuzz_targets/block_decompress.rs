//! What publishers send compressed, of any bytes, and right messages of which a few bytes are changed: what comes out is no longer than is
//! accepted, and room was asked for before; where there is no room nothing comes; what was compressed comes back.

#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use block_node::compressed::ContentCoding;
use block_node::decompress;
use libfuzzer_sys::fuzz_target;
use service_kit::grpc::{Code, Status};

const BYTES_MAX: usize = 1 << 16;
/// Beside the message: what every zstd decoder must support as a window, and a step.
const ROOM_BYTES_MAX: usize = 10 << 20;

fn check(encoding: &str, message: &[u8]) -> Option<Vec<u8>> {
    let decompress = decompress::of(encoding).expect("an encoding that is accepted");
    let mut asked_bytes = 0;
    let mut room = |bytes: usize| {
        asked_bytes += bytes;
        Ok(())
    };
    let plain = decompress(message, BYTES_MAX, &mut room).ok();
    if let Some(plain) = &plain {
        assert!(plain.len() <= BYTES_MAX && plain.len() <= asked_bytes);
        let none = decompress(message, BYTES_MAX, &mut |_| Err(Status::new(Code::ResourceExhausted, "no room")));
        assert!(none.is_err(), "it was not asked for room");
    }
    assert!(asked_bytes <= ROOM_BYTES_MAX + BYTES_MAX);
    plain
}

// The first byte says how many bytes are compressed here; what follows them are changes of the result, triples of an offset and a byte.
fuzz_target!(|data: &[u8]| {
    let [count, rest @ ..] = data else { return };
    let (plain, changes) = rest.split_at(rest.len().min(usize::from(*count)));
    for encoding in [ContentCoding::Zstd, ContentCoding::Gzip] {
        let compression = encoding.compression();
        check(compression.encoding, rest);
        let mut message = Vec::new();
        (compression.compress)(plain, &mut message).expect("memory");
        assert_eq!(check(compression.encoding, &message).as_deref(), Some(plain));
        for change in changes.chunks_exact(3) {
            let offset = usize::from(u16::from_le_bytes([change[0], change[1]])) % message.len();
            message[offset] = change[2];
        }
        check(compression.encoding, &message);
    }
});
