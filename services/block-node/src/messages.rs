//! The messages of `org.hiero.block.api`, as far as they are interpreted; blocks go through as they are.
//!
//! `Block { items 1 }` and `BlockItemSet { block_items 1 }` have the same bytes: a stored block can be sent as either.

mod codes;
mod publish;

pub use codes::{BlockCode, ContentsProofCode, EndCode, EndStreamCode, SubscribeCode, WireEra};
pub use publish::{PublishRequest, PublishResponse, RequestError};

use std::ops::Range;

use prost::Message as _;

use crate::block::PROOF_FIELD;
pub use crate::block::{item_ranges, items};
use crate::wire::{Fields, WireError, put_varint, varint_bytes};

/// Types made of `proto/block_node.proto`.
#[allow(missing_docs, clippy::all)]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/proto.rs"));
    pub use self::org::hiero::block::api::*;

    /// The same file as an encoded `FileDescriptorSet`, for reflection.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/block_node.descriptors"));
}

/// publishBlockStream.
pub const PUBLISH: &str = "/org.hiero.block.api.BlockStreamPublishService/publishBlockStream";
/// subscribeBlockStream.
pub const SUBSCRIBE: &str = "/org.hiero.block.api.BlockStreamSubscribeService/subscribeBlockStream";
/// serverStatus.
pub const STATUS: &str = "/org.hiero.block.api.BlockNodeService/serverStatus";
/// serverStatusDetail.
pub const STATUS_DETAIL: &str = "/org.hiero.block.api.BlockNodeService/serverStatusDetail";
/// getBlock.
pub const GET_BLOCK: &str = "/org.hiero.block.api.BlockAccessService/getBlock";

/// A number that stands for "none" or "latest".
pub const NO_BLOCK: u64 = u64::MAX;

/// Parts of a block that each make a set of whole items, of at most about so many bytes.
pub fn sets(block: &[u8], set_bytes_max: usize) -> Result<Vec<Range<usize>>, WireError> {
    let mut sets: Vec<Range<usize>> = Vec::new();
    for item in item_ranges(block) {
        let (item, _) = item?;
        match sets.last_mut() {
            Some(set) if item.end - set.start <= set_bytes_max => set.end = item.end,
            _ => sets.push(item),
        }
    }
    Ok(sets)
}

/// Appends a set of items, or a block, as the content of a field.
pub fn put_set(out: &mut impl bytes::BufMut, field: u32, set: &[u8]) {
    let mut head = Vec::with_capacity(12);
    put_varint(&mut head, u64::from(field) << 3 | 2);
    put_varint(&mut head, set.len() as u64);
    out.put_slice(&head);
    out.put_slice(set);
}

/// Bytes that [`put_set`] appends.
pub fn set_bytes(field: u32, length: usize) -> usize {
    varint_bytes(u64::from(field) << 3 | 2) + varint_bytes(length as u64) + length
}

/// Whether a set of items ends a block where no `end_of_block` does: its last item is a proof.
pub fn ends_with_proof(set: &[u8]) -> bool {
    let Some(Ok(item)) = items(set).last() else { return false };
    matches!(Fields::of(item).next(), Some(Ok(field)) if field.number == PROOF_FIELD)
}

/// Field of the items in a `SubscribeStreamResponse`.
pub const SUBSCRIBE_ITEMS_FIELD: u32 = 2;

/// A `SubscribeStreamResponse` that says that a block is complete.
pub fn end_of_block(number: u64) -> Vec<u8> {
    let end = proto::subscribe_stream_response::Response::EndOfBlock(proto::BlockEnd { block_number: number });
    proto::SubscribeStreamResponse { response: Some(end) }.encode_to_vec()
}

/// The last `SubscribeStreamResponse`.
pub fn subscribe_status(code: SubscribeCode, era: WireEra) -> Vec<u8> {
    let status = proto::subscribe_stream_response::Response::Status(code.number(era));
    proto::SubscribeStreamResponse { response: Some(status) }.encode_to_vec()
}

