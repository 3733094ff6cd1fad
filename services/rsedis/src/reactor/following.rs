//! The replica's side of replication: the connection to the master, its keys, its stream.
//!
//! Keys are kept in memory until they have come as a whole, so that what is there is served meanwhile; then they take its place, a little in each turn of the loop, while clients hear `-LOADING`. With
//! `repl-diskless-load` they are read while they come: in the place of nothing, or aside, so that a transfer that breaks changes nothing;
//! where they are of the history of those that are there, these are served meanwhile. What is acknowledged to the master is what this
//! server's own append-only file has taken as its policy demands.

use std::io;
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use wal::files::Directory;

use super::allowance::Turn;
use super::connecting::connect;
use super::loading::Loading;
use super::sockets::{Received, Sockets};
use super::{RECEIVE_BYTES, Reactor, greeting};
use crate::protocol::{Limits, push_command};
use crate::replication::link::{self, Asked, Introduction, Next, Receipt};
use crate::replication::{Failover, Link, Master, Question, Verdict};
use crate::server::PausePurpose;
use crate::session::Session;
use crate::{command, log};

/// What a turn of the loop may spend on reading keys while nobody is served.
const BUDGET: Duration = Duration::from_millis(5);

/// Of a stream that is not run in a pause so much is kept here, and the rest with the master.
const HELD_BYTES_MAX: usize = 64 << 20;

/// The connection to a master.
#[derive(Default)]
pub(super) struct Socket {
    /// Where it is among the sockets.
    pub(super) slot: Option<usize>,
    /// A connection that is being made.
    connecting: Option<Receiver<io::Result<TcpStream>>>,
    /// What was read of its keys, while they are.
    loading: Loading,
    /// Commands of the stream that were read and are part of a transaction that has not ended.
    unfed: Vec<u8>,
    /// Some of the stream was not run, since clients have asked for a pause.
    is_held: bool,
}

impl<S: Sockets, D: Directory> Reactor<S, D> {
    fn master(&mut self) -> Option<&mut Master> {
        self.server.replication.master.as_mut()
    }

    /// Another master is followed now, or none.
    pub(super) fn drop_master(&mut self) {
        if let Some(slot) = self.socket.slot.take() {
            self.close(slot);
        }
        self.socket = Socket::default();
        self.connect_to_master();
        // Keys that were being read are gone, and the file with them.
        if !self.server.is_loading && self.aof.is_none() && self.server.settings.is_yes("appendonly") {
            self.begin_aof_behind();
        }
    }

    fn connect_to_master(&mut self) {
        let patience = Duration::from_secs(self.server.settings.integer("repl-timeout").max(1) as u64);
        let Some(master) = self.server.replication.master.as_mut() else { return };
        master.heard_at = self.server.now;
        let source = self.server.settings.text("bind-source-addr");
        match connect(master.host.clone(), master.port, source, patience) {
            Ok(connecting) => {
                master.link = Link::Connecting;
                self.socket.connecting = Some(connecting);
            }
            Err(error) => log::warning(format_args!("start a thread that connects: {error}")),
        }
    }

    /// The connection is over; another one is tried before long. What is known of the history stays.
    fn lose_master(&mut self, why: &str) {
        if let Some(slot) = self.socket.slot.take() {
            self.close(slot);
        }
        self.note_lost_master(why);
    }

    /// The same, where the socket is closed already.
    pub(super) fn note_lost_master(&mut self, why: &str) {
        if let Some(Link::Loading(_)) = self.master().map(|master| &master.link) {
            let at = self.socket.loading.at();
            let what_is_left = match self.server.aside {
                Some(_) => "what was read of them is dropped, and the keys of before stay",
                None => "what was read of them is dropped",
            };
            log::warning(format_args!(
                "Internal error in RDB reading offset {at}, keys of the master: {why}: {what_is_left}"
            ));
        }
        self.server.abandon_loading();
        self.socket = Socket::default();
        // Whoever was asked to lead may have done so before the connection was over, or may yet: a lead is not taken back.
        if let (Some(master), Some(failover)) = (&self.server.replication.master, &mut self.server.replication.failover)
            && matches!(master.link, Link::Handshake(Asked::Sync))
        {
            failover.note_silence();
        }
        let now = self.server.now;
        let Some(master) = self.master() else { return };
        if master.is_up() {
            master.down_since = now;
        }
        master.link = Link::Down;
        let (host, port) = (master.host.clone(), master.port);
        log::warning(format_args!("master {host}:{port}: {why}: trying again"));
    }

