//! A stream: entries in the order of their identifiers, in listpacks of some entries each.
//!
//! In a listpack an entry is: milliseconds less those of the node, sequence, number of strings, then fields and values in turn.
//! (Redis's own layout shares field names within a node; it comes with DUMP.)

use std::collections::BTreeMap;
use std::fmt;

use crate::number::parse_integer;
use crate::structure::listpack::{Item, Listpack};

/// A node takes this many entries.
const NODE_ENTRIES_MAX: usize = 100;
/// And about this many bytes.
const NODE_BYTES_MAX: usize = 4096;

/// An entry's identifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// Milliseconds since 1970, mostly.
    pub millis: u64,
    /// Counts within them.
    pub sequence: u64,
}

impl Id {
    /// The largest there is.
    pub const MAX: Self = Self { millis: u64::MAX, sequence: u64::MAX };

    /// The one after this.
    pub fn next(self) -> Option<Self> {
        match (self.sequence.checked_add(1), self.millis.checked_add(1)) {
            (Some(sequence), _) => Some(Self { sequence, ..self }),
            (None, Some(millis)) => Some(Self { millis, sequence: 0 }),
            (None, None) => None,
        }
    }

    /// The one before this.
    pub fn previous(self) -> Option<Self> {
        match (self.sequence.checked_sub(1), self.millis.checked_sub(1)) {
            (Some(sequence), _) => Some(Self { sequence, ..self }),
            (None, Some(millis)) => Some(Self { millis, sequence: u64::MAX }),
            (None, None) => None,
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.millis, self.sequence)
    }
}

/// What is left when the beginning is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trim {
    /// So many entries.
    Length(usize),
    /// Those from this identifier on.
    From(Id),
}

#[derive(Debug, Default)]
struct Node {
    entries: usize,
    pack: Listpack,
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct Stream {
    /// By the first identifier that was put into them. None is empty.
    nodes: BTreeMap<Id, Node>,
    len: usize,
    last: Id,
}

fn number(item: Item<'_>) -> u64 {
    match item {
        Item::Integer(number) => number as u64,
        // Too large for a signed integer.
        Item::Bytes(text) => std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(0),
    }
}

impl Node {
    /// The identifier of the entry at a position, its number of strings, and where they begin.
    fn head(&self, first: Id, at: usize) -> (Id, usize, usize) {
        let (sequence_at, pack) = (self.pack.next(at), &self.pack);
        let count_at = pack.next(sequence_at);
        let millis = first.millis.wrapping_add(number(pack.get(at)));
        let id = Id { millis, sequence: number(pack.get(sequence_at)) };
        (id, number(pack.get(count_at)) as usize, pack.next(count_at))
    }

    /// Calls for every entry with its identifier, where it begins and ends, its number of strings and where these begin.
    fn each(&self, first: Id, mut call: impl FnMut(Id, (usize, usize), usize, usize)) {
        let mut at = self.pack.first();
        while at != self.pack.end() {
            let (id, strings, from) = self.head(first, at);
            let end = (0..strings).fold(from, |at, _| self.pack.next(at));
            call(id, (at, end), strings, from);
            at = end;
        }
    }
}

impl Stream {
    /// Entries in it. A stream may be empty.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The largest identifier that was ever added.
    pub fn last(&self) -> Id {
        self.last
    }

    /// Sets the largest identifier that was ever added, which must not be below those that are there.
    pub fn set_last(&mut self, last: Id) {
        debug_assert!(last >= self.last);
        self.last = last;
    }

    /// Bytes of memory, nearly.
    pub fn memory(&self) -> usize {
        self.nodes.values().map(|node| node.pack.capacity() + size_of::<Node>() + size_of::<Id>()).sum()
    }

    /// Adds an entry behind all others.
    pub fn push<'a>(&mut self, id: Id, strings: impl ExactSizeIterator<Item = &'a [u8]> + Clone) {
        debug_assert!(id > self.last, "identifiers ascend");
        let bytes: usize = strings.clone().map(<[u8]>::len).sum();
        let has_room = |node: &Node| node.entries < NODE_ENTRIES_MAX && node.pack.bytes() + bytes <= NODE_BYTES_MAX;
        let first = match self.nodes.last_key_value() {
            Some((first, node)) if has_room(node) => *first,
            _ => id,
        };
        let node = self.nodes.entry(first).or_default();
        node.pack.push_back((id.millis - first.millis).to_string().as_bytes());
        node.pack.push_back(id.sequence.to_string().as_bytes());
        node.pack.push_back(strings.len().to_string().as_bytes());
        strings.for_each(|text| node.pack.push_back(text));
        node.entries += 1;
        self.len += 1;
        self.last = id;
    }

