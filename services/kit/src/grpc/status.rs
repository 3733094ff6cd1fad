//! How a call ends.

use std::borrow::Cow;

use http::{HeaderMap, HeaderValue};

use crate::percent;

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
    /// What is told besides, if anything is.
    pub metadata: Option<Box<HeaderMap>>,
}

impl Status {
    /// An error.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), metadata: None }
    }

    /// The same with an entry of the metadata besides.
    pub fn with(mut self, name: &'static str, value: HeaderValue) -> Self {
        self.metadata.get_or_insert_default().insert(name, value);
        self
    }

    /// A stream was called as if it were none: the service contradicts itself.
    pub fn is_stream() -> Self {
        Self::new(Code::Internal, "a stream was called as if it were none")
    }

    /// A method without streams was called as one: the service contradicts itself.
    pub fn is_no_stream() -> Self {
        Self::new(Code::Internal, "a method without streams was called as one")
    }

    /// The deadline of the client has passed.
    pub fn deadline() -> Self {
        Self::new(Code::DeadlineExceeded, "context deadline exceeded")
    }

    /// How a call ended, as its trailers say, or the headers of an answer without a body. `None`: they do not say. A code that is none
    /// is an unknown error.
    pub fn of(trailers: &HeaderMap) -> Option<Result<(), Self>> {
        let code = trailers.get("grpc-status")?.as_bytes();
        // The common case first: no parsing for a success.
        if code == b"0" {
            return Some(Ok(()));
        }
        let code = std::str::from_utf8(code).ok()?.parse::<u32>().ok()?;
        let code = Code::of(u8::try_from(code).unwrap_or(u8::MAX));
        if code == Code::Ok {
            return Some(Ok(()));
        }
        let message = trailers.get("grpc-message").map(|value| value.as_bytes()).unwrap_or_default();
        Some(Err(Self::new(code, percent_decode(message))))
    }

    /// As trailers.
    pub fn trailers(&self) -> HeaderMap {
        let mut trailers = HeaderMap::with_capacity(2);
        trailers.insert("grpc-status", code_value(self.code));
        // What was percent-encoded is visible ASCII.
        if let Ok(message) = HeaderValue::from_maybe_shared(percent_encode(&self.message)) {
            trailers.insert("grpc-message", message);
        }
        if let Some(metadata) = &self.metadata {
            trailers.extend(metadata.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        trailers
    }
}

/// The trailers of success.
#[cfg(feature = "server")]
pub fn success() -> HeaderMap {
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

/// `%` and two hexadecimal digits are a byte, everything else stands for itself. A `%` that is not followed by two digits stays as
/// it is: the protocol forbids failing on it.
fn percent_decode(text: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first == b'%'
            && let [high, low, after @ ..] = tail
            && let Some(byte) = percent::byte_of(*high, *low)
        {
            bytes.push(byte);
            rest = after;
        } else {
            bytes.push(first);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn codes_have_the_numbers_of_grpc() {
        for number in 0..17 {
            assert_eq!(Code::of(number) as u8, number);
        }
        assert_eq!(Code::of(17), Code::Unknown);
    }

    #[test]
    fn success_is_success_and_silence_is_not() {
        let said = |status: &'static str| {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static(status));
            Status::of(&trailers)
        };
        assert_eq!((said("0"), said("00")), (Some(Ok(())), Some(Ok(()))));
        assert_eq!((Status::of(&HeaderMap::new()), said("x"), said("-1")), (None, None, None));
        let unknown = Some(Err(Status::new(Code::Unknown, "")));
        assert_eq!((said("99"), said("256")), (unknown.clone(), unknown));
    }

    #[test]
    fn broken_percent_signs_stand_for_themselves() {
        for (encoded, decoded) in
            [("%", "%"), ("%4", "%4"), ("%zz", "%zz"), ("100%", "100%"), ("%+f", "%+f"), ("%41%", "A%")]
        {
            assert_eq!(percent_decode(encoded.as_bytes()), decoded);
        }
        assert_eq!(percent_decode(b"%E2%82%AC"), "\u{20ac}");
        assert_eq!(percent_decode(b"%ff"), "\u{fffd}");
    }

    proptest! {
        #[test]
        fn what_one_end_says_the_other_hears(number in 1_u8..17, message in any::<String>()) {
            let status = Status::new(Code::of(number), message);
            prop_assert_eq!(Status::of(&status.trailers()), Some(Err(status)));
        }

        #[test]
        fn any_bytes_are_decoded(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = percent_decode(&bytes);
        }
    }

    #[test]
    fn a_message_is_percent_encoded() {
        let trailers = Status::new(Code::OutOfRange, "50% of\nkö").trailers();
        assert_eq!(trailers["grpc-status"], "11");
        assert_eq!(trailers["grpc-message"], "50%25 of%0Ak%C3%B6");
    }

    #[test]
    fn metadata_goes_along() {
        let status = Status::new(Code::FailedPrecondition, "no").with("x-more", HeaderValue::from_static("{}"));
        let trailers = status.trailers();
        assert_eq!((trailers.len(), &trailers["x-more"]), (3, &HeaderValue::from_static("{}")));
    }
}
