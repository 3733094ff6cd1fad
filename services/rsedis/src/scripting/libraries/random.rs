//! math.random and math.randomseed as Redis has them: the same numbers on every machine, those of its own `lrand48`.

use std::cell::Cell;
use std::rc::Rc;

use mlua::{Lua, Table, Value, Variadic};

use super::{failed, function, number_at, wrong};
use crate::number::whole;

/// What `lrand48` begins with where nobody has set a seed.
const FIRST: u64 = 0x1234_ABCD_330E;
const BITS: u64 = (1 << 48) - 1;

/// From 0 to 1, without 1 itself.
fn next(state: &Cell<u64>) -> f64 {
    const MOST: u64 = i32::MAX as u64;
    state.set(state.get().wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB) & BITS);
    ((state.get() >> 17) % MOST) as f64 / MOST as f64
}

/// Puts both in the place of Lua's own.
pub(super) fn replace(lua: &Lua) -> mlua::Result<()> {
    const NAME: &str = "random";
    let math: Table = lua.globals().raw_get("math")?;
    let state = Rc::new(Cell::new(FIRST));
    let seeded = Rc::clone(&state);
    let random = function(lua, move |lua, arguments: Variadic<Value>| {
        let share = next(&state);
        let integer = |place| number_at(lua, &arguments, place, NAME).map(|number| whole(number) as i32);
        let (low, high) = match arguments.len() {
            0 => return Ok(share),
            1 => (1, integer(1)?),
            2 => (integer(1)?, integer(2)?),
            _ => return Err(failed("wrong number of arguments")),
        };
        if low > high {
            return Err(wrong(arguments.len(), NAME, "interval is empty"));
        }
        let count = high.wrapping_sub(low).wrapping_add(1);
        Ok((share * f64::from(count)).floor() + f64::from(low))
    })?;
    let seed = function(lua, move |lua, arguments: Variadic<Value>| {
        let seed = whole(number_at(lua, &arguments, 1, "randomseed")?) as u32;
        seeded.set(u64::from(seed) << 16 | 0x330E);
        Ok(())
    })?;
    math.raw_set(NAME, random)?;
    math.raw_set("randomseed", seed)
}
