//! What a fault of the store leaves in doubt of the keys that one thread owns. Pure.
//!
//! Of a write that failed after it was sent nobody knows whether it was made: it may be found, and may also be made later, over a newer one that
//! was acknowledged. So a read must find what the [`Ledger`] says, or one of those in doubt. A store whose durability lets it lose, when it
//! is killed, what it has acknowledged may besides have any older version, or none, of a key that was not written since.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::content::expect::Ledger;
use crate::content::values::Values;

/// Why an answer is right that the ledger does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excuse {
    /// The version is one of which nobody knew whether it was written.
    WasInDoubt,
    /// The newest acknowledged write is lost, as it may be.
    MayBeLost,
}

/// One thread's, by slot.
#[derive(Debug)]
pub struct Doubts {
    may_lose: bool,
    unknown: RefCell<BTreeMap<u32, BTreeSet<u32>>>,
    /// Slots with a write that was acknowledged after the fault.
    safe: RefCell<BTreeSet<u32>>,
}

impl Doubts {
    /// No doubts yet. `may_lose`: the fault may take acknowledged writes with it.
    pub fn new(may_lose: bool) -> Self {
        Self { may_lose, unknown: RefCell::default(), safe: RefCell::default() }
    }

    /// Nobody knows whether this version was written.
    pub fn add(&self, slot: u32, version: u32) {
        self.unknown.borrow_mut().entry(slot).or_default().insert(version);
    }

    /// A version that was sent after the fault was acknowledged: what is acknowledged of this key must be there for whoever asks from now on.
    pub fn survived(&self, slot: u32) {
        if self.may_lose {
            self.safe.borrow_mut().insert(slot);
        }
    }

    /// Whether a read that is sent now may miss what was acknowledged of this key. A reader takes it before it sends and hands it to
    /// [`Doubts::judge`]: its answer may come after that of a write which the store had after it.
    pub fn may_miss(&self, slot: u32) -> bool {
        self.may_lose && !self.safe.borrow().contains(&slot)
    }

    /// Why an answer that the ledger finds wrong, for the reason in `detail`, is right all the same. `may_miss`: when it was asked for.
    /// Errors: it is wrong, and why.
    pub fn judge(
        &self,
        ledger: &Ledger,
        values: &Values,
        (slot, may_miss): (u32, bool),
        found: Option<&[u8]>,
        detail: String,
    ) -> Result<Excuse, String> {
        match self.excuse(ledger, values, (slot, may_miss), found) {
            Some(excuse) => Ok(excuse),
            None if is_older(ledger, values, slot, found) => {
                Err(format!("a write that was acknowledged is not there: {detail}"))
            }
            None => Err(detail),
        }
    }

    fn excuse(
        &self,
        ledger: &Ledger,
        values: &Values,
        (slot, may_miss): (u32, bool),
        found: Option<&[u8]>,
    ) -> Option<Excuse> {
        let key = ledger.keys().key(slot);
        let is_unknown = |found: &[u8]| {
            let unknown = self.unknown.borrow();
            unknown
                .get(&slot)
                .is_some_and(|versions| versions.iter().any(|version| values.matches(key, *version, found)))
        };
        if found.is_some_and(is_unknown) {
            return Some(Excuse::WasInDoubt);
        }
        (may_miss && is_older(ledger, values, slot, found)).then_some(Excuse::MayBeLost)
    }
}

/// Whether an answer is a version of the past, or none.
fn is_older(ledger: &Ledger, values: &Values, slot: u32, found: Option<&[u8]>) -> bool {
    ledger.check(values, slot, 0, found).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::expect::SharedVersions;
    use crate::content::keys::{KeySpace, ThreadKeys};
    use std::rc::Rc;

    const SLOT: u32 = 3;

    /// Three versions of a key, of which the second was never answered.
    fn written() -> (Ledger, Values, impl Fn(u32) -> Vec<u8>) {
        let space = KeySpace::new(10, 1);
        let ledger = Ledger::new(Rc::new(ThreadKeys::new(space, vec![0])), SharedVersions::new(space));
        for version in 1..=3 {
            assert_eq!(ledger.issue(SLOT), version);
            if version != 2 {
                ledger.acknowledge(SLOT, version);
            }
        }
        let key = ledger.keys().key(SLOT);
        let value = move |version| {
            let mut bytes = Vec::new();
            Values::new(5, 40).write(key, version, &mut bytes);
            bytes
        };
        (ledger, Values::new(5, 40), value)
    }

    #[test]
    fn a_write_of_unknown_outcome_may_be_found_and_no_other_of_the_past() {
        let (ledger, values, value) = written();
        let doubts = Doubts::new(false);
        let judge =
            |found: Option<&[u8]>| doubts.judge(&ledger, &values, (SLOT, doubts.may_miss(SLOT)), found, "other".into());
        let lost = || Err("a write that was acknowledged is not there: other".to_owned());
        assert_eq!(judge(Some(&value(2))), lost());
        doubts.add(SLOT, 2);
        assert_eq!(judge(Some(&value(2))), Ok(Excuse::WasInDoubt));
        assert_eq!([judge(Some(&value(1))), judge(None)], [lost(), lost()]);
        assert_eq!(judge(Some(b"something else")), Err("other".into()));
    }

    #[test]
    fn a_store_that_may_lose_writes_may_not_lose_those_after_the_fault() {
        let (ledger, values, value) = written();
        let doubts = Doubts::new(true);
        let judge = |may_miss: bool, found: Option<&[u8]>| {
            doubts.judge(&ledger, &values, (SLOT, may_miss), found, "other".into())
        };
        let asked_before = doubts.may_miss(SLOT);
        assert_eq!(judge(asked_before, Some(&value(1))), Ok(Excuse::MayBeLost));
        assert_eq!(
            judge(asked_before, Some(b"something else")),
            Err("other".into()),
            "what was never written is no loss"
        );
        doubts.survived(SLOT);
        assert_eq!(
            judge(asked_before, None),
            Ok(Excuse::MayBeLost),
            "the answer has come later than that to the write"
        );
        let asked_since = doubts.may_miss(SLOT);
        assert!(judge(asked_since, Some(&value(1))).is_err() && judge(asked_since, None).is_err());
    }
}
