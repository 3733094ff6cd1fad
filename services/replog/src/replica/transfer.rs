//! Snapshots between members, as one of them sends and takes them: see [`crate::snapshot`]. They are told of in etcd's words.

use std::io;
use std::time::Duration;

use wal::files::Directory;

use super::{Fatal, ReplicatedLog};
use crate::bugs::Bug;
use crate::clock::Now;
use crate::machine::StateMachine;
use crate::membership::hex;
use crate::message::{Body, Message};
use crate::snapshot::{
    ChunksRead, FilesJob, FilesJobDone, Receiving, SnapshotId, SnapshotMessage, SnapshotMeta, Store, WINDOW_CHUNKS,
    is_without_room,
};

impl<S: StateMachine, D: Directory> ReplicatedLog<S, D> {
    /// What another member says about snapshots.
    pub(super) fn receive_of_snapshot(&mut self, from: u64, message: SnapshotMessage, now: Now) -> Result<(), Fatal> {
        match message {
            SnapshotMessage::Fetch { id, chunks } => {
                self.send_chunks(from, id, chunks, now);
                Ok(())
            }
            SnapshotMessage::Chunk { id, chunk, checksum, data } => {
                let expected = self.receiving.as_mut().filter(|receiving| receiving.meta.id() == id);
                let Some(receiving) = expected else { return Ok(()) };
                match self.store.keep(&id, chunk, checksum, &data) {
                    Ok(true) => {
                        receiving.outstanding = receiving.outstanding.saturating_sub(1);
                        self.advance_receiving(now);
                        Ok(())
                    }
                    Ok(false) => Ok(()),
                    Err(error) => self.put_off_receiving(error),
                }
            }
            SnapshotMessage::Gone { id } => {
                self.receiving.take_if(|receiving| receiving.meta.id() == id && receiving.from == from);
                Ok(())
            }
        }
    }

    fn send_chunks(&mut self, to: u64, id: SnapshotId, chunks: Vec<u32>, now: Now) {
        let meta = self.node.snapshot_meta().clone();
        if meta.id() != id || !meta.is_any() {
            return self.refuse(to, id);
        }
        self.node.snapshot_is_fetched(to, now);
        self.tell_sending(to, &meta);
        let chunks = chunks.into_iter().filter(|chunk| *chunk < meta.chunks()).take(WINDOW_CHUNKS).collect();
        // Who asks again has not had what it asked for before.
        self.wanted_chunks.insert(to, (id, chunks));
        self.read_wanted_chunks();
    }

    fn read_wanted_chunks(&mut self) {
        while !self.is_reading_chunks
            && let Some((to, (id, chunks))) = self.wanted_chunks.pop_first()
        {
            let meta = self.node.snapshot_meta().clone();
            if meta.id() != id {
                self.refuse(to, id);
                continue;
            }
            self.chunks_job = Some(self.store.read_chunks(to, meta, chunks));
            self.is_reading_chunks = true;
        }
    }

    /// What members asked for is read, or cannot be.
    pub fn chunks_read(&mut self, read: ChunksRead) -> Result<(), Fatal> {
        let ChunksRead { to, meta, chunks, failed } = read;
        self.is_reading_chunks = false;
        let id = meta.id();
        for (chunk, checksum, data) in chunks {
            self.send(to, SnapshotMessage::Chunk { id, chunk, checksum, data });
        }
        match failed {
            None => {}
            // A newer one has taken its place meanwhile, and its file is gone.
            Some(_) if self.node.snapshot_meta().id() != id => self.refuse(to, id),
            // Nobody else has what its memory has, and after a start it would not have it either: the next one takes its place.
            Some(error) if self.node.membership().voters == [self.node.id()] => {
                tracing::error!(%error, "a new snapshot is made in its place: until then do not stop this member");
                self.wants_snapshot = true;
                self.refuse(to, id);
            }
            // It ends: another one leads then, and has a snapshot of its own.
            Some(error) => return Err(error.into()),
        }
        self.read_wanted_chunks();
        Ok(())
    }

    /// Says once for each snapshot and member that it is sent.
    fn tell_sending(&mut self, to: u64, meta: &SnapshotMeta) {
        let lacks_it = self.node.progress().get(&to).is_some_and(|matched| *matched < meta.index);
        if lacks_it && self.sending.insert(to, meta.clone()).as_ref() != Some(meta) {
            tracing::info!(
                "snapshot-index" = meta.index,
                "remote-peer-id" = hex(to),
                bytes = meta.bytes,
                "sending database snapshot"
            );
        }
    }

