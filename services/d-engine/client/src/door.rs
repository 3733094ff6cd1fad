//! The way to a store: over the network, or within the process.

use std::future::Future;
use std::pin::Pin;

use crate::{Answer, Error, Query, ReadOptions, Seen, Stamp, Transaction, Watch, WatchOptions, Written};

/// A future that may wait on any thread.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A way to a store. Nothing is repeated here but what cannot do harm; what is, says each implementation.
pub trait Door: Send + Sync + 'static {
    /// Applies a transaction; with a stamp, once.
    fn write(&self, transaction: Transaction, stamp: Option<Stamp>) -> BoxFuture<'_, Result<Written, Error>>;

    /// Reads.
    fn read(&self, query: Query, options: ReadOptions) -> BoxFuture<'_, Result<Seen<Answer>, Error>>;

    /// Opens a session; its number.
    fn open_session(&self) -> BoxFuture<'_, Result<u64, Error>>;

    /// Ends a session, and forgets its replies.
    fn close_session(&self, session: u64) -> BoxFuture<'_, Result<(), Error>>;

    /// Watches.
    fn watch(&self, options: WatchOptions) -> BoxFuture<'_, Result<Watch, Error>>;
}
