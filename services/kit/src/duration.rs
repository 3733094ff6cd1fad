//! Times as Go writes them, in whose words many servers are configured: `1h30m`, `1.5s`, `300ms`.

use std::time::Duration;

/// The time that a text of Go's notation stands for, as its `time.ParseDuration` reads it; `None` for any other text, and for what is
/// less than nothing.
pub fn of_go(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, tail) = rest.split_at(rest.find(|c: char| c != '.' && !c.is_ascii_digit())?);
        let (unit, tail) = tail.split_at(tail.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(tail.len()));
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        total = total.checked_add(part)?;
        rest = tail;
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_those_of_go() {
        for (text, millis) in [("1h30m", 5_400_000), ("1.5s", 1500), ("300ms", 300), ("0", 0), ("0s", 0), ("2000us", 2)]
        {
            assert_eq!(of_go(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for wrong in ["", "5", "s", "1x", "-1s", "1.2.3s", "99999999999999999999h", "1h 30m"] {
            assert_eq!(of_go(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_not(text in ".{0,20}", number in 0u32..1_000_000) {
            let _ = of_go(&text);
            prop_assert_eq!(of_go(&format!("{number}ms")), Some(Duration::from_millis(number.into())));
        }
    }
}
