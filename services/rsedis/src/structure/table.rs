//! A hash table that never stops the server: it grows and shrinks a bucket at a time, and SCAN survives it.
//!
//! Elements lie densely in a slab of pieces, so that nothing large is ever copied, iteration is a loop, and a random
//! element is one draw. An index of 64-byte buckets finds them:
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 12 | a tag per place: eight bits of the hash, never zero; zero marks a free place |
//! | 12 | 48 | twelve places: element numbers |
//! | 60 | 4 | the next bucket of the chain in the overflow, plus one; zero for none |
//!
//! Removing an element moves the last one into its number; [`Removed::moved`] tells who keeps numbers elsewhere. To whom a move is dear
//! [`Table::vacate`] leaves a place that no element has, and [`Table::refill`] gives it to the next.
//! While the index is resized both exist, and every insertion, removal and [`Table::step`] moves one bucket.
//!
//! SCAN uses the reverse binary cursor of Redis's `dictScan`: every element that is there from the first call to the last
//! is returned at least once, whatever resizes happen in between.

use thin::Bytes;

use crate::hash;

/// Something with a key.
pub trait Element {
    /// What it is found by.
    fn key(&self) -> &[u8];
}

impl Element for Bytes {
    #[inline]
    fn key(&self) -> &[u8] {
        self.as_slice()
    }
}

type Bucket = [u32; 16];

const PLACES: usize = 12;
const NEXT: usize = 15;
/// The index grows when it has more elements per bucket than this.
const LOAD_MAX: usize = 10;
/// The index shrinks when it has fewer elements per bucket than this.
const LOAD_MIN: usize = 2;
const PIECE_BITS: usize = 9;
const PIECE: usize = 1 << PIECE_BITS;

#[inline]
fn tag_of(hash: u64) -> u8 {
    ((hash >> 56) as u8).max(1)
}

#[inline]
fn tag_at(bucket: &Bucket, place: usize) -> u8 {
    (bucket[place / 4] >> (place % 4 * 8)) as u8
}

/// The places that have a tag, from the first on: all twelve are compared at once.
#[inline]
fn places_of(bucket: &Bucket, tag: u8) -> impl Iterator<Item = usize> + use<> {
    const ONES: u128 = 0x0101_0101_0101_0101_0101_0101;
    let tags = u128::from(bucket[0]) | u128::from(bucket[1]) << 32 | u128::from(bucket[2]) << 64;
    let difference = tags ^ (u128::from(tag) * ONES);
    // A bit in each byte that is zero; bytes above the first may be marked in error.
    let mut marks = difference.wrapping_sub(ONES) & !difference & (ONES << 7);
    let marked = std::iter::from_fn(move || {
        let place = (marks != 0).then_some(marks.trailing_zeros() as usize / 8)?;
        marks &= marks - 1;
        Some(place)
    });
    marked.filter(move |&place| (tags >> (place * 8)) as u8 == tag)
}

fn set_tag(bucket: &mut Bucket, place: usize, tag: u8) {
    let shift = place % 4 * 8;
    let word = &mut bucket[place / 4];
    *word = *word & !(0xFF << shift) | u32::from(tag) << shift;
}

#[derive(Clone, Debug, Default)]
struct Index {
    /// A power of two, or none at all.
    buckets: Vec<Bucket>,
    overflow: Vec<Bucket>,
}

/// Where an element's number stands.
#[derive(Clone, Copy)]
struct Position {
    /// Bucket of the index, or of the overflow plus the number of buckets.
    bucket: usize,
    place: usize,
}

impl Index {
    fn new(buckets: usize) -> Self {
        Self { buckets: vec![[0; 16]; buckets], overflow: Vec::new() }
    }

    #[inline]
    fn at(&self, bucket: usize) -> &Bucket {
        match bucket.checked_sub(self.buckets.len()) {
            None => &self.buckets[bucket],
            Some(overflow) => &self.overflow[overflow],
        }
    }

