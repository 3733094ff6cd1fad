//! The master's side of replication: all keys for replicas that need them, from a snapshot that is written to a file and sent from
//! there (`$length`), or that is sent while it is made (`$EOF`); PINGs; and the end of replicas that are not heard any more.
//!
//! Keys are taken and sent a little in each turn of the loop, and no faster than the replicas take them.

use std::io;
use std::time::{Duration, Instant};

use wal::files::{Directory, File as _};

use super::allowance::Turn;
use super::sockets::Sockets;
use super::{Reactor, keeping};
use crate::connection::Connection;
use crate::log;
use crate::persistence::free;
use crate::persistence::rdb_file::RdbFile;
use crate::persistence::snapshot::{Format, Walk};
use crate::rdb;
use crate::replication::{Contents, Replica, Stage};
use crate::server::Server;
use crate::session::Session;

/// A replica that gets keys: its slot and its identifier, since slots are used again.
pub(super) type Receiver = (usize, u64);

/// No more keys are added to what waits for a replica than this.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// Read from a snapshot's file at a time.
const PIECE_BYTES: usize = 256 << 10;

/// Keys that are sent while they are taken.
pub(super) struct Broadcast {
    walk: Walk,
    digest: crc::Digest<'static, u64, crc::Table<16>>,
    mark: String,
    receivers: Vec<Receiver>,
}

/// Keys that are sent from a file.
pub(super) struct Transfer<F> {
    receiver: Receiver,
    file: F,
    at: u64,
    bytes: u64,
}

impl<S: Sockets, D: Directory> Reactor<S, D> {
    /// Keys are being taken: nobody else may begin to.
    pub(super) fn is_walking(&self) -> bool {
        self.job.is_some() || self.broadcast.is_some()
    }

    /// A replica that gets keys, if it is still there.
    pub(super) fn receiver(&mut self, (slot, id): Receiver) -> Option<&mut Session> {
        let session = self.server.sessions.get_mut(slot)?.as_deref_mut()?;
        (session.id == id && session.is_replica() && !session.is_killed).then_some(session)
    }

    /// Bytes that wait to be sent to a client.
    fn waiting_bytes(&self, slot: usize) -> usize {
        let output = self.server.sessions.get(slot).and_then(|session| Some(session.as_ref()?.reply.bytes.len()));
        let sent = self.server.connections.get(slot).and_then(|connection| Some(connection.as_ref()?.sent));
        output.unwrap_or(0).saturating_sub(sent.unwrap_or(0))
    }

    /// Whether a replica takes more now. What waits for it is sent first, if that is too much and it was not tried before: in a turn that is long
    /// it takes more than that. All of it is safe.
    fn has_room(&mut self, (slot, _): Receiver) -> bool {
        if self.waiting_bytes(slot) <= WAITING_BYTES_MAX {
            return true;
        }
        let may_take = |connection: &Connection| !connection.wants.1;
        if !self.server.connections.get(slot).and_then(Option::as_ref).is_some_and(may_take) {
            return false;
        }
        if self.send(slot).is_err() {
            self.close(slot);
        }
        self.waiting_bytes(slot) <= WAITING_BYTES_MAX
    }

    /// Begins snapshots for replicas that need all keys, if nothing is in the way.
    pub(super) fn feed_newcomers(&mut self) {
        let server = &self.server;
        // What is not safe is in the keys and would come again behind them.
        let is_blocked = self.is_walking() || server.is_loading || !server.replication.pending.is_empty();
        if server.replication.replicas.is_empty() || is_blocked {
            return;
        }
        let is_diskless = server.settings.is_yes("repl-diskless-sync");
        let sessions = server.replication.replicas.iter().filter_map(|slot| server.sessions.get(*slot)?.as_deref());
        let newcomers = sessions.filter_map(|session| {
            let replica = session.replica.as_deref().filter(|replica| replica.stage == Stage::Waiting)?;
            // A part of the keys and functions is no file that anybody should find.
            let takes_mark = replica.takes_mark && (is_diskless || replica.contents != Contents::ALL);
            Some(((session.slot, session.id), takes_mark, replica))
        });
        let (marked, plain): (Vec<_>, Vec<_>) = newcomers.partition(|(_, takes_mark, _)| *takes_mark);
        if !plain.is_empty() {
            return self.begin_file(plain.into_iter().map(|(receiver, ..)| receiver).collect());
        }
        // Those who want what the first wants; the others come behind them.
        let Some(contents) = marked.first().map(|(.., replica)| replica.contents) else { return };
        let marked = marked.into_iter().filter(|(.., replica)| replica.contents == contents);
        let (receivers, since): (Vec<_>, Vec<_>) =
            marked.map(|(receiver, _, replica)| (receiver, replica.waits_since)).unzip();
        let waited = server.now - since.into_iter().min().unwrap_or(server.now);
        let delay = server.settings.millis("repl-diskless-sync-delay");
        let enough = server.settings.integer("repl-diskless-sync-max-replicas");
        if !is_diskless || waited >= delay || (enough > 0 && receivers.len() as i64 >= enough) {
            self.begin_broadcast(receivers, contents);
        }
    }

