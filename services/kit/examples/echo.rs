//! A whole server: flags, TLS if it is wanted, one unary and one streaming method, metrics, health, reflection, a graceful stop.
//!
//! ```text
//! cargo run -p service-kit --example echo -- --listen http://127.0.0.1:7000
//! grpcurl -plaintext -d '{"text":"hello"}' 127.0.0.1:7000 echo.Echo/Say
//! curl http://127.0.0.1:7000/metrics
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use clap::Parser;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use service_kit::grpc::{Caller, Limits, Requests, Responses, Service, Status, Stream, Unary, decode, encode};
use service_kit::listen::Group;
use service_kit::metrics::Process;
use service_kit::operations::{Accompanied, Operations};
use service_kit::probes::Readiness;
use service_kit::reflection::Reflection;
use service_kit::server::{Bound, Options};
use service_kit::tls::{Protocol, Tls, TlsFiles};
use service_kit::url::Url;
use service_kit::{logs, open_files, panics, signals};

/// What the build made of `echo.proto`.
#[allow(clippy::all)]
mod proto {
    include!(concat!(env!("OUT_DIR"), "/example.rs"));

    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/example.descriptors"));
}

use proto::echo::Saying;

/// A server that answers with what it was told.
#[derive(Parser)]
struct Flags {
    /// Where to listen: http://HOST:PORT, https://HOST:PORT, unix://PATH or unixs://PATH.
    #[arg(long, env = "ECHO_LISTEN", default_value = "http://127.0.0.1:7000", value_delimiter = ',')]
    listen: Vec<Url>,
    /// The server's certificates, PEM. Needed for https.
    #[arg(long, env = "ECHO_TLS_CERTIFICATE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// Their key, PEM.
    #[arg(long, env = "ECHO_TLS_KEY", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Who signs clients' certificates, PEM; then clients need one.
    #[arg(long, env = "ECHO_TLS_CLIENT_AUTHORITY", requires = "tls_certificate")]
    tls_client_authority: Option<PathBuf>,
    /// The longest message, bytes.
    #[arg(long, env = "ECHO_MESSAGE_BYTES_MAX", default_value_t = 1 << 20)]
    message_bytes_max: usize,
    /// text or json.
    #[arg(long, env = "ECHO_LOG_FORMAT", default_value = "text")]
    log_format: logs::Format,
    /// error, warn, info, debug or trace.
    #[arg(long, env = "ECHO_LOG_LEVEL", default_value = "info")]
    log_level: tracing::Level,
}

/// What the threads share.
#[derive(Default)]
struct Counters {
    said: Counter,
}

/// The service on one thread.
struct Echo {
    counters: Arc<Counters>,
}

#[derive(Clone, Copy)]
enum Method {
    Say,
    Repeat,
}

impl Service for Echo {
    type Method = Method;

    fn method(&self, path: &str) -> Option<(Method, bool)> {
        match path {
            "/echo.Echo/Say" => Some((Method::Say, false)),
            "/echo.Echo/Repeat" => Some((Method::Repeat, true)),
            _ => None,
        }
    }

    fn unary(&self, method: Method, _: Caller, message: Bytes) -> Unary {
        Unary::Now(match method {
            Method::Say => decode(message).map(|saying: Saying| {
                self.counters.said.inc();
                encode(&saying)
            }),
            Method::Repeat => Err(Status::is_stream()),
        })
    }

    fn stream(&self, method: Method, _: Caller, mut requests: Requests, responses: Responses) -> Stream {
        let counters = Arc::clone(&self.counters);
        Box::pin(async move {
            match method {
                Method::Repeat => {
                    while let Some(message) = requests.next().await? {
                        let saying: Saying = decode(message)?;
                        counters.said.inc();
                        if responses.send(encode(&saying)).await.is_err() {
                            // The client has gone.
                            break;
                        }
                    }
                    Ok(())
                }
                Method::Say => Err(Status::is_no_stream()),
            }
        })
    }
}

fn main() -> anyhow::Result<()> {
    // A wrong flag is one line and exit code 2.
    let flags = Flags::parse();
    logs::start(flags.log_format, flags.log_level);
    panics::end_the_process();
    open_files::raise();
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve(flags))
}

async fn serve(flags: Flags) -> anyhow::Result<()> {
    let stop = signals::stop()?;
    let bound = Bound::bind(&[Group { urls: &flags.listen, grpc: true, http: true }])?;
    let tls = match flags.tls_certificate.zip(flags.tls_key) {
        None if flags.listen.iter().any(|url| url.is_tls) => {
            anyhow::bail!("--listen has an https URL: give --tls-certificate and --tls-key")
        }
        None => None,
        Some((certificate, key)) => Some(Arc::new(Tls::open(TlsFiles {
            certificate,
            key,
            client_authority: flags.tls_client_authority,
            revocations: None,
            self_signed: None,
            protocol: Protocol::default(),
        })?)),
    };
    let counters = Arc::new(Counters::default());
    let mut registry = Registry::default();
    registry.register("echo_said", "Messages that were answered", counters.said.clone());
    registry.register_collector(Box::new(Process));
    let readiness = Readiness::default();
    // A server that has data says here that it reads them, and later that they are there.
    readiness.wait_for("voice", "it is being found");
    readiness.is_there("voice");
    let operations = Operations { registry: Arc::new(registry), readiness };
    Reflection::new(&[proto::DESCRIPTORS]).context("what the build wrote")?;
    let limits = Limits { message_bytes_max: flags.message_bytes_max, ..Limits::default() };
    let server = bound.start(Options { tls, limits, ..Options::default() }, move |_| {
        let service = Echo { counters: Arc::clone(&counters) };
        let reflection = Reflection::new(&[proto::DESCRIPTORS]).unwrap_or_default();
        Accompanied::new(service, operations.clone(), reflection)
    })?;
    tracing::info!(addresses = ?server.addresses(), "ready");
    server.run(stop).await?;
    Ok(())
}
