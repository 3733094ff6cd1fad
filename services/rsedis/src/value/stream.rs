//! A stream: entries in the order of their identifiers, in listpacks of some entries each, laid out as Redis does, and the groups
//! that read it.
//!
//! A node's listpack begins with: entries, deleted entries, number of shared field names, these, 0. Then come entries:
//! flags (1 deleted, 2 the fields are the shared ones), milliseconds and sequence less those of the node, the values (or number of
//! fields, fields and values in turn), number of elements so far.

use std::collections::BTreeMap;
use std::fmt;

use super::group::{Group, one_more};
use crate::failure::up_to_zero;
use crate::number::{integer_text, unsigned_in_c};
use crate::structure::listpack::{Item, Listpack};

const IS_DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;

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

    /// The smallest there is.
    pub const MIN: Self = Self { millis: 0, sequence: 0 };

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

impl Id {
    /// As nodes are named: 16 bytes, big-endian.
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.millis) << 64 | u128::from(self.sequence)).to_be_bytes()
    }

    /// From [`Id::to_bytes`].
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        let whole = u128::from_be_bytes(bytes);
        Self { millis: (whole >> 64) as u64, sequence: whole as u64 }
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

/// When an entry begins a node of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLimits {
    /// Entries of a node, with those that were deleted; 0: any number.
    pub entries: usize,
    /// Bytes of a node; 0: any number.
    pub bytes: usize,
}

impl Default for NodeLimits {
    fn default() -> Self {
        Self { entries: 100, bytes: 4096 }
    }
}

/// A node never takes more bytes than this.
const NODE_BYTES_MAX: usize = 1 << 30;

/// See the module's description.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// By the identifier that their entries' are counted from. None is without entries.
    nodes: BTreeMap<Id, Listpack>,
    len: usize,
    /// The largest identifier that was ever added.
    pub last: Id,
    /// The largest identifier that was ever deleted.
    pub max_deleted: Id,
    /// Entries that were ever added.
    pub added: u64,
    /// By name.
    pub groups: BTreeMap<Vec<u8>, Group>,
}

fn integer(item: Item<'_>) -> i64 {
    match item {
        Item::Integer(number) => number,
        // What is not an integer was refused when it was read.
        Item::Bytes(_) => 0,
    }
}

/// The head of a node.
struct Head {
    live: i64,
    deleted: i64,
    /// Where the first shared field stands, and how many there are.
    fields: (usize, usize),
    /// Where the first entry begins.
    first: usize,
}

fn head(pack: &Listpack) -> Head {
    let live_at = pack.first();
    let deleted_at = pack.next(live_at);
    let count_at = pack.next(deleted_at);
    let count = integer(pack.get(count_at)).max(0) as usize;
    let fields_at = pack.next(count_at);
    let end = (0..count).fold(fields_at, |at, _| pack.next(at));
    Head {
        live: integer(pack.get(live_at)),
        deleted: integer(pack.get(deleted_at)),
        fields: (fields_at, count),
        first: pack.next(end),
    }
}

/// An entry as it lies in its node.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its identifier.
    pub id: Id,
    /// Where it begins.
    at: usize,
    is_deleted: bool,
    fields: usize,
    /// Where the shared fields stand, if it has these.
    shared: Option<usize>,
    /// Where its values, or fields and values, begin.
    strings_at: usize,
    pack: &'a Listpack,
}

impl<'a> Entry<'a> {
    fn read(pack: &'a Listpack, base: Id, head: &Head, at: usize) -> (Self, usize) {
        let flags = integer(pack.get(at));
        let millis_at = pack.next(at);
        let sequence_at = pack.next(millis_at);
        let id = Id {
            millis: base.millis.wrapping_add(integer(pack.get(millis_at)) as u64),
            sequence: base.sequence.wrapping_add(integer(pack.get(sequence_at)) as u64),
        };
        let behind = pack.next(sequence_at);
        let (fields, shared, strings_at) = match flags & SAME_FIELDS != 0 {
            true => (head.fields.1, Some(head.fields.0), behind),
            false => (integer(pack.get(behind)).max(0) as usize, None, pack.next(behind)),
        };
        let strings = if shared.is_some() { fields } else { fields * 2 };
        let end = (0..strings).fold(strings_at, |at, _| pack.next(at));
        let entry = Self { id, at, is_deleted: flags & IS_DELETED != 0, fields, shared, strings_at, pack };
        (entry, pack.next(end))
    }

    /// Fields and values in all.
    pub fn strings(&self) -> usize {
        self.fields * 2
    }

