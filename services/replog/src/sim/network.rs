//! The simulated network: links that are cut in either direction, messages that are lost, repeated, late and out of order.

use crate::random::Random;

/// How the simulated network treats messages: delay, loss, repetition, order.
#[derive(Clone, Debug)]
pub(super) struct Network {
    /// Cut links, from and to.
    cuts: Vec<(u64, u64)>,
    /// Of a thousand messages.
    pub(super) lost: u64,
    pub(super) repeated: u64,
    pub(super) late: u64,
    pub(super) delay_micros: u64,
    /// How late a late message may be.
    pub(super) late_micros: u64,
}

impl Network {
    pub(super) fn new(random: &mut Random, election_micros: u64) -> Self {
        Self {
            cuts: Vec::new(),
            lost: [0, 0, 10, 50][random.below(4) as usize],
            repeated: [0, 10, 100][random.below(3) as usize],
            late: [0, 5, 30][random.below(3) as usize],
            delay_micros: 200 + random.below(4_000),
            late_micros: 3 * election_micros,
        }
    }

    /// When a message that is sent now arrives: never, once or twice.
    pub(super) fn send(&self, from: u64, to: u64, random: &mut Random) -> [Option<u64>; 2] {
        if self.is_cut(from, to) || random.below(1000) < self.lost {
            return [None, None];
        }
        let mut delay = || {
            let usual = self.delay_micros / 2 + random.below(self.delay_micros);
            if random.below(1000) < self.late { usual + random.below(self.late_micros) } else { usual }
        };
        let first = delay();
        let second = delay();
        let is_repeated = random.below(1000) < self.repeated;
        [Some(first), is_repeated.then_some(second)]
    }

    pub(super) fn is_cut(&self, from: u64, to: u64) -> bool {
        self.cuts.contains(&(from, to))
    }

    pub(super) fn cut(&mut self, from: u64, to: u64) {
        if !self.is_cut(from, to) {
            self.cuts.push((from, to));
        }
    }

    pub(super) fn heal(&mut self) {
        self.cuts.clear();
    }

    /// From now on it works as it should.
    pub(super) fn calm(&mut self) {
        self.heal();
        (self.lost, self.repeated, self.late) = (0, 0, 0);
    }
}
