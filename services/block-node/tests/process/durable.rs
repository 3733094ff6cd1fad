//! What was acknowledged stays, however the server ends.
//!
//! The kills are a parameter: `BLOCK_NODE_KILLS=1000 cargo test --release -p block-node --test process kill_9 -- --nocapture`, which takes
//! some minutes; `BLOCK_NODE_SEED` chooses other instants.

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use super::*;

/// How often the server is killed, unless BLOCK_NODE_KILLS says otherwise.
const KILLS: u64 = 10;

#[test]
fn kill_9_under_four_publishers_loses_no_acknowledged_block() {
    let kills = std::env::var("BLOCK_NODE_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let seed = std::env::var("BLOCK_NODE_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut random = SmallRng::seed_from_u64(seed);
    let directory = harness::folder();
    let (mut acknowledged, mut known) = (0, 0);
    // Goes along with the chain, which would be made from its beginning in each round otherwise.
    let mut crafter = Crafter::new(1, 0);
    for round in 0..kills {
        if round > 0 && round % 100 == 0 {
            println!("{round} kills, {acknowledged} blocks acknowledged");
        }
        let server = Server::start(directory.path(), &["--segment-bytes", "400000"]);
        run(async {
            let found = status(&server).await.next_expected_block;
            assert!(found >= acknowledged, "{acknowledged} blocks were acknowledged, {found} are there");
            // All that came since the last look, and some before.
            let from = u64::saturating_sub(known, 50);
            if found > from {
                let result = read(&consumer(&server, Some(from), Some(found - 1)), |_| ()).await.unwrap();
                assert_eq!((result.blocks, result.wrong), (found - from, None));
            }
            no_gap_is_hidden(&server, found).await;
            known = found;
            while crafter.number() < found {
                crafter.next(Shape::of_bytes(BLOCK_BYTES));
            }
            let id = server.id().to_string();
            let instant = Duration::from_micros(random.random_range(1_000..300_000));
            let killer = tokio::task::spawn_blocking(move || {
                std::thread::sleep(instant);
                Command::new("kill").args(["-9", &id]).status().unwrap()
            });
            let (heard, mut acknowledgements) = tokio::sync::mpsc::unbounded_channel();
            let publishers: Vec<_> = (0..4)
                .map(|_| {
                    let (address, crafter, heard) = (server.address.clone(), crafter.clone(), heard.clone());
                    // It ends with an error when the server is gone; what it has heard until then counts.
                    tokio::spawn(async move {
                        while publish_until_gone(&address, crafter.clone(), heard.clone()).await.is_ok() {}
                    })
                })
                .collect();
            killer.await.unwrap();
            for publisher in publishers {
                publisher.await.unwrap();
            }
            while let Ok(number) = acknowledgements.try_recv() {
                acknowledged = acknowledged.max(number + 1);
            }
        });
    }
    assert!(acknowledged > 0, "nothing was ever acknowledged: this test shows nothing");
    let server = Server::start(directory.path(), &[]);
    run(async {
        let found = status(&server).await.next_expected_block;
        let mut crafter = Crafter::new(1, 0);
        let compare = |block: &Verified| {
            assert_eq!(block.bytes, crafter.next(Shape::of_bytes(BLOCK_BYTES)).bytes, "block {}", block.number);
        };
        let result = read(&consumer(&server, Some(0), Some(found - 1)), compare).await.unwrap();
        assert_eq!((result.blocks, result.wrong), (found, None));
    });
    println!("{kills} kills with seed {seed}, {acknowledged} blocks acknowledged, none lost");
}

/// What status says is there, is one range without a gap, and its ends are served.
async fn no_gap_is_hidden(server: &Server, next: u64) {
    let mut channel = connect(&server.address).await.unwrap();
    let call = channel.call("/org.hiero.block.api.BlockNodeService/serverStatusDetail");
    let detail: proto::ServerStatusDetailResponse = channel.unary(&call, &proto::ServerStatusRequest {}).await.unwrap();
    let whole = next.checked_sub(1).map(|last| proto::BlockRange { range_start: 0, range_end: last });
    let whole: Vec<_> = whole.into_iter().collect();
    assert_eq!((&detail.available_ranges, &detail.stored_ranges), (&whole, &whole));
    let status = status(server).await;
    let ends = whole.first().map_or((NO_BLOCK, NO_BLOCK), |range| (range.range_start, range.range_end));
    assert_eq!((status.first_available_block, status.last_available_block), ends);
}

/// Publishes one block after another of this chain from the next one on that the node wants, and tells every acknowledgement as soon as it is heard. `Ok`: the node has
/// ended the stream, since others were faster.
async fn publish_until_gone(
    address: &str,
    mut crafter: Crafter,
    heard: tokio::sync::mpsc::UnboundedSender<u64>,
) -> Result<(), GrpcError> {
    use proto::publish_stream_request::Request::{BlockItems, EndOfBlock};
    let mut channel = connect(address).await?;
    let call = channel.call(STATUS);
    let found: proto::ServerStatusResponse = channel.unary(&call, &proto::ServerStatusRequest {}).await?;
    let call = channel.call(PUBLISH);
    // An empty set, to begin with.
    let (mut sender, mut receiver): (StreamSender<_>, StreamReceiver<_>) =
        channel.stream(&call, &request(BlockItems(bytes::Bytes::new()))).await?;
    let listening = tokio::spawn(async move {
        let mut before = None;
        while let Some(message) = receiver.next().await? {
            match PublishResponse::of(message, WireEra::Today) {
                Some(PublishResponse::Acknowledgement(number)) => {
                    assert!(before.is_none_or(|before| before + 1 == number), "{number} behind {before:?}");
                    before = Some(number);
                    heard.send(number).unwrap();
                }
                Some(PublishResponse::EndOfStream { .. }) => return Ok(()),
                _ => {}
            }
        }
        Ok(())
    });
    while !listening.is_finished() {
        let block = crafter.next(Shape::of_bytes(BLOCK_BYTES));
        if block.number < found.next_expected_block {
            continue;
        }
        let sent = async {
            sender.send(&request(BlockItems(block.bytes.into()))).await?;
            sender.send(&request(EndOfBlock(proto::BlockEnd { block_number: block.number }))).await
        };
        // Why, is heard by who listens.
        if sent.await.is_err() {
            break;
        }
        // What was acknowledged is heard in between.
        tokio::task::yield_now().await;
    }
    listening.await.unwrap()
}

#[test]
fn a_write_that_fails_ends_publishing_and_what_is_safe_is_served() {
    let directory = harness::folder();
    let server = Server::start_with_small_files(directory.path());
    let last = run(async {
        let published = publish(&publisher(&server, 0, 1_000)).await.unwrap();
        let Some((EndCode::PersistenceFailed, last)) = published.end else { panic!("{published}") };
        assert_eq!(published.acknowledged.last(), Some(&last), "what was told last is what was acknowledged");
        let result = read_all(&server, last).await;
        assert_eq!((result.blocks, result.wrong), (last + 1, None));
        let again = publish(&publisher(&server, last + 1, 1)).await.unwrap();
        assert_eq!((again.end, again.acknowledged), (Some((EndCode::PersistenceFailed, last)), vec![]));
        let ready = http(&server, "/readyz").await;
        assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("[-]store failed: no more blocks"), "{ready}");
        assert!(http(&server, "/livez").await.starts_with("HTTP/1.1 200 OK"));
        last
    });
    server.kill();
    let server = Server::start(directory.path(), &[]);
    run(async {
        assert!(status(&server).await.next_expected_block > last);
        let published = publish(&publisher(&server, status(&server).await.next_expected_block, 5)).await.unwrap();
        assert_eq!((published.end, published.acknowledged.len()), (None, 5));
        let result = read_all(&server, last + 5).await;
        assert_eq!((result.blocks, result.wrong), (last + 6, None));
    });
}

