//! A small HTTP/1.1 server: GET, and POST without a body where that is said, a fixed number of threads, one connection at a time on each.
//!
//! Bounded: a request is at most [`REQUEST_BYTES_MAX`] bytes and [`REQUEST_SECONDS_MAX`] seconds; every answer closes the
//! connection. A server that nobody asks does not wake up. It is for a scraper, a kubelet or a loader on a trusted network,
//! not for the internet.

use std::fmt::Display;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::failure::short_line;

/// A longer request is refused.
pub const REQUEST_BYTES_MAX: usize = 8192;
/// A slower request is dropped.
pub const REQUEST_SECONDS_MAX: u64 = 2;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The path, without the query.
    pub path: String,
    /// What follows the question mark; empty if there is none.
    pub query: String,
    /// The token that is shown in `Authorization: Bearer`, if there is one.
    pub token: Option<String>,
}

impl Request {
    /// Whether the query sets a name to a value, as in `?pss=true`.
    pub fn has(&self, name: &str, value: &str) -> bool {
        self.get(name) == Some(value)
    }

    /// What the query sets a name to, for the first time.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut parts = self.query.split('&').filter_map(|part| part.split_once('='));
        parts.find(|(found, _)| *found == name).map(|(_, value)| value)
    }
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    status: &'static str,
    content_type: &'static str,
    body: String,
}

impl Answer {
    /// 200, with a content type.
    pub fn content(content_type: &'static str, body: String) -> Self {
        Self { status: "200 OK", content_type, body }
    }

    /// 200, with a value as JSON.
    pub fn json(value: &impl Serialize) -> Self {
        match serde_json::to_string(value) {
            Ok(body) => Self::content("application/json", body),
            Err(error) => Self::line("500 Internal Server Error", &error.to_string()),
        }
    }

    /// Any status, with a line of text.
    pub fn line(status: &'static str, text: &str) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: format!("{text}\n") }
    }

    /// 503: why not, which becomes one line.
    pub fn unavailable(reason: &dyn Display) -> Self {
        Self::line("503 Service Unavailable", &short_line(&reason.to_string()))
    }

    /// Its status, such as `200 OK`.
    pub fn status(&self) -> &str {
        self.status
    }

    /// What it says.
    pub fn body(&self) -> &str {
        &self.body
    }

    /// 404: `there_is` says what there is.
    pub fn not_found(there_is: &str) -> Self {
        Self::line("404 Not Found", there_is)
    }
}

/// Serves on `address`, on so many threads, until the process ends. Returns the address, whose port may have been chosen
/// by the system.
pub fn serve(
    address: SocketAddr,
    name: &str,
    threads: usize,
    answer: impl Fn(&Request) -> Answer + Send + Sync + 'static,
) -> io::Result<SocketAddr> {
    serve_with_posts(address, name, threads, &[], answer)
}

/// As [`serve`]; what is done rather than told, at these paths, is asked for by POST and not by GET.
pub fn serve_with_posts(
    address: SocketAddr,
    name: &str,
    threads: usize,
    posts: &'static [&'static str],
    answer: impl Fn(&Request) -> Answer + Send + Sync + 'static,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    let answer = Arc::new(answer);
    for _ in 0..threads {
        let (listener, answer) = (listener.try_clone()?, Arc::clone(&answer));
        thread::Builder::new().name(name.into()).spawn(move || {
            for stream in listener.incoming() {
                match stream {
                    // A client that goes away or misbehaves is its own problem.
                    Ok(stream) => drop(converse(stream, posts, &*answer)),
                    // Out of descriptors, for one: wait until the load has given some back.
                    Err(_) => thread::sleep(Duration::from_millis(100)),
                }
            }
        })?;
    }
    Ok(address)
}

fn converse(mut stream: TcpStream, posts: &[&str], answer: &impl Fn(&Request) -> Answer) -> io::Result<()> {
    let Answer { status, content_type, body } = match read_request(&mut stream, posts)? {
        Ok(request) => answer(&request),
        Err(refusal) => refusal,
    };
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    stream.set_write_timeout(Some(Duration::from_secs(REQUEST_SECONDS_MAX)))?;
    stream.write_all(text.as_bytes())
}

