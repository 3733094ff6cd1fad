//! Where saved runs are copied to: an object store ([`bucket`]), a branch in Git ([`crate::git::branch`]), a receiver of metrics
//! ([`receiver`]).
//!
//! Each promises: a run that is there as it is stays as it is, so that what is exported twice is exported once; one that is there otherwise is
//! an error, and nothing is written over.

mod bucket;
mod receiver;

use anyhow::bail;

use crate::git::branch::Branch;
use crate::git::place::GitPlace;
use crate::saved::SavedRun;
use bucket::Bucket;
use object_store_client::http::without_secrets;
use receiver::Receiver;

/// One of them.
pub(crate) enum Destination {
    /// Objects.
    Bucket(Bucket),
    /// Commits.
    Branch(Branch),
    /// Metrics.
    Receiver(Receiver),
}

/// Of the environment; what is empty is not set.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Destination {
    /// What `--to` names. Nothing is sent yet; a repository is looked for.
    pub(crate) fn of(to: &str, endpoint: Option<&str>) -> anyhow::Result<Self> {
        if let Some(place) = to.strip_prefix("s3://") {
            return Ok(Self::Bucket(Bucket::new(place, endpoint, variable)?));
        }
        if endpoint.is_some() {
            bail!(
                "--endpoint: is of an object store, and {} is none: leave it out, or write --to s3://BUCKET/PREFIX",
                without_secrets(to)
            );
        }
        if let Some(place) = GitPlace::of(to)? {
            return Ok(Self::Branch(Branch::new(place)?));
        }
        if to.starts_with("http://") || to.starts_with("https://") {
            return Ok(Self::Receiver(Receiver::new(to, variable)?));
        }
        let to = without_secrets(to);
        bail!("--to: {to} is no destination: write s3://BUCKET/PREFIX, git:BRANCH, or http://HOST:PORT/v1/metrics")
    }

    /// Copies a run there. Returns what became of it, in words that follow its name.
    pub(crate) fn export(&self, run: &SavedRun) -> anyhow::Result<String> {
        match self {
            Self::Bucket(bucket) => bucket.export(run),
            Self::Branch(branch) => branch.export(run),
            Self::Receiver(receiver) => receiver.export(run),
        }
    }
}
