//! Submit anywhere: a client gives a command to any member, and the leader puts it into the log.
//!
//! The member sends the command to the leader once, waits until it was applied there and here, and hands out the reply. What was sent
//! to a leader that was lost meanwhile has an unknown outcome, and is never sent again. In the same way a store asks its leader what
//! the leader alone knows, such as when leases end; such a question changes nothing, and is asked again until somebody answers. And it
//! asks any other member what that one knows of itself: once.
//!
//! Calls and answers are notes on the connections of the log ([`super::tcp::Host::note`]):
//!
//! | bytes | field | |
//! | --- | --- | --- |
//! | 1 | what | 0 call, 1 answer |
//! | 8 | number | of the call, the asker's own; little-endian, as all numbers |
//! | 1 | which | call: 0 command, 1 question, 2 question to this member; answer: 0 applied, 1 answered, 2 busy, 3 not the leader, 4 unknown, 5 too large |
//! | | the rest | the command, question or answer; applied: index, 8, term, 8, and the reply; too large: size, 8 |
//!
//! Futures here need tokio's timer; everything else in the runtime runs on any executor.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::channel::oneshot;
use tokio::sync::watch;
use tokio::time::timeout;

use super::tcp::Peers;
use super::{Committed, Handle, Leadership, ProposeError};
use crate::reads::ReadLevel;

/// How long a member waits before it asks again whoever said that it does not lead.
const RETRY: Duration = Duration::from_millis(20);

/// What a store brings along so that its commands can be given to any member.
pub trait Leading: Send + Sync + 'static {
    /// What the state machine says to a command.
    type Reply: Send + 'static;

    /// Encodes a reply for the member that was given the command.
    fn encode(reply: &Self::Reply) -> Bytes;

    /// Decodes a reply; `None` if this release does not understand it.
    fn decode(reply: Bytes) -> Option<Self::Reply>;

    /// Answers a question of the store's own, on the leader, while no other member can lead. `None`: this member leads for too short
    /// a time to know; it is asked again. Called on the member's threads: it must be quick.
    fn answer(&self, question: &Bytes) -> Option<Bytes>;

    /// How the leader makes sure that it leads before it answers a question: by its lease, or by a round, which depends on no clock.
    fn read_level(&self) -> ReadLevel {
        ReadLevel::Lease
    }

    /// Answers a question that this member is asked, whoever leads: by `done`, now or later, on any thread. Dropped, it answers nothing.
    /// Called on the transport's threads: it must be quick.
    fn answer_here(&self, question: &Bytes, done: AnswerHere) {
        drop((question, done));
    }
}

/// Takes the answer to a question that a member was asked.
pub type AnswerHere = Box<dyn FnOnce(Bytes) + Send>;

/// Why a command that was submitted has not succeeded here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// Nothing has happened, and nothing will: too much is waiting.
    #[error("busy, try again")]
    Busy,
    /// Nothing has happened, and nothing will: a command of so many bytes is larger than the settings allow.
    #[error("a command of {0} bytes is too large")]
    TooLarge(usize),
    /// The leader was lost before it answered: the command may yet succeed, or not.
    #[error("the outcome is not known: the leader was lost meanwhile")]
    Unknown,
    /// The leader has applied the command, but this member did not in time, or ended before it did.
    #[error("the command was applied, but not here in time")]
    NotHere,
    /// Nothing has happened, and nothing will: this member has ended.
    #[error("the member has ended")]
    Stopped,
}

/// What a member asks of the one that leads.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Call {
    Command(Bytes),
    Question(Bytes),
    /// Of the member that is asked, whoever leads.
    Here(Bytes),
}

/// What the leader answers; `R` is a reply, or its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer<R> {
    Applied { index: u64, term: u64, reply: R },
    Answered(Bytes),
    Busy,
    NotLeader,
    Unknown,
    TooLarge(usize),
}

/// Gives commands and questions to whoever leads. Clones are of the same one.
pub struct Forwarder<L: Leading>(Arc<Shared<L>>);

impl<L: Leading> Clone for Forwarder<L> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Shared<L: Leading> {
    id: u64,
    handle: Handle<L::Reply>,
    leading: L,
    peers: Peers,
    leadership: watch::Receiver<Leadership>,
    calls: Mutex<HashMap<u64, oneshot::Sender<Answer<L::Reply>>>>,
    next_call: AtomicU64,
}

