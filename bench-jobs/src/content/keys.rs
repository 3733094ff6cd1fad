//! Which keys there are, who may write them, in which order they come, and what they are called.
//!
//! Keys are numbers from 0 to `key_space` − 1, or a slice of these where several load processes share the key space. Client
//! *i* of *n* owns the keys *k* of the slice with (*k* − first) mod *n* = *i*: only it writes them, so the last version
//! that was acknowledged is known without asking anyone. Clients read keys of their own thread, whose versions can be
//! looked up without a lock; over all clients that is the same distribution. With fewer keys than clients
//! ([`KeySpace::is_shared`]) there are not enough keys to go round and every client of the process writes and reads all of
//! them; the check is then weaker (see [`crate::content::expect`]).

use std::ops::Range;
use std::rc::Rc;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use storebench_crds::workload::KeyOrder;

use crate::content::seeds::mix;

/// The most digits that a key's number has.
const DIGITS_MAX: usize = 10;

/// The arithmetic of ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpace {
    first: u32,
    keys: u32,
    clients: u32,
    shared: bool,
}

impl KeySpace {
    /// `keys` keys, owned by `clients` clients; both are taken as at least 1.
    pub fn new(keys: u32, clients: u32) -> Self {
        Self::with_batches(keys, clients, 1)
    }

    /// The same for clients that write `batch` different keys at once: shared as well if some client owns fewer.
    pub fn with_batches(keys: u32, clients: u32, batch: u32) -> Self {
        let (keys, clients) = (keys.max(1), clients.max(1));
        Self { first: 0, keys, clients, shared: keys / clients < batch.max(1) }
    }

    /// The same for clients of one load process of several, whose slice of the keys this is.
    pub fn slice(keys: Range<u32>, clients: u32, batch: u32) -> Self {
        Self { first: keys.start, ..Self::with_batches(keys.end.saturating_sub(keys.start), clients, batch) }
    }

    /// The keys there are.
    pub fn range(self) -> Range<u32> {
        self.first..self.first + self.keys
    }

    /// Whether a key is one of them.
    pub fn contains(self, key: u32) -> bool {
        self.range().contains(&key)
    }

    /// How many keys there are.
    pub fn keys(self) -> u32 {
        self.keys
    }

    /// How many clients share them.
    pub fn clients(self) -> u32 {
        self.clients
    }

    /// Whether there are too few keys to go round, so that all clients write all keys in the measured phase.
    pub fn is_shared(self) -> bool {
        self.shared
    }

    /// How many keys a client owns. When the space is shared, the owner only prepares and verifies the key.
    pub fn owned(self, client: u32) -> u32 {
        if client >= self.keys {
            return 0;
        }
        (self.keys - client).div_ceil(self.clients)
    }
}

/// The keys that one thread may touch, and their *slots*: their places in the thread's [`crate::content::expect::Ledger`].
///
/// Slots are dense. Where the space is shared, a slot is a key's place among all keys of the space.
#[derive(Debug)]
pub struct ThreadKeys {
    space: KeySpace,
    clients: Vec<u32>,
    slots: u32,
}

impl ThreadKeys {
    /// `clients`: the numbers of this thread's clients, rising.
    pub fn new(space: KeySpace, clients: Vec<u32>) -> Self {
        let slots = match space.is_shared() {
            true => space.keys,
            false => clients.iter().map(|&client| space.owned(client)).sum(),
        };
        Self { space, clients, slots }
    }

    /// The whole space.
    pub fn space(&self) -> KeySpace {
        self.space
    }

    /// How many slots this thread has.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// The key in a slot. Clients' keys are interleaved: slot = round · clients of this thread + place of the client, and
    /// in the last, incomplete round it is the first places that have a key, because clients rise.
    #[inline]
    pub fn key(&self, slot: u32) -> u32 {
        if self.space.is_shared() {
            return self.space.first + slot;
        }
        let here = self.clients.len().max(1) as u32;
        self.space.first + self.clients[(slot % here) as usize] + slot / here * self.space.clients
    }

    /// The slot of the `round`-th key that the client in `place` of this thread owns.
    #[inline]
    fn slot(&self, place: u32, round: u32) -> u32 {
        match self.space.is_shared() {
            true => self.clients[place as usize] + round * self.space.clients,
            false => round * self.clients.len() as u32 + place,
        }
    }

    /// The slot of a key; `None` if this thread may not touch it. The inverse of [`ThreadKeys::key`].
    pub fn slot_of(&self, key: u32) -> Option<u32> {
        let number = key.checked_sub(self.space.first).filter(|number| *number < self.space.keys)?;
        if self.space.is_shared() {
            return Some(number);
        }
        let place = self.clients.binary_search(&(number % self.space.clients)).ok()?;
        Some(self.slot(place as u32, number / self.space.clients))
    }

    /// The slots of all keys that the client in `place` of this thread (0 is the first) owns: what it prepares and
    /// verifies.
    pub fn owned_slots(self: &Rc<Self>, place: u32) -> impl Iterator<Item = u32> + Clone + use<> {
        let keys = Rc::clone(self);
        let rounds = keys.clients.get(place as usize).map_or(0, |&client| keys.space.owned(client));
        (0..rounds).map(move |round| keys.slot(place, round))
    }
}

