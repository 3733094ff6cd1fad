//! What the store must answer: for every key the last version that was sent and the last that was acknowledged.
//!
//! A read that left after version *a* was acknowledged, and whose answer came when version *i* was the last sent, must
//! find one of *a* … *i*. Anything else is a wrong answer: an older version is a lost write or a stale read, a newer one
//! or foreign bytes are corruption, nothing at all is a lost key. Versions count from 1; 0 means never written. After
//! the measurement the same rule verifies every key: *a* = *i* unless its last write was never acknowledged.
//!
//! The rule is exact when keys have one owner. Where the key space is shared (fewer keys than clients) writes of
//! several clients race, the store orders them as it likes, and the rule weakens to: the value is one that some client
//! sent for that key, and a key that was ever acknowledged is there. Values below 8 bytes do not say their version; in
//! a shared space only their length is checked then.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::content::keys::{KeySpace, ThreadKeys};
use crate::content::values::{HEADER_BYTES, Values};

/// Versions of a shared key space, one for all threads. Empty where keys have owners.
#[derive(Debug, Default)]
pub struct SharedVersions(Vec<(AtomicU32, AtomicU32)>);

impl SharedVersions {
    /// For all threads of one workload.
    pub fn new(space: KeySpace) -> Arc<Self> {
        let keys = if space.is_shared() { space.keys() } else { 0 };
        Arc::new(Self((0..keys).map(|_| Default::default()).collect()))
    }
}

/// One thread's record of versions, by slot (see [`ThreadKeys`]). Shared by the thread's clients through [`Rc`].
#[derive(Debug)]
pub struct Ledger {
    keys: Rc<ThreadKeys>,
    /// (sent, acknowledged) by slot; empty where the space is shared.
    owned: Vec<Cell<(u32, u32)>>,
    /// (sent, acknowledged) by key; empty where keys have owners.
    shared: Arc<SharedVersions>,
}

/// An answer that cannot be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The key's number.
    pub key: u32,
    /// What was expected and found, in one line without the key's name.
    pub detail: String,
}

impl Ledger {
    /// `shared` is one for all threads of the workload.
    pub fn new(keys: Rc<ThreadKeys>, shared: Arc<SharedVersions>) -> Self {
        let owned = if keys.space().is_shared() { 0 } else { keys.slots() };
        Self { owned: vec![Cell::new((0, 0)); owned as usize], keys, shared }
    }

    /// The keys it keeps versions of.
    pub fn keys(&self) -> &Rc<ThreadKeys> {
        &self.keys
    }

    /// A new version of the key in `slot` is about to be sent: its number.
    #[inline]
    pub fn issue(&self, slot: u32) -> u32 {
        match self.owned.get(slot as usize) {
            Some(versions) => {
                let (sent, acknowledged) = versions.get();
                versions.set((sent.wrapping_add(1), acknowledged));
                sent.wrapping_add(1)
            }
            None => self.shared.0[slot as usize].0.fetch_add(1, Ordering::Relaxed).wrapping_add(1),
        }
    }

    /// The store acknowledged a version. Acknowledgements of one client come in the order it sent.
    #[inline]
    pub fn acknowledge(&self, slot: u32, version: u32) {
        match self.owned.get(slot as usize) {
            Some(versions) => versions.set((versions.get().0, version)),
            None => {
                self.shared.0[slot as usize].1.fetch_max(version, Ordering::Relaxed);
            }
        }
    }

    /// The last version sent; 0 if none.
    #[inline]
    pub fn sent(&self, slot: u32) -> u32 {
        match self.owned.get(slot as usize) {
            Some(versions) => versions.get().0,
            None => self.shared.0[slot as usize].0.load(Ordering::Relaxed),
        }
    }

    /// The last version acknowledged; 0 if none. A reader takes it before it sends and hands it to [`Ledger::check`].
    ///
    /// In a shared space acknowledgements do not order writes, so it is 1 there as soon as there was one.
    #[inline]
    pub fn floor(&self, slot: u32) -> u32 {
        match self.owned.get(slot as usize) {
            Some(versions) => versions.get().1,
            None => self.shared.0[slot as usize].1.load(Ordering::Relaxed).min(1),
        }
    }

    /// Checks an answer: `found` is the value, or `None` if the store had no such key; `floor` was taken before the read
    /// was sent.
    #[inline]
    pub fn check(&self, values: &Values, slot: u32, floor: u32, found: Option<&[u8]>) -> Result<(), Mismatch> {
        let key = self.keys.key(slot);
        // Nearly every answer is the version that was acknowledged when the read left.
        if let Some(found) = found
            && floor != 0
            && values.matches(key, floor, found)
        {
            return Ok(());
        }
        self.check_slowly(values, slot, key, floor, found)
    }

