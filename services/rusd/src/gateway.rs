//! etcd's API as JSON over HTTP: `POST /v3/...`. From grpc-gateway v2 as etcd's `server/embed/serve.go` sets it up.
//!
//! A request becomes the message that a gRPC client would have sent, and is answered by the same code. What streams is answered with
//! a line for each message, `{"result":...}`. Errors are `{"code":...,"message":...}` with the HTTP status that belongs to the code.

pub mod from_wire;
mod messages;
mod paths;
pub mod schema;
pub mod to_wire;

#[cfg(test)]
mod tests;

use std::rc::Rc;

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method as Verb, Response, StatusCode, header, request};
use serde_json::{Value, json};
use service_kit::grpc::{self, Code, Peer, Requests, Responses, Service, Status, Unary};
use service_kit::http::{Body, Incoming};
use tokio::sync::mpsc;

use crate::api::{Api, Method};
use messages::Messages;
use schema::Call;

/// Messages of a stream that wait for the other side.
const WAITING_MAX: usize = 16;

/// Whether this path is the gateway's.
pub fn is_mine(path: &str) -> bool {
    path.starts_with("/v3/") || path.starts_with("/v3beta/")
}

/// Answers a request from this [origin](Peer::origin); of its body no more than `body_bytes_max` is kept at a time.
pub async fn answer(
    api: &Api,
    head: &request::Parts,
    (body, origin): (Incoming, &str),
    body_bytes_max: usize,
) -> Response<Body> {
    let Some(path) = paths::method(head.uri.path()) else {
        return error(&Status::new(Code::NotFound, "Not Found"));
    };
    if head.method != Verb::POST {
        return error(&Status::new(Code::Unimplemented, "Method Not Allowed"));
    }
    let (Some(call), Some((method, is_stream))) = (schema::call(&path), api.method(&path)) else {
        let (service, method) = path.trim_start_matches('/').rsplit_once('/').unwrap_or_default();
        let message = format!("unknown method {method} for service {service}");
        return error(&Status::new(Code::Unimplemented, message));
    };
    // Whoever terminates TLS for others would lend them its name.
    let peer = Peer::default();
    let caller = grpc::Caller { headers: metadata(&head.headers), peer: Rc::new(peer) };
    let mut messages = Messages::new(body, body_bytes_max, call, (api.gateway_memory(), origin));
    if is_stream {
        return stream(api, method, caller, messages).await;
    }
    let request = match messages.next().await {
        Ok(request) => request.unwrap_or_default(),
        Err(wrong) => return error(&wrong),
    };
    let answer = match api.unary(method, caller, request) {
        Unary::Now(answer) => answer,
        Unary::Later(answer) => answer.await,
    };
    match answer.and_then(|frame| text(call, frame)) {
        Ok(text) => json_response(StatusCode::OK, Body::full(text)),
        Err(status) => error(&status),
    }
}

/// Headers that a gRPC client would have sent as metadata.
fn metadata(headers: &HeaderMap) -> HeaderMap {
    let mut metadata = HeaderMap::new();
    for (name, value) in headers {
        let name = match name.as_str().strip_prefix("grpc-metadata-") {
            Some(name) => HeaderName::from_bytes(name.as_bytes()).ok(),
            None => Some(name.clone()).filter(|name| name == header::AUTHORIZATION),
        };
        if let Some(name) = name {
            metadata.append(name, value.clone());
        }
    }
    metadata
}

/// An answer as JSON.
fn text(call: &Call, frame: Bytes) -> Result<String, Status> {
    let mut text = String::new();
    from_wire::decode(call.response, &grpc::content(frame), &mut text)
        .map_err(|error| Status::new(Code::Internal, error.to_string()))?;
    Ok(text)
}

/// A streaming call under way.
struct Answers {
    call: &'static Call,
    running: Option<grpc::Stream>,
    /// Reads the request's messages, and gives them to the call.
    feeding: Option<grpc::Stream>,
    said: mpsc::Receiver<Bytes>,
    ended: Option<Status>,
}

async fn stream(api: &Api, method: Method, caller: grpc::Caller, mut messages: Messages) -> Response<Body> {
    let (to_call, requests) = mpsc::channel(WAITING_MAX);
    let (responses, said) = mpsc::channel(WAITING_MAX);
    let call = messages.call;
    let feeding = async move {
        while let Some(message) = messages.next().await? {
            if to_call.send(message).await.is_err() {
                break;
            }
        }
        Ok(())
    };
    let running = api.stream(method, caller, Requests::of(requests), Responses::of(responses));
    let mut answers = Answers { call, running: Some(running), feeding: Some(Box::pin(feeding)), said, ended: None };
    // The status follows from what comes first.
    match answers.next().await {
        Some(Err(status)) => {
            let mut response = error(&status);
            *response.body_mut() = Body::full(chunk_of(Err(status)));
            response
        }
        first => {
            let rest = futures::stream::unfold(answers, |mut answers| async {
                answers.next().await.map(|answer| (Bytes::from(chunk_of(answer)), answers))
            });
            let first = futures::stream::iter(first.map(|answer| Bytes::from(chunk_of(answer))));
            json_response(StatusCode::OK, Body::Stream(Box::pin(first.chain(rest))))
        }
    }
}

impl Answers {
    /// What is said next; after an error, and after `None`, nothing is.
    async fn next(&mut self) -> Option<Result<String, Status>> {
        loop {
            let (running, feeding) = (&mut self.running, &mut self.feeding);
            tokio::select! {
                biased;
                frame = self.said.recv() => return match frame {
                    Some(frame) => Some(text(self.call, frame)),
                    None => {
                        self.running = None;
                        self.ended.take().map(Err)
                    }
                },
                result = async { running.as_mut()?.await.err() }, if running.is_some() => {
                    self.ended = self.ended.take().or(result);
                    // What it said before is still to be told.
                    self.running = None;
                }
                result = async { feeding.as_mut()?.await.err() }, if feeding.is_some() => {
                    self.feeding = None;
                    if let Some(wrong) = result {
                        self.running = None;
                        self.ended = Some(wrong);
                    }
                }
            }
        }
    }
}

fn chunk_of(answer: Result<String, Status>) -> String {
    match answer {
        Ok(text) => format!("{{\"result\":{text}}}\n"),
        Err(status) => format!("{{\"error\":{}}}\n", describe(&status)),
    }
}

fn describe(status: &Status) -> Value {
    json!({ "code": status.code as u8, "message": status.message })
}

fn error(status: &Status) -> Response<Body> {
    let mut response = json_response(status_of(status.code), Body::full(describe(status).to_string()));
    if status.code == Code::Unauthenticated
        && let Ok(value) = HeaderValue::from_str(&status.message)
    {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, value);
    }
    response
}

fn json_response(status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// From grpc-gateway's `runtime/errors.go`.
fn status_of(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        // 499, the client has closed the request: it is not in the registry.
        Code::Canceled => StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST),
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