    fn at_mut(&mut self, bucket: usize) -> &mut Bucket {
        match bucket.checked_sub(self.buckets.len()) {
            None => &mut self.buckets[bucket],
            Some(overflow) => &mut self.overflow[overflow],
        }
    }

    /// The bucket after this one in its chain.
    #[inline]
    fn next(&self, bucket: &Bucket) -> Option<usize> {
        (bucket[NEXT] as usize).checked_sub(1).map(|overflow| self.buckets.len() + overflow)
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    #[inline]
    fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<Position> {
        if self.buckets.is_empty() {
            return None;
        }
        let mut number = self.home(hash);
        loop {
            let bucket = self.at(number);
            if let Some(place) = places_of(bucket, tag_of(hash)).find(|place| is_it(bucket[3 + place])) {
                return Some(Position { bucket: number, place });
            }
            number = self.next(bucket)?;
        }
    }

    fn insert(&mut self, hash: u64, element: u32) {
        let mut number = self.home(hash);
        loop {
            let bucket = self.at_mut(number);
            if let Some(place) = places_of(bucket, 0).next() {
                set_tag(bucket, place, tag_of(hash));
                bucket[3 + place] = element;
                return;
            }
            number = match self.next(self.at(number)) {
                Some(next) => next,
                None => {
                    self.overflow.push([0; 16]);
                    let link = self.overflow.len() as u32;
                    self.at_mut(number)[NEXT] = link;
                    self.buckets.len() + self.overflow.len() - 1
                }
            };
        }
    }

    fn clear_at(&mut self, position: Position) {
        set_tag(self.at_mut(position.bucket), position.place, 0);
    }

    /// Calls for every element number in a chain.
    fn each(&self, home: usize, mut call: impl FnMut(u32)) {
        let mut number = home;
        loop {
            let bucket = self.at(number);
            for place in 0..PLACES {
                if tag_at(bucket, place) != 0 {
                    call(bucket[3 + place]);
                }
            }
            match self.next(bucket) {
                Some(next) => number = next,
                None => return,
            }
        }
    }

    /// Empties a chain. Its overflow stays linked, and is freed with the index.
    fn clear(&mut self, home: usize) {
        let mut number = home;
        loop {
            let next = self.next(self.at(number));
            self.at_mut(number)[..3].fill(0);
            match next {
                Some(next) => number = next,
                None => return,
            }
        }
    }

    fn bytes(&self) -> usize {
        (self.buckets.capacity() + self.overflow.capacity()) * size_of::<Bucket>()
    }
}

/// What a removal did.
#[derive(Debug)]
pub struct Removed<E> {
    /// The element.
    pub element: E,
    /// The element that had this number has the removed one's number now.
    pub moved: Option<u32>,
}

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Table<E> {
    pieces: Vec<Vec<E>>,
    len: usize,
    /// Of those, what nobody finds.
    vacant: usize,
    index: Index,
    /// While resizing: the index before, and its first bucket that has not been moved.
    before: Option<(Index, usize)>,
}

impl<E> Default for Table<E> {
    fn default() -> Self {
        Self { pieces: Vec::new(), len: 0, vacant: 0, index: Index::default(), before: None }
    }
}

impl<E: Element> Table<E> {
    /// Elements in it, and vacated places.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a resize is under way.
    pub fn is_resizing(&self) -> bool {
        self.before.is_some()
    }

    /// An element by its number, which must be below [`Table::len`].
    #[inline]
    pub fn get(&self, number: u32) -> &E {
        &self.pieces[number as usize >> PIECE_BITS][number as usize & (PIECE - 1)]
    }

    /// The same, to change it. Its key must stay the same.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> &mut E {
        &mut self.pieces[number as usize >> PIECE_BITS][number as usize & (PIECE - 1)]
    }

    /// All elements, by number.
    pub fn iter(&self) -> impl Iterator<Item = &E> {
        self.pieces.iter().flatten()
    }

