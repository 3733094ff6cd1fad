//! `block-node simulate`: a publisher of crafted blocks and a consumer that verifies what it reads, and who asks for the status. Tests use the same.

mod consumer;
mod publisher;
mod status;

pub use consumer::{ConsumerFlags, Read, read};
pub use publisher::{Fault, Published, PublisherFlags, publish, request};
pub use status::{NodeStatus, StatusFlags, ask};

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

pub use crate::messages::{PUBLISH, STATUS, SUBSCRIBE};

use clap::Args;
use service_kit::client::{Channel, GrpcError, Options};
use service_kit::tls::{ClientTls, ClientTlsFiles, Protocol};
use tokio::signal::unix::{SignalKind, signal};

use crate::messages::proto;
use crate::{connect, console};
use consumer::read_until;

/// How long a node may take to answer a unary call.
const LIMIT: Duration = Duration::from_secs(30);

/// How a node that speaks TLS is checked, and what is shown to one that asks who calls.
#[derive(Clone, Debug, Default, Args)]
pub struct TlsFlags {
    /// Who signs the node's certificate, PEM; needed where the address begins with https
    #[arg(long)]
    pub tls_authority: Option<PathBuf>,
    /// Certificate shown to the node, PEM
    #[arg(long, requires_all = ["tls_key", "tls_authority"])]
    pub tls_certificate: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
    /// File of the token that is shown to the node
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

/// Connects to `HOST:PORT`.
pub async fn connect(address: &str) -> Result<Channel, GrpcError> {
    connect_with(address, &TlsFlags::default()).await
}

/// Connects to `HOST:PORT`, or by TLS to `https://HOST:PORT`.
pub async fn connect_with(address: &str, flags: &TlsFlags) -> Result<Channel, GrpcError> {
    let url = connect::address(address).map_err(GrpcError::Connect)?;
    let files = flags.tls_authority.clone().map(|authority| ClientTlsFiles {
        authority: Some(authority),
        certificate: flags.tls_certificate.clone().zip(flags.tls_key.clone()),
        protocol: Protocol::default(),
    });
    let tls = files.map(ClientTls::open).transpose().map_err(|error| GrpcError::Connect(error.to_string()))?;
    let mut channel = connect::connect(&url, tls.as_ref(), Options::new(LIMIT)).await?;
    connect::show_token(&mut channel, flags.token_file.as_deref())?;
    Ok(channel)
}

/// Works with the node at an address. Where that breaks since the node speaks TLS and the address does not say so, the error does.
fn block_on<T>(address: &str, work: impl Future<Output = Result<T, GrpcError>>) -> Result<T, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(work);
    if let (Err(GrpcError::Broken(what)), Ok(url)) = (&result, connect::address(address))
        && runtime.block_on(connect::wants_tls(&url))
    {
        let address = format!("https://{}:{}", url.host, url.port);
        return Err(format!("{url}: {what}, since it speaks TLS: {address} with --tls-authority").into());
    }
    Ok(result?)
}

/// Prints what a node says of itself.
pub fn status(flags: &StatusFlags) -> Result<(), Box<dyn Error>> {
    let status = block_on(&flags.address, ask(flags))?;
    Ok(console::print(status)?)
}

/// Publishes, and prints how that went. Errors: not all of it came about, nor the fault that was asked for.
pub fn publisher(flags: &PublisherFlags) -> Result<(), Box<dyn Error>> {
    let published = block_on(&flags.address, publish(flags))?;
    console::print(format_args!("{published}\n"))?;
    ended(published.shortfall(flags))
}

/// Reads and verifies, and prints how that went. Errors: a block is wrong, or not all that were asked for came.
pub fn consumer(flags: &ConsumerFlags) -> Result<(), Box<dyn Error>> {
    let reading = read_until(flags, |_| (), |line| console::tell(line), asked_to_end());
    let read = block_on(&flags.address, reading)?;
    console::print(format_args!("{read}\n"))?;
    // Nobody is asked what it has where nothing is missing.
    let stored = match read.shortfall(flags, None) {
        Some(_) if !read.is_ended => block_on(&flags.address, stored(&flags.address, &flags.tls)).ok(),
        _ => None,
    };
    ended(read.shortfall(flags, stored))
}

/// Comes with SIGTERM or SIGINT, from when it is waited for on; never where those cannot be taken.
async fn asked_to_end() {
    match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
        (Ok(mut terminate), Ok(mut interrupt)) => tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        },
        _ => std::future::pending().await,
    }
}

/// The first block that a node has, and the last; [`crate::messages::NO_BLOCK`]: none.
async fn stored(address: &str, tls: &TlsFlags) -> Result<(u64, u64), GrpcError> {
    let mut channel = connect_with(address, tls).await?;
    let call = channel.call(STATUS);
    let status: proto::ServerStatusResponse = channel.unary(&call, &proto::ServerStatusRequest {}).await?;
    Ok((status.first_available_block, status.last_available_block))
}

fn ended(shortfall: Option<String>) -> Result<(), Box<dyn Error>> {
    shortfall.map_or(Ok(()), |shortfall| Err(shortfall.into()))
}
