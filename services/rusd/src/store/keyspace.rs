//! Keys and their versions, as etcd's `mvcc` has them: what is, what was, and what happened.
//!
//! Three trees share the records. `live` has the newest version of every key that exists: reads of now, and their counts, look
//! at nothing else. `history` has versions that were superseded, and tombstones, by key and revision: reads of the past merge it
//! with `live`. `log` has every change by revision: watchers catch up from it, and compaction walks along it.
//!
//! Worked example, after `put a` (revision 2), `put b` (3), `put a` (4), `delete a` (5):
//!
//! | | `live` | `history` | `log` |
//! | --- | --- | --- | --- |
//! | | b@3 | a@2 a@4 †a@5 | a@2 b@3 a@4 †a@5 |
//! | compacted at 4 | b@3 | a@4 †a@5 | a@4 †a@5 |
//! | compacted at 5 | b@3 | | †a@5 |
//!
//! A version falls out of `history` when what superseded it is at or below the compacted revision, a tombstone when it is itself.
//! The changes *of* the compacted revision stay in the log: a watch may begin there. Compaction is in force at once, and its
//! work is done in steps, see [`Keyspace::sweep`].
//!
//! A clone is a view that stays as it is; it costs a few references. Values may be in files, see [`cooling`] and [`super::spill`].

use std::cmp::Ordering;

use persistent_tree::{self as tree, Entry, Tree};

use super::error::Error;
use super::keys::Keys;
use super::record::{Put, Record, Revision};

mod cooling;
#[cfg(test)]
pub(super) mod model;
mod rebuild;
#[cfg(test)]
mod tests;
mod visible;

pub use rebuild::Rebuild;
pub use visible::Visible;

/// What a record costs besides its own bytes, about: its places in the trees.
const RECORD_OVERHEAD_BYTES: u64 = 96;

/// The newest version of a key, by key.
#[derive(Clone, Debug)]
struct Live(Record);

/// A version that is not the newest, or a tombstone: by key and revision.
#[derive(Clone, Debug)]
struct Past(Record);

/// A change, by revision.
#[derive(Clone, Debug)]
struct Change(Record);

impl Entry for Live {
    fn order(&self, other: &Self) -> Ordering {
        self.0.key().cmp(other.0.key())
    }
}

impl Entry for Past {
    fn order(&self, other: &Self) -> Ordering {
        self.against(other.0.key(), other.0.revision())
    }
}

impl Past {
    fn against(&self, key: &[u8], revision: Revision) -> Ordering {
        self.0.key().cmp(key).then_with(|| self.0.revision().cmp(&revision))
    }
}

impl Entry for Change {
    fn order(&self, other: &Self) -> Ordering {
        self.0.revision().cmp(&other.0.revision())
    }
}

/// Keys and their versions.
#[derive(Clone, Debug)]
pub struct Keyspace {
    live: Tree<Live>,
    history: Tree<Past>,
    log: Tree<Change>,
    revision: i64,
    compacted: i64,
    /// History is free of what the changes up to here superseded.
    swept: Revision,
    /// Whether that was the last change up to the compacted revision, which may have many.
    is_swept: bool,
    /// The log has all changes from here on.
    kept_from: i64,
    bytes: u64,
    /// See [`cooling`].
    hot_bytes: u64,
    aged: Tree<Change>,
    looked: Revision,
}

impl Default for Keyspace {
    fn default() -> Self {
        Self {
            live: Tree::default(),
            history: Tree::default(),
            log: Tree::default(),
            revision: 1,
            compacted: NEVER,
            swept: Revision { main: NEVER, sub: 0 },
            is_swept: true,
            kept_from: 0,
            bytes: 0,
            hot_bytes: 0,
            aged: Tree::default(),
            looked: Revision { main: NEVER, sub: 0 },
        }
    }
}

/// The compacted revision of a store that was never compacted, as etcd has it.
pub const NEVER: i64 = -1;

impl Keyspace {
    /// The revision of the newest change; 1 before any.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// Reads below this are refused; [`NEVER`] before any compaction.
    pub fn compacted(&self) -> i64 {
        self.compacted
    }

    /// The log has all changes from here on: those of the compacted revision at least, and more while they are not swept.
    pub fn kept_from(&self) -> i64 {
        self.kept_from
    }

