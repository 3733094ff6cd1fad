//! An etcd v3 server whose database is its log.

pub mod api;
pub mod aside;
mod backup;
pub mod bolt;
pub mod compactor;
pub mod corruption;
pub mod etcd_file;
pub mod flags;
pub mod gateway;
pub mod group;
pub mod hashes;
pub mod http;
pub mod import;
pub mod jwt;
pub mod lessor;
pub mod measured;
pub mod metrics;
pub mod node;
pub mod proto;
pub mod server;
pub mod settings;
pub mod space;
pub mod store;
mod systemd;
pub mod tls;
pub mod tokens;
pub mod watches;
