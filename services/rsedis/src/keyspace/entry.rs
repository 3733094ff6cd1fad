//! One key and its value, in one word.
//!
//! A short string lies with its key and its expiry in one allocation, behind its length (see [`thin`]), so that 16 bytes of key and 64 of
//! value take 82, and 90 with an expiry: both fit into the 96 that the allocator gives. The mark in the word tells which fields there are:
//!
//! | bytes | field |
//! | --- | --- |
//! | 8, with an expiry (mark 1) | expiry, milliseconds since 1970, little-endian |
//! | | key and value (see [`pair`]); with mark 2 the value is an integer in 8 bytes, little-endian |
//!
//! Everything else has a box, with the key, behind its expiry if it has one (mark 1), beside it.

use thin::{Bytes, Thin, View, ViewMut, pair};

use crate::number::parse_integer;
use crate::structure::listpack::Item;
use crate::structure::room::room_for;
use crate::structure::table::Element;
use crate::value::Value;

/// Longer strings are kept in [`Value::String`].
const INLINE_BYTES_MAX: usize = 4 << 10;

const HAS_EXPIRY: u8 = 1;
const IS_INTEGER: u8 = 2;
const EXPIRY_BYTES: usize = 8;

/// A key with a value that has a box of its own.
#[derive(Debug)]
struct Object {
    /// Behind its expiry.
    key: Bytes,
    value: Value,
}

/// See the module's description.
#[derive(Debug)]
pub struct Entry(Thin<Object>);

/// A string as it is given to a key.
#[derive(Clone, Copy, Debug)]
enum Text<'a> {
    Integer(i64),
    Bytes(&'a [u8]),
}

impl<'a> From<Item<'a>> for Text<'a> {
    fn from(item: Item<'a>) -> Self {
        match item {
            Item::Integer(number) => Self::Integer(number),
            Item::Bytes(bytes) => Self::Bytes(bytes),
        }
    }
}

/// Bytes before the key.
#[inline]
fn key_at(mark: u8) -> usize {
    if mark & HAS_EXPIRY != 0 { EXPIRY_BYTES } else { 0 }
}

#[inline]
fn expiry_in(mark: u8, bytes: &[u8]) -> Option<i64> {
    (mark & HAS_EXPIRY != 0).then(|| little_endian(&bytes[..EXPIRY_BYTES]))
}

#[inline]
fn text_in(mark: u8, bytes: &[u8]) -> Item<'_> {
    let value = pair::rest(&bytes[key_at(mark)..]);
    if mark & IS_INTEGER != 0 { Item::Integer(little_endian(value)) } else { Item::Bytes(value) }
}

/// The value's bytes, to be changed.
#[inline]
fn value_in(mark: u8, bytes: &mut [u8]) -> &mut [u8] {
    let bytes = &mut bytes[key_at(mark)..];
    let (_, at) = pair::span(bytes);
    &mut bytes[at..]
}

fn little_endian(bytes: &[u8]) -> i64 {
    let mut word = [0; 8];
    word.copy_from_slice(bytes);
    i64::from_le_bytes(word)
}

impl Object {
    fn key_behind(key: &[u8], expiry: Option<i64>) -> Bytes {
        match expiry {
            None => Bytes::copy(key),
            Some(expiry) => Bytes::bytes(HAS_EXPIRY, [&expiry.to_le_bytes(), key]),
        }
    }

    #[inline]
    fn key(&self) -> &[u8] {
        &self.key.as_slice()[key_at(self.key.mark())..]
    }

    #[inline]
    fn expiry(&self) -> Option<i64> {
        expiry_in(self.key.mark(), self.key.as_slice())
    }
}

impl Element for Entry {
    #[inline]
    fn key(&self) -> &[u8] {
        match self.0.view() {
            View::Bytes(mark, bytes) => pair::name(&bytes[key_at(mark)..]),
            View::Boxed(object) => object.key(),
        }
    }
}

impl Entry {
    fn inline(key: &[u8], text: Text<'_>, expiry: Option<i64>) -> Self {
        let bytes = expiry.unwrap_or(0).to_le_bytes();
        let (mark, expiry) = if expiry.is_some() { (HAS_EXPIRY, &bytes[..]) } else { (0, &[][..]) };
        Self(pair::with_head(key.len(), |head| match text {
            Text::Integer(number) => Thin::bytes(mark | IS_INTEGER, [expiry, head, key, &number.to_le_bytes()]),
            Text::Bytes(value) => Thin::bytes(mark, [expiry, head, key, value]),
        }))
    }

