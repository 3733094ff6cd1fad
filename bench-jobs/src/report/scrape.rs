//! Serves `/metrics` while a job runs: live counts in OpenMetrics, for one scraper.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::net::http_server::{Answer, serve as serve_http};
use crate::report::board::Board;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves `board` on `address` until the process ends. Returns the address, whose port may have been chosen by the
/// system.
pub fn serve(address: SocketAddr, board: Arc<Board>) -> io::Result<SocketAddr> {
    serve_http(address, "metrics", 1, move |request| match request.path.as_str() {
        "/metrics" => Answer::content(OPEN_METRICS, board.open_metrics()),
        _ => Answer::not_found("only /metrics is here"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::http_client::get;
    use std::time::Duration;

    #[test]
    fn scrapers_find_what_the_board_says() {
        let board = Arc::new(Board::default());
        board.begin("put", Vec::new());
        let address = serve("127.0.0.1:0".parse().unwrap(), board).unwrap().to_string();
        let found = get(&address, "/metrics", Duration::from_secs(5)).unwrap();
        assert!(found.contains("workload=\"put\"") && found.ends_with("# EOF\n"), "{found}");
        assert!(get(&address, "/", Duration::from_secs(5)).unwrap_err().to_string().contains("404"));
    }
}
