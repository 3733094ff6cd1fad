//! Sockets with epoll.

use std::io::{self, ErrorKind, Read as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::net::SendFlags;

use super::{Accepted, Event, Received, Sockets};

/// Numbers of what is no client.
const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;
/// Events taken at once.
const EVENTS_MAX: usize = 1024;

/// Where clients connect.
#[derive(Debug)]
pub enum Listener {
    /// An address.
    Tcp(TcpListener),
    /// A file, by its path.
    Unix(UnixListener, String),
}

impl Listener {
    fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener, _) => listener.as_fd(),
        }
    }
}

/// Who is at the other end, and where it came to.
struct Ends {
    address: String,
    local_address: String,
    is_local: bool,
}

/// See the module's description.
pub struct EpollSockets {
    epoll: OwnedFd,
    listeners: Vec<Listener>,
    streams: Vec<Option<OwnedFd>>,
    free: Vec<usize>,
    ready: Vec<epoll::Event>,
    stop: UnixStream,
}

impl EpollSockets {
    /// Takes connections from listeners; a byte from `stop` asks the process to stop.
    pub fn new(listeners: Vec<Listener>, stop: UnixStream) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        for listener in &listeners {
            match listener {
                Listener::Tcp(listener) => listener.set_nonblocking(true)?,
                Listener::Unix(listener, _) => listener.set_nonblocking(true)?,
            }
            epoll::add(&epoll, listener.descriptor(), EventData::new_u64(LISTENER), EventFlags::IN)?;
        }
        stop.set_nonblocking(true)?;
        epoll::add(&epoll, &stop, EventData::new_u64(STOP), EventFlags::IN)?;
        let ready = Vec::with_capacity(EVENTS_MAX);
        Ok(Self { epoll, listeners, streams: Vec::new(), free: Vec::new(), ready, stop })
    }

    fn stream(&self, slot: usize) -> Option<BorrowedFd<'_>> {
        Some(self.streams.get(slot)?.as_ref()?.as_fd())
    }

    fn keep_tcp(&mut self, stream: TcpStream, peer: SocketAddr, keepalive_seconds: u32) -> io::Result<Accepted> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        if keepalive_seconds > 0 {
            rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
            let seconds = Duration::from_secs(u64::from(keepalive_seconds));
            rustix::net::sockopt::set_tcp_keepidle(&stream, seconds)?;
        }
        let local = stream.local_addr()?;
        let is_local = match peer.ip().to_canonical() {
            IpAddr::V4(address) => address.is_loopback(),
            IpAddr::V6(address) => address.is_loopback(),
        };
        self.keep(stream.into(), Ends { address: peer.to_string(), local_address: local.to_string(), is_local })
    }

    fn keep(&mut self, stream: OwnedFd, ends: Ends) -> io::Result<Accepted> {
        let slot = self.free.pop().unwrap_or(self.streams.len());
        if slot == self.streams.len() {
            self.streams.push(None);
        }
        let added = epoll::add(&self.epoll, &stream, EventData::new_u64(slot as u64), EventFlags::IN);
        if let Err(error) = added {
            self.free.push(slot);
            return Err(error.into());
        }
        self.streams[slot] = Some(stream);
        let Ends { address, local_address, is_local } = ends;
        Ok(Accepted { slot, address, local_address, is_local })
    }
}

impl Sockets for EpollSockets {
    fn wait(&mut self, most: Duration, events: &mut Vec<Event>) -> io::Result<()> {
        self.ready.clear();
        let most = rustix::event::Timespec { tv_sec: most.as_secs() as _, tv_nsec: most.subsec_nanos() as _ };
        match epoll::wait(&self.epoll, spare_capacity(&mut self.ready), Some(&most)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        for event in &self.ready {
            let (number, flags) = (event.data.u64(), event.flags);
            match number {
                LISTENER => events.push(Event::Accept),
                STOP => {
                    // Asked once: an end that is refused is not tried again at every turn.
                    let mut asked = [0; 16];
                    drop((&self.stop).read(&mut asked));
                    events.push(Event::Stop);
                }
                slot => {
                    if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                        events.push(Event::Readable(slot as usize));
                    }
                    if flags.contains(EventFlags::OUT) {
                        events.push(Event::Writable(slot as usize));
                    }
                }
            }
        }
        Ok(())
    }

    fn want_clients(&mut self, wanted: bool) -> io::Result<()> {
        let flags = if wanted { EventFlags::IN } else { EventFlags::empty() };
        for listener in &self.listeners {
            epoll::modify(&self.epoll, listener.descriptor(), EventData::new_u64(LISTENER), flags)?;
        }
        Ok(())
    }

    fn accept(&mut self, keepalive_seconds: u32) -> io::Result<Option<Accepted>> {
        for place in 0..self.listeners.len() {
            let accepted = match &self.listeners[place] {
                Listener::Tcp(listener) => match listener.accept() {
                    Ok((stream, peer)) => self.keep_tcp(stream, peer, keepalive_seconds).map(Some),
                    Err(error) => Err(error),
                },
                Listener::Unix(listener, path) => match listener.accept() {
                    Ok((stream, _)) => {
                        stream.set_nonblocking(true)?;
                        let address = format!("{path}:0");
                        let ends = Ends { address: address.clone(), local_address: address, is_local: true };
                        self.keep(stream.into(), ends).map(Some)
                    }
                    Err(error) => Err(error),
                },
            };
            match accepted {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted) => {}
                accepted => return accepted,
            }
        }
        Ok(None)
    }

    #[inline]
    fn receive(&mut self, slot: usize, into: &mut Vec<u8>, most: usize) -> Received {
        let Some(stream) = self.stream(slot) else { return Received::Nothing };
        into.reserve(most);
        match rustix::io::read(stream, spare_capacity(into)) {
            Ok(0) => Received::End,
            Ok(count) => Received::Bytes(count),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Received::Nothing,
            Err(_) => Received::End,
        }
    }

    #[inline]
    fn send(&mut self, slot: usize, bytes: &[u8]) -> io::Result<usize> {
        let Some(stream) = self.stream(slot) else { return Err(ErrorKind::NotConnected.into()) };
        match rustix::net::send(stream, bytes, SendFlags::NOSIGNAL) {
            Ok(0) => Err(ErrorKind::WriteZero.into()),
            Ok(count) => Ok(count),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    fn want(&mut self, slot: usize, readable: bool, writable: bool) -> io::Result<()> {
        let Some(stream) = self.stream(slot) else { return Ok(()) };
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, readable);
        flags.set(EventFlags::OUT, writable);
        Ok(epoll::modify(&self.epoll, stream, EventData::new_u64(slot as u64), flags)?)
    }

    fn adopt(&mut self, stream: TcpStream, keepalive_seconds: u32) -> io::Result<Accepted> {
        let peer = stream.peer_addr()?;
        self.keep_tcp(stream, peer, keepalive_seconds)
    }

    fn close(&mut self, slot: usize) {
        // Closing takes it out of epoll as well: nobody else has it open.
        if let Some(stream) = self.streams.get_mut(slot).and_then(Option::take) {
            drop(stream);
            self.free.push(slot);
        }
    }
}
