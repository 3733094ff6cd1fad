//! Three members in one thread and in no real time, on simulated disks, with the code that servers run: messages are lost, late and
//! repeated, processes are killed, machines lose power, snapshots are made and sent. A seed decides all of it.
//!
//! After every step: members that have applied the same have the same rows. A session's additions are done once, however often they
//! were sent; no strong read is older than an addition that was acknowledged before it began; whoever watches is told what everybody
//! else is told, once, in order, without a gap that is not said. In the end everything works.
//!
//! `REPLICAS_SEEDS=10000 cargo test -p d-engine --test replicas` looks longer; `REPLICAS_SEED=7` at one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use d_engine::history::{Place, TooOld};
use d_engine::machine::{Machine, Reply, Shown};
use d_engine::state::{
    Applied, Command, EachRow, Memory, Refusal, Rows, Storage, StorageError, Table, answer, write_rows,
};
use d_engine_client::{Event, EventKind, Operation, OperationResult, Query, Stamp, Transaction, WatchOptions};
use harness::Random;
use replog::{
    Batch, Effects, Entry, FilesJob, LongStep, Membership, Message, Now, Proposed, ReadId, ReadLevel, Recovery,
    ReplicatedLog, RestoreError, Role, Settings, SnapshotJob, SnapshotView, StateMachine,
};
use wal::Log;
use wal::files::SimulatedDirectory;

const MEMBERS: u64 = 3;
const STEP_MICROS: u64 = 2_000;
const ADDITIONS: u64 = 40;
/// After so many steps all faults end; after as many more everything must be done.
const FAULTY_STEPS: u64 = 3_000;

fn one_in(random: &mut Random, chances: u64) -> bool {
    random.below(chances) == 0
}

/// An error that is planted, so that the checks can show that they notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// Each member counts time to live by its own clock, as the original does.
    LocalClock,
    /// Sessions are not looked at.
    NoSessions,
    /// Strong reads look at what there is.
    ReadsLocally,
    /// A snapshot is not all of the state.
    HalfSnapshot,
    /// What was kept is applied again.
    AppliesTwice,
    /// Some entries are applied twice, one right after the other, as the original does.
    RepeatsEntries,
    /// Who watches is not told of what a snapshot skipped.
    WatchesOverGaps,
    /// Leases end by each member's own clock.
    LocalLeases,
}

/// The machine, right or wrong.
struct Planted {
    machine: Machine<Lasting>,
    bug: Option<Bug>,
    id: u64,
}

impl StateMachine for Planted {
    type Reply = Reply;

    fn apply(&mut self, entry: &Entry) -> Reply {
        let mut entry = entry.clone();
        if self.bug == Some(Bug::LocalLeases)
            && let Ok(Command::Expire) = Command::decode(entry.data.clone())
        {
            entry.time_millis += 20 * self.id;
        }
        if self.bug == Some(Bug::LocalClock) {
            entry.time_millis += self.id;
        }
        if self.bug == Some(Bug::NoSessions)
            && let Ok(Command::Write(transaction, Some(_))) = Command::decode(entry.data.clone())
        {
            entry.data = Command::Write(transaction, None).encode();
        }
        let applied = self.machine.apply(&entry);
        if self.bug == Some(Bug::RepeatsEntries) && entry.index.is_multiple_of(7) {
            return self.machine.apply(&entry);
        }
        applied
    }

    fn applied(&mut self, index: u64) {
        self.machine.applied(index);
    }

    fn kept(&self) -> u64 {
        self.machine.kept()
    }

    fn forget(&mut self) -> Result<(), RestoreError> {
        self.machine.forget()
    }

    fn snapshot(&self) -> SnapshotView {
        match self.bug {
            // A state without rows is one.
            Some(Bug::HalfSnapshot) => Machine::new(Memory::default()).unwrap().snapshot(),
            _ => self.machine.snapshot(),
        }
    }

    fn restore(&mut self, snapshot: &mut dyn std::io::Read) -> Result<(), RestoreError> {
        self.machine.restore(snapshot)
    }
}

/// Commits that a member's disk has, oldest first: a crash may cost the last ones, as nobody syncs them.
type Commits = Arc<Mutex<VecDeque<(u64, Arc<dyn Rows + Send + Sync>)>>>;
/// So many are there to be lost.
const COMMITS_MAX: usize = 40;

