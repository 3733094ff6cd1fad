//! cjson: JSON as lua-cjson reads and writes it.

use std::cell::Cell;
use std::rc::Rc;

use mlua::{Lua, Table, Value};

use super::json_settings::{self, Invalid, Settings};
use super::{DEPTH_MAX, failed};
use crate::number::general_text;

fn push_json_string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for &byte in text {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'/' => out.extend_from_slice(b"\\/"),
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..32 | 127 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// `%.14g`, or with fewer digits.
fn json_number(number: f64, settings: Settings) -> mlua::Result<String> {
    if !number.is_finite() {
        return match settings.encode_invalid {
            Invalid::Refused => Err(failed("Cannot serialise number: must not be NaN or Inf")),
            Invalid::Null => Ok("null".to_owned()),
            Invalid::Written if number.is_nan() => Ok("nan".to_owned()),
            Invalid::Written => Ok(if number > 0.0 { "inf" } else { "-inf" }.to_owned()),
        };
    }
    let is_short = number.fract() == 0.0 && number.abs() < 1e14 && (number != 0.0 || number.is_sign_positive());
    if is_short && settings.precision == 14 {
        return Ok((number as i64).to_string());
    }
    Ok(general_text(number, settings.precision as usize))
}

/// How long a table is as an array; nothing: it is an object.
fn array_length(table: &Table, settings: Settings) -> mlua::Result<Option<i64>> {
    let (mut most, mut count) = (0i64, 0i64);
    for pair in table.pairs::<Value, Value>() {
        let (key, _) = pair?;
        let index = match key {
            Value::Integer(index) => index,
            Value::Number(index) if index.fract() == 0.0 => index as i64,
            _ => return Ok(None),
        };
        if index < 1 {
            return Ok(None);
        }
        most = most.max(index);
        count += 1;
    }
    let Settings { sparse_ratio: ratio, sparse_safe: safe, .. } = settings;
    if ratio > 0 && most > count.saturating_mul(ratio) && most > safe {
        return match settings.sparse_as_object {
            true => Ok(None),
            false => Err(failed("Cannot serialise table: excessively sparse array")),
        };
    }
    Ok((count > 0).then_some(most))
}

fn check_encode_depth(depth: usize, settings: Settings) -> mlua::Result<()> {
    match depth as i64 > settings.encode_depth_max || depth > DEPTH_MAX {
        true => Err(failed(format!("Cannot serialise, excessive nesting ({depth})"))),
        false => Ok(()),
    }
}

/// `depth`: of the tables around the value.
fn encode_json(value: &Value, out: &mut Vec<u8>, depth: usize, settings: Settings) -> mlua::Result<()> {
    let number = |number: f64| json_number(number, settings);
    if matches!(value, Value::Table(_)) {
        check_encode_depth(depth + 1, settings)?;
    }
    match value {
        Value::Nil => out.extend_from_slice(b"null"),
        Value::LightUserData(pointer) if pointer.0.is_null() => out.extend_from_slice(b"null"),
        Value::Boolean(is_so) => out.extend_from_slice(if *is_so { b"true" } else { b"false" }),
        Value::Integer(whole) => out.extend_from_slice(number(*whole as f64)?.as_bytes()),
        Value::Number(value) => out.extend_from_slice(number(*value)?.as_bytes()),
        Value::String(text) => push_json_string(out, &text.as_bytes()),
        Value::Table(table) => match array_length(table, settings)? {
            Some(len) => {
                out.push(b'[');
                for place in 1..=len {
                    if place > 1 {
                        out.push(b',');
                    }
                    encode_json(&table.raw_get(place)?, out, depth + 1, settings)?;
                }
                out.push(b']');
            }
            None => {
                out.push(b'{');
                for (place, pair) in table.pairs::<Value, Value>().enumerate() {
                    let (key, value) = pair?;
                    if place > 0 {
                        out.push(b',');
                    }
                    match key {
                        Value::String(text) => push_json_string(out, &text.as_bytes()),
                        Value::Number(key) => push_json_string(out, number(key)?.as_bytes()),
                        Value::Integer(key) => push_json_string(out, number(key as f64)?.as_bytes()),
                        other => {
                            let kind = other.type_name();
                            return Err(failed(format!(
                                "Cannot serialise {kind}: table key must be a number or string"
                            )));
                        }
                    }
                    out.push(b':');
                    encode_json(&value, out, depth + 1, settings)?;
                }
                out.push(b'}');
            }
        },
        other => return Err(failed(format!("Cannot serialise {}: type not supported", other.type_name()))),
    }
    Ok(())
}

struct Json<'a> {
    lua: &'a Lua,
    text: &'a [u8],
    at: usize,
    settings: Settings,
}

