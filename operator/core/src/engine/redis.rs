//! Redis, and what takes the same settings. Settings: the servers' own redis.conf / valkey.conf.
//!
//! Snapshots (`save`) are off: they are another kind of durability, would start in the middle of a trial, and are not what
//! any of the classes promises. The append-only file gives `Fsync` (`always`) and `Interval` (`everysec`).

use super::{Placement, ProcessPlan};
use crate::validate::ValidatedService;

pub(super) fn members(service: &ValidatedService, placement: &Placement) -> Vec<ProcessPlan> {
    placement
        .members
        .iter()
        .map(|member| {
            let port = member.client_port.to_string();
            let fixed = ["--port", &port, "--bind", &member.bind, "--dir", &member.data_directory, "--save", ""];
            let quiet = ["--daemonize", "no", "--protected-mode", "no", "--loglevel", "warning"];
            let arguments = fixed.iter().chain(service.durability_class.flags).chain(&quiet).map(ToString::to_string);
            ProcessPlan {
                name: member.name.clone(),
                binary: service.engine.binary(),
                arguments: arguments.chain(service.args.iter().cloned()).collect(),
                environment: service.env.clone(),
                client_address: format!("{}:{}", member.host, member.client_port),
            }
        })
        .collect()
}
