//! Connections to a store, gRPC over them, and HTTP to ask and to answer.

pub mod dial;
pub mod grpc;
pub mod http_client;
pub mod http_server;
