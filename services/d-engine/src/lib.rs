//! A replicated key-value store with three read levels, each of which keeps its word: as a server, and within a Rust program.
//!
//! ```text
//! api (two dialects of the original, a streaming RPC, HTTP) ───┐
//!                                                              ├─► engine::Node ──► replog ──► machine ──► state
//! Engine::client (the client crate's words, in this process) ──┘        │                        │
//!                                                                       └── views, history ◄─────┘
//! ```
//!
//! [`state`] is pure; [`engine`] gives it a log, readers and watchers; [`api`] and [`server`] are a thin shell around that.

pub mod api;
pub mod command_line;
pub mod engine;
pub mod history;
pub mod machine;
pub mod metrics;
pub mod server;
pub mod settings;
pub mod state;

pub use engine::{Address, Durability, Engine, EngineError, MemberChange, NotLeading, Options, StateStorage};
/// Who leads, as [`Engine::leadership`] tells it.
pub use replog::runtime::Leadership;