    /// Fields and values in turn.
    pub fn iter(&self) -> impl Iterator<Item = Item<'a>> + use<'a> {
        let (pack, mut shared, mut at) = (self.pack, self.shared, self.strings_at);
        (0..self.fields * 2).map(move |place| {
            let from = match &mut shared {
                Some(shared) if place % 2 == 0 => shared,
                _ => &mut at,
            };
            let item = pack.get(*from);
            *from = pack.next(*from);
            item
        })
    }
}

/// All entries of a node that were not deleted.
fn entries(base: Id, pack: &Listpack) -> Vec<Entry<'_>> {
    let head = head(pack);
    let (mut at, mut found) = (head.first, Vec::with_capacity(head.live.max(0) as usize));
    while at != pack.end() {
        let (entry, next) = Entry::read(pack, base, &head, at);
        if !entry.is_deleted {
            found.push(entry);
        }
        at = next;
    }
    found
}

/// The identifier of a node's last entry, be it deleted: Redis keeps a node for it.
fn last_id(base: Id, pack: &Listpack) -> Option<Id> {
    let head = head(pack);
    let (mut at, mut last) = (head.first, None);
    while at != pack.end() {
        let (entry, next) = Entry::read(pack, base, &head, at);
        (at, last) = (next, Some(entry.id));
    }
    last
}

fn set_integer(pack: &mut Listpack, at: usize, number: i64) {
    pack.replace(at, &integer_text(number));
}