/// Tables that are there again after a restart, as those on disk.
struct Lasting {
    tables: Memory,
    applied: u64,
    commits: Commits,
}

impl Lasting {
    fn open(commits: &Commits) -> Self {
        let (mut tables, mut applied) = (Memory::default(), 0);
        if let Some((index, rows)) = commits.lock().unwrap().back() {
            applied = *index;
            for table in Table::ALL {
                let mut each = |key: &Bytes, value: &Bytes| {
                    tables.put(table, key.clone(), value.clone()).unwrap();
                    ControlFlow::Continue(())
                };
                rows.scan(table, &[], None, &mut each).unwrap();
            }
            tables.commit(applied).unwrap();
        }
        Self { tables, applied, commits: Arc::clone(commits) }
    }
}

impl Rows for Lasting {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        self.tables.get(table, key)
    }

    fn scan(&self, table: Table, start: &[u8], end: Option<&[u8]>, each: &mut EachRow<'_>) -> Result<(), StorageError> {
        self.tables.scan(table, start, end, each)
    }
}

impl Storage for Lasting {
    fn put(&mut self, table: Table, key: Bytes, value: Bytes) -> Result<(), StorageError> {
        self.tables.put(table, key, value)
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), StorageError> {
        self.tables.delete(table, key)
    }

    fn commit(&mut self, applied: u64) -> Result<(), StorageError> {
        self.tables.commit(applied)?;
        self.applied = applied;
        let mut commits = self.commits.lock().unwrap();
        commits.push_back((applied, self.tables.view()));
        if commits.len() > COMMITS_MAX {
            commits.pop_front();
        }
        Ok(())
    }

    fn applied(&self) -> u64 {
        self.applied
    }

    fn view(&self) -> Arc<dyn Rows + Send + Sync> {
        self.tables.view()
    }

    fn clear(&mut self) -> Result<(), StorageError> {
        self.applied = 0;
        self.tables.clear()
    }
}

/// What a client waits for.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Open,
    Add(u64),
    Lease,
    Other,
}

struct Process {
    log: ReplicatedLog<Planted, SimulatedDirectory>,
    wal: Log<SimulatedDirectory>,
    shown: Shown,
    /// Waits for the disk, until then.
    batches: Vec<(u64, Batch)>,
    snapshot: Option<SnapshotJob>,
    /// Taken beside the protocol, until then.
    long_step: Option<(u64, LongStep<Planted, SimulatedDirectory>)>,
    files_job: Option<(u64, FilesJob<SimulatedDirectory>)>,
    proposals: Vec<(Proposed, Asked)>,
    /// How many additions a read must see.
    reads: BTreeMap<ReadId, u64>,
    /// Watches everything since the process began.
    watch: Place,
    /// Up to where the watch has been told everything.
    watched: u64,
}

#[derive(Default)]
struct Host {
    wal: SimulatedDirectory,
    snapshots: SimulatedDirectory,
    /// Of a member whose state is on disk.
    commits: Commits,
    process: Option<Process>,
    down_until: u64,
}

struct World {
    random: Random,
    time: u64,
    hosts: Vec<Host>,
    messages: Vec<(u64, Message)>,
    rows_at: BTreeMap<u64, Vec<u8>>,
    /// What watches were told of each entry.
    events_at: BTreeMap<u64, Vec<Event>>,
    /// Events that were told.
    events: u64,
    session: Option<u64>,
    /// What was answered to each addition: where it was applied, and the sum.
    answers: BTreeMap<u64, (u64, i64)>,
    leases: Vec<u64>,
    reads: u64,
    is_faulty: bool,
    bug: Option<Bug>,
}

