//! Our own block-node. Flags: `block-node --help`.

use super::{CLIENT, Launch, Start};

pub(super) fn launch(start: &Start) -> Launch {
    let Start { service, member, .. } = start;
    let mut arguments = vec![
        format!("--files-recent-live-root-path={}", member.data_directory),
        format!("--server-host={}", member.bind),
        format!("--server-port={}", member.port(CLIENT)),
        // A load cannot sign for a network: the hash of its root hash stands in a block's signature's place.
        "--accept-dummy-proofs".into(),
        "--log-level=warn".into(),
    ];
    arguments.extend(service.durability_class.flags.iter().map(ToString::to_string));
    Launch { arguments, ..Launch::default() }
}
