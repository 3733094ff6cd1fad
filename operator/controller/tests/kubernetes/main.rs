//! The operator's own binary against a real API server with its controllers, on simulated nodes: what the API server refuses,
//! what others have written, what the operator's permissions allow. What stores and loads do is not seen here; that is what
//! testing/cluster is for.
//!
//! Needs the executables that `peers/fetch etcd kubernetes` installs. Therefore ignored, and run by .ci/run:
//! `cargo test -p storebench-operator --test kubernetes -- --ignored`.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod baselines;
mod cluster;
mod external;
mod forged;
mod names;
mod policies;
mod pools;
mod refused;
mod secrets;
mod suites;
mod suspended;
mod templates;
mod upgraded;
mod world;
