//! How fast the node is, as one table that can be put into the README: the bars of the whole, each with what was measured beside it.
//!
//! usage: cargo bench --profile published -p block-node --bench speed [-- SECTION…]   Sections: idle get publish load fan-out race start
//!
//! The program runs as a process of its own on loopback, its data on the disk that holds the build; clients run here, in one thread, on the
//! same processors. `BLOCK_NODE_BENCH_BLOCKS` says of how many blocks the store of `start` has (one million; ten million take about 4 GB).
//! Everything has a bound: it takes three minutes or so on two processors, and fails rather than waiting on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "a benchmark")]

mod client;
mod clock;
#[path = "../../tests/filled/mod.rs"]
mod filled;
#[path = "../../tests/process/server.rs"]
#[allow(dead_code)]
mod server;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use block_node::craft::{Crafter, Shape};
use block_node::hash::leaf;
use block_node::messages::items;
use bytes::Bytes;

use client::{Latencies, Pace, Published};
use filled::fill;
use server::Server;

/// Sizes of blocks, bytes.
const SIZES: [usize; 4] = [1_000, 13_000, 50_000, 500_000];
/// What is published of each size, in at most so many blocks: enough for some tenths of a second.
const CHAIN_BYTES: usize = 100_000_000;
const BLOCKS_MAX: usize = 20_000;
/// Each figure of `publish` is the median of so many runs on new stores.
const RUNS: usize = 3;
const WINDOW: u64 = 64;
/// For how long blocks are published at half of the rate: the hundredth part of what comes in some tenths of a second is no more than what
/// comes while the node begins its first segment, or trains a dictionary.
const LOAD: Duration = Duration::from_secs(5);
/// Nothing takes so long.
const LIMIT: Duration = Duration::from_secs(120);

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(LIMIT, work).await.expect("it takes too long") })
}

/// Processor time of a process, to the hundredth of a second.
fn cpu(server: &Server) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.id())).unwrap();
    // Behind the name and the state; one of them is negative without a terminal.
    let fields: Vec<i64> =
        stat.rsplit_once(") ").unwrap().1.split(' ').filter_map(|field| field.parse().ok()).collect();
    let [user, system] = [fields[10], fields[11]];
    Duration::from_millis((user + system) as u64 * 1_000 / rustix::param::clock_ticks_per_second())
}

fn status_bytes(server: &Server, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
}

/// Blocks of a chain that verifies.
fn chain(block_bytes: usize, blocks: usize) -> Vec<Bytes> {
    let mut crafter = Crafter::new(1, 0);
    (0..blocks).map(|_| crafter.next(Shape::of_bytes(block_bytes)).bytes.into()).collect()
}

fn blocks_of(block_bytes: usize) -> usize {
    (CHAIN_BYTES / block_bytes).min(BLOCKS_MAX)
}

fn kilobytes(bytes: usize) -> String {
    format!("{} KB", bytes / 1_000)
}

fn megabytes(bytes: usize, took: Duration) -> f64 {
    bytes as f64 / took.as_secs_f64() / 1e6
}

struct Row {
    what: String,
    measured: String,
    bar: String,
    is_met: Option<bool>,
}

#[derive(Default)]
struct Table(Vec<Row>);

type Section = fn(&mut Table);

impl Table {
    fn row(
        &mut self,
        what: impl Into<String>,
        measured: impl Into<String>,
        bar: &str,
        is_met: impl Into<Option<bool>>,
    ) {
        let row = Row { what: what.into(), measured: measured.into(), bar: bar.into(), is_met: is_met.into() };
        eprintln!("{}: {}", row.what, row.measured);
        self.0.push(row);
    }

    fn print(&self) {
        println!("| what | measured | bar | |\n| --- | --- | --- | --- |");
        for Row { what, measured, bar, is_met } in &self.0 {
            let met = match is_met {
                Some(true) => "met",
                Some(false) => "**missed**",
                None => "",
            };
            println!("| {what} | {measured} | {bar} | {met} |");
        }
    }
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let sections: [(&str, Section); 7] = [
        ("idle", idle),
        ("get", get),
        ("publish", publish),
        ("load", load),
        ("fan-out", fan_out),
        ("race", race),
        ("start", start),
    ];
    let unknown: Vec<_> = wanted.iter().filter(|name| sections.iter().all(|(known, _)| known != name)).collect();
    assert!(unknown.is_empty(), "there are no sections {unknown:?}");
    let mut table = Table::default();
    for (name, section) in sections {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            section(&mut table);
        }
    }
    let build = if cfg!(debug_assertions) { "with assertions: no figures for documents" } else { "as published" };
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!(
        "{processors} processors, built {build}; load average at the end {}\n",
        load.split(' ').next().unwrap_or("?")
    );
    table.print();
}

