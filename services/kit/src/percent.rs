//! Texts in which `%20` and the like stand for bytes, as in URLs and in messages of gRPC.

/// What a text means: `%2F` is `/`, anything else stands for itself. `None`: two hexadecimal digits are missing behind a `%`, or what comes
/// out is no text.
pub fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => byte_of(rest.next()?, rest.next()?)?,
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// A text as it may stand in a path, or as a value in a query: what is no ASCII letter, no digit and none of `-._~/` is `%` and the two digits of each
/// of its bytes.
pub fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            encoded.push(byte.into());
        } else {
            encoded.push('%');
            encoded.extend([byte >> 4, byte & 15].map(|digit| char::from(b"0123456789ABCDEF"[usize::from(digit)])));
        }
    }
    encoded
}

/// The byte that two hexadecimal digits are. Numbers are not parsed for it: they may have a sign, and `%+f` is no byte.
pub(crate) fn byte_of(high: u8, low: u8) -> Option<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    Some((digit(high)? << 4 | digit(low)?) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn two_digits_are_a_byte_and_a_sign_is_no_digit() {
        assert_eq!(decoded("a%2Fb%c3%B6").as_deref(), Some("a/b\u{f6}"));
        for broken in ["%+f", "%-1", "%f", "%", "%zz", "% f", "%ff"] {
            assert_eq!(decoded(broken), None, "{broken}");
        }
    }

    #[test]
    fn what_would_end_a_value_of_a_query_or_mean_something_else_in_it_is_encoded() {
        assert_eq!(encoded("/data/a b&c=d%25+\u{f6}?#.db"), "/data/a%20b%26c%3Dd%2525%2B%C3%B6%3F%23.db");
    }

    proptest! {
        #[test]
        fn what_is_encoded_means_what_it_was(text in any::<String>()) {
            prop_assert_eq!(decoded(&encoded(&text)), Some(text));
        }
    }
}
