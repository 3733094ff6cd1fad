//! A server that answers with what it is asked, for those who stand between a client and a server; and the client's side of it.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::LONG;

/// How long nothing must come before a stream is called silent.
const SILENCE: Duration = Duration::from_millis(200);

/// Answers with what it is asked, at a port of loopback, for as long as the test runs.
pub fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut buffer = [0; 100];
                while let Ok(read @ 1..) = stream.read(&mut buffer) {
                    stream.write_all(&buffer[..read]).unwrap();
                }
            });
        }
    });
    address
}

/// Connects, and waits for no answer forever.
#[track_caller]
pub fn connect(address: impl ToSocketAddrs) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// What comes next, as far as it comes at once.
#[track_caller]
pub fn answer(stream: &mut TcpStream) -> String {
    let mut buffer = [0; 1000];
    let read = stream.read(&mut buffer).unwrap();
    String::from_utf8(buffer[..read].to_vec()).unwrap()
}

/// Nothing comes, and nothing ends either.
#[track_caller]
pub fn is_silent(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(SILENCE)).unwrap();
    let said = stream.read(&mut [0; 9]).unwrap_err().kind();
    assert!(matches!(said, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{said:?}");
    stream.set_read_timeout(Some(LONG)).unwrap();
}
