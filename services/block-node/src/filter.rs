//! Filters of subscribers: items of the kinds that were asked for come whole, in the place of each other one comes its hash
//! ([`FilteredItem`]), and the root hash comes out of both.
//!
//! The message is that of the Java node's design for filters (`BlockStreamFilter`, field 3 of `SubscribeStreamRequest`), which is in no
//! release yet. Header, footer, proofs and everything else that is not hashed is sent in any case. Blocks of two trees have no place for
//! hashes in their items' stead, and are NOT_AVAILABLE to who filters. Pure, but for the blocks that are kept.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{BufMut as _, Bytes, BytesMut};
use service_kit::grpc::{append_with, encode_with};

use crate::block::{Category, Era, FilteredItem, HEADER_FIELD, Header, ITEMS_FIELD, Item, ItemError, category};
use crate::lending::PIECE_BYTES;
use crate::messages::{
    SUBSCRIBE_ITEMS_FIELD, SubscribeCode, WireEra, end_of_block, item_ranges, proto, put_set, set_bytes,
};
use crate::reading::Reading;
use crate::recent::Shared;
use crate::wire::{put_bytes, put_varint};

/// Kinds of items that a filter may name.
const FIELDS_MAX: usize = 64;

/// Which items are sent whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Filter {
    /// These alone; otherwise all but these.
    include: bool,
    /// Field numbers of `BlockItem`.
    fields: BTreeSet<u32>,
}

/// How far a block was filtered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    set: usize,
    /// In that set.
    at: usize,
}

/// A piece of a block for a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A message in its frame.
    Message(Bytes),
    /// The beginning of a message, and where in the block's frames its only item stands, which is its rest.
    Long(Bytes, Range<usize>),
}

impl Filter {
    /// Of a request; `Ok(None)`: all items are asked for.
    pub fn of(message: Option<&proto::BlockStreamFilter>) -> Result<Option<Self>, SubscribeCode> {
        let Some(message) = message else { return Ok(None) };
        let fields: BTreeSet<u32> = message.block_item_types.iter().copied().collect();
        if fields.is_empty() && !message.include {
            return Ok(None);
        }
        let may_be_named = |field: &u32| match category(*field) {
            // What is sent in any case may be asked for.
            Ok(Category::NotHashed) => message.include,
            Ok(_) => message.include || *field != HEADER_FIELD,
            Err(_) => false,
        };
        if fields.is_empty() || fields.len() > FIELDS_MAX || !fields.iter().all(may_be_named) {
            return Err(SubscribeCode::InvalidRequest);
        }
        Ok(Some(Self { include: message.include, fields }))
    }

    /// What is sent instead of an item; `None`: the item itself.
    fn instead_of(&self, item: &[u8]) -> Result<Option<FilteredItem>, ItemError> {
        let Item { field, category, .. } = Item::of(item)?;
        let is_sent = field == HEADER_FIELD || self.include == self.fields.contains(&field);
        Ok(if is_sent { None } else { FilteredItem::instead_of(item, category) })
    }

    /// Whether items of this block can be replaced.
    pub fn fits(&self, block: &Shared) -> bool {
        let frames = block.frames();
        let header =
            block.set(0).and_then(|set| item_ranges(&frames[set.clone()]).next()?.ok().map(|(_, item)| (set, item)));
        let Some((set, item)) = header else { return false };
        let header = Item::of(&frames[set][item]).ok().and_then(|item| Header::of(item.content).ok());
        header.and_then(|header| Era::of(header.version).ok()).is_some_and(Era::has_footer)
    }

    /// The next piece, of at most about [`PIECE_BYTES`] and made of about as many; `None`: no items are left.
    pub fn next(&self, block: &Shared, place: &mut Place) -> Result<Option<Part>, ItemError> {
        let frames = block.frames();
        let (mut items, mut read) = (Vec::new(), 0);
        while let Some(set) = block.set(place.set) {
            let begin = set.start + place.at;
            let Some(item) = item_ranges(&frames[begin..set.end]).next() else {
                *place = Place { set: place.set + 1, at: 0 };
                continue;
            };
            let (framed, content) = item?;
            match self.instead_of(&frames[begin..][content])? {
                None if framed.len() > PIECE_BYTES && items.is_empty() => {
                    place.at += framed.end;
                    return Ok(Some(Part::Long(head(framed.len()), begin..begin + framed.end)));
                }
                // It begins the next piece.
                None if framed.len() > PIECE_BYTES => break,
                None => items.extend_from_slice(&frames[begin..][framed.clone()]),
                Some(filtered) => {
                    let mut item = Vec::with_capacity(FilteredItem::BYTES);
                    filtered.put(&mut item);
                    put_bytes(&mut items, ITEMS_FIELD, &item);
                }
            }
            place.at += framed.end;
            read += framed.len();
            if read.max(items.len()) >= PIECE_BYTES {
                break;
            }
        }
        let message = || {
            let bytes = set_bytes(SUBSCRIBE_ITEMS_FIELD, items.len());
            encode_with(|out| put_set(out, SUBSCRIBE_ITEMS_FIELD, &items), bytes)
        };
        Ok((!items.is_empty()).then(|| Part::Message(message())))
    }

