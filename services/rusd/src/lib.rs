//! An etcd v3 server whose database is its log.

pub mod bolt;
pub mod etcd_file;
pub mod flags;
pub mod grpc;
pub mod proto;
pub mod settings;
