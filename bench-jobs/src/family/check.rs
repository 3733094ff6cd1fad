//! What is said of a store that was asked for an answer.

use std::net::SocketAddr;
use std::time::Duration;

use storebench_crds::meter::Check;

use crate::failure::Failure;
use crate::net::http_client::get;

/// A store that does not answer within this is asked again.
pub const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);

/// One kind of request, tried out.
pub(crate) fn tried(name: &str, outcome: Result<String, Failure>) -> Check {
    let ok = outcome.is_ok();
    let detail = outcome.unwrap_or_else(|failure| failure.text().to_owned());
    Check { name: name.into(), ok, detail }
}

/// What a store answers to `GET path`; a failure begins with that.
pub(crate) fn http(address: SocketAddr, path: &str) -> Result<String, Failure> {
    let answer = get(&address.to_string(), path, ANSWER_TIMEOUT);
    answer.map_err(|error| Failure::new(format_args!("GET {path}: {error}")))
}
