//! What is spoken on each socket, and who answers.
//!
//! One port speaks everything: TLS where there are certificates, HTTP/2 for gRPC, HTTP/1.1 for the rest. The first bytes tell.

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::grpc::{self, Limits, Memory, Peer, Service};
use crate::http::Incoming as Pieces;
use crate::http1;
use crate::lines::Lines;
use crate::places::Life;
use crate::socket::{Listener, Socket, Stream};
use crate::tls::{self, Tls};
use crate::url::Url;
use crate::workers::Incoming;

/// How long a client may take to say what it speaks.
const GREETING_TIMEOUT: Duration = Duration::from_secs(30);
/// How every connection of HTTP/2 begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The first byte of TLS.
const TLS_HANDSHAKE: u8 = 0x16;

/// What is served on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Role {
    /// gRPC.
    pub grpc: bool,
    /// HTTP/1.1.
    pub http: bool,
    /// Connections without TLS are served.
    pub plain: bool,
    /// Connections with TLS are served.
    pub tls: bool,
}

/// Where to listen, and what is served there.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// Where.
    pub urls: &'a [Url],
    /// gRPC is served.
    pub grpc: bool,
    /// HTTP/1.1 is served.
    pub http: bool,
}

/// Binds a socket for each address; URLs that differ in nothing but the scheme share one.
pub fn bind(groups: &[Group<'_>]) -> io::Result<Vec<(Listener, Role)>> {
    let mut bound: Vec<(&Url, Listener, Role)> = Vec::new();
    for Group { urls, grpc, http } in groups {
        for url in *urls {
            let known = bound.iter_mut().find(|(other, ..)| (&other.host, other.port) == (&url.host, url.port));
            if let Some((_, _, role)) = known {
                role.plain |= !url.is_tls;
                role.tls |= url.is_tls;
                continue;
            }
            let listener =
                Listener::bind(url).map_err(|error| io::Error::new(error.kind(), format!("{url}: {error}")))?;
            let role = Role { grpc: *grpc, http: *http, plain: !url.is_tls, tls: url.is_tls };
            bound.push((url, listener, role));
        }
    }
    Ok(bound.into_iter().map(|(_, listener, role)| (listener, role)).collect())
}

/// A socket, or TLS on one.
trait Connection: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Connection for T {}

/// What serves the connections of one worker thread.
pub struct Front<S> {
    /// Who answers.
    pub service: Rc<S>,
    /// Certificates.
    pub tls: Option<Arc<Tls>>,
    /// What each socket serves.
    pub roles: Arc<[Role]>,
    /// What a connection may use.
    pub limits: Limits,
    /// What messages under way on all connections may take.
    pub memory: Memory,
    /// How often it is told that connections were rejected: whoever comes and goes must not fill the log.
    pub(crate) rejected: RefCell<Lines>,
}

impl<S: Service> Front<S> {
    /// Serves a connection to its end.
    pub async fn serve(self: Rc<Self>, incoming: Incoming, stop: watch::Receiver<bool>) {
        let Some(role) = self.roles.get(incoming.listener).copied() else { return };
        // An error says that the client has gone again.
        let peer = Peer { listener: incoming.listener, ..Peer::default() };
        let presence = incoming.place.presence();
        match incoming.socket {
            Socket::Tcp(socket) => {
                let Ok(socket) = TcpStream::from_std(socket) else { return };
                self.greet(socket, peer, role, (presence, stop)).await;
            }
            Socket::Unix(socket) => {
                let Ok(socket) = UnixStream::from_std(socket) else { return };
                self.greet(socket, peer, role, (presence, stop)).await;
            }
        }
    }

    // What comes next is allocated when it is reached: who says nothing keeps no room for all that a connection may become.
    async fn greet<T>(&self, socket: T, mut peer: Peer, role: Role, life: Life)
    where
        T: Stream + AsFd + AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let Ok(Ok(first)) = timeout(GREETING_TIMEOUT, socket.peek_first()).await else { return };
        peer.address = socket.from();
        if first != TLS_HANDSHAKE {
            if role.plain {
                Box::pin(self.speak(Box::new(socket), peer, role, life)).await;
            } else {
                refuse_plain(&socket);
            }
            return;
        }
        let (true, Some(tls)) = (role.tls, &self.tls) else { return };
        let handshake = Box::pin(TlsAcceptor::from(tls.config()).accept(socket));
        match timeout(GREETING_TIMEOUT, handshake).await {
            Ok(Ok(stream)) => {
                let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
                peer.is_tls = true;
                peer.common_name = certificates.first().and_then(|certificate| tls::common_name(certificate));
                Box::pin(self.speak(Box::new(stream), peer, role, life)).await;
            }
            Ok(Err(error)) => {
                let mut lines = self.rejected.borrow_mut();
                if let Some(connections) = lines.one_more(Instant::now()) {
                    tracing::warn!(%error, address = peer.address, connections, "rejected connection on client endpoint");
                }
            }
            Err(_) => {}
        }
    }

    // Whatever it is written to, HTTP is compiled once: a call by a table costs nothing beside the system call behind it.
    async fn speak(&self, mut io: Box<dyn Connection>, peer: Peer, role: Role, life: Life) {
        let Ok(Ok(greeting)) = timeout(GREETING_TIMEOUT, greeting(&mut io)).await else { return };
        let is_http2 = greeting == PREFACE;
        let io = Rewound { greeting, read: 0, io };
        let bounds = (self.limits.clone(), self.memory.clone());
        if is_http2 && role.grpc {
            Box::pin(grpc::serve(io, Rc::clone(&self.service), Rc::new(peer), bounds, life)).await;
        } else if is_http2 && role.http {
            let service = Rc::new(HttpOnly(Rc::clone(&self.service)));
            Box::pin(grpc::serve(io, service, Rc::new(peer), bounds, life)).await;
        } else if !is_http2 && role.http {
            Box::pin(http1::serve(io, Rc::clone(&self.service), Rc::new(peer), bounds, life)).await;
        }
    }
}

