//! How much work commands are, about: whether they may hold up the member's protocol, or are applied beside it. Counted are rows that they
//! change.

use bytes::Bytes;
use d_engine_client::{Operation, Transaction};

use super::apply::StateError;
use super::command::{Command, EXPIRED_MAX};
use super::storage::{Storage, StorageError};
use super::users::UserChange;
use super::{leases, sessions};

/// Rows that commands may change together and still be quick: a few dozen milliseconds.
const QUICK_ROWS: usize = 5_000;
/// A shorter command changes few rows: most are not decoded for this.
const SHORT_BYTES: usize = 4096;

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

fn rows_of(storage: &impl Storage, command: &Bytes) -> Result<usize, StorageError> {
    if command.len() <= SHORT_BYTES && !Command::may_be_long(command) {
        return Ok(1);
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
        Command::Write(Transaction { then, otherwise, .. }, _) => {
            Ok(rows_of_operations(storage, &then)?.max(rows_of_operations(storage, &otherwise)?))
        }
        Command::CloseSession(session) => sessions::answers(storage, session),
        // About: those that are over are looked for when it is applied.
        Command::Expire => Ok(EXPIRED_MAX),
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

fn rows_of_operations(storage: &impl Storage, operations: &[Operation]) -> Result<usize, StorageError> {
    let mut rows = operations.len();
    for operation in operations {
        if let Operation::Revoke { lease } | Operation::KeepAlive { lease } = operation {
            let leased = leases::get(storage, *lease).map_err(|error| match error {
                StateError::Storage(error) => error,
                error => StorageError(error.to_string()),
            })?;
            rows += leased.map_or(0, |leased| leased.keys as usize);
        }
    }
    Ok(rows)
}
