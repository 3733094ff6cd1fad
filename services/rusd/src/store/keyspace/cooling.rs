//! Which records have their values in memory, and how a cold one takes the place of another.
//!
//! `hot_bytes` counts values of records that exist or existed: those in `live` and `history`, each of which is in one of them. They
//! are found by their age: in `aged` those whose changes compaction took out of the log, then along the log, from where the last
//! search ended.

use super::{Change, Keyspace, Live, Past, Record, Revision};

impl Keyspace {
    /// Bytes of values that are in memory and could be in files.
    pub fn hot_bytes(&self) -> u64 {
        self.hot_bytes
    }

    /// The oldest records whose values are in memory, as far as they are not many, nor large together; and until where the log was
    /// looked through, for [`Keyspace::looked_for_hot`] when they are cold.
    pub fn oldest_hot(&self, records_max: usize, bytes_max: usize) -> (Vec<Record>, Revision) {
        let (mut found, mut bytes, mut looked) = (Vec::new(), 0, self.looked);
        let aged = self.aged.iter().map(|Change(record)| (record, false));
        let after = Revision { sub: looked.sub.saturating_add(1), ..looked };
        let logged = self.log.iter_from(|change| change.0.revision().cmp(&after));
        // What has ended meanwhile is looked at, too.
        let logged = logged.map(|Change(record)| (record, true)).take(4 * records_max);
        for (record, is_logged) in aged.chain(logged) {
            if found.len() >= records_max || bytes >= bytes_max {
                break;
            }
            if is_logged {
                looked = record.revision();
            }
            // A change after what is swept is not forgotten: two searches in trees that fit into no cache are saved.
            let is_kept = record.revision() > self.swept;
            let is_placed = || self.placed(record.key(), record.revision()).is_some();
            debug_assert!(!is_kept || is_placed(), "{record:?} is in the log, after what is swept, and nowhere else");
            let hot_bytes = record.hot_bytes();
            if hot_bytes > 0 && (is_kept || is_placed()) {
                bytes += hot_bytes;
                found.push(record.clone());
            }
        }
        (found, looked)
    }

    /// What [`Keyspace::oldest_hot`] found is cold now. Whether it looked at anything in the log.
    pub fn looked_for_hot(&mut self, until: Revision) -> bool {
        let before = std::mem::replace(&mut self.looked, until);
        before != until
    }

    /// A record that exists or existed, if that is not compacted.
    pub fn placed(&self, key: &[u8], revision: Revision) -> Option<&Record> {
        let live = self.get(key).filter(|record| record.revision() == revision);
        live.or_else(|| self.history.get(|past| past.against(key, revision)).map(|Past(record)| record))
    }

    /// Puts a record in the place of one that says the same.
    pub fn replace(&mut self, old: &Record, new: Record) {
        let (key, revision) = (old.key(), old.revision());
        if self.log.get(|change| change.0.revision().cmp(&revision)).is_some() {
            self.log.insert(Change(new.clone()));
        }
        self.aged.remove(|change| change.0.revision().cmp(&revision));
        if self.get(key).is_some_and(|live| live.revision() == revision) {
            self.live.insert(Live(new));
        } else if self.history.get(|past| past.against(key, revision)).is_some() {
            self.history.insert(Past(new));
        } else {
            return;
        }
        self.hot_bytes = self.hot_bytes.saturating_sub(old.hot_bytes() as u64);
    }

    /// Its change is not in the log any more.
    pub(super) fn age(&mut self, record: Record) {
        if record.hot_bytes() > 0 && self.placed(record.key(), record.revision()).is_some() {
            self.aged.insert(Change(record));
        }
    }

    /// It neither exists nor existed any more.
    pub(super) fn forget_hot(&mut self, record: &Record) {
        let bytes = record.hot_bytes() as u64;
        if bytes > 0 {
            self.hot_bytes = self.hot_bytes.saturating_sub(bytes);
            self.aged.remove(|change| change.0.revision().cmp(&record.revision()));
        }
    }
}