    /// Whether what this makes of a block is a piece, whatever it replaces.
    pub fn is_piece(block: &Shared) -> bool {
        const ITEM_BYTES: usize = FilteredItem::BYTES + 2;
        let left = PIECE_BYTES.checked_sub(block.frames_bytes());
        left.is_some_and(|left| block.items().nth(left / ITEM_BYTES).is_none())
    }

    /// All messages of a small block, in their frames.
    pub fn frames(&self, block: &Shared, era: WireEra) -> Result<Bytes, ItemError> {
        let (mut frames, mut place) = (BytesMut::new(), Place::default());
        while let Some(part) = self.next(block, &mut place)? {
            match part {
                Part::Message(message) => frames.put_slice(&message),
                Part::Long(head, item) => {
                    frames.put_slice(&head);
                    frames.put_slice(&block.frames()[item]);
                }
            }
        }
        frames.put_slice(&end(block.number, era));
        Ok(frames.freeze())
    }
}

/// What stands behind the items of a block, in its frame.
pub fn end(number: u64, era: WireEra) -> Bytes {
    let mut frame = BytesMut::new();
    if era.has_end_of_block() {
        let end = end_of_block(number);
        append_with(&mut frame, |out| out.put_slice(&end), end.len());
    }
    frame.freeze()
}

/// The frame's head, and what stands before the items of a set of so many bytes.
fn head(items_bytes: usize) -> Bytes {
    let mut before = Vec::new();
    put_varint(&mut before, u64::from(SUBSCRIBE_ITEMS_FIELD) << 3 | 2);
    put_varint(&mut before, items_bytes as u64);
    let mut head = BytesMut::with_capacity(5 + before.len());
    head.put_u8(0);
    head.put_u32((before.len() + items_bytes) as u32);
    head.put_slice(&before);
    head.freeze()
}

/// A block, and how it is filtered.
type Key = (u64, Arc<Filter>);

#[derive(Debug, Default)]
struct Kept {
    frames: BTreeMap<Key, Bytes>,
    /// The oldest first.
    order: VecDeque<Key>,
    bytes: usize,
}

/// Small blocks that were filtered last, so that each is filtered once for all who filter alike.
pub struct Filtered {
    kept: Mutex<Kept>,
    making: Reading<Key, Bytes>,
    bytes_max: usize,
}

impl Filtered {
    /// Keeps so many bytes of them.
    pub fn new(bytes_max: usize) -> Self {
        Self { kept: Mutex::default(), making: Reading::default(), bytes_max }
    }

    /// A block's frames; they are made where they are not kept. Who filters alike waits meanwhile, and nobody else.
    pub async fn frames<E>(
        &self,
        number: u64,
        filter: &Arc<Filter>,
        make: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        let key = (number, Arc::clone(filter));
        let make = async || {
            if let Some(frames) = self.change(|kept| kept.frames.get(&key).cloned()) {
                return Ok(frames);
            }
            let made = make()?;
            self.change(|kept| self.keep(kept, key.clone(), made.clone()));
            Ok(made)
        };
        self.making.once(key.clone(), make).await
    }