    /// Once a second.
    pub(super) fn look_after_master(&mut self) {
        let (now, patience) = (self.server.now, self.server.settings.millis("repl-timeout"));
        let Some(master) = self.server.replication.master.as_mut() else { return };
        let is_silent = now - master.heard_at > patience;
        match &master.link {
            Link::Down => self.connect_to_master(),
            Link::Loading(receipt) if is_silent && !receipt.is_whole() && !self.socket.loading.is_ahead(receipt) => {
                self.lose_master("Timeout receiving bulk data from MASTER, see repl-timeout")
            }
            Link::Loading(_) => self.tell_master(b"\n"),
            // It may speak, and is not heard.
            Link::Up if self.server.aof.failure.is_some() => {
                master.heard_at = now;
                self.acknowledge();
            }
            Link::Up if is_silent => self.lose_master("MASTER timeout: no data nor PING received, see repl-timeout"),
            Link::Receiving(_) if is_silent => {
                self.lose_master("Timeout receiving bulk data from MASTER, see repl-timeout")
            }
            _ if is_silent => self.lose_master("Timeout connecting to the MASTER, see repl-timeout"),
            Link::Up => self.acknowledge(),
            Link::Receiving(_) => self.tell_master(b"\n"),
            Link::Connecting | Link::Handshake(_) => {}
        }
    }

    /// The master is listened to again once its stream can be written.
    pub(super) fn hear_master_again(&mut self) {
        let is_up = self.server.replication.master.as_ref().is_some_and(Master::is_up);
        if let Some(slot) = self.socket.slot
            && is_up
            && self.server.aof.failure.is_none()
            && !self.holds_stream()
            && let Some(Some(connection)) = self.server.connections.get_mut(slot)
            && (std::mem::take(&mut connection.is_paused) | std::mem::take(&mut self.socket.is_held))
        {
            self.runnable.push(slot);
            self.touched.push(slot);
        }
    }

    /// As in Redis, what clients have asked to pause is not done for the master either.
    fn holds_stream(&self) -> bool {
        self.server.pauses.holds(PausePurpose::Client, self.server.now)
    }

    fn tell_master(&mut self, bytes: &[u8]) {
        if let Some(slot) = self.socket.slot
            && let Some(Some(session)) = self.server.sessions.get_mut(slot)
        {
            session.reply.bytes.extend_from_slice(bytes);
            self.touched.push(slot);
        }
    }

    /// Tells the master how much of its stream is safe here.
    pub(super) fn acknowledge(&mut self) {
        let mut bytes = Vec::new();
        let offset = if self.is_unsafe() { 0 } else { self.server.replication.offset };
        let offset = offset.to_string();
        push_command(&mut bytes, [b"REPLCONF".as_slice(), b"ACK", offset.as_bytes()].into_iter());
        self.tell_master(&bytes);
    }

    /// Answers the master if it has asked how far we are. What it asked about is safe by now, or not acknowledged.
    pub(super) fn answer_master(&mut self) {
        if self.master().is_some_and(|master| std::mem::take(&mut master.is_owed)) {
            self.acknowledge();
        }
    }

    /// In each turn: a connection that was made, keys to be read; whether there is more to do at once.
    pub(super) fn step_master(&mut self, turn: Turn) -> bool {
        if let Some(connecting) = &self.socket.connecting {
            match connecting.try_recv() {
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => self.lose_master("the thread that connects has gone"),
                Ok(Err(error)) => self.lose_master(&format!("connect: {error}")),
                Ok(Ok(stream)) => match self.greet_master(stream) {
                    Ok(()) => {}
                    Err(error) => self.lose_master(&format!("connect: {error}")),
                },
            }
        }
        self.step_loading(turn)
    }

    /// Whether something is under way that no event of a socket tells of.
    pub(super) fn is_connecting(&self) -> bool {
        self.socket.connecting.is_some()
    }

    fn greet_master(&mut self, stream: TcpStream) -> io::Result<()> {
        self.socket.connecting = None;
        let host = self.master().map(|master| master.host.clone()).unwrap_or_default();
        let tls = match self.server.settings.is_yes("tls-replication") {
            true => Some(self.server.tls.connect(&host)?),
            false => None,
        };
        let accepted = self.sockets.borrow_mut().adopt(stream, self.keepalive_seconds(), tls)?;
        let slot = accepted.slot;
        let session = greeting::keep(&mut self.server, accepted);
        session.is_master = true;
        session.is_authenticated = true;
        session.may_all = true;
        self.socket.slot = Some(slot);
        let (asked, bytes) = link::greeting();
        let now = self.server.now;
        if let Some(master) = self.master() {
            (master.link, master.heard_at) = (Link::Handshake(asked), now);
        }
        self.tell_master(&bytes);
        Ok(())
    }

