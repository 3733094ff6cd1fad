//! Snapshots as the loop makes them: RDB files, bases of the append-only file, a little in each turn.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use wal::files::Directory;

use super::Reactor;
use super::feeding::Receiver;
use super::sockets::Sockets;
use crate::persistence::snapshot::{Format, Progress, Snapshot};
use crate::persistence::{Aof, recover};
use crate::server::{Request, Server};
use crate::{command, log};

/// What a turn of the loop may spend on a snapshot.
pub(super) const BUDGET: Duration = Duration::from_millis(1);
/// After one that failed the next snapshot that settings ask for waits for so long (as in Redis).
const RETRY_MILLIS: i64 = 5_000;
const TEMPORARY_BASE: &str = "temp-base";

/// A snapshot that is being made.
pub(super) struct Job<D> {
    snapshot: Snapshot,
    purpose: Purpose<D>,
}

/// What a snapshot is for.
enum Purpose<D> {
    /// The RDB file, in this directory.
    Rdb(D),
    /// The append-only file's base; whether it is an RDB file.
    Base(bool),
    /// Replicas, from this directory.
    Replicas(D, Vec<Receiver>),
}

fn temporary_rdb(server: &Server) -> String {
    format!("temp-{}", server.settings.text("dbfilename"))
}

/// Puts an RDB file that is whole under its name.
fn put_rdb<D: Directory>(server: &Server, directory: &D) -> io::Result<()> {
    directory.rename(&temporary_rdb(server), server.settings.text("dbfilename"))?;
    directory.sync()
}

impl<S: Sockets, D: Directory> Reactor<S, D> {
    /// Does what commands asked for. Nobody's command is running, and all effects are written.
    pub(super) fn do_requests(&mut self) {
        for request in std::mem::take(&mut self.server.requests) {
            match request {
                Request::Shutdown(shutdown) => self.shut_down(shutdown),
                Request::Save(slot) => {
                    let outcome = self.save_now();
                    if let Err(error) = &outcome {
                        log::warning(format_args!("save: {error}"));
                    }
                    self.reply(slot, outcome.map_err(|_| "ERR Errors trying to save. Check logs.".to_owned()));
                }
                Request::RewriteConfig(slot) => {
                    let outcome = self.rewrite_config();
                    self.reply(slot, outcome);
                }
                Request::LoadUsers(slot) => {
                    let outcome = self.load_users(slot);
                    self.reply(slot, outcome);
                }
                Request::SaveUsers(slot) => {
                    let outcome = self.save_users();
                    self.reply(slot, outcome);
                }
                Request::Migrate => self.migrate(),
                Request::DropMaster => self.drop_master(),
                Request::BackgroundSave => self.begin_save(),
                Request::RewriteAof => self.begin_rewrite(),
                Request::ReloadAof(slot) => {
                    let outcome = self.reload();
                    self.reply(slot, outcome);
                }
                Request::Listen(slot) => {
                    let outcome = self.listen();
                    if let Some(slot) = slot {
                        self.reply(slot, outcome);
                    }
                }
                Request::SwitchAof(slot) => {
                    let outcome = self.switch_aof();
                    if let Err(error) = &outcome {
                        log::warning(format_args!("append-only file: {error}"));
                    }
                    if let Some(slot) = slot {
                        self.reply(slot, outcome.map_err(|error| format!("ERR append-only file: {error}")));
                    }
                }
            }
        }
        self.begin_due();
    }

    /// Listens where the settings say now; if that cannot be, all is as before CONFIG SET asked for it.
    fn listen(&mut self) -> Result<(), String> {
        match self.sockets.borrow_mut().listen(&self.server.settings) {
            Ok(()) => {
                self.server.settings_before = None;
                Ok(())
            }
            Err(error) => {
                log::warning(format_args!("{error}"));
                Err(command::go_back(&mut self.server, &error))
            }
        }
    }

    /// Begins what had to wait for a snapshot that was under way, whether that has ended or was given up.
    fn begin_due(&mut self) {
        if self.is_walking() || self.server.is_loading {
            return;
        }
        if self.server.save.is_rewrite_due {
            self.begin_rewrite();
        } else if self.server.save.is_save_due {
            self.begin_save();
        }
    }

    /// Answers a client whose command was a request.
    pub(super) fn reply(&mut self, slot: usize, outcome: Result<(), String>) {
        if let Some(Some(session)) = self.server.sessions.get_mut(slot) {
            match outcome {
                Ok(()) => session.reply.ok(),
                Err(text) => session.reply.error(&text),
            }
            self.touched.push(slot);
        }
    }

    fn rdb_directory(&self) -> io::Result<D> {
        (self.open)(Path::new(self.server.settings.text("dir")))
    }

