//! Publishers that behave and publishers that do not, by seeds: what is submitted is the chain, in order; acknowledgements are in
//! order and never early; what is held is bounded; as long as one publisher behaves, blocks go on; and none that behaves is told that it sends
//! duplicates, however late it hears what is safe.

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
/// What a publisher is told may be on its way for so long.
const ON_ITS_WAY_MICROS_MAX: u64 = SETTINGS.idle_micros - 10;

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
    /// The node has read this header, and keeps it waiting.
    waiting: Option<u64>,
    /// What it was told and has not heard yet, and when.
    on_its_way: VecDeque<(u64, PublishResponse)>,
    /// Its machine is busy with something else until then.
    asleep_until: u64,
    is_honest: bool,
    /// It began with a block that had been safe for long.
    is_late: bool,
}

impl Sender {
    fn new(id: PublisherId, next: u64, is_honest: bool) -> Self {
        let on_its_way = VecDeque::new();
        let (acknowledged, parts, back, waiting) = (None, None, None, None);
        let (asleep_until, is_late) = (0, false);
        Self { id, next, acknowledged, parts, back, waiting, on_its_way, asleep_until, is_honest, is_late }
    }

    /// Whether it does nothing now. A header that waits is asked about by the node itself.
    fn is_asleep(&self, now: u64) -> bool {
        self.asleep_until > now && self.waiting.is_none()
    }

    fn is_busy(&self) -> bool {
        self.parts.is_some() || self.waiting.is_some()
    }

    /// The block of which it sends the header: none that it knows to be safe, if it is honest.
    fn wanted(&self) -> u64 {
        let unknown = self.acknowledged.map_or(0, |last| last + 1);
        self.waiting.unwrap_or(if self.is_honest { self.next.max(unknown) } else { self.next })
    }
}

/// Of every other seed all are one client, and otherwise two at most are.
fn client_of(index: u64, seed: u64) -> String {
    (index / 2 * (seed % 2)).to_string()
}

struct World {
    seed: u64,
    random: SmallRng,
    publishing: Publishing<u64>,
    senders: Vec<Sender>,
    /// What a block must continue, by number.
    footers: Vec<Footer>,
    submitted: VecDeque<u64>,
    next_submitted: u64,
    safe: u64,
    now: u64,
    /// What publishers are told is on its way for so long at most.
    delay_max: u64,
    /// How many that behave were told that they send duplicates.
    wronged: usize,
    /// Who must look again, and has not.
    woken: BTreeSet<PublisherId>,
}

impl World {
    fn new(seed: u64, delay_max: u64) -> Self {
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
            // One of them is always honest.
            .map(|index: u64| {
                let id = publishing.join(&client_of(index, seed));
                Sender::new(id, 0, index == 0 || random.random_bool(0.5))
            })
            .collect();
        let (submitted, woken) = (VecDeque::new(), BTreeSet::new());
        let (next_submitted, safe, now, wronged) = (0, 0, 0, 0);
        Self {
            seed,
            random,
            publishing,
            senders,
            footers,
            submitted,
            next_submitted,
            safe,
            now,
            delay_max,
            wronged,
            woken,
        }
    }

