//! Which keys were deleted: a deletion finds its key exactly once.
//!
//! Where keys have one owner, each answer is known beforehand: 1 for the first deletion of a key, 0 for each later one.
//! Where several clients delete the same keys, one of the answers must be 1 and which is open; that exactly one was is
//! known at the end.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use storebench_crds::workload::etcd::EtcdOperation;

use crate::content::keys::{KeySpace, ThreadKeys};

/// Deletions of a shared key space, one for all threads. Empty where keys have owners.
#[derive(Debug, Default)]
pub struct SharedDeletions {
    /// (answered, found) by key.
    keys: Vec<(AtomicU32, AtomicU32)>,
}

impl SharedDeletions {
    /// For all threads of one workload.
    pub fn new(space: KeySpace) -> Arc<Self> {
        let keys = if space.is_shared() { space.keys() } else { 0 };
        Arc::new(Self { keys: (0..keys).map(|_| Default::default()).collect() })
    }
}

/// One thread's view, by slot. All keys exist at first.
#[derive(Debug)]
pub struct Deletions {
    /// Whether a deletion was answered; empty where the space is shared and where nothing is deleted.
    owned: Vec<Cell<bool>>,
    shared: Arc<SharedDeletions>,
}

impl Deletions {
    /// For a thread's keys. Takes no memory for an operation that deletes nothing.
    pub fn new(keys: &Rc<ThreadKeys>, shared: Arc<SharedDeletions>, operation: EtcdOperation) -> Self {
        let deletes = operation == EtcdOperation::Delete && !keys.space().is_shared();
        let slots = if deletes { keys.slots() } else { 0 };
        Self { owned: vec![Cell::new(false); slots as usize], shared }
    }

    /// The store answered that a deletion of the key in `slot` found `found` keys. Errors: why that is wrong.
    pub fn answered(&self, slot: u32, found: i64) -> Result<(), String> {
        let wrong = |expected: &str| Err(format!("expected a deletion to find {expected}, it found {found}"));
        if let Some(deleted) = self.owned.get(slot as usize) {
            let expected = i64::from(!deleted.replace(true));
            return match found == expected {
                true => Ok(()),
                false => wrong(if expected == 1 { "1 key" } else { "0 keys, for it was deleted before" }),
            };
        }
        let Some((answered, found_so_far)) = self.shared.keys.get(slot as usize) else {
            return Ok(());
        };
        answered.fetch_add(1, Ordering::Relaxed);
        match found {
            0 => Ok(()),
            1 if found_so_far.fetch_add(1, Ordering::Relaxed) == 0 => Ok(()),
            1 => wrong("0 keys, for another deletion had found it"),
            _ => wrong("0 or 1 keys"),
        }
    }

    /// At the end: whether the key in `slot` was deleted. Errors: deletions were answered and none found it.
    pub fn is_deleted(&self, slot: u32) -> Result<bool, String> {
        if let Some(deleted) = self.owned.get(slot as usize) {
            return Ok(deleted.get());
        }
        let Some((answered, found)) = self.shared.keys.get(slot as usize) else {
            return Ok(false);
        };
        match (answered.load(Ordering::Relaxed), found.load(Ordering::Relaxed)) {
            (0, _) => Ok(false),
            (answered, 0) => Err(format!("expected one of {answered} deletions to find 1 key, none did")),
            _ => Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deletions(keys: u32, clients: u32) -> Deletions {
        let space = KeySpace::new(keys, clients);
        let keys = Rc::new(ThreadKeys::new(space, (0..clients).collect()));
        Deletions::new(&keys, SharedDeletions::new(space), EtcdOperation::Delete)
    }

    #[test]
    fn an_owned_key_is_found_exactly_the_first_time() {
        let deletions = deletions(10, 2);
        assert_eq!(deletions.is_deleted(3), Ok(false));
        assert_eq!(deletions.answered(3, 1), Ok(()));
        assert_eq!(deletions.answered(3, 0), Ok(()));
        assert_eq!(deletions.is_deleted(3), Ok(true));
        assert!(deletions.answered(3, 1).unwrap_err().contains("deleted before, it found 1"));
        assert!(deletions.answered(4, 0).unwrap_err().contains("find 1 key, it found 0"));
        assert!(deletions.answered(5, 2).is_err());
    }

    #[test]
    fn a_shared_key_is_found_by_exactly_one() {
        let deletions = deletions(2, 5);
        assert_eq!(deletions.answered(1, 0), Ok(()));
        assert!(deletions.is_deleted(1).is_err());
        assert_eq!(deletions.answered(1, 1), Ok(()));
        assert!(deletions.answered(1, 1).is_err());
        assert!(deletions.answered(0, 2).is_err());
        assert_eq!(deletions.is_deleted(1), Ok(true));
    }
}