/// Draws keys for one client, in the order the workload asks for.
#[derive(Debug)]
pub struct KeyPicker {
    keys: Rc<ThreadKeys>,
    order: KeyOrder,
    place: u32,
    owned: u32,
    next: u32,
    random: SmallRng,
}

impl KeyPicker {
    /// For the client in `place` of this thread (0 is the first). The same seed draws the same keys.
    pub fn new(keys: &Rc<ThreadKeys>, place: u32, order: KeyOrder, seed: u64) -> Self {
        let client = keys.clients.get(place as usize).copied().unwrap_or_default();
        Self {
            keys: Rc::clone(keys),
            order,
            place,
            owned: keys.space.owned(client),
            next: 0,
            random: SmallRng::seed_from_u64(mix(seed, u64::from(client))),
        }
    }

    /// The slot of the next key to write: one that this client owns; any, where the space is shared.
    #[inline]
    pub fn slot_to_write(&mut self) -> u32 {
        if self.keys.space.is_shared() {
            return self.draw(self.keys.slots);
        }
        let round = self.draw(self.owned);
        self.keys.slot(self.place, round)
    }

    /// The slot of the next key to read: at random any of this thread's keys; in sequence those that this client owns.
    #[inline]
    pub fn slot_to_read(&mut self) -> u32 {
        match self.order {
            KeyOrder::Random => self.random.random_range(0..self.keys.slots.max(1)),
            KeyOrder::Sequential => self.slot_to_write(),
        }
    }

    /// Whether the next of a mix is a read: true in `percent` of 100 draws.
    #[inline]
    pub fn is_read(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    #[inline]
    fn draw(&mut self, below: u32) -> u32 {
        match self.order {
            KeyOrder::Random => self.random.random_range(0..below.max(1)),
            KeyOrder::Sequential => {
                let drawn = self.next;
                self.next = if drawn + 1 >= below { 0 } else { drawn + 1 };
                drawn
            }
        }
    }
}

/// Writes keys' names: a prefix, then the number with as many leading zeros as the length asks for.
#[derive(Clone, Debug)]
pub struct KeyNames {
    template: Vec<u8>,
    prefix_bytes: usize,
}

impl KeyNames {
    /// Names of `key_bytes` bytes; longer if the prefix and ten digits need more.
    pub fn new(prefix: &str, key_bytes: usize) -> Self {
        Self::with_digits(prefix, key_bytes, DIGITS_MAX)
    }

    /// The same where no key has more than `digits` digits, of which there are at most ten.
    pub fn with_digits(prefix: &str, key_bytes: usize, digits: usize) -> Self {
        let key_bytes = key_bytes.max(prefix.len() + digits.min(DIGITS_MAX));
        let mut template = prefix.as_bytes().to_vec();
        template.resize(key_bytes, b'0');
        Self { template, prefix_bytes: prefix.len() }
    }

    /// Length of every name, bytes.
    pub fn key_bytes(&self) -> usize {
        self.template.len()
    }

    /// Appends a key's name.
    #[inline]
    pub fn write(&self, key: u32, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.template);
        let mut rest = key;
        for digit in into.iter_mut().rev().take(DIGITS_MAX) {
            if rest == 0 {
                break;
            }
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    }

    /// A key's name.
    pub fn name(&self, key: u32) -> Vec<u8> {
        let mut name = Vec::with_capacity(self.template.len());
        self.write(key, &mut name);
        name
    }

    /// A key's name for a message.
    pub fn text(&self, key: u32) -> String {
        String::from_utf8_lossy(&self.name(key)).into_owned()
    }

