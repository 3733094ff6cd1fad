//! Clients that begin much and finish nothing, and messages that become much longer than they came: others are answered meanwhile.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tokio::io::{AsyncRead, DuplexStream, ReadBuf, ReadHalf};

use super::*;

const MEBIBYTE: usize = 1 << 20;

fn limits() -> Limits {
    Limits { message_bytes_max: MEBIBYTE, connection_window_bytes: 8 << 20, ..Limits::default() }
}

fn with_encoding(method: &str, wait: Option<&str>, encoding: &'static str) -> Request<()> {
    let mut request = request(method, wait);
    request.headers_mut().insert("grpc-encoding", HeaderValue::from_static(encoding));
    request
}

/// Five messages filled all the room that there was, and whoever sent a short one was refused for as long as they liked.
#[test]
fn messages_that_stand_still_make_room_for_those_that_come() {
    with_client(limits(), |mut client| async move {
        let (part, room) = (800_000, 4 << 20);
        let mut held = Vec::new();
        for number in 1..=5 {
            let ready = client.send.clone().ready().await;
            let (answer, mut stream) = ready.unwrap().send_request(request("Repeat", None), false).unwrap();
            stream.send_data(framed(&vec![7; MEBIBYTE]).slice(..part), false).unwrap();
            held.push((answer, stream));
            // Less what the connection has of its own.
            while client.memory.taken() + (64 << 10) < number * part {
                tokio::task::yield_now().await;
            }
        }
        assert!(client.memory.taken() + 400_000 > room, "{} bytes: this test shows nothing", client.memory.taken());
        for method in ["Repeat", "Say"].into_iter().cycle().take(6) {
            let message = framed(&vec![8; 400_000]);
            let (body, trailers) = client.call(request(method, None), message.clone()).await;
            assert_eq!(
                (&trailers["grpc-status"], body == message),
                (&HeaderValue::from_static("0"), true),
                "{trailers:?}"
            );
        }
        let told = held.remove(0).0.await.unwrap();
        assert_eq!(told.headers()["grpc-status"], "8");
        let said = told.headers()["grpc-message"].to_str().unwrap();
        assert!(said.starts_with("grpc: a message of which") && said.contains("made room for others"), "{said}");
        // One was enough for six that came one after the other, and the others go on.
        for (answer, mut stream) in held {
            stream.send_data(framed(&vec![7; MEBIBYTE]).slice(part..), true).unwrap();
            assert!(!answer.await.unwrap().headers().contains_key("grpc-status"));
        }
    });
}

/// Those of which nothing but the head had come were all in turn, and so were those that came with one read: five thousand of them had 70 MB
/// of answers made for a client that took none.
#[test]
fn calls_that_come_together_are_not_all_answered_at_once() {
    const CALLS: usize = 40;
    for begin_first in [true, false] {
        with_memory(Memory::new(64 << 20), limits(), move |mut client| async move {
            let mut calls = Vec::new();
            for _ in 0..CALLS {
                let ready = client.send.clone().ready().await;
                let (answer, mut stream) = ready.unwrap().send_request(request("Long", None), false).unwrap();
                if !begin_first {
                    stream.send_data(framed(b""), true).unwrap();
                }
                calls.push((answer, stream));
            }
            client.pings.ping(h2::Ping::opaque()).await.unwrap();
            for (_, stream) in calls.iter_mut().filter(|_| begin_first) {
                stream.send_data(framed(b""), true).unwrap();
            }
            for _ in 0..3 {
                client.pings.ping(h2::Ping::opaque()).await.unwrap();
            }
            let taken = client.memory.taken();
            assert!(taken > 3 << 20, "{taken} bytes: this test shows nothing");
            assert!(taken < 5 << 20, "4 MiB and the last one may wait: {taken}");
            // Together: what comes of one and is not read keeps room of the connection.
            futures::future::join_all(calls.into_iter().map(async |(answer, _stream)| {
                let (_, trailers) = read_out(answer.await.unwrap().into_body()).await;
                assert_eq!(trailers.unwrap()["grpc-status"], "0");
            }))
            .await;
        });
    }
}

