//! The client against a server that speaks HTTP/2 correctly and gRPC as badly as a test asks.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::grpc::Code;

const LIMIT: Duration = Duration::from_millis(500);

fn run<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}

/// What the server does with each request.
#[derive(Clone)]
enum Answer {
    /// Headers, these chunks of body, then this grpc-status and message.
    Body(Vec<Vec<u8>>, Option<&'static str>, &'static str),
    /// Only headers: HTTP status, grpc-status, content-type.
    HeadersOnly(u16, Option<&'static str>, &'static str),
    Reset,
    Silence,
    GoAway,
}

async fn serve(answer: Answer) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(socket).await.unwrap();
                let mut kept = Vec::new();
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    match &answer {
                        Answer::Body(chunks, status, message) => {
                            let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
                            let mut body = respond.send_response(head, false).unwrap();
                            for chunk in chunks {
                                body.send_data(Bytes::from(chunk.clone()), false).unwrap();
                            }
                            let mut trailers = HeaderMap::new();
                            if let Some(status) = status {
                                trailers.insert("grpc-status", HeaderValue::from_static(status));
                            }
                            trailers.insert("grpc-message", HeaderValue::from_static(message));
                            body.send_trailers(trailers).unwrap();
                        }
                        Answer::HeadersOnly(http_status, status, content_type) => {
                            let mut head =
                                Response::builder().status(*http_status).header("content-type", *content_type);
                            if let Some(status) = status {
                                head = head.header("grpc-status", *status).header("grpc-message", "no%20room");
                            }
                            respond.send_response(head.body(()).unwrap(), true).unwrap();
                        }
                        Answer::Reset => respond.send_reset(h2::Reason::REFUSED_STREAM),
                        Answer::Silence => kept.push(respond),
                        Answer::GoAway => {
                            connection.abrupt_shutdown(h2::Reason::ENHANCE_YOUR_CALM);
                            drop(poll_fn(|context| connection.poll_closed(context)).await);
                            return;
                        }
                    }
                }
            });
        }
    });
    address
}

/// Messages are strings by themselves: prost encodes one as a message with one field.
async fn ask(address: SocketAddr) -> Result<String, GrpcError> {
    let mut channel = Channel::connect(&address.to_string(), Options::new(LIMIT)).await?;
    let call = channel.call("/test.Test/Ask");
    channel.unary(&call, &String::new()).await
}

fn answer_to(answer: Answer) -> Result<String, GrpcError> {
    run(async { ask(serve(answer).await).await })
}

fn frame_of(number: i64) -> Vec<u8> {
    encode(&number.to_string()).to_vec()
}

#[test]
fn an_answer_is_read_however_it_is_cut() {
    let frame = frame_of(1 << 40);
    for cut in 1..frame.len() {
        let chunks = vec![frame[..cut].to_vec(), frame[cut..].to_vec()];
        let answer = answer_to(Answer::Body(chunks, Some("0"), "")).unwrap();
        assert_eq!(answer, (1_i64 << 40).to_string());
    }
}

#[test]
fn error_statuses_are_told_from_trailers_and_from_headers() {
    let error = answer_to(Answer::Body(vec![], Some("5"), "lease%20not%20found")).unwrap_err();
    assert_eq!(error.to_string(), "server answered NotFound (code 5): lease not found");
    // A message does not excuse an error status.
    let error = answer_to(Answer::Body(vec![frame_of(1)], Some("14"), "")).unwrap_err();
    assert!(matches!(error, GrpcError::Status(status) if status.code == Code::Unavailable));
    let error = answer_to(Answer::HeadersOnly(200, Some("8"), "application/grpc")).unwrap_err();
    assert_eq!(error.to_string(), "server answered ResourceExhausted (code 8): no room");
}