    fn step(&mut self) {
        self.now += self.random.random_range(0..4);
        let index = self.random.random_range(0..self.senders.len());
        match self.random.random_range(0..10) {
            0 => self.publishing.tick(self.now),
            1 | 2 => self.persist(),
            3 => self.tell(index),
            _ if self.senders[index].is_asleep(self.now) => {}
            4 if self.random.random_bool(0.2) => {
                self.senders[index].asleep_until = self.now + self.random.random_range(0..self.delay_max);
            }
            4 => self.hear(index),
            _ => self.speak(index),
        }
        for index in 0..self.senders.len() {
            let is_due = |&(told, _): &(u64, _)| told + self.delay_max <= self.now;
            if self.senders[index].on_its_way.front().is_some_and(is_due) {
                self.hear(index);
            }
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

    /// Sends what a publisher is to be told.
    fn tell(&mut self, index: usize) {
        // As the shell does: who was woken looks until there is nothing more.
        self.woken.extend(self.publishing.due());
        self.woken.remove(&self.senders[index].id);
        let told = self.publishing.take(self.senders[index].id);
        let sender = &mut self.senders[index];
        let is_duplicate =
            |told: &PublishResponse| matches!(told, PublishResponse::EndOfStream { code: EndCode::DuplicateBlock, .. });
        if sender.is_honest && !sender.is_late && told.iter().any(is_duplicate) {
            self.wronged += 1;
        }
        sender.on_its_way.extend(told.into_iter().map(|response| (self.now, response)));
    }

    /// A publisher reads what it was told.
    fn hear(&mut self, index: usize) {
        for (_, response) in std::mem::take(&mut self.senders[index].on_its_way) {
            let sender = &mut self.senders[index];
            match response {
                PublishResponse::Acknowledgement(number) => {
                    assert!(number < self.safe, "block {number} was acknowledged before it was safe");
                    assert!(sender.acknowledged.is_none_or(|before| before + 1 == number), "out of order");
                    sender.acknowledged = Some(number);
                }
                PublishResponse::Skip(number) if !sender.is_busy() => sender.next = sender.next.max(number + 1),
                PublishResponse::Skip(_) => {}
                // In the midst of a block it finishes that first.
                PublishResponse::Resend(number) if sender.is_busy() => sender.back = Some(number),
                PublishResponse::Behind(last) if sender.is_busy() => sender.back = Some(last.wrapping_add(1)),
                PublishResponse::Resend(number) => sender.next = number,
                PublishResponse::Behind(last) => sender.next = last.wrapping_add(1),
                PublishResponse::EndOfStream { code, last } => {
                    let is_expected = matches!(code, EndCode::Timeout | EndCode::DuplicateBlock);
                    assert!(!sender.is_honest || is_expected, "{code:?} to a publisher that behaves");
                    // Behind this nothing is sent.
                    return self.reconnect(index, last.wrapping_add(1));
                }
            }
        }
    }

    fn reconnect(&mut self, index: usize, next: u64) {
        let sender = &mut self.senders[index];
        self.publishing.leave(sender.id);
        let id = self.publishing.join(&client_of(index as u64, self.seed));
        *sender = Sender::new(id, next, sender.is_honest);
        sender.is_late = next + SETTINGS.duplicate_skip_window < self.safe;
    }

    fn speak(&mut self, index: usize) {
        let sender = &mut self.senders[index];
        let id = sender.id;
        let fault = if sender.is_honest { 99 } else { self.random.random_range(0..12) };
        let Some(parts) = sender.parts else {
            let number = sender.wanted();
            if number >= BLOCKS {
                return;
            }
            sender.waiting = None;
            sender.next = number;
            match self.publishing.header(id, number, self.now) {
                Verdict::Take => sender.parts = Some(0),
                Verdict::Ignore => sender.next = sender.back.take().unwrap_or(number + 1),
                Verdict::Wait => sender.waiting = Some(number),
            }
            return;
        };
        let number = sender.next;
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

/// Until all blocks are safe.
fn run(seed: u64, delay_max: u64) -> World {
    let mut world = World::new(seed, delay_max);
    let mut steps = 0;
    while world.safe < BLOCKS {
        world.step();
        steps += 1;
        assert!(steps < 200_000, "seed {seed}: nothing moves any more at block {}", world.safe);
    }
    world
}

#[test]
fn blocks_go_on_in_order_whatever_publishers_do() {
    for seed in 0..400 {
        let mut world = run(seed, ON_ITS_WAY_MICROS_MAX);
        assert_eq!(world.wronged, 0, "seed {seed}: a publisher that behaves is told that it sends duplicates");
        for index in 0..world.senders.len() {
            world.publishing.leave(world.senders[index].id);
        }
        assert_eq!(world.publishing.held_bytes(), 0, "seed {seed}");
    }
}

/// Or the one above would prove nothing.
#[test]
fn publishers_that_hear_much_later_are_told_that_they_send_duplicates() {
    let wronged: usize = (0..100).map(|seed| run(seed, 20 * ON_ITS_WAY_MICROS_MAX).wronged).sum();
    assert!(wronged > 0);
}
