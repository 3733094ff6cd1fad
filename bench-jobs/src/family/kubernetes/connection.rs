//! A client of the API server, and what its errors are called.

use std::path::Path;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::failure::Failure;

/// A client with connections of its own, of which one is open already.
///
/// It tries nothing twice: a request that the API server does not answer as it must is a failure, and a retry would hide
/// both the failure and its time.
pub async fn connect(kubeconfig: &str, timeout: Duration) -> Result<Client, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(format_args!("{kubeconfig}: {error}"));
    let file = Kubeconfig::read_from(Path::new(kubeconfig)).map_err(|error| failed(&error))?;
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(file, &options).await.map_err(|error| failed(&error))?;
    config.default_retry = false;
    config.connect_timeout = Some(timeout);
    config.write_timeout = Some(timeout);
    // A watch may be silent for long: what bounds an answer is the session's timeout.
    config.read_timeout = None;
    let client = Client::try_from(config).map_err(|error| failed(&error))?;
    client.apiserver_version().await.map_err(|error| failure("connect", "version", &error))?;
    Ok(client)
}

/// What the API server or the connection said to a request, such as `create Namespace a`.
#[cold]
pub fn failure(doing: &str, name: &str, error: &kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) => {
            Failure::new(format_args!("{doing} {name}: {} ({} {})", status.message, status.code, status.reason))
        }
        error => {
            // The cause says more than the layer that it came through.
            let mut cause: &dyn std::error::Error = error;
            while let Some(deeper) = cause.source() {
                cause = deeper;
            }
            Failure::new(format_args!("{doing} {name}: {cause}"))
        }
    }
}
