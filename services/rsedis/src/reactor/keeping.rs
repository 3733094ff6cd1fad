//! Snapshots as the loop makes them: RDB files, bases of the append-only file (begun by [`super::aof`]), a little in each turn.

use std::io;
use std::path::Path;
use std::time::Duration;

use wal::files::Directory;

use super::Reactor;
use super::feeding::Receiver;
use super::sockets::Sockets;
use crate::log;
use crate::persistence::Aof;
use crate::persistence::rdb_file::RdbFile;
use crate::persistence::snapshot::{Progress, Snapshot};
use crate::server::Request;

/// After one that failed the next snapshot that settings ask for waits for so long (as in Redis).
const RETRY_MILLIS: i64 = 5_000;
/// What a base of the append-only file is called until it is whole.
pub(super) const TEMPORARY_BASE: &str = "temp-base";

/// How directories are opened.
#[derive(Clone, Copy, Debug)]
pub struct Opens<D> {
    /// For this server alone: that of the append-only file. It is made where it is not there.
    pub own: fn(&Path) -> io::Result<D>,
    /// Beside other servers: that of the RDB file, and those of files that people write as well.
    pub shared: fn(&Path) -> io::Result<D>,
}

/// A snapshot that is being made.
pub(super) struct Job<D: Directory> {
    pub(super) snapshot: Snapshot,
    pub(super) purpose: Purpose<D>,
}

/// What a snapshot is for.
pub(super) enum Purpose<D: Directory> {
    /// The RDB file.
    Rdb(RdbFile<D>),
    /// The append-only file's base.
    Base {
        /// Whether it is an RDB file.
        is_rdb: bool,
        /// The append-only file is off, and its files get a base all the same (BGREWRITEAOF).
        detached: Option<Box<Aof<D>>>,
        /// It is whole, and takes its place.
        is_whole: bool,
    },
    /// Replicas, from a file that gets no other name.
    Replicas(RdbFile<D>, Vec<Receiver>),
}

impl<S: Sockets, D: Directory> Reactor<S, D> {
    /// Begins what had to wait for a snapshot that was under way, whether that has ended or was given up.
    pub(super) fn begin_due(&mut self) {
        if std::mem::take(&mut self.server.save.is_pointless) {
            self.give_up_saves();
        }
        if self.is_walking() || self.server.is_loading {
            return;
        }
        if self.server.save.is_rewrite_due {
            self.begin_rewrite();
        } else if self.server.save.is_save_due {
            self.begin_save();
        }
    }

    /// The file that the settings name now, and a temporary name for this purpose.
    fn rdb_file(&self, purpose: &str) -> io::Result<RdbFile<D>> {
        let settings = &self.server.settings;
        RdbFile::new(self.opens.shared, settings.text("dir"), settings.text("dbfilename"), purpose)
    }

    /// Writes the RDB file while everybody waits.
    pub(super) fn save_now(&mut self) -> io::Result<()> {
        if self.server.is_loading {
            return Err(io::Error::other("the master's keys are not whole yet"));
        }
        self.server.save.tried = self.server.now;
        self.abandon_walks();
        let file = self.rdb_file("")?;
        let server = &mut self.server;
        let snapshot = file.begin(server)?;
        let (dirty, now) = (server.dirty, server.now);
        let outcome = file.put(snapshot.finish(server));
        server.save.is_saved_well = outcome.is_ok();
        if outcome.is_ok() {
            log::notice("DB saved on disk");
            (server.save.last, server.save.dirty) = (now, dirty);
            server.save.saved += 1;
        }
        outcome
    }

    /// Gives up all snapshots that are under way. An append-only file's base is to be written later.
    pub(super) fn abandon_walks(&mut self) {
        self.abandon_broadcast();
        let Some(job) = self.job.take() else { return };
        job.snapshot.abandon(&mut self.server);
        self.server.save.saves = false;
        self.server.save.is_rewrite_due |= std::mem::take(&mut self.server.save.rewrites);
        if let Purpose::Replicas(_, receivers) = job.purpose {
            self.dismiss(&receivers);
        }
    }

    /// Gives up RDB files that are under way, as if they had not been begun; replicas come again. A base goes on.
    fn give_up_saves(&mut self) {
        self.abandon_broadcast();
        let Some(job) = self.job.take_if(|job| !matches!(job.purpose, Purpose::Base { .. })) else { return };
        log::notice("Killing the running RDB child: what it saves is not wanted any more");
        job.snapshot.abandon(&mut self.server);
        self.server.save.saves = false;
        if let Purpose::Replicas(_, receivers) = job.purpose {
            self.dismiss(&receivers);
        }
    }

    /// Whether a file is being written for replicas that have all gone, and nobody else could want it.
    fn is_for_nobody(&mut self) -> bool {
        let Some(Job { purpose: Purpose::Replicas(_, receivers), .. }) = &self.job else { return false };
        let receivers = receivers.clone();
        self.server.settings.text("save").is_empty() && !receivers.into_iter().any(|one| self.receiver(one).is_some())
    }

