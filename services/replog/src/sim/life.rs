//! How members live and die: starts, crashes, and what their disks do in between.

use std::collections::{BTreeMap, VecDeque};

use wal::files::{Fault, SimulatedDirectory};
use wal::{CommitError, Log, OpenError};

use super::Violation;
use super::checks::{Checked, broken};
use super::host::{Host, Process, WAL_OPTIONS};
use super::kv::Kv;
use super::mirror::{self, Digest, Mirror};
use super::world::{Event, World};
use crate::bugs::Bug;
use crate::membership::Membership;
use crate::node::{Batch, Standing};
use crate::random::Random;
use crate::recovery::{Recovered, Recovery};
use crate::replica::{Fatal, ReplicatedLog};
use crate::settings::Settings;

impl World {
    /// Hands a batch to the disk.
    pub(super) fn enqueue(&mut self, id: u64, batch: Batch) -> Checked {
        let digests: Vec<Digest> = batch.records.iter().filter_map(mirror::digest).collect();
        let Self { hosts, checks, .. } = self;
        let host = &mut hosts[id as usize - 1];
        for digest in &digests {
            match host.mirror.take(*digest, |index| checks.chain_of(index)) {
                Some(_) => {}
                None => {
                    return broken(
                        "a log has no holes",
                        format!("node {id} writes {digest:?} behind {}", host.mirror.last()),
                    );
                }
            }
        }
        if let Some(process) = &mut host.process {
            process.queue.push_back((batch, digests));
        }
        self.work_disk(id);
        Ok(())
    }

    /// The disk takes everything that waits, as one write.
    pub(super) fn work_disk(&mut self, id: u64) {
        let now = self.now;
        let host = self.host(id);
        let (epoch, is_slow) = (host.epoch, host.slow_until > now);
        let Some(process) = &mut host.process else { return };
        if process.writing.is_empty() && !process.queue.is_empty() {
            process.writing = std::mem::take(&mut process.queue).into();
            let micros = 50 + self.random.below(if is_slow { 60_000 } else { 2_000 });
            self.after(micros, Event::Disk { host: id, epoch });
        }
    }

    /// The disk is done with a write.
    pub(super) fn written(&mut self, id: u64) -> Checked {
        if self.hanging == Some(id) {
            return Ok(());
        }
        let Self { hosts, checks, .. } = self;
        let host = &mut hosts[id as usize - 1];
        let epoch = host.epoch;
        let Some(process) = &mut host.process else { return Ok(()) };
        let records: Vec<wal::Record> =
            process.writing.iter().flat_map(|(batch, _)| batch.records.iter().cloned()).collect();
        match process.wal.commit(&records) {
            Ok(()) => {
                let written = std::mem::take(&mut process.writing);
                for digest in written.iter().flat_map(|(_, digests)| digests) {
                    // An entry counts as soon as it cannot be forgotten any more.
                    if let Some(Some((index, term, chain))) = host.disk.take(*digest, |index| checks.chain_of(index)) {
                        checks.entry(id, index, term, chain)?;
                    }
                }
                if let Some((batch, _)) = written.last() {
                    process.log.persisted(batch.token);
                }
                self.work_disk(id);
            }
            Err(CommitError::NoSegment(_)) => {
                self.say(id, || "the disk is full".into());
                self.after(20_000, Event::Disk { host: id, epoch });
            }
            Err(error) => {
                self.say(id, || error.to_string());
                self.stop(id);
            }
        }
        Ok(())
    }

    /// A member cannot go on. Files that failed on purpose are no broken promise.
    pub(super) fn fatal(&mut self, id: u64, fatal: Fatal) -> Checked {
        self.say(id, || format!("stops: {fatal}"));
        match fatal {
            Fatal::Files(error) if error.kind() != std::io::ErrorKind::InvalidData => {
                self.stop(id);
                Ok(())
            }
            fatal => broken("a member can go on", format!("node {id}: {fatal}")),
        }
    }

    /// A process that found its disk failing stops, and is started again.
    pub(super) fn stop(&mut self, id: u64) {
        let is_power_lost = self.random.below(2) == 0;
        self.crash(id, is_power_lost);
        let delay = self.random.below(self.settings.election_micros());
        self.after(delay, Event::Restart { host: id });
    }

    /// A process dies, or its whole machine.
    pub(super) fn crash(&mut self, id: u64, is_power_lost: bool) {
        let mut random = Random::new(self.random.next());
        let time = self.now;
        let loses_disk = self.planted().has(Bug::FoundsAgain) && random.below(4) == 0;
        let host = self.host(id);
        let safe_until = host.replaced_from();
        let Some(mut process) = host.process.take() else { return };
        if !process.writing.is_empty() && random.below(3) > 0 {
            // The write was under way.
            let fault = if is_power_lost { Fault::Power } else { Fault::DataSync };
            host.wal.fail(fault, random.below(2));
            let records: Vec<wal::Record> =
                process.writing.iter().flat_map(|(batch, _)| batch.records.iter().cloned()).collect();
            let _ = process.wal.commit(&records);
        }
        if is_power_lost {
            host.wal.crash(|| random.next());
            host.snapshots.crash(|| random.next());
            if random.below(2) == 0 {
                // The clock that counts since the start begins anew.
                (host.clock.since, host.clock.boot_micros) = (time, random.below(1_000_000));
            }
        }
        host.safe_until = safe_until;
        if loses_disk && host.is_founder {
            // Whoever keeps the promise is refused by its server, and replaced by an administrator: it does not come back.
            (host.wal, host.snapshots) = (SimulatedDirectory::default(), SimulatedDirectory::default());
            (host.mirror, host.disk, host.safe_until) = (Mirror::default(), Mirror::default(), 0);
        }
        host.epoch += 1;
        host.inbox.clear();
        host.paused_until = 0;
        if !is_power_lost {
            self.close_links(id);
        }
        self.stats.crashes += 1;
        self.say(id, || if is_power_lost { "LOSES POWER".into() } else { "IS KILLED".into() });
    }

