//! A member with threads, files, clocks and a network: what servers use.
//!
//! | thread | does |
//! | --- | --- |
//! | `member-N` | the core: everything that [`crate::ReplicatedLog`] is, alone; waits for its inbox, and for its disk where it has no others and commands come one by one |
//! | `wal` | writes and syncs what the core hands over, all that waits at once |
//! | `wal-spare` | makes files of zeros ahead |
//! | `snapshot` | while one is made |
//! | `apply` | while the state machine takes what takes it long: see [`crate::LongStep`] |
//! | `files` | while the file of a snapshot from elsewhere is made room for, or checked: see [`crate::FilesJob`] |
//! | `chunks` | while pieces of a snapshot are read for another member: see [`crate::ChunksJob`] |
//! | of the transport | over TCP: one for each member that is sent to, one for each that sends, one that accepts |
//!
//! Everything that waits is bounded ([`Limits`], [`crate::Settings`]): beyond, `Busy`. What a caller is told: an entry was applied
//! and is on the disks of a quorum; or that nothing has happened and nothing will; or that it is not known
//! ([`ProposeError::Unknown`]). When a disk fails or something is damaged the member ends, with one error
//! ([`Member::wait`]), tells everybody who waits, and acknowledges nothing more.
//!
//! What a server looks at before it starts a member, so that none comes back without what it has acknowledged, is [`identity`].
//!
//! No async runtime: callbacks, futures that run on any, and calls that block. Only [`Forwarder`] needs tokio's timer.

mod clock;
mod core;
mod forward;
mod handle;
mod helpers;
pub mod identity;
mod inbox;
mod member;
mod published;
mod status;
pub mod tcp;
mod transport;

pub use forward::{AnswerHere, Forwarder, Leading, SubmitError};
pub use handle::{Committed, Handle, ProposeError, ReadError, RequestError, Ticket};
pub use inbox::{Limits, Proposal};
pub use member::{Member, MemberError, Origin, Start};
pub use status::{Counts, Leadership, Status};
pub use transport::{Closed, Deliver, LocalNetwork, Transport};
