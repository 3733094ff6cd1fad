//! Members, their hosts, the network between them, and what goes wrong. A seed decides all of it.

use std::collections::{BTreeMap, BTreeSet};

use d_engine::history::Watcher;
use d_engine::machine::Shown;
use d_engine_client::Event;
use harness::Random;
use replog::{
    Batch, ChunksJob, FilesJob, LongStep, Message, Now, Proposed, ReadId, ReplicatedLog, Role, Settings, SnapshotJob,
};
use wal::Log;
use wal::files::SimulatedDirectory;

use crate::bugs::{Bug, Planted};
use crate::lasting::Commits;

pub const MEMBERS: u64 = 3;
const STEP_MICROS: u64 = 2_000;
pub const ADDITIONS: u64 = 40;
/// After so many steps all faults end; after as many more everything must be done.
const FAULTY_STEPS: u64 = 3_000;

pub fn one_in(random: &mut Random, chances: u64) -> bool {
    random.below(chances) == 0
}

/// What a client waits for.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    Open,
    Add(u64),
    Lease,
    Other,
}

pub struct Process {
    pub log: ReplicatedLog<Planted, SimulatedDirectory>,
    pub wal: Log<SimulatedDirectory>,
    pub shown: Shown,
    /// Waits for the disk, until then.
    pub batches: Vec<(u64, Batch)>,
    pub snapshot: Option<SnapshotJob>,
    /// Taken beside the protocol, until then.
    pub long_step: Option<(u64, LongStep<Planted, SimulatedDirectory>)>,
    pub files_job: Option<(u64, FilesJob<SimulatedDirectory>)>,
    pub chunks_job: Option<(u64, ChunksJob<SimulatedDirectory>)>,
    pub proposals: Vec<(Proposed, Asked)>,
    /// What they must see.
    pub reads: BTreeMap<ReadId, MustSee>,
    /// Watches everything since the process began.
    pub watch: Watcher,
    /// Up to where the watch has been told everything.
    pub watched: u64,
}

#[derive(Default)]
pub struct Host {
    pub wal: SimulatedDirectory,
    pub snapshots: SimulatedDirectory,
    /// Of a member whose state is on disk.
    pub commits: Commits,
    pub process: Option<Process>,
    pub down_until: u64,
}

/// What a strong read must see, or has seen.
#[derive(Clone, Copy, Debug)]
pub struct MustSee {
    /// Of all additions.
    pub sum: i64,
    /// The newest entry.
    pub index: u64,
}

pub struct World {
    pub random: Random,
    pub time: u64,
    pub hosts: Vec<Host>,
    pub messages: Vec<(u64, Message)>,
    pub rows_at: BTreeMap<u64, Vec<u8>>,
    /// What watches were told of each entry.
    pub events_at: BTreeMap<u64, Vec<Event>>,
    /// Events that were told.
    pub events: u64,
    pub session: Option<u64>,
    /// What was answered to each addition: where it was applied, and the sum.
    pub answers: BTreeMap<u64, (u64, i64)>,
    /// The newest entry whose reply was told.
    pub acknowledged: u64,
    /// Who led, by term.
    pub leaders: BTreeMap<u64, u64>,
    pub leases: Vec<u64>,
    pub reads: u64,
    /// Starts that had no need of entries which the log has behind its snapshot.
    pub passed_over: u64,
    /// Links over which nothing goes, from and to, and until when.
    pub cuts: Vec<(u64, u64)>,
    pub cut_until: u64,
    pub cuts_made: u64,
    /// Until then nobody writes, so that who is cut off misses nothing and may be elected.
    pub quiet_until: u64,
    pub is_faulty: bool,
    pub bug: Option<Bug>,
}

pub fn settings() -> Settings {
    Settings {
        tick_micros: 10_000,
        heartbeat_ticks: 2,
        election_ticks: 10,
        snapshot_entries: 30,
        snapshot_log_bytes: 1_000,
        snapshot_keep_entries: 5,
        lagging_log_bytes: 1_500,
        snapshot_chunk_bytes: 300,
        ..Settings::default()
    }
}

pub const WAL: wal::Options = wal::Options { segment_bytes: 8 << 10, first_segment_bytes: 4 << 10, sync: true };

impl World {
    pub fn new(seed: u64, bug: Option<Bug>) -> Self {
        Self {
            random: Random::new(seed),
            time: 1_000_000,
            hosts: (0..MEMBERS).map(|_| Host::default()).collect(),
            messages: Vec::new(),
            rows_at: BTreeMap::new(),
            events_at: BTreeMap::new(),
            events: 0,
            session: None,
            answers: BTreeMap::new(),
            acknowledged: 0,
            leaders: BTreeMap::new(),
            leases: Vec::new(),
            reads: 0,
            passed_over: 0,
            cuts: Vec::new(),
            cut_until: 0,
            cuts_made: 0,
            quiet_until: 0,
            is_faulty: true,
            bug,
        }
    }

    pub fn now(&self) -> Now {
        Now { boot_micros: self.time, unix_millis: self.time / 1000 }
    }

    /// Members that are in this role, as far as they know.
    pub fn who_is(&self, role: Role) -> Vec<u64> {
        let is = |id: &u64| {
            let process = self.hosts[*id as usize - 1].process.as_ref();
            process.is_some_and(|process| process.log.node().role() == role)
        };
        (1..=MEMBERS).filter(is).collect()
    }

