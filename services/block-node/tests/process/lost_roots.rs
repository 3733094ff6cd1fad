//! Blocks that are damaged together with their root hashes: what is made up for them is not taken.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::liars::{Liar, beside};
use super::scrub::{becomes, metric};
use super::*;

const LAST: u64 = 19;
const REPAIRED: &str = "block_node_blocks_repaired_total";

/// Changes a bit of the records of these blocks, so many bytes behind their beginning; a server may have the files open.
pub fn damage_records(directory: &Path, numbers: &[u64], within: usize) {
    let mut damaged = 0;
    for segment in std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()) {
        if segment.extension().is_none_or(|extension| extension != "blocks") {
            continue;
        }
        let bytes = std::fs::read(&segment).unwrap();
        let file = std::fs::File::options().write(true).open(&segment).unwrap();
        for place in (0..bytes.len() - 88).step_by(8) {
            let record = &bytes[place..];
            let number = u64::from_le_bytes(record[24..32].try_into().unwrap());
            if record.starts_with(b"BLK1") && record[12] == 2 && numbers.contains(&number) {
                file.write_all_at(&[record[within] ^ 1], (place + within) as u64).unwrap();
                damaged += 1;
            }
        }
    }
    assert_eq!(damaged, numbers.len());
}

/// Damages the heads of the records of these blocks, as a page that is lost does.
fn lose_roots(directory: &Path, numbers: &[u64]) {
    damage_records(directory, numbers, 50);
}

/// The same, and the digests of these blocks are nowhere else: what is left tells no more than a store of a release that kept none.
fn lose_roots_and_digests(directory: &Path, numbers: &[u64]) {
    lose_roots(directory, numbers);
    std::fs::remove_file(directory.join("00000000000000000000.digests")).unwrap();
}

/// A peer that has all blocks, and another one in the place of this: it continues the one before, and its proof is that of its own hash.
fn liar(number: u64) -> Liar {
    let mut crafter = Crafter::new(1, 0);
    (0..number).for_each(|_| drop(crafter.next(Shape::of_bytes(BLOCK_BYTES))));
    let forged = Bytes::from(crafter.next(Shape::of_bytes(BLOCK_BYTES / 2)).bytes);
    let mut shows: BTreeMap<u64, Bytes> = (0..).zip(crafted(LAST + 1).into_iter().map(Bytes::from)).collect();
    shows.insert(number, forged);
    Liar { shows: Arc::new(shows), ..Liar::new(|_| (0, LAST)) }
}

/// Stores all blocks in a directory.
fn filled(directory: &Path) -> Server {
    let server = Server::start(directory, &[]);
    assert_eq!(run(publish(&publisher(&server, 0, LAST + 1))).unwrap().acknowledged.len() as u64, LAST + 1);
    server
}

async fn is_ready(server: &Server) -> bool {
    http(server, "/readyz").await.starts_with("HTTP/1.1 200 OK")
}

#[test]
fn a_gap_of_blocks_whose_root_hashes_are_lost_is_closed_from_behind_and_not_with_what_a_peer_makes_up() {
    let (ours, theirs) = (harness::folder(), harness::folder());
    let honest = filled(theirs.path());
    filled(ours.path()).kill();
    lose_roots_and_digests(ours.path(), &[7, 8]);
    let liar = liar(7);
    run(beside(&liar, async |address| {
        let server = Server::start(ours.path(), &["--backfill-peers", &address]);
        becomes(&server, REPAIRED, |repaired| repaired == 1).await;
        becomes(&server, "block_node_backfill_failures_total", |failures| failures > 0).await;
        assert_eq!(get_block(&server, &[0x08, 7]).await.status, 5, "nothing here has the root hash of what it sent");
        server.kill();
        let server = Server::start(ours.path(), &["--backfill-peers", &format!("{address},{}", honest.address)]);
        becomes(&server, "block_node_quarantined_blocks", |quarantined| quarantined == 0).await;
        has_up_to(&server, LAST).await;
    }));
}

