//! A backup that was damaged is refused by who looks and by who begins with it; one that was not is read as it was written.

#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use bytes::Bytes;
use d_engine::state::{Memory, State, restore_backup, save_backup, verify_backup};
use libfuzzer_sys::fuzz_target;

// A state of any commands, and a change at the end: a place in the file (2) and what is put there (1); and how much is cut off (1).
fuzz_target!(|data: &[u8]| {
    let Some((commands, [high, low, change, cut])) = data.split_last_chunk() else { return };
    let mut state = State::new(Memory::default()).expect("it is empty");
    for (at, command) in commands.split(|byte| *byte == b'\n').enumerate() {
        let _ = state.apply(at as u64 + 1, 1, 0, Bytes::copy_from_slice(command));
    }
    state.commit(1).expect("memory takes everything");
    let mut whole = Vec::new();
    save_backup(state.view(), 1, &mut whole).expect("memory takes everything");
    let mut changed = whole.clone();
    let at = usize::from(u16::from_be_bytes([*high, *low])) % changed.len();
    changed[at] ^= change;
    changed.truncate(changed.len().saturating_sub(usize::from(*cut)));
    let path = std::env::temp_dir().join(format!("d-engine-backup-{}", std::process::id()));
    std::fs::write(&path, &changed).expect("there is room");
    let (verified, mut other) = (verify_backup(&path), Memory::default());
    let restored = restore_backup(&path, &mut other);
    let _ = std::fs::remove_file(&path);
    assert_eq!((verified.is_ok(), restored.is_ok()), (changed == whole, changed == whole));
});
