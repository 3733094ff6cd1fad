//! Who makes place where as many publish as may, and one more wants to: somebody who is silent, and whom it costs nothing; then who has more than
//! a client's part, for one that has less.

use std::collections::BTreeMap;

use super::{Publisher, PublisherId, Publishing};
use crate::messages::EndCode;

/// Who has begun no block for so long goes, whoever it is.
const SILENT_MICROS: u64 = 60_000_000;
/// Who has begun none for so long, or none at all, goes before that if its client has more such streams than any other, …
const IDLE_MICROS: u64 = 10_000_000;
/// … and more than such a part of all places.
const PART_OF_A_CLIENT: usize = 4;

impl<B> Publishing<B> {
    /// Whether there is place for one more stream of this client. One that is silent makes place, or one of a client that has more than its part.
    pub fn has_place(&mut self, client: &str, publishers_max: usize, now_micros: u64) -> bool {
        self.now_micros = now_micros;
        if self.publishing().count() < publishers_max {
            return true;
        }
        let part = (publishers_max / PART_OF_A_CLIENT).max(1);
        let silent = self.silent(now_micros).or_else(|| self.crowding(part, now_micros));
        let Some(id) = silent.or_else(|| self.beyond_its_part(client, part)) else { return false };
        self.end(id, EndCode::Timeout);
        true
    }

    fn publishing(&self) -> impl Iterator<Item = &Publisher> {
        self.publishers.values().filter(|publisher| !publisher.has_ended)
    }

    /// Who is silent for longest, and for long.
    fn silent(&self, now_micros: u64) -> Option<PublisherId> {
        let silent = self.publishing().filter(|publisher| publisher.silence(now_micros) >= Some(SILENT_MICROS));
        silent.min_by_key(|publisher| publisher.heard_micros).map(|publisher| publisher.id)
    }

    /// The same of the client that keeps the most places idle.
    fn crowding(&self, part: usize, now_micros: u64) -> Option<PublisherId> {
        let mut idle = BTreeMap::<&str, Vec<&Publisher>>::new();
        for publisher in self.publishing() {
            let silence = publisher.silence(now_micros);
            if silence >= Some(IDLE_MICROS) || silence.is_some() && !publisher.has_begun {
                idle.entry(&publisher.client).or_default().push(publisher);
            }
        }
        let most = idle.into_values().max_by_key(Vec::len)?;
        let is_crowding = most.len() > part;
        let longest = most.into_iter().min_by_key(|publisher| publisher.heard_micros)?;
        is_crowding.then_some(longest.id)
    }

    /// Whose last block began the longest ago, of the client that has the most places and more than its part; for another that has less. What is
    /// fetched is of no client.
    fn beyond_its_part(&self, client: &str, part: usize) -> Option<PublisherId> {
        let mut streams = BTreeMap::<&str, Vec<&Publisher>>::new();
        for publisher in self.publishing().filter(|publisher| !publisher.client.is_empty()) {
            streams.entry(&publisher.client).or_default().push(publisher);
        }
        if client.is_empty() || streams.get(client).map_or(0, Vec::len) >= part {
            return None;
        }
        let most = streams.into_values().max_by_key(Vec::len).filter(|most| most.len() > part)?;
        most.into_iter().min_by_key(|publisher| publisher.heard_micros).map(|publisher| publisher.id)
    }
}

impl Publisher {
    /// For how long it has begun no block; `None`: it sends one, or waits until it may.
    fn silence(&self, now_micros: u64) -> Option<u64> {
        let is_silent = self.streaming.is_none() && !self.waits;
        is_silent.then(|| now_micros.saturating_sub(self.heard_micros))
    }
}
