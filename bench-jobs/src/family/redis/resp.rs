//! The Redis protocol, RESP2 and RESP3: writes commands, reads replies in place.
//!
//! Source: <https://redis.io/docs/latest/develop/reference/protocol-spec/>. Replies are read token by token, without
//! copying: an array is its header, followed by the tokens of its elements. A reply that is not complete yet is not an
//! error; one that can never become right, or that announces more than the bounds below, is.

/// A longer bulk string is refused. Values have at most 1 MiB; the rest is room for what a store may say of itself.
pub const BULK_BYTES_MAX: usize = 16 << 20;
/// A longer line (simple string, error, number) is refused.
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// A longer array or map is refused.
pub const ELEMENTS_MAX: u64 = 1 << 24;

/// One piece of a reply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Token<'a> {
    /// `+OK`
    Simple(&'a [u8]),
    /// `-ERR …`, or a RESP3 bulk error.
    Error(&'a [u8]),
    /// `:42`
    Integer(i64),
    /// `$3 abc`, or a RESP3 verbatim string without its format.
    Bulk(&'a [u8]),
    /// `$-1`, `*-1` or RESP3 `_`.
    Null,
    /// An array or a RESP3 set: so many tokens or nested replies follow.
    Array(u64),
    /// A RESP3 map: so many pairs follow.
    Map(u64),
    /// RESP3 `,1.5`
    Double(f64),
    /// RESP3 `#t`
    Boolean(bool),
    /// RESP3 `(123…`
    BigNumber(&'a [u8]),
}

impl Token<'_> {
    /// What it is, for a message.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Simple(_) => "a simple string",
            Self::Error(_) => "an error",
            Self::Integer(_) => "an integer",
            Self::Bulk(_) => "a string",
            Self::Null => "nil",
            Self::Array(_) => "an array",
            Self::Map(_) => "a map",
            Self::Double(_) => "a double",
            Self::Boolean(_) => "a boolean",
            Self::BigNumber(_) => "a big number",
        }
    }

    /// How many further replies must be read before a reply that starts with this token is complete.
    pub fn following(&self) -> u64 {
        match self {
            Self::Array(count) => *count,
            Self::Map(pairs) => 2 * pairs,
            _ => 0,
        }
    }
}

/// Bytes that are not the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A token starts with a byte that no type has, or that no reply to our commands can have (push, attribute).
    #[error("a reply starts with byte 0x{0:02x}")]
    Type(u8),
    /// A line of more than [`LINE_BYTES_MAX`] bytes.
    #[error("a line of a reply is longer than {LINE_BYTES_MAX} bytes")]
    Line,
    /// A number, length, or boolean that is none.
    #[error("a reply has a number that is none")]
    Number,
    /// A length above [`BULK_BYTES_MAX`] or [`ELEMENTS_MAX`], or below −1.
    #[error("a reply announces {0} bytes or elements")]
    Length(i64),
    /// A line or string that does not end with carriage return and line feed.
    #[error("a reply lacks a line end")]
    End,
}

/// Reads the first token of `input`: the token and its length in bytes, or `None` if it is not complete yet.
#[inline]
pub fn read(input: &[u8]) -> Result<Option<(Token<'_>, usize)>, Malformed> {
    let Some((&kind, rest)) = input.split_first() else {
        return Ok(None);
    };
    let Some(line) = read_line(rest)? else {
        // Refuse at once what no further byte can mend.
        return match kind {
            b'+' | b'-' | b':' | b'$' | b'*' | b'_' | b',' | b'#' | b'!' | b'=' | b'(' | b'%' | b'~' => Ok(None),
            other => Err(Malformed::Type(other)),
        };
    };
    let end = 1 + line.len() + 2;
    let token = match kind {
        b'+' => Token::Simple(line),
        b'-' => Token::Error(line),
        b':' => Token::Integer(integer(line)?),
        b'$' | b'!' | b'=' => return read_bulk(input, kind, line, end),
        b'*' | b'~' => match length(line, ELEMENTS_MAX)? {
            Some(count) => Token::Array(count),
            None => Token::Null,
        },
        b'%' => Token::Map(length(line, ELEMENTS_MAX)?.ok_or(Malformed::Length(-1))?),
        b'_' if line.is_empty() => Token::Null,
        b'#' if line == b"t" => Token::Boolean(true),
        b'#' if line == b"f" => Token::Boolean(false),
        b',' => Token::Double(double(line).ok_or(Malformed::Number)?),
        b'(' => Token::BigNumber(line),
        b'_' | b'#' => return Err(Malformed::Number),
        other => return Err(Malformed::Type(other)),
    };
    Ok(Some((token, end)))
}

