//! Blocks from memory or from disk: so many at a time, and each once for all who want it at the same moment.

use std::io;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Node;
use crate::lending::{Loan, PIECE_BYTES};
use crate::reading::Reading;
use crate::recent::Shared;
use crate::store::ReadError;

/// Blocks that are read from disk at a time, bytes: one that is larger is read alone. While it is read, a block takes up to three times
/// as much: as it is stored, as it came, and in frames.
const READ_BYTES_MAX: usize = 16 << 20;
/// A block counts for so many of them at least, so that 32 are read at a time.
const READ_BYTES_MIN: usize = 512 << 10;
/// They are counted in so many.
const READ_UNIT_BYTES: usize = 1 << 10;

/// A block, and what it takes of what may be read from disk at a time, if it was read: once for all who wanted it at the same moment.
#[derive(Clone)]
pub struct Held {
    block: Arc<Shared>,
    _place: Option<Arc<OwnedSemaphorePermit>>,
}

impl Held {
    /// The block.
    pub fn block(&self) -> &Shared {
        &self.block
    }
}

/// What a block of so many bytes takes of what may be read at a time.
fn places(bytes: usize) -> u32 {
    (bytes.clamp(READ_BYTES_MIN, READ_BYTES_MAX) / READ_UNIT_BYTES) as u32
}

/// What is being read.
pub(super) struct Reads {
    places: Arc<Semaphore>,
    reading: Reading<u64, Held>,
    /// What is read to be lent waits for room first.
    lending: Reading<u64, Arc<Loan>>,
}

impl Default for Reads {
    fn default() -> Self {
        let places = Arc::new(Semaphore::new(READ_BYTES_MAX / READ_UNIT_BYTES));
        Self { places, reading: Reading::default(), lending: Reading::default() }
    }
}

impl Node {
    /// A block, from memory or from disk.
    pub async fn read(self: &Arc<Self>, number: u64) -> Result<Arc<Shared>, ReadError> {
        Ok(self.hold(number).await?.block)
    }

    /// The same, for who makes more of it: what it takes of what may be read from disk at a time it takes until it is dropped.
    pub async fn hold(self: &Arc<Self>, number: u64) -> Result<Held, ReadError> {
        match self.recent.get(number) {
            Some(block) => Ok(Held { block, _place: None }),
            None => self.reads.reading.once(number, || self.hold_from_disk(number)).await,
        }
    }

    async fn hold_from_disk(self: &Arc<Self>, number: u64) -> Result<Held, ReadError> {
        let mut bytes = 0;
        let was_known = self.reader.is_quarantined(number);
        loop {
            // It is never closed.
            let place = Arc::clone(&self.reads.places).acquire_many_owned(places(bytes)).await.ok();
            // Somebody else may have read it in the meantime.
            if let Some(block) = self.recent.get(number) {
                return Ok(Held { block, _place: None });
            }
            let node = Arc::clone(self);
            let read = tokio::task::spawn_blocking(move || {
                // Its head alone says how large it is.
                let needed = node.reader.plain_bytes(number);
                match places(needed) > places(bytes) {
                    true => Ok(Err(needed)),
                    false => node.read_from_disk(number).map(|block| Ok((block, place))),
                }
            });
            match read.await {
                Ok(Ok(Ok((block, place)))) => {
                    return Ok(Held { block: self.recent.add_past(block), _place: place.map(Arc::new) });
                }
                Ok(Ok(Err(needed))) => bytes = needed,
                Ok(Err(error @ ReadError::NotStored(_))) => return Err(error),
                Ok(Err(error)) => {
                    // Whoever may read could fill the log with what it has told before.
                    if !was_known {
                        tracing::error!("{error}");
                    }
                    return Err(error);
                }
                Err(error) => return Err(ReadError::Files { number, source: io::Error::other(error) }),
            }
        }
    }

    fn read_from_disk(&self, number: u64) -> Result<Arc<Shared>, ReadError> {
        self.metrics.read_from_disk.inc();
        let stored = self.reader.read(number)?;
        self.metrics.framed.inc();
        let shared = Shared::new(number, stored.root, &stored.bytes, self.settings.wire_era);
        shared.map_err(|error| ReadError::Damaged { number, what: error.to_string() })
    }

    /// A block for a subscriber, as soon as there is room for it.
    pub async fn lend(self: &Arc<Self>, number: u64) -> Result<Arc<Loan>, ReadError> {
        if let Some(loan) = self.lending.shared(number, None) {
            return Ok(loan);
        }
        // Most blocks are small and new, and need no room.
        if let Some(block) = self.recent.get(number).filter(|block| block.frames_bytes() <= PIECE_BYTES) {
            return Ok(self.lending.lend(block, None, self.lending.room(0).await));
        }
        // Before there is room it is not read, so that those who wait for room share it as well.
        let lend = async || {
            let room = self.lending.room(self.bytes_to_lend(number)).await;
            let block = self.read(number).await?;
            Ok(self.lending.lend(block, None, room))
        };
        self.reads.lending.once(number, lend).await
    }

    /// What a block may take that is lent.
    pub fn bytes_to_lend(&self, number: u64) -> usize {
        // How large it is on disk is not known before it is read.
        match self.recent.get(number) {
            Some(block) if block.frames_bytes() <= PIECE_BYTES => 0,
            Some(block) => block.frames_bytes(),
            None => self.settings.message_bytes_max,
        }
    }
}
