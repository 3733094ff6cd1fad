//! Fetches from other block nodes what this one is behind by, and blocks of which the copy here is damaged.
//!
//! Once a second each peer is asked for its last block, the most reliable peer first. Where a peer has more, or much more while somebody
//! publishes here, its blocks are subscribed to and taken as those of one more publisher: verified, compared with the blocks before them, safe
//! on disk before they are shown. So a peer cannot bring in what a publisher could not, and a publisher that comes back goes on at any
//! block. A peer that fails, stalls or sends what is refused is asked last, and less and less often; none is given up.
//!
//! What is damaged is asked for first: [`repair`]. With which block a node begins that has none: [`peers`].

mod peers;
mod repair;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use service_kit::client::{Channel, GrpcError, Options, StreamReceiver};
use service_kit::grpc::Status;
use service_kit::tls::ClientTls;
use service_kit::url::Url;
use tokio::time::{Instant, sleep, timeout};

use self::peers::{Believed, Peer, first_of_all, nearest};
use self::repair::{Turn, repair_from};
use crate::block::{BLOCK_NUMBERS_END, Builder, Verified};
use crate::connect::{connect, show_token};
use crate::messages::{BlockCode, GET_BLOCK, NO_BLOCK, STATUS, SUBSCRIBE, ends_with_proof, item_ranges, proto};
use crate::node::{Gap, Node};
use crate::publish_stream::{Fed, Fetched};

/// Between two looks at the peers.
const INTERVAL: Duration = Duration::from_secs(1);
/// What a peer may take for an answer, and between two messages of blocks.
const PATIENCE: Duration = Duration::from_secs(10);
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
    #[error("it broke off: {0}")]
    BrokeOff(GrpcError),
    #[error("it says that it has block {0}, and does not give it")]
    NotGiven(u64),
    #[error("block {0}, which it says it has, is not what its proof says: {1}")]
    Wrong(u64, String),
    #[error("its block {0} does not continue the one before")]
    Unchained(u64),
}

impl FetchError {
    /// Whether the peer had said that it has what did not come.
    fn breaks_word(&self) -> bool {
        use FetchError::{
            Another, BrokeOff, Call, Ended, Full, NotGiven, Range, Refused, Slow, Stalled, Unchained, Wrong,
        };
        match self {
            Stalled | Slow | Refused | Another(..) | Ended(..) | BrokeOff(_) | NotGiven(_) | Wrong(..)
            | Unchained(_) => true,
            Call(_) | Full(_) | Range(..) => false,
        }
    }
}

/// A peer must send so many bytes a second, or a block, beside [`PATIENCE`]: as long as no publisher is there, nobody else sends what it
/// has begun, and no other peer is asked.
const BYTES_PER_SECOND: u32 = 65_536;

/// How long a peer was waited for beyond what it has sent.
#[derive(Default)]
struct Pace {
    waited: Duration,
}

