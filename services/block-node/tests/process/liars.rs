//! Peers that say of themselves what is not so, beside one that is honest, and a node without a block that may begin anywhere.

use block_node::connect::address;
use block_node::messages::SubscribeCode;
use bytes::Bytes;
use prost::Message as _;
use service_kit::grpc::{Caller, Requests, Responses, Service, Stream, Unary, encode};
use service_kit::listen::Group;
use service_kit::server::Bound;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// Where the honest peer begins.
const FIRST: u64 = 2_000;

/// A peer that says at its first, second, … answer that it has the blocks from one number to another, and gives few of them, or none.
#[derive(Clone)]
pub struct Liar {
    pub says: fn(u64) -> (u64, u64),
    pub answers: Arc<AtomicU64>,
    /// Blocks that somebody asked it for.
    pub asked: Arc<AtomicU64>,
    /// Blocks that it shows to who asks for one, …
    pub shows: Arc<BTreeMap<u64, Bytes>>,
    /// … and how many of them it sends to subscribers.
    pub sends: usize,
}

impl Service for Liar {
    /// Whether it is asked how it stands.
    type Method = bool;

    fn method(&self, path: &str) -> Option<(bool, bool)> {
        Some((path == STATUS, path == SUBSCRIBE))
    }

    fn unary(&self, is_status: bool, _: Caller, request: Bytes) -> Unary {
        use proto::block_request::BlockSpecifier::BlockNumber;
        if !is_status {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let block = match proto::BlockRequest::decode(request).unwrap().block_specifier {
                Some(BlockNumber(number)) => self.shows.get(&number).cloned(),
                _ => None,
            };
            let status = if block.is_some() { 1 } else { 4 };
            return Unary::Now(Ok(encode(&proto::BlockResponse { status, block })));
        }
        let (first, last) = (self.says)(1 + self.answers.fetch_add(1, Ordering::Relaxed));
        Unary::Now(Ok(encode(&proto::ServerStatusResponse {
            first_available_block: first,
            last_available_block: last,
            only_latest_state: false,
            next_expected_block: last.wrapping_add(1),
        })))
    }

    fn stream(&self, _: bool, _: Caller, _: Requests, responses: Responses) -> Stream {
        use proto::subscribe_stream_response::Response::{BlockItems, EndOfBlock};
        let sent: Vec<_> = self.shows.iter().take(self.sends).map(|(number, block)| (*number, block.clone())).collect();
        Box::pin(async move {
            for (block_number, block) in sent {
                for response in [BlockItems(block), EndOfBlock(proto::BlockEnd { block_number })] {
                    let message = proto::SubscribeStreamResponse { response: Some(response) };
                    if responses.send(encode(&message)).await.is_err() {
                        break;
                    }
                }
            }
            Ok(())
        })
    }
}

impl Liar {
    pub fn new(says: fn(u64) -> (u64, u64)) -> Liar {
        Liar { says, answers: Arc::default(), asked: Arc::default(), shows: Arc::default(), sends: 0 }
    }

    /// The same, which has some blocks.
    fn showing(self, numbers: &[u64], sends: usize) -> Liar {
        let mut blocks = crafted(1 + numbers.iter().max().unwrap());
        let block = |number: &u64| (*number, Bytes::from(std::mem::take(&mut blocks[*number as usize])));
        Liar { shows: Arc::new(numbers.iter().map(block).collect()), sends, ..self }
    }
}

/// A server that says and gives what the liar does, for as long as the scene takes.
pub async fn beside(liar: &Liar, scene: impl AsyncFnOnce(String)) {
    let bound = Bound::bind(&[Group { urls: &[address("127.0.0.1:0").unwrap()], grpc: true, http: true }]).unwrap();
    let of_server = liar.clone();
    let mut lying = bound.start(Default::default(), move |_| of_server.clone()).unwrap();
    let address = lying.addresses()[0].to_string();
    tokio::select! {
        () = scene(address) => {}
        accepted = lying.accept() => panic!("{accepted:?}"),
    }
    lying.stop();
}

