//! The power is cut at every operation of the disk, and what was not synced is lost by lot. What was acknowledged is there, in its
//! place; of what was under way there is the beginning, or nothing.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test: a failure is a failure")]

use std::collections::BTreeMap;

use bytes::Bytes;
use harness::Random;
use replog::{
    Entry, EntryKind, Membership, Now, Recovery, ReplicatedLog, Role, Settings, SnapshotMeta, StateMachine as _,
};
use rusd::proto::etcdserverpb as pb;
use rusd::store::{Caller, Command, Request, Store};
use wal::files::{Fault, SimulatedDirectory};
use wal::{Log, Options};

/// Small segments and frequent snapshots, so that every kind of file changes often.
const OPTIONS: Options = Options { segment_bytes: 4096, first_segment_bytes: 2048, sync: true };

fn settings() -> Settings {
    Settings { snapshot_entries: 12, snapshot_keep_entries: 4, ..Settings::default() }
}

/// The disk, and the clock that goes on.
struct Machine {
    wal: SimulatedDirectory,
    snapshots: SimulatedDirectory,
    now: Now,
}

/// The disk said no: the process ends.
struct Dead;

struct Server {
    log: ReplicatedLog<Store, SimulatedDirectory>,
    wal: Log<SimulatedDirectory>,
    /// Commands in the log that nobody was told of, by index.
    under_way: BTreeMap<u64, (Bytes, u64)>,
}

impl Machine {
    fn tick(&mut self) -> Now {
        self.now.boot_micros += settings().tick_micros;
        self.now.unix_millis += settings().tick_micros / 1000;
        self.now
    }

    /// Starts, and waits until it serves.
    fn start(&mut self, seed: u64, reference: &mut Reference) -> Result<Server, Dead> {
        let mut recovery = Recovery::new(0);
        let mut wal = match Log::open(self.wal.clone(), OPTIONS, |record| recovery.visit(record)) {
            Ok(wal) => wal,
            Err(wal::OpenError::Files { .. }) => return Err(Dead),
            Err(damaged) => panic!("{damaged}"),
        };
        let mut recovered = recovery.finish().unwrap();
        if recovered.is_empty() {
            let founders = Membership { voters: vec![1], ..Membership::default() };
            let found = ReplicatedLog::found(&settings(), &Store::default(), founders, self.snapshots.clone());
            let records = found.map_err(|_| Dead)?;
            wal.commit(&records.1).map_err(|_| Dead)?;
            recovered = records.0;
        }
        let log =
            ReplicatedLog::new(1, settings(), Store::default(), recovered, self.snapshots.clone(), seed, self.now);
        let mut server = Server { log: log.map_err(|_| Dead)?, wal, under_way: BTreeMap::new() };
        for _ in 0..1_000 {
            let now = self.tick();
            server.log.tick(now);
            server.turn(now, reference)?;
            let node = server.log.node();
            if node.role() == Role::Leader && node.applied_index() == node.last_index() {
                return Ok(server);
            }
        }
        panic!("it does not come to lead");
    }
}

impl Server {
    /// Does all that is to be done.
    fn turn(&mut self, now: Now, reference: &mut Reference) -> Result<(), Dead> {
        loop {
            let effects = self.log.take(now).map_err(|_| Dead)?;
            if effects.is_empty() {
                return Ok(());
            }
            if let Some(batch) = effects.batch {
                self.wal.commit(&batch.records).map_err(|_| Dead)?;
                self.log.persisted(batch.token);
            }
            for applied in effects.applied {
                if let Some((command, time_millis)) = self.under_way.remove(&applied.index) {
                    reference.apply(command, time_millis);
                }
            }
            if let Some(job) = effects.snapshot {
                let written: std::io::Result<SnapshotMeta> = job.run();
                self.log.snapshot_written(written).map_err(|_| Dead)?;
            }
            if let Some(step) = effects.long_step {
                self.log.long_step_done(step.run()).map_err(|_| Dead)?;
            }
            if let Some(job) = effects.files_job {
                self.log.files_job_done(job.run(), now).map_err(|_| Dead)?;
            }
            if let Some(job) = effects.chunks_job {
                self.log.chunks_read(job.run()).map_err(|_| Dead)?;
            }
        }
    }

    fn propose(&mut self, commands: Vec<Bytes>, now: Now) {
        let proposed = self.log.propose(commands.clone(), now).unwrap();
        let with_times = commands.into_iter().map(|command| (command, now.unix_millis));
        self.under_way.extend((proposed.first..).zip(with_times));
    }

    fn contents(&self) -> Bytes {
        written(self.log.machine().unwrap())
    }
}

