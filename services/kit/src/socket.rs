//! Sockets that clients connect to: of TCP, or files of this machine (`unix://PATH`).

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use tokio::io::Interest;

use crate::url::Url;

/// Connections that wait to be accepted, or as many as the system allows: the library's 128 are soon there, and the next one waits for
/// a second before it tries again.
const BACKLOG: i32 = 4096;

/// A socket that listens.
#[derive(Debug)]
pub enum Listener {
    /// Of TCP.
    Tcp(TcpListener),
    /// A file.
    Unix(UnixListener, SocketFile),
}

/// The name of a socket, for as long as somebody listens.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Who comes next removes it as well.
        let _ = fs::remove_file(&self.0);
    }
}

impl Listener {
    /// Listens where a URL says.
    pub fn bind(url: &Url) -> io::Result<Self> {
        if !url.is_unix {
            return bind_tcp(url).map(Self::Tcp);
        }
        let path = PathBuf::from(&url.host);
        // Of a server that was killed. As with etcd, nobody asks whether another one listens there.
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let listener = UnixListener::bind(&path)?;
        rustix::net::listen(&listener, BACKLOG)?;
        Ok(Self::Unix(listener, SocketFile(path)))
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        match self {
            Self::Tcp(socket) => socket.local_addr().map(|address| address.to_string()).unwrap_or_default(),
            Self::Unix(_, SocketFile(path)) => path.display().to_string(),
        }
    }

    /// Begins to accept, on a tokio runtime.
    pub fn accepting(self) -> io::Result<Accepting> {
        match self {
            Self::Tcp(socket) => {
                socket.set_nonblocking(true)?;
                Ok(Accepting::Tcp(tokio::net::TcpListener::from_std(socket)?))
            }
            Self::Unix(socket, file) => {
                socket.set_nonblocking(true)?;
                Ok(Accepting::Unix(tokio::net::UnixListener::from_std(socket)?, file))
            }
        }
    }
}

/// A name that has both kinds of addresses is bound by the older one, as Go does.
pub fn bind_tcp(url: &Url) -> io::Result<TcpListener> {
    let host = url.host.trim_start_matches('[').trim_end_matches(']');
    let mut addresses = (host, url.port).to_socket_addrs()?.collect::<Vec<SocketAddr>>();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    let listener = TcpListener::bind(addresses.as_slice())?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// A socket that accepts.
#[derive(Debug)]
pub enum Accepting {
    /// Of TCP.
    Tcp(tokio::net::TcpListener),
    /// A file.
    Unix(tokio::net::UnixListener, SocketFile),
}

impl Accepting {
    /// The next connection.
    pub async fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(socket) => {
                let stream = socket.accept().await?.0.into_std()?;
                // Answers are written whole: waiting for more would only delay them.
                let _ = stream.set_nodelay(true);
                Ok(Socket::Tcp(stream))
            }
            Self::Unix(socket, _) => Ok(Socket::Unix(socket.accept().await?.0.into_std()?)),
        }
    }
}

/// A connection, on no runtime yet.
#[derive(Debug)]
pub enum Socket {
    /// Of TCP.
    Tcp(TcpStream),
    /// Of this machine.
    Unix(UnixStream),
}

/// A connection, on a runtime.
pub trait Stream {
    /// Where it comes from.
    fn from(&self) -> String;

    /// The first byte, which stays to be read.
    fn peek_first(&self) -> impl Future<Output = io::Result<u8>>;
}

impl Stream for tokio::net::TcpStream {
    fn from(&self) -> String {
        self.peer_addr().map(|address| address.to_string()).unwrap_or_default()
    }

    async fn peek_first(&self) -> io::Result<u8> {
        let mut first = [0];
        at_least_one(self.peek(&mut first).await?)?;
        Ok(first[0])
    }
}

impl Stream for tokio::net::UnixStream {
    fn from(&self) -> String {
        "this machine".into()
    }

    async fn peek_first(&self) -> io::Result<u8> {
        let mut first = [0];
        let peek = || Ok(rustix::net::recv(self, &mut first[..], rustix::net::RecvFlags::PEEK)?.0);
        at_least_one(self.async_io(Interest::READABLE, peek).await?)?;
        Ok(first[0])
    }
}

fn at_least_one(count: usize) -> io::Result<()> {
    if count == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}
