//! Servers as processes of their own, on loopback, with clients of all doors; killed, stopped, emptied.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod alone;
mod backup;
mod bench;
mod closed_pipes;
mod command_line;
mod compressed;
mod ctl;
mod dashboard;
mod dialects;
mod disk;
mod forwarding;
mod group;
mod kills;
mod locks;
mod lost_data;
mod many_keys;
mod members;
mod replies;
mod rolling;
mod stopped;
mod tls;
mod untaken;
mod users;
