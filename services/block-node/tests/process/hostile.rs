//! Clients that send as much as they can: the server stays as large as its settings say, and serves others meanwhile.

use std::future::poll_fn;

use block_node::craft::field;
use bytes::Bytes;
use h2::SendStream;
use h2::client::ResponseFuture;
use http::Request;
use service_kit::grpc::encode;
use tokio::net::TcpStream;

use super::memory::{SMALL_MESSAGES, most_memory};
use super::*;

/// The longest message that is taken, if nothing else is said.
const LONGEST: usize = 131_072_000;

static PIECE: [u8; 256 << 10] = [7; 256 << 10];

/// Begins a call on a connection of its own.
async fn begin(address: &str, method: &str) -> (ResponseFuture, SendStream<Bytes>) {
    let socket = TcpStream::connect(address).await.unwrap();
    let (send, connection) = h2::client::handshake(socket).await.unwrap();
    tokio::spawn(connection);
    let head = Request::post(format!("http://{address}{method}")).header("content-type", "application/grpc");
    let head = head.header("te", "trailers").body(()).unwrap();
    send.ready().await.unwrap().send_request(head, false).unwrap()
}

/// Sends this in pieces as clients do that know of no larger ones, as fast as it is taken.
async fn send_in_pieces(stream: &mut SendStream<Bytes>, mut bytes: Bytes) {
    while !bytes.is_empty() {
        let wanted = bytes.len().min(16 << 10);
        stream.reserve_capacity(wanted);
        let Some(Ok(room)) = poll_fn(|context| stream.poll_capacity(context)).await else { return };
        // An error: it was ended.
        let _ = stream.send_data(bytes.split_to(room.min(wanted)), false);
    }
}

/// Sends the longest message that there is, of one item, on a connection of its own, as fast as it is taken; how many bytes that were.
/// Its stream stays open.
async fn flood(address: String) -> usize {
    let (answer, mut stream) = begin(&address, PUBLISH).await;
    // Of a length with four bytes: a transaction, in an item, in a set, in a frame.
    let begun = |tag: u8, length: usize| {
        let digits = [0, 7, 14, 21].map(|bits| (length >> bits) as u8 | 0x80);
        [tag, digits[0], digits[1], digits[2], digits[3] & 0x7f]
    };
    let [set, item, content] = [5, 10, 15].map(|heads| LONGEST - heads);
    let frame = [&[0][..], &(LONGEST as u32).to_be_bytes()].concat();
    let head = [&frame[..], &begun(0x0a, set), &begun(0x0a, item), &begun(0x22, content)].concat();
    stream.send_data(head.into(), false).unwrap();
    let mut sent = 0;
    while sent < content {
        stream.reserve_capacity((content - sent).min(PIECE.len()));
        let Some(Ok(room)) = poll_fn(|context| stream.poll_capacity(context)).await else { break };
        let piece = room.min(content - sent).min(PIECE.len());
        if stream.send_data(Bytes::from_static(&PIECE[..piece]), false).is_err() {
            break;
        }
        sent += piece;
    }
    // Who is refused goes away; who was taken in full waits for what it is told.
    let _ = tokio::time::timeout(Duration::from_secs(5), answer).await;
    sent
}

#[test]
fn a_hundred_streams_with_messages_of_131_mb_take_what_the_settings_allow_and_others_are_served() {
    const MESSAGES_MEMORY: usize = 300_000_000;
    const STREAMS: usize = 100;
    let directory = harness::folder();
    let server = Server::start(directory.path(), &["--messages-memory-bytes", &MESSAGES_MEMORY.to_string()]);
    run(async {
        publish(&publisher(&server, 0, 20)).await.unwrap();
        let before = most_memory(&server);
        let floods: Vec<_> = (0..STREAMS).map(|_| tokio::spawn(flood(server.address.clone()))).collect();
        let mut next = 20;
        while next == 20 || floods.iter().any(|flood| !flood.is_finished()) {
            let published = publish(&publisher(&server, next, 20)).await.unwrap();
            assert_eq!((published.end, published.acknowledged.len()), (None, 20));
            next += 20;
        }
        let mut sent = 0;
        for flood in floods {
            sent += flood.await.unwrap();
        }
        let grown = most_memory(&server) - before;
        println!("{STREAMS} streams sent {sent} bytes, the server grew by {grown}, and took {next} blocks meanwhile");
        assert!(sent > 2 * MESSAGES_MEMORY, "{sent} bytes were sent: this test shows nothing");
        // Messages, and of each stream what it may send ahead.
        assert!(grown < MESSAGES_MEMORY + STREAMS * (1 << 20) + LONGEST, "{grown} bytes");
        let result = read_all(&server, next - 1).await;
        assert_eq!((result.blocks, result.wrong), (next, None));
    });
}

