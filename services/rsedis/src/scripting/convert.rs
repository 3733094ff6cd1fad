//! Replies as Lua's values, and back.

use mlua::{Function, Lua, Table, Value};

use super::problem::{error_table, without_dashes};
use crate::number::{parse_double, parse_integer, whole};
use crate::protocol::Reply;

/// Tables in tables may be so deep that what is kept of them comes to this. Lua has room for some more values that Rust holds.
const KEPT_MAX: usize = 7_000;

fn line(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let end = at + bytes.get(at..)?.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&bytes[at..end], end + 2))
}

/// The reply that begins at an offset, and where the next one begins.
pub(super) fn to_lua(lua: &Lua, bytes: &[u8], at: usize) -> mlua::Result<(Value, usize)> {
    let broken = || mlua::Error::runtime("a reply that ends too early");
    let (head, next) = line(bytes, at).ok_or_else(broken)?;
    let (&kind, text) = head.split_first().ok_or_else(broken)?;
    let single = |name: &str, value: Value| -> mlua::Result<Value> {
        let table = lua.create_table()?;
        table.raw_set(name, value)?;
        Ok(Value::Table(table))
    };
    let length = || parse_integer(text).unwrap_or(-1);
    Ok(match kind {
        b'+' => (single("ok", Value::String(lua.create_string(text)?))?, next),
        b'-' => (Value::Table(error_table(lua, text)?), next),
        b':' => (Value::Number(parse_integer(text).unwrap_or(0) as f64), next),
        b',' => (single("double", Value::Number(parse_double(text).unwrap_or(0.0)))?, next),
        b'#' => (Value::Boolean(text == b"t"), next),
        b'_' => (Value::Nil, next),
        b'(' => (single("big_number", Value::String(lua.create_string(text)?))?, next),
        b'$' | b'=' if length() >= 0 => {
            let end = next + length() as usize;
            let body = bytes.get(next..end).ok_or_else(broken)?;
            let value = match kind {
                b'=' => {
                    let table = lua.create_table()?;
                    table.raw_set("format", lua.create_string(&body[..3.min(body.len())])?)?;
                    table.raw_set("string", lua.create_string(body.get(4..).unwrap_or_default())?)?;
                    single("verbatim_string", Value::Table(table))?
                }
                _ => Value::String(lua.create_string(body)?),
            };
            (value, end + 2)
        }
        // What is told beside a reply is not for scripts.
        b'|' => {
            let mut at = next;
            for _ in 0..length().saturating_mul(2) {
                at = to_lua(lua, bytes, at)?.1;
            }
            to_lua(lua, bytes, at)?
        }
        b'*' | b'>' if length() >= 0 => {
            let (table, mut at) = (lua.create_table()?, next);
            for place in 1..=length() {
                let (value, behind) = to_lua(lua, bytes, at)?;
                table.raw_set(place, value)?;
                at = behind;
            }
            (Value::Table(table), at)
        }
        b'%' | b'~' => {
            let (table, mut at) = (lua.create_table()?, next);
            for _ in 0..length() {
                let (key, behind) = to_lua(lua, bytes, at)?;
                let (value, behind) = match kind {
                    b'%' => to_lua(lua, bytes, behind)?,
                    _ => (Value::Boolean(true), behind),
                };
                table.raw_set(key, value)?;
                at = behind;
            }
            (single(if kind == b'%' { "map" } else { "set" }, Value::Table(table))?, at)
        }
        // No string, no array.
        _ => (Value::Boolean(false), next),
    })
}

/// What the elements of a table are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Array,
    /// Of pairs.
    Map,
    /// Of keys.
    Set,
}

impl Kind {
    /// Values that are kept of one of these.
    fn kept(self) -> usize {
        if self == Self::Array { 1 } else { 3 }
    }

    fn head(self) -> fn(&mut Reply, usize) {
        match self {
            Self::Array => Reply::array,
            Self::Map => Reply::map,
            Self::Set => Reply::set,
        }
    }
}

/// A table whose elements are being written. Each is written before the next is taken: Lua has no room for all of them at once.
struct Open {
    table: Table,
    kind: Kind,
    /// The number of its head among all.
    head: usize,
    /// Its elements so far.
    count: usize,
    /// The last key, but of an array.
    key: Value,
    /// The value of that key, where it is yet to be written.
    value: Option<Value>,
}

impl Open {
    /// The next value that is to be written.
    fn next(&mut self, next: &Function) -> mlua::Result<Option<Value>> {
        if let Some(value) = self.value.take() {
            return Ok(Some(value));
        }
        if self.kind == Kind::Array {
            let value = self.table.raw_get::<Value>(self.count + 1)?;
            self.count += usize::from(!value.is_nil());
            return Ok(Some(value).filter(|value| !value.is_nil()));
        }
        let (key, value): (Value, Value) = next.call((&self.table, &self.key))?;
        if key.is_nil() {
            return Ok(None);
        }
        self.count += 1;
        self.value = Some(value).filter(|_| self.kind == Kind::Map);
        self.key = key.clone();
        Ok(Some(key))
    }
}

