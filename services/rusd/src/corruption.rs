//! Whether all members keep the same: at the start (`--feature-gates=InitialCorruptCheck=true`), every now and then
//! (`--corrupt-check-time`), and what they kept before each compaction (`--feature-gates=CompactHashCheck=true`). From etcd's
//! `server/etcdserver/corrupt.go`, in whose words it is logged.
//!
//! The leader compares, and raises the alarm CORRUPT about whoever differs: no member writes anything then, until it is lowered. A member
//! that finds out at its start does not serve. What a disk has changed is found by checksums and never gets this far; here is found what
//! should be impossible.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use prost::Message;
use tokio::time::{Instant, sleep, timeout};

use crate::group::PeerHash;
use crate::node::Node;
use crate::proto::etcdserverpb as pb;
use crate::settings::hex;
use crate::store::command::{self, Kind};
use crate::store::{Caller, Error, KeyValueHash};

/// At the start, others are waited for so long at most, and a leader who says what of the log is decided: they may be starting, too.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
const CONNECT_ROUND: Duration = Duration::from_millis(20);
/// Who hashes for somebody else is asked again after that.
const ASK_ROUND: Duration = Duration::from_millis(100);

/// What a member keeps differs from what others keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:x} found data inconsistency with peers; save what is in --data-dir, and let this member begin anew: etcdctl member remove \
     and member add, and an empty --data-dir"
)]
pub struct Inconsistent(u64);

/// What other members said of their hash at a revision; `None`: nothing.
type Answers = Vec<(u64, Option<Result<PeerHash, Error>>)>;

async fn ask_all(node: &Node, revision: i64) -> Answers {
    let view = node.reader.view();
    let others = view.cluster.members.keys().copied().filter(|id| *id != node.member_id);
    join_all(others.map(|id| async move {
        // One that hashes for others already says so, and is asked again.
        let ask = async {
            loop {
                match node.group.ask_hash(id, revision).await {
                    Some(Err(Error::TooManyRequests)) => sleep(ASK_ROUND).await,
                    said => return said,
                }
            }
        };
        let said = timeout(node.patience(), ask).await.ok().flatten();
        if said.is_none() {
            tracing::warn!(
                "local-member-id" = %hex(node.member_id),
                "requested-revision" = revision,
                "remote-peer-id" = %hex(id),
                "failed hash kv request"
            );
        }
        (id, said)
    }))
    .await
}

/// This member's own.
async fn hash_of(node: &Node, revision: i64) -> Result<(i64, KeyValueHash), Error> {
    node.hashes.at(&node.reader, revision).await.unwrap_or(Err(Error::Stopped))
}

/// Compares before anybody is served. Members that cannot be reached, or have not come as far, say nothing.
pub async fn check_initially(node: &Node) -> Result<(), Inconsistent> {
    let local = hex(node.member_id);
    tracing::info!("local-member-id" = %local, timeout = ?node.patience(), "starting initial corruption check");
    let members = node.reader.view().cluster.members.keys().copied().collect::<Vec<_>>();
    let deadline = Instant::now() + CONNECT_PATIENCE;
    let is_reached = |id: &u64| *id == node.member_id || node.group.is_connected(*id);
    let own_last = node.handle.status().last;
    // What it has in its log is not in its state before it is known to be decided.
    let has_applied = || {
        let status = node.handle.status();
        status.leader.is_some() && status.applied >= status.last.min(own_last)
    };
    while !(members.iter().all(is_reached) && has_applied()) && Instant::now() < deadline {
        sleep(CONNECT_ROUND).await;
    }
    let Ok((_, own)) = hash_of(node, 0).await else { return Err(Inconsistent(node.member_id)) };
    let mut differs = false;
    for (id, said) in ask_all(node, own.hash_revision).await {
        let problem = match said {
            Some(Ok(other)) if other.hash == own.hash => continue,
            Some(Ok(other)) if other.compact_revision == own.compact_revision => {
                differs = true;
                "found different hash values from remote peer"
            }
            Some(Ok(_)) => "found different compact revision values from remote peer",
            Some(Err(Error::FutureRevision)) => "cannot fetch hash from slow remote peer",
            Some(Err(Error::Compacted)) => "cannot fetch hash from remote peer; local member is behind",
            Some(Err(_)) | None => continue,
        };
        let other = said.and_then(Result::ok);
        tracing::warn!(
            "local-member-id" = %local,
            "local-member-revision" = own.hash_revision,
            "local-member-compact-revision" = own.compact_revision,
            "local-member-hash" = own.hash,
            "remote-peer-id" = %hex(id),
            "remote-peer-revision" = other.map(|other| other.revision),
            "remote-peer-compact-revision" = other.map(|other| other.compact_revision),
            "remote-peer-hash" = other.map(|other| other.hash),
            "{problem}"
        );
    }
    if differs {
        return Err(Inconsistent(node.member_id));
    }
    tracing::info!("local-member-id" = %local, "initial corruption checking passed; no corruption");
    Ok(())
}

