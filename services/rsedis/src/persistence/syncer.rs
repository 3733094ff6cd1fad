//! Syncs a file, and the names of its directory, on a thread of its own, so that `appendfsync everysec` never makes anybody wait.

use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

use wal::files::{Directory, File as _};

/// What is synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// What was written to the file.
    Data,
    /// The names of the directory.
    Names,
}

/// The thread ends when this goes. It has the directory for as long as it syncs that, and whoever drops this waits so long: the directory is locked, and
/// may be opened again behind it.
pub(super) struct Syncer<D: Directory> {
    orders: Sender<Option<D>>,
    outcomes: Receiver<(Order, io::Result<()>)>,
    /// What is under way.
    order: Option<Order>,
}

impl<D: Directory> Syncer<D> {
    pub(super) fn start(file: D::File) -> io::Result<Self> {
        let (orders, ordered) = channel::<Option<D>>();
        let (done, outcomes) = channel();
        thread::Builder::new().name("aof-sync".into()).spawn(move || {
            while let Ok(directory) = ordered.recv() {
                let outcome = match directory {
                    None => (Order::Data, file.sync_data()),
                    Some(directory) => (Order::Names, directory.sync()),
                };
                if done.send(outcome).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { orders, outcomes, order: None })
    }

    /// Begins a sync of what has been written so far; false: one is under way, or there is no thread.
    pub(super) fn begin(&mut self) -> bool {
        self.order(Order::Data, None)
    }

    /// The same of the names in its directory.
    pub(super) fn begin_names(&mut self, directory: D) -> bool {
        self.order(Order::Names, Some(directory))
    }

    fn order(&mut self, order: Order, directory: Option<D>) -> bool {
        if self.order.is_some() || self.orders.send(directory).is_err() {
            return false;
        }
        self.order = Some(order);
        true
    }

    /// Whether one is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.order.is_some()
    }

    /// Waits for the sync that is under way, if there is one; how it ended.
    pub(super) fn finish(&mut self) -> Option<(Order, io::Result<()>)> {
        let order = self.order.take()?;
        let gone = |_| (order, Err(io::Error::other("the thread that syncs has gone")));
        Some(self.outcomes.recv().unwrap_or_else(gone))
    }

    /// How the last sync ended, if it has ended since this was asked last.
    pub(super) fn outcome(&mut self) -> Option<(Order, io::Result<()>)> {
        match self.outcomes.try_recv() {
            Ok(outcome) => {
                self.order = None;
                Some(outcome)
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => None,
        }
    }
}

impl<D: Directory> Drop for Syncer<D> {
    fn drop(&mut self) {
        if self.order == Some(Order::Names) {
            drop(self.outcomes.recv());
        }
    }
}
