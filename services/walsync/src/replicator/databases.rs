//! The databases of a replicator: in the order in which they came, and each by its path. Who looks for new ones finds all of them again each
//! time, so that what is known already must be found without asking every other.

use super::Tracked;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A path that says in tests how often it was compared.
struct Key(PathBuf);

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        #[cfg(test)]
        tests::COMPARED.with(|compared| compared.set(compared.get() + 1));
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// Databases that are replicated, or refused.
#[derive(Default)]
pub struct Databases {
    all: Vec<Arc<Tracked>>,
    by_path: HashMap<Key, usize>,
}

impl Databases {
    /// The database at `path`, made where there was none; `None`: it is known already, and stays as it is.
    pub fn add(&mut self, path: PathBuf, make: impl FnOnce(PathBuf) -> Tracked) -> Option<Arc<Tracked>> {
        let Entry::Vacant(place) = self.by_path.entry(Key(path.clone())) else { return None };
        place.insert(self.all.len());
        let tracked = Arc::new(make(path));
        self.all.push(tracked.clone());
        Some(tracked)
    }

    /// Lets go of databases, and gives those.
    pub fn remove(&mut self, goes: impl Fn(&Tracked) -> bool) -> Vec<Arc<Tracked>> {
        let (gone, stay) = std::mem::take(&mut self.all).into_iter().partition(|tracked| goes(tracked));
        self.all = stay;
        let places = self.all.iter().enumerate();
        self.by_path = places.map(|(place, tracked)| (Key(tracked.path.clone()), place)).collect();
        gone
    }

    /// The database at `path`.
    pub fn get(&self, path: &Path) -> Option<Arc<Tracked>> {
        let place = self.by_path.get(&Key(path.to_owned()))?;
        self.all.get(*place).cloned()
    }

    /// All of them, in the order in which they came.
    pub fn all(&self) -> Vec<Arc<Tracked>> {
        self.all.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        pub static COMPARED: Cell<u64> = const { Cell::new(0) };
    }

    /// How many paths are compared when so many databases are found for the first time, and then once more.
    fn compared(count: u32) -> u64 {
        COMPARED.set(0);
        let mut databases = Databases::default();
        for look in 0..2 {
            for number in 0..count {
                let path = PathBuf::from(format!("/data/{number}.db"));
                let added =
                    databases.add(path.clone(), |path| Tracked::refused(path, String::new(), Default::default()));
                assert_eq!(added.is_some(), look == 0);
                assert_eq!(databases.get(&path).unwrap().path, path);
            }
        }
        assert!(databases.get(Path::new("/data/none.db")).is_none());
        let all = databases.all();
        assert!(
            all.len() == count as usize && all[1].path == Path::new("/data/1.db"),
            "in the order in which they came"
        );
        COMPARED.get()
    }

    #[test]
    fn a_look_for_new_databases_does_not_compare_each_with_all_others() {
        let (few, many) = (compared(1_000), compared(4_000));
        assert!(many <= 4 * few + 4_000, "{few} comparisons for 1,000 databases, {many} for 4,000");
        assert!(many < 20 * 4_000, "{many}");
    }
}
