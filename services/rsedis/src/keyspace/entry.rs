//! One key and its value.
//!
//! A short string lies with its key and its expiry in one allocation:
//!
//! | bytes | field |
//! | --- | --- |
//! | 1 | 1: has an expiry; 2: the value is an integer |
//! | 8, if it has one | expiry, milliseconds since 1970, little-endian |
//! | 1, or 5 | length of the key; 255: the length follows in 4 bytes, little-endian |
//! | | key |
//! | | value; an integer in 8 bytes, little-endian |
//!
//! Everything else has a box of its own.

use crate::number::parse_integer;
use crate::structure::listpack::Item;
use crate::structure::table::Element;
use crate::value::Value;

/// Longer strings are kept in [`Value::String`].
const INLINE_BYTES_MAX: usize = 4 << 10;

const HAS_EXPIRY: u8 = 1;
const IS_INTEGER: u8 = 2;
const LONG_KEY: usize = 255;

/// See the module's description.
#[derive(Debug)]
pub struct Inline(Box<[u8]>);

/// A key with a value that has a box of its own.
#[derive(Debug)]
pub struct Object {
    key: Box<[u8]>,
    expiry: Option<i64>,
    /// What the key holds.
    pub value: Value,
}

/// See the module's description.
#[derive(Debug)]
pub enum Entry {
    /// A short string.
    Inline(Inline),
    /// Anything else.
    Object(Box<Object>),
}

/// A string as it is given to a key.
#[derive(Clone, Copy, Debug)]
enum Text<'a> {
    Integer(i64),
    Bytes(&'a [u8]),
}

impl Inline {
    fn new(key: &[u8], text: Text<'_>, expiry: Option<i64>) -> Self {
        let value_bytes = match text {
            Text::Integer(_) => 8,
            Text::Bytes(bytes) => bytes.len(),
        };
        let key_head = if key.len() < LONG_KEY { 1 } else { 5 };
        let mut bytes = Vec::with_capacity(1 + expiry.map_or(0, |_| 8) + key_head + key.len() + value_bytes);
        let is_integer = matches!(text, Text::Integer(_));
        bytes.push(if expiry.is_some() { HAS_EXPIRY } else { 0 } | if is_integer { IS_INTEGER } else { 0 });
        if let Some(expiry) = expiry {
            bytes.extend_from_slice(&expiry.to_le_bytes());
        }
        match key.len() {
            0..LONG_KEY => bytes.push(key.len() as u8),
            _ => {
                bytes.push(LONG_KEY as u8);
                bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
            }
        }
        bytes.extend_from_slice(key);
        match text {
            Text::Integer(number) => bytes.extend_from_slice(&number.to_le_bytes()),
            Text::Bytes(value) => bytes.extend_from_slice(value),
        }
        Self(bytes.into())
    }

    #[inline]
    fn key_at(&self) -> usize {
        if self.0[0] & HAS_EXPIRY != 0 { 9 } else { 1 }
    }

    /// Where the key begins and ends.
    #[inline]
    fn key_span(&self) -> (usize, usize) {
        let at = self.key_at();
        match usize::from(self.0[at]) {
            LONG_KEY => {
                let length = u32::from_le_bytes([self.0[at + 1], self.0[at + 2], self.0[at + 3], self.0[at + 4]]);
                (at + 5, at + 5 + length as usize)
            }
            length => (at + 1, at + 1 + length),
        }
    }

    fn expiry(&self) -> Option<i64> {
        (self.0[0] & HAS_EXPIRY != 0).then(|| little_endian(&self.0[1..9]))
    }

    #[inline]
    fn text(&self) -> Item<'_> {
        let value = &self.0[self.key_span().1..];
        if self.0[0] & IS_INTEGER != 0 { Item::Integer(little_endian(value)) } else { Item::Bytes(value) }
    }
}

fn little_endian(bytes: &[u8]) -> i64 {
    let mut word = [0; 8];
    word.copy_from_slice(bytes);
    i64::from_le_bytes(word)
}

impl Element for Entry {
    #[inline]
    fn key(&self) -> &[u8] {
        match self {
            Self::Inline(inline) => {
                let (from, to) = inline.key_span();
                &inline.0[from..to]
            }
            Self::Object(object) => &object.key,
        }
    }
}

impl Entry {
    /// Reads what a search looks at first; what comes back means nothing.
    #[inline]
    pub fn touch(&self) -> u8 {
        match self {
            Self::Inline(inline) => inline.0[0],
            Self::Object(object) => object.key.first().copied().unwrap_or(0),
        }
    }

    /// A key with a string, in the form that SET gives it.
    pub fn string(key: &[u8], text: &[u8], expiry: Option<i64>) -> Self {
        match text.len() {
            0..=20 => match parse_integer(text) {
                Some(number) => Self::Inline(Inline::new(key, Text::Integer(number), expiry)),
                None => Self::Inline(Inline::new(key, Text::Bytes(text), expiry)),
            },
            21..=INLINE_BYTES_MAX => Self::Inline(Inline::new(key, Text::Bytes(text), expiry)),
            _ => Self::object(key, Value::String(text.to_vec()), expiry),
        }
    }

