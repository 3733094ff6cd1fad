//! A small HTTP/1.1 server for `/metrics`: one thread, one connection at a time, GET only.
//!
//! Bounded: a request is at most [`REQUEST_BYTES_MAX`] bytes and [`REQUEST_SECONDS_MAX`] seconds; every answer closes the
//! connection. It is for one scraper on a trusted network, not for the internet.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::metrics::Board;

/// A longer request is refused.
pub const REQUEST_BYTES_MAX: usize = 8192;
/// A slower request is dropped.
pub const REQUEST_SECONDS_MAX: u64 = 2;

/// Serves `board` on `address` until the process ends. Returns the address, whose port may have been chosen by the
/// system.
pub fn serve(address: SocketAddr, board: Arc<Board>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    thread::Builder::new().name("metrics".into()).spawn(move || {
        for stream in listener.incoming() {
            match stream {
                // A scraper that goes away or misbehaves is its own problem.
                Ok(stream) => drop(answer(stream, &board)),
                // Out of descriptors, for one: wait until the load has given some back.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    })?;
    Ok(address)
}

fn answer(mut stream: TcpStream, board: &Arc<Board>) -> io::Result<()> {
    let (status, body) = match read_request(&mut stream)?.as_deref() {
        Some("GET /metrics") => ("200 OK", board.open_metrics()),
        Some(request) if request.starts_with("GET ") => ("404 Not Found", "only /metrics is here\n".into()),
        Some(_) => ("405 Method Not Allowed", "only GET is served\n".into()),
        None => ("431 Request Header Fields Too Large", "request too long\n".into()),
    };
    let kind = match status {
        "200 OK" => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        _ => "text/plain; charset=utf-8",
    };
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.set_write_timeout(Some(Duration::from_secs(REQUEST_SECONDS_MAX)))?;
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// Method and path of a request, without its query; `None` if it is too long.
fn read_request(stream: &mut TcpStream) -> io::Result<Option<String>> {
    let deadline = Instant::now() + Duration::from_secs(REQUEST_SECONDS_MAX);
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() > REQUEST_BYTES_MAX {
            return Ok(None);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => request.extend_from_slice(&part[..count]),
        }
    }
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split('?').next().unwrap_or_default();
    Ok(Some(format!("{method} {path}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        let mut text = String::new();
        // The server may close before it has read everything that is too long.
        let _ = stream.read_to_string(&mut text);
        text
    }

    #[test]
    fn scrapers_are_served_and_others_are_told() {
        let board = Arc::new(Board::default());
        board.begin("put", Vec::new());
        let address = serve("127.0.0.1:0".parse().unwrap(), board).unwrap();
        let found = ask(address, b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(found.starts_with("HTTP/1.1 200 OK\r\n"), "{found}");
        assert!(found.contains("openmetrics-text") && found.ends_with("# EOF\n"), "{found}");
        assert!(ask(address, b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask(address, b"POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert!(ask(address, &[b'x'; REQUEST_BYTES_MAX + 1025]).starts_with("HTTP/1.1 431"));
        assert_eq!(ask(address, b"\r\n\r\n").split(' ').nth(1), Some("405"));
    }
}
