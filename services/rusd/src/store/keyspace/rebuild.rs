//! A keyspace made again of its parts, one record after the other: see [`Keyspace::parts`].

use super::{Change, Keyspace, Live, Record, Revision, cost};

/// A keyspace that is being made again. What does not fit to what came before is refused.
#[derive(Debug)]
pub struct Rebuild {
    space: Keyspace,
    revision: i64,
    last: Revision,
    is_first: bool,
}

impl Rebuild {
    /// Of this newest and this compacted revision.
    pub fn new(revision: i64, compacted: i64) -> Self {
        let space = Keyspace { compacted, ..Keyspace::default() };
        Self { space, revision, last: Revision { main: compacted.max(1), sub: 0 }, is_first: true }
    }

    /// Bytes of values that are in memory so far.
    pub fn hot_bytes(&self) -> u64 {
        self.space.hot_bytes()
    }

    /// Takes the next of the records that existed at the compacted revision; whether it can be that.
    pub fn base(&mut self, record: Record) -> bool {
        let space = &mut self.space;
        let in_order = space.live.last().is_none_or(|last| last.0.key() < record.key());
        if !in_order || record.is_tombstone() || record.main() >= space.compacted {
            return false;
        }
        space.bytes += cost(&record);
        let hot_bytes = record.hot_bytes() as u64;
        space.hot_bytes += hot_bytes;
        if hot_bytes > 0 {
            space.aged.insert(Change(record.clone()));
        }
        space.live.insert(Live(record));
        true
    }

    /// Takes the next change; whether it can be that. After the last of the other records.
    pub fn change(&mut self, change: Record) -> bool {
        let (at, compacted, last) = (change.revision(), self.space.compacted, self.last);
        // Of the compacted revision, changes may be gone: etcd's older releases take its tombstones away.
        let is_compacted = at.main == compacted && (self.is_first || at > last);
        let follows =
            is_compacted || if self.is_first { at.main >= last.main && at.sub == 0 } else { follows(last, at) };
        if !follows || !self.is_consistent(&change) || at.main > self.revision {
            return false;
        }
        self.space.take(change);
        (self.last, self.is_first) = (at, false);
        true
    }

    fn is_consistent(&self, change: &Record) -> bool {
        let (main, is_compacted) = (change.main(), change.main() == self.space.compacted);
        let known = self.space.get(change.key()).map(Record::fields);
        match (known, change.is_tombstone()) {
            // What a compacted tombstone ended is not there any more.
            (None, true) => is_compacted,
            (Some(_), true) => true,
            (known, false) => {
                is_compacted || {
                    let fields = change.fields();
                    let (created, version) = known.map_or((main, 0), |old| (old.create_revision, old.version));
                    (fields.create_revision, fields.version) == (created, version + 1)
                }
            }
        }
    }

    /// The keyspace, unless something is missing.
    pub fn finish(self) -> Option<Keyspace> {
        let Self { mut space, revision, .. } = self;
        let compacted = space.compacted;
        space.revision = revision;
        space.kept_from = compacted.max(0);
        space.swept = Revision { main: compacted - 1, sub: u32::MAX - 1 };
        space.is_swept = false;
        (revision >= compacted.max(1)).then_some(space)
    }
}

impl Keyspace {
    /// A keyspace of the parts that [`Keyspace::parts`] gave. `None` if they do not fit together.
    pub fn from_parts(
        revision: i64,
        compacted: i64,
        mut base: impl Iterator<Item = Record>,
        mut changes: impl Iterator<Item = Record>,
    ) -> Option<Self> {
        let mut rebuild = Rebuild::new(revision, compacted);
        let fits = base.all(|record| rebuild.base(record)) && changes.all(|change| rebuild.change(change));
        fits.then_some(rebuild)?.finish()
    }
}

fn follows(last: Revision, next: Revision) -> bool {
    if next.main == last.main { next.sub == last.sub + 1 } else { next.main > last.main && next.sub == 0 }
}
