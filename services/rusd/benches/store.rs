//! What the store costs: processor time for each operation, memory for each key, how long a snapshot and its restoration take.
//!
//! usage: cargo bench -p rusd --bench store [-- KEYS [MIB]]   One million keys of 64 bytes with values of 256 by default; takes 2 GiB.
//! With MIB no more than that of values is in memory, the rest in scratch files.
//!
//! Measured so: 406 bytes of memory for each key, 389 MiB in all, the keys written in no order. etcd 3.7.3 on the same machine: 644 MiB
//! after `benchmark put --key-size 64 --val-size 256 --total 1000000 --key-space-size 1000000 --sequential-keys`. That is 0.60, the
//! server around the store not counted.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a benchmark")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use replog::{Entry, EntryKind, StateMachine};
use rusd::proto::etcdserverpb as pb;
use rusd::store::watch::Limits;
use rusd::store::{Caller, Command, Keys, Reader, Request, Spill, Store, spill};

const VALUE_BYTES: usize = 256;
const WATCHERS: u64 = 10_000;

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let keys = numbers.next().unwrap_or(1_000_000);
    println!("{keys} keys of 64 bytes, values of {VALUE_BYTES} bytes");
    let before = rss_bytes();
    let mut loader = Loader { store: Store::default(), index: 0 };
    if let Some(mib) = numbers.next() {
        let limits = spill::Limits { memory_bytes: mib << 20, ..spill::Limits::default() };
        loader.store.spill_to(Spill::new(limits, tempfile::tempfile, |error| panic!("{error}")));
    }
    let reader = loader.store.reader();
    loader.puts("put, new keys, batches of 100", keys, 100, |n| scatter(n, keys));
    let (after, per_key) = (rss_bytes(), (rss_bytes() - before) as f64 / keys as f64);
    println!("{per_key:>8.1} bytes of RSS per key, {} MiB in all", after >> 20);
    loader.puts("put, random keys, batches of 1", 100_000, 1, |n| scatter(n, keys));
    loader.puts("put, random keys, batches of 100", 300_000, 100, |n| scatter(n, keys));
    loader.puts("put, one key, batches of 1", 100_000, 1, |_| 7);
    reads(&reader, keys);
    watchers(&mut loader, &reader);
    compaction(&mut loader);
    snapshot(&loader);
}

struct Loader {
    store: Store,
    index: u64,
}

impl Loader {
    fn puts(&mut self, what: &str, count: u64, batch: usize, key_of: impl Fn(u64) -> u64) {
        let mut spent = Duration::ZERO;
        for first in (0..count).step_by(10_000) {
            let numbers = first..count.min(first + 10_000);
            let entries: Vec<Entry> = numbers.map(|n| self.entry(put(key_of(n)))).collect();
            let began = cpu_time();
            entries.chunks(batch).for_each(|batch| self.apply(batch));
            spent += cpu_time() - began;
        }
        report(what, spent, count);
    }

    fn apply(&mut self, batch: &[Entry]) {
        for entry in batch {
            self.store.apply(entry).outcome.unwrap();
        }
        self.store.applied(self.index);
    }

    fn entry(&mut self, request: Request) -> Entry {
        self.index += 1;
        let data: Bytes = Command { caller: Caller::NOBODY, request }.encode();
        Entry { index: self.index, term: 1, kind: EntryKind::Command, time_millis: 0, data }
    }
}

fn put(n: u64) -> Request {
    let value = vec![n as u8; VALUE_BYTES].into();
    Request::Put(pb::PutRequest { key: key(n).into(), value, ..Default::default() })
}

fn key(n: u64) -> Vec<u8> {
    format!("/registry/configmaps/namespace-{:04}/object-{n:021}", n % 1000).into_bytes()
}

/// Visits all keys in no order, if their number is one with few factors.
fn scatter(n: u64, keys: u64) -> u64 {
    n.wrapping_mul(15_485_863) % keys
}

