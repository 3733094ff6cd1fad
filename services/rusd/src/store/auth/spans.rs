//! Sets of keys, made of ranges: what a user may read, what it may write.

use std::cmp::Ordering;

use super::super::keys::Keys;

/// Ranges in order that do not touch. An end of `None` is no end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spans(Vec<(Vec<u8>, Option<Vec<u8>>)>);

impl Spans {
    /// The union of ranges, each with its key and `range_end`.
    pub fn new<'a>(ranges: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let mut all: Vec<_> = ranges.map(|(key, range_end)| span(Keys::new(key, range_end))).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        let mut merged: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
        for (start, end) in all {
            match merged.last_mut() {
                Some((_, last)) if last.as_ref().is_none_or(|last| start <= *last) => {
                    if compare_ends(last.as_deref(), end.as_deref()).is_lt() {
                        *last = end;
                    }
                }
                _ => merged.push((start, end)),
            }
        }
        Self(merged)
    }

    /// Whether every key meant is in the set. A range that means no key is asked for like its first key: nothing is free.
    pub fn cover(&self, keys: Keys<'_>) -> bool {
        let keys = if keys.is_empty() { Keys::One(keys.start()) } else { keys };
        let (start, end) = span(keys);
        let after = self.0.partition_point(|(other, _)| *other <= start);
        let Some((_, last)) = after.checked_sub(1).map(|at| &self.0[at]) else { return false };
        compare_ends(end.as_deref(), last.as_deref()).is_le()
    }
}

fn span(keys: Keys<'_>) -> (Vec<u8>, Option<Vec<u8>>) {
    match keys {
        Keys::One(key) => (key.to_vec(), Some([key, &[0]].concat())),
        Keys::Between(start, end) => (start.to_vec(), Some(end.to_vec())),
        Keys::From(start) => (start.to_vec(), None),
    }
}

fn compare_ends(a: Option<&[u8]>, b: Option<&[u8]>) -> Ordering {
    match (a, b) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(a), Some(b)) => a.cmp(b),
    }
}
