//! Errors that commands answer with, in Redis's own words. What a client has sent is in them byte for byte, text or not, up to a zero.

use std::borrow::Cow;

/// An error's code and text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", String::from_utf8_lossy(.0))]
pub struct Failure(pub Cow<'static, [u8]>);

/// What a command's function returns: its reply was written, or this is to be written.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// A text that never changes.
    pub const fn new(text: &'static str) -> Self {
        Self(Cow::Borrowed(text.as_bytes()))
    }

    /// A text made for the occasion.
    pub fn text(text: String) -> Self {
        Self(Cow::Owned(text.into_bytes()))
    }

    /// Words of ours, and between them what a client has sent, up to its first zero: Redis makes its errors as C makes text.
    pub fn joined(parts: &[&[u8]]) -> Self {
        Self(Cow::Owned(parts.iter().copied().map(up_to_zero).collect::<Vec<_>>().concat()))
    }

    /// Too few or too many arguments.
    pub fn arity(command: &str) -> Self {
        Self::text(format!("ERR wrong number of arguments for '{command}' command"))
    }

    /// A subcommand that is not there, or has too few or too many arguments.
    pub fn subcommand(name: &[u8], command: &str) -> Self {
        let try_help = format!("'. Try {command} HELP.");
        Self::joined(&[b"ERR unknown subcommand or wrong number of arguments for '", name, try_help.as_bytes()])
    }

    /// An expiry that cannot be.
    pub fn expire_time(command: &str) -> Self {
        Self::text(format!("ERR invalid expire time in '{command}' command"))
    }
}

/// What C takes for the text.
pub fn up_to_zero(bytes: &[u8]) -> &[u8] {
    memchr::memchr(0, bytes).map_or(bytes, |end| &bytes[..end])
}

/// The key holds something else.
pub const WRONG_TYPE: Failure = Failure::new("WRONGTYPE Operation against a key holding the wrong kind of value");
/// Words that are not understood.
pub const SYNTAX: Failure = Failure::new("ERR syntax error");
/// Not an integer.
pub const NOT_INTEGER: Failure = Failure::new("ERR value is not an integer or out of range");
/// Not a double.
pub const NOT_FLOAT: Failure = Failure::new("ERR value is not a valid float");
/// The key is not there.
pub const NO_KEY: Failure = Failure::new("ERR no such key");
/// No such element.
pub const OUT_OF_RANGE: Failure = Failure::new("ERR index out of range");
/// A count below zero.
pub const NOT_POSITIVE: Failure = Failure::new("ERR value is out of range, must be positive");
