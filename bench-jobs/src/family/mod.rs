//! Workload families: what a client of each does, and how its answers are checked.

pub mod etcd;
pub mod kubernetes;
pub mod redis;
