//! A machine of the simulation: a member's process, its disk and its clock.

use std::collections::{BTreeMap, VecDeque};

use wal::files::SimulatedDirectory;
use wal::{Log, Options};

use super::kv::Kv;
use super::mirror::{Digest, Mirror};
use crate::clock::Now;
use crate::membership::Membership;
use crate::node::{Batch, Proposed, Standing};
use crate::reads::{ReadId, ReadLevel};
use crate::replica::ReplicatedLog;

/// The clocks of one simulated machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// When it was last started, and what it said then.
    pub(super) since: u64,
    pub(super) boot_micros: u64,
    /// How wrong its rate is.
    pub(super) rate_ppm: i64,
    /// How wrong its date is.
    pub(super) unix_offset_millis: u64,
}

impl Clock {
    pub(super) fn at(&self, time: u64) -> Now {
        let passed = time - self.since;
        let drift = i128::from(passed) * i128::from(self.rate_ppm) / 1_000_000;
        Now {
            boot_micros: self.boot_micros + (i128::from(passed) + drift) as u64,
            unix_millis: time / 1000 + self.unix_offset_millis,
        }
    }
}

/// A read that a client waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) level: ReadLevel,
    /// The index that it must see.
    pub(super) must_see: u64,
}

/// The process of one member on its machine.
pub(super) struct Process {
    pub(super) log: ReplicatedLog<Kv, SimulatedDirectory>,
    pub(super) wal: Log<SimulatedDirectory>,
    pub(super) proposals: VecDeque<Proposed>,
    pub(super) reads: BTreeMap<ReadId, Asked>,
    /// Batches that wait for the disk, and those that it works on.
    pub(super) queue: VecDeque<(Batch, Vec<Digest>)>,
    pub(super) writing: Vec<(Batch, Vec<Digest>)>,
    /// What was seen of it last.
    pub(super) led: Option<u64>,
    pub(super) commit: u64,
    pub(super) membership: Membership,
    /// What its other threads know.
    pub(super) published: Standing,
}

/// One simulated machine: its clocks, its disk, and the process on it, if one runs.
pub(super) struct Host {
    pub(super) id: u64,
    pub(super) process: Option<Process>,
    pub(super) wal: SimulatedDirectory,
    pub(super) snapshots: SimulatedDirectory,
    pub(super) clock: Clock,
    /// Its own setting.
    pub(super) election_ticks: u32,
    /// Counts starts: events of an earlier process are void.
    pub(super) epoch: u64,
    /// Stopped by SIGSTOP or by the hypervisor until then.
    pub(super) paused_until: u64,
    /// What its clock said when it was stopped.
    pub(super) paused_at: Now,
    /// What it is asked in the meantime.
    pub(super) inbox: Vec<super::world::Event>,
    /// The disk is slow until then.
    pub(super) slow_until: u64,
    /// A founder, or a member that has had its first start.
    pub(super) is_founder: bool,
    pub(super) mirror: Mirror,
    pub(super) disk: Mirror,
    /// When it crashed: what its disk must still have.
    pub(super) safe_until: u64,
}

/// Small segments, so that they change often.
pub(super) const WAL_OPTIONS: Options = Options { segment_bytes: 8 << 10, first_segment_bytes: 4 << 10, sync: true };

impl Host {
    pub(super) fn new(id: u64, clock: Clock, election_ticks: u32, is_founder: bool) -> Self {
        Self {
            id,
            process: None,
            wal: SimulatedDirectory::default(),
            snapshots: SimulatedDirectory::default(),
            clock,
            election_ticks,
            epoch: 0,
            paused_until: 0,
            paused_at: Now::default(),
            inbox: Vec::new(),
            slow_until: 0,
            is_founder,
            mirror: Mirror::default(),
            disk: Mirror::default(),
            safe_until: 0,
        }
    }

    /// What the mirror of its disk must still hold after a crash: everything before the first record that was being replaced.
    pub(super) fn replaced_from(&self) -> u64 {
        let Some(process) = &self.process else { return self.disk.last() };
        let digests = process.writing.iter().chain(&process.queue).flat_map(|(_, digests)| digests);
        let first = digests.filter_map(|digest| match digest {
            Digest::Entry { index, .. } => Some(index - 1),
            Digest::Reset { .. } => Some(0),
            Digest::Hard { .. } => None,
        });
        first.min().unwrap_or(u64::MAX).min(self.disk.last())
    }
}
