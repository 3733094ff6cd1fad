//! Clients that send as much as they can: the server stays as large as its settings say, and serves others meanwhile.

use std::future::poll_fn;

use block_node::craft::field;
use bytes::Bytes;
use http::Request;
use tokio::net::TcpStream;

use super::memory::most_memory;
use super::*;

/// The longest message that is taken, if nothing else is said.
const LONGEST: usize = 131_072_000;

static PIECE: [u8; 256 << 10] = [7; 256 << 10];

/// Sends the longest message that there is, of one item, on a connection of its own, as fast as it is taken; how many bytes that were.
/// Its stream stays open.
async fn flood(address: String) -> usize {
    let socket = TcpStream::connect(&address).await.unwrap();
    let (send, connection) = h2::client::handshake(socket).await.unwrap();
    tokio::spawn(connection);
    let head = Request::post(format!("http://{address}{PUBLISH}")).header("content-type", "application/grpc");
    let head = head.header("te", "trailers").body(()).unwrap();
    let (answer, mut stream) = send.ready().await.unwrap().send_request(head, false).unwrap();
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
