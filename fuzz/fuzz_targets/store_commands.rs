//! Requests of any bytes, as far as the API lets them into the log: each is applied or refused, and what comes of all of them is the
//! same from a snapshot.

#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use replog::{Entry, EntryKind, StateMachine};
use rusd::store::{Command, Request, Store, check};

/// Version, kind, and the server itself as the caller: see `store::command`. A byte for the kind and one for the length, then so many
/// bytes of a request.
fn commands(mut data: &[u8]) -> Vec<Bytes> {
    let mut commands = Vec::new();
    while let [kind, length, rest @ ..] = data {
        let (request, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        commands.push([&[1, kind % 48, 0], request].concat().into());
        data = rest;
    }
    commands
}

/// What the API looks at before it puts a request into the log.
fn is_let_in(command: &Bytes) -> bool {
    match Command::decode(command).map(|command| command.request) {
        Ok(Request::Put(put)) => check::put(&put).is_ok(),
        Ok(Request::DeleteRange(delete)) => check::delete_range(&delete).is_ok(),
        Ok(Request::Txn(txn)) => check::txn(&txn, 128).is_ok(),
        Ok(Request::LeaseGrant(grant)) => grant.id != 0,
        Ok(Request::AuthUserAdd(user)) => !user.name.is_empty(),
        Ok(_) | Err(_) => true,
    }
}

fn written(store: &Store) -> Vec<u8> {
    let mut bytes = Vec::new();
    store.snapshot()(&mut bytes).expect("memory takes everything");
    bytes
}

fuzz_target!(|data: &[u8]| {
    let mut store = Store::default();
    for (index, data) in (1..).zip(commands(data).into_iter().filter(is_let_in)) {
        let entry = Entry { index, term: 1, kind: EntryKind::Command, time_millis: index * 500, data };
        let _ = store.apply(&entry);
        store.applied(index);
        store.idle();
    }
    let bytes = written(&store);
    let mut again = Store::default();
    again.restore(&mut &bytes[..]).expect("what was written is read");
    assert_eq!(written(&again), bytes);
});
