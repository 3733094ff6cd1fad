//! What a publisher hears of a server that stops while it sends.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::thread;

use super::*;

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u8, content: &[u8]) -> Vec<u8> {
    [&(content.len() as u32).to_be_bytes()[1..], &[kind, flags, 0, 0, 0, stream], content].concat()
}

/// A header that no table knows, nor will.
fn header(name: &str, value: &str) -> Vec<u8> {
    [&[0, name.len() as u8], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat()
}

/// It goes on to send until it sees that the connection has ended, and answers no ping, so that nobody knows whether it has heard that no
/// stream is taken any more. A socket that is closed while something comes resets it, and some clients tell of that and not of what they were
/// told before.
#[test]
fn a_publisher_that_sends_while_the_server_stops_hears_so_and_is_not_reset() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    let mut socket = TcpStream::connect(&server.address).unwrap();
    socket.set_nodelay(true).unwrap();
    let headers = [
        header(":method", "POST"),
        header(":scheme", "http"),
        header(":path", PUBLISH),
        header(":authority", "a"),
        header("content-type", "application/grpc"),
        header("te", "trailers"),
    ];
    let preface =
        [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, 0, &[]), frame(1, 4, 1, &headers.concat())];
    socket.write_all(&preface.concat()).unwrap();
    // Messages that have an empty set of items each, again and again; so many that nobody takes the frame for one of an attack.
    let messages = frame(0, 0, 1, &[0, 0, 0, 0, 2, 0x0a, 0].repeat(100));
    let mut sending = socket.try_clone().unwrap();
    let sends = thread::spawn(move || {
        while sending.write_all(&messages).is_ok() {
            thread::sleep(Duration::from_millis(1));
        }
    });
    thread::sleep(Duration::from_millis(200));
    let ends = thread::spawn(move || server.terminate());
    let (mut heard, mut piece) = (Vec::new(), [0; 1 << 16]);
    let end = loop {
        match socket.read(&mut piece) {
            Ok(0) => break None,
            Ok(count) => heard.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => break Some(error),
        }
        // A reset may be here before it looks again.
        thread::sleep(Duration::from_millis(50));
    };
    let _ = socket.shutdown(std::net::Shutdown::Both);
    sends.join().unwrap();
    // SUCCESS, and no block.
    let last = [[0x12, 13, 0x08, 1, 0x10].as_slice(), &[0xff; 9], &[1]].concat();
    assert!(heard.windows(last.len()).any(|part| part == last), "it was told nothing: {heard:?}");
    assert!(end.is_none(), "{end:?}");
    assert!(ends.join().unwrap());
}