    /// Writes the RDB file while everybody waits.
    pub(super) fn save_now(&mut self) -> io::Result<()> {
        if self.server.is_loading {
            return Err(io::Error::other("the master's keys are not whole yet"));
        }
        self.server.save.tried = self.server.now;
        self.abandon_walks();
        let directory = self.rdb_directory()?;
        let name = temporary_rdb(&self.server);
        let server = &mut self.server;
        let snapshot = Snapshot::begin(server, &directory, &name, Format::Rdb { is_base: false })?;
        let (dirty, now) = (server.dirty, server.now);
        let outcome = snapshot.finish(server).and_then(|_| put_rdb(server, &directory));
        server.save.is_saved_well = outcome.is_ok();
        if outcome.is_ok() {
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

    /// Begins a snapshot that is sent to replicas once it is whole.
    pub(super) fn begin_job_for(&mut self, receivers: Vec<Receiver>, name: &str) -> io::Result<()> {
        let directory = self.rdb_directory()?;
        let snapshot = Snapshot::begin(&mut self.server, &directory, name, Format::Rdb { is_base: false })?;
        self.job = Some(Job { snapshot, purpose: Purpose::Replicas(directory, receivers) });
        Ok(())
    }

    fn begin_save(&mut self) {
        if self.is_walking() || self.server.is_loading {
            // Whoever is under way is finished first.
            self.server.save.is_save_due = true;
            return;
        }
        let (name, now, dirty) = (temporary_rdb(&self.server), self.server.now, self.server.dirty);
        let begun = self.rdb_directory().and_then(|directory| {
            let format = Format::Rdb { is_base: false };
            let snapshot = Snapshot::begin(&mut self.server, &directory, &name, format)?;
            Ok(Job { snapshot, purpose: Purpose::Rdb(directory) })
        });
        let save = &mut self.server.save;
        save.is_save_due = false;
        save.tried = now;
        match begun {
            Ok(job) => {
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

    /// Begins a new increment, and a base of the keys of this moment.
    fn begin_rewrite(&mut self) {
        let is_wanted = self.aof.is_some() || self.lacks_base;
        if !is_wanted || self.is_walking() {
            self.server.save.is_rewrite_due = is_wanted;
            return;
        }
        if self.lacks_base {
            self.server.save.is_rewrite_due = false;
            return self.begin_aof_behind();
        }
        let begun = self.try_begin_rewrite();
        let save = &mut self.server.save;
        save.is_rewrite_due = false;
        match begun {
            Ok(job) => {
                self.job = Some(job);
                save.rewrites = true;
            }
            Err(error) => {
                log::warning(format_args!("rewrite of the append-only file: {error}"));
                save.is_rewritten_well = false;
            }
        }
    }

    fn try_begin_rewrite(&mut self) -> io::Result<Job<D>> {
        let Some(aof) = &mut self.aof else { return Err(io::ErrorKind::NotFound.into()) };
        aof.begin_increment()?;
        self.server.effects.forget_selected();
        let is_rdb = self.server.settings.is_yes("aof-use-rdb-preamble");
        let format = if is_rdb { Format::Rdb { is_base: true } } else { Format::Commands };
        let snapshot = Snapshot::begin(&mut self.server, aof.directory(), TEMPORARY_BASE, format)?;
        Ok(Job { snapshot, purpose: Purpose::Base(is_rdb) })
    }

    /// Goes on with a snapshot that is under way; whether there is more to do at once.
    pub(super) fn step_job(&mut self) -> bool {
        let Some(job) = &mut self.job else { return false };
        match job.snapshot.step(&mut self.server, BUDGET) {
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
        let save = &mut self.server.save;
        let ended = match job.purpose {
            Purpose::Rdb(directory) => {
                let ended = outcome.and_then(|_| put_rdb(&self.server, &directory));
                let save = &mut self.server.save;
                save.saves = false;
                save.last_seconds = Some((self.server.now - save.last_begun).max(0) / 1000);
                save.is_saved_well = ended.is_ok();
                if ended.is_ok() {
                    (save.last, save.dirty) = (save.last_begun, save.dirty_begun);
                    save.saved += 1;
                }
                ended
            }
            Purpose::Base(is_rdb) => {
                save.rewrites = false;
                let ended = match &mut self.aof {
                    Some(aof) => outcome.and_then(|bytes| aof.put_base(TEMPORARY_BASE, bytes, is_rdb)),
                    None => Ok(()),
                };
                save.is_rewritten_well = ended.is_ok();
                save.rewritten += u64::from(ended.is_ok());
                self.lacks_base &= ended.is_err();
                ended
            }
            Purpose::Replicas(directory, receivers) => {
                let ended = outcome.and_then(|_| self.begin_transfers(&directory, &receivers));
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
        let percent = server.settings.integer("auto-aof-rewrite-percentage") as u64;
        let least = server.settings.integer("auto-aof-rewrite-min-size") as u64;
        if let Some(aof) = &self.aof
            && percent > 0
            && aof.bytes() > least
            && aof.bytes() >= aof.base_bytes() + aof.base_bytes() / 100 * percent
        {
            server.requests.push(Request::RewriteAof);
        }
    }

    fn aof_path(&self) -> PathBuf {
        let settings = &self.server.settings;
        Path::new(settings.text("dir")).join(settings.text("appenddirname"))
    }

    /// Empties the server and replays the append-only file.
    fn reload(&mut self) -> Result<(), String> {
        let Some(aof) = self.aof.take() else {
            return Err("ERR the append only file is off: CONFIG SET appendonly yes first".to_owned());
        };
        self.abandon_walks();
        self.server.save.is_rewrite_due = false;
        let directory = aof.directory().clone();
        let server = &mut self.server;
        let dirty = server.dirty;
        let reopened = aof.close().and_then(|()| {
            for database in 0..server.databases.len() {
                server.take_database(database, false);
            }
            recover::replay(server, directory).map_err(|error| error.to_string())
        });
        server.dirty = dirty;
        server.effects.forget_selected();
        match reopened {
            Ok((aof, _)) => {
                self.aof = Some(aof);
                Ok(())
            }
            Err(error) => {
                // Nothing can be written any more, and not all keys may be there.
                server.aof.failure = Some(format!("DEBUG LOADAOF: {error}; restart the server once that is mended"));
                Err(format!("ERR {error}"))
            }
        }
    }

    /// Begins or ends the append-only file, as the setting says now. One that cannot be begun refuses writes until it is set to
    /// `no` again.
    fn switch_aof(&mut self) -> Result<(), String> {
        let wanted = self.server.settings.is_yes("appendonly");
        let outcome = match (wanted, self.aof.take()) {
            // It is begun once the master's keys are there.
            (true, None) if self.server.is_loading => Ok(()),
            (true, None) => self.begin_aof(),
            (false, Some(aof)) => {
                self.lacks_base = false;
                if let Some(job) = self.job.take_if(|job| matches!(job.purpose, Purpose::Base(_))) {
                    job.snapshot.abandon(&mut self.server);
                    self.server.save.rewrites = false;
                }
                aof.close()
            }
            (_, aof) => {
                self.aof = aof;
                Ok(())
            }
        };
        self.server.aof.failure = match &self.aof {
            Some(aof) => aof.failure().map(str::to_owned),
            // What is not to be written cannot fail either.
            None => outcome.as_ref().err().filter(|_| wanted).cloned(),
        };
        self.server.writes_aof = self.aof.is_some();
        self.server.choose_effects();
        self.server.effects.forget_selected();
        outcome
    }

    /// An append-only file whose base are the keys of this moment. What was there before is no longer needed.
    fn begin_aof(&mut self) -> Result<(), String> {
        let told = |error: io::Error| error.to_string();
        let directory = (self.open)(&self.aof_path()).map_err(told)?;
        let name = self.server.settings.text("appendfilename").to_owned();
        let mut aof = Aof::begin(directory, &name).map_err(|error| error.to_string())?;
        let is_rdb = self.server.settings.is_yes("aof-use-rdb-preamble");
        let format = if is_rdb { Format::Rdb { is_base: true } } else { Format::Commands };
        self.server.save.is_save_due |= self.server.save.saves;
        self.abandon_walks();
        let snapshot = Snapshot::begin(&mut self.server, aof.directory(), TEMPORARY_BASE, format).map_err(told)?;
        let bytes = snapshot.finish(&mut self.server).map_err(told)?;
        aof.put_base(TEMPORARY_BASE, bytes, is_rdb).map_err(told)?;
        self.aof = Some(aof);
        Ok(())
    }

    /// Begins the append-only file anew while everybody goes on: its base is written a little in each turn. Until it is there, the
    /// files of before are what a restart reads; this is for a replica, which asks its master then what it has missed.
    pub(super) fn begin_aof_behind(&mut self) {
        self.lacks_base = true;
        self.server.save.is_rewrite_due = false;
        self.abandon_walks();
        let begun = self.try_begin_aof_behind();
        if let Err(error) = begun {
            log::warning(format_args!("append-only file: {error}"));
            self.server.aof.failure = Some(error.to_string());
        }
        self.server.writes_aof = self.aof.is_some();
        self.server.choose_effects();
        self.server.effects.forget_selected();
    }

    fn try_begin_aof_behind(&mut self) -> io::Result<()> {
        self.aof = None;
        let directory = (self.open)(&self.aof_path())?;
        let name = self.server.settings.text("appendfilename").to_owned();
        let aof = Aof::begin(directory, &name).map_err(io::Error::other)?;
        let is_rdb = self.server.settings.is_yes("aof-use-rdb-preamble");
        let format = if is_rdb { Format::Rdb { is_base: true } } else { Format::Commands };
        let snapshot = Snapshot::begin(&mut self.server, aof.directory(), TEMPORARY_BASE, format)?;
        self.job = Some(Job { snapshot, purpose: Purpose::Base(is_rdb) });
        self.server.save.rewrites = true;
        self.server.aof.failure = None;
        self.aof = Some(aof);
        Ok(())
    }
}
