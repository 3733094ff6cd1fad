//! etcd, and rusd, which takes its flags. Flags: `etcd --help` of 3.7.

use super::{CLIENT, Launch, PEER, Start};

pub(super) fn launch(start: &Start) -> Launch {
    let Start { service, member, .. } = start;
    let cluster =
        start.members().iter().map(|member| format!("{}=http://{}:{}", member.name, member.host, member.port(PEER)));
    let cluster = cluster.collect::<Vec<_>>().join(",");
    let (client, peer) = (member.port(CLIENT), member.port(PEER));
    let mut arguments: Vec<String> = vec![
        format!("--name={}", member.own_name),
        format!("--data-dir={}", member.data_directory),
        format!("--listen-client-urls=http://{}:{client}", member.bind),
        format!("--advertise-client-urls=http://{}:{client}", member.own_host),
        format!("--listen-peer-urls=http://{}:{peer}", member.bind),
        format!("--initial-advertise-peer-urls=http://{}:{peer}", member.own_host),
        format!("--initial-cluster={cluster}"),
        "--initial-cluster-state=new".into(),
        "--log-level=warn".into(),
    ];
    arguments.extend(service.durability_class.flags.iter().map(ToString::to_string));
    Launch { arguments, ..Launch::default() }
}
