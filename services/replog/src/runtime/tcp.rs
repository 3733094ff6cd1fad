//! Messages over TCP, with or without TLS. Every member opens a connection to every other for what it sends itself, so that each
//! carries bytes one way and nobody waits for anybody.

mod frame;
mod receiver;
mod sender;
mod tls;

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::net::Shutdown;

use self::frame::Hello;
use self::receiver::Receiver;
use self::sender::Sender;
use super::transport::{Deliver, Transport};
use crate::message::Message;

pub use tls::{Supplier, Tls};

/// How a member is reached, and how it reaches others.
pub struct TcpOptions {
    /// Its number.
    pub id: u64,
    /// Names the group: who names another one is refused. The same for all members, and different from that of any other group that
    /// could be reached by mistake.
    pub group: u64,
    /// Where others reach it.
    pub listener: TcpListener,
    /// Where others are, as `host:port`; this member itself may be among them. [`Peers::set`] changes that later.
    pub peers: BTreeMap<u64, String>,
    /// TLS, or plain TCP.
    pub tls: Option<Tls>,
    /// The largest message, bytes: more than the largest command and `append_bytes_max` together.
    pub frame_bytes_max: usize,
    /// What may wait for one member, bytes; what is more is lost.
    pub queue_bytes_max: usize,
}

impl TcpOptions {
    /// With the usual limits, and without TLS.
    pub fn new(id: u64, group: u64, listener: TcpListener, peers: BTreeMap<u64, String>) -> Self {
        Self { id, group, listener, peers, tls: None, frame_bytes_max: 64 << 20, queue_bytes_max: 64 << 20 }
    }
}

#[derive(Default)]
struct Senders {
    addresses: BTreeMap<u64, String>,
    running: BTreeMap<u64, (Arc<Sender>, JoinHandle<()>)>,
    is_started: bool,
    is_stopped: bool,
}

struct Shared {
    id: u64,
    group: u64,
    tls: Option<Tls>,
    queue_bytes_max: usize,
    senders: Mutex<Senders>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Senders> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread for a member that is sent to.
    fn begin(&self, to: u64, address: &str) -> io::Result<(Arc<Sender>, JoinHandle<()>)> {
        let hello = Hello { group: self.group, from: self.id, to };
        let sender = Sender::new(hello, self.tls.clone(), self.queue_bytes_max, address.to_owned());
        let of_thread = Arc::clone(&sender);
        let thread = thread::Builder::new().name(format!("to-{to}")).spawn(move || of_thread.run())?;
        Ok((sender, thread))
    }
}

/// Where members are; may be changed at any time, from any thread.
#[derive(Clone)]
pub struct Peers(Arc<Shared>);

impl Peers {
    /// A member is at this address from now on; `None`: it is not to be reached any more.
    pub fn set(&self, id: u64, address: Option<&str>) -> io::Result<()> {
        let mut senders = self.0.lock();
        let Some(address) = address else {
            senders.addresses.remove(&id);
            let removed = senders.running.remove(&id);
            drop(senders);
            if let Some((sender, thread)) = removed {
                sender.close();
                drop(thread.join());
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
    listener: TcpListener,
    frame_bytes_max: usize,
    accepting: Option<(Arc<Receiver>, JoinHandle<()>)>,
}

impl Tcp {
    /// Nothing happens before [`Transport::start`].
    pub fn new(options: TcpOptions) -> Self {
        let TcpOptions { id, group, listener, peers, tls, frame_bytes_max, queue_bytes_max } = options;
        let senders = Mutex::new(Senders { addresses: peers, ..Senders::default() });
        let shared = Arc::new(Shared { id, group, tls, queue_bytes_max, senders });
        Self { shared, listener, frame_bytes_max, accepting: None }
    }

    /// To tell it where members are.
    pub fn peers(&self) -> Peers {
        Peers(Arc::clone(&self.shared))
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Transport for Tcp {
    fn start(&mut self, deliver: Deliver) -> io::Result<()> {
        let Shared { id, group, tls, .. } = &*self.shared;
        let receiver = Receiver::new((*group, *id), tls.clone(), self.frame_bytes_max, deliver);
        let (of_thread, listener) = (Arc::clone(&receiver), self.listener.try_clone()?);
        let thread = thread::Builder::new().name("accept".into()).spawn(move || of_thread.accept(&listener))?;
        self.accepting = Some((receiver, thread));
        let mut senders = self.shared.lock();
        senders.is_started = true;
        for (to, address) in senders.addresses.clone().into_iter().filter(|(to, _)| to != id) {
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
                None => same.for_each(drop),
            }
        }
    }

    fn stop(&mut self) {
        let running = {
            let mut senders = self.shared.lock();
            senders.is_stopped = true;
            std::mem::take(&mut senders.running)
        };
        running.values().for_each(|(sender, _)| sender.close());
        running.into_values().for_each(|(_, thread)| drop(thread.join()));
        if let Some((receiver, thread)) = self.accepting.take() {
            receiver.close();
            // Wakes the thread that accepts, on Linux.
            let _ = rustix::net::shutdown(&self.listener, Shutdown::Both);
            drop(thread.join());
        }
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        self.stop();
    }
}