fn written(store: &Store) -> Bytes {
    let mut bytes = Vec::new();
    store.snapshot()(&mut bytes).unwrap();
    bytes.into()
}

/// What was acknowledged, and nothing else.
#[derive(Default)]
struct Reference {
    commands: Vec<(Bytes, u64)>,
}

impl Reference {
    fn apply(&mut self, command: Bytes, time_millis: u64) {
        self.commands.push((command, time_millis));
    }

    /// What a store has that was told only of these commands and of the first of those under way: as many as make it equal.
    /// They count as acknowledged from then on, since everybody may have seen them.
    fn adopt(&mut self, contents: &Bytes, under_way: &[(Bytes, u64)], what: &str) {
        let mut store = Store::default();
        let mut apply = |(index, (command, time_millis)): (usize, &(Bytes, u64))| {
            let (index, kind, data) = (index as u64 + 1, EntryKind::Command, command.clone());
            // What it answers was said before.
            drop(store.apply(&Entry { index, term: 1, kind, time_millis: *time_millis, data }));
            written(&store)
        };
        let mut last =
            self.commands.iter().enumerate().map(&mut apply).last().unwrap_or_else(|| written(&Store::default()));
        let mut survivors = 0;
        while last != *contents {
            let next = under_way.get(survivors).unwrap_or_else(|| {
                panic!(
                    "{what}: {} commands were acknowledged, and the store is not what they make",
                    self.commands.len()
                )
            });
            survivors += 1;
            last = apply((self.commands.len() + survivors, next));
        }
        self.commands.extend_from_slice(&under_way[..survivors]);
    }
}

fn put(random: &mut Random) -> pb::PutRequest {
    let value = vec![random.draw() as u8; random.below(300) as usize];
    pb::PutRequest { key: format!("key {}", random.below(6)).into(), value: value.into(), ..Default::default() }
}

fn command(random: &mut Random) -> Bytes {
    let key = format!("key {}", random.below(6));
    let request = match random.below(12) {
        0..6 => Request::Put(put(random)),
        6 | 7 => Request::DeleteRange(pb::DeleteRangeRequest {
            key: key.into(),
            range_end: "key 9".into(),
            ..Default::default()
        }),
        8 | 9 => {
            let request = pb::request_op::Request::RequestPut(put(random));
            Request::Txn(pb::TxnRequest {
                success: vec![pb::RequestOp { request: Some(request) }],
                ..Default::default()
            })
        }
        10 => Request::LeaseGrant(pb::LeaseGrantRequest { id: 1 + random.below(5) as i64, ttl: 60 }),
        _ => Request::Compaction(pb::CompactionRequest { revision: 1 + random.below(40) as i64, ..Default::default() }),
    };
    Command { caller: Caller::Server, request }.encode()
}

/// Lives until the power goes, again and again. Gives the number of lives.
fn live(seed: u64, first_cut: u64) -> u64 {
    let mut random = Random::new(seed);
    let mut machine =
        Machine { wal: SimulatedDirectory::default(), snapshots: SimulatedDirectory::default(), now: Now::default() };
    machine.now.boot_micros = 1_000_000;
    let mut reference = Reference::default();
    let mut cut = first_cut;
    for life in 0..5 {
        let what = format!("seed {seed}, power off after {first_cut} operations, life {life}");
        let directory = if random.below(4) == 0 { &machine.snapshots } else { &machine.wal };
        directory.fail(Fault::Power, cut);
        let mut under_way = Vec::new();
        if let Ok(mut server) = machine.start(random.draw(), &mut reference) {
            for _ in 0..30 {
                let commands = (0..1 + random.below(4)).map(|_| command(&mut random)).collect();
                let now = machine.tick();
                server.log.tick(now);
                server.propose(commands, now);
                if server.turn(now, &mut reference).is_err() {
                    break;
                }
            }
            under_way = std::mem::take(&mut server.under_way).into_values().collect();
        }
        machine.wal.crash(|| random.draw());
        machine.snapshots.crash(|| random.draw());
        let Ok(server) = machine.start(random.draw(), &mut Reference::default()) else {
            panic!("{what}: it does not start again")
        };
        reference.adopt(&server.contents(), &under_way, &what);
        drop(server);
        // Killed as it is: nothing that it has written waits for a sync.
        machine.wal.crash(|| random.draw());
        machine.snapshots.crash(|| random.draw());
        cut = random.below(90);
    }
    5
}

#[test]
fn nothing_acknowledged_is_lost_wherever_the_power_is_cut() {
    let mut lives = 0;
    for first_cut in 0..90 {
        for seed in 0..8 {
            lives += live(seed * 1_000 + first_cut, first_cut);
        }
    }
    assert_eq!(lives, 3_600);
}
