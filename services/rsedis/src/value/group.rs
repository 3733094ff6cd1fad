//! A group of a stream's readers: how far it has read, and what was given to whom and is not acknowledged yet.

use std::collections::BTreeMap;

use super::{Id, Stream};

/// What is counted of a stream and its groups goes no further: it must fit into the signed numbers of commands.
pub const COUNT_MAX: u64 = i64::MAX as u64;

/// One more.
pub fn one_more(count: u64) -> u64 {
    count.saturating_add(1).min(COUNT_MAX)
}

/// How many of the entries that were ever added come up to this one, if that can be told.
pub fn distance(stream: &Stream, id: Id) -> Option<u64> {
    if stream.added == 0 {
        return Some(0);
    }
    if stream.is_empty() && id <= stream.last {
        return Some(stream.added);
    }
    if id >= stream.last {
        return (id == stream.last).then_some(stream.added);
    }
    let first = stream.first().unwrap_or_default();
    if stream.max_deleted == Id::MIN || stream.max_deleted < first {
        let before = stream.added.saturating_sub(stream.len() as u64);
        if id < first {
            return Some(before);
        } else if id == first {
            return Some(one_more(before));
        }
    }
    None
}

/// An entry that was given to a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its consumer's name.
    pub consumer: Vec<u8>,
    /// When it was given last, milliseconds since 1970.
    pub delivered: i64,
    /// How often it was given.
    pub deliveries: u64,
}

/// Who reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consumer {
    /// When it was last heard of, milliseconds since 1970.
    pub seen: i64,
    /// What it was given, in order.
    pub pending: std::collections::BTreeSet<Id>,
}

/// See the module's description. What is pending stands in the group and in its consumer, always in both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The last entry that was given to anybody.
    pub last: Id,
    /// Entries that were read, if that is known.
    pub read: Option<u64>,
    /// Everything that was given and not acknowledged.
    pub pending: BTreeMap<Id, Pending>,
    /// By name.
    pub consumers: BTreeMap<Vec<u8>, Consumer>,
}

impl Group {
    /// Gives an entry to a consumer, whoever had it before.
    pub fn give(&mut self, id: Id, pending: Pending) {
        self.acknowledge(id);
        if let Some(consumer) = self.consumers.get_mut(&pending.consumer) {
            consumer.pending.insert(id);
            self.pending.insert(id, pending);
        }
    }

    /// Forgets that an entry was given; whether it was.
    pub fn acknowledge(&mut self, id: Id) -> bool {
        let Some(pending) = self.pending.remove(&id) else { return false };
        if let Some(consumer) = self.consumers.get_mut(&pending.consumer) {
            consumer.pending.remove(&id);
        }
        true
    }

    /// Removes a consumer with all that it was given; how much that was.
    pub fn remove_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let consumer = self.consumers.remove(name)?;
        for id in &consumer.pending {
            self.pending.remove(id);
        }
        Some(consumer.pending.len())
    }

    /// Bytes of memory, nearly.
    pub fn memory(&self) -> usize {
        let pending = size_of::<Id>() * 2 + size_of::<Pending>();
        let given: usize = self.pending.values().map(|one| pending + one.consumer.len()).sum();
        let consumers: usize = self.consumers.keys().map(|name| name.len() + size_of::<Consumer>()).sum();
        size_of::<Self>() + given + consumers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_has_one_owner() {
        let mut group = Group::default();
        for name in [b"a", b"b"] {
            group.consumers.insert(name.to_vec(), Consumer::default());
        }
        let id = Id { millis: 1, sequence: 0 };
        let pending = |name: &[u8]| Pending { consumer: name.to_vec(), delivered: 5, deliveries: 1 };
        group.give(id, pending(b"a"));
        group.give(id, pending(b"b"));
        assert!(group.consumers[b"a".as_slice()].pending.is_empty());
        assert_eq!(group.pending[&id], pending(b"b"));
        assert_eq!(group.remove_consumer(b"b"), Some(1));
        assert!(group.pending.is_empty() && !group.acknowledge(id));
    }
}
