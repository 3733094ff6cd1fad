//! What comes from other members: calls, answers, and newcomers who ask whom they join.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use prost::Message;
use replog::runtime::tcp::Host;

use super::Group;
use crate::proto::etcdserverpb as pb;

/// Stands in the transport before there is a member behind it; what comes earlier is lost.
#[derive(Default)]
pub struct Door {
    group: OnceLock<Arc<Group>>,
    /// See [`Door::can_tell`].
    is_told: AtomicBool,
}

impl Door {
    /// From now on this group is behind it.
    pub fn open(&self, group: Arc<Group>) {
        // There is one group in a process; a second one would not be listened to.
        let _ = self.group.set(group);
    }

    /// Whether what this member knew at its start to be decided is in its store: before that it would not know members that it knows.
    fn can_tell(&self, group: &Group) -> bool {
        if !self.is_told.load(Ordering::Relaxed) {
            let status = group.handle.status();
            self.is_told.store(status.id != 0 && status.applied >= status.commit, Ordering::Relaxed);
        }
        self.is_told.load(Ordering::Relaxed)
    }
}

impl Host for Door {
    fn note(&self, from: u64, note: Bytes) {
        if let Some(group) = self.group.get() {
            group.forwarder.note(from, &note);
        }
    }

    /// The members, as etcd's API has them; nothing before the group knows.
    fn introduction(&self) -> Vec<u8> {
        let Some(group) = self.group.get().filter(|group| self.can_tell(group)) else { return Vec::new() };
        let header = pb::ResponseHeader { cluster_id: group.cluster_id, member_id: group.id, ..Default::default() };
        let members = group.reader.view().cluster.members.values().cloned().collect();
        pb::MemberListResponse { header: Some(header), members }.encode_to_vec()
    }

    /// Only when the log has no more use for it either: to leave it needs its own voice.
    fn is_removed(&self, member: u64) -> bool {
        self.group.get().is_some_and(|group| {
            group.reader.view().cluster.removed.contains(&member)
                && !group.handle.status().membership.all().contains(&member)
        })
    }

    /// That is not told: as in etcd, groups are told apart by their number alone, which follows from names, addresses and token.
    fn log(&self) -> u64 {
        0
    }
}
