//! What is known of peers, and with which block a node begins that has none.
//!
//! A peer is believed as far as it keeps its word. Who says of itself that it has blocks, and does not send them when they are asked for, is
//! asked behind those who do, and begins nothing that another one could; if a node has begun there, it goes back. Nor does a node wait for ever for a peer that brings nothing, whatever
//! that says of itself: it may be as empty as this one, and wait for it.

use service_kit::url::Url;
use std::time::Duration;
use tokio::time::Instant;

use super::{FetchError, INTERVAL};

/// A peer that fails is left alone for `INTERVAL` times two to the power of its failures in a row, and at most for this long.
const REST_MAX: Duration = Duration::from_secs(60);
/// A peer that has failed so often in a row is not waited for any more when an empty node chooses its first block, …
const FAILURES_MAX: u32 = 3;
/// … nor is one that has brought nothing so often in a row, though it did not fail each time.
const LOOKS_IN_VAIN_MAX: u32 = 10;

/// What is known of a peer.
pub(super) struct Peer {
    pub address: Url,
    /// In a row.
    failures: u32,
    rests_until: Option<Instant>,
    /// The first and the last block that it has, where it does not have the next one of this node any more.
    begins_behind: Option<(u64, u64)>,
    /// Looks in a row that have brought neither a block nor word of where its blocks begin.
    looks_in_vain: u32,
    /// How often it did not send what it said it had, since it last sent a block.
    broken_words: u32,
    /// Rounds of repairs in which it offered another block than the one that was stored here, since it last repaired one and offered no other. It may be
    /// honest all the same, and have another signature: it is asked behind others, and left alone for no time.
    other_blocks: u32,
}

impl Peer {
    pub(super) fn new(address: Url) -> Peer {
        Peer {
            address,
            failures: 0,
            rests_until: None,
            begins_behind: None,
            looks_in_vain: 0,
            broken_words: 0,
            other_blocks: 0,
        }
    }

    pub(super) fn is_resting(&self) -> bool {
        self.rests_until.is_some_and(|until| Instant::now() < until)
    }

    /// Peers are asked in this order.
    pub(super) fn rank(&self) -> u32 {
        self.failures.max(self.broken_words).max(self.other_blocks)
    }

    /// Another block was offered for one that is damaged here.
    pub(super) fn offered_another(&mut self) {
        self.other_blocks = self.other_blocks.saturating_add(1);
    }

    /// It has repaired so many damaged blocks, and offered no other.
    pub(super) fn repaired(&mut self, blocks: usize) {
        if blocks > 0 {
            self.other_blocks = 0;
        }
    }

    /// So many blocks have come from it.
    pub(super) fn sent(&mut self, blocks: u64) {
        self.failures = 0;
        if blocks > 0 {
            (self.looks_in_vain, self.broken_words, self.begins_behind) = (0, 0, None);
        } else {
            self.brought_nothing();
        }
    }

    /// It has the blocks from this one to that one alone.
    pub(super) fn begins_behind(&mut self, first: u64, last: u64) {
        (self.failures, self.looks_in_vain, self.begins_behind) = (0, 0, Some((first, last)));
    }

    /// An empty node begins where this one does, and waits for what it has shown.
    pub(super) fn believed(&self) -> Believed {
        Believed { address: self.address.clone(), broken_words: self.broken_words }
    }

    pub(super) fn failed(&mut self, error: &FetchError) {
        self.brought_nothing();
        self.broken_words = self.broken_words.saturating_add(u32::from(error.breaks_word()));
        self.failures = self.failures.saturating_add(1);
        // Who lies in turns does not fail in a row.
        let rest = rest(self.failures.max(self.broken_words));
        self.rests_until = Some(Instant::now() + rest);
        let seconds = rest.as_secs();
        tracing::warn!(peer = %self.address, "nothing was fetched: {error}; it is asked again in {seconds} s");
    }

