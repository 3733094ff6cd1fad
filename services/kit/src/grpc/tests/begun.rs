//! Calls that are begun and of which nothing more comes, and those that anybody may make and never ends.

use super::*;

const MEBIBYTE: usize = 1 << 20;

type Held = (h2::client::ResponseFuture, h2::SendStream<Bytes>);

fn limits() -> Limits {
    Limits { message_bytes_max: MEBIBYTE, connection_window_bytes: 8 << 20, ..Limits::default() }
}

/// Of this type, with nearly as much of headers as a request may have.
fn with_long_headers(method: &str, content_type: &'static str) -> Request<()> {
    let mut request = request(method, None);
    request.headers_mut().insert("content-type", HeaderValue::from_static(content_type));
    for number in 0..10 {
        let name = http::HeaderName::try_from(format!("x{number}")).unwrap();
        request.headers_mut().insert(name, HeaderValue::try_from("a".repeat(6_000)).unwrap());
    }
    request
}

impl Client {
    async fn begin(&self, request: Request<()>) -> Held {
        self.send.clone().ready().await.unwrap().send_request(request, false).unwrap()
    }

    /// Waits until what was sent before has come.
    async fn settle(&mut self) {
        for _ in 0..2 {
            self.pings.ping(h2::Ping::opaque()).await.unwrap();
        }
    }

    async fn says(&mut self, message: Bytes) {
        let (body, trailers) = self.call(request("Say", None), message.clone()).await;
        assert_eq!((&trailers["grpc-status"], body == message), (&HeaderValue::from_static("0"), true), "{trailers:?}");
    }
}

/// Heads of calls whose message never began took all the room that there was, and every message that came in more than one piece was refused for
/// as long as they liked.
#[test]
fn calls_of_which_nothing_has_come_make_room_for_messages() {
    for (method, content_type) in [("Say", "application/grpc"), ("Repeat", "application/grpc"), ("wait", "text/plain")]
    {
        with_client(limits(), move |mut client| async move {
            let mut held = Vec::new();
            for _ in 0..90 {
                held.push(client.begin(with_long_headers(method, content_type)).await);
            }
            client.settle().await;
            let taken = client.memory.taken();
            assert!(taken > 3_900_000, "{taken} bytes: this test shows nothing");
            for _ in 0..6 {
                client.says(framed(&vec![8; 400_000])).await;
            }
            assert!(client.memory.taken() <= taken);
        });
    }
}

/// The first message of a stream is whole, and what its head took stays with it.
#[test]
fn streams_that_anybody_may_open_make_room_for_messages_however_much_they_have_said() {
    with_memory(Memory::new(480 << 10), limits(), |mut client| async move {
        let mut held = Vec::new();
        for _ in 0..8 {
            let mut request = with_long_headers("Anybody", "application/grpc");
            *request.uri_mut() = "http://test/grpc.health.Test/Anybody".parse().unwrap();
            let (answer, mut stream) = client.begin(request).await;
            stream.send_data(framed(b""), false).unwrap();
            held.push((answer.await.unwrap().into_body(), stream));
        }
        client.settle().await;
        assert!(client.memory.taken() > 400_000, "{} bytes: this test shows nothing", client.memory.taken());
        for _ in 0..6 {
            client.says(framed(&vec![8; 30_000])).await;
        }
    });
}

#[test]
fn a_call_whose_message_never_begins_is_ended() {
    let limits = Limits { message_patience: Duration::from_millis(200), ..Limits::default() };
    with_client(limits, |client| async move {
        let began = std::time::Instant::now();
        let (idle, mut idle_stream) = client.begin(request("Repeat", None)).await;
        idle_stream.send_data(framed(b"one"), false).unwrap();
        let mut idle = idle.await.unwrap().into_body();
        assert_eq!(idle.data().await.unwrap().unwrap(), framed(b"one"));
        // A stream may be opened before there is anything to ask.
        for (method, patience_millis) in [("Say", 200), ("Repeat", 1_000)] {
            let (answer, mut stream) = client.begin(request(method, None)).await;
            stream.send_data(Bytes::new(), false).unwrap();
            let head = answer.await.unwrap();
            assert_eq!(head.headers()["grpc-status"], "4", "{method}");
            let said = head.headers()["grpc-message"].to_str().unwrap();
            assert!(said.starts_with("grpc: nothing came of the first message of a call for"), "{said}");
            assert!(began.elapsed() >= Duration::from_millis(patience_millis), "{method}: {:?}", began.elapsed());
        }
        // Between two messages there is no hurry.
        idle_stream.send_data(framed(b"two"), true).unwrap();
        assert_eq!(idle.data().await.unwrap().unwrap(), framed(b"two"));
        let mut request = request("wait", None);
        request.headers_mut().insert("content-type", HeaderValue::from_static("text/plain"));
        let (answer, _stream) = client.begin(request).await;
        let (said, _) = read_out(answer.await.unwrap().into_body()).await;
        assert_eq!(&said[..], b"2 true");
    });
}

fn for_anybody() -> Request<()> {
    let mut request = request("Anybody", None);
    *request.uri_mut() = "http://test/grpc.health.Test/Anybody".parse().unwrap();
    request
}

/// Answers that nobody reads waited for ever, and counted nowhere.
#[test]
fn what_anybody_may_ask_for_counts_until_it_is_taken_and_goes_when_it_is_not() {
    with_memory(Memory::new(64 << 20), limits(), |client| async move {
        let mut held = Vec::new();
        for _ in 0..8 {
            let (answer, mut stream) = client.begin(for_anybody()).await;
            (0..10).for_each(|_| stream.send_data(framed(b"more"), false).unwrap());
            held.push((answer.await.unwrap().into_body(), stream));
        }
        // Less what the connection has of its own.
        let taken = client.memory.taken();
        assert!((8 * 100_000 - (64 << 10)..900_000).contains(&taken), "{taken} bytes count");
        assert_eq!(client.told.sent.get(), 8, "one waits, and the next is not made before that was taken");
        for (_, stream) in &mut held {
            let reset = poll_fn(|context| stream.poll_reset(context)).await;
            assert_eq!(reset.unwrap(), h2::Reason::CANCEL);
        }
        while client.memory.taken() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(client.told.sent.get(), 8);
    });
}

#[test]
fn of_streams_that_anybody_may_open_a_connection_has_few() {
    with_client(limits(), |mut client| async move {
        let mut held = Vec::new();
        for _ in 0..8 {
            held.push(client.begin(for_anybody()).await);
        }
        let (refused, _stream) = client.begin(for_anybody()).await;
        let head = refused.await.unwrap();
        assert_eq!(head.headers()["grpc-status"], "8");
        let said = head.headers()["grpc-message"].to_str().unwrap();
        assert!(said.starts_with("grpc: a connection may have 8 streams of health and reflection at a time"), "{said}");
        let (_, mut stream) = held.remove(0);
        stream.send_reset(h2::Reason::CANCEL);
        client.settle().await;
        let (answer, mut stream) = client.begin(for_anybody()).await;
        stream.send_data(framed(b"hello"), true).unwrap();
        let (body, trailers) = read_out(answer.await.unwrap().into_body()).await;
        assert_eq!(
            (body.len(), &trailers.unwrap()["grpc-status"]),
            (HEAD_BYTES + 100_000, &HeaderValue::from_static("0"))
        );
    });
}
