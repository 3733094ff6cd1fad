//! Walks over protobuf's wire format without decoding more than is asked for, so that what was received can be hashed, stored and
//! forwarded exactly as it came.
//!
//! Promises: any bytes give fields or an error, never a panic; memory is not allocated; the ranges of the fields of a message lie one
//! behind the other and fill it. Source: protobuf.dev, "Encoding".

use std::ops::Range;

/// The highest field number of protobuf.
const FIELD_NUMBER_MAX: u64 = (1 << 29) - 1;

/// Bytes that are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The message ends within a field.
    #[error("byte {0}: the message ends within a field")]
    Truncated(usize),
    /// A varint of more than 64 bits.
    #[error("byte {0}: a varint is longer than 64 bits")]
    Varint(usize),
    /// A field number that protobuf does not have.
    #[error("byte {0}: {1} is no field number")]
    FieldNumber(usize, u64),
    /// A wire type that is not in use any more, or never was.
    #[error("byte {0}: wire type {1} is not accepted")]
    WireType(usize, u8),
    /// A field is of another type, or occurs more often, than it may.
    #[error("field {0} of {1}: {2}")]
    Field(u32, &'static str, &'static str),
}

/// What a field holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Wire type 0.
    Varint(u64),
    /// Wire type 1.
    Fixed64(u64),
    /// Wire type 2: where its content stands in the message.
    Bytes(Range<usize>),
    /// Wire type 5.
    Fixed32(u32),
}

/// One field of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its number.
    pub number: u32,
    /// What it holds.
    pub value: Value,
    /// Where it stands in the message, its tag included.
    pub range: Range<usize>,
}

impl Field {
    /// The content of a field that is bytes, text or a message of `message`.
    pub fn bytes(&self, message: &'static str) -> Result<Range<usize>, WireError> {
        match &self.value {
            Value::Bytes(range) => Ok(range.clone()),
            _ => Err(WireError::Field(self.number, message, "it must be length-delimited (wire type 2)")),
        }
    }

    /// The value of a field that is an integer of `message`.
    pub fn varint(&self, message: &'static str) -> Result<u64, WireError> {
        match self.value {
            Value::Varint(value) => Ok(value),
            _ => Err(WireError::Field(self.number, message, "it must be a varint (wire type 0)")),
        }
    }
}

/// The fields of a message, one by one; ends after the first error.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    /// Of a message with these bytes.
    pub fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn varint(&mut self) -> Result<u64, WireError> {
        let start = self.at;
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let byte = *self.bytes.get(self.at).ok_or(WireError::Truncated(start))?;
            self.at += 1;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if shift == 63 && bits > 1 {
                return Err(WireError::Varint(start));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(WireError::Varint(start))
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let fixed = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<N>());
        let fixed = *fixed.ok_or(WireError::Truncated(self.at))?;
        self.at += N;
        Ok(fixed)
    }

    fn field(&mut self) -> Result<Field, WireError> {
        let start = self.at;
        let tag = self.varint()?;
        let (number, wire_type) = (tag >> 3, (tag & 7) as u8);
        if number == 0 || number > FIELD_NUMBER_MAX {
            return Err(WireError::FieldNumber(start, number));
        }
        let value = match wire_type {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(u64::from_le_bytes(self.fixed()?)),
            2 => {
                let length = self.varint()?;
                let left = (self.bytes.len() - self.at) as u64;
                if length > left {
                    return Err(WireError::Truncated(start));
                }
                let content = self.at..self.at + length as usize;
                self.at = content.end;
                Value::Bytes(content)
            }
            5 => Value::Fixed32(u32::from_le_bytes(self.fixed()?)),
            other => return Err(WireError::WireType(start, other)),
        };
        Ok(Field { number: number as u32, value, range: start..self.at })
    }
}

impl Iterator for Fields<'_> {
    type Item = Result<Field, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.at = self.bytes.len();
        }
        Some(field)
    }
}

