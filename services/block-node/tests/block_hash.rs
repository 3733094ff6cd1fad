//! Root hashes agree with a second implementation, in Python, that shares no code: `testing/block-hash/block_hash.py`.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use block_node::block::{Builder, HashOnly, Limits, ProofRules, Version};
use block_node::craft::{Crafter, field};
use block_node::messages::items;
use rand::rngs::SmallRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};

const BLOCKS: usize = 1_000;
/// Field numbers of items that may stand between header and footer, of today and of times to come.
const FIELDS: [u32; 20] = [2, 3, 4, 5, 6, 7, 11, 20, 23, 24, 25, 26, 27, 28, 31, 35, 39, 43, 75, 4_000_008];

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
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// The root that the node computes, or why it refuses.
fn root(block: &[u8]) -> Result<String, String> {
    let rules = ProofRules { accepts_dummy: true, verifier: Arc::new(HashOnly) };
    let mut items = items(block);
    let first = items.next().unwrap().unwrap();
    let mut builder = Builder::begin(first, Limits { block_bytes_max: 1 << 24 }).map_err(|error| error.to_string())?;
    for item in items {
        builder.add(item.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
    }
    let verified = builder.finish(&rules).map_err(|error| error.to_string())?;
    Ok(verified.root.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn random_blocks(seed: u64, version: Version, has_extensions: bool) -> Vec<Vec<u8>> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut crafter = Crafter::in_version(seed, 0, version);
    let blocks = (0..BLOCKS).map(|_| {
        let count = random.random_range(0..30);
        let mut items = Vec::new();
        while items.len() < count {
            let number = FIELDS[random.random_range(0..FIELDS.len())];
            let is_extension = number >= 20 && (8..=15).contains(&(number % 20));
            if is_extension && !has_extensions {
                continue;
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
fn both_implementations_agree_on_random_blocks_of_both_eras() {
    for (version, has_extensions) in
        [(Version { major: 0, minor: 76, patch: 1 }, true), (Version { major: 0, minor: 73, patch: 0 }, false)]
    {
        let blocks = random_blocks(7, version, has_extensions);
        let theirs = roots_in_python(&blocks);
        assert_eq!(theirs.len(), blocks.len());
        for (block, theirs) in blocks.iter().zip(&theirs) {
            assert_eq!(root(block).as_ref(), Ok(theirs));
        }
    }
}

#[test]
fn both_implementations_refuse_what_nobody_knows() {
    let mut crafter = Crafter::new(3, 0);
    let blocks: Vec<_> =
        [8, 13, 18, 19, 21, 22, 36, 58].map(|number| crafter.next_of([field(number, b"what")]).bytes).into();
    for (block, theirs) in blocks.iter().zip(roots_in_python(&blocks)) {
        assert!(root(block).is_err() && theirs.starts_with("refused: "), "{theirs}");
    }
}
