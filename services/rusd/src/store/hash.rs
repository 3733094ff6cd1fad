//! Hashes that equal etcd's for equal content. From etcd's `server/storage/mvcc/hash.go`.
//!
//! CRC-32C over the name of the bucket, `key`, and then of every revision in order: its name in etcd's database (main and sub
//! revision as 8 bytes big endian each with `_` between, and `t` behind a tombstone's), and the key-value.

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
    crc32c::crc32c_append(crc32c::crc32c_append(crc, name), record.stored())
}
