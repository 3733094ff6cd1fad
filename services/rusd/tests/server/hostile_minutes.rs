//! Everything that a client may try, at once and for minutes: transactions that read everything, answers that nobody takes, requests that
//! never end, snapshots and watches that nobody reads, connections that say nothing or begin with TLS and say no more. The server's memory
//! stays bounded, honest clients are served meanwhile, and nothing that was acknowledged is lost.
//!
//! `RUSD_HOSTILE_SECONDS` says for how long, a minute by default. Of users and their tokens it tries nothing.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use http::Request;
use rusd::proto::etcdserverpb as pb;
use service_kit::grpc;
use tokio::net::TcpStream;
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

use crate::hostile::{MEBIBYTE, call, connect, put, send, told};
use crate::process::Rusd;

/// What the server may take besides the data: nothing that honest clients write is compacted, so that in ten minutes that is much.
const RESIDENT_BYTES_MAX: u64 = 512 * MEBIBYTE as u64;
/// Honest clients, each on a connection of its own.
const HONEST: u64 = 4;
/// Keys of each of them.
const KEYS: u64 = 100;
/// Without malice, to know what honest clients get.
const QUIET: Duration = Duration::from_secs(5);
/// Between two attempts of one attacker: it is the server that is to be busy, not the machine with attacking.
const PAUSE: Duration = Duration::from_millis(20);

/// For how long.
fn hostile_time() -> Duration {
    let seconds = std::env::var("RUSD_HOSTILE_SECONDS").ok().map_or(60, |seconds| seconds.parse().unwrap());
    Duration::from_secs(seconds)
}

/// What goes on until it is told to stop.
struct Until {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Until {
    fn new() -> Self {
        Self { stop: Arc::default(), threads: Vec::new() }
    }

    /// A thread with a runtime of its own, which tries something again and again. A failure is no concern: the server may refuse it.
    fn again<F: Future<Output = Option<()>> + 'static>(&mut self, address: &str, attempt: fn(String) -> F) {
        let (stop, address) = (Arc::clone(&self.stop), address.to_owned());
        self.threads.push(std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            while !stop.load(Ordering::Relaxed) {
                // A new set of tasks each time, so that what is left of the connections goes.
                LocalSet::new().block_on(&runtime, async {
                    let _ = timeout(Duration::from_secs(20), attempt(address.clone())).await;
                    sleep(PAUSE).await;
                });
            }
        }));
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

async fn dial(address: &str, window: Option<u32>) -> Option<SendRequest<Bytes>> {
    let socket = TcpStream::connect(address).await.ok()?;
    let mut builder = Builder::new();
    builder.initial_max_send_streams(100_000);
    if let Some(window) = window {
        builder.initial_window_size(window);
    }
    let (send, connection) = builder.handshake(socket).await.ok()?;
    tokio::task::spawn_local(connection);
    Some(send)
}

async fn post(
    connection: &SendRequest<Bytes>,
    path: &str,
    kind: &str,
) -> Option<(h2::client::ResponseFuture, h2::SendStream<Bytes>)> {
    let request = Request::post(format!("http://server{path}")).header("te", "trailers").header("content-type", kind);
    connection.clone().ready().await.ok()?.send_request(request.body(()).unwrap(), false).ok()
}

fn everything() -> pb::RangeRequest {
    pb::RangeRequest { key: Bytes::from_static(&[0]), range_end: Bytes::from_static(&[0]), ..Default::default() }
}

/// A put and 127 reads of everything.
async fn greedy_transaction(address: String) -> Option<()> {
    let connection = dial(&address, None).await?;
    let operation = |request| pb::RequestOp { request: Some(request) };
    let written = pb::PutRequest { key: "hostile".into(), value: vec![7; 1 << 10].into(), ..Default::default() };
    let mut success = vec![operation(pb::request_op::Request::RequestPut(written))];
    success.resize_with(128, || operation(pb::request_op::Request::RequestRange(everything())));
    let request = pb::TxnRequest { success, ..Default::default() };
    let (answer, mut stream) = post(&connection, "/etcdserverpb.KV/Txn", "application/grpc").await?;
    stream.send_data(grpc::encode(&request), true).ok()?;
    let (head, mut body) = answer.await.ok()?.into_parts();
    while let Some(Ok(chunk)) = body.data().await {
        let _ = body.flow_control().release_capacity(chunk.len());
    }
    drop(head);
    Some(())
}

