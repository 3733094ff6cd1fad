//! What subscribers hold of blocks while they send them: an allowance of bytes for all of them together.
//!
//! A large block is lent: it takes room for as long as one subscriber sends of it, once for all who send it at the same time. It is
//! sent in pieces that are copies, so that what a slow client leaves lying in its connection keeps a piece in memory and not the block.
//! Who waits for a client while others wait for room gives the block back, and takes it again when the client goes on. A small block is a
//! piece, and is not lent. Pieces that clients have not taken have an allowance of their own, half as large; where that is used up, everybody is served
//! in pieces that are much smaller.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::compressed::ContentCoding;
use crate::recent::Shared;

/// What a subscriber holds of a block in any case, bytes.
pub const PIECE_BYTES: usize = 256 << 10;
/// What a subscriber is sent at a time while clients take nothing of so many pieces that there is no room for another, bytes.
pub const CROWDED_PIECE_BYTES: usize = 16 << 10;
/// Who wants room waits so long for somebody whose client takes nothing.
const GRACE: Duration = Duration::from_secs(1);
/// So many pieces may be with clients in any case.
const PIECES_MIN: usize = 16;
/// Room is counted in so many bytes.
const UNIT_BYTES: usize = 1 << 10;

/// What is lent: a block, as it is or compressed.
type Lent = BTreeMap<(u64, Option<ContentCoding>), Weak<Loan>>;

/// The allowance.
pub struct Lending {
    room: Arc<Semaphore>,
    units_max: u32,
    /// For pieces.
    pieces: Arc<Semaphore>,
    lent: Mutex<Lent>,
    waiting: watch::Sender<usize>,
    lent_bytes: Gauge,
}

/// Room for a block that is not there yet, or for a piece.
#[derive(Debug)]
pub struct Room(Option<OwnedSemaphorePermit>);

/// A block that takes its room until this is dropped.
pub struct Loan {
    block: Arc<Shared>,
    bytes: i64,
    lent_bytes: Gauge,
    _room: Room,
}

impl Loan {
    /// The block.
    pub fn block(&self) -> &Shared {
        &self.block
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.lent_bytes.dec_by(self.bytes);
    }
}

/// Counts who waits.
struct Waiting<'a>(&'a watch::Sender<usize>);

