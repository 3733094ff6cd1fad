//! How a call ends.

use std::borrow::Cow;

use http::{HeaderMap, HeaderValue};

/// Status codes of gRPC, from grpc/grpc `doc/statuscodes.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Code {
    Ok = 0,
    Canceled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

impl Code {
    /// The code with this number; a number that is none is an unknown error.
    pub fn of(number: u8) -> Self {
        const CODES: [Code; 17] = [
            Code::Ok,
            Code::Canceled,
            Code::Unknown,
            Code::InvalidArgument,
            Code::DeadlineExceeded,
            Code::NotFound,
            Code::AlreadyExists,
            Code::PermissionDenied,
            Code::ResourceExhausted,
            Code::FailedPrecondition,
            Code::Aborted,
            Code::OutOfRange,
            Code::Unimplemented,
            Code::Internal,
            Code::Unavailable,
            Code::DataLoss,
            Code::Unauthenticated,
        ];
        CODES.get(usize::from(number)).copied().unwrap_or(Code::Unknown)
    }
}

/// An error that a call ends with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code:?}: {message}")]
pub struct Status {
    /// What kind; never [`Code::Ok`].
    pub code: Code,
    /// What is told to the client.
    pub message: Cow<'static, str>,
}

impl Status {
    /// An error.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into() }
    }

    /// The deadline of the client has passed.
    pub(crate) fn deadline() -> Self {
        Self::new(Code::DeadlineExceeded, "context deadline exceeded")
    }

    /// As trailers.
    pub(crate) fn trailers(&self) -> HeaderMap {
        let mut trailers = HeaderMap::with_capacity(2);
        trailers.insert("grpc-status", code_value(self.code));
        // What was percent-encoded is visible ASCII.
        if let Ok(message) = HeaderValue::from_maybe_shared(percent_encode(&self.message)) {
            trailers.insert("grpc-message", message);
        }
        trailers
    }
}

/// The trailers of success.
pub(crate) fn success() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert("grpc-status", code_value(Code::Ok));
    trailers
}

fn code_value(code: Code) -> HeaderValue {
    const VALUES: [&str; 17] =
        ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"];
    HeaderValue::from_static(VALUES[code as usize])
}

/// Everything but visible ASCII becomes `%` and two hexadecimal digits, and so does `%`.
fn percent_encode(text: &str) -> bytes::Bytes {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = Vec::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' | 0..=0x1f | 0x7f.. => {
                out.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
            }
            plain => out.push(plain),
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_numbers_of_grpc() {
        for number in 0..17 {
            assert_eq!(Code::of(number) as u8, number);
        }
        assert_eq!(Code::of(17), Code::Unknown);
    }

    #[test]
    fn a_message_is_percent_encoded() {
        let trailers = Status::new(Code::OutOfRange, "50% of\nkö").trailers();
        assert_eq!(trailers["grpc-status"], "11");
        assert_eq!(trailers["grpc-message"], "50%25 of%0Ak%C3%B6");
    }
}
