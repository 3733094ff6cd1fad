use bytes::Bytes;

use super::*;
use crate::clock::Now;
use crate::entry::EntryKind;
use crate::membership::Change;
use crate::node::Node;
use crate::random::Random;
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

/// Records as a member writes them: entries of rising terms that replace one another unless they are committed, changes of the membership,
/// compactions of what is committed, snapshots from a leader, and what every segment repeats. Also how much is committed.
fn any_log(random: &mut Random) -> (Vec<Record>, u64) {
    let (mut records, mut last, mut committed, mut term) = (Vec::new(), 0, 0, 1);
    let (mut newest, mut begin) = (None, 0);
    for time in 0..random.below(120) {
        match random.below(12) {
            // A new leader replaces some of what is not committed.
            0 => {
                term += 1;
                last -= random.below(last - committed + 1);
            }
            1 => committed += random.below(last - committed + 1),
            2 if committed > begin => {
                let snapshot = begin + 1 + random.below(committed - begin);
                begin += random.below(snapshot - begin + 1);
                newest = Some(compaction(begin, snapshot, false));
                records.extend(newest.clone());
            }
            3 if random.below(8) == 0 => {
                last += 1 + random.below(5);
                (committed, begin) = (last, last);
                newest = Some(compaction(last, last, true));
                records.extend(newest.clone());
            }
            4 => records.extend(newest.clone()),
            kind => {
                let kind = if kind == 5 { EntryKind::Membership } else { EntryKind::Command };
                last += 1;
                records.push(record::entry(0, term, last, entry::encode(kind, time, &[last as u8; 40])));
            }
        }
    }
    (records, committed)
}

fn recover_kept(records: &[Record], kept: u64, tail_bytes: usize) -> Recovered {
    let settings = Settings { lagging_log_bytes: tail_bytes as u64, ..Settings::default() };
    let mut recovery = Recovery::of_kept(&settings, kept);
    for Record { kind, group, term, index, payload } in records {
        recovery.visit(Record { kind: *kind, group: *group, term: *term, index: *index, payload });
    }
    recovery.finish().unwrap()
}

#[test]
fn what_is_passed_over_leaves_what_a_log_needs_to_go_on() {
    let mut passed_over = 0;
    for seed in 0..20_000 {
        let mut random = Random::new(seed);
        let (records, committed) = any_log(&mut random);
        let kept = random.below(committed + 1);
        let tail_bytes = random.below(6) as usize * (size_of::<Entry>() + 40);
        let Ok(all) = recover(&records) else { continue };
        let some = recover_kept(&records, kept, tail_bytes);
        let (base, term) = some.base();
        assert_eq!((some.last(), &some.compaction, some.hard), (all.last(), &all.compaction, all.hard), "seed {seed}");
        assert!(base <= kept.max(all.compaction.index), "seed {seed}: entry {base} is needed");
        let (gone, held): (Vec<&Entry>, Vec<&Entry>) = all.entries.iter().partition(|entry| entry.index <= base);
        assert_eq!(some.entries.iter().collect::<Vec<_>>(), held, "seed {seed}");
        assert_eq!(term, gone.last().map_or(all.compaction.term, |entry| entry.term), "seed {seed}");
        let snapshot = all.compaction.snapshot.index;
        let is_change = |entry: &&&Entry| entry.kind == EntryKind::Membership && entry.index > snapshot;
        let changes: Vec<&Bytes> = gone.iter().filter(is_change).map(|entry| &entry.data).collect();
        assert_eq!(some.passed.changes_after(snapshot).collect::<Vec<_>>(), changes, "seed {seed}");
        let newest = gone.iter().map(|entry| entry.time_millis).max().unwrap_or_default();
        assert!(some.passed.time_millis >= newest, "seed {seed}");
        let kept_bytes: usize = held.iter().filter(|entry| entry.index <= kept).map(|entry| size(entry)).sum();
        assert!(kept_bytes <= tail_bytes || held.iter().all(|entry| entry.index > kept), "seed {seed}: {kept_bytes}");
        passed_over += u64::from(some.passed_over_until() > 0);
    }
    assert!(passed_over > 5_000, "{passed_over}");
}

#[test]
fn the_bytes_of_what_is_passed_over_count_for_the_next_snapshot() {
    let mut records: Vec<Record> = (1..=100).map(|index| entry(1, index)).collect();
    assert_eq!(recover_kept(&records, 100, 0).passed.command_bytes, 100);
    assert_eq!(recover_kept(&records, 60, 0).passed.command_bytes, 60);
    records.insert(80, compaction(30, 40, false));
    assert_eq!(recover_kept(&records, 100, 0).passed.command_bytes, 60, "what a snapshot has does not count");
}

const NOW: Now = Now { boot_micros: 1_000_000, unix_millis: 1_000 };

/// Lets a node do what it wants, with a disk that is instant.
fn work(node: &mut Node, records: &mut Vec<Record>) {
    loop {
        let output = node.take(NOW);
        if output.is_empty() {
            return;
        }
        if let Some(last) = output.entries.last() {
            node.applied(last.index);
        }
        if let Some(batch) = output.batch {
            records.extend(batch.records);
            node.persisted(batch.token);
        }
    }
}

/// Who was added by an entry that is passed over belongs to the group all the same.
#[test]
fn a_node_goes_on_behind_what_was_passed_over() {
    let settings = Settings { lagging_log_bytes: 0, ..Settings::default() };
    let (founded, mut records) = Recovered::found(&settings, Membership::of([1]), b"");
    let mut node = Node::new(1, settings.clone(), founded, 1, NOW).unwrap();
    work(&mut node, &mut records);
    node.change_membership(&[Change::AddLearner(2)]).unwrap();
    work(&mut node, &mut records);
    node.propose(vec![Bytes::from_static(b"x"); 3], NOW).unwrap();
    work(&mut node, &mut records);
    let applied = node.applied_index();
    let mut recovery = Recovery::of_kept(&settings, applied);
    for Record { kind, group, term, index, payload } in &records {
        recovery.visit(Record { kind: *kind, group: *group, term: *term, index: *index, payload });
    }
    let recovered = recovery.finish().unwrap();
    assert_eq!((recovered.entries.len(), recovered.last()), (0, applied));
    let mut again = Node::new(1, settings, recovered, 2, NOW).unwrap();
    work(&mut again, &mut records);
    assert_eq!((again.membership(), again.membership().learners.as_slice()), (node.membership(), &[2][..]));
    assert!(again.applied_index() > applied, "it leads, and begins its term with an entry");
    let next = again.propose(vec![Bytes::from_static(b"y")], NOW).unwrap();
    work(&mut again, &mut records);
    assert_eq!(again.applied_index(), next.first);
    assert_eq!(again.describe_snapshot().unwrap().membership.learners, [2]);
}
