//! A replicated log: what a quorum of members has on disk is applied by every member, in the same order, to the same effect.
//!
//! No I/O, no clock, no threads, no randomness but a given seed outside of [`runtime`]: [`Node`] is the consensus of one member, [`ReplicatedLog`]
//! adds its state machine and its snapshots. The caller brings messages, time and files, so that the same code runs in a
//! server and in the simulator, where thousands of bad days pass in a minute. A group of one is the same path with a quorum of
//! one. [`runtime`] gives a member its threads, files, clocks and network: what a server uses.
//!
//! Promises, each checked by the simulator after every step: what was acknowledged is on the disks of a quorum; a vote is on
//! disk before it is told; members that have applied the same have the same state; a read of level [`ReadLevel::Linearizable`]
//! sees every write that was acknowledged before it began, and so does [`ReadLevel::Lease`] as long as clocks keep to
//! [`Settings::clock_drift_ppm`].
//!
//! Queues are bounded: proposals and reads beyond the limits in [`Settings`] are [`Rejected::Busy`].

mod alone;
mod applying;
mod bugs;
mod clock;
mod codec;
mod consensus;
mod entry;
mod lease;
mod machine;
mod membership;
mod message;
mod node;
mod random;
mod reads;
mod record;
mod recovery;
mod replica;
pub mod runtime;
mod settings;
#[cfg(any(test, feature = "simulator"))]
pub mod sim;
mod snapshot;

pub use applying::{Applied, LongStep, LongStepDone};
#[cfg(any(test, feature = "planted-bugs"))]
pub use bugs::Bug;
pub use clock::Now;
pub use codec::Malformed;
pub use consensus::Role;
pub use entry::{Entry, EntryKind};
pub use machine::{RestoreError, SnapshotView, StateMachine};
pub use membership::{Change, Membership};
pub use message::Message;
pub use node::{Batch, LostLog, Node, Output, Proposed, Rejected, Standing, StartError, Token};
pub use reads::{ReadId, ReadLevel, ReadPath, ReadPermit};
pub use recovery::{RecoverError, Recovered, Recovery, RecoveryError, recover};
pub use replica::{Effects, Fatal, ReplicatedLog};
pub use settings::Settings;
pub use snapshot::{ChunksJob, ChunksRead, FilesJob, FilesJobDone, SnapshotFailures, SnapshotJob, SnapshotMeta};
