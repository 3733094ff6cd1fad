//! Continuous replication of SQLite databases into object storage, in Litestream's layout, and back.
//!
//! ```text
//! database, -wal, -shm ──► wal_index (what changed) ──► wal_reader (which pages) ──► ltx ──► replica (which object) ──► store
//!        ▲                                                                                                              │
//!        └── pin: locks, never a byte                        a new file ◄── restore (proves the chain) ◄────────────────┘
//! ```
//!
//! The user's files are opened for reading alone. The time and the store come in as arguments; short waits and chance (`rand`) do not.

pub mod arena;
pub mod chain;
pub mod clock;
pub mod compaction;
pub mod config;
pub mod cost;
pub mod database;
mod descriptor;
pub mod difference;
pub mod fetch;
pub mod follow;
pub mod import;
mod note;
mod paths;
pub mod pin;
pub mod position;
pub mod replica;
pub mod replicator;
pub mod restore;
pub mod retention;
pub mod source;
mod threads;
pub mod wal_index;
pub mod wal_reader;

pub use object_store_client as store;