    /// Something goes wrong beside what the network does all the time.
    fn trouble(&mut self) {
        for id in 1..=MEMBERS {
            if one_in(&mut self.random, 800) {
                let loses_power = one_in(&mut self.random, 2);
                let down_micros = 1 + self.random.below(300_000);
                self.kill(id, loses_power, down_micros);
            }
        }
        // The power of the whole site.
        if one_in(&mut self.random, 1_500) {
            for id in 1..=MEMBERS {
                let down_micros = 1 + self.random.below(300_000);
                self.kill(id, true, down_micros);
            }
        }
        // Who was asked for its vote dies, and is back at once.
        for candidate in self.who_is(Role::Candidate) {
            if one_in(&mut self.random, 20) {
                let voter = 1 + (candidate + self.random.below(MEMBERS - 1)) % MEMBERS;
                self.kill(voter, false, 1);
            }
        }
        if self.time >= self.cut_until {
            self.cuts.clear();
        }
        if self.cuts.is_empty() && one_in(&mut self.random, 300) {
            self.cut();
        }
        let leaders = self.who_is(Role::Leader);
        if leaders.len() > 1 && one_in(&mut self.random, 2) {
            self.cut_off_the_oldest(&leaders);
        }
    }

    /// Who was displaced does not hear of it, and may still count on the others.
    fn cut_off_the_oldest(&mut self, leaders: &[u64]) {
        let term_of = |id: &u64| self.hosts[*id as usize - 1].process.as_ref().map(|process| process.log.node().term());
        let Some(oldest) = leaders.iter().copied().min_by_key(term_of) else { return };
        let others = (1..=MEMBERS).filter(|id| *id != oldest);
        self.cuts = others.flat_map(|other| [(oldest, other), (other, oldest)]).collect();
        self.cut_until = self.cut_until.max(self.time + 50_000);
        self.quiet_until = 0;
    }

    /// Links break, more often those of a leader: between it and one other, or all of them; both ways, or one way.
    fn cut(&mut self) {
        let leaders = self.who_is(Role::Leader);
        let one = if leaders.is_empty() { 1 + self.random.below(MEMBERS) } else { self.random.pick(&leaders) };
        let mut others: Vec<u64> = (1..=MEMBERS).filter(|id| *id != one).collect();
        if one_in(&mut self.random, 2) {
            others = vec![self.random.pick(&others)];
        }
        let ways = self.random.below(4);
        for other in others {
            self.cuts.extend([(one, other)].into_iter().filter(|_| ways != 0));
            self.cuts.extend([(other, one)].into_iter().filter(|_| ways != 1));
        }
        self.cuts_made += 1;
        if one_in(&mut self.random, 2) {
            self.quiet_until = self.time + 300_000;
        }
        self.cut_until = self.time + 50_000 + self.random.below(300_000);
    }

    fn step(&mut self) {
        self.time += STEP_MICROS;
        for id in 1..=MEMBERS {
            let (time, now) = (self.time, self.now());
            let host = &mut self.hosts[id as usize - 1];
            let Some(process) = &mut host.process else {
                if time >= host.down_until || !self.is_faulty {
                    self.start(id);
                }
                continue;
            };
            if time % settings().tick_micros == 0 {
                process.log.tick(now);
            }
            // The disk takes one batch after the other.
            while process.batches.first().is_some_and(|(due, _)| *due <= time) {
                let (_, batch) = process.batches.remove(0);
                process.wal.commit(&batch.records).unwrap();
                process.log.persisted(batch.token);
            }
            if let Some(job) = process.snapshot.take() {
                process.log.snapshot_written(job.run()).unwrap();
            }
            if let Some((_, step)) = process.long_step.take_if(|(due, _)| *due <= time) {
                process.log.long_step_done(step.run()).unwrap();
            }
            if let Some((_, job)) = process.files_job.take_if(|(due, _)| *due <= time) {
                process.log.files_job_done(job.run(), now).unwrap();
            }
            if let Some((_, job)) = process.chunks_job.take_if(|(due, _)| *due <= time) {
                process.log.chunks_read(job.run()).unwrap();
            }
            self.drain(id);
        }
        if self.is_faulty {
            self.trouble();
        }
        let (due, later): (Vec<_>, Vec<_>) = self.messages.drain(..).partition(|(due, _)| *due <= self.time);
        self.messages = later;
        for (_, message) in due {
            let (to, now) = (message.to(), self.now());
            if let Some(process) = &mut self.hosts[to as usize - 1].process {
                process.log.receive(message, now).unwrap();
                self.drain(to);
            }
        }
        if one_in(&mut self.random, 3) {
            self.ask();
        }
    }

    pub fn run(&mut self) {
        (1..=MEMBERS).for_each(|id| self.start(id));
        (0..FAULTY_STEPS).for_each(|_| self.step());
        self.is_faulty = false;
        self.cuts.clear();
        for _ in 0..FAULTY_STEPS {
            self.step();
            if self.answers.len() as u64 == ADDITIONS {
                break;
            }
        }
        assert_eq!(self.answers.len() as u64, ADDITIONS, "not all additions were answered after the faults had ended");
        let sums: BTreeSet<i64> = self.answers.values().map(|(_, sum)| *sum).collect();
        assert_eq!(sums, (1..=ADDITIONS as i64).collect());
    }
}
