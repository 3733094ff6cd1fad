//! A server, put together: store, node, sockets; and how it stops.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use service_kit::grpc::{Limits, Memory};
use service_kit::listen::Group;
use service_kit::operations::{Accompanied, Operations};
use service_kit::reflection::Reflection;
use service_kit::server::{Bound, Options, StartError};
use service_kit::tls::{ClientTls, Tls, TlsError, TlsFiles};
use service_kit::url::Url;
use wal::files::RealDirectory;

use crate::api::Api;
use crate::backfill;
use crate::block::ProofRules;
use crate::clients::{Clients, ClientsError};
use crate::data_directory::{self, DATA_DIR, DataDirectoryError};
use crate::messages::proto;
use crate::node::Node;
use crate::scrub;
use crate::settings::{Settings, record_files};
use crate::store::{self, OpenError, Store};

/// How long connections may go on after streams have ended.
const PATIENCE: Duration = Duration::from_secs(3);
/// The longest frame of HTTP/2: what a publisher sends at once comes in one piece, and is not copied together.
const FRAME_BYTES_MAX: u32 = 1 << 20;

/// Why a server cannot start, or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The directory.
    #[error("{DATA_DIR}: {0}")]
    Directory(#[from] DataDirectoryError),
    /// What is in it.
    #[error("{DATA_DIR}: {0}")]
    Store(#[from] OpenError),
    /// Certificates: by which flag they came.
    #[error("{0}: {1}")]
    Tls(&'static str, TlsError),
    /// Certificates of peers.
    #[error("--backfill-tls-authority, --backfill-tls-certificate: {0}")]
    PeersTls(TlsError),
    /// Who is to be trusted is not said.
    #[error("--backfill-peers: {0} speaks TLS: --backfill-tls-authority must say who signs its certificate")]
    NoAuthority(Url),
    /// Who may call.
    #[error("--clients: {0}")]
    Clients(#[from] ClientsError),
    /// Who signs record files.
    #[error("{0}")]
    AddressBook(String),
    /// Sockets.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Where it shall listen.
    #[error("--server-host: {0}")]
    Host(StartError),
    /// What is shown to peers.
    #[error("--backfill-token-file: {}: {source}; name a file that holds the token", path.display())]
    Token {
        /// Its name.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
    /// Descriptors of the services, which the build made.
    #[error("the descriptors of the services cannot be read: {0}; build it anew")]
    Descriptors(prost::DecodeError),
    /// A thread.
    #[error("a thread cannot be started: {0}")]
    Thread(io::Error),
}

/// Serves until `stop` is there. `ready` is told where it listens.
pub async fn run(
    settings: Settings,
    ready: impl FnOnce(&[String]),
    stop: impl Future<Output = ()>,
) -> Result<(), ServerError> {
    let health = settings.listen_health.clone();
    let bound = Bound::bind(&[
        Group { urls: std::slice::from_ref(&settings.listen), grpc: true, http: true },
        Group { urls: health.as_slice(), grpc: false, http: true },
    ])
    .map_err(|error| match error {
        StartError::Listen(_) => ServerError::Host(error),
        other => ServerError::Start(other),
    })?;
    if let Some(path) = &settings.backfill_token_file {
        std::fs::read_to_string(path).map_err(|source| ServerError::Token { path: path.clone(), source })?;
    }
    let tls = settings
        .tls
        .clone()
        .map(|files| Tls::open(files.clone()).map_err(|error| ServerError::Tls(flag_of(&files, &error), error)));
    let tls = tls.transpose()?.map(Arc::new);
    let of_peers = settings.backfill_tls.clone().map(ClientTls::open).transpose().map_err(ServerError::PeersTls)?;
    if let (None, Some(peer)) = (&of_peers, settings.backfill_peers.iter().find(|peer| peer.is_tls)) {
        return Err(ServerError::NoAuthority(peer.clone()));
    }
    let record_files = record_files(settings.address_book.as_deref(), settings.signers_percent_min);
    let rules = ProofRules::published(settings.accept_dummy_proofs, record_files.map_err(ServerError::AddressBook)?);
    let clients = settings.clients.as_deref().map(Clients::open).transpose()?.map(Arc::new);
    let store = open(&settings)?;
    let options = Options {
        tls,
        limits: Limits {
            message_bytes_max: settings.message_bytes_max,
            connection_messages_bytes_max: settings.messages_memory_bytes / 2,
            stream_window_bytes: settings.window_bytes,
            connection_window_bytes: settings.window_bytes.max(8 << 20),
            frame_bytes_max: settings.window_bytes.min(FRAME_BYTES_MAX),
            streams_max: settings.streams_max,
            answer_patience: settings.subscriber_timeout,
            ..Limits::default()
        },
        memory: Memory::new(settings.messages_memory_bytes),
        patience: PATIENCE,
        ..Options::default()
    };
    let delay = settings.shutdown_delay;
    let node = Node::start(settings, rules, store).map_err(ServerError::Thread)?;
    let of_workers = Arc::clone(&node);
    let operations = Operations { registry: Arc::clone(&node.metrics.registry), readiness: node.readiness.clone() };
    // It is made anew by each thread; whether it can be is found here.
    Reflection::new(&[proto::DESCRIPTORS]).map_err(ServerError::Descriptors)?;
    let mut server = bound.start(options, move |_| {
        let api = Api::new(Arc::clone(&of_workers), clients.clone(), operations.clone());
        let reflection = Reflection::new(&[proto::DESCRIPTORS]).unwrap_or_default();
        Accompanied::new(api, operations.clone(), reflection)
    })?;
    ready(server.addresses());
    let result = tokio::select! {
        () = stop => Ok(()),
        never = node.tick() => match never {},
        never = node.settle() => match never {},
        never = backfill::run(&node, of_peers.as_ref()) => match never {},
        never = scrub::run(node.settings.scrub, &node.reader, &node.metrics) => match never {},
        result = server.accept() => result,
    };
    node.end_streams();
    tokio::time::sleep(delay).await;
    // What is on its way to the disk is made safe, and may still be acknowledged.
    node.close();
    server.stop();
    Ok(result?)
}

/// The flag that names the file which an error is about.
fn flag_of(files: &TlsFiles, error: &TlsError) -> &'static str {
    let (TlsError::Read(file, _) | TlsError::Empty(file)) = error else { return "--tls-certificate, --tls-key" };
    let is = |path: &Path| path.display().to_string() == *file;
    match (is(&files.key), files.client_authority.as_deref().is_some_and(is), is(&files.certificate)) {
        (true, ..) => "--tls-key",
        (_, true, false) => "--tls-client-authority",
        _ => "--tls-certificate",
    }
}

fn open(settings: &Settings) -> Result<Store<RealDirectory>, ServerError> {
    let path = &settings.directory;
    let directory = data_directory::open(path)?;
    let options = store::Options {
        segment_bytes: settings.segment_bytes,
        keep_blocks: settings.keep_blocks,
        first_block: settings.first_block,
        salt: rand::random(),
        compression_level: settings.compression_level,
    };
    let store = Store::open(directory, options)?;
    let reader = store.reader();
    let quarantined = reader.quarantined();
    if quarantined > 0 {
        tracing::error!(quarantined, "blocks are damaged on disk and not served");
    }
    tracing::info!(first = reader.first(), next = reader.next(), "opened {}", path.display());
    Ok(store)
}
