//! versitygw: an S3 server on a directory, in which each directory is a bucket. Flags: `versitygw --help` of 1.8.

use storebench_crds::engine::object_store::{ACCESS_KEY, BUCKET, SECRET_KEY};

use super::{CLIENT, Launch, Start};

/// The path of readiness, as the engine's row has it.
const HEALTH: &str = "/healthz";

pub(super) fn launch(start: &Start) -> Launch {
    let member = start.member;
    let address = format!("{}:{}", member.bind, member.port(CLIENT));
    let arguments = ["--port", &address, "--health", HEALTH, "--quiet", "posix", &member.data_directory];
    let environment = [("ROOT_ACCESS_KEY", ACCESS_KEY), ("ROOT_SECRET_KEY", SECRET_KEY)];
    Launch {
        arguments: arguments.map(ToString::to_string).into(),
        environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        directories: vec![format!("{}/{BUCKET}", member.data_directory)],
        files: Vec::new(),
    }
}
