//! bit: LuaBitOp.

use mlua::{Lua, Table, Value, Variadic};

use super::{function, number_at};

/// A number as 32 bits, wrapping and rounded: so much bigger, a double ends with its whole part.
fn word(number: f64) -> u32 {
    const BIG: f64 = 6_755_399_441_055_744.0;
    (number + BIG).to_bits() as u32
}

/// On a word of 32 bits.
type Change = fn(u32) -> u32;
/// On two of them.
type Operation = fn(u32, u32) -> u32;

pub(super) fn bit(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let signed = |bits: u32| f64::from(bits as i32);
    let changes: [(&str, Change); 3] =
        [("tobit", |bits| bits), ("bnot", |bits| !bits), ("bswap", |bits| bits.swap_bytes())];
    for (name, change) in changes {
        let function = function(lua, move |lua, numbers: Variadic<Value>| {
            number_at(lua, &numbers, 1, name).map(|number| signed(change(word(number))))
        })?;
        table.raw_set(name, function)?;
    }
    let folds: [(&str, Operation); 3] =
        [("band", |one, other| one & other), ("bor", |one, other| one | other), ("bxor", |one, other| one ^ other)];
    for (name, fold) in folds {
        let function = function(lua, move |lua, numbers: Variadic<Value>| {
            let number = |place| number_at(lua, &numbers, place, name).map(word);
            let all = (2..=numbers.len()).try_fold(number(1)?, |all, place| number(place).map(|one| fold(all, one)));
            all.map(signed)
        })?;
        table.raw_set(name, function)?;
    }
    let shifts: [(&str, Operation); 5] = [
        ("lshift", |bits, by| bits << by),
        ("rshift", |bits, by| bits >> by),
        ("arshift", |bits, by| (bits as i32 >> by) as u32),
        ("rol", |bits, by| bits.rotate_left(by)),
        ("ror", |bits, by| bits.rotate_right(by)),
    ];
    for (name, shift) in shifts {
        let function = function(lua, move |lua, numbers: Variadic<Value>| {
            let number = |place| number_at(lua, &numbers, place, name).map(word);
            Ok(signed(shift(number(1)?, number(2)? & 31)))
        })?;
        table.raw_set(name, function)?;
    }
    let to_hex = function(lua, |lua, numbers: Variadic<Value>| {
        let number = word(number_at(lua, &numbers, 1, "tohex")?);
        let digits = match numbers.len() {
            0 | 1 => 8,
            _ => word(number_at(lua, &numbers, 2, "tohex")?) as i32,
        };
        let text = match digits < 0 {
            true => format!("{number:08X}"),
            false => format!("{number:08x}"),
        };
        Ok(text[8 - digits.unsigned_abs().min(8) as usize..].to_owned())
    })?;
    table.raw_set("tohex", to_hex)?;
    Ok(table)
}
