//! What can go wrong in a gRPC exchange, as one type whose text is one line.
//!
//! Every failure of a connection, a stream, a frame or a message becomes a [`GrpcError`]; nothing in the client panics
//! on what a server sends. Status codes and the percent-encoding of `grpc-message` follow the gRPC over HTTP/2
//! specification (grpc/grpc `doc/PROTOCOL-HTTP2.md`, "Responses") and `doc/statuscodes.md`.

use std::time::Duration;

use http::HeaderMap;

use super::frame::FrameError;
use crate::failure::one_line;

/// A failed gRPC exchange. The text of each is one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrpcError {
    /// No connection could be made: to where and why not.
    #[error("{0}")]
    Connect(String),
    /// The connection or the stream broke: closed, reset, GOAWAY, or a breach of HTTP/2.
    #[error("connection broke: {0}")]
    Broken(String),
    /// No answer within the time allowed.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The server answered with an error of its own.
    #[error("server answered {} (code {code}): {message}", code_name(*code))]
    Status {
        /// The gRPC status code; never 0.
        code: u32,
        /// The server's text, decoded, on one line.
        message: String,
    },
    /// The answer is not gRPC, or not the one message that a unary call owes.
    #[error("not a gRPC answer: {0}")]
    Protocol(String),
    /// The bytes of the answer are not a gRPC message frame.
    #[error("broken message frame: {0}")]
    Frame(#[from] FrameError),
    /// The message in the answer could not be decoded.
    #[error("undecodable message: {0}")]
    Decode(String),
}

impl From<h2::Error> for GrpcError {
    fn from(error: h2::Error) -> Self {
        Self::Broken(one_line(&error.to_string()))
    }
}

/// The name of a gRPC status code, from grpc/grpc `doc/statuscodes.md`.
fn code_name(code: u32) -> &'static str {
    const NAMES: [&str; 17] = [
        "OK",
        "Canceled",
        "Unknown",
        "InvalidArgument",
        "DeadlineExceeded",
        "NotFound",
        "AlreadyExists",
        "PermissionDenied",
        "ResourceExhausted",
        "FailedPrecondition",
        "Aborted",
        "OutOfRange",
        "Unimplemented",
        "Internal",
        "Unavailable",
        "DataLoss",
        "Unauthenticated",
    ];
    usize::try_from(code).ok().and_then(|index| NAMES.get(index).copied()).unwrap_or("an unknown status")
}

/// Reads the outcome from trailers, or from the headers of an answer that has no body ("Trailers-Only").
///
/// Errors: a status other than 0; a missing or unreadable `grpc-status`.
pub fn status_of(trailers: &HeaderMap) -> Result<(), GrpcError> {
    let Some(code) = trailers.get("grpc-status") else {
        return Err(GrpcError::Protocol("the answer ended without grpc-status".into()));
    };
    // The common case first: no parsing for a success.
    if code.as_bytes() == b"0" {
        return Ok(());
    }
    let code: u32 = code
        .to_str()
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| GrpcError::Protocol(format!("unreadable grpc-status {code:?}")))?;
    if code == 0 {
        return Ok(());
    }
    let message = trailers.get("grpc-message").map(|value| value.as_bytes()).unwrap_or_default();
    Err(GrpcError::Status { code, message: one_line(&percent_decode(message)) })
}

/// Decodes `grpc-message`: `%` and two hexadecimal digits are a byte, everything else stands for itself. A `%` that is
/// not followed by two digits stays as it is: the specification forbids failing on it.
pub fn percent_decode(text: &[u8]) -> String {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first == b'%'
            && let [high, low, after @ ..] = tail
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            bytes.push(high << 4 | low);
            rest = after;
        } else {
            bytes.push(first);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn trailers(status: &'static str, message: &'static str) -> HeaderMap {
        let mut map = HeaderMap::new();
        map.insert("grpc-status", HeaderValue::from_static(status));
        map.insert("grpc-message", HeaderValue::from_static(message));
        map
    }

    #[test]
    fn success_is_success_and_silence_is_not() {
        assert_eq!(status_of(&trailers("0", "")), Ok(()));
        assert!(matches!(status_of(&HeaderMap::new()), Err(GrpcError::Protocol(_))));
        assert!(matches!(status_of(&trailers("x", "")), Err(GrpcError::Protocol(_))));
        assert!(matches!(status_of(&trailers("-1", "")), Err(GrpcError::Protocol(_))));
    }

    #[test]
    fn a_status_is_told_in_words_on_one_line() {
        let error = status_of(&trailers("8", "etcdserver: mvcc: database%20space%0Aexceeded")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "server answered ResourceExhausted (code 8): etcdserver: mvcc: database space exceeded"
        );
        assert!(status_of(&trailers("99", "")).unwrap_err().to_string().contains("an unknown status (code 99)"));
    }

    #[test]
    fn broken_percent_signs_stand_for_themselves() {
        for (encoded, decoded) in [("%", "%"), ("%4", "%4"), ("%zz", "%zz"), ("100%", "100%"), ("%41%", "A%")] {
            assert_eq!(percent_decode(encoded.as_bytes()), decoded);
        }
        assert_eq!(percent_decode(b"%E2%82%AC"), "\u{20ac}");
        assert_eq!(percent_decode(b"%ff"), "\u{fffd}");
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding(text in any::<String>()) {
            let encoded: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
            prop_assert_eq!(percent_decode(encoded.as_bytes()), text);
        }

        #[test]
        fn any_bytes_are_decoded_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let text = one_line(&percent_decode(&bytes));
            prop_assert!(!text.contains('\n'));
        }
    }
}