    fn brought_nothing(&mut self) {
        self.begins_behind = None;
        self.looks_in_vain = self.looks_in_vain.saturating_add(1);
    }

    /// Nothing more that an empty node should wait for.
    fn is_known(&self) -> bool {
        self.begins_behind.is_some() || self.failures >= FAILURES_MAX || self.looks_in_vain >= LOOKS_IN_VAIN_MAX
    }
}

/// A peer with whose first block an empty node has begun.
pub(super) struct Believed {
    pub address: Url,
    /// Before that.
    broken_words: u32,
}

impl Believed {
    /// Whether it has not sent what it showed, and is not waited for any more.
    pub(super) fn has_let_down(&self, peers: &[Peer]) -> bool {
        let peer = peers.iter().find(|peer| peer.address == self.address);
        peer.is_none_or(|peer| {
            let brings_nothing = peer.failures >= FAILURES_MAX || peer.looks_in_vain >= LOOKS_IN_VAIN_MAX;
            peer.broken_words > self.broken_words || brings_nothing || peer.begins_behind.is_some()
        })
    }
}

/// How long to wait after so many failures in a row.
pub(super) fn rest(failures: u32) -> Duration {
    INTERVAL.saturating_mul(2_u32.saturating_pow(failures)).min(REST_MAX)
}

/// How far somebody comes who begins with one peer's blocks and goes on with those of others.
fn reach(mut last: u64, ranges: &[(u64, u64)]) -> u64 {
    while let Some((_, further)) = ranges.iter().find(|(first, end)| *first <= last.saturating_add(1) && *end > last) {
        last = *further;
    }
    last
}

/// The first block behind this one that a peer has which does not have this one.
pub(super) fn nearest(peers: &[Peer], next: u64) -> Option<u64> {
    peers.iter().filter_map(|peer| peer.begins_behind).map(|(first, _)| first).filter(|first| *first > next).min()
}

