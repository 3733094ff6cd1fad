//! What is served to people, probes and monitoring: version, health, metrics; and the way to the JSON gateway.
//! From etcd's `server/etcdserver/api/etcdhttp/{version,health}.go` and `server/embed/serve.go`.

use std::cell::RefCell;
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::{HeaderValue, Method, Response, StatusCode, header, request};
use http_body_util::BodyExt;
use hyper::body::Frame;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use crate::api::Api;
use crate::gateway;
use crate::grpc::Peer;
use crate::metrics;
use crate::node::{ETCD_VERSION, Node};
use crate::proto::etcdserverpb::AlarmType;

type Reply = Response<Body>;

/// The client has gone in the middle of a request.
#[derive(Clone, Copy, Debug)]
pub struct CutOff;

/// The body of a request, piece by piece.
pub type Incoming = Pin<Box<dyn Stream<Item = Result<Bytes, CutOff>>>>;

/// The body of an answer.
pub enum Body {
    /// All of it; taken when it is sent.
    Full(Option<Bytes>),
    /// Piece by piece.
    Stream(Pin<Box<dyn Stream<Item = Bytes>>>),
}

impl Body {
    /// All of it.
    pub fn full(text: String) -> Self {
        Self::Full(Some(text.into()))
    }

    /// The next piece.
    pub fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match self {
            Self::Full(bytes) => Poll::Ready(bytes.take()),
            Self::Stream(stream) => stream.poll_next_unpin(context),
        }
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.poll_piece(context).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        match self {
            Self::Full(bytes) => {
                hyper::body::SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Stream(_) => hyper::body::SizeHint::default(),
        }
    }
}

