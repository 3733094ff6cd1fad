//! `grpc.health.v1`: whether this member serves.

use bytes::Bytes;
use service_kit::grpc::{self, Code, Requests, Responses, Status, Unary};

use crate::api::{Api, decode};
use crate::proto::grpc::health::v1 as pb;
use pb::health_check_response::ServingStatus;

impl Api {
    pub(super) fn health_check(&self, _: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: pb::HealthCheckRequest = decode(message)?;
        if !is_known(&request.service) {
            return Err(Status::new(Code::NotFound, "unknown service"));
        }
        Ok(Unary::Now(Ok(serving())))
    }

    /// Says it once, and then nothing while nothing changes.
    #[allow(clippy::manual_async_fn, reason = "the future must not borrow the service")]
    pub(super) fn health_watch(
        &self,
        _: grpc::Caller,
        mut requests: Requests,
        responses: Responses,
    ) -> impl Future<Output = Result<(), Status>> + 'static {
        async move {
            let Some(message) = requests.next().await? else { return Ok(()) };
            let request: pb::HealthCheckRequest = decode(message)?;
            let first = match is_known(&request.service) {
                true => serving(),
                false => status(ServingStatus::ServiceUnknown),
            };
            if responses.send(first).await.is_ok() {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    }
}

fn is_known(service: &str) -> bool {
    service.is_empty() || service.starts_with("etcdserverpb.")
}

fn serving() -> Bytes {
    status(ServingStatus::Serving)
}

fn status(status: ServingStatus) -> Bytes {
    grpc::encode(&pb::HealthCheckResponse { status: status as i32 })
}
