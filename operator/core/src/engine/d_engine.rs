//! Our own d-engine. Flags: `d-engine serve --help`.

use super::{Placement, ProcessPlan};
use crate::validate::ValidatedService;

pub(super) fn members(service: &ValidatedService, placement: &Placement) -> Vec<ProcessPlan> {
    let group = (1..).zip(&placement.members).map(|(id, member)| {
        let (host, client, peer) = (&member.host, member.client_port, member.peer_port);
        format!("--member={id}={host}:{client},{host}:{peer}")
    });
    let group: Vec<String> = group.collect();
    placement
        .members
        .iter()
        .map(|member| {
            let mut arguments: Vec<String> = vec!["serve".into()];
            // A name that ends in -0 is member 1's: what a pod knows of itself is its name.
            arguments.push(format!("--node-id={}", member.own_name));
            arguments.extend(group.iter().cloned());
            arguments.extend([
                format!("--listen-address={}:{}", member.bind, member.client_port),
                format!("--listen-peer-address={}:{}", member.bind, member.peer_port),
                format!("--db-root-dir={}", member.data_directory),
                "--log-level=warn".into(),
            ]);
            arguments.extend(service.durability_class.flags.iter().map(ToString::to_string));
            arguments.extend(service.args.iter().cloned());
            ProcessPlan {
                name: member.name.clone(),
                binary: service.engine.binary(),
                arguments,
                environment: service.env.clone(),
                client_address: format!("{}:{}", member.host, member.client_port),
            }
        })
        .collect()
}
