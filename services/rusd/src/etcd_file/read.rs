//! Reads the buckets.

use prost::Message;

use super::{Change, EtcdFileError, JsonMember, Metadata};
use crate::bolt::{Database, ReadAt};
use crate::proto::{etcdserverpb, mvccpb};

/// Minor versions of etcd 3 whose storage is known.
const MINOR_MAX: u32 = 7;

/// Reads a database of etcd. Changes are given to `visit` in the order of their revisions; it may refuse one.
pub fn read<R: ReadAt + ?Sized, E: From<EtcdFileError>>(
    file: &R,
    mut visit: impl FnMut(Change<'_>) -> Result<(), E>,
) -> Result<Metadata, E> {
    let file = Database::open(file).map_err(EtcdFileError::from)?;
    let mut metadata = Metadata::default();
    each(&file, "meta", true, |key, value| read_meta(&mut metadata, key, value))?;
    each(&file, "alarm", false, |key, _| {
        metadata.alarms.push(etcdserverpb::AlarmMember::decode(key).map_err(|_| "it is no alarm")?);
        Ok(())
    })?;
    each(&file, "auth", false, |key, value| {
        match key {
            b"authEnabled" => metadata.is_auth_enabled = value == [1],
            b"authRevision" => metadata.auth_revision = number(value)?,
            _ => {}
        }
        Ok(())
    })?;
    each(&file, "authRoles", false, |_, value| push(&mut metadata.roles, value, "it is no role"))?;
    each(&file, "authUsers", false, |_, value| push(&mut metadata.users, value, "it is no user"))?;
    each(&file, "lease", false, |_, value| push(&mut metadata.leases, value, "it is no lease"))?;
    each(&file, "cluster", false, |key, value| {
        if key == b"clusterVersion" {
            metadata.cluster_version = text(value)?;
        }
        Ok(())
    })?;
    each(&file, "members", false, |_, value| {
        let member: JsonMember = serde_json::from_slice(value).map_err(|_| "it is no member")?;
        let JsonMember { id, peer_urls, is_learner, name, client_urls } = member;
        let member = etcdserverpb::Member { id, name, peer_ur_ls: peer_urls, client_ur_ls: client_urls, is_learner };
        metadata.members.push(member);
        Ok(())
    })?;
    each(&file, "members_removed", false, |key, _| {
        let id = text(key).ok().and_then(|text| u64::from_str_radix(&text, 16).ok());
        metadata.members_removed.push(id.ok_or("it is no number of a member")?);
        Ok(())
    })?;
    read_keys(&file, &mut visit)?;
    Ok(metadata)
}

fn read_meta(metadata: &mut Metadata, key: &[u8], value: &[u8]) -> Result<(), Problem> {
    match key {
        b"consistent_index" => metadata.consistent_index = number(value)?,
        b"term" => metadata.term = number(value)?,
        // What was scheduled may not have been finished, but was acknowledged.
        b"finishedCompactRev" | b"scheduledCompactRev" => {
            let (main, _, _) = revision(value)?;
            metadata.compact_revision = metadata.compact_revision.max(main);
        }
        b"storageVersion" => {
            let version = text(value)?;
            let mut parts = version.split('.').map(str::parse::<u32>);
            let is_known = matches!((parts.next(), parts.next()), (Some(Ok(3)), Some(Ok(0..=MINOR_MAX))));
            if !is_known && !version.is_empty() {
                return Err(Problem::TooNew(version));
            }
        }
        _ => {}
    }
    Ok(())
}

fn read_keys<R: ReadAt + ?Sized, E: From<EtcdFileError>>(
    file: &Database<'_, R>,
    visit: &mut impl FnMut(Change<'_>) -> Result<(), E>,
) -> Result<(), E> {
    const BUCKET: &str = "key";
    let bucket = file.bucket(BUCKET.as_bytes()).map_err(EtcdFileError::from)?;
    let bucket = bucket.ok_or(EtcdFileError::NotEtcd(BUCKET))?;
    // The walk's errors are those of the file, ours or the visitor's; the visitor's type cannot be made of the first.
    let mut refused = None;
    let walked = file.for_each(&bucket, |key, value| {
        let change = revision(key).and_then(|(main, sub, is_tombstone)| {
            let decoded = mvccpb::KeyValue::decode(value).map_err(|_| "it is no key and value")?;
            let change = Change { main, sub, is_tombstone, key_value: value.into() };
            if main == 0 || (decoded.key.is_empty() && !change.is_bump()) {
                return Err("it has no key or no revision".into());
            }
            Ok(change)
        });
        let change = change.map_err(|problem| problem.at(BUCKET, key))?;
        visit(change).map_err(|error| {
            refused = Some(error);
            EtcdFileError::NotEtcd(BUCKET)
        })
    });
    match refused {
        Some(error) => Err(error),
        None => Ok(walked?),
    }
}

/// Why a record is not taken.
enum Problem {
    Malformed(&'static str),
    TooNew(String),
}

impl From<&'static str> for Problem {
    fn from(what: &'static str) -> Self {
        Self::Malformed(what)
    }
}

impl Problem {
    fn at(self, bucket: &'static str, key: &[u8]) -> EtcdFileError {
        match self {
            Self::Malformed(what) => EtcdFileError::Malformed { bucket, key: key.to_vec(), what },
            Self::TooNew(version) => EtcdFileError::TooNew(version),
        }
    }
}

fn each<R: ReadAt + ?Sized>(
    file: &Database<'_, R>,
    name: &'static str,
    is_needed: bool,
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), Problem>,
) -> Result<(), EtcdFileError> {
    match file.bucket(name.as_bytes())? {
        Some(bucket) => file.for_each(&bucket, |key, value| visit(key, value).map_err(|problem| problem.at(name, key))),
        None if is_needed => Err(EtcdFileError::NotEtcd(name)),
        // Earlier versions have fewer.
        None => Ok(()),
    }
}

fn push<M: Message + Default>(list: &mut Vec<M>, value: &[u8], otherwise: &'static str) -> Result<(), Problem> {
    list.push(M::decode(value).map_err(|_| otherwise)?);
    Ok(())
}

fn number(value: &[u8]) -> Result<u64, Problem> {
    Ok(u64::from_be_bytes(value.try_into().map_err(|_| "it is not a number of 8 bytes")?))
}

fn text(value: &[u8]) -> Result<String, Problem> {
    Ok(String::from_utf8(value.to_vec()).map_err(|_| "it is not text")?)
}

/// Main and sub revision, and whether it is a tombstone.
fn revision(bytes: &[u8]) -> Result<(u64, u64, bool), Problem> {
    let is_tombstone = match bytes.get(17..) {
        Some([]) => false,
        Some(b"t") => true,
        _ => return Err("it is not a revision".into()),
    };
    if bytes[8] != b'_' {
        return Err("it is not a revision".into());
    }
    Ok((number(&bytes[..8])?, number(&bytes[9..17])?, is_tombstone))
}
