//! Syncs are counted, not timed: alone a record costs one, together they share.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test: a failure is a failure")]

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel, sync_channel};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use wal::files::{CountingDirectory, Directory, Fault, HeldDirectory, RealDirectory, SimulatedDirectory};
use wal::{CommitError, Kind, Log, Options, PAYLOAD_BYTES_MAX, Record, Rejected, Writer, WriterOptions};

fn entry(index: u64, payload: Bytes) -> Record {
    Record { kind: Kind::Entry, group: 0, term: 1, index, payload }
}

fn start<D: Directory>(directory: D, options: WriterOptions) -> Writer<D> {
    Writer::start(Log::open(directory, Options::default(), |_| ()).unwrap(), options).unwrap()
}

fn submit<D: Directory>(writer: &Writer<D>, index: u64) -> Receiver<Result<(), CommitError>> {
    let (done, safe) = channel();
    writer
        .submit(vec![entry(index, Bytes::from_static(&[7; 256]))], Box::new(move |result| done.send(result).unwrap()))
        .unwrap();
    safe
}

#[test]
fn one_at_a_time_costs_exactly_one_sync_each() {
    let scratch = harness::folder();
    let directory = CountingDirectory::new(RealDirectory::open(scratch.path()).unwrap());
    let writer = start(directory.clone(), WriterOptions::default());
    submit(&writer, 1).recv().unwrap().unwrap();
    let (before, timed) = (directory.counts(), writer.sync_times().read().syncs());
    for index in 2..202 {
        submit(&writer, index).recv().unwrap().unwrap();
    }
    let counts = directory.counts();
    assert_eq!(counts.data_syncs - before.data_syncs, 200);
    assert_eq!(writer.sync_times().read().syncs() - timed, 200, "each is told of");
    assert_eq!(counts.writes - before.writes, 200);
    assert_eq!(counts.name_syncs, before.name_syncs);
}

/// A thousand clients, each of which writes again as soon as its last write is safe. A sync takes 2 ms: where it took none,
/// nobody would arrive meanwhile, and there would be nothing to share.
#[test]
fn a_thousand_in_flight_share_syncs() {
    const IN_FLIGHT: u64 = 1_000;
    const WRITES: u64 = 20_000;
    let scratch = harness::folder();
    let slow =
        HeldDirectory::new(RealDirectory::open(scratch.path()).unwrap(), || thread::sleep(Duration::from_millis(2)));
    let directory = CountingDirectory::new(slow);
    let writer = start(directory.clone(), WriterOptions::default());
    let (done, safe) = sync_channel(2 * IN_FLIGHT as usize);
    let send = |index| {
        let done = done.clone();
        let told = Box::new(move |result: Result<(), CommitError>| done.send(result).unwrap());
        writer.submit(vec![entry(index, Bytes::from_static(&[7; 256]))], told).unwrap();
    };
    (1..=IN_FLIGHT).for_each(send);
    for index in IN_FLIGHT + 1..=WRITES {
        safe.recv().unwrap().unwrap();
        send(index);
    }
    for _ in 0..IN_FLIGHT {
        safe.recv().unwrap().unwrap();
    }
    let counts = directory.counts();
    let per_thousand = counts.data_syncs * 1_000 / WRITES;
    assert!(per_thousand <= 5, "{per_thousand} syncs for 1,000 writes: {counts:?}");
    drop((writer, directory));
    let mut last = 0;
    Log::open(RealDirectory::open(scratch.path()).unwrap(), Options::default(), |record| last = record.index).unwrap();
    assert_eq!(last, WRITES);
}

#[test]
fn what_waits_is_bounded_and_refused_beyond() {
    let (open, gate) = channel::<()>();
    let gate = Mutex::new(gate);
    let directory = HeldDirectory::new(SimulatedDirectory::default(), move || {
        let _ = gate.lock().unwrap().recv();
    });
    let options = WriterOptions { queue_bytes_max: 1_000, batch_bytes_max: 1_000 };
    let writer = start(directory, options);
    // After the writer, so that a failure of this test lets it end.
    let open = open;
    let first = submit(&writer, 1);
    // Of 288 bytes each, at most three are being synced, and at most three wait behind them.
    let told = || -> wal::Done { Box::new(|_| ()) };
    let mut taken = 0;
    let refused = loop {
        match writer.submit(vec![entry(2 + taken, Bytes::from_static(&[7; 256]))], told()) {
            Ok(()) => taken += 1,
            Err(rejected) => break rejected,
        }
        assert!(taken < 10, "nothing is refused");
    };
    assert_eq!(refused, Rejected::Busy);
    assert!((2..=5).contains(&taken), "{taken}");
    let large = entry(9, Bytes::from(vec![0; PAYLOAD_BYTES_MAX + 1]));
    assert_eq!(writer.submit(vec![large], told()), Err(Rejected::TooLarge));
    drop(open);
    first.recv().unwrap().unwrap();
}

