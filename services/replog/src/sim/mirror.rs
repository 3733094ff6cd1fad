//! What a member's log holds, as the checks see it: per entry the term and a hash of everything up to it.

use wal::{Kind, Record};

use crate::random::mix;
use crate::record::{Compaction, Hard};
use crate::recovery::Recovered;

/// A record, as far as the checks are concerned.
#[derive(Clone, Copy, Debug)]
pub(super) enum Digest {
    Entry {
        index: u64,
        term: u64,
        hash: u64,
    },
    /// The log begins anew behind this index.
    Reset {
        index: u64,
    },
    Hard {
        term: u64,
        vote: u64,
    },
}

/// The FNV-1a hash of `bytes`.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

pub(super) fn digest(record: &Record) -> Option<Digest> {
    match record.kind {
        Kind::Entry => Some(Digest::Entry { index: record.index, term: record.term, hash: hash(&record.payload) }),
        Kind::HardState => {
            let hard = Hard::decode(record.term, &record.payload).ok()?;
            Some(Digest::Hard { term: hard.term, vote: hard.vote })
        }
        Kind::Compaction => {
            let compaction = Compaction::decode(record.term, record.index, &record.payload).ok()?;
            compaction.begins_anew.then_some(Digest::Reset { index: record.index })
        }
    }
}

/// A log as the checks remember it.
#[derive(Clone, Debug, Default)]
pub(super) struct Mirror {
    base: u64,
    base_chain: u64,
    entries: Vec<(u64, u64)>,
    pub(super) term: u64,
    pub(super) vote: u64,
}

impl Mirror {
    /// Of a log that was opened. `chain_of` knows what is committed.
    pub(super) fn of(recovered: &Recovered, chain_of: impl Fn(u64) -> Option<u64>) -> Self {
        let base = recovered.compaction.index;
        let mut mirror = Self {
            base,
            base_chain: chain_of(base).unwrap_or_default(),
            entries: Vec::new(),
            term: recovered.hard.term,
            vote: recovered.hard.vote,
        };
        for entry in &recovered.entries {
            mirror.push(entry.term, hash(&entry.payload()));
        }
        mirror
    }

    fn push(&mut self, term: u64, hash: u64) {
        let previous = self.entries.last().map_or(self.base_chain, |(_, chain)| *chain);
        self.entries.push((term, mix(previous ^ mix(term ^ mix(hash)))));
    }

    /// Takes a record in. `None`: it does not join what is there. Else the entry's index, term and chain.
    pub(super) fn take(
        &mut self,
        digest: Digest,
        chain_of: impl Fn(u64) -> Option<u64>,
    ) -> Option<Option<(u64, u64, u64)>> {
        match digest {
            Digest::Entry { index, term, hash } => {
                if index <= self.base || index > self.last() + 1 {
                    return None;
                }
                self.entries.truncate((index - self.base - 1) as usize);
                self.push(term, hash);
                Some(self.entries.last().map(|(term, chain)| (index, *term, *chain)))
            }
            Digest::Reset { index } => {
                self.base_chain = chain_of(index)?;
                self.base = index;
                self.entries.clear();
                Some(None)
            }
            Digest::Hard { term, vote } => {
                (self.term, self.vote) = (term, vote);
                Some(None)
            }
        }
    }

    pub(super) fn last(&self) -> u64 {
        self.base + self.entries.len() as u64
    }

    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// Entries with index, term and chain, from this one on.
    pub(super) fn entries_from(&self, first: u64) -> impl Iterator<Item = (u64, u64, u64)> {
        let skipped = first.saturating_sub(self.base + 1);
        let entries = self.entries.iter().skip(skipped as usize).zip(self.base + 1 + skipped..);
        entries.map(|((term, chain), index)| (index, *term, *chain))
    }

    /// The hash of everything up to this entry. What is before the base was committed.
    pub(super) fn chain(&self, index: u64) -> Option<u64> {
        match index.checked_sub(self.base)? {
            0 => Some(self.base_chain),
            offset => self.entries.get(offset as usize - 1).map(|(_, chain)| *chain),
        }
    }
}
