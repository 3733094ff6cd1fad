//! The program itself: published to, read from, killed, started again.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod backfill;
mod behind;
mod clients;
mod closed_pipes;
mod compressed;
mod configuration;
mod dashboard;
mod directories;
mod durable;
mod filters;
mod hostile;
mod java_files;
mod liars;
mod lost_roots;
mod memory;
mod raw;
mod record_files;
mod refusals;
mod scrub;
mod server;
mod shared_reads;
mod signatures;
mod simulator;
mod status;
mod stopping;
mod tls_errors;

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use block_node::block::Verified;
use block_node::craft::{Crafter, Shape};
use block_node::messages::{EndCode, NO_BLOCK, PublishResponse, WireEra, item_ranges, items, proto};
use block_node::simulate::{
    ConsumerFlags, Fault, PUBLISH, PublisherFlags, Read, STATUS, SUBSCRIBE, TlsFlags, connect, publish, read, request,
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
    let (only_items, without_items) = (Vec::new(), Vec::new());
    ConsumerFlags { address, tls, start, end, wire_era: WireEra::Today, slow_millis: 0, only_items, without_items }
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

/// Publishes block 0, and says what its publisher is told first.
async fn publish_block(server: &Server, block: &[u8]) -> PublishResponse {
    use proto::publish_stream_request::Request::{BlockItems, EndOfBlock};
    let mut channel = connect(&server.address).await.unwrap();
    let call = channel.call(PUBLISH);
    let set = request(BlockItems(bytes::Bytes::copy_from_slice(block)));
    let (mut sender, mut receiver): (StreamSender<_>, StreamReceiver<proto::PublishStreamResponse>) =
        channel.stream(&call, &set).await.unwrap();
    // It may have ended the stream by then.
    let _ = sender.send(&request(EndOfBlock(proto::BlockEnd { block_number: 0 }))).await;
    PublishResponse::of(receiver.next().await.unwrap().unwrap(), WireEra::Today).unwrap()
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

/// Who subscribes to a block of the past and takes nothing of it.
async fn stalled(
    server: &Server,
    block: u64,
    last: u64,
) -> (StreamSender<proto::SubscribeStreamRequest>, StreamReceiver<proto::SubscribeStreamResponse>) {
    let options = Options {
        stream_window_bytes: 65_535,
        connection_window_bytes: 65_535,
        ..Options::new(Duration::from_secs(30))
    };
    let mut channel = Channel::connect(&server.address, options).await.unwrap();
    let call = channel.call(SUBSCRIBE);
    let request = proto::SubscribeStreamRequest { start_block_number: block, end_block_number: last, filter: None };
    channel.stream(&call, &request).await.unwrap()
}

/// With blocks that are larger than what a client takes ahead.
fn large_blocks(directory: &std::path::Path, blocks: u64, flags: &[&str]) -> Server {
    blocks_of(3_000_000, directory, blocks, flags)
}

fn blocks_of(block_bytes: usize, directory: &std::path::Path, blocks: u64, flags: &[&str]) -> Server {
    let server = Server::start(directory, flags);
    let large = PublisherFlags { block_bytes, message_bytes: 500_000, ..publisher(&server, 0, blocks) };
    run(async { publish(&large).await.unwrap() });
    server
}

#[test]
fn fifty_subscribers_that_stall_on_fifty_blocks_stay_within_the_budget_and_an_honest_one_is_served() {
    // Two blocks at a time.
    const BUDGET: i64 = 16 << 20;
    let directory = harness::folder();
    let flags = [
        "--cache-bytes",
        "65536",
        "--readers-memory-bytes",
        &BUDGET.to_string(),
        "--server-max-message-size-bytes",
        "7000000",
    ];
    let server = blocks_of(6_000_000, directory.path(), 50, &flags);
    let memory_before = memory::most_memory(&server);
    run(async {
        let mut all = Vec::new();
        for block in 0..50 {
            all.push(stalled(&server, block, 49).await);
        }
        let lent = async || {
            let metrics = http(&server, "/metrics").await;
            let lent = metrics.lines().find_map(|line| line.strip_prefix("block_node_lent_bytes "));
            lent.unwrap().parse::<i64>().unwrap()
        };
        let honest = consumer(&server, Some(0), Some(49));
        let honest = tokio::spawn(async move { read(&honest, |_| ()).await.unwrap() });
        let (mut most, mut samples) = (0, 0);
        while !honest.is_finished() {
            most = most.max(lent().await);
            samples += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let honest = honest.await.unwrap();
        assert_eq!((honest.blocks, honest.wrong, honest.status), (50, None, 1));
        assert!((1..=BUDGET).contains(&most), "{most} in {samples} samples");
        // Two thirds of what all would hold without the budget. With it: the budget, pieces, what is being read (three times 16 MiB), and
        // what threads keep of what they have freed, which is most on a busy machine.
        let grown = memory::most_memory(&server) - memory_before;
        assert!(grown < 200 << 20, "{grown} bytes more than before");
        drop(all);
    });
}

#[test]
fn a_subscriber_that_takes_nothing_is_ended() {
    let directory = harness::folder();
    let server = large_blocks(directory.path(), 4, &["--subscriber-timeout-millis", "300"]);
    run(async {
        let (_sender, mut receiver) = stalled(&server, 0, 3).await;
        for (subscribers, what) in [(1, "its stream begins"), (0, "its stream ends")] {
            let line = format!("\nblock_node_subscribers {subscribers}\n");
            let told = async {
                while !http(&server, "/metrics").await.contains(&line) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(60), told).await.expect(what);
        }
        let error = loop {
            match receiver.next().await {
                Ok(Some(_)) => {}
                other => break other,
            }
        };
        assert!(matches!(&error, Err(GrpcError::Status(status)) if status.message.contains("not taken")), "{error:?}");
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
    let mistyped = Command::new(PROGRAM).arg("--data-dri").arg(&data).output().unwrap();
    let said = String::from_utf8(mistyped.stderr).unwrap();
    assert!(said.contains("--data-dri") && said.contains("a similar argument exists: '--data-dir'"), "{said}");
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
    assert!(said.contains("is used by another process"), "{said}");
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
    assert!(said.contains("--data-dir"), "{said}");
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
    let (first, last) = said.split_once('\n').unwrap();
    assert_eq!(first.split_once(": ").unwrap().1, "damaged, as was found when the directory was opened");
    assert!(last.ends_with(" 1 block wrong\n"), "{said}");
    let (code, _, said) = verify(&directory.path().join("nothing"));
    assert_eq!(code, Some(1));
    assert!(said.contains("nothing does not exist"), "{said}");
}
