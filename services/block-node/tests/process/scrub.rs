//! What rots is found without anybody asking for it.

use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::*;

/// Changes a byte in the only segment while the server has it open; where, as a share of its length.
fn rot(data: &Path, share: f64) {
    let segment = data.join("00000000000000000001.blocks");
    let file = std::fs::File::options().read(true).write(true).open(segment).unwrap();
    let place = (file.metadata().unwrap().len() as f64 * share) as u64;
    let mut byte = [0];
    file.read_exact_at(&mut byte, place).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], place).unwrap();
}

pub async fn metric(server: &Server, name: &str) -> u64 {
    let metrics = http(server, "/metrics").await;
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("{name}: {metrics}")).parse().unwrap()
}

pub async fn becomes(server: &Server, name: &str, holds: impl Fn(u64) -> bool) {
    let wait = async {
        while !holds(metric(server, name).await) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(harness::LONG, wait).await.unwrap_or_else(|_| panic!("{name} stays"));
}

#[test]
fn blocks_that_rot_are_found_and_repaired_though_nobody_reads_them() {
    let (ours, theirs) = (harness::folder(), harness::folder());
    let peer = Server::start(theirs.path(), &[]);
    let flags = ["--scrub-interval-seconds", "1", "--backfill-peers", &peer.address];
    let server = Server::start(ours.path(), &flags);
    run(async {
        publish(&publisher(&peer, 0, 30)).await.unwrap();
        has_up_to(&server, 29).await;
        let read_before = metric(&server, "block_node_blocks_read_from_disk_total").await;
        [1.0 / 3.0, 0.5].into_iter().for_each(|share| rot(ours.path(), share));
        becomes(&server, "block_node_blocks_repaired_total", |repaired| repaired == 2).await;
        // A block may be repaired before the pass that has found it counts it.
        becomes(&server, "block_node_scrub_damaged_blocks_total", |damaged| damaged == 2).await;
        becomes(&server, "block_node_quarantined_blocks", |quarantined| quarantined == 0).await;
        assert_eq!(metric(&server, "block_node_blocks_read_from_disk_total").await, read_before, "nobody has asked");
    });
    server.kill();
    // Nothing is taken from memory now.
    let server = Server::start(ours.path(), &["--scrub-interval-seconds", "0"]);
    run(async {
        let result = read_all(&server, 29).await;
        assert_eq!((result.blocks, result.wrong), (30, None));
    });
}

#[test]
fn a_block_that_rots_where_there_is_no_peer_is_told_once_and_missing_in_status() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &["--scrub-interval-seconds", "1"]);
    run(async {
        publish(&publisher(&server, 0, 30)).await.unwrap();
        rot(directory.path(), 0.5);
        becomes(&server, "block_node_scrub_damaged_blocks_total", |damaged| damaged == 1).await;
        assert_eq!(metric(&server, "block_node_quarantined_blocks").await, 1);
        // Another whole pass, in which it is passed over.
        let scrubbed = metric(&server, "block_node_blocks_scrubbed_total").await;
        becomes(&server, "block_node_blocks_scrubbed_total", |now| now >= scrubbed + 60).await;
        assert_eq!(metric(&server, "block_node_scrub_damaged_blocks_total").await, 1);
        assert!(metric(&server, "block_node_scrub_last_pass_timestamp_seconds").await > 1_700_000_000);
        let mut channel = connect(&server.address).await.unwrap();
        let call = channel.call("/org.hiero.block.api.BlockNodeService/serverStatusDetail");
        let detail: proto::ServerStatusDetailResponse =
            channel.unary(&call, &proto::ServerStatusRequest {}).await.unwrap();
        let ranges = detail.available_ranges;
        assert_eq!((ranges.len(), ranges[0].range_start, ranges[1].range_end), (2, 0, 29), "{ranges:?}");
        assert_eq!(ranges[1].range_start, ranges[0].range_end + 2, "{ranges:?}");
    });
}

#[test]
fn a_server_that_is_asked_to_stop_while_it_reads_damaged_blocks_stops_at_once() {
    let directory = harness::folder();
    let flags = ["--scrub-interval-seconds", "1", "--scrub-bytes-per-second", "40960"];
    let server = Server::start(directory.path(), &flags);
    run(async {
        publish(&publisher(&server, 0, 300)).await.unwrap();
        // Every block: each has about 3 kB, less than what a damaged one counts for.
        (0..1_000).for_each(|share| rot(directory.path(), f64::from(share) / 1_000.0));
        becomes(&server, "block_node_scrub_damaged_blocks_total", |damaged| damaged > 0).await;
        assert!(metric(&server, "block_node_scrub_damaged_blocks_total").await < 150, "no faster than is allowed");
    });
    let began = std::time::Instant::now();
    assert!(server.terminate());
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[test]
fn no_more_is_read_than_the_rate_allows() {
    let directory = harness::folder();
    let flags = ["--scrub-interval-seconds", "1", "--scrub-bytes-per-second", "500000"];
    let server = Server::start(directory.path(), &flags);
    run(async {
        // Three megabytes: six seconds.
        let blocks = PublisherFlags { block_bytes: 30_000, ..publisher(&server, 0, 100) };
        publish(&blocks).await.unwrap();
        // Passes that began before are over when this one is.
        becomes(&server, "block_node_blocks_scrubbed_total", |scrubbed| scrubbed > 0).await;
        let (before, began) = (metric(&server, "block_node_blocks_scrubbed_total").await, tokio::time::Instant::now());
        tokio::time::sleep(Duration::from_secs(3)).await;
        let read = metric(&server, "block_node_blocks_scrubbed_total").await - before;
        // A piece of 256 KiB is read at once, and one more may be counted at each end.
        let allowed = (began.elapsed().as_secs_f64() * 500_000.0 / 30_000.0) as u64 + 20;
        assert!((10..=allowed).contains(&read), "{read} blocks of 30 KB, {allowed} were allowed");
    });
}
