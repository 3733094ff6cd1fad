//! gRPC over HTTP/2: unary calls and streams, on the `h2` crate. What both ends need is here always; the server's end with the feature
//! `server`, the client's in [`crate::client`].
//!
//! [`serve`] turns the HTTP/2 streams of a connection into calls of a [`Service`], which knows neither frames nor HTTP/2. Every
//! queue is bounded by flow control: what a client does not read is not written. Source of the protocol: grpc/grpc
//! `doc/PROTOCOL-HTTP2.md`.

#[cfg(feature = "server")]
mod answer;
#[cfg(feature = "server")]
mod call;
#[cfg(feature = "server")]
mod coming;
#[cfg(feature = "gzip")]
mod compressed;
#[cfg(feature = "server")]
mod compression;
#[cfg(feature = "server")]
mod connection;
#[cfg(feature = "server")]
mod cork;
mod frame;
#[cfg(feature = "server")]
pub mod header_log;
#[cfg(feature = "server")]
mod memory;
#[cfg(feature = "server")]
mod peer;
#[cfg(feature = "server")]
mod pings;
#[cfg(feature = "server")]
mod requests;
mod status;
#[cfg(test)]
#[cfg(feature = "server")]
mod tests;
pub mod timeout;
#[cfg(feature = "server")]
mod unpacking;

#[cfg(feature = "server")]
pub(crate) use answer::{ANSWER_PIECE_BYTES, SMALL_ANSWER_BYTES};
#[cfg(feature = "server")]
pub use call::{Caller, Decompress, Gone, HttpAnswer, Responses, Service, Stream, Unary, decode};
#[cfg(feature = "gzip")]
pub use compressed::{RoomFor, cannot_decompress, decompressed, gunzip, gzip, too_long_decompressed};
#[cfg(feature = "server")]
pub use compression::{Compress, Compression, accepts};
#[cfg(feature = "server")]
pub use connection::{Limits, STREAMS_MAX, serve};
pub use frame::{Deframer, FrameError, append_with, check_answer, content, encode, encode_with};
#[cfg(feature = "server")]
pub use memory::{Arriving, CALL_BYTES, Kept, Memory, Room};
#[cfg(feature = "server")]
pub(crate) use memory::{Share, Streamed, Waiting};
#[cfg(feature = "server")]
pub use peer::Peer;
#[cfg(feature = "server")]
pub use requests::Requests;
pub use status::{Code, Status};
