//! How much work commands and queries are, about: whether commands may hold up the member's protocol, or are applied beside it; and whether
//! a query may hold up the other clients of its thread. Counted are rows that are changed or looked at, and what one of these may cost
//! besides: see [`Rows::rows_of_a_look`].

use bytes::Bytes;
use d_engine_client::{Operation, Query, Transaction};

use super::apply::StateError;
use super::bounds::{ANSWER_BYTES_MAX, EXPIRED_MAX};
use super::command::{Command, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use super::query::page_keys;
use super::storage::{Rows, Storage, StorageError};
use super::users::UserChange;
use super::{leases, sessions};

/// Rows that commands may change together and still be quick: a few dozen milliseconds.
const QUICK_ROWS: usize = 5_000;
/// A value that is read, with its key, about.
const VALUE_BYTES: usize = VALUE_BYTES_MAX + KEY_BYTES_MAX;
/// Rows that a query may look at and still be quick: a few milliseconds.
const QUICK_LOOKS: usize = 2_000;
/// To copy the largest value into an answer that a session keeps takes as long as so many rows.
const COPY_ROWS: usize = 40;

/// Whether these commands take long.
pub(super) fn is_long<'a>(
    storage: &impl Storage,
    commands: impl Iterator<Item = &'a Bytes>,
) -> Result<bool, StorageError> {
    let mut rows = 0;
    for command in commands {
        rows += rows_of(storage, command)?;
        if rows > QUICK_ROWS {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a query takes long.
pub fn is_long_query(rows: &dyn Rows, query: &Query) -> bool {
    let of_a_look = rows.rows_of_a_look();
    let looks = match query {
        Query::Get(_) => of_a_look,
        Query::GetMany(keys) => keys.len() * of_a_look,
        // A page of values has few bytes; keys alone may lie beside large ones.
        Query::Scan(scan) => page_keys(scan) * if scan.keys_only { of_a_look } else { 1 },
    };
    looks > QUICK_LOOKS
}

/// What a transaction may read at most, bytes: every value may have as many as a value can.
pub fn answer_bytes_max(Transaction { then, otherwise, .. }: &Transaction) -> usize {
    (gets(then).max(gets(otherwise)) * VALUE_BYTES).min(ANSWER_BYTES_MAX)
}

fn gets(operations: &[Operation]) -> usize {
    operations.iter().filter(|operation| matches!(operation, Operation::Get { .. })).count()
}

fn rows_of(storage: &impl Storage, command: &Bytes) -> Result<usize, StorageError> {
    // Most writes are not decoded for this.
    if let Some(operations) = Command::operations(command) {
        return Ok(operations * storage.rows_of_a_look());
    }
    // What cannot be decoded does nothing.
    match Command::decode(command.clone()) {
        Ok(command) => rows_of_command(storage, command),
        Err(_) => Ok(1),
    }
}

fn rows_of_command(storage: &impl Storage, command: Command) -> Result<usize, StorageError> {
    match command {
        Command::As(_, command) => rows_of_command(storage, *command),
        Command::Write(Transaction { compares, then, otherwise }, stamp) => {
            let compared = compares.len() * storage.rows_of_a_look();
            let rows = |operations| rows_of_operations(storage, operations, stamp.is_some());
            Ok(compared + rows(&then)?.max(rows(&otherwise)?))
        }
        Command::CloseSession(session) => sessions::answers(storage, session),
        // About: those that are over are looked for when it is applied.
        Command::Expire => Ok(EXPIRED_MAX * storage.rows_of_a_look()),
        // All sessions and leases are looked at.
        Command::Users(_, UserChange::Remove { .. }) => Ok(QUICK_ROWS + 1),
        Command::OpenSession
        | Command::Seen(_)
        | Command::Place(..)
        | Command::Leave(_)
        | Command::Users(..)
        | Command::Renew(_)
        | Command::Serial(_) => Ok(1),
    }
}

fn rows_of_operations(storage: &impl Storage, operations: &[Operation], is_kept: bool) -> Result<usize, StorageError> {
    let of_a_look = storage.rows_of_a_look();
    // What is changed is looked at, too: who watches is told what was there.
    let mut rows = operations.len() * of_a_look;
    if is_kept {
        rows += gets(operations).min(ANSWER_BYTES_MAX / VALUE_BYTES + 1) * COPY_ROWS;
    }
    for operation in operations {
        if let Operation::Revoke { lease } | Operation::KeepAlive { lease } = operation {
            let leased = leases::get(storage, *lease).map_err(|error| match error {
                StateError::Storage(error) => error,
                error => StorageError(error.to_string()),
            })?;
            rows += leased.map_or(0, |leased| leased.keys as usize * of_a_look);
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use d_engine_client::{Compare, Condition, Scan, Stamp};

    use super::*;
    use crate::state::{Disk, Memory, Refusal, State};

    fn write(transaction: Transaction) -> Bytes {
        Command::Write(transaction, None).encode()
    }

    fn compares(count: usize) -> Bytes {
        let compares = vec![Compare { key: "k".into(), condition: Condition::Exists(true) }; count];
        write(Transaction { compares, ..Transaction::put("done", "v") })
    }

    fn gets(count: usize) -> Transaction {
        Transaction { then: vec![Operation::Get { key: "k".into() }; count], ..Transaction::default() }
    }

    fn is_long(state: &State<impl Storage>, commands: &[Bytes]) -> bool {
        state.takes_long(commands.iter()).unwrap()
    }

    #[test]
    fn what_is_compared_is_looked_at_and_what_a_session_keeps_is_copied() {
        let state = State::new(Memory::default()).unwrap();
        assert!(!is_long(&state, &vec![compares(1_000); 4]) && is_long(&state, &vec![compares(1_000); 5]));
        let in_session = |sequence| {
            let stamp = Stamp { session: 1, sequence, awaited_from: 1 };
            Command::Write(gets(10), Some(stamp)).encode()
        };
        assert!(!is_long(&state, &vec![write(gets(10)); 100]));
        assert!(is_long(&state, &(1..=100).map(in_session).collect::<Vec<_>>()));
    }

    /// Fifteen transactions of a thousand compares on values of a mebibyte held up the protocol for six seconds, and their leader was no leader
    /// any more.
    #[test]
    fn what_may_read_much_from_a_disk_takes_long_with_few_commands() {
        let root = harness::folder();
        let state = State::new(Disk::open(root.path(), 1 << 20).unwrap()).unwrap();
        assert!(!is_long(&state, &vec![write(Transaction::put("k", "v")); 100]));
        assert!(is_long(&state, &[compares(200)]) && is_long(&state, &[write(gets(200))]));
        let rows = state.view();
        let keys = |count| Query::GetMany(vec!["k".into(); count]);
        assert!(!is_long_query(&*rows, &keys(50)) && is_long_query(&*rows, &keys(51)));
        let rows = State::new(Memory::default()).unwrap().view();
        assert!(!is_long_query(&*rows, &keys(2_000)) && is_long_query(&*rows, &keys(2_001)));
        let scan = |limit, keys_only| Query::Scan(Scan { limit, keys_only, ..Scan::default() });
        assert!(!is_long_query(&*rows, &scan(0, false)) && is_long_query(&*rows, &scan(100_000, true)));
    }

    #[test]
    fn a_transaction_compares_values_of_so_many_bytes() {
        let mut state = State::new(Memory::default()).unwrap();
        state.apply(1, 1, 0, write(Transaction::put("k", vec![0; 1 << 20]))).unwrap();
        assert!(state.apply(2, 1, 0, compares(64)).unwrap().outcome.unwrap().succeeded);
        assert_eq!(state.apply(3, 1, 0, compares(65)).unwrap().outcome, Err(Refusal::AnswerTooLarge));
    }
}
