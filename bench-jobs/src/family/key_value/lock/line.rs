//! One client's place in the lines of locks, whichever protocol its store speaks: a lease of its own, and the lock that it holds.

use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message;
use service_kit::client::{Call, Channel};
use tokio::time::{sleep_until, timeout};

use super::super::store::{Connection, Spoken};
use super::super::streaming::Streaming;
use crate::failure::Failure;
use crate::net::etcd::messages::{
    Compare, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseRevokeRequest, PutRequest,
    RequestOp, ResponseHeader, TxnRequest, compare, path, request_op,
};
use crate::net::etcd::store::{Store, revision_of};

const LOCK: &str = "/v3lockpb.Lock/Lock";
const UNLOCK: &str = "/v3lockpb.Lock/Unlock";
/// A lease lasts so many times as long as an answer may take. To acquire a lock, write and release it takes three answers, and the lease was kept
/// alive at most a quarter of its life before: nobody loses a lock that it was given, as long as this loader is not late itself.
const TIMEOUTS: u32 = 6;
/// A lease is kept alive so often in its life.
const KEPT_ALIVE: u32 = 4;

/// `v3lockpb.LockRequest`.
#[derive(Clone, PartialEq, Message)]
struct LockRequest {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(int64, tag = "2")]
    lease: i64,
}

/// `v3lockpb.LockResponse`.
#[derive(Clone, PartialEq, Message)]
struct LockResponse {
    #[prost(message, optional, tag = "1")]
    header: Option<ResponseHeader>,
    #[prost(bytes = "bytes", tag = "2")]
    key: Bytes,
}

/// `v3lockpb.UnlockRequest`.
#[derive(Clone, PartialEq, Message)]
struct UnlockRequest {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
}

/// `v3lockpb.UnlockResponse`.
#[derive(Clone, PartialEq, Message)]
struct UnlockResponse {}

/// A lock that is held.
#[derive(Debug)]
pub(super) struct Held {
    /// It is there as long as the lock is held.
    key: Bytes,
    token: u64,
}

impl Held {
    /// Greater than that of every holder before.
    pub(super) fn token(&self) -> u64 {
        self.token
    }
}

/// A client of etcd's API.
#[derive(Debug)]
struct Etcd {
    channel: Channel,
    store: Store,
    lock: Call,
    unlock: Call,
}

#[derive(Debug)]
enum Way {
    /// The server keeps the line.
    Etcd(Box<Etcd>),
    /// The client does.
    DEngine(Box<Streaming>),
}

/// The life of a lease, as far as its client can know.
#[derive(Clone, Copy, Debug)]
struct Life {
    /// It began anew after this: the store may count from later, never from earlier.
    since: Instant,
    length: Duration,
    /// Whether it was noticed that it ended.
    is_noticed: bool,
}

/// What a client owes its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    KeepAlive,
    /// Nobody kept it alive in time, so that it may have ended: another one.
    Another,
}

impl Life {
    /// Of a lease that begins now.
    fn new(length: Duration) -> Self {
        Self { since: Instant::now(), length, is_noticed: false }
    }

    /// Notices that the lease has ended; whether nobody had before.
    fn notice_end(&mut self) -> bool {
        !std::mem::replace(&mut self.is_noticed, true)
    }

    /// Until when the lease is alive, if the store keeps its word.
    fn end(&self) -> Instant {
        self.since + self.length
    }

    fn due(&self, now: Instant) -> Due {
        match now.saturating_duration_since(self.since) {
            age if age >= self.length => Due::Another,
            age if age >= self.length / KEPT_ALIVE => Due::KeepAlive,
            _ => Due::Nothing,
        }
    }
}

/// One client's.
#[derive(Debug)]
pub(super) struct Line {
    way: Way,
    lease: u64,
    life: Life,
    /// How long an answer may take.
    timeout: Duration,
}

