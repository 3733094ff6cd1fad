//! struct: numbers and text in bytes by a format, as Ierusalimschy's `struct` for Lua 5.1 has it.

use mlua::{Lua, LuaString, Table, Value, Variadic};

use super::{check_room, failed, function, number_at, text_at, wrong};
use crate::number::whole;

/// Integers have so many bytes at most.
const INTEGER_BYTES_MAX: usize = 32;
/// What `!` alone means.
const ALIGNMENT_MAX: usize = 8;

/// A format, read letter by letter: it may be long, and a letter that is kept takes more than its byte.
struct Format<'a> {
    text: &'a [u8],
    at: usize,
    is_big: bool,
    /// Nothing is aligned to more.
    alignment: usize,
}

impl<'a> Format<'a> {
    fn new(text: &'a [u8]) -> Self {
        let end = memchr::memchr(0, text).unwrap_or(text.len());
        Self { text: &text[..end], at: 0, is_big: false, alignment: 1 }
    }

    fn number_or(&mut self, default: usize) -> mlua::Result<usize> {
        let begin = self.at;
        while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        match std::str::from_utf8(&self.text[begin..self.at]).unwrap_or_default() {
            "" => Ok(default),
            digits => Ok(digits.parse::<i32>().map_err(|_| failed("integral size overflow"))? as usize),
        }
    }

    /// The next letter, and how many bytes it stands for; none where they are not known yet, and where it stands for no field.
    fn next(&mut self) -> mlua::Result<Option<(u8, usize)>> {
        let Some(&letter) = self.text.get(self.at) else { return Ok(None) };
        self.at += 1;
        let size = match letter {
            b'b' | b'B' | b'x' => 1,
            b'h' | b'H' => 2,
            b'f' => 4,
            b'l' | b'L' | b'T' | b'd' => 8,
            b'c' => self.number_or(1)?,
            b'i' | b'I' => match self.number_or(4)? {
                size @ 0..=INTEGER_BYTES_MAX => size,
                size => {
                    let text = format!("integral size {size} is larger than limit of {INTEGER_BYTES_MAX}");
                    return Err(failed(text));
                }
            },
            _ => 0,
        };
        Ok(Some((letter, size)))
    }

    /// How many bytes come before a field that would begin at an offset.
    fn padding(&self, offset: usize, letter: u8, size: usize) -> usize {
        if size == 0 || letter == b'c' {
            return 0;
        }
        let size = size.min(self.alignment);
        (size - (offset & (size - 1))) & (size - 1)
    }

    /// A letter that is no field.
    fn control(&mut self, letter: u8, function: &str) -> mlua::Result<()> {
        match letter {
            b' ' => {}
            b'>' => self.is_big = true,
            b'<' => self.is_big = false,
            b'!' => match self.number_or(ALIGNMENT_MAX)? {
                alignment if alignment.is_power_of_two() => self.alignment = alignment,
                alignment => return Err(failed(format!("alignment {alignment} is not a power of 2"))),
            },
            other => return Err(wrong(1, function, &format!("invalid format option '{}'", char::from(other)))),
        }
        Ok(())
    }
}

/// As C has it on x86, also of what has no place in 64 bits.
fn unsigned(number: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    match number >= HALF {
        true => whole(number - HALF) as u64 ^ 1 << 63,
        false => whole(number) as u64,
    }
}

fn struct_pack(lua: &Lua, mut arguments: Variadic<Value>) -> mlua::Result<LuaString> {
    const NAME: &str = "pack";
    let format = text_at(lua, &arguments, 1, NAME)?;
    // Redis's keeps one behind its arguments, and takes it for a missing one.
    arguments.push(Value::Nil);
    let format = format.as_bytes();
    let mut format = Format::new(&format);
    let mut out = Vec::new();
    let mut place = 1;
    while let Some((letter, size)) = format.next()? {
        out.resize(out.len() + format.padding(out.len(), letter, size), 0);
        let begin = out.len();
        match letter {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                place += 1;
                let bytes = unsigned(number_at(lua, &arguments, place, NAME)?).to_le_bytes();
                out.extend_from_slice(&bytes[..size.min(8)]);
                out.resize(begin + size, 0);
            }
            b'f' => {
                place += 1;
                out.extend_from_slice(&(number_at(lua, &arguments, place, NAME)? as f32).to_le_bytes());
            }
            b'd' => {
                place += 1;
                out.extend_from_slice(&number_at(lua, &arguments, place, NAME)?.to_le_bytes());
            }
            b'x' => out.push(0),
            b'c' | b's' => {
                place += 1;
                let text = text_at(lua, &arguments, place, NAME)?;
                let text = text.as_bytes();
                let size = if size == 0 { text.len() } else { size };
                let text = text.get(..size).ok_or_else(|| wrong(place + 1, NAME, "string too short"))?;
                out.extend_from_slice(text);
                if letter == b's' {
                    out.push(0);
                }
                continue;
            }
            other => format.control(other, NAME)?,
        }
        if format.is_big {
            out[begin..].reverse();
        }
    }
    lua.create_string(out)
}