    fn introduction(&self) -> Introduction {
        let (settings, replication) = (&self.server.settings, &self.server.replication);
        let password = settings.text("masterauth");
        let login = (!password.is_empty()).then(|| (settings.text("masteruser").to_owned(), password.to_owned()));
        let port = match (settings.text("replica-announce-port"), settings.text("tls-port")) {
            ("0", tls_port) if tls_port != "0" && settings.is_yes("tls-replication") => tls_port,
            ("0", _) => settings.text("port"),
            (port, _) => port,
        };
        Introduction {
            login,
            port: port.to_owned(),
            address: settings.text("replica-announce-ip").to_owned(),
            history: (replication.id.clone(), replication.applied()),
            demand: replication.failover.as_ref().map(Failover::demand).unwrap_or_default(),
        }
    }

    /// Takes what the master has sent.
    pub(super) fn receive_from_master(&mut self, slot: usize) {
        let Some(Some(connection)) = self.server.connections.get_mut(slot) else { return };
        if connection.is_paused {
            return;
        }
        if self.server.aof.failure.is_some() && self.server.replication.master.as_ref().is_some_and(Master::is_up) {
            // What cannot be written is not taken: all of it would have to be kept in memory.
            connection.is_paused = true;
            self.touched.push(slot);
            return;
        }
        if self.socket.is_held && connection.query.len() > HELD_BYTES_MAX {
            connection.is_paused = true;
            self.touched.push(slot);
            return;
        }
        let wanted = connection.parser.needs().saturating_sub(connection.query.len());
        let most = wanted.clamp(RECEIVE_BYTES, 1 << 20);
        let received = self.sockets.borrow_mut().receive(slot, connection.query.end(), most);
        match received {
            Received::Nothing => {}
            Received::End => self.lose_master("the connection has ended"),
            Received::Bytes(count) => {
                self.server.stats.input_bytes += count as u64;
                let now = self.server.now;
                if let Some(master) = self.master() {
                    master.heard_at = now;
                }
                self.go_on_with_master(slot);
            }
        }
    }

    /// Goes through what the master has sent and was kept.
    pub(super) fn go_on_with_master(&mut self, slot: usize) {
        if let Err(why) = self.try_go_on_with_master(slot) {
            self.lose_master(&why);
        }
    }

    fn try_go_on_with_master(&mut self, slot: usize) -> Result<(), String> {
        loop {
            let (introduction, may_be_direct) = (self.introduction(), self.server.reads_while_keys_come());
            let is_held = self.holds_stream();
            let (Some(Some(connection)), Some(master)) =
                (self.server.connections.get_mut(slot), self.server.replication.master.as_mut())
            else {
                return Ok(());
            };
            let query = connection.query.whole();
            match &mut master.link {
                Link::Handshake(asked) => {
                    let Some(at) = memchr::memchr(b'\n', query) else {
                        return match query.len() > crate::protocol::request::LINE_BYTES_MAX {
                            true => Err("an answer that does not end".to_owned()),
                            false => Ok(()),
                        };
                    };
                    let line: Vec<u8> = query.drain(..=at).collect();
                    let line = line.trim_ascii_end();
                    // It says that it is still there.
                    if line.is_empty() {
                        continue;
                    }
                    let answer = introduction.on_answer(*asked, line);
                    if *asked == Asked::Sync
                        && let Some(failover) = &mut self.server.replication.failover
                    {
                        match failover.judge(line, &answer, introduction.history.1) {
                            // The connection of who has said nothing is given up, and it is asked again.
                            Verdict::Leads | Verdict::Nothing => {}
                            Verdict::MayBeFollowed => {
                                failover.question = Question::Stream;
                                let request = self.introduction().request();
                                self.tell_master(&request);
                                continue;
                            }
                            Verdict::Refuses(why) => {
                                self.server.abort_failover(&why);
                                return Err(why);
                            }
                            Verdict::Lacks(why) => {
                                log::warning(format_args!("FAILOVER aborted: {why}"));
                                self.server.abort_failover(&why);
                                return Err(why);
                            }
                        }
                    }
                    match answer? {
                        Next::Ask(next, bytes) => {
                            *asked = next;
                            self.tell_master(&bytes);
                        }
                        Next::Full(id, offset) => {
                            master.link = Link::Receiving(Box::new(Receipt::new((id, offset))));
                            self.server.end_failover();
                        }
                        Next::Partial(id) => {
                            self.continue_history(slot, id);
                            self.server.end_failover();
                        }
                    }
                }
                Link::Receiving(receipt) => {
                    // Asked when the first of them come, and not again.
                    let is_direct = !receipt.has_begun() && may_be_direct;
                    let is_whole = receipt.take(query)?;
                    if is_whole || is_direct && receipt.has_begun() {
                        connection.is_paused = is_whole;
                        let receipt = std::mem::take(&mut **receipt);
                        self.begin_loading(receipt, is_direct);
                    }
                    return Ok(());
                }
                Link::Loading(receipt) => {
                    if !receipt.is_whole() {
                        connection.is_paused = receipt.take(query)? || self.socket.loading.is_ahead(receipt);
                        self.touched.push(slot);
                    }
                    return Ok(());
                }
                Link::Up if is_held => {
                    self.socket.is_held = true;
                    let bytes = query.len();
                    if let Some(Some(session)) = self.server.sessions.get_mut(slot) {
                        session.query_bytes = bytes;
                    }
                    return Ok(());
                }
                Link::Up => return self.apply_stream(slot),
                Link::Down | Link::Connecting => return Ok(()),
            }
        }
    }

