//! Ranges of keys, and which of them a key lies in: a treap by range whose nodes know how far their subtree reaches.

use std::cmp::Ordering;
use std::sync::Arc;

use super::super::keys::Keys;
use super::index::Watched;

/// Ranges, each with who is interested in it.
#[derive(Debug)]
pub struct Intervals {
    root: Link,
    /// Makes priorities: a count, well stirred. It begins where nobody knows: who knew the priorities could choose ranges that make a list of
    /// the tree, and walks through it would need more stack than there is.
    inserted: u64,
}

impl Default for Intervals {
    fn default() -> Self {
        Self { root: None, inserted: rand::random() }
    }
}

type Link = Option<Box<Node>>;

#[derive(Debug)]
struct Node {
    range: Range,
    /// Ends of all ranges here and below, the furthest of them.
    reach: End,
    priority: u64,
    left: Link,
    right: Link,
    who: Vec<u64>,
}

/// From the first, included, to the end, excluded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Range {
    start: Arc<[u8]>,
    end: End,
}

/// Where a range ends: the derived order has no end behind all keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// Shared by all nodes whose reach it is.
    Before(Arc<[u8]>),
    Never,
}

impl End {
    fn is_behind(&self, key: &[u8]) -> bool {
        match self {
            Self::Before(end) => *key < **end,
            Self::Never => true,
        }
    }
}

impl Range {
    fn of(watched: &Watched) -> Self {
        let end = match watched.keys() {
            Keys::One(key) => End::Before([key, &[0]].concat().into()),
            Keys::Between(..) => End::Before(Arc::clone(&watched.range_end)),
            Keys::From(_) => End::Never,
        };
        Self { start: Arc::clone(&watched.key), end }
    }
}

impl Intervals {
    /// Notes that somebody is interested in a range, and lets him share its keys with whoever is, too.
    pub fn insert(&mut self, watched: &mut Watched, who: u64) {
        self.inserted = self.inserted.wrapping_add(1);
        let range = Range::of(watched);
        if let Some(equal) = find(&self.root, &range) {
            watched.key = Arc::clone(&equal.start);
            if let End::Before(end) = &equal.end {
                watched.range_end = Arc::clone(end);
            }
        }
        let priority = stir(self.inserted);
        let (reach, left, right) = (range.end.clone(), None, None);
        insert(&mut self.root, Box::new(Node { range, reach, priority, left, right, who: vec![who] }));
    }

    /// Forgets it.
    pub fn remove(&mut self, watched: &Watched, who: u64) {
        remove(&mut self.root, &Range::of(watched), who);
    }

    /// Calls `found` for everybody who is interested in a key.
    pub fn stab(&self, key: &[u8], found: &mut impl FnMut(u64)) {
        stab(&self.root, key, found);
    }
}

/// The finaliser of splitmix64.
fn stir(count: u64) -> u64 {
    let mut word = count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

impl Node {
    fn measure(&mut self) {
        let below = [&self.left, &self.right].into_iter().flatten().map(|child| &child.reach);
        if let Some(reach) = below.chain([&self.range.end]).max() {
            self.reach = reach.clone();
        }
    }
}

/// The range that is equal to this one.
fn find<'a>(mut link: &'a Link, range: &Range) -> Option<&'a Range> {
    while let Some(node) = link {
        link = match range.cmp(&node.range) {
            Ordering::Equal => return Some(&node.range),
            Ordering::Less => &node.left,
            Ordering::Greater => &node.right,
        };
    }
    None
}

fn insert(link: &mut Link, new: Box<Node>) {
    let Some(node) = link else {
        *link = Some(new);
        return;
    };
    if new.reach > node.reach {
        node.reach = new.reach.clone();
    }
    match new.range.cmp(&node.range) {
        Ordering::Equal => node.who.extend(new.who),
        Ordering::Less => {
            insert(&mut node.left, new);
            if node.left.as_ref().is_some_and(|child| child.priority > node.priority) {
                rotate(link, |node| &mut node.left, |node| &mut node.right);
            }
        }
        Ordering::Greater => {
            insert(&mut node.right, new);
            if node.right.as_ref().is_some_and(|child| child.priority > node.priority) {
                rotate(link, |node| &mut node.right, |node| &mut node.left);
            }
        }
    }
}

