//! The order of a sorted set: scores with element numbers, in a tree of counted nodes.
//!
//! A B+ tree without keys of its own: leaves hold (score, number) in 12 bytes, and inner nodes hold their children's counts and last
//! entries, so that rank, an element by rank, insertion and removal take logarithmic time, and a search looks into one node of each level.
//! Elements of one score are ordered by their member, which the caller's comparison looks up by number.

use std::cmp::Ordering;

use crate::structure::room::room_for;

/// An entry: a score, and the number of the element that has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// Not NaN.
    pub score: f64,
    /// The element's number in the table of members.
    pub number: u32,
}

/// An entry as it lies in a leaf: without the four bytes that would align it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Packed {
    score: [u8; 8],
    number: [u8; 4],
}

impl From<Entry> for Packed {
    #[inline]
    fn from(entry: Entry) -> Self {
        Self { score: entry.score.to_ne_bytes(), number: entry.number.to_ne_bytes() }
    }
}

impl From<Packed> for Entry {
    #[inline]
    fn from(packed: Packed) -> Self {
        Self { score: f64::from_ne_bytes(packed.score), number: u32::from_ne_bytes(packed.number) }
    }
}

const LEAF_MAX: usize = 64;
const INNER_MAX: usize = 32;
/// A leaf grows by so many entries, and not to twice as many: where all comes by chance most leaves are neither half full nor full.
const LEAF_STEP: usize = 16;
const INNER_STEP: usize = 8;

/// The entries that the allocator's memory for so many has room for.
fn leaf_room(entries: usize) -> usize {
    (room_for(entries * size_of::<Packed>()) / size_of::<Packed>()).min(LEAF_MAX)
}

#[derive(Clone, Debug)]
enum Node {
    Leaf(Vec<Packed>),
    /// Children, and how many entries they have in all.
    Inner(Box<Inner>, usize),
}

#[derive(Clone, Debug)]
struct Inner {
    /// None is empty.
    children: Vec<Node>,
    /// The last entry of each.
    lasts: Vec<Packed>,
}

impl Inner {
    /// A node of these.
    fn node(children: Vec<Node>) -> Node {
        let lasts = children.iter().map(Node::last).collect();
        let count = children.iter().map(Node::len).sum();
        Node::Inner(Box::new(Self { children, lasts }), count)
    }

    /// The child that has a rank, and the rank in it. `is_behind`: also behind the last of one, for who inserts.
    fn seek(&self, mut rank: usize, is_behind: bool) -> (usize, usize) {
        let mut place = 0;
        while place + 1 < self.children.len() && rank >= self.children[place].len() + usize::from(is_behind) {
            rank -= self.children[place].len();
            place += 1;
        }
        (place, rank)
    }

    /// Joins a child that has become small with a neighbour.
    fn merge(&mut self, place: usize) {
        if self.children[place].len() == 0 {
            self.children.remove(place);
            self.lasts.remove(place);
            return;
        }
        let left = if place + 1 < self.children.len() { place } else { place.saturating_sub(1) };
        if left + 1 >= self.children.len() {
            return;
        }
        let (before, after) = self.children.split_at_mut(left + 1);
        let joins = match (&mut before[left], &mut after[0]) {
            (Node::Leaf(one), Node::Leaf(other)) if one.len() + other.len() <= LEAF_MAX / 2 => {
                one.append(other);
                true
            }
            (Node::Inner(one, count), Node::Inner(other, more))
                if one.children.len() + other.children.len() <= INNER_MAX / 2 =>
            {
                one.children.append(&mut other.children);
                one.lasts.append(&mut other.lasts);
                *count += *more;
                true
            }
            _ => false,
        };
        if joins {
            self.children.remove(left + 1);
            self.lasts.remove(left);
        }
    }
}

