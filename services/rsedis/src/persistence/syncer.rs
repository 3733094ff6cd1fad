//! Syncs a file on a thread of its own, so that `appendfsync everysec` never makes anybody wait.

use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

use wal::files::File;

/// The thread ends when this goes.
pub(super) struct Syncer {
    orders: Sender<()>,
    outcomes: Receiver<io::Result<()>>,
    is_busy: bool,
}

impl Syncer {
    pub(super) fn start<F: File>(file: F) -> io::Result<Self> {
        let (orders, ordered) = channel::<()>();
        let (done, outcomes) = channel();
        thread::Builder::new().name("aof-sync".into()).spawn(move || {
            while ordered.recv().is_ok() {
                if done.send(file.sync_data()).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { orders, outcomes, is_busy: false })
    }

    /// Begins a sync of what has been written so far; false: one is under way, or there is no thread.
    pub(super) fn begin(&mut self) -> bool {
        if self.is_busy || self.orders.send(()).is_err() {
            return false;
        }
        self.is_busy = true;
        true
    }

    /// Waits for the sync that is under way, if there is one; how it ended.
    pub(super) fn finish(&mut self) -> Option<io::Result<()>> {
        if !std::mem::take(&mut self.is_busy) {
            return None;
        }
        let gone = |_| Err(io::Error::other("the thread that syncs has gone"));
        Some(self.outcomes.recv().unwrap_or_else(gone))
    }

    /// How the last sync ended, if it has ended since this was asked last.
    pub(super) fn outcome(&mut self) -> Option<io::Result<()>> {
        match self.outcomes.try_recv() {
            Ok(outcome) => {
                self.is_busy = false;
                Some(outcome)
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => None,
        }
    }
}