    /// Says so when who was sent a snapshot has all that is in it. Who leads no more does not learn of it.
    pub(super) fn tell_sent(&mut self) {
        if self.sending.is_empty() {
            return;
        }
        let progress = self.node.progress();
        self.sending.retain(|to, meta| {
            let has_it = progress.get(to).map(|matched| *matched >= meta.index);
            if has_it == Some(true) {
                tracing::info!(
                    "snapshot-index" = meta.index,
                    "remote-peer-id" = hex(*to),
                    bytes = meta.bytes,
                    "sent database snapshot"
                );
            }
            has_it == Some(false)
        });
    }

    /// This one does not have what was asked for.
    fn refuse(&mut self, to: u64, id: SnapshotId) {
        self.send(to, SnapshotMessage::Gone { id });
        self.node.snapshot_is_gone(to);
    }

    pub(super) fn begin_receiving(&mut self, from: u64, meta: SnapshotMeta, now: Now) -> Result<(), Fatal> {
        if self.store.has(&meta.id())? {
            self.node.snapshot_received(&meta);
            return Ok(());
        }
        if let Some(receiving) = self.receiving.as_mut().filter(|receiving| receiving.meta == meta) {
            receiving.from = from;
            return Ok(());
        }
        // The leader offers it again.
        if self.is_at_files {
            return Ok(());
        }
        // Once, while there is no room for it.
        if !self.lacks_room {
            tracing::info!(
                "local-member-id" = hex(self.node.id()),
                "remote-snapshot-sender-id" = hex(from),
                "incoming-snapshot-index" = meta.index,
                "incoming-snapshot-size-bytes" = meta.bytes,
                "receiving database snapshot"
            );
        }
        self.start_files_job(|store| store.begin(&meta));
        self.receiving = Some(Receiving { from, meta, outstanding: 0, asked_at: 0, begun_at: now.boot_micros });
        self.advance_receiving(now);
        Ok(())
    }

    fn start_files_job(&mut self, job: impl FnOnce(&mut Store<D>) -> Option<FilesJob<D>>) {
        self.files_job = job(&mut self.store);
        self.is_at_files = self.files_job.is_some();
    }

    /// What was to be done with files is done.
    pub fn files_job_done(&mut self, done: FilesJobDone<D>, now: Now) -> Result<(), Fatal> {
        self.is_at_files = false;
        match self.store.job_done(done) {
            Ok(Some(meta)) => {
                self.tell_received(&meta, now);
                self.node.snapshot_received(&meta);
            }
            Ok(None) => {}
            Err(error) => return self.put_off_receiving(error),
        }
        self.advance_receiving(now);
        Ok(())
    }

    fn tell_received(&mut self, meta: &SnapshotMeta, now: Now) {
        let Some(received) = self.received.take_if(|received| received.meta == *meta) else { return };
        let took = Duration::from_micros(now.boot_micros.saturating_sub(received.begun_at));
        tracing::info!(
            "local-member-id" = hex(self.node.id()),
            "remote-snapshot-sender-id" = hex(received.from),
            "incoming-snapshot-index" = meta.index,
            "incoming-snapshot-size-bytes" = meta.bytes,
            "download-took" = ?took,
            "received and saved database snapshot"
        );
    }

    /// A snapshot that found no room on the disk is tried again when the leader offers it again.
    fn put_off_receiving(&mut self, error: io::Error) -> Result<(), Fatal> {
        if !is_without_room(&error) {
            return Err(error.into());
        }
        if !std::mem::replace(&mut self.lacks_room, true) {
            tracing::warn!(%error, "no room for a snapshot that the leader sends; it is taken when there is");
        }
        self.receiving = None;
        Ok(())
    }

    /// Asks for more, or is done.
    fn advance_receiving(&mut self, now: Now) {
        let Some(receiving) = self.receiving.as_ref().filter(|_| !self.is_at_files) else { return };
        let id = receiving.meta.id();
        if !self.store.missing(&id, 1).is_empty() {
            self.ask_for_chunks(now);
        } else {
            (self.received, self.lacks_room) = (self.receiving.take(), false);
            self.start_files_job(|store| store.finish(&id));
        }
    }

    pub(super) fn ask_for_chunks(&mut self, now: Now) {
        let patience = self.node.settings().election_micros() / 4;
        let leader = self.node.leader();
        let Some(receiving) = self.receiving.as_mut().filter(|_| !self.is_at_files) else { return };
        if Some(receiving.from) == leader && receiving.should_ask(now.boot_micros, patience) {
            let id = receiving.meta.id();
            let window = if self.planted.has(Bug::HalfSnapshot) { 64 } else { WINDOW_CHUNKS };
            let chunks = self.store.missing(&id, window);
            receiving.outstanding = chunks.len();
            receiving.asked_at = now.boot_micros;
            let to = receiving.from;
            self.send(to, SnapshotMessage::Fetch { id, chunks });
        }
    }

    fn send(&mut self, to: u64, message: SnapshotMessage) {
        self.messages.push(Message { from: self.node.id(), to, body: Body::Snapshot(message) });
    }
}
