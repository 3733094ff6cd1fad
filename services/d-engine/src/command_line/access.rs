//! How `ctl` and `bench` reach members: the flags for TLS, and connections by them.

use std::path::PathBuf;

use anyhow::Context as _;
use d_engine_client::grpc::{Channel, GrpcError};
use d_engine_client::{Client, Options, Tls};

/// Flags for TLS.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Flags {
    /// Who signs members' certificates, PEM: members are spoken to by TLS.
    #[arg(long, env = "D_ENGINE_CLIENT_TLS_AUTHORITY", value_name = "FILE")]
    tls_authority: Option<PathBuf>,
    /// Certificate shown to members that ask for one, PEM.
    #[arg(long, env = "D_ENGINE_CLIENT_TLS_CERTIFICATE", value_name = "FILE", requires_all = ["tls_authority", "tls_key"])]
    tls_certificate: Option<PathBuf>,
    /// Its key, PEM.
    #[arg(long, env = "D_ENGINE_CLIENT_TLS_KEY", value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
}

/// How members are reached.
#[derive(Clone, Debug, Default)]
pub struct Access {
    tls: Option<Tls>,
}

impl Flags {
    /// Reads the files.
    pub fn open(&self) -> anyhow::Result<Access> {
        let certificate = self.tls_certificate.as_deref().zip(self.tls_key.as_deref());
        let tls = self.tls_authority.as_deref().map(|authority| Tls::open(authority, certificate));
        Ok(Access { tls: tls.transpose()? })
    }
}

impl Access {
    /// A connection to a member.
    pub async fn channel(&self, endpoint: &str) -> Result<Channel, GrpcError> {
        Channel::connect_with(endpoint, self.tls.as_ref()).await
    }

    /// A client of members.
    pub async fn client(&self, endpoints: &[String]) -> anyhow::Result<Client> {
        let options = Options { tls: self.tls.clone(), ..Options::default() };
        Client::connect(endpoints, options).await.context("no connection")
    }
}
