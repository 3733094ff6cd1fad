//! How a block continues those before it: it names the root hash of the block before and the root of the tree of all before.

use crate::block::Footer;
use crate::hash::{HASH_BYTES, Hash, Tree, empty};

/// A block that does not continue what is stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// Another number is next.
    #[error("block {0} cannot follow: the next is {1}")]
    Number(u64, u64),
    /// Another block before it.
    #[error("block {0} names another root hash of the block before than the one that is stored")]
    Previous(u64),
    /// Another history.
    #[error("block {0} names another root of the tree of all root hashes before than what is stored has")]
    AllPrevious(u64),
}

/// What the next block must continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    next: u64,
    /// `None`: the block before is not known.
    previous: Option<Hash>,
    /// `None`: not all of the history is known.
    all: Option<Tree>,
}

impl Chain {
    /// Of a store whose first block has this number. From a later one than 0 on nothing is known of the history.
    pub fn from(first: u64) -> Self {
        match first {
            0 => Self { next: 0, previous: Some(empty()), all: Some(Tree::default()) },
            next => Self::unknown(next),
        }
    }

    /// Nothing is known of what is before this block.
    pub fn unknown(next: u64) -> Self {
        Self { next, previous: None, all: None }
    }

    /// Number of the next block.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Root hash of the block before, as far as it is known.
    pub fn previous(&self) -> Option<Hash> {
        self.previous
    }

    /// Whether the tree of all root hashes is known, so that blocks are compared with it.
    pub fn knows_all(&self) -> bool {
        self.all.is_some()
    }

    /// Whether a block continues it.
    pub fn check(&self, number: u64, footer: &Footer) -> Result<(), ChainError> {
        if number != self.next {
            return Err(ChainError::Number(number, self.next));
        }
        let previous = match footer.all_previous_root {
            // Before the first block of the time of two trees was nothing but zeros.
            None if number == 0 => Some([0; HASH_BYTES]),
            _ => self.previous,
        };
        if previous.is_some_and(|previous| previous != footer.previous_root) {
            return Err(ChainError::Previous(number));
        }
        match (&self.all, footer.all_previous_root) {
            (Some(all), Some(named)) if all.root() != named => Err(ChainError::AllPrevious(number)),
            _ => Ok(()),
        }
    }

    /// The root hash of the block with this number is known now; whether that is the one before, of which it was not.
    pub fn know_previous(&mut self, number: u64, root: Hash) -> bool {
        let is_news = self.previous.is_none() && self.next.checked_sub(1) == Some(number);
        if is_news {
            self.previous = Some(root);
        }
        is_news
    }

    /// Adds the next block.
    pub fn extend(&mut self, root: Hash) {
        if let Some(all) = &mut self.all {
            all.add(root);
        }
        self.previous = Some(root);
        self.next += 1;
    }

    /// The footer that the next block must have, for whoever makes blocks; unknown hashes are those of an empty tree.
    pub fn footer(&self, state_root: Option<Hash>) -> Footer {
        Footer {
            previous_root: self.previous.unwrap_or_else(empty),
            all_previous_root: Some(self.all.as_ref().map_or_else(empty, Tree::root)),
            state_root,
        }
    }

    /// Next number (8 bytes, little-endian); 1 and the previous root, or 0; 1 and the tree, or 0.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.next.to_le_bytes().to_vec();
        match &self.previous {
            Some(previous) => {
                out.push(1);
                out.extend(previous);
            }
            None => out.push(0),
        }
        match &self.all {
            Some(all) => {
                out.push(1);
                all.encode(&mut out);
            }
            None => out.push(0),
        }
        out
    }

    /// What [`Chain::encode`] has written; `None`: it is something else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (next, bytes) = bytes.split_first_chunk::<8>()?;
        let (has_previous, mut bytes) = bytes.split_first()?;
        let mut previous = None;
        if *has_previous == 1 {
            let (hash, behind) = bytes.split_first_chunk::<HASH_BYTES>()?;
            (previous, bytes) = (Some(*hash), behind);
        }
        let (has_all, mut bytes) = bytes.split_first()?;
        let mut all = None;
        if *has_all == 1 {
            let (tree, behind) = Tree::decode(bytes)?;
            (all, bytes) = (Some(tree), behind);
        }
        bytes.is_empty().then_some(Self { next: u64::from_le_bytes(*next), previous, all })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_must_name_what_is_before_it() {
        let mut chain = Chain::from(0);
        let genesis = chain.footer(None);
        assert_eq!(genesis, Footer { previous_root: empty(), all_previous_root: Some(empty()), state_root: None });
        assert_eq!(chain.check(0, &genesis), Ok(()));
        assert_eq!(chain.check(1, &genesis), Err(ChainError::Number(1, 0)));
        chain.extend([1; 48]);
        let second = chain.footer(None);
        assert_eq!(chain.check(1, &second), Ok(()));
        assert_eq!(chain.check(1, &Footer { previous_root: [2; 48], ..second }), Err(ChainError::Previous(1)));
        let forged = Footer { all_previous_root: Some([2; 48]), ..second };
        assert_eq!(chain.check(1, &forged), Err(ChainError::AllPrevious(1)));
        chain.extend([2; 48]);
        chain.extend([3; 48]);
        assert_eq!(Chain::decode(&chain.encode()), Some(chain.clone()));
        assert!(chain.knows_all());
    }

    #[test]
    fn without_the_history_only_the_block_before_is_compared() {
        let mut chain = Chain::from(100);
        let any = Footer { previous_root: [5; 48], all_previous_root: Some([6; 48]), state_root: None };
        assert_eq!(chain.check(100, &any), Ok(()));
        assert!(!chain.knows_all());
        chain.extend([7; 48]);
        assert_eq!(chain.check(101, &any), Err(ChainError::Previous(101)));
        assert_eq!(chain.check(101, &Footer { previous_root: [7; 48], ..any }), Ok(()));
        assert_eq!(Chain::decode(&chain.encode()), Some(chain));
        assert_eq!(Chain::decode(&[0; 9]), None);
    }
}
