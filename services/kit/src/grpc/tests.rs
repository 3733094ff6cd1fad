//! A client of `h2` against a service of the tests.

mod begun;
mod crowded;
mod plain;

use std::cell::Cell;
use std::future::{pending, poll_fn};
use std::io::{self, Write};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use h2::RecvStream;
use h2::client::SendRequest;
use http::{HeaderMap, HeaderValue, Request};
use tokio::sync::watch;
use tokio::task::LocalSet;
use tokio::time::timeout;

use super::frame::HEAD_BYTES;
use super::*;
use crate::places::Presence;

/// Says what it was told, `First` once; `Long` says more than that and counts; `Flood` sends without end and counts; `Never` does not answer, nor does `Only`, which is a stream. `Anybody` is one that anybody may open, and sends in time.
#[derive(Default)]
struct Told {
    sent: Cell<usize>,
    /// Bytes of messages of streams.
    came: Cell<usize>,
}

#[derive(Clone, Copy)]
enum Method {
    Say,
    Long,
    Never,
    Flood,
    Repeat,
    First,
    Only,
    Anybody,
}

fn framed(message: &[u8]) -> Bytes {
    [&[0], &(message.len() as u32).to_be_bytes()[..], message].concat().into()
}

/// Each byte says how often it comes.
fn repeat(
    message: &[u8],
    bytes_max: usize,
    room: &mut dyn FnMut(usize) -> Result<(), Status>,
) -> Result<Vec<u8>, Status> {
    let mut plain = Vec::new();
    for byte in message {
        room(usize::from(*byte))?;
        plain.resize(plain.len() + usize::from(*byte), *byte);
        if plain.len() > bytes_max {
            return Err(Status::new(Code::ResourceExhausted, "too long"));
        }
    }
    Ok(plain)
}

