//! What clients of d-engine say, in any dialect: it is understood or refused.

#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use bytes::Bytes;
use d_engine::api::{Method, understand};
use libfuzzer_sys::fuzz_target;

const PATHS: [&str; 10] = [
    "/raft.client.RaftClientService/HandleClientWrite",
    "/raft.client.RaftClientService/HandleClientRead",
    "/raft.cluster.ClusterManagementService/UpdateClusterConf",
    "/d_engine.client.RaftClientService/HandleClientWrite",
    "/d_engine.client.RaftClientService/HandleClientRead",
    "/d_engine.client.RaftClientService/HandleClientScan",
    "/d_engine.client.RaftClientService/Watch",
    "/d_engine.server.cluster.ClusterManagementService/UpdateClusterConf",
    "/storebench.dengine.v1.Store/Operate",
    "/storebench.dengine.v1.Store/ChangeMembers",
];

fuzz_target!(|data: &[u8]| {
    let [which, content @ ..] = data else { return };
    let path = PATHS[usize::from(*which) % PATHS.len()];
    let method = Method::of(path).expect("a method of ours");
    // An error is an answer too.
    let _ = understand(method, Bytes::copy_from_slice(content));
});
