//! Throughput and latency of a replicated log beside the physical limit: the same bytes in batches of what is in flight, by bare
//! `pwrite` and `fdatasync`, in alternation.
//!
//! usage: cargo bench -p replog --bench throughput [-- SECONDS [1|3 [IN_FLIGHT [DELAY_MILLIS]]]]
//! Promises: bounded; all members are in this process and talk over TCP on loopback, so that they share its two cores and one disk;
//! works in a scratch directory under the target directory (or `$WAL_BENCH_DIR`), so that it measures the disk and not a `tmpfs`.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "a benchmark")]

#[path = "../../wal/benches/bare/mod.rs"]
mod bare;

use std::collections::BTreeMap;
use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use bare::{bare, cpu, median};
use bytes::Bytes;
use replog::runtime::identity::Begun;
use replog::runtime::tcp::{Tcp, TcpOptions};
use replog::runtime::{Limits, Member, Origin, Start};
use replog::{Entry, Membership, RestoreError, Role, Settings, SnapshotView, StateMachine};
use wal::files::{CountingDirectory, HeldDirectory, RealDirectory};

const COMMAND_BYTES: usize = 256;
/// In the log: its head, the entry's kind and time, and what rounds it up.
const RECORD_BYTES: usize = (32 + 9 + COMMAND_BYTES).next_multiple_of(8);
/// Of a new log; the next one is larger.
const FIRST_SEGMENT_BYTES: usize = 2 << 20;
const ROUNDS: usize = 3;

/// Counts bytes.
#[derive(Default)]
struct Counter(u64);

impl StateMachine for Counter {
    type Reply = u64;
    fn apply(&mut self, entry: &Entry) -> u64 {
        self.0 += entry.data.len() as u64;
        self.0
    }
    fn snapshot(&self) -> SnapshotView {
        let count = self.0;
        Box::new(move |to| to.write_all(&count.to_le_bytes()))
    }
    fn restore(&mut self, snapshot: &mut dyn Read) -> Result<(), RestoreError> {
        let mut bytes = [0; 8];
        snapshot.read_exact(&mut bytes)?;
        self.0 = u64::from_le_bytes(bytes);
        Ok(())
    }
}

struct Measured {
    per_second: f64,
    cpu_micros: f64,
    syncs_per_thousand: f64,
    p50_micros: f64,
    p99_micros: f64,
}

type Counting = CountingDirectory<HeldDirectory<RealDirectory>>;

/// Members that know one another, and what counts their syncs.
fn start(path: &Path, nodes: u64, delay: Duration) -> (Vec<Member<u64>>, Vec<Counting>) {
    let listeners: Vec<_> = (0..nodes).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let addresses: BTreeMap<u64, String> =
        (1..).zip(&listeners).map(|(id, listener)| (id, listener.local_addr().unwrap().to_string())).collect();
    let (mut members, mut counting) = (Vec::new(), Vec::new());
    for (id, listener) in (1..).zip(listeners) {
        let open = |name: &str| {
            let inner = RealDirectory::open(path.join(format!("{id}-{name}"))).unwrap();
            let hold = move || {
                if !delay.is_zero() {
                    thread::sleep(delay);
                }
            };
            CountingDirectory::new(HeldDirectory::new(inner, hold))
        };
        let wal = open("wal");
        counting.push(wal.clone());
        let start = Start {
            id,
            settings: Settings::default(),
            limits: Limits::default(),
            wal_options: wal::Options::default(),
            machine: Counter::default(),
            wal,
            snapshots: open("snapshots"),
            origin: Origin::Found(Membership::of(1..=nodes)),
            begun: Begun::unwritten(),
            transport: Box::new(Tcp::new(TcpOptions::new(id, 1, vec![listener], addresses.clone()))),
        };
        members.push(Member::start(start).unwrap());
    }
    (members, counting)
}

