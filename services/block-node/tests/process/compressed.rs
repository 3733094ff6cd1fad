//! Publishers that compress their messages, and readers who take them compressed, spoken for by `h2` itself: our own client does neither.

use std::io::{Read as _, Write as _};

use block_node::craft::{Crafter, field};
use block_node::messages::{PUBLISH, PublishResponse, WireEra, proto};
use block_node::simulate::{SUBSCRIBE, request};
use bytes::Bytes;
use http::{HeaderMap, Request};
use prost::Message as _;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use service_kit::grpc::Deframer;

use crate::server::Server;
use crate::{crafted, get_block, http, run, status};

fn compressed(encoding: &str, message: &[u8]) -> Vec<u8> {
    match encoding {
        "gzip" => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(message).unwrap();
            encoder.finish().unwrap()
        }
        _ => zstd::bulk::compress(message, 3).unwrap(),
    }
}

fn frame(flag: u8, message: &[u8]) -> Vec<u8> {
    [&[flag][..], &(message.len() as u32).to_be_bytes(), message].concat()
}

/// Sends these bytes as a publisher, and reads answers until one of them says `until`, or the call ends.
async fn publish(server: &Server, encoding: &str, bytes: Vec<u8>, until: u64) -> (Vec<u64>, HeaderMap) {
    let socket = tokio::net::TcpStream::connect(&server.address).await.unwrap();
    let (send, connection) = h2::client::handshake(socket).await.unwrap();
    tokio::spawn(connection);
    let head = Request::post(format!("http://{}{PUBLISH}", server.address))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-encoding", encoding)
        .body(())
        .unwrap();
    let (answer, mut stream) = send.ready().await.unwrap().send_request(head, false).unwrap();
    stream.send_data(bytes.into(), false).unwrap();
    let (head, mut body) = answer.await.unwrap().into_parts();
    assert_eq!(head.headers["grpc-accept-encoding"], "gzip,zstd");
    let (mut deframer, mut acknowledged) = (Deframer::new(1 << 20), Vec::new());
    while let Some(chunk) = body.data().await {
        deframer.push(chunk.unwrap());
        while let Some(message) = deframer.message().unwrap() {
            let message = proto::PublishStreamResponse::decode(message).unwrap();
            if let Some(PublishResponse::Acknowledgement(number)) = PublishResponse::of(message, WireEra::Today) {
                acknowledged.push(number);
            }
        }
        if acknowledged.last() == Some(&until) {
            return (acknowledged, HeaderMap::new());
        }
    }
    (acknowledged, body.trailers().await.unwrap().unwrap_or(head.headers))
}

#[test]
fn messages_that_are_compressed_are_taken_and_a_bomb_is_refused() {
    use proto::publish_stream_request::Request::{BlockItems, EndOfBlock};
    let directory = harness::folder();
    let server = Server::start(directory.path(), &["--server-max-message-size-bytes", "1000000"]);
    run(async {
        let blocks = crafted(6);
        let mut next = 0;
        for encoding in ["gzip", "zstd"] {
            let mut bytes = Vec::new();
            for number in next..next + 3 {
                let items = request(BlockItems(blocks[number as usize].clone().into())).encode_to_vec();
                bytes.extend(frame(1, &compressed(encoding, &items)));
                // Not every message must be.
                bytes.extend(frame(0, &request(EndOfBlock(proto::BlockEnd { block_number: number })).encode_to_vec()));
            }
            next += 3;
            let (acknowledged, trailers) = publish(&server, encoding, bytes, next - 1).await;
            assert_eq!(acknowledged.last(), Some(&(next - 1)), "{encoding}: {trailers:?}");
        }
        let found = get_block(&server, &[0x08, 4]).await;
        assert_eq!(found.block.as_deref(), Some(&blocks[4][..]), "it is kept as if it had come plain");
        for encoding in ["gzip", "zstd"] {
            let bomb = request(BlockItems(Bytes::from(vec![0; 2_000_000]))).encode_to_vec();
            let (_, trailers) = publish(&server, encoding, frame(1, &compressed(encoding, &bomb)), 99).await;
            assert_eq!(trailers["grpc-status"], "8", "{encoding}: RESOURCE_EXHAUSTED");
        }
        let (_, trailers) = publish(&server, "snappy", frame(1, b"what"), 99).await;
        assert_eq!(trailers["grpc-status"], "12", "UNIMPLEMENTED");
        assert_eq!(status(&server).await.last_available_block, 5);
    });
}

const GET_BLOCK: &str = "/org.hiero.block.api.BlockAccessService/getBlock";

/// An answer of a reader: its encoding, and each message with its flag.
struct Answered {
    encoding: Option<String>,
    messages: Vec<(u8, Bytes)>,
    bytes: usize,
}

