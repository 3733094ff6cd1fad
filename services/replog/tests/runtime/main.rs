//! Members with real threads, on real files or on simulated ones that fail. Nothing here depends on how fast the machine is:
//! what is waited for comes sooner or later.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests: a failure is a failure")]

mod counts;
mod failures;
mod forward;
mod group;
mod identity;
mod long_steps;
mod machine;
mod members;
mod notes;
mod reads;
mod tcp;
