//! The libraries that scripts expect beside Lua's own: cjson, bit, cmsgpack, struct.

use mlua::{Lua, Table, Value, Variadic};

/// Tables in tables deeper than this are an error.
const DEPTH_MAX: usize = 1000;

fn failed(text: impl Into<String>) -> mlua::Error {
    mlua::Error::runtime(text.into())
}

/// Whether a table is an array: its largest index, if all keys are indices and it is not mostly holes.
fn array_len(table: &Table) -> Option<usize> {
    let (mut most, mut count) = (0usize, 0usize);
    for pair in table.pairs::<Value, Value>() {
        let (key, _) = pair.ok()?;
        let index = match key {
            Value::Integer(index) => index,
            Value::Number(index) if index.fract() == 0.0 => index as i64,
            _ => return None,
        };
        most = most.max(usize::try_from(index).ok().filter(|index| *index > 0)?);
        count += 1;
    }
    (count > 0 && (most <= 10 || most <= count * 2)).then_some(most)
}

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

fn cjson(lua: &Lua) -> mlua::Result<Table> {
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

/// A number as 32 bits, wrapping.
fn word(number: f64) -> u32 {
    number.rem_euclid(4_294_967_296.0) as u32
}

fn bit(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let signed = |bits: u32| f64::from(bits as i32);
    table.raw_set("tobit", lua.create_function(move |_, number: f64| Ok(signed(word(number))))?)?;
    table.raw_set("bnot", lua.create_function(move |_, number: f64| Ok(signed(!word(number))))?)?;
    table.raw_set("bswap", lua.create_function(move |_, number: f64| Ok(signed(word(number).swap_bytes())))?)?;
    let folds: [(&str, fn(u32, u32) -> u32); 3] =
        [("band", |one, other| one & other), ("bor", |one, other| one | other), ("bxor", |one, other| one ^ other)];
    for (name, fold) in folds {
        let function = lua.create_function(move |_, numbers: Variadic<f64>| {
            let all = numbers.iter().map(|number| word(*number)).reduce(fold);
            all.map(signed).ok_or_else(|| failed("bad argument #1 (number expected, got no value)"))
        })?;
        table.raw_set(name, function)?;
    }
    let shifts: [(&str, fn(u32, u32) -> u32); 5] = [
        ("lshift", |bits, by| bits << by),
        ("rshift", |bits, by| bits >> by),
        ("arshift", |bits, by| (bits as i32 >> by) as u32),
        ("rol", |bits, by| bits.rotate_left(by)),
        ("ror", |bits, by| bits.rotate_right(by)),
    ];
    for (name, shift) in shifts {
        let function =
            lua.create_function(move |_, (number, by): (f64, f64)| Ok(signed(shift(word(number), word(by) & 31))))?;
        table.raw_set(name, function)?;
    }
    let to_hex = lua.create_function(|_, (number, digits): (f64, Option<i64>)| {
        let digits = digits.unwrap_or(8);
        let text = match digits < 0 {
            true => format!("{:08X}", word(number)),
            false => format!("{:08x}", word(number)),
        };
        Ok(text[8 - digits.unsigned_abs().min(8) as usize..].to_owned())
    })?;
    table.raw_set("tohex", to_hex)?;
    Ok(table)
}

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
        Value::Number(number) if number.fract() == 0.0 && number.abs() < 9.2e18 => pack_integer(out, *number as i64),
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
            match array_len(table).filter(|len| *len == count) {
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
        0..=127 | -32..=-1 => out.push(number as u8),
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
            0xDC | 0xDD | 0xDE | 0xDF => {
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

fn cmsgpack(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let pack = lua.create_function(|lua, values: Variadic<Value>| {
        if values.is_empty() {
            return Err(failed("bad argument #0 to 'pack' (MessagePack pack needs input.)"));
        }
        let mut out = Vec::new();
        values.iter().try_for_each(|value| pack_message(value, &mut out, 0))?;
        lua.create_string(out)
    })?;
    let unpack = lua.create_function(|lua, text: mlua::LuaString| {
        let bytes = text.as_bytes();
        let mut message = Message { lua, bytes: &bytes, at: 0 };
        let mut values = Variadic::new();
        while message.at < bytes.len() {
            values.push(message.value(0)?);
        }
        Ok(values)
    })?;
    table.raw_set("pack", pack)?;
    table.raw_set("unpack", unpack)?;
    Ok(table)
}

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

/// The fields of a format, each with whether its bytes are big-endian.
fn fields(format: &[u8]) -> mlua::Result<Vec<(Field, bool)>> {
    let (mut found, mut at, mut is_big) = (Vec::new(), 0, false);
    while at < format.len() {
        let letter = format[at];
        at += 1;
        let begin = at;
        while format.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        let digits = std::str::from_utf8(&format[begin..at]).unwrap_or_default();
        let size = match digits {
            "" => None,
            digits => Some(digits.parse::<usize>().map_err(|_| failed("integral size overflow"))?),
        };
        let integer = |bytes, is_signed| Field::Integer { bytes, is_signed };
        found.push(match letter {
            b'>' => {
                is_big = true;
                continue;
            }
            b'<' | b'=' => {
                is_big = false;
                continue;
            }
            b'!' | b' ' => continue,
            b'b' | b'B' => (integer(1, letter == b'b'), is_big),
            b'h' | b'H' => (integer(2, letter == b'h'), is_big),
            b'i' | b'I' => match size.unwrap_or(4) {
                bytes @ 1..=8 => (integer(bytes, letter == b'i'), is_big),
                bytes => return Err(failed(format!("integral size {bytes} is larger than limit of 32"))),
            },
            b'l' | b'L' | b'T' => (integer(8, letter == b'l'), is_big),
            b'f' => (Field::Float, is_big),
            b'd' | b'n' => (Field::Double, is_big),
            b'c' => match size {
                Some(0) => (Field::Text(None), is_big),
                size => (Field::Text(Some(size.unwrap_or(1))), is_big),
            },
            b's' => (Field::Zero, is_big),
            b'x' => (Field::Skip, is_big),
            other => return Err(failed(format!("invalid format option '{}'", char::from(other)))),
        });
    }
    Ok(found)
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
    for (field, is_big) in fields(&format.as_bytes())? {
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
    for (field, is_big) in fields(&format.as_bytes())? {
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

fn struct_library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("pack", lua.create_function(struct_pack)?)?;
    table.raw_set("unpack", lua.create_function(struct_unpack)?)?;
    let size = lua.create_function(|_, format: mlua::LuaString| {
        fields(&format.as_bytes())?.into_iter().try_fold(0.0, |sum, (field, _)| {
            Ok(sum
                + match field {
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

/// Puts all of them into a table.
pub(super) fn add(lua: &Lua, host: &Table) -> mlua::Result<()> {
    host.raw_set("cjson", cjson(lua)?)?;
    host.raw_set("bit", bit(lua)?)?;
    host.raw_set("cmsgpack", cmsgpack(lua)?)?;
    host.raw_set("struct", struct_library(lua)?)
}