/// An integer of little-endian bytes; of more than eight the first ones, which is what shifting leaves.
fn integer(bytes: &[u8], is_signed: bool) -> f64 {
    let word = bytes.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
    let mask = u64::MAX.wrapping_shl((bytes.len() as u32 * 8).wrapping_sub(1));
    match (is_signed, word & mask) {
        (false, _) => word as f64,
        (true, 0) => word as i64 as f64,
        (true, _) => (word | mask) as i64 as f64,
    }
}

fn struct_unpack(lua: &Lua, arguments: Variadic<Value>) -> mlua::Result<Variadic<Value>> {
    const NAME: &str = "unpack";
    let format = text_at(lua, &arguments, 1, NAME)?;
    let format = format.as_bytes();
    let mut format = Format::new(&format);
    let text = text_at(lua, &arguments, 2, NAME)?;
    let text = text.as_bytes();
    let from = match arguments.get(2) {
        None | Some(Value::Nil) => 1,
        Some(_) => whole(number_at(lua, &arguments, 3, NAME)?),
    };
    let mut at = (from as usize).checked_sub(1).ok_or_else(|| wrong(3, NAME, "offset must be 1 or greater"))?;
    let mut values: Vec<Value> = Vec::new();
    let piece_at = |at: usize, size: usize| {
        let piece = at.checked_add(size).and_then(|end| text.get(at..end));
        piece.ok_or_else(|| wrong(2, NAME, "data string too short"))
    };
    while let Some((letter, size)) = format.next()? {
        at = at.saturating_add(format.padding(at, letter, size));
        let mut piece = piece_at(at, size)?;
        check_room(values.len(), "too many results")?;
        // Only numbers have an order of bytes; they are short.
        let number = || match format.is_big {
            true => piece.iter().rev().copied().collect(),
            false => piece.to_vec(),
        };
        let mut behind = 0;
        let value = match letter {
            b'b' | b'h' | b'l' | b'i' => Value::Number(integer(&number(), true)),
            b'B' | b'H' | b'L' | b'T' | b'I' => Value::Number(integer(&number(), false)),
            b'f' => {
                let bytes = number().try_into().unwrap_or_default();
                Value::Number(f64::from(f32::from_le_bytes(bytes)))
            }
            b'd' => Value::Number(f64::from_le_bytes(number().try_into().unwrap_or_default())),
            b'c' => {
                if size == 0 {
                    let size = values.pop().map_or(Ok(None), |value| lua.coerce_number(value))?;
                    let size = size.ok_or_else(|| failed("format 'c0' needs a previous size"))?;
                    piece = piece_at(at, unsigned(size) as usize)?;
                }
                Value::String(lua.create_string(piece)?)
            }
            b's' => {
                let rest = &text[at..];
                let end = memchr::memchr(0, rest).ok_or_else(|| failed("unfinished string in data"))?;
                (piece, behind) = (&rest[..end], 1);
                Value::String(lua.create_string(piece)?)
            }
            b'x' => {
                at += size;
                continue;
            }
            other => {
                format.control(other, NAME)?;
                continue;
            }
        };
        at += piece.len() + behind;
        values.push(value);
    }
    values.push(Value::Number((at + 1) as f64));
    Ok(values.into_iter().collect())
}

fn struct_size(lua: &Lua, arguments: Variadic<Value>) -> mlua::Result<f64> {
    const NAME: &str = "size";
    let format = text_at(lua, &arguments, 1, NAME)?;
    let format = format.as_bytes();
    let mut format = Format::new(&format);
    let mut sum = 0usize;
    while let Some((letter, size)) = format.next()? {
        sum += format.padding(sum, letter, size) + size;
        match letter {
            b's' => return Err(wrong(1, NAME, "option 's' has no fixed size")),
            b'c' if size == 0 => return Err(wrong(1, NAME, "option 'c0' has no fixed size")),
            // Letters that are unknown are none here.
            letter if letter.is_ascii_alphanumeric() => {}
            other => format.control(other, NAME)?,
        }
    }
    Ok(sum as f64)
}

pub(super) fn struct_library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("pack", function(lua, struct_pack)?)?;
    table.raw_set("unpack", function(lua, struct_unpack)?)?;
    table.raw_set("size", function(lua, struct_size)?)?;
    Ok(table)
}