#[test]
fn what_was_submitted_is_written_before_the_writer_ends() {
    let directory = SimulatedDirectory::default();
    let writer = start(directory.clone(), WriterOptions::default());
    let waiting: Vec<_> = (1..=50).map(|index| submit(&writer, index)).collect();
    drop(writer);
    assert!(waiting.iter().all(|safe| safe.recv().unwrap().is_ok()));
    let mut last = 0;
    Log::open(directory, Options::default(), |record| last = record.index).unwrap();
    assert_eq!(last, 50);
}

/// Who writes on its own thread does so only when nothing else is under way, and others wait for it.
#[test]
fn what_is_written_on_the_callers_thread_does_not_overtake_and_is_not_overtaken() {
    let directory = SimulatedDirectory::default();
    let (is_held, held) = channel();
    let (go_on, gate) = channel::<()>();
    let (is_held, gate) = (Mutex::new(is_held), Mutex::new(gate));
    let slow = HeldDirectory::new(directory.clone(), move || {
        is_held.lock().unwrap().send(()).unwrap();
        let _ = gate.lock().unwrap().recv();
    });
    let writer = start(slow, WriterOptions::default());
    let go_on = go_on;
    let record = |index| [entry(index, Bytes::from_static(&[7; 256]))];
    let first = submit(&writer, 1);
    held.recv().unwrap();
    assert!(writer.commit_here(&record(2)).is_none(), "another batch is being written");
    let second = submit(&writer, 2);
    assert!(writer.commit_here(&record(3)).is_none(), "another batch waits");
    go_on.send(()).unwrap();
    first.recv().unwrap().unwrap();
    held.recv().unwrap();
    go_on.send(()).unwrap();
    second.recv().unwrap().unwrap();
    thread::scope(|scope| {
        // The writer's thread may not be through with the second yet.
        let here = scope.spawn(|| {
            loop {
                if let Some(result) = writer.commit_here(&record(3)) {
                    return result;
                }
                thread::yield_now();
            }
        });
        held.recv().unwrap();
        let fourth = submit(&writer, 4);
        assert!(writer.commit_here(&record(5)).is_none(), "another thread writes");
        assert!(fourth.try_recv().is_err());
        go_on.send(()).unwrap();
        here.join().unwrap().unwrap();
        held.recv().unwrap();
        go_on.send(()).unwrap();
        fourth.recv().unwrap().unwrap();
    });
    assert_eq!(writer.sync_times().read().syncs(), 4, "each is told of, whoever wrote it");
    // The seal is held up as well, until nobody holds the gate.
    drop((go_on, writer));
    let mut found = Vec::new();
    Log::open(directory, Options::default(), |record| found.push(record.index)).unwrap();
    assert_eq!(found, [1, 2, 3, 4]);
}

#[test]
fn a_sync_that_fails_on_the_callers_thread_ends_the_writer_as_well() {
    let directory = SimulatedDirectory::default();
    let writer = start(directory.clone(), WriterOptions::default());
    directory.fail(Fault::DataSync, 0);
    let here = || writer.commit_here(&[entry(1, Bytes::from_static(b"here"))]);
    assert!(here().unwrap().is_err());
    assert!(submit(&writer, 1).recv().unwrap().is_err());
    assert!(here().is_none_or(|result| result.is_err()), "the thread may not be through yet, but nothing is written");
}

/// A writer whose next sync of data panics, and every one after it.
fn start_to_panic() -> Writer<HeldDirectory<SimulatedDirectory>> {
    let directory = HeldDirectory::new(SimulatedDirectory::default(), || panic!("on purpose"));
    start(directory, WriterOptions::default())
}

