//! Sockets with epoll, some of them with TLS.

use std::io::{self, ErrorKind, Read as _, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::net::SendFlags;

use super::listening::{self, Listener};
use super::sockets::{Accepted, Event, Received, Signal, Sockets};
use crate::log;
use crate::settings::Settings;
use crate::tls::{Tls, TlsStream};

/// Numbers of what is no client.
const LISTENER: u64 = u64::MAX;
const STOPS: [(u64, Signal); 2] = [(u64::MAX - 1, Signal::Terminate), (u64::MAX - 2, Signal::Interrupt)];
/// Ciphertext received at a time, bytes.
const CIPHERTEXT_BYTES: usize = 64 << 10;
/// Who comes to a port of TLS and speaks something else is told of from this `loglevel` on: verbose.
const STRANGER_LEVEL: usize = 1;
/// Events taken at once.
const EVENTS_MAX: usize = 1024;

/// Who is at the other end, and where it came to.
struct Ends {
    address: String,
    local_address: String,
    is_local: bool,
}

/// A connection.
struct Stream {
    socket: OwnedFd,
    tls: Option<Box<TlsStream>>,
    /// What the loop wants to hear of: readable, writable.
    wanted: (bool, bool),
    /// What epoll was told: TLS waits for room on its own account.
    told: EventFlags,
}

/// Writes to a socket that never waits.
struct Writer<'a>(BorrowedFd<'a>);

impl Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream {
    /// Gives the socket what TLS has for it.
    fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => tls.flush(&mut Writer(self.socket.as_fd())),
            None => Ok(()),
        }
    }

    /// Tells epoll what is waited for, if that is not what it was told before.
    fn tell(&mut self, epoll: &OwnedFd, slot: usize) -> io::Result<()> {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, self.wanted.0);
        flags.set(EventFlags::OUT, self.wanted.1 || self.tls.as_ref().is_some_and(|tls| tls.wants_write()));
        if flags != self.told {
            epoll::modify(epoll, &self.socket, EventData::new_u64(slot as u64), flags)?;
            self.told = flags;
        }
        Ok(())
    }
}

/// See the module's description.
pub struct EpollSockets {
    epoll: OwnedFd,
    listeners: Vec<Listener>,
    streams: Vec<Option<Stream>>,
    free: Vec<usize>,
    ready: Vec<epoll::Event>,
    /// In the order of [`STOPS`].
    stops: [UnixStream; 2],
    /// What a socket with TLS had.
    ciphertext: Vec<u8>,
}