/// Appends a `BlockResponse`; behind it must follow the block, if its length is given.
pub fn put_block_response(out: &mut impl bytes::BufMut, code: BlockCode, block_bytes: Option<usize>, era: WireEra) {
    let mut head = vec![0x08];
    put_varint(&mut head, code.number(era) as u64);
    if let Some(length) = block_bytes {
        put_varint(&mut head, 2 << 3 | 2);
        put_varint(&mut head, length as u64);
    }
    out.put_slice(&head);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::ITEMS_FIELD;
    use crate::wire::put_bytes;
    use bytes::Bytes;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sets_are_a_block_in_pieces(contents in vec(vec(any::<u8>(), 0..50), 0..30), set_bytes_max in 1_usize..200) {
            let mut block = Vec::new();
            contents.iter().for_each(|content| put_bytes(&mut block, ITEMS_FIELD, content));
            let found = items(&block).collect::<Result<Vec<_>, _>>().unwrap();
            prop_assert_eq!(&found, &contents);
            let sets = sets(&block, set_bytes_max).unwrap();
            prop_assert_eq!(sets.iter().map(|set| &block[set.clone()]).collect::<Vec<_>>().concat(), block.clone());
            for set in &sets {
                let count = items(&block[set.clone()]).count();
                prop_assert!(count == 1 || set.len() <= set_bytes_max);
            }
        }
    }

    #[test]
    fn what_is_written_by_hand_is_what_the_types_say() {
        let mut block = Vec::new();
        put_bytes(&mut block, ITEMS_FIELD, &[7; 300]);
        let mut by_hand = Vec::new();
        put_set(&mut by_hand, SUBSCRIBE_ITEMS_FIELD, &block);
        assert_eq!(by_hand.len(), set_bytes(SUBSCRIBE_ITEMS_FIELD, block.len()));
        let response = proto::subscribe_stream_response::Response::BlockItems(Bytes::from(block.clone()));
        assert_eq!(by_hand, proto::SubscribeStreamResponse { response: Some(response) }.encode_to_vec());
        let mut by_hand = Vec::new();
        put_block_response(&mut by_hand, BlockCode::Success, Some(block.len()), WireEra::Today);
        by_hand.extend(&block);
        assert_eq!(by_hand, proto::BlockResponse { status: 1, block: Some(block.into()) }.encode_to_vec());
    }

    #[test]
    fn a_set_that_ends_with_a_proof_ends_a_block() {
        let [mut set, mut proof, mut other] = [const { Vec::new() }; 3];
        assert!(!ends_with_proof(&set));
        put_bytes(&mut proof, PROOF_FIELD, b"x");
        put_bytes(&mut other, 4, b"x");
        put_bytes(&mut set, ITEMS_FIELD, &other);
        assert!(!ends_with_proof(&set));
        put_bytes(&mut set, ITEMS_FIELD, &proof);
        assert!(ends_with_proof(&set));
        put_bytes(&mut set, ITEMS_FIELD, &other);
        assert!(!ends_with_proof(&set));
    }

    #[test]
    fn bytes_are_those_of_the_tables() {
        // Field 3, wire type 2, two bytes: field 1, varint 5.
        assert_eq!(end_of_block(5), [0x1a, 2, 0x08, 5]);
        // Field 1, wire type 0: NOT_AVAILABLE is 6, and 5 in a BlockResponse.
        assert_eq!(subscribe_status(SubscribeCode::NotAvailable, WireEra::Today), [0x08, 6]);
        let mut refused = Vec::new();
        put_block_response(&mut refused, BlockCode::NotAvailable, None, WireEra::Today);
        assert_eq!(refused, [0x08, 5]);
        for (era, subscribe, block) in [(WireEra::V013, 4, 4), (WireEra::V015, 6, 5), (WireEra::V020, 6, 5)] {
            assert_eq!(subscribe_status(SubscribeCode::NotAvailable, era), [0x08, subscribe], "{era:?}");
            let mut refused = Vec::new();
            put_block_response(&mut refused, BlockCode::NotAvailable, None, era);
            assert_eq!(refused, [0x08, block], "{era:?}");
        }
        assert_eq!(subscribe_status(SubscribeCode::InvalidStart, WireEra::V013), [0x08, 2]);
        assert_eq!(subscribe_status(SubscribeCode::InvalidEnd, WireEra::V013), [0x08, 3]);
        // An empty node: first and last are 2^64-1, field 3 is false and absent, the next is 0 and absent.
        let status = proto::ServerStatusResponse {
            first_available_block: NO_BLOCK,
            last_available_block: NO_BLOCK,
            only_latest_state: false,
            next_expected_block: 0,
        };
        let none = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(status.encode_to_vec(), [&[0x08][..], &none, &[0x10], &none].concat());
    }
}
