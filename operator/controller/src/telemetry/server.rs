//! `/livez`, `/readyz`, `/metrics` over HTTP. Metrics are for those whose token may `get /metrics`, as Kubernetes itself asks
//! of its components; who that is, the API server decides (TokenReview, SubjectAccessReview).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;

use super::Metrics;
use crate::lock::lock;
use crate::settings::MetricsAccess;

/// How long an answer of the API server about a token is believed.
const TRUST: Duration = Duration::from_secs(60);
/// Tokens that are remembered; more are asked about every time.
const TOKENS_MAX: usize = 64;

/// What the server shows.
pub struct Shown {
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Says what the operator still waits for; empty once it works.
    pub waits_for: Mutex<String>,
    /// Who may read the metrics.
    pub access: MetricsAccess,
    /// Asks about tokens.
    pub client: Client,
    /// When tokens were found good, by their hash.
    pub known: Mutex<HashMap<[u8; 32], Instant>>,
}

impl Shown {
    /// Shows these metrics.
    pub fn new(metrics: Arc<Metrics>, access: MetricsAccess, client: Client) -> Self {
        let waits_for = Mutex::new("the leader's Lease".into());
        Self { metrics, waits_for, access, client, known: Mutex::default() }
    }
}

/// Serves until the process ends.
pub async fn serve(address: SocketAddr, shown: Arc<Shown>) -> std::io::Result<()> {
    let routes = Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(shown);
    let listener = TcpListener::bind(address).await?;
    axum::serve(listener, routes).await
}

/// Ready is who could act: a replica that waits for the Lease is, too, and says so.
async fn readyz(State(shown): State<Arc<Shown>>) -> String {
    let waits_for = lock(&shown.waits_for).clone();
    if waits_for.is_empty() { "ok\n".into() } else { format!("ok, waiting for {waits_for}\n") }
}

async fn metrics(State(shown): State<Arc<Shown>>, headers: HeaderMap) -> Response {
    if shown.access == MetricsAccess::Token {
        let token = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let Some(token) = token else {
            return (StatusCode::UNAUTHORIZED, "send a bearer token that may `get` /metrics\n").into_response();
        };
        match may_read(&shown, token).await {
            Ok(Access::Granted) => {}
            Ok(Access::Unknown) => return (StatusCode::UNAUTHORIZED, "nobody issued this token\n").into_response(),
            Ok(Access::Refused) => {
                return (StatusCode::FORBIDDEN, "this token may not `get` /metrics\n").into_response();
            }
            Err(error) => {
                tracing::warn!(%error, "a token cannot be checked");
                return (StatusCode::SERVICE_UNAVAILABLE, "the token cannot be checked now\n").into_response();
            }
        }
    }
    match shown.metrics.encode() {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// What a token is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Granted,
    /// It is somebody's, who may not.
    Refused,
    /// It is nobody's.
    Unknown,
}

/// Only a yes is remembered: who was just given the right should not have to wait.
async fn may_read(shown: &Shown, token: &str) -> Result<Access, kube::Error> {
    let hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
    if lock(&shown.known).get(&hash).is_some_and(|since| since.elapsed() < TRUST) {
        return Ok(Access::Granted);
    }
    let access = ask(&shown.client, token).await?;
    let mut known = lock(&shown.known);
    if known.len() >= TOKENS_MAX {
        known.retain(|_, since| since.elapsed() < TRUST);
    }
    if access == Access::Granted && known.len() < TOKENS_MAX {
        known.insert(hash, Instant::now());
    }
    Ok(access)
}

async fn ask(client: &Client, token: &str) -> Result<Access, kube::Error> {
    let review = TokenReview {
        spec: TokenReviewSpec { token: Some(token.into()), ..TokenReviewSpec::default() },
        ..TokenReview::default()
    };
    let review = Api::<TokenReview>::all(client.clone()).create(&PostParams::default(), &review).await?;
    let Some(user) = review.status.filter(|status| status.authenticated == Some(true)).and_then(|status| status.user)
    else {
        return Ok(Access::Unknown);
    };
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some("/metrics".into()),
                verb: Some("get".into()),
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let review = Api::<SubjectAccessReview>::all(client.clone()).create(&PostParams::default(), &review).await?;
    let allowed = review.status.is_some_and(|status| status.allowed);
    Ok(if allowed { Access::Granted } else { Access::Refused })
}
