//! `s3://BUCKET[/PREFIX]`: a run as objects `PREFIX/RUN/TIME-VERDICT/FILE`.

use std::io::{Cursor, Read as _};
use std::sync::Arc;

use anyhow::{anyhow, bail};
use object_store_client::credentials;
use object_store_client::s3::{S3Settings, S3Store};
use object_store_client::{Attributes, Store, StoreError, retry};

use crate::saved::SavedRun;

/// How often a request is sent to a store that is busy or cannot be reached.
const TRIES: u32 = 5;

/// A bucket, and what the keys in it begin with.
pub(crate) struct Bucket {
    store: Arc<dyn Store>,
    name: String,
    prefix: String,
}

impl Bucket {
    /// The bucket that `place` names behind `s3://`, with the credentials and addresses of AWS's tools, those of a pod's role among them.
    /// Sends nothing.
    pub(super) fn new(
        place: &str,
        endpoint: Option<&str>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> anyhow::Result<Self> {
        let (name, prefix) = place.split_once('/').unwrap_or((place, ""));
        if name.is_empty() {
            bail!("--to: s3://{place} names no bucket: write s3://BUCKET/PREFIX");
        }
        let wrong = |error: StoreError| anyhow!("s3://{place}: {error}");
        let Some(credentials) = credentials::provider(false, &variable).map_err(wrong)? else {
            bail!(
                "s3://{place}: there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, write ~/.aws/credentials, \
                 or run in a pod or container that has a role"
            );
        };
        let store = S3Store::new(S3Settings::find(name, endpoint, None, variable), credentials).map_err(wrong)?;
        Ok(Self { store: Arc::new(store), name: name.into(), prefix: prefix.trim_matches('/').into() })
    }

    /// Writes what is not there yet.
    pub(super) fn export(&self, run: &SavedRun) -> anyhow::Result<String> {
        let slash = if self.prefix.is_empty() { "" } else { "/" };
        let folder = format!("{}{slash}{}", self.prefix, run.path());
        // All of them before the first is written: half a run beside another is neither.
        let mut missing = Vec::new();
        for (file, bytes) in &run.files {
            let key = format!("{folder}/{file}");
            if !self.is_there(&key, bytes)? {
                missing.push((key, bytes));
            }
        }
        if missing.is_empty() {
            return Ok(format!("is at s3://{}/{folder}/ already", self.name));
        }
        for (key, bytes) in missing {
            let attributes = Attributes::default();
            let created =
                retry(TRIES, || self.store.create(&key, &mut Cursor::new(bytes), bytes.len() as u64, &attributes));
            match created {
                Ok(()) => {}
                // By another export meanwhile, or by a try of which the answer was lost.
                Err(StoreError::AlreadyExists(_)) if self.is_there(&key, bytes)? => {}
                Err(error) => return Err(self.failed(&key, &error)),
            }
        }
        Ok(format!("copied to s3://{}/{folder}/", self.name))
    }

    /// Whether an object has this content. Errors: it has another.
    fn is_there(&self, key: &str, bytes: &[u8]) -> anyhow::Result<bool> {
        let content = retry(TRIES, || {
            let mut content = Vec::new();
            // One that is longer is another.
            self.store.get(key, None)?.take(bytes.len() as u64 + 1).read_to_end(&mut content)?;
            Ok(content)
        });
        match content {
            Ok(content) if content == bytes => Ok(true),
            Ok(_) => bail!(
                "s3://{}/{key}: is there with other content, and nothing is written over: export to another prefix",
                self.name
            ),
            Err(StoreError::NotFound(_)) => Ok(false),
            Err(error) => Err(self.failed(key, &error)),
        }
    }

    fn failed(&self, key: &str, error: &StoreError) -> anyhow::Error {
        anyhow!(
            "s3://{}/{key}: {error}: check the bucket, --endpoint, AWS_REGION and the credentials (AWS_ACCESS_KEY_ID, ~/.aws/credentials)",
            self.name
        )
    }
}

#[cfg(test)]
mod tests {
    use object_store_client::memory::{Fault, MemoryStore};
    use storebench_core::judgement::judge;
    use storebench_core::record::RunRecord;
    use storebench_core::report::Report;

