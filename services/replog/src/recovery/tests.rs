use bytes::Bytes;

use super::*;
use crate::entry::EntryKind;
use crate::record;

fn entry(term: u64, index: u64) -> Record {
    record::entry(0, term, index, entry::encode(EntryKind::Command, index, b"x"))
}

fn compaction(index: u64, snapshot: u64, begins_anew: bool) -> Record {
    let snapshot = SnapshotMeta { index: snapshot, term: 1, chunk_bytes: 1, ..SnapshotMeta::default() };
    Compaction { index, term: 1, begins_anew, snapshot }.record(0)
}

fn recover(records: &[Record]) -> Result<Recovered, RecoveryError> {
    let mut recovery = Recovery::new(0);
    for Record { kind, group, term, index, payload } in records {
        recovery.visit(Record { kind: *kind, group: *group, term: *term, index: *index, payload });
    }
    recovery.finish()
}

fn terms(recovered: &Recovered) -> Vec<(u64, u64)> {
    recovered.entries.iter().map(|entry| (entry.index, entry.term)).collect()
}

#[test]
fn a_later_entry_replaces_those_behind_it() {
    let recovered = recover(&[entry(1, 1), entry(1, 2), entry(1, 3), entry(2, 2)]).unwrap();
    assert_eq!(terms(&recovered), [(1, 1), (2, 2)]);
}

#[test]
fn a_hole_is_refused() {
    assert_eq!(recover(&[entry(1, 1), entry(1, 3)]).unwrap_err(), RecoveryError::Hole { after: 0, first: 3 });
    let behind = recover(&[compaction(5, 5, false), entry(1, 7)]).unwrap_err();
    assert_eq!(behind, RecoveryError::Hole { after: 5, first: 7 });
}

#[test]
fn missing_committed_entries_are_refused() {
    let hard = Hard { term: 1, vote: 0, commit: 3 }.record(0);
    assert_eq!(recover(&[entry(1, 1), hard]).unwrap_err(), RecoveryError::Short { commit: 3, last: 1 });
}

/// Old segments are gone: the first one that is left begins with an old compaction, and later ones make up for it.
#[test]
fn a_hole_that_a_later_compaction_covers_is_none() {
    let records = [compaction(2, 2, false), entry(1, 6), entry(1, 7), compaction(5, 6, false), entry(1, 8)];
    assert_eq!(terms(&recover(&records).unwrap()), [(6, 1), (7, 1), (8, 1)]);
}

/// Every segment begins with the newest compaction, also when it was one that began anew.
#[test]
fn a_repeated_compaction_voids_nothing() {
    let records = [entry(1, 1), entry(1, 9), compaction(5, 5, true), entry(2, 6), compaction(5, 5, true), entry(2, 7)];
    assert_eq!(terms(&recover(&records).unwrap()), [(6, 2), (7, 2)]);
}

#[test]
fn what_is_not_ours_is_refused() {
    let strange = Record { kind: Kind::HardState, group: 0, term: 1, index: 0, payload: Bytes::from_static(b"?") };
    assert!(matches!(recover(std::slice::from_ref(&strange)), Err(RecoveryError::Malformed(_))));
    assert!(
        recover(&[Record { group: 1, ..strange }]).unwrap().is_empty(),
        "another group's record is none of our business"
    );
}
