//! The group that this member belongs to: who leads it, what only the leader can do, and who else belongs to it.
//!
//! A command that a client gives to any member goes through replog's forwarder; what the leader alone knows, such as when leases end,
//! it is asked for in the same way.
//!
//! | file | is |
//! | --- | --- |
//! | `leading` | what only the leader can answer, and how answers travel |
//! | `asking` | what any member can be asked of itself |
//! | `door` | what comes from other members |
//! | `identity` | who this member is: founded, or learned from the group that it joins |
//! | `members` | makes the log's membership follow what the store says, and tells the transport where members are |
//! | `safety` | which changes of the membership would cost the group its majority |

mod asking;
mod door;
mod identity;
mod leading;
mod members;
mod safety;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::join_all;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use replog::ReadLevel;
use replog::runtime::tcp::Peers;
use replog::runtime::{Forwarder, Handle, Leadership, SubmitError};
use service_kit::grpc::{Code, Status};
use service_kit::metrics::Times;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::hashes::Hashes;
use crate::lessor::Lessor;
use crate::store::{Error, Held, OtherReply, Reader, Reply, Response};

pub use asking::PeerHash;
use asking::{Asked, Itself, decode_hash};
pub use door::Door;
pub use identity::{Identity, IdentityError};
use leading::{LeaderState, Question};
pub use members::peer_address;

/// How often the way to other members is measured.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// As in etcd: from 0.1 ms, 15 times the double of the one before.
const ROUND_TRIP_BOUNDS_MICROS: [u64; 15] = {
    let mut bounds = [100; 15];
    let mut place = 1;
    while place < bounds.len() {
        bounds[place] = 2 * bounds[place - 1];
        place += 1;
    }
    bounds
};

/// What a command came to.
#[derive(Debug)]
pub struct Done {
    /// The store's answer.
    pub response: Response,
    /// The term in which it was committed.
    pub term: u64,
    /// Until it is on its way to the client.
    pub held: Option<Held>,
}

impl Done {
    /// Of the reply to a command, or why it did nothing.
    pub fn of(reply: Reply, term: u64) -> Result<Self, Error> {
        Ok(Self { response: reply.outcome?, term, held: reply.held })
    }

    /// What a command of this kind comes to, and the term. A store that replies as to another contradicts itself: nobody may take that
    /// for a success.
    pub fn reply<R: TryFrom<Response, Error = OtherReply>>(self) -> Result<(R, u64), Status> {
        match R::try_from(self.response) {
            Ok(reply) => Ok((reply, self.term)),
            Err(other) => {
                debug_assert!(false, "{other}");
                Err(Status::new(Code::Internal, format!("rusd: {other}")))
            }
        }
    }
}

/// The group, as one member sees it.
pub struct Group {
    cluster_id: u64,
    id: u64,
    handle: Handle<Reply>,
    reader: Reader,
    peers: Peers,
    forwarder: Forwarder<LeaderState>,
    leadership: watch::Receiver<Leadership>,
    /// Whether there has been no leader for so long that clients should look elsewhere.
    is_lost: watch::Sender<bool>,
    /// How long the way to each member and back was.
    round_trips: Mutex<BTreeMap<u64, Times>>,
    /// Who votes does so until it is removed: once it is so, nothing needs to be looked up.
    votes: AtomicBool,
}

impl Group {
    /// The group around a member that has started.
    pub fn new(
        (cluster_id, id): (u64, u64),
        handle: Handle<Reply>,
        reader: Reader,
        lessor: Arc<Lessor>,
        hashes: Hashes,
        peers: Peers,
        read_level: ReadLevel,
    ) -> Self {
        let itself = Itself { reader: reader.clone(), hashes };
        let leading = LeaderState { lessor, reader: reader.clone(), handle: handle.clone(), itself, read_level };
        let forwarder = Forwarder::new(id, handle.clone(), peers.clone(), leading);
        Self {
            cluster_id,
            id,
            handle,
            reader,
            peers,
            leadership: forwarder.leadership(),
            forwarder,
            is_lost: watch::Sender::new(false),
            round_trips: Mutex::default(),
            votes: AtomicBool::new(false),
        }
    }

