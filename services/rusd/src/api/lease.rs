//! Leases. From etcd's `server/etcdserver/{v3_server.go,api/v3rpc/lease.go}`.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

use crate::api::kv::{fill, header_of};
use crate::api::{Api, decode};
use crate::grpc::{self, Requests, Responses, Status, Unary};
use crate::proto::etcdserverpb as pb;
use crate::store::command::Kind;
use crate::store::{Access, Error, Response, quota};

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
        Ok(self.propose(call, Access::Authenticated, Kind::LeaseGrant, &command, |node, done| match done.response {
            Response::LeaseGrant(mut response) => {
                fill(node, &mut response.header, done.term);
                response
            }
            _ => pb::LeaseGrantResponse::default(),
        }))
    }

    pub(super) fn lease_revoke(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: pb::LeaseRevokeRequest = decode(message.clone())?;
        let access = Access::ControlLease(request.id);
        Ok(self.propose(call, access, Kind::LeaseRevoke, &message, |node, done| pb::LeaseRevokeResponse {
            header: Some(header_of(node, &done)),
        }))
    }

    pub(super) fn lease_time_to_live(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: pb::LeaseTimeToLiveRequest = decode(message)?;
        self.look(false, call, move |node, caller, view, term| {
            view.check(caller, if request.keys { Access::SeeLease(request.id) } else { Access::Authenticated })?;
            let header = Some(node.header(view.revision(), term));
            let Some(lease) = view.leases.get(request.id) else {
                let response = pb::LeaseTimeToLiveResponse { header, id: request.id, ttl: -1, ..Default::default() };
                return Ok(grpc::encode(&response));
            };
            let keys = match request.keys {
                true => view.leases.keys(request.id).map(|key| Bytes::copy_from_slice(key)).collect(),
                false => Vec::new(),
            };
            let ttl = node.lessor.remaining_seconds(request.id, view)?;
            let granted_ttl = lease.ttl_seconds;
            Ok(grpc::encode(&pb::LeaseTimeToLiveResponse { header, id: request.id, ttl, granted_ttl, keys }))
        })
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

    /// Renews leases in this member's memory: no command, no disk.
    pub(super) fn lease_keep_alive(
        &self,
        call: grpc::Caller,
        mut requests: Requests,
        responses: Responses,
    ) -> impl Future<Output = Result<(), Status>> + 'static {
        let node = Arc::clone(&self.node);
        async move {
            while let Some(message) = requests.next().await? {
                let pb::LeaseKeepAliveRequest { id } = decode(message)?;
                let view = node.reader.view();
                view.check(&node.caller(&call, &view)?, Access::ControlLease(id))?;
                let header = Some(node.header(view.revision(), node.term()));
                let ttl = match node.lessor.renew(id, &view) {
                    // A lease that is gone has no time left; that is no error.
                    Err(Error::LeaseNotFound) => 0,
                    renewed => renewed?,
                };
                let response = grpc::encode(&pb::LeaseKeepAliveResponse { header, id, ttl });
                if responses.send(response).await.is_err() {
                    return Ok(());
                }
            }
            Ok(())
        }
    }
}
