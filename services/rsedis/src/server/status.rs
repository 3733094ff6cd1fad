//! What is counted and told of the server: statistics, files, slow commands; and what it asks of the reactor.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ending::Shutdown;
use crate::latency::Histogram;
use crate::settings::Extent;

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
    /// Clients that went because they took too much memory.
    pub evicted_clients: u64,
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
    /// Calls by command, at its place among all commands; empty before the first.
    by_command: Vec<CommandStats>,
}

impl Stats {
    /// A command was called; how often it was by now.
    #[inline]
    pub fn note_call(&mut self, command: usize) -> u64 {
        self.commands += 1;
        if command >= self.by_command.len() {
            self.by_command.resize_with(command + 1, CommandStats::default);
        }
        self.by_command[command].calls += 1;
        self.by_command[command].calls
    }

    /// It was refused before it ran.
    pub fn note_rejection(&mut self, command: usize) {
        if command >= self.by_command.len() {
            self.by_command.resize_with(command + 1, CommandStats::default);
        }
        self.by_command[command].rejected += 1;
    }

    /// It has answered with an error.
    pub fn note_failure(&mut self, command: usize) {
        if let Some(stats) = self.by_command.get_mut(command) {
            stats.failed += 1;
        }
    }

    /// A call took so long; `tracks`: how often which time was taken is kept.
    pub fn note_time(&mut self, command: usize, took: Duration, tracks: bool) {
        // CONFIG RESETSTAT has just forgotten its own call.
        if command >= self.by_command.len() {
            self.note_call(command);
        }
        let (stats, nanos) = (&mut self.by_command[command], took.as_nanos() as u64);
        stats.timed += 1;
        stats.nanos += nanos;
        if tracks {
            stats.times.note(nanos);
        }
    }

    /// What is known of a command that was called.
    pub fn of(&self, command: usize) -> Option<&CommandStats> {
        self.by_command.get(command).filter(|stats| stats.calls + stats.rejected + stats.failed > 0)
    }
}

/// Counters of one command.
#[derive(Clone, Debug, Default)]
pub struct CommandStats {
    /// Times it ran.
    pub calls: u64,
    /// Times it was refused before it ran.
    pub rejected: u64,
    /// Times it answered with an error.
    pub failed: u64,
    /// Calls that were timed: all, or of quick commands some.
    pub timed: u64,
    /// What these took together.
    pub nanos: u64,
    /// What each of them took, while `latency-tracking` was set.
    pub times: Histogram,
}

impl CommandStats {
    /// What a call takes on the mean, in microseconds.
    pub fn mean_micros(&self) -> f64 {
        self.nanos as f64 / 1000.0 / self.timed.max(1) as f64
    }
}

/// What the reactor is asked to do after the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Stop. Those who wait for it are answered only if the server goes on.
    Shutdown(Shutdown),
    /// Read the append-only file anew (`DEBUG LOADAOF`). As with those below: answer the client at a slot, if one waits.
    ReloadAof(Option<usize>),
    /// Write the RDB file while everybody waits.
    Save(Option<usize>),
    /// Another master is followed, or none: end the connection to the one before.
    DropMaster,
    /// Write the RDB file.
    BackgroundSave,
    /// Write the append-only file's base anew.
    RewriteAof,
    /// Write the parameters into their file.
    RewriteConfig(Option<usize>, Extent),
    /// Read the file of users.
    LoadUsers(Option<usize>),
    /// Write the file of users.
    SaveUsers(Option<usize>),
    /// Send the keys of [`Migration`], and answer its client.
    Migrate,
    /// Run the script of the client at a slot, which waits, in the debugger.
    DebugScript(usize),
    /// Listen where the settings say now, or go back to those of [`SettingsBefore`].
    Listen(Option<usize>),
    /// Begin or end the append-only file: the setting has changed.
    SwitchAof(Option<usize>),
}

/// What CONFIG SET goes back to if the server cannot listen where it was told to.
#[derive(Clone, Debug)]
pub struct SettingsBefore {
    /// What the command has changed, as it was: places and texts.
    pub values: Vec<(usize, String)>,
    /// The one that asks for another place.
    pub name: &'static str,
}

/// Keys that go to another server.
#[derive(Clone, Debug)]
pub struct Migration {
    /// Whose command it was.
    pub slot: usize,
    /// Where they go.
    pub host: String,
    /// See above.
    pub port: u16,
    /// How long the other server may take for 64 KiB of what is said to it, from the connection to its last answer.
    pub patience_millis: u64,
    /// What is said to it: login, choice of the database, and a RESTORE for each key.
    pub bytes: Vec<u8>,
    /// Answers that come before those of the keys.
    pub answers_before: usize,
    /// The keys.
    pub keys: Vec<Vec<u8>>,
    /// They stay here as well.
    pub copies: bool,
}

/// What the append-only file's keeper says of it; shown by INFO, and decides whether writes are taken.
#[derive(Clone, Debug, Default)]
pub struct AofStatus {
    /// Why it cannot be written.
    pub failure: Option<String>,
    /// It was read anew and could not be: keys are missing that it holds, and nothing may take its place.
    pub is_lost: bool,
    /// Bytes of all its files.
    pub current_bytes: u64,
    /// Bytes of its base.
    pub base_bytes: u64,
    /// Syncs that were made since the start, also where files were begun anew meanwhile.
    pub syncs: u64,
}

/// How far it is with data that are read.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadStatus {
    /// Milliseconds since 1970.
    pub began: i64,
    /// Bytes of what is read.
    pub total_bytes: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Keys of the RDB file that were kept.
    pub keys: u64,
    /// Keys of the RDB file whose time had come.
    pub expired_keys: u64,
}

/// How snapshots go.
#[derive(Clone, Debug)]
pub struct SaveStatus {
    /// An RDB file is being written.
    pub saves: bool,
    /// Replicas are being sent all keys.
    pub feeds: bool,
    /// All keys went: RDB files of what was before are given up.
    pub is_pointless: bool,
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
    /// How long the last RDB file took that was written in the background.
    pub last_seconds: Option<i64>,
    /// Whether the last one went well.
    pub is_saved_well: bool,
    /// The same for bases.
    pub is_rewritten_well: bool,
    /// Bases that were written.
    pub rewritten: u64,
    /// When a base was tried last, milliseconds since 1970.
    pub rewrite_tried: i64,
    /// Bases that failed since the last that did not.
    pub rewrite_failures: u32,
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
