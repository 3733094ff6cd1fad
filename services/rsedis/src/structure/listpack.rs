//! A list of small elements in one piece of memory, byte for byte the listpack of Redis 7.
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 4 | bytes in all, little-endian |
//! | 4 | 2 | elements, little-endian; 65,535: more than that can say |
//! | 6 | | elements: encoding, data, their length backwards in groups of seven bits |
//! | end | 1 | `FF` |
//!
//! Encodings: `0xxxxxxx` 7-bit integer, `10xxxxxx` string below 64 bytes, `110xxxxx` + 1 13-bit integer, `1110xxxx` + 1 string
//! below 4,096 bytes, `F0` + 4 string, `F1` to `F4` integers of 2, 3, 4 and 8 bytes. (Source: facts of Redis's own `listpack.md`.)

use crate::number::{integer_text, parse_integer, push_integer};
use crate::structure::room::make_room;

const HEADER: usize = 6;
const END: u8 = 0xFF;
const COUNT_UNKNOWN: usize = 65_535;

/// An element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A string that is the text of an integer.
    Integer(i64),
    /// Any other string.
    Bytes(&'a [u8]),
}

impl Item<'_> {
    /// Whether it is this string.
    #[inline]
    pub fn is(&self, text: &[u8]) -> bool {
        match self {
            Self::Bytes(bytes) => *bytes == text,
            Self::Integer(number) => itoa::Buffer::new().format(*number).as_bytes() == text,
        }
    }

    /// Appends the string.
    pub fn push_to(&self, out: &mut Vec<u8>) {
        match self {
            Self::Bytes(bytes) => out.extend_from_slice(bytes),
            Self::Integer(number) => push_integer(out, *number),
        }
    }

    /// The string.
    pub fn to_vec(&self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes.to_vec(),
            Self::Integer(number) => integer_text(*number),
        }
    }
}

/// See the module's description. Positions are offsets of elements; [`Listpack::end`] is behind the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listpack(Vec<u8>);

impl Default for Listpack {
    fn default() -> Self {
        Self(vec![HEADER as u8 + 1, 0, 0, 0, 0, 0, END])
    }
}

