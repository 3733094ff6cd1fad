//! Serves `/metrics` while a job runs: live counts in OpenMetrics, for one scraper.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::net::http_server::{Answer, serve as serve_http};
use crate::report::board::Board;

/// What passes between two answers at least, so that nobody who asks takes more of a processor from the load than a scraper does.
const PAUSE: Duration = Duration::from_millis(100);
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves `board` on `address` until the process ends. Returns the address, whose port may have been chosen by the
/// system.
pub fn serve(address: SocketAddr, board: Arc<Board>) -> io::Result<SocketAddr> {
    let free_at = Mutex::new(Instant::now());
    serve_http(address, "metrics", 1, move |request| {
        // Taken by the one thread that serves.
        let mut free_at = free_at.lock().unwrap_or_else(PoisonError::into_inner);
        thread::sleep(free_at.saturating_duration_since(Instant::now()));
        *free_at = Instant::now() + PAUSE;
        match request.path.as_str() {
            "/metrics" => Answer::content(OPEN_METRICS, board.open_metrics()),
            _ => Answer::not_found("only /metrics is here"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::http_client::get;
    #[test]
    fn who_asks_without_a_pause_waits_for_the_next_answer() {
        let address = serve("127.0.0.1:0".parse().unwrap(), Arc::default()).unwrap().to_string();
        let asked = Instant::now();
        for _ in 0..4 {
            get(&address, "/metrics", Duration::from_secs(5)).unwrap();
        }
        assert!(asked.elapsed() >= 3 * PAUSE, "{:?}", asked.elapsed());
    }

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