fn idle(table: &mut Table) {
    let folder = harness::folder_on_disk();
    let server = Server::start(folder.path(), &[]);
    run(client::status(&server.address));
    std::thread::sleep(Duration::from_secs(1));
    let before = cpu(&server);
    std::thread::sleep(Duration::from_secs(10));
    let used = cpu(&server) - before;
    let resident = status_bytes(&server, "VmRSS");
    table.row("idle, processor", format!("{:.1} %", used.as_secs_f64() * 10.0), "0.0 %", used.is_zero());
    let is_small = resident <= 10_000_000;
    table.row("idle, resident", format!("{:.1} MB", resident as f64 / 1e6), "≤ 10 MB", is_small);
}

fn get(table: &mut Table) {
    for size in SIZES {
        let blocks = chain(size, blocks_of(size).min(1_000));
        let folder = harness::folder_on_disk();
        for (from, cache) in [("memory", "268435456"), ("disk", "1")] {
            let flags = ["--cache-bytes", cache, "--block-node-earliest-managed-block", "0"];
            let server = Server::start(folder.path(), &flags);
            let stored = run(client::status(&server.address)).next_expected_block;
            if stored == 0 {
                run(client::publish(&server.address, &blocks, WINDOW, Pace::Closed));
            }
            let latencies = run(client::get(&server.address, blocks.len() as u64, 3_000));
            let (p50, p99) = (latencies.at(0.5), latencies.at(0.99));
            let is_judged = size == 13_000;
            let is_met = p50 < Duration::from_micros(300) && p99 < Duration::from_millis(2);
            table.row(
                format!("getBlock, {}, from {from}: p50, p99", kilobytes(size)),
                format!("{:.3}, {:.3} ms", p50.as_secs_f64() * 1e3, p99.as_secs_f64() * 1e3),
                if is_judged { "< 0.3, < 2 ms" } else { "" },
                is_judged.then_some(is_met),
            );
            assert!(server.terminate());
        }
    }
}

/// Processor time of this thread.
fn of_thread() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// SHA-384 of every item and compression of the block, on one processor, and nothing else: processor time, which other programs do not
/// disturb.
fn hash_and_compress(blocks: &[Bytes]) -> Duration {
    let began = of_thread();
    for block in blocks {
        for item in items(block) {
            std::hint::black_box(leaf(item.unwrap()));
        }
        std::hint::black_box(zstd::bulk::compress(block, 1).unwrap());
    }
    of_thread() - began
}

fn median(mut values: Vec<Duration>) -> Duration {
    values.sort_unstable();
    values[values.len() / 2]
}

fn publish(table: &mut Table) {
    for size in SIZES {
        let blocks = chain(size, blocks_of(size));
        let bytes: usize = blocks.iter().map(Bytes::len).sum();
        let (mut took, mut alone, mut used) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..RUNS {
            alone.push(hash_and_compress(&blocks));
            let folder = harness::folder_on_disk();
            let server = Server::start(folder.path(), &[]);
            let before = cpu(&server);
            let began = Instant::now();
            run(client::publish(&server.address, &blocks, WINDOW, Pace::Closed));
            took.push(began.elapsed());
            used.push(cpu(&server) - before);
        }
        let (took, alone, used) = (median(took), median(alone), median(used));
        let share = alone.as_secs_f64() / took.as_secs_f64();
        table.row(
            format!("publish, {}, one publisher, {WINDOW} under way", kilobytes(size)),
            format!(
                "{:.0} blocks/s, {:.1} MB/s, {:.2} of SHA-384 and compression alone ({:.1} MB/s); the node takes {:.2} of their processor time",
                blocks.len() as f64 / took.as_secs_f64(),
                megabytes(bytes, took),
                share,
                megabytes(bytes, alone),
                used.as_secs_f64() / alone.as_secs_f64(),
            ),
            "≥ 0.7",
            share >= 0.7,
        );
    }
}

fn load(table: &mut Table) {
    for size in SIZES {
        let folder = harness::folder_on_disk();
        let blocks = chain(size, blocks_of(size));
        let server = Server::start(&folder.path().join("full"), &[]);
        let began = Instant::now();
        run(client::publish(&server.address, &blocks, WINDOW, Pace::Closed));
        let apart = began.elapsed() * 2 / blocks.len() as u32;
        drop((server, blocks));
        let blocks = chain(size, (LOAD.as_secs_f64() / apart.as_secs_f64()) as usize);
        let server = Server::start(&folder.path().join("half"), &[]);
        let Published { acknowledged, late } =
            run(client::publish(&server.address, &blocks, WINDOW, Pace::Every(apart)));
        let (sync, batches) = run(client::mean_of_metric(&server.address, "block_node_batch_sync_seconds"));
        let stored = run(client::metric(&server.address, "block_node_blocks_stored_compressed_bytes_total"));
        drop(server);
        let alone = syncs_alone(folder.path(), (stored / batches) as usize, LOAD.div_f64(batches));
        let millis = |latency: Duration| latency.as_secs_f64() * 1e3;
        let both =
            |latencies: &Latencies| format!("{:.2}, {:.2}", millis(latencies.at(0.5)), millis(latencies.at(0.99)));
        let bar = sync * 2 + Duration::from_millis(2);
        table.row(
            format!(
                "acknowledgement, {}, at half of that rate ({:.0} blocks/s): p50, p99",
                kilobytes(size),
                1.0 / apart.as_secs_f64()
            ),
            format!(
                "{} ms; sent late by {} ms; {:.0} batches/s, write and sync {:.2} ms on average; a sync alone at that rate {} ms",
                both(&acknowledged),
                both(&late),
                batches / LOAD.as_secs_f64(),
                millis(sync),
                both(&alone),
            ),
            &format!("p99 < 2 syncs + 2 ms = {:.2} ms", millis(bar)),
            acknowledged.at(0.99) < bar,
        );
    }
}

