//! What clients may try: the server's memory stays bounded, and they are told what etcd would tell them.

use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request};
use prost::Message;
use rusd::proto::etcdserverpb as pb;
use service_kit::grpc;
use tokio::net::TcpStream;
use tokio::task::LocalSet;
use tokio::time::timeout;

use crate::process::Rusd;

pub(crate) const MEBIBYTE: usize = 1 << 20;

/// A connection to the server.
pub(crate) async fn connect(server: &Rusd) -> SendRequest<Bytes> {
    let socket = TcpStream::connect(server.address()).await.unwrap();
    // Windows are given back at once.
    socket.set_nodelay(true).unwrap();
    // Small answers may come in any number.
    let (send, connection) = Builder::new().data_frame_budget(64 * MEBIBYTE).handshake(socket).await.unwrap();
    tokio::task::spawn_local(connection);
    send
}

pub(crate) async fn call(connection: &SendRequest<Bytes>, path: &str) -> (ResponseFuture, SendStream<Bytes>) {
    call_of(connection, &format!("etcdserverpb.{path}")).await
}

/// As [`call`], of whatever service.
pub(crate) async fn call_of(connection: &SendRequest<Bytes>, path: &str) -> (ResponseFuture, SendStream<Bytes>) {
    let request = Request::post(format!("http://server/{path}")).header("te", "trailers");
    let request = request.header("content-type", "application/grpc").body(()).unwrap();
    connection.clone().ready().await.unwrap().send_request(request, false).unwrap()
}

/// Hands bytes over as fast as they are taken. `false` if they are not wanted any more.
pub(crate) async fn send(stream: &mut SendStream<Bytes>, mut bytes: Bytes) -> bool {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        match std::future::poll_fn(|context| stream.poll_capacity(context)).await {
            Some(Ok(room)) if stream.send_data(bytes.split_to(room.min(bytes.len())), false).is_ok() => {}
            _ => return false,
        }
    }
    true
}

pub(crate) async fn trailers(mut body: RecvStream, head: HeaderMap) -> HeaderMap {
    while let Some(chunk) = body.data().await {
        let length = chunk.unwrap().len();
        let _ = body.flow_control().release_capacity(length);
    }
    body.trailers().await.unwrap().unwrap_or(head)
}

/// What a call is told in the end.
pub(crate) async fn told(connection: &SendRequest<Bytes>, path: &str, request: Bytes) -> HeaderMap {
    let (answer, mut stream) = call(connection, path).await;
    assert!(send(&mut stream, request).await);
    stream.send_data(Bytes::new(), true).unwrap();
    let (head, body) = answer.await.unwrap().into_parts();
    trailers(body, head.headers).await
}

pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async { timeout(Duration::from_secs(120), test).await.unwrap() });
}

pub(crate) fn put(key: String, value: usize) -> Bytes {
    grpc::encode(&pb::PutRequest { key: key.into(), value: vec![7; value].into(), ..Default::default() })
}

/// Between the limit of requests and that of messages.
#[test]
fn a_value_above_the_limit_of_requests_is_refused_in_etcds_words() {
    let server = Rusd::start(&["--max-request-bytes=100000"]);
    let mut client = server.command(&["put", "k"]).stdin(Stdio::piped()).spawn().unwrap();
    client.stdin.take().unwrap().write_all(&[b'v'; 100_001]).unwrap();
    let output = client.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("etcdserver: request is too large"), "{said}");
    assert_eq!(server.etcdctl(&["get", "k"]), "");
}

#[test]
fn a_value_of_a_hundred_megabytes_is_refused_before_it_has_come() {
    let server = Rusd::start(&[]);
    run(async {
        let connection = connect(&server).await;
        let (answer, mut stream) = call(&connection, "KV/Put").await;
        send(&mut stream, put("k".into(), 100 * MEBIBYTE)).await;
        let (head, body) = answer.await.unwrap().into_parts();
        let told = trailers(body, head.headers).await;
        let said = told["grpc-message"].to_str().unwrap();
        assert_eq!(told["grpc-status"], "8", "{said}");
        assert!(said.starts_with("grpc: received message larger than max (104857"), "{said}");
    });
    let most = server.resident_bytes_max();
    assert!(most < 60 * MEBIBYTE as u64, "{most}");
}