    /// A key with a string that is kept as it is, also if it is the text of an integer: what INCRBYFLOAT makes.
    pub fn plain(key: &[u8], text: &[u8], expiry: Option<i64>) -> Self {
        match text.len() {
            0..=INLINE_BYTES_MAX => Self::Inline(Inline::new(key, Text::Bytes(text), expiry)),
            _ => Self::string(key, text, expiry),
        }
    }

    /// A key with an integer.
    pub fn integer(key: &[u8], number: i64, expiry: Option<i64>) -> Self {
        Self::Inline(Inline::new(key, Text::Integer(number), expiry))
    }

    /// A key with a value.
    pub fn object(key: &[u8], value: Value, expiry: Option<i64>) -> Self {
        Self::Object(Box::new(Object { key: key.into(), expiry, value }))
    }

    /// Puts a string in the place of this value, in the same memory if it fits exactly.
    #[inline]
    pub fn set_string(&mut self, text: &[u8], expiry: Option<i64>) {
        if let (Self::Inline(inline), None) = (&mut *self, expiry)
            && inline.0[0] == 0
        {
            let (_, at) = inline.key_span();
            if inline.0.len() - at == text.len() && (text.len() > 20 || parse_integer(text).is_none()) {
                inline.0[at..].copy_from_slice(text);
                return;
            }
        }
        *self = Self::string(self.key(), text, expiry);
    }

    /// Puts an integer in the place of this value; the expiry stays.
    pub fn set_integer(&mut self, number: i64) {
        if let Self::Inline(inline) = self
            && inline.0[0] & IS_INTEGER != 0
        {
            let (_, at) = inline.key_span();
            inline.0[at..].copy_from_slice(&number.to_le_bytes());
            return;
        }
        *self = Self::integer(self.key(), number, self.expiry());
    }

    /// When it expires, milliseconds since 1970.
    #[inline]
    pub fn expiry(&self) -> Option<i64> {
        match self {
            Self::Inline(inline) => inline.expiry(),
            Self::Object(object) => object.expiry,
        }
    }

    /// Only through the database, which keeps the order of expiries.
    pub(super) fn set_expiry(&mut self, expiry: Option<i64>) {
        match self {
            Self::Object(object) => object.expiry = expiry,
            Self::Inline(inline) => {
                let (from, to) = inline.key_span();
                let text = match inline.text() {
                    Item::Integer(number) => Text::Integer(number),
                    Item::Bytes(bytes) => Text::Bytes(bytes),
                };
                *inline = Inline::new(&inline.0[from..to], text, expiry);
            }
        }
    }

    /// The string, if it is one.
    #[inline]
    pub fn text(&self) -> Option<Item<'_>> {
        match self {
            Self::Inline(inline) => Some(inline.text()),
            Self::Object(object) => match &object.value {
                Value::String(bytes) => Some(Item::Bytes(bytes)),
                _ => None,
            },
        }
    }

    /// The string to be changed in place, if it is one. Its encoding is `raw` from then on.
    pub fn text_mut(&mut self) -> Option<&mut Vec<u8>> {
        if let Self::Inline(inline) = self {
            let value = Value::String(inline.text().to_vec());
            *self = Self::object(self.key(), value, self.expiry());
        }
        match self {
            Self::Object(object) => match &mut object.value {
                Value::String(bytes) => Some(bytes),
                _ => None,
            },
            Self::Inline(_) => None,
        }
    }

    /// The value, if it is not a short string.
    pub fn value(&self) -> Option<&Value> {
        match self {
            Self::Inline(_) => None,
            Self::Object(object) => Some(&object.value),
        }
    }

    /// The same, to change it.
    pub fn value_mut(&mut self) -> Option<&mut Value> {
        match self {
            Self::Inline(_) => None,
            Self::Object(object) => Some(&mut object.value),
        }
    }

    /// The same entry under another key.
    pub fn rename(self, key: &[u8]) -> Self {
        match self {
            Self::Object(object) => Self::Object(Box::new(Object { key: key.into(), ..*object })),
            Self::Inline(inline) => {
                let text = match inline.text() {
                    Item::Integer(number) => Text::Integer(number),
                    Item::Bytes(bytes) => Text::Bytes(bytes),
                };
                Self::Inline(Inline::new(key, text, inline.expiry()))
            }
        }
    }

    /// The name that TYPE gives.
    pub fn type_name(&self) -> &'static str {
        self.value().map_or("string", Value::type_name)
    }

    /// The name that OBJECT ENCODING gives.
    pub fn encoding(&self) -> &'static str {
        match self {
            Self::Inline(inline) => match inline.text() {
                Item::Integer(_) => "int",
                Item::Bytes(bytes) if bytes.len() <= 44 => "embstr",
                Item::Bytes(_) => "raw",
            },
            Self::Object(object) => object.value.encoding(),
        }
    }

    /// Bytes of memory, nearly.
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Inline(inline) => inline.0.len(),
                Self::Object(object) => size_of::<Object>() + object.key.len() + object.value.memory(),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_entry_is_two_words() {
        assert_eq!(size_of::<Entry>(), 16);
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
