//! Heads, metas and elements as bytes: see the tables in [`super`].

use std::ops::Range;

pub(super) const HEAD_BYTES: usize = 16;
pub(super) const ELEMENT_BYTES: usize = 16;
pub(super) const META_BYTES: usize = 64;
pub(super) const BUCKET_BYTES: usize = 16;
pub(super) const PAGE_BYTES_MIN: usize = 1024;
pub(super) const PAGE_BYTES_MAX: usize = 64 << 10;
pub(super) const IS_BUCKET: u32 = 1;

const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;

/// What a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Branch = 1,
    Leaf = 2,
    Meta = 4,
    FreeList = 16,
}

impl Kind {
    pub(super) fn from_flags(flags: u16) -> Option<Self> {
        [Self::Branch, Self::Leaf, Self::Meta, Self::FreeList].into_iter().find(|kind| *kind as u16 == flags)
    }
}

/// The head of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) number: u64,
    pub(super) flags: u16,
    pub(super) count: u16,
    pub(super) overflow: u32,
}

impl Head {
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            number: u64_at(bytes, 0)?,
            flags: u16_at(bytes, 8)?,
            count: u16_at(bytes, 10)?,
            overflow: u32_at(bytes, 12)?,
        })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.number.to_le_bytes());
        out.extend(self.flags.to_le_bytes());
        out.extend(self.count.to_le_bytes());
        out.extend(self.overflow.to_le_bytes());
    }
}

/// What stands in pages 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) page_bytes: u32,
    pub(super) root: u64,
    pub(super) free_list: u64,
    pub(super) pages: u64,
    pub(super) transaction: u64,
}

impl Meta {
    /// `None` if this is no meta, or not a whole one.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let is_whole = u32_at(bytes, 0)? == MAGIC
            && u32_at(bytes, 4)? == VERSION
            && u64_at(bytes, META_BYTES - 8)? == fnv1a(&bytes[..META_BYTES - 8]);
        is_whole.then_some(Self {
            page_bytes: u32_at(bytes, 8)?,
            root: u64_at(bytes, 16)?,
            free_list: u64_at(bytes, 32)?,
            pages: u64_at(bytes, 40)?,
            transaction: u64_at(bytes, 48)?,
        })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        [MAGIC, VERSION, self.page_bytes, 0].into_iter().for_each(|number| out.extend(number.to_le_bytes()));
        [self.root, 0, self.free_list, self.pages, self.transaction]
            .into_iter()
            .for_each(|number| out.extend(number.to_le_bytes()));
        let checksum = fnv1a(&out[start..]);
        out.extend(checksum.to_le_bytes());
    }
}

/// The child of a branch, element `index` of `page`.
pub(super) fn child_at(page: &[u8], index: usize) -> Option<u64> {
    let (element, _) = element(page, index)?;
    u64_at(element, 8)
}

/// Element `index` of a leaf: its flags, and where key and value stand in the page.
pub(super) fn leaf_at(page: &[u8], index: usize) -> Option<(u32, Range<usize>, Range<usize>)> {
    let (element, start) = element(page, index)?;
    let [flags, position, key, value] = [0, 4, 8, 12].map(|offset| u32_at(element, offset));
    let key_start = start.checked_add(position? as usize)?;
    let key_end = key_start.checked_add(key? as usize)?;
    let value_end = key_end.checked_add(value? as usize)?;
    (value_end <= page.len()).then_some((flags?, key_start..key_end, key_end..value_end))
}

fn element(page: &[u8], index: usize) -> Option<(&[u8], usize)> {
    let start = HEAD_BYTES + index * ELEMENT_BYTES;
    Some((page.get(start..start + ELEMENT_BYTES)?, start))
}

pub(super) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(offset..offset + 8)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?))
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(offset..offset + 2)?.try_into().ok()?))
}

/// The 64-bit Fowler-Noll-Vo hash, variant 1a.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
