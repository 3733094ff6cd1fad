//! TLS between members, if it is wanted: both sides show certificates. The configurations come from suppliers that are asked for
//! every new connection, so that a server can renew certificates without a restart.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};

/// Gives the newest configuration.
pub type Supplier<T> = Arc<dyn Fn() -> Arc<T> + Send + Sync>;

/// How members authenticate each other.
#[derive(Clone)]
pub struct Tls {
    /// For connections that come in. It should demand a certificate.
    pub server: Supplier<ServerConfig>,
    /// For connections that go out. It should show a certificate.
    pub client: Supplier<ClientConfig>,
    /// The name that all members' certificates carry; `None`: the host in a member's address.
    pub server_name: Option<String>,
}

/// A connection, with or without TLS.
pub(super) trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// A connection that came in. Until it is known whose it is, all that is read must have come by one moment: a limit for each read would
/// never end who sends a byte now and then.
pub(super) struct Impatient {
    socket: TcpStream,
    deadline: Instant,
    is_known: Arc<AtomicBool>,
}

impl Impatient {
    pub(super) fn new(socket: TcpStream, deadline: Instant, is_known: Arc<AtomicBool>) -> Self {
        Self { socket, deadline, is_known }
    }
}

impl Read for Impatient {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if !self.is_known.load(Ordering::Relaxed) {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(ErrorKind::TimedOut, "it did not say in time who it is"));
            }
            self.socket.set_read_timeout(Some(left))?;
        }
        self.socket.read(bytes)
    }
}

impl Write for Impatient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// For a connection that goes out. The handshake happens with the first bytes.
pub(super) fn connect(socket: TcpStream, tls: Option<&Tls>, address: &str) -> io::Result<Box<dyn Stream>> {
    let Some(tls) = tls else { return Ok(Box::new(socket)) };
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    let name = tls.server_name.as_deref().unwrap_or(host).to_owned();
    let name = ServerName::try_from(name).map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
    let connection = ClientConnection::new((tls.client)(), name).map_err(io::Error::other)?;
    Ok(Box::new(StreamOwned::new(connection, socket)))
}

/// For a connection that came in.
pub(super) fn accept(socket: impl Stream + 'static, tls: Option<&Tls>) -> io::Result<Box<dyn Stream>> {
    let Some(tls) = tls else { return Ok(Box::new(socket)) };
    let connection = ServerConnection::new((tls.server)()).map_err(io::Error::other)?;
    Ok(Box::new(StreamOwned::new(connection, socket)))
}

/// An error of the first words over a connection. What comes from an end that speaks TLS to one that does not, or the other way round, looks like
/// damage: it is asked whether it is that.
pub(super) fn hinted(error: io::Error, tls: Option<&Tls>) -> io::Error {
    let is_end = matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset);
    let is_other = match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        // Others are about certificates, and say what is wrong with them.
        Some(error) => matches!(error, rustls::Error::InvalidMessage(_)),
        None => is_end || error.kind() == ErrorKind::InvalidData,
    };
    if !is_other {
        return error;
    }
    let own = if tls.is_some() { "speaks TLS" } else { "speaks no TLS" };
    let text = format!("{error} (this member {own} to other members: is the other end a member that does the same?)");
    io::Error::new(error.kind(), text)
}