fn reads(reader: &Reader, keys: u64) {
    let header = pb::ResponseHeader::default();
    let mut out = Vec::new();
    time("get of a random key, encoded", 300_000, |n| {
        let request = pb::RangeRequest { key: key(scatter(n, keys)).into(), ..Default::default() };
        let view = reader.view();
        out.clear();
        view.range(&request).unwrap().encode(&header, &mut out);
        assert!(out.len() > VALUE_BYTES);
    });
    let namespace = |n: u64| format!("/registry/configmaps/namespace-{:04}", n % 1000);
    time("count of a namespace: a 1000th of all keys", 100_000, |n| {
        let (start, end) = (namespace(n) + "/", namespace(n) + "0");
        let view = reader.view();
        let count = view.keyspace.count(Keys::new(start.as_bytes(), end.as_bytes()), view.revision());
        assert_eq!(count as u64, keys / 1000);
    });
    time("range of a namespace, encoded", 300, |n| {
        let (key, range_end) = ((namespace(n) + "/").into(), (namespace(n) + "0").into());
        let request = pb::RangeRequest { key, range_end, ..Default::default() };
        let view = reader.view();
        out.clear();
        view.range(&request).unwrap().encode(&header, &mut out);
        assert!(out.len() as u64 > keys / 1000 * VALUE_BYTES as u64);
    });
}

fn watchers(loader: &mut Loader, reader: &Reader) {
    let before = rss_bytes();
    let mut hub = reader.hub(Limits::default());
    for n in 0..WATCHERS {
        let stream = hub.open();
        hub.create(stream, &pb::WatchCreateRequest { key: key(n).into(), prev_kv: true, ..Default::default() });
        assert!(hub.next(stream).is_some());
    }
    let per_watcher = (rss_bytes() - before) as f64 / WATCHERS as f64;
    println!("{per_watcher:>8.1} bytes of RSS per idle watcher with a stream of its own");
    let (mut told, mut spent) = (0, Duration::ZERO);
    for n in 0..100_000 {
        let entry = loader.entry(put(scatter(n, WATCHERS)));
        loader.apply(&[entry]);
        // A hundred at a time: the clock of processor time costs microseconds itself.
        if n % 100 != 99 {
            continue;
        }
        let began = cpu_time();
        hub.published(reader.view());
        for stream in hub.take_ready() {
            while let Some(response) = hub.next(stream) {
                told += response.events.len() as u64;
            }
        }
        spent += cpu_time() - began;
    }
    report("an event told to one watcher of 10,000, with what was before", spent, told);
}

/// A compaction at the newest revision, and the steps in which its work is done.
fn compaction(loader: &mut Loader) {
    let revision = loader.store.reader().view().revision();
    let entry = loader.entry(Request::Compaction(pb::CompactionRequest { revision, physical: false }));
    let began = Instant::now();
    loader.store.apply(&entry).outcome.unwrap();
    println!("{:>8.2} µs   a compaction of {revision} revisions", began.elapsed().as_secs_f64() * 1e6);
    let mut steps = Vec::new();
    while steps.is_empty() || loader.store.reader().view().keyspace.has_to_sweep() {
        let began = cpu_time();
        loader.store.applied(loader.index);
        steps.push(cpu_time() - began);
    }
    steps.sort();
    let (count, all): (_, Duration) = (steps.len(), steps.iter().sum());
    let percentile = |percent: usize| steps[(count - 1) * percent / 100].as_secs_f64() * 1e3;
    println!(
        "{:>8.2} ms   each of its {count} steps (p50; p99 {:.2}, slowest {:.2}), {:.2} s in all",
        percentile(50),
        percentile(99),
        percentile(100),
        all.as_secs_f64()
    );
}

fn snapshot(loader: &Loader) {
    let began = Instant::now();
    let view = loader.store.snapshot();
    println!("{:>8.2} µs   a snapshot's view", began.elapsed().as_secs_f64() * 1e6);
    let began = cpu_time();
    let mut bytes = Vec::new();
    view(&mut bytes).unwrap();
    println!("{:>8.2} s    a snapshot of {} MiB", (cpu_time() - began).as_secs_f64(), bytes.len() >> 20);
    let mut restored = Store::default();
    let began = cpu_time();
    restored.restore(&mut &bytes[..]).unwrap();
    println!("{:>8.2} s    its restoration", (cpu_time() - began).as_secs_f64());
    let mut again = Vec::new();
    restored.snapshot()(&mut again).unwrap();
    assert!(again == bytes);
}

fn time(what: &str, count: u64, each: impl FnMut(u64)) {
    let began = cpu_time();
    (0..count).for_each(each);
    report(what, cpu_time() - began, count);
}

fn report(what: &str, spent: Duration, count: u64) {
    println!("{:>8.2} µs   {what}", spent.as_secs_f64() * 1e6 / count as f64);
}

/// Of this thread: others on the machine shall not count.
fn cpu_time() -> Duration {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(schedstat.split_whitespace().next().unwrap().parse().unwrap())
}

fn rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
