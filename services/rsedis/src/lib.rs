//! rsedis: a Redis-compatible server.
//!
//! One executor thread runs every command, so that there is one total order. Its loop ([`reactor`]) takes what sockets have, parses
//! commands where they were received ([`protocol`]), runs them ([`command`]) on a state that knows neither sockets nor files nor
//! clocks ([`server`]), brings what they changed ([`effects`]) into the append-only file ([`persistence`]), and only then sends the
//! replies, one write for each client.
//!
//! ```text
//!  sockets ─► reactor ─► protocol ─► command ─► server: keyspace, value, structure
//!     ▲          │                      │
//!     └─ replies ┴── persistence ◄── effects
//! ```

pub mod acl;
pub mod clock;
pub mod command;
pub mod connection;
pub mod digest;
pub mod effects;
pub mod events;
pub mod eviction;
pub mod failure;
pub mod file_limit;
pub mod glob;
pub mod hash;
pub mod hexadecimal;
pub mod keyspace;
pub mod latency;
pub mod log;
pub mod long_double;
pub mod memory;
pub mod metrics;
pub mod number;
pub mod persistence;
pub mod protocol;
pub mod random;
pub mod rdb;
pub mod reactor;
pub mod replication;
pub mod scripting;
pub mod server;
pub mod session;
pub mod settings;
pub mod structure;
pub mod tls;
pub mod value;
pub mod waiting;

/// The version of Redis whose behaviour this is.
pub const REDIS_VERSION: &str = "7.0.15";
