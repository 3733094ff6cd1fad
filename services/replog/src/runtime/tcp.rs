//! Messages over TCP, with or without TLS. Every member opens a connection to every other for what it sends itself, so that each
//! carries bytes one way and nobody waits for anybody.

mod frame;
mod introduction;
mod receiver;
mod sender;
mod tls;
mod traffic;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use bytes::Bytes;
use rustix::net::Shutdown;
use tokio::sync::watch;

use self::frame::Hello;
use self::receiver::Receiver;
use self::sender::Sender;
use self::traffic::{Counted, add};
use super::identity::Founding;
use super::transport::{Closed, Deliver, Transport};
use crate::message::{Body, Message};

pub use frame::are_different;
pub use introduction::ask;
pub use tls::{Supplier, Tls};
pub use traffic::Traffic;

/// The server around a member, as far as it talks to other servers on the connections of the log. Called on the threads of the
/// transport: it should be quick, and never wait for what comes on the same connections.
pub trait Host: Send + Sync + 'static {
    /// What another server sent with [`Peers::send`]: in order, each once or not at all.
    fn note(&self, from: u64, note: Bytes);

    /// What a newcomer is told that uses [`ask`]: at most a mebibyte.
    fn introduction(&self) -> Vec<u8>;

    /// Whether a member was removed from the group for good; it is told so.
    fn is_removed(&self, member: u64) -> bool;

    /// Which log this member has, of all that groups of this number ([`TcpOptions::group`]) have: members that say another one refuse each
    /// other. 0: that is not known, or not yet; once it is, see [`Peers::log_is_known`]. A server that never knows says so, and what its members
    /// of two such groups do to each other is its own concern.
    fn log(&self) -> u64;
}

/// How a member is reached, and how it reaches others.
pub struct TcpOptions {
    /// The member's number.
    pub id: u64,
    /// Names the group: who names another one is refused. The same for all members, and different from that of any other group that
    /// could be reached by mistake.
    pub group: u64,
    /// Where others reach it.
    pub listeners: Vec<TcpListener>,
    /// Where others are, as `host:port`; this member itself may be among them. [`Peers::set`] changes that later.
    pub peers: BTreeMap<u64, String>,
    /// TLS, or plain TCP.
    pub tls: Option<Tls>,
    /// Where connections to others begin, of this machine's addresses; `None`: the system chooses.
    pub local_address: Option<IpAddr>,
    /// The largest message, bytes: more than the largest command and `append_bytes_max` together.
    pub frame_bytes_max: usize,
    /// What may wait for one member, bytes; what is more is lost.
    pub queue_bytes_max: usize,
    /// The server, if it talks to other servers.
    pub host: Option<Arc<dyn Host>>,
    /// Who asks the others before they are spoken to, of a member that may have lost everything.
    pub founding: Option<Founding>,
    /// What a member of another group is told besides, in the server's own words: a hundred bytes of it.
    pub other_group_remedy: &'static str,
}

impl TcpOptions {
    /// With the usual limits, and without TLS.
    pub fn new(id: u64, group: u64, listeners: Vec<TcpListener>, peers: BTreeMap<u64, String>) -> Self {
        Self {
            id,
            group,
            listeners,
            peers,
            tls: None,
            local_address: None,
            frame_bytes_max: 64 << 20,
            queue_bytes_max: 64 << 20,
            host: None,
            founding: None,
            other_group_remedy: "",
        }
    }
}

#[derive(Default)]
struct Senders {
    addresses: BTreeMap<u64, String>,
    running: BTreeMap<u64, (Arc<Sender>, JoinHandle<()>)>,
    /// Threads that end as soon as they notice: one that is connecting may take seconds.
    leaving: Vec<JoinHandle<()>>,
    is_started: bool,
    is_stopped: bool,
}

/// A member that has connected.
struct Here {
    connection: u64,
    /// Which log it has said that it has; 0: it has not.
    log: u64,
    since: Instant,
    socket: TcpStream,
}

/// Who has connected, and who had before.
#[derive(Default)]
struct Neighbours {
    here: BTreeMap<u64, Here>,
    incarnations: BTreeMap<u64, u64>,
}

