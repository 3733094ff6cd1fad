//! Members as processes of their own, on real files: killed, stopped, on disks that are full, slow or broken.
//!
//! The long run, with a history for porcupine:
//! REPLOG_SECONDS=600 REPLOG_HISTORY=history.jsonl cargo test --release -p replog --test process kills -- --nocapture

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests: a failure is a failure")]

mod children;
mod clients;
mod faults;
mod history;
mod kills;
mod server;
