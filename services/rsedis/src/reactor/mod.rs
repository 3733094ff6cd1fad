//! The event loop. A turn: take what sockets have and run all complete commands; bring their effects into the append-only file,
//! synced if so set; give them to the replicas; send the replies, one write for each client.
//!
//! [`Sockets`] is the seam to the operating system: [`epoll::EpollSockets`] is one side of it, io_uring may be another.

mod connection;
pub mod epoll;
mod feeding;
mod following;
mod keeping;
pub mod users;

use std::io;
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use wal::files::Directory;

use crate::memory::{Allocator, Memory};
use crate::persistence::Aof;
use crate::protocol::Limits;
use crate::replication::Stage;
use crate::server::{Request, Server};
use crate::session::Session;
use crate::settings::OutputLimit;
use crate::{command, eviction, log, waiting};
use connection::Connection;

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Somebody wants to connect.
    Accept,
    /// A socket has bytes, or has ended.
    Readable(usize),
    /// A socket takes bytes again.
    Writable(usize),
    /// The process was asked to stop.
    Stop,
}

/// What receiving gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// So many bytes.
    Bytes(usize),
    /// Nothing for now.
    Nothing,
    /// The other side has gone.
    End,
}

/// A client that has come.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// The number of its socket: the smallest that is free.
    pub slot: usize,
    /// Its address, `ip:port`.
    pub address: String,
    /// The server's.
    pub local_address: String,
    /// It comes from this machine.
    pub is_local: bool,
}

/// Sockets that never wait. Slots of sockets that were closed are used again.
pub trait Sockets {
    /// Waits for something to happen, at most so long.
    fn wait(&mut self, most: Duration, events: &mut Vec<Event>) -> io::Result<()>;
    /// A client that wants to connect, if there is one; `keepalive_seconds`: silence after which it is asked whether it is there, 0: never.
    fn accept(&mut self, keepalive_seconds: u32) -> io::Result<Option<Accepted>>;
    /// Whether to hear of clients that want to connect.
    fn want_clients(&mut self, wanted: bool) -> io::Result<()>;
    /// Appends what a socket has, about so many bytes at most.
    fn receive(&mut self, slot: usize, into: &mut Vec<u8>, most: usize) -> Received;
    /// Sends what the socket takes; how many bytes. Errors: the other side has gone.
    fn send(&mut self, slot: usize, bytes: &[u8]) -> io::Result<usize>;
    /// Which events of a socket are wanted.
    fn want(&mut self, slot: usize, readable: bool, writable: bool) -> io::Result<()>;
    /// Takes a connection that was made.
    fn adopt(&mut self, stream: TcpStream, keepalive_seconds: u32) -> io::Result<Accepted>;
    /// Closes a socket.
    fn close(&mut self, slot: usize);
}

/// Received at a time, bytes.
const RECEIVE_BYTES: usize = 64 << 10;
/// A client with more replies waiting than this is not listened to until it has taken some.
const OUTPUT_PAUSE_BYTES: usize = 64 << 20;
/// What a client without waiting replies keeps of its buffer under `maxmemory`.
const IDLE_OUTPUT_BYTES: usize = 1 << 10;
/// Keys that expire in one turn, so that a turn is short.
const EXPIRE_MAX: usize = 2_000;
/// How often the loop looks after what is not asked for by clients.
const TICK: Duration = Duration::from_millis(100);
/// Connections taken in one turn.
const ACCEPT_MAX: usize = 1_000;

/// The loop and all it holds.
pub struct Reactor<S: Sockets, D: Directory> {
    sockets: S,
    /// The state.
    pub server: Server,
    aof: Option<Aof<D>>,
    /// Opens a directory.
    open: fn(&Path) -> io::Result<D>,
    /// A snapshot that is being made.
    job: Option<keeping::Job<D>>,
    /// Keys that are sent to replicas while they are taken.
    broadcast: Option<feeding::Broadcast>,
    /// Keys that are sent to replicas from a file.
    transfers: Vec<feeding::Transfer<D::File>>,
    /// Since the start, counted by the loop.
    seconds: i64,
    /// The connection to the master.
    socket: following::Socket,
    /// The append-only file was begun anew, and its base is not there yet.
    lacks_base: bool,
    /// A snapshot, a transfer or a reading of keys has more to do at once.
    has_more: bool,
    connections: Vec<Option<Connection>>,
    clients: usize,
    /// Slots that were paused, and whose commands may run now.
    runnable: Vec<usize>,
    /// Slots with something to send, or to be closed.
    touched: Vec<usize>,
    /// Received by a client that has nothing unfinished.
    shared: Vec<u8>,
    last_tick: Instant,
    last_second: Instant,
    /// When a connection could not be taken last.
    last_complaint: Option<Instant>,
    /// No connection can be taken, for want of files or memory: tried again at the next tick.
    is_full: bool,
    is_stopping: bool,
}