    /// Who leads, and each change of it.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// Whether this member only gets the log, and does not vote; as who joins does before it knows what it is.
    pub fn is_learner(&self) -> bool {
        if self.votes.load(Ordering::Relaxed) {
            return false;
        }
        let votes = self.reader.view().cluster.members.get(&self.id).is_some_and(|member| !member.is_learner);
        self.votes.store(votes, Ordering::Relaxed);
        !votes
    }

    /// Comes when there was no leader for three election timeouts, as in etcd.
    pub fn leader_is_lost(&self) -> impl Future<Output = ()> + use<> {
        let mut is_lost = self.is_lost.subscribe();
        async move {
            if is_lost.wait_for(|is_lost| *is_lost).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Puts a command into the log, wherever the leader is, and waits until it was applied here. Waits for a leader.
    pub async fn submit(&self, command: Bytes) -> Result<Done, Error> {
        let committed = self.forwarder.submit(command).await.map_err(|error| match error {
            SubmitError::Busy => Error::TooManyRequests,
            SubmitError::TooLarge(_) => Error::RequestTooLarge,
            SubmitError::Unknown => Error::TimeoutDueToLeaderFail,
            SubmitError::NotHere => Error::TimeoutWaitAppliedIndex,
            SubmitError::Stopped => Error::Stopped,
        })?;
        Done::of(committed.reply, committed.term)
    }

    /// Puts a command into the log if somebody leads who takes it; nobody learns what became of it.
    pub fn post(&self, command: Bytes) {
        self.forwarder.post(command);
    }

    /// Gives a lease its full time again: so many seconds.
    pub async fn renew_lease(&self, id: i64) -> Result<i64, Error> {
        self.ask(Question::Renew(id)).await
    }

    /// What is left of a lease, in seconds.
    pub async fn remaining_seconds(&self, id: i64) -> Result<i64, Error> {
        self.ask(Question::Remaining(id)).await
    }

    /// Whether a learner has caught up with the leader.
    pub async fn check_caught_up(&self, learner: u64) -> Result<(), Error> {
        self.ask(Question::CatchesUp(learner)).await.map(|_| ())
    }

    /// What another member keeps at a revision. `None`: it is not connected, or answers nothing; the caller says how long it waits.
    pub async fn ask_hash(&self, member: u64, revision: i64) -> Option<Result<PeerHash, Error>> {
        let answer = self.forwarder.ask_member(member, Asked::Hash(revision).encode()).await?;
        decode_hash(&answer)
    }

    /// Whether another member is connected to this one.
    pub fn is_connected(&self, member: u64) -> bool {
        self.peers.here_since(member).is_some()
    }

    /// Connections to and from other members.
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Measures the way to each member and back, for as long as the member runs.
    pub async fn measure_round_trips(&self) {
        loop {
            sleep(PROBE_INTERVAL).await;
            let members = self.peers.known();
            let ask = |member| async move {
                let asked = Instant::now();
                let answer = timeout(PROBE_INTERVAL, self.forwarder.ask_member(member, Asked::Ping.encode())).await;
                if let Ok(Some(_)) = answer {
                    let mut times = self.round_trips.lock().unwrap_or_else(PoisonError::into_inner);
                    times
                        .entry(member)
                        .or_insert_with(|| Times::new(&ROUND_TRIP_BOUNDS_MICROS))
                        .record(asked.elapsed());
                }
            };
            join_all(members.into_iter().map(ask)).await;
        }
    }

    /// Writes what was measured, for `/metrics`.
    pub fn encode_round_trips(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let times = self.round_trips.lock().unwrap_or_else(PoisonError::into_inner);
        let (name, help) = ("etcd_network_peer_round_trip_time_seconds", "Round-Trip-Time histogram between peers");
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (member, times) in &*times {
            times.encode_into(&mut metric.encode_family(&[("To", format!("{member:x}"))])?)?;
        }
        Ok(())
    }

    async fn ask(&self, question: Question) -> Result<i64, Error> {
        let answer = self.forwarder.ask(question.encode()).await.ok_or(Error::Stopped)?;
        // A leader of another release may answer what this one does not understand.
        leading::decode_answer(&answer).unwrap_or(Err(Error::TimeoutDueToLeaderFail))
    }
}
