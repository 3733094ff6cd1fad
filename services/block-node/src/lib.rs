//! `block-node`: a Hiero block node. It verifies blocks, makes them safe on disk before it acknowledges them, and serves one
//! copy to everyone.
//!
//! From the inside out: [`wire`], [`hash`], [`block`] and [`messages`] are pure; `store` keeps blocks in files that a test can
//! replace; `publish` decides who sends what; the shell around it speaks gRPC.

pub mod block;
pub mod craft;
pub mod hash;
pub mod messages;
pub mod wire;
