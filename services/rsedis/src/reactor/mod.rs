//! The event loop. A turn: take what sockets have and run all complete commands; bring their effects into the append-only file,
//! synced if so set; give them to the replicas; send the replies, one write for each client.
//!
//! [`Sockets`] is the seam to the operating system: [`epoll::EpollSockets`] is one side of it, io_uring may be another.

mod allowance;
mod aof;
mod connecting;
mod debugging;
pub mod epoll;
mod feeding;
mod following;
mod greeting;
mod interlude;
mod keeping;
pub mod listening;
mod loading;
mod migrating;
mod requests;
mod running;
mod sending;
mod sockets;
mod stopping;
pub mod users;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use wal::files::Directory;

use crate::clock::now_millis;
use crate::connection::Connection;
use crate::memory::{Allocator, Memory};
use crate::metrics::{Durations, Metrics};
use crate::persistence::Aof;
use crate::server::{Interlude, Server};
use crate::settings::Fsync;
use crate::{command, eviction, log, waiting};
use allowance::Allowance;
pub use keeping::Opens;
pub use sockets::{Accepted, Event, Received, Signal, Sockets};

/// Received at a time, bytes.
const RECEIVE_BYTES: usize = 64 << 10;
/// A command that needs this many bytes gets a buffer of its size, and the rest of it is taken at once, as far as it is there.
const LARGE_BYTES: usize = 32 << 10;
/// Of such a command this much is taken in one turn, so that others are served.
const LARGE_TURN_BYTES: usize = 4 << 20;
/// Keys that expire in one turn, so that a turn is short.
const EXPIRE_MAX: usize = 2_000;
/// How often the loop looks after what is not asked for by clients.
const TICK: Duration = Duration::from_millis(100);

/// The loop and all it holds.
pub struct Reactor<S: Sockets, D: Directory> {
    /// Shared with who serves while a script runs.
    sockets: Rc<RefCell<S>>,
    /// The state.
    pub server: Server,
    aof: Option<Aof<D>>,
    opens: Opens<D>,
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
    /// Writes are postponed until the base is there.
    postpones_writes: bool,
    /// A snapshot, a transfer or a reading of keys has more to do at once.
    has_more: bool,
    /// Slots that were paused, and whose commands may run now.
    runnable: Vec<usize>,
    /// Slots with something to send, or to be closed.
    touched: Vec<usize>,
    /// Received by a client that has nothing unfinished.
    shared: Vec<u8>,
    last_tick: Instant,
    /// What of the time is for snapshots and what replicas are sent.
    allowance: Allowance,
    /// The same for a master's keys.
    reading: Allowance,
    last_second: Instant,
    /// When a connection could not be taken last.
    last_complaint: Option<Instant>,
    /// No connection can be taken, for want of files or memory: tried again at the next tick.
    is_full: bool,
    is_stopping: bool,
}

impl<S: Sockets, D: Directory> Reactor<S, D> {
    /// Ready to read data, during which clients are answered, and to run. `allocator` tells the bytes that are allocated.
    pub fn new(sockets: S, server: Server, opens: Opens<D>, allocator: Allocator) -> Self {
        let now = Instant::now();
        let sockets = Rc::new(RefCell::new(sockets));
        let mut reactor = Self {
            sockets: Rc::clone(&sockets),
            server,
            aof: None,
            opens,
            job: None,
            broadcast: None,
            transfers: Vec::new(),
            seconds: 0,
            socket: following::Socket::default(),
            lacks_base: false,
            postpones_writes: false,
            has_more: false,
            runnable: Vec::new(),
            touched: Vec::new(),
            shared: Vec::with_capacity(RECEIVE_BYTES),
            last_tick: now,
            allowance: Allowance::new(now),
            reading: Allowance::new(now),
            last_second: now,
            last_complaint: None,
            is_full: false,
            is_stopping: false,
        };
        reactor.server.memory = Memory::new(allocator);
        let hears = Rc::clone(&sockets);
        reactor.server.interlude = Interlude::of(
            move |server, is_first| interlude::serve(&sockets, server, is_first),
            move |server, slot, patience| debugging::hear(&hears, server, slot, patience),
        );
        reactor
    }

