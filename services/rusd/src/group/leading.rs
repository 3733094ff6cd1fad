//! What only the leader can answer, beside commands, and how its answers travel to the member that asked. Pure but for looking at
//! the leases' timers.
//!
//! | question | bytes | answer |
//! | --- | --- | --- |
//! | give a lease its full time again | 0, its number, 8 | seconds |
//! | what is left of a lease | 1, its number, 8 | seconds |
//! | has a learner caught up | 2, its number, 8 | 0 |
//!
//! An answer: 0 and a number of 8 bytes, little-endian, or 1 and the error's text. A reply: 0 and the error's text, or what kind it is
//! and the message of etcd's API.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use replog::ReadLevel;
use replog::runtime::{AnswerHere, Handle, Leading};

use super::asking::Itself;
use super::safety;
use crate::lessor::Lessor;
use crate::proto::etcdserverpb as pb;
use crate::store::{Error, Outcome, Reader, Reply, Response};

/// What a leader looks at.
pub(super) struct LeaderState {
    pub(super) lessor: Arc<Lessor>,
    pub(super) reader: Reader,
    pub(super) handle: Handle<Reply>,
    pub(super) itself: Itself,
    pub(super) read_level: ReadLevel,
}

impl Leading for LeaderState {
    type Reply = Reply;

    fn encode(reply: &Reply) -> Bytes {
        let mut out = Vec::new();
        encode_outcome(&reply.outcome, &mut out);
        out.into()
    }

    fn decode(reply: Bytes) -> Option<Reply> {
        decode_outcome(reply).map(Reply::from)
    }

    fn answer_here(&self, question: &Bytes, done: AnswerHere) {
        self.itself.answer(question, done);
    }

    fn read_level(&self) -> ReadLevel {
        self.read_level
    }

    fn answer(&self, question: &Bytes) -> Option<Bytes> {
        let found = match Question::decode(question)? {
            Question::Renew(id) => self.lessor.renew(id, &self.reader.view()),
            Question::Remaining(id) => self.lessor.remaining_seconds(id, &self.reader.view()),
            Question::CatchesUp(id) => {
                let status = self.handle.status();
                safety::check_caught_up(&status.progress, status.last, id).map(|()| 0)
            }
        };
        (found != Err(Error::NotLeader)).then(|| encode_answer(found))
    }
}

/// A question that only the leader can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Give this lease its full time again.
    Renew(i64),
    /// What is left of this lease.
    Remaining(i64),
    /// Whether this learner has caught up.
    CatchesUp(u64),
}

impl Question {
    pub(super) fn encode(self) -> Bytes {
        let (which, number) = match self {
            Self::Renew(id) => (0, id.to_le_bytes()),
            Self::Remaining(id) => (1, id.to_le_bytes()),
            Self::CatchesUp(id) => (2, id.to_le_bytes()),
        };
        [&[which][..], &number].concat().into()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (&which, number) = bytes.split_first()?;
        let number = <[u8; 8]>::try_from(number).ok()?;
        Some(match which {
            0 => Self::Renew(i64::from_le_bytes(number)),
            1 => Self::Remaining(i64::from_le_bytes(number)),
            2 => Self::CatchesUp(u64::from_le_bytes(number)),
            _ => return None,
        })
    }
}

fn encode_answer(answer: Result<i64, Error>) -> Bytes {
    match answer {
        Ok(number) => [&[0][..], &number.to_le_bytes()].concat().into(),
        Err(error) => [&[1][..], error.message().as_bytes()].concat().into(),
    }
}

/// `None`: it is nothing that this release understands.
pub(super) fn decode_answer(bytes: &[u8]) -> Option<Result<i64, Error>> {
    let (&which, rest) = bytes.split_first()?;
    match which {
        0 => Some(Ok(i64::from_le_bytes(rest.try_into().ok()?))),
        1 => error(rest).map(Err),
        _ => None,
    }
}

fn error(bytes: &[u8]) -> Option<Error> {
    Error::of(std::str::from_utf8(bytes).ok()?)
}

fn encode_outcome(outcome: &Outcome, out: &mut Vec<u8>) {
    // A Vec takes everything.
    let mut message = |which: u8, message: &dyn Fn(&mut Vec<u8>)| {
        out.push(which);
        message(out);
    };
    match outcome {
        Err(error) => message(0, &|out| out.extend_from_slice(error.message().as_bytes())),
        Ok(Response::Put(put)) => message(1, &|out| out.extend(put.encode_to_vec())),
        Ok(Response::DeleteRange(delete)) => message(2, &|out| out.extend(delete.encode_to_vec())),
        Ok(Response::Txn(txn)) => message(3, &|out| out.extend(txn.encode_to_vec())),
        Ok(Response::LeaseGrant(grant)) => message(4, &|out| out.extend(grant.encode_to_vec())),
        Ok(Response::Alarm(alarm)) => message(5, &|out| out.extend(alarm.encode_to_vec())),
        Ok(Response::Done(revision)) => message(6, &|out| out.extend(revision.to_le_bytes())),
    }
}

fn decode_outcome(bytes: Bytes) -> Option<Outcome> {
    let which = *bytes.first()?;
    let rest = bytes.slice(1..);
    Some(match which {
        0 => Err(error(&rest)?),
        1 => Ok(Response::Put(pb::PutResponse::decode(rest).ok()?)),
        2 => Ok(Response::DeleteRange(pb::DeleteRangeResponse::decode(rest).ok()?)),
        3 => Ok(Response::Txn(pb::TxnResponse::decode(rest).ok()?)),
        4 => Ok(Response::LeaseGrant(pb::LeaseGrantResponse::decode(rest).ok()?)),
        5 => Ok(Response::Alarm(pb::AlarmResponse::decode(rest).ok()?)),
        6 => Ok(Response::Done(i64::from_le_bytes(rest.as_ref().try_into().ok()?))),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_reply_arrives_as_it_was_given() {
        let header = Some(pb::ResponseHeader { revision: 7, ..Default::default() });
        let replies = [
            Ok(Response::Put(pb::PutResponse { header, prev_kv: None })),
            Ok(Response::DeleteRange(pb::DeleteRangeResponse { header, deleted: 3, prev_kvs: vec![] })),
            Ok(Response::Txn(pb::TxnResponse { header, succeeded: true, responses: vec![] })),
            Ok(Response::LeaseGrant(pb::LeaseGrantResponse { id: -1, ..Default::default() })),
            Ok(Response::Alarm(pb::AlarmResponse { header, alarms: vec![] })),
            Ok(Response::Done(-5)),
            Err(Error::LeaseNotFound),
        ];
        for reply in replies {
            let arrived = LeaderState::decode(LeaderState::encode(&reply.clone().into()));
            assert_eq!(arrived.map(|arrived| arrived.outcome), Some(reply));
        }
    }

    #[test]
    fn every_answer_arrives_as_it_was_given() {
        for answer in [Ok(-3), Err(Error::TooManyRequests)] {
            assert_eq!(decode_answer(&encode_answer(answer)), Some(answer));
        }
    }

    proptest! {
        #[test]
        fn every_question_arrives_as_it_was_asked(id: i64) {
            for question in [Question::Renew(id), Question::Remaining(id), Question::CatchesUp(id as u64)] {
                prop_assert_eq!(Question::decode(&question.encode()), Some(question));
            }
        }

        #[test]
        fn whatever_comes_is_understood_or_passed_over(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = (Question::decode(&bytes), decode_answer(&bytes), LeaderState::decode(bytes.clone().into()));
        }
    }
}
