//! The append-only file as the loop keeps it: begun, ended, written anew, read anew. Nobody waits while a base is
//! written, but for the one sync that a new increment begins with.
//!
//! Where a base is still missing ([`Reactor::lacks_base`]), what was there before is what a restart reads. Under `appendfsync always`
//! nothing is acknowledged meanwhile: writes are postponed, and a replica says that it has nothing. A base that fails is tried again, and
//! writes are refused until one is there or `appendonly` is `no`.

use std::io;
use std::path::{Path, PathBuf};

use wal::files::Directory;

use super::Reactor;
use super::keeping::{Job, Purpose, TEMPORARY_BASE};
use super::sockets::Sockets;
use crate::log;
use crate::persistence::snapshot::{Format, Snapshot};
use crate::persistence::{Aof, recover};
use crate::replication::Master;
use crate::server::PausePurpose;
use crate::settings::Fsync;

/// After a rewrite that failed the next that is made unasked waits for so long, twice as long after each further one (as in Redis,
/// which waits from the third on), up to [`RETRY_MILLIS_MAX`].
const RETRY_MILLIS: i64 = 1_000;
/// See [`RETRY_MILLIS`].
const RETRY_MILLIS_MAX: i64 = 3_600_000;

/// How long a rewrite that is made unasked waits after so many failures.
fn retry_millis(failures: u32) -> i64 {
    match failures {
        0 => 0,
        _ => RETRY_MILLIS.saturating_mul(1 << (failures - 1).min(12)).min(RETRY_MILLIS_MAX),
    }
}

/// Whether files of so many bytes have grown by so many percent since they had a base of so many.
fn has_grown(bytes: u64, base_bytes: u64, percent: u64) -> bool {
    let base = u128::from(base_bytes.max(1));
    u128::from(bytes) >= base + base * u128::from(percent) / 100 && bytes > base_bytes
}

fn tell_of_rewrite() {
    log::notice(format_args!("Background append only file rewriting started by pid {}", std::process::id()));
}

impl<S: Sockets, D: Directory> Reactor<S, D> {
    fn aof_path(&self) -> PathBuf {
        let settings = &self.server.settings;
        Path::new(settings.text("dir")).join(settings.text("appenddirname"))
    }

    /// What a base is made of; whether it is an RDB file.
    fn base_format(&self) -> (Format, bool) {
        match self.server.settings.is_yes("aof-use-rdb-preamble") {
            true => (Format::Rdb { is_base: true }, true),
            false => (Format::Commands, false),
        }
    }

    /// Begins the files anew: a further increment, and whatever is there stays until a base is put.
    fn begin_files(&self) -> io::Result<Aof<D>> {
        let directory = (self.opens.own)(&self.aof_path())?;
        Aof::begin(directory, self.server.settings.text("appendfilename")).map_err(io::Error::other)
    }

    fn may_retry(&self) -> bool {
        let save = &self.server.save;
        self.server.now - save.rewrite_tried >= retry_millis(save.rewrite_failures)
    }

    /// Once a second: a base that is missing is tried again.
    pub(super) fn look_at_base(&mut self) {
        self.server.save.is_rewrite_due |= self.lacks_base && !self.is_walking() && self.may_retry();
    }

    /// Whether the files have grown so much that a new base is wanted.
    pub(super) fn is_rewrite_wanted(&self) -> bool {
        let settings = &self.server.settings;
        let percent = settings.integer("auto-aof-rewrite-percentage") as u64;
        let least = settings.integer("auto-aof-rewrite-min-size") as u64;
        let has_grown = |aof: &Aof<D>| aof.bytes() > least && has_grown(aof.bytes(), aof.base_bytes(), percent);
        percent > 0 && self.may_retry() && self.aof.as_ref().is_some_and(has_grown)
    }

    /// Begins a base of the keys of this moment, now or once whoever is under way has ended.
    pub(super) fn begin_rewrite(&mut self) {
        if self.server.aof.is_lost {
            // What there is are not all the keys.
            self.drop_due_rewrite();
            return;
        }
        if self.is_walking() || self.server.is_loading {
            self.server.save.is_rewrite_due = true;
            return;
        }
        if self.lacks_base {
            return self.begin_aof_behind();
        }
        // What was written in a second is not made safe while clients wait.
        let is_ready = self.aof.as_mut().is_none_or(Aof::is_ready_for_increment);
        (self.server.save.rewrites, self.server.save.is_rewrite_due) = (true, !is_ready);
        if !is_ready {
            return;
        }
        match self.try_begin_rewrite() {
            Ok(job) => self.job = Some(job),
            Err(error) => {
                self.server.save.rewrites = false;
                log::warning(format_args!("rewrite of the append-only file: {error}"));
                self.note_rewrite(&Err(error));
            }
        }
    }