/// All members make comparisons, and each again at its start: thousands of everything, side by side in nested transactions, stopped a group.
#[test]
fn a_transaction_has_as_many_comparisons_of_ranges_as_it_may_have_operations() {
    let server = Rusd::start(&[]);
    let operation = |request| pb::RequestOp { request: Some(request) };
    let everything = pb::Compare {
        result: pb::compare::CompareResult::Greater as i32,
        key: Bytes::from_static(&[0]),
        range_end: Bytes::from_static(&[0]),
        target_union: Some(pb::compare::TargetUnion::Version(0)),
        ..Default::default()
    };
    let nested = |compares| {
        let request = pb::TxnRequest { compare: vec![everything.clone(); compares], ..Default::default() };
        operation(pb::request_op::Request::RequestTxn(request))
    };
    let written = pb::PutRequest { key: "k".into(), ..Default::default() };
    let told = |nested: Vec<pb::RequestOp>| {
        let written = operation(pb::request_op::Request::RequestPut(written.clone()));
        let request = pb::TxnRequest { success: [nested, vec![written]].concat(), ..Default::default() };
        let mut told = HeaderMap::new();
        run(async {
            let (answer, mut stream) = call(&connect(&server).await, "KV/Txn").await;
            assert!(send(&mut stream, grpc::encode(&request)).await);
            stream.send_data(Bytes::new(), true).unwrap();
            let (head, body) = answer.await.unwrap().into_parts();
            told = trailers(body, head.headers).await;
        });
        told
    };
    let refused = told(vec![nested(64); 61]);
    assert_eq!(refused["grpc-status"], "3", "{refused:?}");
    assert_eq!(refused["grpc-message"], "etcdserver: too many operations in txn request");
    assert_eq!(server.etcdctl(&["get", "k", "--keys-only"]), "");
    assert_eq!(told(vec![nested(64); 2])["grpc-status"], "0");
    assert_eq!(server.etcdctl(&["get", "k", "--keys-only"]), "k\n\n");
}

/// Sixteen streams watch thirty megabytes of changes, and none reads: together they would be 480.
#[test]
fn watchers_that_do_not_read_cost_no_memory() {
    const STREAMS: usize = 16;
    const PUTS: usize = 30;
    let server = Rusd::start(&[]);
    run(async {
        let connection = connect(&server).await;
        let mut streams = Vec::new();
        for _ in 0..STREAMS {
            let (answer, mut stream) = call(&connection, "Watch/Watch").await;
            let create = pb::WatchCreateRequest { key: "k".into(), range_end: "l".into(), ..Default::default() };
            let create = pb::watch_request::RequestUnion::CreateRequest(create);
            assert!(send(&mut stream, grpc::encode(&pb::WatchRequest { request_union: Some(create) })).await);
            let mut body = answer.await.unwrap().into_body();
            let created = grpc::content(body.data().await.unwrap().unwrap());
            assert!(pb::WatchResponse::decode(created).unwrap().created);
            streams.push((body, stream));
        }
        let writer = connect(&server).await;
        for number in 0..PUTS {
            assert_eq!(told(&writer, "KV/Put", put(format!("k{number}"), MEBIBYTE)).await["grpc-status"], "0");
        }
    });
    let most = server.resident_bytes_max();
    assert!(most < 250 * MEBIBYTE as u64, "{most}");
}

