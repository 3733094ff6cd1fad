//! Fetches from other block nodes what this one is behind by, and blocks of which the copy here is damaged.
//!
//! Once a second each peer is asked for its last block, the most reliable peer first. Where a peer has more, or much more while somebody
//! publishes here, its blocks are subscribed to and taken as those of one more publisher: verified, compared with the blocks before them, safe
//! on disk before they are shown. So a peer cannot bring in what a publisher could not, and a publisher that comes back goes on at any
//! block. A peer that fails, stalls or sends what is refused is asked last, and less and less often; none is given up.
//!
//! A damaged block is asked for by its number, from one peer after the other, and must stand between those beside it. One that no peer has
//! right keeps neither other blocks from being repaired nor what is missing from being fetched: damaged blocks have their turn, and when
//! all were asked for in vain, they are asked for less and less often, too.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use service_kit::client::{Channel, GrpcError, Options};
use service_kit::grpc::Status;
use service_kit::tls::ClientTls;
use service_kit::url::Url;
use tokio::time::{Instant, sleep, timeout};

use crate::block::{BLOCK_NUMBERS_END, Builder, BuilderError, ProofRules, Verified};
use crate::connect::{connect, show_token};
use crate::messages::{BlockCode, GET_BLOCK, NO_BLOCK, STATUS, SUBSCRIBE, ends_with_proof, item_ranges, proto};
use crate::node::{Node, RepairError};
use crate::publish_stream::{Fed, Fetched};

/// Between two looks at the peers.
const INTERVAL: Duration = Duration::from_secs(1);
/// What a peer may take for an answer, and between two messages of blocks.
const PATIENCE: Duration = Duration::from_secs(10);
/// A peer that fails is left alone for `INTERVAL` times two to the power of its failures in a row, and at most for this long.
const REST_MAX: Duration = Duration::from_secs(60);
/// A peer that has failed so often in a row is not waited for any more when an empty node chooses its first block.
const FAILURES_MAX: u32 = 3;
/// Damaged blocks that are asked for at a time.
const REPAIRS_MAX: usize = 64;

/// Who publishes is nearer than any peer: as long as blocks come from there, peers are left alone that have fewer blocks more.
const FAR_BEHIND_BLOCKS: u64 = 32;

/// Why a peer could not be fetched from.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("{0}")]
    Call(#[from] GrpcError),
    #[error("nothing came for {} s", PATIENCE.as_secs())]
    Stalled,
    #[error("less than {BYTES_PER_SECOND} bytes and less than a block a second came, and it was waited for {} s besides", PATIENCE.as_secs())]
    Slow,
    #[error("this node takes no publisher: {0:?}")]
    Full(Status),
    #[error("its blocks were refused")]
    Refused,
    #[error("it says that it has the blocks {0} to {1}")]
    Range(u64, u64),
    #[error("it sent block {0} instead of block {1}")]
    Another(u64, u64),
    #[error("it ended with status {0} before block {1}")]
    Ended(i32, u64),
}

/// Why a damaged block is not repaired with what a peer sends.
#[derive(Debug, thiserror::Error)]
enum UnfitError {
    #[error("block {0}: {1}")]
    Call(u64, GrpcError),
    #[error("block {0} is not what its proof says: {1}")]
    Wrong(u64, String),
    #[error("{0}")]
    Repair(#[from] RepairError),
}

/// A peer must send so many bytes a second, or a block, beside [`PATIENCE`]: as long as no publisher is there, nobody else sends what it
/// has begun, and no other peer is asked.
const BYTES_PER_SECOND: u64 = 65_536;

/// How long a peer was waited for beyond what it has sent.
#[derive(Default)]
struct Pace {
    waited: Duration,
}

impl Pace {
    /// Something has come after so long. The time in which this node takes it does not count.
    fn came(&mut self, bytes: usize, after: Duration) -> Result<(), FetchError> {
        self.waited =
            (self.waited + after).saturating_sub(Duration::from_micros(bytes as u64 * 1_000_000 / BYTES_PER_SECOND));
        match self.waited <= PATIENCE {
            true => Ok(()),
            false => Err(FetchError::Slow),
        }
    }

