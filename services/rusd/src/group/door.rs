//! What comes from other members: calls, answers, and newcomers who ask whom they join.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use prost::Message;
use replog::runtime::identity::CaughtUp;
use replog::runtime::tcp::Host;

use super::Group;
use crate::proto::etcdserverpb as pb;

/// Stands in the transport before there is a member behind it; what comes earlier is lost.
#[derive(Default)]
pub struct Door {
    group: OnceLock<Arc<Group>>,
    caught_up: CaughtUp,
}

impl Door {
    /// From now on this group is behind it.
    pub fn open(&self, group: Arc<Group>) {
        // There is one group in a process; a second one would not be listened to.
        let _ = self.group.set(group);
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
        let Some(group) = self.group.get().filter(|group| self.caught_up.has(|| group.handle.status())) else {
            return Vec::new();
        };
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
