//! The original d-engine, by the program in `peers/d-engine-original`: its flags are in that program's first lines. Clients and members come to one port.

use super::{CLIENT, Launch, Start};

pub(super) fn launch(start: &Start) -> Launch {
    let member = start.member;
    let group = (1..).zip(start.members()).map(|(id, member)| {
        let (host, port) = (&member.host, member.port(CLIENT));
        format!("--member={id}={host}:{port}")
    });
    // A name that ends in -0 is member 1's: what a pod knows of itself is its name.
    let mut arguments = vec![format!("--node-id={}", member.own_name)];
    arguments.extend(group);
    arguments.extend([
        format!("--listen-address={}:{}", member.bind, member.port(CLIENT)),
        format!("--data-dir={}", member.data_directory),
    ]);
    Launch { arguments, ..Launch::default() }
}