/// How many sevens there are, where there is nothing else.
fn sevens(message: &[u8], out: &mut dyn Write) -> io::Result<()> {
    match message.iter().all(|byte| *byte == 7) {
        true => out.write_all(&(message.len() as u64).to_be_bytes()),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

#[derive(Clone)]
struct Shared(Rc<Told>);

impl Service for Shared {
    type Method = Method;

    fn method(&self, path: &str) -> Option<(Method, bool)> {
        match path {
            "/test.Test/Say" => Some((Method::Say, false)),
            "/test.Test/Long" => Some((Method::Long, false)),
            "/test.Test/Never" => Some((Method::Never, false)),
            "/test.Test/Flood" => Some((Method::Flood, true)),
            "/test.Test/Repeat" => Some((Method::Repeat, true)),
            "/test.Test/First" => Some((Method::First, true)),
            "/test.Test/Only" => Some((Method::Only, true)),
            "/grpc.health.Test/Anybody" => Some((Method::Anybody, true)),
            _ => None,
        }
    }

    fn unary(&self, method: Method, caller: Caller, message: Bytes) -> Unary {
        match method {
            Method::Say => Unary::Now(match self.compression(method, &caller.headers) {
                Some(_) if message.is_empty() => Err(Status::new(Code::NotFound, "nothing to say")),
                Some(compression) => Ok(compression.frames(framed(&message))),
                None => Ok(framed(&message)),
            }),
            Method::Long => {
                self.0.sent.update(|sent| sent + 1);
                Unary::Now(Ok(framed(&vec![7; 1 << 18])))
            }
            _ => Unary::Later(Box::pin(pending())),
        }
    }

    fn admit(&self, _: &mut Method, caller: &Caller) -> Result<usize, Status> {
        if caller.headers.contains_key("unknown") {
            return Err(Status::new(Code::Unauthenticated, "who are you?"));
        }
        let longest = caller.headers.get("longest").map(|bytes| bytes.to_str().unwrap().parse().unwrap());
        Ok(longest.unwrap_or(usize::MAX))
    }

    fn decompress(&self, encoding: &str) -> Option<Decompress> {
        match encoding {
            "repeat" => Some(repeat),
            "waiting" => Some(crowded::waiting),
            "endless" => Some(crowded::endless),
            _ => None,
        }
    }

    fn compression(&self, method: Method, headers: &HeaderMap) -> Option<Compression> {
        let is_asked = matches!(method, Method::Say | Method::Repeat) && accepts(headers, "sevens");
        is_asked.then_some(Compression { encoding: "sevens", compress: sevens })
    }

    fn accepted_encodings(&self) -> Option<HeaderValue> {
        Some(HeaderValue::from_static("repeat"))
    }

    fn http(&self, head: http::request::Parts, mut body: crate::http::Incoming, _: Rc<Peer>) -> Option<HttpAnswer> {
        if head.uri.path().ends_with("wait") {
            return Some(Box::pin(async move {
                let is_cut_off = matches!(body.next().await, Some(Err(_)));
                plain::short(&format!("{} {is_cut_off}", head.headers.len()))
            }));
        }
        let answer = plain::answer(Rc::clone(&self.0), head.uri.path());
        Some(Box::pin(std::future::ready(answer)))
    }

    fn stream(&self, method: Method, caller: Caller, requests: Requests, responses: Responses) -> Stream {
        let [told, of_requests] = [(); 2].map(|()| Rc::clone(&self.0));
        let mut requests = requests.counted_in_part(move |bytes| of_requests.came.update(|came| came + bytes));
        let compression = self.compression(method, &caller.headers);
        Box::pin(async move {
            match method {
                Method::Flood => {
                    let megabyte = framed(&vec![7; 1 << 20]);
                    while responses.send(megabyte.clone()).await.is_ok() {
                        told.sent.set(told.sent.get() + 1);
                    }
                }
                Method::First => {
                    let first = requests.next().await?.unwrap_or_default();
                    let _ = responses.send(framed(&first)).await;
                }
                Method::Anybody => {
                    while let Some(message) = requests.next().await? {
                        told.sent.update(|sent| sent + 1);
                        let make = || framed(&vec![7; if message.is_empty() { 0 } else { 100_000 }]);
                        responses.send_in_time(Duration::from_millis(500), make).await?;
                    }
                }
                Method::Only => {
                    let _request = requests.only().await?;
                    pending().await
                }
                _ => {
                    while let Some(message) = requests.next().await? {
                        let frame = framed(&message);
                        let frame = compression.map_or(frame.clone(), |compression| compression.frames(frame));
                        let _ = responses.send(frame).await;
                    }
                }
            }
            Ok(())
        })
    }
}

struct Client {
    send: SendRequest<Bytes>,
    pings: h2::PingPong,
    told: Rc<Told>,
    stop: watch::Sender<bool>,
    server: tokio::task::JoinHandle<()>,
    memory: Memory,
}

/// Runs a client against a server in one thread.
fn with_client<F: Future<Output = ()> + 'static>(limits: Limits, test: impl FnOnce(Client) -> F + 'static) {
    with_memory(Memory::new(4 << 20), limits, test);
}

fn with_memory<F: Future<Output = ()> + 'static>(
    memory: Memory,
    limits: Limits,
    test: impl FnOnce(Client) -> F + 'static,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let (near, far) = tokio::io::duplex(64 << 10);
        let told = Rc::new(Told::default());
        let (stop, stopped) = watch::channel(false);
        let peer = Rc::new(Peer::default());
        let service = Rc::new(Shared(Rc::clone(&told)));
        let server = tokio::task::spawn_local(serve(
            near,
            service,
            peer,
            (limits, memory.clone()),
            (Presence::begin(), stopped),
        ));
        let (send, mut connection) = h2::client::handshake(far).await.unwrap();
        let pings = connection.ping_pong().unwrap();
        tokio::task::spawn_local(connection);
        timeout(Duration::from_secs(60), test(Client { send, pings, told, stop, server, memory })).await.unwrap();
    });
}

fn request(method: &str, wait: Option<&str>) -> Request<()> {
    let mut request = Request::post(format!("http://test/test.Test/{method}"));
    request = request.header("content-type", "application/grpc").header("te", "trailers");
    if let Some(wait) = wait {
        request = request.header("grpc-timeout", wait);
    }
    request.body(()).unwrap()
}

