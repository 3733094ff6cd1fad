//! Blocks that take too long, and what is done then: whoever sends one is ended, and the others are asked for it. Who is kept waiting by this
//! node is not late. While no block at all is made, who has held one for long is late if there is another client, however much comes of it. Who
//! has not finished a block leaves it to others for a while, whichever of its streams it was; and all further blocks, too, until it has finished one,
//! as long as somebody is there that has failed less often. So those who finish none cannot hand the next block to each other.

use std::sync::Arc;

use super::{Progress, Publisher, PublisherId, Publishing, Settings, Slot};
use crate::messages::{EndCode, PublishResponse};

/// A client that did not finish the block that it began last.
pub(super) struct Failing {
    /// How many in a row.
    blocks: u32,
    at_micros: u64,
}

/// For so long that is remembered after the last time, …
const REMEMBERED_MICROS: u64 = 600_000_000;
/// … and of so many clients.
const REMEMBERED_MAX: usize = 1024;

impl<B> Publishing<B> {
    /// More has come of what a publisher sends, though not as much as can be looked at.
    pub fn moves(&mut self, id: PublisherId, now_micros: u64) {
        self.now_micros = now_micros;
        let streaming = self.publishers.get(&id).and_then(|publisher| publisher.streaming);
        let slot = streaming.and_then(|number| self.slots.get_mut((number - self.base) as usize));
        if let Some(Progress::Streaming { moved, .. }) = slot.map(|slot| &mut slot.progress) {
            *moved = now_micros;
        }
    }

    /// This node begins, or ends, to hash what a publisher has sent: meanwhile nothing can come of its block.
    pub fn hashes(&mut self, id: PublisherId, is_hashed: bool, now_micros: u64) {
        if let Some(publisher) = self.publishers.get_mut(&id) {
            publisher.is_hashed = is_hashed;
        }
        self.moves(id, now_micros);
    }

    /// Drops what a publisher is sending, and that is remembered, unless this node has ended the stream before.
    pub(super) fn fail(&mut self, id: PublisherId) {
        let publisher = self.publishers.get(&id).filter(|publisher| !publisher.has_ended);
        let client = publisher.map(|publisher| Arc::clone(&publisher.client));
        if let (true, Some(client)) = (self.give_up(id), client) {
            self.has_failed(&client);
        }
    }

    /// A client has begun a block, and does not finish it.
    pub(super) fn has_failed(&mut self, client: &Arc<str>) {
        // What is fetched is of no client.
        if client.is_empty() {
            return;
        }
        let now_micros = self.now_micros;
        self.failing.retain(|_, failing| now_micros.saturating_sub(failing.at_micros) < REMEMBERED_MICROS);
        if self.failing.len() >= REMEMBERED_MAX && !self.failing.contains_key(client) {
            let oldest = self.failing.iter().min_by_key(|(_, failing)| failing.at_micros);
            if let Some(oldest) = oldest.map(|(client, _)| Arc::clone(client)) {
                self.failing.remove(&oldest);
            }
        }
        let failing = self.failing.entry(Arc::clone(client)).or_insert(Failing { blocks: 0, at_micros: now_micros });
        (failing.blocks, failing.at_micros) = (failing.blocks.saturating_add(1), now_micros);
    }

    fn failures(&self, client: &str) -> u32 {
        let failing = self.failing.get(client);
        let is_remembered = |failing: &&Failing| self.now_micros.saturating_sub(failing.at_micros) < REMEMBERED_MICROS;
        failing.filter(is_remembered).map_or(0, |failing| failing.blocks)
    }

    /// For how long this publisher leaves a block that nobody sends to others: ever longer, as long as there are any that have failed less often.
    pub(super) fn leaves_for(&self, id: PublisherId) -> u64 {
        let Some(publisher) = self.publishers.get(&id).filter(|_| !self.failing.is_empty()) else { return 0 };
        let failures = self.failures(&publisher.client);
        let is_better = |other: &Publisher| !other.has_ended && self.failures(&other.client) < failures;
        match self.publishers.values().any(is_better) {
            true => {
                let Settings { stall_micros, idle_micros, .. } = self.settings;
                stall_micros.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(idle_micros.max(stall_micros))
            }
            false => 0,
        }
    }

