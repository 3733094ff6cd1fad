//! A snapshot of any bytes: it is refused, or is a state that can be written and read again.

#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use libfuzzer_sys::fuzz_target;
use rusd::store::{State, snapshot};

fn written(state: &State) -> Vec<u8> {
    let mut bytes = Vec::new();
    snapshot::write(state, &mut bytes).expect("memory takes everything");
    bytes
}

fuzz_target!(|data: &[u8]| {
    if let Ok(state) = snapshot::read(&mut &*data, None) {
        let bytes = written(&state);
        let again = snapshot::read(&mut &bytes[..], None).expect("what was written is read");
        assert_eq!(written(&again), bytes);
    }
});
