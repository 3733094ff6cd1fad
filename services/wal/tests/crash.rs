//! Power is cut at every operation, and what was not synced is lost by lot: nothing acknowledged is missing, and nothing is
//! there that was not written.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test: a failure is a failure")]

use bytes::Bytes;
use harness::Random;
use wal::files::{Fault, SimulatedDirectory};
use wal::{CommitError, Kind, Log, Options, Record};

const OPTIONS: Options = Options { segment_bytes: 2048, first_segment_bytes: 1024, sync: true };

/// What a user of the log would have: its view of one group.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    entries: Vec<(u64, Bytes)>,
    hard_state: Bytes,
    compacted: u64,
}

impl Model {
    fn take<P: AsRef<[u8]>>(&mut self, record: &Record<P>) {
        let payload = Bytes::copy_from_slice(record.payload.as_ref());
        match record.kind {
            Kind::Entry => {
                self.entries.retain(|(index, _)| *index < record.index);
                self.entries.push((record.index, payload));
            }
            Kind::HardState => self.hard_state = payload,
            Kind::Compaction => self.compacted = self.compacted.max(record.index),
        }
        let compacted = self.compacted;
        self.entries.retain(|(index, _)| *index > compacted);
    }
}

fn batch(random: &mut Random, model: &Model) -> Vec<Record> {
    let mut next = model.entries.last().map_or(model.compacted, |(index, _)| *index) + 1;
    // Sometimes a conflicting suffix is replaced.
    if random.below(5) == 0 {
        next = next.saturating_sub(random.below(4)).max(model.compacted + 1);
    }
    let record = |kind, index, payload: Bytes| Record { kind, group: 0, term: 1, index, payload };
    let mut records = Vec::new();
    for offset in 0..1 + random.below(6) {
        let length = if random.below(20) == 0 { 3_000 } else { random.below(200) };
        let fill = random.draw() as u8;
        records.push(record(Kind::Entry, next + offset, Bytes::from(vec![fill; length as usize])));
    }
    if random.below(3) == 0 {
        records.push(record(Kind::HardState, 0, Bytes::from(random.draw().to_le_bytes().to_vec())));
    }
    if random.below(4) == 0 {
        let last = next - 1;
        records.push(record(Kind::Compaction, model.compacted.max(last.saturating_sub(5)), Bytes::new()));
    }
    records
}

fn open(directory: &SimulatedDirectory, what: &str) -> (Log<SimulatedDirectory>, Model) {
    let mut found = Model::default();
    let log = Log::open(directory.clone(), OPTIONS, |record| found.take(&record))
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    (log, found)
}

/// Whether `found` is `safe` and then the first so many of the records that were under way.
fn is_prefix(found: &Model, safe: &Model, under_way: &[Record]) -> bool {
    let mut model = safe.clone();
    if *found == model {
        return true;
    }
    under_way.iter().any(|record| {
        model.take(record);
        *found == model
    })
}

/// Runs until the power goes, restarts, again and again. Gives the number of crashes.
fn live(seed: u64, first_cut: u64) -> u32 {
    let mut random = Random::new(seed);
    let directory = SimulatedDirectory::default();
    let mut safe = Model::default();
    let mut crashes = 0;
    let mut cut = first_cut;
    for life in 0..6 {
        let what = format!("seed {seed}, power off after {first_cut} operations, life {life}");
        directory.fail(Fault::Power, cut);
        let mut under_way = Vec::new();
        // Opening writes, too, and may be cut off.
        let mut found = Model::default();
        if let Ok(mut log) = Log::open(directory.clone(), OPTIONS, |record| found.take(&record)) {
            assert_eq!(found, safe, "{what}: opened");
            for _ in 0..30 {
                let records = batch(&mut random, &safe);
                // Sometimes it ends gently, or is about to.
                let sealed = if random.below(8) == 0 { log.seal() } else { Ok(()) };
                match sealed.and_then(|()| log.commit(&records)) {
                    Ok(()) => records.iter().for_each(|record| safe.take(record)),
                    Err(_) => {
                        assert!(log.commit(&records).is_err(), "{what}: a log must not recover by itself");
                        under_way = records;
                        break;
                    }
                }
            }
        }
        directory.crash(|| random.draw());
        crashes += 1;
        let (_, found) = open(&directory, &what);
        assert!(
            is_prefix(&found, &safe, &under_way),
            "{what}:\nfound {found:?}\nsafe  {safe:?}\nunder way {under_way:?}"
        );
        safe = found;
        cut = random.below(80);
    }
    crashes
}

#[test]
fn nothing_acknowledged_is_lost_wherever_the_power_is_cut() {
    let mut crashes = 0;
    for first_cut in 0..120 {
        for seed in 0..25 {
            crashes += live(seed * 1_000 + first_cut, first_cut);
        }
    }
    assert_eq!(crashes, 18_000);
}

#[test]
fn a_failed_sync_poisons_and_its_batch_was_never_acknowledged() {
    for seed in 0..200 {
        for fault in [Fault::DataSync, Fault::Write, Fault::NameSync] {
            let mut random = Random::new(seed);
            let directory = SimulatedDirectory::default();
            let (mut log, mut safe) = open(&directory, "new");
            directory.fail(fault, random.below(20));
            let mut under_way = Vec::new();
            for _ in 0..60 {
                let records = batch(&mut random, &safe);
                match log.commit(&records) {
                    Ok(()) => records.iter().for_each(|record| safe.take(record)),
                    Err(CommitError::Poisoned { .. }) => {
                        under_way = records;
                        break;
                    }
                    Err(error) => panic!("{fault:?}: {error}"),
                }
            }
            assert!(fault == Fault::NameSync || !under_way.is_empty(), "{fault:?} was never met");
            let again = batch(&mut random, &safe);
            assert!(under_way.is_empty() || matches!(log.commit(&again), Err(CommitError::Poisoned { .. })));
            directory.crash(|| random.draw());
            let (_, found) = open(&directory, &format!("seed {seed} {fault:?}"));
            assert!(is_prefix(&found, &safe, &under_way), "seed {seed} {fault:?}: {found:?}\n{safe:?}");
        }
    }
}

#[test]
fn a_full_disk_refuses_a_batch_and_goes_on_when_there_is_room() {
    let directory = SimulatedDirectory::default();
    let (mut log, mut safe) = open(&directory, "new");
    let mut random = Random::new(1);
    directory.fail(Fault::Create, 1);
    let mut refusals = 0;
    for _ in 0..100 {
        let records = batch(&mut random, &safe);
        match log.commit(&records) {
            Ok(()) => records.iter().for_each(|record| safe.take(record)),
            Err(CommitError::NoSegment(error)) => {
                assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
                refusals += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(refusals, 1);
    directory.crash(|| random.draw());
    assert_eq!(open(&directory, "after a full disk").1, safe);
}
