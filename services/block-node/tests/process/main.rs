//! The program itself: published to, read from, killed, started again.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod compressed;
mod dashboard;
mod java_files;
mod raw;
mod server;

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use block_node::block::Verified;
use block_node::craft::{Crafter, Shape};
use block_node::messages::{EndCode, NO_BLOCK, PublishResponse, WireEra, item_ranges, items, proto};
use block_node::simulate::{
    ConsumerFlags, Fault, PUBLISH, PublisherFlags, Read, STATUS, TlsFlags, connect, publish, read, request,
};
use raw::Raw;
use rustls::pki_types::ServerName;
use server::{PROGRAM, Server};
use service_kit::client::{Channel, GrpcError, Options, StreamReceiver, StreamSender};
use service_kit::tls::{ClientTls, ClientTlsFiles};
use tokio_rustls::TlsConnector;

const BLOCK_BYTES: usize = 3_000;

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn publisher(server: &Server, first: u64, blocks: u64) -> PublisherFlags {
    PublisherFlags {
        address: server.address.clone(),
        tls: TlsFlags::default(),
        first,
        blocks,
        block_bytes: BLOCK_BYTES,
        window: 16,
        millis_per_block: 0,
        message_bytes: 1_000,
        wire_era: WireEra::Today,
        seed: 1,
        fault: Fault::None,
        fault_block: 0,
        fault_millis: 0,
    }
}

fn consumer(server: &Server, start: Option<u64>, end: Option<u64>) -> ConsumerFlags {
    let (address, tls) = (server.address.clone(), TlsFlags::default());
    ConsumerFlags { address, tls, start, end, wire_era: WireEra::Today, slow_millis: 0 }
}

/// The blocks that a publisher sends.
fn crafted(blocks: u64) -> Vec<Vec<u8>> {
    let mut crafter = Crafter::new(1, 0);
    (0..blocks).map(|_| crafter.next(Shape::of_bytes(BLOCK_BYTES)).bytes).collect()
}

/// Reads blocks from 0 on and compares each with what was published.
async fn read_all(server: &Server, last: u64) -> Read {
    let expected = crafted(last + 1);
    let mut next = 0;
    let flags = consumer(server, Some(0), Some(last));
    let compare = |block: &Verified| {
        assert_eq!(block.bytes, expected[next], "block {next}");
        next += 1;
    };
    read(&flags, compare).await.unwrap()
}

async fn status(server: &Server) -> proto::ServerStatusResponse {
    let mut channel = connect(&server.address).await.unwrap();
    let call = channel.call(STATUS);
    channel.unary(&call, &proto::ServerStatusRequest {}).await.unwrap()
}

async fn get_block(server: &Server, request: &[u8]) -> proto::BlockResponse {
    let mut channel = connect(&server.address).await.unwrap();
    let call = channel.call("/org.hiero.block.api.BlockAccessService/getBlock");
    channel.unary(&call, &Raw::of(request)).await.unwrap()
}

#[test]
fn what_is_published_is_acknowledged_and_read_back() {
    let directory = harness::folder();
    let data = directory.path().join("data");
    let server = Server::start(&data, &[]);
    run(async {
        let empty = status(&server).await;
        assert_eq!((empty.first_available_block, empty.last_available_block), (NO_BLOCK, NO_BLOCK));
        assert_eq!(get_block(&server, &[0x08, 0]).await.status, 5, "NOT_AVAILABLE");
        let published = publish(&publisher(&server, 0, 60)).await.unwrap();
        assert_eq!(published.acknowledged, (0..60).collect::<Vec<_>>());
        assert_eq!(published.latencies.len(), 60);
        let result = read_all(&server, 59).await;
        assert_eq!((result.blocks, result.wrong, result.status), (60, None, 1));
        let full = status(&server).await;
        let shown = (full.first_available_block, full.last_available_block, full.next_expected_block);
        assert_eq!(shown, (0, 59, 60));
        let expected = crafted(60);
        for number in [0, 31, 59] {
            let found = get_block(&server, &[0x08, number]).await;
            assert_eq!((found.status, found.block.as_deref()), (1, Some(&expected[usize::from(number)][..])));
        }
        let latest = get_block(&server, &[0x10, 1]).await;
        assert_eq!(latest.block.as_deref(), Some(&expected[59][..]));
        assert_eq!(get_block(&server, &[0x08, 60]).await.status, 5);
        assert_eq!(get_block(&server, &[]).await.status, 2, "INVALID_REQUEST");
    });
    for entry in std::fs::read_dir(&data).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{}", path.display());
    }
    assert_eq!(data.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    assert!(server.terminate(), "SIGTERM ends it well");
}