/// A node that may begin anywhere has the liar for its first peer, and an honest one, which has blocks as soon as this holds of the liar.
fn begins_with_what_an_honest_peer_has(liar: &Liar, when: impl Fn(&Liar) -> bool) {
    let (ours, theirs) = (harness::folder(), harness::folder());
    let honest = Server::start(theirs.path(), &["--block-node-earliest-managed-block", &FIRST.to_string()]);
    run(beside(liar, async |address| {
        let peers = format!("{address},{}", honest.address);
        let server = Server::start(ours.path(), &["--backfill-peers", &peers, "--backfill-greedy"]);
        let comes = async {
            while !when(liar) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(harness::LONG, comes).await.expect("what the liar is asked");
        publish(&publisher(&honest, FIRST, 30)).await.unwrap();
        status_becomes(&server, |status| status.last_available_block == FIRST + 29).await;
        assert_eq!(status(&server).await.first_available_block, FIRST);
    }));
}

#[test]
fn a_peer_that_never_has_a_block_does_not_keep_a_greedy_node_empty() {
    begins_with_what_an_honest_peer_has(&Liar::new(|_| (NO_BLOCK, NO_BLOCK)), |_| true);
}

#[test]
fn a_peer_whose_first_block_always_comes_just_behind_the_next_does_not_keep_a_greedy_node_empty() {
    begins_with_what_an_honest_peer_has(&Liar::new(|answer| (answer, u64::MAX / 4)), |_| true);
}

#[test]
fn a_peer_that_says_now_and_then_that_it_has_all_does_not_keep_a_greedy_node_empty() {
    let says = |answer: u64| if answer.is_multiple_of(2) { (0, u64::MAX / 4) } else { (NO_BLOCK, NO_BLOCK) };
    begins_with_what_an_honest_peer_has(&Liar::new(says), |_| true);
}

#[test]
fn a_greedy_node_does_not_begin_with_a_block_that_nobody_shows() {
    // While the honest one has no block yet.
    let was_asked = |liar: &Liar| liar.asked.load(Ordering::Relaxed) > 0;
    begins_with_what_an_honest_peer_has(&Liar::new(|_| (u64::MAX / 8, u64::MAX / 4)), was_asked);
}

#[test]
fn a_greedy_node_does_not_begin_with_an_old_block_behind_which_none_comes() {
    // One that says so, one that promises more, and one that shows the end of it, too.
    for (says, shows) in [(|_| (5, 5), &[5][..]), (|_| (5, u64::MAX / 4), &[5]), (|_| (5, 60), &[5, 60])]
        as [(fn(u64) -> (u64, u64), &[u64]); 3]
    {
        begins_with_what_an_honest_peer_has(&Liar::new(says).showing(shows, 1), |_| true);
    }
}

#[test]
fn a_greedy_node_does_not_stay_where_a_peer_that_it_believed_sends_nothing() {
    // It shows all that it says it has, while the honest one has no block yet; there the node has begun.
    let liar = Liar::new(|_| (3_000, 3_001)).showing(&[3_000, 3_001], 0);
    begins_with_what_an_honest_peer_has(&liar, |liar| liar.asked.load(Ordering::Relaxed) >= 2);
}

#[test]
fn a_greedy_node_that_believed_a_peer_in_vain_takes_publishers_where_it_stood_before() {
    let folder = harness::folder();
    let liar = Liar::new(|_| (50, 51)).showing(&[50, 51], 0);
    run(beside(&liar, async |address| {
        let server = Server::start(folder.path(), &["--backfill-peers", &address, "--backfill-greedy"]);
        status_becomes(&server, |status| status.next_expected_block == 50).await;
        let flags = consumer(&server, None, None);
        let live = tokio::spawn(async move { read(&flags, |_| ()).await });
        status_becomes(&server, |status| status.next_expected_block == 0).await;
        let published = async {
            while publish(&publisher(&server, 0, 10)).await.is_ok_and(|published| published.acknowledged.len() < 10) {}
        };
        tokio::time::timeout(harness::LONG, published).await.expect("blocks that are acknowledged");
        assert_eq!(status(&server).await.first_available_block, 0);
        // What was next for who subscribed then is not any more, and it would miss what came before.
        let live = tokio::time::timeout(harness::LONG, live).await.expect("it is told").unwrap().unwrap();
        assert_eq!((live.blocks, live.status), (0, SubscribeCode::NotAvailable.number(WireEra::Today)));
    }));
}