/// Milliseconds since 1970.
pub fn now_millis() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

impl<S: Sockets, D: Directory> Reactor<S, D> {
    /// Ready to run. `open` opens a directory for files; `allocator` tells the bytes that are allocated.
    pub fn new(
        sockets: S,
        server: Server,
        aof: Option<Aof<D>>,
        open: fn(&Path) -> io::Result<D>,
        allocator: Allocator,
    ) -> Self {
        let now = Instant::now();
        let mut reactor = Self {
            sockets,
            server,
            aof,
            open,
            job: None,
            broadcast: None,
            transfers: Vec::new(),
            seconds: 0,
            socket: following::Socket::default(),
            lacks_base: false,
            has_more: false,
            connections: Vec::new(),
            clients: 0,
            runnable: Vec::new(),
            touched: Vec::new(),
            shared: Vec::with_capacity(RECEIVE_BYTES),
            last_tick: now,
            last_second: now,
            last_complaint: None,
            is_full: false,
            is_stopping: false,
        };
        reactor.server.writes_aof = reactor.aof.is_some();
        reactor.server.choose_effects();
        reactor.server.memory = Memory::new(allocator);
        reactor
    }

    /// Runs until it is asked to stop. Errors: the loop itself failed, or what was written could not be made safe at the end.
    pub fn run(mut self) -> Result<(), String> {
        let mut events = Vec::new();
        while !self.is_stopping {
            let has_work = self.has_more || !self.runnable.is_empty() || self.server.eviction.is_under_way;
            let most = if has_work { Duration::ZERO } else { self.patience() };
            events.clear();
            self.sockets.wait(most, &mut events).map_err(|error| format!("wait for events: {error}"))?;
            self.turn(&events);
        }
        match self.aof.take() {
            Some(aof) => aof.close().map_err(|error| format!("append-only file: {error}")),
            None => Ok(()),
        }
    }

    fn turn(&mut self, events: &[Event]) {
        eviction::set_time(&mut self.server, now_millis());
        for event in events {
            match *event {
                Event::Accept => self.accept(),
                Event::Readable(slot) => self.receive(slot),
                Event::Writable(slot) => self.touched.push(slot),
                Event::Stop => {
                    self.server.requests.push(Request::Shutdown { slot: None, saves: None, is_forced: false });
                }
            }
        }
        for slot in std::mem::take(&mut self.runnable) {
            self.resume(slot);
        }
        if self.last_tick.elapsed() >= TICK {
            self.tick();
        }
        if self.server.expires_actively {
            self.server.expire_some(EXPIRE_MAX);
        }
        if self.server.eviction.is_under_way {
            eviction::make_room(&mut self.server);
        }
        waiting::time_out(&mut self.server);
        waiting::serve(&mut self.server);
        if self.server.trackers > 0 {
            command::tracking::tell(&mut self.server, None);
            command::tracking::broadcast(&mut self.server);
        }
        self.runnable.append(&mut self.server.resumed);
        // Nobody's command is running: those who watch were told in their sessions.
        self.server.broken_watches.clear();
        self.commit();
        self.answer_master();
        self.do_requests();
        self.feed_newcomers();
        let has_more = [self.step_job(), self.step_broadcast(), self.step_transfers(), self.step_master()];
        self.has_more = has_more.contains(&true);
        if std::mem::take(&mut self.server.replication.has_news) {
            waiting::serve_acknowledged(&mut self.server);
        }
        self.answer();
    }

