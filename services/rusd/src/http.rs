//! What is served to people, probes and monitoring: version, health, metrics; and the way to the JSON gateway.
//! From etcd's `server/etcdserver/api/etcdhttp/{version,health}.go` and `server/embed/serve.go`.

mod door;

use std::rc::Rc;

use http::{Method, Response, StatusCode, request};
use replog::Role;
use service_kit::grpc::Peer;
use service_kit::http::{self as plain, Body, Incoming, not_found, only_get, text, values};
use service_kit::metrics::Format;
use service_kit::probes::{self, Probe};

use crate::api::Api;
use crate::gateway;
use crate::measured::Measured;
use crate::node::{ETCD_VERSION, Node};
use crate::proto::etcdserverpb::AlarmType;

type Reply = Response<Body>;

/// Answers a request.
pub async fn answer(api: &Api, head: &request::Parts, body: Incoming, peer: Rc<Peer>) -> Reply {
    let refusal = door::refusal(api.node(), head, &peer);
    let is_known_host = refusal.as_ref().is_none_or(|refusal| refusal.status() != StatusCode::MISDIRECTED_REQUEST);
    let mut answer = match refusal {
        Some(refusal) => refusal,
        None => let_in(api, head, body, &peer).await,
    };
    if is_known_host {
        door::allow(api.node(), &head.headers, &peer, answer.headers_mut());
    }
    answer
}

async fn let_in(api: &Api, head: &request::Parts, body: Incoming, peer: &Peer) -> Reply {
    let node = api.node();
    let path = head.uri.path();
    let query = head.uri.query().unwrap_or_default();
    if node.settings.gateway && gateway::is_mine(path) {
        let is_named = peer.common_name.as_ref().is_some_and(|name| !name.is_empty());
        let names_count = node.settings.client_cert_auth;
        if is_named && names_count && node.reader.view().auth.is_enabled() {
            return text(StatusCode::BAD_REQUEST, NAME_IGNORED.into());
        }
        // In base64, a request is longer by a third.
        let body_bytes_max = 2 * (node.settings.request_bytes_max + (512 << 10));
        return gateway::answer(api, head, body, body_bytes_max).await;
    }
    let asked = Probe::of(path);
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
        (None, "/metrics") => Format::of(&head.headers).answer(api.metrics()),
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
