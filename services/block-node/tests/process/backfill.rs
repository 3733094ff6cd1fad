//! Blocks that come from peers: what is missing, and what is damaged.

use block_node::block::{Limits, ProofRules};
use block_node::craft::Traffic;
use block_node::store::{LEVEL, Prepared, Store};

use super::scrub::{becomes, metric};
use super::*;

#[test]
fn a_node_that_is_behind_fetches_from_its_peers_and_goes_on_with_a_publisher() {
    let (whole, behind) = (harness::folder(), harness::folder());
    let peer = Server::start(whole.path(), &[]);
    run(async {
        publish(&publisher(&peer, 0, 300)).await.unwrap();
        // The first peer is not there.
        let peers = format!("127.0.0.1:{},{}", harness::free_port(), peer.address);
        let server = Server::start(behind.path(), &["--backfill-peers", &peers]);
        has_up_to(&server, 299).await;
        let published = publish(&publisher(&server, 300, 10)).await.unwrap();
        assert_eq!((published.end, published.acknowledged.last()), (None, Some(&309)));
        // The peer is behind now: nothing to fetch, nothing lost.
        assert_eq!(status(&peer).await.last_available_block, 299);
        let metrics = http(&server, "/metrics").await;
        assert!(metrics.contains("\nblock_node_blocks_backfilled_total 300\n"), "{metrics}");
    });
}

#[test]
fn blocks_of_another_history_are_not_fetched() {
    let (ours, theirs, behind) = (harness::folder(), harness::folder(), harness::folder());
    let (good, wrong) = (Server::start(ours.path(), &[]), Server::start(theirs.path(), &[]));
    run(async {
        publish(&publisher(&good, 0, 40)).await.unwrap();
        publish(&PublisherFlags { seed: 2, ..publisher(&wrong, 0, 60) }).await.unwrap();
        let peers = format!("{},{}", wrong.address, good.address);
        let server = Server::start(behind.path(), &[]);
        publish(&publisher(&server, 0, 5)).await.unwrap();
        server.kill();
        let server = Server::start(behind.path(), &["--backfill-peers", &peers]);
        has_up_to(&server, 39).await;
        let metrics = http(&server, "/metrics").await;
        assert!(!metrics.contains("\nblock_node_backfill_failures_total 0\n"), "{metrics}");
    });
}