impl Json<'_> {
    fn space(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn expected<T>(&self, what: &str) -> mlua::Result<T> {
        let found = if self.at >= self.text.len() { "T_END" } else { "invalid token" };
        Err(failed(format!("Expected {what} but found {found} at character {}", self.at + 1)))
    }

    fn word(&mut self, word: &str, value: Value) -> mlua::Result<Value> {
        if self.text[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            return Ok(value);
        }
        self.expected("value")
    }

    /// Steps into an array or object, which is at this depth.
    fn descend(&mut self, depth: usize) -> mlua::Result<()> {
        self.at += 1;
        match depth as i64 > self.settings.decode_depth_max || depth > DEPTH_MAX {
            true => Err(failed(format!("Found too many nested data structures ({depth}) at character {}", self.at))),
            false => Ok(()),
        }
    }

    /// A number, or what C's `strtod` takes for one.
    fn number(&mut self) -> mlua::Result<Value> {
        let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
        let length = self.text[self.at..].iter().take_while(is_part).count();
        let text = String::from_utf8_lossy(&self.text[self.at..self.at + length]).to_ascii_lowercase();
        if text.starts_with(['i', 'n']) && !text.starts_with("inf") && !text.starts_with("nan") {
            return self.expected("value");
        }
        let unsigned = text.trim_start_matches('-');
        let is_invalid = text.starts_with('+')
            || unsigned.starts_with(['i', 'n'])
            || unsigned
                .strip_prefix('0')
                .is_some_and(|rest| rest.starts_with(|next: char| next == 'x' || next.is_ascii_digit()));
        let number = match unsigned.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok().map(|number| number as f64),
            None => text.parse::<f64>().ok(),
        };
        match number.filter(|_| !is_invalid || self.settings.decodes_invalid) {
            Some(number) => {
                self.at += length;
                let is_negative = text.starts_with("-0x");
                Ok(Value::Number(if is_negative { -number } else { number }))
            }
            None => Err(failed(format!("Expected value but found invalid number at character {}", self.at + 1))),
        }
    }

    /// `depth`: of the arrays and objects around the value.
    fn value(&mut self, depth: usize) -> mlua::Result<Value> {
        self.space();
        match self.text.get(self.at) {
            Some(b'{') => {
                self.descend(depth + 1)?;
                let table = self.lua.create_table()?;
                self.space();
                if self.text.get(self.at) == Some(&b'}') {
                    self.at += 1;
                    return Ok(Value::Table(table));
                }
                loop {
                    self.space();
                    let key = self.string()?;
                    self.space();
                    if self.text.get(self.at) != Some(&b':') {
                        return self.expected("colon");
                    }
                    self.at += 1;
                    let value = self.value(depth + 1)?;
                    table.raw_set(self.lua.create_string(key)?, value)?;
                    self.space();
                    match self.text.get(self.at) {
                        Some(b',') => self.at += 1,
                        Some(b'}') => {
                            self.at += 1;
                            return Ok(Value::Table(table));
                        }
                        _ => return self.expected("comma or object end"),
                    }
                }
            }
            Some(b'[') => {
                self.descend(depth + 1)?;
                let table = self.lua.create_table()?;
                self.space();
                if self.text.get(self.at) == Some(&b']') {
                    self.at += 1;
                    return Ok(Value::Table(table));
                }
                for place in 1.. {
                    let value = self.value(depth + 1)?;
                    table.raw_set(place, value)?;
                    self.space();
                    match self.text.get(self.at) {
                        Some(b',') => self.at += 1,
                        Some(b']') => break,
                        _ => return self.expected("comma or array end"),
                    }
                }
                self.at += 1;
                Ok(Value::Table(table))
            }
            Some(b'"') => {
                let text = self.string()?;
                Ok(Value::String(self.lua.create_string(text)?))
            }
            Some(b't') => self.word("true", Value::Boolean(true)),
            Some(b'f') => self.word("false", Value::Boolean(false)),
            Some(b'n') if self.text[self.at..].starts_with(b"null") => self.word("null", Value::NULL),
            Some(b'-' | b'+' | b'0'..=b'9' | b'i' | b'I' | b'n' | b'N') => self.number(),
            _ => self.expected("value"),
        }
    }

    fn string(&mut self) -> mlua::Result<Vec<u8>> {
        if self.text.get(self.at) != Some(&b'"') {
            return self.expected("object key string");
        }
        self.at += 1;
        let mut out = Vec::new();
        loop {
            match self.text.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    let escaped = self.text.get(self.at + 1).copied();
                    self.at += 2;
                    match escaped {
                        Some(b'n') => out.push(b'\n'),
                        Some(b'r') => out.push(b'\r'),
                        Some(b't') => out.push(b'\t'),
                        Some(b'b') => out.push(8),
                        Some(b'f') => out.push(12),
                        Some(byte @ (b'"' | b'\\' | b'/')) => out.push(byte),
                        Some(b'u') => self.unicode(&mut out)?,
                        _ => return self.expected("escape"),
                    }
                }
                Some(0..32) | None => return self.expected("string end"),
                Some(byte) => {
                    out.push(*byte);
                    self.at += 1;
                }
            }
        }
    }

    fn unit(&mut self) -> mlua::Result<u16> {
        let digits = self.text.get(self.at..self.at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u16::from_str_radix(digits, 16).ok()) {
            Some(unit) => {
                self.at += 4;
                Ok(unit)
            }
            None => self.expected("unicode escape"),
        }
    }

    fn unicode(&mut self, out: &mut Vec<u8>) -> mlua::Result<()> {
        let mut units = vec![self.unit()?];
        if (0xD800..0xDC00).contains(&units[0]) && self.text[self.at..].starts_with(b"\\u") {
            self.at += 2;
            units.push(self.unit()?);
        }
        for letter in char::decode_utf16(units) {
            let mut bytes = [0; 4];
            let letter = letter.map_err(|_| failed("invalid unicode escape"))?;
            out.extend_from_slice(letter.encode_utf8(&mut bytes).as_bytes());
        }
        Ok(())
    }
}

pub(super) fn cjson(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let settings = Rc::new(Cell::new(Settings::default()));
    json_settings::add(lua, &table, &settings)?;
    let kept = Rc::clone(&settings);
    let encode = lua.create_function(move |lua, value: Value| {
        let mut out = Vec::new();
        encode_json(&value, &mut out, 0, kept.get())?;
        lua.create_string(out)
    })?;
    let decode = lua.create_function(move |lua, text: mlua::LuaString| {
        let text = text.as_bytes();
        let mut json = Json { lua, text: &text, at: 0, settings: settings.get() };
        let value = json.value(0)?;
        json.space();
        match json.at == text.len() {
            true => Ok(value),
            false => json.expected("the end"),
        }
    })?;
    table.raw_set("encode", encode)?;
    table.raw_set("decode", decode)?;
    // With settings of its own.
    table.raw_set("new", lua.create_function(|lua, ()| cjson(lua))?)?;
    table.raw_set("null", Value::NULL)?;
    table.raw_set("_NAME", "cjson")?;
    table.raw_set("_VERSION", "2.1.0")?;
    Ok(table)
}