#[test]
fn items_without_an_end_are_refused_when_they_are_more_than_a_block_may_be() {
    use proto::publish_stream_request::Request::BlockItems;
    let directory = harness::folder();
    let server = Server::start(directory.path(), &["--server-max-message-size-bytes", "4000000"]);
    run(async {
        let mut channel = connect(&server.address).await.unwrap();
        let call = channel.call(PUBLISH);
        let block = &crafted(1)[0];
        let header = block[item_ranges(block).next().unwrap().unwrap().0].to_vec();
        let (mut sender, mut receiver): (StreamSender<_>, StreamReceiver<proto::PublishStreamResponse>) =
            channel.stream(&call, &request(BlockItems(header.into()))).await.unwrap();
        let endless = tokio::spawn(async move {
            let mut set = Vec::new();
            block_node::wire::put_bytes(&mut set, 1, &field(4, &[7; 100_000]));
            let set = Bytes::from(set);
            for sent in 0.. {
                if sender.send(&request(BlockItems(set.clone()))).await.is_err() {
                    return sent;
                }
            }
            0
        });
        let told = PublishResponse::of(receiver.next().await.unwrap().unwrap(), WireEra::Today);
        let refused = PublishResponse::EndOfStream { code: EndCode::BadBlockProof, last: NO_BLOCK };
        assert_eq!((told, receiver.next().await), (Some(refused), Ok(None)));
        drop((receiver, channel));
        let sent = tokio::time::timeout(Duration::from_secs(30), endless).await.unwrap().unwrap();
        println!("{sent} sets of 100 KB were sent");
        let published = publish(&publisher(&server, 0, 3)).await.unwrap();
        assert_eq!((published.end, published.acknowledged), (None, vec![0, 1, 2]));
    });
}

/// Publishes one block, whose message comes in many pieces; what is told of it.
async fn publish_in_pieces(server: &Server, number: u64, block: &[u8]) -> Option<PublishResponse> {
    use proto::publish_stream_request::Request::{BlockItems, EndOfBlock};
    let (answer, mut stream) = begin(&server.address, PUBLISH).await;
    let set = encode(&request(BlockItems(Bytes::copy_from_slice(block))));
    let end = encode(&request(EndOfBlock(proto::BlockEnd { block_number: number })));
    send_in_pieces(&mut stream, [set, end].concat().into()).await;
    let frame = answer.await.unwrap().into_body().data().await?.unwrap();
    let message: proto::PublishStreamResponse = prost::Message::decode(&frame[5..]).unwrap();
    PublishResponse::of(message, WireEra::Today)
}

