//! cjson: JSON as lua-cjson reads and writes it.

use std::cell::Cell;
use std::rc::Rc;

use mlua::{Lua, Table, Value, Variadic};

use super::json_settings::{self, Invalid, Settings};
use super::{DEPTH_MAX, failed, function, text_at, wrong};
use crate::hexadecimal;
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

/// What JSON is made of.
enum Token {
    /// `{`, `}`, `[`, `]`, `:` or `,`.
    Sign(u8),
    Text(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    End,
    /// Nothing of these: why.
    Wrong(&'static str),
}

impl Token {
    fn name(&self) -> &'static str {
        match self {
            Self::Sign(b'{') => "T_OBJ_BEGIN",
            Self::Sign(b'}') => "T_OBJ_END",
            Self::Sign(b'[') => "T_ARR_BEGIN",
            Self::Sign(b']') => "T_ARR_END",
            Self::Sign(b':') => "T_COLON",
            Self::Sign(_) => "T_COMMA",
            Self::Text(_) => "T_STRING",
            Self::Number(_) => "T_NUMBER",
            Self::Boolean(_) => "T_BOOLEAN",
            Self::Null => "T_NULL",
            Self::End => "T_END",
            Self::Wrong(why) => why,
        }
    }
}

/// A token, and where it begins; a wrong one: where it goes wrong.
type Placed = (Token, usize);

fn expected<T>(what: &str, (token, at): &Placed) -> mlua::Result<T> {
    Err(failed(format!("Expected {what} but found {} at character {}", token.name(), at + 1)))
}

struct Json<'a> {
    lua: &'a Lua,
    text: &'a [u8],
    at: usize,
    settings: Settings,
}

impl Json<'_> {
    fn token(&mut self) -> Placed {
        let is_space = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        self.at += self.text[self.at..].iter().take_while(is_space).count();
        let (rest, from) = (&self.text[self.at..], self.at);
        let (token, length) = match rest {
            // lua-cjson reads a text of C, which ends where a zero is.
            [] | [0, ..] => (Token::End, 0),
            [sign @ (b'{' | b'}' | b'[' | b']' | b':' | b','), ..] => (Token::Sign(*sign), 1),
            [b'"', ..] => match string(rest) {
                Ok((text, length)) => (Token::Text(text), length),
                Err((why, at)) => return (Token::Wrong(why), from + at),
            },
            [b'-' | b'0'..=b'9', ..] => self.number(rest),
            _ if rest.starts_with(b"true") => (Token::Boolean(true), 4),
            _ if rest.starts_with(b"false") => (Token::Boolean(false), 5),
            _ if rest.starts_with(b"null") => (Token::Null, 4),
            _ if is_invalid_number(rest) && self.settings.decodes_invalid => self.number(rest),
            _ => (Token::Wrong("invalid token"), 0),
        };
        self.at += length;
        (token, from)
    }

    fn number(&self, text: &[u8]) -> (Token, usize) {
        let length = if is_invalid_number(text) && !self.settings.decodes_invalid { 0 } else { number_length(text) };
        let digits = &text[..length];
        let decimal = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        match decimal.or_else(|| hexadecimal::double_or_limit(digits)) {
            Some(number) => (Token::Number(number), length),
            None => (Token::Wrong("invalid number"), 0),
        }
    }

    /// Is in an array or object, which is at this depth.
    fn check_depth(&self, depth: usize) -> mlua::Result<()> {
        match depth as i64 > self.settings.decode_depth_max || depth > DEPTH_MAX {
            true => Err(failed(format!("Found too many nested data structures ({depth}) at character {}", self.at))),
            false => Ok(()),
        }
    }

    /// `depth`: of the arrays and objects around the value, which begins with this token.
    fn value(&mut self, placed: Placed, depth: usize) -> mlua::Result<Value> {
        match placed.0 {
            Token::Sign(b'{') => self.object(depth + 1),
            Token::Sign(b'[') => self.array(depth + 1),
            Token::Text(text) => Ok(Value::String(self.lua.create_string(text)?)),
            Token::Number(number) => Ok(Value::Number(number)),
            Token::Boolean(is_so) => Ok(Value::Boolean(is_so)),
            Token::Null => Ok(Value::NULL),
            _ => expected("value", &placed),
        }
    }

    fn object(&mut self, depth: usize) -> mlua::Result<Value> {
        self.check_depth(depth)?;
        let table = self.lua.create_table()?;
        let mut next = self.token();
        if matches!(next.0, Token::Sign(b'}')) {
            return Ok(Value::Table(table));
        }
        loop {
            let Token::Text(key) = next.0 else { return expected("object key string", &next) };
            next = self.token();
            if !matches!(next.0, Token::Sign(b':')) {
                return expected("colon", &next);
            }
            next = self.token();
            let value = self.value(next, depth)?;
            table.raw_set(self.lua.create_string(key)?, value)?;
            next = self.token();
            match next.0 {
                Token::Sign(b'}') => return Ok(Value::Table(table)),
                Token::Sign(b',') => next = self.token(),
                _ => return expected("comma or object end", &next),
            }
        }
    }

    fn array(&mut self, depth: usize) -> mlua::Result<Value> {
        self.check_depth(depth)?;
        let table = self.lua.create_table()?;
        let mut next = self.token();
        if matches!(next.0, Token::Sign(b']')) {
            return Ok(Value::Table(table));
        }
        let mut place = 1;
        loop {
            let value = self.value(next, depth)?;
            table.raw_set(place, value)?;
            place += 1;
            next = self.token();
            match next.0 {
                Token::Sign(b']') => return Ok(Value::Table(table)),
                Token::Sign(b',') => next = self.token(),
                _ => return expected("comma or array end", &next),
            }
        }
    }
}