impl Listpack {
    /// Its bytes as Redis has them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Bytes in all.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match u16::from_le_bytes([self.0[4], self.0[5]]) as usize {
            COUNT_UNKNOWN => self.iter().count(),
            count => count,
        }
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.0.len() == HEADER + 1
    }

    /// The position of the first element, or the end.
    #[inline]
    pub fn first(&self) -> usize {
        HEADER
    }

    /// The position behind the last element.
    #[inline]
    pub fn end(&self) -> usize {
        self.0.len() - 1
    }

    /// The position after this one.
    #[inline]
    pub fn next(&self, at: usize) -> usize {
        let body = body_bytes(&self.0, at);
        at + body + back_bytes(body)
    }

    /// The position before this one, or none for the first.
    pub fn previous(&self, at: usize) -> Option<usize> {
        if at <= HEADER {
            return None;
        }
        let (mut body, mut shift, mut from) = (0usize, 0, at - 1);
        loop {
            let byte = self.0[from];
            body |= usize::from(byte & 127) << shift;
            if byte & 128 == 0 {
                break;
            }
            shift += 7;
            from -= 1;
        }
        Some(at - back_bytes(body) - body)
    }

    /// The position of an element by its index, from the back if negative.
    pub fn seek(&self, index: i64) -> Option<usize> {
        if index >= 0 {
            let mut at = self.first();
            for _ in 0..index {
                if at == self.end() {
                    return None;
                }
                at = self.next(at);
            }
            return (at != self.end()).then_some(at);
        }
        let mut at = self.end();
        for _ in index..0 {
            at = self.previous(at)?;
        }
        Some(at)
    }

    /// The element at a position.
    #[inline]
    pub fn get(&self, at: usize) -> Item<'_> {
        let bytes = &self.0[at..];
        let (head, length) = match bytes[0] {
            byte @ 0..=0x7F => return Item::Integer(i64::from(byte)),
            byte @ 0x80..=0xBF => (1, usize::from(byte & 0x3F)),
            byte @ 0xC0..=0xDF => {
                let raw = i64::from(byte & 0x1F) << 8 | i64::from(bytes[1]);
                return Item::Integer(if raw >= 1 << 12 { raw - (1 << 13) } else { raw });
            }
            byte @ 0xE0..=0xEF => (2, usize::from(byte & 0x0F) << 8 | usize::from(bytes[1])),
            0xF0 => (5, u32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]) as usize),
            0xF1 => return Item::Integer(little_endian(&bytes[1..3])),
            0xF2 => return Item::Integer(little_endian(&bytes[1..4])),
            0xF3 => return Item::Integer(little_endian(&bytes[1..5])),
            _ => return Item::Integer(little_endian(&bytes[1..9])),
        };
        Item::Bytes(&bytes[head..head + length])
    }

    /// All elements.
    pub fn iter(&self) -> Iter<'_> {
        Iter { pack: self, at: HEADER }
    }

    /// Adds behind the last.
    pub fn push_back(&mut self, text: &[u8]) {
        self.insert(self.end(), text);
    }

    /// Adds before the first.
    pub fn push_front(&mut self, text: &[u8]) {
        self.insert(HEADER, text);
    }

    /// From bytes as Redis has them; nothing if they are no listpack.
    pub fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        let is_framed = bytes.len() > HEADER
            && u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize == bytes.len()
            && bytes.last() == Some(&END);
        let mut at = HEADER;
        let mut count = 0;
        while is_framed && at < bytes.len() - 1 {
            let body = checked_body_bytes(&bytes[at..bytes.len() - 1])?;
            let mut back = [0; 5];
            let back_length = encode_back(body, &mut back);
            if bytes[..bytes.len() - 1].get(at + body..at + body + back_length) != Some(&back[..back_length]) {
                return None;
            }
            at += body + back_length;
            count += 1;
        }
        let told = usize::from(u16::from_le_bytes([*bytes.get(4)?, *bytes.get(5)?]));
        (is_framed && (told == count || told == COUNT_UNKNOWN)).then_some(Self(bytes))
    }

    /// Inserts before the element at a position.
    pub fn insert(&mut self, at: usize, text: &[u8]) {
        self.put(at, 0, text);
        self.count(1);
    }

    /// Puts an element in the place of so many bytes.
    fn put(&mut self, at: usize, removed: usize, text: &[u8]) {
        let mut small = [0; 16];
        match encode_integer(text, &mut small) {
            Some(length) => self.splice(at, removed, &[&small[..length]]),
            None => {
                let mut head = [0; 5];
                let head_bytes = encode_length(text.len(), &mut head);
                let mut back = [0; 5];
                let back_length = encode_back(head_bytes + text.len(), &mut back);
                self.splice(at, removed, &[&head[..head_bytes], text, &back[..back_length]]);
            }
        }
    }

    /// Removes the element at a position; the next one is there then.
    pub fn remove(&mut self, at: usize) {
        let length = self.next(at) - at;
        self.splice(at, length, &[]);
        self.count(-1);
    }

    /// Puts another element in the place of one.
    pub fn replace(&mut self, at: usize, text: &[u8]) {
        self.put(at, self.next(at) - at, text);
    }

    /// Removes elements from one position up to another.
    pub fn remove_range(&mut self, from: usize, to: usize) {
        let mut count = 0;
        let mut at = from;
        while at < to {
            at = self.next(at);
            count += 1;
        }
        self.splice(from, to - from, &[]);
        self.count(-count);
    }

    /// Moves the elements from a position on into a listpack of their own.
    pub fn split_off(&mut self, at: usize) -> Self {
        let mut tail = Self::default();
        let moved = self.0[at..self.end()].to_vec();
        let mut count = 0;
        let mut position = at;
        while position < self.end() {
            position = self.next(position);
            count += 1;
        }
        tail.splice(HEADER, 0, &[&moved]);
        tail.count(count);
        self.splice(at, moved.len(), &[]);
        self.count(-count);
        tail
    }

    /// Gives back memory that is not needed.
    pub fn shrink(&mut self) {
        self.0.shrink_to_fit();
    }

    /// Memory, including what is reserved.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    fn splice(&mut self, at: usize, removed: usize, pieces: &[&[u8]]) {
        let added: usize = pieces.iter().map(|piece| piece.len()).sum();
        let before = self.0.len();
        let after = before - removed + added;
        if added > removed {
            make_room(&mut self.0, added - removed);
            self.0.resize(after, 0);
        }
        self.0.copy_within(at + removed..before, at + added);
        self.0.truncate(after);
        let mut to = at;
        for piece in pieces {
            self.0[to..to + piece.len()].copy_from_slice(piece);
            to += piece.len();
        }
        self.0[..4].copy_from_slice(&(after as u32).to_le_bytes());
    }

    fn count(&mut self, by: i64) {
        let count = u16::from_le_bytes([self.0[4], self.0[5]]) as usize;
        if count == COUNT_UNKNOWN {
            return;
        }
        let count = (count as i64 + by).clamp(0, COUNT_UNKNOWN as i64) as u16;
        self.0[4..6].copy_from_slice(&count.to_le_bytes());
    }
}