    /// Tells replicas what they get, and where the stream goes on behind it.
    fn announce(&mut self, receivers: &[Receiver], stage: Stage) {
        if !self.server.replication.is_replica() {
            self.server.effects.forget_selected();
        }
        let line = format!("FULLRESYNC {} {}", self.server.replication.id, self.server.replication.offset);
        let (now, offset) = (self.server.now, self.server.replication.offset);
        for &receiver in receivers {
            let Some(session) = self.receiver(receiver) else { continue };
            let Session { replica: Some(replica), reply, .. } = session else { continue };
            replica.held_from = (!replica.is_rdb_only).then_some(offset);
            if !replica.is_silent {
                reply.simple(&line);
            }
            (replica.stage, replica.heard_at, replica.has_file) = (stage, now, false);
            self.touched.push(receiver.0);
        }
    }

    fn begin_broadcast(&mut self, receivers: Vec<Receiver>, contents: Contents) {
        self.announce(&receivers, Stage::Receiving);
        log::notice(format_args!("Background RDB transfer started by pid {}", std::process::id()));
        let mark = self.server.random.name();
        for &receiver in &receivers {
            if let Some(session) = self.receiver(receiver) {
                session.reply.bytes.extend_from_slice(format!("$EOF:{mark}\r\n").as_bytes());
            }
        }
        let walk = Walk::begin(&mut self.server, Format::Part(contents));
        self.broadcast = Some(Broadcast { walk, digest: rdb::CRC.digest(), mark, receivers });
    }

    /// Goes on sending keys while they are taken; whether there is more to do at once.
    pub(super) fn step_broadcast(&mut self, slice: Duration) -> bool {
        let Some(mut broadcast) = self.broadcast.take() else { return false };
        let began = Instant::now();
        let has_more = loop {
            broadcast.receivers.retain(|receiver| self.receiver(*receiver).is_some());
            if broadcast.receivers.is_empty() {
                log::notice("Diskless rdb transfer, last replica dropped, killing fork child.");
                Walk::abandon(&mut self.server);
                return true;
            }
            if !broadcast.receivers.iter().all(|receiver| self.has_room(*receiver)) {
                break false;
            }
            if let Some(piece) = broadcast.walk.take_piece() {
                broadcast.digest.update(&piece);
                self.give(&broadcast.receivers, &piece);
            } else if broadcast.walk.is_over() {
                self.end_broadcast(broadcast);
                return true;
            } else if broadcast.walk.is_waiting() {
                break false;
            } else {
                broadcast.walk.advance(&mut self.server);
            }
            if began.elapsed() >= slice {
                break true;
            }
        };
        self.broadcast = Some(broadcast);
        has_more
    }

    fn give(&mut self, receivers: &[Receiver], bytes: &[u8]) {
        for &receiver in receivers {
            if let Some(session) = self.receiver(receiver) {
                session.reply.bytes.extend_from_slice(bytes);
                self.touched.push(receiver.0);
            }
        }
    }

    fn end_broadcast(&mut self, broadcast: Broadcast) {
        let Broadcast { digest, mark, receivers, .. } = broadcast;
        self.give(&receivers, &digest.finalize().to_le_bytes());
        self.give(&receivers, mark.as_bytes());
        let (now, still_up) = (self.server.now, receivers.len());
        log::notice(format_args!("Diskless rdb transfer, done reading from pipe, {still_up} replicas still up."));
        for receiver in receivers {
            if let Some(Session { replica: Some(replica), is_closing, .. }) = self.receiver(receiver) {
                (replica.stage, replica.heard_at) = (Stage::Loading, now);
                *is_closing |= replica.is_rdb_only;
            }
        }
    }

    /// Gives up what is being sent while it is taken: who was to get it comes again.
    pub(super) fn abandon_broadcast(&mut self) {
        let Some(broadcast) = self.broadcast.take() else { return };
        Walk::abandon(&mut self.server);
        self.dismiss(&broadcast.receivers);
    }

    /// Ends connections of replicas.
    pub(super) fn dismiss(&mut self, receivers: &[Receiver]) {
        for &receiver in receivers {
            if let Some(session) = self.receiver(receiver) {
                session.is_killed = true;
                self.touched.push(receiver.0);
            }
        }
    }

    fn begin_file(&mut self, receivers: Vec<Receiver>) {
        self.announce(&receivers, Stage::Snapshot);
        if let Err(error) = self.begin_job_for(receivers.clone()) {
            log::warning(format_args!("snapshot for replicas: {error}"));
            self.dismiss(&receivers);
        }
    }

    /// The file for replicas is whole: it is sent, and has no name any more.
    pub(super) fn begin_transfers(&mut self, file: &RdbFile<D>, receivers: &[Receiver]) -> io::Result<()> {
        let begun = self.try_begin_transfers(file, receivers);
        file.remove();
        begun
    }