    /// A block is whole.
    fn ended(&mut self) {
        self.waited = self.waited.saturating_sub(Duration::from_secs(1));
    }
}

/// What is known of a peer.
struct Peer {
    address: Url,
    failures: u32,
    rests_until: Option<Instant>,
    /// The first block that it has, where it does not have the next one of this node any more.
    begins_behind: Option<u64>,
}

/// What has come of asking a peer.
enum Outcome {
    /// So many blocks.
    Fetched(u64),
    /// It begins with this block, behind the next one.
    BeginsBehind(u64),
}

impl Peer {
    fn is_resting(&self) -> bool {
        self.rests_until.is_some_and(|until| Instant::now() < until)
    }

    fn failed(&mut self, error: &FetchError) {
        self.failures = self.failures.saturating_add(1);
        let rest = rest(self.failures);
        self.rests_until = Some(Instant::now() + rest);
        let seconds = rest.as_secs();
        tracing::warn!(peer = %self.address, "nothing was fetched: {error}; it is asked again in {seconds} s");
    }
}

/// How long to wait after so many failures in a row.
fn rest(failures: u32) -> Duration {
    INTERVAL.saturating_mul(2_u32.saturating_pow(failures)).min(REST_MAX)
}

/// Which damaged blocks are asked for next, and when.
#[derive(Default)]
struct Turn {
    /// The first of them; behind the last one the first of all comes again.
    from: u64,
    /// Blocks that were asked for since one was repaired.
    in_vain: usize,
    /// Times in a row that all were asked for in vain.
    failures: u32,
    rests_until: Option<Instant>,
}

impl Turn {
    fn is_resting(&self) -> bool {
        self.rests_until.is_some_and(|until| Instant::now() < until)
    }

