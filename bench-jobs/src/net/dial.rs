//! Connects to the store, patiently but not forever.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout_at};

use crate::failure::Failure;

/// A store that cannot be reached for this long has failed. It may just be starting.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Between attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// Connects to `endpoint` (`host:port`) with `TCP_NODELAY`, once, within `limit`.
pub async fn dial_once(endpoint: &str, limit: Duration) -> Result<TcpStream, Failure> {
    let doing = || format!("connect to {endpoint}");
    match tokio::time::timeout(limit, TcpStream::connect(endpoint)).await {
        Ok(Ok(stream)) => {
            stream.set_nodelay(true).map_err(|error| Failure::io(doing(), &error))?;
            Ok(stream)
        }
        Ok(Err(error)) => Err(Failure::io(doing(), &error)),
        Err(_) => Err(Failure::new(format_args!("{}: no answer within {limit:?}", doing()))),
    }
}

/// Connects to `endpoint` (`host:port`) with `TCP_NODELAY`, trying again for up to [`PATIENCE`].
pub async fn dial(endpoint: &str) -> Result<TcpStream, Failure> {
    let deadline = Instant::now() + PATIENCE;
    let mut last = None;
    loop {
        match timeout_at(deadline, TcpStream::connect(endpoint)).await {
            Ok(Ok(stream)) => {
                let set = stream.set_nodelay(true);
                set.map_err(|error| Failure::io(format_args!("connect to {endpoint}"), &error))?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = Some(error),
            Err(_) => {}
        }
        if Instant::now() + PAUSE >= deadline {
            let doing = format!("connect to {endpoint}, tried for {PATIENCE:?}");
            return Err(match last {
                Some(error) => Failure::io(doing, &error),
                None => Failure::new(format_args!("{doing}: no answer")),
            });
        }
        sleep(PAUSE).await;
    }
}