    /// How long to wait for events: until something is due.
    fn patience(&self) -> Duration {
        // A thread that writes a snapshot has room again before long.
        let most = match (self.is_walking() || self.server.is_loading, self.is_connecting()) {
            (true, _) => Duration::from_millis(1),
            (false, true) => Duration::from_millis(10),
            (false, false) => TICK,
        };
        let tick = TICK.saturating_sub(self.last_tick.elapsed()).min(most);
        match self.server.deadlines.first() {
            Some((deadline, _)) => tick.min(Duration::from_millis((deadline - now_millis()).max(0) as u64)),
            None => tick,
        }
    }

    /// What is done ten times a second.
    fn tick(&mut self) {
        self.last_tick = Instant::now();
        self.server.memory.look();
        if self.is_full {
            self.is_full = self.sockets.want_clients(true).is_err();
        }
        let began = Instant::now();
        let databases = &mut self.server.databases;
        while databases.iter_mut().fold(false, |any, database| database.step() | any) {
            if began.elapsed() > Duration::from_millis(1) {
                break;
            }
        }
        self.close_idle();
        let is_due = self.last_second.elapsed() >= Duration::from_secs(1);
        if is_due {
            self.last_second = Instant::now();
        }
        if let Some(aof) = &mut self.aof {
            aof.tend(self.server.settings.fsync, is_due);
        }
        self.tell_of_aof();
        if is_due {
            self.look_after_replicas();
            self.look_after_master();
            self.server.save.is_rewrite_due |= self.lacks_base && !self.is_walking();
        }
        self.look_at_snapshots();
    }

    fn tell_of_aof(&mut self) {
        if let Some(aof) = &self.aof {
            let status = &mut self.server.aof;
            status.current_bytes = aof.bytes();
            status.base_bytes = aof.base_bytes();
            status.syncs = aof.syncs();
            match (aof.failure(), &status.failure) {
                (now, before) if now == before.as_deref() => {}
                (Some(text), _) => {
                    log::warning(format_args!("append-only file: {text}: writes are refused"));
                    status.failure = Some(text.to_owned());
                }
                (None, _) => {
                    log::warning(format_args!("append-only file: written again: writes are taken"));
                    status.failure = None;
                }
            }
        }
    }

    fn close_idle(&mut self) {
        let patience = self.server.settings.integer("timeout") * 1000;
        let now = self.server.now;
        for session in self.server.sessions.iter_mut().flatten() {
            let may_be_idle = session.subscriptions() > 0 || session.is_master || session.is_replica();
            if patience > 0 && now - session.last_active > patience && !may_be_idle {
                session.is_killed = true;
                self.touched.push(session.slot);
            }
        }
    }

    fn keepalive_seconds(&self) -> u32 {
        self.server.settings.integer("tcp-keepalive").max(0) as u32
    }

    fn accept(&mut self) {
        let keepalive_seconds = self.keepalive_seconds();
        for _ in 0..ACCEPT_MAX {
            match self.sockets.accept(keepalive_seconds) {
                Ok(Some(accepted)) => self.greet(accepted),
                Ok(None) => return,
                Err(error) => {
                    // Whoever waits stays, and would wake the loop at every turn.
                    self.is_full = self.sockets.want_clients(false).is_ok();
                    if self.last_complaint.is_none_or(|at| at.elapsed() > Duration::from_secs(1)) {
                        log::warning(format_args!("accept a connection: {error}"));
                        self.last_complaint = Some(Instant::now());
                    }
                    return;
                }
            }
        }
    }

    fn greet(&mut self, accepted: Accepted) {
        let Accepted { slot, address, local_address, is_local } = accepted;
        let settings = &self.server.settings;
        let most = settings.integer("maxclients").max(0) as usize;
        let is_open = self.server.users.is_open();
        let refusal = if self.clients >= most {
            Some("-ERR max number of clients reached\r\n")
        } else if settings.is_yes("protected-mode") && is_open && !is_local {
            Some(
                "-DENIED rsedis is running in protected mode because protected mode is enabled and no password is set. Connect \
                 from this machine, or set requirepass, or start with --protected-mode no.\r\n",
            )
        } else {
            None
        };
        if let Some(text) = refusal {
            // Whether it hears is its own affair.
            drop(self.sockets.send(slot, text.as_bytes()));
            self.sockets.close(slot);
            self.server.stats.rejected += 1;
            return;
        }
        self.server.stats.connections += 1;
        let is_authenticated = is_open;
        let session = self.keep(Accepted { slot, address, local_address, is_local });
        session.is_authenticated = is_authenticated;
        let may_all = self.server.users.may_all(crate::acl::DEFAULT);
        if let Some(Some(session)) = self.server.sessions.get_mut(slot) {
            session.may_all = may_all;
        }
    }

