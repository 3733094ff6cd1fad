//! The state that every member computes alike: pure, without clocks, files or randomness.
//!
//! ```text
//! entry ──► command ──► apply ──► overlay of one transaction ──► Storage (rows in tables) ──► view ──► readers
//!                         │                                                             └──► changes ──► watches
//!                         └──► sessions: what was answered before is answered again
//! ```
//!
//! | file | is |
//! | --- | --- |
//! | `codec` | strings, flags and numbers as bytes |
//! | `command` | what stands in an entry, as bytes |
//! | `rows` | what stands in the tables, as bytes |
//! | `storage` | where tables lie: the trait that a user may implement |
//! | `memory` | tables in memory, whose views cost a reference |
//! | `disk` | tables on disk: more than memory holds, and there again after a restart |
//! | `apply` | what a command does |
//! | `bounds` | what of that no later release may change |
//! | `overlay` | what a transaction has done so far |
//! | `effort` | how much work commands are, about |
//! | `leases` | keys that end together |
//! | `sessions` | exactly once |
//! | `owners` | who has how many sessions and leases |
//! | `users` | who may do what |
//! | `roster` | what the group knows of itself and its members |
//! | `query` | what readers ask |
//! | `refusal` | why a command does nothing |
//! | `snapshot` | all of it as bytes |
//! | `backup` | the same in a file, to begin another group with |

mod apply;
mod backup;
mod bounds;
mod codec;
mod command;
mod disk;
mod effort;
mod leases;
mod memory;
mod overlay;
mod owners;
mod query;
mod refusal;
mod roster;
mod rows;
mod sessions;
mod snapshot;
mod storage;
#[cfg(test)]
mod tests;
mod users;

pub use apply::{Applied, CHANGES_BYTES_MAX, Change, ChangeKind, Outcome, State, StateError};
pub use backup::{
    Backup, BackupError, restore as restore_backup, save as save_backup, told_checksum, verify as verify_backup,
};
pub use bounds::EXPIRED_MAX;
pub use codec::Malformed;
pub use command::{
    Command, CommandError, KEY_BYTES_MAX, LimitError, Place, VALUE_BYTES_MAX, check, check_bound, check_key,
};
pub use disk::Disk;
pub use effort::{answer_bytes_max, is_long_query};
pub use memory::Memory;
pub use query::{QueryError, answer, bytes_of, next_expiry};
pub use refusal::Refusal;
pub use roster::Roster;
pub use rows::Known;
pub use snapshot::{SnapshotError, write as write_rows};
pub use storage::{AllRows, Defragmentation, Defragmented, EachRow, Rows, Storage, StorageError, Table};
pub use users::{Access, ChangeError, Principal, User, UserChange, Users};
