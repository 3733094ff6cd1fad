//! The group that this member belongs to: who leads it, what only the leader can do, and who else belongs to it.
//!
//! A command that a client gives to any member is put into the log by the leader: this member sends it there once, waits until it
//! was applied there and here, and answers from its own state. What was sent to a leader that was lost meanwhile has an unknown
//! outcome, and is never sent again. What the leader alone knows, when leases end, it is asked for in the same way.
//!
//! | file | is |
//! | --- | --- |
//! | `wire` | calls and answers as bytes |
//! | `door` | what comes from other members |
//! | `identity` | who this member is: founded, or learned from the group that it joins |
//! | `members` | makes the log's membership follow what the store says, and tells the transport where members are |
//! | `safety` | which changes of the membership would cost the group its majority |

mod door;
mod identity;
mod members;
mod safety;
mod wire;

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::channel::oneshot;
use replog::ReadLevel;
use replog::runtime::tcp::Peers;
use replog::runtime::{Committed, Handle, Leadership, ProposeError};
use service_kit::grpc::{Code, Status};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::lessor::Lessor;
use crate::store::{Error, OtherReply, Outcome, Reader, Response};

pub use door::Door;
pub use identity::{Identity, IdentityError};
pub use members::peer_address;
use wire::{Answer, Call, Note};