    /// How much the records take, about, as if all of them were in memory.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many keys exist; a [bump](Record::bump) is one, as in etcd.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Whether no key exists.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// The revision that a request means: 0 and less mean now.
    pub fn at(&self, revision: i64) -> Result<i64, Error> {
        match revision {
            ..=0 => Ok(self.revision),
            _ if revision > self.revision => Err(Error::FutureRevision),
            _ if revision < self.compacted => Err(Error::Compacted),
            _ => Ok(revision),
        }
    }

    /// A key as it is.
    pub fn get(&self, key: &[u8]) -> Option<&Record> {
        self.live.get(|live| live.0.key().cmp(key)).map(|live| &live.0)
    }

    /// A key as it was at a revision that is not compacted.
    pub fn get_at(&self, key: &[u8], revision: i64) -> Option<&Record> {
        let now = self.get(key).filter(|record| record.main() <= revision);
        now.or_else(|| {
            let last = Revision { main: revision, sub: u32::MAX };
            let Past(record) = self.history.floor(|past| past.against(key, last))?;
            (record.key() == key && !record.is_tombstone()).then_some(record)
        })
    }

    /// The version before a change, unless that is compacted.
    pub fn previous(&self, change: &Record) -> Option<&Record> {
        let before = change.main() - 1;
        if before < self.compacted {
            return None;
        }
        self.get_at(change.key(), before)
    }

    /// Keys as they are (`None`) or were at a revision that is not compacted, in order.
    pub fn range<'a>(&'a self, keys: Keys<'a>, revision: i64) -> Visible<'a> {
        let live = self.live.iter_from(|live| keys_before(&keys, &live.0));
        if revision >= self.revision {
            Visible::now(live, keys)
        } else {
            let past = self.history.iter_from(|past| keys_before(&keys, &past.0));
            Visible::then(live, past, keys, revision)
        }
    }

    /// How many keys there are, or were at a revision that is not compacted. The past is walked through.
    pub fn count(&self, keys: Keys<'_>, revision: i64) -> usize {
        if revision < self.revision {
            return self.range(keys, revision).count();
        }
        let before = self.live.rank(|live| keys_before(&keys, &live.0));
        let through =
            self.live.rank(|live| if keys.locate(live.0.key()).is_gt() { Ordering::Greater } else { Ordering::Less });
        through.saturating_sub(before)
    }

    /// How many records a read of these keys looks at, about: at a revision of the past also those that were superseded since.
    pub fn len_about(&self, keys: Keys<'_>, revision: i64) -> usize {
        if matches!(keys, Keys::One(_)) {
            return 1;
        }
        let now = self.count(keys, self.revision);
        if revision <= 0 || revision >= self.revision {
            return now;
        }
        let before = self.history.rank(|past| keys_before(&keys, &past.0));
        let through = self
            .history
            .rank(|past| if keys.locate(past.0.key()).is_gt() { Ordering::Greater } else { Ordering::Less });
        now + through.saturating_sub(before)
    }

    /// The changes from a revision on, which must not be compacted, in order.
    pub fn changes(&self, from: i64) -> impl Iterator<Item = &Record> {
        let first = Revision { main: from, sub: 0 };
        self.log.iter_from(move |change| change.0.revision().cmp(&first)).map(|change| &change.0)
    }

    /// Begins a transaction: all of its changes have the next revision.
    pub fn write<'a>(&'a mut self, scratch: &'a mut Vec<u8>) -> Write<'a> {
        let next = Revision { main: self.revision + 1, sub: 0 };
        Write { space: self, next, scratch }
    }

    /// Refuses reads below a revision from now on.
    pub fn compact(&mut self, revision: i64) -> Result<(), Error> {
        if revision <= self.compacted {
            return Err(Error::Compacted);
        }
        if revision > self.revision {
            return Err(Error::FutureRevision);
        }
        self.compacted = revision;
        self.is_swept = false;
        Ok(())
    }

    /// Whether compaction has left work.
    pub fn has_to_sweep(&self) -> bool {
        !self.is_swept || self.kept_from < self.compacted
    }

    /// Whether what was compacted is gone, but for changes that watchers have yet to see.
    pub fn is_swept(&self) -> bool {
        self.is_swept
    }

    /// The same of what was compacted up to this revision, whatever was since.
    pub fn is_swept_until(&self, revision: i64) -> bool {
        self.is_swept || self.swept.main > revision
    }