impl Line {
    /// Grants a lease for a client that waits for an answer for at most `timeout`.
    pub(super) async fn open(connection: &Connection, timeout: Duration) -> Result<Self, Failure> {
        let (channel, endpoint) = (connection.channel(), connection.endpoint());
        let way = match connection.spoken() {
            Spoken::Etcd => {
                let store = Store::new(&channel, endpoint);
                let (lock, unlock) = (channel.call(LOCK), channel.call(UNLOCK));
                Way::Etcd(Box::new(Etcd { channel, store, lock, unlock }))
            }
            Spoken::DEngine(_) => Way::DEngine(Box::new(connection.streaming())),
        };
        // Whole seconds, in which etcd counts.
        let length = Duration::from_secs((TIMEOUTS * timeout).as_secs_f64().ceil() as u64);
        let mut line = Self { way, lease: 0, life: Life::new(length), timeout };
        line.grant().await?;
        Ok(line)
    }

    async fn grant(&mut self) -> Result<(), Failure> {
        let life = Life::new(self.life.length);
        self.lease = match &mut self.way {
            Way::Etcd(etcd) => {
                let request = LeaseGrantRequest { ttl: life.length.as_secs() as i64 };
                etcd.store.grant(&request).await?.id as u64
            }
            Way::DEngine(streaming) => within(self.timeout, "to grant a lease", streaming.grant(life.length)).await?,
        };
        self.life = life;
        Ok(())
    }

    /// Until when the lease is alive, if the store keeps its word. What happens later is this loader's own lateness.
    pub(super) fn alive_until(&self) -> Instant {
        self.life.end()
    }

    /// Notices that the lease has ended; whether that is news. Its holder may notice it several times, and counts it once.
    pub(super) fn notice_end(&mut self) -> bool {
        self.life.notice_end()
    }

    /// Keeps the lease alive, if it is time. Where it is too late it takes another; whether the old one's end is news. No answer in time is the
    /// store's failure.
    pub(super) async fn stay_alive(&mut self) -> Result<bool, Failure> {
        let now = Instant::now();
        match self.life.due(now) {
            Due::Nothing => return Ok(false),
            Due::KeepAlive => {}
            Due::Another => return self.take_another().await,
        }
        match (self.keep_alive().await, self.life.due(Instant::now())) {
            (Ok(()), _) => {
                self.life.since = now;
                Ok(false)
            }
            // It ended while this loader did not come to send or read.
            (Err(_), Due::Another) => self.take_another().await,
            (Err(failure), _) => Err(failure),
        }
    }

    async fn take_another(&mut self) -> Result<bool, Failure> {
        let is_news = self.notice_end();
        self.grant().await?;
        Ok(is_news)
    }

    async fn keep_alive(&mut self) -> Result<(), Failure> {
        let (lease, limit) = (self.lease, self.timeout);
        match &mut self.way {
            Way::Etcd(etcd) => within(limit, "LeaseKeepAlive", keep_alive_at_etcd(&mut etcd.store, lease)).await,
            Way::DEngine(streaming) => within(limit, "to keep a lease alive", streaming.keep_alive(lease)).await,
        }
    }

    /// Returns when there is something to do for the lease.
    pub(super) async fn until_due(&self) {
        sleep_until((self.life.since + self.life.length / KEPT_ALIVE).into()).await;
    }

    /// Waits in line until the lock is held.
    pub(super) async fn acquire(&mut self, name: &[u8]) -> Result<Held, Failure> {
        match &mut self.way {
            Way::Etcd(etcd) => {
                let Etcd { channel, store, lock, .. } = &mut **etcd;
                let request = LockRequest { name: name.into(), lease: self.lease as i64 };
                let answer = channel.unary::<_, LockResponse>(lock, &request).await;
                let answer = answer.map_err(|error| store.failure("Lock", &error))?;
                let token = revision_of(answer.header.as_ref()) as u64;
                Ok(Held { key: answer.key, token })
            }
            Way::DEngine(streaming) => {
                let prefix = [name, b"/"].concat();
                let key = [&prefix[..], format!("{:016x}", self.lease).as_bytes()].concat();
                let token = streaming.stand_in_line(&key, self.lease).await?;
                while let Some(before) = streaming.before(&prefix, token).await? {
                    streaming.wait_for_end_of(before).await?;
                }
                Ok(Held { key: key.into(), token })
            }
        }
    }

