//! What clients may ask for and not take, or ask for by halves: its memory has a bound, and others are served meanwhile.

use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::SendRequest;
use rusd::proto::etcdserverpb as pb;
use service_kit::grpc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::gateway::post;
use crate::group::{group, leader_of};
use crate::hostile::{MEBIBYTE, call, connect, put, run, told};
use crate::process::Rusd;

/// Keys that are written together.
const TOGETHER: usize = 100;

/// Writes so many keys of 68 bytes that begin with `k` and hang on this lease, or none.
async fn fill(connection: &SendRequest<Bytes>, keys: usize, lease: i64) {
    for first in (0..keys).step_by(TOGETHER) {
        let put = |number: usize| pb::PutRequest { key: format!("k{number:067}").into(), lease, ..Default::default() };
        let operation = |number| pb::RequestOp { request: Some(pb::request_op::Request::RequestPut(put(number))) };
        let success = (first..first + TOGETHER).map(operation).collect();
        let txn = pb::TxnRequest { success, ..Default::default() };
        assert_eq!(told(connection, "KV/Txn", grpc::encode(&txn)).await["grpc-status"], "0");
    }
}

/// A request over HTTP/1.1, sent as far as `body` goes.
async fn begin(server: &Rusd, path: &str, length: usize, body: &str) -> TcpStream {
    let mut socket = TcpStream::connect(server.address()).await.unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nHost: it\r\nContent-Length: {length}\r\n\r\n");
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(body.as_bytes()).await.unwrap();
    socket
}

/// Sixty connections took 1.2 GB.
#[test]
fn answers_as_json_that_nobody_takes_have_a_bound_together() {
    let server = Rusd::start(&[]);
    run(async {
        let honest = connect(&server).await;
        for number in 0..8 {
            assert_eq!(told(&honest, "KV/Put", put(format!("k{number}"), MEBIBYTE)).await["grpc-status"], "0");
        }
        // Everything, in eleven megabytes.
        let all = r#"{"key":"AA==","range_end":"AA=="}"#;
        let (mut silent, mut refused) = (Vec::new(), 0);
        for _ in 0..60 {
            let mut socket = begin(&server, "/v3/kv/range", all.len(), all).await;
            let mut head = [0; 12];
            socket.read_exact(&mut head).await.unwrap();
            match &head {
                b"HTTP/1.1 200" => silent.push(socket),
                b"HTTP/1.1 429" => refused += 1,
                head => panic!("{}", String::from_utf8_lossy(head)),
            }
        }
        assert!(!silent.is_empty() && refused > 0, "{} were answered, {refused} refused", silent.len());
        assert_eq!(told(&honest, "KV/Put", put("k".into(), 10)).await["grpc-status"], "0");
        assert_eq!(post(server.address(), "/v3/kv/put", "", r#"{"key":"YQ==","value":"Yg=="}"#).0, 200);
    });
    let most = server.resident_bytes_max();
    assert!(most < 400 * MEBIBYTE as u64, "{most}");
}

/// Each held copies of the keys of its lease while it waited for the leader: four hundred took 2.3 GB.
#[test]
fn calls_that_want_the_keys_of_a_lease_wait_for_the_leader_without_them() {
    const KEYS: usize = 20_000;
    let servers = group(3, "http", &[]);
    let follower = &servers[(leader_of(&servers) + 1) % servers.len()];
    run(async {
        let (hostile, honest) = (connect(follower).await, connect(follower).await);
        let lease = grpc::encode(&pb::LeaseGrantRequest { ttl: 5_000, id: 77 });
        assert_eq!(told(&honest, "Lease/LeaseGrant", lease).await["grpc-status"], "0");
        fill(&honest, KEYS, 77).await;
        let with_keys = grpc::encode(&pb::LeaseTimeToLiveRequest { id: 77, keys: true });
        let mut waiting = Vec::new();
        for _ in 0..400 {
            let (answer, mut stream) = call(&hostile, "Lease/LeaseTimeToLive").await;
            stream.send_data(with_keys.clone(), true).unwrap();
            waiting.push(answer);
        }
        assert_eq!(told(&honest, "Lease/LeaseTimeToLive", with_keys).await["grpc-status"], "0");
        let listed = follower.etcdctl(&["lease", "timetolive", "4d", "--keys"]);
        assert_eq!(listed.matches(" k0").count() + listed.matches("[k0").count(), KEYS);
    });
    let most = follower.resident_bytes_max();
    assert!(most < 300 * MEBIBYTE as u64, "{most}");
}

/// To count what there was, five hundred of them kept all connections of their thread waiting for 24 s.
#[test]
fn streams_of_ranges_of_the_past_hold_up_nobody() {
    const KEYS: usize = 100_000;
    let server = Rusd::start(&[]);
    run(async {
        let hostile = connect(&server).await;
        fill(&hostile, KEYS, 0).await;
        let past = pb::RangeRequest {
            key: "k".into(),
            range_end: "l".into(),
            limit: 1,
            // The first is 1.
            revision: (1 + KEYS / TOGETHER) as i64,
            ..Default::default()
        };
        let past = grpc::encode(&past);
        assert_eq!(told(&hostile, "KV/Put", put("zz".into(), 10)).await["grpc-status"], "0");
        assert_eq!(told(&hostile, "KV/RangeStream", past.clone()).await["grpc-status"], "0");
        // Some of them are on its thread.
        let mut others = Vec::new();
        for _ in 0..2 * std::thread::available_parallelism().unwrap().get() {
            others.push(connect(&server).await);
        }
        let mut waiting = Vec::new();
        for _ in 0..300 {
            let (answer, mut stream) = call(&hostile, "KV/RangeStream").await;
            stream.send_data(past.clone(), true).unwrap();
            waiting.push(answer);
        }
        // They have come.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let get = grpc::encode(&pb::RangeRequest { key: "zz".into(), ..Default::default() });
        for other in &others {
            let began = Instant::now();
            assert_eq!(told(other, "KV/Range", get.clone()).await["grpc-status"], "0");
            assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        }
    });
}

/// Two dozen halves kept all clients of the gateway out for as long as they liked.
#[test]
fn halves_of_requests_as_json_make_room_for_those_that_come() {
    let server = Rusd::start(&[]);
    run(async {
        let half = format!("{{\"key\":\"YQ==\",\"value\":\"{}", "A".repeat(2_970 << 10));
        let mut halves = Vec::new();
        // Of 64 MiB they leave a fifth of one.
        for _ in 0..22 {
            halves.push(begin(&server, "/v3/kv/put", 4_000_000, &half).await);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let whole = format!("{{\"key\":\"YQ==\",\"value\":\"{}\"}}", "A".repeat(3 * MEBIBYTE / 2));
        let (status, said) = post(server.address(), "/v3/kv/put", "", &whole);
        assert_eq!(status, 200, "{said}");
    });
}
