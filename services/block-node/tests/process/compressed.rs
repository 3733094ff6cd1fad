//! Publishers that compress their messages, spoken for by `h2` itself: our own client does not.

use std::io::Write as _;

use block_node::messages::{PUBLISH, PublishResponse, WireEra, proto};
use block_node::simulate::request;
use bytes::Bytes;
use http::{HeaderMap, Request};
use prost::Message as _;
use service_kit::grpc::Deframer;

use crate::server::Server;
use crate::{crafted, get_block, run, status};

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
