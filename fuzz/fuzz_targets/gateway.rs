//! JSON of any kind for any message: it is refused, or the bytes that come of it are JSON again. And bytes of any kind, which are no
//! message, or JSON.

#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use libfuzzer_sys::fuzz_target;
use rusd::gateway::schema::MESSAGES;
use rusd::gateway::{from_wire, to_wire};

fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(text).is_ok()
}

fuzz_target!(|data: &[u8]| {
    let [message, content @ ..] = data else { return };
    let message = usize::from(*message) % MESSAGES.len();
    if let Ok(value) = serde_json::from_slice(content) {
        let mut bytes = Vec::new();
        if to_wire::encode(message, &value, &mut bytes).is_ok() {
            let mut text = String::new();
            from_wire::decode(message, &bytes, &mut text).expect("what was made of JSON is a message");
            assert!(is_json(&text), "{text}");
        }
    }
    let mut text = String::new();
    if from_wire::decode(message, content, &mut text).is_ok() {
        assert!(is_json(&text), "{text}");
    }
});
