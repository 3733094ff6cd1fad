//! Answers to requests that are no gRPC, to a client that does not take them.

use h2::client::ResponseFuture;
use http::{Response, StatusCode};

use super::*;
use crate::http::{Body, text};

const MEBIBYTE: usize = 1 << 20;

/// A mebibyte, or at `/stream` a mebibyte at a time without end; each that is made is counted.
pub(super) fn answer(told: Rc<Told>, path: &str) -> Response<Body> {
    let make = move || {
        told.sent.update(|sent| sent + 1);
        "x".repeat(MEBIBYTE)
    };
    match path {
        "/stream" => {
            let pieces = futures::stream::repeat_with(move || Bytes::from(make()));
            Response::new(Body::Stream(Box::pin(pieces)))
        }
        _ => text(StatusCode::OK, make()),
    }
}

/// This.
pub(super) fn short(said: &str) -> Response<Body> {
    text(StatusCode::OK, said.into())
}

async fn get(client: &Client, path: &str) -> ResponseFuture {
    let request = Request::get(format!("http://test{path}")).body(()).unwrap();
    let (answer, _) = client.send.clone().ready().await.unwrap().send_request(request, true).unwrap();
    answer
}

/// A hundred of 8 MiB took 735 MB; and those of `/metrics` need nobody to log in.
#[test]
fn answers_that_are_no_grpc_count_until_the_client_takes_them() {
    with_client(Limits::default(), |client| async move {
        let mut heads = Vec::new();
        for _ in 0..6 {
            heads.push(get(&client, "/").await.await.unwrap());
        }
        let (taken, refused): (Vec<_>, Vec<_>) = heads.into_iter().partition(|head| head.status() == StatusCode::OK);
        // All have 4 MiB, answers half of it, and those for one host three quarters of that.
        assert_eq!(taken.len(), 1);
        assert!(refused.iter().all(|head| head.status() == StatusCode::TOO_MANY_REQUESTS));
        assert!(client.memory.taken() > MEBIBYTE * 3 / 4, "{} bytes", client.memory.taken());
        let mut bytes = 0;
        for head in taken {
            let mut body = head.into_body();
            while let Some(piece) = body.data().await {
                let piece = piece.unwrap();
                let _ = body.flow_control().release_capacity(piece.len());
                bytes += piece.len();
            }
        }
        assert_eq!(bytes, MEBIBYTE);
        while client.memory.taken() > 0 {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn streams_that_are_no_grpc_wait_for_each_other_when_nobody_reads_them() {
    with_client(Limits::default(), |client| async move {
        let mut bodies = Vec::new();
        for _ in 0..8 {
            bodies.push(get(&client, "/stream").await.await.unwrap().into_body());
        }
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(client.told.sent.get(), 4, "4 MiB may wait");
        assert!(client.memory.taken() > 3 * MEBIBYTE, "{} bytes", client.memory.taken());
        drop(bodies);
        // Who has gone waits for nothing.
        while client.memory.taken() > 0 {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn an_answer_that_is_no_grpc_and_that_nobody_takes_is_ended_and_gives_its_memory_back() {
    for path in ["/", "/stream"] {
        let limits = Limits { answer_patience: Duration::from_millis(100), ..Limits::default() };
        with_client(limits, move |client| async move {
            let mut body = get(&client, path).await.await.unwrap().into_body();
            let ended = loop {
                match body.data().await {
                    Some(Ok(_)) => {}
                    ended => break ended,
                }
            };
            // Not as if that were all.
            assert_eq!(ended.unwrap().unwrap_err().reason(), Some(h2::Reason::CANCEL), "{path}");
            while client.memory.taken() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
    }
}