    /// The stream goes on where it was.
    fn continue_history(&mut self, slot: usize, id: Option<String>) {
        let server = &mut self.server;
        if let Some(id) = id
            && id != server.replication.id
        {
            server.replication.shift(id);
            server.dismiss_replicas();
        }
        if server.replication.backlog.is_none() {
            // What waits was changed under the history so far, and is not in any backlog.
            server.replication.offset = server.replication.applied();
            server.replication.pending.clear();
            server.replication.begin_backlog(server.settings.backlog_bytes);
        }
        self.put_up(slot);
        // Until it hears so the master counts nothing of what is here as safe.
        self.acknowledge();
        log::notice("Successful partial resynchronization with master");
    }

    fn put_up(&mut self, slot: usize) {
        let now = self.server.now;
        let Some(master) = self.server.replication.master.as_mut() else { return };
        (master.link, master.heard_at) = (Link::Up, now);
        let database = master.database;
        if let Some(Some(session)) = self.server.sessions.get_mut(slot) {
            session.database = database;
        }
        self.server.choose_effects();
    }

    /// Everything goes.
    fn let_go(&mut self) {
        self.abandon_walks();
        if let Some(aof) = self.take_aof() {
            // What it holds is of another history, and is replaced once that of the master is there.
            drop(aof);
            self.server.writes_aof = false;
            self.server.aof.failure = None;
        }
        self.server.forget_everything();
    }

    /// The master's keys come: aside, or in the place of all that is there.
    fn begin_loading(&mut self, receipt: Receipt, is_direct: bool) {
        let is_aside = is_direct && self.server.settings.text("repl-diskless-load") == "swapdb";
        // What is there is an earlier state of the same keys: better than none.
        let serves = is_aside && receipt.history.0 == self.server.replication.id;
        match is_aside {
            true => self.server.begin_aside(),
            false => self.let_go(),
        }
        self.server.begin_loading(receipt.total().unwrap_or(0));
        self.server.is_loading = !serves;
        self.socket.loading = Loading::default();
        if let Some(master) = self.master() {
            master.link = Link::Loading(Box::new(receipt));
        }
        self.touched.extend(self.socket.slot);
        log::notice("MASTER <-> REPLICA sync: Loading DB in memory");
    }

