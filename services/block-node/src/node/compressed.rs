//! Blocks that are sent compressed: each is compressed once for all subscribers who take it alike, and kept like one that was read from disk
//! if it is small, or lent if it is large: see [`crate::recent`] and [`crate::lending`].

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Node;
use crate::compressed::ContentCoding;
use crate::lending::{Loan, PIECE_BYTES};
use crate::reading::Reading;
use crate::recent::{Recent, Shared};
use crate::store::ReadError;

/// Blocks that are compressed for clients at a time: each takes a processor, and up to as much memory again.
const COMPRESSED_AT_A_TIME: usize = 2;
/// What is shorter is compressed where it is asked for: to hand it to another thread takes as long.
const AT_ONCE_BYTES: usize = 32 << 10;

/// Compressed blocks.
pub(super) struct Compressed {
    /// Small ones, of each encoding.
    kept: [Recent; ContentCoding::ALL.len()],
    making: Reading<(u64, ContentCoding), Arc<Loan>>,
    places: Arc<Semaphore>,
}

impl Compressed {
    /// Keeps so many bytes of them.
    pub(super) fn new(bytes_max: usize) -> Self {
        let kept = ContentCoding::ALL.map(|_| Recent::new(bytes_max / ContentCoding::ALL.len()));
        Self { kept, making: Reading::default(), places: Arc::new(Semaphore::new(COMPRESSED_AT_A_TIME)) }
    }

    fn kept(&self, encoding: ContentCoding) -> &Recent {
        &self.kept[encoding as usize]
    }

    /// A place among those who compress; it is given back with what was made.
    async fn place(&self) -> Option<OwnedSemaphorePermit> {
        // It is never closed.
        Arc::clone(&self.places).acquire_owned().await.ok()
    }
}

impl Node {
    /// An answer that `make` makes of a block, compressed when it is its turn.
    pub async fn compressed_answer(
        self: &Arc<Self>,
        number: u64,
        encoding: ContentCoding,
        make: impl FnOnce(&Shared) -> Bytes,
    ) -> Result<Bytes, ReadError> {
        let compression = encoding.compression();
        if let Some(block) = self.recent.get(number).filter(|block| block.block_bytes() <= AT_ONCE_BYTES) {
            return Ok(compression.frames(make(&block)));
        }
        // Before it is read: who waits for a processor keeps nobody from reading.
        let place = self.compressed.place().await;
        let plain = make(self.hold(number).await?.block());
        let of_thread = plain.clone();
        // Whoever goes away meanwhile leaves the place to the thread.
        let compressed = tokio::task::spawn_blocking(move || (compression.frames(of_thread), place)).await;
        // An error says that the server stops.
        Ok(compressed.map_or(plain, |(compressed, _)| compressed))
    }

    /// A block for a subscriber who takes it compressed, as soon as there is room for it.
    pub async fn lend_compressed(
        self: &Arc<Self>,
        number: u64,
        encoding: ContentCoding,
    ) -> Result<Arc<Loan>, ReadError> {
        if let Some(loan) = self.lent_compressed(number, encoding).await {
            return Ok(loan);
        }
        self.compressed.making.once((number, encoding), || self.make_compressed(number, encoding)).await
    }

    async fn make_compressed(self: &Arc<Self>, number: u64, encoding: ContentCoding) -> Result<Arc<Loan>, ReadError> {
        // Somebody else may have made it in the meantime.
        if let Some(loan) = self.lent_compressed(number, encoding).await {
            return Ok(loan);
        }
        let room = self.lending.room(self.bytes_to_lend(number)).await;
        // Not held, as it has its room: who waits for a processor keeps nobody from reading.
        let plain = self.read(number).await?;
        let compression = encoding.compression();
        let block = if plain.frames_bytes() <= AT_ONCE_BYTES {
            plain.compressed(&compression)
        } else {
            let place = self.compressed.place().await;
            let compress = move || (plain.compressed(&compression), place);
            let made = tokio::task::spawn_blocking(compress).await;
            made.map_err(|error| ReadError::Files { number, source: io::Error::other(error) })?.0
        };
        self.metrics.framed.inc();
        let block = match block.frames_bytes() {
            ..=PIECE_BYTES => self.compressed.kept(encoding).add_past(block),
            _ => block,
        };
        Ok(self.lending.lend(block, Some(encoding), room))
    }

    /// The same, where it is there already.
    async fn lent_compressed(&self, number: u64, encoding: ContentCoding) -> Option<Arc<Loan>> {
        if let Some(loan) = self.lending.shared(number, Some(encoding)) {
            return Some(loan);
        }
        let block: Arc<Shared> = self.compressed.kept(encoding).get(number)?;
        Some(self.lending.lend(block, Some(encoding), self.lending.room(0).await))
    }
}
