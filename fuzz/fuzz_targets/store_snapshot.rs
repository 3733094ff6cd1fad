//! A snapshot of any bytes: it is refused, or is a state that can be written and read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rusd::store::snapshot;

fuzz_target!(|data: &[u8]| {
    if let Ok(state) = snapshot::read(data) {
        let bytes = snapshot::write(&state);
        let again = snapshot::read(&bytes).expect("what was written is read");
        assert_eq!(snapshot::write(&again), bytes);
    }
});
