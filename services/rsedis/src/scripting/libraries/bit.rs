//! bit: LuaBitOp.

use mlua::{Lua, Table, Variadic};

use super::failed;

/// A number as 32 bits, wrapping and rounded: so much bigger, a double ends with its whole part.
fn word(number: f64) -> u32 {
    const BIG: f64 = 6_755_399_441_055_744.0;
    (number + BIG).to_bits() as u32
}

/// On two words of 32 bits.
type Operation = fn(u32, u32) -> u32;

pub(super) fn bit(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let signed = |bits: u32| f64::from(bits as i32);
    table.raw_set("tobit", lua.create_function(move |_, number: f64| Ok(signed(word(number))))?)?;
    table.raw_set("bnot", lua.create_function(move |_, number: f64| Ok(signed(!word(number))))?)?;
    table.raw_set("bswap", lua.create_function(move |_, number: f64| Ok(signed(word(number).swap_bytes())))?)?;
    let folds: [(&str, Operation); 3] =
        [("band", |one, other| one & other), ("bor", |one, other| one | other), ("bxor", |one, other| one ^ other)];
    for (name, fold) in folds {
        let function = lua.create_function(move |_, numbers: Variadic<f64>| {
            let all = numbers.iter().map(|number| word(*number)).reduce(fold);
            all.map(signed)
                .ok_or_else(|| failed(format!("bad argument #1 to '{name}' (number expected, got no value)")))
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
        let function =
            lua.create_function(move |_, (number, by): (f64, f64)| Ok(signed(shift(word(number), word(by) & 31))))?;
        table.raw_set(name, function)?;
    }
    let to_hex = lua.create_function(|_, (number, digits): (f64, Option<f64>)| {
        let digits = digits.map_or(8, |digits| word(digits) as i32);
        let text = match digits < 0 {
            true => format!("{:08X}", word(number)),
            false => format!("{:08x}", word(number)),
        };
        Ok(text[8 - digits.unsigned_abs().min(8) as usize..].to_owned())
    })?;
    table.raw_set("tohex", to_hex)?;
    Ok(table)
}