    use super::*;

    fn run(text: &str) -> SavedRun {
        let record: RunRecord = serde_json::from_value(serde_json::json!({
            "recordVersion": 1, "name": "nightly", "storebenchVersion": "0", "startedAt": "2026-11-22T17:30:15Z",
            "durationMillis": 0, "driver": "Embedded", "spec": { "arms": [], "workloads": [] }, "arms": [], "trials": [],
            "fingerprint": { "hash": "0" }, "caveats": [],
        }))
        .unwrap();
        let files = [("run.yaml", "a run"), ("report.json", text)];
        SavedRun {
            report: Report { judgement: judge(&record), record },
            folder: "20261122T173015Z-Passed".into(),
            files: files.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())).to_vec(),
        }
    }

    fn bucket() -> (Arc<MemoryStore>, Bucket) {
        let store = Arc::new(MemoryStore::default());
        let bucket = Bucket { store: store.clone(), name: "b".into(), prefix: "all".into() };
        (store, bucket)
    }

    #[test]
    fn an_answer_that_was_lost_is_no_failure_and_no_second_object() {
        let (store, bucket) = bucket();
        store.set_fault(Fault::LoseAnswer);
        let became = bucket.export(&run("a report")).unwrap();
        assert_eq!(became, "copied to s3://b/all/nightly/20261122T173015Z-Passed/");
        let keys: Vec<String> = store.list("").unwrap().into_iter().map(|object| object.key).collect();
        let folder = "all/nightly/20261122T173015Z-Passed";
        assert_eq!(keys, [format!("{folder}/report.json"), format!("{folder}/run.yaml")]);
    }

    #[test]
    fn what_was_cut_short_is_completed_and_what_is_there_otherwise_stops_before_anything_is_written() {
        let (store, bucket) = bucket();
        let key = "all/nightly/20261122T173015Z-Passed/report.json";
        store.create(key, &mut Cursor::new("a report"), 8, &Attributes::default()).unwrap();
        let refused = bucket.export(&run("another")).unwrap_err().to_string();
        assert!(refused.contains("report.json: is there with other content"), "{refused}");
        assert_eq!(store.list("").unwrap().len(), 1);
        assert!(bucket.export(&run("a report")).unwrap().starts_with("copied to "));
        assert_eq!(store.list("").unwrap().len(), 2);
        assert!(bucket.export(&run("a report")).unwrap().ends_with(" already"));
    }

    #[test]
    fn a_pod_with_a_role_needs_no_keys_of_its_own() {
        let variable = |name: &str| match name {
            "AWS_WEB_IDENTITY_TOKEN_FILE" => Some("/var/run/secrets/token".to_owned()),
            "AWS_ROLE_ARN" => Some("arn:aws:iam::1:role/x".to_owned()),
            "AWS_ENDPOINT_URL" | "AWS_ENDPOINT_URL_STS" => Some("http://127.0.0.1:1".to_owned()),
            _ => None,
        };
        Bucket::new("bucket/prefix", None, variable).map(drop).unwrap();
    }

    #[test]
    fn a_store_that_refuses_for_good_is_named_with_what_to_check() {
        let (store, bucket) = bucket();
        store.set_fault(Fault::Forbid);
        let refused = bucket.export(&run("a report")).unwrap_err().to_string();
        assert!(refused.contains("403 ExpiredToken: check the bucket, --endpoint"), "{refused}");
        for (place, variable, said) in
            [("/prefix", "id", "names no bucket"), ("bucket", "", "there are no credentials: set AWS_ACCESS_KEY_ID")]
        {
            let refused = Bucket::new(place, None, |_| Some(variable.to_owned()).filter(|text| !text.is_empty()));
            assert!(refused.err().unwrap().to_string().contains(said), "{place}");
        }
    }
}