/// Compares for as long as the member runs, while it leads.
pub async fn check(node: &Node) {
    let checks = node.settings.corruption;
    tokio::join!(check_every(node, checks.every), check_compactions(node, checks.compactions_every));
}

async fn check_every(node: &Node, every: Duration) {
    if every.is_zero() {
        return std::future::pending().await;
    }
    tracing::info!("local-member-id" = %hex(node.member_id), interval = ?every, "enabled corruption checking");
    loop {
        sleep(every).await;
        if leads(node)
            && let Err(error) = check_now(node).await
        {
            tracing::warn!(%error, "failed to check hash KV");
        }
    }
}

fn leads(node: &Node) -> bool {
    node.handle.leader().1
}

async fn check_now(node: &Node) -> Result<(), Error> {
    let (_, before) = hash_of(node, 0).await?;
    let said = ask_all(node, before.hash_revision).await;
    node.view().await.map_err(|_| Error::Timeout)?;
    let (_, after) = hash_of(node, 0).await?;
    let peers = said.iter().filter_map(|(id, said)| Some((*id, (*said)?.ok()?))).collect::<Vec<_>>();
    for (id, why) in mismatches(node.member_id, before, after, &peers) {
        let other = peers.iter().find(|(peer, _)| *peer == id).map(|(_, hash)| *hash);
        tracing::warn!(
            "leader-revision" = after.hash_revision,
            "leader-compact-revision" = after.compact_revision,
            "leader-hash" = before.hash,
            "follower-revision" = other.map(|other| other.revision),
            "follower-compact-revision" = other.map(|other| other.compact_revision),
            "follower-hash" = other.map(|other| other.hash),
            "follower-peer-id" = %hex(id),
            "{why}"
        );
        raise(node, id);
    }
    tracing::info!("number-of-peers-checked" = peers.len(), "finished peer corruption check");
    Ok(())
}

/// Who differs, each once, and in which way. `before` and `after` are the leader's own, from before and after the others were asked.
fn mismatches(
    leader: u64,
    before: KeyValueHash,
    after: KeyValueHash,
    peers: &[(u64, PeerHash)],
) -> Vec<(u64, &'static str)> {
    let is_same_state =
        (before.hash_revision, before.compact_revision) == (after.hash_revision, after.compact_revision);
    let own = (is_same_state && before.hash != after.hash).then_some((leader, "found hash mismatch"));
    let of_peers = peers.iter().filter_map(|(id, peer)| {
        let why = if peer.revision > after.hash_revision {
            "revision from follower must be less than or equal to leader's"
        } else if peer.compact_revision > after.compact_revision {
            "compact revision from follower must be less than or equal to leader's"
        } else if peer.compact_revision == before.compact_revision && peer.hash != before.hash {
            "same compact revision then hashes must match"
        } else {
            return None;
        };
        Some((*id, why))
    });
    own.into_iter().chain(of_peers).collect()
}

async fn check_compactions(node: &Node, every: Option<Duration>) {
    let Some(every) = every.filter(|every| !every.is_zero()) else { return std::future::pending().await };
    let local = hex(node.member_id);
    tracing::info!("local-member-id" = %local, interval = ?every, "enabled compact hash checking");
    let mut checked = 0;
    loop {
        sleep(every).await;
        if !leads(node) {
            continue;
        }
        tracing::info!("local-member-id" = %local, timeout = ?node.patience(), "starting compact hash check");
        let mut count = 0;
        for own in node.hashes.newest_first().into_iter().filter(|hash| hash.hash_revision > checked) {
            let said = ask_all(node, own.hash_revision).await;
            count += 1;
            if !said.is_empty() && check_compaction(node, own, &said) {
                checked = own.hash_revision;
                break;
            }
        }
        tracing::info!("number-of-hashes-checked" = count, "finished compaction hash check");
    }
}

