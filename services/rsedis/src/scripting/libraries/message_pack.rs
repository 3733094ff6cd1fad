//! cmsgpack: MessagePack as lua-cmsgpack reads and writes it.

use mlua::{Lua, Table, Value, Variadic};

use super::{DEPTH_MAX, array_len, check_room, failed, function, number_at, text_at};
use crate::number::whole;

fn pack_message(value: &Value, out: &mut Vec<u8>, depth: usize) -> mlua::Result<()> {
    /// cmsgpack gives up silently at this depth.
    const NESTED_MAX: usize = 16;
    let head = |out: &mut Vec<u8>, length: usize, small: (u8, usize), codes: [Option<u8>; 3]| match length {
        length if length < small.1 => out.push(small.0 | length as u8),
        0..=0xFF if codes[0].is_some() => out.extend_from_slice(&[codes[0].unwrap_or(0), length as u8]),
        0..=0xFFFF => {
            out.push(codes[1].unwrap_or(0));
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            out.push(codes[2].unwrap_or(0));
            out.extend_from_slice(&(length as u32).to_be_bytes());
        }
    };
    match value {
        Value::Boolean(is_so) => out.push(if *is_so { 0xC3 } else { 0xC2 }),
        Value::Number(number) if whole(*number) as f64 == *number => pack_integer(out, whole(*number)),
        Value::Integer(number) => pack_integer(out, *number),
        Value::Number(number) => {
            let single = *number as f32;
            if f64::from(single) == *number {
                out.push(0xCA);
                out.extend_from_slice(&single.to_be_bytes());
            } else {
                out.push(0xCB);
                out.extend_from_slice(&number.to_be_bytes());
            }
        }
        Value::String(text) => {
            let text = text.as_bytes();
            head(out, text.len(), (0xA0, 32), [Some(0xD9), Some(0xDA), Some(0xDB)]);
            out.extend_from_slice(&text);
        }
        Value::Table(table) if depth < NESTED_MAX => {
            let count = table.pairs::<Value, Value>().count();
            // An empty one is an array here, where JSON makes an object of it.
            match array_len(table).or((count == 0).then_some(0)).filter(|len| *len == count) {
                Some(len) => {
                    head(out, len, (0x90, 16), [None, Some(0xDC), Some(0xDD)]);
                    for place in 1..=len {
                        pack_message(&table.raw_get(place)?, out, depth + 1)?;
                    }
                }
                None => {
                    head(out, count, (0x80, 16), [None, Some(0xDE), Some(0xDF)]);
                    for pair in table.pairs::<Value, Value>() {
                        let (key, value) = pair?;
                        pack_message(&key, out, depth + 1)?;
                        pack_message(&value, out, depth + 1)?;
                    }
                }
            }
        }
        _ => out.push(0xC0),
    }
    Ok(())
}