    fn change<T>(&self, change: impl FnOnce(&mut Kept) -> T) -> T {
        change(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn keep(&self, kept: &mut Kept, key: Key, frames: Bytes) {
        kept.bytes += frames.len();
        kept.order.push_back(key.clone());
        kept.frames.insert(key, frames);
        while kept.bytes > self.bytes_max && kept.order.len() > 1 {
            let oldest = kept.order.pop_front().and_then(|key| kept.frames.remove(&key));
            kept.bytes -= oldest.map_or(0, |frames| frames.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Limits, ProofRules, Verified, Version};
    use crate::craft::{Crafted, Crafter, Shape, field};
    use crate::messages::items;
    use proptest::prelude::*;
    use prost::Message as _;
    use service_kit::grpc::Deframer;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn filter(include: bool, fields: &[u32]) -> Filter {
        let message = proto::BlockStreamFilter { include, block_item_types: fields.to_vec() };
        Filter::of(Some(&message)).unwrap().unwrap()
    }

    fn shared(block: &Crafted) -> Arc<Shared> {
        Shared::new(block.number, block.root, &block.bytes, WireEra::Today).unwrap()
    }

    /// The `Block` message that a subscriber puts together.
    fn received(frames: Bytes) -> Vec<u8> {
        use proto::subscribe_stream_response::Response::{BlockItems, EndOfBlock};
        let (mut deframer, mut block, mut end) = (Deframer::new(8 << 20), Vec::new(), None);
        deframer.push(frames);
        while let Some(message) = deframer.message().unwrap() {
            assert_eq!(end, None, "nothing stands behind the end");
            match proto::SubscribeStreamResponse::decode(message).unwrap().response.unwrap() {
                BlockItems(set) => block.extend(set),
                EndOfBlock(number) => end = Some(number.block_number),
                other => panic!("{other:?}"),
            }
        }
        assert!(end.is_some());
        block
    }

    fn verified(block: &[u8]) -> Verified {
        Verified::of_filtered(block, Limits { block_bytes_max: 64 << 20 }, &ProofRules::accepted_before()).unwrap()
    }

    fn fields_of(block: &[u8]) -> Vec<u32> {
        items(block).map(|item| crate::wire::Fields::of(item.unwrap()).next().unwrap().unwrap().number).collect()
    }

    proptest! {
        #[test]
        fn a_filtered_block_has_the_same_root_hash(
            kinds in prop::collection::vec(prop::sample::select(vec![2_u32, 4, 5, 6, 7, 11, 20, 24, 28]), 0..60),
            include: bool,
            named in prop::collection::btree_set(prop::sample::select(vec![2_u32, 4, 5, 6, 7, 11, 24, 28]), 1..5),
            legacy: bool,
        ) {
            let kinds = kinds.iter().enumerate().filter(|(_, kind)| !legacy || **kind != 28);
            let made = kinds.map(|(index, kind)| field(*kind, &vec![7; index * 5]));
            let version = Version { major: 0, minor: if legacy { 76 } else { 77 }, patch: 0 };
            let block = Crafter::in_version(1, 0, version).next_of(made);
            let named: Vec<u32> = named.into_iter().collect();
            let filter = filter(include, &named);
            let shared = shared(&block);
            prop_assert!(filter.fits(&shared));
            let received = received(filter.frames(&shared, WireEra::Today).unwrap());
            prop_assert_eq!(verified(&received).root, block.root);
            for (before, after) in fields_of(&block.bytes).into_iter().zip(fields_of(&received)) {
                let is_sent = matches!(before, 1 | 9 | 12 | 20) || named.contains(&before) == include;
                prop_assert_eq!(after, if is_sent { before } else { 8 });
            }
        }
    }

    #[test]
    fn a_changed_hash_in_the_place_of_an_item_is_noticed() {
        let block = Crafter::new(1, 0).next(Shape { items: 4, item_bytes: 30 });
        let mut received = received(filter(true, &[5]).frames(&shared(&block), WireEra::Today).unwrap());
        let place = item_ranges(&received).nth(1).unwrap().unwrap().1;
        received[place.start + 10] ^= 1;
        let limits = Limits { block_bytes_max: 1 << 20 };
        let rules = ProofRules::accepted_before();
        assert!(Verified::of_filtered(&received, limits, &rules).is_err());
        received[place.start + 10] ^= 1;
        assert!(Verified::of_filtered(&received, limits, &rules).is_ok());
        assert!(Verified::of(&received, limits, &rules).is_err(), "a publisher may not send it");
    }

    #[test]
    fn a_large_block_comes_in_pieces_whatever_its_items_are() {
        // Many small ones, which become larger, and one that is a piece by itself.
        let made = (0..40_000_u32).map(|index| field(if index % 2 == 0 { 4 } else { 5 }, &index.to_be_bytes()));
        let long = field(7, &vec![1; 3 * PIECE_BYTES]);
        let block = Crafter::new(1, 0).next_of(made.chain([long.clone(), field(4, &[1; 9]), long]));
        let shared = shared(&block);
        for (filter, longs) in [(filter(false, &[4]), 2), (filter(true, &[5]), 0)] {
            let (mut place, mut pieces, mut long) = (Place::default(), 0, 0);
            while let Some(part) = filter.next(&shared, &mut place).unwrap() {
                pieces += 1;
                match part {
                    Part::Message(message) => assert!(message.len() < PIECE_BYTES + 100, "{}", message.len()),
                    Part::Long(head, item) => {
                        long += 1;
                        assert!(head.len() < 20 && item.len() > 3 * PIECE_BYTES);
                    }
                }
            }
            assert!(pieces > 5, "{pieces}");
            assert_eq!(long, longs);
            assert_eq!(verified(&received(filter.frames(&shared, WireEra::Today).unwrap())).root, block.root);
        }
    }

    #[test]
    fn a_block_of_many_short_items_is_no_piece_for_who_filters() {
        let of = |items: usize, item_bytes: usize| {
            let made = (0..items).map(|_| field(4, &vec![7; item_bytes]));
            shared(&Crafter::new(1, 0).next_of(made))
        };
        // They become fifteen times as large, of which nobody takes account who looks at the frames alone.
        let short = of(60_000, 0);
        assert!(short.frames_bytes() <= PIECE_BYTES && !Filter::is_piece(&short));
        assert!(!Filter::is_piece(&of(4, PIECE_BYTES)));
        let most = of(4_000, 4);
        assert!(Filter::is_piece(&most));
        let frames = filter(true, &[5]).frames(&most, WireEra::Today).unwrap();
        assert!(frames.len() <= PIECE_BYTES, "{}", frames.len());
    }

    /// What is there without waiting.
    fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn who_filters_alike_waits_without_its_thread_and_who_filters_otherwise_not_at_all() {
        let filtered = Arc::new(Filtered::new(1_000));
        let (one, other) = (Arc::new(filter(true, &[4])), Arc::new(filter(true, &[5])));
        let frames = |of: &'static [u8]| Ok::<_, ()>(Bytes::from_static(of));
        let all = filtered.frames(1, &one, || {
            for (filter, expected) in [(&other, Some(frames(b"other"))), (&one, None)] {
                let (told, done) = std::sync::mpsc::channel();
                let (of_thread, filter) = (Arc::clone(&filtered), Arc::clone(filter));
                std::thread::spawn(move || told.send(at_once(of_thread.frames(1, &filter, || frames(b"other")))));
                let told = done.recv_timeout(std::time::Duration::from_secs(10));
                assert_eq!(told, Ok(expected), "while another one is made");
            }
            frames(b"one")
        });
        assert_eq!(at_once(all), Some(frames(b"one")));
        assert_eq!(at_once(filtered.frames(2, &one, || Err(()))), Some(Err(())));
        let two = at_once(filtered.frames(2, &one, || frames(b"two")));
        assert_eq!(two, Some(frames(b"two")), "an error is not kept");
    }

    #[test]
    fn what_a_filter_may_name_is_what_can_be_replaced() {
        let of = |include, fields: &[u32]| {
            Filter::of(Some(&proto::BlockStreamFilter { include, block_item_types: fields.to_vec() }))
        };
        assert_eq!(Filter::of(None), Ok(None));
        assert_eq!(of(false, &[]), Ok(None));
        for field in [2, 3, 4, 5, 6, 7, 10, 11, 23, 28] {
            assert!(matches!(of(false, &[field]), Ok(Some(_))) && matches!(of(true, &[field]), Ok(Some(_))), "{field}");
        }
        for field in [1, 9, 12, 20] {
            assert_eq!(of(false, &[field]), Err(SubscribeCode::InvalidRequest), "{field} is always sent");
            assert!(matches!(of(true, &[field]), Ok(Some(_))), "{field}");
        }
        for wrong in [0, 8, 13, 19, 21] {
            assert_eq!(of(true, &[4, wrong]), Err(SubscribeCode::InvalidRequest), "{wrong}");
        }
        assert_eq!(of(true, &[]), Err(SubscribeCode::InvalidRequest), "nothing at all");
        assert_eq!(
            of(true, &(20..500).filter(|field| category(*field).is_ok()).collect::<Vec<_>>()),
            Err(SubscribeCode::InvalidRequest)
        );
        let old = Crafter::in_version(1, 0, Version { major: 0, minor: 62, patch: 2 })
            .next(Shape { items: 3, item_bytes: 9 });
        assert!(!filter(true, &[4]).fits(&shared(&old)), "there is no place for a hash");
    }

    #[test]
    fn a_block_is_filtered_once_for_all_who_filter_alike() {
        let filtered = Filtered::new(1_000);
        let (one, other) = (Arc::new(filter(true, &[4])), Arc::new(filter(true, &[5])));
        let mut made = 0;
        let mut frames = |number, filter: &Arc<Filter>| {
            let make = || {
                made += 1;
                Ok::<_, ()>(Bytes::from(vec![0; 400]))
            };
            at_once(filtered.frames(number, filter, make)).unwrap().unwrap();
            made
        };
        let same = Arc::new(filter(true, &[4]));
        assert_eq!([frames(1, &one), frames(1, &same), frames(1, &other), frames(1, &one)], [1, 1, 2, 2]);
        assert_eq!([frames(2, &one), frames(1, &one)], [3, 4], "the oldest has gone");
    }
}