/// The elements of a listpack.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    pack: &'a Listpack,
    at: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Item<'a>;

    #[inline]
    fn next(&mut self) -> Option<Item<'a>> {
        if self.at == self.pack.end() {
            return None;
        }
        let item = self.pack.get(self.at);
        self.at = self.pack.next(self.at);
        Some(item)
    }
}

fn little_endian(bytes: &[u8]) -> i64 {
    let mut word = [if bytes[bytes.len() - 1] & 128 != 0 { 0xFF } else { 0 }; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(word)
}

/// Bytes of encoding and data of the element at an offset.
#[inline]
fn body_bytes(bytes: &[u8], at: usize) -> usize {
    match bytes[at] {
        0..=0x7F => 1,
        byte @ 0x80..=0xBF => 1 + usize::from(byte & 0x3F),
        0xC0..=0xDF => 2,
        byte @ 0xE0..=0xEF => 2 + (usize::from(byte & 0x0F) << 8 | usize::from(bytes[at + 1])),
        0xF0 => 5 + u32::from_le_bytes([bytes[at + 1], bytes[at + 2], bytes[at + 3], bytes[at + 4]]) as usize,
        0xF1 => 3,
        0xF2 => 4,
        0xF3 => 5,
        _ => 9,
    }
}

/// Bytes that it takes to write a body's length backwards.
#[inline]
fn back_bytes(body: usize) -> usize {
    match body {
        0..=127 => 1,
        128..=16_383 => 2,
        16_384..=2_097_151 => 3,
        2_097_152..=268_435_455 => 4,
        _ => 5,
    }
}

fn encode_back(body: usize, out: &mut [u8]) -> usize {
    let length = back_bytes(body);
    for (place, byte) in out[..length].iter_mut().enumerate() {
        let group = (body >> (7 * (length - 1 - place))) as u8 & 127;
        *byte = if place == 0 { group } else { group | 128 };
    }
    length
}

/// The bytes of an element's encoding and data, if they are all there.
fn checked_body_bytes(bytes: &[u8]) -> Option<usize> {
    let head_bytes = match *bytes.first()? {
        0xE0..=0xEF => 2,
        0xF0 => 5,
        0xF5..=0xFF => return None,
        _ => 1,
    };
    let body = (bytes.len() >= head_bytes).then(|| body_bytes(bytes, 0))?;
    (body <= bytes.len()).then_some(body)
}

fn encode_length(length: usize, head: &mut [u8; 5]) -> usize {
    match length {
        0..=63 => {
            head[0] = 0x80 | length as u8;
            1
        }
        64..=4095 => {
            head[0] = 0xE0 | (length >> 8) as u8;
            head[1] = length as u8;
            2
        }
        _ => {
            head[0] = 0xF0;
            head[1..].copy_from_slice(&(length as u32).to_le_bytes());
            5
        }
    }
}

/// The whole entry of a text that is an integer's; its length.
fn encode_integer(text: &[u8], out: &mut [u8; 16]) -> Option<usize> {
    if text.len() > 20 {
        return None;
    }
    let number = parse_integer(text)?;
    let body = match number {
        0..=127 => {
            out[0] = number as u8;
            1
        }
        -4096..=4095 => {
            let raw = (number & 0x1FFF) as u16;
            out[0] = 0xC0 | (raw >> 8) as u8;
            out[1] = raw as u8;
            2
        }
        _ => {
            let (code, bytes) = match number {
                -32_768..=32_767 => (0xF1, 2),
                -8_388_608..=8_388_607 => (0xF2, 3),
                -2_147_483_648..=2_147_483_647 => (0xF3, 4),
                _ => (0xF4, 8),
            };
            out[0] = code;
            out[1..=bytes].copy_from_slice(&number.to_le_bytes()[..bytes]);
            1 + bytes
        }
    };
    Some(body + encode_back(body, &mut out[body..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            any::<i64>().prop_map(integer_text),
            (-5000i64..5000).prop_map(integer_text),
            prop::collection::vec(any::<u8>(), 0..80),
            prop::collection::vec(any::<u8>(), 4000..4200),
            prop::collection::vec(any::<u8>(), 20_000..20_001),
        ]
    }

    fn texts(pack: &Listpack) -> Vec<Vec<u8>> {
        pack.iter().map(|item| item.to_vec()).collect()
    }

    proptest! {
        #[test]
        fn it_is_a_list(actions in prop::collection::vec((0u8..4, any::<prop::sample::Index>(), text()), 0..60)) {
            let (mut pack, mut model) = (Listpack::default(), Vec::new());
            for (action, place, text) in actions {
                match action {
                    0 | 1 => {
                        let index = place.index(model.len() + 1);
                        let at = if index == model.len() { pack.end() } else { pack.seek(index as i64).unwrap() };
                        pack.insert(at, &text);
                        model.insert(index, text);
                    }
                    2 if !model.is_empty() => {
                        let index = place.index(model.len());
                        pack.remove(pack.seek(index as i64 - model.len() as i64).unwrap());
                        model.remove(index);
                    }
                    3 if !model.is_empty() => {
                        let index = place.index(model.len());
                        let tail = pack.split_off(pack.seek(index as i64).unwrap());
                        prop_assert_eq!(texts(&tail), model.split_off(index));
                        prop_assert_eq!(tail.len(), tail.iter().count());
                    }
                    _ => {}
                }
                prop_assert_eq!(texts(&pack), model.clone());
                prop_assert_eq!(pack.len(), model.len());
                prop_assert_eq!(pack.as_bytes()[..4].to_vec(), (pack.bytes() as u32).to_le_bytes().to_vec());
            }
            let mut backwards = Vec::new();
            let mut at = pack.end();
            while let Some(before) = pack.previous(at) {
                backwards.push(pack.get(before).to_vec());
                at = before;
            }
            model.reverse();
            prop_assert_eq!(backwards, model);
        }
    }

    #[test]
    fn only_listpacks_are_taken() {
        let mut pack = Listpack::default();
        for text in ["5", "hello", "300000", "-1"] {
            pack.push_back(text.as_bytes());
        }
        pack.push_back(&[b'x'; 100]);
        pack.push_back(&[b'x'; 5000]);
        let bytes = pack.as_bytes().to_vec();
        assert_eq!(Listpack::from_bytes(bytes.clone()), Some(pack));
        for at in [0, 4, 7, 8, bytes.len() - 1] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x47;
            assert_eq!(Listpack::from_bytes(damaged), None, "byte {at}");
        }
        (0..bytes.len()).for_each(|end| assert_eq!(Listpack::from_bytes(bytes[..end].to_vec()), None));
    }

    /// From Redis's description of the format.
    #[test]
    fn bytes_are_those_of_redis() {
        let mut pack = Listpack::default();
        for text in ["5", "-1", "hello", "300000"] {
            pack.push_back(text.as_bytes());
        }
        let mut expected = vec![0, 0, 0, 0, 4, 0, 5, 1, 0xDF, 0xFF, 2, 0x85];
        expected.extend_from_slice(b"hello\x06\xF2\xE0\x93\x04\x04\xFF");
        expected[0] = expected.len() as u8;
        assert_eq!(pack.as_bytes(), expected);
    }
}