    /// A connection and its session.
    fn keep(&mut self, accepted: Accepted) -> &mut Session {
        let Accepted { slot, address, local_address, .. } = accepted;
        let id = self.server.next_session;
        self.server.next_session += 1;
        if self.connections.len() <= slot {
            self.connections.resize_with(slot + 1, || None);
            self.server.sessions.resize_with(slot + 1, || None);
        }
        self.connections[slot] = Some(Connection::default());
        self.clients += 1;
        let session = Box::new(Session::new(id, slot, address, local_address, self.server.now));
        self.server.sessions[slot].insert(session)
    }

    fn receive(&mut self, slot: usize) {
        if self.socket.slot == Some(slot) {
            return self.receive_from_master(slot);
        }
        let Some(Some(connection)) = self.connections.get_mut(slot) else { return };
        if connection.is_paused {
            return;
        }
        let is_fresh = connection.query.is_empty();
        let received = if is_fresh {
            self.shared.clear();
            self.sockets.receive(slot, &mut self.shared, RECEIVE_BYTES)
        } else {
            let wanted = connection.parser.needs().saturating_sub(connection.query.len());
            self.sockets.receive(slot, &mut connection.query, wanted.clamp(RECEIVE_BYTES, 1 << 20))
        };
        match received {
            Received::Nothing => {}
            Received::End => {
                if let Some(session) = &mut self.server.sessions[slot] {
                    session.is_killed = true;
                }
                self.touched.push(slot);
            }
            Received::Bytes(count) => {
                self.server.stats.input_bytes += count as u64;
                if is_fresh {
                    let bytes = std::mem::take(&mut self.shared);
                    let consumed = self.execute(slot, &bytes);
                    if let Some(Some(connection)) = self.connections.get_mut(slot) {
                        connection.query.extend_from_slice(&bytes[consumed..]);
                    }
                    self.shared = bytes;
                } else {
                    self.resume(slot);
                }
            }
        }
    }

    /// Runs what a client has sent and was kept.
    fn resume(&mut self, slot: usize) {
        if self.socket.slot == Some(slot) {
            return self.go_on_with_master(slot);
        }
        let Some(Some(connection)) = self.connections.get_mut(slot) else { return };
        let mut bytes = std::mem::take(&mut connection.query);
        let consumed = self.execute(slot, &bytes);
        if consumed == bytes.len() {
            bytes = Vec::new();
        } else {
            bytes.drain(..consumed);
        }
        if let Some(Some(connection)) = self.connections.get_mut(slot) {
            connection.query = bytes;
        }
    }

    /// Runs all complete commands; how many bytes they were.
    fn execute(&mut self, slot: usize, bytes: &[u8]) -> usize {
        let (Some(Some(connection)), Some(mut session)) =
            (self.connections.get_mut(slot), self.server.sessions.get_mut(slot).and_then(Option::take))
        else {
            return bytes.len();
        };
        self.touched.push(slot);
        let mut at = 0;
        while at < bytes.len() && !session.is_closing && !session.is_killed && session.waiting.is_none() {
            if !self.server.requests.is_empty() {
                // They are done before anything else.
                self.runnable.push(slot);
                break;
            }
            if session.reply.bytes.len() - connection.sent > OUTPUT_PAUSE_BYTES && !session.is_replica() {
                connection.is_paused = true;
                break;
            }
            let limits = Limits { bulk_max: self.server.settings.bulk_max, is_stranger: !session.is_authenticated };
            match connection.parser.next(&bytes[at..], limits) {
                Ok(Some(length)) => {
                    let args = connection.parser.args(&bytes[at..]);
                    command::execute(&mut self.server, &mut session, args);
                    at += length;
                }
                Ok(None) => break,
                Err(error) => {
                    session.reply.error(&format!("ERR Protocol error: {error}"));
                    session.is_closing = true;
                }
            }
        }
        if session.is_closing {
            at = bytes.len();
        }
        let kept = bytes.len() - at;
        if kept > self.server.settings.query_max {
            session.is_killed = true;
        }
        session.query_bytes = kept;
        self.server.sessions[slot] = Some(session);
        at
    }