/// How long a write and sync takes of so many bytes behind those before, so far apart: as the node does it, and nothing else.
fn syncs_alone(folder: &Path, bytes: usize, apart: Duration) -> Latencies {
    let file = File::create_new(folder.join("alone")).unwrap();
    let bytes: Vec<u8> = (0..bytes).map(|at| (at * 7 % 251) as u8).collect();
    let began = Instant::now();
    let rounds = 0..(LOAD.as_secs_f64() / apart.as_secs_f64()) as u32;
    let mut latencies = Vec::new();
    for round in rounds {
        std::thread::sleep((began + apart * round).saturating_duration_since(Instant::now()));
        let began = Instant::now();
        file.write_all_at(&bytes, u64::from(round) * bytes.len() as u64).unwrap();
        file.sync_data().unwrap();
        latencies.push(began.elapsed());
    }
    Latencies::of(latencies)
}

fn fan_out(table: &mut Table) {
    let blocks = chain(13_000, 200);
    for subscribers in [1, 32, 256] {
        let folder = harness::folder_on_disk();
        let server = Server::start(folder.path(), &[]);
        let before = cpu(&server);
        let (took, sync) = run(client::fan_out(&server.address, &blocks, subscribers));
        let framed = run(client::metric(&server.address, "block_node_blocks_framed_total"));
        let used = cpu(&server) - before;
        let delivered = blocks.len() * subscribers;
        table.row(
            format!("{subscribers} live subscribers, 13 KB"),
            format!(
                "{:.0} blocks/s published, {:.0} delivered; {:.2} encodings a block; {:.1} µs of processor time a delivery; behind the last acknowledgement {:.1} ms",
                blocks.len() as f64 / took.as_secs_f64(),
                delivered as f64 / took.as_secs_f64(),
                framed / blocks.len() as f64,
                used.as_secs_f64() * 1e6 / delivered as f64,
                sync.as_secs_f64() * 1e3,
            ),
            "one encoding a block",
            framed as usize == blocks.len(),
        );
    }
}

fn race(table: &mut Table) {
    const APART: Duration = Duration::from_millis(5);
    let blocks = chain(13_000, 600);
    let cost = |publishers: usize| {
        let folder = harness::folder_on_disk();
        let server = Server::start(folder.path(), &[]);
        let before = cpu(&server);
        run(client::race(&server.address, &blocks, publishers, APART));
        (cpu(&server) - before).as_secs_f64() * 1e6 / blocks.len() as f64
    };
    let one = median_of(&mut (0..RUNS).map(|_| cost(1)).collect::<Vec<_>>());
    let many = median_of(&mut (0..RUNS).map(|_| cost(16)).collect::<Vec<_>>());
    table.row(
        "16 publishers that race, against one: processor time a block, 13 KB, 200 blocks/s",
        format!("{many:.0} against {one:.0} µs: {:.2}", many / one),
        "< 1.3",
        many / one < 1.3,
    );
}

fn median_of(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn start(table: &mut Table) {
    let blocks = std::env::var("BLOCK_NODE_BENCH_BLOCKS").map_or(1_000_000, |blocks| blocks.parse().unwrap());
    let folder = harness::folder_on_disk();
    fill(folder.path(), blocks);
    let began = Instant::now();
    let server = Server::start(folder.path(), &["--cache-bytes", "1"]);
    let found = run(client::status(&server.address));
    let took = began.elapsed();
    assert_eq!(found.next_expected_block, blocks);
    table.row(
        format!("start with {blocks} blocks, to the first serverStatus"),
        format!("{:.2} s", took.as_secs_f64()),
        "1 s, with 10 M blocks",
        took < Duration::from_secs(1),
    );
    let all: Latencies = run(client::get(&server.address, blocks, 3_000));
    let last: Latencies = run(client::get(&server.address, 1_000, 3_000));
    table.row(
        "getBlock of any of them, against one of the first thousand: p50, p99",
        format!(
            "{:.3}, {:.3} against {:.3}, {:.3} ms",
            all.at(0.5).as_secs_f64() * 1e3,
            all.at(0.99).as_secs_f64() * 1e3,
            last.at(0.5).as_secs_f64() * 1e3,
            last.at(0.99).as_secs_f64() * 1e3,
        ),
        "as fast",
        None,
    );
}
