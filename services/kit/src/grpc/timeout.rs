//! The header `grpc-timeout`: how long a client waits.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};

/// Its name.
pub const NAME: &str = "grpc-timeout";

/// The time that the client allows; `None`: without end. What cannot be read counts as absent, as an interposed proxy may
/// have written it; the client watches its own clock anyway.
pub fn of(headers: &HeaderMap) -> Option<Duration> {
    parse(headers.get(NAME)?.as_bytes())
}

/// What a client says that waits so long; rounded down, as its own clock counts.
pub fn value(timeout: Duration) -> HeaderValue {
    const DIGITS_MAX: u128 = 99_999_999;
    let (nanos, micros, millis) = (timeout.as_nanos(), timeout.as_micros(), timeout.as_millis());
    let text = match timeout.as_secs() {
        _ if nanos <= DIGITS_MAX => format!("{nanos}n"),
        _ if micros <= DIGITS_MAX => format!("{micros}u"),
        _ if millis <= DIGITS_MAX => format!("{millis}m"),
        seconds if u128::from(seconds) <= DIGITS_MAX => format!("{seconds}S"),
        // More than three years.
        seconds => format!("{}H", u128::from(seconds / 3600).min(DIGITS_MAX)),
    };
    // Digits and a letter.
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("0n"))
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
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A server waits as long as the client, to the eighth digit.
        #[test]
        fn what_a_client_says_a_server_understands(nanos in any::<u64>(), shift in 0..64_u32) {
            let timeout = Duration::from_nanos(nanos >> shift);
            let heard = parse(value(timeout).as_bytes()).unwrap();
            prop_assert!(heard <= timeout && timeout - heard <= timeout / 1000, "{:?} {:?}", timeout, heard);
        }
    }

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
