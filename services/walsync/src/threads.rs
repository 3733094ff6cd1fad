//! Threads of ours: each has a name, and a small stack.

use std::thread::Builder;

/// Stack of a thread: none recurses.
pub(crate) const STACK_BYTES: usize = 256 * 1024;

/// One that is to be started.
pub(crate) fn named(name: &str) -> Builder {
    Builder::new().name(name.into()).stack_size(STACK_BYTES)
}
