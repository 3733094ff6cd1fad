//! Messages that clients send compressed, as tonic's do where they are told to; spoken for by `h2` itself: our own client does not.

use std::io::Write as _;

use d_engine_client::ReadLevel;
use d_engine_client::proto::d_engine::client::{ClientWriteRequest, WriteCommand, write_command};
use http::{HeaderMap, Request};
use prost::Message as _;

use crate::group::Group;

fn gzip(message: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(message).unwrap();
    encoder.finish().unwrap()
}

fn put(key: &'static str, value: Vec<u8>) -> Vec<u8> {
    let insert = write_command::Insert { key: key.into(), value: value.into(), ttl_secs: 0 };
    let command = WriteCommand { operation: Some(write_command::Operation::Insert(insert)) };
    ClientWriteRequest { client_id: 1, command: Some(command) }.encode_to_vec()
}

/// A unary call with one message of these bytes, which are said to be compressed so; headers and trailers of the answer.
async fn write(address: &str, encoding: &str, message: &[u8]) -> (HeaderMap, HeaderMap) {
    let socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let (send, connection) = h2::client::handshake(socket).await.unwrap();
    tokio::spawn(connection);
    let head = Request::post(format!("http://{address}/d_engine.client.RaftClientService/HandleClientWrite"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-encoding", encoding)
        .body(())
        .unwrap();
    let (answer, mut stream) = send.ready().await.unwrap().send_request(head, false).unwrap();
    let frame = [&[1][..], &(message.len() as u32).to_be_bytes(), message].concat();
    stream.send_data(frame.into(), true).unwrap();
    let (head, mut body) = answer.await.unwrap().into_parts();
    while let Some(chunk) = body.data().await {
        chunk.unwrap();
    }
    let trailers = body.trailers().await.unwrap().unwrap_or_else(|| head.headers.clone());
    (head.headers, trailers)
}

#[tokio::test]
async fn messages_that_are_compressed_are_taken_and_a_bomb_is_refused() {
    let group = Group::start(1);
    group.leader().await;
    let address = &group.addresses[0];
    let (headers, trailers) = write(address, "gzip", &gzip(&put("k", vec![b'v'; 100_000]))).await;
    assert_eq!(
        (&headers["grpc-accept-encoding"], &trailers["grpc-status"]),
        (&"gzip".parse().unwrap(), &"0".parse().unwrap())
    );
    let client = group.client().await;
    let found = client.get_with("k", ReadLevel::Linearizable).await.unwrap().value.unwrap();
    assert_eq!(found.value, vec![b'v'; 100_000]);
    let bomb = gzip(&put("bomb", vec![0; 100 << 20]));
    assert!(bomb.len() < 1 << 20, "{} bytes", bomb.len());
    for (encoding, message, status) in
        [("gzip", bomb, "8"), ("gzip", put("plain", vec![1]), "13"), ("snappy", gzip(&put("other", vec![1])), "12")]
    {
        let (_, trailers) = write(address, encoding, &message).await;
        assert_eq!(trailers["grpc-status"], status, "{encoding}: {trailers:?}");
    }
    for key in ["bomb", "plain", "other"] {
        assert!(client.get(key).await.unwrap().is_none(), "{key} was refused, and is there");
    }
}
