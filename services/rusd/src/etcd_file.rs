//! etcd's own database file: what `etcdctl snapshot save` brings home, `etcdutl` restores, and `rusd import` reads.
//!
//! Promises: what [`write()`] made, `etcdutl snapshot status` and `restore` accept, and etcd starts on; [`read()`] gives back all that
//! was in a file of etcd 3.4 to 3.7, or an error that names the bucket and the key.
//!
//! | bucket | key | value |
//! | --- | --- | --- |
//! | `alarm` | `AlarmMember` | |
//! | `auth` | `authEnabled`, `authRevision` | one byte; 8 bytes |
//! | `authRoles`, `authUsers` | name | `authpb.Role`, `authpb.User` |
//! | `cluster` | `clusterVersion` | text |
//! | `key` | revision: 8 bytes, `_`, 8 bytes, and `t` if it is a tombstone | `mvccpb.KeyValue`; of a tombstone only the key; nothing of a revision that a restore went on from ([`Change::is_bump`]) |
//! | `lease` | 8 bytes | `leasepb.Lease` |
//! | `members` | number as hexadecimal text | JSON |
//! | `members_removed` | number as hexadecimal text | `removed` |
//! | `meta` | `consistent_index`, `term` | 8 bytes |
//! | | `confState` | JSON |
//! | | `finishedCompactRev`, `scheduledCompactRev` | revision |
//! | | `storageVersion` | text |
//!
//! Numbers are big-endian. Source: `go.etcd.io/etcd/server/v3`, storage/schema and storage/mvcc/revision.go.

mod read;
#[cfg(test)]
mod tests;
pub mod wal;
mod write;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use prost::Message;

use crate::bolt::BoltError;
use crate::proto::{authpb, etcdserverpb};

pub use read::read;
pub use write::write;

/// Where etcd has this file.
pub fn database_in(data_directory: &Path) -> PathBuf {
    data_directory.join("member").join("snap").join("db")
}

/// What one revision did to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// The revision of the transaction.
    pub main: u64,
    /// Which change of the transaction, from 0.
    pub sub: u64,
    /// Whether the key was deleted.
    pub is_tombstone: bool,
    /// `mvccpb.KeyValue`, encoded; of a tombstone only the key counts.
    pub key_value: Cow<'a, [u8]>,
}

impl Change<'_> {
    /// Whether it changes no key: with an empty value `etcdutl snapshot restore --bump-revision` marks the revision that it goes on from.
    /// Source: `go.etcd.io/etcd/etcdutl/v3`, snapshot/v3_snapshot.go, `unsafeBumpBucketsRevision`.
    pub fn is_bump(&self) -> bool {
        self.key_value.is_empty() && self.sub == 0 && !self.is_tombstone
    }
}

/// Everything in the file but the keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    /// The last entry of the log that is in it.
    pub consistent_index: u64,
    /// The term of that entry.
    pub term: u64,
    /// The revision up to which history was compacted; 0 if none was.
    pub compact_revision: u64,
    /// The version of the cluster, such as `3.7.0`; empty if it is not known.
    pub cluster_version: String,
    /// Who is in the cluster.
    pub members: Vec<etcdserverpb::Member>,
    /// Who was in it, and must not come back.
    pub members_removed: Vec<u64>,
    /// Leases.
    pub leases: Vec<Lease>,
    /// Alarms that are raised.
    pub alarms: Vec<etcdserverpb::AlarmMember>,
    /// Whether users must say who they are.
    pub is_auth_enabled: bool,
    /// Counts changes of users and roles.
    pub auth_revision: u64,
    /// Users.
    pub users: Vec<authpb::User>,
    /// Roles.
    pub roles: Vec<authpb::Role>,
}

/// A lease: `leasepb.Lease`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Lease {
    /// Its number.
    #[prost(int64, tag = "1")]
    pub id: i64,
    /// How long it lives, in seconds.
    #[prost(int64, tag = "2")]
    pub ttl_seconds: i64,
    /// What was left of that at the last checkpoint, in seconds; 0 if there was none.
    #[prost(int64, tag = "3")]
    pub remaining_seconds: i64,
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum EtcdFileError {
    /// It is not a whole file of bbolt.
    #[error(transparent)]
    Bolt(#[from] BoltError),
    /// It is one of something else.
    #[error("there is no bucket `{0}`: this is not a database of etcd")]
    NotEtcd(&'static str),
    /// A later etcd wrote it.
    #[error(
        "the file is of storage version {0}, and 3.7 is the newest that is known here: use a later rusd, or downgrade etcd first"
    )]
    TooNew(String),
    /// A record is not what it should be.
    #[error("bucket `{bucket}`, key 0x{}: {what}; take the snapshot again", hexadecimal(key))]
    Malformed {
        /// The bucket.
        bucket: &'static str,
        /// The key.
        key: Vec<u8>,
        /// What is wrong.
        what: &'static str,
    },
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A member as etcd writes it.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct JsonMember {
    id: u64,
    #[serde(rename = "peerURLs", default)]
    peer_urls: Vec<String>,
    #[serde(rename = "isLearner", default, skip_serializing_if = "std::ops::Not::not")]
    is_learner: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(rename = "clientURLs", default, skip_serializing_if = "Vec::is_empty")]
    client_urls: Vec<String>,
}
