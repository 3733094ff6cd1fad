//! A sorted set: members and scores packed in order, or a table of members with a tree of their order.

use std::cmp::Ordering;

use thin::Bytes;

use super::Packing;
use crate::hash;
use crate::number::{double_text, integer_text, parse_double};
use crate::structure::listpack::{Item, Listpack};
use crate::structure::ordered::{Entry, Ordered};
use crate::structure::room::room_for;
use crate::structure::table::{Element, Table};

/// A score (8 bytes, little-endian) and its member in one piece of memory; nothing in a vacant place.
#[derive(Clone, Debug)]
pub struct Member(Option<Bytes>);

const SCORE: usize = 8;
const VACANT: Member = Member(None);
/// Vacant places for each member.
const VACANT_MAX: usize = 8;

impl Member {
    fn new(score: f64, member: &[u8]) -> Self {
        Self(Some(Bytes::bytes(0, [&score.to_le_bytes(), member])))
    }

    fn is_vacant(&self) -> bool {
        self.0.is_none()
    }

    fn score(&self) -> f64 {
        let first = self.0.as_ref().and_then(|bytes| bytes.as_slice().first_chunk());
        first.map_or(0.0, |score| f64::from_le_bytes(*score))
    }

    fn set_score(&mut self, score: f64) {
        if let Some(bytes) = &mut self.0 {
            bytes.as_mut_slice()[..SCORE].copy_from_slice(&score.to_le_bytes());
        }
    }

    fn memory(&self) -> usize {
        self.0.as_ref().map_or(0, |bytes| room_for(bytes.allocated()))
    }
}

impl Element for Member {
    #[inline]
    fn key(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |bytes| &bytes.as_slice()[SCORE..])
    }
}

/// Members by name, and their order.
///
/// Who gets another number must be found in the order, by its score and its name: that costs more than all else of a removal. So a
/// removal leaves a vacant place, which the next member takes, and moves others only where a ninth of the places would be taken. (Redis
/// keeps a table of as many places until a tenth of them is.)
#[derive(Clone, Debug, Default)]
pub struct Tree {
    members: Table<Member>,
    order: Ordered,
    /// Numbers that nobody had when they were written down. Those that are not vacant any more count for nothing.
    vacant: Vec<u32>,
}

/// See the module's description.
#[derive(Clone, Debug)]
pub enum Zset {
    /// Members and scores in turn, in order.
    Packed(Listpack),
    /// Both ways.
    Tree(Box<Tree>),
}

impl Default for Zset {
    fn default() -> Self {
        Self::Packed(Listpack::default())
    }
}

/// How a member's bytes stand to others.
pub fn compare_member(member: Item<'_>, other: &[u8]) -> Ordering {
    match member {
        Item::Bytes(bytes) => bytes.cmp(other),
        Item::Integer(number) => itoa::Buffer::new().format(number).as_bytes().cmp(other),
    }
}

fn compare_scores(one: f64, other: f64) -> Ordering {
    // Never NaN; both zeros are equal.
    one.partial_cmp(&other).unwrap_or(Ordering::Equal)
}

fn score_of(item: Item<'_>) -> f64 {
    match item {
        Item::Integer(number) => number as f64,
        Item::Bytes(text) => parse_double(text).unwrap_or(0.0),
    }
}

impl Tree {
    /// By name.
    pub fn members(&self) -> &Table<Member> {
        &self.members
    }

    fn rank(&self, score: f64, member: &[u8]) -> usize {
        self.order.rank(|entry| {
            compare_scores(entry.score, score).then_with(|| self.members.get(entry.number).key().cmp(member))
        })
    }

    fn insert(&mut self, member: &[u8], score: f64) {
        let rank = self.rank(score, member);
        let (hash, element) = (hash::of(member), Member::new(score, member));
        let number = match self.next_vacant() {
            Some(number) => {
                self.members.refill(hash, number, element);
                number
            }
            None => self.members.insert(hash, element),
        };
        self.order.insert(rank, Entry { score, number });
    }

    /// A vacant place, which is not listed any more.
    fn next_vacant(&mut self) -> Option<u32> {
        loop {
            let number = self.vacant.pop()?;
            if (number as usize) < self.members.len() && self.members.get(number).is_vacant() {
                return Some(number);
            }
        }
    }

    fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let hash = hash::of(member);
        let number = self.members.find(hash, member)?;
        let score = self.members.get(number).score();
        self.order.remove(self.rank(score, member));
        self.remove_member(hash, number);
        Some(score)
    }

    /// Removes what has a rank, without searching for it.
    fn remove_at(&mut self, rank: usize) {
        let number = self.order.remove(rank).number;
        self.remove_member(hash::of(self.members.get(number).key()), number);
    }

    /// Removes a member that has no place in the order any more.
    fn remove_member(&mut self, hash: u64, number: u32) {
        self.members.vacate(hash, number, VACANT);
        self.vacant.push(number);
        while self.vacant.len() > VACANT_MAX * self.order.len() {
            let Some(vacant) = self.next_vacant() else { break };
            self.fill(vacant);
        }
        if self.vacant.capacity() > 4 * self.vacant.len() + 64 {
            self.vacant.shrink_to(2 * self.vacant.len());
        }
    }

    /// Moves the last member into a vacant place, and takes what is vacant behind it away.
    fn fill(&mut self, vacant: u32) {
        let mut last = self.members.len() as u32 - 1;
        while self.members.get(last).is_vacant() {
            self.members.cut();
            if last == vacant {
                return;
            }
            last -= 1;
        }
        let member = self.members.get(last);
        let rank = self.rank(member.score(), member.key());
        self.members.fill(vacant);
        self.order.renumber(rank, vacant);
    }

    fn rescore(&mut self, number: u32, score: f64) {
        let member = self.members.get(number);
        let before = self.rank(member.score(), member.key());
        self.order.remove(before);
        let rank = self.rank(score, self.members.get(number).key());
        self.order.insert(rank, Entry { score, number });
        self.members.get_mut(number).set_score(score);
    }
}

