//! Replies as Lua's values, and back.

use mlua::{Lua, Table, Value};

use super::problem::{error_table, told};
use crate::number::{parse_double, parse_integer, whole};
use crate::protocol::Reply;

/// Tables in tables deeper than this are an error.
const DEPTH_MAX: usize = 100;

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

/// Writes elements, and before them their number. Each is written before the next is taken: of values that are kept Lua has room for some
/// thousands. Whoever fails leaves nothing.
fn counted(
    reply: &mut Reply,
    head: impl FnOnce(&mut Reply, usize),
    elements: impl FnOnce(&mut Reply) -> mlua::Result<usize>,
) -> mlua::Result<()> {
    let begin = reply.bytes.len();
    let count = elements(reply).inspect_err(|_| reply.bytes.truncate(begin))?;
    let end = reply.bytes.len();
    head(reply, count);
    let head_bytes = reply.bytes.len() - end;
    reply.bytes[begin..].rotate_right(head_bytes);
    Ok(())
}

fn table_to_reply(table: &Table, reply: &mut Reply, is_resp3: bool, depth: usize) -> mlua::Result<()> {
    let field = |name: &str| table.raw_get::<Value>(name);
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        _ => None,
    };
    if let Some(error) = text(&field("err")?) {
        let error = String::from_utf8_lossy(&error).into_owned();
        reply.error(error.trim_start_matches('-'));
        return Ok(());
    }
    if let Some(status) = text(&field("ok")?) {
        reply.simple(&String::from_utf8_lossy(&status).replace(['\r', '\n'], " "));
        return Ok(());
    }
    // Lua tells a whole number from others.
    let double = match field("double")? {
        Value::Integer(number) => Some(number as f64),
        Value::Number(number) => Some(number),
        _ => None,
    };
    if let Some(number) = double {
        reply.double(number);
        return Ok(());
    }
    if let Value::Table(map) = field("map")? {
        return counted(reply, Reply::map, |reply| {
            map.pairs::<Value, Value>().try_fold(0, |count, pair| {
                let (key, value) = pair?;
                to_reply(&key, reply, is_resp3, depth + 1);
                to_reply(&value, reply, is_resp3, depth + 1);
                Ok(count + 1)
            })
        });
    }
    if let Value::Table(set) = field("set")? {
        return counted(reply, Reply::set, |reply| {
            set.pairs::<Value, Value>().try_fold(0, |count, pair| {
                to_reply(&pair?.0, reply, is_resp3, depth + 1);
                Ok(count + 1)
            })
        });
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
        return Ok(());
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
        return Ok(());
    }
    counted(reply, Reply::array, |reply| {
        let mut count = 0;
        loop {
            match table.raw_get::<Value>(count + 1)? {
                Value::Nil => return Ok(count),
                value => to_reply(&value, reply, is_resp3, depth + 1),
            }
            count += 1;
        }
    })
}

/// What a script returned, as its client's reply. `is_resp3`: the script has said `redis.setresp(3)`.
pub(super) fn to_reply(value: &Value, reply: &mut Reply, is_resp3: bool, depth: usize) {
    if depth > DEPTH_MAX {
        return reply.error("ERR reached lua stack limit");
    }
    match value {
        Value::String(text) => reply.bulk(&text.as_bytes()),
        Value::Integer(number) => reply.integer(*number),
        Value::Number(number) => reply.integer(whole(*number)),
        Value::Boolean(is_so) if is_resp3 => reply.boolean(*is_so),
        Value::Boolean(true) => reply.integer(1),
        Value::Table(table) => {
            if let Err(error) = table_to_reply(table, reply, is_resp3, depth) {
                reply.error(&format!("ERR {}", told(&error)));
            }
        }
        _ => reply.null(),
    }
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
