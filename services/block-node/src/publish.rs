//! Who sends which block, and what each publisher is told. Pure: messages in, messages out; time comes as an argument.
//!
//! Blocks that are not safe yet are *slots*, in order of their numbers. The first header of a block takes its slot; others are told to
//! skip it. A slot whose block was refused, or whose publisher went away, is vacant, and every other publisher is asked for the block
//! again. Whole blocks are submitted strictly in order, each compared with what is before it; any number of them may be in flight.
//! A publisher's acknowledgements are no queue but a place in the sequence of safe blocks: nothing grows while a client does not read.
//!
//! Who waits is told to look again when there is something for it, and no sooner. The sender of a block hears at once that it is safe. The
//! others, who keep it in memory and wait for nothing, hear it with whatever they are told next, after a few blocks, or a moment later: of
//! many publishers that race each would otherwise cost a wake-up and a write more for every block. Who sends the header of a block that is
//! safe before it can have heard so is told to skip it; from anybody else it is a duplicate.
//!
//! Promises: an acknowledgement means that the block is verified and safe; acknowledgements come in order, without a gap; what is
//! held is at most `memory_bytes_max` and one block. Source of the rules: block node 0.25 and later, publishBlockStream.

mod hearing;
mod lateness;
mod places;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use self::hearing::Hearing;
use self::lateness::Failing;
use crate::block::{Chain, Footer};
use crate::hash::Hash;
use crate::messages::{EndCode, NO_BLOCK, PublishResponse};

/// Names a publisher's stream; never used twice.
pub type PublisherId = u64;

/// Acknowledgements that are handed out at a time.
pub(crate) const ACKNOWLEDGEMENTS_MAX: u64 = 256;

/// How long an acknowledgement may wait for another message to a publisher that has not sent the block, …
const OWED_MICROS_MAX: u64 = 20_000;
/// … and how many may, or there would be much to write at once.
const OWED_BLOCKS_MAX: u64 = 4;

/// How blocks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Blocks that may be under way, from the first item to the sync.
    pub window_blocks: usize,
    /// How far behind the last block a header is answered with SkipBlock, and not with the end of the stream.
    pub duplicate_skip_window: u64,
    /// A block is late when so many later ones are whole, or as many as the window has room for, and …
    pub stall_blocks: usize,
    /// … it began so long ago: two block times at least.
    pub stall_micros: u64,
    /// A block of which nothing comes for so long is given up in any case, and the first one when somebody has to wait for it; what a publisher was told so long ago it has heard.
    pub idle_micros: u64,
    /// Whether a publisher that is ahead of this node is told so at the end of its stream, as before block node 0.25.
    pub behind_ends_stream: bool,
    /// What blocks under way may take, bytes. The one that all others wait for may take more.
    pub memory_bytes_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            window_blocks: 128,
            duplicate_skip_window: 5,
            stall_blocks: 3,
            stall_micros: 4_000_000,
            idle_micros: 30_000_000,
            behind_ends_stream: false,
            memory_bytes_max: 256 << 20,
        }
    }
}

/// What to do with a block whose header has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its items are wanted.
    Take,
    /// Its items are dropped, up to the next header.
    Ignore,
    /// Too much is under way: ask again when something has changed, and read nothing until then.
    Wait,
}

/// Whether a part of a block may be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It may.
    Granted,
    /// Ask again when something has changed, and read nothing until then.
    Wait,
    /// The block was given to somebody else, or given up: what is here of it is dropped.
    Lost,
}

/// A whole block, its hash verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate<B> {
    /// Its root hash.
    pub root: Hash,
    /// What it says of the blocks before.
    pub footer: Footer,
    /// The block itself.
    pub block: B,
}

enum Progress<B> {
    /// Nobody sends it; since when, and when others were asked for it last.
    Vacant {
        since: u64,
        asked: u64,
    },
    Streaming {
        publisher: PublisherId,
        since: u64,
        moved: u64,
    },
    Whole {
        publisher: PublisherId,
        candidate: Box<Candidate<B>>,
    },
    Submitted {
        publisher: PublisherId,
    },
}

struct Slot<B> {
    progress: Progress<B>,
    held_bytes: usize,
    /// Who sends it, or did last.
    client: Arc<str>,
}