    /// Writes a key, if the lock is still held; whether it was.
    pub(super) async fn put_fenced(&mut self, held: &Held, key: &[u8], value: &[u8]) -> Result<bool, Failure> {
        match &mut self.way {
            Way::Etcd(etcd) => {
                // The key is put once for each time that the lock is held.
                let is_there = Compare {
                    result: compare::EQUAL,
                    target: compare::VERSION,
                    key: held.key.to_vec(),
                    target_union: Some(compare::TargetUnion::Version(1)),
                };
                let put = request_op::Request::Put(PutRequest { key: key.into(), value: value.into() });
                let success = vec![RequestOp { request: Some(put) }];
                Ok(etcd.store.transact(&TxnRequest { compare: vec![is_there], success }).await?.succeeded)
            }
            Way::DEngine(streaming) => streaming.put_fenced((&held.key, held.token), key, value).await,
        }
    }

    /// Lets the next one have it.
    pub(super) async fn release(&mut self, held: Held) -> Result<(), Failure> {
        match &mut self.way {
            Way::Etcd(etcd) => {
                let Etcd { channel, store, unlock, .. } = &mut **etcd;
                let answer = channel.unary::<_, UnlockResponse>(unlock, &UnlockRequest { key: held.key }).await;
                answer.map(drop).map_err(|error| store.failure("Unlock", &error))
            }
            Way::DEngine(streaming) => match streaming.delete(&held.key).await? {
                true => Ok(()),
                false => Err(Failure::new("a lock that was held was not there when it was released")),
            },
        }
    }

    /// Ends the lease.
    pub(super) async fn close(mut self) -> Result<(), Failure> {
        if self.life.due(Instant::now()) == Due::Another {
            return Ok(());
        }
        match &mut self.way {
            Way::Etcd(etcd) => etcd.store.revoke(&LeaseRevokeRequest { id: self.lease as i64 }).await.map(drop),
            Way::DEngine(streaming) => within(self.timeout, "to end a lease", streaming.revoke(self.lease)).await,
        }
    }
}

async fn keep_alive_at_etcd(store: &mut Store, lease: u64) -> Result<(), Failure> {
    let request = LeaseKeepAliveRequest { id: lease as i64 };
    let stream = store.stream::<_, LeaseKeepAliveResponse>(path::LEASE_KEEP_ALIVE, &request).await?;
    let (_keeps_open, mut answers) = stream;
    let answer = answers.next().await.map_err(|error| store.failure("LeaseKeepAlive", &error))?;
    if answer.is_none_or(|answer| answer.ttl <= 0) {
        return Err(Failure::new("LeaseKeepAlive: a lease that is kept alive has ended"));
    }
    Ok(())
}

/// What is asked on a stream, whose answers nobody else bounds.
async fn within<T>(
    limit: Duration,
    doing: &str,
    answer: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    timeout(limit, answer)
        .await
        .unwrap_or_else(|_| Err(Failure::new(format_args!("{doing}: no answer within {limit:?}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_kept_alive_in_time_and_given_up_when_it_is_too_late() {
        let since = Instant::now();
        let life = Life { since, length: Duration::from_secs(60), is_noticed: false };
        let due = |seconds| life.due(since + Duration::from_secs(seconds));
        assert_eq!([0, 14, 15, 59, 60, 600].map(due), {
            use Due::{Another, KeepAlive, Nothing};
            [Nothing, Nothing, KeepAlive, KeepAlive, Another, Another]
        });
    }

    /// Its holder hears of it when it writes, when it releases, and when it keeps it alive.
    #[test]
    fn a_lease_that_ended_is_counted_once() {
        let mut life = Life::new(Duration::from_secs(60));
        assert_eq!([life.notice_end(), life.notice_end(), life.notice_end()], [true, false, false]);
        assert!(Life::new(life.length).notice_end(), "another lease");
    }

    #[tokio::test]
    async fn a_keep_alive_without_an_answer_is_the_stores_failure() {
        let limit = Duration::from_millis(10);
        let never = std::future::pending::<Result<(), Failure>>();
        let said = within(limit, "LeaseKeepAlive", never).await.unwrap_err();
        assert_eq!(said.text(), "LeaseKeepAlive: no answer within 10ms");
    }
}
