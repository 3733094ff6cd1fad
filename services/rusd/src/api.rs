//! etcd's v3 API: one file for each service.
//!
//! A call is decoded, checked as etcd checks it, and then either read from the published state or put into the log. Whose behalf
//! it is made on, and what that may do, is asked in one place: [`crate::store::View::check`].

mod auth;
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

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::request;
use prost::Message;

use crate::grpc::{self, Code, Peer, Requests, Responses, Service, Status, Stream, Unary};
use crate::http::{self as plain, Incoming};
use crate::node::{Done, Node};
use crate::store::command::Kind;
use crate::store::{Access, Caller};
use crate::watches::Watches;

pub use methods::Method;

/// The API on one worker thread. Clones are the same.
#[derive(Clone)]
pub struct Api {
    node: Arc<Node>,
    watches: Watches,
}

type Answer = Result<Bytes, Status>;

impl Api {
    /// The API of a member.
    pub fn new(node: Arc<Node>, watches: Watches) -> Self {
        Self { node, watches }
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
        answer: impl FnOnce(&Node, Done) -> M + 'static,
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
        answer: impl FnOnce(&Node, Done) -> M + 'static,
    ) -> Unary {
        let proposed = self.node.propose(caller, kind, request);
        let node = Arc::clone(&self.node);
        Unary::Later(Box::pin(async move { Ok(grpc::encode(&answer(&node, proposed.await?))) }))
    }

    /// Checks that a client may do something that this member alone does.
    fn permit(&self, call: &grpc::Caller, access: Access<'_>) -> Result<Caller, Status> {
        let view = self.node.reader.view();
        let caller = self.node.caller(call, &view)?;
        view.check(&caller, access)?;
        Ok(caller)
    }
}

fn refuse(error: impl Into<Status>) -> Unary {
    Unary::Now(Err(error.into()))
}

fn decode<M: Message + Default>(message: Bytes) -> Result<M, Status> {
    M::decode(message)
        .map_err(|error| Status::new(Code::Internal, format!("grpc: error unmarshalling request: {error}")))
}

impl Service for Api {
    type Method = Method;

    fn method(&self, path: &str) -> Option<(Method, bool)> {
        let method = Method::of(path)?;
        Some((method, method.is_stream()))
    }

    fn unary(&self, method: Method, call: grpc::Caller, message: Bytes) -> Unary {
        self.dispatch(method, &call, message).unwrap_or_else(refuse)
    }

    fn stream(&self, method: Method, call: grpc::Caller, requests: Requests, responses: Responses) -> Stream {
        self.dispatch_stream(method, call, requests, responses)
    }

    fn http(&self, head: request::Parts, body: Incoming, peer: Rc<Peer>) -> Option<grpc::HttpAnswer> {
        let api = self.clone();
        Some(Box::pin(async move { plain::answer(&api, &head, body, peer).await }))
    }
}
