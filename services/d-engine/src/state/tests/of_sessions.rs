//! What sessions keep, and when they end.

use super::*;

#[test]
fn a_session_that_nobody_uses_ends_and_its_writes_are_refused() {
    let mut state = state();
    state.apply(1, 1, 0, Command::OpenSession.encode()).unwrap();
    let stamp = Stamp { session: 1, sequence: 1, awaited_from: 1 };
    let write = Command::Write(Transaction::put("k", "v"), Some(stamp)).encode();
    assert!(state.apply(2, 1, 5, write.clone()).unwrap().outcome.is_ok());
    state.apply(3, 1, 5 + bounds::IDLE_MILLIS, Command::Expire.encode()).unwrap();
    assert_eq!(state.apply(4, 1, 6 + bounds::IDLE_MILLIS, write.clone()).unwrap().index, 2);
    state.apply(5, 1, 6 + bounds::IDLE_MILLIS, Command::Expire.encode()).unwrap();
    assert_eq!(state.apply(6, 1, 6 + bounds::IDLE_MILLIS, write).unwrap().outcome, Err(Refusal::NoSession));
}

#[test]
fn a_client_that_never_says_what_it_has_is_stopped_before_it_fills_the_memory() {
    let mut state = state();
    state.apply(1, 1, 0, Command::OpenSession.encode()).unwrap();
    let write = |sequence, awaited_from| {
        Command::Write(Transaction::put("k", "v"), Some(Stamp { session: 1, sequence, awaited_from })).encode()
    };
    for sequence in 1..=4096 {
        assert!(state.apply(1 + sequence, 1, 0, write(sequence, 1)).unwrap().outcome.is_ok());
    }
    assert_eq!(state.apply(5000, 1, 0, write(4097, 1)).unwrap().outcome, Err(Refusal::TooManyAnswers));
    assert!(state.apply(5001, 1, 0, write(4097, 4097)).unwrap().outcome.is_ok());
}

/// A session whose client asks for answers of mebibytes and never says that it has them: 4,096 of them would be 16 GiB.
#[test]
fn a_client_that_reads_much_and_never_says_what_it_has_is_stopped_before_it_fills_the_memory() {
    let mut state = state();
    let large = Bytes::from(vec![b'v'; 1 << 20]);
    let keys = ["a", "b", "c", "d"];
    let puts = keys.map(|key| Operation::Put { key: key.into(), value: large.clone(), ttl_millis: 0 });
    state.apply(1, 1, 0, write(puts[..2].to_vec())).unwrap();
    state.apply(2, 1, 0, write(puts[2..].to_vec())).unwrap();
    state.apply(3, 1, 0, Command::OpenSession.encode()).unwrap();
    let read = |sequence, awaited_from| {
        // With their keys, four of them are more than a transaction may read.
        let gets = keys[..3].iter().map(|&key| Operation::Get { key: key.into() }).collect();
        let transaction = Transaction { then: gets, ..Transaction::default() };
        Command::Write(transaction, Some(Stamp { session: 3, sequence, awaited_from })).encode()
    };
    for sequence in 1..=6 {
        assert!(state.apply(3 + sequence, 1, 0, read(sequence, 1)).unwrap().outcome.is_ok());
    }
    assert_eq!(state.apply(10, 1, 0, read(7, 1)).unwrap().outcome, Err(Refusal::NoRoomForAnswers));
    // A member that got the state as a snapshot decides alike, and so does one that had it all the time.
    state.commit(10).unwrap();
    let bytes = bytes_of(&state);
    let mut other = State::new(Memory::default()).unwrap();
    other.restore(&mut bytes.as_slice()).unwrap();
    for state in [&mut state, &mut other] {
        assert_eq!(state.apply(11, 1, 0, read(7, 1)).unwrap().outcome, Err(Refusal::NoRoomForAnswers));
        assert_eq!(state.apply(12, 1, 0, read(1, 1)).unwrap().index, 4, "what is kept is answered");
        assert!(state.apply(13, 1, 0, read(7, 2)).unwrap().outcome.is_ok(), "the client has one of them");
        assert!(state.apply(14, 1, 0, read(8, 2)).unwrap().outcome.is_err());
        // What is closed takes no room.
        state.apply(15, 1, 0, Command::CloseSession(3).encode()).unwrap();
        state.commit(15).unwrap();
    }
    assert_eq!(bytes_of(&state), bytes_of(&other));
}

#[test]
fn sessions_that_end_with_many_answers_end_a_few_at_a_time() {
    let mut state = state();
    let mut index = 0;
    let mut apply = |state: &mut State<Memory>, time, command: Command| {
        index += 1;
        state.apply(index, 1, time, command.encode()).unwrap();
        index
    };
    for _ in 0..3 {
        let session = apply(&mut state, 1, Command::OpenSession);
        for sequence in 1..=600 {
            let stamp = Stamp { session, sequence, awaited_from: 1 };
            apply(&mut state, 1, Command::Write(Transaction::put("k", "v"), Some(stamp)));
        }
    }
    let answers = |state: &State<Memory>| {
        let mut answers = 0;
        let each = &mut |_: &Bytes, _: &Bytes| {
            answers += 1;
            std::ops::ControlFlow::Continue(())
        };
        state.view().scan(Table::Answers, &[], None, each).unwrap();
        answers
    };
    for left in [600, 0] {
        let at = apply(&mut state, 2 + bounds::IDLE_MILLIS, Command::Expire);
        state.commit(at).unwrap();
        assert_eq!(answers(&state), left);
    }
}
