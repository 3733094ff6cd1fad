//! Litestream: one process for every database in the shared directory, also those that come later. Its own files go into its data
//! directory. Settings: litestream.yml of 0.5.17; what is not written is its default, such as an upload each second.

use storebench_crds::engine::object_store::{ACCESS_KEY, BUCKET, DATABASE_SUFFIX, PREFIX, REGION, SECRET_KEY};

use std::collections::BTreeMap;

use storebench_crds::job::RestoreTool;

use super::{Launch, METRICS, Start};

pub(super) fn launch(start: &Start) -> Launch {
    let member = start.member;
    let file = format!("{}/litestream.yml", member.files_directory);
    let (shared, endpoint, data) = (start.shared_directory(), start.object_store(), &member.data_directory);
    let settings = format!(
        "addr: \"{bind}:{port}\"
access-key-id: {ACCESS_KEY}
secret-access-key: {SECRET_KEY}
logging: {{ level: warn, stderr: true }}
dbs:
- dir: {shared}
  pattern: \"*{DATABASE_SUFFIX}\"
  watch: true
  meta-path: {data}
  replica: {{ type: s3, endpoint: \"{endpoint}\", bucket: {BUCKET}, path: {PREFIX}, region: {REGION}, force-path-style: true }}
",
        bind = member.bind,
        port = member.port(METRICS),
    );
    Launch {
        arguments: vec!["replicate".into(), "-config".into(), file.clone(), "-no-expand-env".into()],
        files: vec![(file, settings)],
        ..Launch::default()
    }
}

/// The arguments of its tool, which needs no file of settings, and its environment.
pub(super) fn restore(object_store: &str) -> (Vec<String>, BTreeMap<String, String>) {
    let replica = format!(
        "s3://{BUCKET}/{PREFIX}/{}?endpoint=http://{object_store}&region={REGION}&forcePathStyle=true",
        RestoreTool::DATABASE
    );
    let arguments = vec!["restore".into(), "-o".into(), RestoreTool::OUTPUT.into(), replica];
    let environment = [("LITESTREAM_ACCESS_KEY_ID", ACCESS_KEY), ("LITESTREAM_SECRET_ACCESS_KEY", SECRET_KEY)];
    (arguments, environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into())
}
