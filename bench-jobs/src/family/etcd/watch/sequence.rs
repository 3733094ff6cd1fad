//! What watchers must be told: each event exactly once, in order of revision.
//!
//! Pure. All watchers watch the same keys from the same revision, so the first that is told of an event sets the
//! standard, which is checked against the keys' own counters: put *n* of a key comes after put *n* − 1, at a higher
//! revision than every event before. Each other watcher must be told of the very same events in the same order. A
//! watcher that went wrong is not looked at any more: everything after would be wrong as well. Memory follows the
//! distance between the fastest and the slowest watcher.

use std::collections::VecDeque;

use crate::content::keys::KeySpace;

/// The standard, and how far each of a thread's watchers has come.
#[derive(Debug)]
pub struct Sequence {
    /// Whether a key's versions are applied in the order in which they were sent: each key has one owner.
    ordered: bool,
    /// Puts told of, by key; empty if nobody watches.
    puts: Vec<u32>,
    newest: i64,
    /// Events that some watcher has not been told of.
    events: VecDeque<Known>,
    /// The place in the whole sequence of the first of `events`.
    first: u64,
    /// Each watcher's place in the whole sequence; `None` once it went wrong.
    places: Vec<Option<u64>>,
}

#[derive(Debug)]
struct Known {
    revision: i64,
    key: u32,
    version: u32,
    /// Watchers that were told of it.
    told: u32,
}

/// What became of an event that was right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// A version of a key was told of.
    Put {
        /// The key's number.
        key: u32,
        /// The version's number.
        version: u32,
    },
    /// The watcher went wrong before.
    Ignored,
}

impl Sequence {
    /// For so many watchers, before the first event.
    pub fn new(space: KeySpace, watchers: u32) -> Self {
        let keys = if watchers == 0 { 0 } else { space.keys() };
        Self {
            ordered: !space.is_shared(),
            puts: vec![0; keys as usize],
            newest: 0,
            events: VecDeque::new(),
            first: 0,
            places: vec![Some(0); watchers as usize],
        }
    }

    /// A watcher was told of put number `counter` of `key`, at `revision`. `version` tells the version whose value came,
    /// if the value is right: given the version that is expected, or none if any of the key's will do. Errors: what the
    /// watcher "was …".
    pub fn observe(
        &mut self,
        watcher: usize,
        revision: i64,
        key: u32,
        counter: i64,
        version: impl FnOnce(Option<u32>) -> Option<u32>,
    ) -> Result<Observed, String> {
        let Some(Some(place)) = self.places.get(watcher).copied() else {
            return Ok(Observed::Ignored);
        };
        let checked = match self.events.get((place - self.first) as usize) {
            Some(known) => known.check(revision, key, version),
            None => self.extend(revision, key, counter, version),
        };
        self.places[watcher] = checked.is_ok().then_some(place + 1);
        let version = checked?;
        if let Some(known) = self.events.get_mut((place - self.first) as usize) {
            known.told += 1;
        }
        let watchers = self.places.len() as u32;
        while self.events.front().is_some_and(|known| known.told == watchers) {
            self.events.pop_front();
            self.first += 1;
        }
        Ok(Observed::Put { key, version })
    }

    /// The first watcher to be told of an event: it must follow from those before.
    fn extend(
        &mut self,
        revision: i64,
        key: u32,
        counter: i64,
        version: impl FnOnce(Option<u32>) -> Option<u32>,
    ) -> Result<u32, String> {
        if revision <= self.newest {
            return Err(format!("told of revision {revision} after revision {}", self.newest));
        }
        let puts = self.puts.get_mut(key as usize).ok_or("told of a key that nobody wrote")?;
        let expected = i64::from(*puts) + 1;
        if counter != expected {
            return Err(format!("told of put {counter} of the key, expected put {expected}"));
        }
        let version = version(self.ordered.then_some(*puts + 1))
            .ok_or_else(|| format!("told of put {counter} with a value that was never written"))?;
        *puts += 1;
        self.newest = revision;
        self.events.push_back(Known { revision, key, version, told: 0 });
        Ok(version)
    }

    /// At the end: whether the watchers were told of as many puts of a key as the store counts. Errors: why not.
    pub fn check_final(&self, key: u32, counted: i64) -> Result<(), String> {
        let Some(&puts) = self.puts.get(key as usize) else {
            return Ok(());
        };
        match i64::from(puts) == counted {
            true => Ok(()),
            false => Err(format!("expected watchers to be told of {counted} puts, they were told of {puts}")),
        }
    }
}

