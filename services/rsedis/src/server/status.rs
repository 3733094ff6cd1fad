//! What is counted and told of the server: statistics, files, slow commands; and what it asks of the reactor.

use std::collections::{BTreeMap, HashMap};

/// Counters, since the start or CONFIG RESETSTAT.
#[derive(Debug, Default)]
pub struct Stats {
    /// Commands that were run.
    pub commands: u64,
    /// Connections that were accepted.
    pub connections: u64,
    /// Connections that were refused.
    pub rejected: u64,
    /// Keys that expired.
    pub expired: u64,
    /// Keys that went because memory was full.
    pub evicted: u64,
    /// Reads that found their key.
    pub hits: u64,
    /// Reads that did not.
    pub misses: u64,
    /// Error replies.
    pub errors: u64,
    /// Error replies by code.
    pub errors_by_code: BTreeMap<String, u64>,
    /// Replicas that got all keys.
    pub full_syncs: u64,
    /// Replicas that went on where they were.
    pub partial_syncs: u64,
    /// Replicas that wanted to, and could not.
    pub partial_syncs_refused: u64,
    /// Bytes received.
    pub input_bytes: u64,
    /// Bytes sent.
    pub output_bytes: u64,
    /// Calls, refused calls and failed calls by command.
    pub by_command: HashMap<&'static str, CommandStats>,
}

/// Counters of one command.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommandStats {
    /// Times it ran.
    pub calls: u64,
    /// Times it was refused before it ran.
    pub rejected: u64,
    /// Times it answered with an error.
    pub failed: u64,
}

/// What the reactor is asked to do after the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Stop, and write the RDB file before: yes, no, or as `save` says. Where that fails the server goes on, unless it is forced,
    /// and answers the client at a slot.
    Shutdown {
        /// See above; none: nobody waits for an answer.
        slot: Option<usize>,
        /// See above.
        saves: Option<bool>,
        /// See above.
        is_forced: bool,
    },
    /// Read the append-only file anew (`DEBUG LOADAOF`), and answer the client at a slot.
    ReloadAof(usize),
    /// Write the RDB file while everybody waits, and answer the client at a slot.
    Save(usize),
    /// Another master is followed, or none: end the connection to the one before.
    DropMaster,
    /// Write the RDB file.
    BackgroundSave,
    /// Write the append-only file's base anew.
    RewriteAof,
    /// Write the parameters into their file, and answer the client at a slot.
    RewriteConfig(usize),
    /// Read the file of users, and answer the client at a slot.
    LoadUsers(usize),
    /// Write the file of users, and answer the client at a slot.
    SaveUsers(usize),
    /// Begin or end the append-only file: the setting has changed. Answer the client at a slot, if one waits.
    SwitchAof(Option<usize>),
}

/// What the append-only file's keeper says of it; shown by INFO, and decides whether writes are taken.
#[derive(Clone, Debug, Default)]
pub struct AofStatus {
    /// Why it cannot be written.
    pub failure: Option<String>,
    /// Bytes of all its files.
    pub current_bytes: u64,
    /// Bytes of its base.
    pub base_bytes: u64,
    /// Syncs that were made.
    pub syncs: u64,
}

/// How snapshots go.
#[derive(Clone, Debug)]
pub struct SaveStatus {
    /// An RDB file is being written.
    pub saves: bool,
    /// A base of the append-only file is being written.
    pub rewrites: bool,
    /// A rewrite is to follow what goes on now.
    pub is_rewrite_due: bool,
    /// A save is to follow what goes on now.
    pub is_save_due: bool,
    /// Of the last RDB file that was written, milliseconds since 1970.
    pub last: i64,
    /// When one was begun last, milliseconds since 1970.
    pub tried: i64,
    /// Changes when it was written.
    pub dirty: u64,
    /// What [`SaveStatus::last`] will be when the file that is being written is whole.
    pub last_begun: i64,
    /// The same for [`SaveStatus::dirty`].
    pub dirty_begun: u64,
    /// Whether the last one went well.
    pub is_saved_well: bool,
    /// The same for bases.
    pub is_rewritten_well: bool,
    /// Bases that were written.
    pub rewritten: u64,
    /// RDB files that were written.
    pub saved: u64,
}

/// A slow command.
#[derive(Debug)]
pub struct SlowCommand {
    /// Counted up.
    pub id: u64,
    /// Seconds since 1970.
    pub at: i64,
    /// How long it took.
    pub micros: u64,
    /// Its arguments, shortened.
    pub arguments: Vec<Vec<u8>>,
    /// Who sent it.
    pub address: String,
    /// The name of who sent it.
    pub name: Vec<u8>,
}
