//! What operators ask for. From etcd's `server/etcdserver/api/v3rpc/maintenance.go`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use replog::runtime::Handle;
use service_kit::grpc::{self, Code, Requests, Responses, Status, Unary, decode};
use sha2::{Digest, Sha256};
use tokio::time::{sleep, timeout};

use crate::api::kv::fill;
use crate::api::{Api, refuse};
use crate::copies::{DatabaseCopy, IsWanted};
use crate::events::size;
use crate::node::{ETCD_VERSION, Node};
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::alarm_request::AlarmAction;
use crate::store::command::Kind;
use crate::store::{Access, Error, KeyValueHash, Reply};

/// The layout of data that this release of etcd writes; tools ask for it.
const STORAGE_VERSION: &str = "3.7.0";
/// Of the database file in one message.
const SNAPSHOT_CHUNK_BYTES: usize = 64 << 10;
/// How often what defragmentation waits for is looked at.
const DEFRAGMENT_ROUND: Duration = Duration::from_millis(10);

impl Api {
    pub(super) fn alarm(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: pb::AlarmRequest = decode(message.clone())?;
        let asks = request.action == AlarmAction::Get as i32;
        let access = if asks { Access::Authenticated } else { Access::Administrate };
        if asks {
            return self.look(false, call, move |node, caller, view, term| {
                view.check(caller, access)?;
                let header = Some(node.header(view.revision(), term));
                Ok(grpc::encode(&pb::AlarmResponse { header, alarms: view.cluster.alarms(request.alarm) }))
            });
        }
        // Asked here and not where it is applied: what stands in a log already makes the state that it made then.
        if request.action == AlarmAction::Activate as i32 && !self.node.reader.view().cluster.takes_alarm(&request) {
            self.permit(call, Access::Administrate)?;
            return Ok(refuse(Error::TooManyRequests));
        }
        Ok(self.propose(call, access, Kind::Alarm, &message, |node, done| {
            let (mut response, term) = done.reply::<pb::AlarmResponse>()?;
            fill(node, &mut response.header, term)?;
            Ok(response)
        }))
    }

    pub(super) fn status(&self, call: &grpc::Caller, _: Bytes) -> Result<Unary, Status> {
        self.permit(call, Access::Authenticated)?;
        let (node, view, status) = (&self.node, self.node.reader.view(), self.node.handle.status());
        let mut errors = view.cluster.alarms(pb::AlarmType::None as i32).iter().map(describe).collect::<Vec<_>>();
        if status.leader.is_none() {
            errors.insert(0, "etcdserver: no leader".to_owned());
        }
        let response = pb::StatusResponse {
            header: Some(node.header(view.revision(), status.term)),
            version: ETCD_VERSION.to_owned(),
            db_size: node.allocated_bytes() as i64,
            leader: status.leader.unwrap_or_default(),
            raft_index: status.commit,
            raft_term: status.term,
            raft_applied_index: status.applied,
            errors,
            db_size_in_use: view.bytes() as i64,
            is_learner: node.group.is_learner(),
            storage_version: STORAGE_VERSION.to_owned(),
            db_size_quota: node.settings.quota_bytes.unwrap_or_default() as i64,
            downgrade_info: Some(view.cluster.downgrade.clone()),
        };
        Ok(Unary::Now(Ok(grpc::encode(&response))))
    }

    /// Gives back to the disk what is not needed any more: waits until what was compacted is gone, and a snapshot stands in the place
    /// of the log.
    pub(super) fn defragment(&self, call: &grpc::Caller, _: Bytes) -> Result<Unary, Status> {
        self.permit(call, Access::Administrate)?;
        let node = Arc::clone(&self.node);
        Ok(Unary::Later(Box::pin(async move {
            defragment(&node).await?;
            Ok(grpc::encode(&pb::DefragmentResponse::default()))
        })))
    }

