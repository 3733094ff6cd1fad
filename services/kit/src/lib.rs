//! What every server of this project shares: sockets, TLS, gRPC, limits, a graceful stop. It knows of no server in particular.

pub mod der;
pub mod grpc;
pub mod http;
pub mod listen;
pub mod open_files;
pub mod server;
pub mod socket;
pub mod tls;
pub mod url;
pub mod workers;
