//! What clients can make the server hold in memory, by what the system says of its process, and not by what it counts itself.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use block_node::craft::field;
use block_node::messages::GET_BLOCK;
use prost::Message as _;

use super::*;

/// The most memory that a server has had, bytes.
pub fn most_memory(server: &Server) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// How much more memory a server takes for this, when it takes no more.
fn grows(server: &Server, act: impl FnOnce() -> TcpStream) -> usize {
    let before = most_memory(server);
    let _client = act();
    let (mut most, mut since) = (0, std::time::Instant::now());
    while since.elapsed() < Duration::from_secs(3) {
        let now = most_memory(server);
        if now != most {
            (most, since) = (now, std::time::Instant::now());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    most - before
}

/// Begins all of these calls with one write, and takes nothing of any answer.
pub fn ask(server: &Server, path: &str, messages: impl IntoIterator<Item = Vec<u8>>) -> TcpStream {
    let frame = |kind: u8, flags: u8, stream: u32, content: &[u8]| {
        let length = (content.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
    };
    let literal = |name: &str, value: &str| {
        [&[0, name.len() as u8], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat()
    };
    // POST, http, and the path in the place of `/`; then the authority.
    let head = [
        &[0x83, 0x86, 0x04, path.len() as u8][..],
        path.as_bytes(),
        &[0x01, 1, b'x'],
        &literal("content-type", "application/grpc"),
        &literal("te", "trailers"),
    ]
    .concat();
    let mut socket = TcpStream::connect(&server.address).unwrap();
    socket.write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(4, 0, 0, &[])[..]].concat()).unwrap();
    // Its settings have come when something has.
    socket.read_exact(&mut [0; 9]).unwrap();
    let mut calls = frame(4, 1, 0, &[]);
    for (index, message) in messages.into_iter().enumerate() {
        let stream = 2 * index as u32 + 1;
        let framed = [&[0][..], &(message.len() as u32).to_be_bytes(), &message].concat();
        calls.extend(frame(1, 4, stream, &head));
        calls.extend(frame(0, 1, stream, &framed));
    }
    socket.write_all(&calls).unwrap();
    socket
}

pub const SMALL_MESSAGES: [&str; 4] =
    ["--server-max-message-size-bytes", "4000000", "--messages-memory-bytes", "16000000"];

#[test]
fn a_hundred_and_twenty_requests_for_the_newest_block_in_one_write_make_no_hundred_and_twenty_copies() {
    let directory = harness::folder();
    let server = large_blocks(directory.path(), 1, &SMALL_MESSAGES);
    let grown = grows(&server, || ask(&server, GET_BLOCK, (0..120).map(|_| vec![0x10, 1])));
    assert!(grown < 40 << 20, "{grown} bytes for 120 times 3 MB");
}

#[test]
fn a_hundred_and_twenty_proofs_of_contents_hold_the_block_once() {
    const PROOF: &str = "/org.hiero.block.api.ProofService/getBlockContentsProof";
    let directory = harness::folder();
    let server = large_blocks(directory.path(), 1, &SMALL_MESSAGES);
    let grown = grows(&server, || ask(&server, PROOF, (0..120).map(|_| vec![0x20, 1])));
    assert!(grown < 40 << 20, "{grown} bytes for 120 times 3 MB");
}

#[test]
fn sixteen_large_blocks_that_are_asked_for_at_once_are_not_read_from_disk_at_once() {
    const BLOCK_BYTES: usize = 10_000_000;
    let directory = harness::folder();
    let flags = [
        "--server-max-message-size-bytes",
        "12000000",
        "--messages-memory-bytes",
        "24000000",
        "--cache-bytes",
        "65536",
    ];
    let server = Server::start(directory.path(), &flags);
    let large =
        PublisherFlags { block_bytes: BLOCK_BYTES, message_bytes: 1_000_000, window: 2, ..publisher(&server, 0, 16) };
    assert_eq!(run(publish(&large)).unwrap().acknowledged.len(), 16);
    assert!(server.terminate());
    let server = Server::start_with_two_arenas(directory.path(), &flags);
    let grown = grows(&server, || ask(&server, GET_BLOCK, (0..16).map(|number| vec![0x08, number])));
    assert!(grown < 80 << 20, "{grown} bytes for 16 times 10 MB, each up to three times while it is read");
    let found = run(get_block(&server, &[0x08, 7]));
    assert_eq!((found.status, found.block.is_some_and(|block| block.len() > BLOCK_BYTES * 9 / 10)), (1, true));
}

#[test]
fn a_filter_of_millions_of_kinds_is_refused_before_it_is_taken_apart() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    let before = most_memory(&server);
    run(async {
        publish(&publisher(&server, 0, 1)).await.unwrap();
        let kinds = vec![4; 24 << 20];
        let filter = proto::BlockStreamFilter { include: true, block_item_types: kinds };
        let whole =
            proto::SubscribeStreamRequest { start_block_number: 0, end_block_number: NO_BLOCK, filter: Some(filter) };
        let mut channel = connect(&server.address).await.unwrap();
        let call = channel.call(SUBSCRIBE);
        let (mut sender, mut receiver): (_, StreamReceiver<proto::SubscribeStreamResponse>) =
            channel.stream(&call, &whole).await.unwrap();
        sender.finish().unwrap();
        let answer = receiver.next().await.unwrap().unwrap().response;
        assert_eq!(answer, Some(proto::subscribe_stream_response::Response::Status(2)), "INVALID_REQUEST");
    });
    let grown = most_memory(&server) - before;
    assert!(grown < 100 << 20, "{grown} bytes for a request of 24 MiB");
}

#[test]
fn sixty_subscribers_that_filter_short_items_and_take_nothing_hold_a_piece_each() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &["--cache-bytes", "65536"]);
    run(async {
        // 240 KB; as hashes they take fourteen times as much.
        let block = Crafter::new(1, 0).next_of((0..60_000).map(|_| field(4, &[])));
        assert_eq!(publish_block(&server, &block.bytes).await, PublishResponse::Acknowledgement(0));
    });
    let request = |index: u32| {
        // Each another one, and none asks for what is there.
        let filter = proto::BlockStreamFilter { include: true, block_item_types: vec![5, 20 * (index + 2) + 8] };
        let (start_block_number, end_block_number) = (0, NO_BLOCK);
        proto::SubscribeStreamRequest { start_block_number, end_block_number, filter: Some(filter) }.encode_to_vec()
    };
    let grown = grows(&server, || ask(&server, SUBSCRIBE, (0..60).map(request)));
    assert!(grown < 60 << 20, "{grown} bytes for 60 subscribers");
}