    /// Runs until it is asked to stop, with an append-only file or without. Errors: the loop itself failed, or what was written
    /// could not be made safe at the end.
    pub fn run(mut self, aof: Option<Aof<D>>) -> Result<(), String> {
        self.aof = aof;
        self.server.writes_aof = self.aof.is_some();
        self.server.choose_effects();
        let mut events = Vec::new();
        while !self.is_stopping {
            let has_work = self.has_more || !self.runnable.is_empty() || self.server.eviction.is_under_way;
            let most = if has_work { Duration::ZERO } else { self.patience() };
            events.clear();
            self.sockets.borrow_mut().wait(most, &mut events).map_err(|error| format!("wait for events: {error}"))?;
            self.turn(&events);
        }
        if let Some(aof) = self.aof.take() {
            aof.close().map_err(|error| format!("append-only file: {error}"))?;
        }
        log::notice("rsedis is now ready to exit, bye bye...");
        Ok(())
    }

    fn turn(&mut self, events: &[Event]) {
        let turn = self.begin_turn(events);
        self.server.set_time(now_millis());
        for event in events {
            match *event {
                Event::Accept => self.accept(),
                Event::Readable(slot) => self.receive(slot),
                Event::Writable(slot) => self.touched.push(slot),
                Event::Stop(signal) => stopping::ask(&mut self.server, signal),
            }
        }
        for slot in std::mem::take(&mut self.runnable) {
            self.resume(slot);
        }
        if self.last_tick.elapsed() >= TICK {
            self.tick();
        }
        if self.server.expires_actively {
            self.watch("expire-cycle", |reactor| reactor.server.expire_some(EXPIRE_MAX));
        }
        if self.server.eviction.is_under_way {
            self.watch("eviction-cycle", |reactor| eviction::make_room(&mut reactor.server));
        }
        waiting::time_out(&mut self.server);
        waiting::serve(&mut self.server);
        if self.server.trackers.is_any() {
            command::tracking::tell(&mut self.server, None);
            command::tracking::broadcast(&mut self.server);
        }
        self.runnable.append(&mut self.server.resumed);
        // Nobody's command is running: those who watch were told in their sessions.
        self.server.broken_watches.clear();
        self.commit();
        self.answer_master();
        self.server.step_failover();
        self.do_requests();
        self.judge_base();
        self.step_shutdown();
        self.feed_newcomers();
        // Replies do not wait for what is done beside them.
        self.answer();
        self.has_more = self.step_sharing(turn) | self.step_master(turn);
        if std::mem::take(&mut self.server.replication.has_news) {
            waiting::serve_acknowledged(&mut self.server);
        }
        self.answer();
        self.note_timing(turn.began, |metrics| &metrics.turns);
    }

    /// How long to wait for events: until something is due.
    fn patience(&self) -> Duration {
        // A thread that writes a snapshot has room again before long.
        let is_due = self.server.save.is_rewrite_due;
        let most = match (self.is_walking() || self.server.reads_data() || is_due, self.is_connecting()) {
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
        self.server.note_pace();
        if self.is_full {
            self.is_full = self.sockets.borrow_mut().want_clients(true).is_err();
        }
        let began = Instant::now();
        let databases = &mut self.server.databases;
        while databases.iter_mut().fold(false, |any, database| database.step() | any) {
            if began.elapsed() > Duration::from_millis(1) {
                break;
            }
        }
        self.close_idle();
        self.judge_lingering();
        self.hear_master_again();
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
            self.look_at_base();
        }
        // Clients wait for a lead that is handed over.
        if is_due || self.server.is_handing_over() {
            self.look_after_master();
        }
        self.look_at_snapshots();
        // Once all that INFO tells is up to date.
        command::tell_metrics(&self.server);
    }

    fn close_idle(&mut self) {
        let patience = self.server.settings.millis("timeout");
        let now = self.server.now;
        for session in self.server.sessions.iter_mut().flatten() {
            let listens = session.subscriptions() > 0 || session.is_monitor || session.waiting.is_some();
            let is_spared = listens || session.is_master || session.is_replica();
            if patience > 0 && now - session.last_active > patience && !is_spared {
                session.is_killed = true;
                self.touched.push(session.slot);
            }
        }
    }

    /// Who has been above the soft limit for too long is cut off also where nothing is sent to it any more.
    fn judge_lingering(&mut self) {
        let connections = self.server.connections.iter().enumerate();
        let above = connections.filter(|(_, connection)| connection.as_ref().is_some_and(Connection::is_above));
        self.touched.extend(above.map(|(slot, _)| slot));
    }

