use std::io::{self, Read};
use std::sync::Mutex;

use bytes::Bytes;
use wal::files::{Directory as _, Fault, File as _, SimulatedDirectory};

use super::*;
use crate::bugs::Planted;
use crate::clock::Now;
use crate::consensus::{self, Wire, WireKind};
use crate::entry::Entry;
use crate::machine::{RestoreError, SnapshotView, StateMachine};
use crate::message::{Body, Message, Stamp};
use crate::recovery::Recovery;
use crate::replica::ReplicatedLog;
use crate::settings::Settings;

fn snapshot(size: usize) -> (SnapshotMeta, Bytes) {
    let bytes: Bytes = (0..size).map(|at| (at * 7 % 251) as u8).collect::<Vec<u8>>().into();
    let meta = SnapshotMeta {
        index: 9,
        term: 2,
        time_millis: 5,
        membership: Membership::of([1, 2, 3]),
        bytes: size as u64,
        chunk_bytes: 100,
        checksum: crc32c::crc32c(&bytes),
    };
    (meta, bytes)
}

/// A chunk as another member is sent it, with its checksum.
fn chunk_of(store: &Store<SimulatedDirectory>, meta: &SnapshotMeta, chunk: u32) -> io::Result<(u32, Bytes)> {
    let mut read = store.read_chunks(2, meta.clone(), vec![chunk]).run();
    match (read.chunks.pop(), read.failed) {
        (Some((_, checksum, data)), None) => Ok((checksum, data)),
        (_, failed) => Err(failed.expect("it is read, or not")),
    }
}

fn open(directory: &SimulatedDirectory) -> Store<SimulatedDirectory> {
    Store::open(directory.clone(), Planted::default())
}