/// Eight hundred watchers on one stream, each of a key of a megabyte, were 1.5 GB for as long as the stream was open.
#[test]
fn the_keys_of_watchers_have_a_bound_until_they_are_cancelled() {
    const WATCHERS: usize = 100;
    let server = Rusd::start(&[]);
    run(async {
        use pb::watch_request::RequestUnion;
        let connection = connect(&server).await;
        let (answer, mut stream) = call(&connection, "Watch/Watch").await;
        let mut body = answer.await.unwrap().into_body();
        let mut answers = grpc::Deframer::new(MEBIBYTE);
        let mut ask = async |request: RequestUnion| {
            assert!(send(&mut stream, grpc::encode(&pb::WatchRequest { request_union: Some(request) })).await);
            loop {
                if let Some(message) = answers.message().unwrap() {
                    return pb::WatchResponse::decode(message).unwrap();
                }
                let chunk = body.data().await.unwrap().unwrap();
                let _ = body.flow_control().release_capacity(chunk.len());
                answers.push(chunk);
            }
        };
        let create = |number: usize| {
            let key = [&vec![b'k'; MEBIBYTE][..], number.to_string().as_bytes()].concat();
            RequestUnion::CreateRequest(pb::WatchCreateRequest { key: key.into(), ..Default::default() })
        };
        let mut watchers = Vec::new();
        for number in 0..WATCHERS {
            let told = ask(create(number)).await;
            if told.canceled {
                assert!(told.cancel_reason.starts_with("rusd: no room for a watcher"), "{}", told.cancel_reason);
            } else {
                watchers.push(told.watch_id);
            }
        }
        assert!((40..64).contains(&watchers.len()), "{} watchers have room", watchers.len());
        for watch_id in watchers.drain(..2) {
            assert!(ask(RequestUnion::CancelRequest(pb::WatchCancelRequest { watch_id })).await.canceled);
        }
        assert!(!ask(create(0)).await.canceled, "there is room again");
    });
    let most = server.resident_bytes_max();
    assert!(most < 130 * MEBIBYTE as u64, "{most}");
}

/// A client that has many leases renews them all at once: each is a message of a few bytes, in a frame of its own.
#[test]
fn ten_thousand_small_requests_at_once_are_answered() {
    const REQUESTS: usize = 10_000;
    let server = Rusd::start(&[]);
    run(async {
        let connection = connect(&server).await;
        let (answer, mut stream) = call(&connection, "Lease/LeaseKeepAlive").await;
        for id in 0..REQUESTS {
            let request = pb::LeaseKeepAliveRequest { id: 1 + id as i64 };
            stream.send_data(grpc::encode(&request), false).unwrap();
        }
        stream.send_data(Bytes::new(), true).unwrap();
        let mut body = answer.await.unwrap().into_body();
        let mut answers = grpc::Deframer::new(MEBIBYTE);
        let mut count = 0;
        while let Some(chunk) = body.data().await {
            let chunk = chunk.unwrap();
            let _ = body.flow_control().release_capacity(chunk.len());
            answers.push(chunk);
            while answers.message().unwrap().is_some() {
                count += 1;
            }
        }
        assert_eq!(count, REQUESTS);
    });
}

/// Everything at once, several times: an answer is one buffer, and goes when it was sent.
#[test]
fn ranges_over_everything_are_answered_and_leave_no_memory() {
    const PUTS: usize = 24;
    let server = Rusd::start(&[]);
    run(async {
        let connection = connect(&server).await;
        for number in 0..PUTS {
            assert_eq!(told(&connection, "KV/Put", put(format!("k{number}"), MEBIBYTE)).await["grpc-status"], "0");
        }
        for _ in 0..10 {
            let (answer, mut stream) = call(&connection, "KV/Range").await;
            let all = pb::RangeRequest {
                key: Bytes::from_static(&[0]),
                range_end: Bytes::from_static(&[0]),
                ..Default::default()
            };
            stream.send_data(grpc::encode(&all), true).unwrap();
            let mut body = answer.await.unwrap().into_body();
            let mut length = 0;
            while let Some(chunk) = body.data().await {
                let chunk = chunk.unwrap().len();
                length += chunk;
                let _ = body.flow_control().release_capacity(chunk);
            }
            assert!(length > PUTS * MEBIBYTE, "{length}");
        }
    });
    let most = server.resident_bytes_max();
    assert!(most < 200 * MEBIBYTE as u64, "{most}");
}