/// Speaks HTTP/1.1 until the client or `stop` ends it.
pub async fn serve<T>(io: T, api: Rc<Api>, peer: Rc<Peer>, mut stop: watch::Receiver<bool>)
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let (api, peer) = (Rc::clone(&api), Rc::clone(&peer));
        async move {
            let (head, body) = request.into_parts();
            let body = Rc::new(RefCell::new(body.into_data_stream().fuse()));
            let shared = Rc::clone(&body);
            let pieces = futures::stream::poll_fn(move |context| shared.borrow_mut().poll_next_unpin(context));
            let reply = answer(&api, &head, Box::pin(pieces.map(|piece| piece.map_err(|_| CutOff))), peer).await;
            if matches!(reply.body(), Body::Full(_)) {
                read_rest(&body).await;
            }
            Ok::<_, Infallible>(reply)
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(std::time::Duration::from_secs(30))
        .serve_connection(TokioIo::new(io), service);
    let mut connection = std::pin::pin!(connection);
    // Errors are the client's.
    tokio::select! {
        _ = connection.as_mut() => {}
        _ = stop.wait_for(|stop| *stop) => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

/// Of what nobody wants of a request, so much is read before it is answered; as Go's server does.
const REST_BYTES_MAX: usize = 256 << 10;

/// Reads what is left of a request, within reason. A connection that is closed with something unread is reset, and the reset takes the
/// answer along before the client has seen it.
async fn read_rest<E>(body: &RefCell<impl Stream<Item = Result<Bytes, E>> + Unpin>) {
    let mut read = 0;
    while read < REST_BYTES_MAX {
        match std::future::poll_fn(|context| body.borrow_mut().poll_next_unpin(context)).await {
            Some(Ok(piece)) => read += piece.len(),
            Some(Err(_)) | None => return,
        }
    }
}

/// Answers a request.
pub async fn answer(api: &Api, head: &request::Parts, body: Incoming, peer: Rc<Peer>) -> Reply {
    let node = api.node();
    let path = head.uri.path();
    let query = head.uri.query().unwrap_or_default();
    if node.settings.gateway && gateway::is_mine(path) {
        let is_named = peer.common_name.as_ref().is_some_and(|name| !name.is_empty());
        let names_count = node.settings.tls.as_ref().is_some_and(|tls| tls.client_cert_auth);
        if is_named && names_count && node.reader.view().auth.is_enabled() {
            return text(StatusCode::BAD_REQUEST, NAME_IGNORED.into());
        }
        // In base64, a request is longer by a third.
        let body_bytes_max = 2 * (node.settings.request_bytes_max + (512 << 10));
        return gateway::answer(api, head, body, body_bytes_max).await;
    }
    let is_known = matches!(path, "/version" | "/health" | "/metrics")
        || ["/livez", "/readyz"]
            .iter()
            .any(|root| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
    if !is_known {
        return text(StatusCode::NOT_FOUND, "404 page not found\n".into());
    }
    if head.method != Method::GET {
        let mut reply = text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n".into());
        reply.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET"));
        return reply;
    }
    match path {
        "/version" => version(node),
        "/metrics" => text(StatusCode::OK, metrics::text(node)),
        "/health" => health(node, query).await,
        _ => probe(node, path, query).await,
    }
}

/// As etcd says it.
const NAME_IGNORED: &str =
    "CommonName of client sending a request against gateway will be ignored and not used as expected\n";

fn text(status: StatusCode, body: String) -> Reply {
    let mut reply = Response::new(Body::full(body));
    *reply.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    reply.headers_mut().insert(header::CONTENT_TYPE, plain);
    reply
}

fn version(node: &Node) -> Reply {
    let view = node.reader.view();
    let cluster = if view.cluster.version.is_empty() { "not_decided" } else { view.cluster.version.as_str() };
    let body = serde_json::json!({ "etcdserver": ETCD_VERSION, "etcdcluster": cluster, "storage": cluster });
    let mut reply = text(StatusCode::OK, body.to_string());
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

/// The values of a parameter of a query.
fn values<'a>(query: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .filter(move |(key, _)| *key == name)
        .map(|(_, value)| value)
}

async fn health(node: &Node, query: &str) -> Reply {
    let is_serializable = values(query, "serializable").any(|value| value == "true");
    let alarms = node.reader.view().cluster.alarms(AlarmType::None as i32);
    let names = alarms.iter().filter_map(|alarm| AlarmType::try_from(alarm.alarm).ok()).map(|kind| kind.as_str_name());
    let alarm = names.into_iter().find(|name| !values(query, "exclude").any(|excluded| excluded == *name));
    let reason = if let Some(name) = alarm {
        format!("ALARM {name}")
    } else if !is_serializable && node.handle.leader().0.is_none() {
        "RAFT NO LEADER".to_owned()
    } else if let Err(error) = read(node, is_serializable).await {
        format!("RANGE ERROR:{error}")
    } else {
        String::new()
    };
    let is_healthy = reason.is_empty();
    let body = serde_json::json!({ "health": is_healthy.to_string(), "reason": reason }).to_string();
    match is_healthy {
        true => text(StatusCode::OK, body),
        false => text(StatusCode::SERVICE_UNAVAILABLE, body + "\n"),
    }
}

async fn read(node: &Node, is_serializable: bool) -> Result<(), String> {
    if is_serializable {
        return Ok(());
    }
    node.view().await.map(|_| ()).map_err(|status| status.message.into_owned())
}

/// `/livez` and `/readyz`, and each of their checks by name.
async fn probe(node: &Node, path: &str, query: &str) -> Reply {
    let (root, name) = path.trim_start_matches('/').split_once('/').unwrap_or((path.trim_start_matches('/'), ""));
    let checks: &[&str] = match root {
        "livez" => &["serializable_read"],
        _ => &["data_corruption", "serializable_read", "linearizable_read", "non_learner"],
    };
    if !name.is_empty() && !checks.contains(&name) {
        return text(StatusCode::NOT_FOUND, "404 page not found\n".into());
    }
    let mut failed = Vec::new();
    let mut lines = String::new();
    let is_wanted = |check: &&&str| {
        if name.is_empty() { !values(query, "exclude").any(|excluded| excluded == **check) } else { **check == name }
    };
    for check in checks.iter().filter(is_wanted) {
        match run(node, check).await {
            Ok(()) => lines.push_str(&format!("[+]{check} ok\n")),
            Err(error) => {
                lines.push_str(&format!("[-]{check} failed: {error}\n"));
                failed.push(*check);
            }
        }
    }
    let is_verbose = query.split('&').any(|part| part == "verbose" || part.starts_with("verbose="));
    match (failed.is_empty(), is_verbose) {
        (true, false) => text(StatusCode::OK, "ok\n".into()),
        (true, true) => text(StatusCode::OK, lines + "ok\n"),
        (false, _) => text(StatusCode::SERVICE_UNAVAILABLE, lines),
    }
}

async fn run(node: &Node, check: &str) -> Result<(), String> {
    match check {
        "data_corruption" if node.reader.view().cluster.has_alarm(AlarmType::Corrupt) => {
            Err("alarm activated: CORRUPT".into())
        }
        "linearizable_read" => read(node, false).await,
        "non_learner" if node.group.is_learner() => Err("not supported for learner".into()),
        _ => Ok(()),
    }
}
