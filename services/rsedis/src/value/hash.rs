//! A hash: fields and values packed one after the other, or a table of pairs.

use thin::{Bytes, pair};

use super::Packing;
use crate::hash;
use crate::structure::listpack::{Item, Listpack};
use crate::structure::room::room_for;
use crate::structure::table::{Element, Table};

/// A field and its value in one piece of memory: see [`pair`].
#[derive(Clone, Debug)]
pub struct Pair(Bytes);

impl Pair {
    fn new(field: &[u8], value: &[u8]) -> Self {
        Self(pair::with_head(field.len(), |head| Bytes::bytes(0, [head, field, value])))
    }

    #[inline]
    fn split(&self) -> (&[u8], &[u8]) {
        let bytes = self.0.as_slice();
        (pair::name(bytes), pair::rest(bytes))
    }

    /// Puts another value in the place of this one, in the same memory if it fits exactly.
    fn set(&mut self, value: &[u8]) {
        let bytes = self.0.as_mut_slice();
        let (_, at) = pair::span(bytes);
        match bytes.len() - at == value.len() {
            true => bytes[at..].copy_from_slice(value),
            false => *self = Self::new(self.key(), value),
        }
    }
}

impl Element for Pair {
    #[inline]
    fn key(&self) -> &[u8] {
        pair::name(self.0.as_slice())
    }
}

/// See the module's description.
#[derive(Clone, Debug)]
pub enum Hash {
    /// Fields and values in turn.
    Packed(Listpack),
    /// By field.
    Table(Box<Table<Pair>>),
}

impl Default for Hash {
    fn default() -> Self {
        Self::Packed(Listpack::default())
    }
}

impl Hash {
    /// The name of its encoding.
    pub fn encoding(&self) -> &'static str {
        match self {
            Self::Packed(_) => "listpack",
            Self::Table(_) => "hashtable",
        }
    }

    /// Fields in it.
    pub fn len(&self) -> usize {
        match self {
            Self::Packed(pack) => pack.len() / 2,
            Self::Table(table) => table.len(),
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory, nearly.
    pub fn memory(&self) -> usize {
        match self {
            Self::Packed(pack) => pack.capacity(),
            Self::Table(table) => {
                size_of_val(&**table)
                    + table.bytes()
                    + table.iter().map(|pair| room_for(pair.0.allocated())).sum::<usize>()
            }
        }
    }

    /// A field's value.
    pub fn get(&self, field: &[u8]) -> Option<Item<'_>> {
        match self {
            Self::Packed(pack) => find(pack, field).map(|at| pack.get(pack.next(at))),
            Self::Table(table) => {
                let number = table.find(hash::of(field), field)?;
                Some(Item::Bytes(table.get(number).split().1))
            }
        }
    }

    /// Sets a field; whether it is new.
    pub fn set(&mut self, field: &[u8], value: &[u8], packing: &Packing) -> bool {
        if let Self::Packed(pack) = self {
            if field.len() <= packing.hash_bytes && value.len() <= packing.hash_bytes {
                if let Some(at) = find(pack, field) {
                    pack.replace(pack.next(at), value);
                    return false;
                }
                pack.push_back(field);
                pack.push_back(value);
                if pack.len() / 2 > packing.hash_entries {
                    self.unpack();
                }
                return true;
            }
            self.unpack();
        }
        let Self::Table(table) = self else { return false };
        let hash = hash::of(field);
        match table.find(hash, field) {
            Some(number) => {
                table.get_mut(number).set(value);
                false
            }
            None => {
                table.insert(hash, Pair::new(field, value));
                true
            }
        }
    }

    /// Removes a field; whether it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        match self {
            Self::Packed(pack) => match find(pack, field) {
                Some(at) => {
                    pack.remove(at);
                    pack.remove(at);
                    true
                }
                None => false,
            },
            Self::Table(table) => table.remove(hash::of(field), field).is_some(),
        }
    }

    /// By its place, which must be below [`Hash::len`].
    pub fn at(&self, place: usize) -> (Item<'_>, Item<'_>) {
        match self {
            Self::Packed(pack) => {
                let at = pack.seek(place as i64 * 2).unwrap_or(pack.first());
                (pack.get(at), pack.get(pack.next(at)))
            }
            Self::Table(table) => {
                let (field, value) = table.get(place as u32).split();
                (Item::Bytes(field), Item::Bytes(value))
            }
        }
    }

    /// Calls for every field and its value.
    pub fn each(&self, mut call: impl FnMut(Item<'_>, Item<'_>)) {
        match self {
            Self::Packed(pack) => {
                let mut items = pack.iter();
                while let (Some(field), Some(value)) = (items.next(), items.next()) {
                    call(field, value);
                }
            }
            Self::Table(table) => {
                for pair in table.iter() {
                    let (field, value) = pair.split();
                    call(Item::Bytes(field), Item::Bytes(value));
                }
            }
        }
    }

    /// One step of a SCAN.
    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(Item<'_>, Item<'_>)) -> u64 {
        match self {
            Self::Packed(_) => {
                self.each(visit);
                0
            }
            Self::Table(table) => table.scan(cursor, |pair| {
                let (field, value) = pair.split();
                visit(Item::Bytes(field), Item::Bytes(value));
            }),
        }
    }

    fn unpack(&mut self) {
        if let Self::Packed(_) = self {
            let mut table = Box::<Table<Pair>>::default();
            self.each(|field, value| {
                let field = field.to_vec();
                table.insert(hash::of(&field), Pair::new(&field, &value.to_vec()));
            });
            *self = Self::Table(table);
        }
    }
}

/// The position of a field.
fn find(pack: &Listpack, field: &[u8]) -> Option<usize> {
    let mut at = pack.first();
    while at != pack.end() {
        if pack.get(at).is(field) {
            return Some(at);
        }
        at = pack.next(pack.next(at));
    }
    None
}