/// With which block an empty node begins, which is the last of who says that it has it, and who that is: of those who keep their word best, and from
/// whose blocks one comes to the newest that any of them has, the one whose first block is the earliest; when all were asked that can be.
pub(super) fn first_of_all(peers: &mut [Peer]) -> Option<(u64, u64, &mut Peer)> {
    if !peers.iter().all(Peer::is_known) {
        return None;
    }
    let broken_words = peers.iter().filter(|peer| peer.begins_behind.is_some()).map(|peer| peer.broken_words).min()?;
    let beginnings = peers.iter_mut().filter(|peer| peer.broken_words == broken_words);
    let beginnings: Vec<_> = beginnings.filter_map(|peer| Some((peer.begins_behind?, peer))).collect();
    let ranges: Vec<(u64, u64)> = beginnings.iter().map(|(range, _)| *range).collect();
    let best = |((first, last), _): &((u64, u64), &mut Peer)| (std::cmp::Reverse(reach(*last, &ranges)), *first);
    beginnings.into_iter().min_by_key(best).map(|((first, last), peer)| (first, last, peer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer() -> Peer {
        Peer::new(crate::connect::address("127.0.0.1:1").unwrap())
    }

    fn first(peers: &mut [Peer]) -> Option<u64> {
        first_of_all(peers).map(|(first, ..)| first)
    }

    #[test]
    fn an_empty_node_begins_with_the_first_block_of_any_peer_when_all_were_asked() {
        let with =
            |failures, first: Option<u64>| Peer { failures, begins_behind: first.map(|first| (first, 900)), ..peer() };
        assert_eq!(first(&mut [with(0, Some(300)), with(0, Some(200))]), Some(200));
        assert_eq!(first(&mut [with(0, Some(300)), with(2, None)]), None, "it may have more, and comes back");
        assert_eq!(first(&mut [with(0, Some(300)), with(0, None)]), None, "it has the next block, or none yet");
        assert_eq!(first(&mut [with(0, Some(300)), with(3, None)]), Some(300), "it is gone");
        assert_eq!(first(&mut [with(9, None)]), None);
    }

    #[test]
    fn a_peer_that_says_something_else_at_each_look_and_sends_nothing_is_not_waited_for_for_ever() {
        let tricks: [fn(&mut Peer, u64); 3] = [
            |liar, _| liar.sent(0),
            // It says that it has the next block, then that it has none.
            |liar, look| if look % 2 == 0 { liar.failed(&FetchError::Stalled) } else { liar.sent(0) },
            // It begins just behind the next block, each time, and never has it.
            |liar, look| if look % 2 == 0 { liar.begins_behind(look, look) } else { liar.failed(&FetchError::Stalled) },
        ];
        for (number, trick) in tricks.iter().enumerate() {
            let mut peers = [peer(), peer()];
            let began = (0..20).find(|look| {
                trick(&mut peers[0], *look);
                peers[1].begins_behind(300, 900);
                // What it says at first may be so.
                first(&mut peers) == Some(300)
            });
            assert!(began.is_some_and(|look| look <= u64::from(LOOKS_IN_VAIN_MAX)), "trick {number}: {began:?}");
        }
    }

    #[test]
    fn who_breaks_its_word_is_asked_last_until_it_sends_a_block() {
        let mut liar = peer();
        liar.failed(&FetchError::Ended(0, 5));
        liar.begins_behind(6, 9);
        assert_eq!((liar.failures, liar.rank()), (0, 1), "a lie is not made good by the next one");
        liar.sent(1);
        assert_eq!(liar.rank(), 0);
        let mut honest = peer();
        honest.failed(&FetchError::Range(2, 1));
        honest.begins_behind(300, 900);
        assert_eq!(honest.broken_words, 0);
    }

    #[test]
    fn who_offers_another_block_than_the_damaged_one_is_asked_last_until_it_repairs_one_and_rests_for_no_time() {
        let mut peer = peer();
        peer.offered_another();
        assert_eq!((peer.rank(), peer.is_resting()), (1, false));
        peer.sent(3);
        peer.repaired(0);
        assert_eq!(peer.rank(), 1, "blocks that are missing are no repair");
        peer.repaired(1);
        assert_eq!(peer.rank(), 0);
    }

    #[test]
    fn an_empty_node_begins_where_one_comes_to_the_newest_block() {
        let with = |ranges: &[(u64, u64)]| {
            let peers = ranges.iter().map(|range| Peer { begins_behind: Some(*range), ..peer() });
            first(&mut peers.collect::<Vec<_>>())
        };
        assert_eq!(with(&[(5, 5), (300, 900)]), Some(300), "behind an old block that stands alone nothing comes");
        assert_eq!(with(&[(300, 899), (100, 299), (600, 900), (5, 98)]), Some(100), "one goes on with the next");
        assert_eq!(with(&[(5, u64::MAX), (300, 900)]), Some(5));
    }

    #[test]
    fn who_was_believed_and_sends_nothing_is_waited_for_within_bounds() {
        let lets_down = |act: fn(&mut Peer, u64)| {
            let mut peers = [peer()];
            peers[0].begins_behind(300, 900);
            let believed = peers[0].believed();
            peers[0].begins_behind = None;
            (1..30).find(|look| {
                act(&mut peers[0], *look);
                believed.has_let_down(&peers)
            })
        };
        assert_eq!(lets_down(|peer, _| peer.failed(&FetchError::Ended(0, 300))), Some(1));
        assert_eq!(lets_down(|peer, _| peer.failed(&FetchError::Range(2, 1))), Some(u64::from(FAILURES_MAX)));
        assert_eq!(lets_down(|peer, _| peer.sent(0)), Some(u64::from(LOOKS_IN_VAIN_MAX)));
        assert_eq!(lets_down(|peer, _| peer.begins_behind(301, 900)), Some(1), "it has gone on without us");
        assert_eq!(lets_down(|peer, look| peer.sent(look)), None);
    }
}
