//! `block-node verify`: reads every block of a directory and checks what a publisher's block is checked for: checksums, root hash, proof,
//! and that it continues the blocks before it; and that it is byte for byte what was acknowledged, by its digest. For a directory that no server has open.

use std::error::Error;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::Args;
use wal::files::{Directory, RealDirectory};

use crate::block::{Chain, Limits, ProofRules, Verified};
use crate::console;
use crate::data_directory::{self, DATA_DIR};
use crate::store::{self, ReadError, Reader, Store, Stored};

/// What is verified.
#[derive(Clone, Debug, Args)]
pub struct VerifyFlags {
    /// Directory of the blocks; a server must not have it open
    #[arg(long, visible_alias = "data-dir", env = "FILES_RECENT_LIVE_ROOT_PATH", default_value = "block-node-data")]
    pub files_recent_live_root_path: PathBuf,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The first block and the last; `None`: there is none.
    pub blocks: Option<RangeInclusive<u64>>,
    /// Bytes of the blocks that are right.
    pub bytes: u64,
    /// Each block that is not, and why.
    pub wrong: Vec<(u64, String)>,
}

/// Opens the store of a node that does not run, which must be there. A torn end is mended, as it is by every start.
pub(crate) fn open(path: &Path) -> Result<Store<RealDirectory>, String> {
    let named = |error: &dyn std::fmt::Display| format!("{DATA_DIR}: {error}");
    let directory = data_directory::open_existing(path).map_err(|error| named(&error))?;
    Store::open(directory, store::Options::default()).map_err(|error| named(&error))
}

/// Verifies a directory, and prints what was found.
pub fn run(flags: &VerifyFlags) -> Result<(), Box<dyn Error>> {
    let store = open(&flags.files_recent_live_root_path)?;
    let found = verify(&store.reader());
    for (number, why) in &found.wrong {
        console::print(format_args!("block {number}: {why}\n"))?;
    }
    let Some(blocks) = &found.blocks else {
        console::print("no blocks\n")?;
        return Ok(());
    };
    console::print(format_args!(
        "blocks {} to {}: {} bytes verified, {} wrong\n",
        blocks.start(),
        blocks.end(),
        found.bytes,
        count(found.wrong.len())
    ))?;
    match found.wrong.is_empty() {
        true => Ok(()),
        false => Err(format!("{} damaged or not of this chain; see above", count(found.wrong.len())).into()),
    }
}

fn count(blocks: usize) -> String {
    if blocks == 1 { "1 block".into() } else { format!("{blocks} blocks") }
}

/// Verifies what a store has.
pub fn verify<D: Directory>(reader: &Reader<D>) -> Found {
    let mut found = Found { blocks: reader.last().map(|last| reader.first()..=last), bytes: 0, wrong: Vec::new() };
    let mut chain = Chain::from(reader.first());
    let said = |error: ReadError| match error {
        ReadError::Damaged { what, .. } => format!("damaged: {what}"),
        error => error.to_string(),
    };
    for number in found.blocks.clone().into_iter().flatten() {
        let checked = match reader.is_quarantined(number) {
            true => Err("damaged, as was found when the directory was opened".into()),
            false => reader.read(number).map_err(said).and_then(|stored| check(&stored, &chain)),
        };
        match checked {
            Ok(verified) => {
                found.bytes += verified.bytes.len() as u64;
                chain.extend(verified.root);
            }
            Err(why) => {
                found.wrong.push((number, why));
                // What the next one continues is not known.
                chain = Chain::from(number + 1);
            }
        }
    }
    found
}