/// The next page of the index had no room, and the node did not start again: nothing was served of what was safe.
#[test]
fn a_node_that_has_no_room_for_its_index_serves_what_is_stored_and_takes_nothing() {
    let directory = harness::folder();
    // Far enough for an entry behind what files may have below; and then a short segment, which may be written to.
    let (many, few) = (4_200, 10);
    let server = Server::start(directory.path(), &[]);
    assert_eq!(run(publish(&publisher(&server, 0, many))).unwrap().acknowledged.len() as u64, many);
    assert!(server.terminate());
    let server = Server::start(directory.path(), &["--segment-bytes", "65536"]);
    let last = many + few - 1;
    let published = run(publish(&PublisherFlags { window: 2, ..publisher(&server, many, few) })).unwrap();
    assert_eq!(published.acknowledged.last(), Some(&last));
    server.kill();
    let server = Server::start_with_small_files(directory.path());
    run(async {
        let ready = http(&server, "/readyz").await;
        // Where the kill left a tail, setting that aside is what comes first and has no room.
        let failed = ["a write of the index failed", "setting aside what was cut off failed"];
        let is_told =
            |failed: &str| ready.contains(&format!("[-]store failed: no more blocks are stored since {failed}"));
        assert!(ready.starts_with("HTTP/1.1 503") && failed.into_iter().any(is_told), "{ready}");
        let result = read_all(&server, last).await;
        assert_eq!((result.blocks, result.wrong), (last + 1, None));
        let refused = publish(&publisher(&server, last + 1, 1)).await.unwrap();
        assert_eq!((refused.end, refused.acknowledged), (Some((EndCode::PersistenceFailed, last)), vec![]));
    });
    assert!(server.terminate());
    let server = Server::start(directory.path(), &[]);
    run(async {
        assert!(http(&server, "/readyz").await.starts_with("HTTP/1.1 200 OK"));
        let published = publish(&publisher(&server, last + 1, 1)).await.unwrap();
        assert_eq!((published.end, published.acknowledged), (None, vec![last + 1]));
    });
}
