//! What every server of this project shares: sockets, TLS, gRPC, limits, logs, metrics, health, signals, a graceful stop. It knows of no
//! server in particular. `examples/echo.rs` is a whole server.
//!
//! With the feature `client` alone it is a gRPC client, with `process` alone what any process needs, with `tls` alone
//! configurations of TLS, and nothing of the rest.

#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "process")]
pub mod command_line;
#[cfg(feature = "process")]
pub mod console;
#[cfg(feature = "process")]
pub mod directory;
#[cfg(feature = "process")]
pub mod duration;
#[cfg(feature = "grpc")]
pub mod grpc;
#[cfg(feature = "server")]
pub mod health;
#[cfg(feature = "server")]
pub mod http;
#[cfg(feature = "server")]
mod http1;
#[cfg(any(feature = "server", feature = "process"))]
pub mod lines;
#[cfg(feature = "server")]
pub mod listen;
#[cfg(feature = "server")]
pub mod logs;
#[cfg(feature = "server")]
pub mod metrics;
#[cfg(feature = "process")]
pub mod open_files;
#[cfg(feature = "server")]
pub mod operations;
#[cfg(feature = "process")]
pub mod panics;
#[cfg(any(feature = "grpc", feature = "process"))]
pub mod percent;
#[cfg(feature = "server")]
pub mod places;
#[cfg(feature = "server")]
pub mod probes;
#[cfg(feature = "server")]
mod proto;
#[cfg(feature = "server")]
pub mod reflection;
#[cfg(feature = "process")]
pub mod resources;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "server")]
pub mod signals;
#[cfg(feature = "server")]
pub mod socket;
#[cfg(feature = "tls")]
pub mod tls;
#[cfg(feature = "server")]
pub mod url;
#[cfg(feature = "server")]
pub mod workers;