/// Keeps a field that may occur once.
pub(crate) fn once<T>(slot: &mut Option<T>, value: T, number: u32, message: &'static str) -> Result<(), WireError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(WireError::Field(number, message, "it occurs twice")),
    }
}

/// Appends a varint.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a length-delimited field.
pub fn put_bytes(out: &mut Vec<u8>, number: u32, content: &[u8]) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

/// How many bytes a varint takes.
pub fn varint_bytes(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn put(out: &mut Vec<u8>, number: u32, value: &(u8, u64, Vec<u8>)) {
        let (wire_type, integer, content) = value;
        put_varint(out, u64::from(number) << 3 | u64::from(*wire_type));
        match wire_type {
            0 => put_varint(out, *integer),
            1 => out.extend(integer.to_le_bytes()),
            2 => {
                put_varint(out, content.len() as u64);
                out.extend(content);
            }
            _ => out.extend((*integer as u32).to_le_bytes()),
        }
    }

    proptest! {
        #[test]
        fn what_was_encoded_comes_back(fields in vec(
            (1_u32..=FIELD_NUMBER_MAX as u32, (prop::sample::select(vec![0_u8, 1, 2, 5]), any::<u64>(), vec(any::<u8>(), 0..200))),
            0..8,
        )) {
            let mut bytes = Vec::new();
            for (number, value) in &fields {
                put(&mut bytes, *number, value);
            }
            let found = Fields::of(&bytes).collect::<Result<Vec<_>, _>>().unwrap();
            prop_assert_eq!(found.len(), fields.len());
            for (found, (number, (wire_type, integer, content))) in found.iter().zip(&fields) {
                prop_assert_eq!(found.number, *number);
                match (&found.value, wire_type) {
                    (Value::Varint(value), 0) | (Value::Fixed64(value), 1) => prop_assert_eq!(value, integer),
                    (Value::Bytes(range), 2) => prop_assert_eq!(&bytes[range.clone()], &content[..]),
                    (Value::Fixed32(value), 5) => prop_assert_eq!(*value, *integer as u32),
                    other => prop_assert!(false, "{other:?}"),
                }
            }
        }

        #[test]
        fn any_bytes_give_fields_that_fill_them_or_an_error(bytes in vec(any::<u8>(), 0..300)) {
            let mut end = 0;
            for field in Fields::of(&bytes) {
                let Ok(field) = field else { return Ok(()) };
                prop_assert_eq!(field.range.start, end);
                prop_assert!(field.range.end > end && field.range.end <= bytes.len());
                end = field.range.end;
            }
            prop_assert_eq!(end, bytes.len());
        }

        #[test]
        fn what_was_cut_short_is_an_error(content in vec(any::<u8>(), 1..100), lost in 1_usize..100) {
            let mut bytes = Vec::new();
            put_bytes(&mut bytes, 1, &content);
            bytes.truncate(bytes.len() - lost.min(content.len()));
            prop_assert_eq!(Fields::of(&bytes).last(), Some(Err(WireError::Truncated(0))));
        }

        #[test]
        fn the_length_of_a_varint_is_known_before(value: u64) {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            prop_assert_eq!(bytes.len(), varint_bytes(value));
        }
    }

    #[test]
    fn hostile_bytes_are_refused_with_their_place() {
        let only = |bytes: &[u8]| Fields::of(bytes).next().unwrap().unwrap_err();
        assert_eq!(only(&[0x02, 0x00]), WireError::FieldNumber(0, 0));
        assert_eq!(only(&[0x0b]), WireError::WireType(0, 3));
        assert_eq!(only(&[0x0f]), WireError::WireType(0, 7));
        assert_eq!(only(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]), WireError::Truncated(0));
        assert_eq!(only(&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]), WireError::Varint(1));
        assert_eq!(only(&[0x80]), WireError::Truncated(0));
    }
}