    /// Looks for blocks that are late, and for one that was asked for in vain.
    pub fn tick(&mut self, now_micros: u64) {
        self.now_micros = now_micros;
        let Settings { stall_blocks, stall_micros, idle_micros, window_blocks, .. } = self.settings;
        // More than the window has room for will never be whole behind it.
        let stall_blocks = stall_blocks.min(window_blocks.saturating_sub(1)).max(1);
        let is_anybody_waiting = self.publishers.values().any(|publisher| publisher.waits);
        let is_standing = now_micros.saturating_sub(self.safe_micros) >= idle_micros;
        let mut clients =
            self.publishers.values().filter(|publisher| !publisher.has_ended).map(|publisher| &publisher.client);
        let first = clients.next();
        let are_several = clients.any(|client| Some(client) != first);
        let mut whole_later = 0;
        let mut late = Vec::new();
        for (index, slot) in self.slots.iter_mut().enumerate().rev() {
            match &mut slot.progress {
                Progress::Whole { .. } => whole_later += 1,
                // This node makes it wait.
                Progress::Streaming { publisher, since, moved }
                    if self.publishers.get(&*publisher).is_some_and(|publisher| publisher.waits) =>
                {
                    (*since, *moved) = (now_micros, now_micros);
                }
                Progress::Streaming { publisher, since, moved } => {
                    if self.publishers.get(&*publisher).is_some_and(|publisher| publisher.is_hashed) {
                        *moved = now_micros;
                    }
                    let (age, idle) = (now_micros.saturating_sub(*since), now_micros.saturating_sub(*moved));
                    let is_late = whole_later >= stall_blocks && age >= stall_micros;
                    // All that is under way waits for the first block, and somebody for that.
                    let is_in_the_way = index == 0 && is_anybody_waiting && age >= idle_micros;
                    // Somebody trickles, and perhaps in many places.
                    let is_trickled = is_standing && are_several && age >= idle_micros;
                    if is_late || is_in_the_way || is_trickled || idle >= idle_micros {
                        late.push(*publisher);
                    }
                }
                Progress::Vacant { .. } | Progress::Submitted { .. } => {}
            }
        }
        late.into_iter().for_each(|id| self.refuse(id, EndCode::Timeout));
        self.ask_again();
        // Others may have had their time.
        let due = &mut self.due;
        self.publishers.values_mut().filter(|one| one.leaves_since.is_some()).for_each(|one| one.wake(due));
    }

    /// Asks for the first vacant block once more: who was asked for several may have gone back to the last of them only.
    fn ask_again(&mut self) {
        let (base, now_micros) = (self.base, self.now_micros);
        let mut slots = (base..).zip(&mut self.slots);
        let first = slots.find_map(|(number, slot)| match &mut slot.progress {
            Progress::Vacant { asked, .. } => Some((number, asked)),
            _ => None,
        });
        let Some((number, asked)) = first else { return };
        if now_micros.saturating_sub(*asked) < self.settings.stall_micros {
            return;
        }
        *asked = now_micros;
        let due = &mut self.due;
        self.publishers.values_mut().for_each(|publisher| publisher.tell(PublishResponse::Resend(number), due));
    }

    /// Whether a vacant block is for others: the client of this publisher has just failed to send it, and there are others. Or one that has
    /// several streams would have it again before anybody else, time after time. Blocks that are fetched are of no client. Or there are others that
    /// have failed less often.
    pub(super) fn is_left_to_others(&self, id: PublisherId, number: u64) -> bool {
        let index = number.checked_sub(self.base).and_then(|index| usize::try_from(index).ok());
        let slot = index.and_then(|index| self.slots.get(index));
        let (Some(slot), Some(publisher)) = (slot, self.publishers.get(&id)) else { return false };
        let Progress::Vacant { since, .. } = slot.progress else { return false };
        let is_other = |other: &Publisher| !other.has_ended && other.client != publisher.client;
        let vacant_micros = self.now_micros.saturating_sub(since);
        let has_just_failed = !publisher.client.is_empty()
            && slot.client == publisher.client
            && vacant_micros < self.settings.stall_micros
            && self.publishers.values().any(is_other);
        has_just_failed || vacant_micros < self.leaves_for(id)
    }

    /// Whether a block is waited for, so that [`Publishing::tick`] is needed.
    pub fn needs_tick(&self) -> bool {
        let is_awaited = |slot: &Slot<B>| matches!(slot.progress, Progress::Streaming { .. } | Progress::Vacant { .. });
        !self.publishers.is_empty() && self.not_submitted().any(is_awaited)
            || self.publishers.values().any(|publisher| publisher.leaves_since.is_some())
    }
}
