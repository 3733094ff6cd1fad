//! Connections to a store, in the clear or over TLS, gRPC over them, what is said in it to an etcd, HTTP to ask and to answer, and who has
//! connected to whom; what is said of files that cannot be read for it; and what stands between two who speak to each other, for a fault of
//! the network.

pub mod connected;
pub mod dial;
pub mod etcd;
pub(crate) mod file;
pub mod grpc;
pub mod http_client;
pub mod http_server;
pub mod relay;
pub mod stream;
pub mod tls;
