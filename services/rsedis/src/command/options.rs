//! Reads arguments of commands.

use crate::failure::{Failure, NOT_FLOAT, NOT_INTEGER, Outcome};
use crate::long_double;
use crate::number::{parse_double, parse_integer};

/// An integer.
pub fn integer(text: &[u8]) -> Outcome<i64> {
    parse_integer(text).ok_or(NOT_INTEGER)
}

/// A double.
pub fn double(text: &[u8]) -> Outcome<f64> {
    parse_double(text).ok_or(NOT_FLOAT)
}

/// A count that must not be negative.
pub fn count(text: &[u8]) -> Outcome<usize> {
    let number = parse_integer(text).ok_or(crate::failure::NOT_POSITIVE)?;
    usize::try_from(number).map_err(|_| crate::failure::NOT_POSITIVE)
}

/// What is kept as text.
pub fn text<'a>(argument: &'a [u8], what: &str) -> Outcome<&'a str> {
    std::str::from_utf8(argument).map_err(|_| Failure::text(format!("ERR {what} is no UTF-8: send text")))
}

/// The number of a database, which has 32 bits in Redis.
pub fn database_number(text: &[u8], databases: usize) -> Outcome<usize> {
    const OUT_OF_RANGE: Failure =
        Failure::new("ERR value is out of range, value must between -2147483648 and 2147483647");
    let number = i32::try_from(integer(text)?).map_err(|_| OUT_OF_RANGE)?;
    let number = usize::try_from(number).ok().filter(|number| *number < databases);
    number.ok_or(Failure::new("ERR DB index is out of range"))
}

/// Whether an argument is this word, whatever its case.
pub fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

/// How an expiry is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeUnit {
    /// Seconds, else milliseconds.
    pub is_seconds: bool,
    /// Counted from now, else since 1970.
    pub is_relative: bool,
}

/// `EX`, `PX`, `EXAT`, `PXAT`.
pub fn time_unit(argument: &[u8]) -> Option<TimeUnit> {
    let units = [("EX", true, true), ("PX", false, true), ("EXAT", true, false), ("PXAT", false, false)];
    let (_, is_seconds, is_relative) = units.into_iter().find(|(word, ..)| is(argument, word))?;
    Some(TimeUnit { is_seconds, is_relative })
}

/// A positive expiry, in milliseconds since 1970.
pub fn expiry(text: &[u8], unit: TimeUnit, now: i64, command: &str) -> Outcome<i64> {
    let number = integer(text)?;
    let refused = || Failure::expire_time(command);
    let millis = match unit.is_seconds {
        _ if number <= 0 => None,
        true => number.checked_mul(1000),
        false => Some(number),
    };
    let millis = millis.ok_or_else(refused)?;
    if unit.is_relative { millis.checked_add(now).ok_or_else(refused) } else { Ok(millis) }
}

/// How long a command may wait, in seconds: until when, in milliseconds since 1970; nothing for 0, which is for ever.
pub fn deadline(text: &[u8], now: i64) -> Outcome<Option<i64>> {
    let is_infinite = || parse_double(text).is_some_and(f64::is_infinite);
    // Of a number that has no place in 64 bits Redis's conversion makes the smallest.
    let millis = long_double::thousandfold(text).or_else(|| is_infinite().then_some(i64::MIN));
    wait_until(millis.ok_or(Failure::new("ERR timeout is not a float or out of range"))?, now)
}

/// The same for milliseconds.
pub fn deadline_millis(text: &[u8], now: i64) -> Outcome<Option<i64>> {
    let millis = parse_integer(text).ok_or(Failure::new("ERR timeout is not an integer or out of range"))?;
    wait_until(millis, now)
}

/// What is longer than time itself is for ever, as in Redis, where it overflows.
fn wait_until(millis: i64, now: i64) -> Outcome<Option<i64>> {
    match millis {
        ..0 => Err(Failure::new("ERR timeout is negative")),
        0 => Ok(None),
        _ => Ok(millis.checked_add(now)),
    }
}