    fn try_begin_transfers(&mut self, file: &RdbFile<D>, receivers: &[Receiver]) -> io::Result<()> {
        for &receiver in receivers {
            let file = file.open()?;
            let bytes = file.bytes()?;
            let now = self.server.now;
            let Some(session) = self.receiver(receiver) else { continue };
            let Session { replica: Some(replica), reply, .. } = session else { continue };
            (replica.stage, replica.heard_at, replica.has_file) = (Stage::Receiving, now, true);
            reply.bytes.extend_from_slice(format!("${bytes}\r\n").as_bytes());
            self.transfers.push(Transfer { receiver, file, at: 0, bytes });
        }
        Ok(())
    }

    /// In each turn: goes on with what takes all keys, and sends them, for as long as it may; whether there is more to do at once.
    pub(super) fn step_sharing(&mut self, turn: Turn) -> bool {
        if !self.is_walking() && self.transfers.is_empty() {
            self.server.save.feeds = false;
            return false;
        }
        let began = Instant::now();
        let slice = self.allowance.slice(began, turn);
        let walks = self.is_walking() && self.step_walks(slice);
        self.step_transfers(began + slice) | walks
    }

    /// Goes on sending files, a piece of each in any case; whether there is more to do at once.
    fn step_transfers(&mut self, until: Instant) -> bool {
        let is_for_replicas = |job: &keeping::Job<D>| matches!(job.purpose, keeping::Purpose::Replicas(..));
        self.server.save.feeds = self.broadcast.is_some() || self.job.as_ref().is_some_and(is_for_replicas);
        let mut has_more = false;
        let mut ended = Vec::new();
        for mut transfer in std::mem::take(&mut self.transfers) {
            let stepped = loop {
                match self.step_transfer(&mut transfer) {
                    Ok(true) if Instant::now() < until && self.has_room(transfer.receiver) => {}
                    stepped => break stepped,
                }
            };
            match stepped {
                Ok(true) => {
                    has_more |= self.waiting_bytes(transfer.receiver.0) == 0;
                    self.transfers.push(transfer);
                    continue;
                }
                Ok(false) => {}
                Err(error) => {
                    log::warning(format_args!("snapshot for a replica: {error}"));
                    self.dismiss(&[transfer.receiver]);
                }
            }
            ended.push(transfer.file);
        }
        free(ended);
        has_more
    }

    /// Sends a piece, if there is room; whether there is more.
    fn step_transfer(&mut self, transfer: &mut Transfer<D::File>) -> io::Result<bool> {
        if self.receiver(transfer.receiver).is_none() {
            return Ok(false);
        }
        if self.waiting_bytes(transfer.receiver.0) > WAITING_BYTES_MAX {
            return Ok(true);
        }
        let mut piece = vec![0; PIECE_BYTES.min((transfer.bytes - transfer.at) as usize)];
        transfer.file.read_at(&mut piece, transfer.at)?;
        transfer.at += piece.len() as u64;
        self.give(&[transfer.receiver], &piece);
        if transfer.at < transfer.bytes {
            return Ok(true);
        }
        let Server { sessions, replication, now, .. } = &mut self.server;
        if let Some(Some(session)) = sessions.get_mut(transfer.receiver.0) {
            Server::put_online(replication, session, *now);
        }
        Ok(false)
    }

    /// Once a second: newlines for those who wait, PINGs, and the end of those who are not heard and of a backlog that nobody needs.
    pub(super) fn look_after_replicas(&mut self) {
        self.seconds += 1;
        if self.seconds % self.server.settings.integer("repl-ping-replica-period").max(1) == 0 {
            let replication = &self.server.replication;
            let is_still = replication.failover.is_some();
            if !replication.replicas.is_empty() && !replication.is_replica() && !is_still {
                self.server.say_to_replicas(&[b"PING"]);
            }
        }
        let (now, patience) = (self.server.now, self.server.settings.integer("repl-timeout"));
        for slot in self.server.replication.replicas.clone() {
            let Some(Some(session)) = self.server.sessions.get_mut(slot) else { continue };
            let Session { replica: Some(replica), reply, is_killed, address, .. } = &mut **session else { continue };
            if matches!(replica.stage, Stage::Waiting | Stage::Snapshot) {
                reply.bytes.push(b'\n');
                replica.heard_at = now;
            } else if Replica::lag_seconds(replica, now) > patience {
                let sync = if replica.stage == Stage::Online { "streaming" } else { "full" };
                log::warning(format_args!("Disconnecting timedout replica ({sync} sync): {address}: see repl-timeout"));
                *is_killed = true;
            }
            self.touched.push(slot);
        }
        let server = &mut self.server;
        let patience = server.settings.integer("repl-backlog-ttl");
        let replication = &server.replication;
        let is_unneeded = patience > 0 && replication.replicas.is_empty() && !replication.is_replica();
        if is_unneeded && replication.backlog.is_some() && (now - replication.alone_since) / 1000 > patience {
            let id = server.random.name();
            server.replication.begin_anew(id);
            server.choose_effects();
        }
    }
}
