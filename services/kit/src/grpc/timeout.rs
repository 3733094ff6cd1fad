//! The header `grpc-timeout`: how long a client waits.

use std::time::Duration;

use http::HeaderMap;

/// The time that the client allows; `None`: without end. What cannot be read counts as absent, as an interposed proxy may
/// have written it; the client watches its own clock anyway.
pub fn of(headers: &HeaderMap) -> Option<Duration> {
    parse(headers.get("grpc-timeout")?.as_bytes())
}

/// At most eight digits and a unit.
fn parse(text: &[u8]) -> Option<Duration> {
    let (unit, digits) = text.split_last()?;
    if digits.is_empty() || digits.len() > 8 {
        return None;
    }
    let mut number = 0_u64;
    for digit in digits {
        number = number * 10 + u64::from(char::from(*digit).to_digit(10)?);
    }
    Some(match unit {
        b'H' => Duration::from_secs(number * 3600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_understood_and_nonsense_is_not() {
        assert_eq!(parse(b"2H"), Some(Duration::from_secs(7200)));
        assert_eq!(parse(b"3M"), Some(Duration::from_secs(180)));
        assert_eq!(parse(b"99999999S"), Some(Duration::from_secs(99_999_999)));
        assert_eq!(parse(b"5m"), Some(Duration::from_millis(5)));
        assert_eq!(parse(b"4999871u"), Some(Duration::from_micros(4_999_871)));
        assert_eq!(parse(b"7n"), Some(Duration::from_nanos(7)));
        for nonsense in [&b""[..], b"S", b"1", b"123456789S", b"-1S", b"1x", b"1.5S", b"\xff\xff"] {
            assert_eq!(parse(nonsense), None, "{nonsense:?}");
        }
    }
}
