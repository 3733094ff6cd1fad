//! Before anybody has logged in: what clients open, send by halves or do not take, in any number, takes a bounded part of memory, and
//! others are served meanwhile.

use bytes::Bytes;
use h2::client::Builder;
use http::Request;
use rusd::proto::etcdserverpb as pb;
use service_kit::grpc;
use tokio::net::TcpStream;

use crate::gateway;
use crate::hostile::{MEBIBYTE, call, connect, put, run, send, told, trailers};
use crate::process::Rusd;

/// What the server may take above what it takes for itself.
const BOUND: u64 = 400 * MEBIBYTE as u64;

/// 30 KiB each, on four connections: nine hundred megabytes of answers. A connection has room for some ten thousand calls.
const GETS: usize = 8_000;

#[test]
fn answers_that_nobody_takes_are_not_made() {
    let server = Rusd::start(&[]);
    run(async {
        let honest = connect(&server).await;
        assert_eq!(told(&honest, "KV/Put", put("k".into(), 30 << 10)).await["grpc-status"], "0");
        let get = grpc::encode(&pb::RangeRequest { key: "k".into(), ..Default::default() });
        let mut waiting = Vec::new();
        let mut connections = Vec::new();
        for _ in 0..4 {
            let socket = TcpStream::connect(server.address()).await.unwrap();
            let mut builder = Builder::new();
            builder.initial_window_size(0).initial_max_send_streams(GETS).max_concurrent_reset_streams(0);
            let (hostile, mut connection) = builder.handshake::<_, Bytes>(socket).await.unwrap();
            let mut pings = connection.ping_pong().unwrap();
            tokio::task::spawn_local(connection);
            for number in 0..GETS {
                let (answer, mut stream) = call(&hostile, "KV/Range").await;
                stream.send_data(get.clone(), true).unwrap();
                waiting.push(answer);
                if number % 1_000 == 0 {
                    // The server has taken what was sent before.
                    pings.ping(h2::Ping::opaque()).await.unwrap();
                }
            }
            pings.ping(h2::Ping::opaque()).await.unwrap();
            connections.push(hostile);
        }
        assert_eq!(told(&honest, "KV/Range", get.clone()).await["grpc-status"], "0", "others are served");
    });
    let most = server.resident_bytes_max();
    assert!(most < BOUND, "{most}");
}

async fn trailers_of(answer: h2::client::ResponseFuture) -> String {
    let (head, body) = answer.await.unwrap().into_parts();
    trailers(body, head.headers).await["grpc-status"].to_str().unwrap().to_owned()
}

/// Thirty megabytes of answers pass through a window of 64 KiB: all of them come, though none are made ahead.
#[test]
fn answers_that_wait_for_the_client_come_when_it_takes_them() {
    const GETS: usize = 1_000;
    let server = Rusd::start(&[]);
    run(async {
        let connection = connect(&server).await;
        assert_eq!(told(&connection, "KV/Put", put("k".into(), 30 << 10)).await["grpc-status"], "0");
        let get = grpc::encode(&pb::RangeRequest { key: "k".into(), ..Default::default() });
        let mut waiting = Vec::new();
        for _ in 0..GETS {
            let (answer, mut stream) = call(&connection, "KV/Range").await;
            stream.send_data(get.clone(), true).unwrap();
            waiting.push(answer);
        }
        let statuses = futures::future::join_all(waiting.into_iter().map(trailers_of)).await;
        assert!(statuses.iter().all(|status| status == "0"));
    });
}

#[test]
fn streams_that_only_begin_take_a_bounded_part_of_memory() {
    const STREAMS: usize = 60_000;
    let server = Rusd::start(&[]);
    run(async {
        let socket = TcpStream::connect(server.address()).await.unwrap();
        let mut builder = Builder::new();
        builder.initial_max_send_streams(STREAMS);
        let (hostile, mut connection) = builder.handshake::<_, Bytes>(socket).await.unwrap();
        let mut pings = connection.ping_pong().unwrap();
        tokio::task::spawn_local(connection);
        let large = "x".repeat(15 << 10);
        let mut streams = Vec::new();
        for number in 0..STREAMS {
            let request = Request::post("http://server/etcdserverpb.KV/Put").header("te", "trailers");
            let request = request.header("content-type", "application/grpc").header("x", &large).body(()).unwrap();
            streams.push(hostile.clone().ready().await.unwrap().send_request(request, false).unwrap());
            if number % 100 == 0 {
                pings.ping(h2::Ping::opaque()).await.unwrap();
            }
        }
        put_is_answered(&server).await;
    });
    let most = server.resident_bytes_max();
    assert!(most < BOUND, "{most}");
}

#[test]
fn requests_as_json_that_do_not_end_take_a_bounded_part_of_memory() {
    const STREAMS: usize = 400;
    let server = Rusd::start(&[]);
    run(async {
        let hostile = connect(&server).await;
        let mut streams = Vec::new();
        let half = Bytes::from(format!("{{\"key\":\"{}", "a".repeat(2 * MEBIBYTE)));
        for _ in 0..STREAMS {
            let request = Request::post("http://server/v3/kv/put").header("content-type", "application/json");
            let (answer, mut stream) =
                hostile.clone().ready().await.unwrap().send_request(request.body(()).unwrap(), false).unwrap();
            send(&mut stream, half.clone()).await;
            streams.push((answer, stream));
        }
        put_is_answered(&server).await;
    });
    let most = server.resident_bytes_max();
    assert!(most < BOUND, "{most}");
}

async fn put_is_answered(server: &Rusd) {
    let told = told(&connect(server).await, "KV/Put", put("k".into(), 10)).await;
    assert_eq!(told["grpc-status"], "0", "others are served");
}

/// Any client could make all writes slow for good: 15,000 of them took a put from 22,000 to 1,400 a second, also after a restart.
#[test]
fn alarms_that_mean_nothing_are_kept_up_to_a_bound() {
    let server = Rusd::start(&[]);
    let raise = |member: &str| {
        let body = format!("{{\"action\":\"ACTIVATE\",\"memberID\":\"{member}\",\"alarm\":99}}");
        gateway::post(server.address(), "/v3/maintenance/alarm", "", &body)
    };
    for number in 0..64 {
        assert_eq!(raise(&number.to_string()).0, 200);
    }
    let (status, said) = raise("64");
    assert_eq!((status, said["message"].as_str()), (429, Some("etcdserver: too many requests")));
    // Disarmed by somebody, they may be raised again.
    let body = r#"{"action":"DEACTIVATE","memberID":"7","alarm":99}"#;
    assert_eq!(gateway::post(server.address(), "/v3/maintenance/alarm", "", body).0, 200);
    assert_eq!(raise("64").0, 200);
}
