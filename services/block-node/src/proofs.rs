//! Proofs of contents, one after the other: to make one takes a processor for as long as to hash its block when it came, and an item that is
//! asked for costs nothing.
//!
//! A client has one made at a time of short blocks, and one of long ones, and all together two of each: nobody waits behind all that another asks for,
//! nor for long blocks who asks for a short one. What nobody waits for any more is given up.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::contents_proof::{ContentsProof, Wanted, prove};
use crate::messages::{ContentsProofCode, proto};
use crate::recent::Shared;
use crate::store::ReadError;
use crate::wire::WireError;

/// A block that is no longer is hashed within a tenth of a second, whatever its items are.
const SHORT_BYTES: usize = 256 << 10;

/// Proofs of each kind that are made at a time: each holds its block, and takes a processor.
const PROOFS_MAX: usize = 2;

/// After so many items it is looked whether somebody still waits.
const LOOK_ITEMS: usize = 1 << 10;

/// Whose turn it is.
#[derive(Default)]
pub struct Proofs {
    short: Line,
    long: Line,
}

/// Those that are made at a time, and those of each client.
struct Line {
    places: Arc<Semaphore>,
    clients: Mutex<BTreeMap<String, Weak<Semaphore>>>,
}

impl Default for Line {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(PROOFS_MAX)), clients: Mutex::default() }
    }
}

/// A turn, until this is dropped. Semaphores are never closed: a permit is always there.
struct Turn {
    _place: Option<OwnedSemaphorePermit>,
    _own: Option<OwnedSemaphorePermit>,
}

impl Line {
    /// The turn of this client, when what it has asked for before is done.
    async fn turn(&self, client: &str) -> Turn {
        let own = self.of_client(client).acquire_owned().await.ok();
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        Turn { _place: place, _own: own }
    }

    fn of_client(&self, client: &str) -> Arc<Semaphore> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = clients.get(client).and_then(Weak::upgrade) {
            return own;
        }
        // Those who have a proof made, or wait for one, hold theirs.
        clients.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(Semaphore::new(1));
        clients.insert(client.into(), Arc::downgrade(&own));
        own
    }
}

impl Proofs {
    /// Has the block read, and hashes it on a thread of its own when it is this client's turn.
    pub async fn contents_proof<F>(
        &self,
        client: &str,
        request: proto::BlockContentsProofRequest,
        read: impl Fn(u64) -> F,
    ) -> Result<ContentsProof, ContentsProofCode>
    where
        F: Future<Output = Result<Arc<Shared>, ReadError>>,
    {
        use proto::block_contents_proof_request::BlockItem::{BlockItemHash, BlockItemIndex, CompleteBlockItem};
        let (number, wanted) = (request.block_number, request.block_item.ok_or(ContentsProofCode::InvalidRequest)?);
        // No others wait for it: it is held in so many turns at most, beside those that are being read.
        let read = async || {
            read(number).await.map_err(|error| match error {
                ReadError::NotStored(_) | ReadError::Damaged { .. } => ContentsProofCode::NotAvailable,
                ReadError::Files { .. } => ContentsProofCode::Error,
            })
        };
        let mut turn = self.short.turn(client).await;
        let mut block = read().await?;
        if block.block_bytes() > SHORT_BYTES {
            // It is not held while others have their turn.
            drop((block, turn));
            turn = self.long.turn(client).await;
            block = read().await?;
        }
        let (tell, told) = oneshot::channel();
        tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let wanted = match &wanted {
                CompleteBlockItem(item) => Wanted::Item(item),
                BlockItemHash(hash) => Wanted::Hash(hash),
                BlockItemIndex(index) => Wanted::Index(*index as usize),
            };
            let proven = prove(as_long_as(|| !tell.is_closed(), block.items()), &wanted);
            // An error: nobody waits for it.
            let _ = tell.send(proven);
        });
        // An error here says that the server stops, or that proving has panicked.
        told.await.unwrap_or(Err(ContentsProofCode::Error))
    }
}

/// Items, as long as somebody waits.
fn as_long_as<'a>(
    is_wanted: impl Fn() -> bool,
    items: impl Iterator<Item = Result<&'a [u8], WireError>>,
) -> impl Iterator<Item = Result<&'a [u8], WireError>> {
    items.enumerate().take_while(move |(index, _)| index % LOOK_ITEMS > 0 || is_wanted()).map(|(_, item)| item)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;

    use super::*;
    use crate::polled::polled;

    #[test]
    fn a_client_has_one_made_at_a_time_and_keeps_no_place_from_another() {
        let line = Line::default();
        let first = polled(pin!(line.turn("a"))).unwrap();
        let mut second = pin!(line.turn("a"));
        assert!(polled(second.as_mut()).is_none());
        let other = polled(pin!(line.turn("b"))).unwrap();
        let mut third = pin!(line.turn("c"));
        assert!(polled(third.as_mut()).is_none(), "two are made");
        drop(first);
        assert!(polled(third.as_mut()).is_some(), "it has waited longer for a place");
        drop(other);
        assert!(polled(second.as_mut()).is_some());
        let _turn = polled(pin!(line.turn("d"))).unwrap();
        assert_eq!(
            line.clients.lock().unwrap().keys().collect::<Vec<_>>(),
            ["d"],
            "who waits for nothing is forgotten"
        );
    }

    #[test]
    fn a_block_is_not_hashed_to_its_end_when_nobody_waits() {
        let (left, seen) = (Cell::new(2), Cell::new(0));
        let is_wanted = || left.replace(left.get() - 1) > 0;
        let items = std::iter::repeat_with(|| Ok(&b"item"[..])).inspect(|_| seen.set(seen.get() + 1));
        assert_eq!(as_long_as(is_wanted, items).count(), 2 * LOOK_ITEMS);
        assert_eq!(seen.get(), 2 * LOOK_ITEMS + 1);
    }
}
