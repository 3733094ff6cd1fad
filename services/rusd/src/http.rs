//! What is served to people, probes and monitoring: version, health, metrics; and the way to the JSON gateway.
//! From etcd's `server/etcdserver/api/etcdhttp/{version,health}.go` and `server/embed/serve.go`.

mod door;

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, StatusCode, request};
use prometheus_client::registry::Registry;
use replog::Role;
use service_kit::grpc::{self, Peer, Requests, Responses, Service, Status, Stream, Unary};
use service_kit::http::{self as plain, Body, Incoming, not_found, only_get, text, values};
use service_kit::metrics::Format;
use service_kit::probes::{self, Probe};

use crate::api::{self, Api};
use crate::gateway;
use crate::measured::Measured;
use crate::node::{ETCD_VERSION, Node};
use crate::proto::etcdserverpb::AlarmType;

type Reply = Response<Body>;

/// All that is served on one worker thread: the API, and what is no gRPC. Clones are the same.
#[derive(Clone)]
pub struct Served {
    api: Api,
    metrics: Arc<Registry>,
}

impl Served {
    /// The API, and what is told to monitoring.
    pub fn new(api: Api, metrics: Registry) -> Self {
        Self { api, metrics: Arc::new(metrics) }
    }
}

impl Service for Served {
    type Method = api::Method;

    fn method(&self, path: &str) -> Option<(api::Method, bool)> {
        self.api.method(path)
    }

    fn unary(&self, method: api::Method, call: grpc::Caller, message: Bytes) -> Unary {
        self.api.unary(method, call, message)
    }

    fn stream(&self, method: api::Method, call: grpc::Caller, requests: Requests, responses: Responses) -> Stream {
        self.api.stream(method, call, requests, responses)
    }

    fn http(&self, head: request::Parts, body: Incoming, peer: Rc<Peer>) -> Option<grpc::HttpAnswer> {
        let served = self.clone();
        Some(Box::pin(async move { answer(&served, &head, body, peer).await }))
    }

    fn stopped(&self) -> Status {
        self.api.stopped()
    }
}

async fn answer(served: &Served, head: &request::Parts, body: Incoming, peer: Rc<Peer>) -> Reply {
    let node = served.api.node();
    let refusal = door::refusal(node, head, &peer);
    let is_known_host = refusal.as_ref().is_none_or(|refusal| refusal.status() != StatusCode::MISDIRECTED_REQUEST);
    let mut answer = match refusal {
        Some(refusal) => refusal,
        None => let_in(served, head, body, &peer).await,
    };
    if is_known_host {
        door::allow(node, &head.headers, &peer, answer.headers_mut());
    }
    answer
}

async fn let_in(Served { api, metrics }: &Served, head: &request::Parts, body: Incoming, peer: &Peer) -> Reply {
    let node = api.node();
    let path = head.uri.path();
    let query = head.uri.query().unwrap_or_default();
    let asked = Probe::of(path);
    // Where whoever may scrape comes without a certificate there is nothing else, as with etcd.
    if !door::is_for_clients(node, peer) && asked.is_none() && !matches!(path, "/health" | "/metrics") {
        return not_found();
    }
    if node.settings.gateway && gateway::is_mine(path) {
        let is_named = peer.common_name.as_ref().is_some_and(|name| !name.is_empty());
        let names_count = node.settings.client_cert_auth;
        if is_named && names_count && node.reader.view().auth.is_enabled() {
            return text(StatusCode::BAD_REQUEST, NAME_IGNORED.into());
        }
        // In base64, a request is longer by a third.
        let body_bytes_max = 2 * (node.settings.request_bytes_max + (512 << 10));
        return gateway::answer(api, head, (body, peer.origin().as_str()), body_bytes_max).await;
    }
    if asked.is_none() && !matches!(path, "/version" | "/health" | "/metrics" | "/debug/vars") {
        return not_found();
    }
    if head.method != Method::GET {
        return only_get();
    }
    match (asked, path) {
        (Some((what, name)), _) => probe(node, what, name, query).await,
        (None, "/version") => version(node),
        (None, "/debug/vars") => variables(node),
        (None, "/metrics") => Format::of(&head.headers).answer(metrics),
        (None, _) => health(node, query).await,
    }
}

/// As etcd says it.
const NAME_IGNORED: &str =
    "CommonName of client sending a request against gateway will be ignored and not used as expected\n";

fn version(node: &Node) -> Reply {
    let view = node.reader.view();
    let cluster = if view.cluster.version.is_empty() { "not_decided" } else { view.cluster.version.as_str() };
    let body = serde_json::json!({ "etcdserver": ETCD_VERSION, "etcdcluster": cluster, "storage": cluster });
    plain::answer(StatusCode::OK, "application/json", body.to_string())
}

/// What etcd publishes with Go's `expvar`, but for the memory of Go's runtime.
fn variables(node: &Node) -> Reply {
    let status = node.handle.status();
    let hex = |id: u64| format!("{id:x}");
    let progress = |(id, matched): &(u64, u64)| {
        (hex(*id), serde_json::json!({ "match": matched, "next": matched + 1, "state": "StateReplicate" }))
    };
    let state = match status.role {
        Role::Leader => "StateLeader",
        Role::Candidate => "StateCandidate",
        Role::Follower => "StateFollower",
    };
    let body = serde_json::json!({
        "cmdline": std::env::args_os().map(|text| text.to_string_lossy().into_owned()).collect::<Vec<_>>(),
        "file_descriptor_limit": service_kit::open_files::limit().unwrap_or_default(),
        "raft.status": {
            "id": hex(node.member_id),
            "term": status.term,
            "commit": status.commit,
            "lead": hex(status.leader.unwrap_or_default()),
            "raftState": state,
            "applied": status.applied,
            "progress": status.progress.iter().map(progress).collect::<serde_json::Map<_, _>>(),
        },
    });
    plain::answer(StatusCode::OK, "application/json; charset=utf-8", body.to_string())
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
    Measured::add(if is_healthy { &node.measured.health_successes } else { &node.measured.health_failures });
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
async fn probe(node: &Node, probe: Probe, name: &str, query: &str) -> Reply {
    let checks: &[&str] = match probe {
        Probe::Live => &["serializable_read"],
        Probe::Ready => &["data_corruption", "serializable_read", "linearizable_read", "non_learner"],
    };
    probes::answer(checks, name, query, async |check| run(node, check).await).await
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
