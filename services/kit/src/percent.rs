//! Texts in which `%20` and the like stand for bytes, as in URLs.

/// What a text means: `%2F` is `/`, anything else stands for itself. `None`: two hexadecimal digits are missing behind a `%`, or what comes
/// out is no text.
pub fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}