/// Writes what a table stands for, unless it has elements.
fn begin_table(table: Table, reply: &mut Reply) -> mlua::Result<Option<(Table, Kind)>> {
    let field = |name: &str| table.raw_get::<Value>(name);
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        _ => None,
    };
    if let Some(error) = text(&field("err")?) {
        reply.error(without_dashes(&error));
        return Ok(None);
    }
    if let Some(status) = text(&field("ok")?) {
        let on_one_line = status.into_iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte });
        reply.simple(on_one_line.collect::<Vec<u8>>());
        return Ok(None);
    }
    // Lua tells a whole number from others.
    let double = match field("double")? {
        Value::Integer(number) => Some(number as f64),
        Value::Number(number) => Some(number),
        _ => None,
    };
    if let Some(number) = double {
        reply.double(number);
        return Ok(None);
    }
    if let Value::Table(map) = field("map")? {
        return Ok(Some((map, Kind::Map)));
    }
    if let Value::Table(set) = field("set")? {
        return Ok(Some((set, Kind::Set)));
    }
    if let Some(number) = text(&field("big_number")?) {
        // A script may call anything a number: it must not end its line.
        let number: Vec<u8> = number.into_iter().map(|byte| if byte < b' ' { b' ' } else { byte }).collect();
        match reply.is_resp3 {
            true => {
                reply.bytes.push(b'(');
                reply.bytes.extend_from_slice(&number);
                reply.bytes.extend_from_slice(b"\r\n");
            }
            false => reply.bulk(&number),
        }
        return Ok(None);
    }
    if let Value::Table(verbatim) = field("verbatim_string")?
        && let Ok(Value::String(body)) = verbatim.raw_get("string")
    {
        match (reply.is_resp3, verbatim.raw_get::<Value>("format")) {
            (true, Ok(Value::String(format))) => {
                let bytes = [&format.as_bytes()[..], b":", &body.as_bytes()[..]].concat();
                reply.bytes.push(b'=');
                crate::number::push_integer(&mut reply.bytes, bytes.len() as i64);
                reply.bytes.extend_from_slice(b"\r\n");
                reply.bytes.extend_from_slice(&bytes);
                reply.bytes.extend_from_slice(b"\r\n");
            }
            _ => reply.bulk(&body.as_bytes()),
        }
        return Ok(None);
    }
    Ok(Some((table, Kind::Array)))
}

/// Writes a value, unless it is a table with elements.
fn begin(value: Value, reply: &mut Reply, is_resp3: bool) -> mlua::Result<Option<(Table, Kind)>> {
    match value {
        Value::String(text) => reply.bulk(&text.as_bytes()),
        Value::Integer(number) => reply.integer(number),
        Value::Number(number) => reply.integer(whole(number)),
        Value::Boolean(is_so) if is_resp3 => reply.boolean(is_so),
        Value::Boolean(true) => reply.integer(1),
        Value::Table(table) => return begin_table(table, reply),
        _ => reply.null(),
    }
    Ok(None)
}

/// What a script returned, as its client's reply; nothing of it, if that fails. `is_resp3`: the script has said `redis.setresp(3)`.
pub(super) fn to_reply(lua: &Lua, value: Value, reply: &mut Reply, is_resp3: bool) -> mlua::Result<()> {
    let next: Function = lua.globals().raw_get("next")?;
    // How many elements a table has is known behind them: heads are put in front of them once all are written.
    let mut body = Reply { is_resp3: reply.is_resp3, ..Reply::default() };
    let mut heads: Vec<(usize, Kind, usize)> = Vec::new();
    let (mut open, mut kept): (Vec<Open>, usize) = (Vec::new(), 0);
    let mut value = Some(value);
    while value.is_some() || !open.is_empty() {
        if let Some(value) = value.take()
            && let Some((table, kind)) = begin(value, &mut body, is_resp3)?
        {
            if kept + kind.kept() <= KEPT_MAX {
                kept += kind.kept();
                open.push(Open { table, kind, head: heads.len(), count: 0, key: Value::Nil, value: None });
                heads.push((body.bytes.len(), kind, 0));
            } else {
                body.error("ERR reached lua stack limit");
            }
        }
        if let Some(table) = open.last_mut() {
            value = table.next(&next)?;
            if value.is_none() {
                heads[table.head].2 = table.count;
                kept -= table.kind.kept();
                open.pop();
            }
        }
    }
    let mut written = 0;
    for (begin, kind, count) in heads {
        reply.bytes.extend_from_slice(&body.bytes[written..begin]);
        kind.head()(reply, count);
        written = begin;
    }
    reply.bytes.extend_from_slice(&body.bytes[written..]);
    Ok(())
}

/// Whole numbers below are written with all their digits.
const WHOLE_DIGITS_END: u64 = 100_000_000_000_000_000;

/// An argument of `redis.call`.
pub(super) fn to_argument(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Integer(number) if number.unsigned_abs() < WHOLE_DIGITS_END => {
            Some(crate::number::integer_text(*number))
        }
        Value::Integer(number) => Some(crate::number::double_text(*number as f64)),
        Value::Number(number) => Some(crate::number::double_text(*number)),
        _ => None,
    }
}
