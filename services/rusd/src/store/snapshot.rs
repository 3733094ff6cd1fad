//! A state as bytes, and back.
//!
//! | offset | bytes | field | |
//! | --- | --- | --- | --- |
//! | 0 | 8 | magic | `rusdsnap` |
//! | 8 | 4 | version | 1 |
//! | 12 | 8 | revision | |
//! | 20 | 8 | compacted revision | -1 before any compaction |
//! | 28 | 8 | number of the next lease's grant | |
//! | 36 | 1 | users are enabled | 0 or 1 |
//! | 37 | 8 | revision of users and roles | |
//! | 45 | | sections, in the order of [`Section`] | |
//!
//! | section | | |
//! | --- | --- | --- |
//! | 0 | 1 | its number |
//! | 1 | 8 | how many items |
//! | 9 | | items: their length in 4 bytes, their bytes |
//!
//! Numbers are little endian. Items are records as [`super::record`] has them, leases as four numbers of 8 bytes (id, time to live,
//! remaining, number of the grant), tokens as expiry (8), length of the token (4), token, user; all others etcd's messages. What can
//! be derived is left out: which keys hang on which lease, and the work that compaction has left.
//!
//! Equal states give equal bytes. The checksum is that of the replicated log, which keeps snapshots.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Read, Write};
use std::sync::Arc;

use prost::Message;

use super::auth::{Auth, Token};
use super::cluster::Cluster;
use super::keyspace::{Keyspace, Rebuild};
use super::lease::{Lease, Leases};
use super::record::Record;
use super::spill::{Ahead, Spill};
use super::state::State;
use crate::proto::etcdserverpb as pb;

mod reader;
#[cfg(test)]
mod tests;

use reader::Reader;
pub use reader::Refused;

const MAGIC: [u8; 8] = *b"rusdsnap";
const VERSION: u32 = 1;

/// What the items of a section are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Section {
    /// Records that exist at the compacted revision and are older, by key.
    Base = 1,
    /// Changes from the compacted revision on, by revision.
    Changes = 2,
    Leases = 3,
    Users = 4,
    Roles = 5,
    Tokens = 6,
    Members = 7,
    Alarms = 8,
    /// A `DowngradeVersionTestRequest` with the version that all members speak.
    Version = 9,
    Downgrade = 10,
    /// Numbers of members that were removed, 8 bytes each.
    Removed = 11,
}

/// Writes a state as bytes. Items go out one by one.
pub fn write(state: &State, out: &mut dyn Write) -> io::Result<()> {
    let State { keyspace, leases, auth, cluster } = state;
    let mut out = BufWriter::new(out);
    let out = &mut out;
    out.write_all(&MAGIC)?;
    out.write_all(&VERSION.to_le_bytes())?;
    out.write_all(&keyspace.revision().to_le_bytes())?;
    out.write_all(&keyspace.compacted().to_le_bytes())?;
    out.write_all(&leases.next_sequence().to_le_bytes())?;
    out.write_all(&[u8::from(auth.is_enabled())])?;
    out.write_all(&auth.revision().to_le_bytes())?;
    let (base, changes) = keyspace.parts();
    let counts = (base.count(), changes.count());
    let (base, changes) = keyspace.parts();
    counted(out, Section::Base, counts.0, base.map(Record::as_bytes))?;
    counted(out, Section::Changes, counts.1, changes.map(Record::as_bytes))?;
    section(out, Section::Leases, leases.iter().map(lease_bytes))?;
    section(out, Section::Users, auth.all_users().map(Message::encode_to_vec))?;
    section(out, Section::Roles, auth.all_roles().map(Message::encode_to_vec))?;
    section(out, Section::Tokens, auth.all_tokens().map(token_bytes))?;
    section(out, Section::Members, cluster.members.values().map(Message::encode_to_vec))?;
    section(out, Section::Alarms, cluster.alarms(0).iter().map(Message::encode_to_vec))?;
    let version = pb::DowngradeVersionTestRequest { ver: cluster.version.clone() };
    section(out, Section::Version, [version.encode_to_vec()].into_iter())?;
    section(out, Section::Downgrade, [cluster.downgrade.encode_to_vec()].into_iter())?;
    section(out, Section::Removed, cluster.removed.iter().map(|id| id.to_le_bytes()))?;
    out.flush()
}

