//! `FilteredSingleItem`: what stands in the place of an item that a subscriber did not ask for, so that the root hash still comes out.
//!
//! Field 8 of `BlockItem`: item_hash (1), the hash of the item as a leaf, `H(00‖item)`; tree (2), the subtree that it is a leaf of, whose number
//! is one more than its place among the leaves below the root (CONSENSUS_HEADER_ITEMS 4 … TRACE_DATA_ITEMS_TREE 8, FUTURE_1 9 … FUTURE_8 16).
//! Source: block stream protobufs of consensus node 0.76. Blocks of two trees have leaves without a prefix, and no such items.

use super::{Category, ItemError};
use crate::hash::{HASH_BYTES, Hash, leaf};
use crate::wire::{Fields, WireError, once, put_bytes, put_varint};

/// The hash of an item that is not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilteredItem {
    /// As a leaf.
    pub hash: Hash,
    /// Which subtree it is a leaf of.
    pub category: Category,
}

impl FilteredItem {
    /// Its field in `BlockItem`.
    pub const FIELD: u32 = 8;
    /// Length of a `BlockItem` that is one.
    pub const BYTES: usize = 2 + 2 + HASH_BYTES + 2;

    /// Reads an item; `None`: it is another one.
    pub fn of(item: &[u8]) -> Result<Option<Self>, ItemError> {
        const NAME: &str = "FilteredSingleItem";
        let mut fields = Fields::of(item);
        let Some(field) = fields.next().transpose()?.filter(|field| field.number == Self::FIELD) else {
            return Ok(None);
        };
        if fields.next().is_some() {
            return Err(ItemError::NotOne);
        }
        let content = &item[field.bytes("BlockItem")?];
        let (mut hash, mut tree) = (None, None);
        for field in Fields::of(content) {
            let field = field?;
            match field.number {
                1 => once(&mut hash, <Hash>::try_from(&content[field.bytes(NAME)?]).ok(), 1, NAME)?,
                2 => once(&mut tree, field.varint(NAME)?, 2, NAME)?,
                other => return Err(WireError::Field(other, NAME, "it is unknown").into()),
            }
        }
        let place = tree.and_then(|tree| usize::try_from(tree).ok()?.checked_sub(1));
        let category = place.and_then(Category::of_leaf);
        Ok(Some(Self {
            hash: hash.flatten().ok_or(WireError::Field(1, NAME, "a hash of 48 bytes must be there"))?,
            category: category.ok_or(WireError::Field(2, NAME, "it must name a subtree of items"))?,
        }))
    }

    /// Of an item with these bytes; `None`: it is no leaf of a subtree, and need not be replaced.
    pub fn instead_of(item: &[u8], category: Category) -> Option<Self> {
        category.leaf().map(|_| Self { hash: leaf(item), category })
    }

    /// Appends it as a `BlockItem`.
    pub fn put(&self, out: &mut Vec<u8>) {
        let mut content = Vec::with_capacity(Self::BYTES);
        put_bytes(&mut content, 1, &self.hash);
        content.push(2 << 3);
        put_varint(&mut content, self.category.leaf().map_or(0, |leaf| leaf as u64 + 1));
        put_bytes(out, Self::FIELD, &content);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_bytes_are_those_of_the_tables() {
        for (category, tree) in [
            (Category::Consensus, 4),
            (Category::Inputs, 5),
            (Category::Outputs, 6),
            (Category::StateChanges, 7),
            (Category::Traces, 8),
            (Category::Extension(0), 9),
            (Category::Extension(7), 16),
        ] {
            let filtered = FilteredItem::instead_of(b"an item", category).unwrap();
            let mut bytes = Vec::new();
            filtered.put(&mut bytes);
            let expected = [&[0x42, 52, 0x0a, 48][..], &leaf(b"an item"), &[0x10, tree]].concat();
            assert_eq!((&bytes, bytes.len()), (&expected, FilteredItem::BYTES));
            assert_eq!(FilteredItem::of(&bytes), Ok(Some(filtered)));
        }
        assert_eq!(FilteredItem::instead_of(b"", Category::NotHashed), None);
    }

    #[test]
    fn another_item_is_none_and_what_is_wrong_in_one_is_refused() {
        assert_eq!(FilteredItem::of(&[0x22, 1, 7]), Ok(None));
        assert_eq!(FilteredItem::of(&[]), Ok(None));
        let item = |content: &[u8]| {
            let mut item = Vec::new();
            put_bytes(&mut item, 8, content);
            item
        };
        let hash = [&[0x0a, 48][..], &[7; 48]].concat();
        for tree in [0, 1, 3, 17, 100] {
            assert!(FilteredItem::of(&item(&[&hash[..], &[0x10, tree]].concat())).is_err(), "tree {tree}");
        }
        assert!(FilteredItem::of(&item(&hash)).is_err(), "no tree");
        assert!(FilteredItem::of(&item(&[0x10, 5])).is_err(), "no hash");
        assert!(FilteredItem::of(&item(&[0x0a, 1, 7, 0x10, 5])).is_err(), "a short hash");
        let right = item(&[&hash[..], &[0x10, 5]].concat());
        assert!(FilteredItem::of(&right).is_ok());
        assert_eq!(FilteredItem::of(&[&right[..], &right].concat()), Err(ItemError::NotOne));
    }
}
