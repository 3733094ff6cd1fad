//! When a node asks for votes. Pure, and drawn from a seed: the consensus crate would draw from the thread's randomness, which makes no
//! seed replay, and never less than an election timeout, also for who asks again.
//!
//! - Who hears nothing more of a leader waits for an election timeout, and up to twice that by chance, so that not all ask at once.
//! - If the leader's connection has closed, nothing is left to chance: voters ask in the order of their numbers, from the leader's on,
//!   each in time to hear of the one before. None asks earlier than in an election timeout, for which all withhold their votes anyway:
//!   see `lease`.
//! - Who has asked and was not elected, because votes were split or withheld or got lost, asks again sooner, and later each time. The
//!   first pause is enough for an answer wherever the election timeout is at least four times that, and ten times is the rule.

use raft::StateRole;

use crate::random::Random;

/// What a node is, as far as its patience depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standpoint {
    pub(super) term: u64,
    pub(super) role: StateRole,
    /// 0 if none is known.
    pub(super) leader: u64,
}

/// How long a node waits for a leader.
pub(super) struct Timeout {
    random: Random,
    election_ticks: usize,
    now: Standpoint,
    /// The leader's connection to this node has closed, and it was not heard since.
    is_leader_lost: bool,
    /// How often votes were asked for since a leader was known.
    rounds: u32,
    ticks: usize,
}

impl Timeout {
    pub(super) fn new(election_ticks: usize, seed: u64) -> Self {
        let (random, now) = (Random::new(seed), Standpoint::default());
        let mut timeout = Self { random, election_ticks, now, is_leader_lost: false, rounds: 0, ticks: 0 };
        timeout.draw();
        timeout
    }

    /// After so many ticks without a leader votes are asked for; no more than twice the election timeout.
    pub(super) fn ticks(&self) -> usize {
        self.ticks
    }

    /// This is what the node is now.
    pub(super) fn look(&mut self, now: Standpoint) {
        if now != self.now {
            self.is_leader_lost &= (now.term, now.leader) == (self.now.term, self.now.leader);
            self.now = now;
            if now.leader != 0 {
                self.rounds = 0;
            }
            self.draw();
        }
    }

    /// Votes are asked for.
    pub(super) fn begin_round(&mut self) {
        self.rounds = self.rounds.saturating_add(1);
        self.draw();
    }

    /// The leader's connection has closed; so many voters ask before this one.
    pub(super) fn leader_lost(&mut self, turn: usize) {
        self.is_leader_lost = true;
        // A tick more, for others that heard the leader a little later.
        let first = self.shortest() + 1;
        self.ticks = (first + turn * (self.election_ticks / 8).max(2)).min(2 * self.election_ticks);
    }

    /// The leader was heard.
    pub(super) fn leader_heard(&mut self) {
        if std::mem::take(&mut self.is_leader_lost) {
            self.draw();
        }
    }

    /// A tick more than was promised: one may come right after a leader was heard.
    fn shortest(&self) -> usize {
        self.election_ticks + 1
    }

    fn draw(&mut self) {
        let longest = self.election_ticks;
        let (least, range) = match self.rounds {
            0 => (self.shortest(), longest),
            rounds => {
                let pause = (longest / 4).max(1) << (rounds - 1).min(2);
                (pause, pause)
            }
        };
        self.ticks = (least + self.random.below(range as u64) as usize).min(2 * longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ELECTION: usize = 24;

    fn following(term: u64, leader: u64) -> Standpoint {
        Standpoint { term, role: StateRole::Follower, leader }
    }

    /// Whatever was heard of the leader's connection: a promise lasts as long as an election timeout.
    #[test]
    fn nobody_asks_before_its_promise_has_ended() {
        for seed in 0..200 {
            let mut timeout = Timeout::new(ELECTION, seed);
            assert!((ELECTION + 1..=2 * ELECTION).contains(&timeout.ticks()));
            timeout.look(following(1, 3));
            assert!((ELECTION + 1..=2 * ELECTION).contains(&timeout.ticks()));
            for turn in 0..9 {
                timeout.leader_lost(turn);
                assert!((ELECTION + 2..=2 * ELECTION).contains(&timeout.ticks()), "turn {turn}: {}", timeout.ticks());
            }
        }
    }

    #[test]
    fn who_lost_its_leader_asks_in_turn_unless_it_hears_from_it_again() {
        let mut timeout = Timeout::new(ELECTION, 1);
        timeout.look(following(1, 3));
        timeout.leader_lost(0);
        assert_eq!(timeout.ticks(), ELECTION + 2);
        timeout.leader_lost(1);
        assert_eq!(timeout.ticks(), ELECTION + 5);
        let after: Vec<usize> = (0..20)
            .map(|seed| {
                let mut timeout = Timeout::new(ELECTION, seed);
                timeout.look(following(1, 3));
                timeout.leader_lost(0);
                timeout.leader_heard();
                timeout.ticks()
            })
            .collect();
        assert!(after.iter().any(|ticks| *ticks > ELECTION + ELECTION / 2), "{after:?}");
    }

    #[test]
    fn who_was_not_elected_asks_again_sooner_and_then_later() {
        let mut timeout = Timeout::new(ELECTION, 1);
        for least in [ELECTION / 4, ELECTION / 2, ELECTION, ELECTION, ELECTION] {
            timeout.begin_round();
            assert!((least..2 * least).contains(&timeout.ticks()), "{}", timeout.ticks());
            // Nothing but a leader ends that: neither that others ask nor that the term rises.
            timeout.look(following(timeout.now.term + 1, 0));
        }
        timeout.look(following(9, 2));
        assert!(timeout.ticks() > ELECTION);
    }
}
