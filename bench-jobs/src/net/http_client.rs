//! A small HTTP/1.1 client: one GET, or POST without a body, on a connection of its own.
//!
//! Bounded: everything from connecting to the last byte takes no longer than the time limit, and an answer is at most
//! [`ANSWER_BYTES_MAX`] bytes. (The system's resolver is the exception: it has a time limit of its own for a name.)

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::failure::{plain, short_line};

/// A longer answer is refused.
pub const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Why there is no answer, in one line.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The connection could not be made, broke, or took too long.
    #[error("{}", plain(.0))]
    Connection(#[from] io::Error),
    /// The answer is not a success: its status and what it says.
    #[error("HTTP status {status}: {said}")]
    Status {
        /// The status code.
        status: u16,
        /// The body as one line.
        said: String,
    },
    /// The answer is not HTTP, too long, or cut off.
    #[error("{0}")]
    Malformed(&'static str),
}

/// The body of the answer, whose status must be 200. `address` is `host:port`.
pub fn get(address: &str, path: &str, limit: Duration) -> Result<String, HttpError> {
    ask(address, &format!("GET {path}"), None, limit)
}

/// As [`get`], for a method and a path such as `POST /strike`, showing a token where there is one.
pub fn ask(address: &str, what: &str, token: Option<&str>, limit: Duration) -> Result<String, HttpError> {
    let shown = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request =
        format!("{what} HTTP/1.1\r\nHost: {address}\r\n{shown}Content-Length: 0\r\nConnection: close\r\n\r\n");
    let answer = exchange(address, request.as_bytes(), limit, |_| false)?;
    let (status, body) = parse(&answer)?;
    match status {
        200 => Ok(body.into_owned()),
        status => Err(HttpError::Status { status, said: short_line(&body) }),
    }
}

/// Sends a request and reads until the answer is complete or the other side closes.
pub fn exchange(
    address: impl ToSocketAddrs,
    request: &[u8],
    limit: Duration,
    is_complete: impl Fn(&[u8]) -> bool,
) -> io::Result<Vec<u8>> {
    let address = address.to_socket_addrs()?.next().ok_or_else(|| io::Error::other("the name has no address"))?;
    let deadline = Instant::now() + limit;
    let left = || match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(too_late(limit)),
        left => Ok(Some(left)),
    };
    let said = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => too_late(limit),
        _ => error,
    };
    let mut stream = TcpStream::connect_timeout(&address, limit).map_err(said)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(left()?)?;
    stream.write_all(request).map_err(said)?;
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    while !is_complete(&answer) {
        if answer.len() > ANSWER_BYTES_MAX {
            return Err(io::Error::other(format!("the answer is longer than {ANSWER_BYTES_MAX} bytes")));
        }
        stream.set_read_timeout(left()?)?;
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&part[..count]),
            // So ends a wait that is bounded when the process was stopped and goes on.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(said(error)),
        }
    }
    Ok(answer)
}

fn too_late(limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit:?}"))
}

/// Status and body. An answer that says its length must have it.
fn parse(answer: &[u8]) -> Result<(u16, std::borrow::Cow<'_, str>), HttpError> {
    let end = answer.windows(4).position(|end| end == b"\r\n\r\n");
    let end = end.ok_or(HttpError::Malformed("the answer is not HTTP, or cut off"))?;
    let head = String::from_utf8_lossy(&answer[..end]);
    let body = &answer[end + 4..];
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok());
    let status = status.ok_or(HttpError::Malformed("the answer is not HTTP"))?;
    let length =
        lines.filter_map(|line| line.split_once(':')).find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    if length.is_some_and(|(_, length)| length.trim().parse() != Ok(body.len())) {
        return Err(HttpError::Malformed("the answer is cut off"));
    }
    Ok((status, String::from_utf8_lossy(body)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    /// A server that gives one answer to whoever comes first.
    fn answering(answer: &'static [u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]);
            stream.write_all(answer).unwrap();
        });
        address
    }

    fn said(answer: &'static [u8]) -> String {
        match get(&answering(answer), "/x", Duration::from_secs(5)) {
            Ok(body) => body,
            Err(error) => format!("error: {error}"),
        }
    }

    #[test]
    fn a_whole_answer_is_taken_and_any_other_refused_in_one_line() {
        assert_eq!(said(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"), "hi");
        assert_eq!(said(b"HTTP/1.0 200 OK\r\n\r\nhi"), "hi");
        assert_eq!(said(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nhi"), "error: the answer is cut off");
        assert_eq!(said(b"HTTP/1.1 503 No\r\n\r\nnot\nyet\n"), "error: HTTP status 503: not yet");
        assert_eq!(said(b"-ERR unknown command\r\n"), "error: the answer is not HTTP, or cut off");
        assert_eq!(said(b"-ERR\r\n\r\n"), "error: the answer is not HTTP");
        assert_eq!(said(b""), "error: the answer is not HTTP, or cut off");
    }

    #[test]
    fn one_who_does_not_answer_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let begun = Instant::now();
        let error = get(&address, "/", Duration::from_millis(100)).unwrap_err();
        assert_eq!(error.to_string(), "no answer within 100ms");
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}
