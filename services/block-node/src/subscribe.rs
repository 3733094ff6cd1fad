//! subscribeBlockStream: a place in the sequence of safe blocks that moves on.
//!
//! A subscriber has no queue. It looks which block is next for it, takes it from memory or from disk, and sends it when the client has
//! room; if the block is not there yet it waits for the tip to move. So history flows into live without a gap or a repeat, a slow
//! subscriber reads from disk and holds nobody up, and a wake-up cannot be lost: the tip is looked at before it is waited for. What it
//! holds of a block is bounded with what all others hold, and by time: see [`crate::lending`]. What it did not ask for comes as hashes:
//! see [`crate::filter`].

use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use service_kit::grpc::{Code, Requests, Responses, Status, encode_with};

use crate::block::ItemError;
use crate::clients::Call;
use crate::compressed::ContentCoding;
use crate::filter::{self, Filter, Part, Place};
use crate::lending::{CROWDED_PIECE_BYTES, Loan, PIECE_BYTES, Room};
use crate::messages::{NO_BLOCK, SubscribeCode, proto, subscribe_status};
use crate::node::Node;
use crate::store::ReadError;

/// A request is no longer: decoded, a filter takes several times what it takes on the wire.
const REQUEST_BYTES_MAX: usize = 16 << 10;

/// Which blocks are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The first.
    pub from: u64,
    /// The last; [`NO_BLOCK`]: there is no end.
    pub to: u64,
}

impl Plan {
    /// Of a request to a node that has the blocks from `first` up to and without `next`.
    pub fn of(
        request: &proto::SubscribeStreamRequest,
        (first, next): (u64, u64),
        future_max: u64,
    ) -> Result<Self, SubscribeCode> {
        let (start, end) = (request.start_block_number, request.end_block_number);
        let from = match (start, end) {
            // The next block that becomes safe.
            (NO_BLOCK, NO_BLOCK) => next,
            (NO_BLOCK, _) => first,
            (start, _) => start,
        };
        if end < from {
            return Err(SubscribeCode::InvalidEnd);
        }
        // As the Java node; its document says INVALID_START_BLOCK_NUMBER.
        let is_too_early = from < first;
        let is_too_late = from.saturating_sub(next) >= future_max;
        if is_too_early || is_too_late {
            return Err(SubscribeCode::NotAvailable);
        }
        Ok(Self { from, to: end })
    }
}

/// Counts a subscriber for as long as it is there.
struct Counted(Arc<Node>);

impl Counted {
    fn new(node: &Arc<Node>) -> Self {
        node.metrics.subscribers.inc();
        Self(Arc::clone(node))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.metrics.subscribers.dec();
    }
}

/// Answers a subscribeBlockStream, with blocks that are compressed like this or not.
pub async fn subscribe(
    node: Arc<Node>,
    call: Rc<Call>,
    encoding: Option<ContentCoding>,
    requests: Requests,
    responses: Responses,
) -> Result<(), Status> {
    let message = requests.only().await?;
    if message.len() > REQUEST_BYTES_MAX {
        end(&node, SubscribeCode::InvalidRequest, &responses).await;
        return Ok(());
    }
    let request = proto::SubscribeStreamRequest::decode(message)
        .map_err(|error| Status::new(Code::InvalidArgument, format!("not a SubscribeStreamRequest: {error}")))?;
    let _counted = Counted::new(&node);
    let code = match send(&node, &call, (&request, encoding), &responses).await {
        Ok(code) => Some(code),
        Err(Undelivered::Gone) => None,
        Err(Undelivered::Late) => {
            let text = format!("{PIECE_BYTES} bytes were not taken within {:?}", node.settings.subscriber_timeout);
            return Err(Status::new(Code::DeadlineExceeded, text));
        }
        Err(Undelivered::Crowded) => {
            let text = "other subscribers hold all that --readers-memory-bytes allows, and take nothing; try again";
            return Err(Status::new(Code::ResourceExhausted, text));
        }
        // It was removed before this subscriber came to it.
        Err(Undelivered::Unread(ReadError::NotStored(_)) | Undelivered::Unfiltered) => {
            Some(SubscribeCode::NotAvailable)
        }
        Err(Undelivered::Unread(_)) => Some(SubscribeCode::Error),
    };
    if let Some(code) = code {
        end(&node, code, &responses).await;
    }
    Ok(())
}

/// Tells why nothing more comes.
async fn end(node: &Node, code: SubscribeCode, responses: &Responses) {
    let status = subscribe_status(code, node.settings.wire_era);
    let frame = encode_with(|out| out.extend_from_slice(&status), status.len());
    // An error says that the client has gone.
    let _ = responses.send(frame).await;
}

