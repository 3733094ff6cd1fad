//! struct: numbers and text in bytes by a format, as Ierusalimschy's `struct` for Lua 5.1 has it.

use mlua::{Lua, Table, Value, Variadic};

use super::{check_room, failed};

/// One letter of a format of `struct`.
enum Field {
    Integer {
        bytes: usize,
        is_signed: bool,
    },
    Float,
    Double,
    /// So many bytes; none: as many as there are.
    Text(Option<usize>),
    /// Ends with a zero.
    Zero,
    Skip,
}

/// The fields of a format, each with whether its bytes are big-endian. One after the other: a format may be long, and a field takes more
/// than its letter.
fn fields(format: &[u8]) -> impl Iterator<Item = mlua::Result<(Field, bool)>> + '_ {
    let (mut at, mut is_big) = (0, false);
    std::iter::from_fn(move || next_field(format, &mut at, &mut is_big).transpose())
}

/// The field that begins at an offset, or behind it.
fn next_field(format: &[u8], at: &mut usize, is_big: &mut bool) -> mlua::Result<Option<(Field, bool)>> {
    while let Some(&letter) = format.get(*at) {
        *at += 1;
        let begin = *at;
        while format.get(*at).is_some_and(u8::is_ascii_digit) {
            *at += 1;
        }
        let digits = std::str::from_utf8(&format[begin..*at]).unwrap_or_default();
        let size = match digits {
            "" => None,
            digits => Some(digits.parse::<usize>().map_err(|_| failed("integral size overflow"))?),
        };
        let integer = |bytes, is_signed| Field::Integer { bytes, is_signed };
        let field = match letter {
            b'>' => {
                *is_big = true;
                continue;
            }
            b'<' | b'=' => {
                *is_big = false;
                continue;
            }
            b'!' | b' ' => continue,
            b'b' | b'B' => integer(1, letter == b'b'),
            b'h' | b'H' => integer(2, letter == b'h'),
            b'i' | b'I' => match size.unwrap_or(4) {
                bytes @ 1..=8 => integer(bytes, letter == b'i'),
                bytes => return Err(failed(format!("integral size {bytes} is larger than limit of 32"))),
            },
            b'l' | b'L' | b'T' => integer(8, letter == b'l'),
            b'f' => Field::Float,
            b'd' | b'n' => Field::Double,
            b'c' => match size {
                Some(0) => Field::Text(None),
                size => Field::Text(Some(size.unwrap_or(1))),
            },
            b's' => Field::Zero,
            b'x' => Field::Skip,
            other => return Err(failed(format!("invalid format option '{}'", char::from(other)))),
        };
        return Ok(Some((field, *is_big)));
    }
    Ok(None)
}

fn struct_pack(lua: &Lua, (format, values): (mlua::LuaString, Variadic<Value>)) -> mlua::Result<mlua::LuaString> {
    let mut out = Vec::new();
    let mut values = values.into_iter();
    let mut next = || values.next().ok_or_else(|| failed("bad argument to 'pack' (value expected)"));
    let number = |value: Value| match value {
        Value::Integer(number) => Ok(number as f64),
        Value::Number(number) => Ok(number),
        _ => Err(failed("bad argument to 'pack' (number expected)")),
    };
    for field in fields(&format.as_bytes()) {
        let (field, is_big) = field?;
        let mut push = |bytes: &[u8]| match is_big {
            true => out.extend(bytes.iter().rev()),
            false => out.extend_from_slice(bytes),
        };
        match field {
            Field::Integer { bytes, .. } => push(&(number(next()?)? as i64).to_le_bytes()[..bytes]),
            Field::Float => push(&(number(next()?)? as f32).to_le_bytes()),
            Field::Double => push(&number(next()?)?.to_le_bytes()),
            Field::Skip => out.push(0),
            Field::Text(_) | Field::Zero => {
                let Value::String(text) = next()? else {
                    return Err(failed("bad argument to 'pack' (string expected)"));
                };
                let text = text.as_bytes();
                match field {
                    Field::Text(Some(size)) if text.len() < size => return Err(failed("string too short")),
                    Field::Text(Some(size)) => out.extend_from_slice(&text[..size]),
                    _ => out.extend_from_slice(&text),
                }
                if matches!(field, Field::Zero) {
                    out.push(0);
                }
            }
        }
    }
    lua.create_string(out)
}

fn struct_unpack(
    lua: &Lua,
    (format, text, from): (mlua::LuaString, mlua::LuaString, Option<f64>),
) -> mlua::Result<Variadic<Value>> {
    let text = text.as_bytes();
    let mut at = (from.unwrap_or(1.0) as usize).saturating_sub(1);
    let mut values: Vec<Value> = Vec::new();
    let short = || failed("data string too short");
    for field in fields(&format.as_bytes()) {
        let (field, is_big) = field?;
        check_room(values.len(), "too many results")?;
        let width = match &field {
            Field::Integer { bytes, .. } => *bytes,
            Field::Float => 4,
            Field::Double => 8,
            Field::Skip => 1,
            Field::Text(Some(size)) => *size,
            Field::Text(None) => match values.pop() {
                Some(Value::Number(size)) if size >= 0.0 => size as usize,
                _ => return Err(failed("format 'c0' needs a previous size")),
            },
            Field::Zero => {
                let rest = text.get(at..).ok_or_else(short)?;
                rest.iter().position(|byte| *byte == 0).ok_or_else(|| failed("unfinished string in data"))?
            }
        };
        let piece = text.get(at..at.saturating_add(width)).ok_or_else(short)?;
        at += width;
        let mut bytes = piece.to_vec();
        if is_big && !matches!(field, Field::Text(_) | Field::Zero) {
            bytes.reverse();
        }
        let word = bytes.iter().take(8).rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
        values.push(match field {
            Field::Skip => continue,
            Field::Integer { bytes, is_signed: true } => {
                let unused = 64 - 8 * bytes as u32;
                Value::Number(((word << unused) as i64 >> unused) as f64)
            }
            Field::Integer { .. } => Value::Number(word as f64),
            Field::Float => Value::Number(f64::from(f32::from_bits(word as u32))),
            Field::Double => Value::Number(f64::from_bits(word)),
            Field::Text(_) => Value::String(lua.create_string(piece)?),
            Field::Zero => {
                at += 1;
                Value::String(lua.create_string(piece)?)
            }
        });
    }
    values.push(Value::Number((at + 1) as f64));
    Ok(values.into_iter().collect())
}

pub(super) fn struct_library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("pack", lua.create_function(struct_pack)?)?;
    table.raw_set("unpack", lua.create_function(struct_unpack)?)?;
    let size = lua.create_function(|_, format: mlua::LuaString| {
        fields(&format.as_bytes()).try_fold(0.0, |sum, field| {
            Ok(sum
                + match field?.0 {
                    Field::Integer { bytes, .. } => bytes as f64,
                    Field::Float => 4.0,
                    Field::Double => 8.0,
                    Field::Skip => 1.0,
                    Field::Text(Some(size)) => size as f64,
                    Field::Text(None) | Field::Zero => return Err(failed("variable-size format in 'size'")),
                })
        })
    })?;
    table.raw_set("size", size)?;
    Ok(table)
}
