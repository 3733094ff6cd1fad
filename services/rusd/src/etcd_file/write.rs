//! Writes the buckets, in the order of their names.

use std::io::{self, Seek, Write};

use prost::Message;
use serde_json::json;

use super::{Change, JsonMember, Metadata};
use crate::bolt::Writer;

/// The version of the storage that is written.
const STORAGE_VERSION: &str = "3.7.0";

type Pair = (Vec<u8>, Vec<u8>);

/// Writes a database of etcd. Changes must come in the order of their revisions.
pub fn write<'a, W: Write + Seek>(
    file: W,
    metadata: &Metadata,
    changes: impl Iterator<Item = Change<'a>>,
) -> io::Result<W> {
    let mut writer = Writer::begin(file)?;
    writer.bucket(b"alarm", sorted(metadata.alarms.iter().map(|alarm| (alarm.encode_to_vec(), Vec::new()))))?;
    writer.bucket(b"auth", auth(metadata))?;
    writer
        .bucket(b"authRoles", sorted(metadata.roles.iter().map(|role| (role.name.to_vec(), role.encode_to_vec()))))?;
    writer
        .bucket(b"authUsers", sorted(metadata.users.iter().map(|user| (user.name.to_vec(), user.encode_to_vec()))))?;
    let version = Some(&metadata.cluster_version).filter(|version| !version.is_empty());
    writer.bucket(b"cluster", version.map(|version| (b"clusterVersion", version.as_bytes())))?;
    writer.bucket(b"key", changes.map(|change| (revision_of(&change), value_of(change))))?;
    let lease = |lease: &super::Lease| (lease.id.to_be_bytes().to_vec(), lease.encode_to_vec());
    writer.bucket(b"lease", sorted(metadata.leases.iter().map(lease)))?;
    writer.bucket(b"members", sorted(members(metadata)))?;
    let removed = metadata.members_removed.iter().map(|id| (format!("{id:x}").into_bytes(), b"removed".to_vec()));
    writer.bucket(b"members_removed", sorted(removed))?;
    writer.bucket(b"meta", meta(metadata))?;
    writer.finish()
}

fn sorted(pairs: impl Iterator<Item = Pair>) -> Vec<Pair> {
    let mut pairs: Vec<Pair> = pairs.collect();
    pairs.sort();
    pairs
}

fn auth(metadata: &Metadata) -> Vec<Pair> {
    vec![
        (b"authEnabled".to_vec(), vec![u8::from(metadata.is_auth_enabled)]),
        (b"authRevision".to_vec(), metadata.auth_revision.to_be_bytes().to_vec()),
    ]
}

fn members(metadata: &Metadata) -> impl Iterator<Item = Pair> {
    metadata.members.iter().map(|member| {
        let json = JsonMember {
            id: member.id,
            peer_urls: member.peer_ur_ls.clone(),
            is_learner: member.is_learner,
            name: member.name.clone(),
            client_urls: member.client_ur_ls.clone(),
        };
        // Numbers, texts and lists of texts can be written as JSON.
        (format!("{:x}", member.id).into_bytes(), serde_json::to_vec(&json).unwrap_or_default())
    })
}

fn meta(metadata: &Metadata) -> Vec<Pair> {
    let of = |is_learner| metadata.members.iter().filter(move |m| m.is_learner == is_learner).map(|m| m.id);
    let (voters, learners): (Vec<u64>, Vec<u64>) = (of(false).collect(), of(true).collect());
    let conf_state = json!({ "voters": voters, "learners": learners, "auto_leave": false });
    let mut pairs = vec![
        (b"confState".to_vec(), conf_state.to_string().into_bytes()),
        (b"consistent_index".to_vec(), metadata.consistent_index.to_be_bytes().to_vec()),
        (b"storageVersion".to_vec(), STORAGE_VERSION.as_bytes().to_vec()),
        (b"term".to_vec(), metadata.term.to_be_bytes().to_vec()),
    ];
    if metadata.compact_revision > 0 {
        let revision = revision(metadata.compact_revision, 0);
        pairs.push((b"finishedCompactRev".to_vec(), revision.clone()));
        pairs.push((b"scheduledCompactRev".to_vec(), revision));
    }
    sorted(pairs.into_iter())
}

fn revision(main: u64, sub: u64) -> Vec<u8> {
    [main.to_be_bytes().as_slice(), b"_", &sub.to_be_bytes()].concat()
}

fn revision_of(change: &Change<'_>) -> Vec<u8> {
    let mut key = revision(change.main, change.sub);
    if change.is_tombstone {
        key.push(b't');
    }
    key
}

/// etcd's tombstones have nothing but the key, and its hash is made of these bytes.
fn value_of(change: Change<'_>) -> std::borrow::Cow<'_, [u8]> {
    if !change.is_tombstone {
        return change.key_value;
    }
    let decoded = crate::proto::mvccpb::KeyValue::decode(&*change.key_value).unwrap_or_default();
    crate::proto::mvccpb::KeyValue { key: decoded.key, ..Default::default() }.encode_to_vec().into()
}
