//! The group that this member belongs to: who leads it, what only the leader can do, and who else belongs to it.
//!
//! A command that a client gives to any member goes through replog's forwarder; what the leader alone knows, such as when leases end,
//! it is asked for in the same way.
//!
//! | file | is |
//! | --- | --- |
//! | `leading` | what only the leader can answer, and how answers travel |
//! | `door` | what comes from other members |
//! | `identity` | who this member is: founded, or learned from the group that it joins |
//! | `members` | makes the log's membership follow what the store says, and tells the transport where members are |
//! | `safety` | which changes of the membership would cost the group its majority |

mod door;
mod identity;
mod leading;
mod members;
mod safety;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use replog::runtime::tcp::Peers;
use replog::runtime::{Forwarder, Handle, Leadership, SubmitError};
use service_kit::grpc::{Code, Status};
use tokio::sync::watch;

use crate::lessor::Lessor;
use crate::store::{Error, OtherReply, Outcome, Reader, Response};

pub use door::Door;
pub use identity::{Identity, IdentityError};
use leading::{LeaderState, Question};
pub use members::peer_address;

/// What a command came to.
#[derive(Debug)]
pub struct Done {
    /// The store's answer.
    pub response: Response,
    /// The term in which it was committed.
    pub term: u64,
}

impl Done {
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
    handle: Handle<Outcome>,
    reader: Reader,
    peers: Peers,
    forwarder: Forwarder<LeaderState>,
    leadership: watch::Receiver<Leadership>,
    /// Whether there has been no leader for so long that clients should look elsewhere.
    is_lost: watch::Sender<bool>,
    /// Who votes does so until it is removed: once it is so, nothing needs to be looked up.
    votes: AtomicBool,
}

impl Group {
    /// The group around a member that has started.
    pub fn new(
        (cluster_id, id): (u64, u64),
        handle: Handle<Outcome>,
        reader: Reader,
        lessor: Arc<Lessor>,
        peers: Peers,
    ) -> Self {
        let leading = LeaderState { lessor, reader: reader.clone(), handle: handle.clone() };
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
        Ok(Done { response: committed.reply?, term: committed.term })
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

    async fn ask(&self, question: Question) -> Result<i64, Error> {
        let answer = self.forwarder.ask(question.encode()).await.ok_or(Error::Stopped)?;
        // A leader of another release may answer what this one does not understand.
        leading::decode_answer(&answer).unwrap_or(Err(Error::TimeoutDueToLeaderFail))
    }
}