    pub(super) fn hash(&self, call: &grpc::Caller, _: Bytes) -> Result<Unary, Status> {
        self.hashed(call, 0, |node, hash| {
            let header = node.header(hash.hash_revision, node.term());
            grpc::encode(&pb::HashResponse { header: Some(header), hash: hash.hash })
        })
    }

    pub(super) fn hash_kv(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: pb::HashKvRequest = decode(message)?;
        self.hashed(call, request.revision, |node, hash| {
            grpc::encode(&pb::HashKvResponse {
                header: Some(node.header(node.reader.view().revision(), node.term())),
                hash: hash.hash,
                compact_revision: hash.compact_revision,
                hash_revision: hash.hash_revision,
            })
        })
    }

    /// Hashes everything, when it is its turn: connections go on meanwhile.
    fn hashed(
        &self,
        call: &grpc::Caller,
        revision: i64,
        answer: impl FnOnce(&Node, KeyValueHash) -> Bytes + 'static,
    ) -> Result<Unary, Status> {
        self.permit(call, Access::Administrate)?;
        let node = Arc::clone(&self.node);
        Ok(Unary::Later(Box::pin(async move {
            let (_, hash) = node.hashes.at_for_client(&node.reader, revision).await??;
            Ok(answer(&node, hash))
        })))
    }

    pub(super) fn move_leader(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: pb::MoveLeaderRequest = decode(message)?;
        self.permit(call, Access::Administrate)?;
        let status = self.node.handle.status();
        if status.leader != Some(self.node.member_id) {
            return Ok(refuse(Error::NotLeader));
        }
        if !status.membership.voters.contains(&request.target_id) {
            return Ok(refuse(Error::BadLeaderTransferee));
        }
        if request.target_id == self.node.member_id {
            return Ok(Unary::Now(Ok(grpc::encode(&pb::MoveLeaderResponse::default()))));
        }
        let (node, target) = (Arc::clone(&self.node), request.target_id);
        Ok(Unary::Later(Box::pin(async move {
            let moved = async {
                let mut leadership = node.group.leadership();
                loop {
                    // An offer that is lost, or comes too early, is withdrawn after a while.
                    let offered = node.handle.transfer_leader(target).await.is_ok();
                    let wait = if offered { node.settings.election } else { node.settings.heartbeat };
                    let leads = leadership.wait_for(|now| now.leader == Some(target));
                    if timeout(wait, leads).await.is_ok() {
                        return;
                    }
                }
            };
            timeout(node.patience(), moved).await.map_err(|_| Error::TimeoutDueToLeaderTransfer)?;
            Ok(grpc::encode(&pb::MoveLeaderResponse::default()))
        })))
    }
}

impl Api {
    /// Everything as etcd's own database file, and at the end the SHA-256 of it.
    pub(super) fn snapshot(
        &self,
        call: grpc::Caller,
        _: Requests,
        responses: Responses,
    ) -> impl Future<Output = Result<(), Status>> + 'static {
        let permitted = self.permit(&call, Access::Administrate);
        let node = Arc::clone(&self.node);
        async move {
            let caller = permitted?;
            let source = Arc::clone(&node);
            let write = move |is_wanted: &IsWanted<'_>| {
                let (view, index, term) = (source.reader.view(), source.handle.status().applied, source.term());
                DatabaseCopy::write((&view, index, term), &source.space, &source.settings.data_directory, is_wanted)
            };
            let copy = node.copies.copy(write).await?;
            // What is in it may be newer than what the caller was permitted to see.
            node.reader.view().check(&caller, Access::Administrate)?;
            let total_bytes = copy.bytes();
            let (begun, total, version) = (Instant::now(), size(total_bytes), STORAGE_VERSION.to_owned());
            tracing::info!(
                "total-bytes" = total_bytes,
                size = total,
                "storage-version" = version,
                "sending database snapshot to client"
            );
            let mut remaining_bytes = total_bytes;
            let mut digest = Sha256::new();
            while remaining_bytes > 0 {
                let chunk_bytes = SNAPSHOT_CHUNK_BYTES.min(remaining_bytes as usize);
                let blob = copy.read(total_bytes - remaining_bytes, chunk_bytes).await;
                let blob = blob.map_err(|error| Status::new(Code::Internal, format!("rusd: snapshot: {error}")))?;
                digest.update(&blob);
                remaining_bytes -= blob.len() as u64;
                let chunk = pb::SnapshotResponse {
                    remaining_bytes,
                    blob: blob.into(),
                    version: version.clone(),
                    ..Default::default()
                };
                let sent = tokio::select! {
                    sent = responses.send(grpc::encode(&chunk)) => sent,
                    given_up = copy.wanted_back() => return Err(given_up),
                };
                if sent.is_err() {
                    return Ok(());
                }
            }
            drop(copy);
            let blob = Bytes::copy_from_slice(&digest.finalize());
            let trailer = pb::SnapshotResponse { blob, version: version.clone(), ..Default::default() };
            if responses.send(grpc::encode(&trailer)).await.is_ok() {
                tracing::info!(
                    "total-bytes" = total_bytes,
                    size = total,
                    took = ?begun.elapsed(),
                    "storage-version" = version,
                    "successfully sent database snapshot to client"
                );
            }
            Ok(())
        }
    }
}

