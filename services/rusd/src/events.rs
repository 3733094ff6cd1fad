//! What happens to this member, said in the log in etcd's words: who leads, which alarms are raised, which compactions are done.
//!
//! It is found by looking at what is published: no request waits for a line, and what a start reads from the log again is not said again. An alarm
//! that stands is said once after a start; one that is lowered, or a compaction that is followed by the next, before anybody has looked is not
//! said. What takes its time is said where it is done: defragmentation and snapshots for clients in [`crate::api`], connections and snapshots of
//! members in `replog`.

use std::collections::BTreeSet;
use std::time::Duration;

use replog::runtime::Leadership;
use tokio::time::sleep;

use crate::measured::Compaction;
use crate::node::Node;
use crate::proto::etcdserverpb::{AlarmMember, AlarmType};
use crate::settings::hex;

/// How often it is looked at.
const ROUND: Duration = Duration::from_millis(50);

/// A size for people, as etcd writes it: `83 MB`. From `Bytes` of `go-humanize`.
pub fn size(bytes: u64) -> String {
    let exponent = bytes.max(1).ilog(1000);
    let tenths = (bytes as f64 / 1000_f64.powi(exponent as i32) * 10.0 + 0.5).floor();
    let unit = ["B", "kB", "MB", "GB", "TB", "PB", "EB"].get(exponent as usize).copied().unwrap_or_default();
    match exponent > 0 && tenths < 100.0 {
        true => format!("{:.1} {unit}", tenths / 10.0),
        false => format!("{:.0} {unit}", tenths / 10.0),
    }
}

/// Says all of it for as long as the member runs.
pub async fn tell(node: &Node) {
    tokio::join!(tell_leaders(node), tell_alarms_and_compactions(node));
}

async fn tell_leaders(node: &Node) {
    let mut leadership = node.group.leadership();
    let mut before = Leadership { leader: None, term: 0, is_ready_leader: false };
    loop {
        let now = *leadership.borrow_and_update();
        if let Some(line) = change_of_leader(node.member_id, before, now) {
            tracing::info!("{line}");
        }
        before = now;
        if leadership.changed().await.is_err() {
            // The member has ended, and nothing changes any more.
            return std::future::pending().await;
        }
    }
}

/// As etcd's `raft` says it in `node.go`. `None`: the same member leads as before, or still nobody does.
fn change_of_leader(own: u64, before: Leadership, now: Leadership) -> Option<String> {
    let term = now.term;
    Some(match (before.leader, now.leader) {
        (None, None) => return None,
        (Some(before), None) => format!("raft.node: {own:x} lost leader {before:x} at term {term}"),
        (Some(same), Some(leader)) if same == leader && before.term == term => return None,
        (Some(other), Some(leader)) if other != leader => {
            format!("raft.node: {own:x} changed leader from {other:x} to {leader:x} at term {term}")
        }
        // Also of one that was lost and elected again since the last look.
        (_, Some(leader)) => format!("raft.node: {own:x} elected leader {leader:x} at term {term}"),
    })
}

async fn tell_alarms_and_compactions(node: &Node) {
    // What is in the log already happened before this start.
    let before_start = node.handle.status().last;
    let mut raised = BTreeSet::new();
    let mut told = before_start;
    loop {
        let status = node.handle.status();
        if status.applied >= before_start.min(status.last) {
            let all = node.reader.view().cluster.alarms(AlarmType::None as i32);
            let now = all.into_iter().map(|AlarmMember { alarm, member_id }| (alarm, member_id)).collect();
            tell_alarms(&raised, &now);
            raised = now;
        }
        if let Some(compaction) = node.measured.compaction().filter(|compaction| compaction.index > told) {
            told = compaction.index;
            tell_compaction(node, compaction);
        }
        sleep(ROUND).await;
    }
}

/// Each is a kind, and the member that it is about.
fn tell_alarms(before: &BTreeSet<(i32, u64)>, now: &BTreeSet<(i32, u64)>) {
    for (alarm, member) in now.difference(before) {
        tracing::warn!(alarm = %name_of(*alarm), from = %hex(*member), "alarm raised");
    }
    for (alarm, member) in before.difference(now) {
        tracing::warn!(alarm = %name_of(*alarm), from = %hex(*member), "alarm disarmed");
    }
}

/// A kind that this release does not know is its number.
fn name_of(alarm: i32) -> String {
    AlarmType::try_from(alarm).map_or_else(|_| alarm.to_string(), |kind| kind.as_str_name().to_owned())
}

fn tell_compaction(node: &Node, compaction: Compaction) {
    let Compaction { revision, took, .. } = compaction;
    let (bytes, in_use_bytes) = (node.allocated_bytes(), node.reader.view().bytes());
    tracing::info!(
        "compact-revision" = revision,
        took = ?took,
        "current-db-size-bytes" = bytes,
        "current-db-size" = size(bytes),
        "current-db-size-in-use-bytes" = in_use_bytes,
        "current-db-size-in-use" = size(in_use_bytes),
        "finished scheduled compaction"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_leader_is_said_in_the_words_of_raft() {
        let of = |leader, term| Leadership { leader, term, is_ready_leader: false };
        let said = |before, now| change_of_leader(0x8e9e_05c5_2164_694d, before, now);
        let elected = "raft.node: 8e9e05c52164694d elected leader 2a at term 2".to_owned();
        assert_eq!(said(of(None, 0), of(Some(42), 2)), Some(elected.clone()));
        assert_eq!(said(of(Some(42), 1), of(Some(42), 2)), Some(elected), "it was lost in between");
        assert_eq!(said(of(Some(42), 2), Leadership { is_ready_leader: true, ..of(Some(42), 2) }), None);
        assert_eq!(said(of(None, 2), of(None, 3)), None);
        let changed = "raft.node: 8e9e05c52164694d changed leader from 2a to 8e9e05c52164694d at term 3";
        assert_eq!(said(of(Some(42), 2), of(Some(0x8e9e_05c5_2164_694d), 3)).unwrap(), changed);
        let lost = "raft.node: 8e9e05c52164694d lost leader 2a at term 3";
        assert_eq!(said(of(Some(42), 2), of(None, 3)).unwrap(), lost);
    }

    #[test]
    fn sizes_are_those_of_go_humanize() {
        let sizes = [0, 9, 999, 1000, 1_250, 20_700, 9_960, 999_999, 82_854_982, u64::MAX];
        let said = ["0 B", "9 B", "999 B", "1.0 kB", "1.3 kB", "21 kB", "10 kB", "1000 kB", "83 MB", "18 EB"];
        assert_eq!(sizes.map(size), said);
    }
}
