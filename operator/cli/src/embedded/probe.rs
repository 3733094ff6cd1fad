//! Asks a store for its first answer over its own protocol: a store is ready when it answers, not when it listens.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use storebench_core::engine::Protocol;

/// A store that does not answer within this is asked again.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// No answer to a probe is longer, bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Whether the store at this address answers.
///
/// etcd: `GET /readyz`, which includes a linearizable read. Redis: `PING`, refused while the store loads its data.
pub(crate) fn answers(protocol: Protocol, address: SocketAddr) -> bool {
    match protocol {
        Protocol::Etcd => {
            let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
            ask(address, request.as_bytes(), b"\r\n").is_ok_and(|answer| answer.starts_with(b"HTTP/1.1 200"))
        }
        Protocol::Redis => {
            ask(address, b"*1\r\n$4\r\nPING\r\n", b"\r\n").is_ok_and(|answer| answer.starts_with(b"+PONG"))
        }
    }
}

/// Sends a request and reads until `end` has come.
fn ask(address: SocketAddr, request: &[u8], end: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_TIMEOUT)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_nodelay(true)?;
    stream.write_all(request)?;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    while answer.len() < ANSWER_BYTES_MAX && !answer.windows(end.len()).any(|window| window == end) {
        match stream.read(&mut buffer)? {
            0 => break,
            count => answer.extend_from_slice(&buffer[..count]),
        }
    }
    Ok(answer)
}