/// Before who said that it does not lead is asked again.
const RETRY: Duration = Duration::from_millis(20);

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
    lessor: Arc<Lessor>,
    peers: Peers,
    leadership: watch::Receiver<Leadership>,
    /// Whether there has been no leader for so long that clients should look elsewhere.
    is_lost: watch::Sender<bool>,
    /// Who votes does so until it is removed: once it is so, nothing needs to be looked up.
    votes: AtomicBool,
    calls: Mutex<HashMap<u64, oneshot::Sender<Answer>>>,
    next_call: AtomicU64,
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
        let nobody = Leadership { leader: None, term: 0, is_ready_leader: false };
        let (changed, leadership) = watch::channel(nobody);
        // An error: it has ended, and everybody is told so.
        let _ = handle.watch_leader(move |leadership| {
            changed.send_replace(leadership);
        });
        Self {
            cluster_id,
            id,
            handle,
            reader,
            lessor,
            peers,
            leadership,
            is_lost: watch::Sender::new(false),
            votes: AtomicBool::new(false),
            calls: Mutex::default(),
            next_call: AtomicU64::new(0),
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
        match self.at_leader(Call::Propose(command)).await {
            Answer::Applied { index, term, outcome } => {
                let here = self.handle.read_async(ReadLevel::Eventual, index).await;
                here.map_err(|_| Error::TimeoutWaitAppliedIndex)?;
                Ok(Done { response: outcome?, term })
            }
            Answer::Refused(error) => Err(error),
            _ => Err(Error::TimeoutDueToLeaderFail),
        }
    }

    /// Puts a command into the log if somebody leads who takes it; nobody learns what became of it.
    pub fn post(&self, command: Bytes) {
        let leader = self.leadership.borrow().leader;
        match leader {
            Some(leader) if leader != self.id => {
                let number = self.next_call.fetch_add(1, Ordering::Relaxed);
                self.peers.send(leader, Note::Call(number, Call::Propose(command)).encode());
            }
            _ => self.handle.propose(command, |_| {}),
        }
    }

    /// Gives a lease its full time again: so many seconds.
    pub async fn renew_lease(&self, id: i64) -> Result<i64, Error> {
        self.number(Call::Renew(id)).await
    }

    /// What is left of a lease, in seconds.
    pub async fn remaining_seconds(&self, id: i64) -> Result<i64, Error> {
        self.number(Call::Remaining(id)).await
    }

    /// Whether a learner has caught up with the leader.
    pub async fn check_caught_up(&self, learner: u64) -> Result<(), Error> {
        self.number(Call::CatchesUp(learner)).await.map(|_| ())
    }

    /// What changes nothing may be asked again.
    async fn number(&self, call: Call) -> Result<i64, Error> {
        loop {
            match self.at_leader(call.clone()).await {
                Answer::Number(number) => return Ok(number),
                Answer::Refused(error) => return Err(error),
                _ => tokio::time::sleep(RETRY).await,
            }
        }
    }

    /// Finds somebody who leads. Never [`Answer::NotLeader`].
    async fn at_leader(&self, call: Call) -> Answer {
        let mut leadership = self.leadership.clone();
        loop {
            let known = leadership.wait_for(|now| now.leader.is_some()).await.map(|now| now.leader);
            let Ok(Some(leader)) = known else { return Answer::Refused(Error::Stopped) };
            let answer = match leader {
                own if own == self.id => self.here(call.clone()).await,
                // It has gone, and there will be another one: nothing is sent where nobody is.
                gone if self.peers.here_since(gone).is_none() => Answer::NotLeader,
                other => self.there(other, &call).await,
            };
            if answer != Answer::NotLeader {
                return answer;
            }
            let _ = timeout(RETRY, leadership.changed()).await;
        }
    }

    async fn here(&self, call: Call) -> Answer {
        let (done, answer) = oneshot::channel();
        self.serve(call, move |answer| drop(done.send(answer)));
        answer.await.unwrap_or(Answer::Unknown)
    }

    async fn there(&self, leader: u64, call: &Call) -> Answer {
        let number = self.next_call.fetch_add(1, Ordering::Relaxed);
        let (done, answer) = oneshot::channel();
        self.calls().insert(number, done);
        let _forgotten = Forget { group: self, number };
        let mut leadership = self.leadership.clone();
        self.peers.send(leader, Note::Call(number, call.clone()).encode());
        tokio::select! {
            biased;
            answer = answer => answer.unwrap_or(Answer::Unknown),
            _ = leadership.wait_for(|now| now.leader != Some(leader)) => Answer::Unknown,
        }
    }

    /// Does what only the leader can do. `done` is called once, perhaps on the thread that applies.
    fn serve(&self, call: Call, done: impl FnOnce(Answer) + Send + 'static) {
        let (lessor, reader) = (Arc::clone(&self.lessor), self.reader.clone());
        let look: Box<dyn FnOnce() -> Result<i64, Error> + Send> = match call {
            Call::Propose(command) => return self.handle.propose(command, move |result| done(applied(result))),
            Call::Renew(id) => Box::new(move || lessor.renew(id, &reader.view())),
            Call::Remaining(id) => Box::new(move || lessor.remaining_seconds(id, &reader.view())),
            Call::CatchesUp(id) => {
                let status = self.handle.status();
                Box::new(move || safety::check_caught_up(&status.progress, status.last, id).map(|()| 0))
            }
        };
        // Nobody else leads while this is looked at.
        self.handle.read(ReadLevel::Lease, 0, move |ticket| {
            done(number(ticket.map_err(|_| Error::NotLeader).and_then(|_| look())));
        });
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Answer>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who asked waits no longer.
struct Forget<'a> {
    group: &'a Group,
    number: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.group.calls().remove(&self.number);
    }
}

fn number(result: Result<i64, Error>) -> Answer {
    match result {
        Ok(number) => Answer::Number(number),
        Err(Error::NotLeader) => Answer::NotLeader,
        Err(error) => Answer::Refused(error),
    }
}

fn applied(result: Result<Committed<Outcome>, ProposeError>) -> Answer {
    match result {
        Ok(Committed { index, term, reply }) => Answer::Applied { index, term, outcome: reply },
        // Who stops hands leadership over: there will be somebody else.
        Err(ProposeError::NotLeader(_) | ProposeError::Stopped) => Answer::NotLeader,
        Err(ProposeError::Busy) => Answer::Refused(Error::TooManyRequests),
        Err(ProposeError::TooLarge(_)) => Answer::Refused(Error::RequestTooLarge),
        Err(ProposeError::Unknown) => Answer::Unknown,
    }
}
