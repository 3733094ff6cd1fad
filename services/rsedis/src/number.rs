//! Numbers as text, exactly as Redis reads and writes them.
//!
//! Integers: decimal, no leading zeros, no plus sign, no spaces (`string2ll`). Doubles: what `strtod` takes whole, but not NaN;
//! written with 17 significant digits (`%.17g`), as Redis 7.0 does.

use crate::hexadecimal;

/// An integer, if the text is exactly how that integer is written.
#[inline]
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [b'0'] if !is_negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut number = 0u64;
    for &digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // 19 digits fit into 64 bits.
        number = number * 10 + u64::from(digit);
    }
    match is_negative {
        true if number <= 1 << 63 => Some((number as i64).wrapping_neg()),
        false if number < 1 << 63 => Some(number as i64),
        _ => None,
    }
}

/// The text of an integer.
#[inline]
pub fn push_integer(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// The text of an integer, on its own.
pub fn integer_text(number: i64) -> Vec<u8> {
    itoa::Buffer::new().format(number).as_bytes().to_vec()
}

/// A double, if the whole text is one. Not NaN, and not out of range.
pub fn parse_double(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let Ok(value) = text.parse::<f64>() else { return hexadecimal::double(text.as_bytes()) };
    let says_infinity = text.bytes().any(|byte| matches!(byte, b'n' | b'N'));
    let has_digit = || {
        let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
        mantissa.bytes().any(|byte| matches!(byte, b'1'..=b'9'))
    };
    match value {
        _ if value.is_nan() => None,
        _ if value.is_infinite() && !says_infinity => None,
        0.0 if has_digit() => None,
        _ => Some(value),
    }
}

/// What stands behind what C takes for spaces.
pub fn behind_spaces(text: &[u8]) -> &[u8] {
    let spaces = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).count();
    &text[spaces..]
}

/// The same as C reads one where nobody asks whether it is in range: up to a zero, with spaces before it, nothing as 0, and what is too large
/// as infinite.
pub fn double_in_c(text: &[u8]) -> Option<f64> {
    let text = crate::failure::up_to_zero(text);
    if text.is_empty() {
        return Some(0.0);
    }
    let text = behind_spaces(text);
    let value = std::str::from_utf8(text).ok()?.parse::<f64>().ok().or_else(|| hexadecimal::double_or_limit(text))?;
    (!value.is_nan()).then_some(value)
}

/// A number of 64 bits without a sign as Redis and C read it: what is no integer as Redis writes one may have spaces, a sign and zeros before
/// it, and with a minus sign wraps round.
#[inline]
pub fn unsigned_in_c(text: &[u8]) -> Option<u64> {
    match parse_integer(text) {
        Some(number) => u64::try_from(number).ok(),
        None => unusual_unsigned(text),
    }
}

#[cold]
fn unusual_unsigned(text: &[u8]) -> Option<u64> {
    let (is_negative, digits) = match behind_spaces(text) {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let is_number = digits.first().is_some_and(u8::is_ascii_digit);
    let number: u64 = std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()?;
    Some(if is_negative { number.wrapping_neg() } else { number })
}

/// A double as `%.17g` writes it; infinities as `inf` and `-inf`.
pub fn push_double(out: &mut Vec<u8>, value: f64) {
    if value.is_nan() {
        out.extend_from_slice(if value.is_sign_negative() { b"-nan" } else { b"nan" });
        return;
    }
    if value.is_infinite() {
        out.extend_from_slice(if value > 0.0 { b"inf" } else { b"-inf" });
        return;
    }
    // The common case: a whole number that has less than 16 digits.
    if value == value.trunc() && value.abs() < 1e15 && !(value == 0.0 && value.is_sign_negative()) {
        return push_integer(out, value as i64);
    }
    let scientific = format!("{value:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.trim_end_matches('0');
    let digits = if digits.is_empty() { "0" } else { digits };
    out.extend_from_slice(sign.as_bytes());
    if !(-4..17).contains(&exponent) {
        out.push(digits.as_bytes()[0]);
        if digits.len() > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits.as_bytes()[1..]);
        }
        let sign = if exponent < 0 { '-' } else { '+' };
        out.extend_from_slice(format!("e{sign}{:02}", exponent.abs()).as_bytes());
    } else if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + (-exponent - 1) as usize, b'0');
        out.extend_from_slice(digits.as_bytes());
    } else {
        let whole = exponent as usize + 1;
        if digits.len() <= whole {
            out.extend_from_slice(digits.as_bytes());
            out.resize(out.len() + whole - digits.len(), b'0');
        } else {
            out.extend_from_slice(&digits.as_bytes()[..whole]);
            out.push(b'.');
            out.extend_from_slice(&digits.as_bytes()[whole..]);
        }
    }
}