    /// A new increment, and a base; only a base, if the append-only file is off.
    fn try_begin_rewrite(&mut self) -> io::Result<Job<D>> {
        let (format, is_rdb) = self.base_format();
        let (directory, detached) = match &mut self.aof {
            Some(aof) => {
                aof.begin_increment(self.server.settings.fsync)?;
                self.server.effects.forget_selected();
                (aof.directory().clone(), None)
            }
            None => {
                let aof = self.begin_files()?;
                (aof.directory().clone(), Some(Box::new(aof)))
            }
        };
        let snapshot = Snapshot::begin(&mut self.server, &directory, TEMPORARY_BASE, format)?;
        tell_of_rewrite();
        Ok(Job { snapshot, purpose: Purpose::Base { is_rdb, detached, is_whole: false } })
    }

    /// A rewrite that was to begin is not wanted any more.
    fn drop_due_rewrite(&mut self) {
        self.server.save.is_rewrite_due = false;
        self.server.save.rewrites &= self.job.as_ref().is_some_and(|job| matches!(job.purpose, Purpose::Base { .. }));
    }

    /// Whether what is written must not be acknowledged: a restart would not read it, and that was promised.
    pub(super) fn is_unsafe(&self) -> bool {
        self.lacks_base && self.server.settings.fsync == Fsync::Always
    }

    /// Once the requests of a turn are done: writes are postponed, or go on. Those that are refused are not postponed.
    pub(super) fn judge_base(&mut self) {
        let postpones = self.is_unsafe() && !self.server.replication.is_replica() && self.server.aof.failure.is_none();
        if std::mem::replace(&mut self.postpones_writes, postpones) != postpones {
            match postpones {
                true => self.server.pause_writes(PausePurpose::Base),
                false => self.server.end_pause(PausePurpose::Base),
            }
        }
    }

    /// A base is there, or is not.
    pub(super) fn note_rewrite(&mut self, ended: &io::Result<()>) {
        let save = &mut self.server.save;
        save.rewrite_tried = self.server.now;
        save.is_rewritten_well = ended.is_ok();
        match ended {
            Ok(()) => {
                log::notice("Background AOF rewrite terminated with success");
                log::notice("Background AOF rewrite finished successfully");
                save.rewritten += 1;
                save.rewrite_failures = 0;
                let was_missing = std::mem::take(&mut self.lacks_base);
                // Who waits for what this server has taken need not wait for the next second.
                if was_missing && self.server.replication.master.as_ref().is_some_and(Master::is_up) {
                    self.acknowledge();
                }
            }
            Err(error) => {
                save.rewrite_failures = save.rewrite_failures.saturating_add(1);
                if self.lacks_base {
                    self.give_up_files(&format!("no base could be written: {error}"));
                }
            }
        }
        self.judge_base();
    }

    /// What is written now would never be read: it is not taken.
    fn give_up_files(&mut self, why: &str) {
        drop(self.take_aof());
        self.server.aof.failure = Some(why.to_owned());
        self.follow_aof();
    }

    /// Effects are wanted where there is a file for them, and begin with their database.
    fn follow_aof(&mut self) {
        self.server.writes_aof = self.aof.is_some();
        self.server.choose_effects();
        self.server.effects.forget_selected();
    }

    /// Empties the server and reads the append-only file, which may be off.
    pub(super) fn reload(&mut self) -> Result<(), String> {
        if self.lacks_base {
            return Err(
                "ERR the append only file has no base yet: try again once aof_rewrite_in_progress is 0".to_owned()
            );
        }
        let is_on = self.server.settings.is_yes("appendonly");
        let directory = match self.take_aof() {
            Some(aof) => {
                let directory = aof.directory().clone();
                aof.close().map(|()| directory)
            }
            None => (self.opens.own)(&self.aof_path()).map_err(|error| error.to_string()),
        };
        self.abandon_walks();
        self.drop_due_rewrite();
        let dirty = self.server.dirty;
        let reopened = directory.and_then(|directory| {
            let server = &mut self.server;
            server.empty(false);
            recover::replay(server, directory).map_err(|error| error.to_string())
        });
        self.server.dirty = dirty;
        let outcome = match reopened {
            Ok((aof, _)) => {
                self.aof = is_on.then_some(aof);
                self.server.aof.is_lost = false;
                self.server.aof.failure = None;
                Ok(())
            }
            Err(error) => {
                // Nothing can be written any more, and not all keys may be there.
                self.server.aof.is_lost = true;
                self.server.aof.failure =
                    Some(format!("DEBUG LOADAOF: {error}; restart the server once that is mended"));
                Err(format!("ERR {error}"))
            }
        };
        self.follow_aof();
        outcome
    }