/// Thousands of answers through a window that is shut, held for a while.
async fn untaken_answers(address: String) -> Option<()> {
    let connection = dial(&address, Some(0)).await?;
    let mut held = Vec::new();
    for _ in 0..5_000 {
        let (answer, mut stream) = post(&connection, "/etcdserverpb.KV/Range", "application/grpc").await?;
        stream.send_data(grpc::encode(&everything()), true).ok()?;
        held.push(answer);
    }
    sleep(Duration::from_secs(5)).await;
    Some(())
}

/// Requests of two mebibytes, as JSON, that do not end.
async fn halves(address: String) -> Option<()> {
    let connection = dial(&address, None).await?;
    let half = Bytes::from(format!("{{\"key\":\"{}", "a".repeat(2 * MEBIBYTE)));
    let mut held = Vec::new();
    for _ in 0..50 {
        let (answer, mut stream) = post(&connection, "/v3/kv/put", "application/json").await?;
        let _ = timeout(Duration::from_secs(1), send(&mut stream, half.clone())).await;
        held.push((answer, stream));
    }
    sleep(Duration::from_secs(5)).await;
    Some(())
}

/// Snapshots and watches that nobody reads.
async fn deaf_streams(address: String) -> Option<()> {
    let connection = dial(&address, None).await?;
    let mut held = Vec::new();
    for _ in 0..16 {
        let (answer, mut stream) = post(&connection, "/etcdserverpb.Maintenance/Snapshot", "application/grpc").await?;
        stream.send_data(grpc::encode(&pb::SnapshotRequest::default()), true).ok()?;
        held.push((answer, stream));
        let create = pb::WatchCreateRequest {
            key: Bytes::from_static(&[0]),
            range_end: Bytes::from_static(&[0]),
            ..Default::default()
        };
        let create = pb::watch_request::RequestUnion::CreateRequest(create);
        let (answer, mut stream) = post(&connection, "/etcdserverpb.Watch/Watch", "application/grpc").await?;
        stream.send_data(grpc::encode(&pb::WatchRequest { request_union: Some(create) }), false).ok()?;
        held.push((answer, stream));
    }
    sleep(Duration::from_secs(10)).await;
    Some(())
}

/// Honest clients: each writes its keys in turn and reads back what it wrote. How many requests were answered.
fn honest(server: &Rusd, round: u64, length: Duration) -> u64 {
    let answered = Arc::new(AtomicU64::new(0));
    let clients = (0..HONEST).map(|client| {
        let (address, answered) = (server.address().to_owned(), Arc::clone(&answered));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            LocalSet::new().block_on(&runtime, async {
                let connection = dial(&address, None).await.unwrap();
                let begun = Instant::now();
                // It ends with a whole round, so that what each key has is known.
                for number in 0.. {
                    let (key, value) = (format!("honest/{client}/{}", number % KEYS), format!("{round}/{number}"));
                    if number % KEYS == 0 && begun.elapsed() > length {
                        return (client, number);
                    }
                    let request =
                        pb::PutRequest { key: key.clone().into(), value: value.clone().into(), ..Default::default() };
                    let answer: pb::PutResponse = unary(&connection, "KV/Put", &request).await;
                    assert!(answer.header.is_some());
                    let request = pb::RangeRequest { key: key.into(), ..Default::default() };
                    let answer: pb::RangeResponse = unary(&connection, "KV/Range", &request).await;
                    assert_eq!(answer.kvs[0].value, value.as_bytes(), "an acknowledged write is read");
                    answered.fetch_add(2, Ordering::Relaxed);
                }
                unreachable!("numbers do not end")
            })
        })
    });
    let clients: Vec<_> = clients.collect();
    let ended: Vec<(u64, u64)> = clients.into_iter().map(|client| client.join().unwrap()).collect();
    for (client, end) in ended {
        // A key and a value are a line each.
        let said = server.etcdctl(&["get", "--prefix", &format!("honest/{client}/")]);
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.len() as u64, 2 * KEYS, "client {client}");
        for pair in lines.chunks(2) {
            let key: u64 = pair[0].rsplit('/').next().unwrap().parse().unwrap();
            assert_eq!(pair[1], format!("{round}/{}", end - KEYS + key), "{}", pair[0]);
        }
    }
    answered.load(Ordering::Relaxed)
}

