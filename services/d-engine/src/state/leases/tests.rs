//! What a new leader whose clock is ahead does to leases, sessions and what users leave behind.

use d_engine_client::{KeyValue, Operation, OperationResult, Stamp, Transaction};

use crate::state::users::Principal;
use crate::state::{Command, Memory, Outcome, Refusal, State, UserChange};

fn one(state: &mut State<Memory>, index: u64, time_millis: u64, operation: Operation) -> Outcome {
    let write = Command::Write(Transaction::of(operation), None);
    state.apply(index, 1, time_millis, write.encode()).unwrap().outcome
}

fn expire(state: &mut State<Memory>, index: u64, time_millis: u64) {
    state.apply(index, 1, time_millis, Command::Expire.encode()).unwrap().outcome.unwrap();
}

const MINUTES: u64 = 60_000;

#[test]
fn who_leads_with_a_clock_that_is_ahead_ends_no_lease_that_is_kept_alive() {
    let mut state = State::new(Memory::default()).unwrap();
    let put = Transaction::put_with_lease("lock", "me", 1);
    one(&mut state, 1, 1_000, Operation::Grant { ttl_millis: 30_000 }).unwrap();
    state.apply(2, 1, 1_000, Command::Write(put, None).encode()).unwrap().outcome.unwrap();
    // Its clock is two minutes ahead.
    let ahead = 1_000 + 2 * MINUTES;
    state.apply(3, 2, ahead, Command::Renew(ahead).encode()).unwrap().outcome.unwrap();
    expire(&mut state, 4, ahead + 29_999);
    let found = one(&mut state, 5, ahead + 29_999, Operation::Get { key: "lock".into() }).unwrap().results;
    assert!(matches!(&found[..], [OperationResult::Got(Some(KeyValue { lease: 1, .. }))]), "{found:?}");
    expire(&mut state, 6, ahead + 30_000);
    let found = one(&mut state, 7, ahead + 30_000, Operation::Get { key: "lock".into() }).unwrap().results;
    assert_eq!(found, [OperationResult::Got(None)]);
}

#[test]
fn who_leads_with_a_clock_that_is_ahead_ends_no_session_that_is_used() {
    let mut state = State::new(Memory::default()).unwrap();
    state.apply(1, 1, 1_000, Command::OpenSession.encode()).unwrap();
    let ahead = 1_000 + 120 * MINUTES;
    state.apply(2, 2, ahead, Command::Renew(ahead).encode()).unwrap();
    expire(&mut state, 3, ahead + 1);
    assert_eq!(state.sessions(), 1);
    let stamp = Some(Stamp { session: 1, sequence: 1, awaited_from: 1 });
    let write = |time_millis, index, state: &mut State<Memory>| {
        let write = Command::Write(Transaction::put("k", "v"), stamp);
        state.apply(index, 1, time_millis, write.encode()).unwrap().outcome
    };
    assert!(write(ahead + 2, 4, &mut state).is_ok());
    expire(&mut state, 5, ahead + 3 + 60 * MINUTES);
    assert_eq!((state.sessions(), write(ahead + 4 + 60 * MINUTES, 6, &mut state)), (0, Err(Refusal::NoSession)));
}

/// A new leader renews what is there; what a removed user had is over all the same.
#[test]
fn what_a_removed_user_had_ends_whatever_is_renewed() {
    let mut state = State::new(Memory::default()).unwrap();
    let add = UserChange::Add { name: "anna".into(), hash: "h".into(), is_admin: false };
    state.apply(1, 1, 1_000, Command::Users(Principal::Process, add).encode()).unwrap();
    let anna = |command| Command::As(Principal::User { name: "anna".into(), since: 1 }, Box::new(command)).encode();
    let grant = Transaction::of(Operation::Grant { ttl_millis: 60_000 });
    state.apply(2, 1, 1_000, anna(Command::Write(grant, None))).unwrap().outcome.unwrap();
    state.apply(3, 1, 1_000, anna(Command::OpenSession)).unwrap().outcome.unwrap();
    let remove = UserChange::Remove { name: "anna".into() };
    state.apply(4, 1, 1_000, Command::Users(Principal::Process, remove).encode()).unwrap().outcome.unwrap();
    state.apply(5, 1, 5_000_000, Command::Renew(5_000_000).encode()).unwrap();
    expire(&mut state, 6, 5_000_001);
    assert_eq!(state.sessions(), 0);
    let kept = one(&mut state, 7, 5_000_001, Operation::KeepAlive { lease: 2 }).unwrap().results;
    assert_eq!(kept, [OperationResult::Lease(None)]);
}
