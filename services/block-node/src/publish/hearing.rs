//! What a publisher may not have heard yet.
//!
//! A header of a block that is safe is a duplicate, and ends the stream of who sends it, unless it crossed the news: a publisher that races
//! sends it before it hears that others were faster, and how late it hears that depends on its machine, the network and this node. What it
//! does then is what it would have done had the news not come: it sends each block once, in order, or goes back to one that it was asked for.
//! Whoever does so is told to skip the block, for as long as the news may be on its way.

use std::cmp::min;

/// One publisher's knowledge.
pub(super) struct Hearing {
    /// Blocks before this one are known to it: it was told of them long ago, or they were safe long before it came.
    known: u64,
    /// It was told of those before this one …
    told: u64,
    /// … when this was looked at last.
    looked_micros: u64,
    /// One behind the last block that it has begun.
    begun: u64,
    /// It was asked for a block, and goes back to that when it hears so.
    asked: Option<Asked>,
}

struct Asked {
    number: u64,
    at_micros: u64,
    /// It has begun the block since, perhaps before it heard that it was asked.
    is_begun: bool,
}

impl Hearing {
    /// Of a publisher that comes now and need not know of blocks from this one on.
    pub(super) fn new(known: u64, now_micros: u64) -> Self {
        Self { known, told: known, looked_micros: now_micros, begun: 0, asked: None }
    }

    /// It has begun a block.
    pub(super) fn begins(&mut self, number: u64) {
        self.begun = number.saturating_add(1);
        if let Some(asked) = self.asked.as_mut().filter(|asked| asked.number == number) {
            asked.is_begun = true;
        }
    }

    /// It was asked for a block.
    pub(super) fn is_asked(&mut self, number: u64, now_micros: u64) {
        let number = self.asked.as_ref().map_or(number, |asked| min(asked.number, number));
        self.asked = Some(Asked { number, at_micros: now_micros, is_begun: false });
    }

    /// All blocks before `acknowledged` were told to it by now; it hears of them within so long.
    pub(super) fn is_told(&mut self, acknowledged: u64, now_micros: u64, within_micros: u64) {
        // It hears of it within that time, and may be within a block for as long again.
        let is_over =
            |asked: &mut Asked| asked.is_begun && now_micros.saturating_sub(asked.at_micros) >= 2 * within_micros;
        self.asked.take_if(is_over);
        if now_micros.saturating_sub(self.looked_micros) >= within_micros {
            self.known = self.known.max(self.told);
            (self.told, self.looked_micros) = (acknowledged, now_micros);
        }
    }

    /// Whether it can have sent this block without having heard that it is safe.
    pub(super) fn may_send(&self, number: u64) -> bool {
        number >= self.known && number >= self.asked.as_ref().map_or(self.begun, |asked| min(asked.number, self.begun))
    }
}
