//! An etcd v3 server whose database is its log.

pub mod proto;
pub mod store;