struct Shared {
    id: u64,
    group: u64,
    incarnation: u64,
    tls: Option<Tls>,
    local_address: Option<IpAddr>,
    queue_bytes_max: usize,
    host: Option<Arc<dyn Host>>,
    founding: Option<Founding>,
    other_group_remedy: &'static str,
    /// Another member has said so.
    is_removed: watch::Sender<bool>,
    neighbours: Mutex<Neighbours>,
    senders: Mutex<Senders>,
    traffic: Mutex<BTreeMap<u64, Arc<Counted>>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Senders> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread for a member that is sent to.
    fn begin(&self, to: u64, address: &str) -> io::Result<(Arc<Sender>, JoinHandle<()>)> {
        let hello = Hello { group: self.group, log: 0, from: self.id, to, incarnation: self.incarnation };
        let is_removed = self.is_removed.clone();
        let traffic = self.traffic(to);
        let sender = Sender::new(
            hello,
            (self.tls.clone(), self.local_address),
            self.queue_bytes_max,
            (is_removed, traffic),
            (self.host.clone(), self.founding.clone()),
            address.to_owned(),
        );
        let of_thread = Arc::clone(&sender);
        let thread = thread::Builder::new().name(format!("to-{to:x}")).spawn(move || of_thread.run())?;
        Ok((sender, thread))
    }

    /// Where what goes to and comes from a member is counted.
    fn traffic(&self, member: u64) -> Arc<Counted> {
        let mut traffic = self.traffic.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(traffic.entry(member).or_default())
    }

    fn neighbours(&self) -> MutexGuard<'_, Neighbours> {
        self.neighbours.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which log this member has; 0: that is not known.
    fn log(&self) -> u64 {
        self.host.as_ref().map_or(0, |host| host.log())
    }

    /// Whether this member may hear what the others say: what it hears it may have to promise.
    fn may_hear(&self) -> bool {
        self.founding.as_ref().is_none_or(Founding::begins)
    }

    /// A member has connected. If it was started since it was here before, the connection to it leads nowhere.
    fn is_here(&self, hello: &Hello, connection: u64, socket: TcpStream) {
        let Hello { from: member, incarnation, log, .. } = *hello;
        let mut neighbours = self.neighbours();
        neighbours.here.insert(member, Here { connection, log, since: Instant::now(), socket });
        let before = neighbours.incarnations.insert(member, incarnation);
        drop(neighbours);
        if before.is_some_and(|before| before != incarnation)
            && let Some((sender, _)) = self.lock().running.get(&member)
        {
            sender.renew();
        }
    }

    /// A connection has ended.
    fn is_gone(&self, connection: u64) {
        self.neighbours().here.retain(|_, here| here.connection != connection);
    }
}

/// Where members are; may be changed at any time, from any thread.
#[derive(Clone)]
pub struct Peers(Arc<Shared>);

impl Peers {
    /// Sends something to the server around another member, or loses it: see [`Host::note`].
    pub fn send(&self, to: u64, note: Bytes) {
        let senders = self.0.lock();
        if let Some((sender, _)) = senders.running.get(&to) {
            sender.send(std::iter::once(Message { from: self.0.id, to, body: Body::Note(note) }));
        } else {
            add(&self.0.traffic(to).lost_messages, 1);
        }
    }

    /// Since when a member has been connected to this one; `None`: it is not.
    pub fn here_since(&self, member: u64) -> Option<Instant> {
        self.0.neighbours().here.get(&member).map(|here| here.since)
    }

    /// What went to and came from each member that was ever spoken with.
    pub fn traffic(&self) -> Vec<(u64, Traffic)> {
        let traffic = self.0.traffic.lock().unwrap_or_else(PoisonError::into_inner);
        traffic.iter().map(|(member, counted)| (*member, counted.read())).collect()
    }

    /// The server has learnt which log this member has ([`Host::log`]): who has said that it has another one is hung up on, and refused from
    /// now on.
    pub fn log_is_known(&self) {
        let own = self.0.log();
        for here in self.0.neighbours().here.values().filter(|here| are_different(here.log, own)) {
            // It may have ended by itself.
            let _ = here.socket.shutdown(std::net::Shutdown::Both);
        }
        self.0.lock().running.values().for_each(|(sender, _)| sender.log_is_known());
    }

    /// Members that this one sends to.
    pub fn known(&self) -> Vec<u64> {
        self.0.lock().running.keys().copied().collect()
    }

    /// Whether another member has said that this one was removed from the group.
    pub fn is_removed(&self) -> bool {
        *self.0.is_removed.borrow()
    }

    /// The same, for who waits until one does.
    pub fn removed(&self) -> watch::Receiver<bool> {
        self.0.is_removed.subscribe()
    }