/// Why blocks do not arrive.
enum Undelivered {
    /// The client has gone.
    Gone,
    /// It takes nothing.
    Late,
    /// Others take nothing, and hold all that may be held.
    Crowded,
    /// There is no block.
    Unread(ReadError),
    /// It is of a time that had no filters.
    Unfiltered,
}

/// Sends blocks until the end.
async fn send(
    node: &Arc<Node>,
    call: &Call,
    (request, encoding): (&proto::SubscribeStreamRequest, Option<ContentCoding>),
    responses: &Responses,
) -> Result<SubscribeCode, Undelivered> {
    let mut tip = node.tip();
    let known = (node.reader.first(), tip.borrow().next);
    let plan = match Plan::of(request, known, node.settings.future_max) {
        Ok(plan) => plan,
        Err(code) => return Ok(code),
    };
    let filter = match Filter::of(request.filter.as_ref()) {
        Ok(filter) => filter.map(Arc::new),
        Err(code) => return Ok(code),
    };
    // A filtered block is made of what goes out as it is.
    let encoding = encoding.filter(|_| filter.is_none());
    let subscriber = Subscriber { node, encoding, responses };
    responses.open().map_err(|_| Undelivered::Gone)?;
    // The next block that becomes safe, whichever that is.
    let is_live = request.start_block_number == NO_BLOCK && request.end_block_number == NO_BLOCK;
    let (mut number, mut has_begun) = (plan.from, false);
    loop {
        let now = *tip.borrow_and_update();
        if now.is_stopping {
            return Ok(SubscribeCode::Success);
        }
        if is_live && !has_begun {
            if plan.from > now.next {
                // An empty node has gone back to an earlier block, and this subscriber would miss what comes before the one that was next.
                return Ok(SubscribeCode::NotAvailable);
            }
            // It may have begun later than with that, too.
            number = plan.from.max(node.reader.first());
        }
        if number >= now.next {
            if tip.changed().await.is_err() {
                return Ok(SubscribeCode::Success);
            }
            continue;
        }
        has_begun = true;
        // A block at a time: what it takes beyond its bytes a second is bounded by that.
        call.turn().await;
        match &filter {
            None => subscriber.deliver(number).await?,
            Some(filter) => subscriber.deliver_filtered(number, filter).await?,
        }
        node.metrics.delivered.inc();
        if number + 1 == now.next {
            node.metrics.deliver.observe(now.at.elapsed());
        }
        if number == plan.to {
            return Ok(SubscribeCode::Success);
        }
        number += 1;
    }
}

/// Whom blocks are sent to.
struct Subscriber<'a> {
    node: &'a Arc<Node>,
    encoding: Option<ContentCoding>,
    responses: &'a Responses,
}

