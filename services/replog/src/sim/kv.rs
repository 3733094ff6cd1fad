//! The simulated state machine: a few keys, some of which expire.

use std::collections::BTreeMap;
use std::io::Read;

use bytes::Bytes;

use crate::entry::Entry;
use crate::machine::{RestoreError, SnapshotView, StateMachine};
use crate::random::mix;

const ROW_BYTES: usize = 32;
/// Rows of a snapshot, so that it has several chunks.
const ROWS: usize = 48;

/// The key-value store whose commands the simulation replicates.
#[derive(Debug, Default)]
pub(super) struct Kv {
    rows: BTreeMap<u64, (u64, u64)>,
    /// Of all rows, whatever order they came in.
    digest: u64,
    /// Digests after every entry since they were last taken.
    pub(super) digests: Vec<(u64, u64)>,
    /// For the planted error: what this replica's own clock says.
    pub(super) local_millis: Option<u64>,
}

/// Sets a key, for so long.
pub(super) fn command(key: u64, value: u64, ttl_millis: u64) -> Bytes {
    [1 + key % ROWS as u64, value, ttl_millis].into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>().into()
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|chunk| chunk.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn row_digest(key: u64, value: u64, expires: u64) -> u64 {
    mix(key ^ mix(value ^ mix(expires)))
}

impl Kv {
    fn remove(&mut self, key: u64) {
        if let Some((value, expires)) = self.rows.remove(&key) {
            self.digest ^= row_digest(key, value, expires);
        }
    }

    fn put(&mut self, key: u64, value: u64, expires: u64) {
        self.remove(key);
        self.rows.insert(key, (value, expires));
        self.digest ^= row_digest(key, value, expires);
    }
}

impl StateMachine for Kv {
    type Reply = u64;

    fn apply(&mut self, entry: &Entry) -> u64 {
        let time = self.local_millis.unwrap_or(entry.time_millis);
        let expired: Vec<u64> =
            self.rows.iter().filter(|(_, (_, expires))| *expires <= time).map(|(key, _)| *key).collect();
        expired.into_iter().for_each(|key| self.remove(key));
        let mut numbers = numbers(&entry.data);
        let (key, value, ttl) = (numbers.next(), numbers.next(), numbers.next());
        if let (Some(key), Some(value), Some(ttl)) = (key, value, ttl) {
            let expires = if ttl == 0 { u64::MAX } else { entry.time_millis + ttl };
            self.put(key, value, expires);
        }
        self.digests.push((entry.index, self.digest));
        self.digest
    }

    /// A few do, wherever they are applied.
    fn takes_long<'a>(&self, mut commands: impl Iterator<Item = (&'a Entry, bool)>) -> bool {
        commands.any(|(entry, _)| mix(entry.index ^ entry.term << 32).is_multiple_of(64))
    }

    fn snapshot(&self) -> SnapshotView {
        let mut out = vec![0; ROWS * ROW_BYTES];
        for (row, (key, (value, expires))) in out.chunks_exact_mut(ROW_BYTES).zip(&self.rows) {
            row[..8].copy_from_slice(&key.to_le_bytes());
            row[8..16].copy_from_slice(&value.to_le_bytes());
            row[16..24].copy_from_slice(&expires.to_le_bytes());
        }
        Box::new(move |to| to.write_all(&out))
    }

    fn restore(&mut self, from: &mut dyn Read) -> Result<(), RestoreError> {
        let mut snapshot = Vec::new();
        from.read_to_end(&mut snapshot)?;
        if snapshot.len() != ROWS * ROW_BYTES {
            return Err(RestoreError(format!("{} bytes", snapshot.len())));
        }
        self.rows.clear();
        self.digest = 0;
        for row in snapshot.chunks_exact(ROW_BYTES) {
            let mut numbers = numbers(row);
            if let (Some(key @ 1..), Some(value), Some(expires)) = (numbers.next(), numbers.next(), numbers.next()) {
                self.put(key, value, expires);
            }
        }
        Ok(())
    }
}