/// Marks the entry at a position as deleted.
fn mark(pack: &mut Listpack, at: usize) {
    let flags = integer(pack.get(at)) | IS_DELETED;
    set_integer(pack, at, flags);
    let head = head(pack);
    set_integer(pack, pack.first(), head.live - 1);
    set_integer(pack, pack.next(pack.first()), head.deleted + 1);
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

    /// Bytes of memory, nearly.
    pub fn memory(&self) -> usize {
        let nodes: usize =
            self.nodes.values().map(|pack| pack.capacity() + size_of::<Listpack>() + size_of::<Id>()).sum();
        nodes + self.groups.iter().map(|(name, group)| name.len() + group.memory()).sum::<usize>()
    }

    /// Nodes with what their entries are counted from.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (Id, &Listpack)> {
        self.nodes.iter().map(|(base, pack)| (*base, pack))
    }

    /// Adds a node that was read from elsewhere, behind all others. False: it is none.
    pub fn push_node(&mut self, base: Id, pack: Listpack) -> bool {
        let is_behind = self.nodes.last_key_value().is_none_or(|(last, _)| *last < base);
        let Some(live) = check(&pack).filter(|_| is_behind) else { return false };
        self.len += live;
        self.nodes.insert(base, pack);
        true
    }

    /// The first entry's identifier.
    pub fn first(&self) -> Option<Id> {
        self.range(Id::MIN, Id::MAX, 1, false).first().map(|entry| entry.id)
    }

    /// Adds an entry behind all others.
    pub fn push<'a>(&mut self, id: Id, strings: impl ExactSizeIterator<Item = &'a [u8]> + Clone, limits: NodeLimits) {
        debug_assert!(id > self.last || self.added == 0, "identifiers ascend");
        let bytes: usize = strings.clone().map(<[u8]>::len).sum();
        let bytes_max = if limits.bytes == 0 { NODE_BYTES_MAX } else { limits.bytes.min(NODE_BYTES_MAX) };
        let has_room = |pack: &Listpack| {
            let head = head(pack);
            let taken = (head.live + head.deleted) as usize;
            pack.bytes() + bytes < bytes_max && (limits.entries == 0 || taken < limits.entries)
        };
        let base = match self.nodes.last_key_value() {
            Some((base, pack)) if has_room(pack) => *base,
            _ => id,
        };
        let fields = strings.len() / 2;
        let pack = self.nodes.entry(base).or_insert_with(|| {
            let mut pack = Listpack::default();
            for number in [0, 0, fields as i64] {
                pack.push_back(&integer_text(number));
            }
            strings.clone().step_by(2).for_each(|field| pack.push_back(field));
            pack.push_back(b"0");
            pack
        });
        let head = head(pack);
        let is_same = head.fields.1 == fields && {
            let mut at = head.fields.0;
            strings.clone().step_by(2).all(|field| {
                let item = pack.get(at);
                at = pack.next(at);
                item.is(field)
            })
        };
        let push_integer = |pack: &mut Listpack, number: i64| pack.push_back(&integer_text(number));
        push_integer(pack, if is_same { SAME_FIELDS } else { 0 });
        push_integer(pack, id.millis.wrapping_sub(base.millis) as i64);
        push_integer(pack, id.sequence.wrapping_sub(base.sequence) as i64);
        if is_same {
            strings.skip(1).step_by(2).for_each(|value| pack.push_back(value));
            push_integer(pack, fields as i64 + 3);
        } else {
            push_integer(pack, fields as i64);
            strings.for_each(|text| pack.push_back(text));
            push_integer(pack, fields as i64 * 2 + 4);
        }
        set_integer(pack, pack.first(), head.live + 1);
        self.len += 1;
        self.added = one_more(self.added);
        self.last = id;
    }

    /// Entries between two identifiers, both included, at most so many, in order.
    pub fn range(&self, from: Id, to: Id, most: usize, is_reversed: bool) -> Vec<Entry<'_>> {
        let begin = self.nodes.range(..=from).next_back().map_or(from, |(base, _)| *base);
        let mut found = Vec::new();
        if begin > to || from > to {
            return found;
        }
        let is_wanted = |entry: &Entry<'_>| (from..=to).contains(&entry.id);
        let mut nodes = self.nodes.range(begin..=to);
        while found.len() < most
            && let Some((base, pack)) = if is_reversed { nodes.next_back() } else { nodes.next() }
        {
            let left = most - found.len();
            let entries = entries(*base, pack).into_iter().filter(is_wanted);
            match is_reversed {
                true => {
                    let entries: Vec<Entry<'_>> = entries.collect();
                    found.extend(entries.into_iter().rev().take(left));
                }
                false => found.extend(entries.take(left)),
            }
        }
        found
    }

    /// An entry.
    pub fn get(&self, id: Id) -> Option<Entry<'_>> {
        self.range(id, id, 1, false).pop()
    }

    /// Removes an entry; whether it was there.
    pub fn remove(&mut self, id: Id) -> bool {
        let Some((&base, pack)) = self.nodes.range_mut(..=id).next_back() else { return false };
        let Some(at) = entries(base, pack).iter().find(|entry| entry.id == id).map(|entry| entry.at) else {
            return false;
        };
        if head(pack).live == 1 {
            self.nodes.remove(&base);
        } else {
            mark(pack, at);
        }
        self.len -= 1;
        self.max_deleted = self.max_deleted.max(id);
        true
    }

    /// Cuts off the beginning; how many entries. Where it is `approximate`, only whole nodes go, and at most `most` entries (0: any
    /// number).
    pub fn trim(&mut self, trim: Trim, approximate: bool, most: usize) -> usize {
        let mut gone = 0;
        while let Some(node) = self.nodes.first_entry() {
            if matches!(trim, Trim::Length(keep) if self.len <= keep) {
                break;
            }
            let base = *node.key();
            let live = head(node.get()).live as usize;
            if most > 0 && gone + live > most {
                break;
            }
            let goes = match trim {
                Trim::Length(keep) => self.len - live >= keep,
                Trim::From(least) => last_id(base, node.get()) < Some(least),
            };
            if goes {
                node.remove();
                self.len -= live;
                gone += live;
                continue;
            }
            if !approximate {
                let surplus = match trim {
                    Trim::Length(keep) => self.len - keep,
                    Trim::From(_) => usize::MAX,
                };
                let is_old = |entry: &&Entry<'_>| {
                    matches!(trim, Trim::Length(_)) || matches!(trim, Trim::From(least) if entry.id < least)
                };
                let ids: Vec<Id> =
                    entries(base, node.get()).iter().take_while(is_old).take(surplus).map(|entry| entry.id).collect();
                let pack = node.into_mut();
                for id in ids {
                    if let Some(at) = entries(base, pack).first().filter(|entry| entry.id == id).map(|entry| entry.at) {
                        mark(pack, at);
                        self.len -= 1;
                        gone += 1;
                    }
                }
            }
            break;
        }
        gone
    }
}

/// How many entries a node has that came from elsewhere; nothing if it is none.
fn check(pack: &Listpack) -> Option<usize> {
    let mut items = pack.iter();
    let mut number = || match items.next() {
        Some(Item::Integer(number)) => Some(number),
        _ => None,
    };
    let (live, deleted, fields) = (number()?, number()?, number()?);
    let shared = usize::try_from(fields).ok()?;
    for _ in 0..shared {
        items.next()?;
    }
    if items.next() != Some(Item::Integer(0)) {
        return None;
    }
    let (mut seen_live, mut seen_deleted) = (0, 0);
    while let Some(flags) = items.next() {
        let Item::Integer(flags) = flags else { return None };
        let mut number = || match items.next() {
            Some(Item::Integer(number)) => Some(number),
            _ => None,
        };
        number()?;
        number()?;
        let strings = match flags & SAME_FIELDS != 0 {
            true => shared,
            false => usize::try_from(number()?).ok()?.checked_mul(2)?,
        };
        for _ in 0..strings {
            items.next()?;
        }
        let expected = if flags & SAME_FIELDS != 0 { strings + 3 } else { strings + 4 };
        if items.next() != Some(Item::Integer(expected as i64)) {
            return None;
        }
        if flags & IS_DELETED != 0 { seen_deleted += 1 } else { seen_live += 1 }
    }
    // Redis may leave a node with deleted entries alone.
    (seen_live == live && seen_deleted == deleted && live + deleted > 0).then_some(live as usize)
}

