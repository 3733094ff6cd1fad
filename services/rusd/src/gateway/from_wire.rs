//! Protobuf to JSON. From `google.golang.org/protobuf/encoding/protojson` with `UseProtoNames`: what has its default value is left
//! out, 64-bit numbers and bytes are strings.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Buf;
use prost::encoding::{WireType, decode_key, decode_varint};

use super::schema::{ENUMS, Field, Kind, MESSAGES};

/// Messages lie in each other no deeper: transactions are bounded when they come in.
const DEPTH_MAX: usize = 128;

/// The bytes are not such a message. They are our own, so that this does not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message cannot be read")]
pub struct Malformed;

/// A message of this place in [`MESSAGES`], as JSON.
pub fn decode(message: usize, bytes: &[u8], out: &mut String) -> Result<(), Malformed> {
    write_message(message, bytes, DEPTH_MAX, out)
}

/// A value as it is on the wire.
enum Raw<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn write_message(message: usize, mut bytes: &[u8], depth: usize, out: &mut String) -> Result<(), Malformed> {
    let depth = depth.checked_sub(1).ok_or(Malformed)?;
    let fields = MESSAGES[message].fields;
    let mut values: Vec<Vec<Raw<'_>>> = Vec::new();
    values.resize_with(fields.len(), Vec::new);
    while !bytes.is_empty() {
        let (number, kind) = decode_key(&mut bytes).map_err(|_| Malformed)?;
        let value = match kind {
            WireType::Varint => Raw::Number(decode_varint(&mut bytes).map_err(|_| Malformed)?),
            WireType::LengthDelimited => Raw::Bytes(take(&mut bytes)?),
            _ => return Err(Malformed),
        };
        if let Some(place) = fields.iter().position(|field| field.number == number) {
            values[place].push(value);
        }
    }
    out.push('{');
    let mut separator = "";
    for (field, values) in fields.iter().zip(&values) {
        let Some(last) = values.last() else { continue };
        // A String takes everything.
        let _ = write!(out, "{separator}\"{}\":", field.name);
        separator = ",";
        if field.is_repeated {
            write_list(field, values, depth, out)?;
        } else {
            write_value(field.kind, last, depth, out)?;
        }
    }
    out.push('}');
    Ok(())
}

fn take<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let length = decode_varint(bytes).map_err(|_| Malformed)?;
    let (taken, rest) =
        usize::try_from(length).ok().and_then(|length| bytes.split_at_checked(length)).ok_or(Malformed)?;
    *bytes = rest;
    Ok(taken)
}

fn write_list(field: &Field, values: &[Raw<'_>], depth: usize, out: &mut String) -> Result<(), Malformed> {
    let is_number = !matches!(field.kind, Kind::String | Kind::Bytes | Kind::Message(_));
    out.push('[');
    let mut separator = "";
    for value in values {
        match value {
            // Numbers lie close together.
            Raw::Bytes(packed) if is_number => {
                let mut packed = *packed;
                while packed.has_remaining() {
                    let number = decode_varint(&mut packed).map_err(|_| Malformed)?;
                    out.push_str(separator);
                    write_value(field.kind, &Raw::Number(number), depth, out)?;
                    separator = ",";
                }
            }
            value => {
                out.push_str(separator);
                write_value(field.kind, value, depth, out)?;
                separator = ",";
            }
        }
    }
    out.push(']');
    Ok(())
}

fn write_value(kind: Kind, value: &Raw<'_>, depth: usize, out: &mut String) -> Result<(), Malformed> {
    let _ = match (kind, value) {
        (Kind::Int64, Raw::Number(number)) => write!(out, "\"{}\"", *number as i64),
        (Kind::Uint64, Raw::Number(number)) => write!(out, "\"{number}\""),
        (Kind::Uint32, Raw::Number(number)) => write!(out, "{}", *number as u32),
        (Kind::Bool, Raw::Number(number)) => write!(out, "{}", *number != 0),
        (Kind::Enum(place), Raw::Number(number)) => {
            let number = *number as i32;
            match ENUMS[place].iter().find(|(_, known)| *known == number) {
                Some((name, _)) => write!(out, "\"{name}\""),
                None => write!(out, "{number}"),
            }
        }
        (Kind::String, Raw::Bytes(text)) => {
            write!(out, "{}", serde_json::Value::from(String::from_utf8_lossy(text).as_ref()))
        }
        (Kind::Bytes, Raw::Bytes(bytes)) => {
            out.push('"');
            STANDARD.encode_string(bytes, out);
            out.push('"');
            Ok(())
        }
        (Kind::Message(place), Raw::Bytes(bytes)) => return write_message(place, bytes, depth, out),
        _ => return Err(Malformed),
    };
    Ok(())
}