/// The CRC-32C of what [`write()`] writes.
pub fn checksum(state: &State) -> u32 {
    struct Sum(u32);
    impl Write for Sum {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = crc32c::crc32c_append(self.0, bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut sum = Sum(0);
    // It takes everything.
    let _ = write(state, &mut sum);
    sum.0
}

/// A state as bytes, for what is small.
#[cfg(test)]
pub fn bytes(state: &State) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(state, &mut bytes).unwrap();
    bytes
}

fn section<T: AsRef<[u8]>>(out: &mut impl Write, section: Section, items: impl Iterator<Item = T>) -> io::Result<()> {
    let items: Vec<T> = items.collect();
    counted(out, section, items.len(), items.into_iter())
}

/// A section of so many items.
fn counted<T: AsRef<[u8]>>(
    out: &mut impl Write,
    section: Section,
    count: usize,
    items: impl Iterator<Item = T>,
) -> io::Result<()> {
    out.write_all(&[section as u8])?;
    out.write_all(&(count as u64).to_le_bytes())?;
    for item in items {
        let item = item.as_ref();
        out.write_all(&(item.len() as u32).to_le_bytes())?;
        out.write_all(item)?;
    }
    Ok(())
}

fn lease_bytes(lease: Lease) -> Vec<u8> {
    let Lease { id, ttl_seconds, remaining_seconds, sequence } = lease;
    [id.to_le_bytes(), ttl_seconds.to_le_bytes(), remaining_seconds.to_le_bytes(), sequence.to_le_bytes()].concat()
}

fn token_bytes((name, token): (&str, &Token)) -> Vec<u8> {
    let mut out = token.expires_millis.to_le_bytes().to_vec();
    out.extend_from_slice(&(name.len() as u32).to_le_bytes());
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(token.user.as_bytes());
    out
}

/// The state that [`write()`] was given. Values that are too many for the memory go to files meanwhile.
pub fn read(from: &mut dyn Read, spill: Option<&mut Spill>) -> Result<State, Refused> {
    let mut reader = Reader::new(from);
    if reader.array::<8>("the magic")? != MAGIC {
        return Err(reader.refuse("no snapshot of rusd begins like this"));
    }
    if u32::from_le_bytes(reader.array("the version")?) != VERSION {
        return Err(
            reader.refuse("a version that this release does not know; use the release that wrote it, or a later one")
        );
    }
    let revision = i64::from_le_bytes(reader.array("the revision")?);
    let compacted = i64::from_le_bytes(reader.array("the compacted revision")?);
    let next_sequence = u64::from_le_bytes(reader.array("the number of the next grant")?);
    let enabled = reader.array::<1>("whether users are enabled")? == [1];
    let auth_revision = u64::from_le_bytes(reader.array("the revision of users")?);
    let keyspace = read_keyspace(&mut reader, revision, compacted, spill)?;
    let leases = read_leases(&mut reader, &keyspace, next_sequence)?;
    let auth = read_auth(&mut reader, enabled, auth_revision)?;
    let cluster = read_cluster(&mut reader)?;
    reader.end()?;
    Ok(State { keyspace, leases, auth: Arc::new(auth), cluster: Arc::new(cluster) })
}

fn read_keyspace(
    reader: &mut Reader<'_>,
    revision: i64,
    compacted: i64,
    spill: Option<&mut Spill>,
) -> Result<Keyspace, Refused> {
    let mut rebuild = Rebuild::new(revision, compacted);
    let mut ahead = Ahead::new(spill);
    let taken = |rebuild: &mut Rebuild, (record, (offset, take)): (Record, (usize, Take))| {
        let is_taken = take(rebuild, record);
        is_taken.then_some(()).ok_or_else(|| Refused::at(offset, "this does not follow from the records before"))
    };
    for (section, take) in [(Section::Base, Rebuild::base as Take), (Section::Changes, Rebuild::change)] {
        reader.section(section as u8, "a record", |offset, item| {
            let record = Record::from_bytes(item).ok_or_else(|| Refused::at(offset, "this is not a record"))?;
            let out = ahead.push(record, (offset, take), rebuild.hot_bytes());
            out.into_iter().try_for_each(|next| taken(&mut rebuild, next))
        })?;
    }
    ahead.finish().try_for_each(|next| taken(&mut rebuild, next))?;
    rebuild.finish().ok_or_else(|| reader.refuse("the records before do not make a store of that revision"))
}

/// How a record of a section is taken in.
type Take = fn(&mut Rebuild, Record) -> bool;

fn read_leases(reader: &mut Reader<'_>, keyspace: &Keyspace, next_sequence: u64) -> Result<Leases, Refused> {
    let lease = |item: &[u8]| {
        let (numbers, rest) = item.as_chunks::<8>();
        let ([id, ttl_seconds, remaining_seconds, sequence], []) = (numbers, rest) else { return None };
        Some(Lease {
            id: i64::from_le_bytes(*id),
            ttl_seconds: i64::from_le_bytes(*ttl_seconds),
            remaining_seconds: i64::from_le_bytes(*remaining_seconds),
            sequence: u64::from_le_bytes(*sequence),
        })
    };
    let mut leases = Leases::default();
    for lease in reader.items(Section::Leases as u8, "a lease", lease)? {
        leases.restore(lease);
    }
    leases.restore_next_sequence(next_sequence);
    for record in keyspace.range(super::Keys::ALL, keyspace.revision()) {
        let lease = record.lease();
        if lease != 0 {
            leases.get(lease).ok_or_else(|| reader.refuse("a key before hangs on a lease that does not exist"))?;
            leases.move_key(record.key(), 0, lease);
        }
    }
    Ok(leases)
}

fn read_auth(reader: &mut Reader<'_>, enabled: bool, revision: u64) -> Result<Auth, Refused> {
    let users = reader.items(Section::Users as u8, "a user", |item| Message::decode(item).ok())?;
    let roles = reader.items(Section::Roles as u8, "a role", |item| Message::decode(item).ok())?;
    let token = |item: &[u8]| {
        let (expires, rest) = item.split_first_chunk::<8>()?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let (name, user) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let token = Token { user: text(user)?, expires_millis: u64::from_le_bytes(*expires) };
        Some((text(name)?, token))
    };
    let tokens: BTreeMap<_, _> = reader.items(Section::Tokens as u8, "a token", token)?.into_iter().collect();
    Auth::restore(enabled, revision, users, roles, tokens).ok_or_else(|| reader.refuse("a name before is not UTF-8"))
}

fn read_cluster(reader: &mut Reader<'_>) -> Result<Cluster, Refused> {
    let members = reader.items(Section::Members as u8, "a member", |item| pb::Member::decode(item).ok())?;
    let alarms = reader.items(Section::Alarms as u8, "an alarm", |item| Message::decode(item).ok())?;
    let version = reader
        .items(Section::Version as u8, "the version", |item| pb::DowngradeVersionTestRequest::decode(item).ok())?;
    let downgrade = reader.items(Section::Downgrade as u8, "the downgrade", |item| Message::decode(item).ok())?;
    let removed = |item: &[u8]| Some(u64::from_le_bytes(item.try_into().ok()?));
    let removed = reader.items(Section::Removed as u8, "a removed member", removed)?;
    let mut cluster = Cluster::of(members);
    cluster.removed = removed.into_iter().collect();
    cluster.version = version.into_iter().next().unwrap_or_default().ver;
    cluster.downgrade = downgrade.into_iter().next().unwrap_or_default();
    alarms.into_iter().for_each(|alarm| cluster.restore_alarm(alarm));
    Ok(cluster)
}
