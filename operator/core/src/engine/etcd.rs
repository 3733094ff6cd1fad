//! etcd, and rusd, which takes its flags. Flags: `etcd --help` of 3.7.

use super::{Placement, ProcessPlan};
use crate::validate::ValidatedService;

pub(super) fn members(service: &ValidatedService, placement: &Placement) -> Vec<ProcessPlan> {
    let cluster: Vec<String> = placement
        .members
        .iter()
        .map(|member| format!("{}=http://{}:{}", member.name, member.host, member.peer_port))
        .collect();
    let cluster = cluster.join(",");
    placement
        .members
        .iter()
        .map(|member| {
            let mut arguments: Vec<String> = vec![
                format!("--name={}", member.own_name),
                format!("--data-dir={}", member.data_directory),
                format!("--listen-client-urls=http://{}:{}", member.bind, member.client_port),
                format!("--advertise-client-urls=http://{}:{}", member.own_host, member.client_port),
                format!("--listen-peer-urls=http://{}:{}", member.bind, member.peer_port),
                format!("--initial-advertise-peer-urls=http://{}:{}", member.own_host, member.peer_port),
                format!("--initial-cluster={cluster}"),
                "--initial-cluster-state=new".into(),
                "--log-level=warn".into(),
            ];
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
