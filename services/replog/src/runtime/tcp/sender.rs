//! A thread for each member that is sent to: connects, sends all that waits in one write, and connects again when that fails.
//! Messages are lost meanwhile, which consensus expects; it is said so once for each connection.
//!
//! Who sends little while nothing waits writes it itself, as far as the socket takes it at once: waking the thread would cost more
//! than the write. What the socket did not take is the thread's to write first. (Not with TLS: its state is the thread's.)

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SendFlags;
use tokio::sync::watch;
use tracing::{info, warn};

use super::Host;
use super::frame::{self, HELLO_BYTES_MAX, Hello};
use super::introduction::{ask_frame, ask_over};
use super::tls::{self, Stream, Tls};
use super::traffic::{Counted, add};
use crate::membership::hex;
use crate::message::Message;
use crate::runtime::identity::Founding;

/// Waiting for a connection, for an answer, or for a write that does not move.
const PATIENCE: Duration = Duration::from_secs(5);
/// After so much silence the other side is asked whether it is still there, and again.
const KEEPALIVE: Duration = Duration::from_secs(2);
const BACKOFF_MILLIS_MIN: u64 = 50;
const BACKOFF_MILLIS_MAX: u64 = 2_000;
/// What goes out in one write, bytes; a larger message goes alone.
const WRITE_BYTES_MAX: usize = 1 << 20;
/// What may be written by who sends it.
const DIRECT_BYTES_MAX: usize = 16 << 10;

#[derive(Default)]
struct Waiting {
    messages: VecDeque<Message>,
    bytes: usize,
    address: String,
    /// Counts changes of the address.
    generation: u64,
    is_closed: bool,
    /// The connection of the moment, to be cut from outside.
    socket: Option<TcpStream>,
    /// The thread has a connection and nothing to write.
    is_idle: bool,
    /// Messages were lost since nothing waited.
    is_overfull: bool,
    /// Which log the other has said that it has; 0: it has not.
    log: u64,
    /// Of a frame whose beginning was written already.
    rest: Vec<u8>,
    /// Kept for its allocation.
    direct: Vec<u8>,
}