/// False: somebody has said nothing that can be compared, so that an older hash may tell more.
fn check_compaction(node: &Node, own: KeyValueHash, said: &Answers) -> bool {
    let mut by_hash = BTreeMap::from([(own.hash, BTreeSet::from([node.member_id]))]);
    let mut compared = 0;
    for (id, said) in said {
        match said {
            Some(Ok(peer)) if peer.compact_revision == own.compact_revision => {
                compared += 1;
                by_hash.entry(peer.hash).or_default().insert(*id);
            }
            _ => tracing::warn!(
                "leader-id" = %hex(node.member_id),
                "peer-id" = %hex(*id),
                reason = match said {
                    Some(Ok(_)) => "the peer's CompactRevision doesn't match leader's CompactRevision",
                    _ => "no response",
                },
                "Skipped peer's hash"
            ),
        }
    }
    if by_hash.len() == 1 {
        let is_all = compared == said.len();
        if is_all {
            tracing::info!(
                "number-of-peers-checked" = compared,
                "revision" = own.hash_revision,
                "compactRevision" = own.compact_revision,
                "successfully checked hash on whole cluster"
            );
        }
        return is_all;
    }
    let outliers = outliers(by_hash, said.len() + 1);
    tracing::error!(
        "leader-id" = %hex(node.member_id),
        "leader-revision" = own.hash_revision,
        "leader-compact-revision" = own.compact_revision,
        "leader-hash" = own.hash,
        "peers" = ?outliers.as_ref().map(|ids| ids.iter().copied().map(hex).collect::<Vec<_>>()),
        "quorum-exist" = outliers.is_some(),
        "Detected compaction hash mismatch"
    );
    match outliers {
        Some(outliers) => outliers.into_iter().for_each(|id| raise(node, id)),
        None => {
            tracing::error!(
                "leader-id" = %hex(node.member_id),
                "Detected compaction hash mismatch but cannot identify the corrupted members, so intentionally set the memberID as 0"
            );
            raise(node, 0);
        }
    }
    true
}

/// Who is not with the majority; `None`: there is none.
fn outliers(by_hash: BTreeMap<u32, BTreeSet<u64>>, members: usize) -> Option<BTreeSet<u64>> {
    let quorum = members / 2 + 1;
    by_hash
        .values()
        .any(|ids| ids.len() >= quorum)
        .then(|| by_hash.into_values().filter(|ids| ids.len() < quorum).flatten().collect())
}

fn raise(node: &Node, member: u64) {
    let alarm = pb::AlarmRequest {
        action: pb::alarm_request::AlarmAction::Activate as i32,
        member_id: member,
        alarm: pb::AlarmType::Corrupt as i32,
    };
    // If it fails, the next check raises it.
    node.group.post(command::encode(&Caller::Server, Kind::Alarm, &alarm.encode_to_vec()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(hash: u32, hash_revision: i64) -> KeyValueHash {
        KeyValueHash { hash, compact_revision: 3, hash_revision }
    }

    fn peer(revision: i64, compact_revision: i64, hash: u32) -> PeerHash {
        PeerHash { revision, compact_revision, hash }
    }

    #[test]
    fn who_differs_is_told_once() {
        let who = |after, peers: &[PeerHash]| {
            let peers = (2..).zip(peers.iter().copied()).collect::<Vec<_>>();
            mismatches(1, own(7, 10), after, &peers).into_iter().map(|(id, _)| id).collect::<Vec<_>>()
        };
        assert_eq!(who(own(7, 10), &[peer(10, 3, 7), peer(9, 3, 7)]), [0; 0]);
        assert_eq!(who(own(7, 10), &[peer(10, 3, 8), peer(10, 2, 8)]), [2], "another compaction has another hash");
        assert_eq!(who(own(8, 10), &[peer(10, 3, 7)]), [1], "the leader itself");
        assert_eq!(who(own(8, 11), &[peer(11, 3, 7)]), [0; 0], "it has gone on");
        assert_eq!(who(own(7, 10), &[peer(11, 3, 7), peer(10, 4, 7)]), [2, 3], "nobody is ahead of the leader");
    }

    #[test]
    fn outliers_are_known_where_there_is_a_majority() {
        let by_hash = |groups: &[&[u64]]| {
            (0..).zip(groups).map(|(hash, ids)| (hash, ids.iter().copied().collect())).collect::<BTreeMap<_, _>>()
        };
        assert_eq!(outliers(by_hash(&[&[1, 2], &[3]]), 3), Some(BTreeSet::from([3])));
        assert_eq!(outliers(by_hash(&[&[1], &[2]]), 2), None);
        assert_eq!(outliers(by_hash(&[&[1], &[2, 3]]), 3), Some(BTreeSet::from([1])), "the leader may be the one");
        assert_eq!(outliers(by_hash(&[&[1], &[2]]), 3), None, "a third has said nothing");
    }
}
