//! Servers as processes of their own, on loopback, with clients of all doors; killed, stopped, emptied.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod backup;
mod command_line;
mod dialects;
mod disk;
mod forwarding;
mod group;
mod kills;
mod locks;
mod members;
mod rolling;
mod tls;
mod users;