#[test]
fn behind_a_last_block_of_which_nothing_is_known_no_block_is_taken_until_it_is_whole() {
    let (ours, theirs) = (harness::folder(), harness::folder());
    let honest = filled(theirs.path());
    filled(ours.path()).kill();
    lose_roots_and_digests(ours.path(), &[LAST]);
    let liar = liar(LAST);
    run(beside(&liar, async |address| {
        let server = Server::start(ours.path(), &["--backfill-peers", &address]);
        let asked = async {
            while liar.asked.load(Ordering::Relaxed) < 2 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(harness::LONG, asked).await.expect("it is asked for the block");
        assert_eq!(metric(&server, REPAIRED).await, 0, "it may be any that continues the one before");
        assert!(!is_ready(&server).await);
        let published = publish(&publisher(&server, LAST + 1, 1)).await;
        assert!(published.is_err() || published.is_ok_and(|published| published.acknowledged.is_empty()));
        assert_eq!(status(&server).await.next_expected_block, LAST + 1);
    }));
    run(async {
        let flags = ["--backfill-peers", &honest.address, "--trust-peers-with-last-block"];
        let server = Server::start(ours.path(), &flags);
        becomes(&server, REPAIRED, |repaired| repaired == 1).await;
        assert!(is_ready(&server).await);
        assert_eq!(publish(&publisher(&server, LAST + 1, 1)).await.unwrap().acknowledged, [LAST + 1]);
        has_up_to(&server, LAST + 1).await;
    });
}

#[test]
fn the_root_hash_of_the_last_block_is_kept_elsewhere_when_a_node_stops_in_order() {
    let (ours, theirs) = (harness::folder(), harness::folder());
    let honest = filled(theirs.path());
    assert!(filled(ours.path()).terminate());
    lose_roots_and_digests(ours.path(), &[LAST]);
    let liar = liar(LAST);
    run(beside(&liar, async |address| {
        let server = Server::start(ours.path(), &["--backfill-peers", &address]);
        becomes(&server, "block_node_backfill_failures_total", |failures| failures > 0).await;
        assert_eq!(metric(&server, REPAIRED).await, 0);
        assert!(is_ready(&server).await);
        let other = PublisherFlags { seed: 2, ..publisher(&server, LAST + 1, 1) };
        assert!(!publish(&other).await.is_ok_and(|published| !published.acknowledged.is_empty()));
        assert_eq!(publish(&publisher(&server, LAST + 1, 1)).await.unwrap().acknowledged, [LAST + 1]);
        server.kill();
        let server = Server::start(ours.path(), &["--backfill-peers", &honest.address]);
        becomes(&server, "block_node_quarantined_blocks", |quarantined| quarantined == 0).await;
        has_up_to(&server, LAST + 1).await;
    }));
}

#[test]
fn what_was_acknowledged_is_known_without_its_root_hash_and_nobody_must_be_trusted_with_the_last_block() {
    let (ours, theirs) = (harness::folder(), harness::folder());
    let honest = filled(theirs.path());
    filled(ours.path()).kill();
    lose_roots(ours.path(), &[7, 8, LAST]);
    let liar = liar(LAST);
    run(beside(&liar, async |address| {
        let server = Server::start(ours.path(), &["--backfill-peers", &address]);
        becomes(&server, REPAIRED, |repaired| repaired == 2).await;
        becomes(&server, "block_node_backfill_failures_total", |failures| failures > 0).await;
        assert!(!is_ready(&server).await);
        server.kill();
        let server = Server::start(ours.path(), &["--backfill-peers", &format!("{address},{}", honest.address)]);
        becomes(&server, REPAIRED, |repaired| repaired == 1).await;
        assert!(is_ready(&server).await);
        assert_eq!(publish(&publisher(&server, LAST + 1, 1)).await.unwrap().acknowledged, [LAST + 1]);
        has_up_to(&server, LAST + 1).await;
    }));
}