    /// Entries between two identifiers, both included, at most so many, in order: their strings follow as they are read.
    pub fn range(&self, from: Id, to: Id, most: usize, is_reversed: bool) -> Vec<Entry<'_>> {
        let begin = self.nodes.range(..=from).next_back().map_or(from, |(first, _)| *first);
        let mut found = Vec::new();
        if begin > to {
            return found;
        }
        let take = |(first, node): (&Id, &'_ Node)| {
            let mut entries = Vec::new();
            node.each(*first, |id, _, strings, at| {
                if (from..=to).contains(&id) {
                    entries.push((id, strings, at));
                }
            });
            entries
        };
        let nodes = self.nodes.range(begin..=to);
        if is_reversed {
            for (first, node) in nodes.rev() {
                let entries = take((first, node));
                found.extend(entries.into_iter().rev().map(|(id, strings, at)| Entry {
                    id,
                    strings,
                    at,
                    pack: &node.pack,
                }));
                if found.len() >= most {
                    break;
                }
            }
        } else {
            for (first, node) in nodes {
                let entries = take((first, node));
                found.extend(entries.into_iter().map(|(id, strings, at)| Entry { id, strings, at, pack: &node.pack }));
                if found.len() >= most {
                    break;
                }
            }
        }
        found.truncate(most);
        found
    }

    /// Removes an entry; whether it was there.
    pub fn remove(&mut self, id: Id) -> bool {
        let Some((&first, node)) = self.nodes.range_mut(..=id).next_back() else { return false };
        let mut span = None;
        node.each(first, |found, at, _, _| {
            if found == id {
                span = Some(at);
            }
        });
        let Some((from, to)) = span else { return false };
        node.pack.remove_range(from, to);
        node.entries -= 1;
        self.len -= 1;
        if node.entries == 0 {
            self.nodes.remove(&first);
        }
        true
    }

    /// Cuts off the beginning; how many entries. Where it may be `whole`, only nodes of which nothing is to be kept.
    pub fn trim(&mut self, trim: Trim, whole: bool) -> usize {
        let before = self.len;
        while let Some(entry) = self.nodes.first_entry() {
            let (first, node) = (*entry.key(), entry.get());
            let mut last = first;
            node.each(first, |id, _, _, _| last = id);
            let goes = match trim {
                Trim::Length(keep) => self.len.saturating_sub(node.entries) >= keep,
                Trim::From(id) => last < id,
            };
            if !goes {
                break;
            }
            self.len -= node.entries;
            entry.remove();
        }
        if !whole && let Some((&first, node)) = self.nodes.first_key_value() {
            let mut goes = Vec::new();
            let surplus = match trim {
                Trim::Length(keep) => self.len.saturating_sub(keep),
                Trim::From(_) => usize::MAX,
            };
            node.each(first, |id, _, _, _| {
                if goes.len() < surplus && matches!(trim, Trim::Length(_))
                    || matches!(trim, Trim::From(least) if id < least)
                {
                    goes.push(id);
                }
            });
            goes.into_iter().for_each(|id| {
                self.remove(id);
            });
        }
        before - self.len
    }
}

/// An entry as it lies in its node.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its identifier.
    pub id: Id,
    /// Fields and values in all.
    pub strings: usize,
    at: usize,
    pack: &'a Listpack,
}

impl<'a> Entry<'a> {
    /// Fields and values in turn.
    pub fn iter(&self) -> impl Iterator<Item = Item<'a>> + use<'a> {
        let (pack, mut at) = (self.pack, self.at);
        (0..self.strings).map(move |_| {
            let item = pack.get(at);
            at = pack.next(at);
            item
        })
    }
}

/// An identifier from text: `ms-sequence`, or `ms` alone with the sequence given.
pub fn parse_id(text: &[u8], sequence: u64) -> Option<Id> {
    let unsigned = |digits: &[u8]| match digits {
        [b'0'..=b'9', ..] if digits == b"0" || digits[0] != b'0' => {
            parse_integer(digits).map(|number| number as u64).or_else(|| std::str::from_utf8(digits).ok()?.parse().ok())
        }
        _ => None,
    };
    match text.iter().position(|byte| *byte == b'-') {
        Some(at) => Some(Id { millis: unsigned(&text[..at])?, sequence: unsigned(&text[at + 1..])? }),
        None => Some(Id { millis: unsigned(text)?, sequence }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn it_is_a_sorted_map(actions in prop::collection::vec((0u8..8, 1u64..4, any::<prop::sample::Index>(), 0usize..300), 0..400)) {
            let (mut stream, mut model): (Stream, Vec<(Id, Vec<u8>)>) = Default::default();
            for (action, step, place, size) in actions {
                let chosen = if model.is_empty() { Id::default() } else { model[place.index(model.len())].0 };
                match action {
                    0..5 => {
                        let last = stream.last();
                        let id = if step == 1 { last.next().unwrap() } else { Id { millis: last.millis + step, sequence: u64::MAX - 5 } };
                        let value = vec![b'v'; size];
                        stream.push(id, [b"field".as_slice(), &value].into_iter());
                        model.push((id, value));
                    }
                    5 => {
                        let found = model.iter().position(|(id, _)| *id == chosen);
                        prop_assert_eq!(stream.remove(chosen), found.is_some());
                        if let Some(found) = found {
                            model.remove(found);
                        }
                    }
                    6 => {
                        let keep = size;
                        let gone = model.len().saturating_sub(keep);
                        prop_assert_eq!(stream.trim(Trim::Length(keep), false), gone);
                        model.drain(..gone);
                    }
                    _ => {
                        let gone = model.iter().filter(|(id, _)| *id < chosen).count();
                        if size.is_multiple_of(4) {
                            prop_assert_eq!(stream.trim(Trim::From(chosen), false), gone);
                            model.drain(..gone);
                        } else {
                            let expected: Vec<&(Id, Vec<u8>)> = model[gone..].iter().take(size).collect();
                            let found = stream.range(chosen, Id::MAX, size, false);
                            prop_assert_eq!(found.len(), expected.len());
                            for (entry, (id, value)) in found.iter().zip(expected) {
                                prop_assert_eq!(entry.id, *id);
                                prop_assert_eq!(entry.iter().nth(1).unwrap().to_vec(), value.clone());
                            }
                        }
                    }
                }
                prop_assert_eq!(stream.len(), model.len());
            }
            let backwards: Vec<Id> = stream.range(Id::default(), Id::MAX, usize::MAX, true).iter().map(|entry| entry.id).collect();
            prop_assert!(backwards.into_iter().rev().eq(model.iter().map(|(id, _)| *id)));
        }
    }
}
