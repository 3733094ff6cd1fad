//! The libraries that scripts expect beside Lua's own: cjson, bit, cmsgpack, struct.

mod bit;
mod json;
mod json_settings;
mod message_pack;
mod packed_struct;
mod random;

use mlua::{FromLuaMulti, Function, IntoLuaMulti, Lua, LuaString, Table, Value};

use super::problem::{call_place, told};

/// Tables in tables deeper than this are an error, whatever a script has set.
const DEPTH_MAX: usize = 1000;

/// More values than this Lua does not take at once.
const VALUES_MAX: usize = 7_900;

/// Whether one more value may be given to Lua beside so many; `what` is too much, in Redis's words.
fn check_room(count: usize, what: &str) -> mlua::Result<()> {
    match count < VALUES_MAX {
        true => Ok(()),
        false => Err(failed(format!("stack overflow ({what})"))),
    }
}

fn failed(text: impl Into<String>) -> mlua::Error {
    mlua::Error::runtime(text.into())
}

/// A function of a library: what it refuses begins with the place of the call, as what Lua's own refuse.
fn function<A: FromLuaMulti, R: IntoLuaMulti>(
    lua: &Lua,
    callback: impl Fn(&Lua, A) -> mlua::Result<R> + 'static,
) -> mlua::Result<Function> {
    lua.create_function(move |lua, arguments: A| {
        callback(lua, arguments).map_err(|error| match call_place(lua) {
            Some(place) => failed(place + &told(&error)),
            None => error,
        })
    })
}

/// An argument that will not do; places are counted from one.
fn wrong(place: usize, function: &str, what: &str) -> mlua::Error {
    failed(format!("bad argument #{place} to '{function}' ({what})"))
}

/// The argument at a place, from one, as text.
fn text_at(lua: &Lua, arguments: &[Value], place: usize, function: &str) -> mlua::Result<LuaString> {
    let value = arguments.get(place - 1);
    let text = value.map_or(Ok(None), |value| lua.coerce_string(value.clone()))?;
    let name = value.map_or("no value", Value::type_name);
    text.ok_or_else(|| wrong(place, function, &format!("string expected, got {name}")))
}

/// The argument at a place, from one, as a number.
fn number_at(lua: &Lua, arguments: &[Value], place: usize, function: &str) -> mlua::Result<f64> {
    let value = arguments.get(place - 1);
    let number = value.map_or(Ok(None), |value| lua.coerce_number(value.clone()))?;
    let name = value.map_or("no value", Value::type_name);
    number.ok_or_else(|| wrong(place, function, &format!("number expected, got {name}")))
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

/// Puts all of them into a table.
pub(super) fn add(lua: &Lua, host: &Table) -> mlua::Result<()> {
    random::replace(lua)?;
    host.raw_set("cjson", json::cjson(lua)?)?;
    host.raw_set("bit", bit::bit(lua)?)?;
    host.raw_set("cmsgpack", message_pack::cmsgpack(lua)?)?;
    host.raw_set("struct", packed_struct::struct_library(lua)?)
}