/// A service without its gRPC. Who comes by TLS chooses HTTP/2 for the rest, too.
struct HttpOnly<S>(Rc<S>);

impl<S: Service> Service for HttpOnly<S> {
    type Method = Infallible;

    fn method(&self, _: &str) -> Option<(Infallible, bool)> {
        None
    }

    fn unary(&self, method: Infallible, _: grpc::Caller, _: Bytes) -> grpc::Unary {
        match method {}
    }

    fn stream(&self, method: Infallible, _: grpc::Caller, _: grpc::Requests, _: grpc::Responses) -> grpc::Stream {
        match method {}
    }

    fn http(&self, head: request::Parts, body: Pieces, peer: Rc<Peer>) -> Option<grpc::HttpAnswer> {
        self.0.http(head, body, peer)
    }
}

/// Somebody forgot the `s` of `https`.
fn refuse_plain(socket: impl AsFd) {
    // An error: it has gone.
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
}

/// Reads as much as is needed to tell HTTP/2 from HTTP/1.1.
async fn greeting<T: AsyncRead + Unpin>(io: &mut T) -> io::Result<Vec<u8>> {
    let mut greeting = Vec::with_capacity(PREFACE.len());
    while greeting.len() < PREFACE.len() && PREFACE.starts_with(&greeting) {
        let mut left = [0; PREFACE.len()];
        let wanted = PREFACE.len() - greeting.len();
        let count = io.read(&mut left[..wanted]).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        greeting.extend_from_slice(&left[..count]);
    }
    Ok(greeting)
}

/// A connection whose first bytes were read, and are read again.
struct Rewound<T> {
    greeting: Vec<u8>,
    read: usize,
    io: T,
}

impl<T: AsyncRead + Unpin> AsyncRead for Rewound<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read < self.greeting.len() {
            let count = buffer.remaining().min(self.greeting.len() - self.read);
            buffer.put_slice(&self.greeting[self.read..self.read + count]);
            self.read += count;
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Rewound<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