/// Who connects and says nothing, begins with TLS and says no more, or speaks HTTP/2 and never asks for anything. As many as the
/// machine's limit on open files allows, up to ten thousand.
#[test]
fn ten_thousand_connections_that_say_nothing_cost_little_and_others_are_served() {
    service_kit::open_files::raise();
    let count =
        service_kit::open_files::limit().map_or(10_000, |limit| (limit.saturating_sub(1_000) / 2).min(10_000) as usize);
    assert!(count > 100, "the limit on open files (ulimit -n) is too low for this test");
    const CLIENT_HELLO: &[u8] = &[0x16, 3, 1, 2, 0, 1, 0];
    // The preface, and settings that set nothing.
    const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    for (flags, greetings, insecure) in [
        (&["--auto-tls"][..], [b"".as_slice(), CLIENT_HELLO], &["--insecure-skip-tls-verify"][..]),
        (&[], [HTTP2, b"G"], &[]),
    ] {
        let server = Rusd::start(flags);
        let etcdctl = |arguments: &[&str]| server.etcdctl(&[insecure, arguments].concat());
        etcdctl(&["put", "k", "before"]);
        let before = server.resident_bytes();
        let connections = (0..count).map(|number| {
            let mut socket = std::net::TcpStream::connect(server.address()).unwrap();
            socket.write_all(greetings[number % 2]).unwrap();
            socket
        });
        let connections = connections.collect::<Vec<_>>();
        assert_eq!(etcdctl(&["put", "k", "meanwhile"]), "OK\n");
        assert_eq!(etcdctl(&["get", "k", "--print-value-only"]), "meanwhile\n");
        let each = server.resident_bytes().saturating_sub(before) / count as u64;
        println!("{each} bytes for each of {count} connections, {flags:?}");
        assert!(each < 48 << 10, "a connection that does nothing takes {each} bytes");
        drop(connections);
        assert_eq!(etcdctl(&["get", "k", "--print-value-only"]), "meanwhile\n");
    }
}

