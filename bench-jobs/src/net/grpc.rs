//! Channels of gRPC to a store, whatever it speaks over them.

use std::time::Duration;

use service_kit::client::{Channel, GrpcError, Options};

use crate::failure::Failure;
use crate::net::dial::{dial, dial_once};
use crate::net::tls::Tls;

/// Connects to `endpoint`, `host:port`, as patiently as [`dial`]. `limit` bounds each unary call.
pub async fn connect(endpoint: &str, limit: Duration) -> Result<Channel, Failure> {
    let stream = dial(endpoint).await?;
    Channel::over(stream, endpoint, Options::new(limit)).await.map_err(failed)
}

/// The same over TLS, where there is any.
pub async fn connect_over(tls: Option<&Tls>, endpoint: &str, limit: Duration) -> Result<Channel, Failure> {
    let Some(tls) = tls else { return connect(endpoint, limit).await };
    let stream = tls.connect_http2(dial(endpoint).await?, endpoint, limit).await?;
    let options = Options { is_tls: true, ..Options::new(limit) };
    Channel::over(stream, endpoint, options).await.map_err(failed)
}

/// The same without patience, for members that may be down: one attempt, within `limit`.
pub async fn connect_once(endpoint: &str, limit: Duration) -> Result<Channel, Failure> {
    let stream = dial_once(endpoint, limit).await?;
    Channel::over(stream, endpoint, Options::new(limit)).await.map_err(failed)
}

fn failed(error: GrpcError) -> Failure {
    Failure::grpc(&error, &error)
}
