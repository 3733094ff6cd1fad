//! Threads beside the core thread, for what takes long: each does one piece of work and ends.

use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use super::handle::Shared;

/// A piece of work on its way, if any.
pub(super) struct Helper<T>(Option<Work<T>>);

struct Work<T> {
    thread: JoinHandle<T>,
    /// It is done, and the thread about to end.
    is_done: Arc<AtomicBool>,
}

impl<T> Default for Helper<T> {
    fn default() -> Self {
        Self(None)
    }
}

/// Wakes the core thread, also when the work ends by a panic.
struct Wake<R> {
    shared: Arc<Shared<R>>,
    is_done: Arc<AtomicBool>,
}

impl<R> Drop for Wake<R> {
    fn drop(&mut self) {
        self.is_done.store(true, Ordering::Release);
        self.shared.inbox.helper_ends();
    }
}

impl<T: Send + 'static> Helper<T> {
    /// Begins a piece of work. There is none on its way.
    pub(super) fn begin<R: Send + 'static>(
        &mut self,
        name: &str,
        shared: &Arc<Shared<R>>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<()> {
        let is_done = Arc::new(AtomicBool::new(false));
        let wake = Wake { shared: Arc::clone(shared), is_done: Arc::clone(&is_done) };
        let work = move || {
            let _wake = wake;
            work()
        };
        let thread = thread::Builder::new().name(name.into()).spawn(work)?;
        self.0 = Some(Work { thread, is_done });
        Ok(())
    }

    /// What came of it, when it ends; a panic goes on here.
    pub(super) fn result(&mut self) -> Option<T> {
        let work = self.0.take_if(|work| work.is_done.load(Ordering::Acquire))?;
        Some(work.thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    }

    /// Waits until it has ended.
    pub(super) fn end(&mut self) {
        if let Some(work) = self.0.take() {
            // Nobody needs it any more; what it could still say was said by its panic.
            drop(work.thread.join());
        }
    }
}
