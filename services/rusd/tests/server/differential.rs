//! The same random requests to rusd and to the real etcd, one after the other: every answer, every event of every watch and every hash
//! must be equal, but for the numbers of groups and members, and the term.
//!
//! The requests follow from a seed, which a failure names; `RUSD_SEEDS=7` or `RUSD_SEEDS=100..200` chooses others.

mod connection;
mod operation;

use std::time::{Duration, Instant};

use harness::Etcd;
use rusd::proto::etcdserverpb as pb;
use rusd::proto::etcdserverpb::watch_request::RequestUnion;
use tokio::task::LocalSet;

use crate::process::Rusd;
use connection::{Connection, LONG, Watching};
use operation::{Generator, Operation};

const OPERATIONS: usize = 400;

/// One of the two servers.
struct Side {
    connection: Connection,
    watches: Vec<Watch>,
}

/// A watch on a stream of its own, and what it has been told.
struct Watch {
    stream: Watching,
    request: pb::WatchCreateRequest,
    is_over: bool,
    told: Vec<String>,
}

impl Side {
    async fn to(address: &str) -> Self {
        Self { connection: Connection::to(address).await, watches: Vec::new() }
    }

    /// The answer; of a watch, what it is told up to `revision`, the newest.
    async fn perform(&mut self, operation: &Operation, revision: i64) -> String {
        let connection = &self.connection;
        match operation {
            Operation::Put(request) => connection.ask::<pb::PutResponse>("KV/Put", request).await,
            Operation::Range(request) => connection.ask::<pb::RangeResponse>("KV/Range", request).await,
            Operation::RangeStream(request) => {
                connection.ask::<pb::RangeStreamResponse>("KV/RangeStream", request).await
            }
            Operation::DeleteRange(request) => {
                connection.ask::<pb::DeleteRangeResponse>("KV/DeleteRange", request).await
            }
            Operation::Txn(request) => connection.ask::<pb::TxnResponse>("KV/Txn", request).await,
            Operation::Hash(request) => connection.ask::<pb::HashKvResponse>("Maintenance/HashKV", request).await,
            Operation::Grant(request) => connection.ask::<pb::LeaseGrantResponse>("Lease/LeaseGrant", request).await,
            Operation::Revoke(request) => connection.ask::<pb::LeaseRevokeResponse>("Lease/LeaseRevoke", request).await,
            Operation::TimeToLive(request) => {
                connection.ask::<pb::LeaseTimeToLiveResponse>("Lease/LeaseTimeToLive", request).await
            }
            Operation::Leases(request) => connection.ask::<pb::LeaseLeasesResponse>("Lease/LeaseLeases", request).await,
            Operation::Compact(request) => {
                // A watch that is behind may be told of a compaction instead of what happened before it.
                self.told(revision).await;
                self.connection.ask::<pb::CompactionResponse>("KV/Compact", request).await
            }
            Operation::Watch(request) => {
                let stream = connection.watch(RequestUnion::CreateRequest(request.clone())).await;
                let mut watch = Watch { stream, request: request.clone(), is_over: false, told: Vec::new() };
                let created = watch.stream.expect().await;
                watch.note(created);
                watch.settle(revision).await;
                let told = watch.told.join("\n");
                self.watches.push(watch);
                told
            }
        }
    }

    /// What all watches have been told up to this revision.
    async fn told(&mut self, revision: i64) -> String {
        let mut all = String::new();
        for (number, watch) in self.watches.iter_mut().enumerate() {
            watch.settle(revision).await;
            all += &format!("watch {number}\n{}\n", watch.told.join("\n"));
        }
        all
    }
}

impl Watch {
    /// How events are put into messages is the server's affair; their order is not.
    fn note(&mut self, response: pb::WatchResponse) {
        self.told.extend(response.events.iter().map(|event| format!("{event:?}")));
        self.is_over |= response.canceled;
        if response.created || response.canceled {
            self.told.push(format!("{:?}", pb::WatchResponse { events: vec![], header: None, ..response }));
        }
    }

    /// Waits until it was told everything up to this revision: who asks for progress hears of it when nothing is left to be told.
    async fn settle(&mut self, revision: i64) {
        let deadline = Instant::now() + LONG;
        while !self.is_over && self.request.start_revision <= revision {
            assert!(Instant::now() < deadline, "no progress to {revision} of {:?}: {:?}", self.request, self.told);
            self.stream.send(RequestUnion::ProgressRequest(pb::WatchProgressRequest {}));
            // As long as something is left, etcd does not answer.
            while let Some(response) = self.stream.next(Duration::from_millis(50)).await {
                let is_progress = response.events.is_empty() && !response.created && !response.canceled;
                if is_progress && response.header.is_some_and(|header| header.revision >= revision) {
                    return;
                }
                self.note(response);
            }
        }
    }
}

/// The revision in an answer's header.
fn revision_in(answer: &str) -> Option<i64> {
    let (_, rest) = answer.split_once("header: Some(ResponseHeader {")?;
    let (_, rest) = rest.split_once("revision: ")?;
    rest.split([',', ' ']).next()?.parse().ok()
}

/// Runs the operations of a seed, up to the first difference: behind it, one follows from the other.
async fn difference(seed: u64, rusd: &str, etcd: &str) -> Option<String> {
    let (mut ours, mut theirs) = (Side::to(rusd).await, Side::to(etcd).await);
    let mut generator = Generator::new(seed);
    for number in 0..OPERATIONS {
        let operation = generator.operation();
        let revision = generator.revision;
        // Shown if the test fails, and if a server ends meanwhile.
        println!("seed {seed}, operation {number}: {operation:?}");
        let etcd = theirs.perform(&operation, revision).await;
        let rusd = ours.perform(&operation, revision).await;
        if etcd != rusd {
            return Some(format!("operation {number}: {operation:?}\n  etcd {etcd}\n  rusd {rusd}"));
        }
        generator.revision = revision_in(&etcd).map_or(revision, |newer| newer.max(revision));
    }
    let (etcd, rusd) = (theirs.told(generator.revision).await, ours.told(generator.revision).await);
    (etcd != rusd).then(|| format!("watches\n--- etcd\n{etcd}\n--- rusd\n{rusd}"))
}

fn seeds() -> std::ops::Range<u64> {
    let Ok(chosen) = std::env::var("RUSD_SEEDS") else { return 0..2 };
    let number = |text: &str| text.parse().expect("RUSD_SEEDS is a number, or two with .. between them");
    match chosen.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => number(&chosen)..number(&chosen) + 1,
    }
}

#[test]
fn random_requests_have_the_answers_and_events_of_etcd() {
    for seed in seeds() {
        let directory = harness::folder();
        let (etcd, rusd) = (Etcd::start(&directory.path().join("etcd")), Rusd::start(&[]));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let found =
            LocalSet::new().block_on(&runtime, async { difference(seed, rusd.address(), etcd.address()).await });
        assert!(found.is_none(), "seed {seed}, {}", found.unwrap_or_default());
    }
}
