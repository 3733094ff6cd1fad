//! Google Cloud Storage and Azure Blob Storage: their words, which every walsync reads, and their stores, which one with the feature `clouds` has.

use super::place::refuse_place;
use super::{ConfigError, Location, refuse};
use serde::Deserialize;
use std::path::PathBuf;

/// How to reach Google Cloud Storage.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct GcsOptions {
    /// `https://host[:port]`; where `STORAGE_EMULATOR_HOST` says, or Google's own, where absent.
    pub endpoint: Option<String>,
    /// A file of Google's credentials, as of a service account; what the machine has where absent.
    pub credentials: Option<PathBuf>,
    /// Certificates to trust, in PEM.
    pub certificates: Option<PathBuf>,
    /// For one request, in seconds; 30 where absent.
    pub timeout_seconds: Option<u64>,
    /// Larger objects are sent in parts of so many bytes, 256 KiB to 5 GiB; 256 MiB where absent.
    pub part_bytes: Option<u64>,
}

/// How to reach Azure Blob Storage.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct AzureOptions {
    /// The storage account, where it does not stand in the place.
    pub account_name: Option<String>,
    /// Its key, instead of what the environment has.
    pub account_key: Option<String>,
    /// A shared access signature, instead of what the environment has.
    pub sas_token: Option<String>,
    /// `https://host[:port][/path]`; Azure's own for the account where absent.
    pub endpoint: Option<String>,
    /// Certificates to trust, in PEM.
    pub certificates: Option<PathBuf>,
    /// For one request, in seconds; 30 where absent.
    pub timeout_seconds: Option<u64>,
    /// Larger objects are sent in blocks of so many bytes, 256 KiB to 4,000 MiB; 256 MiB where absent.
    pub part_bytes: Option<u64>,
}

/// A place in one of the two, as it was written.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CloudPlace {
    /// `gs://bucket/prefix`
    Gcs { bucket: String, prefix: String, options: GcsOptions },
    /// `abs://account@container/prefix`
    Azure { account: String, container: String, prefix: String, options: AzureOptions },
}

