//! A store, opened, and a place in it: whatever it was named as, a folder or a place in a bucket.

use super::place::{BUCKETS, Place, refuse_place};
use super::{AzureOptions, Config, ConfigError, GcsOptions, S3Options, S3Place, clouds, home, refuse};
use crate::import::LegacyReplica;
use crate::replica::Replica;
use crate::store::Store;
use crate::store::files::FileStore;
use ltx::Layout;
use std::path::PathBuf;
use std::sync::Arc;

/// What a place may be.
const KNOWN: &str = "walsync knows s3://bucket/prefix, gs://bucket/prefix, abs://account@container/prefix, file:///folder, and a folder's path";

/// How to reach each kind of store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreOptions {
    /// S3.
    pub s3: S3Options,
    /// Google Cloud Storage.
    pub gcs: GcsOptions,
    /// Azure Blob Storage.
    pub azure: AzureOptions,
}

impl From<&S3Options> for StoreOptions {
    fn from(s3: &S3Options) -> Self {
        StoreOptions { s3: s3.clone(), ..StoreOptions::default() }
    }
}

impl From<&Config> for StoreOptions {
    fn from(config: &Config) -> Self {
        StoreOptions { s3: config.s3.clone(), gcs: config.gcs.clone(), azure: config.azure.clone() }
    }
}

/// A store and a place in it.
#[derive(Clone)]
pub struct Location {
    pub(super) store: Arc<dyn Store>,
    pub(super) layout: Layout,
    /// What keys below the place begin with.
    pub(super) prefix: String,
    pub(super) place: Place,
}

impl Location {
    fn folder(path: PathBuf) -> Location {
        let place = Place::folder(&path);
        Location { store: Arc::new(FileStore::new(path)), layout: Layout::Files, prefix: String::new(), place }
    }

    /// Opens `s3://bucket/prefix`, `file:///folder`, or a folder; `gs://bucket/prefix` and `abs://account@container/prefix` with the feature
    /// `clouds`. Credentials come from `options`, else from the machine.
    pub fn open(url: &str, options: impl Into<StoreOptions>) -> Result<Location, ConfigError> {
        Location::open_as(url, options.into(), true)
    }

    /// The same. Where nobody logs in, to say what it means, credentials that are not there are made up.
    pub(super) fn open_as(url: &str, options: StoreOptions, logs_in: bool) -> Result<Location, ConfigError> {
        if url.is_empty() {
            return refuse("store", format!("is empty, and would be the current folder; for that write ./; {KNOWN}"));
        }
        if let Some(path) = url.strip_prefix("file://").filter(|path| path.starts_with('/')) {
            return Ok(Location::folder(path.into()));
        }
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        if let Some(place) = clouds::parse(url, &options.gcs, &options.azure, variable)? {
            return place.open(logs_in, variable);
        }
        if let Some(place) = S3Place::parse(url, &options.s3)? {
            return place.open(logs_in, variable);
        }
        // A mistyped URL is no folder: what goes there would be taken for safe elsewhere.
        let first = url.split('/').next().unwrap_or_default();
        let is_scheme = first == "file" || BUCKETS.contains(&first);
        if first.contains(':') || is_scheme && url.contains("//") {
            return refuse_place(url, KNOWN);
        }
        home::check("store", url.as_ref())?;
        let folder = std::path::absolute(url).unwrap_or_else(|_| url.into());
        Ok(Location::folder(folder))
    }

    /// The store, and what keys below the place begin with.
    pub fn store(&self) -> (&Arc<dyn Store>, &str) {
        (&self.store, &self.prefix)
    }

    /// What Litestream 0.3 has written to the place itself.
    pub fn legacy(&self) -> LegacyReplica {
        LegacyReplica::new(self.store.clone(), &self.prefix)
    }

    /// Where the replica called `name` lies.
    pub fn place(&self, name: &str) -> Place {
        self.place.of(name)
    }

    /// The replica called `name`; the place itself where that is empty.
    pub fn replica(&self, name: &str) -> Replica {
        let prefix = if self.prefix.is_empty() || name.is_empty() { "" } else { "/" };
        Replica::new(self.store.clone(), self.layout, &format!("{}{prefix}{name}", self.prefix))
    }
}
