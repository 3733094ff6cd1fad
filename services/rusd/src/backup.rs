//! A view as etcd's own database file: what `etcdctl snapshot save` brings home.

use std::io::{self, BufWriter, Seek, Write};

use crate::etcd_file::{self, Change, Lease, Metadata};
use crate::proto::etcdserverpb::AlarmType;
use crate::store::{Keys, NEVER, Record, View};

/// Pages that are written at a time: the kernel takes longer for sixteen calls than for what is in them.
const WRITE_BYTES: usize = 64 << 10;

/// Writes it. `index` and `term` are those of the last entry of the log that is in the view, about. Takes time.
pub fn write<W: Write + Seek>(file: W, view: &View, index: u64, term: u64) -> io::Result<()> {
    let file = etcd_file::write(
        BufWriter::with_capacity(WRITE_BYTES, file),
        &metadata(view, index, term),
        records(view).map(change),
    )?;
    file.into_inner().map_err(io::IntoInnerError::into_error)?.flush()
}

/// All records that compaction has left, in the order of their revisions.
fn records(view: &View) -> impl Iterator<Item = &Record> {
    let space = &view.keyspace;
    let compacted = space.compacted();
    let mut old = match compacted {
        NEVER => Vec::new(),
        _ => space.range(Keys::ALL, compacted).collect::<Vec<&Record>>(),
    };
    old.sort_by_key(|record| record.revision());
    old.into_iter().chain(space.changes(compacted.saturating_add(1)))
}

fn change(record: &Record) -> Change<'_> {
    let revision = record.revision();
    Change {
        main: revision.main.unsigned_abs(),
        sub: u64::from(revision.sub),
        is_tombstone: record.is_tombstone(),
        key_value: record.stored(),
    }
}

fn metadata(view: &View, index: u64, term: u64) -> Metadata {
    let (auth, cluster) = (&view.auth, &view.cluster);
    let lease = |lease: crate::store::Lease| Lease {
        id: lease.id,
        ttl_seconds: lease.ttl_seconds,
        remaining_seconds: lease.remaining_seconds,
    };
    Metadata {
        consistent_index: index,
        term,
        compact_revision: u64::try_from(view.keyspace.compacted()).unwrap_or(0),
        cluster_version: cluster.version.clone(),
        members: cluster.members.values().cloned().collect(),
        members_removed: cluster.removed.iter().copied().collect(),
        leases: view.leases.iter().map(lease).collect(),
        alarms: cluster.alarms(AlarmType::None as i32),
        is_auth_enabled: auth.is_enabled(),
        auth_revision: auth.revision(),
        users: auth.all_users().cloned().collect(),
        roles: auth.all_roles().cloned().collect(),
    }
}
