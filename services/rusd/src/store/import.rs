//! A state from what a database file of etcd holds.
//!
//! Promises: keys with all revisions that compaction left, leases, which have their full time again, users and roles, alarms. Not members:
//! who the group is made of is said when it is founded. Changes must come in the order of their revisions; what does not follow from
//! what came before is refused.
//!
//! A database may go on from a later revision than that of its newest change ([`Import::bump`], or `etcdutl` before): the revision has a
//! [record](Record::bump) of no key, and everything before it is compacted. etcd does that work at its next start; whether it has makes no
//! difference here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prost::Message;

use super::auth::Auth;
use super::cluster::Cluster;
use super::keys::Keys;
use super::keyspace::{Keyspace, NEVER};
use super::lease::{Lease, Leases};
use super::record::{Put, Record, Revision};
use super::state::State;
use crate::etcd_file::{Change, Metadata};
use crate::proto::mvccpb::KeyValue;

/// Why a database is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The file says something that etcd does not write.
    #[error("revision {0}: {1}")]
    Record(u64, &'static str),
    /// The records do not follow from each other.
    #[error("the revisions do not follow from each other; is the file damaged? etcdutl hashkv may tell")]
    Order,
    /// The revision to go on from is out of reach.
    #[error(
        "--bump-revision: {amount} above revision {newest} is more than {max}; give less, such as 1000000000, as etcd's \
         manual has it",
        max = REVISION_MAX
    )]
    Bump {
        /// The newest revision of the database.
        newest: i64,
        /// What was to be added.
        amount: u64,
    },
    /// A name is not text.
    #[error("the name of a user or a role is not UTF-8")]
    Name,
}

/// No bump leads above this, so that as many writes can follow.
const REVISION_MAX: i64 = i64::MAX / 2;

/// Collects changes.
#[derive(Debug, Default)]
pub struct Import {
    changes: Vec<Record>,
    scratch: Vec<u8>,
}

/// What was taken over, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The newest revision.
    pub revision: i64,
    /// The compacted revision; [`NEVER`] before any.
    pub compacted: i64,
    /// Keys that exist.
    pub keys: usize,
    /// Leases.
    pub leases: usize,
    /// Users.
    pub users: usize,
    /// Keys that hung on a lease that does not exist, and hang on none now.
    pub loose_keys: usize,
}

impl Import {
    /// Takes a change.
    pub fn take(&mut self, change: Change<'_>) -> Result<(), ImportError> {
        let wrong = |what| ImportError::Record(change.main, what);
        let main = i64::try_from(change.main).map_err(|_| wrong("is too large"))?;
        if change.is_bump() {
            self.changes.push(Record::bump(main, &mut self.scratch));
            return Ok(());
        }
        let sub = u32::try_from(change.sub).map_err(|_| wrong("has too many changes"))?;
        let kv = KeyValue::decode(&*change.key_value).map_err(|_| wrong("is no key and value"))?;
        let revision = Revision { main, sub };
        let record = if change.is_tombstone {
            Record::tombstone(revision, &kv.key, &mut self.scratch)
        } else {
            let KeyValue { key, value, create_revision, mod_revision, version, lease } = &kv;
            if *mod_revision != main {
                return Err(wrong("holds a key of another revision"));
            }
            let put = Put { key, value, create_revision: *create_revision, version: *version, lease: *lease };
            Record::put(revision, put, &mut self.scratch)
        };
        self.changes.push(record);
        Ok(())
    }

    /// Behind the last change: goes on from a revision that is higher by `amount`, and has everything before it compacted, as `etcdutl
    /// snapshot restore` does with `--bump-revision` and `--mark-compacted`. Where the newest revision is compacted and has left no change
    /// (a deletion that etcd up to 3.5.15, or rusd, takes away), etcdutl would count from the change before.
    pub fn bump(&mut self, amount: u64, metadata: &mut Metadata) -> Result<(), ImportError> {
        let compacted = i64::try_from(metadata.compact_revision).unwrap_or(i64::MAX);
        let newest = self.changes.last().map_or(0, Record::main).max(compacted);
        let bumped = i64::try_from(amount).ok().and_then(|amount| newest.checked_add(amount));
        let bumped = bumped.filter(|bumped| *bumped <= REVISION_MAX).ok_or(ImportError::Bump { newest, amount })?;
        self.changes.push(Record::bump(bumped, &mut self.scratch));
        metadata.compact_revision = bumped.unsigned_abs();
        Ok(())
    }

