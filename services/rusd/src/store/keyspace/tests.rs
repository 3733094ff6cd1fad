use proptest::prelude::*;

use super::super::spill::{Limits, Spill};
use super::model::{Changes, Happened, Model};
use super::*;

#[derive(Clone, Debug)]
enum Step {
    Write(Changes),
    Compact(u8),
    Sweep(u8),
    Spill(u8),
    Reload,
    Keep,
    Look { back: u8, from: Vec<u8>, to: Vec<u8> },
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => (0..10u8).prop_map(|n| vec![b'a' + n]),
        2 => (0..4u8, 0..3u8).prop_map(|(a, b)| vec![b'a' + a, b]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let value = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..4),
        // Large enough for the disk.
        (any::<u8>(), 60..80usize).prop_map(|(byte, len)| vec![byte; len]),
    ];
    let put = (value, 0..3i64);
    let change = (key(), proptest::option::weighted(0.7, put));
    prop_oneof![
        10 => proptest::collection::vec(change, 1..4).prop_map(Step::Write),
        1 => any::<u8>().prop_map(Step::Compact),
        2 => (0..6u8).prop_map(Step::Sweep),
        4 => (1..6u8).prop_map(Step::Spill),
        1 => Just(Step::Reload),
        1 => Just(Step::Keep),
        8 => (any::<u8>(), key(), prop_oneof![Just(vec![]), Just(vec![0]), key()])
            .prop_map(|(back, from, to)| Step::Look { back, from, to }),
    ]
}

fn reload(space: &Keyspace) -> Keyspace {
    let (base, changes) = space.parts();
    let copy = |record: &Record| Record::from_bytes(&record.as_bytes()).unwrap();
    Keyspace::from_parts(space.revision, space.compacted, base.map(copy), changes.map(copy)).unwrap()
}

fn look(space: &Keyspace, model: &Model, back: u8, keys: Keys<'_>) {
    assert_eq!((space.revision(), space.compacted()), (model.revision, model.compacted));
    let oldest = model.compacted.max(1);
    let revision = model.revision - i64::from(back) % (model.revision - oldest + 1);
    let expected = model.range(keys, revision);
    let found: Vec<_> = space.range(keys, revision).map(Record::to_key_value).collect();
    assert_eq!(found, expected);
    assert_eq!(space.count(keys, revision), expected.len());
    assert_eq!(space.get_at(keys.start(), revision).map(Record::to_key_value), model.exists(keys.start(), revision));
    let happened = |record: &Record| Happened {
        at: record.revision(),
        key: record.key().to_vec(),
        put: (!record.is_tombstone()).then(|| record.to_key_value()),
    };
    let from = revision.max(model.compacted);
    assert_eq!(space.changes(from).map(happened).collect::<Vec<_>>(), model.happened(from));
    for change in space.changes(from) {
        let before = change.main() - 1;
        let expected = (before >= model.compacted).then(|| model.exists(change.key(), before)).flatten();
        assert_eq!(space.previous(change).map(Record::to_key_value), expected);
    }
}

/// Moves values to disk that are more than these bytes; files are small, so that there are several.
fn spill(memory_bytes: u64) -> Spill {
    Spill::new(Limits { memory_bytes, file_bytes: 500 }, tempfile::tempfile, |error| panic!("{error}"))
}

/// What is counted is what is there, and all of it will be found.
fn check_hot(space: &Keyspace) {
    let records = || space.live.iter().map(|live| &live.0).chain(space.history.iter().map(|past| &past.0));
    assert_eq!(space.hot_bytes, records().map(|record| record.hot_bytes() as u64).sum::<u64>());
    for record in records().filter(|record| record.hot_bytes() > 0) {
        let at = |change: &Change| change.0.revision().cmp(&record.revision());
        let (is_aged, is_logged) = (space.aged.get(at).is_some(), space.log.get(at).is_some());
        assert!(is_aged != (is_logged && record.revision() > space.looked), "{record:?}");
    }
    assert!(space.aged.iter().all(|aged| space.placed(aged.0.key(), aged.0.revision()).is_some()));
}