/// The log needs files as well: without a place that is kept for it, clients could end the server.
#[test]
fn connections_beyond_the_limit_on_open_files_wait_and_harm_nobody() {
    // A shell sets the limit, and becomes the server.
    let server = Rusd::start_limited(300, &["--listen-metrics-urls=http://localhost:0"]);
    let open = |_| std::net::TcpStream::connect(server.address()).unwrap();
    let connections = (0..250).map(open).collect::<Vec<_>>();
    let metrics = std::net::TcpStream::connect(server.other_addresses()[0].as_str()).unwrap();
    (&metrics).write_all(b"GET /health HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut &metrics, &mut answer).unwrap();
    assert!(answer.contains("\"health\":\"true\""), "{answer}");
    drop(connections);
    for number in 0..5 {
        assert_eq!(server.etcdctl(&["put", "k", &number.to_string()]), "OK\n");
    }
    assert!(server.etcdctl(&["defrag"]).contains("Finished"), "files can be made");
}

/// Each answer had a bound, and all that were made and not sent yet had none: twelve small transactions took 717 MB.
#[test]
fn answers_have_a_bound_together_before_they_are_sent() {
    const CALLS: usize = 12;
    // Values in files are copied for each answer.
    let server = Rusd::start(&["--values-memory-bytes=1048576"]);
    run(async {
        let writer = connect(&server).await;
        for number in 0..8 {
            assert_eq!(told(&writer, "KV/Put", put(format!("k{number}"), MEBIBYTE)).await["grpc-status"], "0");
        }
        let mut waiting = Vec::new();
        for number in 0..CALLS {
            let socket = TcpStream::connect(server.address()).await.unwrap();
            let (unread, driver) = Builder::new().initial_window_size(0).handshake(socket).await.unwrap();
            tokio::task::spawn_local(driver);
            let all = pb::RangeRequest { key: "k".into(), range_end: "l".into(), ..Default::default() };
            let done = pb::PutRequest { key: format!("done{number}").into(), ..Default::default() };
            let reads = std::iter::repeat_n(pb::request_op::Request::RequestRange(all), 6);
            let success = std::iter::once(pb::request_op::Request::RequestPut(done)).chain(reads);
            let success = success.map(|request| pb::RequestOp { request: Some(request) }).collect();
            let (answer, mut stream) = call(&unread, "KV/Txn").await;
            stream.send_data(grpc::encode(&pb::TxnRequest { success, ..Default::default() }), true).unwrap();
            waiting.push((unread, answer));
        }
        // All of them are done, whatever is told of them.
        while server.etcdctl(&["get", "--prefix", "done", "--keys-only"]).split_whitespace().count() < CALLS {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        server.etcdctl(&["put", "k", "behind them"]);
    });
    let most = server.resident_bytes_max();
    assert!(most < 450 * MEBIBYTE as u64, "{most}");
}

/// Each kept all data as they were when it began, for as long as its client liked.
#[test]
fn a_range_stream_that_is_not_read_keeps_nothing_as_it_was() {
    const KEYS: usize = 256;
    const ROUNDS: usize = 7;
    // What is freed leaves the process at once, so that only what is kept is counted, and not how the allocator's heap happens to be cut up.
    let server = Rusd::start_by("/usr/bin/env", &["MALLOC_MMAP_THRESHOLD_=32768"], harness::folder());
    run(async {
        let writer = connect(&server).await;
        let mut unread = Vec::new();
        let mut before = 0;
        for round in 0..ROUNDS {
            for number in 0..KEYS {
                assert_eq!(told(&writer, "KV/Put", put(format!("k{number}"), MEBIBYTE / 16)).await["grpc-status"], "0");
            }
            // The window is smaller than the first message.
            let reader = connect(&server).await;
            let (answer, mut stream) = call(&reader, "KV/RangeStream").await;
            let all = Bytes::from_static(&[0]);
            let all = pb::RangeRequest { key: all.clone(), range_end: all, ..Default::default() };
            stream.send_data(grpc::encode(&all), true).unwrap();
            unread.push(answer.await.unwrap().into_body());
            let revision = (1 + KEYS * (round + 1)).to_string();
            server.etcdctl(&["compaction", "--physical", &revision]);
            if round == 0 {
                before = server.resident_bytes();
            }
        }
        // What a compaction gives back comes a little later.
        let deadline = Instant::now() + Duration::from_secs(5);
        let more = loop {
            let more = server.resident_bytes().saturating_sub(before);
            if more < 48 * MEBIBYTE as u64 || Instant::now() > deadline {
                break more;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        assert!(more < 48 * MEBIBYTE as u64, "{more} bytes more, of 16 MiB of data");
        // Who goes on is told that what he reads is not there any more.
        let mut first = unread.remove(0);
        while let Some(chunk) = first.data().await {
            let _ = first.flow_control().release_capacity(chunk.unwrap().len());
        }
        assert_eq!(first.trailers().await.unwrap().unwrap()["grpc-status"], "11");
    });
}

/// Each wrote a file of its own, as long as all data, at once with the others.
#[test]
fn snapshots_that_are_asked_for_together_are_written_once_or_twice() {
    const CALLS: usize = 16;
    let server = Rusd::start(&[]);
    run(async {
        let client = connect(&server).await;
        for number in 0..32 {
            assert_eq!(told(&client, "KV/Put", put(format!("k{number}"), MEBIBYTE)).await["grpc-status"], "0");
        }
        let mut connections = Vec::new();
        for _ in 0..CALLS {
            connections.push(connect(&server).await);
        }
        // All of them before the second is begun to be written.
        let mut unread = Vec::new();
        for connection in connections {
            let (answer, mut stream) = call(&connection, "Maintenance/Snapshot").await;
            stream.send_data(grpc::encode(&pb::SnapshotRequest {}), true).unwrap();
            unread.push((connection, answer));
        }
        let mut bodies = Vec::new();
        for (connection, answer) in unread {
            let mut body = answer.await.unwrap().into_body();
            // Each has begun to come.
            let first = body.data().await.unwrap().unwrap();
            let _ = body.flow_control().release_capacity(first.len());
            bodies.push((connection, body));
        }
        let copies = server.nameless_files();
        assert!((1..=2).contains(&copies), "{copies} files for {CALLS} calls");
        // Whoever takes it has all of it, whatever others do.
        let (_connection, mut taken) = bodies.pop().unwrap();
        drop(bodies);
        let mut bytes = 0;
        while let Some(chunk) = taken.data().await {
            let chunk = chunk.unwrap();
            let _ = taken.flow_control().release_capacity(chunk.len());
            bytes += chunk.len();
        }
        assert!(bytes > 31 * MEBIBYTE, "{bytes}");
        assert_eq!(taken.trailers().await.unwrap().unwrap()["grpc-status"], "0");
        while server.nameless_files() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}
