//! How `ctl` and `bench` reach members: the flags for TLS and users, and connections by them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use d_engine_client::grpc::{Channel, GrpcError, address_of};
use d_engine_client::{Client, Credentials, Options, Tls};
use tokio::time::timeout;

/// For a connection to a member.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// The variable that has a user's password.
pub(super) const PASSWORD: &str = "D_ENGINE_PASSWORD";

/// Flags for TLS and users.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Flags {
    /// Who signs members' certificates, PEM: members are spoken to by TLS.
    #[arg(long, global = true, env = "D_ENGINE_CLIENT_TLS_AUTHORITY", value_name = "FILE")]
    tls_authority: Option<PathBuf>,
    /// Certificate shown to members that ask for one, PEM.
    #[arg(
        long,
        global = true,
        env = "D_ENGINE_CLIENT_TLS_CERTIFICATE",
        value_name = "FILE",
        requires_all = ["tls_authority", "tls_key"]
    )]
    tls_certificate: Option<PathBuf>,
    /// Its key, PEM.
    #[arg(long, global = true, env = "D_ENGINE_CLIENT_TLS_KEY", value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// The user to sign in as, where members ask for users.
    #[arg(long, global = true, env = "D_ENGINE_USER", value_name = "NAME")]
    user: Option<String>,
    /// A file with its password in the first line; without it, the variable D_ENGINE_PASSWORD has it.
    #[arg(long, global = true, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
}

/// How members are reached.
#[derive(Clone, Debug, Default)]
pub struct Access {
    tls: Option<Tls>,
    credentials: Option<Credentials>,
}

impl Flags {
    /// Reads the files.
    pub fn open(&self) -> anyhow::Result<Access> {
        let certificate = self.tls_certificate.as_deref().zip(self.tls_key.as_deref());
        let tls = self.tls_authority.as_deref().map(|authority| Tls::open(authority, certificate));
        let credentials = match (&self.user, &self.password_file) {
            (None, _) => None,
            (Some(name), file) => {
                let password = match file {
                    Some(file) => first_line(file)?,
                    None => std::env::var(PASSWORD)
                        .context("--user needs --password-file, or the password in D_ENGINE_PASSWORD")?,
                };
                Some(Credentials { name: name.clone(), password })
            }
        };
        Ok(Access { tls: tls.transpose()?, credentials })
    }
}

impl Access {
    /// A connection to a member.
    pub async fn channel(&self, endpoint: &str) -> Result<Channel, GrpcError> {
        let connected = timeout(CONNECT_TIMEOUT, Channel::connect_with(endpoint, self.tls.as_ref())).await;
        let late = GrpcError::Connect(format!("{endpoint}: no answer within {CONNECT_TIMEOUT:?}"));
        Ok(connected.unwrap_or(Err(late))?.signed_in(self.credentials.as_ref()))
    }

    /// A client of members.
    pub async fn client(&self, endpoints: &[String]) -> anyhow::Result<Client> {
        let options = Options { tls: self.tls.clone(), credentials: self.credentials.clone(), ..Options::default() };
        Client::connect(endpoints, options).await.context("no connection")
    }
}

/// Where a member is, as a flag says it.
pub(super) fn endpoint(text: &str) -> Result<String, String> {
    // Whether it says https:// is looked at when it is connected to.
    address_of(text).map(|_| text.trim().to_owned())
}

/// An error, once with the address where it was met.
pub(super) fn met_at(endpoint: &str, error: &GrpcError) -> anyhow::Error {
    match error {
        // It has it.
        GrpcError::Connect(said) => anyhow::anyhow!("{said}"),
        error => anyhow::anyhow!("{endpoint}: {error}"),
    }
}

/// Why none of several members has done it. What one of them has answered says more than that another is not there: in a group that has lost
/// some that is what all who ask for the rest of them would hear.
#[derive(Default)]
pub(super) struct Problem {
    error: Option<anyhow::Error>,
    is_answer: bool,
}

impl Problem {
    /// What was met at an address.
    pub(super) fn met(&mut self, endpoint: &str, error: &GrpcError) {
        self.keep(met_at(endpoint, error), matches!(error, GrpcError::Status { .. }));
    }

    /// What a member has answered.
    pub(super) fn said(&mut self, error: anyhow::Error) {
        self.keep(error, true);
    }

    /// The last one of those that say most.
    fn keep(&mut self, error: anyhow::Error, is_answer: bool) {
        if is_answer || !self.is_answer {
            (self.error, self.is_answer) = (Some(error), is_answer);
        }
    }

    /// What is told.
    pub(super) fn into_error(self) -> anyhow::Error {
        self.error.unwrap_or_else(|| anyhow::anyhow!("no address was given"))
    }
}

/// The first line of a file.
pub(super) fn first_line(file: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(file).with_context(|| format!("{}: cannot be read", file.display()))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