impl Known {
    /// Another watcher is told of what must be this event; its version.
    fn check(&self, revision: i64, key: u32, version: impl FnOnce(Option<u32>) -> Option<u32>) -> Result<u32, String> {
        if revision < self.revision {
            return Err(format!("told of revision {revision} again or late, expected {}", self.revision));
        }
        if revision > self.revision {
            return Err(format!("told of revision {revision} but not of {} before", self.revision));
        }
        if key != self.key {
            return Err(format!("told of another key at revision {revision} than other watchers were"));
        }
        version(Some(self.version)).ok_or_else(|| format!("told of revision {revision} with a wrong value"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// (revision, key, counter); the version is the counter.
    type Told = (i64, u32, i64);

    fn sequence(watchers: u32) -> Sequence {
        Sequence::new(KeySpace::new(10, 1), watchers)
    }

    fn tell(sequence: &mut Sequence, watcher: usize, (revision, key, counter): Told) -> Result<Observed, String> {
        let version = counter as u32;
        sequence.observe(watcher, revision, key, counter, |known| {
            known.is_none_or(|known| known == version).then_some(version)
        })
    }

    /// A run of events: keys in any order, revisions with gaps.
    fn history() -> impl Strategy<Value = Vec<Told>> {
        proptest::collection::vec((0u32..10, 1i64..4), 1..40).prop_map(|steps| {
            let (mut counters, mut revision) = ([0; 10], 0);
            let event = |(key, step): (u32, i64)| {
                revision += step;
                counters[key as usize] += 1;
                (revision, key, counters[key as usize])
            };
            steps.into_iter().map(event).collect()
        })
    }

    proptest! {
        #[test]
        fn the_same_history_is_right_for_everyone_in_any_interleaving(
            history in history(), order in proptest::collection::vec(0usize..3, 0..200),
        ) {
            let mut sequence = sequence(3);
            let mut places = [0; 3];
            for watcher in order.into_iter().chain([0; 40]).chain([1; 40]).chain([2; 40]) {
                if let Some(told) = history.get(places[watcher]) {
                    places[watcher] += 1;
                    tell(&mut sequence, watcher, *told).unwrap();
                }
            }
            prop_assert!(sequence.events.is_empty());
            for key in 0..10 {
                let puts = history.iter().filter(|told| told.1 == key).count() as i64;
                prop_assert_eq!(sequence.check_final(key, puts), Ok(()));
                prop_assert!(sequence.check_final(key, puts + 1).is_err());
            }
        }

        /// Each kind of fault, planted at each place of a watcher's history, is seen: at once, at a later event, or at
        /// the end.
        #[test]
        fn a_planted_fault_is_seen(history in history(), at: usize, fault in 0usize..3, second: bool) {
            let at = at % history.len();
            let mut faulty = history.clone();
            match fault {
                0 => { faulty.remove(at); }
                1 => faulty.insert(at, history[at]),
                _ if at + 1 < history.len() => faulty.swap(at, at + 1),
                _ => return Ok(()),
            }
            let mut sequence = sequence(2);
            if second {
                for told in &history {
                    tell(&mut sequence, 0, *told).unwrap();
                }
            }
            let watcher = usize::from(second);
            let seen = faulty.iter().any(|told| tell(&mut sequence, watcher, *told).is_err());
            // What is missing at the very end is seen by the count, or by the put that stays outstanding.
            let short = (0..10).any(|key| {
                let puts = history.iter().filter(|told| told.1 == key).count() as i64;
                sequence.check_final(key, puts).is_err()
            });
            prop_assert!(seen || short || !sequence.events.is_empty());
        }
    }

    #[test]
    fn a_watcher_that_went_wrong_is_told_on_only_once() {
        let mut sequence = sequence(1);
        tell(&mut sequence, 0, (5, 1, 1)).unwrap();
        assert_eq!(tell(&mut sequence, 0, (6, 1, 3)).unwrap_err(), "told of put 3 of the key, expected put 2");
        assert_eq!(tell(&mut sequence, 0, (7, 1, 4)), Ok(Observed::Ignored));
    }

    #[test]
    fn wrong_values_are_seen_by_the_first_and_by_others() {
        let mut sequence = sequence(2);
        assert!(sequence.observe(0, 5, 1, 1, |_| None).is_err());
        tell(&mut sequence, 1, (5, 1, 1)).unwrap();
        let mut sequence = super::tests::sequence(2);
        tell(&mut sequence, 0, (5, 1, 1)).unwrap();
        assert!(sequence.observe(1, 5, 1, 1, |_| None).is_err());
    }
}