    /// The number of the element with a key.
    #[inline]
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        let (position, is_before) = self.position(hash, |number| self.get(number).key() == key)?;
        Some(self.index_of(is_before).at(position.bucket)[3 + position.place])
    }

    /// Reads the bucket where an element with this hash would be, and nothing else: what comes back means nothing. Whoever asks for
    /// several elements in a row has the processor fetch them at the same time, where one search after the other would wait for
    /// each.
    #[inline]
    pub fn touch(&self, hash: u64) -> u32 {
        if self.index.buckets.is_empty() { 0 } else { self.index.buckets[self.index.home(hash)][0] }
    }

    /// An element in that bucket which may be the one with this hash: a guess, for who touches further.
    #[inline]
    pub fn guess(&self, hash: u64) -> Option<&E> {
        if self.index.buckets.is_empty() {
            return None;
        }
        let bucket = &self.index.buckets[self.index.home(hash)];
        let place = places_of(bucket, tag_of(hash)).next()?;
        Some(self.get(bucket[3 + place]))
    }

    fn index_of(&self, is_before: bool) -> &Index {
        match &self.before {
            Some((index, _)) if is_before => index,
            _ => &self.index,
        }
    }

    fn index_of_mut(&mut self, is_before: bool) -> &mut Index {
        match &mut self.before {
            Some((index, _)) if is_before => index,
            _ => &mut self.index,
        }
    }

    #[inline]
    fn position(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<(Position, bool)> {
        if let Some(position) = self.index.find(hash, &is_it) {
            return Some((position, false));
        }
        let (before, _) = self.before.as_ref()?;
        before.find(hash, is_it).map(|position| (position, true))
    }

    /// Adds an element whose key is not there yet; its number.
    pub fn insert(&mut self, hash: u64, element: E) -> u32 {
        debug_assert!(self.find(hash, element.key()).is_none(), "the key is there already");
        assert!(self.len < u32::MAX as usize, "a table has at most 2^32 - 1 elements");
        self.make_room();
        let number = self.len as u32;
        if self.len.is_multiple_of(PIECE) {
            // The first piece grows as it must, so that small tables are small.
            self.pieces.push(if self.len == 0 { Vec::new() } else { Vec::with_capacity(PIECE) });
        }
        if let Some(piece) = self.pieces.last_mut() {
            piece.push(element);
        }
        self.len += 1;
        self.index.insert(hash, number);
        number
    }

    /// Removes the element with a key.
    pub fn remove(&mut self, hash: u64, key: &[u8]) -> Option<Removed<E>> {
        self.remove_number(hash, self.find(hash, key)?)
    }

    /// The same of the element with a number, for who knows it already: no other element is looked at.
    pub fn remove_number(&mut self, hash: u64, number: u32) -> Option<Removed<E>> {
        let (position, is_before) = self.position(hash, |candidate| candidate == number)?;
        self.index_of_mut(is_before).clear_at(position);
        let last = self.len as u32 - 1;
        let moved = (number != last).then_some(last);
        if moved.is_some() {
            self.renumber_last(number);
        }
        let mut element = self.pop()?;
        if moved.is_some() {
            std::mem::swap(self.get_mut(number), &mut element);
        }
        self.shrink();
        Some(Removed { element, moved })
    }

    /// Removes the element with a number and moves none: `filler`, which is found by nobody, has its place, and is among all
    /// elements, until [`Table::refill`], [`Table::fill`] or [`Table::cut`].
    pub fn vacate(&mut self, hash: u64, number: u32, filler: E) -> Option<E> {
        let (position, is_before) = self.position(hash, |candidate| candidate == number)?;
        self.index_of_mut(is_before).clear_at(position);
        self.vacant += 1;
        let element = std::mem::replace(self.get_mut(number), filler);
        self.shrink();
        Some(element)
    }

    /// Puts an element whose key is not there yet into a place that has been vacated.
    pub fn refill(&mut self, hash: u64, number: u32, element: E) {
        debug_assert!(self.find(hash, element.key()).is_none(), "the key is there already");
        self.make_room();
        *self.get_mut(number) = element;
        self.vacant -= 1;
        self.index.insert(hash, number);
    }

    /// Moves the last element, which must not be a filler, into a place that has been vacated.
    pub fn fill(&mut self, number: u32) {
        self.renumber_last(number);
        if let Some(element) = self.pop() {
            *self.get_mut(number) = element;
            self.vacant -= 1;
        }
    }

    /// The last element is found by another number.
    fn renumber_last(&mut self, number: u32) {
        let last = self.len as u32 - 1;
        let hash = hash::of(self.get(last).key());
        if let Some((position, is_before)) = self.position(hash, |candidate| candidate == last) {
            self.index_of_mut(is_before).at_mut(position.bucket)[3 + position.place] = number;
        }
    }

    /// Takes the last place, which must have been vacated, away.
    pub fn cut(&mut self) {
        if self.pop().is_some() {
            self.vacant -= 1;
        }
    }

    fn pop(&mut self) -> Option<E> {
        let piece = self.pieces.last_mut()?;
        let element = piece.pop()?;
        if piece.is_empty() {
            self.pieces.pop();
        }
        self.len -= 1;
        Some(element)
    }

    /// Elements in the index.
    fn found(&self) -> usize {
        self.len - self.vacant
    }

    fn make_room(&mut self) {
        if self.index.buckets.is_empty() {
            self.index = Index::new(1);
        }
        if self.before.is_some() {
            self.step();
        } else if self.found() >= self.index.buckets.len() * LOAD_MAX {
            let larger = Index::new(self.index.buckets.len() * 2);
            self.before = Some((std::mem::replace(&mut self.index, larger), 0));
            self.step();
        }
    }

    fn shrink(&mut self) {
        if self.before.is_some() {
            self.step();
        } else if self.index.buckets.len() > 1 && self.found() < self.index.buckets.len() * LOAD_MIN {
            let smaller = Index::new(self.index.buckets.len() / 2);
            self.before = Some((std::mem::replace(&mut self.index, smaller), 0));
            self.step();
        }
    }

    /// Moves one bucket, if a resize is under way.
    pub fn step(&mut self) {
        let Some((before, from)) = &mut self.before else { return };
        let (index, pieces) = (&mut self.index, &self.pieces);
        before.each(*from, |number| {
            let element = &pieces[number as usize >> PIECE_BITS][number as usize & (PIECE - 1)];
            index.insert(hash::of(element.key()), number);
        });
        before.clear(*from);
        *from += 1;
        if *from == before.buckets.len() {
            self.before = None;
        }
    }

    /// Visits the elements of one step of a SCAN; the cursor to go on with, zero at the end.
    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(&E)) -> u64 {
        if self.index.buckets.is_empty() {
            return 0;
        }
        let visit = &mut |number| visit(self.get(number));
        let Some((before, _)) = &self.before else {
            let mask = self.index.buckets.len() as u64 - 1;
            self.index.each((cursor & mask) as usize, visit);
            return advance(cursor, mask);
        };
        let (small, large) = match before.buckets.len() < self.index.buckets.len() {
            true => (before, &self.index),
            false => (&self.index, before),
        };
        let (small_mask, large_mask) = (small.buckets.len() as u64 - 1, large.buckets.len() as u64 - 1);
        small.each((cursor & small_mask) as usize, &mut *visit);
        // All buckets of the larger index that the smaller one's bucket expands to.
        let mut cursor = cursor;
        loop {
            large.each((cursor & large_mask) as usize, &mut *visit);
            cursor = advance(cursor, large_mask);
            if cursor & (small_mask ^ large_mask) == 0 {
                return cursor;
            }
        }
    }

    /// Bytes of the table itself, without what its elements own.
    pub fn bytes(&self) -> usize {
        let before = self.before.as_ref().map_or(0, |(index, _)| index.bytes());
        let pieces: usize = self.pieces.iter().map(|piece| piece.capacity() * size_of::<E>()).sum();
        self.index.bytes() + before + pieces + self.pieces.capacity() * size_of::<Vec<E>>()
    }
}

