//! Connections to a store, in the clear or over TLS, gRPC over them, what is said in it to an etcd, and HTTP to ask and to answer.

pub mod dial;
pub mod etcd;
pub mod grpc;
pub mod http_client;
pub mod http_server;
pub mod stream;
pub mod tls;