impl Node {
    fn len(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Inner(_, count) => *count,
        }
    }

    /// Its last entry; anything where there is none.
    fn last(&self) -> Packed {
        match self {
            Self::Leaf(entries) => entries.last().copied().unwrap_or_default(),
            Self::Inner(inner, _) => inner.lasts.last().copied().unwrap_or_default(),
        }
    }

    /// Inserts at a rank; the right half, if it had to be split.
    fn insert(&mut self, rank: usize, entry: Entry) -> Option<Self> {
        match self {
            Self::Leaf(entries) => {
                if entries.len() < LEAF_MAX {
                    if entries.len() == entries.capacity() {
                        entries.reserve_exact(leaf_room(entries.len() + LEAF_STEP) - entries.len());
                    }
                    entries.insert(rank, entry.into());
                    return None;
                }
                // Split before it grows. At the end, where elements come in order, the left one stays full.
                let at = if rank == LEAF_MAX { LEAF_MAX } else { LEAF_MAX / 2 };
                let mut right = Vec::with_capacity(leaf_room(LEAF_MAX - at + LEAF_STEP));
                right.extend_from_slice(&entries[at..]);
                entries.truncate(at);
                entries.shrink_to(leaf_room(at + LEAF_STEP));
                match rank.checked_sub(at) {
                    Some(rank) => right.insert(rank, entry.into()),
                    None => entries.insert(rank, entry.into()),
                }
                Some(Self::Leaf(right))
            }
            Self::Inner(inner, count) => {
                *count += 1;
                let (place, rank) = inner.seek(rank, true);
                let is_last = rank == inner.children[place].len();
                let right = inner.children[place].insert(rank, entry);
                if is_last || right.is_some() {
                    inner.lasts[place] = inner.children[place].last();
                }
                let right = right?;
                let Inner { children, lasts } = &mut **inner;
                if children.len() == children.capacity() {
                    children.reserve_exact(INNER_STEP);
                }
                if lasts.len() == lasts.capacity() {
                    lasts.reserve_exact(INNER_STEP);
                }
                lasts.insert(place + 1, right.last());
                children.insert(place + 1, right);
                if children.len() <= INNER_MAX {
                    return None;
                }
                let at = if place + 2 == children.len() { INNER_MAX } else { INNER_MAX / 2 };
                lasts.truncate(at);
                let right = Inner::node(children.split_off(at));
                *count -= right.len();
                Some(right)
            }
        }
    }

    fn remove(&mut self, rank: usize) -> Entry {
        match self {
            Self::Leaf(entries) => entries.remove(rank).into(),
            Self::Inner(inner, count) => {
                *count -= 1;
                let (place, rank) = inner.seek(rank, false);
                let child = &mut inner.children[place];
                let entry = child.remove(rank);
                if rank == child.len() {
                    inner.lasts[place] = child.last();
                }
                inner.merge(place);
                entry
            }
        }
    }
}

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Ordered {
    root: Node,
}

impl Default for Ordered {
    fn default() -> Self {
        Self { root: Node::Leaf(Vec::new()) }
    }
}

impl Ordered {
    /// Entries in it.
    pub fn len(&self) -> usize {
        self.root.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many entries come before what is looked for: `compare` says how an entry stands to it.
    pub fn rank(&self, compare: impl Fn(&Entry) -> Ordering) -> usize {
        let is_before = |entry: &Entry| compare(entry) == Ordering::Less;
        let (mut node, mut rank) = (&self.root, 0);
        loop {
            match node {
                Node::Leaf(entries) => return rank + entries.partition_point(|entry| is_before(&Entry::from(*entry))),
                Node::Inner(inner, _) => {
                    // The first child that does not lie before as a whole.
                    let place = inner.lasts.partition_point(|last| is_before(&Entry::from(*last)));
                    rank += inner.children[..place].iter().map(Node::len).sum::<usize>();
                    match inner.children.get(place) {
                        Some(child) => node = child,
                        None => return rank,
                    }
                }
            }
        }
    }

    /// Inserts at a rank.
    pub fn insert(&mut self, rank: usize, entry: Entry) {
        if let Some(right) = self.root.insert(rank, entry) {
            let left = std::mem::replace(&mut self.root, Node::Leaf(Vec::new()));
            self.root = Inner::node(vec![left, right]);
        }
    }

    /// Removes what has a rank, which must be below [`Ordered::len`].
    pub fn remove(&mut self, rank: usize) -> Entry {
        let entry = self.root.remove(rank);
        while let Node::Inner(inner, _) = &mut self.root
            && inner.children.len() <= 1
        {
            self.root = inner.children.pop().unwrap_or(Node::Leaf(Vec::new()));
        }
        entry
    }

    /// What has a rank.
    pub fn get(&self, rank: usize) -> Option<Entry> {
        self.iter_from(rank).next()
    }

    /// Gives the entry of a rank another number: its element was moved.
    pub fn renumber(&mut self, rank: usize, number: u32) {
        let (mut node, mut rank) = (&mut self.root, rank);
        loop {
            match node {
                Node::Leaf(entries) => {
                    entries[rank].number = number.to_ne_bytes();
                    return;
                }
                Node::Inner(inner, _) => {
                    let place;
                    (place, rank) = inner.seek(rank, false);
                    if rank + 1 == inner.children[place].len() {
                        inner.lasts[place].number = number.to_ne_bytes();
                    }
                    node = &mut inner.children[place];
                }
            }
        }
    }

    /// Entries in order, from a rank on.
    pub fn iter_from(&self, rank: usize) -> Iter<'_> {
        let mut iter = Iter { path: Vec::new(), leaf: &[] };
        let (mut node, mut rank) = (&self.root, rank);
        loop {
            match node {
                Node::Leaf(entries) => {
                    iter.leaf = entries.get(rank..).unwrap_or_default();
                    return iter;
                }
                Node::Inner(inner, _) => {
                    let place;
                    (place, rank) = inner.seek(rank, false);
                    iter.path.push(&inner.children[place + 1..]);
                    node = &inner.children[place];
                }
            }
        }
    }

