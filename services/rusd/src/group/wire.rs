//! What servers of a group ask each other: a call and its answer, as notes on the connections of the log. Pure.
//!
//! | bytes | field | |
//! | --- | --- | --- |
//! | 1 | what | 0 call, 1 answer |
//! | 8 | number | of the call, the asker's own; little-endian, as all numbers |
//! | 1 | which | see [`Call`], [`Answer`] |
//! | | the rest | a command, a message of etcd's, numbers of 8 bytes, or text |

use bytes::Bytes;
use prost::Message;

use crate::proto::etcdserverpb as pb;
use crate::store::{Error, Outcome, Response};

/// What a member asks of the one that leads.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Call {
    /// Put this command into the log.
    Propose(Bytes),
    /// Give this lease its full time again. [`Answer::Number`]: in seconds.
    Renew(i64),
    /// What is left of this lease. [`Answer::Number`]: in seconds.
    Remaining(i64),
    /// Whether this learner has caught up. [`Answer::Number`]: 0.
    CatchesUp(u64),
}

/// What it answers.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    /// The command was applied at this index and in this term.
    Applied { index: u64, term: u64, outcome: Outcome },
    /// A number, as the call means it.
    Number(i64),
    /// It cannot be done. For a command: nothing has happened.
    Refused(Error),
    /// This member does not lead, and nothing has happened.
    NotLeader,
    /// Nobody knows what has become of the command.
    Unknown,
}

/// A note.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Note {
    Call(u64, Call),
    Answer(u64, Answer),
}

impl Note {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        let mut head = |what: u8, number: u64, which: u8| {
            out.push(what);
            out.extend_from_slice(&number.to_le_bytes());
            out.push(which);
        };
        match self {
            Self::Call(number, call) => {
                let which = match call {
                    Call::Propose(_) => 0,
                    Call::Renew(_) => 1,
                    Call::Remaining(_) => 2,
                    Call::CatchesUp(_) => 3,
                };
                head(0, *number, which);
                match call {
                    Call::Propose(command) => out.extend_from_slice(command),
                    Call::Renew(id) | Call::Remaining(id) => out.extend_from_slice(&id.to_le_bytes()),
                    Call::CatchesUp(id) => out.extend_from_slice(&id.to_le_bytes()),
                }
            }
            Self::Answer(number, answer) => {
                let which = match answer {
                    Answer::Applied { .. } => 0,
                    Answer::Number(_) => 1,
                    Answer::Refused(_) => 2,
                    Answer::NotLeader => 3,
                    Answer::Unknown => 4,
                };
                head(1, *number, which);
                match answer {
                    Answer::Applied { index, term, outcome } => {
                        out.extend_from_slice(&index.to_le_bytes());
                        out.extend_from_slice(&term.to_le_bytes());
                        encode_outcome(outcome, &mut out);
                    }
                    Answer::Number(value) => out.extend_from_slice(&value.to_le_bytes()),
                    Answer::Refused(error) => out.extend_from_slice(error.message().as_bytes()),
                    Answer::NotLeader | Answer::Unknown => {}
                }
            }
        }
        out.into()
    }

    /// `None`: it is nothing that this release understands.
    pub(super) fn decode(bytes: &Bytes) -> Option<Self> {
        let (&what, rest) = bytes.split_first()?;
        let (number, rest) = number(rest)?;
        let (&which, rest) = rest.split_first()?;
        let only = || rest.try_into().ok().map(u64::from_le_bytes);
        let note = match (what, which) {
            (0, 0) => Self::Call(number, Call::Propose(bytes.slice_ref(rest))),
            (0, 1) => Self::Call(number, Call::Renew(only()? as i64)),
            (0, 2) => Self::Call(number, Call::Remaining(only()? as i64)),
            (0, 3) => Self::Call(number, Call::CatchesUp(only()?)),
            (1, 0) => {
                let (index, rest) = self::number(rest)?;
                let (term, rest) = self::number(rest)?;
                let outcome = decode_outcome(bytes.slice_ref(rest))?;
                Self::Answer(number, Answer::Applied { index, term, outcome })
            }
            (1, 1) => Self::Answer(number, Answer::Number(only()? as i64)),
            (1, 2) => Self::Answer(number, Answer::Refused(error(rest)?)),
            (1, 3) if rest.is_empty() => Self::Answer(number, Answer::NotLeader),
            (1, 4) if rest.is_empty() => Self::Answer(number, Answer::Unknown),
            _ => return None,
        };
        Some(note)
    }
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*head), rest))
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

    fn answers() -> Vec<Answer> {
        let header = Some(pb::ResponseHeader { revision: 7, ..Default::default() });
        let applied = |outcome| Answer::Applied { index: 1, term: u64::MAX, outcome };
        vec![
            applied(Ok(Response::Put(pb::PutResponse { header, prev_kv: None }))),
            applied(Ok(Response::DeleteRange(pb::DeleteRangeResponse { header, deleted: 3, prev_kvs: vec![] }))),
            applied(Ok(Response::Txn(pb::TxnResponse { header, succeeded: true, responses: vec![] }))),
            applied(Ok(Response::LeaseGrant(pb::LeaseGrantResponse { id: -1, ..Default::default() }))),
            applied(Ok(Response::Alarm(pb::AlarmResponse { header, alarms: vec![] }))),
            applied(Ok(Response::Done(-5))),
            applied(Err(Error::LeaseNotFound)),
            Answer::Number(-3),
            Answer::Refused(Error::TooManyRequests),
            Answer::NotLeader,
            Answer::Unknown,
        ]
    }

    #[test]
    fn every_answer_arrives_as_it_was_given() {
        for answer in answers() {
            let note = Note::Answer(9, answer);
            assert_eq!(Note::decode(&note.encode()), Some(note));
        }
    }

    proptest! {
        #[test]
        fn every_call_arrives_as_it_was_made(number: u64, id: i64, command in proptest::collection::vec(any::<u8>(), 0..50)) {
            let calls = [Call::Propose(command.into()), Call::Renew(id), Call::Remaining(id), Call::CatchesUp(id as u64)];
            for call in calls {
                let note = Note::Call(number, call);
                prop_assert_eq!(Note::decode(&note.encode()), Some(note));
            }
        }

        #[test]
        fn whatever_comes_is_understood_or_passed_over(bytes in proptest::collection::vec(any::<u8>(), 0..80), what in 0..3_u8, which in 0..8_u8) {
            let _ = Note::decode(&bytes.clone().into());
            let _ = Note::decode(&[&[what][..], &[0; 8], &[which], &bytes].concat().into());
        }
    }
}
