//! What a replica has of each page, as keyed hashes: a database whose continuity cannot be proved then sends the pages that differ, and not
//! all of them.
//!
//! The files that lead to the newest point are read one after the other, in the memory of one page; what stays is 8 bytes a page.

use crate::replica::{READ_TRIES, Replica};
use crate::restore::{RestoreError, Target, plan};
use crate::store::{StoreError, retry};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

/// Of larger databases no checksums are kept: 8 bytes each are 4 MiB.
pub const PAGES_MAX: u32 = 524_288;

/// The key of this process. The checksum that files have is none: who writes blobs can make two pages of one.
static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A keyed hash of a page.
fn hash(number: u32, page: &[u8]) -> u64 {
    let mut hasher = KEY.build_hasher();
    hasher.write_u32(number);
    hasher.write(page);
    hasher.finish()
}

/// A keyed hash of every page of a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageChecksums {
    page_size: u32,
    /// 0: of the lock page, which is nowhere.
    checksums: Vec<u64>,
}

/// Why there are none.
#[derive(Debug, thiserror::Error)]
pub enum NoChecksums {
    /// The replica cannot be read.
    #[error(transparent)]
    Replica(#[from] RestoreError),
    /// More than [`PAGES_MAX`].
    #[error("it has {0} pages, more than are compared")]
    TooLarge(u32),
    /// The replica ends elsewhere than was thought.
    #[error("its replica ends at TXID {0}")]
    OtherEnd(u64),
}

impl NoChecksums {
    /// Whether the newest point cannot be restored at all: what is sent next stands on nothing, until a snapshot comes.
    pub fn is_of_a_broken_replica(&self) -> bool {
        use RestoreError::{NoWay, Store};
        matches!(self, NoChecksums::Replica(NoWay(_) | Store(StoreError::Damaged(_))))
    }
}

impl From<StoreError> for NoChecksums {
    fn from(error: StoreError) -> Self {
        NoChecksums::Replica(error.into())
    }
}

impl PageChecksums {
    /// Those of the state after `txid`, which is the newest of the replica.
    pub fn of(replica: &Replica, txid: u64) -> Result<PageChecksums, NoChecksums> {
        let (newest, files) = plan(replica, Target::Latest)?;
        if newest != txid {
            return Err(NoChecksums::OtherEnd(newest));
        }
        let mut found = PageChecksums::default();
        for file in &files {
            let header = replica.header(file)?;
            if header.commit > PAGES_MAX {
                return Err(NoChecksums::TooLarge(header.commit));
            }
            if found.page_size != header.page_size {
                // Only a file with every page can change that.
                found = PageChecksums { page_size: header.page_size, checksums: Vec::new() };
            }
            found.checksums.resize(header.commit as usize, 0);
            retry(READ_TRIES, || {
                replica.read(file, |_, number, page| {
                    if let Some(checksum) = found.checksums.get_mut(number as usize - 1) {
                        *checksum = hash(number, page);
                    }
                    Ok(())
                })
            })?;
        }
        Ok(found)
    }

    /// Bytes of a page.
    pub fn page_size(&self) -> u32 {
        self.page_size
    }

    /// Pages of the database.
    pub fn size(&self) -> u32 {
        self.checksums.len() as u32
    }

    /// Whether the replica has this page as it is here.
    pub fn has(&self, number: u32, page: &[u8]) -> bool {
        let known = number.checked_sub(1).and_then(|index| self.checksums.get(index as usize));
        known.is_some_and(|known| *known == hash(number, page))
    }
}
