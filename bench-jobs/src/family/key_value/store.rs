//! One client's way to a store, whichever protocol it speaks.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use service_kit::client::{Channel, GrpcError, StreamReceiver, StreamSender};
use storebench_crds::workload::key_value::{Door, ReadLevel};

use super::d_engine::{self, Client};
use super::streaming::{self, Link, Streaming};
use crate::failure::Failure;
use crate::net::etcd::messages::{
    Compare, EVENT_PUT, PutRequest, RangeRequest, RangeResponse, RequestOp, TxnRequest, WatchCreateRequest,
    WatchRequest, WatchResponse, compare, path, request_op, watch_request,
};
use crate::net::etcd::store as etcd;
use crate::net::grpc::{connect, connect_once};

/// How long a group may take to elect a leader before the load.
const LEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long to wait before members are asked again which of them take writes.
const LEADER_PAUSE: Duration = Duration::from_millis(50);
/// A key that nobody has.
const PROBE_KEY: &[u8] = b"storebench-probe/nobody";

/// What a store speaks, found out by asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spoken {
    Etcd,
    /// By this door.
    DEngine(Door),
}

/// A connection; its clients share it.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    spoken: Spoken,
    channel: Channel,
    endpoint: Rc<str>,
    /// How long an answer may take.
    timeout: Duration,
    /// The stream of its clients, where they have one.
    link: Rc<OnceCell<Link>>,
}

impl Connection {
    pub(super) async fn open(spoken: Spoken, endpoint: &str, timeout: Duration) -> Result<Self, Failure> {
        let channel = connect(endpoint, timeout).await?;
        Ok(Self { spoken, channel, endpoint: endpoint.into(), timeout, link: Rc::default() })
    }

    /// The same without patience: one attempt, of a member that may be down.
    pub(super) async fn open_once(spoken: Spoken, endpoint: &str, timeout: Duration) -> Result<Self, Failure> {
        let channel = connect_once(endpoint, timeout).await?;
        Ok(Self { spoken, channel, endpoint: endpoint.into(), timeout, link: Rc::default() })
    }

    /// What is spoken on it.
    pub(super) fn spoken(&self) -> Spoken {
        self.spoken
    }

    /// Where it goes, `host:port`.
    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// For requests that are not a client's.
    pub(super) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// A client of its own on this connection.
    pub(super) fn store(&self) -> Store {
        match self.spoken {
            Spoken::Etcd => Store::Etcd(etcd::Store::new(&self.channel, &self.endpoint)),
            Spoken::DEngine(Door::Unary) => Store::DEngine(Client::new(&self.channel, &self.endpoint)),
            Spoken::DEngine(Door::Streaming) => Store::Streaming(Box::new(self.streaming())),
        }
    }

    /// A client of its own on this connection's stream to a d-engine.
    pub(super) fn streaming(&self) -> Streaming {
        let link = self.link.get_or_init(|| Link::new(&self.channel, &self.endpoint));
        Streaming::new(link.clone(), self.channel.clone(), &self.endpoint, self.timeout)
    }
}

/// One client on one connection.
#[derive(Debug)]
pub(super) enum Store {
    Etcd(etcd::Store),
    /// In the dialect of release 0.2.4.
    DEngine(Client),
    Streaming(Box<Streaming>),
}

impl Store {
    /// Where it is connected to, `host:port`.
    pub(super) fn endpoint(&self) -> &str {
        match self {
            Self::Etcd(store) => store.endpoint(),
            Self::DEngine(client) => client.endpoint(),
            Self::Streaming(client) => client.endpoint(),
        }
    }