    /// Reads what a search looks at first; what comes back means nothing.
    #[inline]
    pub fn touch(&self) -> u8 {
        match self.0.view() {
            View::Bytes(_, bytes) => bytes.first().copied().unwrap_or(0),
            View::Boxed(object) => object.key().first().copied().unwrap_or(0),
        }
    }

    /// The same of what is looked at next: where a short string ends, as often as not in another line of the processor's cache than where
    /// its key begins.
    #[inline]
    pub fn touch_end(&self) -> u8 {
        match self.0.view() {
            View::Bytes(_, bytes) => bytes.last().copied().unwrap_or(0),
            View::Boxed(_) => 0,
        }
    }

    /// A key with a string, in the form that SET gives it.
    pub fn string(key: &[u8], text: &[u8], expiry: Option<i64>) -> Self {
        match text.len() {
            0..=20 => match parse_integer(text) {
                Some(number) => Self::inline(key, Text::Integer(number), expiry),
                None => Self::inline(key, Text::Bytes(text), expiry),
            },
            21..=INLINE_BYTES_MAX => Self::inline(key, Text::Bytes(text), expiry),
            _ => Self::object(key, Value::String(text.to_vec()), expiry),
        }
    }

    /// A key with a string that is kept as it is, also if it is the text of an integer: what INCRBYFLOAT makes.
    pub fn plain(key: &[u8], text: &[u8], expiry: Option<i64>) -> Self {
        match text.len() {
            0..=INLINE_BYTES_MAX => Self::inline(key, Text::Bytes(text), expiry),
            _ => Self::string(key, text, expiry),
        }
    }

    /// A key with an integer.
    pub fn integer(key: &[u8], number: i64, expiry: Option<i64>) -> Self {
        Self::inline(key, Text::Integer(number), expiry)
    }

    /// A key with a value.
    pub fn object(key: &[u8], value: Value, expiry: Option<i64>) -> Self {
        Self(Thin::boxed(Box::new(Object { key: Object::key_behind(key, expiry), value })))
    }

    /// Puts a string in the place of this value, in the same memory if it fits exactly.
    #[inline]
    pub fn set_string(&mut self, text: &[u8], expiry: Option<i64>) {
        let mark_needed = if expiry.is_some() { HAS_EXPIRY } else { 0 };
        if let ViewMut::Bytes(mark, bytes) = self.0.view_mut()
            && mark == mark_needed
        {
            let value = value_in(mark, bytes);
            if value.len() == text.len() && (text.len() > 20 || parse_integer(text).is_none()) {
                value.copy_from_slice(text);
                if let Some(expiry) = expiry {
                    bytes[..EXPIRY_BYTES].copy_from_slice(&expiry.to_le_bytes());
                }
                return;
            }
        }
        *self = Self::string(self.key(), text, expiry);
    }

    /// Puts an integer in the place of this value; the expiry stays.
    pub fn set_integer(&mut self, number: i64) {
        if let ViewMut::Bytes(mark, bytes) = self.0.view_mut()
            && mark & IS_INTEGER != 0
        {
            value_in(mark, bytes).copy_from_slice(&number.to_le_bytes());
            return;
        }
        *self = Self::integer(self.key(), number, self.expiry());
    }

    /// When it expires, milliseconds since 1970.
    #[inline]
    pub fn expiry(&self) -> Option<i64> {
        match self.0.view() {
            View::Bytes(mark, bytes) => expiry_in(mark, bytes),
            View::Boxed(object) => object.expiry(),
        }
    }

    /// Only through the database, which keeps the order of expiries.
    pub(super) fn set_expiry(&mut self, expiry: Option<i64>) {
        match (self.0.view_mut(), expiry) {
            (ViewMut::Boxed(object), expiry) => object.key = Object::key_behind(object.key(), expiry),
            (ViewMut::Bytes(mark, bytes), Some(expiry)) if mark & HAS_EXPIRY != 0 => {
                bytes[..EXPIRY_BYTES].copy_from_slice(&expiry.to_le_bytes());
            }
            (ViewMut::Bytes(mark, bytes), expiry) => {
                let key = pair::name(&bytes[key_at(mark)..]);
                *self = Self::inline(key, text_in(mark, bytes).into(), expiry);
            }
        }
    }