/// Five streams that sent the most of a message each, and then nothing, shut everybody else out.
#[test]
fn streams_that_stand_still_with_all_the_memory_for_messages_make_room_for_those_that_send() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &SMALL_MESSAGES);
    let mut crafter = Crafter::new(1, 0);
    run(async {
        let mut held = Vec::new();
        // 16 MB, but for what connections have of their own.
        for bytes in [3_990_000, 3_990_000, 3_990_000, 3_990_000, 130_000] {
            let (answer, mut stream) = begin(&server.address, PUBLISH).await;
            let claimed = [&[0][..], &4_000_000_u32.to_be_bytes()].concat();
            send_in_pieces(&mut stream, [claimed, vec![7; bytes]].concat().into()).await;
            held.push((answer, stream));
        }
        for number in 0..5 {
            let block = crafter.next(Shape::of_bytes(180_000)).bytes;
            let told = publish_in_pieces(&server, number, &block).await;
            assert_eq!(told, Some(PublishResponse::Acknowledgement(number)));
        }
        let (first, _stream) = held.remove(0);
        let head = first.await.unwrap();
        let mut body = head.into_body();
        assert!(body.data().await.is_none_or(|piece| piece.is_err()));
        let trailers = body.trailers().await.unwrap().unwrap();
        assert_eq!(trailers["grpc-status"], "8", "{trailers:?}");
    });
}

/// What came behind a subscriber's request stayed in memory for as long as it was there: some megabytes for each connection.
#[test]
fn what_subscribers_send_behind_their_request_is_thrown_away() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &SMALL_MESSAGES);
    run(async {
        publish(&publisher(&server, 0, 1)).await.unwrap();
        let before = most_memory(&server);
        let live =
            proto::SubscribeStreamRequest { start_block_number: NO_BLOCK, end_block_number: NO_BLOCK, filter: None };
        let mut held = Vec::new();
        for _ in 0..60 {
            let (answer, mut stream) = begin(&server.address, SUBSCRIBE).await;
            send_in_pieces(&mut stream, encode(&live)).await;
            send_in_pieces(&mut stream, vec![7; 1_000_000].into()).await;
            held.push((answer, stream));
        }
        publish(&publisher(&server, 1, 1)).await.unwrap();
        for (answer, _) in &mut held {
            let mut body = answer.await.unwrap().into_body();
            assert!(!body.data().await.unwrap().unwrap().is_empty(), "it is served all the same");
        }
        let grown = most_memory(&server) - before;
        assert!(grown < 30 << 20, "{grown} bytes for 60 MB that nobody asked for");
    });
}

/// Asks for the proof of the third item of a block.
async fn prove(address: String, block: u8) {
    let mut channel = connect(&address).await.unwrap();
    let call = channel.call("/org.hiero.block.api.ProofService/getBlockContentsProof");
    let asked = Raw::of(&[0x08, block, 0x20, 2]);
    let answer: proto::BlockContentsProofResponse = channel.unary(&call, &asked).await.unwrap();
    assert_eq!((answer.status, answer.block_content_proof.is_some()), (1, true));
}

/// A hash was kept of each item of a block, of which millions fit into one, for each proof; and whoever asked for one of a short block waited behind all
/// of them.
#[test]
fn proofs_of_a_block_of_many_items_keep_no_hash_of_each_and_a_short_one_does_not_wait_behind_them() {
    const ITEMS: usize = 600_000;
    const PROOFS: usize = 6;
    let directory = harness::folder();
    let server = Server::start(directory.path(), &SMALL_MESSAGES);
    let mut crafter = Crafter::new(1, 0);
    run(async {
        let long = crafter.next_of((0..ITEMS).map(|_| field(4, &[]))).bytes;
        for (number, block) in [(0, long), (1, crafter.next(Shape::of_bytes(BLOCK_BYTES)).bytes)] {
            let told = publish_in_pieces(&server, number, &block).await;
            assert_eq!(told, Some(PublishResponse::Acknowledgement(number)));
        }
        let before = most_memory(&server);
        let long: Vec<_> = (0..PROOFS).map(|_| tokio::spawn(prove(server.address.clone(), 0))).collect();
        // Some of a second of work each; most of them wait by then.
        tokio::time::sleep(Duration::from_millis(100)).await;
        prove(server.address.clone(), 1).await;
        let made = long.iter().filter(|proof| proof.is_finished()).count();
        assert!(made < PROOFS - 1, "{made} were made before");
        for proof in long {
            proof.await.unwrap();
        }
        let grown = most_memory(&server) - before;
        println!("{PROOFS} proofs took {grown} bytes");
        assert!(grown < 20 << 20, "{grown} bytes for {ITEMS} items");
    });
}
