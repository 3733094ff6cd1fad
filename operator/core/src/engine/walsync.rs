//! Our own walsync: every database in the shared directory, also those that come later. Flags: `walsync watch --help`.

use storebench_crds::engine::object_store::{ACCESS_KEY, BUCKET, DATABASE_SUFFIX, PREFIX, REGION, SECRET_KEY};

use std::collections::BTreeMap;

use storebench_crds::job::RestoreTool;

use super::{Launch, METRICS, Start};

pub(super) fn launch(start: &Start) -> Launch {
    let member = start.member;
    let arguments = [
        "watch".to_owned(),
        format!("{}/*{DATABASE_SUFFIX}", start.shared_directory()),
        format!("--to=s3://{BUCKET}/{PREFIX}"),
        format!("--endpoint={}", start.object_store()),
        format!("--region={REGION}"),
        format!("--staging-folder={}", member.data_directory),
        format!("--listen=http://{}:{}", member.bind, member.port(METRICS)),
    ];
    let environment = [("RUST_LOG", "warn".to_owned())].into_iter().chain(credentials());
    Launch {
        arguments: arguments.into(),
        environment: environment.map(|(name, value)| (name.to_owned(), value)).collect(),
        ..Launch::default()
    }
}

/// The arguments of its tool, and its environment.
pub(super) fn restore(object_store: &str) -> (Vec<String>, BTreeMap<String, String>) {
    let arguments = vec![
        "restore".into(),
        format!("s3://{BUCKET}/{PREFIX}/{}", RestoreTool::DATABASE),
        "-o".into(),
        RestoreTool::OUTPUT.into(),
        format!("--endpoint=http://{object_store}"),
        format!("--region={REGION}"),
    ];
    (arguments, credentials().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn credentials() -> impl Iterator<Item = (&'static str, String)> {
    [("AWS_ACCESS_KEY_ID", ACCESS_KEY.to_owned()), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.to_owned())].into_iter()
}
