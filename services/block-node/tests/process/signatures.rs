//! What repairs a block is the one that was acknowledged, and not the same with another signature, which nobody checks.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use block_node::craft::signed;
use bytes::Bytes;

use super::liars::{Liar, beside};
use super::lost_roots::damage_records;
use super::record_files::store_all;
use super::scrub::{becomes, metric};
use super::*;

const REPAIRED: &str = "block_node_blocks_repaired_total";
const FAILURES: &str = "block_node_backfill_failures_total";
const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/without_digests/");
/// Where in a record what is stored is damaged.
const WITHIN: usize = 120;

/// Signs these blocks with so many of this byte, as long as a network's signature is.
fn with_signatures(blocks: &[Vec<u8>], byte: u8) -> Vec<Vec<u8>> {
    (0..).zip(blocks).map(|(number, block)| signed(block, number, &[byte; 2_920])).collect()
}

/// A peer that has these blocks, and says so.
fn offering(blocks: &[Vec<u8>]) -> Liar {
    let shows: BTreeMap<u64, Bytes> = (0..).zip(blocks.iter().cloned().map(Bytes::from)).collect();
    Liar { shows: Arc::new(shows), ..Liar::new(|_| (0, 4)) }
}

async fn block(server: &Server, number: u8) -> Option<Bytes> {
    get_block(server, &[0x08, number]).await.block
}

#[test]
fn a_damaged_block_is_not_repaired_by_the_same_with_another_signature_of_its_length() {
    let (ours, theirs) = (harness::folder(), harness::folder());
    let stored = with_signatures(&crafted(5), 1);
    [&ours, &theirs].iter().for_each(|folder| store_all(folder.path(), &stored));
    damage_records(ours.path(), &[0], WITHIN);
    let honest = Server::start(theirs.path(), &[]);
    let liar = offering(&with_signatures(&crafted(5), 2));
    run(beside(&liar, async |address| {
        let server = Server::start(ours.path(), &["--backfill-peers", &address]);
        becomes(&server, FAILURES, |failures| failures > 0).await;
        assert_eq!((metric(&server, REPAIRED).await, block(&server, 0).await), (0, None));
        server.kill();
        let peers = format!("{address},{}", honest.address);
        let flags = ["--scrub-interval-seconds", "1", "--backfill-peers", &peers];
        let asked = liar.asked.load(Ordering::Relaxed);
        let server = Server::start(ours.path(), &flags);
        becomes(&server, REPAIRED, |repaired| repaired == 1).await;
        assert_eq!(block(&server, 0).await.as_deref(), Some(&stored[0][..]));
        // From now on it is asked behind the other one.
        damage_records(ours.path(), &[2], WITHIN);
        becomes(&server, REPAIRED, |repaired| repaired == 2).await;
        assert_eq!(block(&server, 2).await.as_deref(), Some(&stored[2][..]));
        assert_eq!(liar.asked.load(Ordering::Relaxed), asked + 1);
    }));
}

/// What a release has stored that kept no digests is repaired as it was there: of a signature its length alone is known.
#[test]
fn what_was_stored_without_a_digest_is_repaired_by_its_root_hash_and_length() {
    let ours = harness::folder();
    for file in std::fs::read_dir(VECTORS).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), ours.path().join(file.file_name())).unwrap();
    }
    let mut crafter = Crafter::new(1, 0);
    let mut blocks: Vec<_> = (0..6).map(|_| crafter.next(Shape { items: 3, item_bytes: 100 }).bytes).collect();
    blocks[2] = signed(&blocks[2], 2, &[7; 2_920]);
    damage_records(ours.path(), &[2], WITHIN);
    for (signature, is_taken) in [(&[7; 3_432][..], false), (&[8; 2_920][..], true)] {
        let mut offered = blocks.clone();
        offered[2] = signed(&blocks[2], 2, signature);
        let liar = offering(&offered);
        run(beside(&liar, async |address| {
            let server = Server::start(ours.path(), &["--backfill-peers", &address]);

            let expected = if is_taken { REPAIRED } else { FAILURES };
            becomes(&server, expected, |count| count > 0).await;
            let found = block(&server, 2).await;
            assert_eq!(found.as_deref(), is_taken.then_some(&offered[2][..]));
        }));
    }
}
