//! JSON to protobuf. From `google.golang.org/protobuf/encoding/protojson`: names as declared or in lower camel case, numbers also as
//! strings, bytes in either base64 alphabet, unknown fields passed over.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::BufMut;
use prost::encoding::{WireType, encode_key, encode_varint};
use serde_json::Value;

use super::schema::{ENUMS, Field, Kind, MESSAGES};

const ANY_PADDING: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, ANY_PADDING);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, ANY_PADDING);

/// What is wrong with a JSON value, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid value for {field} field: {found}")]
pub struct Wrong {
    field: String,
    found: String,
}

impl Wrong {
    fn new(field: &str, found: &Value) -> Self {
        let mut found = found.to_string();
        found.truncate(found.char_indices().nth(60).map_or(found.len(), |(at, _)| at));
        Self { field: field.to_owned(), found }
    }
}

/// A message of this place in [`MESSAGES`], as bytes.
pub fn encode(message: usize, value: &Value, out: &mut Vec<u8>) -> Result<(), Wrong> {
    let Value::Object(members) = value else { return Err(Wrong::new("message", value)) };
    for field in MESSAGES[message].fields {
        let given = [field.name, field.json].into_iter().find_map(|name| members.get(name));
        match given {
            None | Some(Value::Null) => {}
            Some(Value::Array(items)) if field.is_repeated => {
                items.iter().try_for_each(|item| encode_field(field, item, out))?;
            }
            Some(value) if field.is_repeated => return Err(Wrong::new(field.name, value)),
            Some(value) => encode_field(field, value, out)?,
        }
    }
    Ok(())
}

fn encode_field(field: &Field, value: &Value, out: &mut Vec<u8>) -> Result<(), Wrong> {
    let wrong = || Wrong::new(field.name, value);
    let varint = |number: u64, out: &mut Vec<u8>| {
        encode_key(field.number, WireType::Varint, out);
        encode_varint(number, out);
    };
    let delimited = |bytes: &[u8], out: &mut Vec<u8>| {
        encode_key(field.number, WireType::LengthDelimited, out);
        encode_varint(bytes.len() as u64, out);
        out.put_slice(bytes);
    };
    match field.kind {
        Kind::Int64 => varint(integer(value).and_then(|n| i64::try_from(n).ok()).ok_or_else(wrong)? as u64, out),
        Kind::Uint64 => varint(integer(value).and_then(|n| u64::try_from(n).ok()).ok_or_else(wrong)?, out),
        Kind::Uint32 => {
            varint(integer(value).and_then(|n| u32::try_from(n).ok()).ok_or_else(wrong)?.into(), out);
        }
        Kind::Bool => varint(value.as_bool().ok_or_else(wrong)?.into(), out),
        Kind::Enum(place) => match named(place, value) {
            Some(number) => varint(i64::from(number) as u64, out),
            // A name that is unknown is passed over like a field that is.
            None if value.is_string() => {}
            None => return Err(wrong()),
        },
        Kind::String => delimited(value.as_str().ok_or_else(wrong)?.as_bytes(), out),
        Kind::Bytes => {
            let text = value.as_str().ok_or_else(wrong)?;
            let engine = if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
            delimited(&engine.decode(text).map_err(|_| wrong())?, out);
        }
        Kind::Message(place) => {
            let mut inner = Vec::new();
            encode(place, value, &mut inner)?;
            delimited(&inner, out);
        }
    }
    Ok(())
}

/// A whole number, or one written as a string.
fn integer(value: &Value) -> Option<i128> {
    let number = match value {
        Value::Number(number) => number.clone(),
        Value::String(text) => text.parse::<serde_json::Number>().ok()?,
        _ => return None,
    };
    if let Some(number) = number.as_i64() {
        return Some(number.into());
    }
    if let Some(number) = number.as_u64() {
        return Some(number.into());
    }
    let number = number.as_f64()?;
    // Beyond this, a number of this kind is not what was written.
    (number.fract() == 0.0 && number.abs() < (1_i64 << 53) as f64).then_some(number as i128)
}

fn named(place: usize, value: &Value) -> Option<i32> {
    match value {
        Value::String(name) => ENUMS[place].iter().find(|(known, _)| known == name).map(|(_, number)| *number),
        _ => integer(value).and_then(|number| i32::try_from(number).ok()),
    }
}