impl EpollSockets {
    /// Takes connections from listeners; a byte from one of `stops` asks the process to stop: SIGTERM's, SIGINT's.
    pub fn new(listeners: Vec<Listener>, stops: [UnixStream; 2]) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        for listener in &listeners {
            epoll::add(&epoll, listener.descriptor(), EventData::new_u64(LISTENER), EventFlags::IN)?;
        }
        for (stop, (number, _)) in stops.iter().zip(STOPS) {
            stop.set_nonblocking(true)?;
            epoll::add(&epoll, stop, EventData::new_u64(number), EventFlags::IN)?;
        }
        let ready = Vec::with_capacity(EVENTS_MAX);
        let ciphertext = Vec::new();
        Ok(Self { epoll, listeners, streams: Vec::new(), free: Vec::new(), ready, stops, ciphertext })
    }

    #[inline]
    fn stream(&mut self, slot: usize) -> Option<&mut Stream> {
        self.streams.get_mut(slot)?.as_mut()
    }

    fn keep_tcp(
        &mut self,
        stream: TcpStream,
        peer: SocketAddr,
        keepalive_seconds: u32,
        tls: Option<TlsStream>,
    ) -> io::Result<Accepted> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        if keepalive_seconds > 0 {
            let seconds = Duration::from_secs(u64::from(keepalive_seconds));
            // Linux takes 32,767 s at most, and CONFIG SET more: a connection that is asked after as rarely as the system does on its own
            // is better than none, as in Redis.
            rustix::net::sockopt::set_socket_keepalive(&stream, true)
                .and_then(|()| rustix::net::sockopt::set_tcp_keepidle(&stream, seconds))
                .ok();
        }
        let local = stream.local_addr()?;
        let is_local = match peer.ip().to_canonical() {
            IpAddr::V4(address) => address.is_loopback(),
            IpAddr::V6(address) => address.is_loopback(),
        };
        let ends = Ends { address: peer.to_string(), local_address: local.to_string(), is_local };
        self.keep(stream.into(), ends, tls)
    }

    fn keep(&mut self, socket: OwnedFd, ends: Ends, tls: Option<TlsStream>) -> io::Result<Accepted> {
        let slot = self.free.pop().unwrap_or(self.streams.len());
        if slot == self.streams.len() {
            self.streams.push(None);
        }
        let (wanted, told) = ((true, false), EventFlags::IN);
        let mut stream = Stream { socket, tls: tls.map(Box::new), wanted, told };
        // Who connects with TLS speaks first.
        let added = epoll::add(&self.epoll, &stream.socket, EventData::new_u64(slot as u64), told)
            .map_err(io::Error::from)
            .and_then(|()| stream.flush())
            .and_then(|()| stream.tell(&self.epoll, slot));
        if let Err(error) = added {
            self.free.push(slot);
            return Err(error);
        }
        self.streams[slot] = Some(stream);
        let Ends { address, local_address, is_local } = ends;
        Ok(Accepted { slot, address, local_address, is_local })
    }

    /// The socket takes bytes again: what TLS has for it comes first. Errors are found by whoever reads or sends next.
    fn flush(&mut self, slot: usize) {
        if let Some(Some(stream)) = self.streams.get_mut(slot)
            && stream.tls.is_some()
        {
            drop(stream.flush());
            drop(stream.tell(&self.epoll, slot));
        }
    }

    /// Of a socket with TLS.
    #[cold]
    fn receive_tls(&mut self, slot: usize, into: &mut Vec<u8>) -> Received {
        let Some(Some(stream)) = self.streams.get_mut(slot) else { return Received::Nothing };
        let Some(tls) = &mut stream.tls else { return Received::Nothing };
        self.ciphertext.clear();
        self.ciphertext.reserve(CIPHERTEXT_BYTES);
        match rustix::io::read(&stream.socket, spare_capacity(&mut self.ciphertext)) {
            Ok(0) => return Received::End,
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Received::Nothing,
            Err(_) => return Received::End,
        }
        let before = into.len();
        let taken = tls.take(&self.ciphertext, into);
        if let Err(error) = &taken {
            match tls.is_outgoing() {
                true => log::warning(format_args!("TLS with the master: {error}")),
                false => log::at(STRANGER_LEVEL, format_args!("TLS with a client: {error}")),
            }
        }
        // Answers of the handshake, or why it is over. Who is not there any more is found below.
        let flushed = stream.flush().and_then(|()| stream.tell(&self.epoll, slot));
        match (taken, flushed, into.len() - before) {
            (Err(_), ..) | (_, Err(_), _) | (Ok(true), _, 0) => Received::End,
            (Ok(_), Ok(()), 0) => Received::Nothing,
            (Ok(_), Ok(()), count) => Received::Bytes(count),
        }
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
        let mut writable = Vec::new();
        for event in &self.ready {
            let (number, flags) = (event.data.u64(), event.flags);
            if let Some(place) = STOPS.iter().position(|(stop, _)| *stop == number) {
                // Asked once: an end that is refused is not tried again at every turn.
                let mut asked = [0; 16];
                drop((&self.stops[place]).read(&mut asked));
                events.push(Event::Stop(STOPS[place].1));
                continue;
            }
            match number {
                LISTENER => events.push(Event::Accept),
                slot => {
                    if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                        events.push(Event::Readable(slot as usize));
                    }
                    if flags.contains(EventFlags::OUT) {
                        writable.push(slot as usize);
                        events.push(Event::Writable(slot as usize));
                    }
                }
            }
        }
        writable.into_iter().for_each(|slot| self.flush(slot));
        Ok(())
    }

    fn want_clients(&mut self, wanted: bool) -> io::Result<()> {
        let flags = if wanted { EventFlags::IN } else { EventFlags::empty() };
        for listener in &self.listeners {
            epoll::modify(&self.epoll, listener.descriptor(), EventData::new_u64(LISTENER), flags)?;
        }
        Ok(())
    }

    fn listen(&mut self, settings: &Settings) -> Result<(), String> {
        let outcome = listening::change(&mut self.listeners, settings);
        for listener in &self.listeners {
            match epoll::add(&self.epoll, listener.descriptor(), EventData::new_u64(LISTENER), EventFlags::IN) {
                // Whoever stays is known.
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => log::warning(format_args!("epoll: a socket that listens is not heard: {error}")),
            }
        }
        outcome
    }

    fn accept(&mut self, keepalive_seconds: u32, tls: &Tls) -> io::Result<Option<Accepted>> {
        for place in 0..self.listeners.len() {
            let accepted = match &self.listeners[place] {
                Listener::Tcp(listener, place) => match listener.accept() {
                    Ok((stream, peer)) => {
                        let tls = if place.has_tls { Some(tls.accept()?) } else { None };
                        self.keep_tcp(stream, peer, keepalive_seconds, tls).map(Some)
                    }
                    Err(error) => Err(error),
                },
                Listener::Unix(listener, path) => match listener.accept() {
                    Ok((stream, _)) => {
                        stream.set_nonblocking(true)?;
                        let address = format!("{path}:0");
                        let ends = Ends { address: address.clone(), local_address: address, is_local: true };
                        self.keep(stream.into(), ends, None).map(Some)
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
        if stream.tls.is_some() {
            return self.receive_tls(slot, into);
        }
        into.reserve(most);
        match rustix::io::read(&stream.socket, spare_capacity(into)) {
            Ok(0) => Received::End,
            Ok(count) => Received::Bytes(count),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Received::Nothing,
            Err(_) => Received::End,
        }
    }

    #[inline]
    fn send(&mut self, slot: usize, bytes: &[u8]) -> io::Result<usize> {
        let Some(stream) = self.stream(slot) else { return Err(ErrorKind::NotConnected.into()) };
        if let Some(tls) = &mut stream.tls {
            return tls.send(bytes, &mut Writer(stream.socket.as_fd()));
        }
        match rustix::net::send(&stream.socket, bytes, SendFlags::NOSIGNAL) {
            Ok(0) => Err(ErrorKind::WriteZero.into()),
            Ok(count) => Ok(count),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    fn want(&mut self, slot: usize, readable: bool, writable: bool) -> io::Result<()> {
        let Some(Some(stream)) = self.streams.get_mut(slot) else { return Ok(()) };
        stream.wanted = (readable, writable);
        stream.tell(&self.epoll, slot)
    }

    fn adopt(&mut self, stream: TcpStream, keepalive_seconds: u32, tls: Option<TlsStream>) -> io::Result<Accepted> {
        let peer = stream.peer_addr()?;
        self.keep_tcp(stream, peer, keepalive_seconds, tls)
    }

    fn stop_listening(&mut self) {
        self.listeners.clear();
    }

    fn close(&mut self, slot: usize) {
        // Closing takes it out of epoll as well: nobody else has it open.
        if let Some(mut stream) = self.streams.get_mut(slot).and_then(Option::take) {
            if let Some(tls) = &mut stream.tls {
                tls.close(&mut Writer(stream.socket.as_fd()));
            }
            drop(stream);
            self.free.push(slot);
        }
    }
}
