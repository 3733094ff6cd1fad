//! LeaseKeepAlive: each client keeps its own lease alive, one request at a time, on a stream of its own.

use std::cell::RefCell;
use std::time::Instant;

use service_kit::client::{StreamReceiver, StreamSender};

use crate::failure::Failure;
use crate::load::session::Session;
use crate::net::etcd::messages::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseRevokeRequest, path,
};
use crate::net::etcd::store::Store;

/// Time to live, seconds: long enough that no lease expires between two requests of a slow open loop.
const TTL_SECONDS: i64 = 600;

/// The leases of one thread's clients, by place.
#[derive(Debug)]
pub struct Leases(Vec<RefCell<Option<Lease>>>);

#[derive(Debug)]
struct Lease {
    id: i64,
    sender: StreamSender<LeaseKeepAliveRequest>,
    receiver: StreamReceiver<LeaseKeepAliveResponse>,
}

impl Leases {
    /// None yet, for so many clients.
    pub fn new(clients: usize) -> Self {
        Self((0..clients).map(|_| RefCell::default()).collect())
    }

    /// Grants the client's lease, opens its stream and keeps the lease alive once.
    pub async fn open(&self, store: &mut Store, session: &Session) -> Result<(), Failure> {
        let mut batch = session.begin(1);
        let granted = store.grant(&LeaseGrantRequest { ttl: TTL_SECONDS }).await?;
        if !granted.error.is_empty() || granted.id == 0 || granted.ttl <= 0 {
            return Err(Failure::new(format_args!(
                "LeaseGrant: lease {} for {} s, error {:?}",
                granted.id, granted.ttl, granted.error
            )));
        }
        let first = LeaseKeepAliveRequest { id: granted.id };
        let (sender, receiver) = store.stream(path::LEASE_KEEP_ALIVE, &first).await?;
        let mut lease = Lease { id: granted.id, sender, receiver };
        let answer = lease.receive().await?;
        session.answered_uncounted(&mut batch, 1);
        lease.check(session, &answer);
        self.put_back(session, lease);
        Ok(())
    }

    /// The load: a request, its answer, the next.
    pub async fn keep_alive(&self, session: &Session) -> Result<(), Failure> {
        let Some(mut lease) = self.take(session) else {
            return Ok(());
        };
        while let Some(mut batch) = session.next().await {
            let request = LeaseKeepAliveRequest { id: lease.id };
            lease.sender.queue(&request).map_err(|error| Failure::new(format_args!("LeaseKeepAlive: {error}")))?;
            let answer = lease.receive().await?;
            session.answered(&mut batch, 1, Instant::now());
            lease.check(session, &answer);
        }
        self.put_back(session, lease);
        Ok(())
    }

    /// Ends the stream and the lease; a lease that is gone by then was lost.
    pub async fn revoke(&self, store: &mut Store, session: &Session) -> Result<(), Failure> {
        let Some(mut lease) = self.take(session) else {
            return Ok(());
        };
        // The stream may be gone already; the answer to the revocation tells.
        let _ = lease.sender.finish();
        let mut batch = session.begin(1);
        store.revoke(&LeaseRevokeRequest { id: lease.id }).await?;
        session.answered_uncounted(&mut batch, 1);
        session.verified(1);
        Ok(())
    }

    fn take(&self, session: &Session) -> Option<Lease> {
        self.0.get(session.place() as usize)?.borrow_mut().take()
    }

    fn put_back(&self, session: &Session, lease: Lease) {
        if let Some(place) = self.0.get(session.place() as usize) {
            place.replace(Some(lease));
        }
    }
}

impl Lease {
    async fn receive(&mut self) -> Result<LeaseKeepAliveResponse, Failure> {
        let received = self.receiver.next().await;
        let received = received.map_err(|error| Failure::new(format_args!("LeaseKeepAlive: {error}")))?;
        received.ok_or_else(|| Failure::new("LeaseKeepAlive: the store ended the stream"))
    }

    fn check(&self, session: &Session, answer: &LeaseKeepAliveResponse) {
        if answer.id == self.id && answer.ttl > 0 {
            session.verified(1);
            return;
        }
        let detail =
            format!("expected lease {} with time to live, found lease {} for {} s", self.id, answer.id, answer.ttl);
        session.wrong(format!("lease {}", self.id), detail);
    }
}