/// Nobody else was ever to write again, and the writer's end waited for that.
#[test]
fn a_panic_on_the_callers_thread_ends_the_writer_and_holds_up_nobody() {
    let (tell, told) = channel();
    thread::spawn(move || {
        let writer = start_to_panic();
        let here = || writer.commit_here(&[entry(1, Bytes::from_static(b"here"))]);
        let first = here().unwrap().unwrap_err().to_string();
        let later = submit(&writer, 2).recv().unwrap().unwrap_err().to_string();
        assert!(here().is_none_or(|result| result.is_err()), "nothing is written any more");
        drop(writer);
        tell.send([first, later]).unwrap();
    });
    let errors = told.recv_timeout(Duration::from_secs(30)).expect("somebody waits for ever");
    for error in errors {
        assert!(error.contains("out of service") && error.contains("on purpose"), "{error}");
    }
}

/// The thread was gone, and nobody was told.
#[test]
fn a_panic_on_the_writers_thread_is_told_to_everybody() {
    let (tell, told) = channel();
    thread::spawn(move || {
        let writer = start_to_panic();
        let waiting: Vec<_> = (1..4).map(|index| submit(&writer, index)).collect();
        let errors: Vec<_> = waiting.iter().map(|safe| safe.recv().unwrap().unwrap_err().to_string()).collect();
        drop(writer);
        tell.send(errors).unwrap();
    });
    for error in told.recv_timeout(Duration::from_secs(30)).expect("somebody waits for ever") {
        assert!(error.contains("out of service") && error.contains("on purpose"), "{error}");
    }
}

#[test]
fn everybody_is_told_when_a_sync_fails_and_from_then_on() {
    let directory = SimulatedDirectory::default();
    let writer = start(directory.clone(), WriterOptions::default());
    submit(&writer, 1).recv().unwrap().unwrap();
    directory.fail(Fault::DataSync, 0);
    for index in 2..5 {
        let error = submit(&writer, index).recv().unwrap().unwrap_err();
        assert!(error.to_string().contains("out of service since a sync failed"), "{error}");
    }
}

/// Else a log that was full for a moment would have a hole, and be refused when it is opened.
#[test]
fn nothing_is_written_behind_a_batch_for_which_there_was_no_room() {
    let directory = SimulatedDirectory::default();
    directory.fail(Fault::Create, 0);
    let writer = start(directory.clone(), WriterOptions::default());
    let first = submit(&writer, 1).recv().unwrap();
    assert!(matches!(first, Err(CommitError::NoSegment(_))), "{first:?}");
    assert!(submit(&writer, 2).recv().unwrap().is_err());
    drop(writer);
    let mut found = 0;
    Log::open(directory, Options::default(), |_| found += 1).unwrap();
    assert_eq!(found, 0);
}

#[test]
fn two_processes_do_not_write_one_log() {
    let scratch = harness::folder();
    let _first = RealDirectory::open(scratch.path()).unwrap();
    let error = RealDirectory::open(scratch.path()).unwrap_err();
    assert!(error.to_string().contains("another process uses this directory"), "{error}");
}

/// Segments follow one another while a thread makes files ahead: nothing is mixed up.
#[test]
fn files_made_ahead_become_segments() {
    let scratch = harness::folder();
    let options = Options { segment_bytes: 64 << 10, first_segment_bytes: 8 << 10, sync: true };
    let log = Log::open(RealDirectory::open(scratch.path()).unwrap(), options, |_| ()).unwrap();
    let writer = Writer::start(log, WriterOptions { batch_bytes_max: 16 << 10, ..WriterOptions::default() }).unwrap();
    let payload = |index: u64| Bytes::from(index.to_le_bytes().repeat(64));
    let mut waiting = Vec::new();
    for index in 1..=3_000 {
        let (done, safe) = channel();
        writer.submit(vec![entry(index, payload(index))], Box::new(move |result| done.send(result).unwrap())).unwrap();
        waiting.push(safe);
    }
    assert!(waiting.iter().all(|safe| safe.recv().unwrap().is_ok()));
    drop(writer);
    let mut next = 1;
    let log = Log::open(RealDirectory::open(scratch.path()).unwrap(), options, |record| {
        assert_eq!((record.index, record.payload), (next, &payload(next)[..]));
        next += 1;
    })
    .unwrap();
    assert_eq!(next, 3_001);
    assert!(log.bytes() > 1_500_000, "{}", log.bytes());
}