    /// The state.
    pub fn finish(self, metadata: Metadata) -> Result<(State, Imported), ImportError> {
        let compacted = match i64::try_from(metadata.compact_revision).unwrap_or(i64::MAX) {
            0 => NEVER,
            compacted => compacted,
        };
        let ids = metadata.leases.iter().map(|lease| lease.id).collect::<BTreeSet<_>>();
        let known = |id: i64| id == 0 || ids.contains(&id);
        let is_loose = |record: &&Record| !record.is_tombstone() && !known(record.lease());
        let loose_keys = self.changes.iter().filter(is_loose).count();
        let keyspace = keyspace(self.changes.into_iter().map(|record| tied(record, &known)), compacted)?;
        let mut leases = Leases::default();
        for (sequence, lease) in (1..).zip(&metadata.leases) {
            // Not what etcd's last checkpoint left: etcd takes that back with another one at the next renewal, which is no command here.
            let (id, ttl_seconds) = (lease.id, lease.ttl_seconds);
            leases.restore(Lease { id, ttl_seconds, remaining_seconds: 0, sequence });
        }
        for record in keyspace.range(Keys::ALL, keyspace.revision()) {
            leases.move_key(record.key(), 0, record.lease());
        }
        let Metadata { is_auth_enabled, auth_revision, users, roles, alarms, .. } = metadata;
        let imported = Imported {
            revision: keyspace.revision(),
            compacted,
            keys: keyspace.range(Keys::ALL, keyspace.revision()).filter(|record| !record.is_bump()).count(),
            leases: leases.len(),
            users: users.len(),
            loose_keys,
        };
        let auth = Auth::restore(is_auth_enabled, auth_revision.max(1), users, roles, BTreeMap::new());
        let auth = auth.ok_or(ImportError::Name)?;
        let mut cluster = Cluster::default();
        alarms.into_iter().for_each(|alarm| cluster.restore_alarm(alarm));
        let state = State { keyspace, leases, auth: Arc::new(auth), cluster: Arc::new(cluster) };
        Ok((state, imported))
    }
}

/// A record without the lease that is unknown.
fn tied(record: Record, known: &impl Fn(i64) -> bool) -> Record {
    if record.is_tombstone() || known(record.lease()) {
        return record;
    }
    let fields = record.fields();
    let put = Put {
        key: record.key(),
        value: &record.value(),
        create_revision: fields.create_revision,
        version: fields.version,
        lease: 0,
    };
    Record::put(record.revision(), put, &mut Vec::new())
}