/// A stored block, as what a publisher sends is checked.
pub(crate) fn check(stored: &Stored, chain: &Chain) -> Result<Verified, String> {
    // Which proofs were accepted was decided when the block came.
    let rules = ProofRules::accepted_before();
    let said = |error: &dyn std::fmt::Display| error.to_string();
    let limits = Limits { block_bytes_max: usize::MAX };
    let verified = Verified::of(&stored.bytes, limits, &rules).map_err(|error| said(&error))?;
    if (verified.number, verified.root) != (stored.number, stored.root) {
        return Err("its root hash is not the one that it was stored with".into());
    }
    if stored.digest.is_some_and(|digest| digest != verified.digest) {
        return Err("it is not byte for byte the block that was acknowledged: its signature may be another one".into());
    }
    chain.check(verified.number, &verified.footer).map_err(|error| said(&error))?;
    Ok(verified)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Evidence, Footer};
    use crate::craft::{Crafted, Crafter, Shape, signed};
    use crate::store::{Options, Prepared};
    use wal::files::SimulatedDirectory;

    fn stored(blocks: &[Crafted]) -> Store<SimulatedDirectory> {
        let mut store = Store::open(SimulatedDirectory::default(), Options::default()).unwrap();
        for block in blocks {
            let footer = Footer { previous_root: [0; 48], all_previous_root: Some([0; 48]), state_root: None };
            let Crafted { number, bytes, root } = block.clone();
            let whole = Verified::of(&bytes, Limits { block_bytes_max: usize::MAX }, &ProofRules::accepted_before());
            let digest = whole.map_or([7; 32], |whole| whole.digest);
            let verified = Verified { number, bytes, root, digest, footer, evidence: Evidence::Dummy, items: 0 };
            store.append(&[Prepared::of(&verified)]).unwrap();
        }
        store
    }

    fn chain(seed: u64) -> Vec<Crafted> {
        let mut crafter = Crafter::new(seed, 0);
        (0..9).map(|_| crafter.next(Shape { items: 3, item_bytes: 100 })).collect()
    }

    #[test]
    fn blocks_of_one_chain_are_right() {
        let blocks = chain(1);
        let found = verify(&stored(&blocks).reader());
        let bytes = blocks.iter().map(|block| block.bytes.len() as u64).sum();
        assert_eq!(found, Found { blocks: Some(0..=8), bytes, wrong: Vec::new() });
        assert_eq!(verify(&stored(&[]).reader()).blocks, None);
    }

    /// Both have right checksums, as what a careless writer wrote has.
    #[test]
    fn a_block_of_another_chain_and_one_with_another_content_are_told() {
        let mut blocks = chain(1);
        blocks[4] = chain(2).swap_remove(4);
        // Within the content of an item, behind its frame.
        let middle = blocks[7].bytes.len() / 2 + 20;
        blocks[7].bytes[middle] ^= 1;
        let wrong = verify(&stored(&blocks).reader()).wrong;
        let numbers: Vec<u64> = wrong.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [4, 7], "{wrong:?}");
        assert!(wrong[0].1.contains("names another root hash of the block before"), "{wrong:?}");
        assert!(wrong[1].1.contains("signature"), "{wrong:?}");
    }

    /// Its checksums and its root hash are right.
    #[test]
    fn a_block_with_another_signature_than_was_acknowledged_is_told() {
        let mut blocks = chain(1);
        for (number, block) in (0..).zip(&mut blocks) {
            block.bytes = signed(&block.bytes, number, &[1; 2_920]);
        }
        let mut store = Store::open(SimulatedDirectory::default(), Options::default()).unwrap();
        for block in &blocks {
            let limits = Limits { block_bytes_max: usize::MAX };
            let acknowledged = Verified::of(&block.bytes, limits, &ProofRules::accepted_before()).unwrap();
            let bytes = match block.number {
                3 => signed(&block.bytes, 3, &[2; 2_920]),
                _ => acknowledged.bytes.clone(),
            };
            store.append(&[Prepared::of(&Verified { bytes, ..acknowledged })]).unwrap();
        }
        let wrong = verify(&store.reader()).wrong;
        assert!(wrong.len() == 1 && wrong[0].0 == 3 && wrong[0].1.contains("byte for byte"), "{wrong:?}");
    }
}