/// What a client reads from, and does not while it is told not to.
struct Deaf(ReadHalf<DuplexStream>, Rc<Ear>);

#[derive(Default)]
struct Ear {
    is_shut: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

impl AsyncRead for Deaf {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.1.is_shut.get() {
            self.1.waker.set(Some(context.waker().clone()));
            return Poll::Pending;
        }
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

/// What HTTP/2 had been given counted nowhere until it was seen that the client does not read: with wide windows that was everything.
#[test]
fn a_client_with_wide_windows_that_reads_nothing_is_not_answered_ahead() {
    const CALLS: usize = 200;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let (near, far) = tokio::io::duplex(64 << 10);
        let (told, ear) = (Rc::new(Told::default()), Rc::new(Ear::default()));
        let (_stop, stopped) = watch::channel(false);
        let bounds = (limits(), Memory::new(64 << 20));
        let service = Rc::new(Shared(Rc::clone(&told)));
        tokio::task::spawn_local(serve(near, service, Rc::default(), bounds, (Presence::begin(), stopped)));
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(MEBIBYTE as u32).initial_connection_window_size(1 << 30);
        let (read, write) = tokio::io::split(far);
        let io = tokio::io::join(Deaf(read, Rc::clone(&ear)), write);
        let (send, mut connection) = builder.handshake(io).await.unwrap();
        let mut pings = connection.ping_pong().unwrap();
        tokio::task::spawn_local(connection);
        pings.ping(h2::Ping::opaque()).await.unwrap();
        ear.is_shut.set(true);
        let mut answers = Vec::new();
        for _ in 0..CALLS {
            let ready = send.clone().ready().await;
            let (answer, mut stream) = ready.unwrap().send_request(request("Long", None), false).unwrap();
            stream.send_data(framed(b""), true).unwrap();
            answers.push(answer);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let made = told.sent.get();
        assert!((1..=17).contains(&made), "4 MiB and the last one may wait: {made} quarters of a mebibyte");
        ear.is_shut.set(false);
        ear.waker.take().unwrap().wake();
        let all = futures::future::join_all(answers.into_iter().map(async |answer| {
            let (_, trailers) = read_out(answer.await.unwrap().into_body()).await;
            assert_eq!(trailers.unwrap()["grpc-status"], "0");
        }));
        timeout(Duration::from_secs(60), all).await.unwrap();
        assert_eq!(told.sent.get(), CALLS);
    });
}

static IS_UNPACKED: AtomicBool = AtomicBool::new(false);
static MAY_GO_ON: AtomicBool = AtomicBool::new(false);
static WAS_GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// Becomes a mebibyte when the test says so.
pub(super) fn waiting(
    _: &[u8],
    _: usize,
    room: &mut dyn FnMut(usize) -> Result<(), Status>,
) -> Result<Vec<u8>, Status> {
    room(MEBIBYTE)?;
    IS_UNPACKED.store(true, Ordering::SeqCst);
    let began = Instant::now();
    while !MAY_GO_ON.load(Ordering::SeqCst) {
        if began.elapsed() > Duration::from_secs(10) {
            return Err(Status::new(Code::Unavailable, "nobody said that it may go on"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(vec![7; MEBIBYTE])
}

/// Is unpacked until there is no more room for it, or nobody waits.
pub(super) fn endless(
    _: &[u8],
    _: usize,
    room: &mut dyn FnMut(usize) -> Result<(), Status>,
) -> Result<Vec<u8>, Status> {
    room(MEBIBYTE)?;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(10) {
        if let Err(status) = room(0) {
            WAS_GIVEN_UP.store(true, Ordering::SeqCst);
            return Err(status);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(Status::new(Code::Unavailable, "it was not given up"))
}

fn compressed(message: &[u8]) -> Bytes {
    [&[1], &framed(message)[1..]].concat().into()
}

/// All clients of a thread waited for a second and more while one message became 130 MB.
#[test]
fn a_message_that_becomes_long_keeps_no_other_call_waiting() {
    with_client(limits(), |mut client| async move {
        let ready = client.send.clone().ready().await;
        let (answer, mut stream) = ready.unwrap().send_request(with_encoding("Say", None, "waiting"), false).unwrap();
        stream.send_data(compressed(b"short"), true).unwrap();
        while !IS_UNPACKED.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let (body, _) = client.call(request("Say", None), framed(b"meanwhile")).await;
        assert_eq!(&body[HEAD_BYTES..], b"meanwhile");
        assert!(client.memory.taken() >= MEBIBYTE, "it is counted where it is");
        MAY_GO_ON.store(true, Ordering::SeqCst);
        let mut body = answer.await.unwrap().into_body();
        let mut length = 0;
        while let Some(piece) = body.data().await {
            let piece = piece.unwrap();
            let _ = body.flow_control().release_capacity(piece.len());
            length += piece.len();
        }
        assert_eq!(length, HEAD_BYTES + MEBIBYTE);
        assert_eq!(body.trailers().await.unwrap().unwrap()["grpc-status"], "0");
        while client.memory.taken() > 0 {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn what_nobody_waits_for_is_not_unpacked_to_its_end() {
    with_client(limits(), |mut client| async move {
        // On a busy machine nobody may wait any more before it is begun.
        while !WAS_GIVEN_UP.load(Ordering::SeqCst) {
            let request = with_encoding("Say", Some("20m"), "endless");
            let (_, trailers) = client.call(request, compressed(b"short")).await;
            assert_eq!(trailers["grpc-status"], "4");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        while client.memory.taken() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

/// Who reset its stream before the end of each message took as much as it liked.
#[test]
fn what_has_come_of_a_message_is_counted_though_it_never_comes_whole() {
    with_client(limits(), |client| async move {
        let ready = client.send.clone().ready().await;
        let (answer, mut stream) = ready.unwrap().send_request(request("Repeat", None), false).unwrap();
        stream.send_data(framed(b"whole"), false).unwrap();
        stream.send_data(framed(&[7; 1_000]).slice(..500), false).unwrap();
        assert_eq!(answer.await.unwrap().into_body().data().await.unwrap().unwrap(), framed(b"whole"));
        // It has come when what was sent behind it is answered.
        let mut pings = client.pings;
        pings.ping(h2::Ping::opaque()).await.unwrap();
        assert_eq!(client.told.came.get(), 5);
        stream.send_reset(h2::Reason::CANCEL);
        while client.told.came.get() < 505 {
            tokio::task::yield_now().await;
        }
        assert_eq!(client.told.came.get(), 505);
    });
}

/// What came behind the request of a subscriber stayed in memory for as long as it was served, and filled what its connection may send ahead.
#[test]
fn what_comes_behind_the_only_request_of_a_call_takes_no_memory_and_keeps_no_other_call_waiting() {
    // A fifth of it fits into what a connection may send ahead.
    let behind = Bytes::from(vec![7; 500_000]);
    with_client(Limits::default(), |mut client| async move {
        let mut held = Vec::new();
        for method in ["Only", "Never"].into_iter().cycle().take(10) {
            let ready = client.send.clone().ready().await;
            let (answer, mut stream) = ready.unwrap().send_request(request(method, None), false).unwrap();
            // In two pieces, so that it is waited for.
            let frame = framed(b"asked");
            stream.send_data(frame.slice(..7), false).unwrap();
            client.pings.ping(h2::Ping::opaque()).await.unwrap();
            stream.send_data(frame.slice(7..), false).unwrap();
            held.push((answer, stream));
        }
        for _ in 0..2 {
            client.pings.ping(h2::Ping::opaque()).await.unwrap();
        }
        let before = client.memory.taken();
        for (_, stream) in &mut held {
            stream.send_data(behind.clone(), false).unwrap();
        }
        let message = framed(&vec![8; 100_000]);
        let (body, trailers) = client.call(request("Say", None), message.clone()).await;
        assert_eq!((&trailers["grpc-status"], body == message), (&HeaderValue::from_static("0"), true));
        assert_eq!(client.memory.taken(), before);
        client.stop.send_replace(true);
        for (answer, _stream) in held.into_iter().step_by(2) {
            assert_eq!(answer.await.unwrap().headers()["grpc-status"], "14", "it went on until the server stopped");
        }
    });
}
