//! The newest blocks, and those of the past that were read last, in memory: each is framed for subscribers once, however many there
//! are, and shared.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{BufMut, Bytes, BytesMut};
use service_kit::grpc::{Compression, append_with};

use crate::hash::Hash;
use crate::messages::{SUBSCRIBE_ITEMS_FIELD, WireEra, end_of_block, items, put_set, set_bytes, sets};
use crate::wire::WireError;

/// Sets of items are about this large; it is what the Java node sends.
pub const SET_BYTES_MAX: usize = 1 << 20;

/// A block that many may read, in the frames of a subscribeBlockStream; nothing else is kept of it.
#[derive(Debug)]
pub struct Shared {
    /// Its number.
    pub number: u64,
    /// Its root hash.
    pub root: Hash,
    frames: Bytes,
    /// Where in the frames the block's items stand.
    sets: Vec<Range<usize>>,
    block_bytes: usize,
}

impl Shared {
    /// Of a `Block` message, for subscribers of this era.
    pub fn new(number: u64, root: Hash, block: &[u8], era: WireEra) -> Result<Arc<Self>, WireError> {
        Ok(Self::framed(number, root, block, &sets(block, SET_BYTES_MAX)?, era))
    }

    /// Of a `Block` message whose sets of items are known, each of [`SET_BYTES_MAX`] or of one item.
    pub fn framed(number: u64, root: Hash, block: &[u8], sets: &[Range<usize>], era: WireEra) -> Arc<Self> {
        let mut frames = BytesMut::with_capacity(block.len() + 32 * (2 + sets.len()));
        let mut placed = Vec::with_capacity(sets.len());
        for set in sets {
            let set = &block[set.clone()];
            let bytes = set_bytes(SUBSCRIBE_ITEMS_FIELD, set.len());
            append_with(&mut frames, |out| put_set(out, SUBSCRIBE_ITEMS_FIELD, set), bytes);
            placed.push(frames.len() - set.len()..frames.len());
        }
        if era.has_end_of_block() {
            let end = end_of_block(number);
            append_with(&mut frames, |out| out.put_slice(&end), end.len());
        }
        Arc::new(Self { number, root, frames: frames.freeze(), sets: placed, block_bytes: block.len() })
    }

    /// The same messages, compressed for subscribers who take that. Nothing else can be read of it.
    pub fn compressed(&self, compression: &Compression) -> Arc<Self> {
        let frames = compression.frames(self.frames());
        Arc::new(Self { number: self.number, root: self.root, frames, sets: Vec::new(), block_bytes: 0 })
    }

    /// All messages of a subscribeBlockStream that make up this block, in their frames. Shared, not copied.
    pub fn frames(&self) -> Bytes {
        self.frames.clone()
    }

    /// Length of these.
    pub fn frames_bytes(&self) -> usize {
        self.frames.len()
    }

    /// Where in the frames a set of items stands, from 0 on; `None`: there are no more.
    pub fn set(&self, index: usize) -> Option<Range<usize>> {
        self.sets.get(index).cloned()
    }

    /// Length of its `Block` message.
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Its items.
    pub fn items(&self) -> impl Iterator<Item = Result<&[u8], WireError>> {
        self.sets.iter().flat_map(|set| items(&self.frames[set.clone()]))
    }

    /// Appends its `Block` message.
    pub fn put_block(&self, out: &mut impl BufMut) {
        self.sets.iter().for_each(|set| out.put_slice(&self.frames[set.clone()]));
    }
}

#[derive(Default)]
struct Kept {
    newest: VecDeque<Arc<Shared>>,
    newest_bytes: usize,
    past: BTreeMap<u64, Arc<Shared>>,
    /// In the order in which they were read.
    past_order: VecDeque<u64>,
    past_bytes: usize,
}

/// Blocks in memory, a bounded number of bytes of the newest and as many of the past.
pub struct Recent {
    kept: Mutex<Kept>,
    bytes_max: usize,
}