    /// Reads keys; whether there is more to do at once.
    fn step_loading(&mut self, turn: Turn) -> bool {
        let is_beside = self.server.serves_old_keys();
        let Some(master) = self.server.replication.master.as_mut() else { return false };
        let Link::Loading(receipt) = &mut master.link else { return false };
        let budget = if is_beside { self.reading.slice(Instant::now(), turn) } else { BUDGET };
        if budget.is_zero() {
            return false;
        }
        let mut receipt = std::mem::take(&mut **receipt);
        self.server.exchange_aside();
        let outcome = self.socket.loading.step(&mut self.server, &mut receipt, budget);
        self.server.exchange_aside();
        if outcome == Ok(true) {
            self.end_loading(receipt);
            return true;
        }
        let has_more = self.socket.loading.has_more(&receipt) && (!is_beside || self.reading.has_more());
        let hears_more = !receipt.is_whole() && !self.socket.loading.is_ahead(&receipt);
        if let Some(Link::Loading(placed)) = self.master().map(|master| &mut master.link) {
            **placed = receipt;
        }
        match outcome {
            Err(error) => {
                self.lose_master(&format!("its keys: {error}"));
                false
            }
            Ok(_) => {
                if hears_more {
                    self.hear_more_keys();
                }
                has_more
            }
        }
    }

    /// The master is listened to again if it was not for the keys that had come and were not read.
    fn hear_more_keys(&mut self) {
        let now = self.server.now;
        if let Some(slot) = self.socket.slot
            && let Some(Some(connection)) = self.server.connections.get_mut(slot)
            && std::mem::take(&mut connection.is_paused)
        {
            self.touched.push(slot);
            if let Some(master) = self.master() {
                // It could not be heard.
                master.heard_at = now;
            }
        }
    }

    fn end_loading(&mut self, receipt: Receipt) {
        self.server.is_loading = false;
        if self.server.aside.is_some() {
            log::notice("MASTER <-> REPLICA sync: Swapping active DB with loaded DB");
            self.let_go();
            self.server.adopt_aside();
        }
        let Some(master) = self.server.replication.master.as_mut() else { return };
        (master.link, master.database) = (Link::Up, std::mem::take(&mut self.socket.loading).stream_database());
        let size = self.server.settings.backlog_bytes;
        let replication = &mut self.server.replication;
        (replication.id, replication.offset) = receipt.history;
        replication.second = None;
        replication.pending.clear();
        replication.begin_backlog(size);
        if self.server.settings.is_yes("appendonly") {
            self.begin_aof_behind();
        }
        let Some(slot) = self.socket.slot else { return };
        self.put_up(slot);
        log::notice("MASTER <-> REPLICA sync: Finished with success");
        self.acknowledge();
        if let Some(Some(connection)) = self.server.connections.get_mut(slot) {
            connection.is_paused = false;
        }
        self.runnable.push(slot);
    }

    /// Runs what the master's stream has.
    fn apply_stream(&mut self, slot: usize) -> Result<(), String> {
        let (Some(mut connection), Some(mut session)) = (
            self.server.connections.get_mut(slot).and_then(Option::take),
            self.server.sessions.get_mut(slot).and_then(Option::take),
        ) else {
            return Ok(());
        };
        let mut query = std::mem::take(&mut connection.query);
        let bytes = query.rest();
        let (mut at, mut outcome) = (0, Ok(()));
        self.server.applies_stream = true;
        while at < bytes.len() && !session.is_killed {
            match connection.parser.next(&bytes[at..], Limits::TAKEN) {
                Ok(Some(length)) => {
                    let args = connection.parser.args(&bytes[at..]);
                    apply(&mut self.server, &mut session, args);
                    self.socket.unfed.extend_from_slice(&bytes[at..at + length]);
                    at += length;
                    if session.transaction.is_none() {
                        self.server.replication.pending.append(&mut self.socket.unfed);
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    outcome = Err(format!("its stream: {error}"));
                    break;
                }
            }
        }
        self.server.applies_stream = false;
        if let Some(master) = &mut self.server.replication.master
            && session.transaction.is_none()
        {
            master.database = session.database;
        }
        query.pass(at);
        connection.query = query;
        session.query_bytes = connection.query.len();
        self.server.sessions[slot] = Some(session);
        self.server.connections[slot] = Some(connection);
        outcome
    }
}

/// Runs a command of the master's, who hears nothing of it.
fn apply(server: &mut crate::server::Server, session: &mut Session, args: crate::protocol::Args<'_>) {
    // It never waits, and what is to be sent to it is not touched.
    session.may_not_wait = true;
    let before = session.reply.bytes.len();
    command::execute(server, session, args);
    if session.reply.bytes.get(before) == Some(&b'-') {
        let name = args.get(0).unwrap_or_default().escape_ascii();
        let text = session.reply.bytes[before..].trim_ascii().escape_ascii();
        log::warning(format_args!(
            "== CRITICAL == This replica is sending an error to its master: '{text}' after processing the command '{name}'"
        ));
    }
    session.reply.bytes.truncate(before);
}
