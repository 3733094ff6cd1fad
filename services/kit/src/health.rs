//! `grpc.health.v1.Health`: whether a server serves, and each of its services. Source: grpc/grpc `doc/health-checking.md`.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;

use crate::grpc::{Code, Requests, Responses, Status, Stream, Unary, decode, encode};
use crate::probes::Readiness;
use crate::proto::grpc::health::v1 as pb;
use pb::health_check_response::ServingStatus;

/// The path of the unary method.
pub const CHECK: &str = "/grpc.health.v1.Health/Check";
/// The path of the streaming method.
pub const WATCH: &str = "/grpc.health.v1.Health/Watch";

/// How long a client may take for an answer on a stream that anybody may open.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Says it. Clones are the same.
#[derive(Clone)]
pub struct Health {
    is_known: Rc<dyn Fn(&str) -> bool>,
    readiness: Readiness,
}

impl Health {
    /// Of services that have these names, and of the server as a whole: it serves when nothing is waited for.
    pub fn new(is_known: impl Fn(&str) -> bool + 'static, readiness: Readiness) -> Self {
        Self { is_known: Rc::new(is_known), readiness }
    }

    fn status(&self, service: &str) -> ServingStatus {
        match (service.is_empty() || (self.is_known)(service), self.readiness.is_ready()) {
            (false, _) => ServingStatus::ServiceUnknown,
            (true, true) => ServingStatus::Serving,
            (true, false) => ServingStatus::NotServing,
        }
    }

    /// Answers [`CHECK`].
    pub fn check(&self, message: Bytes) -> Unary {
        let answer = decode(message).and_then(|request: pb::HealthCheckRequest| match self.status(&request.service) {
            ServingStatus::ServiceUnknown => Err(Status::new(Code::NotFound, "unknown service")),
            status => Ok(frame(status)),
        });
        Unary::Now(answer)
    }

    /// Answers [`WATCH`]: says it once, and then when it changes.
    pub fn watch(&self, requests: Requests, responses: Responses) -> Stream {
        let health = self.clone();
        Box::pin(async move {
            let request: pb::HealthCheckRequest = decode(requests.only().await?)?;
            let mut changes = health.readiness.watch();
            let mut said = None;
            loop {
                let status = health.status(&request.service);
                if said != Some(status) {
                    responses.send_in_time(PATIENCE, || frame(status)).await?;
                }
                said = Some(status);
                if changes.changed().await.is_err() {
                    // Nothing will change any more.
                    std::future::pending::<()>().await;
                }
            }
        })
    }
}

fn frame(status: ServingStatus) -> Bytes {
    encode(&pb::HealthCheckResponse { status: status as i32 })
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::grpc::content;

    fn request(service: &str) -> Bytes {
        content(encode(&pb::HealthCheckRequest { service: service.into() }))
    }

    #[test]
    fn a_check_says_what_the_server_waits_for_and_knows_its_services() {
        let readiness = Readiness::default();
        let health = Health::new(|service| service == "echo.Echo", readiness.clone());
        let said = |service| match health.check(request(service)) {
            Unary::Now(said) => said,
            Unary::Later(_) => panic!("nothing is waited for"),
        };
        assert_eq!(said(""), Ok(frame(ServingStatus::Serving)));
        readiness.wait_for("log", "it is read");
        assert_eq!(said("echo.Echo"), Ok(frame(ServingStatus::NotServing)));
        assert_eq!(said("echo.Else"), Err(Status::new(Code::NotFound, "unknown service")));
    }

    #[test]
    fn a_watch_hears_of_changes_alone() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let readiness = Readiness::default();
            let health = Health::new(|_| false, readiness.clone());
            let (to, requests) = mpsc::channel(1);
            let (responses, mut from) = mpsc::channel(8);
            to.send(request("")).await.unwrap();
            tokio::task::spawn_local(health.watch(Requests::of(requests), Responses::of(responses)));
            assert_eq!(from.recv().await, Some(frame(ServingStatus::Serving)));
            readiness.wait_for("log", "it is read");
            assert_eq!(from.recv().await, Some(frame(ServingStatus::NotServing)));
            readiness.wait_for("disk", "it is full");
            readiness.is_there("disk");
            readiness.is_there("log");
            assert_eq!(from.recv().await, Some(frame(ServingStatus::Serving)));
            assert!(from.try_recv().is_err());
        });
    }
}
