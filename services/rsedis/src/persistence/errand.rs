//! Work that waits for the disk, on a thread of its own.

use std::io;
use std::thread::{self, JoinHandle};

/// Whoever drops it waits until it has ended: who comes behind it finds files that stay.
pub(super) struct Errand<T> {
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Errand<T> {
    /// Begins.
    pub(super) fn begin(work: impl FnOnce() -> T + Send + 'static) -> io::Result<Self> {
        let thread = thread::Builder::new().name("aof-files".into()).spawn(work)?;
        Ok(Self { thread: Some(thread) })
    }

    /// Whether nobody has to wait for it any more.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until it has ended. Errors: the thread has gone.
    pub(super) fn finish(mut self) -> io::Result<T> {
        let gone = || io::Error::other("the thread that tends files has gone");
        self.thread.take().and_then(|thread| thread.join().ok()).ok_or_else(gone)
    }
}

impl<T> Drop for Errand<T> {
    fn drop(&mut self) {
        drop(self.thread.take().map(JoinHandle::join));
    }
}
