//! The revisions that the store gave to acknowledged writes: rising for each client, none given twice.
//!
//! Pure. Remembers one bit for each revision from the oldest that could still be given wrongly (the least of the clients'
//! newest) onwards, in chunks, so that memory follows the distance between fast and slow clients.

use std::collections::BTreeMap;

/// Revisions in a chunk.
const CHUNK: i64 = 64 * 64;
/// Chunks are dropped when there are more than this many and the oldest are of no more use.
const CHUNKS_KEPT: usize = 64;

/// What one thread's clients were given.
#[derive(Debug)]
pub struct Revisions {
    /// The newest of each client, by place; 0 before its first.
    newest: Vec<i64>,
    newest_of_all: i64,
    /// By number of the chunk; a set bit is a revision that was given.
    given: BTreeMap<i64, Box<[u64; 64]>>,
}

impl Revisions {
    /// For so many clients.
    pub fn new(clients: usize) -> Self {
        Self { newest: vec![0; clients], newest_of_all: 0, given: BTreeMap::new() }
    }

    /// The newest revision that any client of this thread was given; 0 if none.
    pub fn newest(&self) -> i64 {
        self.newest_of_all
    }

    /// The client in `place` was given `revision`. Errors: what is wrong with it, in one line.
    pub fn take(&mut self, place: u32, revision: i64) -> Result<(), String> {
        let Some(newest) = self.newest.get_mut(place as usize) else {
            return Ok(());
        };
        if revision <= *newest {
            return Err(format!("expected a revision after {newest}, the client's last, found revision {revision}"));
        }
        *newest = revision;
        self.newest_of_all = self.newest_of_all.max(revision);
        let (chunk, bit) = (revision / CHUNK, revision % CHUNK);
        if !self.given.contains_key(&chunk) {
            self.forget();
        }
        let words = self.given.entry(chunk).or_insert_with(|| Box::new([0; 64]));
        let (word, mask) = (&mut words[(bit / 64) as usize], 1 << (bit % 64));
        if *word & mask != 0 {
            return Err(format!("revision {revision} was given to two writes"));
        }
        *word |= mask;
        Ok(())
    }

    /// Drops chunks in which every revision is older than each client's newest: given again, it would not rise.
    fn forget(&mut self) {
        if self.given.len() > CHUNKS_KEPT {
            let oldest = self.newest.iter().min().copied().unwrap_or(0);
            self.given = self.given.split_off(&(oldest / CHUNK));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        /// Against a model that remembers everything.
        #[test]
        fn exactly_rising_and_new_revisions_are_right(
            taken in proptest::collection::vec((0u32..3, 1i64..60), 0..120), scale in 1i64..10_000,
        ) {
            let mut revisions = Revisions::new(3);
            let (mut newest, mut given) = ([0; 3], HashSet::new());
            for (place, revision) in taken {
                let revision = revision * scale;
                let rises = revision > newest[place as usize];
                if rises {
                    newest[place as usize] = revision;
                }
                let right = rises && given.insert(revision);
                prop_assert_eq!(revisions.take(place, revision).is_ok(), right);
            }
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let mut revisions = Revisions::new(2);
        revisions.take(0, 5).unwrap();
        assert_eq!(revisions.take(1, 5).unwrap_err(), "revision 5 was given to two writes");
        assert_eq!(
            revisions.take(0, 5).unwrap_err(),
            "expected a revision after 5, the client's last, found revision 5"
        );
        // An answer without a revision.
        assert!(revisions.take(0, 0).is_err());
        assert!(revisions.take(1, -3).is_err());
    }

    #[test]
    fn memory_follows_the_slowest_client_not_the_count() {
        let mut revisions = Revisions::new(2);
        for revision in 1..2_000_000 {
            revisions.take((revision % 2) as u32, revision).unwrap();
        }
        assert!(revisions.given.len() <= CHUNKS_KEPT + 1, "{} chunks", revisions.given.len());
        assert_eq!(revisions.newest(), 1_999_999);
    }
}