    /// Brings effects into the append-only file, and then to the replicas: they never have what this server may lose under `always`.
    /// Who wrote what could not be made safe is cut off: it was not done, as far as anybody may know.
    fn commit(&mut self) {
        if !self.server.effects.bytes.is_empty() {
            self.server.take_effects();
            let is_safe = match &mut self.aof {
                Some(aof) => aof.commit(&self.server.effects.for_file(), self.server.settings.fsync),
                None => true,
            };
            self.server.effects.clear();
            if !is_safe {
                self.tell_of_aof();
            }
            self.judge_writers(is_safe);
        }
        self.server.replicate();
    }

    /// Takes note of who has written in this turn.
    fn judge_writers(&mut self, is_safe: bool) {
        // Those who were woken wrote as well: what they had waited for, or what CLIENT PAUSE had postponed.
        for &slot in self.touched.iter().chain(&self.server.woken) {
            if let Some(Some(session)) = self.server.sessions.get_mut(slot)
                && std::mem::take(&mut session.has_written)
                && !is_safe
            {
                session.is_killed = true;
            }
        }
    }

    /// Sends replies and closes what is to be closed.
    fn answer(&mut self) {
        self.touched.append(&mut self.server.woken);
        let touched = std::mem::take(&mut self.touched);
        for &slot in &touched {
            if self.send(slot).is_err() {
                self.close(slot);
            }
        }
        self.touched = touched;
        self.touched.clear();
    }

    /// Errors: the connection is over.
    fn send(&mut self, slot: usize) -> Result<(), ()> {
        let (Some(Some(connection)), Some(Some(session))) =
            (self.connections.get_mut(slot), self.server.sessions.get_mut(slot))
        else {
            return Ok(());
        };
        if session.is_killed {
            return Err(());
        }
        let output = &mut session.reply.bytes;
        while connection.sent < output.len() {
            match self.sockets.send(slot, &output[connection.sent..]) {
                Ok(0) => break,
                Ok(count) => {
                    if let Some(replica) = session.replica.as_mut().filter(|one| one.stage == Stage::Receiving) {
                        replica.heard_at = self.server.now;
                    }
                    connection.sent += count;
                    self.server.stats.output_bytes += count as u64;
                }
                Err(_) => return Err(()),
            }
        }
        let waiting = output.len() - connection.sent;
        if waiting == 0 {
            output.clear();
            // Where memory is short, what idle clients keep would push keys out.
            output.shrink_to(if self.server.settings.memory_max > 0 { IDLE_OUTPUT_BYTES } else { RECEIVE_BYTES });
            connection.sent = 0;
            if session.is_closing {
                return Err(());
            }
        } else if connection.sent > RECEIVE_BYTES && connection.sent > waiting {
            output.drain(..connection.sent);
            connection.sent = 0;
        }
        let settings = &self.server.settings;
        let (limit, held) = match &session.replica {
            Some(replica) if session.is_replica() => (settings.replica_limit, replica.held.len()),
            _ if session.is_master => (OutputLimit::default(), 0),
            _ if session.subscriptions() > 0 => (settings.pubsub_limit, 0),
            _ => (settings.normal_limit, 0),
        };
        if connection.is_over((waiting + held) as u64, limit, self.server.now) {
            log::warning(format_args!(
                "client {} {} is cut off: it does not take its replies",
                session.id, session.address
            ));
            return Err(());
        }
        if connection.is_paused && waiting < OUTPUT_PAUSE_BYTES / 2 && !session.is_master {
            connection.is_paused = false;
            self.runnable.push(slot);
        }
        let wants = (!connection.is_paused && !session.is_closing, waiting > 0);
        if wants != connection.wants {
            connection.wants = wants;
            self.sockets.want(slot, wants.0, wants.1).map_err(drop)?;
        }
        Ok(())
    }

    fn close(&mut self, slot: usize) {
        if self.connections[slot].take().is_some() {
            self.clients -= 1;
        }
        if let Some(mut session) = self.server.sessions[slot].take() {
            self.server.forget(&mut session);
        }
        self.sockets.close(slot);
        if self.socket.slot == Some(slot) {
            self.note_lost_master("the connection was ended");
        }
    }
}
