//! Leases. From etcd's `server/etcdserver/{v3_server.go,api/v3rpc/lease.go}`. When they end, the leader alone knows.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use service_kit::grpc::{self, Requests, Responses, Status, Unary, decode};
use tokio::time::timeout;

use crate::api::Api;
use crate::api::kv::{QUICK_KEYS, fill, header_of};
use crate::proto::etcdserverpb as pb;
use crate::store::command::Kind;
use crate::store::{Access, Error, View, quota};

impl Api {
    pub(super) fn lease_grant(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let mut request: pb::LeaseGrantRequest = decode(message)?;
        self.node.check_quota(quota::cost_of_lease())?;
        while request.id == 0 {
            // Positive, as etcd's own.
            request.id = rand::random::<i64>() & i64::MAX;
        }
        request.ttl = request.ttl.max(self.node.lessor.ttl_min_seconds());
        let command = request.encode_to_vec();
        Ok(self.propose(call, Access::Authenticated, Kind::LeaseGrant, &command, |node, done| {
            let (mut response, term) = done.reply::<pb::LeaseGrantResponse>()?;
            fill(node, &mut response.header, term)?;
            Ok(response)
        }))
    }

    pub(super) fn lease_revoke(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: pb::LeaseRevokeRequest = decode(message.clone())?;
        let access = Access::ControlLease(request.id);
        Ok(self.propose(call, access, Kind::LeaseRevoke, &message, |node, done| {
            Ok(pb::LeaseRevokeResponse { header: header_of(node, done)? })
        }))
    }

    pub(super) fn lease_time_to_live(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: pb::LeaseTimeToLiveRequest = decode(message)?;
        let (node, call) = (Arc::clone(&self.node), call.clone());
        Ok(Unary::Later(Box::pin(async move {
            let (view, ticket) = node.view().await?;
            let may_see = |view: &View| {
                let access = if request.keys { Access::SeeLease(request.id) } else { Access::Authenticated };
                view.check(&node.caller(&call, view)?, access)
            };
            may_see(&view)?;
            let header = Some(node.header(view.revision(), ticket.term));
            let mut response = pb::LeaseTimeToLiveResponse { header, id: request.id, ttl: -1, ..Default::default() };
            let Some(lease) = view.leases.get(request.id) else { return Ok(grpc::encode(&response)) };
            response.granted_ttl = lease.ttl_seconds;
            let is_much = view.leases.count_keys(request.id) > QUICK_KEYS;
            // Who waits keeps nothing of it from being freed.
            drop(view);
            let left = timeout(node.patience(), node.group.remaining_seconds(request.id));
            response.ttl = left.await.map_err(|_| Error::Timeout)??;
            if !request.keys {
                return Ok(grpc::encode(&response));
            }
            // Last: from here to the client the answer counts.
            let with_keys = move |view: View| {
                let keys = view.leases.keys(request.id).map(|key| Bytes::copy_from_slice(key)).collect();
                let response = pb::LeaseTimeToLiveResponse { keys, ..response };
                grpc::check_answer(response.encoded_len())?;
                Ok::<_, Status>(grpc::encode(&response))
            };
            node.look_again(is_much, may_see, with_keys).await?
        })))
    }

    pub(super) fn lease_leases(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let _: pb::LeaseLeasesRequest = decode(message)?;
        self.look(false, call, |node, caller, view, term| {
            view.check(caller, Access::SeeLeases)?;
            let leases = view.leases.iter().map(|lease| pb::LeaseStatus { id: lease.id }).collect();
            let header = Some(node.header(view.revision(), term));
            Ok(grpc::encode(&pb::LeaseLeasesResponse { header, leases }))
        })
    }

    /// Renews leases in the leader's memory: no command, no disk.
    pub(super) fn lease_keep_alive(
        &self,
        call: grpc::Caller,
        mut requests: Requests,
        responses: Responses,
    ) -> impl Future<Output = Result<(), Status>> + 'static {
        let node = Arc::clone(&self.node);
        let mut lost = Box::pin(self.leader_is_lost(&call));
        async move {
            loop {
                let message = tokio::select! {
                    biased;
                    message = requests.next() => message?,
                    () = &mut lost => return Err(Error::NoLeader.into()),
                };
                let Some(message) = message else { return Ok(()) };
                let pb::LeaseKeepAliveRequest { id } = decode(message)?;
                let view = node.reader.view();
                view.check(&node.caller(&call, &view)?, Access::ControlLease(id))?;
                let header = Some(node.header(view.revision(), node.term()));
                let renewed = match node.handle.try_read(node.settings.strong_level(), 0) {
                    Some(_) => node.lessor.renew(id, &view),
                    None => Err(Error::NotLeader),
                };
                let renewed = match renewed {
                    Err(Error::NotLeader) => {
                        let renewed = timeout(node.patience(), node.group.renew_lease(id));
                        renewed.await.map_err(|_| Error::Timeout)?
                    }
                    renewed => renewed,
                };
                let ttl = match renewed {
                    // A lease that is gone has no time left; that is no error.
                    Err(Error::LeaseNotFound) => 0,
                    renewed => renewed?,
                };
                let response = grpc::encode(&pb::LeaseKeepAliveResponse { header, id, ttl });
                if responses.send(response).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
}