#[test]
fn status_tells_what_is_checked() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    run(async {
        publish(&publisher(&server, 0, 3)).await.unwrap();
        let mut channel = connect(&server.address).await.unwrap();
        let call = channel.call("/org.hiero.block.api.BlockNodeService/serverStatusDetail");
        let detail: proto::ServerStatusDetailResponse =
            channel.unary(&call, &proto::ServerStatusRequest {}).await.unwrap();
        assert_eq!(detail.available_ranges, [proto::BlockRange { range_start: 0, range_end: 2 }]);
        let plugins = detail.version_information.unwrap().installed_plugin_versions;
        let features = &plugins.iter().find(|plugin| plugin.plugin_id == "verification").unwrap().plugin_feature_names;
        for expected in ["hash verified, signature unchecked", "dummy proofs accepted"] {
            assert!(features.iter().any(|feature| feature == expected), "{features:?}");
        }
    });
}

/// How often the server is killed, unless BLOCK_NODE_KILLS says otherwise.
const KILLS: u64 = 10;

#[test]
fn kill_9_under_four_publishers_loses_no_acknowledged_block() {
    let kills = std::env::var("BLOCK_NODE_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let directory = harness::folder();
    let (mut acknowledged, mut known) = (0, 0);
    for round in 0..kills {
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
            known = found;
            let id = server.id().to_string();
            let killer = tokio::task::spawn_blocking(move || {
                std::thread::sleep(Duration::from_millis(20 + 37 * round % 300));
                Command::new("kill").args(["-9", &id]).status().unwrap()
            });
            let (heard, mut acknowledgements) = tokio::sync::mpsc::unbounded_channel();
            let publishers: Vec<_> = (0..4)
                .map(|_| {
                    let (flags, heard) = (publisher(&server, 0, 0), heard.clone());
                    // It ends with an error when the server is gone; what it has heard until then counts.
                    tokio::spawn(async move { while publish_until_gone(&flags, heard.clone()).await.is_ok() {} })
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
        let result = read_all(&server, found - 1).await;
        assert_eq!((result.blocks, result.wrong), (found, None));
    });
    println!("{kills} kills, {acknowledged} blocks acknowledged");
}

/// Publishes one block after another from the next one on, and tells every acknowledgement as soon as it is heard. `Ok`: the node has
/// ended the stream, since others were faster.
async fn publish_until_gone(
    flags: &PublisherFlags,
    heard: tokio::sync::mpsc::UnboundedSender<u64>,
) -> Result<(), GrpcError> {
    use proto::publish_stream_request::Request::{BlockItems, EndOfBlock};
    let mut channel = connect(&flags.address).await?;
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
    let mut crafter = Crafter::new(flags.seed, 0);
    while !listening.is_finished() {
        let block = crafter.next(Shape::of_bytes(flags.block_bytes));
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

#[test]
fn a_wrong_block_is_refused_and_the_right_one_taken_from_another_publisher() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    run(async {
        let bad = PublisherFlags { fault: Fault::InvalidHash, fault_block: 5, window: 1, ..publisher(&server, 0, 10) };
        let published = publish(&bad).await.unwrap();
        assert_eq!(published.end, Some((EndCode::BadBlockProof, 4)));
        assert_eq!(published.acknowledged, [0, 1, 2, 3, 4]);
        let cut = PublisherFlags { fault: Fault::MidBlockEnd, fault_block: 7, ..publisher(&server, 5, 5) };
        publish(&cut).await.unwrap();
        let next = status(&server).await.next_expected_block;
        let published = publish(&publisher(&server, next, 10 - next)).await.unwrap();
        assert_eq!(published.end, None);
        assert_eq!(published.acknowledged.last(), Some(&9));
        let result = read_all(&server, 9).await;
        assert_eq!((result.blocks, result.wrong), (10, None));
    });
}

async fn has_up_to(server: &Server, last: u64) {
    status_becomes(server, |status| status.last_available_block == last).await;
    let result = read_all(server, last).await;
    assert_eq!((result.blocks, result.wrong), (last + 1, None));
}

async fn status_becomes(server: &Server, holds: impl Fn(&proto::ServerStatusResponse) -> bool) {
    let wait = async {
        while !holds(&status(server).await) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(harness::LONG, wait).await.expect("the status that is waited for");
}

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
fn publishers_race_and_every_block_is_stored_once() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    run(async {
        let racing: Vec<_> = (0..4)
            .map(|_| {
                let flags = publisher(&server, 0, 80);
                tokio::spawn(publish_and_come_back(flags))
            })
            .collect();
        for publisher in racing {
            publisher.await.unwrap();
        }
        let result = read_all(&server, 79).await;
        assert_eq!((result.blocks, result.wrong), (80, None));
    });
}

/// Publishes until all is stored. Who fell behind is told so, and goes on behind the last block.
async fn publish_and_come_back(mut flags: PublisherFlags) {
    let end = flags.first + flags.blocks;
    while flags.first < end {
        flags.blocks = end - flags.first;
        let published = publish(&flags).await.unwrap();
        assert!(published.acknowledged.is_sorted_by(|one, next| one + 1 == *next), "{:?}", published.acknowledged);
        match published.end {
            None => return,
            Some((EndCode::DuplicateBlock, last)) => flags.first = last + 1,
            Some(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn history_flows_into_live_for_all_subscribers_and_each_block_is_framed_once() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    run(async {
        publish(&publisher(&server, 0, 20)).await.unwrap();
        let subscribers: Vec<_> = (0..12)
            .map(|index| {
                let flags = ConsumerFlags {
                    slow_millis: if index == 0 { 20 } else { 0 },
                    ..consumer(&server, Some(index), Some(59))
                };
                tokio::spawn(async move { (index, read(&flags, |_| ()).await) })
            })
            .collect();
        publish(&publisher(&server, 20, 40)).await.unwrap();
        for subscriber in subscribers {
            let (index, result) = subscriber.await.unwrap();
            let result = result.unwrap();
            assert_eq!((result.blocks, result.wrong, result.status), (60 - index, None, 1));
        }
        let metrics = http(&server, "/metrics").await;
        let framed = metrics.lines().find_map(|line| line.strip_prefix("block_node_blocks_framed_total "));
        assert_eq!(framed, Some("60"), "{metrics}");
    });
}

async fn http(server: &Server, path: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut socket = tokio::net::TcpStream::connect(&server.address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}

#[test]
fn health_is_told_and_subscribers_end_in_order_when_it_stops() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    run(async {
        for path in ["/livez", "/readyz", "/healthz/readyz"] {
            assert!(http(&server, path).await.starts_with("HTTP/1.1 200 OK"), "{path}");
        }
        assert!(http(&server, "/nothing").await.starts_with("HTTP/1.1 404"));
        publish(&publisher(&server, 0, 3)).await.unwrap();
        let flags = consumer(&server, Some(0), None);
        let (seen, mut saw) = tokio::sync::mpsc::unbounded_channel();
        let subscriber = tokio::spawn(async move { read(&flags, |block| seen.send(block.number).unwrap()).await });
        while saw.recv().await.unwrap() != 2 {}
        assert!(tokio::task::spawn_blocking(move || server.terminate()).await.unwrap());
        let result = subscriber.await.unwrap().unwrap();
        assert_eq!((result.blocks, result.wrong, result.status), (3, None, 1), "SUCCESS at an orderly stop");
    });
}

#[test]
fn every_fault_of_the_simulator_is_answered_as_it_should_be_and_costs_no_other_block() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    run(async {
        for (number, fault, code) in [
            (0, Fault::InvalidHash, Some(EndCode::BadBlockProof)),
            (2, Fault::Scrambled, Some(EndCode::BadBlockProof)),
            (4, Fault::MidBlockEnd, None),
            (6, Fault::MidBlockEndStream, None),
        ] {
            let flags = PublisherFlags { fault, fault_block: number + 1, window: 1, ..publisher(&server, number, 4) };
            let published = publish(&flags).await.unwrap();
            assert_eq!(published.end, code.map(|code| (code, number)), "{fault:?}");
            assert_eq!(status(&server).await.last_available_block, number, "{fault:?}");
            let published = publish(&publisher(&server, number + 1, 1)).await.unwrap();
            assert_eq!(published.end, None, "{fault:?}: the right block comes behind");
        }
        // Three later blocks are whole while this one pauses: its publisher is told so, and the others are asked for it.
        let slow =
            PublisherFlags { fault: Fault::Slow, fault_block: 8, fault_millis: 8_000, ..publisher(&server, 8, 1) };
        let slow = tokio::spawn(async move { publish(&slow).await.unwrap() });
        status_becomes(&server, |status| status.last_available_block == 7).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let others = publish(&PublisherFlags { window: 8, ..publisher(&server, 8, 6) }).await.unwrap();
        assert_eq!((others.end, others.acknowledged.last()), (None, Some(&13)));
        assert!(matches!(slow.await.unwrap().end, Some((EndCode::Timeout, _))));
        let result = read_all(&server, 13).await;
        assert_eq!((result.blocks, result.wrong), (14, None));
    });
}

#[test]
fn requests_that_break_the_rules_are_answered_with_the_right_codes() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    run(async {
        publish(&publisher(&server, 0, 10)).await.unwrap();
        for (start, end, status) in [(5, Some(4), 5), (9_999, None, 6)] {
            let result = read(&consumer(&server, Some(start), end), |_| ()).await.unwrap();
            assert_eq!((result.blocks, result.status), (0, status));
        }
        for (request, code) in [
            (&[][..], EndCode::InvalidRequest),
            (&[0x1a, 2, 0x08, 10], EndCode::InvalidRequest),
            // Items without a header.
            (&[0x0a, 5, 0x0a, 3, 0x22, 1, 0], EndCode::InvalidRequest),
            // A header without anything.
            (&[0x0a, 4, 0x0a, 2, 0x0a, 0], EndCode::BadBlockProof),
        ] {
            let mut channel = connect(&server.address).await.unwrap();
            let call = channel.call(PUBLISH);
            let (_sender, mut receiver): (StreamSender<_>, StreamReceiver<proto::PublishStreamResponse>) =
                channel.stream(&call, &Raw::of(request)).await.unwrap();
            let answer = receiver.next().await.unwrap().unwrap();
            let expected = PublishResponse::EndOfStream { code, last: 9 };
            assert_eq!(PublishResponse::of(answer, WireEra::Today), Some(expected), "{request:?}");
            assert_eq!(receiver.next().await, Ok(None), "the stream is over");
        }
        let mut channel = connect(&server.address).await.unwrap();
        let call = channel.call("/org.hiero.block.api.StateService/stateSnapshot");
        let unknown = channel.unary::<Raw, Raw>(&call, &Raw::default()).await.unwrap_err().to_string();
        assert!(unknown.contains("code 12"), "UNIMPLEMENTED: {unknown}");
    });
}

/// Sends these messages on a stream of its own; what the node answers first.
async fn answer_to(channel: &mut Channel, messages: &[proto::PublishStreamRequest]) -> PublishResponse {
    let call = channel.call(PUBLISH);
    let (mut sender, mut receiver): (StreamSender<_>, StreamReceiver<proto::PublishStreamResponse>) =
        channel.stream(&call, &messages[0]).await.unwrap();
    for message in &messages[1..] {
        // It may have ended the stream by then.
        if sender.send(message).await.is_err() {
            break;
        }
    }
    let answer = receiver.next().await.unwrap().unwrap();
    PublishResponse::of(answer, WireEra::Today).unwrap()
}

#[test]
fn every_flipped_bit_of_an_item_a_footer_or_a_proof_is_refused_with_the_right_code() {
    use proto::publish_stream_request::Request::{BlockItems, EndOfBlock};
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    run(async {
        let shape = Shape { items: 2, item_bytes: 20 };
        let mut crafter = Crafter::new(1, 0);
        let blocks: Vec<_> = (0..3).map(|_| crafter.next(shape)).collect();
        let mut channel = connect(&server.address).await.unwrap();
        let messages = |block: &[u8]| {
            let end = EndOfBlock(proto::BlockEnd { block_number: 2 });
            [request(BlockItems(bytes::Bytes::copy_from_slice(block))), request(end)]
        };
        for block in &blocks[..2] {
            let end = request(EndOfBlock(proto::BlockEnd { block_number: block.number }));
            let answer = answer_to(&mut channel, &[request(BlockItems(block.bytes.clone().into())), end]).await;
            assert_eq!(answer, PublishResponse::Acknowledgement(block.number));
        }
        let block = &blocks[2].bytes;
        let ranges: Vec<_> = item_ranges(block).map(|item| item.unwrap().1).collect();
        for (index, range) in ranges.iter().enumerate() {
            for place in range.clone() {
                for bit in 0..8 {
                    let mut flipped = block.clone();
                    flipped[place] ^= 1 << bit;
                    let answer = answer_to(&mut channel, &messages(&flipped)).await;
                    let what = || format!("bit {bit} of byte {place}, item {index}: {answer:?}");
                    match (index, &answer) {
                        (_, PublishResponse::EndOfStream { code: EndCode::BadBlockProof, last: 1 }) => {}
                        // A header that is none; one of another block.
                        (0, PublishResponse::EndOfStream { code: EndCode::InvalidRequest, .. }) => {}
                        (0, PublishResponse::Behind(1) | PublishResponse::Skip(0)) => {}
                        _ => panic!("{}", what()),
                    }
                }
            }
        }
        assert_eq!(status(&server).await.last_available_block, 1);
        assert_eq!(answer_to(&mut channel, &messages(block)).await, PublishResponse::Acknowledgement(2));
    });
}

#[test]
fn older_eras_are_spoken_with_their_codes_and_their_ends_of_blocks() {
    for (name, behind, duplicate, not_available) in
        [("v0.13", 5, 3, [4, 4]), ("v0.15", 7, 5, [6, 5]), ("v0.20", 7, 5, [6, 5])]
    {
        let era: WireEra = name.parse().unwrap();
        let directory = harness::folder();
        let server = Server::start(directory.path(), &["--wire-era", name]);
        run(async {
            let flags = PublisherFlags { wire_era: era, ..publisher(&server, 0, 20) };
            let published = publish(&flags).await.unwrap();
            assert_eq!((published.acknowledged.len(), published.end), (20, None), "{name}");
            let flags = ConsumerFlags { wire_era: era, ..consumer(&server, Some(0), Some(19)) };
            let result = read(&flags, |_| ()).await.unwrap();
            assert_eq!((result.blocks, result.wrong, result.status), (20, None, 1), "{name}");
            let late = ConsumerFlags { wire_era: era, ..consumer(&server, Some(9_999), None) };
            assert_eq!(read(&late, |_| ()).await.unwrap().status, not_available[0], "{name}");
            assert_eq!(get_block(&server, &[0x08, 99]).await.status, not_available[1], "{name}");
            // Field 4 was a message then.
            let mut channel = connect(&server.address).await.unwrap();
            let call = channel.call(STATUS);
            let status: proto::OldServerStatusResponse =
                channel.unary(&call, &proto::ServerStatusRequest {}).await.unwrap();
            assert_eq!((status.last_available_block, status.version_information.is_some()), (19, name == "v0.13"));
            // Whole blocks: one that is far behind, one that is ahead, and the next.
            let blocks = crafted(23);
            let call = channel.call(PUBLISH);
            for (number, expected) in [(2, duplicate), (22, behind)] {
                let items = proto::publish_stream_request::Request::BlockItems(blocks[number].clone().into());
                let (_sender, mut receiver): (StreamSender<_>, StreamReceiver<proto::PublishStreamResponse>) =
                    channel.stream(&call, &request(items)).await.unwrap();
                let answer = receiver.next().await.unwrap().unwrap().response.unwrap();
                let end = proto::EndOfStream { status: expected, block_number: 19, proximate_block_number: 0 };
                assert_eq!(answer, proto::publish_stream_response::Response::EndStream(end), "{name}");
                assert_eq!(receiver.next().await, Ok(None), "{name}: the stream is over");
            }
            let items =
                |number: usize| proto::publish_stream_request::Request::BlockItems(blocks[number].clone().into());
            let (mut sender, mut receiver): (StreamSender<_>, StreamReceiver<proto::PublishStreamResponse>) =
                channel.stream(&call, &request(items(20))).await.unwrap();
            if era.has_end_of_block() {
                let end = proto::publish_stream_request::Request::EndOfBlock(proto::BlockEnd { block_number: 20 });
                sender.send(&request(end)).await.unwrap();
            }
            let mut crafter = Crafter::new(1, 0);
            (0..20).for_each(|_| drop(crafter.next(Shape::of_bytes(BLOCK_BYTES))));
            let root = crafter.next(Shape::of_bytes(BLOCK_BYTES)).root.to_vec();
            let block_root_hash = if era.acknowledges_root() { root.into() } else { Default::default() };
            let expected = proto::BlockAcknowledgement { block_number: 20, block_root_hash };
            let answer = receiver.next().await.unwrap().unwrap().response.unwrap();
            assert_eq!(answer, proto::publish_stream_response::Response::Acknowledgement(expected), "{name}");
        });
    }
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

#[test]
fn an_item_is_proven_to_be_part_of_a_block_to_somebody_who_does_not_have_it() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    run(async {
        publish(&publisher(&server, 0, 4)).await.unwrap();
        let block = crafted(4).swap_remove(3);
        let item = items(&block).nth(2).unwrap().unwrap().to_vec();
        let mut channel = connect(&server.address).await.unwrap();
        let call = channel.call("/org.hiero.block.api.ProofService/getBlockContentsProof");
        // Block 3, item 2; then the same by its bytes.
        let by_bytes = [&[0x08, 3, 0x12, item.len() as u8 | 0x80, (item.len() >> 7) as u8][..], &item].concat();
        let mut answers = Vec::new();
        for request in [&[0x08, 3, 0x20, 2][..], &by_bytes] {
            let answer: proto::BlockContentsProofResponse = channel.unary(&call, &Raw::of(request)).await.unwrap();
            answers.push(answer);
        }
        assert_eq!(answers[0], answers[1]);
        assert_eq!(answers[0].status, 1);
        let proof = answers.swap_remove(0).block_content_proof.unwrap();
        assert_eq!(proof.block_item[..], item);
        let sha384 = |pieces: &[&[u8]]| block_node::hash::sha384(pieces);
        let root = proof.sibling_hashes.iter().fold(sha384(&[&[0], &item]), |hash, sibling| match sibling.is_first {
            true => sha384(&[&[2], &sibling.sibling_hash, &hash]),
            false => sha384(&[&[2], &hash, &sibling.sibling_hash]),
        });
        assert_eq!(proof.block_signature[..], sha384(&[&root]), "the dummy is the hash of the root");
        for (request, status) in [(&[0x08, 9, 0x20, 2][..], 5), (&[0x08, 3, 0x20, 99], 4), (&[0x08, 3], 2)] {
            let answer: proto::BlockContentsProofResponse = channel.unary(&call, &Raw::of(request)).await.unwrap();
            assert_eq!((answer.status, answer.block_content_proof), (status, None), "{request:?}");
        }
    });
}

#[test]
fn a_mistake_on_the_command_line_is_one_line_and_touches_nothing() {
    let directory = harness::folder();
    let data = directory.path().join("data");
    for mistake in [&["--no-such-flag"][..], &["--wire-era", "v0.16"], &["--server-port", "99999"], &["nonsense"]] {
        let output = Command::new(PROGRAM).arg("--data-dir").arg(&data).args(mistake).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.starts_with("block-node: ") && said.lines().count() == 1, "{said}");
    }
    assert!(!data.exists());
}

#[test]
fn a_second_server_on_the_same_blocks_is_refused() {
    let directory = harness::folder();
    let _first = Server::start(directory.path(), &[]);
    let output =
        Command::new(PROGRAM).args(["--server-port", "0", "--data-dir"]).arg(directory.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("another process uses this directory"), "{said}");
}

#[test]
fn tls_is_spoken_and_certificates_of_clients_are_wanted() {
    let directory = harness::folder();
    let file = |name: &str, content: String| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let key = rcgen::KeyPair::generate().unwrap();
    let parameters = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    let certificate = file("certificate", parameters.self_signed(&key).unwrap().pem());
    let key = file("key", key.serialize_pem());
    let [certificate_path, key_path] = [&certificate, &key].map(|path| path.to_str().unwrap());
    let flags =
        ["--tls-certificate", certificate_path, "--tls-key", key_path, "--tls-client-authority", certificate_path];
    let server = Server::start(&directory.path().join("blocks"), &flags);
    let address = server.address.trim_start_matches("https://");
    let status = |own: Option<(PathBuf, PathBuf)>| {
        run(async {
            let files = ClientTlsFiles { authority: Some(certificate.clone()), certificate: own, ..Default::default() };
            let tls = TlsConnector::from(Arc::clone(&ClientTls::open(files).unwrap().config()));
            let socket = tokio::net::TcpStream::connect(address).await.unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            let stream = tls.connect(name, socket).await.map_err(|error| GrpcError::Connect(error.to_string()))?;
            let options = Options { is_tls: true, ..Options::new(Duration::from_secs(20)) };
            let mut channel = Channel::over(stream, "localhost", options).await?;
            let call = channel.call(STATUS);
            channel.unary::<_, proto::ServerStatusResponse>(&call, &proto::ServerStatusRequest {}).await
        })
    };
    assert_eq!(status(Some((certificate.clone(), key.clone()))).unwrap().last_available_block, NO_BLOCK);
    assert!(status(None).is_err(), "a stranger was let in");
    let plain: Result<proto::ServerStatusResponse, _> = run(async {
        let mut channel = connect(address).await?;
        let call = channel.call(STATUS);
        channel.unary(&call, &proto::ServerStatusRequest {}).await
    });
    assert!(plain.is_err(), "it answered without TLS");
}

#[test]
fn a_directory_is_verified_and_a_byte_that_rots_is_found() {
    let directory = harness::folder();
    let data = directory.path().join("blocks");
    let verify = |path: &std::path::Path| {
        let output = Command::new(PROGRAM).args(["verify", "--data-dir"]).arg(path).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let server = Server::start(&data, &[]);
    run(publish(&publisher(&server, 0, 20))).unwrap();
    let (code, _, said) = verify(&data);
    assert_eq!(code, Some(1), "a server has it open");
    assert!(said.contains("--files-recent-live-root-path"), "{said}");
    assert!(server.terminate());
    let (code, said, _) = verify(&data);
    assert_eq!(code, Some(0));
    assert!(said.starts_with("blocks 0 to 19: ") && said.ends_with(" 0 blocks wrong\n"), "{said}");
    // Somewhere in the middle of what was safe.
    let segment = data.join("00000000000000000001.blocks");
    let mut bytes = std::fs::read(&segment).unwrap();
    let middle = 20 * 1_500 / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&segment, bytes).unwrap();
    let (code, said, _) = verify(&data);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.lines().next().unwrap().contains("damaged and quarantined"), "{said}");
    assert!(said.ends_with(" 1 blocks wrong\n"), "{said}");
    let (code, _, said) = verify(&directory.path().join("nothing"));
    assert_eq!(code, Some(1));
    assert!(said.contains("nothing: not a directory"), "{said}");
}
