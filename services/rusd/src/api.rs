//! etcd's v3 API: one file for each service.
//!
//! A call is decoded, checked as etcd checks it, and then either read from the published state or put into the log. Whose behalf
//! it is made on, and what that may do, is asked in one place: [`crate::store::View::check`].

mod auth;
pub mod calls;
mod cluster;
mod downgrade;
mod election;
mod health;
mod kv;
mod lease;
mod lock;
mod maintenance;
mod methods;
mod session;
mod watch;

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use service_kit::grpc::{self, Memory, Requests, Responses, Service, Status, Stream, Unary};
use service_kit::health::Health;

use crate::node::{Done, Node};
use crate::store::command::Kind;
use crate::store::{Access, Caller, Error};
use crate::watches::Watches;
use calls::{Calls, ThreadCalls};

pub use methods::Method;

/// The API on one worker thread. Clones are the same.
#[derive(Clone)]
pub struct Api {
    node: Arc<Node>,
    watches: Watches,
    health: Health,
    gateway_memory: Memory,
    calls: Arc<ThreadCalls>,
}

type Answer = Result<Bytes, Status>;

impl Api {
    /// The API of a member, whose calls are counted with those of all threads.
    pub fn new(node: Arc<Node>, watches: Watches, gateway_memory: Memory, calls: &Calls) -> Self {
        let settings = &node.settings;
        let calls = calls.of_thread(settings.has_extensive_metrics, settings.warning_unary_duration);
        Self { watches, health: health::health(node.readiness.clone()), gateway_memory, calls, node }
    }

    /// What bodies as JSON take theirs from.
    pub fn gateway_memory(&self) -> &Memory {
        &self.gateway_memory
    }

    /// The member.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Puts a request into the log as the client sent it, if the client may ask for that; `answer` makes a message of the outcome.
    fn propose<M: Message>(
        &self,
        call: &grpc::Caller,
        access: Access<'_>,
        kind: Kind,
        request: &[u8],
        answer: impl FnOnce(&Node, Done) -> Result<M, Status> + 'static,
    ) -> Unary {
        let view = self.node.reader.view();
        let caller = self.node.caller(call, &view);
        // The state machine checks again; asking here keeps the log free of what is refused.
        match caller.and_then(|caller| view.check(&caller, access).map(|()| caller)) {
            Ok(caller) => self.propose_as(&caller, kind, request, answer),
            Err(error) => refuse(error),
        }
    }

    fn propose_as<M: Message>(
        &self,
        caller: &Caller,
        kind: Kind,
        request: &[u8],
        answer: impl FnOnce(&Node, Done) -> Result<M, Status> + 'static,
    ) -> Unary {
        let proposed = self.node.propose(caller, kind, request);
        let node = Arc::clone(&self.node);
        Unary::Later(Box::pin(async move { Ok(grpc::encode(&answer(&node, proposed.await?)?)) }))
    }

    /// Comes when there has been no leader for long, if the client wants to know that: its stream ends then.
    fn leader_is_lost(&self, call: &grpc::Caller) -> impl Future<Output = ()> + use<> {
        let lost = wants_leader(call).then(|| self.node.group.leader_is_lost());
        async move {
            match lost {
                Some(lost) => lost.await,
                None => std::future::pending().await,
            }
        }
    }

    /// What this member does not do at the moment. From etcd's `server/etcdserver/api/v3rpc/interceptor.go`.
    fn admit(&self, call: &grpc::Caller, is_for_learners: impl FnOnce() -> bool) -> Result<(), Error> {
        if self.node.group.is_learner() && !is_for_learners() {
            return Err(Error::NotSupportedForLearner);
        }
        if wants_leader(call) && self.node.handle.leader().0.is_none() {
            return Err(Error::NoLeader);
        }
        Ok(())
    }

    /// Checks that a client may do something that this member alone does.
    fn permit(&self, call: &grpc::Caller, access: Access<'_>) -> Result<Caller, Status> {
        let view = self.node.reader.view();
        let caller = self.node.caller(call, &view)?;
        view.check(&caller, access)?;
        Ok(caller)
    }
}

/// Whether the client wants to know that there is no leader, instead of waiting for one.
fn wants_leader(call: &grpc::Caller) -> bool {
    call.headers.get("hasleader").is_some_and(|value| value == "true")
}

fn refuse(error: impl Into<Status>) -> Unary {
    Unary::Now(Err(error.into()))
}

impl Service for Api {
    type Method = Method;

    fn method(&self, path: &str) -> Option<(Method, bool)> {
        let method = Method::of(path)?;
        Some((method, method.is_stream()))
    }

    fn unary(&self, method: Method, call: grpc::Caller, message: Bytes) -> Unary {
        let counted = self.calls.begin(method);
        self.calls.received(method, message.len());
        let admitted = self.admit(&call, || method.is_for_learners(&message));
        let request = message.clone();
        match admitted.map_err(Status::from).and_then(|()| self.dispatch(method, &call, message)).unwrap_or_else(refuse)
        {
            Unary::Now(answer) => {
                counted.answered(&answer, &request, &call.peer.address);
                Unary::Now(answer)
            }
            Unary::Later(answer) => {
                let counted = counted.waiting(grpc::timeout::of(&call.headers));
                Unary::Later(Box::pin(async move {
                    let answer = answer.await;
                    counted.answered(&answer, &request, &call.peer.address);
                    answer
                }))
            }
        }
    }

    fn stream(&self, method: Method, call: grpc::Caller, requests: Requests, responses: Responses) -> Stream {
        let counted = self.calls.begin(method);
        if let Err(error) = self.admit(&call, || method.is_for_learners(&[])) {
            let refused = Err(error.into());
            counted.ended(&refused);
            return Box::pin(async move { refused });
        }
        let (received, sent) = (Arc::clone(&self.calls), Arc::clone(&self.calls));
        let requests = requests.counted(move |bytes| received.received(method, bytes));
        let responses = responses.counted(move |bytes| sent.sent(method, bytes));
        let counted = counted.waiting(grpc::timeout::of(&call.headers));
        let running = self.dispatch_stream(method, call, requests, responses);
        Box::pin(async move {
            let result = running.await;
            counted.ended(&result);
            result
        })
    }

    fn stopped(&self) -> Status {
        Error::Stopped.into()
    }
}
