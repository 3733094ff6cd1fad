//! What one does with a store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::remote::{Options, Remote};
use crate::{
    Compare, Condition, Door, Error, KeyValue, Operation, OperationResult, Page, Query, ReadLevel, ReadOptions, Scan,
    Seen, Session, Transaction, Watch, WatchOptions, Written,
};

/// A store, near or far. Clones are the same one.
///
/// A far one ([`Client::connect`]) finds the leader by itself, and goes to another member when one cannot be reached, does not answer, or hangs.
#[derive(Clone)]
pub struct Client {
    door: Arc<dyn Door>,
}

impl Client {
    /// Through a door.
    pub fn through(door: Arc<dyn Door>) -> Self {
        Self { door }
    }

    /// Of servers at these addresses, `host:port` with or without `http://`; at least one must be reached. On a tokio runtime.
    ///
    /// What is sent again, within [`Options::request_timeout`]: everything that nobody has taken; and also when nobody knows what came of
    /// it, what is done once however often it is sent: reads, writes of a [`Session`], keep-alives of leases, and the opening and closing of
    /// sessions. A third of the time is left for each member to answer these. Every other write that was sent and not answered is
    /// [`Error::UnknownOutcome`], and it is the caller's to say whether it may happen twice. A connection on which nothing comes for 2 s,
    /// though the member is asked by a ping, is closed, and what waits on it hears so.
    pub async fn connect(endpoints: &[String], options: Options) -> Result<Self, Error> {
        Ok(Self::through(Arc::new(Remote::connect(endpoints, options).await?)))
    }

    /// The door.
    pub fn door(&self) -> &Arc<dyn Door> {
        &self.door
    }

    /// Applies a transaction.
    pub async fn transact(&self, transaction: Transaction) -> Result<Written, Error> {
        self.door.write(transaction, None).await
    }

    /// Gives a key a value that stays; its revision.
    pub async fn put(&self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Result<u64, Error> {
        Ok(self.transact(Transaction::put(key, value)).await?.revision)
    }

    /// Gives a key a value that ends after so long, whole milliseconds, by the clock of the log.
    pub async fn put_with_ttl(
        &self,
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
        ttl: Duration,
    ) -> Result<u64, Error> {
        let ttl_millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        if ttl_millis == 0 {
            return Err(Error::Invalid(
                "a time to live has a millisecond at least: put gives a value that stays".into(),
            ));
        }
        let put = Operation::Put { key: key.into(), value: value.into(), ttl_millis };
        Ok(self.transact(Transaction::of(put)).await?.revision)
    }

    /// Deletes a key; whether it was there.
    pub async fn delete(&self, key: impl Into<Bytes>) -> Result<bool, Error> {
        let written = self.transact(Transaction::delete(key)).await?;
        Ok(written.applied.results.first() == Some(&OperationResult::Deleted(true)))
    }

    /// Gives a key a value if it has the expected one; `None`: if it does not exist. The revision: a fencing token. `None`: it has
    /// another value.
    pub async fn compare_and_swap(
        &self,
        key: impl Into<Bytes>,
        expected: Option<Bytes>,
        value: impl Into<Bytes>,
    ) -> Result<Option<u64>, Error> {
        let written = self.transact(Transaction::compare_and_swap(key, expected, value)).await?;
        Ok(written.applied.succeeded.then_some(written.revision))
    }

    /// Gives a key a value if it was last written at this revision; 0: if it does not exist.
    pub async fn compare_revision_and_swap(
        &self,
        key: impl Into<Bytes>,
        revision: u64,
        value: impl Into<Bytes>,
    ) -> Result<Option<u64>, Error> {
        let key = key.into();
        let compares = vec![Compare { key: key.clone(), condition: Condition::RevisionIs(revision) }];
        let written = self.transact(Transaction { compares, ..Transaction::put(key, value) }).await?;
        Ok(written.applied.succeeded.then_some(written.revision))
    }

    /// Adds to a counter; what it is now.
    pub async fn add(&self, key: impl Into<Bytes>, delta: i64) -> Result<i64, Error> {
        let written = self.transact(Transaction::of(Operation::Add { key: key.into(), delta })).await?;
        match written.applied.results.as_slice() {
            [OperationResult::Sum(sum)] => Ok(*sum),
            _ => Err(Error::UnknownOutcome("the answer does not have a sum".into())),
        }
    }

    /// Reads a key, linearizable.
    pub async fn get(&self, key: impl Into<Bytes>) -> Result<Option<KeyValue>, Error> {
        Ok(self.get_with(key, ReadLevel::Linearizable).await?.value)
    }

    /// Reads a key.
    pub async fn get_with(
        &self,
        key: impl Into<Bytes>,
        options: impl Into<ReadOptions>,
    ) -> Result<Seen<Option<KeyValue>>, Error> {
        let seen = self.door.read(Query::Get(key.into()), options.into()).await?;
        Ok(seen.map(|answer| answer.items.into_iter().next()))
    }

    /// Reads several keys of one moment: those that exist, in the order of the request.
    pub async fn get_many(
        &self,
        keys: Vec<Bytes>,
        options: impl Into<ReadOptions>,
    ) -> Result<Seen<Vec<KeyValue>>, Error> {
        Ok(self.door.read(Query::GetMany(keys), options.into()).await?.map(|answer| answer.items))
    }

    /// Reads a page of a range.
    pub async fn scan(&self, scan: Scan, options: impl Into<ReadOptions>) -> Result<Seen<Page>, Error> {
        self.door.read(Query::Scan(scan), options.into()).await
    }

    /// Opens a session, in which each write is done once however often it is sent.
    pub async fn session(&self) -> Result<Session, Error> {
        Ok(Session::new(Arc::clone(&self.door), self.door.open_session().await?))
    }

    /// Watches.
    pub async fn watch(&self, options: WatchOptions) -> Result<Watch, Error> {
        self.door.watch(options).await
    }

    /// Watches keys that begin so, all keys where that is nothing, from now on.
    pub async fn watch_prefix(&self, prefix: impl Into<Bytes>) -> Result<Watch, Error> {
        self.watch(WatchOptions::prefix(prefix)).await
    }
}