/// Whether JSON has no such number, but C has.
fn is_invalid_number(text: &[u8]) -> bool {
    let unsigned = text.strip_prefix(b"-").unwrap_or(text);
    let begins = |word: &[u8]| unsigned.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
    text.starts_with(b"+")
        || begins(b"inf")
        || begins(b"nan")
        || matches!(unsigned, [b'0', b'x' | b'X' | b'0'..=b'9', ..])
}

/// How far C's `strtod` reads.
fn number_length(text: &[u8]) -> usize {
    let count = |from: usize, is_digit: fn(&u8) -> bool| {
        text.get(from..).unwrap_or_default().iter().take_while(|byte| is_digit(byte)).count()
    };
    let sign = |at: usize| usize::from(matches!(text.get(at), Some(b'+' | b'-')));
    let begin = sign(0);
    for word in ["infinity", "inf", "nan"] {
        if text[begin..].get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word.as_bytes())) {
            return begin + word.len();
        }
    }
    let digits = |from: usize, is_digit: fn(&u8) -> bool| {
        let whole = count(from, is_digit);
        let fraction = if text.get(from + whole) == Some(&b'.') { count(from + whole + 1, is_digit) } else { 0 };
        let dot = usize::from(text.get(from + whole) == Some(&b'.'));
        if whole + fraction == 0 { 0 } else { whole + dot + fraction }
    };
    let is_hexadecimal =
        matches!(text[begin..], [b'0', b'x' | b'X', ..]) && digits(begin + 2, u8::is_ascii_hexdigit) > 0;
    let (end, mark) = match is_hexadecimal {
        true => (begin + 2 + digits(begin + 2, u8::is_ascii_hexdigit), b'p'),
        false => (begin + digits(begin, u8::is_ascii_digit), b'e'),
    };
    if end == begin {
        return 0;
    }
    let exponent = end + 1 + sign(end + 1);
    match text.get(end).map(u8::to_ascii_lowercase) == Some(mark) && count(exponent, u8::is_ascii_digit) > 0 {
        true => exponent + count(exponent, u8::is_ascii_digit),
        false => end,
    }
}

/// The string that these bytes begin with, and how many of them it has. Errors: why it is none, and where.
fn string(text: &[u8]) -> Result<(Vec<u8>, usize), (&'static str, usize)> {
    let (mut out, mut at) = (Vec::new(), 1);
    loop {
        match text[at..] {
            [b'"', ..] => return Ok((out, at + 1)),
            [] | [0, ..] => return Err(("unexpected end of string", at)),
            [b'\\', b'u', ref escaped @ ..] => {
                let (letter, length) = unicode(escaped).ok_or(("invalid unicode escape code", at))?;
                out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                at += 2 + length;
            }
            [b'\\', escaped, ..] => {
                out.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'f' => 12,
                    b'"' | b'\\' | b'/' => escaped,
                    _ => return Err(("invalid escape code", at)),
                });
                at += 2;
            }
            [b'\\'] => return Err(("invalid escape code", at)),
            [byte, ..] => {
                out.push(byte);
                at += 1;
            }
        }
    }
}

/// The character of an escape, of one or two units, and how many bytes it has behind its first `\u`.
fn unicode(text: &[u8]) -> Option<(char, usize)> {
    let unit = |at: usize| {
        let digits = text.get(at..at + 4).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let first = unit(0)?;
    if !(0xD800..0xE000).contains(&first) {
        return Some((char::from_u32(first.into())?, 4));
    }
    let second = text[4..].starts_with(b"\\u").then(|| unit(6))??;
    let letter = char::decode_utf16([first, second]).next()?.ok()?;
    Some((letter, 10))
}

pub(super) fn cjson(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let settings = Rc::new(Cell::new(Settings::default()));
    json_settings::add(lua, &table, &settings)?;
    let kept = Rc::clone(&settings);
    let encode = function(lua, move |lua, values: Variadic<Value>| {
        let [value] = &values[..] else { return Err(wrong(1, "encode", "expected 1 argument")) };
        let mut out = Vec::new();
        encode_json(value, &mut out, 0, kept.get())?;
        lua.create_string(out)
    })?;
    let decode = function(lua, move |lua, values: Variadic<Value>| {
        if values.len() != 1 {
            return Err(wrong(1, "decode", "expected 1 argument"));
        }
        let text = text_at(lua, &values, 1, "decode")?;
        let text = text.as_bytes();
        if let [0, _, ..] | [_, 0, ..] = text[..] {
            return Err(failed("JSON parser does not support UTF-16 or UTF-32"));
        }
        let mut json = Json { lua, text: &text, at: 0, settings: settings.get() };
        let first = json.token();
        let value = json.value(first, 0)?;
        let last = json.token();
        match last.0 {
            Token::End => Ok(value),
            _ => expected("the end", &last),
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