impl Pace {
    /// Something has come after so long. The time in which this node takes it does not count.
    fn came(&mut self, bytes: usize, after: Duration) -> Result<(), FetchError> {
        self.waited = (self.waited + after)
            .saturating_sub(Duration::from_micros(bytes as u64 * 1_000_000 / u64::from(BYTES_PER_SECOND)));
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

/// What has come of asking a peer.
enum Outcome {
    /// So many blocks.
    Fetched(u64),
    /// It has the blocks from this one, behind the next one, to that one.
    BeginsBehind(u64, u64),
}

/// Looks after the node until it stops. Without peers it does nothing.
pub async fn run(node: &Arc<Node>, tls: Option<&ClientTls>) -> Infallible {
    let mut peers: Vec<Peer> = node.settings.backfill_peers.iter().cloned().map(Peer::new).collect();
    if peers.is_empty() {
        return std::future::pending().await;
    }
    let mut seen = node.reader.next();
    let mut turn = Turn::default();
    // Where a node stands that has no block, and whom it has believed since.
    let (first, mut believed) = (node.reader.first(), None::<Believed>);
    loop {
        sleep(INTERVAL).await;
        peers.sort_by_key(Peer::rank);
        repair_from(node, &mut peers, tls, &mut turn).await;
        let next = node.reader.next();
        let is_moving = std::mem::replace(&mut seen, next) != next;
        let is_published = is_moving && node.publishing(|publishing| publishing.publishers()) > 0;
        let blocks_min = if is_published { FAR_BEHIND_BLOCKS } else { 1 };
        let mut is_fetching = false;
        // Behind a last block that is not known nothing is taken.
        for peer in peers.iter_mut().filter(|peer| !peer.is_resting() && node.knows_last()) {
            match fetch(node, &peer.address, tls, blocks_min).await {
                Ok(Outcome::BeginsBehind(first, last)) => peer.begins_behind(first, last),
                Ok(Outcome::Fetched(blocks)) => {
                    peer.sent(blocks);
                    if blocks > 0 {
                        tracing::info!(peer = %peer.address, blocks, next = node.reader.next(), "fetched blocks");
                        is_fetching = true;
                        break;
                    }
                }
                Err(error) => {
                    node.metrics.backfill_failures.inc();
                    peer.failed(&error);
                }
            }
        }
        let next = node.reader.next();
        let nearest = nearest(&peers, next).filter(|_| !is_fetching && node.reader.last().is_some());
        node.has_gap(nearest.map(|nearest| Gap { next, nearest }));
        if node.settings.backfill_greedy && node.reader.last().is_none() {
            match believed.take() {
                Some(peer) if peer.has_let_down(&peers) => {
                    tracing::warn!(peer = %peer.address, first, "it sends no block of those that it showed: this node stands where it stood");
                    node.begin_at(first).await;
                }
                Some(peer) => believed = Some(peer),
                None => believed = begin(node, &mut peers, tls).await,
            }
        }
        seen = node.reader.next();
    }
}

/// Lets an empty node begin with the first block that a peer has, once that has shown that others follow it; whom it believes. What a peer says
/// alone would leave the node where no block ever comes, and with the first one that is stored it does not go back from there.
async fn begin(node: &Arc<Node>, peers: &mut [Peer], tls: Option<&ClientTls>) -> Option<Believed> {
    let (first, last, peer) = first_of_all(peers)?;
    match shows(node, &peer.address, tls, (first, last)).await {
        // A node that has blocks by now stays behind: a gap is never filled with what is later.
        Ok(()) => {
            node.begin_at(first).await;
            Some(peer.believed())
        }
        Err(error) => {
            node.metrics.backfill_failures.inc();
            peer.failed(&error);
            None
        }
    }
}

/// Has a peer show the first block that it says it has, the one that continues it, and the last.
async fn shows(
    node: &Arc<Node>,
    address: &Url,
    tls: Option<&ClientTls>,
    (first, last): (u64, u64),
) -> Result<(), FetchError> {
    let mut channel = open(node, address, tls).await?;
    let one = shown(node, &mut channel, first).await?;
    if first < last && shown(node, &mut channel, first + 1).await?.footer.previous_root != one.root {
        return Err(FetchError::Unchained(first + 1));
    }
    if first + 1 < last {
        shown(node, &mut channel, last).await?;
    }
    Ok(())
}

/// Has a peer show this block.
async fn shown(node: &Node, channel: &mut Channel, number: u64) -> Result<Verified, FetchError> {
    let block = get_block(node, channel, number).await.map_err(FetchError::BrokeOff)?;
    let block = block.ok_or(FetchError::NotGiven(number))?;
    let (limits, rules) = (node.block_limits(), node.proof_rules());
    let verified = aside(move || Verified::of(&block, limits, &rules)).await;
    match verified {
        Ok(verified) if verified.number == number => Ok(verified),
        Ok(verified) => Err(FetchError::Another(verified.number, number)),
        Err(error) => Err(FetchError::Wrong(number, error.to_string())),
    }
}

/// A block of a peer; `None`: it does not have it.
async fn get_block(node: &Node, channel: &mut Channel, number: u64) -> Result<Option<Bytes>, GrpcError> {
    use proto::block_request::BlockSpecifier::BlockNumber;
    let call = channel.call(GET_BLOCK);
    let request = proto::BlockRequest { block_specifier: Some(BlockNumber(number)) };
    let response: proto::BlockResponse = channel.unary(&call, &request).await?;
    let success = BlockCode::Success.number(node.settings.wire_era);
    Ok(response.block.filter(|_| response.status == success))
}

/// Hashes on a thread of its own.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

async fn open(node: &Node, address: &Url, tls: Option<&ClientTls>) -> Result<Channel, GrpcError> {
    let options = Options {
        message_bytes_max: node.settings.message_bytes_max,
        pace: Some(BYTES_PER_SECOND),
        ..Options::new(PATIENCE)
    };
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
        // Not its fault; but who looks after this node must know why it stays behind: see [`Node::has_gap`].
        tracing::debug!(peer = %address, first, from, "the peer does not have the next block any more");
        return Ok(Outcome::BeginsBehind(first, last));
    }
    let request = proto::SubscribeStreamRequest { start_block_number: from, end_block_number: last, filter: None };
    let call = channel.call(SUBSCRIBE);
    // It has said that it has these: whatever fails from here on is its word.
    let (mut sender, mut receiver) = channel.stream(&call, &request).await.map_err(FetchError::BrokeOff)?;
    sender.finish().map_err(FetchError::BrokeOff)?;
    let mut fed = Fed::join(Arc::clone(node)).map_err(FetchError::Full)?;
    let (mut next, era) = (from, node.settings.wire_era);
    let mut pace = Pace::default();
    while next <= last {
        use proto::subscribe_stream_response::Response;
        let received: Option<proto::SubscribeStreamResponse> = next_of(&mut receiver, &mut pace, PATIENCE).await?;
        let fetched = match received.and_then(|message| message.response) {
            Some(Response::BlockItems(set)) => {
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

/// What a peer sends next: however long it is and takes, if something of it comes within `patience` each time, at the pace that is asked for.
async fn next_of<B: Message + Default>(
    receiver: &mut StreamReceiver<B>,
    pace: &mut Pace,
    patience: Duration,
) -> Result<Option<B>, FetchError> {
    let mut counted = 0;
    loop {
        let began = Instant::now();
        let Ok(received) = timeout(patience, receiver.next()).await else {
            let begun = receiver.begun();
            if begun <= counted {
                return Err(FetchError::Stalled);
            }
            pace.came(begun - counted, began.elapsed())?;
            counted = begun;
            continue;
        };
        let message = received.map_err(FetchError::BrokeOff)?;
        let bytes = message.as_ref().map_or(0, Message::encoded_len);
        pace.came(bytes.saturating_sub(counted), began.elapsed())?;
        return Ok(message);
    }
}

/// The block that begins with this set.
fn begun(set: &[u8]) -> Option<u64> {
    let (_, first) = item_ranges(set).next()?.ok()?;
    Builder::number_of(&set[first]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers the first call on a connection with these pieces, so far apart, and says no more.
    async fn peer(pieces: Vec<Bytes>, apart: Duration) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let (socket, _) = listener.accept().await.unwrap();
            let mut connection = h2::server::handshake(socket).await.unwrap();
            let (_request, mut respond) = connection.accept().await.unwrap().unwrap();
            let send = async move {
                let head = http::Response::builder().header("content-type", "application/grpc").body(()).unwrap();
                let mut body = respond.send_response(head, false).unwrap();
                for piece in pieces {
                    body.send_data(piece, false).unwrap();
                    sleep(apart).await;
                }
                std::future::pending::<()>().await;
            };
            tokio::select! { () = send => {}, _ = connection.accept() => {} }
        });
        address
    }

    /// A peer that sent all the time was given up where one message took longer than it may be waited for.
    #[tokio::test]
    async fn a_message_may_take_long_as_long_as_something_of_it_comes() {
        let patience = Duration::from_secs(1);
        let set = proto::subscribe_stream_response::Response::BlockItems(vec![7; 1_000_000].into());
        let message = proto::SubscribeStreamResponse { response: Some(set) };
        let frame = service_kit::grpc::encode(&message);
        let pieces: Vec<Bytes> = frame.chunks(200_000).map(Bytes::copy_from_slice).collect();
        for (count, apart) in [(pieces.len(), patience / 3), (2, patience / 3)] {
            let address = peer(pieces[..count].to_vec(), apart).await;
            let mut channel = Channel::connect(&address, Options::new(PATIENCE)).await.unwrap();
            let call = channel.call(SUBSCRIBE);
            let nothing = proto::ServerStatusRequest {};
            let (_sender, mut receiver) = channel.stream(&call, &nothing).await.unwrap();
            let came = next_of(&mut receiver, &mut Pace::default(), patience).await;
            match count == pieces.len() {
                true => assert!(came.unwrap().as_ref() == Some(&message)),
                false => assert!(matches!(came, Err(FetchError::Stalled)), "{came:?}"),
            }
        }
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
