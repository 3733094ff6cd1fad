//! Who may ask as HTTP on the ports for clients: requests for a host that is meant, and pages of origins that are allowed. From etcd's
//! `accessController` in `server/embed/serve.go`.

use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header, request, uri};
use service_kit::grpc::Peer;
use service_kit::http::{Body, text};

use crate::node::Node;

/// What is answered without looking further, if anything.
pub(super) fn refusal(node: &Node, head: &request::Parts, peer: &Peer) -> Option<Response<Body>> {
    if !is_for_clients(node, peer) {
        return None;
    }
    let host = host(head);
    if !peer.is_tls && !node.settings.host_whitelist.takes(host) {
        tracing::warn!(host, "rejecting HTTP request to prevent DNS rebinding attacks");
        return Some(text(StatusCode::MISDIRECTED_REQUEST, unknown_host(host)));
    }
    (head.method == Method::OPTIONS).then(|| Response::new(Body::full(String::new())))
}

/// Says which pages may read the answer.
pub(super) fn allow(node: &Node, asked: &HeaderMap, peer: &Peer, answer: &mut HeaderMap) {
    if !is_for_clients(node, peer) {
        return;
    }
    let cors = &node.settings.cors;
    let origin = match cors.takes_all() {
        true => Some(HeaderValue::from_static("*")),
        false => asked.get(header::ORIGIN).filter(|origin| origin.to_str().is_ok_and(|it| cors.takes(it))).cloned(),
    };
    if let Some(origin) = origin {
        let methods = HeaderValue::from_static("POST, GET, OPTIONS, PUT, DELETE");
        answer.append(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
        answer.append(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        let headers = HeaderValue::from_static("accept, content-type, authorization");
        answer.append(header::ACCESS_CONTROL_ALLOW_HEADERS, headers);
    }
}

/// Not for monitoring, which has ports of its own.
pub(super) fn is_for_clients(node: &Node, peer: &Peer) -> bool {
    peer.listener < node.settings.client_sockets()
}

/// The host that the request is for, without its port.
fn host(head: &request::Parts) -> &str {
    let named = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = named.or_else(|| head.uri.authority().map(uri::Authority::as_str)).unwrap_or_default();
    let without_port = match host.strip_prefix('[') {
        Some(address) => address.split_once(']').map(|(address, _)| address),
        None => host.rsplit_once(':').map(|(host, _)| host).filter(|host| !host.contains(':')),
    };
    without_port.unwrap_or(host)
}

/// In etcd's words.
fn unknown_host(host: &str) -> String {
    format!(
        "
etcd received your request, but the Host header was unrecognized.

To fix this, choose one of the following options:
- Enable TLS, then any HTTPS request will be allowed.
- Add the hostname you want to use to the whitelist in settings.
  - e.g. etcd --host-whitelist {host:?}

This requirement has been added to help prevent \"DNS Rebinding\" attacks (CVE-2018-5702).

"
    )
}