/// What the transport and the thread share.
pub(super) struct Sender {
    hello: Hello,
    tls: Option<Tls>,
    local_address: Option<IpAddr>,
    queue_bytes_max: usize,
    /// Set when the other says that this member was removed.
    is_removed: watch::Sender<bool>,
    traffic: Arc<Counted>,
    /// Knows which log this member has.
    host: Option<Arc<dyn Host>>,
    /// Says whether this member may speak yet.
    founding: Option<Founding>,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Waiting {
    /// Writes what waits as far as the socket takes it at once. `false`: the thread has something to do.
    fn write(&mut self, traffic: &Counted) -> bool {
        let Some(socket) = &self.socket else { return false };
        self.direct.clear();
        for message in &self.messages {
            frame::encode_message(message, &mut self.direct);
        }
        let written = match rustix::net::send(socket, &self.direct, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(written) => written,
            // The thread will find out what is wrong, if anything is.
            Err(_) => return false,
        };
        add(&traffic.sent_bytes, written);
        self.messages.clear();
        self.bytes = 0;
        self.rest.extend_from_slice(&self.direct[written..]);
        self.is_idle = self.rest.is_empty();
        self.is_idle
    }
}

impl Sender {
    pub(super) fn new(
        hello: Hello,
        (tls, local_address): (Option<Tls>, Option<IpAddr>),
        queue_bytes_max: usize,
        (is_removed, traffic): (watch::Sender<bool>, Arc<Counted>),
        (host, founding): (Option<Arc<dyn Host>>, Option<Founding>),
        address: String,
    ) -> Arc<Self> {
        let waiting = Mutex::new(Waiting { address, ..Waiting::default() });
        Arc::new(Self {
            hello,
            tls,
            local_address,
            queue_bytes_max,
            is_removed,
            traffic,
            host,
            founding,
            waiting,
            changed: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts messages in the queue, or loses them.
    pub(super) fn send(&self, messages: impl Iterator<Item = Message>) {
        let mut waiting = self.lock();
        let was_empty = waiting.messages.is_empty();
        let can_write = waiting.is_idle && was_empty && self.tls.is_none();
        for message in messages {
            let bytes = message.memory_bytes();
            if waiting.bytes + bytes <= self.queue_bytes_max || waiting.messages.is_empty() {
                waiting.bytes += bytes;
                waiting.messages.push_back(message);
            } else {
                add(&self.traffic.lost_messages, 1);
                if !std::mem::replace(&mut waiting.is_overfull, true) {
                    let Hello { from, to, .. } = self.hello;
                    warn!(
                        "local-member-id" = hex(from),
                        "remote-peer-id" = hex(to),
                        bytes = waiting.bytes,
                        "messages to a member are lost: it does not take what waits"
                    );
                }
            }
        }
        if can_write && waiting.bytes <= DIRECT_BYTES_MAX && waiting.write(&self.traffic) {
            return;
        }
        drop(waiting);
        if was_empty {
            self.changed.notify_one();
        }
    }

    /// From now on the member is there.
    pub(super) fn move_to(&self, address: &str) {
        let mut waiting = self.lock();
        if waiting.address != address {
            waiting.address = address.to_owned();
            waiting.generation += 1;
            cut(&waiting);
            drop(waiting);
            self.changed.notify_one();
        }
    }

    /// The member was started anew: what is sent on the connection of before is lost.
    pub(super) fn renew(&self) {
        let mut waiting = self.lock();
        waiting.generation += 1;
        cut(&waiting);
        drop(waiting);
        self.changed.notify_one();
    }

    /// Which log this member has; 0: that is not known.
    fn log(&self) -> u64 {
        self.host.as_ref().map_or(0, |host| host.log())
    }

    /// This member has learnt which log it has: who has another one is asked again, and refuses.
    pub(super) fn log_is_known(&self) {
        if frame::are_different(self.lock().log, self.log()) {
            self.renew();
        }
    }

    /// The thread ends soon.
    pub(super) fn close(&self) {
        let mut waiting = self.lock();
        waiting.is_closed = true;
        waiting.messages.clear();
        cut(&waiting);
        drop(waiting);
        self.changed.notify_one();
    }

    /// What the thread does.
    pub(super) fn run(&self) {
        let mut backoff_millis = BACKOFF_MILLIS_MIN;
        let mut last_problem = String::new();
        while let Some((address, generation)) = self.place() {
            let [from, to] = [self.hello.from, self.hello.to].map(hex);
            let problem = match self.connect(&address) {
                Ok(stream) => {
                    info!("local-member-id" = from, "remote-peer-id" = to, %address, "connected to a member");
                    backoff_millis = BACKOFF_MILLIS_MIN;
                    last_problem.clear();
                    self.write_all(stream, generation)
                }
                Err(problem) => problem,
            };
            if !self.lock().is_closed {
                add(&self.traffic.send_failures, 1);
            }
            // Once for each kind of problem: it may last for long.
            let text = problem.to_string();
            if text != last_problem && !self.lock().is_closed {
                warn!(
                    "local-member-id" = from,
                    "remote-peer-id" = to,
                    %address,
                    problem = %text,
                    "no connection to a member; it is tried again"
                );
                last_problem = text;
            }
            self.rest(backoff_millis + rand::random_range(0..=backoff_millis / 2), generation);
            backoff_millis = (backoff_millis * 2).min(BACKOFF_MILLIS_MAX);
        }
    }

    /// Where to connect to, also if there is nothing to be sent: others see by it that this member is there. `None`: never again.
    fn place(&self) -> Option<(String, u64)> {
        let waiting = self.lock();
        (!waiting.is_closed).then(|| (waiting.address.clone(), waiting.generation))
    }

    /// Waits before the next attempt, shorter if the address changes. What waits is old by then.
    fn rest(&self, millis: u64, generation: u64) {
        let waiting = self.lock();
        let must_wait = |waiting: &mut Waiting| !waiting.is_closed && waiting.generation == generation;
        let rested = self.changed.wait_timeout_while(waiting, Duration::from_millis(millis), must_wait);
        let (mut waiting, _) = rested.unwrap_or_else(PoisonError::into_inner);
        add(&self.traffic.lost_messages, waiting.messages.len());
        waiting.messages.clear();
        waiting.rest.clear();
        waiting.bytes = 0;
    }

    fn connect(&self, address: &str) -> io::Result<Box<dyn Stream>> {
        if let Some(founding) = self.founding.as_ref().filter(|founding| !founding.begins()) {
            let introduction = connect(address, self.local_address, |socket| {
                self.hold(&socket)?;
                ask_over(socket, address, self.tls.as_ref())
            })?;
            founding.heard(self.hello.to, &introduction)?;
        }
        connect(address, self.local_address, |socket| {
            self.hold(&socket)?;
            self.greet(tls::connect(socket, self.tls.as_ref(), address)?)
        })
    }

    /// Has the connection cut when this thread shall end.
    fn hold(&self, socket: &TcpStream) -> io::Result<()> {
        let mut waiting = self.lock();
        if waiting.is_closed {
            // Who was closed meanwhile has found no socket to cut.
            return Err(ErrorKind::ConnectionAborted.into());
        }
        waiting.socket = Some(socket.try_clone()?);
        Ok(())
    }

    fn greet(&self, mut stream: Box<dyn Stream>) -> io::Result<Box<dyn Stream>> {
        let mut bytes = Vec::new();
        Hello { log: self.log(), ..self.hello }.encode(&mut bytes);
        ask_frame(&mut stream, HELLO_BYTES_MAX, &mut bytes).map_err(|error| tls::hinted(error, self.tls.as_ref()))?;
        let log = frame::decode_answer(&bytes).map_err(|objection| {
            if objection.is_for_ever {
                self.is_removed.send_replace(true);
            }
            io::Error::new(ErrorKind::ConnectionRefused, format!("the member refuses: {}", objection.text))
        })?;
        self.lock().log = log;
        let own = self.log();
        match frame::are_different(log, own) {
            true => Err(io::Error::new(ErrorKind::PermissionDenied, frame::other_log(log, own))),
            false => Ok(stream),
        }
    }

    /// Sends what waits, until the connection ends. Says why.
    fn write_all(&self, mut stream: Box<dyn Stream>, generation: u64) -> io::Error {
        let mut bytes = Vec::new();
        let mut batch = Vec::new();
        loop {
            bytes.clear();
            if !self.next_batch(&mut batch, &mut bytes, generation) {
                return ErrorKind::ConnectionAborted.into();
            }
            for message in batch.drain(..) {
                frame::encode_message(&message, &mut bytes);
            }
            if let Err(error) = stream.write_all(&bytes).and_then(|()| stream.flush()) {
                return error;
            }
            add(&self.traffic.sent_bytes, bytes.len());
            // One large message shall not cost its size for ever.
            bytes.shrink_to(2 * WRITE_BYTES_MAX);
        }
    }

    /// Waits for messages, or for the rest of some. `false`: the connection is not wanted any more.
    fn next_batch(&self, batch: &mut Vec<Message>, rest: &mut Vec<u8>, generation: u64) -> bool {
        let mut waiting = self.lock();
        waiting.is_idle = true;
        let has_nothing = |waiting: &mut Waiting| {
            let is_wanted = !waiting.is_closed && waiting.generation == generation;
            is_wanted && waiting.messages.is_empty() && waiting.rest.is_empty()
        };
        let mut waiting = self.changed.wait_while(waiting, has_nothing).unwrap_or_else(PoisonError::into_inner);
        waiting.is_idle = false;
        rest.append(&mut waiting.rest);
        if waiting.is_closed || waiting.generation != generation {
            return false;
        }
        let mut taken = 0;
        while let Some(message) = waiting.messages.front() {
            let bytes = message.memory_bytes();
            if taken > 0 && taken + bytes > WRITE_BYTES_MAX {
                break;
            }
            taken += bytes;
            batch.extend(waiting.messages.pop_front());
        }
        waiting.bytes = waiting.bytes.saturating_sub(taken);
        waiting.is_overfull &= !waiting.messages.is_empty();
        true
    }
}

/// Connects to the first address of a name that lets `greet` succeed.
pub(super) fn connect<T>(
    address: &str,
    from: Option<IpAddr>,
    greet: impl Fn(TcpStream) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs()? {
        let greeted = open(address, from).and_then(|socket| {
            socket.set_nodelay(true)?;
            give_up_soon(&socket)?;
            socket.set_write_timeout(Some(PATIENCE))?;
            socket.set_read_timeout(Some(PATIENCE))?;
            greet(socket)
        });
        match greeted {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Connects, from an address of this machine if one is chosen that is of the same kind.
fn open(to: SocketAddr, from: Option<IpAddr>) -> io::Result<TcpStream> {
    use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
    let Some(from) = from.filter(|from| from.is_ipv4() == to.is_ipv4()) else {
        return TcpStream::connect_timeout(&to, PATIENCE);
    };
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    net::bind(&socket, &SocketAddr::new(from, 0))?;
    match net::connect(&socket, &to) {
        Err(rustix::io::Errno::INPROGRESS) => {
            let mut waiting = [PollFd::new(&socket, PollFlags::OUT)];
            let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
            if poll(&mut waiting, Some(&patience))? == 0 {
                return Err(ErrorKind::TimedOut.into());
            }
            sockopt::socket_error(&socket)??;
        }
        connected => connected?,
    }
    let socket = TcpStream::from(socket);
    socket.set_nonblocking(false)?;
    Ok(socket)
}

/// What is sent and not acknowledged for so long, or stays silent when it is asked, ends a connection: without that a partition costs
/// as long as TCP hopes, up to two minutes after it is over. One that has nothing to say is asked by the kernel.
pub(super) fn give_up_soon(socket: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE)?;
    sockopt::set_tcp_user_timeout(socket, PATIENCE.as_millis() as u32)?;
    Ok(())
}

fn cut(waiting: &Waiting) {
    if let Some(socket) = &waiting.socket {
        // It may have ended by itself.
        let _ = socket.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_connection_begins_where_it_is_told_to() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let from = |from: Option<&str>| {
            let socket = open(to, from.map(|from| from.parse().unwrap())).unwrap();
            let (_, seen) = listener.accept().unwrap();
            assert_eq!(socket.local_addr().unwrap(), seen);
            seen.ip().to_string()
        };
        assert_eq!([from(None), from(Some("127.0.0.3")), from(Some("::1"))], ["127.0.0.1", "127.0.0.3", "127.0.0.1"]);
        drop(listener);
        assert_eq!(open(to, "127.0.0.3".parse().ok()).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }

    /// What is not acknowledged after a partition was hoped for as long as TCP does: minutes.
    #[test]
    fn a_connection_that_nothing_comes_back_on_is_given_up_after_seconds() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let seen = connect(&listener.local_addr().unwrap().to_string(), None, Ok).unwrap();
        assert_eq!(rustix::net::sockopt::tcp_user_timeout(&seen).unwrap(), PATIENCE.as_millis() as u32);
        assert!(rustix::net::sockopt::socket_keepalive(&seen).unwrap());
        assert_eq!(rustix::net::sockopt::tcp_keepidle(&seen).unwrap(), KEEPALIVE);
    }
}