struct Publisher {
    id: PublisherId,
    /// Whose stream it is.
    client: Arc<str>,
    /// The next block to acknowledge.
    acknowledged: u64,
    /// What else is to be told; each number at most once in each role.
    control: VecDeque<PublishResponse>,
    streaming: Option<u64>,
    has_ended: bool,
    /// It waits for room.
    waits: bool,
    /// This node hashes what it has sent.
    is_hashed: bool,
    /// Since when it waits for others to begin the block that it would begin.
    leaves_since: Option<u64>,
    /// It must look again.
    is_due: bool,
    /// Since when there is an acknowledgement that waits for another message.
    owed_since: Option<u64>,
    hearing: Hearing,
    /// When it came, or its last block began, or was whole.
    heard_micros: u64,
    has_begun: bool,
}

impl Publisher {
    fn tell(&mut self, response: PublishResponse, due: &mut Vec<PublisherId>) {
        if !self.has_ended && !self.control.contains(&response) {
            self.control.push_back(response);
            self.wake(due);
        }
    }

    /// It must look again; it is among those who must once, until it does.
    fn wake(&mut self, due: &mut Vec<PublisherId>) {
        if !std::mem::replace(&mut self.is_due, true) {
            due.push(self.id);
        }
    }
}

/// All publishers and all blocks under way.
pub struct Publishing<B> {
    settings: Settings,
    /// What the next block to submit continues.
    chain: Chain,
    /// The first block of all.
    first: u64,
    /// The first block that is not safe; slots begin with it.
    base: u64,
    slots: VecDeque<Slot<B>>,
    publishers: BTreeMap<PublisherId, Publisher>,
    next_publisher: PublisherId,
    /// Clients that did not finish the block that they began last.
    failing: BTreeMap<Arc<str>, Failing>,
    held_bytes: usize,
    /// No block is taken any more, for this reason.
    over: Option<EndCode>,
    /// Who must look again and has not been woken.
    due: Vec<PublisherId>,
    /// The last time that was given.
    now_micros: u64,
    /// When a block became safe last.
    safe_micros: u64,
}

impl<B> Publishing<B> {
    /// For a store whose first block has this number, and which the next block continues so.
    pub fn new(settings: Settings, first: u64, chain: Chain) -> Self {
        let base = chain.next();
        // What comes could not be compared with what is there.
        let over = (first < base && chain.previous().is_none()).then_some(EndCode::Error);
        Self {
            settings,
            chain,
            first,
            base,
            slots: VecDeque::new(),
            publishers: BTreeMap::new(),
            next_publisher: 0,
            failing: BTreeMap::new(),
            held_bytes: 0,
            over,
            due: Vec::new(),
            now_micros: 0,
            safe_micros: 0,
        }
    }

    /// The first block of all is this other one, if there is none yet and nobody sends one; whether that is so.
    pub fn begin_at(&mut self, first: u64) -> bool {
        // A block that somebody has begun, and nobody sends now, is wanted no more.
        let is_unsent = self.slots.iter().all(|slot| matches!(slot.progress, Progress::Vacant { .. }));
        let is_new = self.first == self.base && first != self.base && is_unsent && self.over.is_none();
        if is_new {
            self.slots.clear();
            if first < self.base {
                // What it heard of blocks that are not here is no more true.
                let known = first.saturating_sub(self.settings.duplicate_skip_window + 1);
                self.publishers.values_mut().for_each(|one| one.hearing = Hearing::new(known, self.now_micros));
            }
            (self.first, self.base, self.chain) = (first, first, Chain::from(first));
            self.publishers.values_mut().for_each(|publisher| publisher.acknowledged = first);
        }
        is_new
    }

    /// A stream of this client begins.
    pub fn join(&mut self, client: &str) -> PublisherId {
        let id = self.next_publisher;
        self.next_publisher += 1;
        let publisher = Publisher {
            id,
            client: client.into(),
            acknowledged: self.base,
            control: VecDeque::new(),
            streaming: None,
            has_ended: false,
            waits: false,
            is_hashed: false,
            leaves_since: None,
            is_due: false,
            owed_since: None,
            // What it would be told to skip now, it need not know.
            heard_micros: self.now_micros,
            has_begun: false,
            hearing: Hearing::new(self.base.saturating_sub(self.settings.duplicate_skip_window + 1), self.now_micros),
        };
        self.publishers.insert(id, publisher);
        if let Some(code) = self.over {
            self.end(id, code);
        }
        id
    }

