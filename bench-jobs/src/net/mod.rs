//! Connections to a store, and HTTP to ask and to answer.

pub mod dial;
pub mod http_client;
pub mod http_server;
