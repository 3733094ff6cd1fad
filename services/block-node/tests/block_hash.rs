//! Root hashes agree with a second implementation, in Python, that shares no code: `testing/block-hash/block_hash.py`.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use block_node::block::{BuilderError, ItemError, Limits, ProofRules, Verified, Version};
use block_node::craft::{Crafter, field};
use block_node::filter::Filter;
use block_node::messages::{WireEra, proto};
use block_node::recent::Shared;
use prost::Message as _;
use rand::rngs::SmallRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};

const BLOCKS: usize = 10_000;
/// Field numbers of items that may stand between header and footer, of today and of times to come.
const FIELDS: [u32; 20] = [2, 3, 4, 5, 6, 7, 11, 20, 23, 24, 25, 26, 27, 28, 31, 35, 39, 43, 75, 4_000_008];
/// One version of each era that is verified.
const VERSIONS: [Version; 3] = [
    Version { major: 0, minor: 62, patch: 2 },
    Version { major: 0, minor: 76, patch: 1 },
    Version { major: 0, minor: 77, patch: 0 },
];

/// For each block its root, in hexadecimal, or `refused: ` and why.
fn roots_in_python(blocks: &[Vec<u8>], flags: &[&str]) -> Vec<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/block-hash/block_hash.py");
    let child = Command::new("python3").arg(script).args(flags).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.expect("this test needs python3 (apt-get install python3-minimal)");
    let mut input = child.stdin.take().unwrap();
    let bytes: Vec<u8> =
        blocks.iter().flat_map(|block| [&(block.len() as u32).to_be_bytes()[..], block].concat()).collect();
    let writing = std::thread::spawn(move || input.write_all(&bytes).unwrap());
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap();
    assert!(output.status.success());
    let roots: Vec<_> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(roots.len(), blocks.len());
    roots
}

/// The root that the node computes, or why it refuses.
fn root(block: &[u8]) -> Result<String, BuilderError> {
    let rules = ProofRules::accepted_before();
    let verified = Verified::of(block, Limits { block_bytes_max: 1 << 24 }, &rules)?;
    Ok(hexadecimal(&verified.root))
}

fn hexadecimal(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Blocks of up to 30 items; of those before the last era some have an item that their time did not know.
fn random_blocks(seed: u64, version: Version) -> Vec<Vec<u8>> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut crafter = Crafter::in_version(seed, 0, version);
    let is_strange = |number: u32| match version.minor {
        62 => number > 7,
        76 => number >= 20 && (8..=15).contains(&(number % 20)),
        _ => false,
    };
    let blocks = (0..BLOCKS).map(|_| {
        let count = random.random_range(0..30);
        let mut strange = usize::from(random.random_bool(0.1));
        let mut items = Vec::new();
        while items.len() < count {
            let number = FIELDS[random.random_range(0..FIELDS.len())];
            if is_strange(number) {
                if strange == 0 {
                    continue;
                }
                strange -= 1;
            }
            let mut content = vec![0; random.random_range(0..200)];
            random.fill_bytes(&mut content);
            items.push(field(number, &content));
        }
        crafter.next_of(items).bytes
    });
    blocks.collect()
}

#[test]
fn both_implementations_agree_on_random_blocks_of_every_era() {
    for (seed, version) in (7..).zip(VERSIONS) {
        let blocks = random_blocks(seed, version);
        let mut refused = 0;
        for (block, theirs) in blocks.iter().zip(&roots_in_python(&blocks, &[])) {
            match root(block) {
                Ok(ours) => assert_eq!(&ours, theirs, "{version}"),
                Err(BuilderError::Item(ItemError::Unknown(_))) => {
                    assert!(theirs.starts_with("refused: "), "{version}: {theirs}");
                    refused += 1;
                }
                Err(other) => panic!("{version}: {other}"),
            }
        }
        let is_as_expected =
            if version.minor == 77 { refused == 0 } else { (BLOCKS / 20..BLOCKS / 8).contains(&refused) };
        assert!(is_as_expected, "{version}: {refused} blocks were refused");
    }
}

#[test]
fn both_implementations_refuse_what_nobody_knows() {
    for version in VERSIONS {
        let mut crafter = Crafter::in_version(3, 0, version);
        let blocks: Vec<_> =
            [8, 13, 18, 19, 21, 22, 36, 58].map(|number| crafter.next_of([field(number, b"what")]).bytes).into();
        for (block, theirs) in blocks.iter().zip(roots_in_python(&blocks, &[])) {
            assert!(root(block).is_err() && theirs.starts_with("refused: "), "{version}: {theirs}");
        }
    }
}

#[test]
fn both_implementations_agree_on_blocks_of_which_items_were_filtered() {
    let mut random = SmallRng::seed_from_u64(11);
    for (seed, version) in (17..).zip(&VERSIONS[1..]) {
        let (mut filtered, mut expected, mut hidden) = (Vec::new(), Vec::new(), 0);
        for (number, block) in (0..).zip(random_blocks(seed, *version)) {
            let Ok(root) = root(&block) else { continue };
            // Of what may be named some kinds, as those that are wanted or those that are not.
            let may_be_named = FIELDS.iter().filter(|field| !matches!(**field % 20, 0 | 19));
            let filter = Filter::of(Some(&proto::BlockStreamFilter {
                include: random.random_bool(0.5),
                block_item_types: may_be_named.copied().filter(|_| random.random_bool(0.4)).chain([4]).collect(),
            }));
            let filter = filter.unwrap().unwrap();
            let shared = Shared::new(number, [0; 48], &block, WireEra::Today).unwrap();
            let mut frames = &filter.frames(&shared, WireEra::Today).unwrap()[..];
            let mut received = Vec::new();
            while let Some((head, rest)) = frames.split_first_chunk::<5>() {
                let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
                let message = proto::SubscribeStreamResponse::decode(&rest[..length]).unwrap();
                if let Some(proto::subscribe_stream_response::Response::BlockItems(set)) = message.response {
                    received.extend(set);
                }
                frames = &rest[length..];
            }
            let verified =
                Verified::of_filtered(&received, Limits { block_bytes_max: 1 << 24 }, &ProofRules::accepted_before());
            assert_eq!(hexadecimal(&verified.unwrap().root), root, "{version}");
            hidden += usize::from(received != block);
            filtered.push(received);
            expected.push(root);
        }
        assert!(hidden > BLOCKS / 2, "{version}: something was filtered of {hidden} blocks");
        assert_eq!(roots_in_python(&filtered, &["--filtered"]), expected, "{version}");
    }
}
