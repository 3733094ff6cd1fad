//! Throughput of the log beside the physical limit: the same bytes by bare `pwrite` and `fdatasync`, in alternation.
//!
//! usage: cargo bench -p wal [-- SECONDS]   Promises: bounded; works in a scratch directory under the target directory (or
//! `$WAL_BENCH_DIR`), so that it measures the disk and not a `tmpfs`.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark")]

mod bare;

use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use bare::{Rate, bare, cpu, median};
use bytes::Bytes;
use wal::files::{CountingDirectory, RealDirectory};
use wal::{Kind, Log, Options, Record, Writer, WriterOptions};

const PAYLOAD_BYTES: usize = 256;
const ROUNDS: usize = 5;

/// The rate, and syncs for a thousand records.
fn log(path: &Path, in_flight: usize, duration: Duration) -> (Rate, f64) {
    let directory = CountingDirectory::new(RealDirectory::open(path).unwrap());
    let writer =
        Writer::start(Log::open(directory.clone(), Options::default(), |_| ()).unwrap(), WriterOptions::default())
            .unwrap();
    let (done, safe) = sync_channel(2 * in_flight);
    let payload = Bytes::from(vec![7; PAYLOAD_BYTES]);
    let mut index = 0;
    let mut send = || {
        index += 1;
        let done = done.clone();
        let record = Record { kind: Kind::Entry, group: 0, term: 1, index, payload: payload.clone() };
        writer.submit(vec![record], Box::new(move |result| done.send(result).unwrap())).unwrap();
    };
    (0..in_flight).for_each(|_| send());
    let (began, cpu_before) = (Instant::now(), cpu());
    let mut count = 0;
    while began.elapsed() < duration {
        safe.recv().unwrap().unwrap();
        count += 1;
        send();
    }
    let (elapsed, used) = (began.elapsed(), cpu() - cpu_before);
    for _ in 0..in_flight {
        safe.recv().unwrap().unwrap();
    }
    let rate =
        Rate { per_second: count as f64 / elapsed.as_secs_f64(), cpu_micros: used.as_secs_f64() * 1e6 / count as f64 };
    (rate, directory.counts().data_syncs as f64 * 1e3 / (count + in_flight) as f64)
}

fn main() {
    let seconds = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(2.0);
    let duration = Duration::from_secs_f64(seconds);
    let place = std::env::var("WAL_BENCH_DIR").unwrap_or_else(|_| env!("CARGO_TARGET_TMPDIR").into());
    println!("entries of {PAYLOAD_BYTES} bytes, {ROUNDS} rounds of {seconds} s each, medians");
    println!("in flight        log/s      bare/s   ratio  log CPU us  bare CPU us  syncs/1,000");
    for in_flight in [1, 16, 100, 1_000] {
        let (mut logs, mut syncs, mut bares) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let scratch = tempfile::tempdir_in(&place).unwrap();
            let (rate, syncs_per_thousand) = log(scratch.path(), in_flight, duration);
            logs.push(rate);
            syncs.push(syncs_per_thousand);
            bares.push(bare(scratch.path(), PAYLOAD_BYTES + 32, in_flight, Duration::ZERO, duration));
        }
        let of = |all: &[Rate], field: fn(&Rate) -> f64| median(all.iter().map(field).collect());
        let (log, bare) = (of(&logs, |one| one.per_second), of(&bares, |one| one.per_second));
        println!(
            "{in_flight:>9} {log:>12.0} {bare:>11.0} {:>7.2} {:>11.1} {:>12.1} {:>12.1}",
            log / bare,
            of(&logs, |one| one.cpu_micros),
            of(&bares, |one| one.cpu_micros),
            median(syncs),
        );
    }
}