#[test]
fn a_block_that_rots_is_fetched_again_from_a_peer_that_has_the_right_one() {
    let (ours, theirs, others) = (harness::folder(), harness::folder(), harness::folder());
    let (peer, wrong) = (Server::start(theirs.path(), &[]), Server::start(others.path(), &[]));
    let server = Server::start(ours.path(), &[]);
    run(async {
        publish(&publisher(&peer, 0, 30)).await.unwrap();
        publish(&PublisherFlags { seed: 2, ..publisher(&wrong, 0, 30) }).await.unwrap();
        publish(&publisher(&server, 0, 30)).await.unwrap();
    });
    assert!(server.terminate());
    let segment = ours.path().join("00000000000000000001.blocks");
    let mut bytes = std::fs::read(&segment).unwrap();
    let places = [bytes.len() / 3, bytes.len() / 2];
    places.iter().for_each(|place| bytes[*place] ^= 0x10);
    std::fs::write(&segment, bytes).unwrap();
    run(async {
        let peers = format!("{},{}", wrong.address, peer.address);
        let server = Server::start(ours.path(), &["--backfill-peers", &peers]);
        let wait = async {
            while !http(&server, "/metrics").await.contains("\nblock_node_blocks_repaired_total 2\n") {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(harness::LONG, wait).await.expect("two blocks are repaired");
        let result = read_all(&server, 29).await;
        assert_eq!((result.blocks, result.wrong), (30, None));
        let metrics = http(&server, "/metrics").await;
        assert!(metrics.contains("\nblock_node_quarantined_blocks 0\n"), "{metrics}");
        publish(&publisher(&server, 30, 5)).await.unwrap();
        server.kill();
        // Without peers.
        let server = Server::start(ours.path(), &[]);
        let result = read_all(&server, 34).await;
        assert_eq!((result.blocks, result.wrong), (35, None));
    });
}

/// Where the records of a segment begin, the segment's own head first.
fn records(segment: &[u8]) -> Vec<usize> {
    (0..segment.len()).step_by(8).filter(|place| segment[*place..].starts_with(b"BLK1")).collect()
}

/// Peer and node have blocks 0 to 4 together; the peer's block 5 continues them, too, and is another one than that which rots here.
#[test]
fn a_last_block_that_rots_is_not_replaced_with_that_of_another_history() {
    let (ours, theirs) = (harness::folder(), harness::folder());
    let mut crafter = Crafter::new(1, 0);
    let mut blocks: Vec<_> = (0..5).map(|_| crafter.next(Shape::of_bytes(BLOCK_BYTES)).bytes).collect();
    blocks.push(crafter.next(Shape::of_bytes(BLOCK_BYTES / 2)).bytes);
    stored(theirs.path(), blocks);
    let peer = Server::start(theirs.path(), &[]);
    let flags = ["--scrub-interval-seconds", "1", "--backfill-peers", &peer.address];
    let server = Server::start(ours.path(), &flags);
    run(async {
        publish(&publisher(&server, 0, 6)).await.unwrap();
        let segment = ours.path().join("00000000000000000001.blocks");
        let mut bytes = std::fs::read(&segment).unwrap();
        let last = *records(&bytes).last().unwrap();
        bytes[last + 120] ^= 1;
        std::fs::write(&segment, bytes).unwrap();
        becomes(&server, "block_node_scrub_damaged_blocks_total", |damaged| damaged == 1).await;
        becomes(&server, "block_node_backfill_failures_total", |failures| failures > 0).await;
        assert_eq!(metric(&server, "block_node_blocks_repaired_total").await, 0, "another block stands in its place");
        let published = publish(&publisher(&server, 6, 1)).await.unwrap();
        assert_eq!(published.acknowledged, [6]);
    });
}

/// Puts these blocks into a directory, however they belong together.
fn stored(directory: &std::path::Path, blocks: Vec<Vec<u8>>) {
    let directory = block_node::data_directory::open(directory).unwrap();
    let mut store = Store::open(directory, Default::default()).unwrap();
    let limits = Limits { block_bytes_max: 1 << 20 };
    for block in blocks {
        let verified = Verified::of(&block, limits, &ProofRules::accepted_before()).unwrap();
        store.append(&[Prepared::with(&verified, None, LEVEL)]).unwrap();
    }
}

#[test]
fn a_repaired_block_is_compressed_as_it_is_asked_for() {
    let (ours, theirs) = (harness::folder(), harness::folder());
    let (mut crafter, mut traffic) = (Crafter::new(1, 0), Traffic::new(1));
    let blocks: Vec<_> = (0..5).map(|_| crafter.next_of(traffic.items(10)).bytes).collect();
    [&ours, &theirs].iter().for_each(|folder| stored(folder.path(), blocks.clone()));
    let segment = ours.path().join("00000000000000000001.blocks");
    let mut bytes = std::fs::read(&segment).unwrap();
    let damaged = records(&bytes)[3] + 100;
    bytes[damaged] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let limits = Limits { block_bytes_max: 1 << 20 };
    let verified = Verified::of(&blocks[2], limits, &ProofRules::accepted_before()).unwrap();
    let peer = Server::start(theirs.path(), &[]);
    let flags = ["--compression-level", "9", "--backfill-peers", &peer.address];
    let server = Server::start(ours.path(), &flags);
    run(async { becomes(&server, "block_node_blocks_repaired_total", |repaired| repaired == 1).await });
    let bytes = std::fs::read(&segment).unwrap();
    let has = |level| {
        let stored = Prepared::with(&verified, None, level).stored;
        bytes.windows(stored.len()).any(|window| window == stored)
    };
    assert!(has(9) && !has(LEVEL), "the damaged one is the only one of the other level");
}

#[test]
fn a_damaged_block_that_no_peer_has_right_ends_neither_other_repairs_nor_fetching() {
    let (ours, theirs) = (harness::folder(), harness::folder());
    let peer = Server::start(theirs.path(), &[]);
    // Block 9 is of another history here, so that the peer's block 10 does not continue it.
    let other = Crafter::new(2, 9).next(Shape::of_bytes(BLOCK_BYTES)).bytes;
    let mut blocks = crafted(30);
    blocks[9] = other;
    stored(ours.path(), blocks);
    let segment = ours.path().join("00000000000000000001.blocks");
    let mut bytes = std::fs::read(&segment).unwrap();
    let places = records(&bytes);
    assert_eq!(places.len(), 31);
    // Of block 10 the root hash is damaged, too, and the digest lost: what is beside it must tell.
    [(10, 50), (20, 100)].iter().for_each(|(number, place)| bytes[places[number + 1] + place] ^= 1);
    std::fs::write(&segment, bytes).unwrap();
    std::fs::remove_file(ours.path().join("00000000000000000000.digests")).unwrap();
    run(async {
        publish(&publisher(&peer, 0, 60)).await.unwrap();
        let server = Server::start(ours.path(), &["--backfill-peers", &peer.address]);
        assert_eq!(metric(&server, "block_node_quarantined_blocks").await, 2, "what is damaged when it starts is told");
        status_becomes(&server, |status| status.last_available_block == 59).await;
        becomes(&server, "block_node_blocks_repaired_total", |repaired| repaired == 1).await;
        becomes(&server, "block_node_backfill_failures_total", |failures| failures > 0).await;
        assert_eq!(metric(&server, "block_node_quarantined_blocks").await, 1);
        assert_eq!(get_block(&server, &[0x08, 20]).await.status, 1);
    });
}

#[test]
fn a_node_fetches_over_tls_and_from_nobody_whom_its_authority_has_not_signed() {
    let directory = harness::folder();
    let signed = |name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let parameters = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        [("certificate", parameters.self_signed(&key).unwrap().pem()), ("key", key.serialize_pem())].map(
            |(what, pem)| {
                let path = directory.path().join(format!("{name}-{what}"));
                std::fs::write(&path, pem).unwrap();
                path.to_str().unwrap().to_owned()
            },
        )
    };
    let ([certificate, key], [stranger, _]) = (signed("peer"), signed("stranger"));
    let folder = |name: &str| directory.path().join(name);
    let flags = ["--tls-certificate", &certificate, "--tls-key", &key, "--tls-client-authority", &certificate];
    let peer = Server::start(&folder("peer"), &flags);
    let address = peer.address.replace("127.0.0.1", "https://localhost");
    let tls = TlsFlags {
        tls_authority: Some(certificate.clone().into()),
        tls_certificate: Some(certificate.clone().into()),
        tls_key: Some(key.clone().into()),
        ..TlsFlags::default()
    };
    run(async {
        let published = publish(&PublisherFlags { address: address.clone(), tls, ..publisher(&peer, 0, 20) }).await;
        assert_eq!(published.unwrap().acknowledged.len(), 20);
        let own =
            ["--backfill-tls-certificate", &certificate, "--backfill-tls-key", &key, "--backfill-peers", &address];
        let trusting = |authority| [&own[..], &["--backfill-tls-authority", authority]].concat();
        let wary = Server::start(&folder("wary"), &trusting(&stranger));
        let server = Server::start(&folder("ours"), &trusting(&certificate));
        has_up_to(&server, 19).await;
        let wait = async {
            while http(&wary, "/metrics").await.contains("\nblock_node_backfill_failures_total 0\n") {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(harness::LONG, wait).await.expect("a failure");
        assert_eq!(status(&wary).await.last_available_block, NO_BLOCK);
    });
    let output = Command::new(PROGRAM)
        .args(["--server-port", "0", "--backfill-peers", &address, "--data-dir"])
        .arg(folder("none"))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("--backfill-tls-authority must say"), "{said}");
}

#[test]
fn an_empty_node_begins_with_the_first_block_that_a_peer_still_has_where_that_is_allowed() {
    let (theirs, ours, others) = (harness::folder(), harness::folder(), harness::folder());
    let peer = Server::start(theirs.path(), &["--block-node-earliest-managed-block", "200"]);
    run(async {
        publish(&publisher(&peer, 200, 30)).await.unwrap();
        let peers = ["--backfill-peers", &peer.address];
        let waiting = Server::start(others.path(), &peers);
        let server = Server::start(ours.path(), &[&peers[..], &["--backfill-greedy"]].concat());
        status_becomes(&server, |status| status.last_available_block == 229).await;
        assert_eq!(status(&server).await.first_available_block, 200);
        assert_eq!(read(&consumer(&server, Some(200), Some(229)), |_| ()).await.unwrap().blocks, 30);
        assert_eq!(status(&waiting).await.last_available_block, NO_BLOCK, "nobody has said that it may");
        server.kill();
        let server = Server::start(ours.path(), &[]);
        let found = status(&server).await;
        assert_eq!((found.first_available_block, found.next_expected_block), (200, 230));
    });
}

#[test]
fn a_node_that_is_behind_catches_up_in_an_older_era_too() {
    let (ours, theirs) = (harness::folder(), harness::folder());
    let era = ["--wire-era", "v0.15"];
    let ahead = Server::start(theirs.path(), &era);
    run(async {
        publish(&PublisherFlags { wire_era: WireEra::V015, ..publisher(&ahead, 0, 30) }).await.unwrap();
        let server = Server::start(ours.path(), &[&era[..], &["--backfill-peers", &ahead.address]].concat());
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        while status_of(&server).await != 29 {
            assert!(tokio::time::Instant::now() < deadline, "it stays behind");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let flags = ConsumerFlags { wire_era: WireEra::V015, ..consumer(&server, Some(0), Some(29)) };
        assert_eq!(read(&flags, |_| ()).await.unwrap().blocks, 30);
    });
}

/// The last block, in any era.
async fn status_of(server: &Server) -> u64 {
    let mut channel = connect(&server.address).await.unwrap();
    let call = channel.call(STATUS);
    let status: proto::OldServerStatusResponse = channel.unary(&call, &proto::ServerStatusRequest {}).await.unwrap();
    status.last_available_block
}
