//! Reads: what is asked, how fresh it must be, and what an answer says of itself.

use bytes::Bytes;

/// How fresh an answer must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadLevel {
    /// Sees every write that was acknowledged before, at any member, by a round to a quorum. Depends on no clock.
    #[default]
    Linearizable,
    /// The same as long as clocks keep to the stated drift, without a round, at the leader.
    Lease,
    /// No older than so many microseconds.
    Bounded {
        /// Microseconds.
        max_staleness_micros: u64,
    },
    /// What the member has.
    Eventual,
}

/// How the freshness of an answer was ensured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPath {
    /// By a round to a quorum.
    ReadIndex,
    /// By the leader's lease.
    Lease,
    /// By what a leader said not long ago.
    Age,
    /// Not at all.
    Local,
}

/// How a read is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// How fresh the answer must be.
    pub level: ReadLevel,
    /// An index that the state must have besides: what was seen elsewhere.
    pub at_least: u64,
}

impl From<ReadLevel> for ReadOptions {
    fn from(level: ReadLevel) -> Self {
        Self { level, at_least: 0 }
    }
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// One key.
    Get(Bytes),
    /// Several keys, of one moment.
    GetMany(Vec<Bytes>),
    /// A range of keys.
    Scan(Scan),
}

/// Keys from `start`, inclusive, to `end`, exclusive, page by page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// The first key.
    pub start: Bytes,
    /// What is behind the last key; `None`: the end of all keys.
    pub end: Option<Bytes>,
    /// At most so many; 0: 1,000.
    pub limit: u32,
    /// Only what is behind this key: the last one of the page before.
    pub after: Option<Bytes>,
    /// Without values.
    pub keys_only: bool,
}

impl Scan {
    /// Keys that begin so.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let start = prefix.into();
        let end = end_of_prefix(&start);
        Self { start, end, ..Self::default() }
    }
}

/// The first key behind all that begin so; `None`: there is none.
pub fn end_of_prefix(prefix: &[u8]) -> Option<Bytes> {
    let kept = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut end = prefix[..=kept].to_vec();
    end[kept] += 1;
    Some(end.into())
}

/// A key with what it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
    /// The index in the log at which it was written.
    pub revision: u64,
    /// When it ends, milliseconds since 1970 by the clock of the log; 0: never.
    pub expires_millis: u64,
    /// The lease with which it ends; 0: none.
    pub lease: u64,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// What exists of what was asked, in that order.
    pub items: Vec<KeyValue>,
    /// Of a scan: there is more behind the last one.
    pub has_more: bool,
}

/// A page of a scan.
pub type Page = Answer;

/// An answer that states its contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen<T> {
    /// What was asked for.
    pub value: T,
    /// The state had at least this index.
    pub index: u64,
    /// The term in which that was ensured.
    pub term: u64,
    /// How.
    pub path: ReadPath,
    /// An upper bound of the answer's age, microseconds; `None`: nothing is known.
    pub age_micros: Option<u64>,
}

impl<T> Seen<T> {
    /// The same of something that was made of it.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Seen<U> {
        let Self { value, index, term, path, age_micros } = self;
        Seen { value: make(value), index, term, path, age_micros }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_prefix_ends_before_the_first_key_that_does_not_begin_so(
            prefix in proptest::collection::vec(prop_oneof![Just(u8::MAX), any::<u8>()], 0..4),
            key in proptest::collection::vec(prop_oneof![Just(u8::MAX), any::<u8>()], 0..6),
        ) {
            let end = end_of_prefix(&prefix);
            let is_in_range = key >= prefix && end.is_none_or(|end| key < end);
            prop_assert_eq!(is_in_range, key.starts_with(&prefix));
        }
    }
}