impl Client {
    async fn call(&mut self, request: Request<()>, body: Bytes) -> (Bytes, HeaderMap) {
        let (_, body, trailers) = self.call_with_head(request, body).await;
        (body, trailers)
    }

    async fn call_with_head(&mut self, request: Request<()>, body: Bytes) -> (HeaderMap, Bytes, HeaderMap) {
        let (answer, mut stream) = self.send.clone().ready().await.unwrap().send_request(request, false).unwrap();
        stream.send_data(body, true).unwrap();
        let answer = answer.await.unwrap();
        assert_eq!(answer.headers()["content-type"], "application/grpc");
        let (head, body) = answer.into_parts();
        let (bytes, trailers) = read_out(body).await;
        let trailers = trailers.unwrap_or(head.headers.clone());
        (head.headers, bytes, trailers)
    }
}

/// The rest of an answer, and its trailers.
async fn read_out(mut body: RecvStream) -> (Bytes, Option<HeaderMap>) {
    let mut bytes = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk.unwrap();
        let _ = body.flow_control().release_capacity(chunk.len());
        bytes.extend_from_slice(&chunk);
    }
    (bytes.into(), body.trailers().await.unwrap())
}

#[test]
fn a_unary_call_is_answered() {
    with_client(Limits::default(), |mut client| async move {
        let (body, trailers) = client.call(request("Say", None), framed(b"hello")).await;
        assert_eq!((&body[HEAD_BYTES..], &trailers["grpc-status"]), (&b"hello"[..], &"0".parse().unwrap()));
    });
}

/// The answer to a ping waits for another answer to go with, but not for long.
#[test]
fn a_ping_is_answered_though_nothing_else_is() {
    with_client(Limits::default(), |mut client| async move {
        client.pings.ping(h2::Ping::opaque()).await.unwrap();
        let ready = client.send.clone().ready().await;
        let (answer, mut stream) = ready.unwrap().send_request(request("Never", None), false).unwrap();
        stream.send_data(framed(b""), true).unwrap();
        for _ in 0..3 {
            client.pings.ping(h2::Ping::opaque()).await.unwrap();
        }
        let (_, trailers) = client.call(request("Say", None), framed(b"hello")).await;
        assert_eq!(trailers["grpc-status"], "0");
        client.pings.ping(h2::Ping::opaque()).await.unwrap();
        drop((answer, stream));
    });
}

#[test]
fn a_large_answer_arrives_in_full() {
    with_client(Limits { message_bytes_max: 1 << 20, ..Limits::default() }, |mut client| async move {
        let large = framed(&vec![9; 60_000]);
        let (body, _) = client.call(request("Say", None), large.clone()).await;
        assert_eq!(body, large);
    });
}

#[test]
fn errors_are_those_that_grpc_clients_know() {
    with_client(Limits { message_bytes_max: 10, ..Limits::default() }, |mut client| async move {
        let (_, trailers) = client.call(request("Shout", None), framed(b"")).await;
        assert_eq!(trailers["grpc-status"], "12");
        assert_eq!(trailers["grpc-message"], "unknown method Shout for service test.Test");
        let (_, trailers) = client.call(request("Say", None), framed(b"hello world")).await;
        assert_eq!(trailers["grpc-status"], "8");
        assert_eq!(trailers["grpc-message"], "grpc: received message larger than max (11 vs. 10)");
        let (_, trailers) = client.call(request("Say", None), Bytes::new()).await;
        assert_eq!(trailers["grpc-status"], "13");
        let (_, trailers) = client.call(request("Never", Some("20m")), framed(b"")).await;
        assert_eq!(trailers["grpc-status"], "4");
        assert_eq!(trailers["grpc-message"], "context deadline exceeded");
    });
}