/// Puts the child on one side into its parent's place.
fn rotate(link: &mut Link, side: fn(&mut Node) -> &mut Link, other: fn(&mut Node) -> &mut Link) {
    let Some(mut node) = link.take() else { return };
    if let Some(mut child) = side(&mut node).take() {
        *side(&mut node) = other(&mut child).take();
        node.measure();
        *other(&mut child) = Some(node);
        child.measure();
        *link = Some(child);
    } else {
        *link = Some(node);
    }
}

fn remove(link: &mut Link, range: &Range, who: u64) {
    let Some(node) = link else { return };
    match range.cmp(&node.range) {
        Ordering::Equal => {
            node.who.retain(|other| *other != who);
            if node.who.is_empty() {
                let (left, right) = (node.left.take(), node.right.take());
                *link = merge(left, right);
                return;
            }
        }
        Ordering::Less => remove(&mut node.left, range, who),
        Ordering::Greater => remove(&mut node.right, range, who),
    }
    node.measure();
}

/// Both, where all of the first lie before all of the second.
fn merge(left: Link, right: Link) -> Link {
    match (left, right) {
        (None, one) | (one, None) => one,
        (Some(mut left), Some(mut right)) => {
            if left.priority > right.priority {
                left.right = merge(left.right.take(), Some(right));
                left.measure();
                Some(left)
            } else {
                right.left = merge(Some(left), right.left.take());
                right.measure();
                Some(right)
            }
        }
    }
}

fn stab(link: &Link, key: &[u8], found: &mut impl FnMut(u64)) {
    let Some(node) = link.as_ref().filter(|node| node.reach.is_behind(key)) else { return };
    stab(&node.left, key, found);
    if *node.range.start <= *key {
        if node.range.end.is_behind(key) {
            node.who.iter().for_each(|who| found(*who));
        }
        stab(&node.right, key, found);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn depth(link: &Link) -> usize {
        link.as_ref().map_or(0, |node| 1 + depth(&node.left).max(depth(&node.right)))
    }

    proptest! {
        #[test]
        fn a_key_lies_in_the_ranges_that_a_list_says(
            ranges in proptest::collection::vec(("[a-d]{1,3}", prop_oneof![Just(String::from("\0")), "[a-e]{1,3}".boxed()]), 0..60),
            removed in proptest::collection::vec(any::<prop::sample::Index>(), 0..40),
            keys in proptest::collection::vec("[a-e]{1,4}", 20),
        ) {
            let mut intervals = Intervals::default();
            let mut list: Vec<_> = ranges.iter().enumerate().collect();
            for (who, (start, end)) in &list {
                intervals.insert(&mut Watched::new(start.as_bytes(), end.as_bytes()), *who as u64);
            }
            for at in removed {
                if !list.is_empty() {
                    let (who, (start, end)) = list.remove(at.index(list.len()));
                    intervals.remove(&Watched::new(start.as_bytes(), end.as_bytes()), who as u64);
                }
            }
            for key in keys {
                let mut found = Vec::new();
                intervals.stab(key.as_bytes(), &mut |who| found.push(who));
                found.sort_unstable();
                let expected: Vec<_> = list
                    .iter()
                    .filter(|(_, (start, end))| Keys::new(start.as_bytes(), end.as_bytes()).contains(key.as_bytes()))
                    .map(|(who, _)| *who as u64)
                    .collect();
                prop_assert_eq!(found, expected);
            }
        }
    }

    /// A client that counted along made a list of a hundred thousand nodes, and the server's stack ended on the way through it.
    #[test]
    fn ranges_that_were_chosen_for_their_priorities_make_no_deep_tree() {
        let mut by_priority: Vec<u64> = (1..20_001).collect();
        by_priority.sort_by_key(|count| std::cmp::Reverse(stir(*count)));
        let mut place = vec![0; by_priority.len()];
        (0..).zip(by_priority).for_each(|(at, count)| place[count as usize - 1] = at);
        let mut intervals = Intervals::default();
        for (who, at) in (0..).zip(place) {
            intervals.insert(&mut Watched::new(format!("{at:05}").as_bytes(), b"\0"), who);
        }
        assert!(depth(&intervals.root) < 80, "{}", depth(&intervals.root));
    }

    #[test]
    fn ranges_that_come_in_order_make_no_deep_tree() {
        let mut intervals = Intervals::default();
        for n in 0..10_000 {
            let key = format!("/registry/{n:05}/");
            intervals.insert(&mut Watched::new(key.as_bytes(), format!("/registry/{n:05}0").as_bytes()), n);
        }
        assert!(depth(&intervals.root) < 60, "{}", depth(&intervals.root));
    }
}
