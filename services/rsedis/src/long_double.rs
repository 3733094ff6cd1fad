//! Arithmetic of INCRBYFLOAT and HINCRBYFLOAT: the x87's 80-bit `long double`, which has 64 bits of mantissa, read as `strtold`
//! reads it and written as `%.17Lf` with trailing zeros cut. Redis stores that text, so every digit counts.

use crate::hexadecimal::{self, Hexadecimal};

/// mantissa × 2^exponent; the mantissa's highest bit is set, unless all is zero.
#[derive(Clone, Copy, Debug)]
struct LongDouble {
    is_negative: bool,
    mantissa: u64,
    exponent: i32,
}

/// A natural number: 32-bit digits, least significant first.
#[derive(Clone, Debug)]
struct Natural(Vec<u32>);

impl Natural {
    fn from(number: u128) -> Self {
        Self((0..4).map(|place| (number >> (32 * place)) as u32).collect())
    }

    fn multiply_add(&mut self, factor: u32, addend: u32) {
        let mut carry = u64::from(addend);
        for digit in &mut self.0 {
            let product = u64::from(*digit) * u64::from(factor) + carry;
            *digit = product as u32;
            carry = product >> 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    /// Divides; the remainder.
    fn divide(&mut self, divisor: u32) -> u32 {
        let mut rest = 0;
        for digit in self.0.iter_mut().rev() {
            let dividend = rest << 32 | u64::from(*digit);
            *digit = (dividend / u64::from(divisor)) as u32;
            rest = dividend % u64::from(divisor);
        }
        rest as u32
    }

    fn shift_left(&mut self, bits: u32) {
        for _ in 0..bits / 32 {
            self.0.insert(0, 0);
        }
        self.multiply_add(1 << (bits % 32), 0);
    }

    fn bit_length(&self) -> u32 {
        let top = self.0.iter().rposition(|digit| *digit != 0);
        top.map_or(0, |top| top as u32 * 32 + 32 - self.0[top].leading_zeros())
    }

    fn bit(&self, place: u32) -> bool {
        self.0.get(place as usize / 32).is_some_and(|digit| digit >> (place % 32) & 1 == 1)
    }

    fn has_bits_below(&self, place: u32) -> bool {
        (0..place).any(|place| self.bit(place))
    }

    /// Divides by 2^bits and rounds to the nearest, to even where two are near. `sticky`: something was lost below.
    fn shift_right_rounded(&mut self, bits: u32, sticky: bool) {
        if bits == 0 {
            return;
        }
        let half = self.bit(bits - 1);
        let rest = sticky || self.has_bits_below(bits - 1);
        let length = self.0.len() as u32 * 32;
        self.0 = (bits / 32..self.0.len() as u32)
            .map(|digit| {
                (0..32).fold(0, |word, place| {
                    let from = digit * 32 + place + bits % 32;
                    if from < length && self.bit(from) { word | 1 << place } else { word }
                })
            })
            .collect();
        if half && (rest || self.bit(0)) {
            if self.0.is_empty() {
                self.0.push(0);
            }
            self.multiply_add(1, 1);
        }
    }

    fn is_zero(&self) -> bool {
        self.0.iter().all(|digit| *digit == 0)
    }
}

/// Larger decimal exponents than any long double has.
const EXPONENT_MAX: i64 = 5_000;
/// What the highest bit stands for, as a power of two: of the largest long double, and of half the smallest, which is rounded to zero.
const TOP_MAX: i64 = 16_383;
const TOP_MIN: i64 = -16_446;
/// Redis's `MAX_LONG_DOUBLE_CHARS` less the terminating zero.
const TEXT_BYTES_MAX: usize = 5 * 1024 - 1;

fn round(mut natural: Natural, exponent: i32, sticky: bool, is_negative: bool) -> LongDouble {
    let excess = natural.bit_length().saturating_sub(64);
    natural.shift_right_rounded(excess, sticky);
    // Rounding up may have given a 65th bit.
    let more = natural.bit_length().saturating_sub(64);
    natural.shift_right_rounded(more, false);
    let digit = |place: usize| u64::from(natural.0.get(place).copied().unwrap_or(0));
    let mantissa = digit(1) << 32 | digit(0);
    let shift = if mantissa == 0 { 0 } else { mantissa.leading_zeros() };
    LongDouble { is_negative, mantissa: mantissa << shift, exponent: exponent + (excess + more) as i32 - shift as i32 }
}

fn parse(text: &[u8]) -> Option<LongDouble> {
    let (is_negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    if let Some(Hexadecimal { mantissa, exponent, is_inexact }) = hexadecimal::parse(digits) {
        let rounded = round(Natural::from(mantissa), i32::try_from(exponent).ok()?, is_inexact, is_negative);
        return match rounded {
            LongDouble { mantissa: 0, .. } => Some(LongDouble { exponent: 0, ..rounded }),
            _ => rounded.in_range(),
        };
    }
    let (mantissa, exponent) = match digits.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => {
            let text = std::str::from_utf8(&digits[at + 1..]).ok()?;
            (&digits[..at], text.parse::<i64>().ok()?)
        }
        None => (digits, 0),
    };
    let mut natural = Natural::from(0);
    let (mut fraction, mut in_fraction, mut any) = (0i64, false, false);
    for &byte in mantissa {
        match byte {
            b'0'..=b'9' => {
                natural.multiply_add(10, u32::from(byte - b'0'));
                fraction += i64::from(in_fraction);
                any = true;
            }
            b'.' if !in_fraction => in_fraction = true,
            _ => return None,
        }
    }
    if !any {
        return None;
    }
    let exponent = exponent - fraction;
    if natural.is_zero() {
        return Some(LongDouble { is_negative, mantissa: 0, exponent: 0 });
    }
    if exponent.abs() > EXPONENT_MAX {
        return None;
    }
    if exponent >= 0 {
        (0..exponent).for_each(|_| natural.multiply_add(10, 0));
        return round(natural, 0, false, is_negative).in_range();
    }
    // More bits than are kept, then divided by each ten.
    let shift = 128 + exponent.unsigned_abs() as u32 * 4;
    natural.shift_left(shift);
    let mut sticky = false;
    for _ in exponent..0 {
        sticky |= natural.divide(10) != 0;
    }
    round(natural, -(shift as i32), sticky, is_negative).in_range()
}

impl LongDouble {
    /// The same, if it is neither infinite nor too small to be told from zero.
    fn in_range(self) -> Option<Self> {
        let top = i64::from(self.exponent) + 63;
        let is_tiny = top < TOP_MIN || (top == TOP_MIN && self.mantissa == 1 << 63);
        (self.mantissa == 0 || (top <= TOP_MAX && !is_tiny)).then_some(self)
    }
}

fn add(one: LongDouble, other: LongDouble) -> LongDouble {
    if one.mantissa == 0 {
        return other;
    }
    if other.mantissa == 0 {
        return one;
    }
    let is_ordered = (one.exponent, one.mantissa) >= (other.exponent, other.mantissa);
    let (large, small) = if is_ordered { (one, other) } else { (other, one) };
    let distance = (large.exponent - small.exponent) as u32;
    // 62 bits of room below; one above for the carry.
    let wide = u128::from(large.mantissa) << 62;
    let shifted = u128::from(small.mantissa) << 62;
    let (mut aligned, lost) = match distance {
        0..=127 => (shifted >> distance, distance > 0 && shifted << (128 - distance) != 0),
        _ => (0, true),
    };
    let sum = if large.is_negative == small.is_negative {
        wide + aligned
    } else {
        // What was lost makes the difference smaller.
        aligned += u128::from(lost);
        wide - aligned
    };
    round(Natural::from(sum), large.exponent - 62, lost, large.is_negative && sum != 0)
}

fn print(value: LongDouble) -> Vec<u8> {
    let mut natural = Natural::from(u128::from(value.mantissa) * 100_000_000_000_000_000);
    match value.exponent {
        0.. => natural.shift_left(value.exponent as u32),
        _ => natural.shift_right_rounded(value.exponent.unsigned_abs(), false),
    }
    let mut digits = Vec::new();
    while !natural.is_zero() {
        digits.push(b'0' + natural.divide(10) as u8);
    }
    while digits.len() < 18 {
        digits.push(b'0');
    }
    let fraction: Vec<u8> = digits[..17].iter().rev().copied().collect();
    let mut text = if value.is_negative { vec![b'-'] } else { Vec::new() };
    text.extend(digits[17..].iter().rev());
    let kept = fraction.iter().rposition(|digit| *digit != b'0').map_or(0, |last| last + 1);
    if kept > 0 {
        text.push(b'.');
        text.extend_from_slice(&fraction[..kept]);
    }
    // As Redis: a zero has no sign.
    if text == b"-0" { b"0".to_vec() } else { text }
}

/// A thousand times a number without a fraction, which is rounded up; as a cast in C gives it on x86: what has no place in 64 bits is the
/// least of them.
pub fn thousandfold(text: &[u8]) -> Option<i64> {
    let LongDouble { is_negative, mantissa, exponent } = parse(text)?;
    let LongDouble { mantissa, exponent, .. } =
        round(Natural::from(u128::from(mantissa) * 1000), exponent, false, is_negative);
    if mantissa == 0 {
        return Some(0);
    }
    if exponent >= 0 {
        // Its highest bit is set.
        return Some(i64::MIN);
    }
    let fraction = exponent.unsigned_abs();
    let whole = mantissa.checked_shr(fraction).unwrap_or(0);
    let has_fraction = whole.checked_shl(fraction) != Some(mantissa);
    let rounded = i64::try_from(whole + u64::from(has_fraction && !is_negative)).unwrap_or(i64::MIN);
    Some(if is_negative { rounded.wrapping_neg() } else { rounded })
}

/// Whether a text is a number that [`sum`] takes.
pub fn is_number(text: &[u8]) -> bool {
    parse(text).is_some()
}

/// The text of the sum of two numbers, if both are numbers and it is finite.
pub fn sum(one: &[u8], other: &[u8]) -> Option<Vec<u8>> {
    let sum = add(parse(one)?, parse(other)?);
    // Two numbers that nearly cancel each other leave a small one, which is printed as zero.
    (i64::from(sum.exponent) + 63 <= TOP_MAX).then(|| print(sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousandfold_is_rounded_up_once() {
        for (text, expected) in [
            ("0", 0),
            ("-0.0", 0),
            ("1.5", 1_500),
            ("0.0001", 1),
            ("-0.0001", 0),
            ("-0.0015", -1),
            ("1e-4940", 1),
            ("9223372036854775.1", 9_223_372_036_854_775_100),
            ("9223372036854775.807", i64::MAX),
            ("9223372036854775.808", i64::MIN),
            ("1e4931", i64::MIN),
        ] {
            assert_eq!(thousandfold(text.as_bytes()), Some(expected), "{text}");
        }
        assert_eq!(thousandfold(b"1x"), None);
    }

    /// Each as Redis 7.0.15 on x86-64 answers.
    #[test]
    fn sums_are_those_of_redis() {
        for (one, other, expected) in [
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("0", "0.1", "0.1"),
            ("0.1", "0.2", "0.3"),
            ("3", "-3", "0"),
            ("1", "1e-17", "1.00000000000000001"),
            ("-1.5", "0.25", "-1.25"),
            ("0", "1e20", "100000000000000000000"),
            ("17179869184", "1.5", "17179869185.5"),
            ("0x10", "-0x.8p1", "15"),
        ] {
            let found = sum(one.as_bytes(), other.as_bytes()).unwrap();
            assert_eq!(String::from_utf8_lossy(&found), expected, "{one} + {other}");
        }
        for (one, other) in [("1.1e4932", "1.1e4932"), ("1.18e4932", "1e4931"), ("-1.18e4932", "-1.1e4932")] {
            assert_eq!(sum(one.as_bytes(), other.as_bytes()), None, "{one} + {other}");
        }
        let tiny = ["1e-5000", "1e-4960", "0x1p-20000"];
        let huge = ["1.19e4932", "1e4933", "0x1p16384"];
        for text in ["", "x", "1x", " 1", "1 ", ".", "nan", "--1", "0x", "0x1p99999"].iter().chain(&tiny).chain(&huge) {
            assert!(!is_number(text.as_bytes()), "{text}");
        }
    }
}
