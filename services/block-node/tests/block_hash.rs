//! Root hashes agree with a second implementation, in Python, that shares no code: `testing/block-hash/block_hash.py`.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use block_node::block::{BuilderError, HashOnly, ItemError, Limits, ProofRules, Verified, Version};
use block_node::craft::{Crafter, field};
use rand::rngs::SmallRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};

const BLOCKS: usize = 10_000;
/// Field numbers of items that may stand between header and footer, of today and of times to come.
const FIELDS: [u32; 20] = [2, 3, 4, 5, 6, 7, 11, 20, 23, 24, 25, 26, 27, 28, 31, 35, 39, 43, 75, 4_000_008];
/// One version of each era that is verified.
const VERSIONS: [Version; 3] = [
    Version { major: 0, minor: 62, patch: 2 },
    Version { major: 0, minor: 73, patch: 0 },
    Version { major: 0, minor: 76, patch: 1 },
];

/// For each block its root, in hexadecimal, or `refused: ` and why.
fn roots_in_python(blocks: &[Vec<u8>]) -> Vec<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/block-hash/block_hash.py");
    let child = Command::new("python3").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
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
    let rules = ProofRules { accepts_dummy: true, verifier: Arc::new(HashOnly) };
    let verified = Verified::of(block, Limits { block_bytes_max: 1 << 24 }, &rules)?;
    Ok(verified.root.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Blocks of up to 30 items; of those before the last era some have an item that their time did not know.
fn random_blocks(seed: u64, version: Version) -> Vec<Vec<u8>> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut crafter = Crafter::in_version(seed, 0, version);
    let is_strange = |number: u32| match version.minor {
        62 => number > 7,
        73 => number >= 20 && (8..=15).contains(&(number % 20)),
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
        for (block, theirs) in blocks.iter().zip(&roots_in_python(&blocks)) {
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
            if version.minor == 76 { refused == 0 } else { (BLOCKS / 20..BLOCKS / 8).contains(&refused) };
        assert!(is_as_expected, "{version}: {refused} blocks were refused");
    }
}

#[test]
fn both_implementations_refuse_what_nobody_knows() {
    for version in VERSIONS {
        let mut crafter = Crafter::in_version(3, 0, version);
        let blocks: Vec<_> =
            [8, 13, 18, 19, 21, 22, 36, 58].map(|number| crafter.next_of([field(number, b"what")]).bytes).into();
        for (block, theirs) in blocks.iter().zip(roots_in_python(&blocks)) {
            assert!(root(block).is_err() && theirs.starts_with("refused: "), "{version}: {theirs}");
        }
    }
}