/// The text of an identifier is no longer, as in Redis.
const ID_BYTES_MAX: usize = 127;

/// An identifier from text: `ms-sequence`, or `ms` alone with the sequence given.
pub fn parse_id(text: &[u8], sequence: u64) -> Option<Id> {
    if text.len() > ID_BYTES_MAX {
        return None;
    }
    let text = up_to_zero(text);
    match text.iter().position(|byte| *byte == b'-') {
        Some(at) => Some(Id { millis: unsigned_in_c(&text[..at])?, sequence: unsigned_in_c(&text[at + 1..])? }),
        None => Some(Id { millis: unsigned_in_c(text)?, sequence }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn it_is_a_sorted_map(
            limit in 1usize..20,
            actions in prop::collection::vec((0u8..8, 1u64..4, any::<prop::sample::Index>(), 0usize..300), 0..400),
        ) {
            let limits = NodeLimits { entries: limit, bytes: 4096 };
            let (mut stream, mut model): (Stream, Vec<(Id, Vec<u8>)>) = Default::default();
            for (action, step, place, size) in actions {
                let chosen = if model.is_empty() { Id::default() } else { model[place.index(model.len())].0 };
                match action {
                    0..5 => {
                        let last = stream.last;
                        let id = if step == 1 { last.next().unwrap() } else { Id { millis: last.millis + step, sequence: u64::MAX - 5 } };
                        let value = vec![b'v'; size];
                        let field: &[u8] = if size % 3 == 0 { b"other" } else { b"field" };
                        stream.push(id, [field, &value].into_iter(), limits);
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
                        let keep = place.index(model.len() + 2);
                        let gone = model.len().saturating_sub(keep);
                        prop_assert_eq!(stream.trim(Trim::Length(keep), false, 0), gone);
                        model.drain(..gone);
                    }
                    _ => {
                        let gone = model.iter().filter(|(id, _)| *id < chosen).count();
                        let approximate = stream.clone().trim(Trim::From(chosen), true, 0);
                        prop_assert!(approximate <= gone);
                        prop_assert_eq!(stream.trim(Trim::From(chosen), false, 0), gone);
                        model.drain(..gone);
                    }
                }
                prop_assert_eq!(stream.len(), model.len());
            }
            let read = |entries: Vec<Entry<'_>>| -> Vec<(Id, Vec<u8>)> {
                entries.iter().map(|entry| (entry.id, entry.iter().nth(1).unwrap().to_vec())).collect()
            };
            prop_assert_eq!(read(stream.range(Id::MIN, Id::MAX, usize::MAX, false)), model.clone());
            let mut copy = Stream::default();
            for (base, pack) in stream.nodes() {
                prop_assert!(copy.push_node(base, pack.clone()), "a node is what check takes");
            }
            prop_assert_eq!(copy.len(), model.len());
            model.reverse();
            prop_assert_eq!(read(stream.range(Id::MIN, Id::MAX, usize::MAX, true)), model.clone());
            model.truncate(7);
            prop_assert_eq!(read(stream.range(Id::MIN, Id::MAX, 7, true)), model);
        }
    }

    #[test]
    fn identifiers_are_read() {
        for (text, expected) in [
            ("5-3", Some(Id { millis: 5, sequence: 3 })),
            ("5", Some(Id { millis: 5, sequence: 9 })),
            ("18446744073709551615-18446744073709551615", Some(Id::MAX)),
            ("18446744073709551616", None),
            ("-5", None),
            ("5-", None),
            ("", None),
            ("05", Some(Id { millis: 5, sequence: 9 })),
            ("+5- 3", Some(Id { millis: 5, sequence: 3 })),
            ("5x", None),
        ] {
            assert_eq!(parse_id(text.as_bytes(), 9), expected, "{text}");
        }
        assert_eq!(Id::from_bytes(Id { millis: 7, sequence: 1 }.to_bytes()), Id { millis: 7, sequence: 1 });
    }
}