impl Zset {
    /// The name of its encoding.
    pub fn encoding(&self) -> &'static str {
        match self {
            Self::Packed(_) => "listpack",
            Self::Tree(_) => "skiplist",
        }
    }

    /// Members in it.
    pub fn len(&self) -> usize {
        match self {
            Self::Packed(pack) => pack.len() / 2,
            Self::Tree(tree) => tree.order.len(),
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory, nearly.
    pub fn memory(&self) -> usize {
        match self {
            Self::Packed(pack) => pack.capacity(),
            Self::Tree(tree) => {
                let members: usize = tree.members.iter().map(Member::memory).sum();
                let vacant = tree.vacant.capacity() * size_of::<u32>();
                size_of_val(&**tree) + tree.members.bytes() + tree.order.bytes() + members + vacant
            }
        }
    }

    /// A member's score.
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match self {
            Self::Packed(pack) => find(pack, member).map(|at| score_of(pack.get(pack.next(at)))),
            Self::Tree(tree) => {
                let number = tree.members.find(hash::of(member), member)?;
                Some(tree.members.get(number).score())
            }
        }
    }

    /// A score as text, as its encoding keeps it.
    pub fn score_text(&self, score: f64) -> Vec<u8> {
        match self {
            Self::Packed(_) => packed_score(score),
            Self::Tree(_) => double_text(score),
        }
    }

    /// Sets a member's score, which is not NaN.
    pub fn insert(&mut self, member: &[u8], score: f64, packing: &Packing) {
        if let Self::Packed(pack) = self {
            let before = find(pack, member);
            let len = pack.len() / 2 + usize::from(before.is_none());
            if before.is_some() || (len <= packing.zset_entries && member.len() <= packing.zset_bytes) {
                if let Some(at) = before {
                    pack.remove(at);
                    pack.remove(at);
                }
                insert_packed(pack, member, score);
                return;
            }
            self.unpack();
        }
        if let Self::Tree(tree) = self {
            match tree.members.find(hash::of(member), member) {
                Some(number) => tree.rescore(number, score),
                None => tree.insert(member, score),
            }
        }
    }

    /// Removes a member; its score.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        match self {
            Self::Packed(pack) => {
                let at = find(pack, member)?;
                let score = score_of(pack.get(pack.next(at)));
                pack.remove(at);
                pack.remove(at);
                Some(score)
            }
            Self::Tree(tree) => tree.remove(member),
        }
    }

    /// How many members come before some place: `is_before` is true for those, and false for all behind.
    pub fn partition(&self, is_before: impl Fn(Item<'_>, f64) -> bool) -> usize {
        match self {
            Self::Packed(pack) => {
                let mut rank = 0;
                let mut items = pack.iter();
                while let (Some(member), Some(score)) = (items.next(), items.next())
                    && is_before(member, score_of(score))
                {
                    rank += 1;
                }
                rank
            }
            Self::Tree(tree) => tree.order.rank(|entry| {
                let member = Item::Bytes(tree.members.get(entry.number).key());
                if is_before(member, entry.score) { Ordering::Less } else { Ordering::Greater }
            }),
        }
    }

    /// A member's rank.
    pub fn rank(&self, member: &[u8]) -> Option<usize> {
        let score = self.score(member)?;
        Some(match self {
            Self::Packed(_) => self
                .partition(|other, its| compare_scores(its, score).then_with(|| compare_member(other, member)).is_lt()),
            Self::Tree(tree) => tree.rank(score, member),
        })
    }

    /// Calls for members of ranks from (included) to (not included), in order.
    pub fn range(&self, from: usize, to: usize, mut call: impl FnMut(Item<'_>, f64)) {
        match self {
            Self::Packed(pack) => {
                let mut items = pack.iter().skip(from * 2);
                for _ in from..to {
                    if let (Some(member), Some(score)) = (items.next(), items.next()) {
                        call(member, score_of(score));
                    }
                }
            }
            Self::Tree(tree) => {
                for entry in tree.order.iter_from(from).take(to.saturating_sub(from)) {
                    call(Item::Bytes(tree.members.get(entry.number).key()), entry.score);
                }
            }
        }
    }

    /// The same, backwards.
    pub fn range_reversed(&self, from: usize, to: usize, mut call: impl FnMut(Item<'_>, f64)) {
        match self {
            Self::Packed(pack) => {
                let mut places = Vec::new();
                let mut at = pack.first();
                while at != pack.end() {
                    places.push(at);
                    at = pack.next(pack.next(at));
                }
                for &at in places.get(from..to.min(places.len())).unwrap_or_default().iter().rev() {
                    call(pack.get(at), score_of(pack.get(pack.next(at))));
                }
            }
            Self::Tree(tree) => {
                let entries: Vec<Entry> = tree.order.iter_from(from).take(to.saturating_sub(from)).collect();
                for entry in entries.iter().rev() {
                    call(Item::Bytes(tree.members.get(entry.number).key()), entry.score);
                }
            }
        }
    }

    /// What has a rank.
    pub fn at(&self, rank: usize) -> Option<(Vec<u8>, f64)> {
        let mut found = None;
        self.range(rank, rank + 1, |member, score| found = Some((member.to_vec(), score)));
        found
    }

    /// Removes members of ranks from (included) to (not included); how many.
    pub fn remove_range(&mut self, from: usize, to: usize) -> usize {
        let to = to.min(self.len());
        if from >= to {
            return 0;
        }
        match self {
            Self::Packed(pack) => {
                let (first, end) = (pack.seek(from as i64 * 2), pack.seek(to as i64 * 2));
                pack.remove_range(first.unwrap_or(pack.end()), end.unwrap_or(pack.end()));
            }
            Self::Tree(tree) => (from..to).for_each(|_| tree.remove_at(from)),
        }
        to - from
    }

    /// One step of a SCAN.
    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(Item<'_>, f64)) -> u64 {
        match self {
            Self::Packed(_) => {
                self.range(0, self.len(), visit);
                0
            }
            Self::Tree(tree) => tree.members.scan(cursor, |member| visit(Item::Bytes(member.key()), member.score())),
        }
    }

    /// Packed, if it is small enough.
    pub fn into_packed(self, packing: &Packing) -> Self {
        let mut is_small = self.len() <= packing.zset_entries;
        let mut packed = Listpack::default();
        if is_small {
            self.range(0, self.len(), |member, score| {
                let member = member.to_vec();
                is_small &= member.len() <= packing.zset_bytes;
                packed.push_back(&member);
                packed.push_back(&packed_score(score));
            });
        }
        if is_small { Self::Packed(packed) } else { self }
    }

    /// Makes it a tree, if it is none.
    pub fn unpack(&mut self) {
        if let Self::Packed(_) = self {
            let mut tree = Box::<Tree>::default();
            self.range(0, self.len(), |member, score| {
                let member = member.to_vec();
                let number = tree.members.insert(hash::of(&member), Member::new(score, &member));
                tree.order.insert(tree.order.len(), Entry { score, number });
            });
            *self = Self::Tree(tree);
        }
    }
}

/// A score's text in a listpack, where, as in Redis, whole numbers are written as such, so that a zero has no sign.
fn packed_score(score: f64) -> Vec<u8> {
    const WHOLE_MAX: f64 = 4_611_686_018_427_387_904.0;
    match score.abs() <= WHOLE_MAX && score.fract() == 0.0 {
        true => integer_text(score as i64),
        false => double_text(score),
    }
}

/// The position of a member.
fn find(pack: &Listpack, member: &[u8]) -> Option<usize> {
    let mut at = pack.first();
    while at != pack.end() {
        if pack.get(at).is(member) {
            return Some(at);
        }
        at = pack.next(pack.next(at));
    }
    None
}

/// Inserts a member that is not there in its order.
fn insert_packed(pack: &mut Listpack, member: &[u8], score: f64) {
    let mut at = pack.first();
    while at != pack.end() {
        let behind = pack.next(at);
        let order = compare_scores(score_of(pack.get(behind)), score);
        if order.then_with(|| compare_member(pack.get(at), member)).is_gt() {
            break;
        }
        at = pack.next(behind);
    }
    pack.insert(at, &packed_score(score));
    pack.insert(at, member);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn both_encodings_are_a_sorted_map(actions in prop::collection::vec((any::<bool>(), 0u32..120, -20i32..20), 0..600)) {
            let never = Packing { zset_entries: 0, ..Packing::default() };
            let always = Packing { zset_entries: 10_000, ..Packing::default() };
            let (mut tree, mut packed, mut model) = (Zset::default(), Zset::default(), BTreeMap::new());
            for (adds, member, score) in actions {
                let (member, score) = (member.to_string().into_bytes(), f64::from(score) / 4.0);
                if adds {
                    tree.insert(&member, score, &never);
                    packed.insert(&member, score, &always);
                    model.insert(member, score);
                } else {
                    let expected = model.remove(&member);
                    prop_assert_eq!(tree.remove(&member), expected);
                    prop_assert_eq!(packed.remove(&member), expected);
                }
            }
            let mut expected: Vec<(Vec<u8>, f64)> = model.into_iter().collect();
            expected.sort_by(|one, other| one.1.total_cmp(&other.1).then_with(|| one.0.cmp(&other.0)));
            for set in [&mut tree, &mut packed] {
                let mut expected = expected.clone();
                let mut found = Vec::new();
                set.range(0, set.len(), |member, score| found.push((member.to_vec(), score)));
                prop_assert_eq!(&found, &expected);
                found.clear();
                set.range_reversed(0, set.len(), |member, score| found.insert(0, (member.to_vec(), score)));
                prop_assert_eq!(&found, &expected);
                for (rank, (member, score)) in expected.iter().enumerate() {
                    prop_assert_eq!(set.rank(member), Some(rank));
                    prop_assert_eq!(set.score(member), Some(*score));
                }
                let cut = expected.len() / 3;
                prop_assert_eq!(set.remove_range(cut, cut * 2), cut);
                prop_assert_eq!(set.len(), expected.len() - cut);
                expected.drain(cut..cut * 2);
                let (mut scanned, mut cursor) = (Vec::new(), 0);
                while {
                    cursor = set.scan(cursor, |member, score| scanned.push((member.to_vec(), score)));
                    cursor != 0
                } {}
                scanned.sort_by(|one, other| one.1.total_cmp(&other.1).then_with(|| one.0.cmp(&other.0)));
                prop_assert_eq!(&scanned, &expected);
            }
        }
    }

    /// In order, as those who take the first, and by chance; and who comes meanwhile takes what is vacant.
    #[test]
    fn who_is_removed_leaves_few_places_for_each_member() {
        let never = Packing { zset_entries: 0, ..Packing::default() };
        let name = |number: u32| (number * 7919 % 10_007).to_string().into_bytes();
        for from in [|_: usize| 0, |len: usize| len / 2, |len: usize| len - 1] {
            let mut zset = Zset::default();
            (0..10_000).for_each(|number| zset.insert(&name(number), 0.0, &never));
            let most = zset.memory();
            for left in (0..10_000).rev() {
                let rank = from(zset.len());
                assert_eq!(zset.remove_range(rank, rank + 1), 1);
                if left % 8 == 0 {
                    zset.insert(b"another", 0.0, &never);
                    assert_eq!(zset.remove(b"another"), Some(0.0));
                }
                let Zset::Tree(tree) = &zset else { panic!("it is a tree") };
                assert_eq!(tree.order.len(), left);
                assert!(tree.members.len() <= 9 * left, "{} places of {left}", tree.members.len());
                assert!(tree.vacant.capacity() <= 4 * tree.vacant.len() + 128, "{}", tree.vacant.capacity());
            }
            assert!(zset.memory() < most / 100, "{}", zset.memory());
        }
    }
}