#[test]
fn compressed_messages_are_taken_where_the_service_knows_how_and_count_as_what_comes_out() {
    let compressed = |message: &[u8]| -> Bytes { [&[1], &framed(message)[1..]].concat().into() };
    with_client(Limits { message_bytes_max: 500, ..Limits::default() }, move |mut client| async move {
        let request = |method: &str, encoding: &'static str| {
            let mut request = request(method, None);
            request.headers_mut().insert("grpc-encoding", HeaderValue::from_static(encoding));
            request
        };
        let (body, _) = client.call(request("Say", "repeat"), compressed(&[2, 1])).await;
        assert_eq!(&body[HEAD_BYTES..], [2, 2, 1]);
        // A flag of 0 says that this one is as it is.
        let (body, _) = client.call(request("Say", "repeat"), framed(b"ab")).await;
        assert_eq!(&body[HEAD_BYTES..], b"ab");
        let mixed = [compressed(&[3]), framed(b"x"), compressed(&[1, 1])].concat();
        let (body, _) = client.call(request("Repeat", "repeat"), mixed.into()).await;
        let expected = [framed(&[3, 3, 3]), framed(b"x"), framed(&[1, 1])].concat();
        assert_eq!(body, expected);
        for (encoding, message, status) in [
            ("repeat", compressed(&[250, 250, 250]), "8"),
            ("other", compressed(&[1]), "12"),
            ("identity", compressed(&[1]), "12"),
            ("repeat", Bytes::from_static(&[2, 0, 0, 0, 0]), "12"),
        ] {
            let (_, trailers) = client.call(request("Say", encoding), message).await;
            assert_eq!(trailers["grpc-status"], status, "{encoding}");
            assert_eq!(trailers["grpc-accept-encoding"], "repeat", "{encoding}");
        }
        assert_eq!(client.memory.taken(), 0);
    });
}

#[test]
fn answers_are_compressed_for_who_takes_that_and_short_ones_stay_as_they_are() {
    with_client(Limits::default(), |mut client| async move {
        let compressed = |length: u64| [&[1, 0, 0, 0, 8][..], &length.to_be_bytes()].concat();
        let (long, short, other) = (framed(&[7; 70_000]), framed(&[7; 1_000]), framed(&[8; 70_000]));
        for (accepted, is_taken) in [(Some("gzip,sevens"), true), (Some("gzip"), false), (None, false)] {
            let request = |method: &str| {
                let mut request = request(method, None);
                if let Some(accepted) = accepted {
                    request.headers_mut().insert("grpc-accept-encoding", HeaderValue::from_static(accepted));
                }
                request
            };
            let long_answer = if is_taken { compressed(70_000) } else { long.to_vec() };
            for (sent, expected) in [(&long, &long_answer[..]), (&short, &short), (&other, &other)] {
                let (head, body, trailers) = client.call_with_head(request("Say"), sent.clone()).await;
                assert_eq!(head.get("grpc-encoding").is_some_and(|encoding| encoding == "sevens"), is_taken);
                assert_eq!((&body[..], &trailers["grpc-status"]), (expected, &HeaderValue::from_static("0")));
            }
            let all = [&long[..], &short, &other, &long].concat();
            let expected = [&long_answer[..], &short, &other, &long_answer].concat();
            let (head, body, _) = client.call_with_head(request("Repeat"), all.into()).await;
            assert_eq!((head.contains_key("grpc-encoding"), body), (is_taken, expected.into()));
        }
        let mut failing = request("Say", None);
        failing.headers_mut().insert("grpc-accept-encoding", HeaderValue::from_static("sevens"));
        let (head, _, trailers) = client.call_with_head(failing, framed(b"")).await;
        assert_eq!((&trailers["grpc-status"], head.get("grpc-encoding")), (&HeaderValue::from_static("5"), None));
    });
}

#[test]
fn what_comes_out_of_a_message_has_no_more_room_than_the_connection_has() {
    let limits = Limits { message_bytes_max: 1 << 20, connection_messages_bytes_max: 1, ..Limits::default() };
    with_client(limits, |mut client| async move {
        let mut request = request("Repeat", None);
        request.headers_mut().insert("grpc-encoding", HeaderValue::from_static("repeat"));
        // A mebibyte and more, of four kibibytes.
        let message = vec![255; 4_200];
        let frame = [&[1], &framed(&message)[1..]].concat();
        let (_, trailers) = client.call(request, frame.into()).await;
        assert_eq!(trailers["grpc-status"], "8", "{trailers:?}");
    });
}

