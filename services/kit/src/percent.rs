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

/// The byte that two hexadecimal digits are. Numbers are not parsed for it: they may have a sign, and `%+f` is no byte.
pub(crate) fn byte_of(high: u8, low: u8) -> Option<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    Some((digit(high)? << 4 | digit(low)?) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_digits_are_a_byte_and_a_sign_is_no_digit() {
        assert_eq!(decoded("a%2Fb%c3%B6").as_deref(), Some("a/b\u{f6}"));
        for broken in ["%+f", "%-1", "%f", "%", "%zz", "% f", "%ff"] {
            assert_eq!(decoded(broken), None, "{broken}");
        }
    }
}
