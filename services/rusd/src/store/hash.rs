//! Hashes that equal etcd's for equal content. From etcd's `server/storage/mvcc/hash.go`.
//!
//! CRC-32C over the name of the bucket, `key`, and then of every revision in order: its name in etcd's database (main and sub
//! revision as 8 bytes big endian each with `_` between, and `t` behind a tombstone's), and the key-value, which a [bump](Record::bump)
//! has not.

use super::error::Error;
use super::keys::Keys;
use super::keyspace::{Keyspace, NEVER};
use super::record::Record;

/// A hash of what the store keeps, up to a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyValueHash {
    /// The hash.
    pub hash: u32,
    /// What is kept was compacted at this revision.
    pub compact_revision: i64,
    /// The hash goes up to this revision.
    pub hash_revision: i64,
}

/// The hash up to a revision; 0 means now. Takes time: every record is looked at.
pub fn hash_key_values(space: &Keyspace, revision: i64) -> Result<KeyValueHash, Error> {
    let compacted = space.compacted();
    let at = match revision {
        0 => space.revision(),
        // Unlike a read's, a revision below 0 is not now.
        ..0 => revision,
        _ => space.at(revision)?,
    };
    let mut crc = crc32c::crc32c(b"key");
    for record in compacted_records(space, at) {
        crc = append(crc, record);
    }
    for record in space.changes(compacted.saturating_add(1)).take_while(|record| record.main() <= at) {
        crc = append(crc, record);
    }
    Ok(KeyValueHash { hash: crc, compact_revision: compacted, hash_revision: at })
}

/// The records at or below the compacted revision that count: those that exist at the revision hashed. Where no key exists then,
/// etcd counts all that compaction left.
fn compacted_records(space: &Keyspace, at: i64) -> Vec<&Record> {
    let compacted = space.compacted();
    if compacted == NEVER || at < compacted {
        return Vec::new();
    }
    let exists_at = |revision| space.range(Keys::ALL, revision);
    let mut records: Vec<&Record> = match exists_at(at).next() {
        Some(_) => exists_at(at).filter(|record| record.main() <= compacted).collect(),
        None => exists_at(compacted).collect(),
    };
    records.sort_by_key(|record| record.revision());
    records
}

fn append(crc: u32, record: &Record) -> u32 {
    let revision = record.revision();
    let mut name = [0; 18];
    name[..8].copy_from_slice(&revision.main.to_be_bytes());
    name[8] = b'_';
    name[9..17].copy_from_slice(&u64::from(revision.sub).to_be_bytes());
    name[17] = b't';
    let name = if record.is_tombstone() { &name[..] } else { &name[..17] };
    crc32c::crc32c_append(crc32c::crc32c_append(crc, name), &record.stored())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(space: &mut Keyspace, key: &str, value: &str) {
        space.write(&mut Vec::new()).put(key.as_bytes(), value.as_bytes(), 0);
    }

    fn delete(space: &mut Keyspace, keys: &[&str]) {
        let mut scratch = Vec::new();
        let mut write = space.write(&mut scratch);
        for key in keys {
            write.delete(key.as_bytes());
        }
    }

    fn hash(space: &Keyspace, revision: i64) -> (u32, i64, i64) {
        let KeyValueHash { hash, compact_revision, hash_revision } = hash_key_values(space, revision).unwrap();
        (hash, compact_revision, hash_revision)
    }

    /// The numbers are what etcd 3.7.3 answered to `etcdctl endpoint hashkv` after the same commands of `etcdctl`.
    #[test]
    fn hashes_are_those_of_etcd() {
        let mut space = Keyspace::default();
        assert_eq!(hash(&space, 0), (1084519789, -1, 1));
        for (key, value) in [("a", "1"), ("b", "2"), ("a", "3"), ("c", "4")] {
            put(&mut space, key, value);
        }
        delete(&mut space, &["b"]);
        put(&mut space, "d", "");
        assert_eq!(hash(&space, 0), (1651026302, -1, 7));
        {
            let mut scratch = Vec::new();
            let mut txn = space.write(&mut scratch);
            txn.put(b"a", b"5", 0);
            txn.put(b"e", b"6", 0);
            txn.delete(b"c");
        }
        assert_eq!(hash(&space, 0), (469146595, -1, 8));
        assert_eq!(hash(&space, 4), (2069675932, -1, 4));
        space.compact(5).unwrap();
        assert_eq!(hash(&space, 0), (1267978607, 5, 8));
        assert_eq!(hash(&space, 6), (2026525812, 5, 6));
        put(&mut space, "b", "7");
        delete(&mut space, &["d"]);
        assert_eq!(hash(&space, 0), (671846665, 5, 10));
        space.compact(9).unwrap();
        assert_eq!(hash(&space, 0), (2452175357, 9, 10));
        delete(&mut space, &["a", "b", "e"]);
        // No key is left: etcd hashes all that compaction kept.
        assert_eq!(hash(&space, 0), (3830643736, 9, 11));
        space.compact(10).unwrap();
        assert_eq!(hash(&space, 0), (1704546819, 10, 11));
        while !space.sweep(3, i64::MAX) {}
        assert_eq!(hash(&space, 0), (1704546819, 10, 11));
    }
}
