//! One seeded hash function for all tables of the process, so that a client cannot choose keys that collide.

use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;

use ahash::RandomState;

static STATE: OnceLock<RandomState> = OnceLock::new();

/// Sets the seed, once, before the first key is hashed. Tests that do not call it have a fixed one.
pub fn seed(words: [u64; 4]) {
    // A second call would be too late: tables are built already.
    STATE.get_or_init(|| RandomState::with_seeds(words[0], words[1], words[2], words[3]));
}

/// The seeded function, for tables of the standard library that have keys of clients.
#[inline]
pub fn state() -> &'static RandomState {
    STATE.get_or_init(|| RandomState::with_seeds(1, 2, 3, 4))
}

/// The hash of some bytes.
#[inline]
pub fn of(bytes: &[u8]) -> u64 {
    let mut hasher = state().build_hasher();
    hasher.write(bytes);
    hasher.finish()
}
