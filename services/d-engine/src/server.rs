//! A server: an engine and its doors, put together; and how it stops.

use std::sync::Arc;

use d_engine_client::proto;
use replog::runtime::Leadership;
use service_kit::grpc::Limits;
use service_kit::listen::Group;
use service_kit::operations::{Accompanied, Operations};
use service_kit::probes::{Finding, Readiness};
use service_kit::reflection::Reflection;
use service_kit::server::{self, Bound, StartError};
use service_kit::tls::{ClientTls, Tls, TlsError, TlsFiles};
use service_kit::url::Url;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::api::{Api, MAJORITY_TIMEOUT, SignedIn};
use crate::engine::{Engine, EngineError, Node};
use crate::metrics::registry;
use crate::settings::{PeerTls, Settings};

/// The largest request, bytes: more than the largest transaction.
const MESSAGE_BYTES_MAX: usize = 8 << 20;
/// Calls of a connection at a time.
const STREAMS_MAX: u32 = 10_000;
/// What a client of the streaming door may send ahead, bytes.
const WINDOW_BYTES: u32 = 1 << 20;
/// The check of who leads, by its name in `/readyz`.
const LEADER: &str = "leader";

/// Why a server cannot start, or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Sockets and threads.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Certificates: which files, and why.
    #[error("{0}: {1}")]
    Tls(String, TlsError),
}

/// A server that listens.
pub struct Server {
    engine: Engine,
    server: server::Server,
    readiness: Readiness,
}

impl Server {
    /// Binds sockets, opens the data, and listens; nothing is accepted before [`Server::run`].
    pub fn start(settings: Settings) -> Result<Self, ServerError> {
        let Settings { mut engine, listen, patience, not_leading, tls, peer_tls, warnings } = settings;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        let tls = tls.map(|files| open_tls(files, "for clients")).transpose()?.map(Arc::new);
        let bound = Bound::bind(&[Group { urls: &[url(&listen, tls.is_some())], grpc: true, http: true }])?;
        engine.peer_tls = peer_tls.map(open_peer).transpose()?;
        let engine = Engine::start(engine)?;
        let limits = Limits {
            message_bytes_max: MESSAGE_BYTES_MAX,
            stream_window_bytes: WINDOW_BYTES,
            connection_window_bytes: 4 * WINDOW_BYTES,
            streams_max: STREAMS_MAX,
            ..Limits::default()
        };
        let node = engine.node().clone();
        let options = server::Options { tls, limits, ..server::Options::default() };
        let of_check = node.clone();
        let readiness = Readiness::asking("majority", move || majority(of_check.clone()));
        readiness.wait_for(LEADER, "nobody is known to lead");
        let operations = Operations { registry: Arc::new(registry(&node)), readiness: readiness.clone() };
        let signed_in: Arc<SignedIn> = Arc::default();
        let server = bound.start(options, move |_| {
            let reflection = Reflection::new(&[proto::DESCRIPTORS]).unwrap_or_default();
            let api = Api::new(node.clone(), Arc::clone(&signed_in), patience, not_leading);
            Accompanied::new(api, operations.clone(), reflection)
        })?;
        Ok(Self { engine, server, readiness })
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Where clients are served.
    pub fn addresses(&self) -> &[String] {
        self.server.addresses()
    }

    /// Serves until `stop` is there or the engine cannot go on; then ends gently. Runs on a tokio runtime.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), ServerError> {
        let accepted = tokio::select! {
            () = stop => Ok(()),
            () = self.engine.ended() => Ok(()),
            () = follow(self.engine.leadership(), &self.readiness) => Ok(()),
            accepted = self.server.accept() => accepted,
        };
        // Others need not wait until they notice.
        self.engine.begin_to_stop();
        self.server.stop();
        self.engine.stop()?;
        Ok(accepted?)
    }
}

fn url(address: &str, is_tls: bool) -> Url {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "0"));
    Url { is_tls, is_unix: false, host: host.to_owned(), port: port.parse().unwrap_or_default() }
}

/// A key that is not the certificate's, for example, is known by neither.
fn open_tls(files: TlsFiles, what: &str) -> Result<Tls, ServerError> {
    let named = format!("TLS {what}, certificate {}, key {}", files.certificate.display(), files.key.display());
    Tls::open(files).map_err(|error| ServerError::Tls(named, error))
}

fn open_peer(files: PeerTls) -> Result<replog::runtime::tcp::Tls, ServerError> {
    let client = |error| ServerError::Tls("TLS between members".into(), error);
    let (server, client) = (open_tls(files.server, "between members")?, ClientTls::open(files.client).map_err(client)?);
    Ok(replog::runtime::tcp::Tls {
        server: Arc::new(move || server.config()),
        client: Arc::new(move || client.config()),
        server_name: None,
    })
}

/// Whether strong reads succeed here.
fn majority(node: Node) -> Finding {
    Box::pin(async move {
        match timeout(MAJORITY_TIMEOUT, node.is_ready()).await {
            Ok(ready) => ready.map_err(|error| error.to_string()),
            Err(_) => Err("waiting for a leader with a majority".into()),
        }
    })
}

/// Says who leads for as long as the member lives: a member serves when somebody does.
async fn follow(mut leadership: watch::Receiver<Leadership>, readiness: &Readiness) {
    loop {
        match leadership.borrow_and_update().leader {
            Some(_) => readiness.is_there(LEADER),
            None => readiness.wait_for(LEADER, "nobody is known to lead"),
        }
        if leadership.changed().await.is_err() {
            return;
        }
    }
}
