//! A snapshot of any bytes: it is refused, or is a state that can be written and read again.

#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use d_engine::state::{Memory, State};
use libfuzzer_sys::fuzz_target;

fn read(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut state = State::new(Memory::default()).expect("it is empty");
    state.restore(&mut bytes).ok()?;
    state.commit(1).expect("memory takes everything");
    let mut written = Vec::new();
    state.snapshot()(&mut written).expect("memory takes everything");
    Some(written)
}

fuzz_target!(|data: &[u8]| {
    if let Some(written) = read(data) {
        assert_eq!(read(&written), Some(written));
    }
});
