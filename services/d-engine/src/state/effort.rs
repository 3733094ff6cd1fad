//! How much work commands and queries are, about: whether commands may hold up the member's protocol, or are applied beside it; and whether
//! a query may hold up the other clients of its thread. Counted are rows that are changed or looked at, and what one of these may cost
//! besides: see [`Rows::rows_of_a_look`].

use bytes::Bytes;
use d_engine_client::{Operation, Query, Transaction};

use super::apply::{ANSWER_BYTES_MAX, StateError};
use super::command::{Command, EXPIRED_MAX};
use super::query::page_keys;
use super::storage::{Rows, Storage, StorageError};
use super::users::UserChange;
use super::{leases, sessions};

/// Rows that commands may change together and still be quick: a few dozen milliseconds.
const QUICK_ROWS: usize = 5_000;
/// A value that is read, with its key, about.
const VALUE_BYTES: usize = (1 << 20) + 4096;
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
        | Command::Renew(_) => Ok(1),
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
        if let Operation::Revoke { lease } = operation {
            let leased = leases::get(storage, *lease).map_err(|error| match error {
                StateError::Storage(error) => error,
                error => StorageError(error.to_string()),
            })?;
            rows += leased.map_or(0, |leased| leased.keys as usize * of_a_look);
        }
    }
    Ok(rows)
}
