//! Redis, and what takes the same settings. Settings: the servers' own redis.conf / valkey.conf.
//!
//! Snapshots (`save`) are off: they are another kind of durability, would start in the middle of a trial, and are not what
//! any of the classes promises. The append-only file gives `Fsync` (`always`) and `Interval` (`everysec`).

use super::{CLIENT, Launch, Start};

pub(super) fn launch(start: &Start) -> Launch {
    let Start { service, member, .. } = start;
    let port = member.port(CLIENT).to_string();
    let fixed = ["--port", &port, "--bind", &member.bind, "--dir", &member.data_directory, "--save", ""];
    let quiet = ["--daemonize", "no", "--protected-mode", "no", "--loglevel", "warning"];
    let arguments = fixed.iter().chain(service.durability_class.flags).chain(&quiet).map(ToString::to_string);
    Launch { arguments: arguments.collect(), ..Launch::default() }
}