impl Recent {
    /// Keeps so many bytes of each kind, and the newest block in any case.
    pub fn new(bytes_max: usize) -> Self {
        Self { kept: Mutex::default(), bytes_max }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the next block of all.
    pub fn push(&self, block: Arc<Shared>) {
        let mut kept = self.lock();
        kept.newest_bytes += block.frames.len();
        kept.newest.push_back(block);
        while kept.newest_bytes > self.bytes_max && kept.newest.len() > 1 {
            let oldest = kept.newest.pop_front();
            kept.newest_bytes -= oldest.map_or(0, |oldest| oldest.frames.len());
        }
    }

    /// Adds a block that was read from disk; what is kept of it is not necessarily this one.
    pub fn add_past(&self, block: Arc<Shared>) -> Arc<Shared> {
        let mut kept = self.lock();
        if let Some(known) = kept.past.get(&block.number) {
            return Arc::clone(known);
        }
        kept.past_bytes += block.frames.len();
        kept.past_order.push_back(block.number);
        kept.past.insert(block.number, Arc::clone(&block));
        while kept.past_bytes > self.bytes_max {
            let Some(oldest) = kept.past_order.pop_front() else { break };
            let oldest = kept.past.remove(&oldest);
            kept.past_bytes -= oldest.map_or(0, |oldest| oldest.frames.len());
        }
        block
    }

    /// A block, if it is in memory.
    pub fn get(&self, number: u64) -> Option<Arc<Shared>> {
        let kept = self.lock();
        let first = kept.newest.front().map(|first| first.number);
        let index = first.and_then(|first| number.checked_sub(first));
        let newest = index.and_then(|index| kept.newest.get(usize::try_from(index).ok()?));
        newest.or_else(|| kept.past.get(&number)).cloned()
    }

    /// Bytes of blocks that are kept.
    pub fn bytes(&self) -> usize {
        let kept = self.lock();
        kept.newest_bytes + kept.past_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::craft::{Crafter, Shape};
    use crate::messages::proto;
    use crate::wire::put_bytes;
    use prost::Message as _;
    use service_kit::grpc::Deframer;

    /// All of those with one digit take the same.
    fn block(number: u64, content_bytes: usize) -> Arc<Shared> {
        let mut block = Vec::new();
        put_bytes(&mut block, 1, &vec![0; content_bytes]);
        Shared::new(number, [0; 48], &block, WireEra::Today).unwrap()
    }

    #[test]
    fn a_block_in_its_frames_comes_back_whole() {
        let crafted = Crafter::new(2, 0).next(Shape { items: 2_500, item_bytes: 1_000 });
        let shared = Shared::new(0, crafted.root, &crafted.bytes, WireEra::Today).unwrap();
        let mut block = Vec::new();
        shared.put_block(&mut block);
        assert_eq!((block.len(), &block), (shared.block_bytes(), &crafted.bytes));
        assert!(shared.items().eq(items(&crafted.bytes)));
        let frames = shared.frames();
        let mut deframer = Deframer::new(2 << 20);
        deframer.push(frames);
        let (mut items, mut sets, mut end) = (Vec::new(), 0, None);
        while let Some(message) = deframer.message().unwrap() {
            use proto::subscribe_stream_response::Response;
            match proto::SubscribeStreamResponse::decode(message).unwrap().response.unwrap() {
                Response::BlockItems(set) => {
                    assert_eq!(end, None);
                    items.extend_from_slice(&set);
                    sets += 1;
                }
                Response::EndOfBlock(of) => end = Some(of.block_number),
                Response::Status(status) => panic!("{status}"),
            }
        }
        assert_eq!((items, sets, end), (crafted.bytes.clone(), 3, Some(0)));
        let older = Shared::new(0, crafted.root, &crafted.bytes, WireEra::V015).unwrap();
        assert_eq!(older.frames()[..], shared.frames()[..older.frames().len()], "the same sets");
        assert_eq!(shared.frames().len() - older.frames().len(), 5 + end_of_block(0).len(), "and no end of block");
    }

    #[test]
    fn what_is_kept_is_bounded_and_found_by_number() {
        let each = block(5, 30).frames.len();
        let recent = Recent::new(3 * each);
        (5..10).for_each(|number| recent.push(block(number, 30)));
        assert_eq!((recent.bytes(), recent.get(6).is_none()), (3 * each, true));
        assert_eq!(recent.get(9).unwrap().number, 9);
        assert!(recent.get(10).is_none() && recent.get(0).is_none());
        (1..5).for_each(|number| drop(recent.add_past(block(number, 30))));
        assert_eq!((recent.bytes(), recent.get(1).is_none()), (6 * each, true));
        assert_eq!(recent.get(4).unwrap().number, 4);
        recent.push(block(10, 1_000));
        assert_eq!(recent.get(10).unwrap().number, 10, "the newest is kept in any case");
        let one = recent.add_past(block(4, 30));
        assert!(Arc::ptr_eq(&one, &recent.get(4).unwrap()), "the first copy stays");
    }
}