impl<'a> Waiting<'a> {
    fn new(waiting: &'a watch::Sender<usize>) -> Self {
        waiting.send_modify(|count| *count += 1);
        Self(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX)
}

impl Lending {
    /// Lends so many bytes together. A block that is larger is lent alone.
    pub fn new(bytes_max: usize, lent_bytes: Gauge) -> Self {
        let units_max = units(bytes_max).clamp(1, u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        let room = Arc::new(Semaphore::new(units_max as usize));
        let pieces = Arc::new(Semaphore::new((units_max as usize / 2).max(PIECES_MIN * PIECE_BYTES / UNIT_BYTES)));
        Self { room, units_max, pieces, lent: Mutex::default(), waiting: watch::Sender::new(0), lent_bytes }
    }

    fn lent(&self) -> MutexGuard<'_, Lent> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block that somebody else has at the moment.
    pub fn shared(&self, number: u64, encoding: Option<ContentCoding>) -> Option<Arc<Loan>> {
        self.lent().get(&(number, encoding))?.upgrade()
    }

    /// Waits for room for so many bytes; in order, so that a large block's turn comes.
    pub async fn room(&self, bytes: usize) -> Room {
        let units = units(bytes).min(self.units_max);
        let room = match Arc::clone(&self.room).try_acquire_many_owned(units) {
            Ok(room) => Some(room),
            Err(_) => {
                let _waiting = Waiting::new(&self.waiting);
                // It is never closed.
                Arc::clone(&self.room).acquire_many_owned(units).await.ok()
            }
        };
        Room(room)
    }

    /// Room for a piece of so many bytes, if there is; [`PIECE_BYTES`] are counted at most.
    pub fn piece(&self, bytes: usize) -> Option<Room> {
        let room = Arc::clone(&self.pieces).try_acquire_many_owned(units(bytes.min(PIECE_BYTES)));
        room.ok().map(|room| Room(Some(room)))
    }

    /// The same, as soon as there is.
    pub async fn piece_later(&self, bytes: usize) -> Room {
        // It is never closed.
        Room(Arc::clone(&self.pieces).acquire_many_owned(units(bytes.min(PIECE_BYTES))).await.ok())
    }

    /// Lends a block, compressed like this or not, for which there is room; what it does not need is free again.
    pub fn lend(&self, block: Arc<Shared>, encoding: Option<ContentCoding>, mut room: Room) -> Arc<Loan> {
        let bytes = match block.frames_bytes() {
            ..=PIECE_BYTES => 0,
            bytes => bytes,
        };
        if let Some(room) = &mut room.0 {
            let excess = room.num_permits().saturating_sub(units(bytes) as usize);
            drop(room.split(excess));
        }
        let (number, is_lent, bytes) = (block.number, bytes > 0, bytes as i64);
        self.lent_bytes.inc_by(bytes);
        let loan = Arc::new(Loan { block, bytes, lent_bytes: self.lent_bytes.clone(), _room: room });
        if is_lent {
            let mut lent = self.lent();
            lent.retain(|_, loan| loan.strong_count() > 0);
            lent.insert((number, encoding), Arc::downgrade(&loan));
        }
        loan
    }

    /// Waits until somebody else has waited for room for a while.
    pub async fn is_wanted(&self) {
        let mut waiting = self.waiting.subscribe();
        loop {
            tokio::time::sleep(GRACE).await;
            if *waiting.borrow_and_update() > 0 {
                return;
            }
            // It ends with the node, which whoever asks holds.
            if waiting.wait_for(|waiting| *waiting > 0).await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::craft::{Crafter, Shape};

    fn block(number: u64, bytes: usize) -> Arc<Shared> {
        let crafted = Crafter::new(2, 0).next(Shape { items: bytes / 1000, item_bytes: 1_000 });
        Shared::new(number, crafted.root, &crafted.bytes, crate::messages::WireEra::Today).unwrap()
    }

    #[tokio::test]
    async fn what_is_lent_together_is_bounded_and_a_block_is_counted_once() {
        let lent_bytes = Gauge::default();
        let lending = Lending::new(2 << 20, lent_bytes.clone());
        let large = |number| block(number, 900_000);
        let one = lending.lend(large(1), None, lending.room(900_000).await);
        let two = lending.lend(large(2), None, lending.room(1 << 20).await);
        assert!(lent_bytes.get() > 1_800_000);
        assert!(Arc::ptr_eq(&lending.shared(1, None).unwrap(), &one) && lending.shared(3, None).is_none());
        let mut third = std::pin::pin!(lending.room(900_000));
        assert!(soon(third.as_mut()).await.is_none(), "there is no room");
        tokio::time::timeout(Duration::from_secs(30), lending.is_wanted()).await.expect("somebody waits");
        drop((one, two));
        assert_eq!((lent_bytes.get(), lending.shared(1, None).is_none()), (0, true));
        let small = lending.lend(block(3, 10_000), None, third.await);
        assert_eq!((lent_bytes.get(), *lending.waiting.borrow()), (0, 0));
        // A small one took none of it, and a larger one than all gets all.
        drop(lending.room(usize::MAX).await);
        drop(small);
    }

    #[tokio::test]
    async fn pieces_that_clients_do_not_take_are_bounded() {
        let lending = Lending::new(8 << 20, Gauge::default());
        let mut held = Vec::new();
        while let Some(piece) = lending.piece(PIECE_BYTES) {
            held.push(piece);
        }
        assert_eq!(held.len(), 16);
        assert!(soon(lending.piece_later(PIECE_BYTES)).await.is_none());
        held.pop();
        assert!(lending.piece(usize::MAX).is_some(), "a longer one counts as a piece");
        assert!(soon(lending.room(8 << 20)).await.is_some(), "blocks have theirs");
    }

    async fn soon<T>(future: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(Duration::from_millis(10), future).await.ok()
    }
}
