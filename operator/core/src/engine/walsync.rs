//! Our own walsync: every database in the shared directory, also those that come later. Flags: `walsync watch --help`.

use storebench_crds::engine::object_store::{ACCESS_KEY, BUCKET, DATABASE_SUFFIX, PREFIX, REGION, SECRET_KEY};

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
    let environment = [("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY), ("RUST_LOG", "warn")];
    Launch {
        arguments: arguments.into(),
        environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        ..Launch::default()
    }
}
