use proptest::prelude::*;

use super::super::command::{Caller, Command, Request};
use super::super::keys::Keys;
use super::super::spill::{Limits, Spill};
use super::super::state::{Room, arbitrary};
use super::*;

fn of(commands: &[Command]) -> State {
    let mut state = State::default();
    for (time, command) in commands.iter().enumerate() {
        drop(state.apply(command.clone(), time as u64 * 1000, &mut Vec::new(), Room::FULL));
        state.keyspace.sweep(time % 5, i64::MAX);
    }
    state
}

fn read_all(mut bytes: &[u8]) -> Result<State, Refused> {
    read(&mut bytes, None)
}

/// With no memory for values.
fn spill() -> Spill {
    Spill::new(Limits { memory_bytes: 0, file_bytes: 4096 }, tempfile::tempfile, |error| panic!("{error}"))
}

/// Everything that can be is on disk.
fn cold(state: &mut State) {
    let mut spill = spill();
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
        let written = bytes(&state);
        let mut restored = read_all(&written).unwrap();
        prop_assert_eq!(bytes(&restored), &written[..]);
        let restored_cold = read(&mut &written[..], Some(&mut spill())).unwrap();
        prop_assert_eq!((bytes(&restored_cold), restored_cold.keyspace.hot_bytes()), (written, 0));
        // A cold store has the snapshot of a hot one, and goes on like it.
        cold(&mut restored);
        prop_assert_eq!(bytes(&restored), bytes(&state));
        prop_assert_eq!((&restored.auth, &restored.cluster), (&state.auth, &state.cluster));
        for command in after {
            let one = state.apply(command.clone(), 1_000_000, &mut Vec::new(), Room::FULL);
            prop_assert_eq!(restored.apply(command, 1_000_000, &mut Vec::new(), Room::FULL), one);
        }
        prop_assert_eq!(bytes(&restored), bytes(&state));
        for id in 0..5 {
            prop_assert_eq!(restored.leases.keys(id).collect::<Vec<_>>(), state.leases.keys(id).collect::<Vec<_>>());
        }
    }

    #[test]
    fn damaged_bytes_are_refused_or_are_a_state(commands in proptest::collection::vec(arbitrary::command(), 0..20), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let mut written = bytes(&of(&commands));
        let at = at.index(written.len());
        written[at] = byte;
        let damaged = read_all(&written).map(|state| bytes(&state));
        let damaged_cold = read(&mut &written[..], Some(&mut spill())).map(|state| bytes(&state));
        prop_assert_eq!(&damaged_cold, &damaged);
        if let Ok(written) = damaged {
            prop_assert!(read_all(&written).is_ok());
        }
        let cut = cut.index(written.len());
        let refused = read_all(&written[..cut]).unwrap_err();
        prop_assert!(refused.offset <= cut, "{}", refused);
    }

    #[test]
    fn hostile_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(read_all(&bytes).is_err());
    }
}

#[test]
fn after_a_restart_revisions_go_on_and_keys_are_there() {
    // The original rusd began again at revision 1 with an empty index.
    let put = pb::PutRequest { key: "a".into(), value: "v".into(), ..Default::default() };
    let put = Command { caller: Caller::Server, request: Request::Put(put) };
    let restored = read_all(&bytes(&of(&[put.clone(), put]))).unwrap();
    assert_eq!((restored.keyspace.revision(), restored.keyspace.count(Keys::ALL, 3)), (3, 1));
}

#[test]
fn a_huge_count_asks_for_no_memory() {
    let mut written = bytes(&State::default());
    written[46..54].copy_from_slice(&u64::MAX.to_le_bytes());
    let refused = read_all(&written).unwrap_err();
    assert!(refused.to_string().starts_with("byte "), "{refused}");
}

#[test]
fn a_large_state_is_restored_without_having_it_in_memory() {
    let mut state = State::default();
    for number in 0..200_u32 {
        let (key, value) = (number.to_le_bytes(), [number as u8; 500]);
        state.keyspace.write(&mut Vec::new()).put(&key, &value, 0);
    }
    // Half of them are older than what was compacted, and stand before the changes.
    state.keyspace.compact(101).unwrap();
    let written = bytes(&state);
    let limits = Limits { memory_bytes: 10_000, file_bytes: 20_000 };
    let mut spill = Spill::new(limits, tempfile::tempfile, |error| panic!("{error}"));
    let restored = read(&mut &written[..], Some(&mut spill)).unwrap();
    let hot_bytes = restored.keyspace.hot_bytes();
    assert!((5_000..=10_000).contains(&hot_bytes), "{hot_bytes} bytes in memory");
    assert!(spill.shown().file_bytes() >= 90_000);
    assert_eq!(bytes(&restored), written);
}
