//! The state machine of rusd: keys and their history, leases, users, alarms and members.
//!
//! Commands come out of the replicated log, one after the other, and make the next [`State`] of the last: equal commands in equal
//! order make equal states, answers and snapshots. The log is the database: there is no other file; a snapshot of the log is the
//! checkpoint.
//!
//! ```text
//!  log ──► Store::apply ──► State ──publish──► Reader::view ──► View: range, txn, hash, leases, users, …
//!          command, state   trees that share               └──► watch::Hub, timers::LeaseTimers
//! ```
//!
//! Readers take a [`View`], which costs a reference, and keep it as long as they like; the writer goes on. What is published is
//! on the disks of a quorum, because nothing else is applied.

use replog::{Entry, RestoreError, SnapshotView, StateMachine};

pub mod auth;
pub mod check;
mod cluster;
pub mod command;
pub mod error;
mod hash;
mod keys;
mod keyspace;
mod lease;
pub mod quota;
mod range;
mod record;
mod snapshot;
mod state;
pub mod timers;
mod tree;
mod view;
pub mod watch;

pub use auth::{Access, Auth};
pub use cluster::Cluster;
pub use command::{Caller, Command, Request};
pub use error::{Code, Error};
pub use hash::KeyValueHash;
pub use keys::Keys;
pub use keyspace::{Keyspace, NEVER};
pub use lease::{Lease, Leases};
pub use range::Found;
pub use record::{Fields, Record, Revision};
pub use state::{Outcome, Response, State};
pub use view::{Chunks, Reader, View};

/// How many changes of the log compaction looks at after each batch: a millisecond or two.
const SWEEP_CHANGES: usize = 500;

/// The state machine.
pub struct Store {
    state: State,
    applied_index: u64,
    reader: Reader,
    /// Told of every publication, on the thread that applies.
    on_publish: Option<Box<dyn Fn() + Send>>,
    /// Where records are put together.
    scratch: Vec<u8>,
}

impl Default for Store {
    fn default() -> Self {
        let state = State::default();
        let reader = Reader::new(state.clone());
        Self { state, applied_index: 0, reader, on_publish: None, scratch: Vec::new() }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Store").field("revision", &self.state.keyspace.revision()).finish_non_exhaustive()
    }
}

impl Store {
    /// As before any command, in a group of these members.
    pub fn of_group(members: impl IntoIterator<Item = crate::proto::etcdserverpb::Member>) -> Self {
        let mut store = Self::default();
        store.state.cluster = std::sync::Arc::new(Cluster::of(members));
        store
    }

    /// Gives views of what is published.
    pub fn reader(&self) -> Reader {
        self.reader.clone()
    }

    /// `told` is called after every publication, on the thread that applies: it should wake others, and return.
    pub fn on_publish(&mut self, told: impl Fn() + Send + 'static) {
        self.on_publish = Some(Box::new(told));
    }

    /// Lets readers see what was applied.
    pub fn publish(&self) {
        self.reader.publish(self.state.clone(), self.applied_index);
        if let Some(told) = &self.on_publish {
            told();
        }
    }
}

impl StateMachine for Store {
    type Reply = Outcome;

    fn apply(&mut self, entry: &Entry) -> Outcome {
        let command = Command::decode(&entry.data)?;
        self.state.apply(command, entry.time_millis, &mut self.scratch)
    }

    fn applied(&mut self, index: u64) {
        self.applied_index = index;
        let space = &mut self.state.keyspace;
        if space.has_to_sweep() {
            space.sweep(SWEEP_CHANGES, self.reader.seen(space.revision()));
        }
        self.publish();
    }

    fn snapshot(&self) -> SnapshotView {
        let state = self.state.clone();
        Box::new(move || snapshot::write(&state).into())
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        self.state = snapshot::read(snapshot).map_err(|refused| RestoreError(refused.to_string()))?;
        Ok(())
    }
}
