//! How a newcomer learns whom it joins, before it is a member.

use std::io::{self, ErrorKind, Write as _};
use std::net::TcpStream;

use super::frame::{self, INTRODUCTION_BYTES_MAX};
use super::receiver::read_frame;
use super::sender::connect;
use super::tls::{self, Stream, Tls};

/// Asks the server of a member at an address (`host:port`) for its [`super::Host::introduction`]. Blocks, a few seconds at most.
pub fn ask(address: &str, tls: Option<&Tls>) -> io::Result<Vec<u8>> {
    connect(address, None, |socket| ask_over(socket, address, tls))
}

/// The same, over a connection that is there.
pub(super) fn ask_over(socket: TcpStream, address: &str, tls: Option<&Tls>) -> io::Result<Vec<u8>> {
    let mut stream = tls::connect(socket, tls, address)?;
    let mut bytes = Vec::new();
    frame::encode_newcomer(&mut bytes);
    ask_frame(&mut stream, INTRODUCTION_BYTES_MAX, &mut bytes).map_err(|error| tls::hinted(error, tls))?;
    Ok(bytes)
}

/// Writes a frame, and reads in its place the one that answers it.
pub(super) fn ask_frame(stream: &mut Box<dyn Stream>, bytes_max: usize, bytes: &mut Vec<u8>) -> io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()?;
    match read_frame(stream, bytes_max, bytes)? {
        true => Ok(()),
        false => Err(ErrorKind::UnexpectedEof.into()),
    }
}