fn load(directory: &SimulatedDirectory, meta: &SnapshotMeta) -> Vec<u8> {
    let mut bytes = Vec::new();
    open(directory).load(meta).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

fn begin(store: &mut Store<SimulatedDirectory>, meta: &SnapshotMeta) {
    let done = store.begin(meta).unwrap().run();
    assert_eq!(store.job_done(done).unwrap(), None);
}

/// Whether it is whole.
fn finish(store: &mut Store<SimulatedDirectory>, id: &SnapshotId) -> io::Result<bool> {
    let done = store.finish(id).unwrap().run();
    store.job_done(done).map(|whole| whole.is_some_and(|meta| meta.id() == *id))
}

fn write(directory: &SimulatedDirectory, meta: &SnapshotMeta, bytes: &[u8]) -> io::Result<()> {
    store::make(directory, meta.clone(), |out| out.write_all(bytes)).map(drop)
}

/// A store that has the snapshot, and one that wants it.
fn pair(size: usize) -> (Store<SimulatedDirectory>, SimulatedDirectory, SnapshotMeta, Bytes) {
    let (meta, bytes) = snapshot(size);
    let directory = SimulatedDirectory::default();
    write(&directory, &meta, &bytes).unwrap();
    let from = open(&directory);
    (from, SimulatedDirectory::default(), meta, bytes)
}

#[test]
fn what_was_written_is_loaded() {
    for size in [0, 1, 99, 100, 101, 1000] {
        let (meta, bytes) = snapshot(size);
        let directory = SimulatedDirectory::default();
        write(&directory, &meta, &bytes).unwrap();
        directory.crash(|| 0);
        assert_eq!(load(&directory, &meta), bytes);
    }
}

/// However the state is written, it is one snapshot.
#[test]
fn what_is_made_piece_by_piece_is_what_is_made_at_once() {
    for (size, piece) in [(0, 1), (1, 1), (99, 7), (100, 100), (101, 50), (1000, 333), (1000, 1000), (1234, 1)] {
        let (meta, bytes) = snapshot(size);
        let directory = SimulatedDirectory::default();
        let unknown = SnapshotMeta { bytes: 0, checksum: 0, ..meta.clone() };
        let made =
            store::make(&directory, unknown, |out| bytes.chunks(piece).try_for_each(|piece| out.write_all(piece)));
        assert_eq!(made.unwrap(), meta);
        directory.crash(|| 0);
        assert_eq!(load(&directory, &meta), bytes);
    }
}

/// A state that is larger than memory, as far as it can say: its snapshot looks for what it has written so far.
struct Large(SimulatedDirectory);

impl StateMachine for Large {
    type Reply = ();

    fn apply(&mut self, _: &Entry) {}

    fn snapshot(&self) -> SnapshotView {
        let directory = self.0.clone();
        Box::new(move |out| {
            for _ in 0..64 {
                out.write_all(&[7; 64 << 10])?;
            }
            let written = directory.open(store::NEW)?.read_first(usize::MAX)?.len();
            assert!(written > 2 << 20, "of 4 MiB {written} bytes are on disk: the others are in memory");
            Ok(())
        })
    }

    fn restore(&mut self, _: &mut dyn Read) -> Result<(), RestoreError> {
        Ok(())
    }
}

/// A group that began with a backup held all of it in memory.
#[test]
fn a_snapshot_that_a_member_begins_with_goes_to_disk_while_it_is_written() {
    let directory = SimulatedDirectory::default();
    let (machine, settings) = (Large(directory.clone()), Settings::default());
    let founded = ReplicatedLog::found_after(&settings, &machine, Membership::of([1]), directory.clone(), 5);
    let (recovered, _) = founded.unwrap();
    let meta = recovered.snapshot().unwrap();
    assert_eq!((meta.index, load(&directory, meta)), (6, vec![7; 4 << 20]));
}

#[test]
fn a_damaged_chunk_is_an_error_before_any_of_it_is_read() {
    let (meta, bytes) = snapshot(1000);
    let directory = SimulatedDirectory::default();
    write(&directory, &meta, &bytes).unwrap();
    let name = directory.names().unwrap().remove(0);
    directory.damage(&name, |content| *content.last_mut().unwrap() ^= 1).unwrap();
    let mut reader = open(&directory).load(&meta).unwrap();
    let mut read = Vec::new();
    let error = reader.read_to_end(&mut read).unwrap_err();
    assert_eq!((error.kind(), read.len()), (io::ErrorKind::InvalidData, 900), "{error}");
    directory.damage(&name, |content| content.truncate(500)).unwrap();
    assert_eq!(
        open(&directory).load(&meta).unwrap().read_to_end(&mut read).unwrap_err().kind(),
        io::ErrorKind::InvalidData
    );
}

/// They said that something is damaged, or that there is no such file, and neither which file nor what to do.
#[test]
fn what_is_wrong_with_a_snapshot_is_told_with_its_file_and_a_remedy() {
    let (meta, bytes) = snapshot(1000);
    let directory = SimulatedDirectory::default();
    write(&directory, &meta, &bytes).unwrap();
    let name = directory.names().unwrap().remove(0);
    let is_told = |kind: io::ErrorKind, what: &str| {
        let mut read = Vec::new();
        let loaded = open(&directory).load(&meta).and_then(|mut reader| reader.read_to_end(&mut read));
        for error in [loaded.unwrap_err(), chunk_of(&open(&directory), &meta, 9).unwrap_err()] {
            let told = error.to_string();
            assert_eq!(error.kind(), kind, "{told}");
            assert!(told.starts_with(&name) && told.contains(what), "{told}");
            assert!(told.ends_with("restore the member's directory, or replace the member by a new one"), "{told}");
        }
    };
    directory.damage(&name, |content| *content.last_mut().unwrap() ^= 1).unwrap();
    is_told(io::ErrorKind::InvalidData, "chunk 9");
    directory.damage(&name, |content| content[30] ^= 1).unwrap();
    is_told(io::ErrorKind::InvalidData, "its description");
    directory.remove(&name).unwrap();
    is_told(io::ErrorKind::NotFound, "");
}

#[test]
fn a_disk_that_fails_under_a_snapshot_is_told_with_the_file() {
    let (from, directory, meta, _) = pair(300);
    let name = from.directory().names().unwrap().remove(0);
    from.directory().unreadable(&name, 0..10_000, 5).unwrap();
    let error = chunk_of(&from, &meta, 0).unwrap_err().to_string();
    assert!(error.starts_with(&name) && error.contains("correct the cause"), "{error}");
    let mut to = open(&directory);
    begin(&mut to, &meta);
    from.directory().readable();
    let (checksum, data) = chunk_of(&from, &meta, 0).unwrap();
    directory.fail(Fault::Write, 0);
    let error = to.keep(&meta.id(), 0, checksum, &data).unwrap_err().to_string();
    assert!(error.starts_with("incoming: ") && error.contains("correct the cause"), "{error}");
}

#[test]
fn a_transfer_goes_on_with_what_is_missing() {
    let (from, directory, meta, bytes) = pair(1000);
    let id = meta.id();
    let mut to = open(&directory);
    begin(&mut to, &meta);
    assert_eq!(to.missing(&id, 100).len(), 10);
    for chunk in [0, 3, 9] {
        let (checksum, data) = chunk_of(&from, &meta, chunk).unwrap();
        assert!(to.keep(&id, chunk, checksum, &data).unwrap());
        assert!(!to.keep(&id, chunk, checksum, &data).unwrap(), "a second time it is of no use");
    }
    // The process is killed; the next one goes on, and what it found is as safe as what it gets.
    let mut to = open(&directory);
    begin(&mut to, &meta);
    assert_eq!(to.missing(&id, 100), [1, 2, 4, 5, 6, 7, 8]);
    for chunk in to.missing(&id, 100) {
        let (checksum, data) = chunk_of(&from, &meta, chunk).unwrap();
        assert!(!to.has(&id).unwrap());
        to.keep(&id, chunk, checksum, &data).unwrap();
    }
    assert!(finish(&mut to, &id).unwrap() && to.has(&id).unwrap());
    directory.crash(|| 0);
    assert_eq!(load(&directory, &meta), bytes);
}

/// A sync that failed leaves pages that look written: who goes on must not believe them.
#[test]
fn what_a_failed_sync_left_is_written_again() {
    let (from, directory, meta, bytes) = pair(300);
    let id = meta.id();
    let mut to = open(&directory);
    begin(&mut to, &meta);
    for chunk in 0..3 {
        let (checksum, data) = chunk_of(&from, &meta, chunk).unwrap();
        to.keep(&id, chunk, checksum, &data).unwrap();
    }
    directory.fail(Fault::DataSync, 0);
    finish(&mut to, &id).unwrap_err();
    let mut to = open(&directory);
    begin(&mut to, &meta);
    assert!(to.missing(&id, 100).is_empty());
    assert!(finish(&mut to, &id).unwrap());
    directory.crash(|| 0);
    assert_eq!(load(&directory, &meta), bytes);
}

/// The member ended, and again at each start: whoever leads offers it again.
#[test]
fn a_snapshot_for_which_a_member_has_no_room_is_taken_at_a_later_offer() {
    let (meta, _) = snapshot(300);
    let (directory, settings) = (SimulatedDirectory::default(), Settings::default());
    let now = Now { boot_micros: 1_000_000, unix_millis: 1 };
    let nothing = Recovery::new(settings.group).finish().unwrap();
    let machine = Large(directory.clone());
    let mut log = ReplicatedLog::new(1, settings, machine, nothing, directory.clone(), 7, now).unwrap();
    let said = |kind| {
        let mut wire = Wire { from: 2, to: 1, term: 6, ..Wire::default() };
        wire.set_msg_type(kind);
        if kind == WireKind::MsgSnapshot {
            wire.set_snapshot(consensus::offer(&meta));
        }
        Message { from: 2, to: 1, body: Body::Consensus(Box::new(wire), Stamp::default()) }
    };
    log.receive(said(WireKind::MsgHeartbeat), now).unwrap();
    directory.fail(Fault::Create, 0);
    let is_fetch = |message: &Message| matches!(message.body, Body::Snapshot(SnapshotMessage::Fetch { .. }));
    let mut fetches = Vec::new();
    for _ in 0..2 {
        log.receive(said(WireKind::MsgSnapshot), now).unwrap();
        let done = log.take(now).unwrap().files_job.unwrap().run();
        log.files_job_done(done, now).unwrap();
        fetches.push(log.take(now).unwrap().messages.iter().any(is_fetch));
    }
    assert_eq!(fetches, [false, true]);
}

#[test]
fn a_chunk_that_is_not_as_it_should_be_is_not_kept() {
    let (from, directory, meta, _) = pair(300);
    let id = meta.id();
    let mut to = open(&directory);
    begin(&mut to, &meta);
    let (checksum, data) = chunk_of(&from, &meta, 1).unwrap();
    assert!(!to.keep(&id, 0, checksum, &data).unwrap(), "it is another one");
    assert!(!to.keep(&id, 1, checksum, &data[1..]).unwrap(), "it is short");
    assert!(!to.keep(&id, 1, !checksum, &data).unwrap(), "its checksum is wrong");
    assert!(!to.keep(&SnapshotId { index: 8, ..id }, 1, checksum, &data).unwrap(), "it is another snapshot's");
    assert_eq!(to.missing(&id, 100), [0, 1, 2]);
}

#[test]
fn a_snapshot_that_is_not_what_was_offered_is_thrown_away() {
    let (from, directory, meta, _) = pair(300);
    let lie = SnapshotMeta { checksum: !meta.checksum, ..meta.clone() };
    let mut to = open(&directory);
    begin(&mut to, &lie);
    for chunk in 0..3 {
        let (_, data) = chunk_of(&from, &meta, chunk).unwrap();
        // As a peer would that believes in its description.
        let checksum = super::chunks::chunk_checksum(&lie.id(), chunk, &data);
        assert!(to.keep(&lie.id(), chunk, checksum, &data).unwrap());
    }
    // It began anew without a word, for ever where the leader's file is what is wrong.
    let folder = harness::folder();
    let said = folder.path().join("log");
    let log = Mutex::new(std::fs::File::create(&said).unwrap());
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(log).finish();
    assert!(!tracing::subscriber::with_default(log, || finish(&mut to, &lie.id())).unwrap());
    let said = std::fs::read_to_string(said).unwrap();
    assert!(said.contains("WARN") && said.contains(&store::name(&lie.id())) && said.contains("thrown away"), "{said}");
    assert!(!to.has(&lie.id()).unwrap());
    assert!(directory.names().unwrap().is_empty());
}

#[test]
fn older_snapshots_go_when_a_newer_one_is_relied_on() {
    let directory = SimulatedDirectory::default();
    let mut store = open(&directory);
    let (old, bytes) = snapshot(10);
    let new = SnapshotMeta { index: 12, ..old.clone() };
    write(store.directory(), &old, &bytes).unwrap();
    write(store.directory(), &new, &bytes).unwrap();
    store.prune(&old.id()).unwrap();
    assert!(store.has(&new.id()).unwrap() && store.has(&old.id()).unwrap());
    store.prune(&new.id()).unwrap();
    assert!(store.has(&new.id()).unwrap() && !store.has(&old.id()).unwrap());
}
