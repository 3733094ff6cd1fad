//! Bars that take minutes, gigabytes or ten thousand connections; each is run by hand, and prints what it found:
//!
//! ```text
//! cargo test --release -p block-node --test bars -- --ignored --nocapture
//! BLOCK_NODE_BLOCKS=10000000 cargo test --release -p block-node --test bars small_blocks -- --ignored --nocapture
//! ```

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod filled;
#[path = "process/server.rs"]
#[allow(dead_code)]
mod server;

use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use block_node::messages::{GET_BLOCK, STATUS, WireEra, proto};
use block_node::simulate::{ConsumerFlags, Fault, PublisherFlags, TlsFlags, connect, publish, read};
use filled::fill;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use server::Server;

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn resident_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
}

/// Publishes so many blocks and reads all of them back; how long both took.
async fn served(server: &Server, first: u64, blocks: u64) -> Duration {
    let began = Instant::now();
    let flags = PublisherFlags {
        address: server.address.clone(),
        tls: TlsFlags::default(),
        first,
        blocks,
        block_bytes: 13_000,
        window: 16,
        millis_per_block: 0,
        message_bytes: 262_144,
        wire_era: WireEra::Today,
        seed: 1,
        fault: Fault::None,
        fault_block: 0,
        fault_millis: 0,
    };
    let published = publish(&flags).await.unwrap();
    assert_eq!((published.end, published.acknowledged.len() as u64), (None, blocks));
    let flags = ConsumerFlags {
        address: server.address.clone(),
        tls: TlsFlags::default(),
        start: Some(first),
        end: Some(first + blocks - 1),
        wire_era: WireEra::Today,
        slow_millis: 0,
        only_items: Vec::new(),
        without_items: Vec::new(),
    };
    let result = read(&flags, |_| ()).await.unwrap();
    assert_eq!((result.blocks, result.wrong, result.status), (blocks, None, 1));
    began.elapsed()
}

/// Half of them say nothing at all, half of them speak HTTP/2 and never ask for anything.
#[test]
#[ignore = "takes a limit on open files of 12000 (ulimit -n): cargo test --release -p block-node --test bars idle_connections -- --ignored --nocapture"]
fn ten_thousand_idle_connections_cost_little_and_honest_clients_are_served_beside_them() {
    const CONNECTIONS: u64 = 10_000;
    const BLOCKS: u64 = 500;
    // The preface, and settings that set nothing.
    const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    service_kit::open_files::raise();
    let limit = service_kit::open_files::limit().unwrap_or(u64::MAX);
    // Of each process; the server keeps an eighth for health and metrics.
    assert!(limit >= CONNECTIONS + 2_000, "the limit on open files is {limit}: ulimit -n 12000");
    let folder = harness::folder_on_disk();
    let server = Server::start(folder.path(), &[]);
    let alone = run(served(&server, 0, BLOCKS));
    let before = resident_bytes(&server);
    let idle: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|number| {
            let mut socket = TcpStream::connect(&server.address).unwrap();
            socket.write_all(if number % 2 == 0 { HTTP2 } else { b"" }).unwrap();
            socket
        })
        .collect();
    let beside = run(served(&server, BLOCKS, BLOCKS));
    let each = resident_bytes(&server).saturating_sub(before) / CONNECTIONS;
    println!(
        "{CONNECTIONS} idle connections: {each} bytes each; {BLOCKS} blocks published and read in {:.2} s beside them, {:.2} s without",
        beside.as_secs_f64(),
        alone.as_secs_f64()
    );
    assert!(each <= 24 << 10, "an idle connection takes {each} bytes");
    assert!(beside < alone * 3 + Duration::from_secs(1), "{beside:?} beside them, {alone:?} without");
    drop(idle);
    run(served(&server, 2 * BLOCKS, BLOCKS));
}

/// Asks for these blocks one after the other; the latencies, the shortest first.
async fn get(server: &Server, numbers: impl Iterator<Item = u64>) -> Vec<Duration> {
    use proto::block_request::BlockSpecifier::BlockNumber;
    let mut channel = connect(&server.address).await.unwrap();
    let call = channel.call(GET_BLOCK);
    let mut latencies = Vec::new();
    for number in numbers {
        let request = proto::BlockRequest { block_specifier: Some(BlockNumber(number)) };
        let began = Instant::now();
        let response: proto::BlockResponse = channel.unary(&call, &request).await.unwrap();
        latencies.push(began.elapsed());
        assert_eq!(response.status, 1, "block {number}");
    }
    latencies.sort_unstable();
    latencies
}

#[test]
#[ignore = "takes some seconds and 0.25 GB of disk for each million blocks: BLOCK_NODE_BLOCKS=10000000 cargo test --release -p block-node --test bars small_blocks -- --ignored --nocapture"]
fn a_store_of_a_million_small_blocks_starts_within_a_second_and_finds_any_of_them_as_fast() {
    const REQUESTS: u64 = 3_000;
    let blocks: u64 = std::env::var("BLOCK_NODE_BLOCKS").map_or(1_000_000, |blocks| blocks.parse().unwrap());
    assert!(blocks >= 10 * REQUESTS, "BLOCK_NODE_BLOCKS must be at least {}", 10 * REQUESTS);
    let folder = harness::folder_on_disk();
    let began = Instant::now();
    fill(folder.path(), blocks);
    println!("{blocks} blocks were written in {:.0} s", began.elapsed().as_secs_f64());
    let began = Instant::now();
    let server = Server::start(folder.path(), &["--cache-bytes", "1", "--scrub-interval-seconds", "0"]);
    let started = began.elapsed();
    run(async {
        let mut channel = connect(&server.address).await.unwrap();
        let call = channel.call(STATUS);
        let status: proto::ServerStatusResponse = channel.unary(&call, &proto::ServerStatusRequest {}).await.unwrap();
        assert_eq!((status.first_available_block, status.last_available_block), (0, blocks - 1));
        let mut random = SmallRng::seed_from_u64(1);
        // Both kinds of requests once before, so that neither finds colder caches than the other.
        get(&server, (0..REQUESTS / 10).map(|_| random.random_range(0..REQUESTS))).await;
        let of_few = get(&server, (0..REQUESTS).map(|_| random.random_range(0..REQUESTS))).await;
        let of_all = get(&server, (0..REQUESTS).map(|_| random.random_range(0..blocks))).await;
        let at = |latencies: &[Duration], share: f64| latencies[(latencies.len() as f64 * share) as usize];
        let millis = |duration: Duration| duration.as_secs_f64() * 1e3;
        println!(
            "started in {:.2} s; getBlock p50, p99: any of {blocks} {:.3}, {:.3} ms; of the first {REQUESTS} {:.3}, {:.3} ms; {:.1} MB resident",
            started.as_secs_f64(),
            millis(at(&of_all, 0.5)),
            millis(at(&of_all, 0.99)),
            millis(at(&of_few, 0.5)),
            millis(at(&of_few, 0.99)),
            resident_bytes(&server) as f64 / 1e6
        );
        assert!(started < Duration::from_secs(1), "it started in {started:?}");
        let (any, few) = (at(&of_all, 0.5), at(&of_few, 0.5));
        assert!(
            any < few * 2 + Duration::from_micros(100),
            "any of {blocks} blocks takes {any:?}, one of {REQUESTS} {few:?}"
        );
    });
}