    /// Does some of the work that compaction left: looks at no more than `changes` of the log. Whether that was all. Changes
    /// after `keep_after` stay in the log, because somebody has not seen them yet.
    pub fn sweep(&mut self, changes: usize, keep_after: i64) -> bool {
        for _ in 0..changes {
            // Swept changes are the front of the log, and stay only if they are those of the compacted revision.
            let front = self.log.first().map(|change| change.0.revision());
            let gone_before = self.compacted.min(keep_after.saturating_add(1));
            if let Some(front) = front.filter(|front| *front <= self.swept && front.main < gone_before) {
                if let Some(Change(record)) = self.log.remove(|change| change.0.revision().cmp(&front)) {
                    self.age(record);
                }
                self.kept_from = front.main + 1;
                continue;
            }
            let after = Revision { sub: self.swept.sub + 1, ..self.swept };
            let next = self.log.iter_from(|change| change.0.revision().cmp(&after)).next();
            let Some(Change(change)) = next.filter(|change| change.0.main() <= self.compacted).cloned() else {
                self.is_swept = true;
                return true;
            };
            self.forget_before(&change);
            self.swept = change.revision();
        }
        false
    }

    /// Forgets the version that a compacted change superseded, and the change if that is a tombstone.
    fn forget_before(&mut self, change: &Record) {
        let (key, revision) = (change.key(), change.revision());
        let past = |history: &Tree<Past>, probe: &dyn Fn(&Past) -> Ordering| {
            history.floor(probe).filter(|past| past.0.key() == key).map(|past| past.0.revision())
        };
        let before = past(&self.history, &|past| past.against(key, revision).then(Ordering::Greater));
        let tombstone = change.is_tombstone().then_some(revision);
        for gone in before.into_iter().chain(tombstone) {
            if let Some(Past(record)) = self.history.remove(|past| past.against(key, gone)) {
                self.bytes = self.bytes.saturating_sub(cost(&record));
                self.forget_hot(&record);
            }
        }
    }

    /// Takes a change in; the version that it superseded comes back.
    fn take(&mut self, change: Record) -> Option<Record> {
        self.bytes += cost(&change);
        self.hot_bytes += change.hot_bytes() as u64;
        self.log.insert(Change(change.clone()));
        let superseded = if change.is_tombstone() {
            let superseded = self.live.remove(|live| live.0.key().cmp(change.key()));
            self.history.insert(Past(change));
            superseded
        } else {
            self.live.insert(Live(change))
        };
        let Live(superseded) = superseded?;
        self.history.insert(Past(superseded.clone()));
        Some(superseded)
    }

    /// The records that exist at the compacted revision and are older than it, by key; then all changes from it on. That is
    /// everything, without what compaction has left to do.
    pub fn parts(&self) -> (impl Iterator<Item = &Record>, impl Iterator<Item = &Record>) {
        let compacted = self.compacted;
        let base = (compacted != NEVER).then(|| self.range(Keys::ALL, compacted));
        let base = base.into_iter().flatten().filter(move |record| record.main() < compacted);
        (base, self.changes(compacted))
    }
}

/// A probe for the first record that is meant, or that lies behind.
fn keys_before(keys: &Keys<'_>, record: &Record) -> Ordering {
    if record.key() < keys.start() { Ordering::Less } else { Ordering::Greater }
}

fn cost(record: &Record) -> u64 {
    record.size() as u64 + RECORD_OVERHEAD_BYTES
}

/// A transaction under way.
#[derive(Debug)]
pub struct Write<'a> {
    space: &'a mut Keyspace,
    next: Revision,
    scratch: &'a mut Vec<u8>,
}

impl Write<'_> {
    /// What this transaction reads: its own changes, too.
    pub fn space(&self) -> &Keyspace {
        self.space
    }

    /// The newest revision that it sees: that of its changes, when there are any.
    pub fn revision(&self) -> i64 {
        self.space.revision
    }

    /// Writes a key; what it superseded comes back.
    pub fn put(&mut self, key: &[u8], value: &[u8], lease: i64) -> Option<Record> {
        let old = self.space.get(key).map(Record::fields);
        let (create_revision, version) = old.map_or((self.next.main, 1), |old| (old.create_revision, old.version + 1));
        let put = Put { key, value, create_revision, version, lease };
        let record = Record::put(self.next, put, self.scratch);
        self.change(record)
    }

    /// Deletes a key; what was deleted comes back. A key that does not exist makes no change.
    pub fn delete(&mut self, key: &[u8]) -> Option<Record> {
        self.space.get(key)?;
        let record = Record::tombstone(self.next, key, self.scratch);
        self.change(record)
    }

    fn change(&mut self, record: Record) -> Option<Record> {
        self.next.sub += 1;
        self.space.revision = self.next.main;
        self.space.take(record)
    }
}
