//! Walks through the keys of a range as they are, or as they were.

use std::iter::Peekable;

use super::{Keys, Live, Past, Record, tree};

/// Records in the order of their keys, one for each key.
#[derive(Debug)]
pub struct Visible<'a> {
    live: Peekable<tree::Iter<'a, Live>>,
    keys: Keys<'a>,
    past: Option<(Peekable<tree::Iter<'a, Past>>, i64)>,
}

impl<'a> Visible<'a> {
    pub(super) fn now(live: tree::Iter<'a, Live>, keys: Keys<'a>) -> Self {
        Self { live: live.peekable(), keys, past: None }
    }

    pub(super) fn then(live: tree::Iter<'a, Live>, past: tree::Iter<'a, Past>, keys: Keys<'a>, revision: i64) -> Self {
        Self { live: live.peekable(), keys, past: Some((past.peekable(), revision)) }
    }
}

impl<'a> Iterator for Visible<'a> {
    type Item = &'a Record;

    fn next(&mut self) -> Option<&'a Record> {
        let Self { live, keys, past } = self;
        let Some((past, revision)) = past else {
            return live.next().map(|live| &live.0).filter(|record| keys.contains(record.key()));
        };
        loop {
            let of_live = live.peek().map(|live| live.0.key());
            let of_past = past.peek().map(|past| past.0.key());
            let key = of_live.into_iter().chain(of_past).min().filter(|key| keys.contains(key))?;
            let mut newest = None;
            while let Some(Past(record)) = past.next_if(|past| past.0.key() == key) {
                if record.main() <= *revision {
                    newest = Some(record);
                }
            }
            if let Some(Live(record)) = live.next_if(|live| live.0.key() == key)
                && record.main() <= *revision
            {
                newest = Some(record);
            }
            if let Some(record) = newest.filter(|record| !record.is_tombstone()) {
                return Some(record);
            }
        }
    }
}
