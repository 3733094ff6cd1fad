//! A block of the past that many want at the same moment is read once.

use block_node::messages::GET_BLOCK;
use prost::Message as _;

use super::*;
use crate::memory::ask;
use crate::scrub::{becomes, metric};

const CALLS: u64 = 12;

/// Blocks that are there. Who is served after the reading is over has a block read again, as on a busy machine some may be: then the next block
/// is asked for.
const BLOCKS: std::ops::Range<u8> = 1..9;

async fn reads(server: &Server) -> u64 {
    metric(server, "block_node_blocks_read_from_disk_total").await
}

/// A server that keeps no block of the past in memory, so that what is shared is shared while it is read, or not at all.
fn without_memory(directory: &std::path::Path) -> Server {
    let server = Server::start(directory, &[]);
    assert_eq!(run(publish(&publisher(&server, 0, 9))).unwrap().acknowledged.len(), 9);
    assert!(server.terminate());
    Server::start(directory, &["--cache-bytes", "1"])
}

/// Lets many want one block after the other, until one of them was read once for all; that one. `count` counts those who have it.
fn read_once(server: &Server, path: &str, count: &str, message: impl Fn(u8) -> Vec<u8>) -> Option<u8> {
    BLOCKS.zip(1..).find_map(|(block, asked)| {
        let before = run(reads(server));
        let _client = ask(server, path, (0..CALLS).map(|_| message(block)));
        run(async {
            becomes(server, count, |served| served == asked * CALLS).await;
            (reads(server).await - before == 1).then_some(block)
        })
    })
}

#[test]
fn a_block_of_the_past_that_twelve_ask_for_at_the_same_moment_is_read_once() {
    let directory = harness::folder();
    let server = without_memory(directory.path());
    let read = read_once(&server, GET_BLOCK, "block_node_get_block_hits_total", |block| vec![0x08, block]);
    let block = read.expect("one of eight is read once");
    run(async {
        let before = reads(&server).await;
        // What was shared is kept no longer than that.
        assert_eq!(get_block(&server, &[0x08, block]).await.status, 1);
        assert_eq!(reads(&server).await, before + 1);
    });
}

#[test]
fn a_block_of_the_past_that_twelve_subscribers_want_at_the_same_moment_is_read_once() {
    let directory = harness::folder();
    let server = without_memory(directory.path());
    let request = |block: u8| {
        let number = block.into();
        proto::SubscribeStreamRequest { start_block_number: number, end_block_number: number, filter: None }
            .encode_to_vec()
    };
    let read = read_once(&server, SUBSCRIBE, "block_node_blocks_delivered_total", request);
    assert!(read.is_some(), "one of eight is read once");
}