impl Answered {
    /// The messages as they were before they were compressed.
    fn plain(&self) -> Vec<Vec<u8>> {
        let plain = |(flag, message): &(u8, Bytes)| match (flag, self.encoding.as_deref()) {
            (0, _) => message.to_vec(),
            (1, Some("gzip")) => {
                let mut plain = Vec::new();
                flate2::read::GzDecoder::new(&message[..]).read_to_end(&mut plain).unwrap();
                plain
            }
            (1, Some("zstd")) => zstd::decode_all(&message[..]).unwrap(),
            other => panic!("{other:?}"),
        };
        self.messages.iter().map(plain).collect()
    }

    fn flags(&self) -> Vec<u8> {
        self.messages.iter().map(|(flag, _)| *flag).collect()
    }
}

/// Calls with this request as a client that sends compressed messages (`sent`), and takes them (`accepted`).
async fn ask(server: &Server, path: &str, sent: Option<&str>, accepted: Option<&str>, message: &[u8]) -> Answered {
    let socket = tokio::net::TcpStream::connect(&server.address).await.unwrap();
    let (send, connection) = h2::client::handshake(socket).await.unwrap();
    tokio::spawn(connection);
    let mut head = Request::post(format!("http://{}{path}", server.address))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for (name, value) in [("grpc-encoding", sent), ("grpc-accept-encoding", accepted)] {
        head = value.into_iter().fold(head, |head, value| head.header(name, value));
    }
    let (answer, mut stream) = send.ready().await.unwrap().send_request(head.body(()).unwrap(), false).unwrap();
    stream.send_data(frame(0, message).into(), true).unwrap();
    let (head, mut body) = answer.await.unwrap().into_parts();
    let encoding = head.headers.get("grpc-encoding").map(|encoding| encoding.to_str().unwrap().to_owned());
    let mut bytes = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk.unwrap();
        let _ = body.flow_control().release_capacity(chunk.len());
        bytes.extend_from_slice(&chunk);
    }
    assert_eq!(body.trailers().await.unwrap().unwrap()["grpc-status"], "0");
    let (mut messages, mut rest, bytes) = (Vec::new(), Bytes::from(bytes.clone()), bytes.len());
    while !rest.is_empty() {
        let head = rest.split_to(5);
        let length = u32::from_be_bytes(head[1..].try_into().unwrap()) as usize;
        messages.push((head[0], rest.split_to(length)));
    }
    Answered { encoding, messages, bytes }
}

fn blocks_from(first: u64, last: u64) -> Vec<u8> {
    let request = proto::SubscribeStreamRequest { start_block_number: first, end_block_number: last, filter: None };
    request.encode_to_vec()
}

/// Publishes a block of these items.
fn sent(crafter: &mut Crafter, items: Vec<Vec<u8>>) -> Vec<u8> {
    use proto::publish_stream_request::Request::{BlockItems, EndOfBlock};
    let block = crafter.next_of(items);
    let set = request(BlockItems(block.bytes.into()));
    let end = request(EndOfBlock(proto::BlockEnd { block_number: block.number }));
    [set, end].iter().flat_map(|message| frame(0, &message.encode_to_vec())).collect()
}

/// Each of them kept what it had read, and with it all that is read from disk at a time, while it waited for a processor.
#[test]
fn who_asks_for_large_blocks_compressed_keeps_nobody_from_reading_others() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &["--cache-bytes", "1000000"]);
    run(async {
        let (mut crafter, mut random) = (Crafter::new(1, 0), SmallRng::seed_from_u64(1));
        let half: Vec<u8> = (0..18_000_000).map(|_| random.random_range(0..64)).collect();
        let small = || vec![field(4, &[7; 600_000])];
        // Neither the first nor the second is in memory then.
        let blocks = [vec![field(4, &half)], small(), small(), small()];
        let bytes = blocks.into_iter().flat_map(|items| sent(&mut crafter, items)).collect();
        let (acknowledged, trailers) = publish(&server, "identity", bytes, 3).await;
        assert_eq!(acknowledged.last(), Some(&3), "{trailers:?}");
        let (large, first) = (number_of(0), number_of(1));
        let done = std::cell::Cell::new(0);
        let compressed = || async {
            let answered = ask(&server, GET_BLOCK, Some("gzip"), Some("gzip"), &large).await;
            assert_eq!(answered.flags(), [1]);
            done.set(done.get() + 1);
        };
        let another = async {
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            assert!(done.get() < 6, "they were too fast to stand in anybody's way");
            ask(&server, GET_BLOCK, None, None, &first).await;
            done.get()
        };
        let four = || async { tokio::join!(compressed(), compressed(), compressed(), compressed()) };
        let (.., done_before) = tokio::join!(four(), four(), four(), another);
        assert!(done_before <= 6, "a small block came behind {done_before} large ones of others");
    });
}