fn measure(path: &Path, nodes: u64, in_flight: usize, delay: Duration, duration: Duration) -> Measured {
    let (members, counting) = start(path, nodes, delay);
    let leader = loop {
        if let Some(leader) = members.iter().find(|member| member.handle().status().role == Role::Leader) {
            break leader.handle();
        }
        thread::yield_now();
    };
    let (done, applied) = sync_channel(2 * in_flight);
    let command = Bytes::from(vec![7; COMMAND_BYTES]);
    let send = || {
        let (done, began) = (done.clone(), Instant::now());
        leader.propose(command.clone(), move |result| {
            result.expect("the leader keeps leading");
            done.send(began.elapsed()).unwrap();
        });
    };
    (0..in_flight).for_each(|_| send());
    // Until connections are made, and the first large segment, whose zeros take a moment, is there.
    let (warm, mut warmed) = (Instant::now(), 0);
    while warm.elapsed() < Duration::from_millis(500)
        || (warmed * RECORD_BYTES < FIRST_SEGMENT_BYTES && warm.elapsed() < Duration::from_secs(3))
    {
        applied.recv().unwrap();
        warmed += 1;
        send();
    }
    let syncs = |counting: &[Counting]| counting.iter().map(|one| one.counts().data_syncs).sum::<u64>();
    let (began, cpu_before, syncs_before) = (Instant::now(), cpu(), syncs(&counting[..1]));
    let mut latencies = Vec::with_capacity(1 << 20);
    while began.elapsed() < duration {
        latencies.push(applied.recv().unwrap().as_secs_f64() * 1e6);
        send();
    }
    let (elapsed, used) = (began.elapsed(), cpu() - cpu_before);
    let syncs = syncs(&counting[..1]) - syncs_before;
    for _ in 0..in_flight {
        applied.recv().unwrap();
    }
    let count = latencies.len();
    latencies.sort_by(f64::total_cmp);
    members.into_iter().for_each(|member| member.stop().unwrap());
    Measured {
        per_second: count as f64 / elapsed.as_secs_f64(),
        cpu_micros: used.as_secs_f64() * 1e6 / count as f64,
        syncs_per_thousand: syncs as f64 * 1e3 / count as f64,
        p50_micros: latencies[count / 2],
        p99_micros: latencies[count * 99 / 100],
    }
}

fn main() {
    let arguments: Vec<f64> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let only = |at: usize, all: &[u64]| arguments.get(at).map_or_else(|| all.to_vec(), |one| vec![*one as u64]);
    let duration = Duration::from_secs_f64(arguments.first().copied().unwrap_or(2.0));
    let place = std::env::var("WAL_BENCH_DIR").unwrap_or_else(|_| env!("CARGO_TARGET_TMPDIR").into());
    println!("commands of {COMMAND_BYTES} bytes, {ROUNDS} rounds of {} s each, medians", duration.as_secs_f64());
    println!(
        "members  sync +ms  in flight  entries/s     bare/s  ratio   p50 us   p99 us  CPU us  bare CPU us  syncs/1,000"
    );
    for nodes in only(1, &[1, 3]) {
        for delay_millis in only(3, &[0, 2]) {
            for in_flight in only(2, &[1, 100, 1_000]) {
                let (in_flight, delay) = (in_flight as usize, Duration::from_millis(delay_millis));
                let (mut ours, mut bares) = (Vec::new(), Vec::new());
                for _ in 0..ROUNDS {
                    let scratch = tempfile::tempdir_in(&place).unwrap();
                    ours.push(measure(scratch.path(), nodes, in_flight, delay, duration));
                    bares.push(bare(scratch.path(), RECORD_BYTES, in_flight, delay, duration));
                }
                let of = |field: fn(&Measured) -> f64| median(ours.iter().map(field).collect());
                let (per_second, bare) =
                    (of(|one| one.per_second), median(bares.iter().map(|one| one.per_second).collect()));
                println!(
                    "{nodes:>7} {delay_millis:>9} {in_flight:>10} {per_second:>10.0} {bare:>10.0} {:>6.2} {:>8.0} {:>8.0} {:>7.1} {:>12.1} {:>12.1}",
                    per_second / bare,
                    of(|one| one.p50_micros),
                    of(|one| one.p99_micros),
                    of(|one| one.cpu_micros),
                    median(bares.iter().map(|one| one.cpu_micros).collect()),
                    of(|one| one.syncs_per_thousand),
                );
            }
        }
    }
}
