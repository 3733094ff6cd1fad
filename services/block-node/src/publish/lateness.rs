//! Blocks that take too long, and what is done then: whoever sends one is ended, and the others are asked for it. Who is kept waiting by this
//! node is not late. While no block at all is made, who has held one for long is late if there is another client, however much comes of it. Who
//! has not finished a block leaves it to others for a while, whichever of its streams it was.

use super::{Progress, Publisher, PublisherId, Publishing, Settings, Slot};
use crate::messages::{EndCode, PublishResponse};

impl<B> Publishing<B> {
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
    /// several streams would have it again before anybody else, time after time. Blocks that are fetched are of no client.
    pub(super) fn is_left_to_others(&self, id: PublisherId, number: u64) -> bool {
        let index = number.checked_sub(self.base).and_then(|index| usize::try_from(index).ok());
        let slot = index.and_then(|index| self.slots.get(index));
        let (Some(slot), Some(publisher)) = (slot, self.publishers.get(&id)) else { return false };
        let Progress::Vacant { since, .. } = slot.progress else { return false };
        let is_other = |other: &Publisher| !other.has_ended && other.client != publisher.client;
        !publisher.client.is_empty()
            && slot.client == publisher.client
            && self.now_micros.saturating_sub(since) < self.settings.stall_micros
            && self.publishers.values().any(is_other)
    }

    /// Whether a block is waited for, so that [`Publishing::tick`] is needed.
    pub fn needs_tick(&self) -> bool {
        let is_awaited = |slot: &Slot<B>| matches!(slot.progress, Progress::Streaming { .. } | Progress::Vacant { .. });
        !self.publishers.is_empty() && self.not_submitted().any(is_awaited)
    }
}
