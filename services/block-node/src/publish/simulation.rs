//! Publishers that behave and publishers that do not, by seeds: what is submitted is the chain, in order; acknowledgements are in
//! order and never early; what is held is bounded; and as long as one publisher behaves, blocks go on.

use std::collections::{BTreeSet, VecDeque};

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use super::*;

const SETTINGS: Settings = Settings {
    window_blocks: 6,
    duplicate_skip_window: 5,
    stall_blocks: 3,
    stall_micros: 40,
    idle_micros: 300,
    behind_ends_stream: false,
    memory_bytes_max: 60,
};
const BLOCKS: u64 = 40;
const PARTS: usize = 3;
const PART_BYTES: usize = 10;

fn root(number: u64) -> Hash {
    [number as u8; 48]
}

/// A publisher as the rules want it, except that it may fail in every way.
struct Sender {
    id: PublisherId,
    next: u64,
    acknowledged: Option<u64>,
    /// Parts that were sent of a block that was taken.
    parts: Option<usize>,
    /// Where to go back to when the block that is being sent is done.
    back: Option<u64>,
    is_honest: bool,
}

struct World {
    random: SmallRng,
    publishing: Publishing<u64>,
    senders: Vec<Sender>,
    /// What a block must continue, by number.
    footers: Vec<Footer>,
    submitted: VecDeque<u64>,
    next_submitted: u64,
    safe: u64,
    now: u64,
    /// Who must look again, and has not.
    woken: BTreeSet<PublisherId>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut publishing = Publishing::new(SETTINGS, 0, Chain::from(0));
        let mut chain = Chain::from(0);
        let footers = (0..=BLOCKS).map(|number| {
            let footer = chain.footer(None);
            chain.extend(root(number));
            footer
        });
        let footers = footers.collect();
        let senders = (0..random.random_range(2..5))
            .map(|index| Sender {
                id: publishing.join(),
                next: 0,
                acknowledged: None,
                parts: None,
                back: None,
                // One of them always is.
                is_honest: index == 0 || random.random_bool(0.5),
            })
            .collect();
        let (submitted, woken) = (VecDeque::new(), BTreeSet::new());
        Self { random, publishing, senders, footers, submitted, next_submitted: 0, safe: 0, now: 0, woken }
    }

    fn step(&mut self) {
        self.now += self.random.random_range(0..4);
        let index = self.random.random_range(0..self.senders.len());
        match self.random.random_range(0..10) {
            0 => self.publishing.tick(self.now),
            1 | 2 => self.persist(),
            3 | 4 => self.listen(index),
            _ => self.speak(index),
        }
        assert!(self.publishing.held_bytes() <= SETTINGS.memory_bytes_max + PARTS * PART_BYTES);
        assert!(self.publishing.slots.len() <= SETTINGS.window_blocks);
        self.woken.extend(self.publishing.due());
        for publisher in self.publishing.publishers.values() {
            let is_told = publisher.acknowledged < self.safe || !publisher.control.is_empty();
            assert!(!is_told || publisher.is_due || publisher.owed_since.is_some(), "somebody is told and not woken");
            assert!(!publisher.is_due || self.woken.contains(&publisher.id), "somebody is due and not woken");
        }
    }

    fn persist(&mut self) {
        if self.submitted.is_empty() {
            return;
        }
        let count = self.random.random_range(1..=self.submitted.len());
        let Some(last) = self.submitted.drain(..count).next_back() else { return };
        self.publishing.safe(last, self.now);
        self.safe = last + 1;
    }

    /// Reads what a publisher was told.
    fn listen(&mut self, index: usize) {
        // As the shell does: who was woken looks until there is nothing more.
        self.woken.extend(self.publishing.due());
        self.woken.remove(&self.senders[index].id);
        let told = self.publishing.take(self.senders[index].id);
        for response in told {
            let sender = &mut self.senders[index];
            match response {
                PublishResponse::Acknowledgement(number) => {
                    assert!(number < self.safe, "block {number} was acknowledged before it was safe");
                    assert!(sender.acknowledged.is_none_or(|before| before + 1 == number), "out of order");
                    sender.acknowledged = Some(number);
                }
                PublishResponse::Skip(number) if sender.parts.is_none() => sender.next = sender.next.max(number + 1),
                PublishResponse::Skip(_) => {}
                // In the midst of a block it finishes that first.
                PublishResponse::Resend(number) if sender.parts.is_some() => sender.back = Some(number),
                PublishResponse::Behind(last) if sender.parts.is_some() => sender.back = Some(last.wrapping_add(1)),
                PublishResponse::Resend(number) => sender.next = number,
                PublishResponse::Behind(last) => sender.next = last.wrapping_add(1),
                PublishResponse::EndOfStream { code, last } => {
                    assert!(
                        !sender.is_honest || matches!(code, EndCode::DuplicateBlock | EndCode::Timeout),
                        "{code:?} to a publisher that behaves"
                    );
                    self.reconnect(index, last.wrapping_add(1));
                }
            }
        }
    }

    fn reconnect(&mut self, index: usize, next: u64) {
        let sender = &mut self.senders[index];
        self.publishing.leave(sender.id);
        *sender = Sender {
            id: self.publishing.join(),
            next,
            acknowledged: None,
            parts: None,
            back: None,
            is_honest: sender.is_honest,
        };
    }

    fn speak(&mut self, index: usize) {
        let sender = &mut self.senders[index];
        let (id, number) = (sender.id, sender.next);
        let fault = if sender.is_honest { 99 } else { self.random.random_range(0..12) };
        let Some(parts) = sender.parts else {
            if number >= BLOCKS {
                return;
            }
            match self.publishing.header(id, number, self.now) {
                Verdict::Take => sender.parts = Some(0),
                Verdict::Ignore => sender.next += 1,
                Verdict::Wait => {}
            }
            return;
        };
        if fault == 0 {
            return self.reconnect(index, number);
        }
        if fault == 1 {
            return self.publishing.refuse(id, EndCode::BadBlockProof);
        }
        if parts < PARTS {
            match self.publishing.reserve(id, PART_BYTES, self.now) {
                Room::Granted => sender.parts = Some(parts + 1),
                Room::Wait => {}
                Room::Lost => {
                    sender.parts = None;
                    sender.next = sender.back.take().unwrap_or(number);
                }
            }
            return;
        }
        let mut footer = self.footers[number as usize];
        if fault == 2 {
            footer.all_previous_root = Some([0xee; 48]);
        }
        sender.parts = None;
        sender.next = sender.back.take().unwrap_or(number + 1);
        let submitted = self.publishing.whole(id, Candidate { root: root(number), footer, block: number });
        for number in submitted {
            assert_eq!(number, self.next_submitted, "blocks are submitted in order, once");
            self.next_submitted += 1;
            self.submitted.push_back(number);
        }
    }
}

#[test]
fn blocks_go_on_in_order_whatever_publishers_do() {
    for seed in 0..400 {
        let mut world = World::new(seed);
        let mut steps = 0;
        while world.safe < BLOCKS {
            world.step();
            steps += 1;
            assert!(steps < 200_000, "seed {seed}: nothing moves any more at block {}", world.safe);
        }
        for index in 0..world.senders.len() {
            world.publishing.leave(world.senders[index].id);
        }
        assert_eq!(world.publishing.held_bytes(), 0, "seed {seed}");
    }
}