    /// Begins a snapshot that is sent to replicas once it is whole.
    pub(super) fn begin_job_for(&mut self, receivers: Vec<Receiver>) -> io::Result<()> {
        let file = self.rdb_file("replication-")?;
        let snapshot = file.begin(&mut self.server)?;
        self.job = Some(Job { snapshot, purpose: Purpose::Replicas(file, receivers) });
        Ok(())
    }

    pub(super) fn begin_save(&mut self) {
        if self.is_walking() || self.server.is_loading {
            // Whoever is under way is finished first.
            self.server.save.is_save_due = true;
            return;
        }
        let (now, dirty) = (self.server.now, self.server.dirty);
        let begun = self.rdb_file("").and_then(|file| {
            let snapshot = file.begin(&mut self.server)?;
            Ok(Job { snapshot, purpose: Purpose::Rdb(file) })
        });
        let save = &mut self.server.save;
        save.is_save_due = false;
        save.tried = now;
        match begun {
            Ok(job) => {
                log::notice(format_args!("Background saving started by pid {}", std::process::id()));
                self.job = Some(job);
                save.saves = true;
                (save.last_begun, save.dirty_begun) = (now, dirty);
            }
            Err(error) => {
                log::warning(format_args!("background save: {error}"));
                save.is_saved_well = false;
            }
        }
    }

    /// Goes on with what takes all keys, for as long as it may; whether there is more to do at once.
    pub(super) fn step_walks(&mut self, slice: Duration) -> bool {
        !slice.is_zero() && (self.step_job(slice) | self.step_broadcast(slice)) && self.allowance.has_more()
    }

    /// Goes on with a snapshot that is under way; whether there is more to do at once.
    fn step_job(&mut self, slice: Duration) -> bool {
        if self.is_for_nobody() {
            self.give_up_saves();
        }
        let Some(job) = &mut self.job else { return false };
        if let Purpose::Base { is_whole: true, detached, .. } = &mut job.purpose {
            let aof = detached.as_deref_mut().or(self.aof.as_mut());
            if let Some(ended) = aof.map_or(Some(Ok(())), Aof::base_outcome) {
                self.job = None;
                self.end_rewrite(ended);
            }
            return false;
        }
        match job.snapshot.step(&mut self.server, slice) {
            Progress::Busy => true,
            Progress::Waits => false,
            Progress::Done(outcome) => {
                if let Some(job) = self.job.take() {
                    self.end_job(job, outcome);
                }
                false
            }
        }
    }

    fn end_job(&mut self, job: Job<D>, outcome: io::Result<u64>) {
        let ended = match job.purpose {
            Purpose::Rdb(file) => {
                let ended = file.put(outcome);
                let save = &mut self.server.save;
                save.saves = false;
                save.last_seconds = Some((self.server.now - save.last_begun).max(0) / 1000);
                save.is_saved_well = ended.is_ok();
                if ended.is_ok() {
                    log::notice("DB saved on disk");
                    log::notice("Background saving terminated with success");
                    (save.last, save.dirty) = (save.last_begun, save.dirty_begun);
                    save.saved += 1;
                }
                ended
            }
            Purpose::Base { is_rdb, mut detached, .. } => {
                let aof = detached.as_deref_mut().or(self.aof.as_mut());
                let begun =
                    outcome.and_then(|bytes| aof.map_or(Ok(()), |aof| aof.begin_base(TEMPORARY_BASE, bytes, is_rdb)));
                match begun {
                    Ok(()) => {
                        let purpose = Purpose::Base { is_rdb, detached, is_whole: true };
                        self.job = Some(Job { snapshot: job.snapshot, purpose });
                    }
                    Err(error) => self.end_rewrite(Err(error)),
                }
                return;
            }
            Purpose::Replicas(file, receivers) => {
                let ended = file.told(outcome.and_then(|_| self.begin_transfers(&file, &receivers)));
                if ended.is_err() {
                    self.dismiss(&receivers);
                }
                ended
            }
        };
        if let Err(error) = &ended {
            log::warning(format_args!("snapshot: {error}"));
        }
    }

    /// A base is there, or is not.
    fn end_rewrite(&mut self, ended: io::Result<()>) {
        self.server.save.rewrites = false;
        self.note_rewrite(&ended);
        if let Err(error) = &ended {
            log::warning(format_args!("snapshot: {error}"));
        }
    }

    /// Looks whether a snapshot is due by the settings.
    pub(super) fn look_at_snapshots(&mut self) {
        if self.is_walking() || self.server.is_loading {
            return;
        }
        let server = &mut self.server;
        let changes = server.dirty.saturating_sub(server.save.dirty);
        let seconds = (server.now - server.save.last) / 1000;
        let points: Vec<i64> = server.settings.text("save").split(' ').filter_map(|word| word.parse().ok()).collect();
        let may_try = server.save.is_saved_well || server.now - server.save.tried > RETRY_MILLIS;
        if may_try && points.chunks_exact(2).any(|point| changes >= point[1].max(1) as u64 && seconds > point[0]) {
            server.requests.push(Request::BackgroundSave);
            return;
        }
        if self.is_rewrite_wanted() {
            self.server.requests.push(Request::RewriteAof);
        }
    }
}
