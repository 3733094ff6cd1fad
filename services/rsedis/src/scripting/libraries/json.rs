//! cjson: JSON as lua-cjson reads and writes it.

use mlua::{Lua, Table, Value};

use super::{DEPTH_MAX, array_len, failed};

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

/// `%.14g`.
fn json_number(number: f64) -> mlua::Result<String> {
    if !number.is_finite() {
        return Err(failed("Cannot serialise number: must not be NaN or Inf"));
    }
    let scientific = format!("{number:.13e}");
    let exponent: i32 = scientific.rsplit('e').next().and_then(|text| text.parse().ok()).unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    Ok(if (-4..14).contains(&exponent) {
        trim(&format!("{number:.*}", (13 - exponent).max(0) as usize))
    } else {
        let mantissa = trim(scientific.split('e').next().unwrap_or_default());
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{mantissa}e{sign}{:02}", exponent.abs())
    })
}

fn encode_json(value: &Value, out: &mut Vec<u8>, depth: usize) -> mlua::Result<()> {
    if depth > DEPTH_MAX {
        return Err(failed("Cannot serialise, excessive depth (1001)"));
    }
    match value {
        Value::Nil => out.extend_from_slice(b"null"),
        Value::LightUserData(pointer) if pointer.0.is_null() => out.extend_from_slice(b"null"),
        Value::Boolean(is_so) => out.extend_from_slice(if *is_so { b"true" } else { b"false" }),
        Value::Integer(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Value::Number(number) => out.extend_from_slice(json_number(*number)?.as_bytes()),
        Value::String(text) => push_json_string(out, &text.as_bytes()),
        Value::Table(table) => match array_len(table) {
            Some(len) => {
                out.push(b'[');
                for place in 1..=len {
                    if place > 1 {
                        out.push(b',');
                    }
                    encode_json(&table.raw_get(place)?, out, depth + 1)?;
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
                        Value::Number(number) => push_json_string(out, json_number(number)?.as_bytes()),
                        Value::Integer(number) => push_json_string(out, number.to_string().as_bytes()),
                        _ => return Err(failed("Cannot serialise table: table key must be a number or string")),
                    }
                    out.push(b':');
                    encode_json(&value, out, depth + 1)?;
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

    fn value(&mut self, depth: usize) -> mlua::Result<Value> {
        if depth > DEPTH_MAX {
            return Err(failed(format!("Found too many nested data structures ({depth})")));
        }
        self.space();
        match self.text.get(self.at) {
            Some(b'{') => {
                self.at += 1;
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
                self.at += 1;
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
            Some(b'n') => self.word("null", Value::NULL),
            Some(b'-' | b'0'..=b'9') => {
                let begin = self.at;
                while matches!(self.text.get(self.at), Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')) {
                    self.at += 1;
                }
                let number = std::str::from_utf8(&self.text[begin..self.at]).ok().and_then(|text| text.parse().ok());
                match number {
                    Some(number) => Ok(Value::Number(number)),
                    None => self.expected("value"),
                }
            }
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
    let encode = lua.create_function(|lua, value: Value| {
        let mut out = Vec::new();
        encode_json(&value, &mut out, 0)?;
        lua.create_string(out)
    })?;
    let decode = lua.create_function(|lua, text: mlua::LuaString| {
        let text = text.as_bytes();
        let mut json = Json { lua, text: &text, at: 0 };
        let value = json.value(0)?;
        json.space();
        match json.at == text.len() {
            true => Ok(value),
            false => json.expected("the end"),
        }
    })?;
    table.raw_set("encode", encode)?;
    table.raw_set("decode", decode)?;
    table.raw_set("null", Value::NULL)?;
    Ok(table)
}