impl<L: Leading> Forwarder<L> {
    /// Forwards what member `id` is given. Its [`super::tcp::Host`] must pass every note on to [`Forwarder::note`].
    pub fn new(id: u64, handle: Handle<L::Reply>, peers: Peers, leading: L) -> Self {
        let nobody = Leadership { leader: None, term: 0, is_ready_leader: false };
        let (changed, leadership) = watch::channel(nobody);
        // An error: the member has ended, and everybody is told so.
        let _ = handle.watch_leader(move |leadership| {
            changed.send_replace(leadership);
        });
        // Not from 0: an answer to a call of this member's life before must find nobody who waits.
        let next_call = AtomicU64::new(rand::random());
        Self(Arc::new(Shared { id, handle, leading, peers, leadership, calls: Mutex::default(), next_call }))
    }

    /// Who leads, and each change of it.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.0.leadership.clone()
    }

    /// Puts a command into the log, wherever the leader is, and waits until it was applied here. Waits for a leader.
    pub async fn submit(&self, command: Bytes) -> Result<Committed<L::Reply>, SubmitError> {
        match self.0.at_leader(Call::Command(command)).await {
            Some(Answer::Applied { index, term, reply }) => {
                let here = self.0.handle.read_async(ReadLevel::Eventual, index).await;
                here.map_err(|_| SubmitError::NotHere)?;
                Ok(Committed { index, term, reply })
            }
            Some(Answer::Busy) => Err(SubmitError::Busy),
            Some(Answer::TooLarge(bytes)) => Err(SubmitError::TooLarge(bytes)),
            Some(Answer::Unknown | Answer::NotLeader | Answer::Answered(_)) => Err(SubmitError::Unknown),
            None => Err(SubmitError::Stopped),
        }
    }

    /// Puts a command into the log if somebody leads who takes it; nobody learns what became of it.
    pub fn post(&self, command: Bytes) {
        let leader = self.0.leadership.borrow().leader;
        match leader {
            Some(leader) if leader != self.0.id => {
                self.0.send_call(leader, self.0.number(), &Call::Command(command));
            }
            _ => self.0.handle.propose(command, |_| {}),
        }
    }

    /// Has the leader answer a question, and asks again until one does. `None`: this member has ended.
    pub async fn ask(&self, question: Bytes) -> Option<Bytes> {
        loop {
            if let Answer::Answered(answer) = self.0.at_leader(Call::Question(question.clone())).await? {
                return Some(answer);
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Asks another member, once. `None`: it is not connected, or nobody will answer. The caller says
    /// how long it waits: what a member of an earlier release does not understand is never answered.
    pub async fn ask_member(&self, member: u64, question: Bytes) -> Option<Bytes> {
        self.0.peers.here_since(member)?;
        let number = self.0.number();
        let (done, answer) = oneshot::channel();
        self.0.calls().insert(number, done);
        let _forgotten = Forget { shared: &self.0, number };
        self.0.send_call(member, number, &Call::Here(question));
        match answer.await {
            Ok(Answer::Answered(answer)) => Some(answer),
            _ => None,
        }
    }

    /// Takes what another member sent; passes over what this release does not understand.
    pub fn note(&self, from: u64, note: &Bytes) {
        match decode(note) {
            Some((number, Note::Call(call))) => {
                let peers = self.0.peers.clone();
                self.0.serve(call, move |answer| {
                    let mut out = Vec::new();
                    encode_answer(number, &answer, L::encode, &mut out);
                    peers.send(from, out.into());
                });
            }
            Some((number, Note::Answer(answer))) => {
                if let Some(waiting) = self.0.calls().remove(&number) {
                    // Whoever no longer waits has gone meanwhile.
                    let _ = waiting.send(answer.map(L::decode));
                }
            }
            None => {}
        }
    }
}

impl<L: Leading> Shared<L> {
    fn number(&self) -> u64 {
        self.next_call.fetch_add(1, Ordering::Relaxed)
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Answer<L::Reply>>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send_call(&self, leader: u64, number: u64, call: &Call) {
        let mut out = Vec::new();
        encode_call(number, call, &mut out);
        self.peers.send(leader, out.into());
    }

    /// Finds somebody who leads. Never [`Answer::NotLeader`]. `None`: this member has ended.
    async fn at_leader(self: &Arc<Self>, call: Call) -> Option<Answer<L::Reply>> {
        let mut leadership = self.leadership.clone();
        loop {
            let leader = leadership.wait_for(|now| now.leader.is_some()).await.ok()?.leader?;
            let answer = match leader {
                own if own == self.id => self.here(call.clone()).await,
                // It has gone, and there will be another one: nothing is sent where nobody is.
                gone if self.peers.here_since(gone).is_none() => Answer::NotLeader,
                other => self.there(other, &call).await,
            };
            if !matches!(answer, Answer::NotLeader) {
                return Some(answer);
            }
            let _ = timeout(RETRY, leadership.changed()).await;
        }
    }

    async fn here(self: &Arc<Self>, call: Call) -> Answer<L::Reply> {
        let (done, answer) = oneshot::channel();
        self.serve(call, move |answer| drop(done.send(answer)));
        answer.await.unwrap_or(Answer::Unknown)
    }

    /// Does what only the leader can do. `done` is called once, perhaps on the thread that applies.
    fn serve(self: &Arc<Self>, call: Call, done: impl FnOnce(Answer<L::Reply>) + Send + 'static) {
        match call {
            Call::Command(command) => self.handle.propose(command, move |result| done(applied(result))),
            Call::Question(question) => {
                let shared = Arc::clone(self);
                // Nobody else leads while this is looked at, or did when it was asked. A round may also be another leader's.
                self.handle.read(self.leading.read_level(), 0, move |ticket| {
                    let ticket = ticket.ok().filter(|_| shared.handle.leader().1);
                    let answer = ticket.and_then(|_| shared.leading.answer(&question));
                    done(answer.map_or(Answer::NotLeader, Answer::Answered));
                });
            }
            Call::Here(question) => {
                self.leading.answer_here(&question, Box::new(|answer| done(Answer::Answered(answer))))
            }
        }
    }

    async fn there(&self, leader: u64, call: &Call) -> Answer<L::Reply> {
        let number = self.number();
        let (done, answer) = oneshot::channel();
        self.calls().insert(number, done);
        let _forgotten = Forget { shared: self, number };
        let mut leadership = self.leadership.clone();
        self.send_call(leader, number, call);
        tokio::select! {
            biased;
            answer = answer => answer.unwrap_or(Answer::Unknown),
            _ = leadership.wait_for(|now| now.leader != Some(leader)) => Answer::Unknown,
        }
    }
}

/// Whoever asked waits no longer.
struct Forget<'a, L: Leading> {
    shared: &'a Shared<L>,
    number: u64,
}

impl<L: Leading> Drop for Forget<'_, L> {
    fn drop(&mut self) {
        self.shared.calls().remove(&self.number);
    }
}

fn applied<R>(result: Result<Committed<R>, ProposeError>) -> Answer<R> {
    match result {
        Ok(Committed { index, term, reply }) => Answer::Applied { index, term, reply },
        // Whoever stops hands leadership over: there will be somebody else.
        Err(ProposeError::NotLeader(_) | ProposeError::Stopped) => Answer::NotLeader,
        Err(ProposeError::Busy) => Answer::Busy,
        Err(ProposeError::TooLarge(bytes)) => Answer::TooLarge(bytes),
        Err(ProposeError::Unknown) => Answer::Unknown,
    }
}

impl Answer<Bytes> {
    /// A reply that this release does not understand was applied all the same.
    fn map<R>(self, decode: impl FnOnce(Bytes) -> Option<R>) -> Answer<R> {
        match self {
            Self::Applied { index, term, reply } => match decode(reply) {
                Some(reply) => Answer::Applied { index, term, reply },
                None => Answer::Unknown,
            },
            Self::Answered(answer) => Answer::Answered(answer),
            Self::Busy => Answer::Busy,
            Self::NotLeader => Answer::NotLeader,
            Self::Unknown => Answer::Unknown,
            Self::TooLarge(bytes) => Answer::TooLarge(bytes),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Note {
    Call(Call),
    Answer(Answer<Bytes>),
}

fn head(what: u8, number: u64, which: u8, out: &mut Vec<u8>) {
    out.push(what);
    out.extend_from_slice(&number.to_le_bytes());
    out.push(which);
}

fn encode_call(number: u64, call: &Call, out: &mut Vec<u8>) {
    let (which, bytes) = match call {
        Call::Command(bytes) => (0, bytes),
        Call::Question(bytes) => (1, bytes),
        Call::Here(bytes) => (2, bytes),
    };
    head(0, number, which, out);
    out.extend_from_slice(bytes);
}

fn encode_answer<R>(number: u64, answer: &Answer<R>, encode: impl FnOnce(&R) -> Bytes, out: &mut Vec<u8>) {
    let mut head = |which| head(1, number, which, out);
    match answer {
        Answer::Applied { index, term, reply } => {
            head(0);
            out.extend_from_slice(&index.to_le_bytes());
            out.extend_from_slice(&term.to_le_bytes());
            out.extend_from_slice(&encode(reply));
        }
        Answer::Answered(answer) => {
            head(1);
            out.extend_from_slice(answer);
        }
        Answer::Busy => head(2),
        Answer::NotLeader => head(3),
        Answer::Unknown => head(4),
        Answer::TooLarge(bytes) => {
            head(5);
            out.extend_from_slice(&(*bytes as u64).to_le_bytes());
        }
    }
}

/// `None`: it is nothing that this release understands.
fn decode(note: &Bytes) -> Option<(u64, Note)> {
    let (&what, rest) = note.split_first()?;
    let (number, rest) = self::number(rest)?;
    let (&which, rest) = rest.split_first()?;
    let bytes = |rest: &[u8]| note.slice_ref(rest);
    let decoded = match (what, which) {
        (0, 0) => Note::Call(Call::Command(bytes(rest))),
        (0, 1) => Note::Call(Call::Question(bytes(rest))),
        (0, 2) => Note::Call(Call::Here(bytes(rest))),
        (1, 0) => {
            let (index, rest) = self::number(rest)?;
            let (term, rest) = self::number(rest)?;
            Note::Answer(Answer::Applied { index, term, reply: bytes(rest) })
        }
        (1, 1) => Note::Answer(Answer::Answered(bytes(rest))),
        (1, 2) if rest.is_empty() => Note::Answer(Answer::Busy),
        (1, 3) if rest.is_empty() => Note::Answer(Answer::NotLeader),
        (1, 4) if rest.is_empty() => Note::Answer(Answer::Unknown),
        (1, 5) => match self::number(rest)? {
            (size, []) => Note::Answer(Answer::TooLarge(usize::try_from(size).ok()?)),
            _ => return None,
        },
        _ => return None,
    };
    Some((number, decoded))
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*head), rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_answer_arrives_as_it_was_given() {
        let answers = [
            Answer::Applied { index: 1, term: u64::MAX, reply: Bytes::from_static(b"reply") },
            Answer::Answered(Bytes::from_static(b"")),
            Answer::Busy,
            Answer::NotLeader,
            Answer::Unknown,
            Answer::TooLarge(usize::MAX),
        ];
        for answer in answers {
            let mut out = Vec::new();
            encode_answer(9, &answer, Bytes::clone, &mut out);
            assert_eq!(decode(&out.into()), Some((9, Note::Answer(answer))));
        }
    }

    proptest! {
        #[test]
        fn every_call_arrives_as_it_was_made(number: u64, bytes in proptest::collection::vec(any::<u8>(), 0..50)) {
            let bytes = Bytes::from(bytes);
            for call in [Call::Command(bytes.clone()), Call::Question(bytes.clone()), Call::Here(bytes.clone())] {
                let mut out = Vec::new();
                encode_call(number, &call, &mut out);
                prop_assert_eq!(decode(&out.into()), Some((number, Note::Call(call))));
            }
        }

        #[test]
        fn whatever_comes_is_understood_or_passed_over(bytes in proptest::collection::vec(any::<u8>(), 0..80), what in 0..3_u8, which in 0..8_u8) {
            let _ = decode(&bytes.clone().into());
            let _ = decode(&[&[what][..], &[0; 8], &[which], &bytes].concat().into());
        }
    }
}