/// A block that a client does not get compressed, one of a piece, one of several sets that shrinks to a piece, and one that does not.
async fn publish_four(server: &Server) -> Vec<Vec<u8>> {
    let mut crafter = Crafter::new(1, 0);
    let mut random = SmallRng::seed_from_u64(1);
    let half: Vec<u8> = (0..700_000).map(|_| random.random_range(0..64)).collect();
    let blocks = [
        vec![field(4, &[7; 20])],
        vec![field(4, &[7; 5_000]), field(5, &[8; 5_000])],
        vec![field(4, &[7; 900_000]), field(5, &[8; 900_000])],
        vec![field(4, &half), field(5, &half)],
    ];
    let (mut published, mut bytes) = (Vec::new(), Vec::new());
    for items in blocks {
        let block = crafter.clone().next_of(items.clone());
        bytes.extend(sent(&mut crafter, items));
        published.push(block.bytes);
    }
    let (acknowledged, trailers) = publish(server, "identity", bytes, 3).await;
    assert_eq!(acknowledged.last(), Some(&3), "{trailers:?}");
    published
}

async fn framed(server: &Server) -> u64 {
    let metrics = http(server, "/metrics").await;
    let framed = metrics.lines().find_map(|line| line.strip_prefix("block_node_blocks_framed_total "));
    framed.unwrap().parse().unwrap()
}

#[test]
fn blocks_are_compressed_once_for_all_subscribers_who_ask_for_that() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    run(async {
        let blocks = publish_four(&server).await;
        let plain = ask(&server, SUBSCRIBE, None, Some("gzip,zstd"), &blocks_from(0, 3)).await;
        assert_eq!((plain.encoding.as_deref(), plain.flags().contains(&1)), (None, false), "who only accepts it");
        assert_eq!(framed(&server).await, 4);
        let mut framed_before = 4;
        for encoding in ["gzip", "zstd"] {
            let request = blocks_from(0, 2);
            let one = || ask(&server, SUBSCRIBE, Some(encoding), Some("identity,zstd,gzip"), &request);
            let (first, second, third, fourth) = tokio::join!(one(), one(), one(), one());
            for answered in [first, second, third, fourth] {
                assert_eq!(answered.encoding.as_deref(), Some(encoding));
                // Each block, and its end; the third has two sets; and the status.
                assert_eq!(answered.flags(), [0, 0, 1, 0, 1, 1, 0, 0], "{encoding}");
                assert_eq!(answered.plain()[..7], plain.plain()[..7], "{encoding}");
                assert!(answered.bytes < plain.bytes / 50);
            }
            assert_eq!(framed(&server).await, framed_before + 3, "{encoding}: each once, and not for each of four");
            let large = ask(&server, SUBSCRIBE, Some(encoding), Some(encoding), &blocks_from(3, 3)).await;
            assert_eq!(large.flags(), [1, 1, 0, 0]);
            assert_eq!(large.plain()[..3], plain.plain()[7..10], "{encoding}");
            assert!(large.bytes > 512 << 10, "it is lent: {}", large.bytes);
            framed_before += 4;
            assert_eq!(framed(&server).await, framed_before, "{encoding}");
            for (number, block) in blocks.iter().enumerate() {
                let answered = ask(&server, GET_BLOCK, Some(encoding), Some(encoding), &number_of(number)).await;
                assert_eq!(answered.flags(), [u8::from(number > 0)], "{encoding}");
                let response = proto::BlockResponse::decode(&answered.plain()[0][..]).unwrap();
                assert_eq!(response.block.as_deref(), Some(&block[..]), "{encoding}");
            }
        }
    });
}

fn number_of(block: usize) -> Vec<u8> {
    let block_specifier = Some(proto::block_request::BlockSpecifier::BlockNumber(block as u64));
    proto::BlockRequest { block_specifier }.encode_to_vec()
}

#[test]
fn who_only_accepts_compressed_blocks_gets_them_where_that_is_enough_and_nobody_where_none_are_sent() {
    for (flag, sent, encoding) in
        [("accepted", None, Some("gzip")), ("never", Some("gzip"), None), ("asked", Some("zstd"), None)]
    {
        let directory = harness::folder();
        let server = Server::start(directory.path(), &["--compress-answers", flag]);
        run(async {
            publish_four(&server).await;
            let accepted = Some("identity, deflate, gzip");
            let subscribed = ask(&server, SUBSCRIBE, sent, accepted, &blocks_from(1, 1)).await;
            let found = ask(&server, GET_BLOCK, sent, accepted, &number_of(1)).await;
            for answered in [subscribed, found] {
                assert_eq!(answered.encoding.as_deref(), encoding, "{flag}");
                assert_eq!(answered.flags()[0], u8::from(encoding.is_some()), "{flag}");
            }
            // What is filtered, and what is refused, goes as it is.
            let mut filtered = proto::SubscribeStreamRequest::decode(&blocks_from(1, 1)[..]).unwrap();
            filtered.filter = Some(proto::BlockStreamFilter { include: true, block_item_types: vec![4] });
            for (path, message) in [(SUBSCRIBE, filtered.encode_to_vec()), (GET_BLOCK, number_of(99))] {
                let answered = ask(&server, path, sent, accepted, &message).await;
                assert!(!answered.flags().contains(&1), "{flag}");
            }
        });
    }
}
