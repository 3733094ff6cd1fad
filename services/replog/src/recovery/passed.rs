//! Entries that were passed over: the state machine that starts has what they did, and they are too many to be held in memory. What is
//! left of them is what a log needs to go on behind them.

use bytes::Bytes;

use crate::entry::EntryKind;

/// Entries without a gap among them, in front of those that are held.
#[derive(Clone, Debug, Default)]
pub(crate) struct Passed {
    /// First and last; `None` if there are none.
    range: Option<(u64, u64)>,
    /// Where each term begins, of those that the entries have.
    terms: Vec<(u64, u64)>,
    /// Changes of the membership among them, with their indices.
    changes: Vec<(u64, Bytes)>,
    /// The newest time among them.
    pub(crate) time_millis: u64,
    /// What their commands take, about.
    pub(crate) command_bytes: u64,
}

impl Passed {
    /// Takes the next entry.
    pub(super) fn push(&mut self, index: u64, term: u64, kind: EntryKind, time_millis: u64, data: &[u8]) {
        let first = self.range.map_or(index, |(first, last)| {
            assert_eq!(index, last + 1, "entries that are passed over join one another");
            first
        });
        self.range = Some((first, index));
        if self.terms.last().is_none_or(|(_, newest)| *newest != term) {
            self.terms.push((index, term));
        }
        self.time_millis = self.time_millis.max(time_millis);
        match kind {
            EntryKind::Command => self.command_bytes += data.len() as u64,
            EntryKind::Membership => self.changes.push((index, Bytes::copy_from_slice(data))),
            EntryKind::Empty => {}
        }
    }

    /// Entries from this one on are replaced by others.
    pub(super) fn cut_from(&mut self, index: u64) {
        let Some((first, last)) = self.range.filter(|(_, last)| *last >= index) else { return };
        if index <= first {
            *self = Self::default();
            return;
        }
        self.scale_bytes((first, last), index - first);
        self.range = Some((first, index - 1));
        while self.terms.pop_if(|(begin, _)| *begin >= index).is_some() {}
        while self.changes.pop_if(|(at, _)| *at >= index).is_some() {}
    }

    /// A snapshot has what entries up to `snapshot` did, and the log begins behind `index`, which is not more.
    pub(super) fn forget_until(&mut self, index: u64, snapshot: u64) {
        let Some((first, last)) = self.range.filter(|(first, _)| *first <= snapshot) else { return };
        self.changes.retain(|(at, _)| *at > index);
        // What a snapshot has does not ask for another one.
        self.scale_bytes((first, last), last.saturating_sub(snapshot));
        if index >= last {
            *self = Self { time_millis: self.time_millis, command_bytes: self.command_bytes, ..Self::default() };
        } else {
            self.range = Some((first.max(index + 1), last));
        }
    }

    /// So many of these entries count.
    fn scale_bytes(&mut self, (first, last): (u64, u64), entries: u64) {
        let bytes = u128::from(self.command_bytes) * u128::from(entries) / u128::from(last - first + 1);
        self.command_bytes = bytes as u64;
    }

    /// The first one.
    pub(super) fn first(&self) -> Option<u64> {
        self.range.map(|(first, _)| first)
    }

    /// The last one, and its term.
    pub(crate) fn last(&self) -> Option<(u64, u64)> {
        Some((self.range?.1, self.terms.last()?.1))
    }

    /// Changes of the membership behind this entry.
    pub(crate) fn changes_after(&self, index: u64) -> impl Iterator<Item = &Bytes> {
        self.changes.iter().filter(move |(at, _)| *at > index).map(|(_, data)| data)
    }
}
