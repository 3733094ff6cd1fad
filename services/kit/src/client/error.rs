//! What can go wrong in a gRPC exchange, as one type.
//!
//! Every failure of a connection, a stream, a frame or a message becomes a [`GrpcError`]; nothing in the client panics
//! on what a server sends. What the server says is not changed: who prints it makes one line of it.

use std::time::Duration;

use crate::grpc::{FrameError, Status};

/// A failed gRPC exchange.
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
    #[error("server answered {:?} (code {}): {}", .0.code, .0.code as u8, .0.message)]
    Status(Status),
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
        Self::Broken(error.to_string())
    }
}