impl Subscriber<'_> {
    /// Room for a piece that is made already; who does not take theirs are ended in the time that it is waited for.
    async fn room(&self, bytes: usize) -> Result<Room, Undelivered> {
        let room = self.node.lending.piece_later(bytes);
        let room = tokio::time::timeout(self.node.settings.subscriber_timeout, room).await;
        room.map_err(|_| Undelivered::Crowded)
    }

    async fn send(&self, piece: Bytes) -> Result<(), Undelivered> {
        match tokio::time::timeout(self.node.settings.subscriber_timeout, self.responses.send(piece)).await {
            Ok(sent) => sent.map_err(|_| Undelivered::Gone),
            Err(_) => Err(Undelivered::Late),
        }
    }

    /// Sends a piece while a block is lent; what comes back is the loan, if nobody else wants the room that it takes.
    async fn send_of(&self, (piece, _room): (Bytes, Room), loan: Arc<Loan>) -> Result<Option<Arc<Loan>>, Undelivered> {
        let mut sending = pin!(self.send(piece));
        tokio::select! {
            sent = &mut sending => sent.map(|()| Some(loan)),
            () = self.node.lending.is_wanted() => {
                drop(loan);
                sending.await.map(|()| None)
            }
        }
    }

    /// A block, where it was not lent until now.
    async fn lent(&self, number: u64, loan: Option<Arc<Loan>>) -> Result<Arc<Loan>, Undelivered> {
        let lent = match (loan, self.encoding) {
            (Some(loan), _) => Ok(loan),
            (None, None) => self.node.lend(number).await,
            (None, Some(encoding)) => self.node.lend_compressed(number, encoding).await,
        };
        lent.map_err(Undelivered::Unread)
    }

    /// Sends a part of a block's frames. It is held while the client takes of it, or nobody else wants the room that it takes.
    async fn send_frames(
        &self,
        number: u64,
        mut loan: Option<Arc<Loan>>,
        mut part: Range<usize>,
    ) -> Result<Option<Arc<Loan>>, Undelivered> {
        while !part.is_empty() {
            let lent = self.lent(number, loan).await?;
            // A copy: what waits in the connection keeps nothing else in memory. The rest of a message follows.
            let room = self.node.lending.piece(part.len());
            let bytes = if room.is_some() { PIECE_BYTES } else { CROWDED_PIECE_BYTES };
            let end = part.end.min(part.start + bytes);
            let piece = Bytes::copy_from_slice(&lent.block().frames()[part.start..end]);
            part.start = end;
            loan = match room {
                Some(room) => self.send_of((piece, room), lent).await?,
                None => {
                    drop(lent);
                    self.send(piece).await?;
                    None
                }
            };
        }
        Ok(loan)
    }

    async fn deliver(&self, number: u64) -> Result<(), Undelivered> {
        let loan = self.lent(number, None).await?;
        let frames = loan.block().frames();
        if frames.len() <= PIECE_BYTES
            && let Some(_room) = self.node.lending.piece(frames.len())
        {
            drop(loan);
            return self.send(frames).await;
        }
        let all = 0..frames.len();
        drop(frames);
        self.send_frames(number, Some(loan), all).await.map(|_| ())
    }

    /// Sends what was asked for of a block, and hashes of the rest.
    async fn deliver_filtered(&self, number: u64, filter: &Arc<Filter>) -> Result<(), Undelivered> {
        let (node, era) = (self.node, self.node.settings.wire_era);
        // What is stored was verified: it has no items that cannot be read.
        let damaged = |error: ItemError| Undelivered::Unread(ReadError::Damaged { number, what: error.to_string() });
        let mut loan = self.lent(number, None).await?;
        if !filter.fits(loan.block()) {
            return Err(Undelivered::Unfiltered);
        }
        if Filter::is_piece(loan.block()) {
            let make = || {
                node.metrics.filtered.inc();
                filter.frames(loan.block(), era)
            };
            let frames = node.filtered.frames(number, filter, make).await.map_err(damaged)?;
            drop(loan);
            let _room = self.room(frames.len()).await?;
            return self.send(frames).await;
        }
        node.metrics.filtered.inc();
        let mut place = Place::default();
        loop {
            let (of_thread, filter) = (Arc::clone(&loan), Arc::clone(filter));
            let next = move || {
                let part = filter.next(of_thread.block(), &mut place);
                part.map(|part| (part, place))
            };
            let (part, behind) = match tokio::task::spawn_blocking(next).await {
                Ok(next) => next.map_err(damaged)?,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // The server has stopped.
                    Err(_) => return Err(Undelivered::Gone),
                },
            };
            place = behind;
            let kept = match part {
                None => break,
                Some(Part::Message(message)) => {
                    let room = self.room(message.len()).await?;
                    self.send_of((message, room), loan).await?
                }
                Some(Part::Long(head, item)) => {
                    let room = self.room(head.len()).await?;
                    let kept = self.send_of((head, room), loan).await?;
                    self.send_frames(number, kept, item).await?
                }
            };
            loan = self.lent(number, kept).await?;
        }
        drop(loan);
        match filter::end(number, era) {
            end if end.is_empty() => Ok(()),
            end => self.send(end).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_planned_by_the_rules() {
        let plan = |start, end, next| {
            let request =
                proto::SubscribeStreamRequest { start_block_number: start, end_block_number: end, filter: None };
            Plan::of(&request, (10, next), 4_000).map(|plan| (plan.from, plan.to))
        };
        let (none, late) = (NO_BLOCK, Err(SubscribeCode::NotAvailable));
        assert_eq!(plan(none, none, 50), Ok((50, none)), "live, without an end");
        assert_eq!(plan(none, 60, 50), Ok((10, 60)), "from the first available one");
        assert_eq!(plan(20, none, 50), Ok((20, none)));
        assert_eq!(plan(20, 20, 50), Ok((20, 20)));
        assert_eq!(plan(20, 80, 50), Ok((20, 80)), "flows into live");
        assert_eq!(plan(20, 19, 50), Err(SubscribeCode::InvalidEnd));
        assert_eq!(plan(none, 9, 50), Err(SubscribeCode::InvalidEnd));
        assert_eq!(plan(9, 20, 50), late, "before the first");
        // The tip is 49.
        assert_eq!(plan(49 + 4_000, none, 50), Ok((4_049, none)));
        assert_eq!(plan(49 + 4_001, none, 50), late);
        assert_eq!(plan(10, none, 10), Ok((10, none)), "an empty node: wait");
        assert_eq!(plan(none, none, 10), Ok((10, none)));
    }
}