    /// Some blocks were asked for, of so many that are damaged.
    fn is_over(&mut self, round: &Round, damaged: usize) {
        self.from = round.last.saturating_add(1);
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

/// Looks after the node until it stops. Without peers it does nothing.
pub async fn run(node: &Arc<Node>, tls: Option<&ClientTls>) -> Infallible {
    let peer = |address: &Url| Peer { address: address.clone(), failures: 0, rests_until: None, begins_behind: None };
    let mut peers: Vec<Peer> = node.settings.backfill_peers.iter().map(peer).collect();
    if peers.is_empty() {
        return std::future::pending().await;
    }
    let mut seen = node.reader.next();
    let mut turn = Turn::default();
    loop {
        sleep(INTERVAL).await;
        peers.sort_by_key(|peer| peer.failures);
        repair_from(node, &mut peers, tls, &mut turn).await;
        let next = node.reader.next();
        let is_moving = std::mem::replace(&mut seen, next) != next;
        let is_published = is_moving && node.publishing(|publishing| publishing.publishers()) > 0;
        let blocks_min = if is_published { FAR_BEHIND_BLOCKS } else { 1 };
        for peer in peers.iter_mut().filter(|peer| !peer.is_resting()) {
            peer.begins_behind = None;
            match fetch(node, &peer.address, tls, blocks_min).await {
                Ok(Outcome::Fetched(0)) => peer.failures = 0,
                Ok(Outcome::BeginsBehind(first)) => (peer.failures, peer.begins_behind) = (0, Some(first)),
                Ok(Outcome::Fetched(blocks)) => {
                    peer.failures = 0;
                    tracing::info!(peer = %peer.address, blocks, next = node.reader.next(), "fetched blocks");
                    break;
                }
                Err(error) => {
                    node.metrics.backfill_failures.inc();
                    peer.failed(&error);
                }
            }
        }
        if let Some(first) = first_of_all(&peers).filter(|_| node.settings.backfill_greedy) {
            // A node that has blocks stays behind: a gap is never filled with what is later.
            node.begin_at(first).await;
        }
        seen = node.reader.next();
    }
}

/// Which block an empty node begins with: the first that any peer has, when all were asked that can be.
fn first_of_all(peers: &[Peer]) -> Option<u64> {
    let is_known = |peer: &Peer| peer.begins_behind.is_some() || peer.failures >= FAILURES_MAX;
    let first = peers.iter().filter_map(|peer| peer.begins_behind).min();
    first.filter(|_| peers.iter().all(is_known))
}

/// Fetches damaged blocks anew, each from the first peer that has a right one.
async fn repair_from(node: &Arc<Node>, peers: &mut [Peer], tls: Option<&ClientTls>, turn: &mut Turn) {
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
            Ok(None) => {}
            Ok(Some(error)) => {
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
    use proto::block_request::BlockSpecifier::BlockNumber;
    let call = channel.call(GET_BLOCK);
    let request = proto::BlockRequest { block_specifier: Some(BlockNumber(number)) };
    let response: Result<proto::BlockResponse, GrpcError> = channel.unary(&call, &request).await;
    let response = response.map_err(|error| UnfitError::Call(number, error))?;
    let success = BlockCode::Success.number(node.settings.wire_era);
    let Some(block) = response.block.filter(|_| response.status == success) else { return Ok(false) };
    let (limits, rules) = (node.block_limits(), node.proof_rules());
    let verify = move || match Verified::of(&block, limits, &rules) {
        Ok(verified) => Ok((verified, true)),
        // It may have been accepted by other rules than those of today; then a neighbour must vouch for it.
        Err(BuilderError::Proof(_)) => {
            let verified = Verified::of(&block, limits, &ProofRules::accepted_before());
            verified.map(|verified| (verified, false)).map_err(|error| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    };
    let (verified, is_proven) = match tokio::task::spawn_blocking(verify).await {
        Ok(verified) => verified.map_err(|why| UnfitError::Wrong(number, why))?,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    };
    if verified.number != number {
        return Err(UnfitError::Wrong(number, format!("its header says {}", verified.number)));
    }
    match node.repair(verified, is_proven).await {
        Ok(()) => Ok(true),
        Err(RepairError::Alone(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

async fn open(node: &Node, address: &Url, tls: Option<&ClientTls>) -> Result<Channel, GrpcError> {
    let options = Options { message_bytes_max: node.settings.message_bytes_max, ..Options::new(PATIENCE) };
    let mut channel = connect(address, tls, options).await?;
    show_token(&mut channel, node.settings.backfill_token_file.as_deref())?;
    Ok(channel)
}

/// Fetches what a peer has beyond this node, if it is so many blocks.
async fn fetch(
    node: &Arc<Node>,
    address: &Url,
    tls: Option<&ClientTls>,
    blocks_min: u64,
) -> Result<Outcome, FetchError> {
    let mut channel = open(node, address, tls).await?;
    let call = channel.call(STATUS);
    let status: proto::ServerStatusResponse = channel.unary(&call, &proto::ServerStatusRequest {}).await?;
    let (first, last, from) = (status.first_available_block, status.last_available_block, node.reader.next());
    // An empty one says so of both.
    if last == NO_BLOCK {
        return Ok(Outcome::Fetched(0));
    }
    if !(first..BLOCK_NUMBERS_END).contains(&last) {
        return Err(FetchError::Range(first, last));
    }
    if last < from || last - from + 1 < blocks_min {
        return Ok(Outcome::Fetched(0));
    }
    if first > from {
        // Not its fault; but who looks after this node must know why it stays behind.
        tracing::warn!(peer = %address, first, from, "the peer does not have the next block any more");
        return Ok(Outcome::BeginsBehind(first));
    }
    let request = proto::SubscribeStreamRequest { start_block_number: from, end_block_number: last, filter: None };
    let call = channel.call(SUBSCRIBE);
    let (mut sender, mut receiver) = channel.stream(&call, &request).await?;
    sender.finish()?;
    let mut fed = Fed::join(Arc::clone(node)).map_err(FetchError::Full)?;
    let (mut next, era) = (from, node.settings.wire_era);
    let mut pace = Pace::default();
    while next <= last {
        use proto::subscribe_stream_response::Response;
        let began = Instant::now();
        let received = timeout(PATIENCE, receiver.next()).await.map_err(|_| FetchError::Stalled)??;
        let waited = began.elapsed();
        let fetched = match received.and_then(|message: proto::SubscribeStreamResponse| message.response) {
            Some(Response::BlockItems(set)) => {
                pace.came(set.len(), waited)?;
                if let Some(another) = begun(&set).filter(|number| *number != next) {
                    return Err(FetchError::Another(another, next));
                }
                if !era.has_end_of_block() && ends_with_proof(&set) {
                    next += 1;
                    pace.ended();
                    node.metrics.backfilled.inc();
                }
                fed.items(set).await
            }
            Some(Response::EndOfBlock(end)) => {
                if end.block_number != next {
                    return Err(FetchError::Another(end.block_number, next));
                }
                pace.came(0, waited)?;
                pace.ended();
                next += 1;
                node.metrics.backfilled.inc();
                fed.end(end.block_number).await
            }
            Some(Response::Status(status)) => return Err(FetchError::Ended(status, next)),
            None => return Err(FetchError::Ended(0, next)),
        };
        match fetched {
            Fetched::Goes => {}
            Fetched::Refused => return Err(FetchError::Refused),
            // A publisher has come, or one that had a block has gone: look again.
            Fetched::Stands => return Ok(Outcome::Fetched(node.reader.next().saturating_sub(from))),
        }
    }
    // What is under way is safe soon, and shall not be asked for again.
    let mut tip = node.tip();
    let is_safe = tip.wait_for(|tip| tip.next >= next || tip.is_stopping);
    let _ = timeout(PATIENCE, is_safe).await;
    Ok(Outcome::Fetched(node.reader.next().saturating_sub(from)))
}

/// The block that begins with this set.
fn begun(set: &[u8]) -> Option<u64> {
    let (_, first) = item_ranges(set).next()?.ok()?;
    Builder::number_of(&set[first]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_node_begins_with_the_first_block_of_any_peer_when_all_were_asked() {
        let peer = |failures, begins_behind| {
            let address = crate::connect::address("127.0.0.1:1").unwrap();
            Peer { address, failures, rests_until: None, begins_behind }
        };
        assert_eq!(first_of_all(&[peer(0, Some(300)), peer(0, Some(200))]), Some(200));
        assert_eq!(first_of_all(&[peer(0, Some(300)), peer(2, None)]), None, "it may have more, and comes back");
        assert_eq!(first_of_all(&[peer(0, Some(300)), peer(0, None)]), None, "it has the next block, or none yet");
        assert_eq!(first_of_all(&[peer(0, Some(300)), peer(3, None)]), Some(300), "it is gone");
        assert_eq!(first_of_all(&[peer(9, None)]), None);
    }

    #[test]
    fn all_damaged_blocks_have_their_turn_and_asking_in_vain_gets_rare() {
        let mut turn = Turn::default();
        let round = |last, repaired| Round { asked: 64, last, repaired };
        turn.is_over(&round(63, 0), 150);
        turn.is_over(&round(127, 0), 150);
        assert_eq!((turn.from, turn.is_resting()), (128, false), "there are more");
        turn.is_over(&Round { asked: 64, last: 41, repaired: 0 }, 150);
        assert_eq!((turn.from, turn.is_resting(), turn.failures), (42, true, 1), "all were asked for");
        for _ in 0..3 {
            turn.is_over(&round(63, 0), 150);
        }
        assert_eq!(turn.failures, 2);
        turn.is_over(&round(63, 1), 150);
        assert_eq!((turn.failures, turn.in_vain, turn.is_resting()), (0, 0, false));
        assert_eq!([1, 2, 5, 6, 1_000].map(|failures| rest(failures).as_secs()), [2, 4, 32, 60, 60]);
    }

    #[test]
    fn a_peer_that_trickles_a_block_is_given_up_and_one_that_sends_a_large_one_is_not() {
        let mut trickled = Pace::default();
        let second = Duration::from_secs(1);
        assert!((0..10).all(|_| trickled.came(100, second).is_ok()));
        let error = trickled.came(100, second).unwrap_err().to_string();
        assert_eq!(
            error,
            "less than 65536 bytes and less than a block a second came, and it was waited for 10 s besides"
        );
        // A mebibyte every ten seconds.
        let mut large = Pace::default();
        assert!((0..125).all(|_| large.came(1 << 20, 10 * second).is_ok()));
        // Small blocks, half a second apart; then nine seconds apart, each of which is taken for none that trickles.
        let mut small = Pace::default();
        let mut block = |after: Duration| {
            let came = small.came(1_000, after).is_ok();
            small.ended();
            came
        };
        assert!((0..100).all(|_| block(second / 2)));
        assert_eq!([(); 3].map(|()| block(9 * second)), [true, false, false], "the next peer is asked");
    }
}
