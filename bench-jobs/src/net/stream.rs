//! A connection whose bytes are written and read at once as far as the socket goes along, in the clear or over TLS.
//!
//! What is written is as good as sent: what the socket does not take at once is given to it whenever the connection is read or waited for.

use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

use rustls::ClientConnection;
use tokio::io::{AsyncReadExt, Interest, Ready};
use tokio::net::TcpStream;

use crate::failure::Failure;
use crate::net::dial::dial;
use crate::net::tls::Tls;

/// A connection to a store.
#[derive(Debug)]
pub enum Stream {
    /// Bytes as they are.
    Clear(TcpStream),
    /// Bytes that nobody else reads.
    Encrypted(Box<Encrypted>),
}

impl Stream {
    /// Connects as patiently as [`dial`]; over TLS a handshake follows, within `limit`.
    pub async fn connect(endpoint: &str, tls: Option<&Tls>, limit: Duration) -> Result<Self, Failure> {
        let socket = dial(endpoint).await?;
        Ok(match tls {
            None => Self::Clear(socket),
            Some(tls) => {
                let (socket, session) = tls.connect(socket, endpoint, limit).await?.into_inner();
                Self::Encrypted(Box::new(Encrypted { socket, session }))
            }
        })
    }

    /// Takes the first of these bytes: how many. Errors: `WouldBlock` where it takes none now.
    #[inline]
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Clear(socket) => socket.try_write(bytes),
            Self::Encrypted(encrypted) => encrypted.try_write(bytes),
        }
    }

    /// Gives what has come: how many bytes, 0 where the other side has ended. Errors: `WouldBlock` where nothing has come.
    #[inline]
    pub fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Clear(socket) => socket.try_read(into),
            Self::Encrypted(encrypted) => encrypted.try_read(into),
        }
    }

    /// The same, and waits until something has come.
    #[inline]
    pub async fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Clear(socket) => socket.read(into).await,
            Self::Encrypted(encrypted) => encrypted.read(into).await,
        }
    }

    /// Waits until something may be read or written.
    pub async fn ready(&self) -> io::Result<Ready> {
        let socket = match self {
            Self::Clear(socket) => socket,
            Self::Encrypted(encrypted) => &encrypted.socket,
        };
        socket.ready(Interest::READABLE | Interest::WRITABLE).await
    }
}

/// A connection over TLS after its handshake.
#[derive(Debug)]
pub struct Encrypted {
    socket: TcpStream,
    session: ClientConnection,
}

impl Encrypted {
    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Nothing more is taken before the socket has what was taken before.
        self.flush()?;
        let taken = self.session.writer().write(bytes)?;
        unless_blocked(self.flush())?;
        Ok(taken)
    }

    fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        unless_blocked(self.flush())?;
        loop {
            match self.session.reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                given => return given,
            }
            if self.session.read_tls(&mut Socket(&self.socket))? == 0 {
                return Ok(0);
            }
            if let Err(error) = self.session.process_new_packets() {
                // The other side is told why, if it still listens.
                drop(self.flush());
                return Err(io::Error::new(ErrorKind::InvalidData, error));
            }
        }
    }

    async fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.try_read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                given => return given,
            }
            let both = Interest::READABLE | Interest::WRITABLE;
            self.socket.ready(if self.session.wants_write() { both } else { Interest::READABLE }).await?;
        }
    }

    /// Gives the socket what it takes. Errors: `WouldBlock` where something is left.
    fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            if self.session.write_tls(&mut Socket(&self.socket))? == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }
}

/// That the socket takes no more now is no error where something else is to be done first.
fn unless_blocked(flushed: io::Result<()>) -> io::Result<()> {
    match flushed {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        flushed => flushed,
    }
}

/// A socket as TLS sees it: it never waits.
struct Socket<'a>(&'a TcpStream);

impl Read for Socket<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(into)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