#[test]
fn a_client_that_does_not_read_is_not_written_to() {
    with_client(Limits::default(), |client| async move {
        let told = Rc::clone(&client.told);
        let ready = client.send.clone().ready().await;
        let (answer, mut stream) = ready.unwrap().send_request(request("Flood", None), false).unwrap();
        stream.send_data(framed(b""), true).unwrap();
        let answer = answer.await.unwrap();
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert!(told.sent.get() <= 1, "{} MiB were handed over to a client with a window of 64 KiB", told.sent.get());
        drop((answer, stream));
    });
}

#[test]
fn a_stop_ends_streams_and_then_the_connection() {
    with_client(Limits::default(), |client| async move {
        let ready = client.send.clone().ready().await;
        let (answer, mut stream) = ready.unwrap().send_request(request("Repeat", None), false).unwrap();
        stream.send_data(framed(b"one"), false).unwrap();
        let mut body = answer.await.unwrap().into_body();
        assert_eq!(body.data().await.unwrap().unwrap(), framed(b"one"));
        client.stop.send_replace(true);
        assert!(body.data().await.is_none());
        assert_eq!(body.trailers().await.unwrap().unwrap()["grpc-status"], "14");
        drop((client.send, stream, body));
        client.server.await.unwrap();
    });
}

/// Some clients lose an answer that they have not read yet when their stream is reset.
#[test]
fn a_client_that_is_answered_before_its_last_request_is_not_reset_at_once() {
    with_client(Limits::default(), |mut client| async move {
        for ends in [true, false] {
            let ready = client.send.clone().ready().await;
            let (answer, mut stream) = ready.unwrap().send_request(request("First", None), false).unwrap();
            stream.send_data(framed(b"one"), false).unwrap();
            let mut body = answer.await.unwrap().into_body();
            assert_eq!(body.data().await.unwrap().unwrap(), framed(b"one"));
            assert_eq!(body.trailers().await.unwrap().unwrap()["grpc-status"], "0");
            // More than it may send ahead.
            for _ in 0..40 {
                stream.reserve_capacity(1 << 16);
                while stream.capacity() < 1 << 16 {
                    poll_fn(|context| stream.poll_capacity(context)).await.unwrap().unwrap();
                }
                stream.send_data(vec![7; 1 << 16].into(), false).unwrap();
            }
            let began = std::time::Instant::now();
            if ends {
                stream.send_data(Bytes::new(), true).unwrap();
                client.pings.ping(h2::Ping::opaque()).await.unwrap();
                continue;
            }
            let reset = poll_fn(|context| stream.poll_reset(context)).await;
            assert_eq!(reset.unwrap(), h2::Reason::NO_ERROR);
            assert!(began.elapsed() > super::connection::HEARING_OUT / 2, "{:?}", began.elapsed());
        }
    });
}

