//! The Java block node, from a folder with its jars and a JDK: its start script, in words of our own, since that needs a shell.
//! Variables: the node's `configuration.md`, 0.38.
//!
//! The heap is fixed, so that two trials have the same; `JDK_JAVA_OPTIONS` in the service's `env` takes its place. It listens on all
//! addresses: there is no setting for that.

use super::{CLIENT, Launch, Start};

const HEAP: &str = "-Xms1G -Xmx1G";
const MAIN: &str = "org.hiero.block.node.app/org.hiero.block.node.app.BlockNodeApp";

pub(super) fn launch(start: &Start) -> Launch {
    let member = start.member;
    let (data, programs) = (&member.data_directory, &member.programs_directory);
    let module_path = format!("--module-path={programs}/lib");
    let folder = |name: &str| format!("{data}/{name}");
    let environment = [
        ("JDK_JAVA_OPTIONS", HEAP.to_owned()),
        ("SERVER_PORT", member.port(CLIENT).to_string()),
        ("PROMETHEUS_ENDPOINT_PORT_NUMBER", member.port("metrics").to_string()),
        ("FILES_RECENT_LIVE_ROOT_PATH", folder("live")),
        ("FILES_RECENT_UNVERIFIED_ROOT_PATH", folder("unverified")),
        ("FILES_HISTORIC_ROOT_PATH", folder("historic")),
        ("VERIFICATION_ALL_BLOCKS_HASHER_FILE_PATH", folder("verification/rootHashOfAllPreviousBlocks.bin")),
    ];
    Launch {
        arguments: vec![module_path, "--module".into(), MAIN.into()],
        environment: environment.map(|(name, value)| (name.to_owned(), value)).into(),
        directories: ["live", "unverified", "historic", "verification"].map(folder).into(),
        files: Vec::new(),
    }
}