    /// Bytes it takes.
    pub fn bytes(&self) -> usize {
        fn of(node: &Node) -> usize {
            match node {
                Node::Leaf(entries) => entries.capacity() * size_of::<Packed>(),
                Node::Inner(inner, _) => {
                    let Inner { children, lasts } = &**inner;
                    let own = children.capacity() * size_of::<Node>() + lasts.capacity() * size_of::<Packed>();
                    size_of::<Inner>() + own + children.iter().map(of).sum::<usize>()
                }
            }
        }
        of(&self.root)
    }
}

/// Entries in order.
#[derive(Debug)]
pub struct Iter<'a> {
    /// What is left of the children of each node above the leaf.
    path: Vec<&'a [Node]>,
    leaf: &'a [Packed],
}

impl Iterator for Iter<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        loop {
            if let [first, rest @ ..] = self.leaf {
                self.leaf = rest;
                return Some((*first).into());
            }
            let level = self.path.last_mut()?;
            match *level {
                [] => {
                    self.path.pop();
                }
                [node, rest @ ..] => {
                    *level = rest;
                    match node {
                        Node::Leaf(entries) => self.leaf = entries,
                        Node::Inner(inner, _) => self.path.push(&inner.children),
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn compare(entry: &Entry, score: f64, number: u32) -> Ordering {
        entry.score.total_cmp(&score).then(entry.number.cmp(&number))
    }

    /// Whether inner nodes tell of their children what is so.
    fn is_told_truly(node: &Node) -> bool {
        let Node::Inner(inner, count) = node else { return true };
        let lasts = inner.children.iter().map(Node::last);
        inner.children.iter().all(is_told_truly)
            && lasts.eq(inner.lasts.iter().copied())
            && inner.children.iter().map(Node::len).sum::<usize>() == *count
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn it_is_a_sorted_list(actions in prop::collection::vec((0u8..3, 0i32..50, any::<u32>()), 0..4000), grows: bool) {
            let (mut tree, mut model): (Ordered, Vec<Entry>) = (Ordered::default(), Vec::new());
            for (action, score, number) in actions {
                let score = f64::from(score);
                if action == 0 || (action == 1 && grows) {
                    let rank = tree.rank(|entry| compare(entry, score, number));
                    prop_assert_eq!(rank, model.partition_point(|entry| compare(entry, score, number).is_lt()));
                    tree.insert(rank, Entry { score, number });
                    model.insert(rank, Entry { score, number });
                } else if !model.is_empty() {
                    let rank = number as usize % model.len();
                    prop_assert_eq!(tree.remove(rank), model.remove(rank));
                }
                prop_assert_eq!(tree.len(), model.len());
                prop_assert!(is_told_truly(&tree.root));
            }
            prop_assert_eq!(tree.iter_from(0).collect::<Vec<_>>(), model.clone());
            for rank in (0..=model.len()).step_by(37) {
                prop_assert_eq!(tree.get(rank), model.get(rank).copied());
                prop_assert_eq!(tree.iter_from(rank).count(), model.len() - rank);
            }
        }
    }

    #[test]
    fn entries_in_order_fill_leaves() {
        let mut tree = Ordered::default();
        for number in 0..100_000 {
            tree.insert(tree.len(), Entry { score: f64::from(number), number });
        }
        assert!(tree.bytes() < 100_000 * 14, "{}", tree.bytes());
        assert_eq!(tree.rank(|entry| entry.score.total_cmp(&54_321.0)), 54_321);
        for rank in (0..100_000u32).step_by(7) {
            tree.renumber(rank as usize, 7);
            assert_eq!(tree.get(rank as usize), Some(Entry { score: f64::from(rank), number: 7 }));
        }
        assert!(is_told_truly(&tree.root));
    }
}
