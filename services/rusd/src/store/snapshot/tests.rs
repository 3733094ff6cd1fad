use proptest::prelude::*;

use super::super::command::{Caller, Command, Request};
use super::super::keys::Keys;
use super::super::spill::{Limits, Spill};
use super::super::state::arbitrary;
use super::*;

fn of(commands: &[Command]) -> State {
    let mut state = State::default();
    for (time, command) in commands.iter().enumerate() {
        drop(state.apply(command.clone(), time as u64 * 1000, &mut Vec::new()));
        state.keyspace.sweep(time % 5, i64::MAX);
    }
    state
}

/// Everything that can be is on disk.
fn cold(state: &mut State) {
    let mut spill =
        Spill::new(Limits { memory_bytes: 0, file_bytes: 4096 }, tempfile::tempfile, |error| panic!("{error}"));
    while spill.step(&mut state.keyspace, 3) {}
    assert_eq!(state.keyspace.hot_bytes(), 0);
}

proptest! {
    #[test]
    fn a_restored_state_is_the_state_and_goes_on_like_it(
        before in proptest::collection::vec(arbitrary::command(), 0..80),
        after in proptest::collection::vec(arbitrary::command(), 0..30),
    ) {
        let mut state = of(&before);
        let bytes = write(&state);
        let mut restored = read(&bytes).unwrap();
        prop_assert_eq!(write(&restored), bytes);
        // A cold store has the snapshot of a hot one, and goes on like it.
        cold(&mut restored);
        prop_assert_eq!(write(&restored), write(&state));
        prop_assert_eq!((&restored.auth, &restored.cluster), (&state.auth, &state.cluster));
        for command in after {
            let one = state.apply(command.clone(), 1_000_000, &mut Vec::new());
            prop_assert_eq!(restored.apply(command, 1_000_000, &mut Vec::new()), one);
        }
        prop_assert_eq!(write(&restored), write(&state));
        for id in 0..5 {
            prop_assert_eq!(restored.leases.keys(id).collect::<Vec<_>>(), state.leases.keys(id).collect::<Vec<_>>());
        }
    }

    #[test]
    fn damaged_bytes_are_refused_or_are_a_state(commands in proptest::collection::vec(arbitrary::command(), 0..20), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let mut bytes = write(&of(&commands));
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(state) = read(&bytes) {
            prop_assert!(read(&write(&state)).is_ok());
        }
        let cut = cut.index(bytes.len());
        let refused = read(&bytes[..cut]).unwrap_err();
        prop_assert!(refused.offset <= cut, "{}", refused);
    }

    #[test]
    fn hostile_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(read(&bytes).is_err());
    }
}

#[test]
fn after_a_restart_revisions_go_on_and_keys_are_there() {
    // The original rusd began again at revision 1 with an empty index (facts §1.3, D2).
    let put = pb::PutRequest { key: "a".into(), value: "v".into(), ..Default::default() };
    let put = Command { caller: Caller::Server, request: Request::Put(put) };
    let restored = read(&write(&of(&[put.clone(), put]))).unwrap();
    assert_eq!((restored.keyspace.revision(), restored.keyspace.count(Keys::ALL, 3)), (3, 1));
}

#[test]
fn a_huge_count_asks_for_no_memory() {
    let mut bytes = write(&State::default());
    bytes[46..54].copy_from_slice(&u64::MAX.to_le_bytes());
    let refused = read(&bytes).unwrap_err();
    assert!(refused.to_string().starts_with("byte "), "{refused}");
}
