//! Bytes from another member: a message or a refusal. A message is written again as it was, however its bytes were made.

#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use libfuzzer_sys::fuzz_target;
use replog::Message;

fuzz_target!(|data: &[u8]| {
    if let Ok(message) = Message::decode(data) {
        let bytes = message.encode();
        let again = Message::decode(&bytes).expect("what was encoded can be decoded");
        assert_eq!(bytes, again.encode());
    }
});