    /// A stream is gone, in whatever way. A part of a block is dropped.
    pub fn leave(&mut self, id: PublisherId) {
        self.fail(id);
        self.publishers.remove(&id);
    }

    /// The header of a block has come.
    pub fn header(&mut self, id: PublisherId, number: u64, now_micros: u64) -> Verdict {
        self.now_micros = now_micros;
        let (is_first_time, vacant, slots) = (self.first == self.base, self.has_vacant(), self.slots.len());
        let (is_left, patience) = (self.is_left_to_others(id, number), self.leaves_for(id));
        let Some(publisher) = self.publishers.get_mut(&id).filter(|publisher| !publisher.has_ended) else {
            return Verdict::Ignore;
        };
        debug_assert_eq!(publisher.streaming, None);
        (publisher.heard_micros, publisher.has_begun) = (now_micros, true);
        let left_since = publisher.leaves_since.take().unwrap_or(now_micros);
        if number < self.base {
            let is_recent = self.base - 1 - number <= self.settings.duplicate_skip_window;
            publisher.hearing.is_told(publisher.acknowledged, now_micros, self.settings.idle_micros);
            let is_untold = number >= publisher.acknowledged || publisher.hearing.may_send(number);
            if is_first_time || number < self.first || is_recent || is_untold {
                publisher.hearing.begins(number);
                publisher.tell(PublishResponse::Skip(number), &mut self.due);
            } else {
                self.end(id, EndCode::DuplicateBlock);
            }
            return Verdict::Ignore;
        }
        let index = usize::try_from(number - self.base).unwrap_or(usize::MAX);
        let streaming = Progress::Streaming { publisher: id, since: now_micros, moved: now_micros };
        match self.slots.get_mut(index) {
            Some(slot) if matches!(slot.progress, Progress::Vacant { .. }) && !is_left => {
                (slot.progress, slot.client) = (streaming, Arc::clone(&publisher.client));
            }
            Some(_) => {
                publisher.hearing.begins(number);
                publisher.tell(PublishResponse::Skip(number), &mut self.due);
                return Verdict::Ignore;
            }
            None if index == slots && now_micros.saturating_sub(left_since) < patience => {
                publisher.leaves_since = Some(left_since);
                return Verdict::Wait;
            }
            None if index == slots && index < self.settings.window_blocks => {
                self.slots.push_back(Slot {
                    progress: streaming,
                    held_bytes: 0,
                    client: Arc::clone(&publisher.client),
                });
            }
            // Somebody must send what is missing, and reads of it only when it is not kept waiting itself.
            None if index == slots && !vacant => {
                publisher.waits = true;
                return Verdict::Wait;
            }
            None => {
                publisher.hearing.begins(number);
                self.tell_behind(id);
                return Verdict::Ignore;
            }
        }
        publisher.hearing.begins(number);
        publisher.streaming = Some(number);
        Verdict::Take
    }

    /// More of the block that a publisher sends has come, and wants so many bytes.
    pub fn reserve(&mut self, id: PublisherId, bytes: usize, now_micros: u64) -> Room {
        self.now_micros = now_micros;
        let Some(number) = self.publishers.get(&id).and_then(|publisher| publisher.streaming) else {
            return Room::Lost;
        };
        let index = (number - self.base) as usize;
        let has_room = index == 0 || self.held_bytes + bytes <= self.settings.memory_bytes_max;
        let is_vacant = |slot: &Slot<B>| matches!(slot.progress, Progress::Vacant { .. });
        if !has_room && self.slots.iter().take(index).any(is_vacant) {
            // The room becomes free only when somebody sends the vacant block: perhaps nobody but this publisher can.
            self.give_up(id);
            self.tell_behind(id);
            return Room::Lost;
        }
        let Some(slot) = self.slots.get_mut(index) else { return Room::Lost };
        if let Progress::Streaming { moved, .. } = &mut slot.progress {
            *moved = now_micros;
        }
        if !has_room {
            if let Some(publisher) = self.publishers.get_mut(&id) {
                publisher.waits = true;
            }
            return Room::Wait;
        }
        slot.held_bytes += bytes;
        self.held_bytes += bytes;
        Room::Granted
    }

