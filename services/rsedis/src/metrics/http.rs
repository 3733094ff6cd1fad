//! `/metrics` and `/health` over HTTP/1.1, one request for each connection. Without TLS and passwords: for a network that is trusted.
//!
//! No more than [`CONNECTIONS_MAX`] clients are served at a time, and who comes beyond is closed. A client has [`CLIENT_PATIENCE`] for its
//! request, of at most [`HEAD_BYTES_MAX`], and as long for taking the answer. The executor has [`EXECUTOR_PATIENCE`] to say how it is.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::{Metrics, exposition};

/// See the module's description, here and below.
const CONNECTIONS_MAX: usize = 8;
const HEAD_BYTES_MAX: usize = 8 << 10;
const CLIENT_PATIENCE: Duration = Duration::from_secs(3);
/// Less than the second that Kubernetes gives a probe, so that whoever probes hears why.
const EXECUTOR_PATIENCE: Duration = Duration::from_millis(800);
/// A pause when no connection can be taken, for want of files: whoever waits stays.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const TEXT: &str = "text/plain; charset=utf-8";
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers from now on, on threads of its own.
pub fn serve(listener: TcpListener, metrics: Arc<Metrics>) -> io::Result<()> {
    thread::Builder::new().name("metrics".into()).spawn(move || accept(&listener, &metrics))?;
    Ok(())
}

fn accept(listener: &TcpListener, metrics: &Arc<Metrics>) {
    // Each connection holds one of it.
    let places = Arc::new(());
    loop {
        let Ok((stream, _)) = listener.accept() else {
            thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        if Arc::strong_count(&places) > CONNECTIONS_MAX {
            continue;
        }
        let (metrics, place) = (Arc::clone(metrics), Arc::clone(&places));
        let client = thread::Builder::new().name("metrics-client".into()).spawn(move || {
            // Who has gone, or is too slow, gets no answer.
            drop(answer(&stream, &metrics));
            drop(place);
        });
        // Without a thread, the connection was closed.
        drop(client);
    }
}

fn answer(stream: &TcpStream, metrics: &Metrics) -> io::Result<()> {
    let Some(head) = read_head(stream)? else {
        return reply(stream, "431 Request Header Fields Too Large", TEXT, "a request has at most 8 KiB here\n");
    };
    let head = String::from_utf8_lossy(&head);
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    match (method, path) {
        ("GET", "/metrics") => {
            let info = metrics.ask(EXECUTOR_PATIENCE);
            reply(stream, "200 OK", EXPOSITION, &exposition::page(info.as_deref(), metrics))
        }
        ("GET", "/health") => match why_unhealthy(metrics.ask(EXECUTOR_PATIENCE).as_deref()) {
            None => reply(stream, "200 OK", TEXT, "ok\n"),
            Some(why) => reply(stream, "503 Service Unavailable", TEXT, why),
        },
        ("GET", _) => reply(stream, "404 Not Found", TEXT, "there are /metrics and /health\n"),
        _ => reply(stream, "405 Method Not Allowed", TEXT, "only GET is answered here\n"),
    }
}

/// Why clients are not served, if they are not.
fn why_unhealthy(info: Option<&str>) -> Option<&'static str> {
    match info {
        None => {
            Some("the executor has said nothing for 800 ms: it runs a command or a script, or waits for the disk\n")
        }
        Some(info) if info.contains("\nloading:1\r\n") => Some("data are being read\n"),
        Some(_) => None,
    }
}

/// A request up to its empty line; nothing if that is too far away.
fn read_head(mut stream: &TcpStream) -> io::Result<Option<Vec<u8>>> {
    let deadline = Instant::now() + CLIENT_PATIENCE;
    let (mut head, mut piece) = (Vec::new(), [0; 1024]);
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        if head.len() >= HEAD_BYTES_MAX {
            return Ok(None);
        }
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut piece) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => head.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(head))
}

fn reply(mut stream: &TcpStream, status: &str, kind: &str, body: &str) -> io::Result<()> {
    let text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let (mut rest, deadline) = (text.as_bytes(), Instant::now() + CLIENT_PATIENCE);
    while !rest.is_empty() {
        // Of the whole answer, and not of each piece: who takes a byte a second is too slow.
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// How long it is until then. Errors: it is over.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}
