//! Leases that this process keeps alive; what they promise stands at [`LeaseGuard`].

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::{Client, Error, Lease, Operation, OperationResult, Transaction};

/// A lease is kept alive so many times within its time to live.
const KEEP_ALIVES: u32 = 3;
/// Before a keep-alive that came to nothing is sent again.
const RETRY: Duration = Duration::from_millis(50);

/// A lease that is kept alive until it is revoked or dropped: keys that are attached to it ([`Client::put_with_lease`]) are there for as
/// long as it is. Dropped, it ends by itself.
///
/// It is kept alive three times within its time to live, by whichever members answer. It ends, and its keys with it, when none of these
/// arrives for so long: then [`LeaseGuard::is_alive`] is false soon, but not before others may have seen the end.
pub struct LeaseGuard {
    client: Client,
    number: u64,
    /// Until then it is there, by this process's clock; `None`: it is known to have ended.
    alive_until: watch::Receiver<Option<Instant>>,
    keeper: JoinHandle<()>,
}

impl Client {
    /// Begins a lease, which nobody keeps alive yet.
    pub async fn grant_lease(&self, ttl: Duration) -> Result<Lease, Error> {
        let ttl_millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        match self.of_lease(Operation::Grant { ttl_millis }).await? {
            OperationResult::Lease(Some(lease)) => Ok(lease),
            other => Err(Error::UnknownOutcome(format!("a grant was answered with {other:?}"))),
        }
    }

    /// Has a lease begin anew; `None`: it has ended.
    pub async fn keep_alive(&self, lease: u64) -> Result<Option<Lease>, Error> {
        match self.of_lease(Operation::KeepAlive { lease }).await? {
            OperationResult::Lease(lease) => Ok(lease),
            other => Err(Error::UnknownOutcome(format!("a keep-alive was answered with {other:?}"))),
        }
    }

    /// Ends a lease and its keys; whether it was there.
    pub async fn revoke_lease(&self, lease: u64) -> Result<bool, Error> {
        Ok(self.of_lease(Operation::Revoke { lease }).await? == OperationResult::Revoked(true))
    }

    async fn of_lease(&self, operation: Operation) -> Result<OperationResult, Error> {
        let written = self.transact(Transaction::of(operation)).await?;
        let result = written.applied.results.into_iter().next();
        result.ok_or_else(|| Error::UnknownOutcome("the answer has no result".into()))
    }

    /// Gives a key a value that ends with a lease; its revision.
    pub async fn put_with_lease(
        &self,
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
        lease: u64,
    ) -> Result<u64, Error> {
        Ok(self.transact(Transaction::put_with_lease(key, value, lease)).await?.revision)
    }

    /// Begins a lease, and keeps it alive from here on. On a tokio runtime.
    pub async fn lease(&self, ttl: Duration) -> Result<LeaseGuard, Error> {
        let sent = Instant::now();
        let number = self.grant_lease(ttl).await?.number;
        let (told, alive_until) = watch::channel(Some(sent + ttl));
        let keeper = tokio::spawn(keep(self.clone(), number, ttl, told));
        Ok(LeaseGuard { client: self.clone(), number, alive_until, keeper })
    }
}

/// Keeps a lease alive until it has ended.
async fn keep(client: Client, lease: u64, ttl: Duration, told: watch::Sender<Option<Instant>>) {
    loop {
        sleep(ttl / KEEP_ALIVES).await;
        loop {
            let sent = Instant::now();
            match client.keep_alive(lease).await {
                Ok(Some(_)) => {
                    told.send_replace(Some(sent + ttl));
                    break;
                }
                Err(error) if error.is_temporary() => sleep(RETRY.min(ttl / KEEP_ALIVES)).await,
                // Nothing will bring it back.
                Ok(None) | Err(_) => {
                    told.send_replace(None);
                    return;
                }
            }
        }
    }
}

impl LeaseGuard {
    /// Its number, by which keys are attached to it.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether it is there, as far as this process's clock can tell: counted from when the last keep-alive that succeeded was sent. A
    /// clock tells nothing for certain: what must not happen after the end has a [`crate::Lock::fence`].
    pub fn is_alive(&self) -> bool {
        self.alive_until.borrow().is_some_and(|until| Instant::now() < until)
    }

    /// Waits until it may have ended.
    pub async fn ended(&self) {
        let mut alive_until = self.alive_until.clone();
        loop {
            let until = *alive_until.borrow_and_update();
            let Some(until) = until.filter(|until| Instant::now() < *until) else { return };
            tokio::select! {
                () = sleep_until(until) => {}
                // Nobody keeps it alive any more.
                changed = alive_until.changed() => if changed.is_err() { sleep_until(until).await },
            }
        }
    }

    /// Ends it, and deletes its keys.
    pub async fn revoke(self) -> Result<(), Error> {
        self.keeper.abort();
        self.client.revoke_lease(self.number).await.map(drop)
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Transaction {
    /// Whether it comes to the same however often it is done: it reads, and has leases begin anew.
    pub(crate) fn changes_nothing_twice(&self) -> bool {
        let mut operations = self.then.iter().chain(&self.otherwise);
        operations.all(|operation| matches!(operation, Operation::KeepAlive { .. } | Operation::Get { .. }))
    }

    /// Gives a key a value that ends with a lease.
    pub fn put_with_lease(key: impl Into<Bytes>, value: impl Into<Bytes>, lease: u64) -> Self {
        let key = key.into();
        let put = Operation::Put { key: key.clone(), value: value.into(), ttl_millis: 0 };
        Self { then: vec![put, Operation::Attach { key, lease }], ..Self::default() }
    }
}