    #[cold]
    fn check_slowly(
        &self,
        values: &Values,
        slot: u32,
        key: u32,
        floor: u32,
        found: Option<&[u8]>,
    ) -> Result<(), Mismatch> {
        let sent = self.sent(slot);
        // Distances from the floor, so that a counter that wrapped around still compares.
        let span = sent.wrapping_sub(floor);
        let right = match found {
            None => floor == 0,
            Some(bytes) if values.value_bytes() >= HEADER_BYTES => values
                .read_back(bytes)
                .is_some_and(|(of, version)| of == key && version != 0 && version.wrapping_sub(floor) <= span),
            Some(bytes) if self.owned.is_empty() => bytes.len() == values.value_bytes() && sent != 0,
            Some(bytes) => (0..=span)
                .map(|step| floor.wrapping_add(step))
                .any(|version| version != 0 && values.matches(key, version, bytes)),
        };
        if right {
            return Ok(());
        }
        let expected = match (floor, sent) {
            (0, 0) => "nothing, for it was never written".into(),
            (0, sent) => format!("nothing or a version up to {sent}"),
            (floor, sent) if floor == sent => format!("version {floor}"),
            (floor, sent) => format!("a version from {floor} to {sent}"),
        };
        let found = found.map_or("no such key".into(), |bytes| values.describe(bytes));
        Err(Mismatch { key, detail: format!("expected {expected}, found {found}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ledger(keys: u32, clients: u32) -> Ledger {
        let space = KeySpace::new(keys, clients);
        let keys = Rc::new(ThreadKeys::new(space, (0..clients).collect()));
        Ledger::new(keys, SharedVersions::new(space))
    }

    fn value(values: &Values, key: u32, version: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        values.write(key, version, &mut bytes);
        bytes
    }

    proptest! {
        /// Against a model: exactly the versions from the floor to the last sent are right, and no other.
        #[test]
        fn exactly_the_possible_versions_are_right(
            writes in 0u32..8, unacknowledged in 0u32..4, found in proptest::option::of(0u32..14), length in 4u32..64,
        ) {
            let (ledger, values) = (ledger(10, 1), Values::new(3, length));
            for _ in 0..writes {
                let version = ledger.issue(5);
                ledger.acknowledge(5, version);
            }
            let floor = ledger.floor(5);
            for _ in 0..unacknowledged {
                ledger.issue(5);
            }
            let right = match found {
                None => writes == 0,
                Some(version) => version >= writes.max(1) && version <= writes + unacknowledged,
            };
            let bytes = found.map(|version| value(&values, 5, version));
            let checked = ledger.check(&values, 5, floor, bytes.as_deref());
            prop_assert_eq!(checked.is_ok(), right, "{:?}", checked);
        }

        #[test]
        fn no_bytes_make_it_stumble(length in 1u32..20, found: Vec<u8>, clients in 1u32..5) {
            let ledger = ledger(2, clients);
            ledger.issue(1);
            let _ = ledger.check(&Values::new(3, length), 1, ledger.floor(1), Some(&found));
        }
    }

    #[test]
    fn a_write_acknowledged_while_the_read_was_under_way_is_right() {
        let (ledger, values) = (ledger(10, 1), Values::new(3, 100));
        let first = ledger.issue(0);
        ledger.acknowledge(0, first);
        let floor = ledger.floor(0);
        let second = ledger.issue(0);
        ledger.acknowledge(0, second);
        for version in [first, second] {
            assert_eq!(ledger.check(&values, 0, floor, Some(&value(&values, 0, version))), Ok(()));
        }
        assert!(ledger.check(&values, 0, ledger.floor(0), Some(&value(&values, 0, first))).is_err());
    }

    #[test]
    fn messages_say_what_was_expected_and_found() {
        let (ledger, values) = (ledger(10, 1), Values::new(3, 100));
        let detail = |found: Option<&[u8]>| ledger.check(&values, 4, ledger.floor(4), found).unwrap_err().detail;
        assert_eq!(
            detail(Some(&value(&values, 4, 1))),
            "expected nothing, for it was never written, found version 1 of key 4"
        );
        for _ in 0..2 {
            let version = ledger.issue(4);
            ledger.acknowledge(4, version);
        }
        assert_eq!(detail(None), "expected version 2, found no such key");
        assert_eq!(detail(Some(&value(&values, 4, 1))), "expected version 2, found version 1 of key 4");
        assert_eq!(detail(Some(&value(&values, 6, 2))), "expected version 2, found version 2 of key 6");
        ledger.issue(4);
        assert_eq!(detail(None), "expected a version from 2 to 3, found no such key");
    }

    #[test]
    fn shared_keys_accept_any_version_that_someone_sent() {
        let (ledger, values) = (ledger(2, 50), Values::new(3, 100));
        let versions: Vec<u32> = (0..3).map(|_| ledger.issue(1)).collect();
        assert_eq!(ledger.check(&values, 1, ledger.floor(1), None), Ok(()));
        ledger.acknowledge(1, 3);
        for version in versions {
            assert_eq!(ledger.check(&values, 1, ledger.floor(1), Some(&value(&values, 1, version))), Ok(()));
        }
        assert!(ledger.check(&values, 1, ledger.floor(1), None).is_err());
        assert!(ledger.check(&values, 1, ledger.floor(1), Some(&value(&values, 1, 4))).is_err());
        assert!(ledger.check(&values, 1, ledger.floor(1), Some(&value(&values, 0, 1))).is_err());
    }

    #[test]
    fn a_counter_may_wrap_around() {
        let (ledger, values) = (ledger(10, 1), Values::new(3, 100));
        ledger.owned[0].set((u32::MAX, u32::MAX));
        let floor = ledger.floor(0);
        ledger.issue(0);
        let second = ledger.issue(0);
        assert_eq!(second, 1);
        assert_eq!(ledger.check(&values, 0, floor, Some(&value(&values, 0, second))), Ok(()));
        assert!(ledger.check(&values, 0, floor, Some(&value(&values, 0, 7))).is_err());
    }
}