fn settings() -> Settings {
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

const WAL: wal::Options = wal::Options { segment_bytes: 8 << 10, first_segment_bytes: 4 << 10, sync: true };

impl World {
    fn new(seed: u64, bug: Option<Bug>) -> Self {
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
            leases: Vec::new(),
            reads: 0,
            is_faulty: true,
            bug,
        }
    }

    fn now(&self) -> Now {
        Now { boot_micros: self.time, unix_millis: self.time / 1000 }
    }

    fn start(&mut self, id: u64) {
        let (settings, now, seed, bug) = (settings(), self.now(), self.random.draw(), self.bug);
        let host = &mut self.hosts[id as usize - 1];
        let mut recovery = Recovery::new(settings.group);
        let mut wal = Log::open(host.wal.clone(), WAL, |record| recovery.visit(record)).unwrap();
        let mut recovered = recovery.finish().unwrap();
        // One member has its state in memory.
        if id == 1 {
            host.commits.lock().unwrap().clear();
        }
        let mut storage = Lasting::open(&host.commits);
        if bug == Some(Bug::AppliesTwice) {
            storage.applied -= storage.applied.min(5);
        }
        let machine = Machine::new(storage).unwrap();
        let shown = machine.shown();
        let machine = Planted { machine, bug, id };
        if recovered.is_empty() {
            let founders = Membership::of(1..=MEMBERS);
            let (founded, records) =
                ReplicatedLog::found(&settings, &machine, founders, host.snapshots.clone()).unwrap();
            wal.commit(&records).unwrap();
            recovered = founded;
        }
        let log = ReplicatedLog::new(id, settings, machine, recovered, host.snapshots.clone(), seed, now).unwrap();
        let (batches, proposals, reads) = (Vec::new(), Vec::new(), BTreeMap::new());
        let (watch, watched) = (shown.history.begin(0).unwrap(), shown.view().applied);
        let (snapshot, long_step, files_job) = (None, None, None);
        let process =
            Process { log, wal, shown, batches, snapshot, long_step, files_job, proposals, reads, watch, watched };
        host.process = Some(process);
        self.drain(id);
    }

    /// A process ends; what it has not synced is lost, in part if the machine loses its power.
    fn kill(&mut self, id: u64) {
        let loses_power = one_in(&mut self.random, 2);
        let down = 1 + self.random.below(300_000);
        let host = &mut self.hosts[id as usize - 1];
        host.process = None;
        host.down_until = self.time + down;
        let random = &mut self.random;
        let mut commits = host.commits.lock().unwrap();
        let lost = random.below(if loses_power { COMMITS_MAX as u64 } else { 3 });
        let left = commits.len().saturating_sub(lost as usize);
        commits.truncate(left);
        if loses_power {
            host.wal.crash(|| random.draw());
            host.snapshots.crash(|| random.draw());
        }
    }

    fn drain(&mut self, id: u64) {
        loop {
            let now = self.now();
            let Some(process) = &mut self.hosts[id as usize - 1].process else { return };
            let effects = process.log.take(now).unwrap();
            if effects.is_empty() {
                break;
            }
            // Named one by one, so that what is new there is not forgotten here.
            let Effects {
                messages,
                batch,
                applied,
                installed: _,
                reads,
                failed_reads: _,
                snapshot,
                long_step,
                files_job,
            } = effects;
            if let Some(batch) = batch {
                let due = self.time + self.random.below(4_000);
                process.batches.push((due, batch));
            }
            process.snapshot = process.snapshot.take().or(snapshot);
            let mut later = || self.time + self.random.below(20_000);
            process.long_step = process.long_step.take().or(long_step.map(|step| (later(), step)));
            process.files_job = process.files_job.take().or(files_job.map(|job| (later(), job)));
            for message in messages {
                let copies = if !self.is_faulty { 1 } else { [0, 1, 1, 1, 1, 1, 1, 2][self.random.below(8) as usize] };
                for _ in 0..copies {
                    let late = if self.is_faulty && one_in(&mut self.random, 20) { 100_000 } else { 3_000 };
                    self.messages.push((self.time + self.random.below(late), message.clone()));
                }
            }
            let mut told = Vec::new();
            for applied in applied {
                let (index, term) = (applied.index, applied.term);
                let is_mine = |(proposed, _): &(Proposed, Asked)| (proposed.first, proposed.term) == (index, term);
                if let Some(at) = process.proposals.iter().position(is_mine) {
                    let (_, asked) = process.proposals.swap_remove(at);
                    told.extend(applied.reply.map(|reply| (asked, reply)));
                }
            }
            // Whoever is in the place of a proposal has displaced it.
            let applied = process.log.node().applied_index();
            process.proposals.retain(|(proposed, _)| proposed.first > applied);
            let mut seen = Vec::new();
            for permit in reads {
                if let Some(must_see) = process.reads.remove(&permit.id)
                    && let Some(sum) = process.log.answer(&permit, |_| sum(&process.shown), || now)
                {
                    seen.push((must_see, sum));
                }
            }
            self.check_rows(id);
            self.check_events(id);
            for (asked, reply) in told {
                self.told(asked, reply);
            }
            for (must_see, sum) in seen {
                self.reads += 1;
                assert!(sum >= must_see as i64, "a strong read at member {id} saw {sum}, acknowledged were {must_see}");
            }
        }
    }

    /// Equal entries make equal rows.
    fn check_rows(&mut self, id: u64) {
        let Some(process) = &self.hosts[id as usize - 1].process else { return };
        assert_eq!(process.shown.broken(), None);
        let view = process.shown.view();
        let mut rows = Vec::new();
        write_rows(&*view.rows, &mut rows).unwrap();
        if let Some(known) = self.rows_at.get(&view.applied) {
            assert_eq!(*known, rows, "member {id} differs at index {}", view.applied);
        } else {
            self.rows_at.insert(view.applied, rows);
        }
    }

    /// Equal entries make equal events, and who watches is told of each of them once and in order, or that it was not.
    fn check_events(&mut self, id: u64) {
        let bug = self.bug;
        let Some(process) = &mut self.hosts[id as usize - 1].process else { return };
        let all = WatchOptions { end: Some("~".into()), with_previous: true, ..WatchOptions::default() };
        loop {
            let step = match process.shown.history.step(&mut process.watch, &all) {
                Ok(step) => step,
                Err(TooOld(oldest)) => {
                    // A snapshot took the place of what happened: it is said from where on one can watch.
                    process.watch = process.shown.history.begin(0).unwrap();
                    if bug != Some(Bug::WatchesOverGaps) {
                        process.watched = (oldest - 1).max(process.shown.view().applied);
                    }
                    continue;
                }
            };
            self.events += step.events.len() as u64;
            let mut by_entry: BTreeMap<u64, Vec<Event>> = BTreeMap::new();
            let mut last = process.watched;
            for event in step.events {
                let revision = event.revision;
                assert!(revision > process.watched && revision >= last, "member {id} tells of {revision} after {last}");
                last = revision;
                by_entry.entry(revision).or_default().push(event);
            }
            for index in process.watched + 1..=step.index {
                let told = by_entry.remove(&index).unwrap_or_default();
                let mut keys = BTreeSet::new();
                assert!(told.iter().all(|event| keys.insert(event.key.clone())), "member {id} repeats {told:?}");
                let known = self.events_at.entry(index).or_insert_with(|| told.clone());
                assert_eq!(*known, told, "member {id} tells something else of entry {index}");
            }
            process.watched = process.watched.max(step.index);
            if !step.has_more {
                return;
            }
        }
    }

    fn told(&mut self, asked: Asked, reply: Reply) {
        let Applied { index, outcome, .. } = reply.unwrap();
        match (asked, outcome) {
            (Asked::Open, Ok(_)) => self.session = self.session.or(Some(index)),
            (Asked::Add(sequence), Ok(results)) => {
                let [OperationResult::Sum(sum)] = results.results[..] else { panic!("{results:?}") };
                let first = *self.answers.entry(sequence).or_insert((index, sum));
                assert_eq!(first, (index, sum), "addition {sequence} was done twice");
            }
            (Asked::Add(sequence), Err(Refusal::Forgotten)) => assert!(self.answers.contains_key(&sequence)),
            (Asked::Lease, Ok(results)) => {
                if let [OperationResult::Lease(Some(lease))] = &results.results[..] {
                    self.leases.push(lease.number);
                }
            }
            (Asked::Other, _) => {}
            (asked, outcome) => panic!("{asked:?}: {outcome:?}"),
        }
    }

    /// A client asks somebody who says that it leads.
    fn ask(&mut self) {
        let leads =
            |host: &Host| host.process.as_ref().is_some_and(|process| process.log.node().role() == Role::Leader);
        let now = Now { boot_micros: self.time, unix_millis: self.time / 1000 };
        let missing: Vec<u64> =
            (1..=ADDITIONS).filter(|sequence| !self.answers.contains_key(sequence)).take(3).collect();
        let awaited_from = missing.first().copied().unwrap_or(ADDITIONS + 1);
        // Also what was answered long ago, as a client that was stopped may.
        let again = 1 + self.random.below(ADDITIONS);
        let again = if again < awaited_from || missing.contains(&again) { Some(again) } else { None };
        let wanted = missing.get(self.random.below(3) as usize).copied().or(again);
        let choice = self.random.below(8);
        // Of the newest leases, which may have ended.
        let lease = self.leases.len().checked_sub(1 + self.random.below(3) as usize).map_or(1, |at| self.leases[at]);
        let key = vec![b'a' + self.random.below(8) as u8];
        let ttl_millis = self.random.below(3) * 100;
        let (asked, command) = match (self.session, choice) {
            (None, _) => (Asked::Open, Command::OpenSession),
            (Some(session), 0..=2) => {
                let Some(sequence) = wanted else { return };
                let stamp = Stamp { session, sequence, awaited_from: awaited_from.min(ADDITIONS) };
                let add = Operation::Add { key: "sum".into(), delta: 1 };
                (Asked::Add(sequence), Command::Write(Transaction::of(add), Some(stamp)))
            }
            (_, 3) => (Asked::Other, Command::Expire),
            (_, 6) => {
                let operation = match self.random.below(4) {
                    0 => Operation::Revoke { lease },
                    1 => Operation::KeepAlive { lease },
                    _ => Operation::Grant { ttl_millis: 50 + self.random.below(200) },
                };
                (Asked::Lease, Command::Write(Transaction::of(operation), None))
            }
            (_, 7) => (Asked::Other, Command::Write(Transaction::put_with_lease(key, vec![8; 20], lease), None)),
            (_, 4) => (Asked::Other, Command::Write(Transaction::delete(key), None)),
            _ => {
                let put = Operation::Put { key: key.into(), value: vec![7; 40].into(), ttl_millis };
                (Asked::Other, Command::Write(Transaction::of(put), None))
            }
        };
        let acknowledged = self.answers.len() as u64;
        let reader = self.random.below(MEMBERS) as usize;
        let level = if one_in(&mut self.random, 2) { ReadLevel::Linearizable } else { ReadLevel::Lease };
        let level = if self.bug == Some(Bug::ReadsLocally) { ReadLevel::Eventual } else { level };
        if let Some(process) = &mut self.hosts[reader].process
            && let Ok(read) = process.log.read(level, 0, now)
        {
            process.reads.insert(read, acknowledged);
        }
        self.drain(reader as u64 + 1);
        if let Some(at) = self.hosts.iter().position(leads) {
            if let Some(process) = &mut self.hosts[at].process
                && let Ok(proposed) = process.log.propose(vec![command.encode()], now)
            {
                process.proposals.push((proposed, asked));
            }
            self.drain(at as u64 + 1);
        }
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
            self.drain(id);
            if self.is_faulty && one_in(&mut self.random, 800) {
                self.kill(id);
            }
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

    fn run(&mut self) {
        (1..=MEMBERS).for_each(|id| self.start(id));
        (0..FAULTY_STEPS).for_each(|_| self.step());
        self.is_faulty = false;
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

fn sum(shown: &Shown) -> i64 {
    let found = answer(&*shown.view().rows, &Query::Get("sum".into())).unwrap();
    found.items.first().map_or(0, |item| std::str::from_utf8(&item.value).unwrap().parse().unwrap())
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn members_stay_alike_and_additions_are_done_once() {
    let seeds = match number("REPLICAS_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("REPLICAS_SEEDS").unwrap_or(30),
    };
    let (mut reads, mut installed, mut events, mut expired) = (0, 0, 0, 0);
    for seed in seeds {
        eprintln!("seed {seed}");
        let mut world = World::new(seed, None);
        world.run();
        reads += world.reads;
        installed += world.rows_at.len();
        events += world.events;
        expired += world.events_at.values().flatten().filter(|event| event.kind == EventKind::Expire).count();
    }
    let looked = format!("{reads} reads, {installed} states, {events} events, {expired} keys that ended");
    eprintln!("{looked}");
    assert!(reads > 100 && installed > 100 && events > 100 && expired > 100, "nothing was looked at: {looked}");
}

#[test]
fn planted_errors_are_noticed() {
    let bugs = [
        Bug::LocalClock,
        Bug::NoSessions,
        Bug::ReadsLocally,
        Bug::HalfSnapshot,
        Bug::AppliesTwice,
        Bug::RepeatsEntries,
        Bug::WatchesOverGaps,
        Bug::LocalLeases,
    ];
    for bug in bugs {
        let is_noticed = |seed| catch_unwind(|| World::new(seed, Some(bug)).run()).is_err();
        let seed = (0..50).find(|seed| is_noticed(*seed));
        eprintln!("{bug:?} is noticed with seed {seed:?}");
        assert!(seed.is_some(), "{bug:?} is not noticed");
    }
}