    /// The block that a publisher sends is whole, and its hash is what its proof says. What comes back are the blocks that are to be
    /// made safe now, in order.
    pub fn whole(&mut self, id: PublisherId, candidate: Candidate<B>) -> Vec<B> {
        let Some(publisher) = self.publishers.get_mut(&id) else { return Vec::new() };
        let Some(number) = publisher.streaming.take() else { return Vec::new() };
        publisher.heard_micros = self.now_micros;
        if let Some(slot) = self.slots.get_mut((number - self.base) as usize) {
            slot.progress = Progress::Whole { publisher: id, candidate: Box::new(candidate) };
        }
        self.submit()
    }

    /// Takes whole blocks that all earlier ones are submitted of.
    fn submit(&mut self) -> Vec<B> {
        let mut submitted = Vec::new();
        while self.over.is_none() {
            let number = self.chain.next();
            let Some(slot) = self.slots.get_mut((number - self.base) as usize) else { break };
            let Progress::Whole { publisher, .. } = slot.progress else { break };
            let whole = std::mem::replace(&mut slot.progress, Progress::Submitted { publisher });
            let Progress::Whole { candidate, .. } = whole else { break };
            let Candidate { root, footer, block } = *candidate;
            let client = Arc::clone(&slot.client);
            if self.chain.check(number, &footer).is_err() {
                self.vacate(number, publisher);
                self.has_failed(&client);
                self.refuse(publisher, EndCode::BadBlockProof);
                break;
            }
            self.failing.remove(&client);
            self.chain.extend(root);
            submitted.push(block);
        }
        submitted
    }

    /// All blocks up to this one are safe.
    pub fn safe(&mut self, last: u64, now_micros: u64) {
        (self.now_micros, self.safe_micros) = (now_micros, now_micros);
        debug_assert!(last < self.chain.next());
        while self.base <= last {
            if let Some(slot) = self.slots.pop_front() {
                debug_assert!(matches!(slot.progress, Progress::Submitted { .. }));
                self.held_bytes -= slot.held_bytes;
                if let Progress::Submitted { publisher } = slot.progress
                    && let Some(sender) = self.publishers.get_mut(&publisher)
                {
                    sender.wake(&mut self.due);
                }
            }
            self.base += 1;
        }
        let owed_max = OWED_BLOCKS_MAX.min(self.settings.duplicate_skip_window);
        for publisher in self.publishers.values_mut() {
            publisher.owed_since.get_or_insert(now_micros);
            if self.base - publisher.acknowledged >= owed_max {
                publisher.wake(&mut self.due);
            }
        }
        self.room_is_free();
    }

    /// Acknowledgements that have waited for long go now. What comes back is how long the next one may wait, if there is one.
    pub fn settle(&mut self, now_micros: u64) -> Option<u64> {
        let mut next: Option<u64> = None;
        for publisher in self.publishers.values_mut().filter(|publisher| !publisher.is_due) {
            let Some(since) = publisher.owed_since else { continue };
            match OWED_MICROS_MAX.saturating_sub(now_micros.saturating_sub(since)) {
                0 => publisher.wake(&mut self.due),
                left => next = Some(next.map_or(left, |next| next.min(left))),
            }
        }
        next
    }

    /// Whether an acknowledgement waits, so that [`Publishing::settle`] is needed.
    pub fn owes(&self) -> bool {
        self.publishers.values().any(|publisher| publisher.owed_since.is_some() && !publisher.is_due)
    }

    /// Who must look again, since it is told something or there is room; each of them once, until it has looked.
    pub fn due(&mut self) -> Vec<PublisherId> {
        std::mem::take(&mut self.due)
    }

    /// Whoever waits for room looks again, or for others to begin a block.
    fn room_is_free(&mut self) {
        for publisher in self.publishers.values_mut() {
            if std::mem::take(&mut publisher.waits) || publisher.leaves_since.is_some() {
                publisher.wake(&mut self.due);
            }
        }
    }

    /// Ends a publisher's stream; what it sends is dropped, and asked of others.
    pub fn refuse(&mut self, id: PublisherId, code: EndCode) {
        self.fail(id);
        self.end(id, code);
    }

    /// No block is taken any more: all streams end, after what is to be told before.
    pub fn end_all(&mut self, code: EndCode) {
        self.over.get_or_insert(code);
        for id in self.publishers.keys().copied().collect::<Vec<_>>() {
            self.give_up(id);
            self.end(id, code);
        }
    }

