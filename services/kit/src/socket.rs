//! Sockets that clients connect to: of TCP, or files of this machine (`unix://PATH`).
//!
//! Of what lies where a socket is to be, nothing is removed but a socket at which nobody answers.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
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

/// The name of a socket, for as long as somebody listens, and which file it is.
#[derive(Debug)]
pub struct SocketFile(PathBuf, Option<(u64, u64)>);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Who comes next removes it as well; what has its name by now is somebody else's.
        if self.1.is_some() && identity(&self.0) == self.1 {
            let _ = fs::remove_file(&self.0);
        }
    }
}

/// Which file has a name now.
fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

impl Listener {
    /// Listens where a URL says.
    ///
    /// # Errors
    /// Somebody listens there already, or what lies there is no socket: nothing of it is touched.
    pub fn bind(url: &Url) -> io::Result<Self> {
        if !url.is_unix {
            return bind_tcp(url).map(Self::Tcp);
        }
        let path = PathBuf::from(&url.host);
        make_room(&path)?;
        let listener = UnixListener::bind(&path)?;
        let identity = identity(&path);
        let file = SocketFile(path, identity);
        rustix::net::listen(&listener, BACKLOG)?;
        Ok(Self::Unix(listener, file))
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        match self {
            Self::Tcp(socket) => socket.local_addr().map(|address| address.to_string()).unwrap_or_default(),
            Self::Unix(_, SocketFile(path, _)) => path.display().to_string(),
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

/// Removes the socket of a server that was killed, and nothing else.
fn make_room(path: &Path) -> io::Result<()> {
    let refuse = |kind, text: &str| Err(io::Error::new(kind, text));
    let is_socket = match fs::symlink_metadata(path) {
        Ok(found) => found.file_type().is_socket(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !is_socket {
        return refuse(io::ErrorKind::AlreadyExists, "what lies there is no socket, and stays: name another path");
    }
    // Whoever is asked does not hold us up: where too many wait to be accepted that is an answer, too.
    let asking = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    match rustix::net::connect(&asking, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path),
        Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE) => {
            refuse(io::ErrorKind::AddrInUse, "somebody listens there already: end it, or name another path")
        }
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(path: &Path) -> io::Result<Listener> {
        Listener::bind(&format!("unix://{}", path.display()).parse().unwrap())
    }

    #[test]
    fn what_is_no_socket_stays_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link, nowhere] = ["precious.db", "link", "nowhere"].map(|name| folder.path().join(name));
        fs::write(&file, "precious").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        std::os::unix::fs::symlink(folder.path().join("none"), &nowhere).unwrap();
        for path in [&file, &link, &nowhere, &folder.path().to_owned()] {
            let error = bind(path).unwrap_err();
            assert!(error.to_string().contains("is no socket, and stays"), "{path:?}: {error}");
        }
        assert_eq!(fs::read(&file).unwrap(), b"precious");
        assert!(link.is_symlink() && nowhere.is_symlink());
    }

    #[test]
    fn a_socket_is_taken_over_from_a_server_that_was_killed_and_from_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        // What a killed server leaves.
        drop(UnixListener::bind(&path).unwrap());
        let first = bind(&path).unwrap();
        let error = bind(&path).unwrap_err();
        assert!(error.to_string().contains("somebody listens there already"), "{error}");
        assert!(UnixStream::connect(&path).is_ok(), "the first is still found");
        drop(first);
        assert!(!path.exists());
        let datagrams = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        assert_eq!(bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(datagrams);
    }

    #[test]
    fn a_server_whose_queue_is_full_listens_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let server = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&server, 0).unwrap();
        let _waits = UnixStream::connect(&path).unwrap();
        assert_eq!(bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn who_ends_removes_no_file_that_somebody_else_put_in_the_place_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let first = bind(&path).unwrap();
        fs::rename(&path, folder.path().join("away")).unwrap();
        let second = bind(&path).unwrap();
        drop(first);
        assert!(UnixStream::connect(&path).is_ok());
        drop(second);
        assert!(!path.exists());
    }
}
