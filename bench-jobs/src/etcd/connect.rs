//! The way to the store.

use std::time::Duration;

use service_kit::client::{Channel, Options};

use crate::dial::dial;
use crate::failure::Failure;

/// Connects to `endpoint`, `host:port`, as patiently as [`dial`]. `limit` bounds each unary call.
pub async fn connect(endpoint: &str, limit: Duration) -> Result<Channel, Failure> {
    let stream = dial(endpoint).await?;
    Channel::over(stream, endpoint, Options::new(limit)).await.map_err(Failure::new)
}
