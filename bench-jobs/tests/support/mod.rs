//! What the process tests share: real stores on ports of their own, `bench-job` and `store-meter` run against them.

// Each test program uses a part of it.
#![allow(dead_code)]

pub mod block_node;
pub mod etcd;
pub mod job;
pub mod meter;
pub mod outside;
pub mod redis;