    /// The string, if it is one.
    #[inline]
    pub fn text(&self) -> Option<Item<'_>> {
        match self.0.view() {
            View::Bytes(mark, bytes) => Some(text_in(mark, bytes)),
            View::Boxed(Object { value: Value::String(bytes), .. }) => Some(Item::Bytes(bytes)),
            View::Boxed(_) => None,
        }
    }

    /// The string to be changed in place, if it is one. Its encoding is `raw` from then on.
    pub fn text_mut(&mut self) -> Option<&mut Vec<u8>> {
        if let View::Bytes(mark, bytes) = self.0.view() {
            let value = Value::String(text_in(mark, bytes).to_vec());
            *self = Self::object(self.key(), value, self.expiry());
        }
        match self.value_mut() {
            Some(Value::String(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// The value, if it is not a short string.
    pub fn value(&self) -> Option<&Value> {
        match self.0.view() {
            View::Bytes(..) => None,
            View::Boxed(object) => Some(&object.value),
        }
    }

    /// The same, to change it.
    pub fn value_mut(&mut self) -> Option<&mut Value> {
        match self.0.view_mut() {
            ViewMut::Bytes(..) => None,
            ViewMut::Boxed(object) => Some(&mut object.value),
        }
    }

    /// The same entry under another key.
    pub fn rename(self, key: &[u8]) -> Self {
        match self.0.into_box() {
            Ok(mut object) => {
                object.key = Object::key_behind(key, object.expiry());
                Self(Thin::boxed(object))
            }
            Err(short) => {
                let (mark, bytes) = (short.mark(), short.as_slice());
                Self::inline(key, text_in(mark, bytes).into(), expiry_in(mark, bytes))
            }
        }
    }

    /// The name that TYPE gives.
    pub fn type_name(&self) -> &'static str {
        self.value().map_or("string", Value::type_name)
    }

    /// The name that OBJECT ENCODING gives.
    pub fn encoding(&self) -> &'static str {
        match self.0.view() {
            View::Bytes(mark, bytes) => match text_in(mark, bytes) {
                Item::Integer(_) => "int",
                Item::Bytes(bytes) if bytes.len() <= 44 => "embstr",
                Item::Bytes(_) => "raw",
            },
            View::Boxed(object) => object.value.encoding(),
        }
    }

    /// Bytes of memory as the allocator counts them, nearly; without the index's.
    pub fn memory(&self) -> usize {
        let behind = match self.0.view() {
            View::Bytes(..) => 0,
            View::Boxed(object) => room_for(object.key.allocated()) + object.value.memory(),
        };
        size_of::<Self>() + room_for(self.0.allocated()) + behind
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_entry_is_one_word_and_16_and_64_bytes_with_an_expiry_fit_into_96() {
        assert_eq!((size_of::<Entry>(), size_of::<Object>()), (8, 40));
        assert_eq!(Entry::string(&[1; 16], &[2; 64], None).0.allocated(), 82);
        assert_eq!(Entry::string(&[1; 16], &[2; 64], Some(5)).0.allocated(), 90);
        assert_eq!(Entry::string(&[1; 16], &[2; 64], Some(5)).memory(), 8 + 96);
    }

    proptest! {
        #[test]
        fn strings_come_back(
            key in prop::collection::vec(any::<u8>(), 0..600),
            texts in prop::collection::vec(prop_oneof![
                any::<i64>().prop_map(|number| number.to_string().into_bytes()),
                prop::collection::vec(any::<u8>(), 0..60),
                prop::collection::vec(any::<u8>(), 4000..4200),
            ], 1..6),
            expiry: Option<i64>,
        ) {
            let mut entry = Entry::string(&key, b"first", None);
            for text in &texts {
                entry.set_string(text, expiry);
                prop_assert_eq!(entry.key(), &key[..]);
                prop_assert_eq!(entry.expiry(), expiry);
                prop_assert_eq!(entry.text().unwrap().to_vec(), text.clone());
                entry.set_expiry(Some(5));
                entry = entry.rename(b"other");
                prop_assert_eq!((entry.key(), entry.expiry()), (&b"other"[..], Some(5)));
                prop_assert_eq!(entry.text().unwrap().to_vec(), text.clone());
                entry = entry.rename(&key);
                entry.set_expiry(None);
            }
            entry.set_integer(-7);
            prop_assert_eq!(entry.text(), Some(Item::Integer(-7)));
            entry.text_mut().unwrap().push(b'x');
            prop_assert_eq!(entry.text(), Some(Item::Bytes(b"-7x")));
            prop_assert_eq!(entry.key(), &key[..]);
        }
    }
}