    fn keepalive_seconds(&self) -> u32 {
        self.server.settings.integer("tcp-keepalive").max(0) as u32
    }

    fn accept(&mut self) {
        let accepted = greeting::accept(&mut *self.sockets.borrow_mut(), &mut self.server);
        // Behind the statement: what is borrowed in the condition stays so in the block.
        if let Err(error) = accepted {
            // Whoever waits stays, and would wake the loop at every turn.
            self.is_full = self.sockets.borrow_mut().want_clients(false).is_ok();
            if self.last_complaint.is_none_or(|at| at.elapsed() > Duration::from_secs(1)) {
                log::warning(format_args!("accept a connection: {error}"));
                self.last_complaint = Some(Instant::now());
            }
        }
    }

    fn receive(&mut self, slot: usize) {
        if self.socket.slot == Some(slot) {
            return self.receive_from_master(slot);
        }
        let Some(Some(connection)) = self.server.connections.get_mut(slot) else { return };
        if connection.is_paused {
            return;
        }
        let is_fresh = connection.query.is_empty();
        let received = if is_fresh {
            self.shared.clear();
            self.sockets.borrow_mut().receive(slot, &mut self.shared, RECEIVE_BYTES)
        } else {
            receive_rest(&mut *self.sockets.borrow_mut(), slot, connection)
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
                if let Some(Some(session)) = self.server.sessions.get_mut(slot) {
                    session.last_active = self.server.now;
                }
                if is_fresh {
                    let bytes = std::mem::take(&mut self.shared);
                    let consumed = self.execute(slot, &bytes);
                    let mut is_large = false;
                    if let Some(Some(connection)) = self.server.connections.get_mut(slot) {
                        connection.query.end().extend_from_slice(&bytes[consumed..]);
                        is_large = consumed < bytes.len() && connection.parser.needs() >= LARGE_BYTES;
                    }
                    self.shared = bytes;
                    if is_large {
                        // The rest is there already, as often as not.
                        return self.receive(slot);
                    }
                } else {
                    self.note_query(slot);
                    if self.server.settings.clients_max > 0 {
                        // Before what it has sent runs: nothing else would be left of a large command then.
                        self.server.count_client(slot);
                        self.evict_clients();
                    }
                    self.resume(slot);
                }
            }
        }
        self.note_query(slot);
    }

    /// Closes those who take too much.
    fn evict_clients(&mut self) {
        self.server.clients_to_evict().into_iter().for_each(|slot| self.close(slot));
    }

    /// What a client's buffer takes, for whoever asks.
    fn note_query(&mut self, slot: usize) {
        if let (Some(Some(connection)), Some(Some(session))) =
            (self.server.connections.get(slot), self.server.sessions.get_mut(slot))
        {
            (session.query_capacity, session.parser_bytes) = (connection.query.capacity(), connection.parser.memory());
        }
    }

    /// Runs what a client has sent and was kept.
    fn resume(&mut self, slot: usize) {
        if self.socket.slot == Some(slot) {
            return self.go_on_with_master(slot);
        }
        let Some(Some(connection)) = self.server.connections.get_mut(slot) else { return };
        let mut query = std::mem::take(&mut connection.query);
        let consumed = self.execute(slot, query.rest());
        query.pass(consumed);
        if let Some(Some(connection)) = self.server.connections.get_mut(slot) {
            connection.query = query;
        }
        self.note_query(slot);
    }

    /// Runs all complete commands; how many bytes they were.
    fn execute(&mut self, slot: usize, bytes: &[u8]) -> usize {
        // While a command runs its client is not among the others.
        let (Some(mut connection), Some(mut session)) = (
            self.server.connections.get_mut(slot).and_then(Option::take),
            self.server.sessions.get_mut(slot).and_then(Option::take),
        ) else {
            return bytes.len();
        };
        self.touched.push(slot);
        let run = running::run(&mut self.server, &mut connection, &mut session, bytes, true);
        if run.is_interrupted {
            self.runnable.push(slot);
        }
        if !interlude::has_unsafe_writes(&self.server) {
            connection.safe = session.reply.bytes.len();
        }
        self.server.sessions[slot] = Some(session);
        self.server.connections[slot] = Some(connection);
        if self.server.settings.clients_max > 0 {
            // Others run in the same turn: what this one waits for counts for them.
            self.server.count_client(slot);
            self.evict_clients();
        }
        run.bytes
    }

    /// Does what clients wait for; it may be a spike.
    fn watch<T>(&mut self, event: &'static str, work: impl FnOnce(&mut Self) -> T) -> T {
        if self.server.settings.latency_threshold_millis == 0 {
            return work(self);
        }
        let began = Instant::now();
        let outcome = work(self);
        self.server.note_latency(event, began.elapsed());
        outcome
    }

    /// When something begins of which `/metrics` tells how long it takes, if there is one.
    fn begin_timing(&self) -> Option<Instant> {
        self.server.metrics.is_some().then(Instant::now)
    }

    /// It is over.
    fn note_timing(&self, began: Option<Instant>, durations: impl FnOnce(&Metrics) -> &Durations) {
        if let (Some(metrics), Some(began)) = (&self.server.metrics, began) {
            durations(metrics).note(began.elapsed());
        }
    }

    /// Brings effects into the append-only file, and then to the replicas: they never have what this server may lose under `always`.
    /// Who wrote what could not be made safe is cut off: it was not done, as far as anybody may know.
    fn commit(&mut self) {
        let mut is_safe = true;
        if !self.server.effects.bytes.is_empty() {
            self.server.take_effects();
            let began = self.begin_timing();
            let fsync = self.server.settings.fsync;
            let event = if fsync == Fsync::Always { "aof-fsync-always" } else { "aof-write" };
            is_safe = self.watch(event, |reactor| match &mut reactor.aof {
                Some(aof) => {
                    if reactor.server.settings.is_yes("aof-timestamp-enabled") {
                        aof.note_time(reactor.server.now / 1000);
                    }
                    aof.commit(&reactor.server.effects.for_file(), fsync)
                }
                None => true,
            });
            if self.aof.is_some() {
                self.note_timing(began, |metrics| &metrics.commits);
            }
            self.server.effects.clear();
            if !is_safe {
                self.tell_of_aof();
            }
        }
        // Also where nothing was to be made safe: who has written is not waited for any more.
        self.judge_writers(is_safe);
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
        if self.server.settings.clients_max > 0 {
            touched.iter().for_each(|slot| self.server.count_client(*slot));
            self.evict_clients();
        }
        self.touched = touched;
        self.touched.clear();
    }

    /// Errors: the connection is over.
    fn send(&mut self, slot: usize) -> Result<(), ()> {
        if let (Some(Some(connection)), Some(Some(session))) =
            (self.server.connections.get_mut(slot), self.server.sessions.get(slot))
        {
            connection.safe = session.reply.bytes.len();
        }
        let now = self.server.now;
        if sending::send(&mut *self.sockets.borrow_mut(), &mut self.server, slot, now)? {
            self.runnable.push(slot);
        }
        Ok(())
    }

    fn close(&mut self, slot: usize) {
        if self.server.connections[slot].take().is_some() {
            self.server.clients -= 1;
        }
        if let Some(mut session) = self.server.sessions[slot].take() {
            self.server.forget(&mut session);
        }
        self.sockets.borrow_mut().close(slot);
        if self.server.settings.clients_max > 0 {
            self.server.count_client(slot);
        }
        if self.socket.slot == Some(slot) {
            self.note_lost_master("the connection was ended");
        }
    }
}

/// Takes more of a command that has not come whole. A large one's buffer grows with what has come, and to no more than the command needs:
/// who announces much and sends little takes little.
fn receive_rest(sockets: &mut impl Sockets, slot: usize, connection: &mut Connection) -> Received {
    let needs = connection.parser.needs();
    if needs < LARGE_BYTES {
        return sockets.receive(slot, connection.query.end(), RECEIVE_BYTES);
    }
    let query = connection.query.whole();
    let mut taken = 0;
    loop {
        let length = query.len();
        let missing = needs.saturating_sub(length);
        if missing == 0 || taken >= LARGE_TURN_BYTES {
            return Received::Bytes(taken);
        }
        let room = query.capacity() - length;
        if room == 0 {
            query.reserve_exact(missing.min(length.max(RECEIVE_BYTES)));
        }
        let most = missing.min(query.capacity() - length);
        match sockets.receive(slot, query, most) {
            Received::Bytes(count) => taken += count,
            // An end is found again by whoever receives next.
            Received::Nothing | Received::End if taken > 0 => return Received::Bytes(taken),
            received => return received,
        }
    }
}