fn pack_integer(out: &mut Vec<u8>, number: i64) {
    match number {
        -32..=127 => out.push(number as u8),
        128..=0xFF => out.extend_from_slice(&[0xCC, number as u8]),
        0x100..=0xFFFF => {
            out.push(0xCD);
            out.extend_from_slice(&(number as u16).to_be_bytes());
        }
        0x1_0000..=0xFFFF_FFFF => {
            out.push(0xCE);
            out.extend_from_slice(&(number as u32).to_be_bytes());
        }
        0x1_0000_0000.. => {
            out.push(0xCF);
            out.extend_from_slice(&number.to_be_bytes());
        }
        -128..=-33 => out.extend_from_slice(&[0xD0, number as u8]),
        -32_768..=-129 => {
            out.push(0xD1);
            out.extend_from_slice(&(number as i16).to_be_bytes());
        }
        -2_147_483_648..=-32_769 => {
            out.push(0xD2);
            out.extend_from_slice(&(number as i32).to_be_bytes());
        }
        _ => {
            out.push(0xD3);
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

struct Message<'a> {
    lua: &'a Lua,
    bytes: &'a [u8],
    at: usize,
}

impl Message<'_> {
    fn take<const N: usize>(&mut self) -> mlua::Result<[u8; N]> {
        let piece = self.bytes.get(self.at..self.at + N).and_then(|piece| piece.try_into().ok());
        self.at += N;
        piece.ok_or_else(|| failed("Missing bytes in input."))
    }

    fn string(&mut self, length: usize) -> mlua::Result<Value> {
        let text =
            self.bytes.get(self.at..self.at.saturating_add(length)).ok_or_else(|| failed("Missing bytes in input."))?;
        self.at += length;
        Ok(Value::String(self.lua.create_string(text)?))
    }

    fn array(&mut self, length: usize, depth: usize) -> mlua::Result<Value> {
        let table = self.lua.create_table()?;
        for place in 1..=length {
            let value = self.value(depth + 1)?;
            table.raw_set(place, value)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, length: usize, depth: usize) -> mlua::Result<Value> {
        let table = self.lua.create_table()?;
        for _ in 0..length {
            let key = self.value(depth + 1)?;
            let value = self.value(depth + 1)?;
            if key.is_nil() {
                return Err(failed("Bad data format in input."));
            }
            table.raw_set(key, value)?;
        }
        Ok(Value::Table(table))
    }

    fn value(&mut self, depth: usize) -> mlua::Result<Value> {
        if depth > DEPTH_MAX {
            return Err(failed("Bad data format in input."));
        }
        let number = |number: f64| Ok(Value::Number(number));
        let [head] = self.take()?;
        match head {
            0x00..=0x7F => number(f64::from(head)),
            0x80..=0x8F => self.map(usize::from(head & 15), depth),
            0x90..=0x9F => self.array(usize::from(head & 15), depth),
            0xA0..=0xBF => self.string(usize::from(head & 31)),
            0xC0 => Ok(Value::Nil),
            0xC2 => Ok(Value::Boolean(false)),
            0xC3 => Ok(Value::Boolean(true)),
            0xCA => number(f64::from(f32::from_be_bytes(self.take()?))),
            0xCB => number(f64::from_be_bytes(self.take()?)),
            0xCC => number(f64::from(u8::from_be_bytes(self.take()?))),
            0xCD => number(f64::from(u16::from_be_bytes(self.take()?))),
            0xCE => number(f64::from(u32::from_be_bytes(self.take()?))),
            0xCF => number(u64::from_be_bytes(self.take()?) as f64),
            0xD0 => number(f64::from(i8::from_be_bytes(self.take()?))),
            0xD1 => number(f64::from(i16::from_be_bytes(self.take()?))),
            0xD2 => number(f64::from(i32::from_be_bytes(self.take()?))),
            0xD3 => number(i64::from_be_bytes(self.take()?) as f64),
            0xC4 | 0xD9 => {
                let length = usize::from(u8::from_be_bytes(self.take()?));
                self.string(length)
            }
            0xC5 | 0xDA => {
                let length = usize::from(u16::from_be_bytes(self.take()?));
                self.string(length)
            }
            0xC6 | 0xDB => {
                let length = u32::from_be_bytes(self.take()?) as usize;
                self.string(length)
            }
            0xDC..=0xDF => {
                let length = match head {
                    0xDC | 0xDE => usize::from(u16::from_be_bytes(self.take()?)),
                    _ => u32::from_be_bytes(self.take()?) as usize,
                };
                if head < 0xDE { self.array(length, depth) } else { self.map(length, depth) }
            }
            0xE0..=0xFF => number(f64::from(head as i8)),
            _ => Err(failed("Bad data format in input.")),
        }
    }
}

/// At most so many values from an offset on, and where the next one begins.
fn unpack(lua: &Lua, bytes: &[u8], limit: i64, offset: i64) -> mlua::Result<(Variadic<Value>, usize)> {
    let length = bytes.len();
    let at = usize::try_from(offset)
        .ok()
        .filter(|_| limit >= 0)
        .ok_or_else(|| failed(format!("Invalid request to unpack with offset of {offset} and limit of {length}.")))?;
    if at > length {
        return Err(failed(format!("Start offset {offset} greater than input length {length}.")));
    }
    let mut message = Message { lua, bytes, at };
    let mut values = Variadic::new();
    while message.at < length && (values.len() as i64) < limit {
        check_room(values.len(), "too many return values at once; use unpack_one or unpack_limit instead.")?;
        values.push(message.value(0)?);
    }
    Ok((values, message.at))
}

/// The same with the offset of what follows before the values: -1 where nothing does. Neither limit nor offset: all values alone.
fn unpack_some(lua: &Lua, bytes: &[u8], limit: i64, offset: i64) -> mlua::Result<Variadic<Value>> {
    if limit == 0 && offset == 0 {
        return Ok(unpack(lua, bytes, i64::MAX, 0)?.0);
    }
    let (mut values, next) = unpack(lua, bytes, limit, offset)?;
    values.insert(0, Value::Number(if next == bytes.len() { -1.0 } else { next as f64 }));
    Ok(values)
}

pub(super) fn cmsgpack(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let pack = function(lua, |lua, values: Variadic<Value>| {
        if values.is_empty() {
            return Err(failed("bad argument #0 to 'pack' (MessagePack pack needs input.)"));
        }
        let mut out = Vec::new();
        values.iter().try_for_each(|value| pack_message(value, &mut out, 0))?;
        lua.create_string(out)
    })?;
    let unpack = function(lua, |lua, arguments: Variadic<Value>| {
        Ok(unpack(lua, &text_at(lua, &arguments, 1, "unpack")?.as_bytes(), i64::MAX, 0)?.0)
    })?;
    let offset = |lua: &Lua, arguments: &[Value], place, name| match arguments.get(place - 1) {
        None | Some(Value::Nil) => Ok(0),
        Some(_) => number_at(lua, arguments, place, name).map(whole),
    };
    let unpack_one = function(lua, move |lua, arguments: Variadic<Value>| {
        let text = text_at(lua, &arguments, 1, "unpack_one")?;
        unpack_some(lua, &text.as_bytes(), 1, offset(lua, &arguments, 2, "unpack_one")?)
    })?;
    let unpack_limit = function(lua, move |lua, arguments: Variadic<Value>| {
        let text = text_at(lua, &arguments, 1, "unpack_limit")?;
        let limit = whole(number_at(lua, &arguments, 2, "unpack_limit")?);
        unpack_some(lua, &text.as_bytes(), limit, offset(lua, &arguments, 3, "unpack_limit")?)
    })?;
    table.raw_set("pack", pack)?;
    table.raw_set("unpack", unpack)?;
    table.raw_set("unpack_one", unpack_one)?;
    table.raw_set("unpack_limit", unpack_limit)?;
    table.raw_set("_NAME", "cmsgpack")?;
    table.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    table.raw_set("_COPYRIGHT", "Copyright (C) 2012, Salvatore Sanfilippo")?;
    table.raw_set("_DESCRIPTION", "MessagePack C implementation for Lua")?;
    Ok(table)
}