/// The next cursor: the bits under the mask, counted up from the highest.
fn advance(cursor: u64, mask: u64) -> u64 {
    (cursor | !mask).reverse_bits().wrapping_add(1).reverse_bits()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeSet, HashMap};

    type Words = Table<Box<[u8]>>;

    impl Element for Box<[u8]> {
        fn key(&self) -> &[u8] {
            self
        }
    }

    fn name(number: u32) -> Box<[u8]> {
        format!("name:{number}").into_bytes().into()
    }

    fn insert(table: &mut Words, key: Box<[u8]>) -> u32 {
        table.insert(hash::of(&key), key)
    }

    proptest! {
        /// Against a set, with numbers tracked as those who keep them do.
        #[test]
        fn it_is_a_set(actions in prop::collection::vec((any::<bool>(), 0u32..400), 0..3000)) {
            let mut table = Words::default();
            let mut model: HashMap<Box<[u8]>, u32> = HashMap::new();
            for (adds, key) in actions {
                let key = name(key);
                let hash = hash::of(&key);
                prop_assert_eq!(table.find(hash, &key), model.get(&key).copied());
                if adds && !model.contains_key(&key) {
                    model.insert(key.clone(), insert(&mut table, key));
                } else if !adds && model.contains_key(&key) {
                    let removed = table.remove(hash, &key).unwrap();
                    prop_assert_eq!(&removed.element, &key);
                    let number = model.remove(&key).unwrap();
                    if let Some(moved) = removed.moved {
                        for known in model.values_mut().filter(|known| **known == moved) {
                            *known = number;
                        }
                    }
                }
                prop_assert_eq!(table.len(), model.len());
            }
            let found: BTreeSet<_> = table.iter().cloned().collect();
            let expected: BTreeSet<_> = model.into_keys().collect();
            prop_assert_eq!(found, expected);
        }

        /// What is there all the time is seen, while others come and go and the table grows and shrinks.
        #[test]
        fn scan_misses_nothing(seed in 0u32..1000, swings in prop::collection::vec((0u32..3000, any::<bool>()), 1..30)) {
            let mut table = Words::default();
            let stay: BTreeSet<_> = (0..100).map(|number| name(1_000_000 + seed * 1000 + number)).collect();
            for key in &stay {
                insert(&mut table, key.clone());
            }
            let (mut seen, mut cursor, mut passing) = (BTreeSet::new(), 0, 0);
            for round in 0.. {
                cursor = table.scan(cursor, |key| { seen.insert(key.clone()); });
                if cursor == 0 {
                    break;
                }
                prop_assert!(round < 100_000, "the scan ends");
                let (count, grows) = swings[round % swings.len()];
                for _ in 0..count {
                    if grows && passing < 20_000 {
                        insert(&mut table, name(passing));
                        passing += 1;
                    } else if passing > 0 {
                        passing -= 1;
                        let key = name(passing);
                        table.remove(hash::of(&key), &key).unwrap();
                    }
                }
            }
            prop_assert!(stay.is_subset(&seen));
        }
    }

    #[test]
    fn a_resize_ends_before_the_next_one_is_due() {
        let mut table = Words::default();
        for number in 0..100_000 {
            insert(&mut table, name(number));
        }
        let load = table.len() as f64 / table.index.buckets.len() as f64;
        assert!(load <= LOAD_MAX as f64, "{load}");
        for number in 0..100_000 {
            table.remove(hash::of(&name(number)), &name(number)).unwrap();
        }
        assert!(table.index.buckets.len() <= 4 && table.pieces.is_empty(), "it gives back what it does not need");
    }

    #[test]
    fn a_bucket_is_a_cache_line() {
        assert_eq!(size_of::<Bucket>(), 64);
    }
}
