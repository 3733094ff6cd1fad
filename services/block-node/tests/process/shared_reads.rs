//! A block of the past that many want at the same moment is read for all of them.

use block_node::messages::GET_BLOCK;
use prost::Message as _;

use super::*;
use crate::memory::ask;
use crate::scrub::{becomes, metric};

const CALLS: u64 = 12;

/// How often a block was read for them: once, and again for who was served after the reading was over, as on a busy machine some may be. Where
/// nothing is shared it is once for each.
async fn was_shared(server: &Server) -> u64 {
    let reads = metric(server, "block_node_blocks_read_from_disk_total").await;
    assert!((1..=CALLS / 3).contains(&reads), "read {reads} times for {CALLS}");
    reads
}

/// A server that keeps no block of the past in memory, so that what is shared is shared while it is read, or not at all.
fn without_memory(directory: &std::path::Path) -> Server {
    let server = Server::start(directory, &[]);
    assert_eq!(run(publish(&publisher(&server, 0, 9))).unwrap().acknowledged.len(), 9);
    assert!(server.terminate());
    Server::start(directory, &["--cache-bytes", "1"])
}

#[test]
fn a_block_of_the_past_that_twelve_ask_for_at_the_same_moment_is_read_for_all_of_them() {
    let directory = harness::folder();
    let server = without_memory(directory.path());
    let _client = ask(&server, GET_BLOCK, (0..CALLS).map(|_| vec![0x08, 3]));
    run(async {
        becomes(&server, "block_node_get_block_hits_total", |hits| hits == CALLS).await;
        let reads = was_shared(&server).await;
        // What was shared is kept no longer than that.
        assert_eq!(get_block(&server, &[0x08, 3]).await.status, 1);
        assert_eq!(metric(&server, "block_node_blocks_read_from_disk_total").await, reads + 1);
    });
}

#[test]
fn a_block_of_the_past_that_twelve_subscribers_want_at_the_same_moment_is_read_for_all_of_them() {
    let directory = harness::folder();
    let server = without_memory(directory.path());
    let request = proto::SubscribeStreamRequest { start_block_number: 5, end_block_number: 5, filter: None };
    let _client = ask(&server, SUBSCRIBE, (0..CALLS).map(|_| request.encode_to_vec()));
    run(async {
        becomes(&server, "block_node_blocks_delivered_total", |delivered| delivered == CALLS).await;
        was_shared(&server).await;
    });
}
