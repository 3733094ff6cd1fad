//! What keys hold. Small values are packed into one piece of memory and say so (`OBJECT ENCODING`); they grow into tables at the
//! limits of Redis's own settings, and never shrink back, as in Redis.

mod group;
mod hash;
pub mod hyperloglog;
mod list;
mod set;
mod stream;
mod zset;

pub use group::{COUNT_MAX, Consumer, Group, Pending, distance, one_more};
pub use hash::Hash;
pub use list::{End, List};
pub use set::Set;
pub use stream::{Entry as StreamEntry, Id, NodeLimits, Stream, Trim, parse_id};
pub use zset::{Zset, compare_member};

use crate::structure::table::{Element, Table};

/// When packed values become tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    /// Fields of a packed hash.
    pub hash_entries: usize,
    /// Bytes of a field or value of a packed hash.
    pub hash_bytes: usize,
    /// Members of a packed sorted set.
    pub zset_entries: usize,
    /// Bytes of a member of a packed sorted set.
    pub zset_bytes: usize,
    /// Members of a set of integers.
    pub intset_entries: usize,
    /// Bytes of a list's node if positive, else a power: -1 is 4 KiB, -2 is 8 KiB, up to -5.
    pub list_size: i64,
    /// Of a stream's node.
    pub stream: NodeLimits,
}

impl Default for Packing {
    fn default() -> Self {
        Self {
            hash_entries: 512,
            hash_bytes: 64,
            zset_entries: 128,
            zset_bytes: 64,
            intset_entries: 512,
            list_size: -2,
            stream: NodeLimits::default(),
        }
    }
}

/// A value that is not a short string; those lie in their key's own memory (see [`crate::keyspace`]). What is larger than the others has
/// a box of its own: many keys have small values. A copy is packed as it is, whatever the limits are now, as in Redis.
#[derive(Clone, Debug)]
pub enum Value {
    /// A string that is long, or was changed in place.
    String(Vec<u8>),
    /// See [`List`].
    List(Box<List>),
    /// See [`Set`].
    Set(Set),
    /// See [`Hash`].
    Hash(Hash),
    /// See [`Zset`].
    Zset(Zset),
    /// See [`Stream`].
    Stream(Box<Stream>),
}

impl Value {
    /// The name that TYPE gives.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::String(_) => "string",
            Self::List(_) => "list",
            Self::Set(_) => "set",
            Self::Hash(_) => "hash",
            Self::Zset(_) => "zset",
            Self::Stream(_) => "stream",
        }
    }

    /// The name that OBJECT ENCODING gives.
    pub fn encoding(&self) -> &'static str {
        match self {
            Self::String(_) => "raw",
            Self::List(_) => "quicklist",
            Self::Set(set) => set.encoding(),
            Self::Hash(hash) => hash.encoding(),
            Self::Zset(zset) => zset.encoding(),
            Self::Stream(_) => "stream",
        }
    }

    /// Whether nothing is left of it; its key goes then.
    pub fn is_empty(&self) -> bool {
        match self {
            // A stream keeps its last identifier.
            Self::String(_) | Self::Stream(_) => false,
            Self::List(list) => list.is_empty(),
            Self::Set(set) => set.is_empty(),
            Self::Hash(hash) => hash.is_empty(),
            Self::Zset(zset) => zset.is_empty(),
        }
    }

    /// Bytes of memory, nearly.
    pub fn memory(&self) -> usize {
        match self {
            Self::String(bytes) => bytes.capacity(),
            Self::List(list) => size_of_val(&**list) + list.memory(),
            Self::Set(set) => set.memory(),
            Self::Hash(hash) => hash.memory(),
            Self::Zset(zset) => zset.memory(),
            Self::Stream(stream) => size_of_val(&**stream) + stream.memory(),
        }
    }

    /// Members of its table, if it has one.
    pub fn table_len(&self) -> usize {
        match self {
            Self::Set(Set::Table(table)) => table.len(),
            Self::Hash(Hash::Table(table)) => table.len(),
            Self::Zset(Zset::Tree(tree)) => tree.members().len(),
            _ => 0,
        }
    }

    /// [`Table::touch`] of its table.
    pub fn touch(&self, hash: u64) -> u32 {
        match self {
            Self::Set(Set::Table(table)) => table.touch(hash),
            Self::Hash(Hash::Table(table)) => table.touch(hash),
            Self::Zset(Zset::Tree(tree)) => tree.members().touch(hash),
            _ => 0,
        }
    }

    /// Reads what a search for a member with this hash looks at behind that; what comes back means nothing.
    pub fn touch_element(&self, hash: u64) -> u8 {
        fn first<E: Element>(table: &Table<E>, hash: u64) -> u8 {
            table.guess(hash).and_then(|element| element.key().first().copied()).unwrap_or(0)
        }
        match self {
            Self::Set(Set::Table(table)) => first(table, hash),
            Self::Hash(Hash::Table(table)) => first(table, hash),
            Self::Zset(Zset::Tree(tree)) => first(tree.members(), hash),
            _ => 0,
        }
    }
}

/// From and to, as commands give them (negative: from the end), as a range of indices; nothing if it is empty.
pub fn clamp_range(start: i64, stop: i64, len: usize) -> Option<(usize, usize)> {
    let len = len as i64;
    let start = if start < 0 { (start + len).max(0) } else { start };
    let stop = if stop < 0 { stop + len } else { stop.min(len - 1) };
    (start <= stop && start < len).then_some((start as usize, stop as usize))
}
