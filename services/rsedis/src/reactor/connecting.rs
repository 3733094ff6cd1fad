//! Connections to a master are made by a thread, since names must be looked up.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// Connects on another thread. `source`: the address to connect from (`bind-source-addr`), or nothing.
pub(super) fn connect(
    host: String,
    port: u16,
    source: &str,
    most: Duration,
) -> io::Result<Receiver<io::Result<TcpStream>>> {
    let source = match source {
        "" => None,
        address => Some(address.parse::<IpAddr>().map_err(io::Error::other)?),
    };
    let (reply, connected) = channel();
    let attempt = move || {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in (host.as_str(), port).to_socket_addrs()? {
            let stream = match source {
                None => TcpStream::connect_timeout(&address, most),
                Some(source) => connect_from(source, address, most),
            };
            match stream {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    };
    // Whoever asked may have given up.
    thread::Builder::new().name("connect".into()).spawn(move || drop(reply.send(attempt())))?;
    Ok(connected)
}

fn connect_from(source: IpAddr, address: SocketAddr, most: Duration) -> io::Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, ipproto, socket_with, sockopt};
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, Some(ipproto::TCP))?;
    bind(&socket, &SocketAddr::new(source, 0))?;
    // Linux bounds a connect by it as well.
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(most))?;
    connect(&socket, &address)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, None)?;
    Ok(socket.into())
}