    /// Writes a key.
    pub(super) async fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Etcd(store) => store.put(&PutRequest { key: key.into(), value: value.into() }).await.map(drop),
            Self::DEngine(client) => client.put(key, value).await,
            Self::Streaming(client) => client.put(key, value).await,
        }
    }

    /// Gives a key another value if it has the expected one; whether it had.
    pub(super) async fn swap(&mut self, key: &[u8], expected: &[u8], value: &[u8]) -> Result<bool, Failure> {
        match self {
            Self::Etcd(store) => {
                let compare = Compare {
                    result: compare::EQUAL,
                    target: compare::VALUE,
                    key: key.into(),
                    target_union: Some(compare::TargetUnion::Value(expected.into())),
                };
                let put = request_op::Request::Put(PutRequest { key: key.into(), value: value.into() });
                let success = vec![RequestOp { request: Some(put) }];
                let answer = store.transact(&TxnRequest { compare: vec![compare], success }).await?;
                Ok(answer.succeeded)
            }
            Self::DEngine(client) => client.swap(key, expected, value).await,
            Self::Streaming(client) => client.swap(key, expected, value).await,
        }
    }

    /// Reads all keys with a prefix, with their values, at level Linearizable. The prefix ends in a byte that is not the last of all.
    pub(super) async fn scan(&mut self, prefix: &[u8]) -> Result<Vec<(Bytes, Bytes)>, Failure> {
        match self {
            Self::Etcd(store) => {
                let mut range_end = prefix.to_vec();
                if let Some(last) = range_end.last_mut() {
                    *last += 1;
                }
                let request = RangeRequest { key: prefix.into(), range_end, ..RangeRequest::default() };
                let found = store.range(&request).await?.kvs;
                Ok(found.into_iter().map(|found| (found.key, found.value)).collect())
            }
            Self::DEngine(client) => client.scan(prefix).await,
            Self::Streaming(client) => client.scan(prefix).await,
        }
    }

    /// Watches a key, from some moment on which is not long after.
    pub(super) async fn watch(&mut self, key: &[u8]) -> Result<Watch, Failure> {
        let endpoint = self.endpoint().into();
        let from = match self {
            Self::Etcd(store) => {
                let create = WatchCreateRequest { key: key.into(), ..WatchCreateRequest::default() };
                let request = WatchRequest { request: Some(watch_request::Request::Create(create)) };
                let (keeps_open, events) = store.stream(path::WATCH, &request).await?;
                Watched::Etcd { _keeps_open: keeps_open, events, told: VecDeque::new() }
            }
            Self::DEngine(client) => Watched::DEngine(client.watch(key).await?),
            Self::Streaming(client) => Watched::Streaming(client.watch(key).await?),
        };
        Ok(Watch { from, endpoint })
    }

    /// Reads a key; `None`: there is none.
    pub(super) async fn get(&mut self, key: &[u8], level: ReadLevel) -> Result<Option<Bytes>, Failure> {
        match self {
            Self::Etcd(store) => {
                let serializable = level == ReadLevel::Eventual;
                let request = RangeRequest { key: key.into(), serializable, ..RangeRequest::default() };
                let mut found = store.range(&request).await?.kvs;
                match (found.pop(), found.is_empty()) {
                    (None, _) => Ok(None),
                    (Some(found), true) if found.key == key => Ok(Some(found.value)),
                    (Some(found), _) => {
                        let text = format!("Range: found key {} in its place", found.key.escape_ascii());
                        Err(Failure::new(text))
                    }
                }
            }
            Self::DEngine(client) => client.get(key, level).await,
            Self::Streaming(client) => client.get(key, level).await,
        }
    }

    /// Reads a key whose value is no older than so much; `None`: there is none.
    pub(super) async fn get_bounded(&mut self, key: &[u8], max_age: Duration) -> Result<Option<Bytes>, Failure> {
        match self {
            Self::Etcd(_) => Err(Failure::new("etcd's API has no reads of bounded age").without_effect()),
            Self::DEngine(_) => Err(Failure::new("release 0.2.4 has no reads of bounded age").without_effect()),
            Self::Streaming(client) => client.get_bounded(key, max_age).await,
        }
    }
}

/// A watch on a key.
#[derive(Debug)]
pub(super) struct Watch {
    from: Watched,
    endpoint: Rc<str>,
}

#[derive(Debug)]
enum Watched {
    Etcd { _keeps_open: StreamSender<WatchRequest>, events: StreamReceiver<WatchResponse>, told: VecDeque<Bytes> },
    DEngine(StreamReceiver<d_engine::Event>),
    Streaming(streaming::Watch),
}

impl Watch {
    /// The value of the next put. Nothing is lost when the future is dropped.
    pub(super) async fn next(&mut self) -> Result<Bytes, Failure> {
        loop {
            let endpoint = &self.endpoint;
            let broken = |error: GrpcError| Failure::new(format_args!("watch at {endpoint}: {error}"));
            let over = || Failure::new(format_args!("watch at {endpoint}: the store has ended it"));
            let other = || {
                Failure::new(format_args!("watch at {endpoint}: an event that is no put, of a key that is only put"))
            };
            match &mut self.from {
                Watched::Etcd { events, told, .. } => {
                    if let Some(value) = told.pop_front() {
                        return Ok(value);
                    }
                    let response = events.next().await.map_err(broken)?.ok_or_else(over)?;
                    if response.canceled {
                        return Err(over());
                    }
                    for event in response.events {
                        match event.kv {
                            Some(found) if event.kind == EVENT_PUT => told.push_back(found.value),
                            _ => return Err(other()),
                        }
                    }
                }
                Watched::DEngine(events) => {
                    let event = events.next().await.map_err(broken)?.ok_or_else(over)?;
                    match event.kind {
                        d_engine::PUT_EVENT => return Ok(event.value),
                        _ if event.is_progress() => {}
                        _ => return Err(other()),
                    }
                }
                Watched::Streaming(watch) => return watch.next().await?.ok_or_else(other),
            }
        }
    }
}

/// What the store speaks, and which of its members take writes; waits until one does. Every API of etcd forwards writes, and is told
/// from d-engine's by its answer to a read. A d-engine is to be asked by `door`.
pub(super) async fn writers(
    endpoints: &[String],
    timeout: Duration,
    door: Door,
) -> Result<(Spoken, Vec<String>), Failure> {
    let deadline = Instant::now() + LEADER_TIMEOUT;
    loop {
        let mut taking = Vec::new();
        let mut last = Failure::new("no member was asked");
        for endpoint in endpoints {
            let mut channel = connect(endpoint, timeout).await?;
            let range = channel.call(path::RANGE);
            let request = RangeRequest { key: PROBE_KEY.into(), serializable: true, ..RangeRequest::default() };
            if channel.unary::<_, RangeResponse>(&range, &request).await.is_ok() {
                return Ok((Spoken::Etcd, endpoints.to_vec()));
            }
            match Client::new(&channel, endpoint).delete(PROBE_KEY).await {
                Ok(()) => taking.push(endpoint.clone()),
                Err(failure) => last = failure,
            }
        }
        if !taking.is_empty() {
            return Ok((Spoken::DEngine(door), taking));
        }
        if Instant::now() > deadline {
            return Err(Failure::new(format_args!("no member takes writes after {LEADER_TIMEOUT:?}: {last}")));
        }
        tokio::time::sleep(LEADER_PAUSE).await;
    }
}
