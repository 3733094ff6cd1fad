//! The store failed: what is said about it, in one line.

use std::fmt;
use std::io::{self, ErrorKind};

use service_kit::client::GrpcError;
use storebench_crds::line;

/// The longest message, bytes: several must fit in a termination message.
pub const LINE_BYTES_MAX: usize = 300;

/// What a failure shows of the connection, as far as whoever met it knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Nothing in particular: what there is to know is what the store said.
    #[default]
    Other,
    /// The store ended the connection without a word.
    HangUp,
    /// No handshake of TLS came about.
    Tls,
    /// What came is not the protocol that is spoken.
    Protocol,
}

/// A request that the store did not answer as it must: refused or lost connection, error reply, timeout, reply that
/// breaks the protocol. Its text is one line of at most [`LINE_BYTES_MAX`] bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    text: String,
    has_not_happened: bool,
    is_never_of_time: bool,
    kind: Kind,
}

impl Failure {
    /// A failure described by `text`. Whether the request had an effect is not known.
    pub fn new(text: impl fmt::Display) -> Self {
        Self {
            text: short_line(&text.to_string()),
            has_not_happened: false,
            is_never_of_time: false,
            kind: Kind::Other,
        }
    }

    /// The same, of this kind.
    pub fn of_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// What it shows of the connection.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The same of a request that surely had no effect: it was not sent, or was refused.
    pub fn without_effect(self) -> Self {
        Self { has_not_happened: true, ..self }
    }

    /// Whether the request surely had no effect. False: nobody knows.
    pub fn has_not_happened(&self) -> bool {
        self.has_not_happened
    }

    /// The same in other words.
    pub fn reworded(&self, text: impl fmt::Display) -> Self {
        Self { text: short_line(&text.to_string()), ..self.clone() }
    }

    /// The same of one that no delay explains, however long who asks and who answers stood still.
    pub fn never_of_time(self) -> Self {
        Self { is_never_of_time: true, ..self }
    }

    /// Whether a delay may explain it: an answer that did not come in time, a connection that was given up, an election that was called meanwhile.
    pub fn may_be_of_time(&self) -> bool {
        !self.is_never_of_time
    }

    /// An input or output error while doing something, such as `write to 127.0.0.1:6379`.
    pub fn io(doing: impl fmt::Display, error: &io::Error) -> Self {
        // Nobody listens: who stands still does.
        let is_never_of_time = error.kind() == ErrorKind::ConnectionRefused;
        let kind = match error.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Kind::HangUp,
            _ => Kind::Other,
        };
        Self { is_never_of_time, kind, ..Self::new(format_args!("{doing}: {}", plain(error))) }
    }

    /// An error of gRPC, in these words.
    pub fn grpc(text: impl fmt::Display, error: &GrpcError) -> Self {
        Self::new(text).of_kind(match error {
            GrpcError::Broken(_) => Kind::HangUp,
            GrpcError::Protocol(_) | GrpcError::Frame(_) | GrpcError::Decode(_) => Kind::Protocol,
            GrpcError::Connect(_) | GrpcError::TimedOut(_) | GrpcError::Status(_) => Kind::Other,
        })
    }

    /// The message.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// What the system says, without the "(os error 104)" that helps nobody.
pub fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    short_line(text.split(" (os error").next().unwrap_or_default())
}

/// A text from elsewhere as one line of at most [`LINE_BYTES_MAX`] bytes.
pub fn short_line(text: &str) -> String {
    line::short_line(text, LINE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn always_one_short_line(text: String) {
            let line = short_line(&text);
            prop_assert!(line.len() <= LINE_BYTES_MAX && !line.chars().any(char::is_control));
        }
    }

    #[test]
    fn says_what_was_done_and_what_went_wrong() {
        let error = io::Error::from_raw_os_error(104);
        let failure = Failure::io("read from 127.0.0.1:1", &error);
        assert_eq!(failure.text(), "read from 127.0.0.1:1: Connection reset by peer");
        assert!(failure.may_be_of_time());
        assert_eq!((failure.kind(), failure.reworded("lost").kind()), (Kind::HangUp, Kind::HangUp));
        assert!(!Failure::io("connect to 127.0.0.1:1", &io::Error::from_raw_os_error(111)).may_be_of_time());
        assert_eq!(short_line(&"x".repeat(1_000)).len(), LINE_BYTES_MAX);
    }
}