proptest! {
    #[test]
    fn a_keyspace_is_the_list_of_everything_that_happened(
        memory_bytes in 0..500u64,
        steps in proptest::collection::vec(step(), 0..120),
    ) {
        let mut spill = spill(memory_bytes);
        let (mut space, mut model, mut kept) = (Keyspace::default(), Model::default(), Vec::new());
        for step in steps {
            match step {
                Step::Write(changes) => {
                    let mut scratch = Vec::new();
                    let mut write = space.write(&mut scratch);
                    for (key, put) in &changes {
                        match put {
                            Some((value, lease)) => write.put(key, value, *lease),
                            None => write.delete(key),
                        };
                    }
                    model.write(&changes);
                }
                Step::Compact(back) => {
                    let revision = model.revision - i64::from(back % 8);
                    let expected = match revision {
                        _ if revision <= model.compacted => Err(Error::Compacted),
                        _ => Ok(()),
                    };
                    prop_assert_eq!(space.compact(revision), expected);
                    model.compacted = model.compacted.max(revision);
                }
                Step::Sweep(changes) => drop(space.sweep(changes.into(), model.revision)),
                Step::Spill(records) => drop(spill.step(&mut space, records.into())),
                Step::Reload => space = reload(&space),
                Step::Keep => kept.push((space.clone(), model.clone())),
                Step::Look { back, from, to } => look(&space, &model, back, Keys::new(&from, &to)),
            }
            check_hot(&space);
        }
        look(&space, &model, 0, Keys::ALL);
        // Hot or cold, it is the same.
        let (hot, mut coldest) = (reload(&space), self::spill(0));
        while coldest.step(&mut space, 3) {}
        check_hot(&space);
        prop_assert_eq!(space.hot_bytes(), 0);
        for revision in space.compacted.max(1)..=space.revision {
            let hash = |space: &Keyspace| super::super::hash::hash_key_values(space, revision);
            prop_assert_eq!(hash(&space), hash(&hot));
        }
        for (space, model) in &kept {
            look(space, model, 200, Keys::ALL);
        }
        // However far the sweep went, what is told of the state is the same; swept through, nothing is left too much.
        let before = reload(&space);
        while !space.sweep(7, i64::MAX) {}
        let mut after = reload(&space);
        while !after.sweep(7, i64::MAX) {}
        prop_assert_eq!(space.bytes(), after.bytes());
        prop_assert_eq!(space.history.len(), after.history.len());
        prop_assert_eq!(space.log.len(), after.log.len());
        look(&before, &model, 3, Keys::ALL);
        look(&after, &model, 3, Keys::ALL);
    }

    #[test]
    fn parts_that_do_not_fit_are_refused(revision in -2..6i64, compacted in -2..6i64, base in 0..3usize, from in 0..4usize, to in 0..5usize) {
        let mut space = Keyspace::default();
        let mut scratch = Vec::new();
        for key in [b"a", b"b", b"a", b"b"] {
            space.write(&mut scratch).put(key, b"", 0);
        }
        let changes: Vec<_> = space.changes(0).cloned().collect();
        let (base, changes) = (changes[..base].to_vec(), changes.get(from..to.min(4)).unwrap_or_default().to_vec());
        if let Some(space) = Keyspace::from_parts(revision, compacted, base.into_iter(), changes.into_iter()) {
            let copy = reload(&space);
            prop_assert_eq!(copy.revision(), revision);
        }
    }
}

#[test]
fn a_compacted_tombstone_is_still_told_to_who_watches_from_there() {
    let mut space = Keyspace::default();
    let mut scratch = Vec::new();
    space.write(&mut scratch).put(b"a", b"1", 0);
    space.write(&mut scratch).delete(b"a");
    space.compact(3).unwrap();
    while !space.sweep(100, i64::MAX) {}
    let told: Vec<_> = space.changes(3).map(|change| (change.main(), change.is_tombstone())).collect();
    assert_eq!(told, [(3, true)]);
    assert_eq!((space.history.len(), space.live.len()), (0, 0));
}

/// Who waits for his own compaction waited for all that came after it, for ever where they came fast enough.
#[test]
fn a_compaction_is_swept_whatever_is_compacted_meanwhile() {
    let mut space = Keyspace::default();
    let mut scratch = Vec::new();
    for _ in 0..20 {
        space.write(&mut scratch).put(b"k", b"v", 0);
    }
    assert!(space.is_swept_until(space.compacted()), "nothing was compacted");
    space.compact(5).unwrap();
    assert!(!space.is_swept_until(5));
    let mut compacted = 5;
    while !space.is_swept_until(5) {
        compacted += 1;
        space.compact(compacted).unwrap();
        assert!(!space.sweep(2, i64::MAX), "the newest compaction is never swept");
    }
    assert!(!space.is_swept() && !space.is_swept_until(compacted));
    while !space.sweep(2, i64::MAX) {}
    assert!(space.is_swept_until(compacted));
}

#[test]
fn the_count_of_a_range_is_known_without_walking_through_it() {
    let mut space = Keyspace::default();
    let mut scratch = Vec::new();
    for n in 0..5000 {
        space.write(&mut scratch).put(format!("/registry/pods/{n:04}").as_bytes(), b"", 0);
    }
    let pods = Keys::new(b"/registry/pods/1", b"/registry/pods/2");
    assert_eq!(space.count(pods, space.revision()), 1000);
}
