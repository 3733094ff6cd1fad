//! Blocks of which the copy here is damaged, from peers that have them right.
//!
//! A damaged block is asked for by its number, from one peer after the other, and must be byte for byte the one that was acknowledged, by its digest.
//! What was stored by a release that kept none must have the root hash that it was stored with or that the block behind it names; so of several in a
//! row the last comes first. Who offers another one is asked behind those who do not. One that no peer has right keeps neither other blocks from being repaired nor what is missing from being fetched: damaged blocks have their turn, and when
//! all were asked for in vain, they are asked for less and less often, too.

use std::sync::Arc;

use service_kit::client::{Channel, GrpcError};
use service_kit::tls::ClientTls;
use service_kit::url::Url;
use tokio::time::Instant;

use super::peers::{Peer, rest};
use super::{aside, get_block, open};
use crate::block::{ProofRules, Verified};
use crate::node::{Node, RepairError};

/// Damaged blocks that are asked for at a time.
const REPAIRS_MAX: usize = 64;

/// Why a damaged block is not repaired with what a peer sends.
#[derive(Debug, thiserror::Error)]
enum UnfitError {
    #[error("block {0}: {1}")]
    Call(u64, GrpcError),
    #[error("block {0} is not what its proof says: {1}")]
    Wrong(u64, String),
    #[error(
        "block {0} comes with a weaker proof than it was stored with, or with another length: it is taken from a peer that has it as it was, and \
         signatures of a record file count where --rsa-address-book names who may sign"
    )]
    Weaker(u64),
    #[error("{0}")]
    Repair(#[from] RepairError),
}

impl UnfitError {
    /// Whether the peer has offered something else than what was stored here.
    fn is_another_block(&self) -> bool {
        use RepairError::{Alone, Another, Differs, NotWritten};
        match self {
            Self::Wrong(..) | Self::Weaker(_) | Self::Repair(Another(_) | Differs(_)) => true,
            Self::Call(..) | Self::Repair(Alone(_) | NotWritten(_)) => false,
        }
    }
}

/// Which damaged blocks are asked for next, and when.
pub(super) struct Turn {
    /// The last of them; below the first one the last of all comes again.
    from: u64,
    /// Blocks that were asked for since one was repaired.
    in_vain: usize,
    /// Times in a row that all were asked for in vain.
    failures: u32,
    rests_until: Option<Instant>,
}

impl Default for Turn {
    fn default() -> Self {
        Self { from: u64::MAX, in_vain: 0, failures: 0, rests_until: None }
    }
}

impl Turn {
    fn is_resting(&self) -> bool {
        self.rests_until.is_some_and(|until| Instant::now() < until)
    }

    /// Some blocks were asked for, of so many that are damaged.
    fn is_over(&mut self, round: &Round, damaged: usize) {
        self.from = round.last.checked_sub(1).unwrap_or(u64::MAX);
        if round.repaired > 0 {
            (self.in_vain, self.failures, self.rests_until) = (0, 0, None);
            return;
        }
        self.in_vain += round.asked;
        if self.in_vain >= damaged {
            self.in_vain = 0;
            self.failures = self.failures.saturating_add(1);
            self.rests_until = Some(Instant::now() + rest(self.failures));
        }
    }
}

/// What has come of asking for some damaged blocks.
#[derive(Default)]
struct Round {
    /// Blocks that one peer at least was asked for.
    asked: usize,
    /// The last of them.
    last: u64,
    repaired: usize,
}

/// Fetches damaged blocks anew, each from the first peer that has a right one.
pub(super) async fn repair_from(node: &Arc<Node>, peers: &mut [Peer], tls: Option<&ClientTls>, turn: &mut Turn) {
    let damaged = node.reader.quarantined_blocks(turn.from, REPAIRS_MAX);
    if damaged.is_empty() || turn.is_resting() {
        return;
    }
    let mut round = Round::default();
    for peer in peers.iter_mut().filter(|peer| !peer.is_resting()) {
        let repaired_before = round.repaired;
        let result = repair(node, &peer.address, tls, &damaged, &mut round).await;
        let blocks = round.repaired - repaired_before;
        if blocks > 0 {
            tracing::info!(peer = %peer.address, blocks, "repaired blocks");
        }
        match result {
            Ok(None) => peer.repaired(blocks),
            Ok(Some(error)) => {
                if error.is_another_block() {
                    peer.offered_another();
                }
                node.metrics.backfill_failures.inc();
                tracing::warn!(peer = %peer.address, "not everything that it has repairs what is damaged here: {error}");
            }
            Err(error) => {
                node.metrics.backfill_failures.inc();
                peer.failed(&error.into());
            }
        }
    }
    if round.asked > 0 {
        turn.is_over(&round, node.reader.quarantined());
    }
}