/// Has what was compacted gone, and a snapshot in the place of the log; says so in etcd's words.
async fn defragment(node: &Node) -> Result<(), Status> {
    let path = node.settings.data_directory.join("member");
    let sizes = || (node.allocated_bytes(), node.reader.view().bytes());
    let (begun, (before, in_use_before)) = (Instant::now(), sizes());
    tracing::info!(
        path = %path.display(),
        "current-db-size-bytes" = before,
        "current-db-size" = size(before),
        "current-db-size-in-use-bytes" = in_use_before,
        "current-db-size-in-use" = size(in_use_before),
        "starting defragment"
    );
    let compacted = node.reader.view().keyspace.compacted();
    let done = async {
        node.swept(compacted).await?;
        replace_log(&node.handle).await
    };
    if let Err(status) = done.await {
        tracing::warn!(error = %status.message, took = ?begun.elapsed(), "failed to defragment");
        return Err(status);
    }
    node.look_at_disk();
    node.measured.allocated_bytes.store(node.reader.view().bytes(), Ordering::Relaxed);
    let (after, in_use) = sizes();
    tracing::info!(
        path = %path.display(),
        "current-db-size-bytes-diff" = after as i64 - before as i64,
        "current-db-size-bytes" = after,
        "current-db-size" = size(after),
        "current-db-size-in-use-bytes-diff" = in_use as i64 - in_use_before as i64,
        "current-db-size-in-use-bytes" = in_use,
        "current-db-size-in-use" = size(in_use),
        took = ?begun.elapsed(),
        "finished defragmenting directory"
    );
    Ok(())
}

/// Has a snapshot put in the place of the log, and waits until it is. What there is no room for is not waited for.
async fn replace_log(handle: &Handle<Reply>) -> Result<(), Status> {
    let before = handle.status();
    loop {
        let now = handle.status();
        if now.snapshot_settled >= before.applied {
            return Ok(());
        }
        if now.has_ended {
            return Err(Error::Stopped.into());
        }
        if now.snapshot_failures.count > before.snapshot_failures.count {
            let why = format!("rusd: defragment: {}; make room on the disk of --data-dir", now.snapshot_failures.last);
            return Err(Status::new(Code::ResourceExhausted, why));
        }
        handle.want_snapshot();
        sleep(DEFRAGMENT_ROUND).await;
    }
}

/// As Go prints the message: `memberID:1 alarm:NOSPACE `.
fn describe(alarm: &pb::AlarmMember) -> String {
    let kind = pb::AlarmType::try_from(alarm.alarm).map_or("UNKNOWN", |kind| kind.as_str_name());
    format!("memberID:{} alarm:{kind} ", alarm.member_id)
}
