//! What any member can be asked of itself, whoever leads: how long the way to it is, and the hash of what it keeps.
//!
//! | question | bytes | answer |
//! | --- | --- | --- |
//! | are you there | 0 | nothing |
//! | what is the hash at this revision | 1, the revision, 8 | 0, newest revision, 8, compacted revision, 8, hash, 4; or 1 and the error's text |
//!
//! Numbers are little-endian.

use bytes::Bytes;
use replog::runtime::AnswerHere;

use crate::hashes::Hashes;
use crate::store::{Error, Reader};

/// What a member is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Ping,
    Hash(i64),
}

/// What another member keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerHash {
    /// Its newest revision.
    pub revision: i64,
    /// The revision at which it was compacted last.
    pub compact_revision: i64,
    /// The hash at the revision that was asked for.
    pub hash: u32,
}

impl Asked {
    pub(super) fn encode(self) -> Bytes {
        match self {
            Self::Ping => Bytes::from_static(&[0]),
            Self::Hash(revision) => [&[1][..], &revision.to_le_bytes()].concat().into(),
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first()? {
            (0, []) => Some(Self::Ping),
            (1, revision) => Some(Self::Hash(i64::from_le_bytes(revision.try_into().ok()?))),
            _ => None,
        }
    }
}

/// Answers what a member is asked of itself.
#[derive(Debug)]
pub(super) struct Itself {
    pub(super) reader: Reader,
    pub(super) hashes: Hashes,
}

impl Itself {
    pub(super) fn answer(&self, question: &Bytes, done: AnswerHere) {
        match Asked::decode(question) {
            Some(Asked::Ping) => done(Bytes::new()),
            Some(Asked::Hash(revision)) => self.hashes.ask(&self.reader, revision, move |hash| {
                done(encode_hash(hash.map(|(revision, hash)| PeerHash {
                    revision,
                    compact_revision: hash.compact_revision,
                    hash: hash.hash,
                })));
            }),
            None => {}
        }
    }
}

fn encode_hash(hash: Result<PeerHash, Error>) -> Bytes {
    match hash {
        Ok(PeerHash { revision, compact_revision, hash }) => {
            let (revision, compact_revision) = (revision.to_le_bytes(), compact_revision.to_le_bytes());
            [&[0][..], &revision, &compact_revision, &hash.to_le_bytes()].concat().into()
        }
        Err(error) => [&[1][..], error.message().as_bytes()].concat().into(),
    }
}

/// `None`: it is nothing that this release understands.
pub(super) fn decode_hash(bytes: &[u8]) -> Option<Result<PeerHash, Error>> {
    match bytes.split_first()? {
        (0, rest) => {
            let (revision, rest) = rest.split_first_chunk()?;
            let (compact_revision, rest) = rest.split_first_chunk()?;
            Some(Ok(PeerHash {
                revision: i64::from_le_bytes(*revision),
                compact_revision: i64::from_le_bytes(*compact_revision),
                hash: u32::from_le_bytes(rest.try_into().ok()?),
            }))
        }
        (1, text) => Some(Err(Error::of(std::str::from_utf8(text).ok()?)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn questions_and_answers_arrive_as_they_were_sent() {
        for asked in [Asked::Ping, Asked::Hash(-1), Asked::Hash(i64::MAX)] {
            assert_eq!(Asked::decode(&asked.encode()), Some(asked));
        }
        let hash = PeerHash { revision: 9, compact_revision: -1, hash: u32::MAX };
        for answer in [Ok(hash), Err(Error::Compacted), Err(Error::FutureRevision)] {
            assert_eq!(decode_hash(&encode_hash(answer)), Some(answer));
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_understood_or_passed_over(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = (Asked::decode(&bytes), decode_hash(&bytes));
        }
    }
}
