//! Subscribers who filter get what they asked for, and the root hash of every block comes out all the same.

use super::*;

fn filtered(server: &Server, only_items: &[u32], without_items: &[u32], last: u64) -> ConsumerFlags {
    ConsumerFlags {
        only_items: only_items.to_vec(),
        without_items: without_items.to_vec(),
        ..consumer(server, Some(0), Some(last))
    }
}

async fn counted(server: &Server, name: &str) -> u64 {
    let metrics = http(server, "/metrics").await;
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
    value.parse().unwrap()
}

#[test]
fn what_was_not_asked_for_comes_as_hashes_that_verify_and_each_block_is_filtered_once_for_all_who_filter_alike() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    run(async {
        publish(&publisher(&server, 0, 20)).await.unwrap();
        let expected: Vec<_> = {
            let mut crafter = Crafter::new(1, 0);
            (0..40).map(|_| crafter.next(Shape::of_bytes(BLOCK_BYTES))).collect()
        };
        let subscribers: Vec<_> = (0..6)
            .map(|_| {
                let flags = filtered(&server, &[4], &[], 39);
                let roots: Vec<_> = expected.iter().map(|block| block.root).collect();
                tokio::spawn(async move {
                    let mut next = 0;
                    let compare = |block: &Verified| {
                        assert_eq!(block.root, roots[next], "block {next}");
                        next += 1;
                        // Header, transactions, footer, proof; hashes of all others.
                        let fields: Vec<u8> = items(&block.bytes).map(|item| item.unwrap()[0] >> 3).collect();
                        assert!(fields.iter().all(|field| matches!(field, 1 | 4 | 8 | 9 | 12)), "{fields:?}");
                        assert!(fields.contains(&4) && fields.contains(&8), "{fields:?}");
                    };
                    read(&flags, compare).await.unwrap()
                })
            })
            .collect();
        publish(&publisher(&server, 20, 20)).await.unwrap();
        for subscriber in subscribers {
            let result = subscriber.await.unwrap();
            assert_eq!((result.blocks, result.wrong, result.status), (40, None, 1));
        }
        assert_eq!(counted(&server, "block_node_blocks_filtered_total").await, 40);
        let without = read(&filtered(&server, &[], &[4, 7], 39), |_| ()).await.unwrap();
        assert_eq!((without.blocks, without.wrong), (40, None));
        assert_eq!(counted(&server, "block_node_blocks_filtered_total").await, 80);
        for wrong in [filtered(&server, &[13], &[], 39), filtered(&server, &[], &[9], 39)] {
            let result = read(&wrong, |_| ()).await.unwrap();
            assert_eq!((result.blocks, result.status), (0, 2), "INVALID_REQUEST");
        }
    });
}

#[test]
fn large_blocks_are_filtered_in_pieces() {
    let directory = harness::folder();
    let server = large_blocks(directory.path(), 3, &["--cache-bytes", "65536", "--readers-memory-bytes", "4000000"]);
    run(async {
        let whole = read(&consumer(&server, Some(0), Some(2)), |_| ()).await.unwrap();
        for (only, without) in [(&[5][..], &[][..]), (&[], &[5])] {
            let result = read(&filtered(&server, only, without, 2), |_| ()).await.unwrap();
            assert_eq!((result.blocks, result.wrong, result.status), (3, None, 1));
            assert!(result.bytes < whole.bytes * 3 / 4, "{} of {}", result.bytes, whole.bytes);
        }
        assert_eq!(
            http(&server, "/metrics").await.lines().find(|line| line.starts_with("block_node_lent_bytes ")),
            Some("block_node_lent_bytes 0")
        );
    });
}

#[test]
fn blocks_of_a_time_without_filters_are_not_available_to_who_filters() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    run(async {
        let version = block_node::block::Version { major: 0, minor: 62, patch: 2 };
        let block = Crafter::in_version(1, 0, version).next(Shape { items: 5, item_bytes: 50 });
        assert_eq!(publish_block(&server, &block.bytes).await, PublishResponse::Acknowledgement(0));
        let result = read(&filtered(&server, &[4], &[], 0), |_| ()).await.unwrap();
        assert_eq!((result.blocks, result.status), (0, 6), "NOT_AVAILABLE");
        let whole = read(&consumer(&server, Some(0), Some(0)), |_| ()).await.unwrap();
        assert_eq!((whole.blocks, whole.wrong), (1, None));
    });
}