    /// A process starts, from what its disk has.
    pub(super) fn start(&mut self, id: u64) -> Checked {
        let seed = self.random.next();
        let election_ticks = self.host(id).election_ticks;
        let settings = Settings { election_ticks, ..self.settings.clone() };
        let (planted, founders, now) = (self.planted(), self.founders.clone(), self.clock(id));
        let retry = self.settings.election_micros() / 4;
        let Self { hosts, checks, .. } = self;
        let host = &mut hosts[id as usize - 1];
        if host.process.is_some() {
            return Ok(());
        }
        let mut recovery = Recovery::new(settings.group);
        let wal = match Log::open(host.wal.clone(), WAL_OPTIONS, |record| recovery.visit(record)) {
            Ok(wal) => wal,
            Err(OpenError::Files { what, .. }) => {
                self.say(id, || format!("cannot start: {what}"));
                self.after(retry, Event::Restart { host: id });
                return Ok(());
            }
            Err(damaged) => return broken("a log can be opened after a crash", format!("node {id}: {damaged}")),
        };
        let recovered = match recovery.finish() {
            Ok(recovered) => recovered,
            Err(error) => return broken("a log can be opened after a crash", format!("node {id}: {error}")),
        };
        let mut process = match found(host, wal, recovered, &settings, founders) {
            Ok(found) => found,
            Err(_) => {
                self.after(retry, Event::Restart { host: id });
                return Ok(());
            }
        };
        let (wal, recovered) = (process.0, std::mem::take(&mut process.1));
        let mirror = Mirror::of(&recovered, |index| checks.chain_of(index));
        host.check_disk(&mirror)?;
        for (index, term, chain) in mirror.entries_from(0) {
            checks.entry(id, index, term, chain)?;
        }
        (host.mirror, host.disk) = (mirror.clone(), mirror);
        let log = ReplicatedLog::planted(
            id,
            settings,
            Kv::default(),
            recovered,
            host.snapshots.clone(),
            (seed, now),
            planted,
        );
        let log = match log {
            Ok(log) => log,
            Err(fatal) => return self.fatal_start(id, fatal),
        };
        host.process = Some(Process {
            membership: log.node().membership().clone(),
            published: Standing::default(),
            log,
            wal,
            proposals: VecDeque::new(),
            reads: BTreeMap::new(),
            queue: VecDeque::new(),
            writing: Vec::new(),
            led: None,
            commit: 0,
        });
        let epoch = host.epoch;
        self.say(id, || format!("starts with entries to {}", self.hosts[id as usize - 1].mirror.last()));
        self.after(self.settings.tick_micros, Event::Tick { host: id, epoch });
        self.drain(id, now)
    }

    pub(super) fn fatal_start(&mut self, id: u64, fatal: Fatal) -> Checked {
        match fatal {
            Fatal::Files(error)
                if error.kind() != std::io::ErrorKind::InvalidData && error.kind() != std::io::ErrorKind::NotFound =>
            {
                self.after(self.settings.election_micros() / 4, Event::Restart { host: id });
                Ok(())
            }
            fatal => broken("a member can go on", format!("node {id} cannot start: {fatal}")),
        }
    }
}

impl Host {
    /// What was safe is still there.
    fn check_disk(&self, found: &Mirror) -> Result<(), Violation> {
        let (old, index) = (&self.disk, self.safe_until.min(self.disk.last()));
        if found.term < old.term || (found.term == old.term && old.vote != 0 && found.vote != old.vote) {
            let detail =
                format!("node {}: term {} vote {} became {} {}", self.id, old.term, old.vote, found.term, found.vote);
            return broken("what was safe survives a crash", detail);
        }
        if index > found.base() && index > old.base() && found.chain(index) != old.chain(index) {
            let detail = format!(
                "node {} had entry {index} on disk and has entries {} to {}",
                self.id,
                found.base(),
                found.last()
            );
            return broken("what was safe survives a crash", detail);
        }
        Ok(())
    }
}

type Opened = (Log<SimulatedDirectory>, Recovered);

/// Lets a founder begin, if it has not begun yet.
fn found(
    host: &Host,
    mut wal: Log<SimulatedDirectory>,
    recovered: Recovered,
    settings: &Settings,
    founders: Membership,
) -> Result<Opened, ()> {
    if !recovered.is_empty() || !host.is_founder {
        return Ok((wal, recovered));
    }
    let founded = ReplicatedLog::found(settings, &Kv::default(), founders, host.snapshots.clone());
    let (recovered, records) = founded.map_err(drop)?;
    wal.commit(&records).map_err(drop)?;
    Ok((wal, recovered))
}