/// A double as `%.*g` writes it, with so many digits.
pub fn general_text(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return if value.is_nan() { "nan" } else { ["-inf", "inf"][usize::from(value > 0.0)] }.to_owned();
    }
    let scientific = format!("{value:.*e}", digits.saturating_sub(1));
    let exponent: i32 = scientific.rsplit('e').next().and_then(|text| text.parse().ok()).unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..digits as i32).contains(&exponent) {
        return trim(&format!("{value:.*}", (digits as i32 - 1 - exponent).max(0) as usize));
    }
    let mantissa = trim(scientific.split('e').next().unwrap_or_default());
    format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// The text of a double, on its own.
pub fn double_text(value: f64) -> Vec<u8> {
    let mut out = Vec::new();
    push_double(&mut out, value);
    out
}

/// A number without its fraction, as a cast in C gives it on x86: what has no place in 64 bits is the least of them.
pub fn whole(number: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    match (-END..END).contains(&number) {
        true => number as i64,
        false => i64::MIN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn integers_have_one_spelling() {
        for (text, expected) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("99999999999999999999", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("01", None),
            ("+1", None),
            (" 1", None),
            ("1 ", None),
            ("1x", None),
        ] {
            assert_eq!(parse_integer(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn c_reads_more_spellings_than_redis_writes() {
        for (text, expected) in [
            ("0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("007", Some(7)),
            ("+5", Some(5)),
            (" \t6", Some(6)),
            ("-5", None),
            ("-05", Some(u64::MAX - 4)),
            ("", None),
            (" ", None),
            ("+", None),
            ("+-5", None),
            ("5 ", None),
        ] {
            assert_eq!(unsigned_in_c(text.as_bytes()), expected, "{text:?}");
        }
        for (text, expected) in [
            ("", Some(0.0)),
            (" 1.5", Some(1.5)),
            ("1e400", Some(f64::INFINITY)),
            ("-0x1p2000", Some(f64::NEG_INFINITY)),
            ("0x1p-2000", Some(0.0)),
            ("1e-400", Some(0.0)),
            ("3\0x", Some(3.0)),
            (" ", None),
            ("nan", None),
            ("1x", None),
        ] {
            assert_eq!(double_in_c(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn doubles_are_written_like_printf() {
        for (value, expected) in [
            (0.1, "0.10000000000000001"),
            (3.0, "3"),
            (-2.5, "-2.5"),
            (1e21, "1e+21"),
            (1e16, "10000000000000000"),
            (1.5e300, "1.5000000000000001e+300"),
            (1e-5, "1.0000000000000001e-05"),
            (0.0001, "0.0001"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (-0.0, "-0"),
            (123456789012345678.0, "1.2345678901234568e+17"),
        ] {
            assert_eq!(String::from_utf8(double_text(value)).unwrap(), expected);
        }
    }

    #[test]
    fn doubles_are_shortened_like_printf() {
        for (value, expected) in [
            (0.1, "0.1"),
            (3.0, "3"),
            (123_456.7, "123457"),
            (1_234_567.0, "1.23457e+06"),
            (0.000_012_345_678, "1.23457e-05"),
            (-0.0, "-0"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(general_text(value, 6), expected);
        }
    }

    #[test]
    fn doubles_out_of_range_are_refused() {
        for text in ["nan", "1e400", "-1e400", "1e-400", "", " 1", "1 ", "x"] {
            assert_eq!(parse_double(text.as_bytes()), None, "{text}");
        }
        for (text, expected) in [("inf", f64::INFINITY), ("-INF", f64::NEG_INFINITY), ("0e5", 0.0), ("1e3", 1000.0)] {
            assert_eq!(parse_double(text.as_bytes()), Some(expected), "{text}");
        }
    }

    proptest! {
        #[test]
        fn integers_come_back(number: i64) {
            prop_assert_eq!(parse_integer(&integer_text(number)), Some(number));
        }

        #[test]
        fn doubles_come_back(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(!value.is_nan() && value.is_normal());
            prop_assert_eq!(parse_double(&double_text(value)), Some(value));
        }
    }
}
