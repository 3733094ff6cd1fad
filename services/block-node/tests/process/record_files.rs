//! Blocks that hold a record file, with the signatures that OpenSSL has made: published, fetched, imported, refused.

use std::path::Path;

use block_node::block::{Limits, ProofRules};
use block_node::craft::field;
use block_node::store::{self, LEVEL, Prepared, Store};
use block_node::wire::put_bytes;
use wal::files::RealDirectory;

use super::*;

const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/record_file/");

fn vector(name: &str) -> String {
    std::fs::read_to_string(format!("{VECTORS}{name}")).unwrap()
}

fn bytes(digits: &str) -> Vec<u8> {
    let digits = digits.trim();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

/// Block 0 with the record file, and signatures of these nodes.
fn block_of_record_file(nodes: &[u64]) -> Vec<u8> {
    let mut signatures = vec![0x08, 6];
    for line in vector("signatures.txt").lines() {
        let (node, signature) = line.split_once(' ').unwrap();
        let node: u64 = node.parse().unwrap();
        let mut message = Vec::new();
        put_bytes(&mut message, 1, &bytes(signature));
        message.extend([0x10, node as u8]);
        if nodes.contains(&node) {
            put_bytes(&mut signatures, 2, &message);
        }
    }
    block_with_proof(4, &signatures)
}

/// Block 0 with the record file, and what somebody who has no key can put in a signature's place.
fn forged_block(signature_bytes: usize) -> Vec<u8> {
    let mut signed = Vec::new();
    put_bytes(&mut signed, 1, &vec![7; signature_bytes]);
    block_with_proof(2, &signed)
}

/// Block 0 with the record file, and a proof that has this field.
fn block_with_proof(number: u32, content_of_proof: &[u8]) -> Vec<u8> {
    let (mut content, mut proof) = (Vec::new(), vec![0x08, 0]);
    put_bytes(&mut content, 2, &bytes(&vector("contents.hex")));
    put_bytes(&mut proof, number, content_of_proof);
    let crafted = Crafter::new(1, 0).next_of([field(10, &content)]).bytes;
    let mut items: Vec<_> = items(&crafted).map(|item| item.unwrap().to_vec()).collect();
    *items.last_mut().unwrap() = field(9, &proof);
    let mut block = Vec::new();
    items.iter().for_each(|item| put_bytes(&mut block, 1, item));
    block
}

#[test]
fn a_record_file_is_taken_when_those_of_the_address_book_have_signed_it_and_not_otherwise() {
    let (signed, book) = (block_of_record_file(&[0, 3, 7]), format!("{VECTORS}rsa-bootstrap-roster.json"));
    let refused = PublishResponse::EndOfStream { code: EndCode::BadBlockProof, last: NO_BLOCK };
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    assert_eq!(run(publish_block(&server, &signed)), refused, "nobody is known who signs");
    assert!(server.terminate());
    let flags = ["--rsa-address-book", &book, "--record-file-signers-percent", "67"];
    let server = Server::start(directory.path(), &flags);
    run(async {
        assert_eq!(publish_block(&server, &block_of_record_file(&[0, 7])).await, refused, "two of three are too few");
        let mut changed = signed.clone();
        // Within the record file's contents.
        changed[200] ^= 1;
        assert_eq!(publish_block(&server, &changed).await, refused);
        assert_eq!(publish_block(&server, &signed).await, PublishResponse::Acknowledgement(0));
        let found = get_block(&server, &[0x08, 0]).await;
        assert_eq!((found.status, found.block.as_deref()), (1, Some(&signed[..])));
        let mut channel = connect(&server.address).await.unwrap();
        let call = channel.call("/org.hiero.block.api.BlockNodeService/serverStatusDetail");
        let detail: proto::ServerStatusDetailResponse =
            channel.unary(&call, &proto::ServerStatusRequest {}).await.unwrap();
        assert_eq!(detail.node_address_book.unwrap().node_address.len(), 3);
        let plugins = detail.version_information.unwrap().installed_plugin_versions;
        let features: Vec<_> = plugins.into_iter().flat_map(|plugin| plugin.plugin_feature_names).collect();
        assert!(features.iter().any(|feature| feature.contains("67 % of the nodes")), "{features:?}");
    });
    assert!(server.terminate());
    let verified = Command::new(PROGRAM).args(["verify", "--data-dir"]).arg(directory.path()).output().unwrap();
    assert!(verified.status.success(), "{verified:?}");
}

/// Stores a block as a node does that does not look at proofs.
fn store_unchecked(directory: &Path, block: &[u8]) {
    let mut store = Store::open(RealDirectory::open(directory).unwrap(), store::Options::default()).unwrap();
    let limits = Limits { block_bytes_max: 1 << 20 };
    let verified = Verified::of(block, limits, &ProofRules::accepted_before()).unwrap();
    store.append(&[Prepared::with(&verified, None, LEVEL)]).unwrap();
}

#[test]
fn a_record_file_whose_block_has_an_unchecked_signature_instead_is_not_published_fetched_or_imported() {
    let directory = harness::folder();
    let [data, peer, java, imported] = ["data", "peer", "java", "imported"].map(|name| directory.path().join(name));
    let book = format!("{VECTORS}rsa-bootstrap-roster.json");
    [&peer, &java].iter().for_each(|path| std::fs::create_dir(path).unwrap());
    std::fs::write(java.join("0000000000000000000.blk"), forged_block(2_920)).unwrap();
    let mut import = Command::new(PROGRAM);
    import.args(["import", "--rsa-address-book", &book, "--data-dir"]).args([&imported, &java]);
    let ended = import.output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(!ended.status.success() && said.contains("signed_record_file_proof"), "{said}");
    store_unchecked(&peer, &forged_block(2_920));
    let peer = Server::start(&peer, &[]);
    let flags = ["--rsa-address-book", &book, "--backfill-peers", &peer.address];
    let server = Server::start(&data, &flags);
    run(async {
        assert_eq!(status(&peer).await.last_available_block, 0);
        let refused = async {
            while http(&server, "/metrics").await.contains("\nblock_node_backfill_failures_total 0\n") {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(harness::LONG, refused).await.expect("the peer's block is refused");
        for signature_bytes in [2_920, 3_432] {
            let answer = publish_block(&server, &forged_block(signature_bytes)).await;
            assert_eq!(answer, PublishResponse::EndOfStream { code: EndCode::BadBlockProof, last: NO_BLOCK });
        }
        assert_eq!(status(&server).await.last_available_block, NO_BLOCK);
        let signed = block_of_record_file(&[0, 3, 7]);
        assert_eq!(publish_block(&server, &signed).await, PublishResponse::Acknowledgement(0));
    });
}

#[test]
fn an_address_book_that_is_none_is_told_at_the_start() {
    let directory = harness::folder();
    let wrong = directory.path().join("book.json");
    std::fs::write(&wrong, "{\"nodeAddress\": [{\"nodeId\": 4, \"RSAPubKey\": \"3000\"}]}").unwrap();
    for (path, said) in [(wrong, "the RSAPubKey of node 4"), (directory.path().join("none"), "No such file")] {
        let mut command = Command::new(PROGRAM);
        command.args(["--server-port", "0", "--data-dir"]).arg(directory.path().join("data"));
        let ended = command.arg("--rsa-address-book").arg(&path).output().unwrap();
        let error = String::from_utf8(ended.stderr).unwrap();
        let last = error.lines().last().unwrap();
        assert!(!ended.status.success() && last.contains("--rsa-address-book") && last.contains(said), "{error}");
    }
}

/// Stores these blocks as a node does that does not look at proofs.
pub fn store_all(directory: &Path, blocks: &[Vec<u8>]) {
    let mut store = Store::open(block_node::data_directory::open(directory).unwrap(), Default::default()).unwrap();
    for block in blocks {
        let verified = Verified::of(block, Limits { block_bytes_max: 1 << 20 }, &ProofRules::accepted_before());
        store.append(&[Prepared::with(&verified.unwrap(), None, LEVEL)]).unwrap();
    }
}

/// Changes a byte of the first block, behind the head of its record.
fn damage_first(directory: &Path) {
    let segment = directory.join("00000000000000000001.blocks");
    let mut bytes = std::fs::read(&segment).unwrap();
    // The head of the segment comes first.
    let records = (0..bytes.len()).step_by(8).filter(|place| bytes[*place..].starts_with(b"BLK1"));
    let place = records.take(2).last().unwrap();
    bytes[place + 120] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
}

/// The block of the record file with the dummy in the signature's place, and three that continue it.
fn chain_of_record_file() -> Vec<Vec<u8>> {
    let (mut content, mut crafter) = (Vec::new(), Crafter::new(1, 0));
    put_bytes(&mut content, 2, &bytes(&vector("contents.hex")));
    let mut blocks = vec![crafter.next_of([field(10, &content)]).bytes];
    blocks.extend((0..3).map(|_| crafter.next(Shape::of_bytes(BLOCK_BYTES)).bytes));
    blocks
}

#[test]
fn a_damaged_block_that_was_taken_by_other_rules_than_those_of_today_is_repaired_where_the_next_one_names_its_root_hash()
 {
    let (ours, theirs) = (harness::folder(), harness::folder());
    let mut blocks = chain_of_record_file();
    // The same block, with a proof that is refused today.
    blocks[0] = forged_block(2_920);
    [&ours, &theirs].iter().for_each(|folder| store_all(folder.path(), &blocks));
    damage_first(ours.path());
    let peer = Server::start(theirs.path(), &[]);
    let server = Server::start(ours.path(), &["--backfill-peers", &peer.address]);
    run(async {
        assert_eq!(scrub::metric(&server, "block_node_quarantined_blocks").await, 1);
        scrub::becomes(&server, "block_node_blocks_repaired_total", |repaired| repaired == 1).await;
        let found = get_block(&server, &[0x08, 0]).await;
        assert_eq!((found.status, found.block.as_deref()), (1, Some(&blocks[0][..])));
    });
}

/// Whoever had a block's items, and no signature, could take the signature away that was stored with them: the root hash says nothing of it.
#[test]
fn a_damaged_block_is_not_repaired_by_one_with_a_weaker_proof_than_it_was_stored_with() {
    let (ours, theirs) = (harness::folder(), harness::folder());
    let mut blocks = chain_of_record_file();
    store_all(theirs.path(), &blocks);
    blocks[0] = forged_block(2_920);
    store_all(ours.path(), &blocks);
    damage_first(ours.path());
    let peer = Server::start(theirs.path(), &[]);
    let server = Server::start(ours.path(), &["--backfill-peers", &peer.address]);
    run(async {
        scrub::becomes(&server, "block_node_backfill_failures_total", |failures| failures > 0).await;
        assert_eq!(scrub::metric(&server, "block_node_blocks_repaired_total").await, 0);
        assert_eq!(scrub::metric(&server, "block_node_quarantined_blocks").await, 1);
        assert_eq!(get_block(&server, &[0x08, 0]).await.status, 5, "NOT_AVAILABLE");
    });
}

/// Each read of a block that was known to be damaged was one line more of the log.
#[test]
fn a_block_that_is_known_to_be_damaged_fills_no_log_however_often_it_is_asked_for() {
    let directory = harness::folder();
    store_all(directory.path(), &chain_of_record_file());
    damage_first(directory.path());
    let server = Server::start(directory.path(), &[]);
    run(async {
        for _ in 0..50 {
            assert_eq!(get_block(&server, &[0x08, 0]).await.status, 5, "NOT_AVAILABLE");
        }
        assert_eq!(get_block(&server, &[0x08, 1]).await.status, 1);
    });
    let errors = server.errors();
    assert!(errors <= 1, "{errors} lines");
}