/// The place that `url` names; `None`: in neither of the two.
pub(super) fn parse(
    url: &str,
    gcs: &GcsOptions,
    azure: &AzureOptions,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<CloudPlace>, ConfigError> {
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| ["gs", "abs"].contains(scheme)) else {
        return Ok(None);
    };
    let (rest, words) = super::place::with_words(rest);
    let (first, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = super::place::prefix(url, prefix)?;
    let mut endpoint = None;
    for word in words {
        match word {
            ("endpoint", value) => endpoint = Some(super::place::endpoint(value)),
            (name, _) => {
                return refuse_place(url, format!("\"{name}\" is unknown: endpoint"));
            }
        }
    }
    if scheme == "gs" {
        if first.is_empty() {
            return refuse_place(url, "there is no bucket: write it as gs://bucket/prefix");
        }
        let mut options = gcs.clone();
        options.endpoint = endpoint.or(options.endpoint);
        return Ok(Some(CloudPlace::Gcs { bucket: first.to_owned(), prefix, options }));
    }
    let (account, container) = first.split_once('@').map_or((None, first), |(account, rest)| (Some(account), rest));
    let elsewhere = || azure.account_name.clone().or_else(|| variable("AZURE_STORAGE_ACCOUNT"));
    let account = account.map(str::to_owned).or_else(elsewhere).filter(|account| !account.is_empty());
    let Some(account) = account else {
        return refuse_place(url, "there is no account: write it as abs://account@container/prefix");
    };
    if container.is_empty() {
        return refuse_place(url, "there is no container: write it as abs://account@container/prefix");
    }
    let mut options = azure.clone();
    options.endpoint = endpoint.or(options.endpoint);
    Ok(Some(CloudPlace::Azure { account, container: container.to_owned(), prefix, options }))
}

#[cfg(not(feature = "clouds"))]
impl CloudPlace {
    /// This walsync has neither.
    pub(super) fn open(self, _: bool, _: impl Fn(&str) -> Option<String>) -> Result<Location, ConfigError> {
        let (place, name) = match self {
            CloudPlace::Gcs { bucket, .. } => (format!("gs://{bucket}"), "Google Cloud Storage"),
            CloudPlace::Azure { account, container, .. } => {
                (format!("abs://{account}@{container}"), "Azure Blob Storage")
            }
        };
        let remedy = "build one that does with its feature clouds: cargo build -p walsync --features clouds";
        refuse("store", format!("{place}: this walsync does not know {name}; {remedy}"))
    }
}

#[cfg(feature = "clouds")]
mod stores {
    use super::super::place::Place;
    use super::{CloudPlace, ConfigError, Location, refuse};
    use crate::store::azure::{AzureCredentials, AzureSettings, AzureStore};
    use crate::store::gcs::{GcsSettings, GcsStore};
    use crate::store::token::Token;
    use ltx::{Layout, TIMESTAMP_METADATA};
    use std::ops::RangeInclusive;
    use std::sync::Arc;
    use std::time::Duration;

    /// Bytes of a part, as Google takes them.
    const GCS_PART_BYTES: RangeInclusive<u64> = 256 << 10..=5 << 30;
    /// Bytes of a block, as Azure takes them; smaller ones would be too many.
    const AZURE_PART_BYTES: RangeInclusive<u64> = 256 << 10..=4000 << 20;

    /// The field, where it is in this range.
    fn within(field: &str, bytes: Option<u64>, range: &RangeInclusive<u64>) -> Result<Option<u64>, ConfigError> {
        match bytes.filter(|bytes| !range.contains(bytes)) {
            None => Ok(bytes),
            Some(_) => refuse(field, format!("must be from {} to {}", range.start(), range.end())),
        }
    }

    impl CloudPlace {
        /// Opens it. Where nobody logs in it is only looked at what it means.
        pub(in super::super) fn open(
            self,
            logs_in: bool,
            variable: impl Fn(&str) -> Option<String>,
        ) -> Result<Location, ConfigError> {
            let seconds = |seconds: Option<u64>| Duration::from_secs(seconds.unwrap_or(30).max(1));
            let time_word = Some(TIMESTAMP_METADATA.to_owned());
            match self {
                CloudPlace::Gcs { bucket, prefix, options } => {
                    let (found, wants_login) = GcsSettings::find(&bucket, options.endpoint.as_deref(), &variable);
                    let (timeout, certificates) = (seconds(options.timeout_seconds), options.certificates);
                    let settings = GcsSettings { timeout, certificates, time_word, ..found };
                    // Somebody who is named logs in wherever that is; nobody else does in the clear, as where an emulator is.
                    let is_tls = settings.endpoint.starts_with("https://");
                    let logs_in = logs_in && (options.credentials.is_some() || wants_login && is_tls);
                    let token =
                        logs_in.then(|| Token::google(options.credentials.as_deref(), &variable)).transpose()?;
                    let place = Place::cloud("gs", &settings.endpoint, "storage.googleapis.com", &bucket, &prefix);
                    let store = GcsStore::new(settings, token)?;
                    let store = match within("gcs.part-bytes", options.part_bytes, &GCS_PART_BYTES)? {
                        Some(bytes) => store.sending_parts_of(bytes),
                        None => store,
                    };
                    Ok(Location { store: Arc::new(store), layout: Layout::Files, prefix, place })
                }
                CloudPlace::Azure { account, container, prefix, options } => {
                    let settings = AzureSettings {
                        timeout: seconds(options.timeout_seconds),
                        certificates: options.certificates,
                        time_word,
                        ..AzureSettings::new(&account, &container, options.endpoint.as_deref())
                    };
                    let credentials = match (options.sas_token, options.account_key) {
                        (Some(token), _) => AzureCredentials::signature(&token),
                        (None, Some(key)) => AzureCredentials::key(&key)?,
                        (None, None) if logs_in => AzureCredentials::find(&variable)?,
                        (None, None) => AzureCredentials::key("")?,
                    };
                    let home = format!("{account}.blob.core.windows.net");
                    let owned = format!("{account}@{container}");
                    let place = Place::cloud("abs", &settings.endpoint, &home, &owned, &prefix);
                    let store = AzureStore::new(settings, credentials)?;
                    let store = match within("azure.part-bytes", options.part_bytes, &AZURE_PART_BYTES)? {
                        Some(bytes) => store.sending_parts_of(bytes),
                        None => store,
                    };
                    Ok(Location { store: Arc::new(store), layout: Layout::Files, prefix, place })
                }
            }
        }
    }
}
