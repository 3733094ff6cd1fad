//! A client that says and reads bytes, against a service of the tests.

use http::{StatusCode, request};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::watch;
use tokio::task::LocalSet;
use tokio::time::sleep;

use super::*;
use crate::grpc::{Caller, HttpAnswer, Requests, Responses, Stream as Call, Unary};
use crate::http::{Incoming, text};
use crate::places::Presence;

const MEBIBYTE: usize = 1 << 20;
const LONG: Duration = Duration::from_secs(60);

/// Says a mebibyte, and at `/small` a word.
struct Large;

impl Service for Large {
    type Method = Infallible;

    fn method(&self, _: &str) -> Option<(Infallible, bool)> {
        None
    }

    fn unary(&self, method: Infallible, _: Caller, _: Bytes) -> Unary {
        match method {}
    }

    fn stream(&self, method: Infallible, _: Caller, _: Requests, _: Responses) -> Call {
        match method {}
    }

    fn http(&self, head: request::Parts, _: Incoming, _: Rc<Peer>) -> Option<HttpAnswer> {
        let said = if head.uri.path() == "/small" { "ok".into() } else { "x".repeat(MEBIBYTE) };
        Some(Box::pin(async move { text(StatusCode::OK, said) }))
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async { timeout(LONG, test).await.unwrap() });
}

/// A client that has asked and been answered so, and has read no more than that; a kibibyte is on its way at a time.
async fn asked(path: &str, memory: &Memory, answer_patience: Duration) -> (DuplexStream, String) {
    let (near, mut client) = tokio::io::duplex(1 << 10);
    let bounds = (Limits { answer_patience, ..Limits::default() }, memory.clone());
    tokio::task::spawn_local(async move {
        let (_stop, stopped) = watch::channel(false);
        serve(near, Rc::new(Large), Rc::new(Peer::default()), bounds, (Presence::begin(), stopped)).await;
    });
    let request = format!("GET {path} HTTP/1.1\r\nHost: it\r\nConnection: close\r\n\r\n");
    // Whose head is too long is not heard to the end.
    let _ = client.write_all(request.as_bytes()).await;
    let mut head = [0; 12];
    client.read_exact(&mut head).await.unwrap();
    (client, String::from_utf8(head.to_vec()).unwrap())
}

/// Sixty connections that read nothing took 1.2 GB.
#[test]
fn answers_count_until_the_client_takes_them_and_small_ones_go_all_the_same() {
    run(async {
        // Answers have half of it.
        let memory = Memory::new(2 * MEBIBYTE);
        let (mut first, said) = asked("/", &memory, LONG).await;
        assert_eq!(said, "HTTP/1.1 200");
        assert!(memory.taken() > MEBIBYTE * 9 / 10, "{} bytes", memory.taken());
        let (_second, said) = asked("/", &memory, LONG).await;
        assert_eq!(said, "HTTP/1.1 429");
        let (_small, said) = asked("/small", &memory, LONG).await;
        assert_eq!(said, "HTTP/1.1 200");
        let mut rest = Vec::new();
        first.read_to_end(&mut rest).await.unwrap();
        assert!(rest.len() > MEBIBYTE && rest.ends_with(b"xxx"));
        assert_eq!(memory.taken(), 0);
        assert_eq!(asked("/", &memory, LONG).await.1, "HTTP/1.1 200");
    });
}

#[test]
fn a_client_that_does_not_take_its_answer_is_left_and_one_that_is_slow_is_not() {
    run(async {
        let memory = Memory::new(8 * MEBIBYTE);
        let (mut still, said) = asked("/", &memory, Duration::from_millis(100)).await;
        assert_eq!(said, "HTTP/1.1 200");
        while memory.taken() > 0 {
            sleep(Duration::from_millis(10)).await;
        }
        let mut rest = Vec::new();
        still.read_to_end(&mut rest).await.unwrap();
        assert!(rest.len() < MEBIBYTE, "{} bytes", rest.len());
        // For longer than the patience, in which it must take two of these pieces.
        let (mut slow, _) = asked("/", &memory, Duration::from_secs(2)).await;
        let mut piece = vec![0; MEBIBYTE / 8];
        for _ in 0..8 {
            sleep(Duration::from_millis(300)).await;
            slow.read_exact(&mut piece).await.unwrap();
        }
    });
}

/// They could be of 400 KiB.
#[test]
fn heads_are_as_long_as_on_connections_of_grpc() {
    run(async {
        let memory = Memory::new(MEBIBYTE);
        let path = |bytes| format!("/small?{}", "x".repeat(bytes));
        assert_eq!(asked(&path(48 << 10), &memory, LONG).await.1, "HTTP/1.1 200");
        assert_eq!(asked(&path(HEAD_BYTES_MAX), &memory, LONG).await.1, "HTTP/1.1 431");
    });
}
