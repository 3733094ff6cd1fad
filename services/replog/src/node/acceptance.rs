//! What may come from another node. The consensus crate ends the process when it is told nonsense; nothing that a network carries
//! may do that. Nonsense is dropped here, and what shows that this node's disk has lost something ends the node by an error.

use super::Node;
use crate::consensus::{self, Wire, WireKind};
use crate::snapshot::SnapshotMeta;

/// Terms and indices beyond this are nobody's: no group lives so long, and arithmetic on them does not overflow.
const NUMBER_MAX: u64 = 1 << 62;

/// The leader knows of something that this node once said it had on disk, and that it does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "leader {leader} says that entries up to {commit} are committed and acknowledged from here, but the log ends at {last} and \
     does not join: this member has lost what it had on disk; remove it from the group and add it again under a new id"
)]
pub struct LostLog {
    /// The member that leads in this term.
    pub leader: u64,
    /// What it says is committed.
    pub commit: u64,
    /// The last entry here.
    pub last: u64,
}

/// Nothing that is a node's own business, nothing that makes no sense whatever this node has.
pub(super) fn is_acceptable(wire: &Wire) -> bool {
    let numbers = [wire.term, wire.index, wire.log_term, wire.commit, wire.commit_term, wire.reject_hint];
    if numbers.iter().any(|number| *number > NUMBER_MAX) {
        return false;
    }
    match wire.get_msg_type() {
        // It travels without a term, also when it is passed on.
        WireKind::MsgReadIndex => wire.term == 0 && wire.get_entries().len() == 1,
        WireKind::MsgHup
        | WireKind::MsgBeat
        | WireKind::MsgPropose
        | WireKind::MsgUnreachable
        | WireKind::MsgSnapStatus
        | WireKind::MsgCheckQuorum
        | WireKind::MsgTransferLeader => false,
        WireKind::MsgAppend => wire.term > 0 && joins(wire) && consensus::has_whole_changes(wire),
        _ => wire.term > 0,
    }
}

/// Entries follow one another, and the entry that they say they follow.
fn joins(wire: &Wire) -> bool {
    let mut before = (wire.index, wire.log_term);
    wire.get_entries().iter().all(|entry| {
        let follows = entry.index == before.0 + 1 && entry.term >= before.1 && entry.term <= wire.term;
        before = (entry.index, entry.term);
        follows
    })
}

impl Node {
    /// Whether the message can be what another node says to this one, given what this one has.
    pub(super) fn is_plausible(&self, wire: &Wire) -> Result<bool, LostLog> {
        let (commit, last) = (self.consensus.commit(), self.consensus.last());
        let is_current = wire.term >= self.consensus.term();
        match wire.get_msg_type() {
            // A leader tells nobody of more than it has been told.
            WireKind::MsgHeartbeat if is_current && wire.commit > last => {
                Err(LostLog { leader: wire.from, commit: wire.commit, last })
            }
            // The leader's log has everything that is committed, hence no older term behind it.
            WireKind::MsgAppend if is_current && wire.index >= commit => {
                Ok(wire.log_term >= self.consensus.base_term())
            }
            WireKind::MsgAppendResponse if !wire.reject => Ok(wire.index <= last),
            WireKind::MsgSnapshot => {
                let makes_sense = |meta: SnapshotMeta| {
                    meta.membership.is_consistent() && meta.index < NUMBER_MAX && (1..=wire.term).contains(&meta.term)
                };
                Ok(consensus::snapshot_of_wire(wire).is_some_and(makes_sense))
            }
            _ => Ok(true),
        }
    }
}
