//! Peers that say of themselves what is not so, beside one that is honest, and a node without a block that may begin anywhere.

use block_node::connect::address;
use bytes::Bytes;
use service_kit::grpc::{Caller, Requests, Responses, Service, Stream, Unary, encode};
use service_kit::listen::Group;
use service_kit::server::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// Where the honest peer begins.
const FIRST: u64 = 2_000;

/// A peer that says at its first, second, … answer that it has the blocks from one number to another, and gives none.
#[derive(Clone)]
struct Liar {
    says: fn(u64) -> (u64, u64),
    answers: Arc<AtomicU64>,
    /// Blocks that somebody asked it for.
    asked: Arc<AtomicU64>,
}

impl Service for Liar {
    /// Whether it is asked how it stands.
    type Method = bool;

    fn method(&self, path: &str) -> Option<(bool, bool)> {
        Some((path == STATUS, path == SUBSCRIBE))
    }

    fn unary(&self, is_status: bool, _: Caller, _: Bytes) -> Unary {
        if !is_status {
            self.asked.fetch_add(1, Ordering::Relaxed);
            return Unary::Now(Ok(encode(&proto::BlockResponse { status: 4, block: None })));
        }
        let (first, last) = (self.says)(1 + self.answers.fetch_add(1, Ordering::Relaxed));
        Unary::Now(Ok(encode(&proto::ServerStatusResponse {
            first_available_block: first,
            last_available_block: last,
            only_latest_state: false,
            next_expected_block: last.wrapping_add(1),
        })))
    }

    fn stream(&self, _: bool, _: Caller, _: Requests, _: Responses) -> Stream {
        Box::pin(async { Ok(()) })
    }
}

/// A node that may begin anywhere has the liar for its first peer, and an honest one, which has blocks as soon as this holds of the liar.
fn begins_with_what_an_honest_peer_has(says: fn(u64) -> (u64, u64), when: impl Fn(&Liar) -> bool) {
    let (ours, theirs) = (harness::folder(), harness::folder());
    let honest = Server::start(theirs.path(), &["--block-node-earliest-managed-block", &FIRST.to_string()]);
    let liar = Liar { says, answers: Arc::default(), asked: Arc::default() };
    run(async {
        let bound = Bound::bind(&[Group { urls: &[address("127.0.0.1:0").unwrap()], grpc: true, http: true }]).unwrap();
        let of_server = liar.clone();
        let mut lying = bound.start(Default::default(), move |_| of_server.clone()).unwrap();
        let peers = format!("{},{}", lying.addresses()[0], honest.address);
        let begins = async {
            let server = Server::start(ours.path(), &["--backfill-peers", &peers, "--backfill-greedy"]);
            while !when(&liar) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            publish(&publisher(&honest, FIRST, 30)).await.unwrap();
            status_becomes(&server, |status| status.last_available_block == FIRST + 29).await;
            assert_eq!(status(&server).await.first_available_block, FIRST);
        };
        tokio::select! {
            () = begins => {}
            accepted = lying.accept() => panic!("{accepted:?}"),
        }
        lying.stop();
    });
}

#[test]
fn a_peer_that_never_has_a_block_does_not_keep_a_greedy_node_empty() {
    begins_with_what_an_honest_peer_has(|_| (NO_BLOCK, NO_BLOCK), |_| true);
}

#[test]
fn a_peer_whose_first_block_always_comes_just_behind_the_next_does_not_keep_a_greedy_node_empty() {
    begins_with_what_an_honest_peer_has(|answer| (answer, u64::MAX / 4), |_| true);
}

#[test]
fn a_peer_that_says_now_and_then_that_it_has_all_does_not_keep_a_greedy_node_empty() {
    let says = |answer: u64| if answer.is_multiple_of(2) { (0, u64::MAX / 4) } else { (NO_BLOCK, NO_BLOCK) };
    begins_with_what_an_honest_peer_has(says, |_| true);
}

#[test]
fn a_greedy_node_does_not_begin_with_a_block_that_nobody_shows() {
    // While the honest one has no block yet.
    let was_asked = |liar: &Liar| liar.asked.load(Ordering::Relaxed) > 0;
    begins_with_what_an_honest_peer_has(|_| (u64::MAX / 8, u64::MAX / 4), was_asked);
}
