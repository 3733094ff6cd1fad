//! `block-node`: a Hiero block node. It verifies blocks, makes them safe on disk before it acknowledges them, and serves one
//! copy to everyone.
//!
//! From the inside out: [`wire`], [`hash`], [`block`] and [`messages`] are pure; [`store`] keeps blocks in files that a test can
//! replace; [`publish`] decides who sends what; the shell around it speaks gRPC.

pub mod api;
pub mod backfill;
pub mod block;
pub mod budget;
pub mod clients;
pub mod command_line;
pub mod compressed;
pub mod configuration;
pub mod connect;
pub mod contents_proof;
pub mod craft;
pub mod data_directory;
pub mod decompress;
pub mod filter;
pub mod hash;
pub mod java_files;
pub mod lending;
pub mod messages;
pub mod metrics;
pub mod node;
pub mod packer;
#[cfg(test)]
mod polled;
pub mod proofs;
pub mod publish;
pub mod publish_stream;
pub mod reading;
pub mod recent;
pub mod scrub;
pub mod server;
pub mod settings;
pub mod simulate;
pub mod status;
pub mod store;
pub mod subscribe;
pub mod verify;
pub mod wire;

pub use service_kit::console;
