//! An etcd v3 server whose database is its log.

pub mod flags;
pub mod grpc;
pub mod proto;
pub mod settings;
pub mod store;
