//! The order of a sorted set: scores with element numbers, in a tree of counted nodes.
//!
//! A B+ tree without keys of its own: leaves hold (score, number) in 12 bytes and inner nodes hold their children's counts, so that
//! rank, an element by rank, insertion and removal take logarithmic time. Elements of one score are ordered by their member, which
//! the caller's comparison looks up by number.

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
#[derive(Clone, Copy, Debug)]
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

#[derive(Debug)]
enum Node {
    Leaf(Vec<Packed>),
    /// Children, and how many entries they have in all.
    Inner(Vec<Node>, usize),
}

impl Node {
    fn len(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Inner(_, count) => *count,
        }
    }

    fn last(&self) -> Option<Entry> {
        match self {
            Self::Leaf(entries) => entries.last().copied().map(Entry::from),
            Self::Inner(children, _) => children.last()?.last(),
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
            Self::Inner(children, count) => {
                *count += 1;
                let (mut place, mut rank) = (0, rank);
                while place + 1 < children.len() && rank > children[place].len() {
                    rank -= children[place].len();
                    place += 1;
                }
                let right = children[place].insert(rank, entry)?;
                if children.len() == children.capacity() {
                    children.reserve_exact(INNER_STEP);
                }
                children.insert(place + 1, right);
                if children.len() <= INNER_MAX {
                    return None;
                }
                let at = if place + 2 == children.len() { INNER_MAX } else { INNER_MAX / 2 };
                let right = children.split_off(at);
                let moved = right.iter().map(Self::len).sum();
                *count -= moved;
                Some(Self::Inner(right, moved))
            }
        }
    }

    fn remove(&mut self, rank: usize) -> Entry {
        match self {
            Self::Leaf(entries) => entries.remove(rank).into(),
            Self::Inner(children, count) => {
                *count -= 1;
                let (mut place, mut rank) = (0, rank);
                while rank >= children[place].len() {
                    rank -= children[place].len();
                    place += 1;
                }
                let entry = children[place].remove(rank);
                merge(children, place);
                entry
            }
        }
    }
}

/// Joins a child that has become small with a neighbour.
fn merge(children: &mut Vec<Node>, place: usize) {
    if children[place].len() == 0 {
        children.remove(place);
        return;
    }
    let left = if place + 1 < children.len() { place } else { place.saturating_sub(1) };
    if left + 1 >= children.len() {
        return;
    }
    let (before, after) = children.split_at_mut(left + 1);
    let joins = match (&mut before[left], &mut after[0]) {
        (Node::Leaf(one), Node::Leaf(other)) if one.len() + other.len() <= LEAF_MAX / 2 => {
            one.append(other);
            true
        }
        (Node::Inner(one, count), Node::Inner(other, more)) if one.len() + other.len() <= INNER_MAX / 2 => {
            one.append(other);
            *count += *more;
            true
        }
        _ => false,
    };
    if joins {
        children.remove(left + 1);
    }
}

/// See the module's description.
#[derive(Debug)]
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
                Node::Inner(children, _) => {
                    // The first child that does not lie before as a whole.
                    let place = children.partition_point(|child| child.last().is_some_and(|entry| is_before(&entry)));
                    rank += children[..place].iter().map(Node::len).sum::<usize>();
                    match children.get(place) {
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
            let count = self.root.len() + right.len();
            let left = std::mem::replace(&mut self.root, Node::Leaf(Vec::new()));
            self.root = Node::Inner(vec![left, right], count);
        }
    }

    /// Removes what has a rank, which must be below [`Ordered::len`].
    pub fn remove(&mut self, rank: usize) -> Entry {
        let entry = self.root.remove(rank);
        while let Node::Inner(children, _) = &mut self.root
            && children.len() <= 1
        {
            self.root = children.pop().unwrap_or(Node::Leaf(Vec::new()));
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
                Node::Inner(children, _) => {
                    let mut place = 0;
                    while rank >= children[place].len() {
                        rank -= children[place].len();
                        place += 1;
                    }
                    node = &mut children[place];
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
                Node::Inner(children, _) => {
                    let mut place = 0;
                    while place + 1 < children.len() && rank >= children[place].len() {
                        rank -= children[place].len();
                        place += 1;
                    }
                    iter.path.push(&children[place + 1..]);
                    node = &children[place];
                }
            }
        }
    }

    /// Bytes it takes.
    pub fn bytes(&self) -> usize {
        fn of(node: &Node) -> usize {
            match node {
                Node::Leaf(entries) => entries.capacity() * size_of::<Packed>(),
                Node::Inner(children, _) => {
                    children.capacity() * size_of::<Node>() + children.iter().map(of).sum::<usize>()
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
                        Node::Inner(children, _) => self.path.push(children),
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
        tree.renumber(54_321, 7);
        assert_eq!(tree.get(54_321), Some(Entry { score: 54_321.0, number: 7 }));
    }
}
