//! What scripts may set of cjson: `cjson.encode_max_depth` and kin. As in Redis a setting stays for all scripts that follow.

use std::cell::Cell;
use std::rc::Rc;

use mlua::{Lua, Table, Value};

use super::{failed, function};

/// What is made of numbers that JSON does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Invalid {
    /// An error.
    Refused,
    /// Written as `nan` and `inf`.
    Written,
    /// Written as `null`.
    Null,
}

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// Tables in tables.
    pub(super) encode_depth_max: i64,
    /// See above.
    pub(super) decode_depth_max: i64,
    /// Significant digits of a number.
    pub(super) precision: i64,
    /// NaN and infinities that are written.
    pub(super) encode_invalid: Invalid,
    /// NaN, infinities and hexadecimal numbers are read.
    pub(super) decodes_invalid: bool,
    /// Has no effect: there is no buffer to be kept.
    keeps_buffer: bool,
    /// Arrays of mostly holes are written as objects, else they are an error.
    pub(super) sparse_as_object: bool,
    /// So many times as many places as elements are too many holes; 0: none are.
    pub(super) sparse_ratio: i64,
    /// Up to this place holes do not matter.
    pub(super) sparse_safe: i64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            encode_depth_max: 1000,
            decode_depth_max: 1000,
            precision: 14,
            encode_invalid: Invalid::Refused,
            decodes_invalid: true,
            keeps_buffer: true,
            sparse_as_object: false,
            sparse_ratio: 2,
            sparse_safe: 10,
        }
    }
}

const INTEGER_MAX: i64 = 2_147_483_647;

/// Sets a number between two, unless it is left out; what it is now.
fn integer(value: &Value, kept: &mut i64, least: i64, most: i64) -> Result<Value, String> {
    let wanted = match value {
        Value::Nil => *kept,
        Value::Integer(number) => *number,
        Value::Number(number) => *number as i64,
        other => return Err(format!("number expected, got {}", other.type_name())),
    };
    if !(least..=most).contains(&wanted) {
        return Err(format!("expected integer between {least} and {most}"));
    }
    *kept = wanted;
    Ok(Value::Number(wanted as f64))
}

/// Sets a word's place among words, the first two of which may be `false` and `true`, unless it is left out; what it is now.
fn word(lua: &Lua, value: &Value, kept: &mut usize, words: &[&str]) -> Result<Value, String> {
    match value {
        Value::Nil => {}
        Value::Boolean(is_so) => *kept = usize::from(*is_so),
        Value::String(text) => {
            let known = words.iter().position(|word| text.as_bytes() == word.as_bytes());
            *kept = known.ok_or_else(|| format!("invalid option '{}'", text.to_string_lossy()))?;
        }
        other => return Err(format!("string expected, got {}", other.type_name())),
    }
    match *kept {
        0 | 1 => Ok(Value::Boolean(*kept == 1)),
        place => lua.create_string(words[place]).map(Value::String).map_err(|error| error.to_string()),
    }
}

fn flag(lua: &Lua, value: &Value, kept: &mut bool) -> Result<Value, String> {
    let mut place = usize::from(*kept);
    let now = word(lua, value, &mut place, &["off", "on"])?;
    *kept = place == 1;
    Ok(now)
}

fn bad_argument(name: &str, why: &str) -> mlua::Error {
    failed(format!("bad argument #1 to '{name}' ({why})"))
}

/// Puts a function into a table that changes a setting, and gives what it is.
fn add_one(
    lua: &Lua,
    table: &Table,
    name: &'static str,
    settings: &Rc<Cell<Settings>>,
    change: impl Fn(&Lua, &Value, &mut Settings) -> Result<Value, String> + 'static,
) -> mlua::Result<()> {
    let settings = Rc::clone(settings);
    let function = function(lua, move |lua, value: Value| {
        let mut changed = settings.get();
        let now = change(lua, &value, &mut changed).map_err(|why| bad_argument(name, &why))?;
        settings.set(changed);
        Ok(now)
    })?;
    table.raw_set(name, function)
}

/// Puts the functions that change settings into cjson's table.
pub(super) fn add(lua: &Lua, table: &Table, settings: &Rc<Cell<Settings>>) -> mlua::Result<()> {
    add_one(lua, table, "encode_max_depth", settings, |_, value, settings| {
        integer(value, &mut settings.encode_depth_max, 1, INTEGER_MAX)
    })?;
    add_one(lua, table, "decode_max_depth", settings, |_, value, settings| {
        integer(value, &mut settings.decode_depth_max, 1, INTEGER_MAX)
    })?;
    add_one(lua, table, "encode_number_precision", settings, |_, value, settings| {
        integer(value, &mut settings.precision, 1, 14)
    })?;
    add_one(lua, table, "encode_keep_buffer", settings, |lua, value, settings| {
        flag(lua, value, &mut settings.keeps_buffer)
    })?;
    add_one(lua, table, "decode_invalid_numbers", settings, |lua, value, settings| {
        flag(lua, value, &mut settings.decodes_invalid)
    })?;
    add_one(lua, table, "encode_invalid_numbers", settings, |lua, value, settings| {
        let mut place = settings.encode_invalid as usize;
        let now = word(lua, value, &mut place, &["off", "on", "null"])?;
        settings.encode_invalid = [Invalid::Refused, Invalid::Written, Invalid::Null][place];
        Ok(now)
    })?;
    let kept = Rc::clone(settings);
    let sparse = function(lua, move |lua, (converts, ratio, safe): (Value, Value, Value)| {
        let mut changed = kept.get();
        let bad = |why: String| bad_argument("encode_sparse_array", &why);
        let now = (
            flag(lua, &converts, &mut changed.sparse_as_object).map_err(bad)?,
            integer(&ratio, &mut changed.sparse_ratio, 0, INTEGER_MAX).map_err(bad)?,
            integer(&safe, &mut changed.sparse_safe, 0, INTEGER_MAX).map_err(bad)?,
        );
        kept.set(changed);
        Ok(now)
    })?;
    table.raw_set("encode_sparse_array", sparse)
}
