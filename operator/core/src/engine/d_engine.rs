//! Our own d-engine. Flags: `d-engine serve --help`.

use super::{CLIENT, Launch, PEER, Start};

pub(super) fn launch(start: &Start) -> Launch {
    let Start { service, member, .. } = start;
    let group = (1..).zip(start.members()).map(|(id, member)| {
        let (host, client, peer) = (&member.host, member.port(CLIENT), member.port(PEER));
        format!("--member={id}={host}:{client},{host}:{peer}")
    });
    // A name that ends in -0 is member 1's: what a pod knows of itself is its name.
    let mut arguments = vec!["serve".to_owned(), format!("--node-id={}", member.own_name)];
    arguments.extend(group);
    arguments.extend([
        format!("--listen-address={}:{}", member.bind, member.port(CLIENT)),
        format!("--listen-peer-address={}:{}", member.bind, member.port(PEER)),
        format!("--db-root-dir={}", member.data_directory),
        "--log-level=warn".into(),
    ]);
    arguments.extend(service.durability_class.flags.iter().map(ToString::to_string));
    Launch { arguments, ..Launch::default() }
}
