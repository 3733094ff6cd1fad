//! `grpc.health.v1`: whether this member serves, as [`crate::node::Node::watch_readiness`] finds.

use bytes::Bytes;
use service_kit::grpc::{self, Requests, Responses, Status, Stream, Unary};
use service_kit::health::Health;
use service_kit::probes::Readiness;

use crate::api::Api;

/// Of etcd's services.
pub(super) fn health(readiness: Readiness) -> Health {
    Health::new(|service| service.starts_with("etcdserverpb."), readiness)
}

impl Api {
    pub(super) fn health_check(&self, _: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        Ok(self.health.check(message))
    }

    pub(super) fn health_watch(&self, _: grpc::Caller, requests: Requests, responses: Responses) -> Stream {
        self.health.watch(requests, responses)
    }
}
