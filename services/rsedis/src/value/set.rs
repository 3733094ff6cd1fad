//! A set: integers packed, or a table.

use thin::Bytes;

use crate::hash;
use crate::number::parse_integer;
use crate::structure::intset::Intset;
use crate::structure::listpack::Item;
use crate::structure::room::room_for;
use crate::structure::table::Table;

/// See the module's description.
#[derive(Clone, Debug)]
pub enum Set {
    /// Integers.
    Integers(Intset),
    /// Anything.
    Table(Box<Table<Bytes>>),
}

impl Default for Set {
    fn default() -> Self {
        Self::Integers(Intset::default())
    }
}

impl Set {
    /// The name of its encoding.
    pub fn encoding(&self) -> &'static str {
        match self {
            Self::Integers(_) => "intset",
            Self::Table(_) => "hashtable",
        }
    }

    /// Members in it.
    pub fn len(&self) -> usize {
        match self {
            Self::Integers(set) => set.len(),
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
            Self::Integers(set) => set.capacity(),
            Self::Table(table) => {
                size_of_val(&**table)
                    + table.bytes()
                    + table.iter().map(|member| room_for(member.allocated())).sum::<usize>()
            }
        }
    }

    /// Whether it has a member.
    #[inline]
    pub fn contains(&self, member: &[u8]) -> bool {
        match self {
            Self::Integers(set) => parse_integer(member).is_some_and(|number| set.contains(number)),
            Self::Table(table) => table.find(hash::of(member), member).is_some(),
        }
    }

    /// Adds a member; whether it is new. At more than `integers_max` integers it becomes a table.
    pub fn insert(&mut self, member: &[u8], integers_max: usize) -> bool {
        if let Self::Integers(set) = self {
            match parse_integer(member) {
                Some(number) => {
                    let is_new = set.insert(number);
                    if set.len() > integers_max {
                        self.unpack();
                    }
                    return is_new;
                }
                None => self.unpack(),
            }
        }
        let Self::Table(table) = self else { return false };
        let hash = hash::of(member);
        let is_new = table.find(hash, member).is_none();
        if is_new {
            table.insert(hash, Bytes::copy(member));
        }
        is_new
    }

    /// Removes a member; whether it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match self {
            Self::Integers(set) => parse_integer(member).is_some_and(|number| set.remove(number)),
            Self::Table(table) => table.remove(hash::of(member), member).is_some(),
        }
    }

    /// By its place, which must be below [`Set::len`]. Places change with every change of the set.
    pub fn get(&self, place: usize) -> Item<'_> {
        match self {
            Self::Integers(set) => Item::Integer(set.get(place)),
            Self::Table(table) => Item::Bytes(table.get(place as u32).as_slice()),
        }
    }

    /// All members.
    pub fn iter(&self) -> impl Iterator<Item = Item<'_>> {
        (0..self.len()).map(|place| self.get(place))
    }

    /// One step of a SCAN.
    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(Item<'_>)) -> u64 {
        match self {
            Self::Integers(_) => {
                self.iter().for_each(visit);
                0
            }
            Self::Table(table) => table.scan(cursor, |member| visit(Item::Bytes(member.as_slice()))),
        }
    }

    fn unpack(&mut self) {
        if let Self::Integers(set) = self {
            let mut table = Box::<Table<Bytes>>::default();
            for number in set.iter() {
                let mut text = itoa::Buffer::new();
                let member = text.format(number).as_bytes();
                table.insert(hash::of(member), Bytes::copy(member));
            }
            *self = Self::Table(table);
        }
    }
}
