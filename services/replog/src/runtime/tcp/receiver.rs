//! Connections that come in: one thread that accepts, one for each member that sends. Who does not begin as a member of this
//! group does is refused with a line in the log, and gets no memory to fill.
//!
//! Until it has said who it is, whoever connects is a stranger, with a place among few and a time by which it must have been answered,
//! whatever it sends meanwhile. Where these places are taken, the oldest stranger loses its own: members say who they are in their first
//! bytes, so that nobody keeps them out by waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use service_kit::lines::Lines;
use tracing::{info, warn};

use super::Shared;
use super::frame::{self, Greeting, HEAD_BYTES, HELLO_BYTES_MAX, Head, Hello, Objection};
use super::sender::give_up_soon;
use super::tls::{self, Impatient};
use super::traffic::{Counted, add};
use crate::membership::hex;
use crate::message::{Body, Message};
use crate::runtime::transport::{Closed, Deliver};

/// Who opens a connection has said who it is, and was answered, within this time.
const HELLO_PATIENCE: Duration = Duration::from_secs(5);
/// Connections at the same time of members, and of those that have not said who they are.
const MEMBERS_MAX: usize = 192;
const STRANGERS_MAX: usize = 64;
const BUFFER_BYTES: usize = 128 << 10;

#[derive(Default)]
struct Open {
    next: u64,
    sockets: BTreeMap<u64, TcpStream>,
    /// Those of them that have not said who they are.
    strangers: BTreeSet<u64>,
    /// How often the log tells of strangers that lost their places, and of those that failed: whoever comes and goes must not fill it.
    cut: Lines,
    failed: Lines,
    /// The connection of each member; a newer one replaces it.
    members: BTreeMap<u64, u64>,
    threads: BTreeMap<u64, JoinHandle<()>>,
    is_closed: bool,
}

impl Open {
    fn forget(&mut self, number: u64) {
        self.sockets.remove(&number);
        self.strangers.remove(&number);
    }

    /// Whether to tell that this connection failed, and of how many with it: of a member each time, of strangers once in a while.
    fn lines_about(&mut self, number: u64) -> Option<u64> {
        match self.strangers.contains(&number) {
            true => self.failed.one_more(Instant::now()),
            false => Some(1),
        }
    }
}

/// What the threads share.
pub(super) struct Receiver {
    shared: Arc<Shared>,
    id: u64,
    frame_bytes_max: usize,
    deliver: Deliver,
    closed: Closed,
    open: Mutex<Open>,
}