/// One call; it must be answered well within a minute.
async fn unary<A: prost::Message, B: prost::Message + Default>(
    connection: &SendRequest<Bytes>,
    path: &str,
    request: &A,
) -> B {
    let called = async {
        let (answer, mut stream) = call(connection, path).await;
        stream.send_data(grpc::encode(request), true).unwrap();
        let (head, mut body) = answer.await.unwrap().into_parts();
        let mut message = Vec::new();
        while let Some(chunk) = body.data().await {
            let chunk = chunk.unwrap();
            let _ = body.flow_control().release_capacity(chunk.len());
            message.extend_from_slice(&chunk);
        }
        let told = body.trailers().await.unwrap().unwrap_or(head.headers);
        assert_eq!(told["grpc-status"], "0", "{path}: {told:?}");
        B::decode(grpc::content(message.into())).unwrap()
    };
    timeout(Duration::from_secs(60), called).await.unwrap_or_else(|_| panic!("{path} was not answered"))
}

#[test]
#[ignore = "takes a minute, and a machine on which nothing else runs: the rate of honest clients is compared with that before"]
fn a_hostile_client_for_minutes_costs_bounded_memory_and_others_are_served() {
    service_kit::open_files::raise();
    let idle = service_kit::open_files::limit().map_or(10_000, |limit| (limit.saturating_sub(1_000) / 2).min(10_000));
    let server = Rusd::start(&["--auto-tls", "--listen-client-urls=http://127.0.0.1:0,https://127.0.0.1:0"]);
    let quiet = honest(&server, 1, QUIET);
    // The longest value that a large answer is made of.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let told = told(&connect(&server).await, "KV/Put", put("large".into(), 30 << 10)).await;
        assert_eq!(told["grpc-status"], "0");
    });
    const GREETINGS: [&[u8]; 3] =
        [b"", &[0x16, 3, 1, 2, 0, 1, 0], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"];
    let silent: Vec<_> = (0..idle as usize)
        .map(|number| {
            // With and without TLS is spoken on the same socket, so that half a greeting of either is one.
            let mut socket = std::net::TcpStream::connect(server.address()).unwrap();
            // It may have been hung up on.
            let _ = socket.write_all(GREETINGS[number % GREETINGS.len()]);
            socket
        })
        .collect();
    let mut attackers = Until::new();
    attackers.again(server.address(), greedy_transaction);
    attackers.again(server.address(), untaken_answers);
    attackers.again(server.address(), halves);
    attackers.again(server.address(), deaf_streams);
    let length = hostile_time();
    let meanwhile = honest(&server, 2, length);
    let most = server.resident_bytes_max();
    let status: serde_json::Value =
        serde_json::from_str(&server.etcdctl(&["endpoint", "status", "-w", "json"])).unwrap();
    let data = status[0]["Status"]["dbSize"].as_u64().unwrap();
    attackers.stop();
    drop(silent);
    let per_second = |answered: u64, length: Duration| answered as f64 / length.as_secs_f64();
    let (before, during) = (per_second(quiet, QUIET), per_second(meanwhile, length));
    let (seconds, [mebibytes, of_data]) = (length.as_secs(), [most, data].map(|bytes| bytes >> 20));
    println!(
        "{idle} silent connections; honest requests per second: {before:.0} before, {during:.0} for {seconds} s; most memory: {mebibytes} MiB, \
         with {of_data} MiB of data"
    );
    assert!(most < RESIDENT_BYTES_MAX + data, "{mebibytes} MiB, {of_data} of which are data");
    assert!(during >= before / 2.0, "{during:.0} of {before:.0} honest requests per second");
    // Nothing is lost, also not by a kill at the end of it.
    let server = server.restart();
    for client in 0..HONEST {
        let value = server.etcdctl(&["get", &format!("honest/{client}/0"), "--print-value-only"]);
        assert!(value.starts_with("2/"), "{value}");
    }
}