#[inline]
fn read_bulk<'a>(
    input: &'a [u8],
    kind: u8,
    line: &[u8],
    start: usize,
) -> Result<Option<(Token<'a>, usize)>, Malformed> {
    let Some(bytes) = length(line, BULK_BYTES_MAX as u64)? else {
        return Ok(Some((Token::Null, start)));
    };
    let end = start + bytes as usize;
    let Some(ending) = input.get(end..end + 2) else {
        return Ok(None);
    };
    if ending != b"\r\n" {
        return Err(Malformed::End);
    }
    let bulk = &input[start..end];
    let token = match kind {
        b'!' => Token::Error(bulk),
        // Three letters of format and a colon.
        b'=' => Token::Bulk(bulk.get(4..).ok_or(Malformed::Length(bytes as i64))?),
        _ => Token::Bulk(bulk),
    };
    Ok(Some((token, end + 2)))
}

/// The text up to the first line end, without it.
#[inline]
fn read_line(input: &[u8]) -> Result<Option<&[u8]>, Malformed> {
    let Some(at) = input.iter().take(LINE_BYTES_MAX + 1).position(|byte| *byte == b'\r') else {
        return if input.len() > LINE_BYTES_MAX { Err(Malformed::Line) } else { Ok(None) };
    };
    match input.get(at + 1) {
        None => Ok(None),
        Some(b'\n') => Ok(Some(&input[..at])),
        Some(_) => Err(Malformed::End),
    }
}

/// −1, the length of what is not there, is `None`.
#[inline]
fn length(line: &[u8], most: u64) -> Result<Option<u64>, Malformed> {
    match integer(line)? {
        -1 => Ok(None),
        length if length >= 0 && length as u64 <= most => Ok(Some(length as u64)),
        length => Err(Malformed::Length(length)),
    }
}

#[inline]
fn integer(line: &[u8]) -> Result<i64, Malformed> {
    let (negative, digits) = match line {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return Err(Malformed::Number);
    }
    // Counted downwards, since the smallest number has no positive twin.
    let number = digits.iter().try_fold(0i64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| i64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_sub(digit)
    });
    match (number, negative) {
        (Some(number), true) => Ok(number),
        (Some(number), false) => number.checked_neg().ok_or(Malformed::Number),
        (None, _) => Err(Malformed::Number),
    }
}

