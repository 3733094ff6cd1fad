//! Which objects must be there at the end, and in which version: what the API server has acknowledged.
//!
//! Pure. Shared by all threads; a lock is taken once for each acknowledged request, which takes a thousand times longer.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Acknowledged objects by name, with their versions.
#[derive(Debug, Default)]
pub struct Expected(Mutex<BTreeMap<String, u64>>);

impl Expected {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        // Whoever panicked meanwhile has ended the job.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An object was created or changed.
    pub fn set(&self, name: &str, version: u64) {
        self.lock().insert(name.into(), version);
    }

    /// An object was deleted.
    pub fn remove(&self, name: &str) {
        self.lock().remove(name);
    }

    /// The version of an object; `None` where it was deleted or never created.
    pub fn version(&self, name: &str) -> Option<u64> {
        self.lock().get(name).copied()
    }

    /// Compares with what is there: `judge` says what is wrong with an object in the version that is expected of it.
    /// Returns how many were right, and what was wrong: name, and what was expected and found.
    pub fn compare<T>(
        &self,
        found: impl IntoIterator<Item = (String, T)>,
        judge: impl Fn(&str, u64, &T) -> Option<String>,
    ) -> (u64, Vec<(String, String)>) {
        let mut missing = self.lock().clone();
        let (mut right, mut wrong) = (0, Vec::new());
        for (name, object) in found {
            match missing.remove(&name) {
                None => {
                    wrong.push((name, "expected nothing, found an object that was deleted or never created".into()))
                }
                Some(version) => match judge(&name, version, &object) {
                    None => right += 1,
                    Some(detail) => wrong.push((name, detail)),
                },
            }
        }
        wrong.extend(missing.into_iter().map(|(name, version)| {
            (name, format!("expected version {version}, which was acknowledged, found nothing"))
        }));
        (right, wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_changed_and_undead_objects_are_found() {
        let expected = Expected::default();
        for (name, version) in [("lost", 1), ("stale", 2), ("right", 3), ("undead", 1)] {
            expected.set(name, version);
        }
        expected.remove("undead");
        let found = [("stale", 1), ("right", 3), ("undead", 1)].map(|(name, version)| (name.to_owned(), version));
        let judge = |_: &str, expected: u64, found: &u64| (*found != expected).then(|| format!("found {found}"));
        let (right, wrong) = expected.compare(found, judge);
        assert_eq!(right, 1);
        let wrong: Vec<&str> = wrong.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(wrong, ["stale", "undead", "lost"]);
    }
}