/// etcd may have been stopped within a compaction: what that would have taken away goes here.
fn keyspace(records: impl Iterator<Item = Record>, compacted: i64) -> Result<Keyspace, ImportError> {
    let mut base: BTreeMap<Vec<u8>, Record> = BTreeMap::new();
    let mut changes = Vec::new();
    let mut last = Revision { main: 0, sub: 0 };
    for record in records {
        if record.revision() <= last {
            return Err(ImportError::Order);
        }
        last = record.revision();
        if record.main() >= compacted {
            if record.main() == compacted {
                base.remove(record.key());
            }
            changes.push(record);
        } else if record.is_tombstone() {
            base.remove(record.key());
        } else {
            base.insert(record.key().to_vec(), record);
        }
    }
    let revision = last.main.max(compacted).max(1);
    Keyspace::from_parts(revision, compacted, base.into_values(), changes.into_iter()).ok_or(ImportError::Order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd_file::Lease as FileLease;
    use crate::store::hash_key_values;

    /// What `etcd` writes: revision, change of it, key, and created, version and lease; version 0 is a tombstone, and no key a bump.
    type Line = (u64, u64, &'static str, i64, i64, i64);

    fn import(lines: &[Line], metadata: Metadata) -> Result<(State, Imported), ImportError> {
        taken(lines)?.finish(metadata)
    }

    fn taken(lines: &[Line]) -> Result<Import, ImportError> {
        let mut import = Import::default();
        for (main, sub, key, create_revision, version, lease) in lines.iter().copied() {
            if key.is_empty() {
                import.take(Change { main, sub, is_tombstone: false, key_value: Vec::new().into() })?;
                continue;
            }
            let is_tombstone = version == 0;
            let kv = KeyValue {
                key: key.into(),
                value: if is_tombstone { "" } else { "v" }.into(),
                create_revision,
                mod_revision: if is_tombstone { 0 } else { main as i64 },
                version,
                lease,
            };
            import.take(Change { main, sub, is_tombstone, key_value: kv.encode_to_vec().into() })?;
        }
        Ok(import)
    }

    /// etcd's hash of a database: of its records' names and values.
    fn hash(records: &[(u64, u64, Vec<u8>)]) -> u32 {
        records.iter().fold(crc32c::crc32c(b"key"), |crc, (main, sub, value)| {
            let name = [&main.to_be_bytes()[..], b"_", &sub.to_be_bytes()].concat();
            crc32c::crc32c_append(crc32c::crc32c_append(crc, &name), value)
        })
    }

    /// What a database has that `etcdutl snapshot restore --bump-revision 1000 --mark-compacted` has made of one of revision 4.
    const BUMPED: [Line; 5] = [
        (2, 0, "a", 2, 1, 0),
        (3, 0, "gone", 3, 1, 0),
        (3, 1, "b", 3, 1, 0),
        (4, 0, "gone", 0, 0, 0),
        (1_004, 0, "", 0, 0, 0),
    ];

    /// It was refused for the record without a key that etcd keeps for ever.
    #[test]
    fn a_database_that_was_bumped_is_taken_whether_its_compaction_is_finished_or_not() {
        let finished = [BUMPED[0], BUMPED[2], BUMPED[4]];
        let value = |key: &'static str, revision| {
            let (key, value) = (key.into(), "v".into());
            KeyValue { key, value, create_revision: revision, mod_revision: revision, version: 1, lease: 0 }
                .encode_to_vec()
        };
        let expected = hash(&[(2, 0, value("a", 2)), (3, 1, value("b", 3)), (1_004, 0, Vec::new())]);
        for lines in [&finished[..], &BUMPED] {
            let metadata = Metadata { compact_revision: 1_004, ..Metadata::default() };
            let (mut state, said) = import(lines, metadata).unwrap();
            assert_eq!((said.revision, said.compacted, said.keys), (1_004, 1_004, 2));
            assert_eq!(hash_key_values(&state.keyspace, 0).unwrap().hash, expected);
            assert_eq!(state.keyspace.count(Keys::From(&[0]), 1_004), 2, "nobody finds the record");
            // It stays when what was written since is compacted, and in what members give each other.
            state.keyspace.write(&mut Vec::new()).put(b"c", b"v", 0);
            state.keyspace.compact(1_005).unwrap();
            while !state.keyspace.sweep(10, i64::MAX) {}
            let written = super::super::snapshot::bytes(&state);
            let again = super::super::snapshot::read(&mut &written[..], None).unwrap();
            let expected = hash(&[
                (2, 0, value("a", 2)),
                (3, 1, value("b", 3)),
                (1_004, 0, Vec::new()),
                (1_005, 0, value("c", 1_005)),
            ]);
            for space in [&state.keyspace, &again.keyspace] {
                assert_eq!(hash_key_values(space, 0).unwrap().hash, expected);
            }
        }
    }

    #[test]
    fn a_database_that_was_bumped_again_has_the_last_record_only() {
        let twice = [&BUMPED[..], &[(1_005, 0, "c", 1_005, 1, 0), (2_005, 0, "", 0, 0, 0)]].concat();
        let once = [BUMPED[0], BUMPED[2], (1_005, 0, "c", 1_005, 1, 0), (2_005, 0, "", 0, 0, 0)];
        let metadata = || Metadata { compact_revision: 2_005, ..Metadata::default() };
        let [(a, said), (b, _)] = [&twice[..], &once].map(|lines| import(lines, metadata()).unwrap());
        assert_eq!((said.revision, said.keys), (2_005, 3));
        assert_eq!(hash_key_values(&a.keyspace, 0), hash_key_values(&b.keyspace, 0));
    }

    /// etcdutl writes the record and the compaction at once: one without the other is no database of etcd.
    #[test]
    fn a_bumped_revision_that_is_not_compacted_is_refused() {
        assert_eq!(import(&BUMPED, Metadata::default()).err(), Some(ImportError::Order));
    }

    fn bumped(lines: &[Line], compact_revision: u64, amount: u64) -> Result<(State, Imported), ImportError> {
        let mut metadata = Metadata { compact_revision, ..Metadata::default() };
        let mut import = taken(lines)?;
        import.bump(amount, &mut metadata)?;
        import.finish(metadata)
    }

    #[test]
    fn a_bump_is_what_etcdutl_makes_of_the_database() {
        let metadata = Metadata { compact_revision: 1_004, ..Metadata::default() };
        let (theirs, said_of_theirs) = import(&BUMPED, metadata).unwrap();
        let (ours, said) = bumped(&BUMPED[..4], 0, 1_000).unwrap();
        assert_eq!(said, said_of_theirs);
        let [theirs, ours] = [theirs, ours].map(|state| super::super::snapshot::bytes(&state));
        assert_eq!(ours, theirs);
        // Of a database without any change etcdutl counts from 0.
        assert_eq!(bumped(&[], 0, 1_000).unwrap().1.revision, 1_000);
    }

    /// rusd's own snapshots have no deletion of the compacted revision, but clients have seen that.
    #[test]
    fn a_bump_counts_from_the_compacted_revision_if_that_is_the_newest() {
        assert_eq!(bumped(&BUMPED[..3], 4, 1).unwrap().1.revision, 5);
    }

    #[test]
    fn a_bump_leaves_revisions_for_those_who_write() {
        let most = i64::MAX / 2;
        assert_eq!(bumped(&BUMPED[..4], 0, most as u64 - 4).unwrap().1.revision, most);
        for amount in [most as u64 - 3, i64::MAX as u64, u64::MAX] {
            let refused = bumped(&BUMPED[..4], 0, amount).err();
            assert_eq!(refused, Some(ImportError::Bump { newest: 4, amount }));
        }
    }

    #[test]
    fn what_an_unfinished_compaction_would_have_taken_away_is_left_out() {
        let finished = [(4, 0, "a", 2, 2, 0), (5, 1, "b", 5, 1, 0), (6, 0, "a", 0, 0, 0), (7, 0, "a", 7, 1, 0)];
        let unfinished = [
            (2, 0, "a", 2, 1, 0),
            (3, 0, "gone", 3, 1, 0),
            (3, 1, "b", 3, 1, 0),
            (4, 0, "a", 2, 2, 0),
            (4, 1, "gone", 0, 0, 0),
            (4, 2, "b", 0, 0, 0),
            (5, 1, "b", 5, 1, 0),
            (6, 0, "a", 0, 0, 0),
            (7, 0, "a", 7, 1, 0),
        ];
        let metadata = || Metadata { compact_revision: 5, ..Metadata::default() };
        let [(a, said), (b, _)] = [&finished[..], &unfinished].map(|lines| import(lines, metadata()).unwrap());
        assert_eq!((said.revision, said.compacted, said.keys), (7, 5, 2));
        for at in 5..=7 {
            assert_eq!(hash_key_values(&a.keyspace, at), hash_key_values(&b.keyspace, at));
        }
        assert_eq!(a.keyspace.get_at(b"a", 5).map(Record::main), Some(4));
    }

    /// What etcd's checkpoint had left of a lease was all that each new leader gave it, however often it was renewed since.
    #[test]
    fn a_lease_has_its_full_time_whatever_a_checkpoint_left() {
        let leases = vec![FileLease { id: 7, ttl_seconds: 60, remaining_seconds: 5 }];
        let lines = [(2, 0, "a", 2, 1, 7)];
        let (state, _) = import(&lines, Metadata { leases, ..Metadata::default() }).unwrap();
        assert_eq!(state.leases.get(7).map(|lease| (lease.ttl_seconds, lease.remaining_seconds)), Some((60, 0)));
    }

    #[test]
    fn keys_hang_on_their_leases_again() {
        let lines = [(2, 0, "a", 2, 1, 7), (3, 0, "b", 3, 1, 9)];
        let leases = vec![FileLease { id: 7, ttl_seconds: 60, remaining_seconds: 5 }];
        let (state, said) = import(&lines, Metadata { leases, ..Metadata::default() }).unwrap();
        assert_eq!((said.leases, said.loose_keys), (1, 1));
        assert_eq!(state.leases.keys(7).map(|key| key.to_vec()).collect::<Vec<_>>(), [b"a".to_vec()]);
        assert_eq!(state.keyspace.get(b"b").map(Record::lease), Some(0));
        // What was taken over can be written and read.
        let written = super::super::snapshot::bytes(&state);
        assert!(super::super::snapshot::read(&mut &written[..], None).is_ok());
    }

    #[test]
    fn revisions_that_do_not_follow_are_refused() {
        assert_eq!(
            import(&[(3, 0, "a", 3, 1, 0), (2, 0, "b", 2, 1, 0)], Metadata::default()).err(),
            Some(ImportError::Order)
        );
        assert_eq!(import(&[(3, 1, "a", 3, 1, 0)], Metadata::default()).err(), Some(ImportError::Order));
        assert_eq!(import(&[(3, 0, "a", 2, 2, 0)], Metadata::default()).err(), Some(ImportError::Order));
    }
}