/// The request, or why it is refused.
fn read_request(stream: &mut TcpStream, posts: &[&str]) -> io::Result<Result<Request, Answer>> {
    let deadline = Instant::now() + Duration::from_secs(REQUEST_SECONDS_MAX);
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() > REQUEST_BYTES_MAX {
            return Ok(Err(Answer::line("431 Request Header Fields Too Large", "request too long")));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => request.extend_from_slice(&part[..count]),
            // So ends a wait that is bounded when the process was stopped and goes on.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let head = String::from_utf8_lossy(&request);
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let method = words.next().unwrap_or_default();
    let target = words.next().unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let wanted = if posts.contains(&path) { "POST" } else { "GET" };
    if method != wanted {
        return Ok(Err(Answer::line("405 Method Not Allowed", &format!("only {wanted} is served here"))));
    }
    Ok(Ok(Request { path: path.into(), query: query.into(), token: bearer(lines) }))
}

/// The token in the headers, which end with an empty line.
fn bearer<'a>(headers: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut headers = headers.take_while(|line| !line.is_empty()).filter_map(|line| line.split_once(':'));
    let (_, value) = headers.find(|(name, _)| name.eq_ignore_ascii_case("authorization"))?;
    Some(value.trim().strip_prefix("Bearer ")?.trim().to_owned())
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

    fn start(threads: usize) -> SocketAddr {
        serve("127.0.0.1:0".parse().unwrap(), "test", threads, |request| match request.path.as_str() {
            "/here" if request.has("all", "true") => Answer::json(&["everything"]),
            "/here" => Answer::content("text/special", "something".into()),
            _ => Answer::not_found("only /here is here"),
        })
        .unwrap()
    }

    #[test]
    fn who_asks_rightly_is_served_and_others_are_told() {
        let address = start(1);
        let found = ask(address, b"GET /here?x=1 HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(found.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/special\r\nContent-Length: 9\r\n"), "{found}");
        assert!(found.ends_with("\r\n\r\nsomething"), "{found}");
        assert!(ask(address, b"GET /here?x=1&all=true HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n[\"everything\"]"));
        let lost = ask(address, b"GET / HTTP/1.1\r\n\r\n");
        assert!(lost.starts_with("HTTP/1.1 404") && lost.ends_with("only /here is here\n"), "{lost}");
        assert!(ask(address, b"POST /here HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert!(ask(address, &[b'x'; REQUEST_BYTES_MAX + 1025]).starts_with("HTTP/1.1 431"));
        assert_eq!(ask(address, b"\r\n\r\n").split(' ').nth(1), Some("405"));
    }

    #[test]
    fn what_is_done_is_asked_for_by_post_and_the_token_is_read_from_the_headers_alone() {
        let answer = |request: &Request| {
            Answer::line("200 OK", &format!("{:?} {:?}", request.token.as_deref(), request.get("kind")))
        };
        let address = serve_with_posts("127.0.0.1:0".parse().unwrap(), "test", 1, &["/do"], answer).unwrap();
        let said = |request: &[u8]| ask(address, request);
        assert!(said(b"GET /do HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert!(said(b"POST /else HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        let whole = said(b"POST /do?kind=Kill HTTP/1.1\r\nHost: x\r\nauthorization: Bearer abc\r\n\r\n");
        assert!(whole.ends_with("Some(\"abc\") Some(\"Kill\")\n"), "{whole}");
        for other in ["", "Authorization: abc\r\n", "X: Bearer abc\r\n"] {
            let said = said(format!("POST /do HTTP/1.1\r\n{other}\r\nAuthorization: Bearer abc\r\n\r\n").as_bytes());
            assert!(said.ends_with("None None\n"), "{said}");
        }
    }

    #[test]
    fn one_who_says_nothing_keeps_nobody_else_waiting() {
        let address = start(2);
        let _silent = TcpStream::connect(address).unwrap();
        let asked = Instant::now();
        assert!(ask(address, b"GET /here HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
        assert!(asked.elapsed() < Duration::from_secs(REQUEST_SECONDS_MAX), "{:?}", asked.elapsed());
    }
}
