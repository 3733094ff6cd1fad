//! Locks, fair and with fencing tokens; what they promise stands at [`Lock`].

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{sleep, timeout_at};

use crate::lease::LeaseGuard;
use crate::{
    Client, Compare, Condition, Error, EventKind, KeyValue, Operation, OperationResult, ReadLevel, Scan, Transaction,
    WatchOptions, deadline_in,
};

/// Digits of the number of a lease in the key of who waits for a lock.
const DIGITS: usize = 16;
/// Before something that nobody could do is tried again.
const RETRY: Duration = Duration::from_millis(50);

/// A lock that is held, until it is released or dropped, or its lease has ended. Dropped, it is free when its lease has ended. Locks are
/// fair, and have fencing tokens.
///
/// A lease may end while its holder does not notice: it was stopped, or its clock is wrong. So a lock keeps others out for certain only
/// where a token is looked at: within the store by [`Lock::fence`], elsewhere by whoever refuses a token below one that it has seen.
///
/// A lock is a prefix. Who wants it puts a key below it that ends with a lease of its own; who has the oldest one has the lock, and the
/// others wait for the end of the one before theirs. Tokens are revisions, and rise with each holder. The lock `jobs` has the keys `jobs/` with
/// 16 hexadecimal digits behind and a lease; other keys below `jobs/`, and locks as `jobs/1`, are nothing to it.
pub struct Lock {
    lease: LeaseGuard,
    key: Bytes,
    token: u64,
}

impl Lock {
    /// Greater than that of every holder before.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// What is true for exactly as long as the lock is held: with it among its compares, a transaction is this holder's, or not done.
    pub fn fence(&self) -> Compare {
        Compare { key: self.key.clone(), condition: Condition::RevisionIs(self.token) }
    }

    /// Its lease.
    pub fn lease(&self) -> &LeaseGuard {
        &self.lease
    }

    /// Lets the next one have it.
    pub async fn release(self) -> Result<(), Error> {
        self.lease.revoke().await
    }
}

impl Client {
    /// Waits for a lock, for so long at most; `None`: others had it all the time. A holder that says nothing for `ttl` has lost it.
    pub async fn lock(&self, name: impl Into<Bytes>, ttl: Duration, patience: Duration) -> Result<Option<Lock>, Error> {
        let deadline = deadline_in(patience);
        let prefix = Bytes::from([&name.into()[..], b"/"].concat());
        let lease = self.lease(ttl).await?;
        let key = Bytes::from([&prefix[..], format!("{:0DIGITS$x}", lease.number()).as_bytes()].concat());
        let acquired = timeout_at(deadline, self.wait_in_line(&prefix, &key, lease.number())).await;
        match acquired {
            Ok(Ok(token)) => Ok(Some(Lock { lease, key, token })),
            // Others need not wait until the lease ends; should this fail, they do.
            Ok(Err(error)) => lease.revoke().await.and(Err(error)),
            Err(_) => lease.revoke().await.map(|()| None),
        }
    }

    /// Puts the key, and waits until it is the oldest; its revision.
    async fn wait_in_line(&self, prefix: &Bytes, key: &Bytes, lease: u64) -> Result<u64, Error> {
        let token = loop {
            match self.stand_in_line(key, lease).await {
                Err(error) if error.is_temporary() => sleep(RETRY).await,
                token => break token?,
            }
        };
        loop {
            match self.before(prefix, token).await {
                Ok((true, None, _)) => return Ok(token),
                Ok((true, Some(other), index)) => match self.wait_for_end_of(other.key, index + 1).await {
                    // It is looked again.
                    Ok(()) | Err(Error::TooOld(_)) => {}
                    Err(error) if error.is_temporary() => sleep(RETRY).await,
                    Err(error) => return Err(error),
                },
                Ok((false, ..)) => {
                    return Err(Error::NoSession("the lease of a lock ended while it was waited for".into()));
                }
                Err(error) if error.is_temporary() => sleep(RETRY).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Once, however often it is asked: the key is of one lease alone.
    async fn stand_in_line(&self, key: &Bytes, lease: u64) -> Result<u64, Error> {
        let compares = vec![Compare { key: key.clone(), condition: Condition::Exists(false) }];
        let otherwise = vec![Operation::Get { key: key.clone() }];
        let put = Transaction::put_with_lease(key.clone(), Bytes::new(), lease);
        let written = self.transact(Transaction { compares, otherwise, ..put }).await?;
        match written.applied.results.as_slice() {
            [OperationResult::Got(Some(item))] => Ok(item.revision),
            _ => Ok(written.revision),
        }
    }

    /// Whether the key with this revision is in the line, the one just before it, and the index of that.
    async fn before(&self, prefix: &Bytes, token: u64) -> Result<(bool, Option<KeyValue>, u64), Error> {
        let mut scan = Scan { keys_only: true, ..Scan::prefix(prefix.clone()) };
        let (mut is_there, mut before, mut index) = (false, None::<KeyValue>, u64::MAX);
        loop {
            let page = self.scan(scan.clone(), ReadLevel::Linearizable).await?;
            // What ended since the first page will be told by a watch from there.
            index = index.min(page.index);
            scan.after = page.value.items.last().map(|item| item.key.clone());
            for item in page.value.items.into_iter().filter(|item| is_in_line(prefix, item)) {
                is_there |= item.revision == token;
                if item.revision < token && before.as_ref().is_none_or(|other| item.revision > other.revision) {
                    before = Some(item);
                }
            }
            if !page.value.has_more {
                return Ok((is_there, before, index));
            }
        }
    }

    async fn wait_for_end_of(&self, key: Bytes, from_revision: u64) -> Result<(), Error> {
        let mut watch = self.watch(WatchOptions { from_revision, ..WatchOptions::key(key) }).await?;
        while let Some(event) = watch.next().await {
            if event?.kind != EventKind::Put {
                return Ok(());
            }
        }
        Err(Error::Stopped)
    }
}

/// Whether a key below a lock's prefix is somebody's who waits for it, or has it.
fn is_in_line(prefix: &Bytes, item: &KeyValue) -> bool {
    let rest = item.key.strip_prefix(&prefix[..]).unwrap_or_default();
    item.lease != 0 && rest.len() == DIGITS && rest.iter().all(u8::is_ascii_hexdigit)
}