    /// Begins or ends the append-only file, as the setting says now. One that cannot be begun refuses writes until it can, or until it
    /// is set to `no` again.
    pub(super) fn switch_aof(&mut self) -> Result<(), String> {
        if let Some(failure) = self.server.aof.failure.as_ref().filter(|_| self.server.aof.is_lost) {
            return Err(failure.clone());
        }
        let wanted = self.server.settings.is_yes("appendonly");
        match (wanted, self.aof.is_some() || self.lacks_base) {
            // It is begun once the master's keys are there.
            (true, false) if !self.server.is_loading => self.begin_aof(),
            (false, true) => {
                self.end_aof();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// From now on nothing is written. As in Redis, what the disk does not take at the end is told in the log, and is no reason to go on.
    fn end_aof(&mut self) {
        self.lacks_base = false;
        self.server.save.rewrite_failures = 0;
        if self.server.save.rewrites {
            // Also one that waits for what was written in this second to be safe.
            log::notice("Killing running AOF rewrite child: the append-only file is off");
        }
        if let Some(job) = self.job.take_if(|job| matches!(job.purpose, Purpose::Base { .. })) {
            job.snapshot.abandon(&mut self.server);
        }
        self.drop_due_rewrite();
        if let Err(error) = self.take_aof().map_or(Ok(()), Aof::close) {
            let path = self.aof_path();
            log::warning(format_args!(
                "The append-only file is off, and the last of it could not be made safe: {}: {error}: its files lack what was written since then",
                path.display()
            ));
        }
        self.server.aof.failure = None;
        self.follow_aof();
    }

    /// An append-only file whose base will be the keys of this moment, or of the next in which no other snapshot is under way. Errors:
    /// it cannot be written now; it is tried again.
    fn begin_aof(&mut self) -> Result<(), String> {
        self.lacks_base = true;
        log::notice("AOF background was scheduled");
        if self.is_walking() {
            self.server.save.is_rewrite_due = true;
            return (self.opens.own)(&self.aof_path()).map(drop).map_err(|error| error.to_string());
        }
        self.begin_aof_behind();
        self.server.aof.failure.clone().map_or(Ok(()), Err)
    }

    /// Begins the append-only file anew while everybody goes on: its base is written a little in each turn. Until it is there, the
    /// files of before are what a restart reads. Snapshots that are under way are given up.
    pub(super) fn begin_aof_behind(&mut self) {
        if self.server.aof.is_lost {
            return;
        }
        self.lacks_base = true;
        self.abandon_walks();
        self.drop_due_rewrite();
        drop(self.take_aof());
        match self.try_begin_aof_behind() {
            Ok(()) => {
                self.server.aof.failure = None;
                self.follow_aof();
            }
            Err(error) => {
                log::warning(format_args!("append-only file: {error}"));
                self.note_rewrite(&Err(error));
            }
        }
    }

    fn try_begin_aof_behind(&mut self) -> io::Result<()> {
        let aof = self.begin_files()?;
        let (format, is_rdb) = self.base_format();
        let snapshot = Snapshot::begin(&mut self.server, aof.directory(), TEMPORARY_BASE, format)?;
        tell_of_rewrite();
        self.job = Some(Job { snapshot, purpose: Purpose::Base { is_rdb, detached: None, is_whole: false } });
        self.server.save.rewrites = true;
        self.aof = Some(aof);
        Ok(())
    }

    /// Whether the only files that will be whole are being written.
    pub(super) fn is_writing_first_base(&self) -> bool {
        self.lacks_base && self.job.as_ref().is_some_and(|job| matches!(job.purpose, Purpose::Base { .. }))
    }

    /// The append-only file, which is replaced or left; how often it was synced stays known.
    pub(super) fn take_aof(&mut self) -> Option<Aof<D>> {
        let mut aof = self.aof.take()?;
        self.server.aof.syncs += aof.take_syncs();
        Some(aof)
    }

    /// INFO and commands are told how the files are.
    pub(super) fn tell_of_aof(&mut self) {
        let Some(aof) = &mut self.aof else { return };
        let status = &mut self.server.aof;
        status.current_bytes = aof.bytes();
        status.base_bytes = aof.base_bytes();
        status.syncs += aof.take_syncs();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_server_with_an_empty_base_does_not_rewrite_for_ever() {
        assert!(!has_grown(0, 0, 100) && !has_grown(88, 88, 100) && !has_grown(88, 88, 1));
        assert!(has_grown(176, 88, 100) && has_grown(1, 0, 1));
        assert!(!has_grown(u64::MAX / 2, u64::MAX / 2, u64::MAX));
    }

    #[test]
    fn rewrites_that_fail_are_tried_less_and_less_often() {
        let delays: Vec<i64> = [0, 1, 2, 3, 12, 13, 60].into_iter().map(retry_millis).collect();
        assert_eq!(delays, [0, 1_000, 2_000, 4_000, 2_048_000, 3_600_000, 3_600_000]);
    }
}
