//! Damaged blocks are replaced by those that were stored, and by no others.

use std::sync::Arc;
use std::time::Duration;

use super::{Node, Tip, locked};
use crate::block::{ProofRules, Verified};
use crate::store::Prepared;

/// How long the repair of a block may take, others being written before it.
const REPAIR_PATIENCE: Duration = Duration::from_secs(30);

/// Why a damaged block is not replaced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepairError {
    /// Nothing to compare it with.
    #[error(
        "block {0}: nothing here has its root hash, and the block behind it is not whole: nothing tells whether it is the right one"
    )]
    Alone(u64),
    /// A block of another history.
    #[error("block {0} is not the one that was stored here, or does not stand between those beside it")]
    Another(u64),
    /// The same block with something else that no root hash tells.
    #[error("block {0} is not byte for byte the one that was acknowledged here: it may have another signature")]
    Differs(u64),
    /// The store.
    #[error("block {0} was not written")]
    NotWritten(u64),
}

/// What to do where the last block is damaged together with its root hash.
pub(super) fn last_is_lost(last: u64, is_digest_known: bool) -> String {
    let how = match is_digest_known {
        true => "which have it, any of them: it must be byte for byte what was acknowledged",
        false => "whom you trust, and --trust-peers-with-last-block",
    };
    format!(
        "block {last} is damaged together with its root hash: none is taken behind it, since nothing tells what it must continue. Start with \
         --backfill-peers {how}"
    )
}

impl Node {
    /// Takes a block of which the copy here is damaged, and waits until it is safe. It must be what was acknowledged, byte for byte. Where that was
    /// stored without a digest, it must have its root hash; where this is not known, the block behind it must name it, and it must continue the one
    /// before if that is here.
    pub async fn repair(self: &Arc<Self>, verified: Verified) -> Result<(), RepairError> {
        let node = Arc::clone(self);
        let number = verified.number;
        let prepare = move || {
            node.fits(&verified)?;
            // By itself: what is current for the newest blocks is nothing to an older one.
            Ok(Prepared::with(&verified, None, node.settings.compression_level))
        };
        let prepared = match tokio::task::spawn_blocking(prepare).await {
            Ok(prepared) => prepared?,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        let mut tip = self.tip();
        if !locked(&self.writer).as_ref().is_some_and(|writer| writer.repair(prepared)) {
            return Err(RepairError::NotWritten(number));
        }
        let is_over = |tip: &Tip| !self.reader.is_quarantined(number) || tip.is_stopping;
        let written = tokio::time::timeout(REPAIR_PATIENCE, tip.wait_for(is_over)).await;
        match written {
            Ok(Ok(tip)) if !tip.is_stopping => Ok(()),
            _ => Err(RepairError::NotWritten(number)),
        }
    }

    /// Whether a block is the one that was stored: it has its digest, or where none is known its root hash, or that which the block behind it names.
    /// That it continues the one before proves nothing: whoever knows that can make many which do, and proofs for them.
    fn fits(&self, verified: &Verified) -> Result<(), RepairError> {
        let number = verified.number;
        match self.reader.digest(number) {
            Some(digest) if digest == verified.digest => return Ok(()),
            Some(_) => return Err(RepairError::Differs(number)),
            None => {}
        }
        // The root hash that it was stored with names one block, whatever proofs are accepted today.
        match self.reader.root(number) {
            Some(root) if root == verified.root => return Ok(()),
            Some(_) => return Err(RepairError::Another(number)),
            None => {}
        }
        let before = number.checked_sub(1).and_then(|before| self.reader.root(before));
        if before.is_some_and(|root| root != verified.footer.previous_root) {
            return Err(RepairError::Another(number));
        }
        let (next, last_root) = self.with(|publishing| publishing.next());
        let behind = self.reader.read(number + 1).ok();
        let behind = behind
            .and_then(|behind| Verified::of(&behind.bytes, self.block_limits(), &ProofRules::accepted_before()).ok());
        let named = match behind {
            Some(behind) => Some(behind.footer.previous_root),
            // What comes next will continue the block that stood here.
            None if next == number + 1 => last_root,
            None => None,
        };
        match named {
            Some(root) if root == verified.root => Ok(()),
            Some(_) => Err(RepairError::Another(number)),
            None if next == number + 1 && self.settings.trusts_peers_with_last_block => Ok(()),
            None => Err(RepairError::Alone(number)),
        }
    }
}