    /// Takes what a publisher is to be told now. Behind the end of the stream comes nothing more.
    pub fn take(&mut self, id: PublisherId) -> Vec<PublishResponse> {
        let (base, now_last) = (self.base, self.last());
        let Some(publisher) = self.publishers.get_mut(&id) else { return Vec::new() };
        let to = base.min(publisher.acknowledged.saturating_add(ACKNOWLEDGEMENTS_MAX));
        let mut told: Vec<_> = (publisher.acknowledged..to).map(PublishResponse::Acknowledgement).collect();
        publisher.acknowledged = publisher.acknowledged.max(to);
        if to == base {
            (publisher.is_due, publisher.owed_since) = (false, None);
            for response in publisher.control.drain(..) {
                match response {
                    // Safe since: it has just been acknowledged.
                    PublishResponse::Resend(number) if number < base => continue,
                    PublishResponse::Resend(number) => publisher.hearing.is_asked(number, self.now_micros),
                    PublishResponse::Behind(_) => publisher.hearing.is_asked(base, self.now_micros),
                    _ => {}
                }
                told.push(response.with_last(now_last));
            }
        }
        publisher.hearing.is_told(publisher.acknowledged, self.now_micros, self.settings.idle_micros);
        told
    }

    /// Blocks that are not safe yet, from the first item on.
    pub fn under_way(&self) -> usize {
        self.slots.len()
    }

    /// What blocks under way take, bytes.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Streams at the moment.
    pub fn publishers(&self) -> usize {
        self.publishers.len()
    }

    /// Whether all blocks of which the end has come since the start are compared with the tree of all root hashes before.
    pub fn knows_all(&self) -> bool {
        self.chain.knows_all()
    }

    /// The number of the next block to submit, and the root hash of the one before, as far as it is known.
    pub fn next(&self) -> (u64, Option<Hash>) {
        (self.chain.next(), self.chain.previous())
    }

    /// Whether it is known what the next block must continue; none is taken before.
    pub fn knows_last(&self) -> bool {
        self.first == self.base || self.chain.previous().is_some()
    }

    /// A block that was damaged is whole again, and has this root hash; whether blocks are taken since then, which were not before.
    pub fn repaired(&mut self, number: u64, root: Hash) -> bool {
        let is_last = !self.knows_last() && self.chain.know_previous(number, root);
        if is_last {
            self.over.take_if(|code| *code == EndCode::Error);
        }
        is_last
    }

    /// The last block that is safe, or [`NO_BLOCK`].
    fn last(&self) -> u64 {
        if self.base == self.first { NO_BLOCK } else { self.base - 1 }
    }

    /// The slots behind those that are submitted, which may be many.
    fn not_submitted(&self) -> impl Iterator<Item = &Slot<B>> {
        self.slots.range((self.chain.next() - self.base) as usize..)
    }

    fn has_vacant(&self) -> bool {
        self.not_submitted().any(|slot| matches!(slot.progress, Progress::Vacant { .. }))
    }

    /// Drops what a publisher is sending; whether that was anything.
    fn give_up(&mut self, id: PublisherId) -> bool {
        let streaming = self.publishers.get_mut(&id).and_then(|publisher| publisher.streaming.take());
        if let Some(number) = streaming {
            self.vacate(number, id);
        }
        streaming.is_some()
    }

    /// Asks everybody else for a block.
    fn vacate(&mut self, number: u64, but: PublisherId) {
        let Some(slot) = self.slots.get_mut((number - self.base) as usize) else { return };
        slot.progress = Progress::Vacant { since: self.now_micros, asked: self.now_micros };
        self.held_bytes -= std::mem::take(&mut slot.held_bytes);
        self.room_is_free();
        if self.over.is_some() {
            return;
        }
        for (id, publisher) in &mut self.publishers {
            if *id != but {
                publisher.tell(PublishResponse::Resend(number), &mut self.due);
            }
        }
    }

    fn tell_behind(&mut self, id: PublisherId) {
        let last = self.last();
        if let Some(publisher) = self.publishers.get_mut(&id) {
            publisher.tell(PublishResponse::Behind(last), &mut self.due);
            publisher.has_ended |= self.settings.behind_ends_stream;
        }
    }

    fn end(&mut self, id: PublisherId, code: EndCode) {
        let last = self.last();
        if let Some(publisher) = self.publishers.get_mut(&id) {
            publisher.tell(PublishResponse::EndOfStream { code, last }, &mut self.due);
            publisher.has_ended = true;
        }
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