    /// The key that a name belongs to; `None` for a name that [`KeyNames::write`] did not make.
    #[inline]
    pub fn read_back(&self, name: &[u8]) -> Option<u32> {
        if name.len() != self.template.len() || name[..self.prefix_bytes] != self.template[..self.prefix_bytes] {
            return None;
        }
        name[self.prefix_bytes..].iter().try_fold(0u32, |number, &digit| {
            let digit = digit.is_ascii_digit().then(|| u32::from(digit - b'0'))?;
            number.checked_mul(10)?.checked_add(digit)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn threads(keys: u32, clients: u32, threads: u32) -> Vec<Rc<ThreadKeys>> {
        let space = KeySpace::new(keys, clients);
        let of = |thread| (0..clients).filter(|client| client % threads == thread).collect();
        (0..threads).map(|thread| Rc::new(ThreadKeys::new(space, of(thread)))).collect()
    }

    proptest! {
        #[test]
        fn every_key_has_exactly_one_owner(keys in 1u32..500, clients in 1u32..60, count in 1u32..5) {
            let count = count.min(clients);
            let mut owned = BTreeSet::new();
            for thread in threads(keys, clients, count) {
                for place in 0..thread.clients.len() as u32 {
                    for slot in thread.owned_slots(place) {
                        prop_assert!(slot < thread.slots());
                        prop_assert_eq!(thread.key(slot) % clients, thread.clients[place as usize]);
                        prop_assert!(owned.insert(thread.key(slot)), "two owners");
                    }
                }
            }
            prop_assert_eq!(owned, (0..keys).collect::<BTreeSet<_>>());
        }

        #[test]
        fn a_slot_and_its_key_find_each_other(
            first in 0u32..100, keys in 1u32..500, clients in 1u32..60, count in 1u32..5, batch in 1u32..9,
        ) {
            let space = KeySpace::slice(first..first + keys, clients, batch);
            let count = count.min(clients);
            let mut found = 0;
            for thread in 0..count {
                let of = (0..clients).filter(|client| client % count == thread).collect();
                let thread = Rc::new(ThreadKeys::new(space, of));
                for key in 0..first + keys + 10 {
                    if let Some(slot) = thread.slot_of(key) {
                        prop_assert!(space.contains(key));
                        prop_assert_eq!(thread.key(slot), key);
                        found += 1;
                    }
                }
                for place in 0..thread.clients.len() as u32 {
                    for slot in thread.owned_slots(place) {
                        prop_assert_eq!((thread.key(slot) - first) % clients, thread.clients[place as usize]);
                        prop_assert_eq!(thread.slot_of(thread.key(slot)), Some(slot));
                    }
                }
            }
            prop_assert_eq!(found, if space.is_shared() { keys * count } else { keys });
        }

        #[test]
        fn slots_of_a_thread_are_dense(keys in 1u32..500, clients in 1u32..60, count in 1u32..5) {
            let count = count.min(clients);
            for thread in threads(keys, clients, count) {
                let in_slots: BTreeSet<u32> = (0..thread.slots()).map(|slot| thread.key(slot)).collect();
                prop_assert_eq!(in_slots.len(), thread.slots() as usize);
                prop_assert!(in_slots.iter().all(|key| *key < keys));
            }
        }

        #[test]
        fn writers_stay_with_their_own(keys in 1u32..500, clients in 1u32..60, seed: u64) {
            let thread = &threads(keys, clients, 1)[0];
            for order in [KeyOrder::Random, KeyOrder::Sequential] {
                for place in 0..clients {
                    let mut picker = KeyPicker::new(thread, place, order, seed);
                    for _ in 0..20 {
                        let key = thread.key(picker.slot_to_write());
                        prop_assert!(key < keys && (thread.space().is_shared() || key % clients == place));
                        prop_assert!(thread.key(picker.slot_to_read()) < keys);
                    }
                }
            }
        }

        #[test]
        fn names_read_back(key: u32, key_bytes in 0usize..64) {
            let names = KeyNames::new("key:", key_bytes);
            let name = names.name(key);
            prop_assert_eq!(name.len(), names.key_bytes());
            prop_assert_eq!(names.read_back(&name), Some(key));
        }

        #[test]
        fn foreign_names_do_not(name: Vec<u8>) {
            let names = KeyNames::new("key:", 16);
            prop_assert_eq!(names.read_back(&name).map(|key| names.name(key)), names.read_back(&name).map(|_| name));
        }
    }

    #[test]
    fn random_order_spreads_over_the_key_space() {
        // 200 draws of each of 1,000 keys expected; a binomial count stays within 5 standard deviations (±70).
        for (pick, what) in
            [(KeyPicker::slot_to_write as fn(&mut KeyPicker) -> u32, "writes"), (KeyPicker::slot_to_read, "reads")]
        {
            let mut drawn = vec![0u32; 1_000];
            for thread in threads(1_000, 50, 2) {
                for place in 0..25 {
                    let mut picker = KeyPicker::new(&thread, place, KeyOrder::Random, 42);
                    for _ in 0..4_000 {
                        drawn[thread.key(pick(&mut picker)) as usize] += 1;
                    }
                }
            }
            let (least, most) = (drawn.iter().min().unwrap(), drawn.iter().max().unwrap());
            assert!(*least > 130 && *most < 270, "{what}: {least} to {most}");
        }
    }

    #[test]
    fn sequence_visits_every_key_once_before_any_twice() {
        let mut drawn = vec![0u32; 103];
        for thread in threads(103, 7, 3) {
            for place in 0..thread.clients.len() as u32 {
                let mut picker = KeyPicker::new(&thread, place, KeyOrder::Sequential, 1);
                for _ in 0..thread.owned_slots(place).count() {
                    drawn[thread.key(picker.slot_to_write()) as usize] += 1;
                }
            }
        }
        assert_eq!(drawn, vec![1; 103]);
    }

    #[test]
    fn seeds_and_clients_draw_differently() {
        let thread = &threads(10_000, 1, 1)[0];
        let draw = |seed| {
            let mut picker = KeyPicker::new(thread, 0, KeyOrder::Random, seed);
            (0..10).map(|_| picker.slot_to_write()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn names_look_as_those_of_redis_benchmark() {
        assert_eq!(KeyNames::new("key:", 16).text(42), "key:000000000042");
    }
}
