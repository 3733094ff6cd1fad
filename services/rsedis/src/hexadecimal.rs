//! Hexadecimal floating point numbers, as C's `strtod` and `strtold` take them: `0x1.8p3` is 12.

/// mantissa × 2^exponent, not rounded yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hexadecimal {
    /// The first digits: more bits than any result has.
    pub mantissa: u128,
    /// Of two.
    pub exponent: i64,
    /// Digits that are not zero were left out behind the mantissa.
    pub is_inexact: bool,
}

/// Exponents beyond this are those of nothing but infinity and zero.
const EXPONENT_MAX: i64 = 1 << 40;

/// Reads a text without its sign; nothing if it is none such, as a whole.
pub fn parse(text: &[u8]) -> Option<Hexadecimal> {
    let text = text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X"))?;
    let (digits, power) = match text.iter().position(|byte| matches!(byte, b'p' | b'P')) {
        Some(at) => (&text[..at], parse_power(&text[at + 1..])?),
        None => (text, 0),
    };
    let mut read = Hexadecimal { mantissa: 0, exponent: power, is_inexact: false };
    let (mut in_fraction, mut any) = (false, false);
    for &byte in digits {
        if byte == b'.' && !in_fraction {
            in_fraction = true;
            continue;
        }
        let digit = char::from(byte).to_digit(16)?;
        any = true;
        if read.mantissa >> 120 == 0 {
            read.mantissa = read.mantissa << 4 | u128::from(digit);
            read.exponent -= 4 * i64::from(in_fraction);
        } else {
            read.is_inexact |= digit != 0;
            read.exponent += 4 * i64::from(!in_fraction);
        }
    }
    any.then_some(read)
}

/// Digits with a sign or without; large ones are as good as infinite.
fn parse_power(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() {
        return None;
    }
    let mut power = 0i64;
    for byte in digits {
        let digit = byte.is_ascii_digit().then(|| i64::from(byte - b'0'))?;
        power = (power * 10 + digit).min(EXPONENT_MAX);
    }
    Some(if is_negative { -power } else { power })
}

/// The nearest double, to even where two are near; nothing if the text is no such number, or out of range.
pub fn double(text: &[u8]) -> Option<f64> {
    signed(text, |Hexadecimal { mantissa, exponent, is_inexact }| match mantissa {
        0 => Some(0.0),
        _ => round(mantissa, exponent, is_inexact),
    })
}

/// The same; what is out of range is infinite or zero.
pub fn double_or_limit(text: &[u8]) -> Option<f64> {
    signed(text, |Hexadecimal { mantissa, exponent, is_inexact }| match mantissa {
        0 => Some(0.0),
        _ => round(mantissa, exponent, is_inexact).or(Some(if exponent < 0 { 0.0 } else { f64::INFINITY })),
    })
}

fn signed(text: &[u8], value: impl Fn(Hexadecimal) -> Option<f64>) -> Option<f64> {
    let (is_negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let value = value(parse(text)?)?;
    Some(if is_negative { -value } else { value })
}

fn round(mantissa: u128, exponent: i64, is_inexact: bool) -> Option<f64> {
    let length = i64::from(128 - mantissa.leading_zeros());
    // The power of two of the first bit; smaller numbers than 2^-1022 have fewer bits than 53.
    let top = exponent + length - 1;
    if !(-1075..=1023).contains(&top) {
        return None;
    }
    let precision = 53.min(53 + 1022 + top);
    let excess = (length - precision).max(0) as u32;
    let (kept, rest) = match excess {
        0 => (mantissa, 0),
        128 => (0, mantissa),
        _ => (mantissa >> excess, mantissa & ((1 << excess) - 1)),
    };
    let half = if excess == 0 { u128::MAX } else { 1 << (excess - 1) };
    let goes_up = rest > half || (rest == half && (is_inexact || kept & 1 == 1));
    let (kept, exponent) = (kept + u128::from(goes_up), exponent + i64::from(excess));
    // In two steps, for no power of two below 2^-1022 is exact on the way; the result has the bits that it needs.
    let first = (exponent / 2) as i32;
    let value = kept as f64 * 2f64.powi(first) * 2f64.powi(exponent as i32 - first);
    (value.is_finite() && value != 0.0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hexadecimal_numbers_are_those_of_strtod() {
        for (text, expected) in [
            ("0x1", Some(1.0)),
            ("-0x1.8p3", Some(-12.0)),
            ("+0X.8", Some(0.5)),
            ("0xap-1", Some(5.0)),
            ("0x0", Some(0.0)),
            ("0x0p99999999999999999999", Some(0.0)),
            // Halfway: to even, and up where anything is behind it.
            ("0x1.00000000000008p0", Some(1.0)),
            ("0x1.00000000000018p0", Some(1.000_000_000_000_000_4)),
            ("0x1.000000000000080000000000000000000000001p0", Some(1.000_000_000_000_000_2)),
            ("0x1p-1074", Some(f64::from_bits(1))),
            ("0x1.8p-1075", Some(f64::from_bits(1))),
            ("0x1p-1075", None),
            ("0x1p-1080", None),
            ("0x1.fffffffffffffp1023", Some(f64::MAX)),
            ("0x1.fffffffffffff8p1023", None),
            ("0x1p1024", None),
            ("0x1p99999999999999999999", None),
            ("0x", None),
            ("0x.", None),
            ("0x.p1", None),
            ("0x1p", None),
            ("0x1.2.3", None),
            ("0x1g", None),
            ("1", None),
            ("--0x1", None),
        ] {
            assert_eq!(double(text.as_bytes()), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn doubles_come_back(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite() && value != 0.0);
            let (fraction, biased) = (bits & ((1 << 52) - 1), bits >> 52 & 0x7ff);
            let (whole, power) = if biased == 0 { (0, -1022) } else { (1, biased as i64 - 1023) };
            let sign = if value < 0.0 { "-" } else { "" };
            let text = format!("{sign}0x{whole}.{fraction:013x}p{power}");
            prop_assert_eq!(double(text.as_bytes()), Some(value), "{}", text);
        }
    }
}