fn double(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A number in a reply: a RESP3 double, or the string that RESP2 uses for it.
pub fn score(token: Token<'_>) -> Option<f64> {
    match token {
        Token::Double(number) => Some(number),
        Token::Integer(number) => Some(number as f64),
        Token::Bulk(text) => double(text),
        _ => None,
    }
}

/// Appends a command as an array of bulk strings.
pub fn write_command(arguments: &[&[u8]], into: &mut Vec<u8>) {
    into.extend_from_slice(format!("*{}\r\n", arguments.len()).as_bytes());
    for argument in arguments {
        into.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        into.extend_from_slice(argument);
        into.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(text: &[u8]) -> Token<'_> {
        let (token, length) = read(text).unwrap().unwrap();
        assert_eq!(length, text.len());
        token
    }

    #[test]
    fn every_type_is_read() {
        assert_eq!(one(b"+OK\r\n"), Token::Simple(b"OK"));
        assert_eq!(one(b"-ERR no\r\n"), Token::Error(b"ERR no"));
        assert_eq!(one(b":-42\r\n"), Token::Integer(-42));
        assert_eq!(one(b":-9223372036854775808\r\n"), Token::Integer(i64::MIN));
        assert_eq!(one(b"$4\r\na\r\nb\r\n"), Token::Bulk(b"a\r\nb"));
        assert_eq!(one(b"$0\r\n\r\n"), Token::Bulk(b""));
        assert_eq!(one(b"$-1\r\n"), Token::Null);
        assert_eq!(one(b"*-1\r\n"), Token::Null);
        assert_eq!(one(b"*3\r\n"), Token::Array(3));
        assert_eq!(one(b"_\r\n"), Token::Null);
        assert_eq!(one(b",1.5\r\n"), Token::Double(1.5));
        assert_eq!(one(b",inf\r\n"), Token::Double(f64::INFINITY));
        assert_eq!(one(b"#t\r\n"), Token::Boolean(true));
        assert_eq!(one(b"!5\r\nERR x\r\n"), Token::Error(b"ERR x"));
        assert_eq!(one(b"=7\r\ntxt:abc\r\n"), Token::Bulk(b"abc"));
        assert_eq!(one(b"(123\r\n"), Token::BigNumber(b"123"));
        assert_eq!(one(b"%2\r\n"), Token::Map(2));
        assert_eq!(one(b"~2\r\n"), Token::Array(2));
    }

    #[test]
    fn what_can_never_be_right_is_refused() {
        for (text, error) in [
            (&b"?\r\n"[..], Malformed::Type(b'?')),
            (b">3\r\n", Malformed::Type(b'>')),
            (b"x", Malformed::Type(b'x')),
            (b":\r\n", Malformed::Number),
            (b":1x\r\n", Malformed::Number),
            (b":9223372036854775808\r\n", Malformed::Number),
            (b"$-2\r\n", Malformed::Length(-2)),
            (b"$99999999999\r\n", Malformed::Length(99_999_999_999)),
            (b"*16777217\r\n", Malformed::Length(16_777_217)),
            (b"%-1\r\n", Malformed::Length(-1)),
            (b"$1\r\nabc", Malformed::End),
            (b"+OK\rx", Malformed::End),
            (b"#x\r\n", Malformed::Number),
            (b"_x\r\n", Malformed::Number),
            (b"=2\r\nab\r\n", Malformed::Length(2)),
        ] {
            assert_eq!(read(text), Err(error), "{:?}", text.escape_ascii().to_string());
        }
        let endless = [b"+".as_slice(), &[b'a'; LINE_BYTES_MAX + 1]].concat();
        assert_eq!(read(&endless), Err(Malformed::Line));
    }

    #[test]
    fn commands_look_as_they_must() {
        let mut text = Vec::new();
        write_command(&[b"SET", b"key", b"a\r\nb"], &mut text);
        assert_eq!(text, b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$4\r\na\r\nb\r\n");
    }

    proptest! {
        #[test]
        fn nothing_makes_it_stumble(input: Vec<u8>) {
            let _ = read(&input);
        }

        /// Likelier to get far than any bytes at all.
        #[test]
        fn nothing_that_looks_right_makes_it_stumble(input in "[-+:$*_,#!=(%~]{1,2}[-0-9a\r\n]{0,6}\r\n[a\r\n]{0,8}") {
            if let Ok(Some((_, length))) = read(input.as_bytes()) {
                prop_assert!(length <= input.len());
            }
        }

        #[test]
        fn a_string_is_read_back_whole_and_never_too_early(bytes: Vec<u8>, after: Vec<u8>) {
            let mut text = format!("${}\r\n", bytes.len()).into_bytes();
            text.extend_from_slice(&bytes);
            text.extend_from_slice(b"\r\n");
            let length = text.len();
            for cut in 0..length {
                prop_assert_eq!(read(&text[..cut]), Ok(None));
            }
            text.extend_from_slice(&after);
            prop_assert_eq!(read(&text), Ok(Some((Token::Bulk(&bytes), length))));
        }

        #[test]
        fn every_integer_is_read_back(number: i64) {
            let text = format!(":{number}\r\n");
            prop_assert_eq!(one(text.as_bytes()), Token::Integer(number));
        }

        #[test]
        fn what_we_send_is_what_we_would_read(arguments in proptest::collection::vec(any::<Vec<u8>>(), 1..5)) {
            let mut text = Vec::new();
            let slices: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
            write_command(&slices, &mut text);
            let (header, mut at) = read(&text).unwrap().unwrap();
            prop_assert_eq!(header, Token::Array(arguments.len() as u64));
            for argument in &arguments {
                let (token, length) = read(&text[at..]).unwrap().unwrap();
                prop_assert_eq!(token, Token::Bulk(argument));
                at += length;
            }
            prop_assert_eq!(at, text.len());
        }
    }
}
