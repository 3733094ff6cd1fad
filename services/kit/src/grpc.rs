//! gRPC over HTTP/2 for servers: unary calls and streams, on the `h2` crate.
//!
//! [`serve`] turns the HTTP/2 streams of a connection into calls of a [`Service`], which knows neither frames nor HTTP/2. Every queue is bounded by flow control: what a
//! client does not read is not written. Source of the protocol: grpc/grpc `doc/PROTOCOL-HTTP2.md`.

mod call;
mod connection;
mod cork;
mod frame;
pub mod header_log;
mod status;
#[cfg(test)]
mod tests;
mod timeout;

pub use call::{Caller, Gone, HttpAnswer, Peer, Requests, Responses, Service, Stream, Unary};
pub use connection::{Limits, serve};
pub use frame::{Deframer, FrameError, append_with, check_answer, content, encode, encode_with};
pub use status::{Code, Status};
