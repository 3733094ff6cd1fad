//! Which keys a request means.

use std::cmp::Ordering;

/// One key, or a range of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys<'a> {
    /// This key.
    One(&'a [u8]),
    /// From the first, included, to the second, excluded.
    Between(&'a [u8], &'a [u8]),
    /// This key and all after it.
    From(&'a [u8]),
}

impl<'a> Keys<'a> {
    /// All keys.
    pub const ALL: Keys<'static> = Keys::From(&[]);

    /// What `key` and `range_end` mean in every request of etcd's: an end of one zero byte is no end.
    pub fn new(key: &'a [u8], range_end: &'a [u8]) -> Self {
        match range_end {
            [] => Self::One(key),
            [0] => Self::From(key),
            end => Self::Between(key, end),
        }
    }

    /// The least key that can be meant.
    pub fn start(&self) -> &'a [u8] {
        match self {
            Self::One(key) | Self::Between(key, _) | Self::From(key) => key,
        }
    }

    /// How a key lies to the keys meant: before them, among them, behind them.
    pub fn locate(&self, key: &[u8]) -> Ordering {
        let (start, behind) = match self {
            Self::One(one) => return key.cmp(one),
            Self::From(start) => (start, false),
            Self::Between(start, end) => (start, key >= *end),
        };
        if behind {
            Ordering::Greater
        } else if key < *start {
            Ordering::Less
        } else {
            Ordering::Equal
        }
    }

    /// Whether a key is meant.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.locate(key).is_eq()
    }

    /// Whether no key can be meant.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Between(start, end) if start >= end)
    }
}