/// A message in two pieces is counted as long as it is under way and as it is worked on.
#[test]
fn messages_under_way_take_no_more_memory_than_they_may() {
    // For what calls take besides.
    const CALLS: usize = 64 << 10;
    let mebibyte = 1 << 20;
    let limits = Limits {
        message_bytes_max: mebibyte,
        connection_messages_bytes_max: 3 * mebibyte + CALLS,
        stream_window_bytes: 2 << 20,
        connection_window_bytes: 8 << 20,
        ..Limits::default()
    };
    with_client(limits, move |mut client| async move {
        let begun = |bytes: usize| framed(&vec![7; mebibyte]).slice(..bytes);
        let mut held = Vec::new();
        for number in 1..=3 {
            let ready = client.send.clone().ready().await;
            let (answer, mut stream) = ready.unwrap().send_request(request("Repeat", None), false).unwrap();
            stream.send_data(begun(mebibyte), false).unwrap();
            held.push((answer, stream));
            // Less what the connection has of its own.
            while client.memory.taken() + CALLS < number * mebibyte {
                tokio::task::yield_now().await;
            }
        }
        let (_, trailers) = client.call(request("Say", None), framed(b"a small one has room")).await;
        assert_eq!(trailers["grpc-status"], "0");
        let ready = client.send.clone().ready().await;
        let (answer, mut stream) = ready.unwrap().send_request(request("Repeat", None), false).unwrap();
        stream.send_data(begun(mebibyte), false).unwrap();
        let head = answer.await.unwrap();
        assert_eq!(head.headers()["grpc-status"], "8");
        let said = head.headers()["grpc-message"].to_str().unwrap();
        assert!(said.ends_with("messages under way on a connection may take 3211264"), "{said}");
        drop((held, stream));
        while client.memory.taken() > 0 {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn a_length_that_is_only_claimed_takes_no_memory() {
    let limits = Limits { message_bytes_max: 4 << 20, ..Limits::default() };
    with_client(limits, |client| async move {
        let mut held = Vec::new();
        for method in ["Say", "Repeat"].into_iter().cycle().take(64) {
            let ready = client.send.clone().ready().await;
            let (answer, mut stream) = ready.unwrap().send_request(request(method, None), false).unwrap();
            let head = [&[0][..], &(4_u32 << 20).to_be_bytes(), &[7; 50]].concat();
            stream.send_data(head.into(), false).unwrap();
            held.push((answer, stream));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        let of_messages = client.memory.taken().saturating_sub(64 * CALL_BYTES);
        assert!(of_messages < 64 << 10, "{of_messages} bytes for 3 KB");
    });
}

#[test]
fn a_message_that_stands_still_is_ended() {
    // Pieces come four times as often as they must, for the machine may stand still between them.
    let limits = Limits { message_patience: Duration::from_secs(1), ..Limits::default() };
    with_client(limits, |client| async move {
        for method in ["Say", "Repeat"] {
            let ready = client.send.clone().ready().await;
            let (answer, mut stream) = ready.unwrap().send_request(request(method, None), false).unwrap();
            for _ in 0..6 {
                // It goes on, and is not ended for that.
                stream.send_data(framed(&[7; 1000]).slice(..100), false).unwrap();
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
            let head = answer.await.unwrap();
            assert_eq!(head.headers()["grpc-status"], "4", "{method}");
        }
        assert_eq!(client.memory.taken(), 0);
    });
}

#[test]
fn who_may_not_call_is_told_before_anything_is_read_and_a_request_is_no_longer_than_its_method_allows() {
    with_client(Limits::default(), |mut client| async move {
        let with = |name: &'static str| {
            let mut request = request("Say", None);
            request.headers_mut().insert(name, HeaderValue::from_static("10"));
            request
        };
        let ready = client.send.clone().ready().await;
        let (answer, _stream) = ready.unwrap().send_request(with("unknown"), false).unwrap();
        assert_eq!(answer.await.unwrap().headers()["grpc-status"], "16");
        let (_, trailers) = client.call(with("longest"), framed(&[7; 10])).await;
        assert_eq!(trailers["grpc-status"], "0");
        let (_, trailers) = client.call(with("longest"), framed(&[7; 11])).await;
        assert_eq!(trailers["grpc-status"], "8");
    });
}

#[test]
fn an_answer_that_nobody_takes_is_ended_and_gives_its_memory_back() {
    let limits = Limits { answer_patience: Duration::from_millis(100), ..Limits::default() };
    with_client(limits, |client| async move {
        let ready = client.send.clone().ready().await;
        let (answer, mut stream) = ready.unwrap().send_request(request("Say", None), false).unwrap();
        stream.send_data(framed(&vec![7; 1 << 20]), true).unwrap();
        let mut body = answer.await.unwrap().into_body();
        assert!(client.memory.taken() > 512 << 10);
        while client.memory.taken() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        while let Some(piece) = body.data().await {
            assert!(!piece.unwrap().is_empty());
        }
        assert_eq!(body.trailers().await.unwrap().unwrap()["grpc-status"], "4");
    });
}
