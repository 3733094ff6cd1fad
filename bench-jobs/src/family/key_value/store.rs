//! One client's way to a store, whichever protocol it speaks.

use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use service_kit::client::Channel;
use storebench_crds::workload::key_value::ReadLevel;

use super::d_engine::Client;
use crate::failure::Failure;
use crate::family::etcd::connect::connect;
use crate::family::etcd::messages::{PutRequest, RangeRequest, RangeResponse, path};
use crate::family::etcd::store as etcd;

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
    DEngine,
}

/// A connection; its clients share it.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    spoken: Spoken,
    channel: Channel,
    endpoint: Rc<str>,
}

impl Connection {
    pub(super) async fn open(spoken: Spoken, endpoint: &str, timeout: Duration) -> Result<Self, Failure> {
        let channel = connect(endpoint, timeout).await?;
        Ok(Self { spoken, channel, endpoint: endpoint.into() })
    }

    /// A client of its own on this connection.
    pub(super) fn store(&self) -> Store {
        match self.spoken {
            Spoken::Etcd => Store::Etcd(etcd::Store::new(&self.channel, &self.endpoint)),
            Spoken::DEngine => Store::DEngine(Client::new(&self.channel, &self.endpoint)),
        }
    }
}

/// One client on one connection.
#[derive(Debug)]
pub(super) enum Store {
    Etcd(etcd::Store),
    DEngine(Client),
}

impl Store {
    /// Where it is connected to, `host:port`.
    pub(super) fn endpoint(&self) -> &str {
        match self {
            Self::Etcd(store) => store.endpoint(),
            Self::DEngine(client) => client.endpoint(),
        }
    }

    /// Writes a key.
    pub(super) async fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Etcd(store) => store.put(&PutRequest { key: key.into(), value: value.into() }).await.map(drop),
            Self::DEngine(client) => client.put(key, value).await,
        }
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
        }
    }
}

/// What the store speaks, and which of its members take writes; waits until one does. Every API of etcd forwards writes, and is told
/// from d-engine's by its answer to a read.
pub(super) async fn writers(endpoints: &[String], timeout: Duration) -> Result<(Spoken, Vec<String>), Failure> {
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
            return Ok((Spoken::DEngine, taking));
        }
        if Instant::now() > deadline {
            return Err(Failure::new(format_args!("no member takes writes after {LEADER_TIMEOUT:?}: {last}")));
        }
        tokio::time::sleep(LEADER_PAUSE).await;
    }
}