    /// A member is at this address from now on; `None`: it is not to be reached any more, and is hung up on. Waits for nothing.
    pub fn set(&self, id: u64, address: Option<&str>) -> io::Result<()> {
        let mut senders = self.0.lock();
        let Some(address) = address else {
            senders.addresses.remove(&id);
            if let Some((sender, thread)) = senders.running.remove(&id) {
                sender.close();
                senders.leaving.retain(|thread| !thread.is_finished());
                senders.leaving.push(thread);
            }
            drop(senders);
            if let Some(here) = self.0.neighbours().here.get(&id) {
                // It may have ended by itself.
                let _ = here.socket.shutdown(std::net::Shutdown::Both);
            }
            return Ok(());
        };
        senders.addresses.insert(id, address.to_owned());
        if !senders.is_started || senders.is_stopped || id == self.0.id {
            return Ok(());
        }
        match senders.running.get(&id) {
            Some((sender, _)) => sender.move_to(address),
            None => drop(senders.running.insert(id, self.0.begin(id, address)?)),
        }
        Ok(())
    }
}

/// A member's side of a TCP network.
pub struct Tcp {
    shared: Arc<Shared>,
    listeners: Vec<TcpListener>,
    frame_bytes_max: usize,
    accepting: Option<(Arc<Receiver>, Vec<JoinHandle<()>>)>,
}

impl Tcp {
    /// Nothing happens before [`Transport::start`].
    pub fn new(options: TcpOptions) -> Self {
        let TcpOptions {
            id,
            group,
            listeners,
            peers,
            tls,
            local_address,
            frame_bytes_max,
            queue_bytes_max,
            host,
            founding,
            other_group_remedy,
        } = options;
        let shared = Shared {
            id,
            group,
            incarnation: rand::random(),
            tls,
            local_address,
            queue_bytes_max,
            host,
            founding,
            other_group_remedy,
            is_removed: watch::Sender::new(false),
            neighbours: Mutex::default(),
            senders: Mutex::new(Senders { addresses: peers, ..Senders::default() }),
            traffic: Mutex::default(),
        };
        Self { shared: Arc::new(shared), listeners, frame_bytes_max, accepting: None }
    }

    /// To tell it where members are.
    pub fn peers(&self) -> Peers {
        Peers(Arc::clone(&self.shared))
    }

    /// The addresses that members connect to.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }
}

impl Transport for Tcp {
    fn start(&mut self, deliver: Deliver, closed: Closed) -> io::Result<()> {
        let id = self.shared.id;
        let receiver = Receiver::new(Arc::clone(&self.shared), self.frame_bytes_max, deliver, closed);
        let (_, threads) = self.accepting.insert((Arc::clone(&receiver), Vec::new()));
        for listener in &self.listeners {
            let (of_thread, listener) = (Arc::clone(&receiver), listener.try_clone()?);
            threads.push(thread::Builder::new().name("accept".into()).spawn(move || of_thread.accept(&listener))?);
        }
        let mut senders = self.shared.lock();
        senders.is_started = true;
        for (to, address) in senders.addresses.clone().into_iter().filter(|(to, _)| *to != id) {
            let sender = self.shared.begin(to, &address)?;
            senders.running.insert(to, sender);
        }
        Ok(())
    }

    fn send(&mut self, messages: Vec<Message>) {
        let senders = self.shared.lock();
        let mut messages = messages.into_iter().peekable();
        // Those that follow one another to the same member are handed over together.
        while let Some(to) = messages.peek().map(|message| message.to) {
            let same = std::iter::from_fn(|| messages.next_if(|message| message.to == to));
            match senders.running.get(&to) {
                Some((sender, _)) => sender.send(same),
                // Nobody has said where it is.
                None => add(&self.shared.traffic(to).lost_messages, same.count()),
            }
        }
    }

    fn stop(&mut self) {
        let (running, leaving) = {
            let mut senders = self.shared.lock();
            senders.is_stopped = true;
            (std::mem::take(&mut senders.running), std::mem::take(&mut senders.leaving))
        };
        running.values().for_each(|(sender, _)| sender.close());
        running.into_values().map(|(_, thread)| thread).chain(leaving).for_each(|thread| drop(thread.join()));
        if let Some((receiver, threads)) = self.accepting.take() {
            receiver.close();
            for listener in &self.listeners {
                // Wakes the thread that accepts, on Linux.
                let _ = rustix::net::shutdown(listener, Shutdown::Both);
            }
            threads.into_iter().for_each(|thread| drop(thread.join()));
        }
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        self.stop();
    }
}