impl Receiver {
    pub(super) fn new(shared: Arc<Shared>, frame_bytes_max: usize, deliver: Deliver, closed: Closed) -> Arc<Self> {
        Arc::new(Self { id: shared.id, shared, frame_bytes_max, deliver, closed, open: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts until the listener is shut down.
    pub(super) fn accept(self: &Arc<Self>, listener: &TcpListener) {
        loop {
            match listener.accept() {
                Ok((socket, from)) => self.begin(socket, from),
                Err(_) if self.lock().is_closed => return,
                Err(problem) => {
                    // Too many open files, for example: it may pass.
                    warn!("local-member-id" = hex(self.id), %problem, "a connection cannot be accepted");
                    thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }

    /// A thread for a connection.
    fn begin(self: &Arc<Self>, socket: TcpStream, from: SocketAddr) {
        let mut open = self.lock();
        if open.is_closed {
            return;
        }
        while open.strangers.len() >= STRANGERS_MAX {
            self.cut_oldest(&mut open);
        }
        let Ok(clone) = socket.try_clone() else { return };
        open.next += 1;
        let number = open.next;
        let receiver = Arc::clone(self);
        let thread = thread::Builder::new().name(format!("from-{from}")).spawn(move || {
            let ended = receiver.serve(socket, number);
            let mut open = receiver.lock();
            if let Err(problem) = ended
                && !open.is_closed
                && open.sockets.contains_key(&number)
                && let Some(connections) = open.lines_about(number)
            {
                warn!(
                    "local-member-id" = hex(receiver.id),
                    "remote-addr" = %from,
                    %problem,
                    connections,
                    "a connection ends"
                );
            }
            open.forget(number);
            // Not of one that another has replaced.
            let gone = open.members.extract_if(.., |_, of| *of == number).next();
            receiver.shared.is_gone(number);
            open.threads.remove(&number);
            let is_ending = open.is_closed;
            drop(open);
            if let Some((member, _)) = gone.filter(|_| !is_ending) {
                (receiver.closed)(member);
            }
        });
        match thread {
            Ok(thread) => {
                open.sockets.insert(number, clone);
                open.strangers.insert(number);
                open.threads.insert(number, thread);
            }
            Err(problem) => {
                warn!("local-member-id" = hex(self.id), "remote-addr" = %from, %problem, "a thread cannot be started");
            }
        }
    }

    /// The stranger that has waited longest loses its place.
    fn cut_oldest(&self, open: &mut Open) {
        let Some(oldest) = open.strangers.pop_first() else { return };
        if let Some(socket) = open.sockets.remove(&oldest) {
            // It may have ended by itself; so does its thread now.
            let _ = socket.shutdown(Shutdown::Both);
        }
        if let Some(connections) = open.cut.one_more(Instant::now()) {
            warn!(
                "local-member-id" = hex(self.id),
                connections, "too many connect and do not say who they are: the oldest are closed"
            );
        }
    }

    /// A connection from its hello to its end.
    fn serve(&self, socket: TcpStream, number: u64) -> io::Result<()> {
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(HELLO_PATIENCE))?;
        // Of a member whose machine has gone nothing is heard, not even an end.
        give_up_soon(&socket)?;
        let is_known = Arc::new(AtomicBool::new(false));
        let impatient = Impatient::new(socket.try_clone()?, Instant::now() + HELLO_PATIENCE, Arc::clone(&is_known));
        let mut stream = tls::accept(impatient, self.shared.tls.as_ref())?;
        let mut payload = Vec::new();
        let greeted = read_frame(&mut stream, HELLO_BYTES_MAX, &mut payload);
        let greeting = greeted.and_then(|_| Greeting::decode(&payload).map_err(malformed));
        let greeting = greeting.map_err(|error| tls::hinted(error, self.shared.tls.as_ref()))?;
        payload.clear();
        let hello = match greeting {
            Greeting::Member(hello) => hello,
            Greeting::Newcomer => {
                let introduction = self.shared.host.as_ref().map(|host| host.introduction()).unwrap_or_default();
                frame::encode_introduction(&introduction, &mut payload);
                stream.write_all(&payload)?;
                return stream.flush();
            }
        };
        let objection = self.objection(&hello);
        frame::encode_answer(objection.as_ref(), self.shared.log(), &mut payload);
        stream.write_all(&payload)?;
        stream.flush()?;
        if let Some(Objection { text, .. }) = objection {
            return Err(io::Error::new(ErrorKind::PermissionDenied, format!("refused: {text}")));
        }
        if !self.replace(hello.from, number) {
            return Err(io::Error::other("there is a newer connection of this member, or there are too many members"));
        }
        is_known.store(true, Ordering::Relaxed);
        self.shared.is_here(&hello, number, socket.try_clone()?);
        if let Some(Objection { text, .. }) = self.objection(&hello) {
            // It became known meanwhile which log this member has.
            return Err(io::Error::new(ErrorKind::PermissionDenied, format!("refused: {text}")));
        }
        info!("local-member-id" = hex(self.id), "remote-peer-id" = hex(hello.from), "a member has connected");
        // A member that follows says nothing for long.
        socket.set_read_timeout(None)?;
        let traffic = self.shared.traffic(hello.from);
        let ended = self.receive(BufReader::with_capacity(BUFFER_BYTES, stream), &hello, &traffic, payload);
        if ended.is_err() {
            add(&traffic.receive_failures, 1);
        }
        ended
    }

    /// What a member sends, until its connection ends.
    fn receive(
        &self,
        mut stream: impl io::Read,
        hello: &Hello,
        traffic: &Counted,
        mut payload: Vec<u8>,
    ) -> io::Result<()> {
        let mut may_hear = false;
        loop {
            if !read_frame(&mut stream, self.frame_bytes_max, &mut payload)? {
                return Ok(());
            }
            add(&traffic.received_bytes, HEAD_BYTES + payload.len());
            let message = Message::decode(&payload).map_err(malformed)?;
            if message.from != hello.from || message.to != self.id {
                let text = format!("a message from {:x} to {:x}", message.from, message.to);
                return Err(io::Error::new(ErrorKind::InvalidData, text));
            }
            may_hear = may_hear || self.shared.may_hear();
            if !may_hear {
                continue;
            }
            match (message.body, &self.shared.host) {
                (Body::Note(note), Some(host)) => host.note(hello.from, note),
                (Body::Note(_), None) => {}
                (body, _) => (self.deliver)(Message { body, ..message }),
            }
            payload.shrink_to(BUFFER_BYTES);
        }
    }

    /// Why a member is not talked to.
    fn objection(&self, hello: &Hello) -> Option<Objection> {
        if let Some(mut text) = hello.objection(self.shared.group, self.shared.log(), self.id) {
            if hello.group != self.shared.group {
                text.push_str(self.shared.other_group_remedy);
            }
            return Some(Objection { text, is_for_ever: false });
        }
        let is_removed = self.shared.host.as_ref().is_some_and(|host| host.is_removed(hello.from));
        let text = || format!("member {:x} was removed from the group", hello.from);
        is_removed.then(|| Objection { text: text(), is_for_ever: true })
    }

    /// A member has a new connection: the old one is of no use, whether that is known here or not. `false`: this one is not.
    fn replace(&self, member: u64, number: u64) -> bool {
        let mut open = self.lock();
        match open.members.get(&member) {
            // It was opened later, and only was quicker to say who it is: who opened both has left this one.
            Some(newer) if *newer > number => return false,
            None if open.members.len() >= MEMBERS_MAX => return false,
            _ => {}
        }
        open.strangers.remove(&number);
        if let Some(old) = open.members.insert(member, number)
            && let Some(socket) = open.sockets.remove(&old)
        {
            let _ = socket.shutdown(Shutdown::Both);
        }
        true
    }

    /// Ends all connections. Nothing is delivered when this has returned.
    pub(super) fn close(&self) {
        let threads = {
            let mut open = self.lock();
            open.is_closed = true;
            for socket in open.sockets.values() {
                let _ = socket.shutdown(Shutdown::Both);
            }
            std::mem::take(&mut open.threads)
        };
        // Those that ended by themselves are gone from the map.
        threads.into_values().for_each(|thread| drop(thread.join()));
    }
}

fn malformed(error: crate::codec::Malformed) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

/// Reads a frame's payload; `false` at the end of the connection. Memory grows with what comes, not with what was announced.
pub(super) fn read_frame(
    stream: &mut (impl io::Read + ?Sized),
    bytes_max: usize,
    payload: &mut Vec<u8>,
) -> io::Result<bool> {
    payload.clear();
    // Unlike `read`, this goes on after a wait that was interrupted.
    if stream.take(HEAD_BYTES as u64).read_to_end(payload)? == 0 {
        return Ok(false);
    }
    let head = payload.as_slice().try_into().map_err(|_| ErrorKind::UnexpectedEof)?;
    let head = Head::decode(head, bytes_max).map_err(malformed)?;
    payload.clear();
    let read = stream.take(head.payload_bytes() as u64).read_to_end(payload)?;
    if read < head.payload_bytes() {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    head.check(payload).map_err(malformed)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each connection that sent garbage had a line in the log: whoever reached the port could fill the disk with them.
    #[test]
    fn strangers_that_fail_have_a_line_together_and_members_one_each() {
        let mut open = Open::default();
        open.strangers.extend(1..=100);
        assert_eq!(open.lines_about(1), Some(1));
        assert_eq!((2..=100).find_map(|number| open.lines_about(number)), None);
        assert_eq!([101, 102].map(|member| open.lines_about(member)), [Some(1); 2]);
    }
}