/// Fetches these damaged blocks as far as a peer has them; why the first of those was not taken that were not. Errors: the connection.
async fn repair(
    node: &Arc<Node>,
    address: &Url,
    tls: Option<&ClientTls>,
    damaged: &[u64],
    round: &mut Round,
) -> Result<Option<UnfitError>, GrpcError> {
    let mut channel = open(node, address, tls).await?;
    let mut unfit = None;
    for (place, number) in damaged.iter().enumerate() {
        // Another peer had it.
        if !node.reader.is_quarantined(*number) {
            continue;
        }
        if place >= round.asked {
            (round.asked, round.last) = (place + 1, *number);
        }
        match repair_one(node, &mut channel, *number).await {
            Ok(is_repaired) => round.repaired += usize::from(is_repaired),
            Err(UnfitError::Call(_, error @ (GrpcError::Connect(_) | GrpcError::Broken(_)))) => return Err(error),
            // Neither this node nor the peer can be waited for again and again: the next blocks have their turn later.
            Err(
                error @ (UnfitError::Call(_, GrpcError::TimedOut(_)) | UnfitError::Repair(RepairError::NotWritten(_))),
            ) => {
                return Ok(Some(error));
            }
            Err(error) => {
                unfit.get_or_insert(error);
            }
        }
    }
    Ok(unfit)
}

/// Fetches a damaged block; `false`: the peer does not have it, or one beside it comes first.
async fn repair_one(node: &Arc<Node>, channel: &mut Channel, number: u64) -> Result<bool, UnfitError> {
    let block = get_block(node, channel, number).await.map_err(|error| UnfitError::Call(number, error))?;
    let Some(block) = block else { return Ok(false) };
    let (limits, rules) = (node.block_limits(), node.proof_rules());
    let (stored, digest) = (node.reader.stored_as(number), node.reader.digest(number));
    // It may have been accepted by other rules than those of today: it must be the one that is known here. But where nothing tells by which,
    // proofs are as good as any that is published: the root hash says nothing of them.
    let is_known = stored.is_some() || digest.is_some();
    let verify = move || match Verified::of(&block, limits, &rules) {
        Err(_) if is_known => Verified::of(&block, limits, &ProofRules::accepted_before()),
        verified => verified,
    };
    let mut verified = aside(verify).await.map_err(|error| UnfitError::Wrong(number, error.to_string()))?;
    if verified.number != number {
        return Err(UnfitError::Wrong(number, format!("its header says {}", verified.number)));
    }
    match (digest, stored) {
        // What was known of its signature still is, whatever is checked today.
        (Some(_), Some((evidence, _))) => verified.evidence = verified.evidence.stronger(evidence),
        // Or whoever has the items alone could take a signature away for good.
        (None, Some((evidence, bytes)))
            if !verified.evidence.is_as_strong_as(evidence) || verified.bytes.len() != bytes =>
        {
            return Err(UnfitError::Weaker(number));
        }
        _ => {}
    }
    match node.repair(verified).await {
        Ok(()) => Ok(true),
        Err(RepairError::Alone(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_damaged_blocks_have_their_turn_and_asking_in_vain_gets_rare() {
        let mut turn = Turn::default();
        let round = |last, repaired| Round { asked: 64, last, repaired };
        turn.is_over(&round(86, 0), 150);
        turn.is_over(&round(22, 0), 150);
        assert_eq!((turn.from, turn.is_resting()), (21, false), "there are more");
        turn.is_over(&Round { asked: 64, last: 107, repaired: 0 }, 150);
        assert_eq!((turn.from, turn.is_resting(), turn.failures), (106, true, 1), "all were asked for");
        for _ in 0..3 {
            turn.is_over(&round(63, 0), 150);
        }
        assert_eq!(turn.failures, 2);
        turn.is_over(&round(63, 1), 150);
        assert_eq!((turn.failures, turn.in_vain, turn.is_resting()), (0, 0, false));
        assert_eq!([1, 2, 5, 6, 1_000].map(|failures| rest(failures).as_secs()), [2, 4, 32, 60, 60]);
    }
}
