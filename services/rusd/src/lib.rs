//! An etcd v3 server whose database is its log.

pub mod bolt;
pub mod proto;
