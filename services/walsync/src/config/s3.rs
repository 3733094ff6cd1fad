//! S3, and what speaks its protocol: its words, those behind a place too, and its store.

use super::place::{self, Place, endpoint, refuse_place};
use super::{ConfigError, Location, refuse};
use crate::store::Store;
use crate::store::credentials::{self, Credentials, Provider};
use crate::store::s3::{S3Settings, S3Store};
use ltx::Layout;
use serde::Deserialize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How to reach S3.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct S3Options {
    /// `https://host[:port]`; AWS's own for the region where absent.
    pub endpoint: Option<String>,
    /// us-east-1 where absent.
    pub region: Option<String>,
    /// `endpoint/bucket` instead of `bucket.endpoint`; on by itself where there is an endpoint.
    pub path_style: Option<bool>,
    /// Instead of the environment's.
    pub access_key_id: Option<String>,
    /// Instead of the environment's.
    pub secret_access_key: Option<String>,
    /// Keys of this machine's role, from its metadata service (EC2), where there are no others. Not asked unless this says so: elsewhere nobody
    /// answers there.
    pub instance_metadata: bool,
    /// Certificates to trust, in PEM.
    pub certificates: Option<PathBuf>,
    /// For one request, in seconds; 30 where absent.
    pub timeout_seconds: Option<u64>,
    /// Larger objects are sent in parts of so many bytes, 5 MiB to 5 GiB; 256 MiB where absent.
    pub part_bytes: Option<u64>,
}

/// Bytes of a part, as S3 takes them.
const PART_BYTES: RangeInclusive<u64> = 5 << 20..=5 << 30;

/// A place in S3, as it was written.
#[derive(Debug, PartialEq, Eq)]
pub struct S3Place {
    /// Its bucket.
    pub bucket: String,
    /// What keys begin with there.
    pub prefix: String,
    /// How to reach it: what stands behind the place goes before what else is said.
    pub options: S3Options,
}

impl S3Place {
    /// The place that `url` names, as `s3://bucket/prefix?endpoint=http://host:port`; `None`: it is none of S3.
    pub fn parse(url: &str, options: &S3Options) -> Result<Option<S3Place>, ConfigError> {
        let Some(place) = url.strip_prefix("s3://") else { return Ok(None) };
        let (place, words) = place::with_words(place);
        let mut options = options.clone();
        for (name, value) in words {
            match name {
                "endpoint" => options.endpoint = Some(endpoint(value)),
                "region" => options.region = Some(value.to_owned()),
                "force-path-style" | "forcePathStyle" => options.path_style = Some(value == "true"),
                _ => {
                    return refuse_place(url, format!("\"{name}\" is unknown: endpoint, region, force-path-style"));
                }
            }
        }
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        if bucket.is_empty() {
            return refuse_place(url, "there is no bucket");
        }
        if bucket.contains(['@', ':']) {
            let problem = "no bucket has a @ or a : in its name: keys and hosts are said elsewhere, as in s3://bucket/prefix?endpoint=https://host";
            return refuse_place(url, problem);
        }
        let prefix = place::prefix(url, prefix)?;
        Ok(Some(S3Place { bucket: bucket.to_owned(), prefix, options }))
    }

    /// Opens it. Where nobody logs in, to say what it means, credentials that are not there are made up.
    pub(super) fn open(
        self,
        logs_in: bool,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Location, ConfigError> {
        let S3Place { bucket, prefix, mut options } = self;
        if !logs_in && options.access_key_id.is_none() && options.secret_access_key.is_none() {
            (options.access_key_id, options.secret_access_key) = (Some("none".into()), Some("none".into()));
        }
        // Litestream has two of its own.
        let environment = |name: &str| {
            variable(name).or_else(|| match name {
                "AWS_ACCESS_KEY_ID" => variable("LITESTREAM_ACCESS_KEY_ID"),
                "AWS_SECRET_ACCESS_KEY" => variable("LITESTREAM_SECRET_ACCESS_KEY"),
                _ => None,
            })
        };
        let credentials: Arc<dyn Provider> = match (&options.access_key_id, &options.secret_access_key) {
            (Some(id), Some(secret)) => Arc::new(Credentials {
                access_key_id: id.clone(),
                secret_access_key: secret.clone(),
                session_token: None,
            }),
            (None, None) => {
                let none =
                    "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write ~/.aws/credentials";
                let found = credentials::provider(options.instance_metadata, environment)?;
                found.map_or_else(|| refuse("s3", none), Ok)?
            }
            _ => return refuse("s3", "access-key-id and secret-access-key go together"),
        };
        let found = S3Settings::find(&bucket, options.endpoint.as_deref(), options.region.as_deref(), environment);
        let settings = S3Settings {
            path_style: options.path_style.unwrap_or(found.path_style),
            timeout: Duration::from_secs(options.timeout_seconds.unwrap_or(30).max(1)),
            certificates: options.certificates.clone(),
            ..found
        };
        let place = Place::bucket(&settings.endpoint, &bucket, &prefix);
        let store = S3Store::new(settings, credentials)?;
        let store: Arc<dyn Store> = match options.part_bytes {
            None => Arc::new(store),
            Some(bytes) if PART_BYTES.contains(&bytes) => Arc::new(store.sending_parts_of(bytes)),
            Some(_) => {
                let (least, most) = (PART_BYTES.start(), PART_BYTES.end());
                return refuse("s3.part-bytes", format!("must be from {least} to {most}, as S3 takes parts"));
            }
        };
        Ok(Location { store, layout: Layout::Objects, prefix, place })
    }
}