#[test]
fn answers_that_are_not_grpc_are_told_apart() {
    for (answer, expected) in [
        (Answer::HeadersOnly(404, None, "text/html"), "HTTP status 404"),
        (Answer::HeadersOnly(200, None, "text/html"), "content-type \"text/html\""),
        (Answer::HeadersOnly(200, None, "application/grpc"), "without a grpc-status"),
        (Answer::HeadersOnly(200, Some("0"), "application/grpc"), "without a grpc-status"),
        (Answer::Body(vec![frame_of(1)], None, ""), "without a grpc-status"),
        (Answer::Body(vec![], Some("0"), ""), "without a message"),
        (Answer::Body(vec![frame_of(1), frame_of(2)], Some("0"), ""), "more than one message"),
        (Answer::Body(vec![vec![1, 0, 0, 0, 0]], Some("0"), ""), "compressed flag 1"),
        (Answer::Body(vec![vec![0, 255, 255, 255, 255]], Some("0"), ""), "larger than max (4294967295 vs. 1073741824)"),
        (Answer::Body(vec![frame_of(1)[..6].to_vec()], Some("0"), ""), "unexpected EOF"),
        (Answer::Body(vec![vec![0, 0, 0, 0, 1, 0xff]], Some("0"), ""), "undecodable message"),
    ] {
        let error = answer_to(answer).unwrap_err().to_string();
        assert!(error.contains(expected), "{error} should contain {expected}");
    }
}

#[test]
fn resets_and_goaways_are_broken_connections() {
    let error = answer_to(Answer::Reset).unwrap_err();
    assert!(matches!(&error, GrpcError::Broken(text) if text.contains("refused")), "{error:?}");
    // HTTP/2 counts a stream that the GOAWAY still admits as broken by the end of the connection, not by the GOAWAY.
    let error = answer_to(Answer::GoAway).unwrap_err();
    assert!(matches!(error, GrpcError::Broken(_)), "{error:?}");
}

#[test]
fn silence_ends_at_the_limit_and_the_connection_lives_on() {
    run(async {
        let address = serve(Answer::Silence).await;
        let mut channel = Channel::connect(&address.to_string(), Options::new(LIMIT)).await.unwrap();
        let call = channel.call("/test.Test/Ask");
        for _ in 0..2 {
            let error = channel.unary::<String, String>(&call, &String::new()).await.unwrap_err();
            assert_eq!(error, GrpcError::TimedOut(LIMIT));
        }
    });
}

#[test]
fn whoever_does_not_speak_http2_is_an_error_within_the_limit() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut bytes = [0; 16];
                drop(socket.read(&mut bytes).await);
                drop(socket.write_all(b"-ERR unknown command 'PRI'\r\n").await);
            }
        });
        assert!(matches!(ask(address).await, Err(GrpcError::Broken(_))));
    });
}

#[test]
fn what_is_no_address_is_told() {
    let (near, _far) = tokio::io::duplex(64);
    let error = run(async { Channel::over(near, "no port/", Options::new(LIMIT)).await.unwrap_err() });
    assert!(error.to_string().starts_with("no port/ is not an address"), "{error}");
    let error = run(async { Channel::connect("no port/", Options::new(LIMIT)).await.unwrap_err() });
    assert!(error.to_string().starts_with("connect to no port/: "), "{error}");
}

#[test]
fn a_stream_gives_its_messages_in_order_then_its_end() {
    run(async {
        let mut frames = frame_of(1);
        frames.extend(frame_of(2));
        let (first, second) = frames.split_at(3);
        let chunks = vec![first.to_vec(), second.to_vec(), frame_of(3)];
        for (status, ends_well) in [("0", true), ("1", false)] {
            let address = serve(Answer::Body(chunks.clone(), Some(status), "")).await;
            let mut channel = Channel::connect(&address.to_string(), Options::new(LIMIT)).await.unwrap();
            let call = channel.call("/test.Test/Stream");
            let (mut sender, mut receiver) = channel.stream::<String, String>(&call, &String::new()).await.unwrap();
            for number in 1..=3 {
                assert_eq!(receiver.next().await, Ok(Some(number.to_string())));
            }
            assert_eq!(receiver.next().await.is_ok_and(|end| end.is_none()), ends_well);
            // Over stays over.
            assert!(receiver.next().await.is_ok_and(|end| end.is_none()));
            drop(sender.finish());
        }
    });
}
