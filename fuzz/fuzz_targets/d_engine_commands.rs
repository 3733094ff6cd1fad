//! Commands in d-engine's log: a command is read as it was written; whatever it is, two members that apply it have the same state.

#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use bytes::Bytes;
use d_engine::state::{Command, Memory, State};
use libfuzzer_sys::fuzz_target;

fn applied(entries: &[&[u8]]) -> Vec<u8> {
    let mut state = State::new(Memory::default()).expect("it is empty");
    for (at, entry) in entries.iter().enumerate() {
        // A later version ends the member, which is an answer.
        let _ = state.apply(at as u64 + 1, 1, at as u64 * 10, Bytes::copy_from_slice(entry));
    }
    state.commit(entries.len() as u64).expect("memory takes everything");
    let mut bytes = Vec::new();
    state.snapshot()(&mut bytes).expect("memory takes everything");
    bytes
}

fuzz_target!(|data: &[u8]| {
    if let Ok(command) = Command::decode(Bytes::copy_from_slice(data)) {
        assert_eq!(command.encode(), data);
    }
    let entries: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    assert_eq!(applied(&entries), applied(&entries));
});
